"""The operator is killed among its admissions: started again, it admits the rest and no more, and leaves no pod gated.

A proxy holds the call at which it is killed.
"""

from itertools import pairwise

import pytest

from fault_proxy import FaultProxy
from faults import BalancerFaultAt, Call, FaultKind, HoldPlan, NoFaults
from proxied_operator import operator, proxy, undisturbed
from queue_users import QUEUE_1, Users, begin, lets_go, require_admitted, users
from service_processes import OperatorProcess

__all__ = ["operator", "proxy", "undisturbed", "users"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


def says_who_was_admitted(call: Call) -> bool:
    return call.method == "PATCH" and call.path.endswith(f"/queues/{QUEUE_1}/status") and b'"admitted"' in call.body


def test_killed_before_and_after_a_gate_is_off_and_before_the_status_it_admits_the_rest_and_no_more(
    operator: OperatorProcess, proxy: FaultProxy, users: Users
) -> None:
    begin(users)
    before = HoldPlan(lets_go(3), FaultKind.HOLD_BEFORE)
    after = HoldPlan(lets_go(2), FaultKind.HOLD_AFTER)
    unsaid = HoldPlan(says_who_was_admitted, FaultKind.HOLD_BEFORE)
    proxy.plan = before
    users.submit(QUEUE_1, 12)
    for plan, following in pairwise((before, after, unsaid, None)):
        assert plan is not None
        assert plan.held.reached.wait(120), "the call is made"
        operator.kill()
        proxy.plan = following or NoFaults()
        plan.held.released.set()
        operator.start()

    require_admitted(users)


@pytest.mark.usefixtures("operator")
def test_it_admits_the_rest_and_no_more_although_the_balancer_accepts_and_closes(
    proxy: FaultProxy, users: Users
) -> None:
    begin(users)
    proxy.plan = plan = BalancerFaultAt(lets_go(3), seconds=1.5)
    users.submit(QUEUE_1, 12)
    require_admitted(users)
    assert plan.has_happened
