"""A queue with `held.fence: Node` keeps the nodes of its slots and pods until what these leave is a slot again."""

from typing import Any, Final

import pytest

from berth_core import (
    DEFAULT_NAMESPACE,
    SLOT_ANNOTATION,
    STANDING_FENCE_LABEL,
    Capacity,
    Fence,
    FenceLimit,
    Pod,
    QueueCondition,
    ResourceAmounts,
)
from berth_kube import NODES, PODS, QUEUES, RESERVATIONS
from berth_operator.capabilities.queues.places import KeptNodes, QueuePlaces, keep_nodes
from berth_operator.quota.limits import NamespaceLimit
from berth_operator.reservation.act.node_chooser import NodeChooser
from berth_operator.reservation.act.standing_fences import StandingFences
from berth_operator.reservation.store.nodes import GuardableNode
from builders import NOON, as_api, pod
from handover_builders import awaiting, place
from held_slot_simulation import HELD, HeldSimulation, simulated_slots
from operator_harness import OperatorHarness, harness
from queue_simulation import memory_node

__all__ = ["harness"]

FENCED: Final = {**HELD["held"], "fence": "Node"}


def memory(amount: int) -> ResourceAmounts:
    return ResourceAmounts({"memory": amount})


def kept(
    own: dict[str, int],
    rooms: dict[str, int] | None = None,
    *,
    before: tuple[str, ...] = (),
    lacking: int = 0,
    pins: dict[str, str] | None = None,
    closed: tuple[str, ...] = (),
    bare: tuple[str, ...] = (),
    unfenced: tuple[str, ...] = (),
    away: tuple[str, ...] = (),
    unpinned: tuple[str, ...] = (),
    is_placed: bool = False,
) -> KeptNodes:
    """Return what a queue with a guarantee of 200 and slots of 100 keeps; all nodes but `bare` ones have a fence."""
    places = QueuePlaces(
        own={node: memory(amount) for node, amount in own.items()},
        rooms={node: memory(amount) for node, amount in (rooms or {}).items()},
        admitting=frozenset(rooms or {}) - frozenset(closed),
        before=before,
        fenced=frozenset(own) - frozenset(bare),
        unfenced=dict.fromkeys(unfenced, "a limit"),
        away=frozenset(away),
    )
    return keep_nodes(places, memory(200), memory(100), lacking, pins or {}, unpinned=unpinned, is_placed=is_placed)


def test_as_many_nodes_are_kept_as_have_what_is_guaranteed_and_no_more() -> None:
    assert kept({"a": 100, "b": 100, "c": 100}).nodes == ("a", "b")
    assert kept({"a": 100, "b": 300}).nodes == ("b",)
    assert kept({"a": 100, "b": 0}).nodes == ("a",)


def test_a_pod_smaller_than_a_slot_keeps_the_node_of_its_slot_and_no_other() -> None:
    assert kept({"a": 100, "b": 40, "c": 40}).nodes == ("a",)
    assert kept({"a": 100, "b": 40, "c": 40}, before=("b",)).nodes == ("a", "b")


def test_nodes_that_are_kept_already_come_first() -> None:
    assert kept({"a": 100, "b": 200, "c": 100}, before=("a", "c")).nodes == ("a", "c")


def test_a_node_that_a_pod_has_left_is_kept_until_no_slot_lacks() -> None:
    left = {"own": {"a": 100}, "rooms": {"a": 0, "b": 100, "c": 50, "d": 900}, "before": ("a", "b", "c")}
    assert kept(**left, lacking=1) == KeptNodes(("a", "b"), ("b",))  # type: ignore[arg-type]
    assert kept(**left).nodes == ("a",)  # type: ignore[arg-type]


def test_room_is_for_the_slots_that_wait_for_the_node_before_any_other_is_made_for_it() -> None:
    found = kept({}, {"a": 200}, before=("a",), lacking=3, pins={"one": "a"})
    assert (found.vacancies, found.misplaced) == (("a",), frozenset())


def test_a_slot_that_waits_for_a_node_without_room_is_misplaced() -> None:
    found = kept({"a": 100}, {"a": 50}, before=("a", "b"), lacking=1, pins={"one": "a", "two": "b"})
    assert found.misplaced == {"one", "two"}


def test_no_slot_is_made_for_a_node_that_does_not_let_it_in() -> None:
    found = kept({}, {"a": 100}, before=("a",), lacking=1, closed=("a",))
    assert (found.nodes, found.vacancies) == (("a",), ())


