"""A collector of OpenTelemetry on loopback, which decodes what is exported to it."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class CollectedSpan:
    """A span as it was exported."""

    service: str
    name: str
    trace: str
    span: str
    parent: str
    """"" for none."""
    seconds: float
    attributes: dict[str, Any]
    events: tuple[str, ...]
    failure: str | None


@dataclass
class TraceCollector:
    """What was exported, in the order of its arrival."""

    address: str = ""
    spans: list[CollectedSpan] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def named(self, name: str) -> list[CollectedSpan]:
        return [span for span in list(self.spans) if span.name == name]

    def take(self, body: bytes, headers: dict[str, str]) -> None:
        self.headers.append(headers)
        raw = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
        for resource in ExportTraceServiceRequest.FromString(raw).resource_spans:
            service = attributes_of(resource.resource)["service.name"]
            self.spans += [collected(service, span) for scope in resource.scope_spans for span in scope.spans]


def attributes_of(has_attributes: Any) -> dict[str, Any]:  # noqa: ANN401 - any message of protobuf with attributes
    values = {one.key: one.value for one in has_attributes.attributes}
    return {key: getattr(value, value.WhichOneof("value")) for key, value in values.items()}


def collected(service: str, span: Any) -> CollectedSpan:  # noqa: ANN401 - a message of protobuf
    return CollectedSpan(
        service=service,
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        seconds=(span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        attributes=attributes_of(span),
        events=tuple(event.name for event in span.events),
        failure=span.status.message if span.status.code == span.status.STATUS_CODE_ERROR else None,
    )


@contextmanager
def trace_collector() -> Iterator[TraceCollector]:
    collector = TraceCollector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            is_right = self.path == "/v1/traces"
            if is_right:
                collector.take(body, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(200 if is_right else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector.address = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()
