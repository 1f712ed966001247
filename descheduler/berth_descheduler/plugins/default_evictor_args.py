"""The arguments of `DefaultEvictor`, by their names in the upstream descheduler.

Arguments that would lose a pod are refused, each with the reason. What upstream accepts in silence (both spellings of a
protection at once, an unknown one) is an error here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, TypeVar

from berth_core import (
    InputError,
    LabelSelector,
    format_duration,
    parse_duration,
    parse_selector,
    read_selector,
    refuse_unknown,
)
from berth_descheduler.planner import EvictableNamespaces
from berth_descheduler.planner.owners.owners_of_owners import read_owner_kinds

T = TypeVar("T")


class Protection(StrEnum):
    """Kinds of pods that stay, by their names in `podProtections`."""

    LOCAL_STORAGE = "PodsWithLocalStorage"
    DAEMON_SET = "DaemonSetPods"
    SYSTEM_CRITICAL = "SystemCriticalPods"
    FAILED_BARE = "FailedBarePods"
    CLAIM = "PodsWithPVC"
    WITHOUT_BUDGET = "PodsWithoutPDB"
    RESOURCE_CLAIM = "PodsWithResourceClaims"


class NoEvictionPolicy(StrEnum):
    """What the annotation `descheduler.alpha.kubernetes.io/prefer-no-eviction` means."""

    PREFERRED = "Preferred"
    """Where another pod would do as well, that one is moved."""

    MANDATORY = "Mandatory"
    """The pod stays."""


_DEFAULT: Final = frozenset(
    {Protection.LOCAL_STORAGE, Protection.DAEMON_SET, Protection.SYSTEM_CRITICAL, Protection.FAILED_BARE}
)
_EXTRA: Final = frozenset({Protection.CLAIM, Protection.WITHOUT_BUDGET, Protection.RESOURCE_CLAIM})

_ALWAYS: Final[Mapping[Protection, str]] = {
    Protection.DAEMON_SET: "a DaemonSet makes its pod again on the same node and nowhere else",
    Protection.SYSTEM_CRITICAL: "Kubernetes allows no place to be held at a priority of the system",
    Protection.FAILED_BARE: "no controller would make such a pod again",
}
"""Protections that cannot be switched off, and why."""

_OLD_OFF: Final[Mapping[str, Protection]] = {
    "evictLocalStoragePods": Protection.LOCAL_STORAGE,
    "evictDaemonSetPods": Protection.DAEMON_SET,
    "evictSystemCriticalPods": Protection.SYSTEM_CRITICAL,
    "evictFailedBarePods": Protection.FAILED_BARE,
}
_OLD_ON: Final[Mapping[str, Protection]] = {
    "ignorePvcPods": Protection.CLAIM,
    "ignorePodsWithoutPDB": Protection.WITHOUT_BUDGET,
}
ARGUMENTS: Final[Mapping[str, str]] = {
    "nodeSelector": "Sources and targets, as `pool=batch,zone in (a,b),!spot`; all by default (NodeNotSelected).",
    "labelSelector": "Only pods that these `matchLabels` and `matchExpressions` select (LabelsNotSelected).",
    "namespaceLabelSelector": "Only pods of namespaces that this selects (NamespaceNotSelected).",
    "namespaces": "Only pods of the namespaces in `include`, or not in `exclude` (NamespaceNotEvictable).",
    "priorityThreshold": "Only pods below this `value`, or below the PriorityClass `name` (PriorityTooHigh).",
    "nodeFit": "Accepted, without effect: a pod moves only to a node that takes it.",
    "minReplicas": "Only pods whose controller has at least this many live pods (TooFewReplicas).",
    "minPodAge": "Only pods that started at least this long ago (TooYoung).",
    "harmlessOwners": "Kinds that may own controllers of moved pods, as `Etcd.example.com`; `*`: all (UnknownOwner).",
    "noEvictionPolicy": "`Preferred`, or `Mandatory` to keep pods with `prefer-no-eviction` (WantsNoEviction).",
    "podProtections": "Newer spelling of the flags below: `defaultDisabled`, `extraEnabled`, `config`; not both.",
    "evictLocalStoragePods": "Move pods with `emptyDir` or `hostPath` volumes, too (else LocalStorage).",
    "evictDaemonSetPods": "`true` is refused: a DaemonSet makes its pod again on the same node only.",
    "evictSystemCriticalPods": "`true` is refused: no place can be held at a priority of the system.",
    "evictFailedBarePods": "`true` is refused: no controller would make such a pod again.",
    "ignorePvcPods": "Keep pods with a claim (PersistentStorage).",
    "ignorePodsWithoutPDB": "Keep pods that no disruption budget selects (WithoutBudget).",
}
"""Each argument with its meaning, as the reference page shows it, and the reason for which it keeps a pod."""


@dataclass(frozen=True, slots=True)
class PriorityThreshold:
    """The priority from which on pods stay: a value, or the name of a PriorityClass that has it."""

    value: int | None = None
    name: str = ""


@dataclass(frozen=True, slots=True)
class DefaultEvictorArgs:
    """Which pods may be moved, by default those that the upstream descheduler would evict by default."""

    node_selector: LabelSelector | None = None
    """Only pods on these nodes, and only to these nodes; None: all."""

    label_selector: LabelSelector | None = None
    """Only pods with these labels; None: all."""

    namespace_label_selector: LabelSelector | None = None
    """Only pods of namespaces with these labels; None: all."""

    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    """Only pods of these namespaces."""

    priority_threshold: PriorityThreshold | None = None
    """None: every priority below the system's."""

    min_replicas: int = 0
    """Only pods whose controller has so many; 0 and 1: all."""

    min_pod_age: timedelta | None = None
    """Only pods that were started so long ago; None: all."""

    harmless_owners: frozenset[str] = frozenset()
    """Kinds, as `Kind.group`, that may stand above a controller beside those known to be harmless; `*`: every kind."""

    no_eviction_policy: NoEvictionPolicy = NoEvictionPolicy.PREFERRED

    protections: frozenset[Protection] = _DEFAULT

    protected_storage_classes: frozenset[str] = frozenset()
    """With the protection of pods with claims: only claims of these classes; none: all claims."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "DefaultEvictorArgs":
        """Return the arguments of a policy's `args`; raises `InputError` that names the field."""
        refuse_unknown("args", raw, ARGUMENTS)
        _flag(raw, "nodeFit")  # a target is always sought, and its place held: nothing depends on it
        classes = _storage_classes(raw.get("podProtections"))
        protections = _protections(raw)
        if classes and Protection.CLAIM not in protections:
            field_path = "podProtections.config.PodsWithPVC"
            raise InputError(
                field_path, sorted(classes), f"{Protection.CLAIM} in podProtections.extraEnabled beside it"
            )
        return cls(
            node_selector=_optional(raw, "nodeSelector", parse_selector),
            label_selector=_optional(raw, "labelSelector", read_selector),
            namespace_label_selector=_optional(raw, "namespaceLabelSelector", read_selector),
            namespaces=EvictableNamespaces.of_argument(raw.get("namespaces")),
            priority_threshold=_optional(raw, "priorityThreshold", _priority_threshold),
            min_replicas=_whole_number(raw, "minReplicas"),
            min_pod_age=_optional(raw, "minPodAge", _age),
            harmless_owners=read_owner_kinds("harmlessOwners", raw.get("harmlessOwners")),
            no_eviction_policy=_no_eviction_policy(raw.get("noEvictionPolicy")),
            protections=protections,
            protected_storage_classes=classes,
        )

    @property
    def age_in_words(self) -> str:
        """Return the least age as a policy has it."""
        return format_duration(self.min_pod_age or timedelta(0))