def test_the_node_of_a_slot_is_kept_until_the_pod_that_uses_it_up_elsewhere_has_a_fence() -> None:
    used_up = {"own": {"b": 100, "c": 100}, "rooms": {"a": 100, "b": 0, "c": 0}, "before": ("a", "b"), "bare": ("c",)}
    assert kept(**used_up).nodes == ("a", "b", "c")  # type: ignore[arg-type]
    assert kept(**{**used_up, "bare": ()}).nodes == ("b", "c")  # type: ignore[arg-type]
    assert kept(**used_up, unfenced=("c",)).nodes == ("b", "c"), "it will have none"  # type: ignore[arg-type]


def test_a_node_that_is_cordoned_or_not_ready_is_kept_while_a_slot_lacks() -> None:
    assert kept({}, before=("a", "b"), away=("a",), lacking=1) == KeptNodes(("a",))
    assert kept({}, before=("a", "b"), away=("a",)) == KeptNodes()


def test_slots_fill_one_node_before_the_next_since_each_is_kept() -> None:
    rooms = {"a": 200, "b": 300, "c": 50, "d": 900}
    assert kept({}, rooms, lacking=4, closed=("d",), is_placed=True).vacancies == (*"bbb", *"aa")
    assert kept({}, rooms, before=("a",), lacking=4, is_placed=True).vacancies == (*"aa", *"dddd", *"bbb")
    assert kept({}, rooms, lacking=4).vacancies == ()
    assert kept({"a": 200}, rooms, before=("a",), is_placed=True).vacancies == ()


def test_a_slot_that_waits_for_any_node_gives_way_to_one_for_a_kept_node_with_room() -> None:
    left = {"own": {"a": 100}, "rooms": {"a": 100, "b": 900}, "before": ("a",), "is_placed": True}
    assert kept(**left, lacking=1, unpinned=("one",)).misplaced == {"one"}  # type: ignore[arg-type]
    assert kept(**left, lacking=2, unpinned=("one",)).misplaced == set(), "one is made there"  # type: ignore[arg-type]
    assert kept({"a": 100}, {"b": 900}, lacking=1, unpinned=("one",), is_placed=True).misplaced == set()


# --- with the operator around it -------------------------------------------------------------------------------------


def fenced(**second: Any) -> HeldSimulation:  # noqa: ANN401 - fields of the second queue's spec
    return simulated_slots(held=FENCED, **second)


def nodes(one: HeldSimulation) -> tuple[str, ...]:
    return one.queue("q2").status.fenced_nodes


def pinned(one: HeldSimulation) -> list[list[str]]:
    return [body["spec"]["tasks"][0].get("reservationNodeNames", []) for body in one.reservations()]


def take_all(one: HeldSimulation) -> None:
    for number in (0, 1):
        one.come_for(f"job-{number}", f"q2-held-{number}")
        one.settle()
        one.hand_over(f"job-{number}", f"q2-held-{number}")


def test_the_node_stays_kept_from_the_slot_through_the_pod_to_the_slot_for_that_node() -> None:
    one = fenced()
    assert (nodes(one), pinned(one)) == (("node-a",), [["node-a"], ["node-a"]])
    take_all(one)
    assert (nodes(one), one.live()) == (("node-a",), [])
    one.is_frozen = True
    for number in (0, 1):
        one.end(f"job-{number}", "b")
    one.settle()
    assert (nodes(one), pinned(one)) == (("node-a",), [["node-a"], ["node-a"]])
    assert {body["spec"]["capacity"] for body in one.reservations()} == {"WhenFree"}
    one.is_frozen = False
    one.settle()
    assert (nodes(one), one.held()) == (("node-a",), 2)


def test_an_operator_that_comes_after_the_pods_have_ended_goes_on_from_the_status() -> None:
    one = fenced()
    take_all(one)
    for number in (0, 1):
        one.end(f"job-{number}", "b")
    one.is_frozen = True
    one.restart()
    one.settle()
    assert (nodes(one), pinned(one)) == (("node-a",), [["node-a"], ["node-a"]])


def test_the_status_names_the_node_of_a_pod_before_the_slot_ends_that_it_uses_up() -> None:
    one = fenced()
    one.api.calls.clear()
    one.submit("odd", "b", node="node-b")
    one.settle()
    assert (nodes(one), one.held()) == (("node-a", "node-b"), 1)
    changes = [call for call in one.api.calls if call.startswith(("patch queues", "delete reservations"))]
    assert [call.split()[0] for call in changes[:2]] == ["patch", "delete"]


