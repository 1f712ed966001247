"""What a plan records of the room that it makes: for whom, where, and which places belong together."""

from dataclasses import dataclass

import pytest

from berth_core.errors import InputError
from berth_core.plan_rooms import Room, RoomSlot
from berth_core.snapshot import Snapshot
from berth_descheduler.goals.make_room.request import RoomRequest
from berth_descheduler.planner import Plan, RoomMade, plan
from berth_descheduler.planner.rooms import MOST_ROOMS, RoomOwners, WaitingPod, planned_rooms
from builders import namespace, node, owner, pod
from planner.clusters import making_room

OWN_NAMESPACE = "berth-system"
OWNERS = RoomOwners("ml", "app=train")


def waits(*names: str) -> tuple[WaitingPod, ...]:
    return tuple(WaitingPod("shop", name, f"uid-{name}") for name in names)


def made(*nodes: str, pods: tuple[WaitingPod, ...] = (), wanted: int | None = 1, gang: str = "") -> RoomMade:
    """What became of one want: of pods, or of a shape where there are none."""
    requests = () if pods else (("cpu", "4"),)
    name = f"shop/{pods[0].name}" if pods else "cpu=4"
    return RoomMade(name, wanted, len(nodes), 0, len(nodes), nodes, pods=pods, gang=gang, requests=requests)


def told(rooms: tuple[Room, ...]) -> dict[str, list[tuple[str, str]]]:
    return {room.name: [(slot.pod, slot.node) for slot in room.slots] for room in rooms}


@dataclass(frozen=True)
class Case:
    made: tuple[RoomMade, ...]
    want: dict[str, list[tuple[str, str]]]
    owners: RoomOwners | None = None


CASES = {
    "a pod": Case((made("a", pods=waits("x")),), {"shop/x": [("x", "a")]}),
    "equal pods have a room each": Case(
        (made("a", "b", pods=waits("x", "y")),), {"shop/x": [("x", "a")], "shop/y": [("y", "b")]}
    ),
    "of equal pods, some of which fit, the first ones": Case(
        (made("a", pods=waits("x", "y")),), {"shop/x": [("x", "a")]}
    ),
    "what does not fit has none": Case((made(pods=waits("x")),), {}),
    "the pods of a gang share a room, of whatever sort they are": Case(
        (made("a", "b", pods=waits("x", "y"), gang="g"), made("b", pods=waits("z"), gang="g")),
        {"shop/g": [("x", "a"), ("y", "b"), ("z", "b")]},
    ),
    "a larger gang than a Reservation has owners has it in parts": Case(
        (made(*["a"] * 33, pods=waits(*map(str, range(33))), gang="g"),),
        {
            "shop/g (1 of 2)": [(str(number), "a") for number in range(32)],
            "shop/g (2 of 2)": [("32", "a")],
        },
    ),
    "a shape with a count": Case((made("a", "b", wanted=2),), {"cpu=4": [("", "a"), ("", "b")]}),
    "of a shape without a count nothing is kept": Case((made("a", "full", wanted=None),), {}),
    "of a shape without a count that somebody may take, what the moves make": Case(
        (made("a", "full", wanted=None),), {"cpu=4": [("", "full")]}, OWNERS
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_room_is_recorded_for(case: Case) -> None:
    assert told(planned_rooms(case.made, {"full"}, own_namespace=OWN_NAMESPACE, owners=case.owners)) == case.want


def test_the_room_of_a_shape_is_held_where_its_owners_are_or_in_berths_namespace() -> None:
    (unnamed,) = planned_rooms([made("a")], (), own_namespace=OWN_NAMESPACE)
    (theirs,) = planned_rooms([made("a")], (), own_namespace=OWN_NAMESPACE, owners=OWNERS)
    assert (unnamed.namespace, unnamed.selector, unnamed.requests) == ("berth-system", "", {"cpu": "4"})
    assert (theirs.namespace, theirs.selector) == ("ml", "app=train")


def test_a_plan_has_no_more_rooms_than_it_may_have() -> None:
    many = [made("a", pods=waits(str(number))) for number in range(MOST_ROOMS + 1)]
    assert len(planned_rooms(many, (), own_namespace=OWN_NAMESPACE)) == MOST_ROOMS


def two_halves(*waiting: str, **fields: object) -> Snapshot:
    """Two nodes of 10 cpu, each with 4 in use, and pods that wait for 8 each."""
    running = [pod(f"{name}0", node=name, cpu="4", memory=None, controller=owner(name=name)) for name in ("a", "b")]
    large = [pod(name, cpu="8", memory=None, **fields) for name in waiting]  # type: ignore[arg-type]
    nodes = tuple(node(name, cpu="10") for name in ("a", "b"))
    return Snapshot(nodes=nodes, pods=(*running, *large), namespaces=(namespace("default"),))


def test_a_plan_says_for_which_pod_it_makes_room_and_where() -> None:
    found: Plan = plan(two_halves("large"), making_room(pods=["default/large"]))
    ((room,), (move,)) = found.rooms, found.moves
    assert (room.name, room.namespace) == ("default/large", "default")
    assert room.slots == (RoomSlot(node=move.source, pod="large", pod_uid="uid-default-large"),)


def test_a_plan_that_moves_nothing_keeps_nothing() -> None:
    found = plan(two_halves(), making_room(shapes=["cpu=6,count=1"]))
    assert found.room[0].fitted == 1
    assert found.rooms == ()


def test_a_shape_is_recorded_with_what_its_pods_ask_for() -> None:
    (room,) = plan(two_halves(), making_room(shapes=["cpu=8,memory=1Gi,count=1"])).rooms
    assert room.requests == {"cpu": "8", "memory": "1Gi"}


# --- whose pods may take the room of shapes

WRONG = {
    "no mapping": ("ml", "room.owners is 'ml'; expected a mapping"),
    "a part is missing": ({"namespace": "ml"}, "room.owners is"),
    "no namespace": ({"namespace": "", "selector": "app=x"}, "room.owners.namespace is ''"),
    "anybody": ({"namespace": "ml", "selector": ""}, "room.owners.selector is ''"),
    "a selector that is none": ({"namespace": "ml", "selector": "app=("}, "room.owners.selector is 'app=('"),
}


@pytest.mark.parametrize(("raw", "want"), WRONG.values(), ids=WRONG)
def test_owners_that_make_no_sense_are_refused(raw: object, want: str) -> None:
    with pytest.raises(InputError) as caught:
        RoomRequest.parse({"shapes": ["cpu=4,count=1"], "owners": raw})
    assert want in str(caught.value)


def test_owners_without_a_shape_are_refused() -> None:
    with pytest.raises(InputError, match="shapes beside it"):
        RoomRequest.parse({"owners": OWNERS.to_mapping()})


def test_what_is_asked_for_is_written_as_it_is_read() -> None:
    raw = {"shapes": ["cpu=4,count=2"], "owners": OWNERS.to_mapping()}
    assert RoomRequest.parse(raw).to_mapping() == raw
