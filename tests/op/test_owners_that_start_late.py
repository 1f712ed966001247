"""An owner that is bound has its place: guard and fence go, and only the record waits for it to run."""

from datetime import timedelta

import msgspec
import pytest

from berth_core import Pod
from berth_core.labels import FENCE_LABEL, HANDOVER_TAINT
from berth_core.reservations import Reservation, ReservationPhase, ReservationReason, ReservationStatus, SlotState
from berth_kube.resources import NODES, PODS
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.guards import NodeGuard
from berth_operator.reservation.decide import decide
from berth_operator.reservation.fair_sharing import FairSharing
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.settings import HandoverSettings, OperatorSettings
from builders import NOON
from handover_builders import DEADLINE, PROVEN, at_version, decide_now, note, observe, owner_pod, place, slot, told
from handover_simulation import STEP_SECONDS, Actor, HandoverSimulation
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

SETTLE_SECONDS = HandoverSettings().settle_seconds
UNFENCED_SECONDS = HandoverSettings().unfenced_settle_seconds
HANDING_OVER = place(slot(SlotState.HANDING_OVER), phase=ReservationPhase.AVAILABLE)
WAITING = owner_pod(given=note(), gates=())
BOUND = owner_pod(given=note(), gates=(), node="node-a", version="2")
RUNS = owner_pod(given=note(), gates=(), node="node-a", started=True)


# --- the guard and the fence -----------------------------------------------------------------------------------------


def know_node(harness: OperatorHarness, *, pod_slots: str = "110", taints: tuple[dict[str, str], ...] = ()) -> None:
    status = {"allocatable": {"pods": pod_slots}}
    metadata = {"name": "node-a", "uid": "uid-node-a"}
    harness.api.put(NODES, {"metadata": metadata, "spec": {"taints": list(taints)}, "status": status})
    harness.cache.put_node(harness.api.get(NODES, "node-a", type=GuardableNode))


def node_guard(harness: OperatorHarness) -> NodeGuard:
    return NodeGuard(harness.context, FenceManager(harness.context, harness.priorities))


def closed_by(harness: OperatorHarness) -> list[str]:
    """Name what keeps other pods off the node."""
    pods = harness.api.list(PODS, namespace="berth-system", type=Pod).items
    node = harness.api.get(NODES, "node-a", type=GuardableNode)
    guards = ["guard" for taint in node.spec.taints if taint.key == HANDOVER_TAINT]
    return guards + ["fence" for pod in pods if FENCE_LABEL in pod.metadata.labels]


def test_guard_and_fence_go_a_settling_time_after_the_binding_though_the_pod_never_runs(
    harness: OperatorHarness,
) -> None:
    know_node(harness)
    harness.know(WAITING, of=HANDING_OVER)
    keeper = node_guard(harness)
    assert keeper.reconcile("node-a", NOON) is None
    assert closed_by(harness) == ["guard", "fence"]

    harness.clock.advance(10)
    harness.cache.put_owner(BOUND)
    assert keeper.reconcile("node-a", NOON) == pytest.approx(SETTLE_SECONDS)
    assert closed_by(harness) == ["guard", "fence"]

    harness.clock.advance(SETTLE_SECONDS + 0.01)
    assert keeper.reconcile("node-a", NOON) is None
    assert closed_by(harness) == []


def test_a_guard_without_a_fence_outlasts_schedulers_that_see_pods_late(harness: OperatorHarness) -> None:
    know_node(harness, pod_slots="2")  # the owner needs the one that is left
    harness.know(WAITING, of=HANDING_OVER)
    harness.api.put(PODS, {"metadata": {"name": "neighbour", "namespace": "default"}, "spec": {"nodeName": "node-a"}})
    keeper = node_guard(harness)
    keeper.reconcile("node-a", NOON)
    assert closed_by(harness) == ["guard"]

    harness.cache.put_owner(BOUND)
    harness.clock.advance(SETTLE_SECONDS)
    assert keeper.reconcile("node-a", NOON) == pytest.approx(UNFENCED_SECONDS - SETTLE_SECONDS)
    assert closed_by(harness) == ["guard"]
    harness.clock.advance(UNFENCED_SECONDS - SETTLE_SECONDS + 0.01)
    assert keeper.reconcile("node-a", NOON) is None
    assert closed_by(harness) == []


