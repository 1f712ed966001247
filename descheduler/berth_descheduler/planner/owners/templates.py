"""What a pod's replacement asks for that the pod does not, since it is made from its owner's template.

A template differs where the replacement would ask for more of a resource, or for other nodes. What the pod has beyond
the template came from admission and comes again: containers that a webhook adds, tolerations, a default priority class,
requests where the template has none. Where the pod is of another revision, the template may also have dropped what the
pod asks for; that counts for nodes, since a place held by those labels would not be taken.

A VerticalPodAutoscaler sets requests of cpu and memory at admission and in place, and marks the pod. Its recommendation
is not read: the replacement is assumed to get what the pod has.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

import msgspec

from berth_core import (
    HANDOVER_GATE,
    QUEUE_GATE,
    Container,
    InputError,
    Pod,
    PodSpec,
    PodTemplate,
    ResourceAmounts,
    ResourceRequirements,
    Volume,
    effective_requests,
)
from berth_core.canonical_terms import canonical_affinity, canonical_spread, canonical_tolerations
from berth_core.matching import DEFAULT_SCHEDULER
from berth_core.objects.metadata import RawQuantity
from berth_core.objects.pods import ANY_ADDRESS

VPA_ANNOTATIONS: Final = ("vpaUpdates", "vpaInPlaceUpdated")
"""On pods whose requests a VerticalPodAutoscaler has set, at admission or in place."""

_VPA_RESOURCES: Final = frozenset({"cpu", "memory"})
_OWN_GATES: Final = frozenset({HANDOVER_GATE, QUEUE_GATE})


_COMPARED: Final = attrgetter(
    "containers",
    "init_containers",
    "resources",
    "overhead",
    "node_selector",
    "affinity",
    "tolerations",
    "topology_spread_constraints",
    "priority_class_name",
    "runtime_class_name",
    "scheduler_name",
    "host_network",
    "resource_claims",
    "os",
)
"""What of a pod is compared beside its volumes, of which one has another name in every pod."""


class Templates:
    """Compares pods with the templates of one snapshot; a pod that is like one before it costs little."""

    def __init__(self) -> None:
        self._alike: dict[tuple[int, bool], PodSpec] = {}
        """By the template's identity: the spec of a pod from which it does not differ."""

    def differences(self, pod: Pod, template: PodTemplate, *, is_other_revision: bool = False) -> str:
        """Return what the replacement asks for that no place held for the pod has, "" for nothing.

        `is_other_revision` says that the pod was made from another template.
        """
        template_spec, pod_spec, key = template.spec, pod.spec, (id(template), is_other_revision)
        alike = self._alike.get(key)
        differences: list[str] = []
        if alike is None or _COMPARED(alike) != _COMPARED(pod_spec):
            differences += _differences(pod, template_spec, is_other_revision=is_other_revision)
            if not differences and not _is_set_by_vpa(pod):
                self._alike[key] = pod_spec
        if template_spec.volumes:
            differences += _further_volumes(template_spec, pod_spec)
        return ", ".join(differences)


def _differences(pod: Pod, template_spec: PodSpec, *, is_other_revision: bool) -> Iterator[str]:
    if template_spec.node_name:
        yield f"names the node {template_spec.node_name}"
    for gate in template_spec.scheduling_gates:
        if gate.name not in _OWN_GATES:
            yield f"waits until another program takes off the scheduling gate {gate.name}"
    yield from _greater_requests(pod, template_spec)
    yield from _other_nodes(template_spec, pod.spec, is_other_revision=is_other_revision)
    yield from _other_names(template_spec, pod.spec)
    yield from _other_system(template_spec, pod.spec, is_other_revision=is_other_revision)
    yield from _further_things_of_the_node(template_spec, pod.spec)


def _is_set_by_vpa(pod: Pod) -> bool:
    return any(key in pod.metadata.annotations for key in VPA_ANNOTATIONS)


