"""The operator, or the API server, is stopped for longer than a hand-over may take, with the place free: it is kept.

What is tried at each step and for every process, by a clock of its own, is in `tests/op/test_interrupted_hand_overs`;
here are the real ones. `BERTH_LONGER_OUTAGES` has more lengths tried, as seconds with commas.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from berth_core.reservations import ReservationPhase, SlotState
from berth_sandbox.sandbox import Sandbox
from cluster_objects import overbooked_nodes
from fault_proxy import FaultProxy
from faults import FaultKind, HoldPlan, NoFaults
from handover_calls import deletes_the_placeholder
from proxied_operator import proxy, undisturbed
from reservation_stage import Stage, is_gated
from service_processes import BriskOperator
from waiting import eventually

__all__ = ["proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

HANDOVER_SECONDS: Final = 6.0
PAUSES: Final = (8.0, *(float(text) for text in os.environ.get("BERTH_LONGER_OUTAGES", "").split(",") if text))
SCHEDULERS: Final = ("default-scheduler", "second-scheduler")


@pytest.fixture(scope="module")
def brisk(sandbox: Sandbox, proxy: FaultProxy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BriskOperator]:
    folder = tmp_path_factory.mktemp("brisk-operator")
    through = proxy.write_kubeconfig(folder / "through-the-proxy.yaml")
    with BriskOperator(sandbox, folder, f"--kubeconfig={through}", handover_seconds=HANDOVER_SECONDS) as process:
        yield process


def stop_the_operator(_sandbox: Sandbox, operator: BriskOperator) -> Callable[[], None]:
    os.kill(operator.pid, signal.SIGSTOP)
    return lambda: os.kill(operator.pid, signal.SIGCONT)


def stop_the_api_server(sandbox: Sandbox, _operator: BriskOperator) -> Callable[[], None]:
    sandbox.suspend("kube-apiserver")
    return lambda: sandbox.resume("kube-apiserver")


def stop_all(sandbox: Sandbox, operator: BriskOperator) -> Callable[[], None]:
    """Stop the operator, the API server and both schedulers."""
    components = ("kube-apiserver", "kube-scheduler", "second-scheduler")
    for component in components:
        sandbox.suspend(component)
    resume = stop_the_operator(sandbox, operator)

    def resume_all() -> None:
        for component in components:
            sandbox.resume(component)
        resume()

    return resume_all


STOPS: Final = {
    "the operator": stop_the_operator,
    "the API server": stop_the_api_server,
    "all of them": stop_all,
}


@pytest.mark.parametrize("seconds", PAUSES)
@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS.keys())
def test_a_place_that_is_free_for_its_owner_is_kept_while_there_is_stopped(
    sandbox: Sandbox,
    brisk: BriskOperator,
    proxy: FaultProxy,
    stage: Stage,
    stop: Callable[[Sandbox, BriskOperator], Callable[[], None]],
    seconds: float,
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    stage.create_pod("filler", app="filler", nodeName=stage.nodes[1])
    hungry = [f"hungry-{scheduler}-{number}" for scheduler in SCHEDULERS for number in range(3)]
    for name in hungry:
        stage.create_pod(name, app="hungry", schedulerName=name.removeprefix("hungry-")[:-2])
    deletion = HoldPlan(deletes_the_placeholder, FaultKind.HOLD_AFTER)
    proxy.plan = deletion
    stage.create_pod("owner")
    assert deletion.held.reached.wait(120)
    eventually("the placeholder is gone", lambda: not stage.placeholders(), seconds=60)
    assert is_gated(stage.pod("owner"))

    resume = stop(sandbox, brisk)
    try:
        proxy.plan = NoFaults()
        deletion.held.released.set()
        time.sleep(seconds)
    finally:
        resume()

    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert [slot.state for slot in stage.read().status.slots] == [SlotState.TAKEN]
    assert stage.pod("owner").spec.node_name == stage.nodes[0]
    assert [name for name in hungry if stage.pod(name).spec.node_name] == []
    assert overbooked_nodes(stage.client) == []
    stage.require_rest()
