"""The descheduler's metrics, and the meter that measures fragmentation for them."""

import math
from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from berth_core import Clock, MoveMethod, MoveReason, MoveState, MoveStatus, Snapshot
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Phase, PlanOutcome
from berth_descheduler.planner import CapacityReport, Fragmentation, Plan
from berth_descheduler.registry import EVERY_CAPABILITY

CYCLES: Final = "berth_cycles_total"
CYCLE_FAILURES: Final = "berth_cycle_failures_total"
PHASE_SECONDS: Final = "berth_cycle_phase_seconds"
MOVES: Final = "berth_moves_total"
ROOMS: Final = "berth_rooms_total"
OPEN_MOVES: Final = "berth_moves_open"
NODES: Final = "berth_nodes"
EMPTY_NODES: Final = "berth_nodes_empty"
UTILISATION: Final = "berth_requested_ratio"
LARGEST_FREE: Final = "berth_largest_free_amount"
STRANDED: Final = "berth_stranded_ratio"
SHAPE_ROOM: Final = "berth_shape_room"
FRAGMENTED: Final = "berth_fragmented_ratio"
CAPACITY_SECONDS: Final = "berth_capacity_seconds"
PLAN_SECONDS: Final = "berth_plan_seconds"
LANDED_RATIO: Final = "berth_landed_on_target_ratio"
PING_PONG: Final = "berth_ping_pong_moves_total"
FREED: Final = "berth_freed_nodes_total"
REPLANNED: Final = "berth_replanned_plans_total"
KEPT_NODES: Final = "berth_kept_nodes"
LAST_CYCLE: Final = "berth_last_cycle_timestamp_seconds"
LEADER: Final = "berth_leader"
POLICIES: Final = "berth_policies"
POLICY_RUNS: Final = "berth_policy_runs_total"
POLICY_RUNNING: Final = "berth_policy_running"
POLICY_LAST_RUN: Final = "berth_policy_last_run_timestamp_seconds"
POLICY_NEXT_RUN: Final = "berth_policy_next_run_timestamp_seconds"
REST_REQUESTS: Final = "berth_rest_requests_total"
REST_SECONDS: Final = "berth_rest_request_seconds"
REST_OPEN: Final = "berth_rest_requests_open"
REST_STREAMS: Final = "berth_rest_streams_open"

