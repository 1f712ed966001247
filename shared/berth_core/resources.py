"""Exact integer amounts of resources by name, their arithmetic, and what pods take of their nodes."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from berth_core.errors import InputError
from berth_core.names import QUALIFIED_NAME, is_qualified_name
from berth_core.objects import Container, ContainerStatus, Pod, PodSpec, Quantities, RawQuantity

_PERCENTAGE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)%?")
_WHOLE: Final = 100


def read_percentage(text: str) -> Fraction | None:
    """Return a percentage from 0 to 100 exactly as written, None for anything else."""
    match = _PERCENTAGE.fullmatch(text)
    percentage = Fraction(match[1]) if match is not None else None
    return None if percentage is None or percentage > _WHOLE else percentage


# --- quantity --------------------------------------------------------------------------------------------------------
# Kubernetes quantities (`500m`, `1.5Gi`, `1e3`) as exact numbers.

_PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<fraction>[0-9]*))?"
    r"(?P<suffix>|[numkMGTPE]|[KMGTPE]i|[eE](?P<exponent>[+-]?[0-9]+))"
)
_DECIMAL_EXPONENT: Final = {"": 0, "n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY_EXPONENT: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO_DIGITS: Final = 9
_NANO: Final = 10**_NANO_DIGITS
_BINARY_CAP: Final = ((1 << 63) - 1) * _NANO
_LONGEST_TEXT: Final = 256
_LARGEST_EXPONENT: Final = 1_000


class QuantityError(InputError):
    """A text is not a quantity, or not valid in its place."""

    def __init__(
        self, value: object, *, field: str = "quantity", expected: str = "a quantity such as 500m, 2, 1.5Gi or 1e3"
    ) -> None:
        super().__init__(field, value, expected)


@dataclass(frozen=True, slots=True, order=True)
class Quantity:
    """An exact number of billionths, Kubernetes' finest unit."""

    nanos: int

    def value(self) -> int:
        """Return whole units, rounded away from zero."""
        return _divided(self.nanos, _NANO)

    def milli(self) -> int:
        """Return thousandths, rounded away from zero."""
        return _divided(self.nanos, 1_000_000)

    def nano(self) -> int:
        """Return billionths."""
        return self.nanos


@lru_cache(maxsize=1 << 16)
def parse_quantity(text: str) -> Quantity:
    """Parse a text as Kubernetes' `resource.ParseQuantity` does, without 64-bit overflows.

    As there, fractions of a billionth round away from zero, and numbers with a binary suffix are capped at 2^63-1.
    Raises `QuantityError` for what Kubernetes refuses, and for absurdly long numbers.
    """
    match = _PATTERN.fullmatch(text) if 0 < len(text) <= _LONGEST_TEXT else None
    if match is None:
        raise QuantityError(text)
    fraction = match["fraction"] or ""
    digits = int(f"0{match['whole']}{fraction}")
    if match["suffix"] in _BINARY_EXPONENT:
        nanos = min(_scaled(digits << _BINARY_EXPONENT[match["suffix"]], _NANO_DIGITS - len(fraction)), _BINARY_CAP)
    else:
        nanos = _scaled(digits, _decimal_exponent(match) + _NANO_DIGITS - len(fraction))
    return Quantity(-nanos if match["sign"] == "-" else nanos)


def _decimal_exponent(match: re.Match[str]) -> int:
    """Return the power of ten of a decimal suffix or an exponent."""
    if match["exponent"] is None:
        return _DECIMAL_EXPONENT[match["suffix"]]
    exponent = int(match["exponent"])
    if exponent > _LARGEST_EXPONENT:
        raise QuantityError(match.string)
    return max(exponent, -_LARGEST_EXPONENT)


def _scaled(number: int, exponent: int) -> int:
    """Return a non-negative number times a power of ten, rounded up."""
    return number * 10**exponent if exponent >= 0 else _divided(number, 10**-exponent)


def _divided(number: int, divisor: int) -> int:
    """Return a quotient rounded away from zero."""
    return -(-number // divisor) if number >= 0 else number // divisor


def read_whole_number(text: str, *, most: int) -> int | None:
    """Parse a whole number of a label, annotation or taint; None above `most` or for any other text.

    The length is checked first: such a text may hold four hundred nines, which no float can represent.
    """
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(most)):
        return None
    number = int(text)
    return number if number <= most else None


CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
HUGE_PAGES_PREFIX: Final = "hugepages-"

MOST_AMOUNT: Final = 1 << 49
"""The largest amount of a resource per node or pod that the planner accepts; 512 TiB of memory.

The planner adds and weighs amounts in 64 bits: those of 8,000 nodes must fit.
"""

_SHORTENED_FROM: Final = 10**24
_BINARY_UNITS: Final = (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))
_DECIMAL_UNITS: Final = (("G", 10**9), ("M", 10**6))
_MILLI: Final = 1_000
_LONGEST_EXACT: Final = 7
"""Characters of a quantity that is easily read, such as 16384Mi."""


