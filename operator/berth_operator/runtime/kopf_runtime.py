"""How kopf is configured, connected and restarted.

By default kopf keeps its state in annotations. Here it reads the state from the objects' statuses and writes nothing.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiohttp
import kopf
import msgspec
import structlog

from berth_core.depths import is_cut, may_be_too_deep
from berth_kube import PROMPT_WATCH, RESERVATIONS, Call, Page, decode_event, decode_item, decode_page, split_page
from berth_operator import telemetry
from berth_operator.runtime.app import App

_FIRST_WAITS_SECONDS: Final = (1.0, 1.0, 2.0, 3.0)
_LATER_WAITS_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 30.0
_CONNECT_SECONDS: Final = 5.0
_IDLE_SECONDS: Final = 30.0
"""kopf that has neither watched nor sent a request for so long never will: it missed the CRD at its start."""
_FAILURES_BEFORE_A_NEW_RUN: Final = 3
"""kopf repeats a request with the same address, authority, proxy and credentials for ever; a new run rereads them."""
_CHECK_SECONDS: Final = 1.0
_HTTP_OK: Final = 200
_IN_VAIN_SECONDS: Final = PROMPT_WATCH.in_vain_seconds
_LIST: Final = Call("list", RESERVATIONS.plural)
_WATCH: Final = Call("watch", RESERVATIONS.plural)

_LOG = structlog.get_logger(__name__)


class EndlessWaits(Iterable[float]):
    """Endless pauses between kopf's tries: it gives up at the end of a finite list."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_FIRST_WAITS_SECONDS, itertools.repeat(_LATER_WAITS_SECONDS))


class StatusAsMemory(kopf.DiffBaseStorage):
    """Reads the last handled spec from `status.observedGeneration`, which the operator writes.

    So kopf recognises new, changed and already handled Reservations after a restart without an annotation.
    """

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:  # noqa: ARG002 - kopf's
        """Return the spec's generation as kopf's essence, for which kopf would copy the whole object."""
        return {"spec": {"generation": (body.get("metadata") or {}).get("generation")}}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return the generation of the status, None without a status."""
        generation = (body.get("status") or {}).get("observedGeneration")
        return None if generation is None else {"spec": {"generation": generation}}

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing, as the status records the handled generation."""


class NoProgress(kopf.ProgressStorage):
    """Stores no progress: each handler finishes in one call."""

    def fetch(self, **_: object) -> None: ...

    def store(self, **_: object) -> None: ...

    def purge(self, **_: object) -> None: ...

    def touch(self, **_: object) -> None: ...

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        return essence


def configure(settings: kopf.OperatorSettings) -> None:
    """Make kopf write nothing and wait for an unresponsive API server."""
    settings.process.ultimate_exiting_timeout = None  # kopf would kill the process later though its run was restarted
    settings.posting.enabled = False  # kopf would write an event for each log line about an object
    settings.scanning.disabled = True  # for scans of namespaces and CRDs it would need the rights to watch them
    # By default kopf patches an annotation with the last handled configuration onto each object, and one per handler
    # with its progress: writes that other watchers would see as changes of the Reservation
    # (zalando-incubator/kopf#318).
    settings.persistence.diffbase_storage = StatusAsMemory()
    settings.persistence.progress_storage = NoProgress()
    settings.networking.error_backoffs = EndlessWaits()
    settings.networking.request_timeout = _REQUEST_SECONDS
    settings.networking.connect_timeout = _CONNECT_SECONDS
    # Without it an API server ends a watch at a random time of 30 to 60 minutes (--min-request-timeout), and a
    # connection that a proxy has dropped silently would go unnoticed for as long (nolar/kopf#1267).
    settings.watching.server_timeout = int(PROMPT_WATCH.server_seconds)
    settings.watching.inactivity_timeout = PROMPT_WATCH.silence_seconds


@dataclass(slots=True)
class _Watch:
    """One connection of a watch."""

    opened_at: float
    has_lines: bool = False


