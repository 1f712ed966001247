"""Owns the claim that a run looks after the operator as its settings say."""

from berth_core.clock import format_precise_timestamp
from berth_core.labels import HANDOVER_TAINT
from berth_descheduler.execution.operator_watch import watch_operator
from berth_descheduler.settings import CycleSettings, ExecutionSettings
from berth_kube.resources import LEASES, NODES
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, node
from waiting import eventually


def test_the_settings_say_whose_operator_it_is_how_often_it_looks_and_when_that_is_silent() -> None:
    cluster, clock = FakeCluster(), FakeClock()
    for name, seconds in {"past": 31, "just now": 29}.items():
        value = str(int(clock.now().timestamp()) - seconds)
        taint = {"key": HANDOVER_TAINT, "value": value, "effect": "NoSchedule"}
        cluster.add(NODES, {**node(name), "spec": {"taints": [taint]}})
    renewed = {"holderIdentity": "op", "leaseDurationSeconds": 8, "renewTime": format_precise_timestamp(clock.now())}
    cluster.add(LEASES, {"metadata": {"name": "berth-operator", "namespace": "berth-system"}, "spec": renewed})
    execution = ExecutionSettings(watchdog_seconds=0.01, stale_operator_seconds=30)
    settings = CycleSettings(namespace="own", execution=execution)

    def is_past_off() -> bool:
        clock.advance(0.01)
        return list(cluster.taints()) == ["just now"]

    clock.advance(-38)
    with watch_operator(cluster, clock, settings):  # type: ignore[arg-type]
        eventually("only the guard that is past is off", is_past_off, seconds=60, pause_seconds=0.005)