class ResourceAmounts:
    """Immutable map from resource name to an integer amount: cpu in thousandths, others in their unit.

    Zero amounts are left out, so that equal means equal. Amounts are exact integers, because sums of floating-point
    cores differ with the order of their addition: a pod must fit in whichever order they were added. Amounts may be
    negative after `minus`: a node whose pods request more than it has is over-booked by that much.
    """

    __slots__ = ("_hash", "amounts")

    amounts: Mapping[str, int]
    """The amounts that are not zero, in no particular order."""
    _hash: int | None

    def __init__(self, amounts: Mapping[str, int] | None = None) -> None:
        self.amounts = {resource: amount for resource, amount in (amounts or {}).items() if amount}
        self._hash = None

    @classmethod
    def empty(cls) -> "ResourceAmounts":
        return _EMPTY

    @classmethod
    def from_quantities(cls, quantities: Quantities) -> "ResourceAmounts":
        """Round quantities up to amounts; raises `QuantityError`, also for negative ones."""
        # Most pods of a cluster request the same: they share one object, and its hash.
        pairs = tuple(quantities.items())
        return _read(pairs) if all(type(raw) is str for _, raw in pairs) else cls(_amounts_of(pairs))

    @classmethod
    def total(cls, several: Iterable["ResourceAmounts"]) -> "ResourceAmounts":
        summands = tuple(several)
        if len(summands) == 1:
            return summands[0]
        sums: dict[str, int] = {}
        for amounts in summands:
            for resource, amount in amounts.amounts.items():
                sums[resource] = sums.get(resource, 0) + amount
        return cls(sums)

    def get(self, name: str) -> int:
        """Return the amount of one resource, 0 by default."""
        return self.amounts.get(name, 0)

    def keys(self) -> tuple[str, ...]:
        """Return the names of the resources that are not zero, sorted."""
        return tuple(sorted(self.amounts))

    def items(self) -> tuple[tuple[str, int], ...]:
        """Return names and amounts that are not zero, sorted by name."""
        return tuple(sorted(self.amounts.items()))

    def plus(self, other: "ResourceAmounts") -> "ResourceAmounts":
        sums = dict(self.amounts)
        for resource, amount in other.amounts.items():
            sums[resource] = sums.get(resource, 0) + amount
        return ResourceAmounts(sums)

    def minus(self, other: "ResourceAmounts") -> "ResourceAmounts":
        """Return the difference, which may be negative."""
        amounts = dict(self.amounts)
        for resource, amount in other.amounts.items():
            amounts[resource] = amounts.get(resource, 0) - amount
        return ResourceAmounts(amounts)

    def times(self, count: int) -> "ResourceAmounts":
        return ResourceAmounts({resource: amount * count for resource, amount in self.amounts.items()})

    def largest(self, other: "ResourceAmounts") -> "ResourceAmounts":
        """Return the maximum for each resource; a missing one counts as 0."""
        names = self.amounts.keys() | other.amounts.keys()
        return ResourceAmounts({resource: max(self.get(resource), other.get(resource)) for resource in names})

    def fits_within(self, free: "ResourceAmounts") -> bool:
        """Return whether all requests fit; resources that are not requested may be over-booked."""
        free_amounts = free.amounts
        return all(amount <= 0 or amount <= free_amounts.get(resource, 0) for resource, amount in self.amounts.items())

    def times_within(self, free: "ResourceAmounts") -> int:
        """Return how many times the requests fit, 0 if nothing is requested."""
        return max(
            0, min((free.get(resource) // amount for resource, amount in self.amounts.items() if amount > 0), default=0)
        )

    def lacking(self, free: "ResourceAmounts") -> tuple[str, ...]:
        """Return the names of the resources that are short, sorted."""
        return tuple(
            sorted(resource for resource, amount in self.amounts.items() if amount > max(0, free.get(resource)))
        )

    def why_too_large(self) -> str:
        """Return which amount is too large for the planner, "" if none is."""
        name = next((name for name in self if abs(self.amounts[name]) > MOST_AMOUNT), "")
        if not name:
            return ""
        amount = self.amounts[name]
        shown = format_amount(name, amount) if abs(amount) < _SHORTENED_FROM else f"about 1e{len(str(abs(amount))) - 1}"
        return f"{name} is {shown}; expected at most {format_amount(name, MOST_AMOUNT)}"

    def to_quantities(self) -> dict[str, str]:
        """Return the amounts as quantities, sorted by name; parsing them restores the amounts."""
        return {name: format_amount(name, amount) for name, amount in self.items()}

    def __getitem__(self, name: str) -> int:
        return self.amounts.get(name, 0)

    def __contains__(self, name: object) -> bool:
        return name in self.amounts

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.amounts)

    def __eq__(self, other: object) -> bool:
        return self.amounts == other.amounts if isinstance(other, ResourceAmounts) else NotImplemented

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self.amounts.items()))
        return self._hash

    def __repr__(self) -> str:
        return f"ResourceAmounts({dict(self.items())!r})"


