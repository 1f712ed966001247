"""Resources that a pod takes of its node, as kube-scheduler computes them."""

from collections.abc import Callable
from typing import Final

from berth_core.errors import InputError
from berth_core.objects import Container, ContainerStatus, Pod, PodSpec, Quantities
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
    request is rounded up on its own. A limit without a request is a request, as the API server makes it one in every
    pod that it stores. Raises `InputError` that names the field.
    """
    return _with_pod_level(spec, _of_containers(spec, _specified))


def is_best_effort(spec: PodSpec) -> bool:
    """Return whether a pod of this spec has no requests and limits of any kind."""
    of_all = [one.resources for one in (*spec.containers, *spec.init_containers)]
    of_all += [spec.resources] if spec.resources is not None else []
    return not (spec.overhead or spec.resource_claims or any(one.requests or one.limits for one in of_all))


def occupied_requests(pod: Pod) -> ResourceAmounts:
    """Return the resources that a pod takes of a node now.

    An in-place resize is taken into account. Raises `InputError` that names the field.
    """
    reported = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    statuses = {status.name: status for status in reported if status.resources is not None}
    if not statuses:
        return effective_requests(pod.spec)
    infeasible = any(c.type == _RESIZE_PENDING and c.reason == _INFEASIBLE for c in pod.status.conditions)

    def request_of(container: Container, place: str) -> ResourceAmounts:
        """Return the maximum of a container's requested, granted and actual resources."""
        specified = _specified(container, place)
        status = statuses.get(container.name)
        if status is None or (place == _INIT and not _is_sidecar(container)):
            return specified
        actual = _actual(status)
        return actual if infeasible else actual.largest(specified)

    return _with_pod_level(pod.spec, _of_containers(pod.spec, request_of))


def readable_requests(pod: Pod) -> ResourceAmounts:
    """Return the resources that a pod takes of a node now, none if they are unreadable."""
    try:
        return occupied_requests(pod)
    except InputError:
        return ResourceAmounts.empty()


def _of_containers(spec: PodSpec, request_of: Callable[[Container, str], ResourceAmounts]) -> ResourceAmounts:
    """Return the greater of the containers' sum and each initialisation step's need.

    An init container runs beside the sidecars that stand before it, and a sidecar beside everything after it.
    """
    running = ResourceAmounts.total(request_of(container, _MAIN) for container in spec.containers)
    if not spec.init_containers:
        return running
    sidecars = most = ResourceAmounts.empty()
    for container in spec.init_containers:
        request = request_of(container, _INIT)
        if _is_sidecar(container):
            running = running.plus(request)
            sidecars = sidecars.plus(request)
            most = most.largest(sidecars)
        else:
            most = most.largest(sidecars.plus(request))
    return running.largest(most)


def _with_pod_level(spec: PodSpec, requests: ResourceAmounts) -> ResourceAmounts:
    """Return requests with pod-level requests in place and the overhead added."""
    whole = _asked_as_a_whole(spec, requests)
    if whole:
        kept = {name: amount for name, amount in requests.items() if name not in whole}
        requests = ResourceAmounts(kept).plus(_amounts(whole, "spec.resources.requests"))
    return requests.plus(_amounts(spec.overhead, "spec.overhead")) if spec.overhead else requests


def _asked_as_a_whole(spec: PodSpec, of_containers: ResourceAmounts) -> Quantities:
    """Return pod-level requests, by default pod-level limits that no container requests."""
    if spec.resources is None:
        return {}
    limits = {
        name: raw
        for name, raw in spec.resources.limits.items()
        if name not in of_containers or name.startswith(HUGE_PAGES_PREFIX)
    }
    return {name: raw for name, raw in {**limits, **spec.resources.requests}.items() if _is_pod_level(name)}


def _is_sidecar(container: Container) -> bool:
    """Return whether an init container keeps running beside the others."""
    return container.restart_policy == "Always"


def _is_pod_level(name: str) -> bool:
    """Return whether a resource may be requested at pod level.

    Others are ignored there.
    """
    return name in {CPU, MEMORY} or name.startswith(HUGE_PAGES_PREFIX)


def _specified(container: Container, place: str) -> ResourceAmounts:
    """Return a container's requests, by default its limits."""
    resources = container.resources
    asked = {**resources.limits, **resources.requests} if resources.limits else resources.requests
    return _amounts(asked, f"spec.{place}[{container.name}].resources.requests")


def _actual(status: ContainerStatus) -> ResourceAmounts:
    """Return the maximum of a container's actual and granted resources."""
    place = f"status.containerStatuses[{status.name}]"
    has = _amounts(status.resources.requests if status.resources else {}, f"{place}.resources.requests")
    return has.largest(_amounts(status.allocated_resources, f"{place}.allocatedResources"))


def _amounts(quantities: Quantities, place: str) -> ResourceAmounts:
    """Return quantities as amounts; an error names the place."""
    try:
        return ResourceAmounts.from_quantities(quantities)
    except InputError as error:
        raise error.within(place) from error
