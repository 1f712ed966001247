"""Hand-overs that come to nothing cost their own namespace its turns, and nobody else anything."""

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import strategies as st

from berth_core.reservations import ObjectReference, Reservation, SlotState
from berth_operator.reservation.fair_sharing import FairSharing, has_share
from handover_builders import place, slot
from properties import holds_for

HOUR = 3600.0
STEP = 4.0


@dataclass
class Hand:
    """A clock that is set by hand."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds


def handing_over(uid: str, *, namespace: str = "team-a", node: str = "node-a") -> Reservation:
    return place(slot(SlotState.HANDING_OVER, node=node), uid=uid, namespace=namespace)


def ended(uid: str, state: SlotState, *, namespace: str = "team-a", node: str = "node-a") -> Reservation:
    return place(slot(state, node=node), uid=uid, namespace=namespace)


def try_in_vain(shares: FairSharing, clock: Hand, uid: str, *, seconds: float, node: str = "node-a") -> None:
    begun, over = handing_over(uid, node=node), ended(uid, SlotState.LOST, node=node)
    shares.observe(begun, begun.status)
    clock.seconds += seconds
    shares.observe(over, over.status)


def test_a_hand_over_that_came_to_nothing_makes_the_next_one_of_its_namespace_wait() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    try_in_vain(shares, clock, "first", seconds=60)
    assert shares.delay("team-a", "node-b") == 60
    assert shares.delay("team-a", "node-a") == 180
    assert shares.delay("team-b", "node-a") == 0


def test_the_pause_doubles_with_each_one_in_a_row_up_to_five_minutes() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    pauses = []
    for index in range(5):
        try_in_vain(shares, clock, f"r-{index}", seconds=60, node=f"node-{index}")
        pauses.append(shares.delay("team-a", "another"))
        clock.seconds += pauses[-1]
    assert pauses == [60, 120, 240, 300, 300]


def test_those_that_ran_beside_one_another_count_once() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    for uid in ("a", "b", "c"):
        shares.observe(handing_over(uid), handing_over(uid).status)
    clock.seconds = 60
    for uid in ("a", "b", "c"):
        shares.observe(ended(uid, SlotState.LOST), ended(uid, SlotState.LOST).status)
    assert shares.delay("team-a", "node-b") == 60


ENDS = {
    "its slot is lost": SlotState.LOST,
    "its owner goes, and the slot is held as before": SlotState.HELD,
    "its owner goes with its Reservation's end": SlotState.RELEASED,
}


@pytest.mark.parametrize("state", ENDS.values(), ids=ENDS.keys())
def test_a_hand_over_comes_to_nothing_when(state: SlotState) -> None:
    clock = Hand()
    shares = FairSharing(clock)
    shares.observe(handing_over("a"), handing_over("a").status)
    clock.seconds = 7
    shares.observe(ended("a", state), ended("a", state).status)
    assert shares.delay("team-a", "node-b") == 7


def test_a_reservation_that_is_deleted_in_the_middle_counts_as_one_that_came_to_nothing() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    shares.observe(handing_over("a"), handing_over("a").status)
    clock.seconds = 7
    shares.forget("a")
    shares.forget("a")
    assert shares.delay("team-a", "node-b") == 7


def test_what_ends_well_or_was_never_begun_costs_nothing_and_makes_up_for_what_did_not() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    shares.observe(ended("other", SlotState.LOST), ended("other", SlotState.LOST).status)
    for uid in ("a", "b"):
        shares.observe(handing_over(uid), handing_over(uid).status)
    clock.seconds = 5
    shares.observe(ended("a", SlotState.TAKEN), ended("a", SlotState.TAKEN).status)
    assert shares.delay("team-a", "node-a") == 0
    try_in_vain(shares, clock, "c", seconds=60)
    shares.observe(ended("b", SlotState.TAKEN), ended("b", SlotState.TAKEN).status)
    assert shares.delay("team-a", "node-a") == 0


def several(state: SlotState, uid: str, owner: str, number: int) -> Reservation:
    """A Reservation all of whose slots one pod takes."""
    pod = ObjectReference(api_version="v1", kind="Pod", namespace="team-a", name=owner, uid=owner)
    return place(*(slot(state, index, owner=pod) for index in range(number)), uid=uid, namespace="team-a")


@pytest.mark.parametrize("number", [1, 2, 10])
def test_a_pod_that_takes_several_slots_makes_up_for_one_hand_over_only(number: int) -> None:
    clock = Hand()
    shares = FairSharing(clock)
    for failed in range(3):
        try_in_vain(shares, clock, f"r-{failed}", seconds=60, node="node-b")
        clock.seconds += shares.delay("team-a", "another")
    clock.seconds -= 1
    assert shares.delay("team-a", "another") == 1
    begun = several(SlotState.HANDING_OVER, "large", "web-0", number)
    shares.observe(begun, begun.status)
    done = several(SlotState.TAKEN, "large", "web-0", number)
    shares.observe(done, done.status)
    assert shares.delay("team-a", "another") == 1, "the pause of the failures goes on"
    clock.seconds += 1
    try_in_vain(shares, clock, "again", seconds=60, node="node-b")
    assert shares.delay("team-a", "another") == 240, "one of three is made up for"


def test_pods_that_take_a_slot_each_make_up_for_one_each() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    for failed in range(2):
        try_in_vain(shares, clock, f"r-{failed}", seconds=60, node="node-b")
        clock.seconds += shares.delay("team-a", "another") - failed
    owners = [ObjectReference(api_version="v1", kind="Pod", namespace="team-a", name=x, uid=x) for x in "ab"]
    for state in (SlotState.HANDING_OVER, SlotState.TAKEN):
        two = place(*(slot(state, index, owner=owner) for index, owner in enumerate(owners)), namespace="team-a")
        shares.observe(two, two.status)
    assert shares.delay("team-a", "another") == 0


def test_a_slot_whose_owner_is_replaced_on_the_way_counts_for_the_new_one() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    first, second = several(SlotState.HANDING_OVER, "r", "a", 1), several(SlotState.HANDING_OVER, "r", "b", 3)
    shares.observe(first, first.status)
    clock.seconds = 30
    shares.observe(second, second.status)
    try_in_vain(shares, clock, "x", seconds=60, node="node-b")
    clock.seconds += 60
    try_in_vain(shares, clock, "y", seconds=60, node="node-b")
    taken = several(SlotState.TAKEN, "r", "b", 3)
    shares.observe(taken, taken.status)
    assert shares.delay("team-a", "another") == 120, "one of two is left"


def test_the_past_is_forgotten_in_time() -> None:
    clock = Hand()
    shares = FairSharing(clock)
    try_in_vain(shares, clock, "a", seconds=60)
    clock.seconds += 60 + 900
    try_in_vain(shares, clock, "b", seconds=60)
    assert shares.delay("team-a", "node-b") == 60


@holds_for(st.integers(1, 12), st.lists(st.floats(1, 900), min_size=1, max_size=6))
def test_a_namespace_that_never_ends_one_well_keeps_a_node_guarded_less_than_half_of_the_time(
    beside: int, lengths: list[float]
) -> None:
    clock = Hand()
    shares = FairSharing(clock)
    under_way: dict[str, float] = {}
    guarded = serial = 0.0
    while clock.seconds < 8 * HOUR:
        for uid, until in list(under_way.items()):
            if clock.seconds >= until:
                del under_way[uid]
                shares.observe(ended(uid, SlotState.LOST), ended(uid, SlotState.LOST).status)
        if len(under_way) < beside and not shares.delay("team-a", "node-a"):
            serial += 1
            uid = f"r-{serial}"
            under_way[uid] = clock.seconds + lengths[int(serial) % len(lengths)]
            shares.observe(handing_over(uid), handing_over(uid).status)
        guarded += STEP if under_way else 0
        clock.seconds += STEP
    assert guarded / (8 * HOUR) < 0.5


def test_however_many_one_namespace_asks_for_the_others_get_their_turn() -> None:
    under_way: Counter[str] = Counter()
    for namespace in ("first", "second", "third"):
        while has_share(namespace, under_way, 50):
            under_way[namespace] += 1
    assert under_way == {"first": 25, "second": 13, "third": 6}


def test_one_at_a_time_is_one_for_whoever_comes() -> None:
    assert has_share("first", Counter(), 1)
    assert not has_share("second", Counter({"first": 1}), 1)
