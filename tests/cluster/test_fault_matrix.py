"""Nodes, placeholders, Reservations and statuses are disturbed, at rest and in the middle of a hand-over.

Each row has a bound in seconds, and at its end all is as it must be (the stage looks for that when it is cleared).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest

from berth_core import Pod
from berth_core.reservations import ConditionType, ReservationPhase, ReservationReason
from berth_kube.resources import NODES, PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import let_the_scheduler_hear, overbooked_nodes
from fault_proxy import FaultProxy
from faults import BalancerFaultAt, Call, FaultKind, HoldPlan
from handover_calls import (
    CALLS,
    deletes_the_placeholder,
    gives_the_slot,
    nominates_the_pod,
    takes_the_gate_off,
    tells_that_a_place_is_held,
)
from proxied_operator import held, operator, proxy, undisturbed
from reservation_stage import Stage, is_gated
from waiting import eventually

__all__ = ["operator", "proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

Disturb = Callable[[Stage], None]
TAINT: Final = "example.com/unwell"
IN_FLIGHT_SECONDS: Final = 1.0
"""What kwok sent before it was suspended may still be carried out, and say that the node is ready."""


def begin(stage: Stage) -> None:
    """Hold the first node of the stage."""
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()


def require_running(stage: Stage, *nodes: str, seconds: float = 45) -> Pod:
    """Return the owner's pod once it runs, on one of some nodes."""
    eventually("the owner runs", lambda: stage.pod("owner").status.phase == "Running", seconds=seconds)
    pod = stage.pod("owner")
    assert pod.spec.node_name in nodes
    assert overbooked_nodes(stage.client) == []
    return pod


# --- the target node ------------------------------------------------------------------------------------------------


def cordon(stage: Stage) -> None:
    stage.client.merge_patch(NODES, stage.nodes[0], {"spec": {"unschedulable": True}})


def taint(stage: Stage, effect: str = "NoSchedule") -> None:
    """Add a foreign taint; guards come and go meanwhile, so nothing is replaced unseen."""
    there = stage.client.get(NODES, stage.nodes[0])["spec"].get("taints")
    operations = [
        {"op": "test", "path": "/spec/taints", "value": there},
        {"op": "add", "path": "/spec/taints/-", "value": {"key": TAINT, "effect": effect}},
    ]
    if there is None:
        operations = [{"op": "add", "path": "/spec/taints", "value": [{"key": TAINT, "effect": effect}]}]
    stage.client.json_patch(NODES, stage.nodes[0], operations)


def taint_with_eviction(stage: Stage) -> None:
    taint(stage, "NoExecute")


def delete_node(stage: Stage) -> None:
    stage.client.delete(NODES, stage.nodes[0])


def silence(stage: Stage) -> None:
    """Have the node say that its kubelet is not ready; kwok, which would mend that, is to be suspended."""
    unready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    stage.client.merge_patch(NODES, stage.nodes[0], {"status": {"conditions": [unready]}}, subresource="status")


def reopen(stage: Stage) -> None:
    """Take off what closed the node; the guard of no hand-over is on it."""
    stage.client.merge_patch(NODES, stage.nodes[0], {"spec": {"unschedulable": None, "taints": None}})


CLOSINGS: Final[dict[str, Disturb]] = {"is cordoned": cordon, "is tainted": taint}
WORDS: Final[dict[Disturb, str]] = {
    cordon: "is cordoned",
    taint: f"has the taint {TAINT}:NoSchedule",
    silence: "is not ready",
}


def require_closed(stage: Stage, close: Disturb) -> None:
    """Wait until the status says why no pod could take its slot, and see that nobody is told to evict for it."""
    words = f"node {stage.nodes[0]} {WORDS[close]}"
    eventually("the status says it", lambda: stage.read().status.slots[0].message == words, seconds=60)
    told = stage.read()
    assert told.status.slots[0].reason == "NodeClosed"
    assert told.phase is ReservationPhase.PENDING
    assert not told.condition(ConditionType.AVAILABLE)
    assert not told.condition(ConditionType.HANDOVER_READY)
    assert [pod.status.phase for pod in stage.placeholders()] == ["Running"]
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)


