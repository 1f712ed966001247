"""What a pod takes of its node, as kube-scheduler computes it."""

from collections.abc import Callable
from typing import Final

from berth_core.errors import InputError
from berth_core.objects.metadata import Quantities
from berth_core.objects.pods import Container, ContainerStatus, Pod, PodSpec
from berth_core.resources import CPU, HUGE_PAGES_PREFIX, MEMORY, PODS, ResourceAmounts

ONE_POD: Final = ResourceAmounts({PODS: 1})
"""What every pod takes of its node besides its requests."""

_MAIN: Final = "containers"
_INIT: Final = "initContainers"
_RESIZE_PENDING: Final = "PodResizePending"
_INFEASIBLE: Final = "Infeasible"


def effective_requests(spec: PodSpec) -> ResourceAmounts:
    """Return the resources that a pod of this spec requests.

    The request is the sum of its containers and sidecars, or the need of its initialisation if that is more; replaced
    by pod-level requests, plus the overhead (`resource.PodRequests` of k8s.io/component-helpers). Each container's
    request is rounded up on its own. A limit without a request is a request, as the API server stores it. Raises
    `InputError` that names the field.
    """
    return _with_pod_level(spec, _of_containers(spec, _specified))


def is_best_effort(spec: PodSpec) -> bool:
    """Return whether a pod of this spec has no requests and limits of any kind."""
    all_resources = [container.resources for container in (*spec.containers, *spec.init_containers)]
    all_resources += [spec.resources] if spec.resources is not None else []
    return not (
        spec.overhead
        # Kubernetes' QoS class goes by cpu and memory alone. Here it is asked whether a pod needs room: devices and the
        # overhead of a RuntimeClass are room, too.
        or spec.resource_claims
        or any(resources.requests or resources.limits for resources in all_resources)
    )


def occupied_requests(pod: Pod) -> ResourceAmounts:
    """Return the resources that a pod takes of a node now.

    An in-place resize of its containers or of the pod as a whole is taken into account (KEP-1287): where versions of
    Kubernetes count differently, the largest of their counts. Raises `InputError` that names the field.
    """
    reported = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    # Names are unique over both lists (validation of pods), so one map is enough.
    statuses = {status.name: status for status in reported if status.resources or status.allocated_resources}
    as_a_whole = _actual_as_a_whole(pod)
    if not statuses and not as_a_whole:
        return effective_requests(pod.spec)
    is_infeasible = is_resize_infeasible(pod)

    def request_of(container: Container, place: str) -> ResourceAmounts:
        """Return the maximum of a container's requested, granted and actual resources."""
        specified = _specified(container, place)
        status = statuses.get(container.name)
        if status is None:
            return specified
        actual = _actual(status)
        is_known = status.resources is not None  # else only what was granted is, and older schedulers do not look there
        # `determineContainerReqs` of component-helpers: after an Infeasible resize the kubelet never grants the new
        # request, and the scheduler counts what the container has. Deferred is counted in full: the kubelet may grant
        # it at any moment.
        return actual if is_infeasible and is_known else actual.largest(specified)

    of_containers = _of_containers(pod.spec, request_of)
    if not as_a_whole:
        return _with_pod_level(pod.spec, of_containers)
    return _with_actual_as_a_whole(pod.spec, of_containers, as_a_whole, is_infeasible=is_infeasible)


def is_resize_infeasible(pod: Pod) -> bool:
    """Return whether the kubelet will never grant a pod's resize, so that the pod keeps what it has."""
    pending = (condition for condition in pod.status.conditions if condition.type == _RESIZE_PENDING)
    return any(condition.reason == _INFEASIBLE for condition in pending)


def readable_requests(pod: Pod) -> ResourceAmounts:
    """Return what a pod takes of a node now; nothing if that cannot be read."""
    try:
        return occupied_requests(pod)
    except InputError:
        return ResourceAmounts.empty()


def _of_containers(spec: PodSpec, request_of: Callable[[Container, str], ResourceAmounts]) -> ResourceAmounts:
    """Return the greater of the containers' sum and each initialisation step's need.

    An init container runs beside the sidecars that stand before it, and a sidecar beside everything after it.
    """
    main_amounts = ResourceAmounts.total(request_of(container, _MAIN) for container in spec.containers)
    if not spec.init_containers:
        return main_amounts
    sidecars = init_peak = ResourceAmounts.empty()
    for container in spec.init_containers:
        request = request_of(container, _INIT)
        # The formula of KEP-753: a sidecar runs beside every init container after it, and then beside the main
        # containers, while a plain init container has ended before the next starts. So their order counts.
        if _is_sidecar(container):
            main_amounts = main_amounts.plus(request)
            sidecars = sidecars.plus(request)
            init_peak = init_peak.largest(sidecars)
        else:
            init_peak = init_peak.largest(sidecars.plus(request))
    return main_amounts.largest(init_peak)


