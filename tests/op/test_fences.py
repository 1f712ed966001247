"""A guarded node is fenced off against pods that tolerate its taint, where that harms nobody."""

from typing import Any

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import LabelSelector, Pod
from berth_core.labels import FENCE_LABEL, HANDOVER_LABEL, PLACEHOLDER_LABEL, RESERVATION_LABEL, SUCCESSOR_LABEL
from berth_core.names import FENCE_CONFIG_MAP, fence_name
from berth_core.reservations import SlotState
from berth_core.selectors import matches_labels
from berth_kube import Listed
from berth_kube.errors import ForbiddenError, KubeError, ServerError
from berth_kube.resources import NODES, PODS
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.guards import NodeGuard
from berth_operator.reservation.act.resync import Resync
from berth_operator.reservation.manifests import FENCE_PRIORITY
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.pod_counts import CountedPod
from berth_operator.runtime.workqueue import KeyKind
from builders import NOON, as_api, pod
from handover_builders import DEADLINE, note, owner_pod, place, slot
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

FENCE = fence_name("node-a", DEADLINE // 120)
CREATE = f"create pods {FENCE}"


def know_node(harness: OperatorHarness, *, pod_slots: str = "110") -> None:
    status = {"allocatable": {"pods": pod_slots}}
    harness.api.put(NODES, {"metadata": {"name": "node-a", "uid": "uid-node-a"}, "spec": {}, "status": status})
    harness.cache.put_node(harness.api.get(NODES, "node-a", type=GuardableNode))


def fence_manager(harness: OperatorHarness) -> FenceManager:
    return FenceManager(harness.context, harness.priorities)


def node_guard(harness: OperatorHarness, fences: FenceManager | None = None) -> NodeGuard:
    return NodeGuard(harness.context, fences or fence_manager(harness))


def hand_over(harness: OperatorHarness, *, deadline: int = DEADLINE) -> None:
    harness.know(owner_pod(given=note(deadline=deadline)), of=place(slot(SlotState.HELD)))


def fences(harness: OperatorHarness) -> list[Pod]:
    found = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    return [one for one in found if FENCE_LABEL in one.metadata.labels]


def writes(harness: OperatorHarness) -> list[str]:
    return [call for call in harness.api.calls if call.partition(" ")[0] in {"create", "patch", "delete"}]


def test_a_fence_stands_before_the_guard_and_goes_after_it(harness: OperatorHarness) -> None:
    know_node(harness)
    hand_over(harness)
    keeper = node_guard(harness)
    keeper.reconcile("node-a", NOON)
    harness.cache.remove_owner(owner_pod(given=note()))
    harness.clock.advance(3)
    keeper.reconcile("node-a", NOON)
    assert [call for call in writes(harness) if "priorityclasses" not in call] == [
        CREATE,
        "patch nodes node-a",
        "patch nodes node-a",
        f"delete pods {FENCE}",
    ]


def test_a_fence_takes_no_room_cannot_be_preempted_and_ends_by_itself(harness: OperatorHarness) -> None:
    know_node(harness)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    (fence,) = fences(harness)
    assert fence.spec.node_name == "node-a"
    assert fence.spec.priority_class_name == f"berth-placeholder-{FENCE_PRIORITY}"
    ends = NOON.timestamp() + (fence.spec.active_deadline_seconds or 0)
    assert DEADLINE + 60 < ends <= DEADLINE + 120 + 60
    assert {amount for one in fence.spec.containers for amount in one.resources.requests.values()} == {"0"}


def test_no_kubelet_starts_the_fence_of_a_hand_over(harness: OperatorHarness) -> None:
    know_node(harness)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    (spec,) = (body["spec"] for (_, name), body in harness.api.objects["pods"].items() if name == FENCE)
    (volume,), (container,) = spec["volumes"], spec["containers"]
    assert volume["configMap"] == {"name": FENCE_CONFIG_MAP}, "not optional, and nothing makes it"
    assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"]]


KEPT_OFF: dict[str, tuple[dict[str, str], bool]] = {
    "an ordinary pod": ({"app": "web"}, True),
    "a pod without labels": ({}, True),
    "a pod with a slot": ({"app": "web", RESERVATION_LABEL: "uid", HANDOVER_LABEL: "true"}, False),
    "a pod that only says that it is an owner": ({"app": "web", RESERVATION_LABEL: "uid"}, True),
    "a pod of a DaemonSet": ({"pod-template-generation": "1"}, False),
    "a placeholder of any Reservation": ({PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid"}, True),
    "a placeholder that takes the place of another": (
        {PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid", SUCCESSOR_LABEL: "true", HANDOVER_LABEL: "true"},
        False,
    ),
    "one that has taken it": ({PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: "uid", SUCCESSOR_LABEL: "true"}, True),
}


@pytest.mark.parametrize(("labels", "want"), KEPT_OFF.values(), ids=KEPT_OFF.keys())
def test_a_fence_keeps_off(harness: OperatorHarness, labels: dict[str, str], *, want: bool) -> None:
    know_node(harness)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    affinity = fences(harness)[0].spec.affinity
    assert affinity is not None
    assert affinity.pod_anti_affinity is not None
    terms = affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    assert [(one.topology_key, one.namespace_selector) for one in terms] == [
        ("kubernetes.io/hostname", LabelSelector())
    ]
    assert any(matches_labels(term.label_selector or LabelSelector(), labels) for term in terms) is want


def test_a_hand_over_that_is_extended_gets_the_next_fence_and_all_go_with_its_end(harness: OperatorHarness) -> None:
    know_node(harness)
    fences_of_node = fence_manager(harness)
    fences_of_node.create("node-a", DEADLINE, NOON)
    fences_of_node.create("node-a", DEADLINE + 1, NOON)
    fences_of_node.create("node-a", DEADLINE + 120, NOON)
    assert {one.metadata.name for one in fences(harness)} == {FENCE, fence_name("node-a", DEADLINE // 120 + 1)}
    fences_of_node.delete("node-a")
    assert fences(harness) == []


@pytest.mark.parametrize("later", [0, 120])
def test_the_next_leader_takes_away_a_fence_with_its_guard_though_it_never_listed_it(
    harness: OperatorHarness, later: int
) -> None:
    know_node(harness)
    before = node_guard(harness)
    for deadline in (DEADLINE, DEADLINE + later):
        hand_over(harness, deadline=deadline)
        before.reconcile("node-a", NOON)
    harness.cache.remove_owner(owner_pod(given=note(deadline=DEADLINE + later)))
    harness.clock.advance(3)
    node_guard(harness).reconcile("node-a", NOON)
    assert fences(harness) == []


def test_a_sweep_finds_the_fences_that_an_earlier_operator_put_up(harness: OperatorHarness) -> None:
    know_node(harness)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    mine = fence_manager(harness)
    Resync(harness.context, harness.scope, harness.pod_groups, mine, harness.queued.append).run()
    assert (KeyKind.NODE, "node-a") in {(key.kind, key.name) for key in harness.queued}
    node_guard(harness, mine).reconcile("node-a", NOON)
    assert fences(harness) == []


@pytest.mark.parametrize(("phase", "stands"), [("Pending", True), ("Failed", False)])
def test_a_fence_that_exists_already_counts_unless_it_has_ended(
    harness: OperatorHarness, phase: str, *, stands: bool
) -> None:
    know_node(harness)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    harness.api.objects["pods"]["berth-system", FENCE]["status"] = {"phase": phase}
    harness.cache.guards.put_fenced("node-a", is_fenced=False)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    assert harness.cache.guards.is_fenced("node-a") is stands


@pytest.mark.parametrize(("phase", "stands"), [("Pending", True), ("Failed", False)])
def test_of_the_fences_of_an_earlier_operator_those_count_that_have_not_ended(
    harness: OperatorHarness, phase: str, *, stands: bool
) -> None:
    """Beside one that has ended, a placeholder waits for the guard to be seen; it is deleted all the same."""
    know_node(harness)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    harness.api.objects["pods"]["berth-system", FENCE]["status"] = {"phase": phase}
    harness.cache.guards.put_fenced("node-a", is_fenced=False)
    mine = fence_manager(harness)
    assert mine.find() == {"node-a"}
    assert harness.cache.guards.is_fenced("node-a") is stands
    mine.delete("node-a")
    assert fences(harness) == []


def test_a_fence_goes_with_its_node(harness: OperatorHarness) -> None:
    know_node(harness)
    hand_over(harness)
    del harness.api.objects["nodes"]["", "node-a"]
    node_guard(harness).reconcile("node-a", NOON)
    assert fences(harness) == []


LEFT_OUT = {"one pod slot is left, which the owner needs": "2", "the pods that fit are not known": "many"}


@pytest.mark.parametrize("pod_slots", LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_the_guard_stands_alone_where(harness: OperatorHarness, pod_slots: str) -> None:
    know_node(harness, pod_slots=pod_slots)
    hand_over(harness)
    harness.api.put(PODS, as_api(pod("neighbour", node="node-a")))
    node_guard(harness).reconcile("node-a", NOON)
    assert fences(harness) == []
    assert harness.cache.guards.deadline("node-a") == str(DEADLINE)


@pytest.mark.parametrize(("pod_slots", "fenced"), [("4", False), ("5", True)])
def test_a_fence_takes_no_slot_of_pods_whose_placeholders_are_gone(
    harness: OperatorHarness, pod_slots: str, *, fenced: bool
) -> None:
    know_node(harness, pod_slots=pod_slots)
    slots = [slot(SlotState.HANDING_OVER, index) for index in range(3)]
    owners = [owner_pod(f"web-{index}", given=note(index), gates=()) for index in range(3)]
    harness.know(*owners, of=place(*slots, replicas=3))
    harness.api.put(PODS, as_api(pod("neighbour", node="node-a")))
    node_guard(harness).reconcile("node-a", NOON)
    assert bool(fences(harness)) is fenced
    assert harness.cache.guards.deadline("node-a") == str(DEADLINE)


def placed(*names: str, node: str = "node-a") -> list[CountedPod]:
    return [msgspec.convert({"metadata": {"uid": name}, "spec": {"nodeName": node}}, CountedPod) for name in names]


COUNTED = {
    "many slots to spare": ("110", True, []),
    "few slots to spare, which the watch may be behind of": ("13", True, ["list pods spec.nodeName=node-a"]),
    "no slot to spare": ("2", False, ["list pods spec.nodeName=node-a"]),
}


@pytest.mark.parametrize(("pod_slots", "fenced", "lists"), COUNTED.values(), ids=COUNTED.keys())
def test_the_pods_of_a_node_are_listed_only_where_their_watched_count_does_not_suffice(
    harness: OperatorHarness, pod_slots: str, *, fenced: bool, lists: list[str]
) -> None:
    know_node(harness, pod_slots=pod_slots)
    hand_over(harness)
    harness.api.put(PODS, as_api(pod("neighbour", node="node-a")))
    harness.cache.pod_counts.replace(Listed(tuple(placed("neighbour", "another")), "1"))
    node_guard(harness).reconcile("node-a", NOON)
    assert [call for call in harness.api.calls if call.startswith("list")] == lists
    assert bool(fences(harness)) is fenced


def test_a_guard_and_its_end_read_no_node_that_is_known(harness: OperatorHarness) -> None:
    know_node(harness)
    hand_over(harness)
    guard = node_guard(harness)
    harness.api.calls.clear()
    guard.reconcile("node-a", NOON)
    harness.cache.remove_owner(owner_pod(given=note()))
    harness.clock.advance(3)
    guard.reconcile("node-a", NOON)
    assert [call for call in harness.api.calls if call.startswith("get nodes")] == []
    assert harness.api.get(NODES, "node-a")["spec"]["taints"] == []


def test_a_taint_that_another_puts_on_before_the_watch_tells_of_it_stays(harness: OperatorHarness) -> None:
    know_node(harness)
    hand_over(harness)
    theirs = {"key": "example.com/theirs", "effect": "NoSchedule", "value": ""}
    harness.api.merge_patch(NODES, "node-a", {"spec": {"taints": [theirs]}})
    guard = node_guard(harness)
    guard.reconcile("node-a", NOON)
    harness.api.merge_patch(NODES, "node-a", {"metadata": {"labels": {"theirs": "too"}}})
    harness.cache.remove_owner(owner_pod(given=note()))
    harness.clock.advance(3)
    guard.reconcile("node-a", NOON)
    assert harness.api.get(NODES, "node-a")["spec"]["taints"] == [theirs]


def test_the_next_fence_of_a_node_takes_no_slot_that_a_pod_needs(harness: OperatorHarness) -> None:
    know_node(harness, pod_slots="3")
    hand_over(harness)
    harness.api.put(PODS, as_api(pod("neighbour", node="node-a")))
    guard = node_guard(harness)
    guard.reconcile("node-a", NOON)
    harness.know(owner_pod(given=note(deadline=DEADLINE + 120), version="2"))
    guard.reconcile("node-a", NOON)
    assert [one.metadata.name for one in fences(harness)] == [FENCE]
    assert harness.cache.guards.deadline("node-a") == str(DEADLINE + 120)


REFUSALS = {
    "the API server is not well": error(ServerError),
    "a quota refuses it": error(ForbiddenError, "exceeded quota: pods"),
}


@pytest.mark.parametrize("refused", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_fence_that_cannot_be_made_is_tried_again_but_stops_no_hand_over_for_ever(
    harness: OperatorHarness, refused: KubeError
) -> None:
    know_node(harness)
    hand_over(harness)
    harness.api.faults[CREATE] = refused
    keeper = node_guard(harness)
    for _ in range(2):
        with pytest.raises(type(refused)):
            keeper.reconcile("node-a", NOON)
        assert harness.cache.guards.deadline("node-a") is None
    keeper.reconcile("node-a", NOON)
    assert harness.cache.guards.deadline("node-a") == str(DEADLINE)
    assert fences(harness) == []


def test_a_priority_class_that_was_taken_away_is_made_again(harness: OperatorHarness) -> None:
    know_node(harness)
    hand_over(harness)
    harness.api.faults[CREATE] = error(
        ForbiddenError, "no PriorityClass with name berth-placeholder-1000000000 was found"
    )
    keeper = node_guard(harness)
    with pytest.raises(ForbiddenError):
        keeper.reconcile("node-a", NOON)
    harness.api.objects["priorityclasses"].clear()
    del harness.api.faults[CREATE]
    keeper.reconcile("node-a", NOON)
    assert [one.spec.priority_class_name for one in fences(harness)] == ["berth-placeholder-1000000000"]
    assert harness.api.objects["priorityclasses"]


def test_a_fence_that_is_given_requests_on_its_way_in_is_taken_away(
    harness: OperatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    know_node(harness)
    create = harness.api.create

    def inject(resource: Any, body: dict[str, Any], **rest: Any) -> Any:  # noqa: ANN401 - as the client
        sidecar = {"name": "proxy", "resources": {"requests": {"cpu": "100m"}}}
        if resource is PODS:
            body = body | {"spec": body["spec"] | {"containers": [*body["spec"]["containers"], sidecar]}}
        return create(resource, body, **rest)

    monkeypatch.setattr(harness.api, "create", inject)
    fence_manager(harness).create("node-a", DEADLINE, NOON)
    assert fences(harness) == []
