"""Traces of plans: a span for each plan that is carried out, and one below it for each of its moves.

The trace is known by the plan's uid and a move by its position, so the operator's spans of hand-overs join them.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from berth_core import Clock, MoveState, MoveStatus, PlanPhase
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, PlanOutcome
from berth_service.traces import PLAN_SPAN, build_tracer, move_span

if TYPE_CHECKING:
    from berth_service.spans import OpenSpan, Tracer

_SERVICE: Final = "berth-descheduler"
_PLAN: Final = "berth.plan.name"
_REASON: Final = "berth.move.reason"
_UNDONE: Final = frozenset({PlanPhase.FAILED, PlanPhase.ABORTED})


@dataclass(slots=True)
class _OpenPlan:
    """A plan whose span has begun."""

    name: str
    uid: str
    span: "OpenSpan"
    states: dict[int, MoveState] = field(default_factory=dict)
    moves: "dict[int, OpenSpan]" = field(default_factory=dict)
    over_at: datetime | None = None
    """When the next plan of its cycle began."""


class PlanTraces(CycleObserver):
    """Makes spans of what cycles report.

    The span of a plan that another process continues is exported by that one, from its own beginning on.
    """

    def __init__(self, tracer: "Tracer", clock: Clock) -> None:
        self._tracer = tracer
        self._clock = clock
        self._plans: list[_OpenPlan] = []
        """The last is carried out."""

    def plan_begun(self, name: str, moves: int, uid: str) -> None:
        """Begin the span of a plan; one that was cut off goes on."""
        if any(plan.uid == uid for plan in self._plans):
            return
        now = self._clock.now()
        for earlier_plan in self._plans:
            earlier_plan.over_at = earlier_plan.over_at or now
        attributes: dict[str, str | int] = {_PLAN: name, "berth.plan.uid": uid, "berth.plan.moves": moves}
        span = self._tracer.begin("plan", trace=uid, span=PLAN_SPAN, parent=None, at=now, attributes=attributes)
        self._plans.append(_OpenPlan(name, uid, span))

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:  # noqa: ARG002 - overridden where it matters
        """Begin, note and end the spans of moves."""
        if self._plans:
            self._follow(self._plans[-1], statuses)

    def _follow(self, plan: _OpenPlan, statuses: Sequence[MoveStatus]) -> None:
        for index, status in enumerate(statuses):
            if status.state is not plan.states.get(index, MoveState.PENDING):
                plan.states[index] = status.state
                self._note(plan, index, status)

    def _note(self, plan: _OpenPlan, index: int, status: MoveStatus) -> None:
        now = self._clock.now()
        if index not in plan.moves:
            plan.moves[index] = self._begin_move(plan, index, status, now)
        span = plan.moves[index]
        reason = {_REASON: status.reason} if status.reason else {}
        span.note(status.state.value, at=now, attributes=reason)
        if status.state.terminal:
            result = {"berth.move.state": status.state.value, "berth.move.replacement": status.replacement}
            failure = status.message if status.state is MoveState.FAILED else None
            span.end(at=now, attributes={**result, **reason, "k8s.node.name": status.node}, failure=failure)

    def _begin_move(self, plan: _OpenPlan, index: int, status: MoveStatus, now: datetime) -> "OpenSpan":
        attributes: dict[str, str | int] = {
            _PLAN: plan.name,
            "berth.move.index": index,
            "k8s.namespace.name": status.namespace,
            "k8s.pod.name": status.pod,
        }
        span = move_span(index)
        return self._tracer.begin("move", trace=plan.uid, span=span, parent=PLAN_SPAN, at=now, attributes=attributes)

    def cycle_ended(self, outcome: Outcome) -> None:
        """End the spans of the plans that the cycle has carried out, or that ended without an outcome."""
        ended_plans = {ended.plan: ended for ended in outcome.plans}
        for plan in self._plans:
            self._end(plan, ended_plans.get(plan.name), outcome)
        self._plans = []

    def _end(self, plan: _OpenPlan, ended: PlanOutcome | None, outcome: Outcome) -> None:
        at = plan.over_at or self._clock.now()
        if ended is None:
            plan.span.end(at=at, attributes={}, failure=outcome.verdict.value)
            return
        self._follow(plan, ended.statuses)
        attributes = {
            "berth.plan.phase": ended.phase.value,
            "berth.plan.landed": ended.landed_on_target,
            "berth.plan.freed_nodes": len(ended.freed_nodes),
        }
        failure = (ended.note or ended.phase.value) if ended.phase in _UNDONE else None
        plan.span.end(at=at, attributes=attributes, failure=failure)


@contextmanager
def plan_traces(clock: Clock) -> Iterator[tuple[CycleObserver, ...]]:
    """Yield the observers that make spans of cycles; none where traces are off.

    Raises `InputError` or `MissingPackagesError` where they are on and cannot be exported.
    """
    tracer = build_tracer(_SERVICE, os.environ)
    if tracer is None:
        yield ()
        return
    try:
        yield (PlanTraces(tracer, clock),)
    finally:
        tracer.stop()