def _greater_requests(pod: Pod, template_spec: PodSpec) -> Iterator[str]:
    """Yield which requests the replacement has beyond the pod's."""
    pod_spec = pod.spec
    if (
        template_spec.resources == pod_spec.resources
        and not template_spec.overhead
        and _have_equal_containers(template_spec, pod_spec)
    ):
        return
    try:
        held_amounts, amounts = effective_requests(pod_spec), _requests_as_admitted(pod, template_spec)
    except InputError as error:
        yield f"has requests that cannot be read ({error})"
        return
    in_pod, in_replacement = held_amounts.to_quantities(), amounts.to_quantities()
    for name in amounts.lacking(held_amounts):
        instead = f" instead of {in_pod[name]}" if name in in_pod else ""
        yield f"asks for {name} {in_replacement[name]}{instead}"


def _have_equal_containers(template_spec: PodSpec, pod_spec: PodSpec) -> bool:
    """Return whether each container of a template is in the pod with the same resources, as nearly always."""
    pairs = ((template_spec.containers, pod_spec.containers), (template_spec.init_containers, pod_spec.init_containers))
    return all(_are_equal(in_template, in_pod) for in_template, in_pod in pairs)


def _are_equal(in_template: tuple[Container, ...], in_pod: tuple[Container, ...]) -> bool:
    resources_by_name = {container.name: container.resources for container in in_pod}
    return all(resources_by_name.get(container.name) == container.resources for container in in_template)


def _requests_as_admitted(pod: Pod, template_spec: PodSpec) -> ResourceAmounts:
    """Return what the replacement requests once admission has added what it added to the pod."""
    pod_spec = pod.spec
    by_vpa = _VPA_RESOURCES if _is_set_by_vpa(pod) else frozenset[str]()
    spec = PodSpec(
        containers=_as_admitted(template_spec.containers, pod_spec.containers, by_vpa),
        init_containers=_as_admitted(template_spec.init_containers, pod_spec.init_containers, by_vpa),
        resources=template_spec.resources,
        overhead=template_spec.overhead or pod_spec.overhead,
    )
    amounts = effective_requests(spec)
    if template_spec.resources is None and pod_spec.resources is not None:
        # Admission has set them, and does again, or the template does not have them any more.
        amounts = amounts.largest(effective_requests(msgspec.structs.replace(spec, resources=pod_spec.resources)))
    return amounts


def _as_admitted(
    in_template: Iterable[Container], in_pod: Iterable[Container], by_vpa: frozenset[str]
) -> tuple[Container, ...]:
    """Return the replacement's containers in the pod's order, and at the end those that only the template has."""
    not_in_pod = {container.name: container for container in in_template}
    merged = [_merged(not_in_pod.pop(container.name, container), container, by_vpa) for container in in_pod]
    return (*merged, *not_in_pod.values())


def _merged(template_container: Container, pod_container: Container, by_vpa: frozenset[str]) -> Container:
    """Return a container as admission makes it: what the template leaves open is as in the pod."""
    requests: dict[str, RawQuantity] = {
        **_requests_of(pod_container.resources),
        **{name: amount for name, amount in _requests_of(template_container.resources).items() if name not in by_vpa},
    }
    return msgspec.structs.replace(template_container, resources=ResourceRequirements(requests=requests))


def _requests_of(resources: ResourceRequirements) -> Mapping[str, RawQuantity]:
    """Return requests with those that the API server makes of limits."""
    # `SetDefaults_Pod` (pkg/apis/core/v1/defaults.go) makes a request of each limit without one, in pods but not in
    # templates.
    return {**resources.limits, **resources.requests}


