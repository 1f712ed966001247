"""The claim that a run looks after the operator as its settings say."""

from berth_core.clock import format_precise_timestamp
from berth_core.labels import HANDOVER_TAINT
from berth_descheduler.migration.operator.cleanup import clean_up_after_operator
from berth_descheduler.settings import CycleSettings, ExecutionSettings
from berth_kube.resources import LEASES, NODES
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, node
from waiting import soon

EVERY_SECONDS = 10


def test_the_settings_say_whose_operator_it_is_how_often_it_looks_and_when_that_is_silent() -> None:
    cluster, clock = FakeCluster(), FakeClock()
    for name, seconds in {"past": 31, "just now": 29}.items():
        value = str(int(clock.now().timestamp()) + 4 * EVERY_SECONDS - seconds)
        taint = {"key": HANDOVER_TAINT, "value": value, "effect": "NoSchedule"}
        cluster.add(NODES, {**node(name), "spec": {"taints": [taint]}})
    renewed = {"holderIdentity": "op", "leaseDurationSeconds": 8, "renewTime": format_precise_timestamp(clock.now())}
    cluster.add(LEASES, {"metadata": {"name": "berth-operator", "namespace": "berth-system"}, "spec": renewed})
    execution = ExecutionSettings(watchdog_seconds=EVERY_SECONDS, stale_operator_seconds=30)
    watch = clean_up_after_operator(cluster, clock, CycleSettings(namespace="own", execution=execution))  # type: ignore[arg-type]

    def look() -> list[str]:
        clock.advance(EVERY_SECONDS)
        watch.look()
        return sorted(cluster.taints())

    assert [look() for _ in range(4)] == [*[["just now", "past"]] * 3, ["just now"]]


def test_it_looks_again_and_again_by_itself() -> None:
    cluster = FakeCluster()
    settings = CycleSettings(execution=ExecutionSettings(watchdog_seconds=0.01))
    with clean_up_after_operator(cluster, FakeClock(), settings):  # type: ignore[arg-type]
        soon("it has looked twice", lambda: cluster.calls.count("get leases berth-operator") > 1)
