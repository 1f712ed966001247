"""Whether the ResourceQuotas of a namespace would refuse the pods of a Reservation's task.

The rules are those of the API server's quota evaluator of pods (`pkg/quota/v1/evaluator/core/pods.go`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core import (
    Container,
    InputError,
    ObjectMeta,
    PodAffinity,
    PodSpec,
    ResourceRequirements,
    effective_requests,
    parse_quantity,
)

Usage = Mapping[str, int]
"""A quota's name of a resource to an amount: cpu in thousandths of a core, others in their unit."""

_PODS: Final = ("pods", "count/pods")
_SHORT_NAMES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_LIMITED: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_REQUIRED_BY_QUOTA: Final = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""A quota on one of these makes every container specify it: `validationSet` upstream, which calls it a mistake."""


class ScopeRequirement(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A condition that a pod must meet for a quota to count it."""

    scope_name: str = ""
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ScopeSelector(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Conditions that must all hold."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class QuotaSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a quota limits, and for which pods."""

    hard: dict[str, str] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None


class QuotaStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The current limits of a quota, and how much is used."""

    hard: dict[str, str] = {}
    used: dict[str, str] = {}


class ResourceQuota(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The parts of a ResourceQuota that pods are checked against."""

    metadata: ObjectMeta
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()

    @property
    def requirements(self) -> tuple[ScopeRequirement, ...]:
        """Return all conditions on a pod, those of `scopes` and of `scopeSelector`."""
        selector = self.spec.scope_selector
        return (
            *(ScopeRequirement(scope_name=scope) for scope in self.spec.scopes),
            *(selector.match_expressions if selector else ()),
        )


@dataclass(frozen=True, slots=True)
class PodTraits:
    """The properties of a pod that quota scopes read."""

    priority_class: str = ""
    """The pod's class as the API server sets it, which is the cluster's default class if the spec names none."""

    ends_by_itself: bool = False
    """Whether the pod has a deadline, which is what the scope Terminating means."""

    best_effort: bool = False
    crosses_namespaces: bool = False
    """Whether a pod affinity names other namespaces."""


def traits_of(spec: PodSpec, default_class: str) -> PodTraits:
    return PodTraits(
        priority_class=spec.priority_class_name or default_class,
        # Of 0 too: the API server's scope Terminating asks whether the field is set (`isTerminating` upstream).
        ends_by_itself=spec.active_deadline_seconds is not None,
        best_effort=not any(_asks_for_compute(requirements) for requirements in _requirements(spec)),
        crosses_namespaces=any(_crosses(affinity) for affinity in _pod_affinities(spec)),
    )


def _requirements(spec: PodSpec) -> Iterable[ResourceRequirements]:
    yield from (container.resources for container in (*spec.containers, *spec.init_containers))
    if spec.resources is not None:
        yield spec.resources


def _asks_for_compute(requirements: ResourceRequirements) -> bool:
    requested = {**requirements.requests, **requirements.limits}
    return any(
        resource in requested and parse_quantity(str(requested[resource])).nano() > 0 for resource in ("cpu", "memory")
    )


def _pod_affinities(spec: PodSpec) -> Iterable[PodAffinity]:
    if spec.affinity is not None:
        yield from filter(None, (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity))


def _crosses(affinity: PodAffinity) -> bool:
    preferred = (
        weighted_term.pod_affinity_term
        for weighted_term in affinity.preferred_during_scheduling_ignored_during_execution
    )
    terms = (*affinity.required_during_scheduling_ignored_during_execution, *preferred)
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


def usage_of(spec: PodSpec) -> dict[str, int]:
    """Return what one pod of this spec counts for in quotas."""
    # `count/pods` counts objects of any phase, `pods` those that have not ended; for new pods both are one.
    usage = dict.fromkeys(_PODS, 1)
    for resource, amount in effective_requests(spec).items():
        usage[f"requests.{resource}"] = amount
        if resource in _SHORT_NAMES or resource.startswith("hugepages-"):
            usage[resource] = amount
    for resource, amount in effective_requests(with_limits_as_requests(spec)).items():
        if resource in _LIMITED:
            usage[f"limits.{resource}"] = amount
    return usage


def with_limits_as_requests(spec: PodSpec) -> PodSpec:
    """Return a spec whose requests are its limits."""

    def convert(requirements: ResourceRequirements) -> ResourceRequirements:
        return ResourceRequirements(requests=requirements.limits, limits=requirements.limits)

    def convert_container(container: Container) -> Container:
        return msgspec.structs.replace(container, resources=convert(container.resources))

    return msgspec.structs.replace(
        spec,
        containers=tuple(map(convert_container, spec.containers)),
        init_containers=tuple(map(convert_container, spec.init_containers)),
        resources=convert(spec.resources) if spec.resources is not None else None,
    )


def counts(quota: ResourceQuota, traits: PodTraits) -> bool:
    return all(_holds(requirement, traits) for requirement in quota.requirements)


def _holds(requirement: ScopeRequirement, traits: PodTraits) -> bool:
    """Return whether pods with these traits meet a condition; as upstream, no pod meets an unknown condition."""
    met_by_scope = {
        "Terminating": traits.ends_by_itself,
        "NotTerminating": not traits.ends_by_itself,
        "BestEffort": traits.best_effort,
        "NotBestEffort": not traits.best_effort,
        "CrossNamespacePodAffinity": traits.crosses_namespaces,
        "PriorityClass": _has_class(requirement, traits.priority_class),
    }
    return met_by_scope.get(requirement.scope_name, False)


def _has_class(requirement: ScopeRequirement, name: str) -> bool:
    match requirement.operator:
        case "In":
            return name in requirement.values
        case "NotIn":
            # As in any label selector, what has no value is in none (`podMatchesSelector` in
            # `pkg/quota/v1/evaluator/core/pods.go`).
            return name not in requirement.values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)