def _other_nodes(template_spec: PodSpec, pod_spec: PodSpec, *, is_other_revision: bool) -> Iterator[str]:
    """Yield the rules by which the replacement looks for other nodes."""
    if added := sorted(template_spec.node_selector.items() - pod_spec.node_selector.items()):
        yield f"selects nodes by {_pairs(added)}"
    elif is_other_revision and (
        dropped := sorted(pod_spec.node_selector.items() - template_spec.node_selector.items())
    ):
        yield f"does not select nodes by {_pairs(dropped)}"
    if (template_spec.affinity is not None or is_other_revision) and template_spec.affinity != pod_spec.affinity:
        in_template, in_pod = canonical_affinity(template_spec.affinity), canonical_affinity(pod_spec.affinity)
        if in_template != in_pod and (template_spec.affinity is None or in_template != canonical_affinity(None)):
            yield "has another affinity"
    if template_spec.tolerations and template_spec.tolerations != pod_spec.tolerations:
        tolerated = canonical_tolerations(template_spec.tolerations) - canonical_tolerations(pod_spec.tolerations)
        if tolerated:
            yield f"tolerates {', '.join(sorted(toleration.key or 'every taint' for toleration in tolerated))}"
    if (
        template_spec.topology_spread_constraints
        and template_spec.topology_spread_constraints != pod_spec.topology_spread_constraints
    ):
        in_template, in_pod = (
            canonical_spread(template_spec.topology_spread_constraints),
            canonical_spread(pod_spec.topology_spread_constraints),
        )
        if not in_template <= in_pod:
            yield "has another topologySpreadConstraint"


def _other_names(template_spec: PodSpec, pod_spec: PodSpec) -> Iterator[str]:
    """Yield the names by which the scheduler would treat the replacement differently."""
    pairs = (
        ("priorityClassName", template_spec.priority_class_name, pod_spec.priority_class_name),
        ("runtimeClassName", template_spec.runtime_class_name, pod_spec.runtime_class_name),
        ("schedulerName", template_spec.scheduler_name.removeprefix(DEFAULT_SCHEDULER), pod_spec.scheduler_name),
    )
    for field, in_template, in_pod in pairs:
        if in_template and in_template != in_pod:
            yield f"has the {field} {in_template}"


def _other_system(template_spec: PodSpec, pod_spec: PodSpec, *, is_other_revision: bool) -> Iterator[str]:
    """Yield the replacement's operating system where it differs; admission sets none."""
    if template_spec.os is not None and template_spec.os != pod_spec.os:
        yield f"is for the operating system {template_spec.os.name}"
    elif template_spec.os is None and pod_spec.os is not None and is_other_revision:
        yield "names no operating system"


def _further_things_of_the_node(template_spec: PodSpec, pod_spec: PodSpec) -> Iterator[str]:
    """Yield which ports and devices of a node the replacement needs beside the pod's."""
    for port, protocol, address in sorted(host_ports(template_spec) - host_ports(pod_spec)):
        yield f"needs the host port {f'{address}:' if address else ''}{port}/{protocol}"
    claims = {claim.get("name") for claim in pod_spec.resource_claims}
    for claim in template_spec.resource_claims:
        if claim.get("name") not in claims:
            yield f"claims the device {claim.get('name')}"


def _further_volumes(template_spec: PodSpec, pod_spec: PodSpec) -> Iterator[str]:
    """Yield the volumes with a fixed location that the replacement mounts beside the pod's."""
    tied_volumes = {_tie_of(volume) for volume in pod_spec.volumes}
    for volume in template_spec.volumes:
        if (tie := _tie_of(volume)) and tie not in tied_volumes:
            yield f"mounts the {tie}"


def host_ports(spec: PodSpec) -> set[tuple[int, str, str]]:
    """Return the port, protocol and address of each host port that a pod needs, "" for every address.

    A pod with the host's network needs all of its ports there.
    """
    return {
        (number, port.protocol or "TCP", "" if port.host_ip == ANY_ADDRESS else port.host_ip)
        for container in (*spec.containers, *spec.init_containers)
        for port in container.ports
        if (number := port.host_port or (port.container_port if spec.host_network else None))
    }


def _tie_of(volume: Volume) -> str:
    """Return what ties a pod to the location of a volume, "" for a volume that every node makes anew."""
    if volume.persistent_volume_claim is not None:
        return f"claim {volume.persistent_volume_claim.claim_name}"
    if volume.ephemeral is not None:
        return f"ephemeral claim of volume {volume.name}"
    return f"disk of volume {volume.name}" if volume.is_attached else ""


def _pairs(items: Iterable[tuple[str, str]]) -> str:
    return ",".join(f"{key}={value}" for key, value in items)
