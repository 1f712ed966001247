import math
import pickle
from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.errors import InputError
from berth_core.quantities import QuantityError
from berth_core.resources import ResourceAmounts, amount_in_words

NAMES = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "nvidia.com/gpu")
INTEGERS = st.dictionaries(st.sampled_from(NAMES), st.integers(-(2**70), 2**70))
NOT_NEGATIVE = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 2**70))


class SimpleAmounts:
    """A second implementation: fractions of whole units, every resource there, nothing cached."""

    def __init__(self, amounts: dict[str, int]) -> None:
        self.units = {name: Fraction(amounts.get(name, 0), 1000 if name == "cpu" else 1) for name in NAMES}

    def integers(self) -> dict[str, int]:
        scaled = {name: units * (1000 if name == "cpu" else 1) for name, units in self.units.items()}
        return {name: math.ceil(number) for name, number in scaled.items() if number}

    def combined(self, other: "SimpleAmounts", sign: int) -> "SimpleAmounts":
        result = SimpleAmounts({})
        result.units = {name: self.units[name] + sign * other.units[name] for name in NAMES}
        return result

    def largest(self, other: "SimpleAmounts") -> "SimpleAmounts":
        result = SimpleAmounts({})
        result.units = {name: max(self.units[name], other.units[name]) for name in NAMES}
        return result

    def lacking(self, free: "SimpleAmounts") -> set[str]:
        return {name for name in NAMES if self.units[name] > 0 and self.units[name] > free.units[name]}


@given(INTEGERS, INTEGERS)
def test_arithmetic_agrees_with_fractions(left: dict[str, int], right: dict[str, int]) -> None:
    ours, theirs = (ResourceAmounts(left), ResourceAmounts(right)), (SimpleAmounts(left), SimpleAmounts(right))
    assert dict(ours[0].plus(ours[1]).amounts) == theirs[0].combined(theirs[1], 1).integers()
    assert dict(ours[0].minus(ours[1]).amounts) == theirs[0].combined(theirs[1], -1).integers()
    assert dict(ours[0].largest(ours[1]).amounts) == theirs[0].largest(theirs[1]).integers()
    assert set(ours[0].lacking(ours[1])) == theirs[0].lacking(theirs[1])
    assert ours[0].fits_within(ours[1]) == (not theirs[0].lacking(theirs[1]))


@given(st.lists(INTEGERS, max_size=6))
def test_a_total_is_the_same_in_any_order(several: list[dict[str, int]]) -> None:
    amounts = [ResourceAmounts(one) for one in several]
    summed = ResourceAmounts.empty()
    for one in amounts:
        summed = summed.plus(one)
    assert ResourceAmounts.total(amounts) == ResourceAmounts.total(reversed(amounts)) == summed


@given(INTEGERS, INTEGERS)
def test_taking_away_what_was_added_leaves_the_same(left: dict[str, int], right: dict[str, int]) -> None:
    first, second = ResourceAmounts(left), ResourceAmounts(right)
    assert first.plus(second).minus(second) == first
    assert hash(first.plus(second).minus(second)) == hash(first)


@given(INTEGERS, st.integers(0, 6))
def test_several_equals_are_as_much_as_their_sum(amounts: dict[str, int], count: int) -> None:
    one = ResourceAmounts(amounts)
    assert one.times(count) == ResourceAmounts.total([one] * count)


@given(NOT_NEGATIVE)
def test_written_as_quantities_and_read_again_amounts_are_the_same(amounts: dict[str, int]) -> None:
    capped = {name: min(amount, 2**63 - 1) for name, amount in amounts.items()}
    ours = ResourceAmounts(capped)
    assert ResourceAmounts.from_quantities(ours.to_quantities()) == ours


@dataclass(frozen=True)
class Reading:
    quantities: dict[str, str | int | float]
    want_amounts: dict[str, int]
    want_quantities: dict[str, str]


READINGS = {
    "cpu counts in thousandths, memory in bytes": Reading(
        {"cpu": "1.5", "memory": "2Gi"}, {"cpu": 1500, "memory": 2 << 30}, {"cpu": "1500m", "memory": "2Gi"}
    ),
    "what is finer is rounded up": Reading(
        {"cpu": "0.1m", "memory": "1500m", "nvidia.com/gpu": "0.5"},
        {"cpu": 1, "memory": 2, "nvidia.com/gpu": 1},
        {"cpu": "1m", "memory": "2", "nvidia.com/gpu": "1"},
    ),
    "zero is as nothing": Reading({"cpu": "0", "nvidia.com/gpu": "0"}, {}, {}),
    "people write numbers without quotes": Reading(
        {"cpu": 2, "memory": 1024, "nvidia.com/gpu": 1.0},
        {"cpu": 2000, "memory": 1024, "nvidia.com/gpu": 1},
        {"cpu": "2", "memory": "1Ki", "nvidia.com/gpu": "1"},
    ),
    "a fraction of a core as a number": Reading({"cpu": 0.25}, {"cpu": 250}, {"cpu": "250m"}),
    "bytes that make no whole unit stay bytes": Reading(
        {"memory": "1025", "ephemeral-storage": "3Mi", "hugepages-2Mi": "4Mi"},
        {"memory": 1025, "ephemeral-storage": 3 << 20, "hugepages-2Mi": 4 << 20},
        {"ephemeral-storage": "3Mi", "hugepages-2Mi": "4Mi", "memory": "1025"},
    ),
    "counts never get a binary unit": Reading({"pods": "1024"}, {"pods": 1024}, {"pods": "1024"}),
    "a large decimal stays exact": Reading({"memory": "10E"}, {"memory": 10**19}, {"memory": "9765625000000000Ki"}),
}