def _optional(raw: Mapping[str, Any], name: str, read: Callable[[Any], T]) -> T | None:
    """Return what a field holds, None where it is empty; an error names the field."""
    value = raw.get(name)
    if value is None or value in ("", {}):
        return None
    try:
        return read(value)
    except InputError as error:
        if error.field == "selector":
            raise InputError(name, error.value, error.expected) from error
        raise error.within(name) from error


def _priority_threshold(raw: object) -> PriorityThreshold | None:
    if not isinstance(raw, Mapping) or not set(raw) <= {"value", "name"}:
        raise InputError("selector", raw, "a mapping with a value or the name of a PriorityClass")
    value, name = raw.get("value"), raw.get("name") or ""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise InputError("value", value, "a whole number")
    if not isinstance(name, str):
        raise InputError("name", name, "the name of a PriorityClass")
    if value is not None and name:
        raise InputError("selector", dict(raw), "a value or a name, not both")
    return PriorityThreshold(value, name) if value is not None or name else None


def _age(raw: object) -> timedelta:
    expected = "a duration from 0 on such as 5m or 1h30m"
    try:
        age = parse_duration(raw) if isinstance(raw, str) else None
    except InputError:
        age = None
    if age is None or age < timedelta(0):
        raise InputError("selector", raw, expected)
    return age


