"""Parts of the control plane are away or slow: what was held stays held, and a hand-over ends when they are back."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

from background_runs import LONGEST_SECONDS, BackgroundRun
from berth_core.names import WEBHOOK_CONFIGURATION
from berth_core.reservations import ReservationPhase, SlotState
from berth_kube.resources import MUTATING_WEBHOOKS
from berth_operator.reservation.assignment import Assignment
from berth_sandbox.sandbox import Sandbox
from cluster_objects import overbooked_nodes
from fault_proxy import FaultProxy
from faults import BalancerFaultAt, Call, FaultKind, HoldPlan
from handover_calls import deletes_the_placeholder, nominates_the_pod, takes_the_gate_off
from outages import CHANGING, EXPIRING, HELD, OUTAGES, OWNER, WITNESS, Recovery
from proxied_operator import held, operator, proxy, undisturbed
from reservation_stage import Stage
from service_processes import WEBHOOK_SECONDS, BriskOperator, OperatorProcess
from waiting import eventually

__all__ = ["operator", "proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

HANDOVER_SECONDS: Final = 15.0


@pytest.mark.timeout(LONGEST_SECONDS + 60)
@pytest.mark.parametrize("outage", OUTAGES)
def test_all_is_true_again_after(outages: BackgroundRun[dict[str, Recovery]], outage: str) -> None:
    recovery = outages.result()[outage]
    print(recovery)  # noqa: T201 - figures for people: within 30 s, or 15 s after schedulers and kubelets
    assert recovery.phases[HELD] is ReservationPhase.AVAILABLE
    assert recovery.phases[EXPIRING] is ReservationPhase.FAILED
    assert recovery.seconds.keys() == {WITNESS, EXPIRING, HELD, CHANGING, OWNER}, "all came about"
    assert recovery.breaches == ()
    assert recovery.handed_over_afterwards


# --- the scheduler --------------------------------------------------------------------------------------------------

RESTARTS: Final[dict[str, tuple[Callable[[Call], bool], FaultKind]]] = {
    "before the nomination": (deletes_the_placeholder, FaultKind.PAUSE),
    "between nomination and release": (takes_the_gate_off, FaultKind.PAUSE),
    "after the nomination, while the operator waits for its answer": (nominates_the_pod, FaultKind.HOLD_AFTER),
    "after un-gating": (takes_the_gate_off, FaultKind.HOLD_AFTER),
}


@pytest.mark.usefixtures("operator")
@pytest.mark.parametrize("moment", RESTARTS.values(), ids=RESTARTS.keys())
def test_the_slot_goes_to_its_owner_although_the_scheduler_is_restarted(
    sandbox: Sandbox, proxy: FaultProxy, stage: Stage, moment: tuple[Callable[[Call], bool], FaultKind]
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    hungry = [f"hungry-{number}" for number in range(3)]
    stage.create_pod("filler", app="filler", nodeName=stage.nodes[1])
    for name in hungry:
        stage.create_pod(name, app="hungry")

    with held(proxy, HoldPlan(*moment)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        sandbox.restart("kube-scheduler")

    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert stage.pod("owner").spec.node_name == stage.nodes[0]
    assert [name for name in hungry if stage.pod(name).spec.node_name] == []
    assert overbooked_nodes(stage.client) == []


@pytest.fixture
def brisk(operator: OperatorProcess, sandbox: Sandbox, tmp_path: Path) -> Iterator[None]:
    """Have an operator act whose hand-overs have little time, instead of the module's."""
    operator.stop()
    try:
        with BriskOperator(sandbox, tmp_path, handover_seconds=HANDOVER_SECONDS):
            yield
    finally:
        operator.start()


@pytest.mark.usefixtures("brisk")
def test_a_place_is_kept_for_its_owner_for_as_long_as_the_scheduler_has_not_come_to_it(
    sandbox: Sandbox, stage: Stage
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    stage.create_pod("filler", app="filler", nodeName=stage.nodes[1])
    stage.create_pod("hungry", app="hungry")
    sandbox.suspend("kube-scheduler")
    try:
        stage.create_pod("owner")
        eventually(
            "it is for the scheduler to bind it", lambda: not stage.pod("owner").spec.scheduling_gates, seconds=30
        )
        given = Assignment.from_pod(stage.pod("owner"))
        assert given is not None
        eventually("its time is over", lambda: time.time() > given.deadline + 2, seconds=60)
        assert [slot.state for slot in stage.read().status.slots] == [SlotState.HANDING_OVER]
    finally:
        sandbox.resume("kube-scheduler")

    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert stage.pod("owner").spec.node_name == stage.nodes[0]
    assert not stage.pod("hungry").spec.node_name


# --- the balancer ---------------------------------------------------------------------------------------------------


def test_an_operator_goes_on_leading_although_the_balancer_accepts_and_closes_as_it_renews_its_lease(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    proxy.plan = plan = BalancerFaultAt(lambda call: call.is_write and "/leases/" in call.path, seconds=1.5)
    eventually("the Lease is not renewed", lambda: plan.has_happened, seconds=60)
    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert stage.pod("owner").spec.node_name == stage.nodes[0]
    assert operator.exit_code is None


# --- the webhook ----------------------------------------------------------------------------------------------------


def kill(operator: OperatorProcess) -> None:
    operator.kill()


def suspend(operator: OperatorProcess) -> None:
    """Have the webhook take connections and say nothing."""
    os.kill(operator.pid, signal.SIGSTOP)


def start(operator: OperatorProcess) -> None:
    operator.start()


def resume(operator: OperatorProcess) -> None:
    os.kill(operator.pid, signal.SIGCONT)


SILENCES: Final = {"is unreachable": (kill, start), "takes for ever": (suspend, resume)}


@pytest.mark.parametrize(("begin", "end"), SILENCES.values(), ids=SILENCES.keys())
def test_pods_are_created_in_at_most_its_time_limit_when_the_webhook(
    operator: OperatorProcess,
    stage: Stage,
    begin: Callable[[OperatorProcess], None],
    end: Callable[[OperatorProcess], None],
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    begin(operator)
    try:
        (webhook, *_) = stage.client.get(MUTATING_WEBHOOKS, WEBHOOK_CONFIGURATION)["webhooks"]
        assert webhook["timeoutSeconds"] == WEBHOOK_SECONDS
        stage.create_pod("owner")
        eventually("the pod runs", lambda: stage.pod("owner").status.phase == "Running", seconds=60)
    finally:
        end(operator)
    assert stage.pod("owner").spec.node_name == stage.nodes[1]
    assert stage.wait_for(ReservationPhase.AVAILABLE).status.node == stage.nodes[0]
