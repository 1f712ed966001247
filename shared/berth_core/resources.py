"""Exact integer amounts of resources by name, and their arithmetic."""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Final

from berth_core.errors import InputError
from berth_core.names import QUALIFIED_NAME, is_qualified_name
from berth_core.objects.metadata import Quantities, RawQuantity
from berth_core.quantities import QuantityError, parse_quantity

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
        # A pod that requests `nvidia.com/gpu: "0"` asks for what a pod without the line asks for, as in the plugin
        # NodeResourcesFit, which skips requests of 0.
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
        if count == 1:
            return self
        return ResourceAmounts({resource: amount * count for resource, amount in self.amounts.items()})

    def largest(self, other: "ResourceAmounts") -> "ResourceAmounts":
        """Return the maximum for each resource; a missing one counts as 0."""
        names = self.amounts.keys() | other.amounts.keys()
        return ResourceAmounts({resource: max(self.get(resource), other.get(resource)) for resource in names})

    def fits_within(self, free: "ResourceAmounts") -> bool:
        """Return whether all requests fit; resources that are not requested may be over-booked."""
        free_amounts = free.amounts
        # kube-scheduler compares only what the pod requests: on a node whose memory is over-booked, as after its
        # allocatable has shrunk, a pod without a memory request still fits (`fitsRequest` in
        # plugins/noderesources/fit.go).
        return all(amount <= 0 or amount <= free_amounts.get(resource, 0) for resource, amount in self.amounts.items())

    def times_within(self, free: "ResourceAmounts") -> int:
        """Return how many times the requests fit, 0 if nothing is requested."""
        return max(
            0, min((free.get(resource) // amount for resource, amount in self.amounts.items() if amount > 0), default=0)
        )

    def lacking(self, free: "ResourceAmounts") -> tuple[str, ...]:
        """Return the names of the resources that are short, sorted."""
        return tuple(
            # Even an over-booked node, whose free amounts are negative, does not lack a resource that is not requested.
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
    return dict(_readable(amounts))


@lru_cache(maxsize=1024)
def _readable(amounts: ResourceAmounts) -> tuple[tuple[str, str], ...]:
    return tuple((name, _decimal(amounts[name], usual)) for name, usual in amounts.to_quantities().items())


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
        if "/" in name and not parse_quantity(str(raw)).is_whole:
            return f"{name} is {raw}; expected a whole number"
    return ""


_LONGEST_SHOWN: Final = 80
"""Characters of an invalid name that a message shows."""


@lru_cache(maxsize=1 << 16)
def _cached_amount(raw: RawQuantity, *, in_millis: bool) -> int:
    """Return one quantity in thousandths or whole units, rounded away from zero."""
    quantity = parse_quantity(str(raw))
    # As `MilliValue` and `Value` of apimachinery round, in which schedulers count.
    return quantity.milli() if in_millis else quantity.value()


def forget_quantities() -> None:
    """Forget the quantities that were read so far, as after a snapshot of a large cluster: each is read again."""
    for cached in (parse_quantity, _read, _readable, _cached_amount):
        cached.cache_clear()