class ReservationStream:
    """Learns from kopf's requests when it has listed and watches Reservations, and why it should begin anew.

    Events that kopf would ignore are applied here, and kopf sees a bookmark in their place.
    """

    # kopf calls no handler at the end of a list, nor for an object that a second list lacks. It keeps its connection
    # settings and its resourceVersion whatever happens (see also nolar/kopf#1276), so both are given up with its run.

    def __init__(self, on_listed: Callable[[], None], apply_handled: Callable[[bytes], str] = lambda _: "") -> None:
        """`apply_handled` applies a line of the watch and returns its resourceVersion, or "" for one left to kopf.

        What a list has goes there, too, each as the line of a changed object.
        """
        self._on_listed = on_listed
        self._apply_handled = apply_handled
        self._answered_at: float | None = None
        self.reset()

    def reset(self) -> None:
        """Reset for a new run of kopf, which starts the program first and lists then."""
        self._is_open = self._has_listed = False
        self._under_way = self._failures = 0
        self._last_request: float | None = None
        self.version = ""
        """The resourceVersion from which the present watch goes on."""
        self._in_vain_seconds = 0.0
        """How long watches in a row were open that brought nothing."""

    def expect_requests(self) -> None:
        """Start measuring how long kopf is idle, and how long it gets no answer."""
        self._last_request = time.monotonic()
        if self._answered_at is None:
            self._answered_at = self._last_request

    def idle_seconds(self) -> float:
        """Return how long kopf has neither watched Reservations nor sent requests."""
        if self._is_open or self._under_way or self._last_request is None:
            return 0.0
        return max(0.0, time.monotonic() - self._last_request)

    def silent_seconds(self) -> float:
        """Return how long ago kopf last got an answer or a line of its watch, over all its runs."""
        return 0.0 if self._answered_at is None else time.monotonic() - self._answered_at

    def why_begin_anew(self) -> str:
        """Return why this run of kopf will never hear of Reservations again, "" while it may."""
        if self._failures >= _FAILURES_BEFORE_A_NEW_RUN:
            return f"{self._failures} connections in a row have failed"
        if self.is_in_vain:
            return "a watch has brought nothing, not even a bookmark: its resourceVersion may be of another history"
        if self.idle_seconds() >= _IDLE_SECONDS:
            return "there is no watch"
        return ""

    @property
    def is_in_vain(self) -> bool:
        """Whether watches were open for long that brought nothing, not even a bookmark."""
        return self._in_vain_seconds >= _IN_VAIN_SECONDS

    def excuse_silence(self) -> None:
        """Let the watches have brought nothing because nothing has happened."""
        self._in_vain_seconds = 0.0

    def build_trace(self) -> aiohttp.TraceConfig:
        """Return a trace that reports a session's requests to this stream."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._note_start)
        trace.on_request_end.append(self._note_answer)
        trace.on_request_exception.append(self._note_failure)
        return trace

    async def _note_start(self, *_: object) -> None:
        self._under_way += 1

    async def _note_failure(self, *_: object) -> None:
        self._note_end()
        self._failures += 1

    async def _note_answer(self, _session: object, _context: object, params: aiohttp.TraceRequestEndParams) -> None:
        """Call `on_listed` when a watch begins: kopf has processed the whole list by then."""
        self._note_end()
        self._failures = 0
        self._answered_at = time.monotonic()
        if not params.url.path.endswith(RESERVATIONS.path()) or params.response.status != _HTTP_OK:
            return
        if "watch" not in params.url.query:
            self._has_listed = True
            if isinstance(params.response, ReadableAnswer):
                params.response.apply_handled = self._apply_handled
            return
        self.version = params.url.query.get("resourceVersion", "")
        content = params.response.content
        if isinstance(content, _ReadableLines):
            watch = _Watch(time.monotonic())
            content.report_to(
                partial(self._note_lines, watch), partial(self._note_end_of_watch, watch), self._apply_handled
            )
        if self._has_listed:
            self._has_listed, self._is_open = False, True
            self._on_listed()

    def _note_end(self) -> None:
        self._under_way = max(0, self._under_way - 1)
        self._last_request = time.monotonic()

    def _note_lines(self, watch: _Watch) -> None:
        """Record that a watch has brought something, if only a bookmark."""
        watch.has_lines = True
        self._answered_at = time.monotonic()
        self._in_vain_seconds = 0.0

    def _note_end_of_watch(self, watch: _Watch) -> None:
        if not watch.has_lines:
            self._in_vain_seconds += time.monotonic() - watch.opened_at


class _ReadableLines:
    """Content of a watch response without events that kopf ignores, and with stand-ins for too deep Reservations."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self._at_lines: Callable[[], None] = lambda: None
        self._at_end: Callable[[], None] = lambda: None
        self._apply_handled: Callable[[bytes], str] = lambda _: ""

    def report_to(
        self, at_lines: Callable[[], None], at_end: Callable[[], None], apply_handled: Callable[[bytes], str]
    ) -> None:
        """Register callbacks for each chunk and for the end of the stream.

        Each line goes to `apply_handled` first; kopf sees those for which it returns "".
        """
        self._at_lines, self._at_end, self._apply_handled = at_lines, at_end, apply_handled

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute that aiohttp reads
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines as they arrive."""
        pending = b""
        try:
            # kopf splits the stream into lines itself, so only whole lines may be left out or replaced.
            async for chunk in self._content.iter_chunked(size):
                self._at_lines()
                *lines, pending = (pending + chunk).split(b"\n")
                if lines:
                    yield b"".join(line + b"\n" for line in self._for_kopf(lines))
            if pending:
                yield pending
        finally:
            self._at_end()

    def _for_kopf(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """Yield what kopf sees of lines: one bookmark for those in a row that it has nothing to do about."""
        version = ""
        for line in lines:
            if applied_version := self._apply_handled(line):
                version = applied_version
                continue
            if version:
                yield _bookmark(version)
                version = ""
            yield readable_line(line)
        if version:
            yield _bookmark(version)


def _bookmark(version: str) -> bytes:
    return msgspec.json.encode({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}})


class ReadableAnswer(aiohttp.ClientResponse):
    """Response that kopf can decode whatever Reservations users create.

    Python's JSON decoder fails at about 1,000 nested levels and the API server stores 10,000: without this a single
    Reservation would keep kopf from seeing all others.
    """

    apply_handled: Callable[[bytes], str] = staticmethod(lambda _: "")
    """Applies one listed object, in the form of a watch's line, or returns "" for one that kopf has to see."""

    async def start(self, connection: aiohttp.connector.Connection) -> "ReadableAnswer":
        """Read the headers of the response."""
        await super().start(connection)
        if self._is_of_reservations and "watch" in self.url.query:
            self.content = _ReadableLines(self.content)  # type: ignore[assignment]  # it stands in for one
        return self

    async def json(self, **rest: Any) -> Any:  # noqa: ANN401 - kopf's own calls and answers
        """Return the document; stand-ins replace too deeply nested Reservations.

        Those that kopf has nothing to do about are left out of a list: it would take a task and milliseconds for each
        of thousands, and the operator is not ready before.
        """
        if not self._is_of_reservations:
            return await super().json(**rest)
        page = _read_list(await self.read(), self.apply_handled)
        metadata = {"resourceVersion": page.metadata.resource_version, "continue": page.metadata.continue_token}
        head = {"apiVersion": RESERVATIONS.api_version, "kind": f"{RESERVATIONS.kind}List"}
        return {**head, "metadata": metadata, "items": list(page.items)}

    @property
    def _is_of_reservations(self) -> bool:
        return self.status == _HTTP_OK and self.url.path.endswith(RESERVATIONS.path())


