"""Each plan that is carried out is a span, and each of its moves one below it."""

import threading
from collections.abc import Iterator

import pytest

from berth_core.clock import SystemClock
from berth_core.migration_plans import MigrationPlan, MoveState, MoveStatus, PlanPhase
from berth_descheduler.observers import CycleObserver, join_observers
from berth_descheduler.outcome import Outcome, PlanOutcome, Verdict
from berth_descheduler.server import DeschedulerService
from berth_descheduler.traces import plan_traces
from berth_kube.resources import MIGRATION_PLANS
from berth_service.spans import span_id_of, trace_id_of
from berth_service.traces import move_span
from descheduler.fake_cluster import fragmented_cluster
from descheduler.test_run_and_service_options import PLANNER, SETTINGS
from trace_collector import TraceCollector, trace_collector


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceCollector]:
    with trace_collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.address)
        yield running


def statuses(*states: MoveState) -> tuple[MoveStatus, ...]:
    return tuple(
        MoveStatus(namespace="team-a", pod=f"web-{index}", state=state, node="node-b", message="why")
        for index, state in enumerate(states)
    )


def test_a_plan_that_is_carried_out_is_a_span_with_its_moves(collector: TraceCollector) -> None:
    cluster = fragmented_cluster()
    with plan_traces(SystemClock()) as watchers:
        service = DeschedulerService(cluster, SystemClock(), SETTINGS, PLANNER, threading.Event(), watchers)  # type: ignore[arg-type]
        outcome = service.run_once()
    (plan,) = collector.named("plan")
    stored = cluster.get(MIGRATION_PLANS, outcome.plans[0].plan, type=MigrationPlan)
    moves = {span.attributes["berth.move.index"]: span for span in collector.named("move")}
    assert plan.trace == f"{trace_id_of(stored.metadata.uid):032x}"
    assert plan.attributes["berth.plan.phase"] == "Succeeded"
    assert plan.attributes["berth.plan.landed"] == len(stored.spec.moves) == len(moves)
    for index, move in enumerate(stored.spec.moves):
        span = moves[index]
        assert (span.trace, span.parent) == (plan.trace, plan.span)
        assert span.span == f"{span_id_of(stored.metadata.uid, move_span(index)):016x}"
        assert span.attributes["k8s.pod.name"] == move.pod
        assert span.attributes["k8s.node.name"] == move.target
        assert span.events[-1] == span.attributes["berth.move.state"] == "Landed"
        assert span.failure is None
    assert {span.service for span in collector.spans} == {"berth-descheduler"}


def test_off_by_default_nothing_follows_the_cycles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    metrics = CycleObserver()
    with plan_traces(SystemClock()) as watchers:
        assert join_observers(metrics, watchers) is metrics


def ended(name: str, *states: MoveState, phase: PlanPhase = PlanPhase.SUCCEEDED, note: str = "") -> PlanOutcome:
    return PlanOutcome(name, phase, statuses(*states), note=note)


def test_moves_and_plans_that_fail_are_errors(collector: TraceCollector) -> None:
    with plan_traces(SystemClock()) as (traces,):
        traces.plan_begun("night-1", 3, "uid-1")
        traces.moves_changed(statuses(MoveState.RESERVING, MoveState.PENDING, MoveState.PENDING), 0)
        traces.moves_changed(statuses(MoveState.FAILED, MoveState.PENDING, MoveState.PENDING), 0)
        over = ended(
            "night-1", MoveState.FAILED, MoveState.SKIPPED, MoveState.PENDING, phase=PlanPhase.ABORTED, note="by hand"
        )
        traces.cycle_ended(Outcome(Verdict.CARRIED_OUT, plan=over))
    assert [(span.events, span.failure) for span in collector.named("move")] == [
        (("Reserving", "Failed"), "why"),
        (("Skipped",), None),
    ]
    assert [span.failure for span in collector.named("plan")] == ["by hand"]


def test_plans_that_one_cycle_makes_again_have_a_trace_each(collector: TraceCollector) -> None:
    with plan_traces(SystemClock()) as (traces,):
        for number in (1, 2):
            traces.plan_begun(f"night-{number}", 1, f"uid-{number}")
            traces.moves_changed(statuses(MoveState.LANDED), 0)
        first, second = ended("night-1", MoveState.LANDED), ended("night-2", MoveState.LANDED)
        traces.cycle_ended(Outcome(Verdict.CARRIED_OUT, plan=second, replanned=(first,)))
    plans, moves = collector.named("plan"), collector.named("move")
    assert [span.attributes["berth.plan.name"] for span in plans] == ["night-1", "night-2"]
    assert {span.trace: span.span for span in plans} == {span.trace: span.parent for span in moves}


def test_a_plan_that_was_cut_off_and_goes_on_is_one_span(collector: TraceCollector) -> None:
    with plan_traces(SystemClock()) as (traces,):
        traces.plan_begun("night-1", 1, "uid-1")
        traces.moves_changed(statuses(MoveState.EVICTED), 0)
        traces.plan_begun("night-1", 1, "uid-1")
        traces.moves_changed(statuses(MoveState.LANDED), 0)
        traces.cycle_ended(Outcome(Verdict.CARRIED_OUT, adopted=(ended("night-1", MoveState.LANDED),)))
    assert [span.name for span in collector.spans] == ["move", "plan"]


def test_a_plan_without_an_outcome_ends_with_the_verdict(collector: TraceCollector) -> None:
    with plan_traces(SystemClock()) as (traces,):
        traces.moves_changed(statuses(MoveState.LANDED), 0)  # of no plan
        traces.plan_begun("night-1", 1, "uid-1")
        traces.cycle_ended(Outcome(Verdict.PLAN_DELETED))
        traces.cycle_ended(Outcome(Verdict.NOTHING_TO_MOVE))
    assert [(span.name, span.failure) for span in collector.spans] == [("plan", Verdict.PLAN_DELETED.value)]
