"""Match pods against the owners and template of a Reservation.

A pod that matches both may take a slot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from berth_core.canonical_terms import canonical_affinity, canonical_spread, canonical_tolerations, digest
from berth_core.divided_amounts import DividedAmounts
from berth_core.labels import TEMPLATE_HASH_LABEL
from berth_core.objects.pods import Pod, PodSpec, PodTemplate
from berth_core.pod_requests import effective_requests
from berth_core.reservations import ObjectReference, ReservationOwner
from berth_core.resources import ResourceAmounts
from berth_core.selectors import matches_labels

DEFAULT_SCHEDULER: Final = "default-scheduler"
DEPLOYMENT: Final = "Deployment"
_SHAPE: Final = "scheduling_shape"
"""The attribute under which a spec caches its scheduling shape."""


def owner_matches(owner: ReservationOwner, pod: Pod) -> bool:
    """Return whether a pod belongs to an owner of a Reservation.

    An owner names the pod or its controller, selects the pod's labels, or has annotations of the pod.
    """
    return (
        (owner.object is not None and _names(owner.object, pod))
        or (owner.label_selector is not None and matches_labels(owner.label_selector, pod.metadata.labels))
        or (bool(owner.annotations) and owner.annotations.items() <= pod.metadata.annotations.items())
    )


@dataclass(frozen=True, slots=True)
class SchedulingShape:
    """The fields of a pod that the scheduler reads, cheap to compare."""

    scheduler_name: str
    """The name that the spec has, "" if it has none."""
    priority_class_name: str
    node_selector: frozenset[tuple[str, str]]
    affinity: bytes
    tolerations: bytes
    spread: frozenset[bytes]
    """The required constraints, each by itself."""
    claims_devices: bool
    """Whether the pod has resource claims for devices, which no placeholder holds."""
    requests: ResourceAmounts

    def takes(self, pod: "SchedulingShape", *, scheduler_name: str) -> bool:
        """Return whether a pod looks like this template and requests no more."""
        return self.looks_like(pod, scheduler_name=scheduler_name) and pod.requests.fits_within(self.requests)

    def looks_like(self, pod: "SchedulingShape", *, scheduler_name: str) -> bool:
        """Return whether a pod looks like this template but for its requests."""
        return (
            # Defaulting writes default-scheduler into pods, not into templates of custom resources.
            _scheduler(self.scheduler_name or scheduler_name) == _scheduler(pod.scheduler_name)
            and self.priority_class_name == pod.priority_class_name
            # The slot was found for all that the template demands. A pod that demands less may use it as well; one that
            # demands more may not.
            and pod.node_selector <= self.node_selector
            # Affinity is compared as a whole: a pod with one term less may lack the anti-affinity by which the place
            # was chosen.
            and self.affinity == pod.affinity
            # Fewer tolerations would keep the pod off the node where the slot is; more would let it stay where the
            # template would have been evicted.
            and self.tolerations == pod.tolerations
            and pod.spread <= self.spread
            and not pod.claims_devices
        )


def shape_of(spec: PodSpec) -> SchedulingShape:
    """Return a spec's scheduling shape, cached; raises `InputError` for a bad quantity."""
    memo: dict[str, SchedulingShape] = vars(spec)
    shape = memo.get(_SHAPE)
    if shape is None:
        shape = memo[_SHAPE] = SchedulingShape(
            scheduler_name=spec.scheduler_name,
            priority_class_name=spec.priority_class_name,
            node_selector=frozenset(spec.node_selector.items()),
            affinity=digest(canonical_affinity(spec.affinity)),
            tolerations=digest(canonical_tolerations(spec.tolerations)),
            spread=frozenset(map(digest, canonical_spread(spec.topology_spread_constraints))),
            claims_devices=bool(spec.resource_claims),
            requests=effective_requests(spec),
        )
    return shape


def template_matches(template: PodTemplate, pod: Pod, *, scheduler_name: str) -> bool:
    """Return whether a pod fits a template's slot.

    The pod looks to the scheduler like the template and requests no more. `scheduler_name` is the Reservation's, for a
    template that names none.
    """
    return shape_of(template.spec).takes(shape_of(pod.spec), scheduler_name=scheduler_name)