def test_a_promise_that_a_user_writes_on_a_pod_keeps_no_node() -> None:
    one = fenced()
    one.is_frozen = True
    one.api.delete(RESERVATIONS, one.reservations()[0]["metadata"]["name"], namespace="b")
    one.submit("forged", "b", annotations={SLOT_ANNOTATION: "slot/0/node-b/9999999999"})
    one.settle()
    assert (nodes(one), one.held()) == (("node-a",), 1)


def cordon(one: HeldSimulation, version: str, *, off: bool = False) -> None:
    meta = {"name": "node-a", "uid": "uid-node-a", "resourceVersion": version}
    one.cache.put_node(memory_node("node-a", metadata=meta, spec={"unschedulable": not off}))


def test_what_pods_leave_on_a_node_that_is_cordoned_for_a_moment_is_the_queues_when_it_is_back() -> None:
    one = fenced()
    take_all(one)
    one.is_frozen = True
    one.submit("stranger", "elsewhere", memory="500M", node="node-b")
    cordon(one, "1")
    one.end("job-0", "b")
    one.settle()
    assert nodes(one) == ("node-a",)
    for body in one.reservations():
        one.report(body, "Waiting")
    cordon(one, "2", off=True)
    one.settle()
    assert (nodes(one), one.queue("q2").status.waiting_slots) == (("node-a",), 1)
    assert ["node-a"] in pinned(one)


def test_a_pod_larger_than_a_slot_uses_up_none_before_it_has_a_place() -> None:
    one = fenced()
    one.is_frozen = True
    one.submit("large", "b", memory="900M")
    one.settle()
    assert not one.waits("large")
    assert (nodes(one), one.held()) == (("node-a",), 2)
    one.end("large", "b")
    one.submit("large", "b", memory="150M", node="node-b")
    one.settle()
    assert one.live() == []


@pytest.mark.parametrize(("is_awaited", "want"), [(True, "node-b"), (False, "node-a")])
def test_no_slot_is_made_for_a_node_that_is_fenced_for_others(*, is_awaited: bool, want: str) -> None:
    one = simulated_slots(held=FENCED, suspend=True)
    one.is_frozen = True
    fence = pod("fence", namespace=DEFAULT_NAMESPACE, node="node-a", labels={STANDING_FENCE_LABEL: ""})
    one.cache.fenced.fences.put(fence)
    if is_awaited:
        one.api.put(RESERVATIONS, as_api(place(capacity=Capacity.WHEN_FREE, fence=Fence.NODE)))
        one.cache.put_placeholder(awaiting("node-a"))
    one.write("q2", **(HELD | {"held": FENCED}))
    one.settle()
    assert pinned(one) == [[want], [want]]


def test_the_slots_of_a_template_are_not_put_on_one_node_as_its_pods_may_have_to_be_on_several() -> None:
    container = {"name": "main", "image": "main", "resources": {"requests": HELD["held"]["shape"]}}
    one = simulated_slots(held={"template": {"spec": {"containers": [container]}}, "fence": "Node"})
    assert pinned(one) == [[], []]


def test_a_replica_that_does_not_lead_takes_no_fence_off_until_it_knows_the_queues() -> None:
    one = fenced()
    one.controller.stop_term()
    assert not one.cache.fenced.knows_kept_nodes
    one.settle()
    assert one.cache.fenced.users("node-a") == {"b"}


def test_for_a_pod_that_waits_in_the_queue_the_room_becomes_a_slot_before_it_is_anybodys() -> None:
    one = fenced(capability={"memory": "200M"})
    take_all(one)
    one.total = 200
    one.submit("next", "b")
    one.settle()
    assert one.waits("next")
    one.is_frozen = True
    one.end("job-0", "b")
    one.settle()
    assert not one.waits("next")
    assert (nodes(one), pinned(one)) == (("node-a",), [["node-a"]])


@pytest.mark.parametrize(
    "change", [{"enforcement": "Gated"}, {"suspend": True}, {"held": HELD["held"]}], ids=["gated", "off", "no fence"]
)
def test_switched_off_nothing_is_kept(change: dict[str, Any]) -> None:
    one = fenced()
    one.write("q2", **(HELD | {"held": FENCED} | change))
    one.settle()
    assert nodes(one) == ()
    assert one.cache.fenced.users("node-a") == frozenset()


def test_without_a_queue_nothing_is_kept() -> None:
    one = fenced()
    assert one.cache.fenced.users("node-a") == {"b"}
    del one.api.objects[QUEUES.plural]["", "q2"]
    one.settle()
    assert one.cache.fenced.users("node-a") == frozenset()


