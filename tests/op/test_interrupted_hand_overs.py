"""Whoever is away, at whichever call of a hand-over and for however long: the owner gets its place, and nobody else.

`BERTH_LONGER_OUTAGES` has more lengths tried, as seconds with commas.
"""

import os
import re
from collections.abc import Callable
from typing import Final
from unittest.mock import patch

import pytest

from api_server_in_memory import error
from berth_core.names import fence_name
from berth_core.reservations import ReservationPhase, SlotState
from berth_kube import Listed
from berth_kube.errors import AlreadyExistsError
from berth_kube.resources import NODES, PODS
from berth_operator.reservation.act.fences import FenceManager
from handover_builders import DEADLINE
from handover_simulation import NODE, Actor, HandoverSimulation, KilledError, play_interrupted

LENGTHS: Final = (pytest.param(5.0, marks=pytest.mark.deep), 70.0, 300.0)
MORE_LENGTHS: Final = tuple(float(text) for text in os.environ.get("BERTH_LONGER_OUTAGES", "").split(",") if text)

OUTAGES: Final[dict[str, frozenset[Actor]]] = {
    "the operator is stopped": frozenset({Actor.OPERATOR}),
    "the API server is away": frozenset({Actor.API_SERVER}),
    "the schedulers are stopped": frozenset({Actor.SCHEDULERS}),
    "the kubelet is stopped": frozenset({Actor.KUBELET}),
    "operator and schedulers are stopped": frozenset({Actor.OPERATOR, Actor.SCHEDULERS}),
    "operator and descheduler are stopped": frozenset({Actor.OPERATOR, Actor.DESCHEDULER}),
    "all are stopped": frozenset(Actor),
}


def count_writes() -> int:
    """Return how many writes the operator makes in a hand-over that nothing disturbs."""
    simulation = HandoverSimulation()
    writes: list[str] = []
    simulation.on_write = writes.append
    simulation.play()
    assert simulation.faults == []
    return len(writes)


WRITES: Final = count_writes()


def calls_of_a_hand_over(*, pod_slots: str, counted: bool) -> list[str]:
    """Return the operator's calls in a hand-over that nothing disturbs, on a node that is fenced off already."""
    simulation = HandoverSimulation()
    simulation.api.objects["nodes"]["", NODE]["status"] = {"allocatable": {"cpu": "4", "pods": pod_slots}}
    simulation.start_operator()
    if counted:
        simulation.cache.pod_counts.replace(Listed((), "1"))
    period = DEADLINE // 120
    for one in range(period - 1, period + 3):
        simulation.api.faults[f"create pods {fence_name(NODE, one)}"] = error(AlreadyExistsError)
    with patch.object(FenceManager, "_is_standing", return_value=True):  # its own, which it knows
        simulation.play()
    assert simulation.faults == []
    left_out = ("priorityclasses", "events", "leases")
    calls = [re.sub("fence-.*", "fence", call) for call in simulation.api.calls if call.split()[1] not in left_out]
    return calls[calls.index("patch pods web-0") :]  # before that the status says that the slot is proven


UNTIL_IT_IS_BOUND: Final = [
    "patch pods web-0",
    "patch reservations place/status",
    "create pods fence",
    "patch nodes node-a",
    "delete pods place-web-0",
    "merge pods web-0/status",
    "patch pods web-0",
]
ONCE_IT_IS_BOUND: Final = ["patch nodes node-a", "delete pods fence"]
ONCE_IT_RUNS: Final = ["patch reservations place/status", "patch pods web-0"]
CALLS: Final = [*UNTIL_IT_IS_BOUND, *ONCE_IT_IS_BOUND, *ONCE_IT_RUNS]


def test_a_hand_over_takes_seven_calls_until_the_pod_is_bound_and_four_more_and_reads_nothing() -> None:
    assert calls_of_a_hand_over(pod_slots="110", counted=True) == CALLS


def test_an_owner_is_bound_while_no_kubelet_ends_the_placeholder() -> None:
    simulation = HandoverSimulation()
    simulation.interrupt(frozenset({Actor.KUBELET}), 60)
    while Actor.KUBELET in simulation.away and not simulation.pod("web-0").spec.node_name:
        simulation.step()
    assert Actor.KUBELET in simulation.away
    simulation.play()
    require_kept(simulation, "the kubelet was away")


@pytest.mark.parametrize(("pod_slots", "counted"), [("3", True), ("110", False)])
def test_only_the_pods_of_a_nearly_full_or_uncounted_node_are_listed(pod_slots: str, *, counted: bool) -> None:
    calls = calls_of_a_hand_over(pod_slots=pod_slots, counted=counted)
    assert calls.pop(2) == f"list pods spec.nodeName={NODE}"
    assert calls == CALLS


def require_kept(simulation: HandoverSimulation, case: str) -> None:
    assert simulation.faults == [], case
    assert simulation.reservation().phase is ReservationPhase.SUCCEEDED, case
    assert simulation.slot().state is SlotState.TAKEN, case
    assert simulation.pod("web-0").spec.node_name == "node-a", case
    assert simulation.pod("hungry").spec.node_name == "", case


def require_kept_after_each_write(interrupt: Callable[[HandoverSimulation], None], *, late: str) -> None:
    """Interrupt after each write, with Nodes or Pods seen late: in turns, or each after every write."""
    for at in range(1, WRITES + 1):
        for view in (NODES, PODS) if late == "each" else ((NODES, PODS)[at % 2],):
            simulation = HandoverSimulation(late_view=view)
            play_interrupted(simulation, at, interrupt)
            require_kept(simulation, f"after write {at}, {view.plural} seen late")


LATE: Final = pytest.mark.parametrize("late", ["in turns", pytest.param("each", marks=pytest.mark.deep)])


@LATE
@pytest.mark.parametrize("seconds", LENGTHS + MORE_LENGTHS)
@pytest.mark.parametrize("away", OUTAGES.values(), ids=OUTAGES.keys())
def test_the_place_goes_to_its_owner_though_after_any_write_of_the_operator(
    away: frozenset[Actor], seconds: float, late: str
) -> None:
    require_kept_after_each_write(lambda simulation: simulation.interrupt(away, seconds), late=late)


@LATE
@pytest.mark.parametrize("seconds", LENGTHS + MORE_LENGTHS)
def test_the_place_goes_to_its_owner_though_the_operator_is_killed_after_any_of_its_writes(
    seconds: float, late: str
) -> None:
    def kill(simulation: HandoverSimulation) -> None:
        simulation.interrupt(frozenset({Actor.OPERATOR}), seconds)
        raise KilledError

    require_kept_after_each_write(kill, late=late)