@pytest.mark.parametrize(
    ("name", "amount", "want"),
    [
        ("memory", 64 << 30, "64Gi"),
        ("memory", 6553 << 20, "6553Mi"),
        ("memory", (64 << 30) // 10, "about 6.4Gi"),
        ("memory", 32780708 << 10, "about 31.26Gi"),
        ("memory", 1_500_000_000, "1500M"),
        ("memory", 1025, "1025"),
        ("memory", 0, "0"),
        ("ephemeral-storage", (1 << 40) + 1, "about 1024Gi"),
        ("hugepages-2Mi", 4 << 20, "4Mi"),
        ("cpu", 1_234_567, "1234567m"),
        ("pods", 123_456_789, "123456789"),
    ],
)
def test_amounts_are_said_in_a_unit_that_people_write(name: str, amount: int, want: str) -> None:
    assert amount_in_words(name, amount) == want


@pytest.mark.parametrize("case", READINGS.values(), ids=READINGS.keys())
def test_quantities_become_amounts_and_back(case: Reading) -> None:
    amounts = ResourceAmounts.from_quantities(case.quantities)
    assert dict(amounts.amounts) == case.want_amounts
    assert amounts.to_quantities() == case.want_quantities


@pytest.mark.parametrize(
    ("raw", "want"),
    {
        "-1": "memory is '-1'; expected a quantity that is not negative",
        "64GB": "memory is '64GB'; expected a quantity such as 500m, 2, 1.5Gi or 1e3",
        -5: "memory is -5; expected a quantity that is not negative",
    }.items(),
)
def test_a_bad_quantity_is_refused_with_its_resource(raw: str | int, want: str) -> None:
    with pytest.raises(QuantityError) as caught:
        ResourceAmounts.from_quantities({"cpu": "1", "memory": raw})
    assert str(caught.value) == want


@dataclass(frozen=True)
class Fit:
    asked: dict[str, int]
    free: dict[str, int]
    want_lacking: tuple[str, ...] = ()


FITS = {
    "as much as there is fits": Fit({"cpu": 5}, {"cpu": 5}),
    "one more does not": Fit({"cpu": 6}, {"cpu": 5}, ("cpu",)),
    "nothing fits anywhere": Fit({}, {}),
    "what the node does not have at all is lacking": Fit({"nvidia.com/gpu": 1}, {"cpu": 5}, ("nvidia.com/gpu",)),
    "an over-booked resource does not matter to who asks for none": Fit({"cpu": 1}, {"cpu": 1, "memory": -7}),
    "an over-booked resource is lacking to who asks for some": Fit({"memory": 1}, {"memory": -7}, ("memory",)),
    "all that is lacking is named in order": Fit({"memory": 2, "cpu": 2}, {"memory": 1, "cpu": 1}, ("cpu", "memory")),
    "less than nothing fits": Fit({"cpu": -1}, {"cpu": -2}),
}


@pytest.mark.parametrize("case", FITS.values(), ids=FITS.keys())
def test_asking_and_having(case: Fit) -> None:
    asked, free = ResourceAmounts(case.asked), ResourceAmounts(case.free)
    assert asked.lacking(free) == case.want_lacking
    assert asked.fits_within(free) == (not case.want_lacking)


def test_amounts_read_like_a_map_in_the_order_of_names() -> None:
    amounts = ResourceAmounts({"memory": 2, "cpu": 1, "pods": 0})
    assert list(amounts) == ["cpu", "memory"]
    assert amounts.items() == (("cpu", 1), ("memory", 2))
    assert (amounts["cpu"], amounts.get("pods"), amounts["nothing"], len(amounts)) == (1, 0, 0, 2)
    assert "cpu" in amounts
    assert "pods" not in amounts
    assert repr(amounts) == "ResourceAmounts({'cpu': 1, 'memory': 2})"


def test_amounts_do_not_change_with_what_they_were_made_from() -> None:
    source = {"cpu": 1}
    amounts = ResourceAmounts(source)
    source["cpu"] = 2
    assert amounts.get("cpu") == 1


def test_amounts_are_equal_to_amounts_only() -> None:
    assert ResourceAmounts({"cpu": 1, "memory": 0}) == ResourceAmounts({"cpu": 1})
    assert ResourceAmounts({"cpu": 1}) != ResourceAmounts({"memory": 1})
    assert ResourceAmounts({"cpu": 1}) != {"cpu": 1}
    assert not ResourceAmounts.empty()


def test_amounts_travel_between_processes() -> None:
    amounts = ResourceAmounts({"cpu": 1, "memory": 2})
    assert pickle.loads(pickle.dumps(amounts)) == amounts  # noqa: S301 - bytes of our own


WRONG_NAMES = (
    "x" * 64,
    "x" * 300,
    f"{'a.' * 130}com/gpu",
    "a.com/",
    "/gpu",
    "Example.com/gpu",
    "a/b/c",
    "-cpu",
    "",
)


@pytest.mark.parametrize("name", WRONG_NAMES, ids=lambda name: f"{name[:20]} of {len(name)}")
def test_names_of_resources_are_qualified_names_as_in_kubernetes(name: str) -> None:
    with pytest.raises(InputError, match="no name of a resource"):
        ResourceAmounts.from_quantities({name: "1"})


@pytest.mark.parametrize("name", ["cpu", "hugepages-2Mi", "nvidia.com/gpu", "requests.nvidia.com/mig-1g.5gb", "x" * 63])
def test_names_of_resources_that_kubernetes_takes_are_taken(name: str) -> None:
    assert ResourceAmounts.from_quantities({name: "1"})[name] > 0
