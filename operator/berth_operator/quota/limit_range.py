"""Whether the LimitRanges of a namespace would refuse the pods of a Reservation's task.

The rules and texts are those of the API server's admission plugin LimitRanger
(`plugin/pkg/admission/limitranger/admission.go`).
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import msgspec

from berth_core import (
    Container,
    InputError,
    ObjectMeta,
    PodSpec,
    Quantities,
    ResourceRequirements,
    effective_requests,
    parse_quantity,
)
from berth_operator.quota.resource_quota import with_limits_as_requests

_CONTAINER: Final = "Container"
_POD: Final = "Pod"

_Amount: TypeAlias = str | int | float
"""A quantity as written."""


class LimitRangeItem(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The limits on objects of one type."""

    type: str = ""
    max: Quantities = {}
    min: Quantities = {}
    default: Quantities = {}
    default_request: Quantities = {}
    max_limit_request_ratio: Quantities = {}


class LimitRangeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a LimitRange that pods are checked against."""

    metadata: ObjectMeta
    spec: LimitRangeSpec = LimitRangeSpec()


def why_out_of_range(ranges: Iterable[LimitRange], spec: PodSpec) -> str:
    """Return why LimitRanges would refuse a pod, in the API server's words, "" if they would not.

    Raises InputError for unreadable quantities of the spec.
    """
    # By name, where the API server has no order: a Reservation must not get another reason with each look.
    ordered = sorted(ranges, key=lambda limit_range: limit_range.metadata.name)
    for limit_range in ordered:
        spec = _with_defaults(spec, limit_range)
    refusals = (
        f"{refusal} (LimitRange {limit_range.metadata.name})"
        for limit_range in ordered
        for item in limit_range.spec.limits
        for refusal in _refusals(item, spec)
    )
    return next(refusals, "")


def _with_defaults(spec: PodSpec, limit_range: LimitRange) -> PodSpec:
    for item in limit_range.spec.limits:
        if item.type == _CONTAINER:
            spec = msgspec.structs.replace(
                spec,
                containers=tuple(_fill_in(container, item) for container in spec.containers),
                init_containers=tuple(_fill_in(container, item) for container in spec.init_containers),
            )
    return spec


def _fill_in(container: Container, item: LimitRangeItem) -> Container:
    """Return a container with the defaults of a LimitRange.

    Its own limit comes before the default as its request: `SetDefaults_Pod` copies limits to requests when the pod is
    decoded, before any admission plugin sees it.
    """
    stated = container.resources
    resources = ResourceRequirements(
        requests={**item.default_request, **stated.limits, **stated.requests},
        limits={**item.default, **stated.limits},
    )
    return msgspec.structs.replace(container, resources=resources)


def _refusals(item: LimitRangeItem, spec: PodSpec) -> Iterator[str]:
    if item.type == _CONTAINER:
        for container in (*spec.containers, *spec.init_containers):
            requirements = ResourceRequirements(
                requests={**container.resources.limits, **container.resources.requests},
                limits=container.resources.limits,
            )
            yield from _breaches(item, requirements)
    if item.type == _POD:
        # A pod's total limit is computed like its request, init containers included, so limits stand in for requests.
        totals = (effective_requests(pod_spec).to_quantities() for pod_spec in (spec, with_limits_as_requests(spec)))
        yield from _breaches(item, ResourceRequirements(requests=next(totals), limits=next(totals)))


def _breaches(item: LimitRangeItem, named: ResourceRequirements) -> Iterator[str]:
    """Yield the rules that requests and limits break."""
    for resource, text in sorted(item.min.items()):
        yield from _below(item.type, resource, text, named)
    for resource, text in sorted(item.max.items()):
        yield from _above(item.type, resource, text, named)
    for resource, text in sorted(item.max_limit_request_ratio.items()):
        yield from _out_of_ratio(item.type, resource, text, named)


def _below(kind: str, resource: str, minimum: _Amount, named: ResourceRequirements) -> Iterator[str]:
    rule = f"minimum {resource} usage per {kind} is {minimum}"
    request, limit = named.requests.get(resource), named.limits.get(resource)
    if request is None:
        yield f"{rule}. No request is specified"
    elif _nano(request) < _bound(minimum):
        yield f"{rule}, but request is {request}"
    elif limit is not None and _nano(limit) < _bound(minimum):
        yield f"{rule}, but limit is {limit}"


def _above(kind: str, resource: str, maximum: _Amount, named: ResourceRequirements) -> Iterator[str]:
    rule = f"maximum {resource} usage per {kind} is {maximum}"
    request, limit = named.requests.get(resource), named.limits.get(resource)
    if limit is None:
        yield f"{rule}. No limit is specified"
    elif _nano(limit) > _bound(maximum):
        yield f"{rule}, but limit is {limit}"
    elif request is not None and _nano(request) > _bound(maximum):
        yield f"{rule}, but request is {request}"


def _out_of_ratio(kind: str, resource: str, maximum: _Amount, named: ResourceRequirements) -> Iterator[str]:
    rule = f"{resource} max limit to request ratio per {kind} is {maximum}"
    request, limit = (_nano(quantities.get(resource, "0")) for quantities in (named.requests, named.limits))
    if not request:
        yield f"{rule}, but no request is specified or request is 0"
    elif not limit:
        yield f"{rule}, but no limit is specified or limit is 0"
    elif limit * _bound("1") > _bound(maximum) * request:  # exact, where a quotient of floats is not
        yield f"{rule}, but provided ratio is {limit / request:f}"


def _nano(text: _Amount) -> int:
    return parse_quantity(str(text)).nano()


def _bound(text: _Amount) -> int:
    """Return a LimitRange's quantity in billionths, 0 for an unreadable one, which no API server stores."""
    try:
        return _nano(text)
    except InputError:
        return 0