def _read_list(body: bytes, apply_handled: Callable[[bytes], str]) -> Page[dict[str, Any]]:
    """Return what kopf has to see of a list; the rest is applied."""
    try:
        page = split_page(body)
    except msgspec.DecodeError:
        return decode_page(_LIST, body, dict)  # which names the fault

    def is_done(raw: msgspec.Raw) -> bool:
        line = b'{"type":"MODIFIED","object":' + bytes(raw) + b"}"
        return not is_cut(raw) and bool(apply_handled(line))

    return Page(page.metadata, tuple(decode_item(_LIST, raw, dict) for raw in page.items if not is_done(raw)))


def readable_line(line: bytes) -> bytes:
    """Return a line of a watch as it is, or with a stand-in for a Reservation that is nested too deeply."""
    if not may_be_too_deep(line):
        return line
    event = decode_event(_WATCH, line)
    body = decode_item(_WATCH, event.object, dict)
    metadata = body.get("metadata") or {}
    if "managedFields" in metadata and "unreadable" not in metadata:  # they are left out with what is too deep
        return line
    return msgspec.json.encode({"type": event.type, "object": body})


Declare = Callable[[kopf.OperatorRegistry, asyncio.Event], None]


async def run_kopf(program: App, stream: ReservationStream, declare: Declare, identity: str) -> None:
    """Run kopf until a request to stop, then stop the program; raises the error of a failed start."""
    # Some transient errors end kopf: an error event other than 410, a 404 while the API server begins to serve the
    # kind, credentials that were refused twice. Others would keep it deaf for ever (nolar/kopf#1276). The webhook must
    # go on answering meanwhile, so kopf runs again in the same process.
    stop_flag = asyncio.Event()
    try:
        for wait_seconds in EndlessWaits():
            if not await _run_once(program, stream, stop_flag, declare, identity):
                return
            await _wait(stop_flag, wait_seconds)
    finally:
        await program.stop()