_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class CapacityMetrics:
    """Shows how fragmented the cluster is, in all and for some shapes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._nodes = Gauge(NODES, "Nodes of the cluster.", registry=registry)
        self._empty = Gauge(EMPTY_NODES, "Nodes without pods but daemons.", registry=registry)
        self._ratio = Gauge(UTILISATION, "Share that is requested.", ["resource"], registry=registry)
        self._largest = Gauge(LARGEST_FREE, "Largest free piece on one node.", ["resource"], registry=registry)
        self._room = Gauge(SHAPE_ROOM, "How many pods of a shape still fit.", ["shape"], registry=registry)
        self._stranded = Gauge(
            STRANDED, "Share of what is free that a shape cannot use.", ["shape", "resource"], registry=registry
        )
        self._fragmented = Gauge(
            FRAGMENTED,
            "Share of what is free that lies where a pod of the cluster does not fit, on average over pods.",
            ["resource"],
            registry=registry,
        )
        of_capabilities = (capability.capacity_gauges(registry) for capability in EVERY_CAPABILITY)
        self._show_snapshots = tuple(show for show in of_capabilities if show is not None)
        self._seconds = Gauge(CAPACITY_SECONDS, "How long it took to measure all this.", registry=registry)
        self._shapes: set[tuple[str, str]] = set()

    def show(self, report: CapacityReport, seconds: float) -> None:
        """Show a measurement and its duration, and drop shapes that are no longer measured."""
        self._nodes.set(report.nodes)
        self._empty.set(report.empty_nodes)
        for resource in report.resources:
            self._ratio.labels(resource=resource.name).set(float(resource.utilisation))
            self._largest.labels(resource=resource.name).set(resource.largest_free)
        self._fragmented.clear()
        for name in report.workload.fragmented:
            self._fragmented.labels(resource=name).set(float(report.workload.share(name) or 0))
        shown_series = {
            (room.shape.name, resource_name) for room in report.shapes for resource_name in room.shape.amounts
        }
        for room in report.shapes:
            self._room.labels(shape=room.shape.name).set(room.fits)
            for name in room.shape.amounts:
                self._stranded.labels(shape=room.shape.name, resource=name).set(float(room.share(name)))
        # The client goes on exporting the last value of a series until it is removed.
        for shape, name in self._shapes - shown_series:
            self._stranded.remove(shape, name)
        for shape in {shape for shape, _ in self._shapes} - {shape for shape, _ in shown_series}:
            self._room.remove(shape)
        self._shapes = shown_series
        self._seconds.set(seconds)

    def show_snapshot(self, snapshot: Snapshot) -> None:
        """Show what capabilities measure of a snapshot."""
        for show in self._show_snapshots:
            show(snapshot)

    def show_nodes(self, fragmentation: Fragmentation) -> None:
        """Show how pods are spread over the nodes, without shapes."""
        self._nodes.set(len(fragmentation.nodes))
        self._empty.set(len(fragmentation.empty_nodes))
        for resource in fragmentation.resources:
            self._ratio.labels(resource=resource).set(float(fragmentation.utilisation(resource)))
            self._largest.labels(resource=resource).set(max(0, fragmentation.largest_free(resource)))


class CycleMetrics(CycleObserver):
    """Counts what cycles do; one registry for each."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._cycles = Counter(CYCLES, "Cycles by how far they came.", ["verdict"], registry=registry)
        self._failures = Counter(CYCLE_FAILURES, "Cycles that ended in an error.", registry=registry)
        self._phases = Histogram(PHASE_SECONDS, "Time by phase.", ["phase"], buckets=_BUCKETS, registry=registry)
        for phase in Phase:
            self._phases.labels(phase=phase.value)  # made here: in a run each would keep a page among its objects
        self._moves = Counter(MOVES, "Moves that are over.", ["method", "state", "reason"], registry=registry)
        self._rooms = Counter(ROOMS, "Rooms that are over.", ["state", "reason"], registry=registry)
        self._open = Gauge(OPEN_MOVES, "Moves of the running plan that are not over.", registry=registry)
        self.capacity = CapacityMetrics(registry)
        self._plans = Histogram(
            PLAN_SECONDS, "Time to carry a plan out, by how it ended.", ["phase"], buckets=_BUCKETS, registry=registry
        )
        self._landed = Gauge(
            LANDED_RATIO, "Share of the last plan's evicted pods that landed on their target.", registry=registry
        )
        self._landed.set(math.nan)  # nothing is known yet
        self._freed = Counter(FREED, "Nodes freed.", registry=registry)
        self._replanned = Counter(REPLANNED, "Plans of which the rest was planned again.", registry=registry)
        self._ping_pong = Counter(PING_PONG, "Moves that undid earlier ones.", registry=registry)
        of_capabilities = (capability.plan_metrics(registry) for capability in EVERY_CAPABILITY)
        self._of_capabilities = tuple(metrics for metrics in of_capabilities if metrics is not None)
        self._kept = Gauge(KEPT_NODES, "Nodes with a standing fence, while jobs starve.", registry=registry)
        self._last = Gauge(LAST_CYCLE, "When the last cycle ended, unix seconds.", registry=registry)

    def phase_ended(self, phase: Phase, seconds: float) -> None:
        """Count the time of a phase."""
        self._phases.labels(phase=phase.value).observe(seconds)

    def planned(self, plan: Plan) -> None:
        """Show how fragmented the cluster is, and what the plan is worth."""
        self.capacity.show_nodes(plan.before)
        for metrics in self._of_capabilities:
            metrics.planned(plan)

    def keep_nodes(self, number: int) -> None:
        """Show how many nodes are kept by standing fences."""
        self._kept.set(number)

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:  # noqa: ARG002 - the protocol's
        """Show how many moves are not over."""
        self._open.set(sum(not status.state.terminal for status in statuses))

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        """Count nodes that have become free."""
        self._freed.inc(len(nodes))
        for metrics in self._of_capabilities:
            metrics.nodes_freed(nodes)

    def cycle_ended(self, outcome: Outcome) -> None:
        """Count what the cycle did."""
        self._cycles.labels(verdict=outcome.verdict.value).inc()
        self._last.set(self._clock.now().timestamp())
        self._open.set(0)
        self._replanned.inc(len(outcome.replanned))
        for plan_outcome in outcome.plans:
            self._count_plan(plan_outcome)

    def cycle_failed(self) -> None:
        """Count a cycle that ended in an error."""
        self._failures.inc()
        self._open.set(0)

    def _count_plan(self, plan_outcome: PlanOutcome) -> None:
        self.nodes_freed(plan_outcome.freed_nodes)
        self._plans.labels(phase=plan_outcome.phase.value).observe(plan_outcome.seconds)
        landed_pods, strayed_pods = plan_outcome.landed_on_target, sum(map(_went_astray, plan_outcome.statuses))
        if landed_pods + strayed_pods:
            self._landed.set(landed_pods / (landed_pods + strayed_pods))
        self._ping_pong.inc(plan_outcome.ping_pong)
        for status in plan_outcome.statuses:
            method = status.method or MoveMethod.EVICT
            self._moves.labels(method=method.value, state=status.state.value, reason=status.reason).inc()
        for room in plan_outcome.rooms:
            self._rooms.labels(state=room.state.value, reason=room.reason).inc()


def _went_astray(status: MoveStatus) -> bool:
    """Return whether a pod was evicted and its replacement missed the target."""
    late = status.state is MoveState.FAILED and status.reason == MoveReason.REPLACEMENT_TIMEOUT
    return late or status.state is MoveState.ELSEWHERE