def test_the_settling_time_begins_with_the_last_binding_on_a_node(harness: OperatorHarness) -> None:
    know_node(harness)
    both = place(slot(SlotState.HANDING_OVER, 0), slot(SlotState.HANDING_OVER, 1), replicas=2)
    second = owner_pod("web-1", given=note(1), gates=())
    harness.know(WAITING, second, of=both)
    keeper = node_guard(harness)
    keeper.reconcile("node-a", NOON)
    harness.clock.advance(10)
    harness.cache.put_owner(BOUND)
    harness.clock.advance(10)
    assert keeper.reconcile("node-a", NOON) is None
    assert closed_by(harness) == ["guard", "fence"]

    harness.cache.put_owner(owner_pod("web-1", given=note(1), gates=(), node="node-a", version="2"))
    harness.cache.remove_owner(BOUND)
    assert keeper.reconcile("node-a", NOON) == pytest.approx(SETTLE_SECONDS)


def test_an_operator_that_starts_anew_counts_from_when_it_has_seen_the_guard(harness: OperatorHarness) -> None:
    know_node(harness, taints=({"key": HANDOVER_TAINT, "value": str(DEADLINE), "effect": "NoSchedule"},))
    keeper = node_guard(harness)
    left = keeper.reconcile("node-a", NOON)
    assert left == pytest.approx(UNFENCED_SECONDS), "whether there is a fence is not known yet"
    harness.clock.advance(UNFENCED_SECONDS + 0.01)
    assert keeper.reconcile("node-a", NOON) is None
    assert closed_by(harness) == []


def test_no_hand_over_begins_behind_a_guard_that_is_being_taken_off(harness: OperatorHarness) -> None:
    know_node(harness, taints=({"key": HANDOVER_TAINT, "value": str(DEADLINE + 9), "effect": "NoSchedule"},))
    assert harness.cache.guards.begin_unguarding("node-a")
    harness.know(WAITING, of=HANDING_OVER)
    seen = harness.cache.observe(HANDING_OVER.metadata.uid)
    assert seen is not None
    assert seen.guards == {}

    node_guard(harness).reconcile("node-a", NOON)
    seen = harness.cache.observe(HANDING_OVER.metadata.uid)
    assert seen is not None
    assert list(seen.guards) == ["node-a"]
    assert closed_by(harness) == ["guard", "fence"]


def test_a_guard_that_a_hand_over_relies_on_is_not_taken_off(harness: OperatorHarness) -> None:
    know_node(harness, taints=({"key": HANDOVER_TAINT, "value": str(DEADLINE + 9), "effect": "NoSchedule"},))
    harness.know(WAITING, of=HANDING_OVER)
    assert not harness.cache.guards.begin_unguarding("node-a")


def test_a_node_is_open_while_its_kubelet_does_not_start_the_owner() -> None:
    simulation = HandoverSimulation()
    while not simulation.pod("web-0").spec.node_name:
        simulation.step()
    simulation.interrupt(frozenset({Actor.KUBELET}), 300)
    for _ in range(int(UNFENCED_SECONDS / STEP_SECONDS) + 2):
        simulation.step()
    assert simulation.guards() == []
    assert (simulation.pod("web-0").status.phase, simulation.slot().state) == ("Pending", SlotState.HANDING_OVER)
    simulation.play()
    assert simulation.faults == []
    assert simulation.reservation().phase is ReservationPhase.SUCCEEDED


# --- the record ------------------------------------------------------------------------------------------------------


def status_of(reservation: Reservation, *pods: Pod, bound_for: float) -> ReservationStatus:
    seen = observe(reservation, *pods, stage_ages={pod.metadata.uid: bound_for for pod in pods}, probe=PROVEN)
    return decide_now(seen).status


def with_status(status: ReservationStatus) -> Reservation:
    return msgspec.structs.replace(HANDING_OVER, status=status)


def test_a_status_says_after_some_seconds_that_the_owner_is_bound_and_does_not_run() -> None:
    soon, late = (status_of(HANDING_OVER, BOUND, bound_for=seconds) for seconds in (4.9, 5.0))
    assert soon.state is not None
    assert late.state is not None
    assert soon.state.reason == ReservationReason.HANDING_OVER
    assert (late.state.phase, late.state.reason) == (ReservationPhase.AVAILABLE, ReservationReason.OWNERS_STARTING)
    assert late.state.message == "default/web-0 is bound to node node-a for slot web/0 and does not run yet"
    for status in (soon, late):
        (shown,) = status.slots
        assert (shown.state, shown.node, shown.owner and shown.owner.name) == (
            SlotState.HANDING_OVER,
            "node-a",
            "web-0",
        )
    assert late.slots[0].message == "pod default/web-0 is bound to node node-a and does not run yet"


