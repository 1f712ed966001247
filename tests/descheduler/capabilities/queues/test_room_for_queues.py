"""Room is made for what is left of a queue's guarantee: for its waiting pods, then for more of their shapes."""

import pytest

from berth_core import Pod
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.goals.make_room.request import RoomRequest
from berth_descheduler.planner import Plan, plan
from builders import gated_queue, namespace, node, owner, pod, queue
from planner.clusters import making_room

IN_ML = {"scheduling.volcano.sh/queue-name": "ml"}


def other(name: str, on: str, cpu: str = "4") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name))


def of_ml(name: str, on: str = "", cpu: str = "8") -> Pod:
    return pod(name, node=on, cpu=cpu, memory=None, controller=owner(name=name), annotations=IN_ML)


def planned(*pods: Pod, guarantee: str = "8", name: str = "ml", as_typed: bool = True) -> Plan:
    """Return the plan on four nodes of ten cores for the guarantee of a queue."""
    nodes = tuple(node(one, cpu="10") for one in "abcd")
    snapshot = Snapshot(nodes=nodes, pods=pods, queue_objects=(queue(guarantee={"cpu": guarantee}), queue("bare")))
    return plan(snapshot, making_room(room={"queue": name}, as_typed=as_typed))


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
    with pytest.raises(InputError, match="the snapshot has no queues"):
        plan(
            Snapshot(nodes=(node("a"),), unread=(SnapshotKind.QUEUES,)),
            making_room(room={"queue": "ml"}, as_typed=True),
        )


# --- queues of Berth -------------------------------------------------------------------------------------------------


def planned_own(*pods: Pod, guarantee: str = "20%", name: str = "ml", as_typed: bool = True, **room: object) -> Plan:
    """Return the plan for a queue of Berth over the namespaces `default` and `more`, of 40 cores in all."""
    snapshot = Snapshot(
        nodes=tuple(node(one, cpu="10") for one in "abcd"),
        pods=pods,
        namespaces=tuple(namespace(one, labels={"team": "ml"}) for one in ("default", "more")),
        queue_objects=(queue(guarantee={"cpu": "8"}), queue("bare")),
        gated_queues=(
            gated_queue(guarantee={"cpu": guarantee}),
            gated_queue("off", guarantee={"cpu": 1}, suspend=True),
        ),
    )
    return plan(snapshot, making_room(room={"queue": name, **room}, as_typed=as_typed))


OTHERS = tuple(
    pod(f"o{on}", namespace="others", node=on, cpu="4", memory=None, controller=owner(name=f"o{on}")) for on in "abcd"
)
WAITS = pod("waits", cpu="8", memory=None, controller=owner(name="waits"))
OWN = "queues.berth.volcano.sh/ml"


def test_room_for_a_queue_of_berth_is_in_its_namespaces_and_names_no_queue_of_volcano() -> None:
    found = planned_own(WAITS, *OTHERS, guarantee="40%", name=OWN)

    assert [(room.name, room.namespace, room.queue) for room in found.rooms] == [
        ("cpu=8", "default", ""),
        ("default/waits", "default", ""),
    ]


def test_a_queue_of_volcano_is_meant_by_its_kind() -> None:
    waits = of_ml("waits")
    found = planned_own(waits, *OTHERS, name="queues.scheduling.volcano.sh/ml")

    assert [(room.name, room.queue) for room in found.rooms] == [("default/waits", "ml")]


REFUSED = {
    "a name that both kinds have": (
        {"name": "ml"},
        "expected one of the two: queues.berth.volcano.sh/ml or queues.scheduling.volcano.sh/ml",
    ),
    "one that is switched off": ({"name": "off"}, "spec.suspend switches the queue off"),
    "one that is not known": (
        {"name": "none"},
        "expected the name of a queue: bare, queues.berth.volcano.sh/ml, queues.scheduling.volcano.sh/ml, off",
    ),
    "owners outside it": (
        {"name": OWN, "owners": {"namespace": "others", "selector": "app=train"}},
        "room.owners.namespace is 'others'; expected a namespace of the queue: default, more",
    ),
}


@pytest.mark.parametrize(("asked", "want"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_meant_is_refused_with_what_can(asked: dict[str, object], want: str) -> None:
    with pytest.raises(InputError, match=want):
        planned_own(WAITS, *OTHERS, **asked)  # type: ignore[arg-type]  # the case's own
    of_a_policy = planned_own(WAITS, *OTHERS, as_typed=False, **asked)  # type: ignore[arg-type]  # the case's own
    assert (of_a_policy.moves, of_a_policy.room) == ((), ())


def test_a_request_for_a_queue_reads_back_as_it_was_and_names_nothing_else() -> None:
    owners = {"namespace": "ml", "selector": "app=train"}
    raw = {"queue": "ml", "owners": owners}

    assert RoomRequest.parse(raw).to_mapping() == {"owners": owners, "queue": "ml"}
    for beside in ({"shapes": ["cpu=1,count=1"]}, {"pods": ["ml/a"]}):
        with pytest.raises(InputError, match=r"room\.queue"):
            RoomRequest.parse(raw | beside)
