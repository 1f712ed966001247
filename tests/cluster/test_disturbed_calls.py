"""Calls are refused, lost, held up and delayed, and watches cut, on a schedule drawn from a seed: all ends well.

Places are held and handed over while that goes on; soon after it is over everything is where it has to be.
"""

import time
from collections.abc import Iterator
from typing import Final

import pytest

from berth_core.reservations import ReservationPhase
from berth_kube.resources import RESERVATIONS
from cluster_objects import overbooked_nodes
from fault_proxy import FaultProxy
from faults import BalancerFaults, FaultKind, FaultPlan, NoFaults, SeededFaults
from proxied_operator import operator, proxy, undisturbed
from reservation_stage import Stage
from service_processes import OperatorProcess
from waiting import eventually

__all__ = ["operator", "proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

ROUNDS: Final = 4
DISTURBED_SECONDS: Final = 12.0

CPU: Final = "1"
"""An eighth of what there is: a pod that comes before it can be gated takes nothing from the four places."""

WATCHES: Final = 3
"""As many as an operator has at least."""

SCHEDULES: Final = {
    "calls are disturbed, seed 1": SeededFaults(1, rate=0.25),
    "calls are disturbed and watches cut, seed 4": SeededFaults(4, rate=0.15, watch_rate=0.5),
    "the balancer accepts and closes": BalancerFaults(calls=25, seconds=1.0),
}


@pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())
def test_every_slot_goes_to_its_owner_although(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage, schedule: FaultPlan
) -> None:
    proxy.journal.clear()
    proxy.plan = schedule
    proxy.cut_watches()
    ends = time.monotonic() + DISTURBED_SECONDS
    for number in range(ROUNDS):
        stage.reserve(f"place-{number}", app=f"owner-{number}", template=stage.template(cpu=CPU))
    for number in waves(ends):
        stage.create_pod(f"owner-{number}", app=f"owner-{number}", cpu=CPU)
    time.sleep(max(0.0, ends - time.monotonic()))
    proxy.plan = NoFaults()

    assert operator.exit_code is None
    assert {fault.kind for _, fault in proxy.journal} - {FaultKind.NONE}, "something was disturbed"
    deadline = time.monotonic() + 120
    while (found := unsettled(stage)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert found == []
    assert overbooked_nodes(stage.client) == []
    # What could not be gated in time was scheduled as ever; its place is still held, and can be given back.
    for number in range(ROUNDS):
        stage.client.delete(RESERVATIONS, f"place-{number}", namespace=stage.namespace)


def waves(ends: float) -> Iterator[int]:
    """Yield the numbers of the rounds, spread over the time that is left."""
    for number in range(ROUNDS):
        time.sleep(max(0.0, (ends - time.monotonic()) / (ROUNDS - number + 1)))
        yield number


def unsettled(stage: Stage) -> list[str]:
    """Return which owners do not run, which Reservations are neither over nor hold their place, and what is left."""
    found = []
    for number in range(ROUNDS):
        pod, place = stage.pod(f"owner-{number}"), stage.read(f"place-{number}")
        if pod.status.phase != "Running":
            found.append(f"{pod.metadata.name} is {pod.status.phase}, gates {pod.spec.scheduling_gates}")
        if place.phase not in {ReservationPhase.AVAILABLE, ReservationPhase.SUCCEEDED}:
            found.append(f"{place.metadata.name}: {place.status.state}")
    return [*found, *stage.leftovers()]


def test_cut_watches_are_taken_up_again_at_once(operator: OperatorProcess, proxy: FaultProxy, stage: Stage) -> None:
    assert operator.exit_code is None
    for number in range(3):
        eventually("it watches again", lambda: proxy.open_watches >= WATCHES, seconds=30)
        assert proxy.cut_watches() > 0
        stage.reserve(f"place-{number}", app=f"owner-{number}", template=stage.template(cpu="1"))
        proxy.cut_watches()
        stage.wait_until_proven(f"place-{number}", seconds=10)
        stage.create_pod(f"owner-{number}", app=f"owner-{number}", cpu="1")
        proxy.cut_watches()
        stage.wait_for(ReservationPhase.SUCCEEDED, f"place-{number}", seconds=10)