def slots_needed(template: PodTemplate, pod: Pod, *, scheduler_name: str, divided: DividedAmounts | None = None) -> int:
    """Return how many slots of a template together are enough for a pod, 0 if no number is.

    If the slots are equal parts of a sum, rounded down, a pod needs as many as its share of `divided` says; else as
    many as together hold its requests. Raises `InputError` for a bad quantity.
    """
    offered, asked = shape_of(template.spec), shape_of(pod.spec)
    if not offered.looks_like(asked, scheduler_name=scheduler_name):
        return 0
    if asked.requests.fits_within(offered.requests):
        return 1
    needed = 2  # also for a share of the sum that is larger than a slot by what rounding took
    for name, amount in asked.requests.items():
        part = offered.requests.get(name)
        if amount > 0 and not part:
            return 0
        if amount > part:
            needed = max(needed, -(-amount // part) if divided is None else divided.slots_for(name, amount, part))
    return needed


def template_differences(template: PodTemplate, pod: Pod, *, scheduler_name: str) -> tuple[str, ...]:
    """Return one phrase per difference between a pod and a template.

    A pod with differences may not take a slot of the template. Images, commands and labels do not count: a new version
    of the same workload must find its place. Raises `InputError` for a bad quantity.
    """
    template_spec, pod_spec = template.spec, pod.spec
    pairs = (
        (
            "schedulerName",
            _scheduler(template_spec.scheduler_name or scheduler_name),
            _scheduler(pod_spec.scheduler_name),
        ),
        ("priorityClassName", template_spec.priority_class_name, pod_spec.priority_class_name),
    )
    differences = [
        f"{field} is {in_pod!r}, not {in_template!r}" for field, in_template, in_pod in pairs if in_template != in_pod
    ]
    template_shape, pod_shape = shape_of(template_spec), shape_of(pod_spec)
    if not pod_shape.node_selector <= template_shape.node_selector:
        differences.append(f"nodeSelector is {pod_spec.node_selector!r}, not {template_spec.node_selector!r}")
    if template_shape.affinity != pod_shape.affinity:
        differences.append("affinity is not the template's")
    if template_shape.tolerations != pod_shape.tolerations:
        differences.append("tolerations are not the template's")
    if not pod_shape.spread <= template_shape.spread:
        differences.append("topologySpreadConstraints are not the template's")
    if pod_shape.claims_devices:
        differences.append("resourceClaims ask for devices, which no placeholder holds")
    return (*differences, *_excess(template_shape.requests, pod_shape.requests))


def deployment_name(kind: str, name: str, labels: Mapping[str, str]) -> str:
    """Return the Deployment behind a pod with this controller, "" without one.

    A pod names its ReplicaSet only; the Deployment controller names that after itself and the hash of the template
    (pkg/controller/deployment/sync.go), which it also puts on the pods. So no lookup is needed.
    """
    suffix = f"-{labels.get(TEMPLATE_HASH_LABEL, '')}"
    return name.removesuffix(suffix) if kind == "ReplicaSet" and len(suffix) > 1 and name.endswith(suffix) else ""


def _names(wanted: ObjectReference, pod: Pod) -> bool:
    """Return whether a reference means the pod, its controller or its Deployment.

    A uid decides if there is one, else the names. A reference without a namespace means the pod's own. No pod shows the
    uid of its Deployment, which is known by its name alone.
    """
    controller = pod.controller
    if wanted.uid and wanted.kind != DEPLOYMENT:
        return wanted.uid in {pod.metadata.uid, controller.uid if controller else ""}
    if not wanted.name or wanted.namespace not in {"", pod.metadata.namespace}:
        return False
    candidates = [("v1", "Pod", pod.metadata.name)]
    if controller:
        candidates.append((controller.api_version, controller.kind, controller.name))
        deployment = deployment_name(controller.kind, controller.name, pod.metadata.labels)
        candidates += [(controller.api_version, DEPLOYMENT, deployment)] if deployment else []
    return any(
        wanted.kind == kind and wanted.name == name and _same_group(wanted.api_version, api_version)
        for api_version, kind, name in candidates
    )


def _same_group(wanted: str, actual: str) -> bool:
    """Return whether two apiVersions share a group; a missing one matches any."""
    return not wanted or not actual or wanted.rpartition("/")[0] == actual.rpartition("/")[0]


def _scheduler(name: str) -> str:
    return name or DEFAULT_SCHEDULER


def _excess(template: ResourceAmounts, pod: ResourceAmounts) -> tuple[str, ...]:
    """Return a phrase for each resource requested beyond the held amount."""
    in_template, in_pod = template.to_quantities(), pod.to_quantities()
    return tuple(
        f"{name} requested is {in_pod[name]}, above {in_template.get(name, '0')}" for name in pod.lacking(template)
    )
