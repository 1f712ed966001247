"""Traces are off by default, and go where OpenTelemetry's variables say."""

import os
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from typing import Final

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from berth_core.errors import InputError
from berth_service import extras
from berth_service.spans import Tracer
from berth_service.traces import PLAN_SPAN, are_on, build_tracer, move_span
from trace_collector import TraceCollector, trace_collector

NOON: Final = datetime(2026, 3, 1, 12, tzinfo=UTC)
TRACES: Final = [f"uid-{number}" for number in range(200)]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceCollector]:
    with trace_collector() as running:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.address)
        yield running


def tracer_of(service: str = "berth-test") -> Tracer:
    tracer = build_tracer(service, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert tracer is not None
    return tracer


def span(tracer: Tracer, trace: str, name: str, parent: str | None) -> None:
    begun = tracer.begin("step", trace=trace, span=name, parent=parent, at=NOON, attributes={"n": 1})
    begun.end(at=NOON + timedelta(seconds=2), attributes={"state": "Landed"})


@pytest.mark.parametrize(
    ("environment", "want"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "berth"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": ""}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_traces_are_on_where_an_endpoint_is_named(environment: dict[str, str], *, want: bool) -> None:
    assert are_on(environment) is want


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:99999"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://collector:4317"),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/json"),
        ("OTEL_TRACES_EXPORTER", "zipkin"),
    ],
)
def test_what_cannot_be_exported_to_is_refused_by_its_variable(name: str, value: str) -> None:
    with pytest.raises(InputError, match=name):
        build_tracer("berth-test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318", name: value})


REFUSED_BY_SDK: Final = [
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4096"),
    ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "-1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "1"),
    ("OTEL_BSP_MAX_QUEUE_SIZE", "0"),
    ("OTEL_BSP_SCHEDULE_DELAY", "0"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "x"),
    ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1"),
    ("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "long"),
    ("OTEL_SPAN_EVENT_COUNT_LIMIT", "1.5"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED_BY_SDK)
def test_what_the_sdk_refuses_is_refused_by_its_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    monkeypatch.setenv(name, value)
    with pytest.raises(InputError, match=f"^{name} is .*{value}") as refusal:
        build_tracer("berth-test", os.environ)
    assert "OpenTelemetry SDK takes: " in str(refusal.value)


def test_without_the_extra_the_sentence_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name == "opentelemetry.sdk" else find_spec(name))
    with pytest.raises(extras.MissingPackagesError, match=r"opentelemetry\.sdk.*berth\[traces\]"):
        build_tracer("berth-test", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"})


def test_spans_of_two_processes_join_one_trace(collector: TraceCollector) -> None:
    for service, name, parent in (
        ("one", PLAN_SPAN, None),
        ("two", "step", move_span(3)),
        ("one", move_span(3), "plan"),
    ):
        tracer = tracer_of(service)
        span(tracer, "uid-1", name, parent)
        tracer.stop()
    plan, step, move = collector.spans
    assert [one.service for one in collector.spans] == ["one", "two", "one"]
    assert {one.trace for one in collector.spans} == {plan.trace}
    assert (plan.parent, move.parent, step.parent) == ("", plan.span, move.span)
    assert (step.seconds, step.attributes, step.failure) == (2.0, {"n": 1, "state": "Landed"}, None)


def test_a_failure_is_an_error_of_its_span(collector: TraceCollector) -> None:
    tracer = tracer_of()
    begun = tracer.begin("step", trace="uid", span="a", parent=None, at=NOON, attributes={})
    begun.end(at=NOON, attributes={}, failure="403 Forbidden")
    tracer.stop()
    assert [one.failure for one in collector.spans] == ["403 Forbidden"]


def test_the_variables_name_the_service_and_the_headers(
    collector: TraceCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "berth-of-team-a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=a")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    tracer = tracer_of()
    span(tracer, "uid", "a", None)
    tracer.stop()
    assert [one.service for one in collector.spans] == ["berth-of-team-a"]
    assert [(one["x-tenant"], one["content-encoding"]) for one in collector.headers] == [("a", "gzip")]


@pytest.mark.parametrize(
    ("sampler", "argument", "least", "most"),
    [
        ("parentbased_traceidratio", "0.5", 60, 140),
        ("traceidratio", "0.5", 60, 140),
        ("always_off", "", 0, 0),
        ("parentbased_always_off", "", 0, 0),
        ("always_on", "", 200, 200),
    ],
)
def test_all_spans_of_a_trace_are_sampled_alike(
    collector: TraceCollector,
    monkeypatch: pytest.MonkeyPatch,
    sampler: str,
    argument: str,
    least: int,
    most: int,
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", sampler)
    monkeypatch.setenv("OTEL_TRACES_SAMPLER_ARG", argument)
    for service, name, parent in (("one", PLAN_SPAN, None), ("two", move_span(0), PLAN_SPAN)):
        tracer = tracer_of(service)
        for trace in TRACES:
            span(tracer, trace, name, parent)
        tracer.stop()
    sampled = {service: {one.trace for one in collector.spans if one.service == service} for service in ("one", "two")}
    assert sampled["one"] == sampled["two"]
    assert least <= len(sampled["one"]) <= most


class StuckExporter(SpanExporter):
    """Exports nothing until it is let go."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:  # noqa: ARG002 - a stand-in for a collector
        self.begun.set()
        self.let_go.wait()
        return SpanExportResult.FAILURE


def test_a_collector_that_does_not_answer_holds_no_end_up() -> None:
    exporter = StuckExporter()
    tracer = Tracer(exporter, Resource.create())
    span(tracer, "uid", "a", None)
    try:
        tracer.stop()
        assert exporter.begun.is_set()
    finally:
        exporter.let_go.set()
