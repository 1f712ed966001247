"""Spans whose ids follow from what they are about, so that programs join one trace without passing ids on.

Needs the extra `traces`.
"""

import hashlib
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final, Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import IdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, Status, StatusCode, TraceFlags, set_span_in_context

Attributes = Mapping[str, str | int]

_SCOPE: Final = "berth"
_UNNAMED: Final = "unknown_service"
_STOP_SECONDS: Final = 3.0
"""How long the end of the process waits for spans to be exported; a collector that is away must not hold it up."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def trace_id_of(trace: str) -> int:
    """Return the id of the trace about an object, by the object's uid."""
    # W3C Trace Context: a trace's id has 16 bytes, a span's 8.
    return int.from_bytes(hashlib.sha256(trace.encode()).digest()[:16])


def span_id_of(trace: str, span: str) -> int:
    """Return the id of a span by its name within the trace."""
    return int.from_bytes(hashlib.sha256(f"{trace}/{span}".encode()).digest()[:8])


class _GivenIds(IdGenerator):
    """Gives the ids that the same thread has set."""

    def __init__(self) -> None:
        self._ids = threading.local()

    def give(self, trace_id: int, span_id: int) -> None:
        self._ids.trace_id, self._ids.span_id = trace_id, span_id

    def generate_trace_id(self) -> int:
        return int(self._ids.trace_id)

    def generate_span_id(self) -> int:
        return int(self._ids.span_id)


class Tracer:
    """Begins spans, which are exported in the background once they end; what cannot be exported is lost."""

    def __init__(self, exporter: SpanExporter, resource: Resource) -> None:
        self._ids = _GivenIds()
        # The SDK's own handler at exit would wait for a collector that is away; `stop` waits for three seconds.
        self._provider = TracerProvider(resource=resource, id_generator=self._ids, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_SCOPE)

    @classmethod
    def of_environment(cls, service: str) -> Self:
        """Return a tracer set up by OpenTelemetry's variables; `service` is the service's name unless they give one."""
        resource = Resource.create()
        if str(resource.attributes[SERVICE_NAME]).startswith(_UNNAMED):
            resource = resource.merge(Resource({SERVICE_NAME: service}))
        return cls(OTLPSpanExporter(), resource)

    def begin(
        self, name: str, *, trace: str, span: str, parent: str | None, at: datetime, attributes: Attributes
    ) -> "OpenSpan":
        """Begin a span.

        `trace` is the uid of the object that the trace is about, `span` and `parent` are names within the trace; None
        for a span without a parent. Both programs sample a trace alike, since its id decides.
        """
        trace_id = trace_id_of(trace)
        # An invalid parent makes a root; without one the thread's current span would be the parent.
        context = set_span_in_context(NonRecordingSpan(SpanContext(0, 0, is_remote=False)))
        if parent is not None:
            root = self._provider.sampler.should_sample(None, trace_id, name)
            is_sampled = root.decision is Decision.RECORD_AND_SAMPLE
            flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
            above = SpanContext(trace_id, span_id_of(trace, parent), is_remote=True, trace_flags=flags)
            context = set_span_in_context(NonRecordingSpan(above))
        self._ids.give(trace_id, span_id_of(trace, span))
        began = self._tracer.start_span(name, context, attributes=attributes, start_time=_nanoseconds(at))
        return OpenSpan(began)

    def stop(self) -> None:
        """Export what is left, for three seconds at most."""
        last = threading.Thread(target=self._provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(_STOP_SECONDS)


class OpenSpan:
    """A span that has begun."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def note(self, event: str, *, at: datetime, attributes: Attributes) -> None:
        """Add an event."""
        self._span.add_event(event, attributes, _nanoseconds(at))

    def end(self, *, at: datetime, attributes: Attributes, failure: str | None = None) -> None:
        """End the span; `failure` says what went wrong, None for nothing."""
        self._span.set_attributes(attributes)
        if failure is not None:
            self._span.set_status(Status(StatusCode.ERROR, failure))
        self._span.end(_nanoseconds(at))


def _nanoseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