def _no_eviction_policy(raw: object) -> NoEvictionPolicy:
    if raw in {None, ""}:
        return NoEvictionPolicy.PREFERRED
    policies_by_value = {policy.value: policy for policy in NoEvictionPolicy}
    if not isinstance(raw, str) or raw not in policies_by_value:
        raise InputError("noEvictionPolicy", raw, " or ".join(policies_by_value))
    return policies_by_value[raw]


def _whole_number(raw: Mapping[str, Any], name: str) -> int:
    value = 0 if raw.get(name) is None else raw[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(name, value, "a whole number from 0 on")
    return value


def _flag(raw: Mapping[str, Any], name: str) -> bool:
    value = False if raw.get(name) is None else raw[name]
    if not isinstance(value, bool):
        raise InputError(name, value, "true or false")
    return value


def _protections(raw: Mapping[str, Any]) -> frozenset[Protection]:
    """Return the protections that hold, from either spelling of the arguments."""
    old_off = {
        protection for name, protection in _OLD_OFF.items() if _flag(raw, name) and _may_be_off(name, protection)
    }
    old_on = {protection for name, protection in _OLD_ON.items() if _flag(raw, name)}
    pod_protections = raw.get("podProtections") or {}
    if not isinstance(pod_protections, Mapping) or not set(pod_protections) <= {
        "defaultDisabled",
        "extraEnabled",
        "config",
    }:
        raise InputError("podProtections", pod_protections, "a mapping with defaultDisabled, extraEnabled and config")
    disabled = _listed(pod_protections, "defaultDisabled", _DEFAULT)
    extra_enabled = _listed(pod_protections, "extraEnabled", _EXTRA)
    if (disabled or extra_enabled) and (old_off or old_on):
        older = next(name for name in (*_OLD_OFF, *_OLD_ON) if raw.get(name))
        raise InputError(older, value=True, expected="nothing beside podProtections, which says the same")
    return (_DEFAULT - disabled - old_off) | extra_enabled | old_on


def _listed(pod_protections: Mapping[str, Any], name: str, known: frozenset[Protection]) -> frozenset[Protection]:
    raw = pod_protections.get(name) or []
    if not isinstance(raw, list | tuple):
        raise InputError(f"podProtections.{name}", raw, "a list")
    values = {protection.value: protection for protection in known}
    protections = set()
    for index, value in enumerate(raw):
        field_path = f"podProtections.{name}[{index}]"
        if not isinstance(value, str) or value not in values:
            raise InputError(field_path, value, f"one of {', '.join(sorted(values))}")
        if name == "extraEnabled" or _may_be_off(field_path, values[value]):
            protections.add(values[value])
    return frozenset(protections)


def _may_be_off(place: str, protection: Protection) -> bool:
    """Return True; raises `InputError` if pods would be lost without it."""
    if protection in _ALWAYS:
        legacy = place in _OLD_OFF
        expected = "false" if legacy else f"only {Protection.LOCAL_STORAGE}"
        raise InputError(place, legacy or protection.value, f"{expected}, as {_ALWAYS[protection]}")
    return True


def _storage_classes(raw: object) -> frozenset[str]:
    """Return the storage classes of `podProtections.config.PodsWithPVC.protectedStorageClasses`."""
    expected = "a list of mappings with the name of a StorageClass"
    field_path, config = "podProtections", raw
    for step in ("config", Protection.CLAIM.value, "protectedStorageClasses"):
        if not config:
            return frozenset()
        if not isinstance(config, Mapping):
            raise InputError(field_path, config, f"a mapping with {step}")
        if field_path != "podProtections":
            refuse_unknown(field_path, config, {step})
        field_path, config = f"{field_path}.{step}", config.get(step)
    if not isinstance(config, list | tuple):
        raise InputError(field_path, config, expected)
    names = [storage_class.get("name") if isinstance(storage_class, Mapping) else None for storage_class in config]
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(field_path, config, expected)
    return frozenset(str(name) for name in names)