async def _run_once(
    program: App, stream: ReservationStream, stop_flag: asyncio.Event, declare: Declare, identity: str
) -> bool:
    """Run kopf once; return whether it ended without a request to stop."""
    stream.reset()
    registry = kopf.OperatorRegistry()
    declare(registry, stop_flag)
    ends = asyncio.Event()
    guards = [asyncio.create_task(_end_with(stop_flag, ends)), asyncio.create_task(_end_deaf(program, stream, ends))]
    try:
        await kopf.operator(
            registry=registry,
            clusterwide=True,
            standalone=True,
            stop_flag=ends,
            # Without one kopf asks for the user's name, and the user of an image may have none (`detect_own_id` in
            # `kopf/_core/engines/peering.py`).
            identity=identity,  # type: ignore[arg-type] # kopf does not export the type
        )
    except Exception as error:
        if program.failure is not None or not program.has_started:
            raise
        _LOG.warning(
            telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "watch Reservations", telemetry.KEY_ERROR: str(error)}
        )
        return not stop_flag.is_set()
    finally:
        for guard in guards:
            guard.cancel()
    return ends.is_set() and not stop_flag.is_set()


async def _end_with(stop_flag: asyncio.Event, ends: asyncio.Event) -> None:
    await stop_flag.wait()
    ends.set()


async def _end_deaf(program: App, stream: ReservationStream, ends: asyncio.Event) -> None:
    """End a run of kopf that will never hear of Reservations again."""
    # A quiet cluster may bring no bookmark either, so a silent watch is given up only if the revisions have gone back.
    why = ""
    while not ends.is_set() and not why:
        if stream.is_in_vain and not await asyncio.to_thread(program.is_behind, stream.version):
            stream.excuse_silence()
        why = stream.why_begin_anew()
        if not why:
            await _wait(ends, _CHECK_SECONDS)
    if why:
        _LOG.warning(telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "watch Reservations", telemetry.KEY_ERROR: why})
    ends.set()


async def _wait(flag: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(flag.wait(), seconds)
    except TimeoutError:
        return