@pytest.mark.parametrize("close", CLOSINGS.values(), ids=CLOSINGS.keys())
def test_a_place_is_promised_to_nobody_until_its_node_is_open_again_where_that(stage: Stage, close: Disturb) -> None:
    begin(stage)
    close(stage)
    require_closed(stage, close)
    stage.create_pod("elsewhere")
    assert not is_gated(stage.pod("elsewhere"))
    eventually("it runs", lambda: stage.pod("elsewhere").spec.node_name == stage.nodes[1], seconds=60)

    reopen(stage)
    eventually("it is ready", lambda: stage.read().condition(ConditionType.HANDOVER_READY), seconds=60)
    stage.create_pod("owner")
    require_running(stage, stage.nodes[0])
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)


def test_a_place_is_promised_to_nobody_while_its_node_is_not_ready(sandbox: Sandbox, stage: Stage) -> None:
    begin(stage)
    sandbox.suspend("kwok")
    try:
        time.sleep(IN_FLIGHT_SECONDS)
        silence(stage)
        require_closed(stage, silence)
    finally:
        sandbox.resume("kwok")
    eventually("it is ready", lambda: stage.read().condition(ConditionType.HANDOVER_READY), seconds=60)


@pytest.mark.parametrize("close", CLOSINGS.values(), ids=CLOSINGS.keys())
def test_the_owner_goes_elsewhere_where_in_its_hand_over_the_node(
    proxy: FaultProxy, stage: Stage, close: Disturb
) -> None:
    begin(stage)
    with held(proxy, HoldPlan(nominates_the_pod, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        close(stage)
        let_the_scheduler_hear(stage.client, stage.namespace, stage.nodes[1])  # else it may send the pod to the node

    require_running(stage, stage.nodes[1])
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)


@pytest.mark.parametrize(
    ("wanted", "want_phase"),
    [
        (deletes_the_placeholder, ReservationPhase.FAILED),
        (nominates_the_pod, ReservationPhase.SUCCEEDED),  # its place is free by then, and it goes on at once
        (takes_the_gate_off, ReservationPhase.SUCCEEDED),
    ],
)
def test_a_node_that_is_deleted_in_a_hand_over_keeps_no_pod_back(
    proxy: FaultProxy, stage: Stage, wanted: Callable[[Call], bool], want_phase: ReservationPhase
) -> None:
    begin(stage)
    stage.reserve("witness", app="nobody", nodes=[stage.nodes[0]], template=stage.template(cpu="0"))
    stage.wait_for(ReservationPhase.AVAILABLE, "witness")
    with held(proxy, HoldPlan(wanted, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        delete_node(stage)
        stage.wait_for(ReservationPhase.FAILED, "witness")  # so the operator knows that the node is gone
        let_the_scheduler_hear(stage.client, stage.namespace, stage.nodes[1])

    require_running(stage, stage.nodes[1])
    ended = stage.wait_for(want_phase, seconds=60)
    assert ended.status.state is not None
    if want_phase is ReservationPhase.FAILED:
        assert ended.status.state.reason == ReservationReason.NODE_LOST


def test_a_place_that_a_taint_evicts_is_taken_again_when_the_taint_is_off(stage: Stage) -> None:
    begin(stage)
    taint_with_eviction(stage)
    stage.wait_for(ReservationPhase.PENDING, seconds=60)
    eventually("the placeholder waits", lambda: [p.spec.node_name for p in stage.placeholders()] == [""], seconds=60)

    stage.client.merge_patch(NODES, stage.nodes[0], {"spec": {"taints": None}})
    stage.wait_for(ReservationPhase.AVAILABLE, seconds=60)


def test_a_node_that_is_away_for_some_seconds_delays_a_hand_over(sandbox: Sandbox, stage: Stage) -> None:
    begin(stage)
    sandbox.suspend("kwok")
    try:
        stage.create_pod("owner")
        eventually("the owner has its node", lambda: stage.pod("owner").spec.node_name, seconds=120)
        silence(stage)
    finally:
        sandbox.resume("kwok")

    require_running(stage, *stage.nodes, seconds=60)
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)


# --- the placeholder ------------------------------------------------------------------------------------------------


def evict_as_the_kubelet_does(stage: Stage) -> None:
    (placeholder,) = stage.placeholders()
    disruption = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    status = {
        "phase": "Failed",
        "reason": "Evicted",
        "message": "The node was low on memory",
        "conditions": [disruption],
    }
    stage.client.merge_patch(
        PODS,
        placeholder.metadata.name,
        {"status": status},
        namespace=placeholder.metadata.namespace,
        subresource="status",
    )


def delete_the_placeholder(stage: Stage) -> None:
    (placeholder,) = stage.placeholders()
    stage.client.delete(PODS, placeholder.metadata.name, namespace=placeholder.metadata.namespace, grace_seconds=0)


PLACEHOLDER_ENDS: Final[dict[str, Disturb]] = {
    "is evicted by the kubelet": evict_as_the_kubelet_does,
    "is deleted by hand": delete_the_placeholder,
}


@pytest.mark.parametrize("end", PLACEHOLDER_ENDS.values(), ids=PLACEHOLDER_ENDS.keys())
def test_a_place_is_held_anew_when_its_placeholder(stage: Stage, end: Disturb) -> None:
    begin(stage)
    first = stage.placeholders()[0].metadata.uid
    end(stage)
    eventually(
        "another placeholder runs",
        lambda: [p.status.phase for p in stage.placeholders() if p.metadata.uid != first] == ["Running"],
        seconds=14,
    )
    stage.wait_for(ReservationPhase.AVAILABLE)
    assert len(stage.placeholders()) == 1


@pytest.mark.parametrize("end", PLACEHOLDER_ENDS.values(), ids=PLACEHOLDER_ENDS.keys())
def test_a_hand_over_goes_on_when_in_its_middle_the_placeholder(proxy: FaultProxy, stage: Stage, end: Disturb) -> None:
    begin(stage)
    with held(proxy, HoldPlan(deletes_the_placeholder, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        end(stage)

    require_running(stage, stage.nodes[0])
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)


# --- the balancer ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [gives_the_slot, deletes_the_placeholder, nominates_the_pod, takes_the_gate_off])
def test_an_owner_takes_its_place_although_the_balancer_accepts_and_closes(
    proxy: FaultProxy, stage: Stage, wanted: Callable[[Call], bool]
) -> None:
    begin(stage)
    proxy.plan = plan = BalancerFaultAt(wanted, seconds=1.5)
    stage.create_pod("owner")
    require_running(stage, stage.nodes[0])
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert plan.has_happened


# --- the owners -----------------------------------------------------------------------------------------------------


def test_what_a_second_controller_writes_on_each_new_pod_before_it_gets_its_slot_stays(
    proxy: FaultProxy, stage: Stage
) -> None:
    stage.reserve(nodes=[stage.nodes[0]], replicas=4, template=stage.template(cpu="1"))
    stage.wait_until_proven()
    names = [f"owner-{number}" for number in range(4)]
    their_note = {"metadata": {"annotations": {"example.com/group": "podgroup-1"}}}
    gives_a_slot = HoldPlan(lambda call: call.method == "PATCH" and b"/spec/tolerations" in call.body, FaultKind.PAUSE)
    with held(proxy, gives_a_slot) as hold:
        for name in names:
            stage.create_pod(name, cpu="1")
        assert hold.reached.wait(120)
        for name in names:
            stage.client.merge_patch(PODS, name, their_note, namespace=stage.namespace)

    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    owners = [stage.pod(name) for name in names]
    assert [pod.metadata.annotations.get("example.com/group") for pod in owners] == ["podgroup-1"] * 4
    assert {pod.spec.node_name for pod in owners} == {stage.nodes[0]}


# --- the Reservation ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", CALLS.values(), ids=[f"before {name}" for name in CALLS])
def test_a_reservation_that_is_deleted_in_a_hand_over_keeps_no_pod_and_no_place(
    proxy: FaultProxy, stage: Stage, wanted: Callable[[Call], bool]
) -> None:
    begin(stage)
    with held(proxy, HoldPlan(wanted, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)

    require_running(stage, *stage.nodes)
    stage.wait_until_empty()


def test_a_reservation_that_is_deleted_before_it_holds_anything_leaves_nothing(stage: Stage) -> None:
    stage.reserve(template=stage.template(cpu="64"))
    eventually("a placeholder waits", lambda: len(stage.placeholders()) == 1, seconds=60)
    stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)
    stage.wait_until_empty()


def test_two_reservations_for_one_owner_give_each_of_its_pods_one_place(stage: Stage) -> None:
    for name, node in zip(("one", "two"), stage.nodes, strict=True):
        stage.reserve(name, nodes=[node])
    for name in ("one", "two"):
        stage.wait_until_proven(name)

    stage.create_pod("owner")
    require_running(stage, *stage.nodes)
    eventually("one is over", lambda: phases(stage) == ["Available", "Succeeded"], seconds=60)

    stage.create_pod("owner-2")
    eventually("both are over", lambda: phases(stage) == ["Succeeded", "Succeeded"], seconds=60)
    assert {stage.pod(name).spec.node_name for name in ("owner", "owner-2")} == set(stage.nodes)


def phases(stage: Stage) -> list[str]:
    return sorted(stage.read(name).phase.value for name in ("one", "two"))


# --- its status -----------------------------------------------------------------------------------------------------


def test_an_owner_takes_its_place_although_it_comes_before_the_operator_hears_that_the_place_is_told(
    proxy: FaultProxy, stage: Stage
) -> None:
    with held(proxy, HoldPlan(tells_that_a_place_is_held, FaultKind.HOLD_AFTER)) as hold:
        stage.reserve(nodes=[stage.nodes[0]])
        assert hold.reached.wait(120)
        assert stage.read().phase is ReservationPhase.AVAILABLE
        eventually("new pods are gated", lambda: is_gated(try_owner(stage)))  # the API server knows the webhook by then
        stage.create_pod("owner")
        assert is_gated(stage.pod("owner"))

    require_running(stage, stage.nodes[0])
    stage.wait_for(ReservationPhase.SUCCEEDED)


def try_owner(stage: Stage) -> Pod:
    """Return what would become of the owner's pod."""
    body = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": "owner"})}
    body["metadata"]["name"] = "owner"
    return stage.client.create(PODS, body, namespace=stage.namespace, dry_run=True, type=Pod)


@dataclass(frozen=True)
class Forgery:
    patch: dict[str, Any]
    in_a_hand_over: bool = False


FORGERIES: Final = {
    "numbers": Forgery({"available": 7, "pending": 3, "desired": 9, "node": "elsewhere"}),
    "the phase": Forgery({"state": {"phase": "Pending", "reason": "Forged", "message": "forged"}}),
    "the conditions": Forgery({"conditions": []}),
    "the slots": Forgery({"slots": []}),
    "a slot's node": Forgery({"slots": [{"task": "main", "index": 0, "state": "Held", "node": "elsewhere"}]}),
    "that a slot was taken": Forgery(
        {"slots": [{"task": "main", "index": 0, "state": "Taken", "node": "elsewhere"}], "succeeded": 1}
    ),
    "that all is over": Forgery({"state": {"phase": "Failed", "reason": "Forged", "message": "forged"}}),
    "numbers in a hand-over": Forgery({"available": 7, "failed": 3}, in_a_hand_over=True),
    "the phase in a hand-over": Forgery({"state": {"phase": "Pending"}}, in_a_hand_over=True),
}


@pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES.keys())
def test_a_status_is_true_again_after_somebody_else_wrote(proxy: FaultProxy, stage: Stage, forgery: Forgery) -> None:
    begin(stage)
    if forgery.in_a_hand_over:
        with held(proxy, HoldPlan(deletes_the_placeholder, FaultKind.PAUSE)) as hold:
            stage.create_pod("owner")
            assert hold.reached.wait(120)
            forge(stage, forgery.patch)
    else:
        forge(stage, forgery.patch)
        eventually("the status is true", lambda: stage.leftovers() == [], seconds=60)
        assert stage.read().phase is ReservationPhase.AVAILABLE
        stage.create_pod("owner")

    require_running(stage, stage.nodes[0])
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)


def test_a_status_that_is_wiped_in_a_hand_over_keeps_no_pod_back(proxy: FaultProxy, stage: Stage) -> None:
    begin(stage)
    with held(proxy, HoldPlan(takes_the_gate_off, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        forge(stage, None)

    require_running(stage, *stage.nodes)
    assert not is_gated(stage.pod("owner"))


def forge(stage: Stage, status: dict[str, Any] | None) -> None:
    stage.client.merge_patch(RESERVATIONS, "place", {"status": status}, namespace=stage.namespace, subresource="status")
