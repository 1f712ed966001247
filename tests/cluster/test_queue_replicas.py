"""Two operators with queues: the leader is killed among its admissions, and the other goes on where it ended."""

from pathlib import Path

import pytest

from berth_sandbox.sandbox import Sandbox
from fault_proxy import FaultProxy
from faults import FaultKind, HoldPlan, NoFaults
from queue_users import QUEUE_1, Users, begin, lets_go, require_admitted, users
from replicas import running_replicas
from waiting import eventually

__all__ = ["users"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep]


def test_when_the_leader_is_killed_among_admissions_the_other_admits_the_rest_and_no_more(
    sandbox: Sandbox, users: Users, tmp_path: Path
) -> None:
    own = sandbox.service_account_kubeconfig("berth-operator")
    with FaultProxy(own) as proxy:
        through = proxy.write_kubeconfig(tmp_path / "proxied.yaml")
        with running_replicas(sandbox, tmp_path, 2, f"--kubeconfig={through}") as replicas:
            begin(users)
            plan = HoldPlan(lets_go(3), FaultKind.HOLD_AFTER)
            proxy.plan = plan
            users.submit(QUEUE_1, 12)
            assert plan.held.reached.wait(120), "the call is made"
            assert users.gated(QUEUE_1) > 4
            other = replicas.follower
            replicas.leader.kill()
            proxy.plan = NoFaults()
            plan.held.released.set()

            eventually("the other leads", other.is_leading, seconds=60)
            require_admitted(users)