_EMPTY: Final = ResourceAmounts()


def _amounts_of(written: Iterable[tuple[str, RawQuantity]]) -> dict[str, int]:
    return {name: _amount(name, raw) for name, raw in written}


@lru_cache(maxsize=1 << 16)
def _read(written: tuple[tuple[str, RawQuantity], ...]) -> ResourceAmounts:
    return ResourceAmounts(_amounts_of(written))


def readable_quantities(amounts: ResourceAmounts) -> dict[str, str]:
    """Return amounts as people write them: 200M, and not nine digits."""
    return {name: _decimal(amounts[name], usual) for name, usual in amounts.to_quantities().items()}


def _decimal(amount: int, usual: str) -> str:
    """Return a large amount with a decimal unit if that is shorter than usual."""
    if usual != str(amount) and not usual.endswith("i"):
        return usual  # cores, which are counted in thousandths
    with_unit = next((f"{amount // size}{unit}" for unit, size in _DECIMAL_UNITS if amount % size == 0), usual)
    return with_unit if len(with_unit) < len(usual) else usual


def format_amount(name: str, amount: int) -> str:
    """Return the amount of one resource as the shortest usual quantity."""
    if name == CPU:
        return f"{amount}m" if amount % _MILLI else str(amount // _MILLI)
    if amount and _is_in_bytes(name):
        for unit, size in _BINARY_UNITS:
            if amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)


def amount_in_words(name: str, amount: int) -> str:
    """Return the amount of one resource for a sentence, in a unit that people write.

    Bytes that make no short quantity, as of a share of a cluster, are rounded: `about 6.4Gi`.
    """
    exact = _decimal(amount, format_amount(name, amount))
    if len(exact) <= _LONGEST_EXACT or not _is_in_bytes(name):
        return exact
    unit, size = next(((unit, size) for unit, size in _BINARY_UNITS if abs(amount) >= size), ("", 1))
    return f"about {f'{amount / size:.2f}'.rstrip('0').rstrip('.')}{unit}"


def _is_in_bytes(name: str) -> bool:
    return name in {MEMORY, EPHEMERAL_STORAGE} or name.startswith(HUGE_PAGES_PREFIX)


def _amount(name: str, raw: RawQuantity) -> int:
    """Return one quantity as an amount; raises `InputError` with the resource as field."""
    if not is_qualified_name(name):
        shown = name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}…"
        raise InputError(shown, None, QUALIFIED_NAME, said="no name of a resource")
    try:
        amount = _cached_amount(raw, in_millis=name == CPU)
    except QuantityError as error:
        raise QuantityError(raw, field=name, expected=error.expected) from error
    if amount < 0:
        raise QuantityError(raw, field=name, expected="a quantity that is not negative")
    return amount


def why_not_whole(quantities: Quantities) -> str:
    """Return which device or other extended resource has a fraction, which Kubernetes refuses; "" if none has.

    Raises `InputError` as `ResourceAmounts.from_quantities` does.
    """
    for name, raw in quantities.items():
        if "/" in name and parse_quantity(str(raw)).nanos % _NANO:
            return f"{name} is {raw}; expected a whole number"
    return ""


_LONGEST_SHOWN: Final = 80
"""Characters of an invalid name that a message shows."""


@lru_cache(maxsize=1 << 16)
def _cached_amount(raw: RawQuantity, *, in_millis: bool) -> int:
    """Return one quantity in thousandths or whole units, rounded away from zero."""
    quantity = parse_quantity(str(raw))
    return quantity.milli() if in_millis else quantity.value()


# --- pods ------------------------------------------------------------------------------------------------------------
# What a pod takes of its node, as kube-scheduler computes it.

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
        or spec.resource_claims
        or any(resources.requests or resources.limits for resources in all_resources)
    )


def occupied_requests(pod: Pod) -> ResourceAmounts:
    """Return the resources that a pod takes of a node now.

    An in-place resize of its containers or of the pod as a whole is taken into account (KEP-1287): where versions of
    Kubernetes count differently, the largest of their counts. Raises `InputError` that names the field.
    """
    reported = (*pod.status.container_statuses, *pod.status.init_container_statuses)
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

    As `SupportedPodLevelResources` of k8s.io/component-helpers/resource (KEP-2837).
    """
    return name in {CPU, MEMORY} or name.startswith(HUGE_PAGES_PREFIX)


def _specified(container: Container, place: str) -> ResourceAmounts:
    """Return a container's requests, by default its limits."""
    resources = container.resources
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
