"""Owns the descheduler's metrics: their names, and what of a cycle they count.

It does not own how they are served: `health` does.
"""

from collections.abc import Sequence
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from berth_core.clock import Clock
from berth_core.migration_plans import MoveStatus
from berth_descheduler.observers import Unobserved
from berth_descheduler.outcome import Outcome, Phase, PlanOutcome
from berth_descheduler.planner import Plan

CYCLES: Final = "berth_cycles_total"
CYCLE_FAILURES: Final = "berth_cycle_failures_total"
PHASE_SECONDS: Final = "berth_cycle_phase_seconds"
MOVES: Final = "berth_moves_total"
OPEN_MOVES: Final = "berth_moves_open"
NODES: Final = "berth_nodes"
EMPTY_NODES: Final = "berth_nodes_empty"
UTILISATION: Final = "berth_requested_ratio"
LARGEST_FREE: Final = "berth_largest_free_amount"
FREED: Final = "berth_freed_nodes_total"
LAST_CYCLE: Final = "berth_last_cycle_timestamp_seconds"
REST_REQUESTS: Final = "berth_rest_requests_total"
REST_SECONDS: Final = "berth_rest_request_seconds"
REST_OPEN: Final = "berth_rest_requests_open"
REST_STREAMS: Final = "berth_rest_streams_open"

_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)


class CycleMetrics(Unobserved):
    """Counts what cycles do; one registry for each."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._cycles = Counter(CYCLES, "Cycles by how far they came.", ["verdict"], registry=registry)
        self._failures = Counter(CYCLE_FAILURES, "Cycles that ended in an error.", registry=registry)
        self._phases = Histogram(PHASE_SECONDS, "Time by phase.", ["phase"], buckets=_BUCKETS, registry=registry)
        self._moves = Counter(MOVES, "Moves that are over.", ["state", "reason"], registry=registry)
        self._open = Gauge(OPEN_MOVES, "Moves of the running plan that are not over.", registry=registry)
        self._nodes = Gauge(NODES, "Nodes that the last plan looked at.", registry=registry)
        self._empty = Gauge(EMPTY_NODES, "Nodes that were empty before the last plan.", registry=registry)
        self._ratio = Gauge(UTILISATION, "Share requested before the last plan.", ["resource"], registry=registry)
        self._largest = Gauge(LARGEST_FREE, "Largest free piece on one node.", ["resource"], registry=registry)
        self._freed = Counter(FREED, "Nodes freed.", registry=registry)
        self._last = Gauge(LAST_CYCLE, "When the last cycle ended, unix seconds.", registry=registry)

    def phase_ended(self, phase: Phase, seconds: float) -> None:
        """Count the time of a phase."""
        self._phases.labels(phase=phase.value).observe(seconds)

    def planned(self, plan: Plan) -> None:
        """Show how fragmented the cluster is."""
        before = plan.before
        self._nodes.set(len(before.nodes))
        self._empty.set(len(before.empty_nodes))
        for resource in before.resources:
            self._ratio.labels(resource=resource).set(float(before.utilisation(resource)))
            self._largest.labels(resource=resource).set(before.largest_free(resource))

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:  # noqa: ARG002 - the protocol's
        """Show how many moves are to be done yet."""
        self._open.set(sum(not status.state.terminal for status in statuses))

    def cycle_ended(self, outcome: Outcome) -> None:
        """Count what the cycle did."""
        self._cycles.labels(verdict=outcome.verdict.value).inc()
        self._last.set(self._clock.now().timestamp())
        self._open.set(0)
        for one in (*outcome.adopted, *([outcome.plan] if outcome.plan else [])):
            self._count_plan(one)

    def cycle_failed(self) -> None:
        """Count a cycle that ended in an error."""
        self._failures.inc()
        self._open.set(0)

    def _count_plan(self, one: PlanOutcome) -> None:
        self._freed.inc(len(one.freed_nodes))
        for status in one.statuses:
            self._moves.labels(state=status.state.value, reason=status.reason).inc()