def test_it_is_looked_at_again_when_that_is_due_and_then_only_after_a_change() -> None:
    wakes = [
        decide_now(observe(HANDING_OVER, BOUND, stage_ages={"uid-web-0": age}, probe=PROVEN)).wake_seconds
        for age in (1.0, 5.0)
    ]
    assert wakes == [pytest.approx(4.0), pytest.approx(600.0)], "and when it expires"


def test_an_operator_that_starts_anew_says_the_same() -> None:
    late = status_of(HANDING_OVER, BOUND, bound_for=5)
    assert status_of(with_status(late), BOUND, bound_for=0) == late
    of_another = at_version(owner_pod("web-9", given=note(), gates=(), node="node-a"), "9")
    assert status_of(with_status(late), of_another, bound_for=0).state != late.state


def test_a_slot_that_is_still_waited_for_counts_before_one_that_is_bound() -> None:
    both = place(slot(SlotState.HANDING_OVER, 0), slot(SlotState.HANDING_OVER, 1), replicas=2)
    second = owner_pod("web-1", given=note(1), gates=())
    state = status_of(both, BOUND, second, bound_for=10).state
    assert state is not None
    assert state.reason == ReservationReason.HANDING_OVER
    assert state.message.startswith("default/web-1 is taking slot web/1 on node node-a")


def test_the_slot_is_taken_once_the_owner_runs() -> None:
    late = status_of(HANDING_OVER, BOUND, bound_for=5)
    taken = status_of(with_status(late), RUNS, bound_for=0)
    assert taken.state is not None
    assert (taken.state.phase, taken.state.message) == (ReservationPhase.SUCCEEDED, "default/web-0 runs on node node-a")
    assert (taken.slots[0].state, taken.slots[0].reason, taken.slots[0].message) == (SlotState.TAKEN, "", "")


@pytest.mark.parametrize("bound_for", [0.0, 3600.0])
def test_a_reservation_that_expires_with_its_owner_bound_has_not_failed(bound_for: float) -> None:
    expiring = place(slot(SlotState.HANDING_OVER), phase=ReservationPhase.AVAILABLE, ttl="10m")
    seen = observe(expiring, BOUND, stage_ages={"uid-web-0": bound_for}, probe=PROVEN)
    decision = decide(seen, NOON + timedelta(hours=1), OperatorSettings())
    assert decision.status.state is not None
    assert decision.status.state.phase is ReservationPhase.SUCCEEDED
    assert decision.status.state.message == "pod default/web-0 is bound to node node-a and does not run yet"
    assert decision.status.state.reason == ReservationReason.OWNERS_STARTING
    assert decision.status.slots[0].state is SlotState.TAKEN
    assert [told(action) for action in decision.actions] == [("Release", "web-0")]


def test_one_that_expires_with_its_owner_on_the_way_has_failed() -> None:
    expiring = place(slot(SlotState.HANDING_OVER), phase=ReservationPhase.AVAILABLE, ttl="10m")
    status = decide(observe(expiring, WAITING, probe=PROVEN), NOON + timedelta(hours=1), OperatorSettings()).status
    assert status.state is not None
    assert (status.state.phase, status.state.reason) == (ReservationPhase.FAILED, ReservationReason.EXPIRED)


# --- the shares ------------------------------------------------------------------------------------------------------


def test_owners_that_start_late_use_up_no_share_of_the_hand_overs(harness: OperatorHarness) -> None:
    harness.know(WAITING, of=HANDING_OVER)
    assert harness.cache.guards.handovers() == {"default": 1}
    harness.cache.put_owner(BOUND)
    assert harness.cache.guards.handovers() == {}


def test_an_owner_that_starts_late_counts_as_a_hand_over_that_went_well() -> None:
    now = 0.0
    sharing = FairSharing(lambda: now)
    lost = place(slot(SlotState.LOST), phase=ReservationPhase.FAILED)
    sharing.observe(HANDING_OVER, HANDING_OVER.status)
    now = 60.0
    sharing.observe(HANDING_OVER, lost.status)
    sharing.observe(HANDING_OVER, HANDING_OVER.status)
    assert sharing.delay("default", "node-a") == 1.0, "one by one on the node, after a failure"

    sharing.observe(HANDING_OVER, status_of(HANDING_OVER, BOUND, bound_for=5))
    now += 3600
    assert sharing.delay("default", "node-a") == 0.0
