"""Room is made for what is left of a queue's guarantee: for its waiting pods, then for more of their shapes."""

import pytest

from berth_core.errors import InputError
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.planner import Plan, plan
from berth_descheduler.planner.rooms import RoomRequest
from builders import node, owner, pod, queue
from planner.clusters import making_room

IN_ML = {"scheduling.volcano.sh/queue-name": "ml"}


def other(name: str, on: str, cpu: str = "4") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name))


def of_ml(name: str, on: str = "", cpu: str = "8") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name), annotations=IN_ML)


def planned(*pods: Pod, guarantee: str = "8", name: str = "ml") -> Plan:
    """Return the plan on four nodes of ten cores for the guarantee of a queue."""
    nodes = tuple(node(one, cpu="10") for one in "abcd")
    snapshot = Snapshot(nodes=nodes, pods=pods, queue_objects=(queue(guarantee={"cpu": guarantee}), queue("bare")))
    return plan(snapshot, making_room(room={"queue": name}))


PIECES = tuple(other(f"o{on}", on) for on in "abcd")
"""On each node six cores are free: 24 by arithmetic, and no place for a pod of eight."""


def test_pieces_are_put_together_for_the_pod_that_waits_within_the_guarantee() -> None:
    found = planned(of_ml("waits"), *PIECES)

    assert len(found.moves) == 1
    (room,) = found.rooms
    assert (room.name, room.queue, len(room.slots)) == ("default/waits", "ml", 1)


def test_what_the_guarantee_holds_beyond_the_waiting_pods_is_made_as_a_shape() -> None:
    found = planned(of_ml("waits"), *PIECES, guarantee="16")

    assert [(room.name, room.queue, room.is_shape) for room in found.rooms] == [
        ("cpu=8", "ml", True),
        ("default/waits", "ml", False),
    ]


def test_a_part_of_the_guarantee_is_better_than_nothing() -> None:
    found = planned(of_ml("waits"), *PIECES, guarantee="32")

    assert sum(one.fitted for one in found.room) == 2
    assert sum(one.wanted or 0 for one in found.room) == 4
    assert found.refused


def test_pods_beyond_the_guarantee_are_left_to_the_scheduler() -> None:
    found = planned(of_ml("first"), of_ml("second"), *PIECES)

    assert [room.name for room in found.rooms] == ["default/first"]


def test_a_guarantee_that_is_placeable_costs_no_move() -> None:
    assert planned(of_ml("waits")).moves == ()


def test_a_queue_without_pods_has_no_shapes_to_make_room_for() -> None:
    found = planned(*PIECES, pod("hungry", cpu="8", memory=None))

    assert found.moves == ()
    assert found.room == ()


@pytest.mark.parametrize(
    ("name", "want"),
    [("none", "room.queue is 'none'; expected the name of a queue: bare, ml"), ("bare", "a queue with a guarantee")],
)
def test_a_queue_that_promises_nothing_is_refused_by_name(name: str, want: str) -> None:
    with pytest.raises(InputError, match=want):
        planned(*PIECES, name=name)


def test_without_queues_in_the_snapshot_nothing_is_guessed() -> None:
    with pytest.raises(InputError, match="queues that can be read"):
        plan(Snapshot(nodes=(node("a"),), unread=(SnapshotKind.VOLCANO_QUEUES,)), making_room(room={"queue": "ml"}))


def test_a_request_for_a_queue_reads_back_as_it_was_and_names_nothing_else() -> None:
    owners = {"namespace": "ml", "selector": "app=train"}
    raw = {"queue": "ml", "owners": owners}

    assert RoomRequest.parse(raw).to_mapping() == {"owners": owners, "queue": "ml"}
    for beside in ({"shapes": ["cpu=1,count=1"]}, {"pods": ["ml/a"]}):
        with pytest.raises(InputError, match=r"room\.queue"):
            RoomRequest.parse(raw | beside)
