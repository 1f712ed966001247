"""Each step of a hand-over is a span in the trace of the plan that asked for the place."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import OwnerReference
from berth_core.errors import InputError
from berth_core.labels import MOVE_ANNOTATION
from berth_core.reservations import Reservation
from berth_kube.errors import ForbiddenError
from berth_operator.capabilities.traces.act import Traces
from berth_operator.reservation.actions import (
    AssignSlot,
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    SurveyNode,
    Ungate,
    Validate,
)
from berth_service.spans import span_id_of, trace_id_of
from berth_service.traces import PLAN_SPAN, move_span
from builders import task
from handover_builders import PLACE_UID, note, owner_pod, place, placeholder
from operator_harness import OperatorHarness, harness
from trace_collector import TraceCollector, trace_collector

__all__ = ["harness"]

PLAN = OwnerReference(
    api_version="berth.volcano.sh/v1alpha1", kind="MigrationPlan", name="night-1", uid="uid-night-1", controller=True
)


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceCollector]:
    with trace_collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.address)
        yield running


@contextmanager
def traced(harness: OperatorHarness) -> Iterator[None]:
    """Have the operator trace; at the end all spans have arrived."""
    traces = Traces(harness.kernel)
    watcher = traces.action_watcher()
    assert watcher is not None
    harness.executor.watch([watcher])
    asyncio.run(traces.start())
    yield
    asyncio.run(traces.stop())


def of_plan(move: str | None) -> Reservation:
    made = place()
    annotations = {} if move is None else {MOVE_ANNOTATION: move}
    metadata = msgspec.structs.replace(made.metadata, owner_references=(PLAN,), annotations=annotations)
    return msgspec.structs.replace(made, metadata=metadata)


@pytest.mark.parametrize(
    ("move", "want_parent"),
    [
        ("3", move_span(3)),
        (None, PLAN_SPAN),  # a room
        ("-1", PLAN_SPAN),
        ("٣", PLAN_SPAN),
        ("9" * 5000, PLAN_SPAN),
    ],
)
def test_a_step_stands_below_the_move_that_it_is_for(
    harness: OperatorHarness, collector: TraceCollector, move: str | None, want_parent: str
) -> None:
    with traced(harness):
        harness.perform(CreatePlaceholder(task(), 0), of=of_plan(move))
    (span,) = collector.spans
    assert span.trace == f"{trace_id_of(PLAN.uid):032x}"
    assert span.parent == f"{span_id_of(PLAN.uid, want_parent):016x}"
    assert (span.service, span.name) == ("berth-operator", "CreatePlaceholder")
    assert span.attributes == {"berth.reservation": "default/place"}


def test_each_step_is_one_span_and_what_only_looks_is_none(harness: OperatorHarness, collector: TraceCollector) -> None:
    owner = owner_pod()
    harness.know(owner, placeholder(), of=of_plan("0"))
    given = owner_pod(given=note())
    with traced(harness):
        harness.perform(Validate(), SurveyNode("node-a"), of=of_plan("0"))
        harness.perform(AssignSlot(owner, note()), DeletePlaceholder(placeholder(), at_once=True), of=of_plan("0"))
        harness.perform(Ungate(harness.stored(given)), of=of_plan("0"))
        harness.perform(CompleteHandover(harness.stored(given)), of=of_plan("0"))
    assert [span.name for span in collector.spans] == ["AssignSlot", "DeletePlaceholder", "Ungate", "Finish"]
    assert len({span.span for span in collector.spans}) == 4
    assert {span.attributes["k8s.pod.name"] for span in collector.named("AssignSlot")} == {owner.metadata.name}
    assert {span.failure for span in collector.spans} == {None}


def test_a_step_that_is_refused_is_an_error(harness: OperatorHarness, collector: TraceCollector) -> None:
    harness.api.faults["create priorityclasses berth-placeholder-0"] = error(ForbiddenError, "no right to create")
    with traced(harness), pytest.raises(ForbiddenError):
        harness.perform(CreatePlaceholder(task(), 0), of=of_plan("0"))
    assert ["no right to create" in (span.failure or "") for span in collector.spans] == [True]


def test_a_reservation_of_no_plan_has_a_trace_of_its_own(harness: OperatorHarness, collector: TraceCollector) -> None:
    with traced(harness):
        harness.perform(CreatePlaceholder(task(), 0))
    assert [(span.trace, span.parent) for span in collector.spans] == [(f"{trace_id_of(PLACE_UID):032x}", "")]


def test_off_by_default_no_step_is_watched(harness: OperatorHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    traces = Traces(harness.kernel)
    asyncio.run(traces.start())
    assert traces.action_watcher() is None


def test_an_endpoint_that_is_none_ends_the_operator_at_its_start(
    harness: OperatorHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
    with pytest.raises(InputError, match="OTEL_EXPORTER_OTLP_ENDPOINT"):
        asyncio.run(Traces(harness.kernel).start())
