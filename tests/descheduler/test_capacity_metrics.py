"""What the metrics say of fragmentation and of plans, and how often the cluster is read for them."""

import math
import threading
from dataclasses import dataclass
from datetime import datetime

import pytest
from prometheus_client import CollectorRegistry

from berth_core.errors import InputError
from berth_core.migration_plans import MoveMethod, MoveReason, MoveState, MoveStatus, PlanPhase
from berth_core.quantities import parse_quantity
from berth_core.snapshot import Snapshot
from berth_descheduler.capacity_meter import CapacityMeter, CapacitySettings
from berth_descheduler.metrics import (
    CAPACITY_SECONDS,
    EMPTY_NODES,
    FRAGMENTED,
    LANDED_RATIO,
    LARGEST_FREE,
    MOVES,
    NODES,
    PLAN_SECONDS,
    SHAPE_ROOM,
    STRANDED,
    UTILISATION,
    CapacityMetrics,
    CycleMetrics,
)
from berth_descheduler.options.capacity import capacity_settings
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.picture import Picture
from berth_descheduler.planner.capacity_shapes import CapacityShape, read_shape
from berth_descheduler.planner.stranded_capacity import report_capacity
from berth_kube.errors import ServerError
from berth_kube.resources import PODS
from builders import FakeClock, node, pod
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from waiting import eventually

SNAPSHOT = Snapshot(nodes=(node("a"), node("b")), pods=(pod("web-0", node="a", cpu="10", memory="8Gi"),))
OWN_SHAPE = "cpu=4,memory=8Gi"


def measured(registry: CollectorRegistry, *shapes: CapacityShape, snapshot: Snapshot = SNAPSHOT) -> CapacityMetrics:
    made = CapacityMetrics(registry)
    made.show(report_capacity(snapshot, shapes, sizes_of_nodes=True), 0.2)
    return made


def shapes_of(registry: CollectorRegistry, name: str) -> set[str]:
    (family,) = [one for one in registry.collect() if one.name == name]
    return {sample.labels["shape"] for sample in family.samples}


def test_fragmentation_is_shown_per_resource_and_shape() -> None:
    registry = CollectorRegistry()

    measured(registry, read_shape(OWN_SHAPE))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    assert (value(NODES), value(EMPTY_NODES)) == (2, 1)
    assert value(UTILISATION, resource="cpu") == pytest.approx(10 / 32)
    assert value(LARGEST_FREE, resource="cpu") == 16_000
    assert value(SHAPE_ROOM, shape=OWN_SHAPE) == 5
    assert value(STRANDED, shape=OWN_SHAPE, resource="cpu") == pytest.approx(2 / 22)
    assert value(STRANDED, shape=OWN_SHAPE, resource="memory") == pytest.approx(80 / 120)
    assert value(FRAGMENTED, resource="cpu") == pytest.approx(6 / 22)
    assert value(FRAGMENTED, resource="pods") is None
    assert value(CAPACITY_SECONDS) == 0.2


def test_without_shapes_parts_of_a_node_are_shown_that_stay_the_same() -> None:
    registry = CollectorRegistry()
    busy = Snapshot(nodes=SNAPSHOT.nodes, pods=(*SNAPSHOT.pods, pod("waits", cpu="12")))

    measured(registry, snapshot=busy)

    assert shapes_of(registry, SHAPE_ROOM) == {"cpu=8,memory=32Gi", "cpu=4,memory=16Gi", "cpu=2,memory=8Gi"}


def test_a_shape_that_is_not_looked_at_any_more_is_shown_no_more() -> None:
    registry = CollectorRegistry()
    made = measured(registry, read_shape("cpu=1"), read_shape("cpu=2,memory=1Gi"))

    made.show(report_capacity(SNAPSHOT, (read_shape("cpu=2,memory=1Gi"), read_shape("memory=1Gi"))), 0.1)

    assert shapes_of(registry, SHAPE_ROOM) == {"cpu=2,memory=1Gi", "memory=1Gi"}
    assert shapes_of(registry, STRANDED) == {"cpu=2,memory=1Gi", "memory=1Gi"}


# --- the meter --------------------------------------------------------------------------------------------------------


def lists(cluster: FakeCluster) -> list[str]:
    return [call.plural for call in cluster.calls if call.verb == "list"]


def test_the_meter_measures_at_once_and_reads_five_lists() -> None:
    cluster, registry = fragmented_cluster(), CollectorRegistry()
    settings = CapacitySettings(every_seconds=3600.0)

    with CapacityMeter(Picture(cluster, "berth-system"), FakeClock(), CapacityMetrics(registry), settings):  # type: ignore[arg-type]
        eventually("the nodes are counted", lambda: registry.get_sample_value(NODES) == 4, seconds=60)

    assert lists(cluster) == ["nodes", "pods", "reservations", "volcanoqueues", "queues"]


def test_the_meter_gives_back_the_memory_of_what_it_has_read() -> None:
    cluster, registry = fragmented_cluster(), CollectorRegistry()
    settings = CapacitySettings(every_seconds=3600.0)

    with CapacityMeter(Picture(cluster, "berth-system"), FakeClock(), CapacityMetrics(registry), settings):  # type: ignore[arg-type]
        eventually("the nodes are counted", lambda: registry.get_sample_value(NODES) == 4, seconds=60)
        eventually("it is forgotten", lambda: parse_quantity.cache_info().currsize == 0, seconds=60)


