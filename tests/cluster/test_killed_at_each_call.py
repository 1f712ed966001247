"""The operator is killed before and after each call of a hand-over: started again, it ends what it began.

A proxy holds the call, so that the kill comes exactly there: before it was carried out, or after it and before the
operator hears of it.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest

from berth_core.reservations import ReservationPhase
from cluster_objects import overbooked_nodes
from fault_proxy import FaultProxy
from faults import Call, FaultKind, HoldPlan, NoFaults
from handover_calls import CALLS, records_the_event
from proxied_operator import calls, operator, proxy, undisturbed
from reservation_stage import Stage
from service_processes import OperatorProcess
from waiting import eventually

__all__ = ["operator", "proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NO_PART_OF_IT: Final = ("/apis/coordination.k8s.io/", "/apis/scheduling.k8s.io/")
"""Renewing the Lease, and clearing priority classes away in a sweep."""
AT_ANY_TIME: Final = "/mutatingwebhookconfigurations/"
"""Part of the path of what a sweep puts right, beside dry runs, by which the hand-over path is proven."""
NOT_REPEATED: Final = {records_the_event}
"""An event is told once or, after a kill, never: nothing follows from it."""


def begin(stage: Stage) -> None:
    """Hold a place, and have the owner's pod come for it."""
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()


def require_taken(stage: Stage) -> None:
    """Fail unless the owner gets its place and nothing is left."""
    taken = stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert taken.status.node == stage.nodes[0]
    assert stage.pod("owner").spec.node_name == stage.nodes[0]
    eventually("nothing is left", lambda: stage.leftovers() == [], seconds=60)
    assert overbooked_nodes(stage.client) == []


@pytest.mark.parametrize("wanted", CALLS.values(), ids=CALLS.keys())
def test_a_hand_over_is_ended_although_the_operator_is_killed_before_and_after(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage, wanted: Callable[[Call], bool]
) -> None:
    begin(stage)
    before, after = HoldPlan(wanted, FaultKind.HOLD_BEFORE), HoldPlan(wanted, FaultKind.HOLD_AFTER)
    proxy.plan = before
    stage.create_pod("owner")
    assert before.held.reached.wait(120), "the call is made"
    operator.kill()
    proxy.plan = after
    before.held.released.set()
    operator.start()

    if wanted not in NOT_REPEATED:
        assert after.held.reached.wait(120), "the call is made again"
        operator.kill()
        proxy.plan = NoFaults()
        after.held.released.set()
        operator.start()

    require_taken(stage)


@pytest.mark.usefixtures("operator")
def test_the_table_has_every_call_that_a_hand_over_makes(proxy: FaultProxy, stage: Stage) -> None:
    begin(stage)
    proxy.journal.clear()
    stage.create_pod("owner")
    require_taken(stage)

    def writes() -> list[Call]:
        made = [call for call in calls(proxy) if call.is_write and "dryRun" not in call.query]
        made = [call for call in made if not (call.method == "PATCH" and AT_ANY_TIME in call.path)]
        return [call for call in made if not call.path.startswith(NO_PART_OF_IT)]

    def missing() -> list[str]:
        made = writes()
        return [name for name, wanted in CALLS.items() if not any(map(wanted, made))]

    with suppress(AssertionError):  # which of them is missing says more
        eventually("every call is made", lambda: not missing(), seconds=60)
    assert missing() == []
    assert [str(call) for call in writes() if not any(wanted(call) for wanted in CALLS.values())] == []