def names_class(quota: ResourceQuota, traits: PodTraits) -> bool:
    """Return whether a quota that is scoped to priority classes counts pods with these traits."""
    has_class_scope = any(requirement.scope_name == "PriorityClass" for requirement in quota.requirements)
    return has_class_scope and counts(quota, traits)


def why_refused(quota: ResourceQuota, spec: PodSpec, asked: Usage, held: Usage) -> str:
    """Return why a quota would refuse pods of a spec, in the API server's words, "" if it would not.

    `asked` is what the Reservation's pods that the quota counts need together, `held` what other Reservations hold. The
    quota itself does not know of either: placeholders are pods of another namespace.
    """
    # Admission checks against the status, which the quota controller brings up to date after an edit of the spec
    # (`pkg/admission/plugin/resourcequota/controller.go`).
    hard = quota.status.hard or quota.spec.hard
    unspecified = sorted(name for name in hard.keys() & _REQUIRED_BY_QUOTA if not _specifies(spec, name))
    if unspecified:
        return f"failed quota: {quota.metadata.name}: must specify {', '.join(unspecified)} for every container"
    for key in sorted(hard.keys() & asked.keys()):
        allowed = _amount(key, hard[key])
        used = _amount(key, quota.status.used.get(key, "0")) + held.get(key, 0)
        if asked[key] and used + asked[key] > allowed:
            return (
                f"exceeded quota: {quota.metadata.name}, requested: {key}={_show(key, asked[key])}, used with what "
                f"is reserved: {key}={_show(key, used)}, limited: {key}={hard[key]}, "
                f"left: {key}={_show(key, max(0, allowed - used))}"
            )
    return ""


def _specifies(spec: PodSpec, name: str) -> bool:
    """Return whether every container, or the pod as a whole, specifies what a quota's name of a resource means."""
    side, _, resource = name.rpartition(".")
    if spec.resources is not None and _has(spec.resources, side, resource):
        return True
    return all(_has(container.resources, side, resource) for container in (*spec.containers, *spec.init_containers))


def _has(requirements: ResourceRequirements, side: str, resource: str) -> bool:
    # A limit without a request is the request, too.
    return resource in requirements.limits or (side != "limits" and resource in requirements.requests)


def _amount(name: str, raw: str) -> int:
    """Return a quota's quantity, 0 for an unreadable one, which no API server stores."""
    try:
        quantity = parse_quantity(str(raw))
    except InputError:
        return 0
    return quantity.milli() if _is_cpu(name) else quantity.value()


def _show(name: str, amount: int) -> str:
    if not _is_cpu(name):
        return str(amount)
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def _is_cpu(name: str) -> bool:
    return name.rpartition(".")[2] == "cpu"
