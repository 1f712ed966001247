"""The claims about the Leases that the descheduler takes: their names, and by whom and for how long."""

from collections.abc import Callable

import pytest

from berth_core.clock import Clock
from berth_descheduler.migration.plans.leases import leader_lease, run_lease
from berth_descheduler.settings import CycleSettings
from berth_kube.client import KubeClient
from berth_kube.leases import LeaseHolder
from berth_kube.resources import LEASES
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster

CASES: dict[str, Callable[[KubeClient, Clock, CycleSettings], LeaseHolder]] = {
    "berth-descheduler": run_lease,
    "berth-descheduler-leader": leader_lease,
}


@pytest.mark.parametrize("name", CASES)
def test_a_lease_is_taken_as_the_settings_say(name: str) -> None:
    cluster = FakeCluster()
    settings = CycleSettings(namespace="own", lease_seconds=30, identity="me")

    holder = CASES[name](cluster, FakeClock(), settings)  # type: ignore[arg-type]

    assert holder.acquire(0)
    (lease,) = cluster.raw(LEASES)
    holder.release()
    assert (lease["metadata"]["namespace"], lease["metadata"]["name"]) == ("own", name)
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseDurationSeconds"]) == ("me", 30)