def test_a_node_that_a_limit_keeps_from_its_fence_is_said() -> None:
    one = fenced()
    one.cache.fenced.put_unfenced("node-a", "2 nodes may be fenced in the cluster (limit maxFencedNodes)")
    one.settle()
    assert one.says("q2", QueueCondition.HELD) == ("False", "NotFenced")
    assert "1 node not fenced: node-a: 2 nodes may be fenced" in one.message("q2", QueueCondition.HELD)


# --- fences ----------------------------------------------------------------------------------------------------------


def know(harness: OperatorHarness, *names: str) -> None:
    for name in names:
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        harness.api.put(NODES, {"metadata": {"name": name, "uid": f"uid-{name}"}, "spec": {}, "status": status})
        harness.cache.put_node(harness.api.get(NODES, name, type=GuardableNode))


def standing(harness: OperatorHarness) -> set[str]:
    found = harness.api.list(PODS, namespace=DEFAULT_NAMESPACE, type=Pod).items
    return {one.spec.node_name for one in found if STANDING_FENCE_LABEL in one.metadata.labels}


def keep(harness: OperatorHarness, **kept: str) -> StandingFences:
    harness.cache.fenced.keep_nodes({f"node-{name}": frozenset({home}) for name, home in kept.items()})
    fences = harness.standing_fences
    for name in ("node-a", "node-b"):
        fences.reconcile(name, NOON)
    return fences


def test_a_kept_node_is_fenced_and_no_longer_than_it_is_kept(harness: OperatorHarness) -> None:
    know(harness, "node-a", "node-b")
    keep(harness, a="ml")
    assert standing(harness) == {"node-a"}
    keep(harness)
    assert standing(harness) == set()


def test_until_it_is_known_which_nodes_are_kept_no_fence_is_taken_off(harness: OperatorHarness) -> None:
    know(harness, "node-a", "node-b")
    fences = keep(harness, a="ml")
    harness.cache.fenced.keep_nodes(None)
    fences.reconcile("node-a", NOON)
    assert standing(harness) == {"node-a"}
    harness.queued.clear()
    harness.cache.fenced.keep_nodes({})
    assert [key.name for key in harness.queued] == ["node-a"], "it is looked at again"


def test_kept_nodes_count_once_in_the_limits_of_their_namespace(harness: OperatorHarness) -> None:
    know(harness, "node-a", "node-b")
    one_node = NamespaceLimit(fenced_nodes=FenceLimit(nodes=1))
    limits = type(harness.settings.limits)(default=one_node)
    harness.settings = type(harness.settings)(limits=limits)
    fences = keep(harness, a="ml", b="ml")
    assert standing(harness) == {"node-a"}
    assert "its namespace may fence 1 node" in harness.cache.fenced.unfenced()["node-b"]
    assert fences.budget("ml").by_namespace == {"node-a"}, "as long as the other may have none"


def test_a_kept_node_that_may_have_no_fence_is_kept_from_nobody_and_uses_up_no_limit(harness: OperatorHarness) -> None:
    know(harness, "node-a", "node-b")
    one_node = NamespaceLimit(fenced_nodes=FenceLimit(nodes=1))
    two_nodes = NamespaceLimit(fenced_nodes=FenceLimit(nodes=2))
    harness.settings = type(harness.settings)(limits=type(harness.settings.limits)(default=one_node, cluster=two_nodes))
    fences = keep(harness, a="ml", b="ml")
    assert standing(harness) == {"node-a"}
    one = place(capacity=Capacity.WHEN_FREE, fence=Fence.NODE, namespace="default")
    harness.cache.put_reservation(one)
    NodeChooser(harness.context, fences.budget).choose(one, ((one.spec.tasks[0].name, 0),))
    assert set(harness.cache.choices()[one.metadata.uid].nodes.values()) == {"node-b"}


def test_no_slot_of_others_waits_for_a_kept_node(harness: OperatorHarness) -> None:
    know(harness, "node-a", "node-b")
    chooser = NodeChooser(harness.context, harness.standing_fences.budget)
    harness.cache.fenced.keep_nodes({"node-a": frozenset({"ml"})})
    chosen: dict[str, set[str]] = {}
    for home in ("ml", "default"):
        one = place(capacity=Capacity.WHEN_FREE, fence=Fence.NODE, namespace=home)
        harness.cache.put_reservation(one)
        chooser.choose(one, ((one.spec.tasks[0].name, 0),))
        chosen[home] = set(harness.cache.choices()[one.metadata.uid].nodes.values())
    assert chosen == {"ml": {"node-a"}, "default": {"node-b"}}