def test_the_meter_hands_over_what_it_measured() -> None:
    cluster, clock, kept = fragmented_cluster(), FakeClock(), list[tuple[int, datetime]]()
    meter = CapacityMeter(
        Picture(cluster, "berth-system"),  # type: ignore[arg-type]
        clock,
        CapacityMetrics(CollectorRegistry()),
        CapacitySettings(every_seconds=3600.0),
        lambda report, measured_at: kept.append((report.nodes, measured_at)),
    )
    meter.measure()
    assert kept == [(4, clock.now())]


def test_the_meter_goes_on_after_an_error() -> None:
    cluster, registry = fragmented_cluster(), CollectorRegistry()
    cluster.faults["list pods"] = [ServerError(call("list", PODS, ""), failure(500, "down"))]
    settings = CapacitySettings(every_seconds=0.02)

    with CapacityMeter(Picture(cluster, "berth-system"), FakeClock(), CapacityMetrics(registry), settings):  # type: ignore[arg-type]
        eventually("the nodes are counted", lambda: registry.get_sample_value(NODES) == 4, seconds=60)

    assert lists(cluster)[:2] == ["nodes", "pods"]


def test_a_meter_that_is_to_measure_never_reads_nothing() -> None:
    cluster, before = fragmented_cluster(), set(threading.enumerate())

    with CapacityMeter(
        Picture(cluster, "berth-system"),  # type: ignore[arg-type]
        FakeClock(),
        CapacityMetrics(CollectorRegistry()),
        CapacitySettings(every_seconds=None),
    ):
        assert set(threading.enumerate()) <= before

    assert cluster.calls == []


def options(interval: str = "5m", *shapes: str) -> dict[str, object]:
    return {"fragmentation_interval": interval, "fragmentation_shape": shapes, "namespace": "berth-system"}


def test_the_options_say_how_often_and_for_which_shapes() -> None:
    assert capacity_settings(options("90s", OWN_SHAPE)) == CapacitySettings(90.0, (read_shape(OWN_SHAPE),))
    assert capacity_settings(options("none")) == CapacitySettings(None)


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (options("soon"), "--fragmentation-interval is 'soon'"),
        (options("0s"), "--fragmentation-interval is '0s'"),
        (options("5m", "large"), "--fragmentation-shape is 'large'; expected amounts such as cpu=4,memory=8Gi"),
    ],
)
def test_a_wrong_option_is_named(given: dict[str, object], want: str) -> None:
    with pytest.raises(InputError, match="--fragmentation") as caught:
        capacity_settings(given)
    assert want in str(caught.value)


# --- plans ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Landing:
    """How the moves of one plan ended."""

    moves: list[tuple[MoveState, str]]
    want: float


LANDINGS = {
    "all landed": Landing([(MoveState.LANDED, "")] * 3, 1.0),
    "one ran elsewhere": Landing([(MoveState.LANDED, ""), (MoveState.ELSEWHERE, "")], 0.5),
    "one was evicted and never came": Landing(
        [(MoveState.LANDED, ""), (MoveState.FAILED, MoveReason.REPLACEMENT_TIMEOUT)], 0.5
    ),
    "what was not evicted does not count": Landing(
        [(MoveState.LANDED, ""), (MoveState.SKIPPED, "PodGone"), (MoveState.FAILED, "ReservationTimeout")], 1.0
    ),
    "where nothing was evicted nothing is said": Landing([(MoveState.SKIPPED, "PodGone")], math.nan),
}


@pytest.mark.parametrize("case", LANDINGS.values(), ids=LANDINGS.keys())
def test_the_share_that_landed_is_of_what_was_evicted(case: Landing) -> None:
    registry = CollectorRegistry()
    statuses = tuple(
        MoveStatus(namespace="shop", pod=f"web-{number}", state=state, reason=reason)
        for number, (state, reason) in enumerate(case.moves)
    )
    done = PlanOutcome("plan-1", PlanPhase.PARTIAL, statuses, seconds=12.0)

    CycleMetrics(registry, FakeClock()).cycle_ended(Outcome(Verdict.CARRIED_OUT, done))

    assert registry.get_sample_value(LANDED_RATIO) == pytest.approx(case.want, nan_ok=True)
    assert registry.get_sample_value(f"{PLAN_SECONDS}_sum", {"phase": "Partial"}) == 12.0


def test_moves_that_are_over_count_by_how_they_were_made() -> None:
    registry = CollectorRegistry()
    taken_back = {"state": MoveState.FAILED, "reason": MoveReason.TAKEN_BACK.value, "method": MoveMethod.SURGE}
    landed = {"state": MoveState.LANDED}
    ends = (landed | {"method": MoveMethod.SURGE}, taken_back, landed | {"method": MoveMethod.EVICT}, landed)
    moves = tuple(MoveStatus(namespace="shop", pod=f"web-{number}", **one) for number, one in enumerate(ends))

    CycleMetrics(registry, FakeClock()).cycle_ended(
        Outcome(Verdict.CARRIED_OUT, PlanOutcome("plan-1", PlanPhase.PARTIAL, moves, seconds=12.0))
    )

    def count(method: str, state: str, reason: str) -> float | None:
        return registry.get_sample_value(MOVES, {"method": method, "state": state, "reason": reason})

    assert count("Surge", "Landed", "") == 1
    assert count("Surge", "Failed", "TakenBack") == 1
    assert count("Evict", "Landed", "") == 2