def _with_pod_level(spec: PodSpec, requests: ResourceAmounts) -> ResourceAmounts:
    """Return requests with pod-level requests in place and the overhead added."""
    pod_level = _pod_level_requests(spec, requests)
    if pod_level:
        container_amounts = {name: amount for name, amount in requests.items() if name not in pod_level}
        requests = ResourceAmounts(container_amounts).plus(_amounts(pod_level, "spec.resources.requests"))
    return requests.plus(_amounts(spec.overhead, "spec.overhead")) if spec.overhead else requests


def _pod_level_requests(spec: PodSpec, of_containers: ResourceAmounts) -> Quantities:
    """Return pod-level requests, by default pod-level limits that no container requests."""
    if spec.resources is None:
        return {}
    limits = {
        name: raw
        for name, raw in spec.resources.limits.items()
        # Huge pages cannot be over-committed, so their request is always the limit, at pod level as in a container.
        if name not in of_containers or name.startswith(HUGE_PAGES_PREFIX)
    }
    return {name: raw for name, raw in {**limits, **spec.resources.requests}.items() if _is_pod_level(name)}


def _actual_as_a_whole(pod: Pod) -> ResourceAmounts:
    """Return the maximum of what a pod as a whole has and was granted, including its overhead."""
    status = pod.status
    actual = _amounts(status.resources.requests if status.resources else {}, "status.resources.requests")
    return actual.largest(_amounts(status.allocated_resources, "status.allocatedResources"))


def _with_actual_as_a_whole(
    spec: PodSpec, of_containers: ResourceAmounts, as_a_whole: ResourceAmounts, *, is_infeasible: bool
) -> ResourceAmounts:
    """Return a pod's requests where the kubelet reports resources of the pod as a whole, plus the overhead.

    For a resource with a pod-level request, that and the reported amount replace the containers'. Without pod-level
    fields in the spec, the larger of the containers' and the reported amount counts.
    """
    overhead = _amounts(spec.overhead, "spec.overhead")
    named = _pod_level_requests(spec, of_containers)
    pod_level = _amounts(named, "spec.resources.requests")
    if spec.resources is None or not (spec.resources.requests or spec.resources.limits):
        return of_containers.largest(as_a_whole).plus(overhead)
    # The kubelet reads the amount from the pod's cgroup, which includes the sandbox; without this the overhead would
    # count twice.
    without_overhead = {name: max(0, amount - overhead.get(name)) for name, amount in as_a_whole.items()}
    actual = ResourceAmounts({name: amount for name, amount in without_overhead.items() if _is_pod_level(name)})
    asked = {name: amount for name, amount in pod_level.items() if not (is_infeasible and name in as_a_whole)}
    rest = ResourceAmounts({name: amount for name, amount in of_containers.items() if name not in named})
    return rest.largest(actual).largest(ResourceAmounts(asked)).plus(overhead)


def _is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the others (KEP-753)."""
    return container.restart_policy == "Always"


def _is_pod_level(name: str) -> bool:
    """Return whether a resource may be requested at pod level; others are ignored there.

    They are `SupportedPodLevelResources` of k8s.io/component-helpers/resource (KEP-2837).
    """
    return name in {CPU, MEMORY} or name.startswith(HUGE_PAGES_PREFIX)


def _specified(container: Container, place: str) -> ResourceAmounts:
    """Return a container's requests, by default its limits."""
    resources = container.resources
    # Defaulting writes this into pods (`SetDefaults_Pod` in pkg/apis/core/v1/defaults.go), but not into the templates
    # of custom resources such as a Reservation.
    requests = {**resources.limits, **resources.requests} if resources.limits else resources.requests
    return _amounts(requests, f"spec.{place}[{container.name}].resources.requests")


def _actual(status: ContainerStatus) -> ResourceAmounts:
    """Return the maximum of a container's actual and granted resources."""
    place = f"status.containerStatuses[{status.name}]"
    granted = _amounts(status.resources.requests if status.resources else {}, f"{place}.resources.requests")
    return granted.largest(_amounts(status.allocated_resources, f"{place}.allocatedResources"))


def _amounts(quantities: Quantities, place: str) -> ResourceAmounts:
    """Return quantities as amounts; an error names the place."""
    try:
        return ResourceAmounts.from_quantities(quantities)
    except InputError as error:
        raise error.within(place) from error
