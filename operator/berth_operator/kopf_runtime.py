"""How kopf is set up and kept running: its settings, its connection, and a new start of what must not end.

kopf keeps its memory in annotations of the objects by default. Here it reads it from their statuses and writes nothing.
"""

import asyncio
import itertools
import math
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import aiohttp
import kopf
import msgspec
import structlog

from berth_core import MAX_DEPTH
from berth_kube import RESERVATIONS, Call, decode_event, decode_item, decode_page
from berth_operator import telemetry
from berth_operator.app import App

_FIRST_WAITS_SECONDS: Final = (1.0, 1.0, 2.0, 3.0)
_LATER_WAITS_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 30.0
_LOGIN_SECONDS: Final = 1.0
"""Between two logins: an API server that refuses the credentials is not asked without a pause."""
_IDLE_SECONDS: Final = 30.0
"""kopf that does not watch and asks nothing for so long never will: it did not find the kind when it started."""
_IDLE_CHECK_SECONDS: Final = 1.0
_HTTP_OK: Final = 200
_LIST: Final = Call("list", RESERVATIONS.plural)
_WATCH: Final = Call("watch", RESERVATIONS.plural)

_LOG = structlog.get_logger(__name__)


class EndlessWaits(Iterable[float]):
    """The pauses between kopf's tries: without an end, as kopf gives up at the end of its own list."""

    def __iter__(self) -> Iterator[float]:
        return itertools.chain(_FIRST_WAITS_SECONDS, itertools.repeat(_LATER_WAITS_SECONDS))


class StatusAsMemory(kopf.DiffBaseStorage):
    """Reads which spec was handled last from `status.observedGeneration`, which the operator writes.

    So kopf knows a new Reservation, a changed spec and one that was handled before a restart without an annotation.
    """

    def build(self, *, body: kopf.Body, extra_fields: object = None) -> kopf.BodyEssence:  # noqa: ARG002 - kopf's
        """Return the generation of the spec as what distinguishes versions; kopf would copy the whole object."""
        return {"spec": {"generation": body.get("metadata", {}).get("generation")}}

    def fetch(self, *, body: kopf.Body) -> kopf.BodyEssence | None:
        """Return the generation that the status answers, None where there is no status yet."""
        generation = body.get("status", {}).get("observedGeneration")
        return None if generation is None else {"spec": {"generation": generation}}

    def store(self, *, body: kopf.Body, patch: kopf.Patch, essence: kopf.BodyEssence) -> None:
        """Write nothing: the status says it once the spec is answered."""


class NoProgress(kopf.ProgressStorage):
    """Keeps nothing: every handler is done with one call."""

    def fetch(self, **_: object) -> None:
        """Return that nothing is under way."""

    def store(self, **_: object) -> None:
        """Write nothing."""

    def purge(self, **_: object) -> None:
        """Write nothing."""

    def touch(self, **_: object) -> None:
        """Write nothing."""

    def clear(self, *, essence: kopf.BodyEssence) -> kopf.BodyEssence:
        """Return what tells versions apart: nothing in it is of a handler's progress."""
        return essence


def configure(settings: kopf.OperatorSettings) -> None:
    """Have kopf write nothing, and wait for an API server that is away or does not answer."""
    settings.process.ultimate_exiting_timeout = None  # kopf would kill the process later though it was begun anew
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.persistence.diffbase_storage = StatusAsMemory()
    settings.persistence.progress_storage = NoProgress()
    settings.networking.error_backoffs = EndlessWaits()
    settings.networking.request_timeout = _REQUEST_SECONDS


class ReservationStream:
    """Learns from kopf's requests when it has listed Reservations and hears what changes.

    kopf calls no handler at the end of a list, nor for an object that a second list no longer has.
    """

    def __init__(self, on_listed: Callable[[], None]) -> None:
        self._on_listed = on_listed
        self.reset()

    def reset(self) -> None:
        """Begin anew with a new run of kopf, which starts the program first and lists then."""
        self._is_open = self._has_listed = False
        self._under_way = 0
        self._last_request = math.inf

    def expect_requests(self) -> None:
        """Count from now on for how long kopf is idle."""
        self._last_request = time.monotonic()

    def idle_seconds(self) -> float:
        """Return for how long kopf neither watches Reservations nor asks for anything."""
        return 0.0 if self._is_open or self._under_way else max(0.0, time.monotonic() - self._last_request)

    def build_trace(self) -> aiohttp.TraceConfig:
        """Return what has a session of kopf report its requests here."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._note_start)
        trace.on_request_end.append(self._note_answer)
        trace.on_request_exception.append(self._note_failure)
        return trace

    async def _note_start(self, *_: object) -> None:
        self._under_way += 1

    async def _note_failure(self, *_: object) -> None:
        self._note_end()

    async def _note_answer(self, _session: object, _context: object, params: aiohttp.TraceRequestEndParams) -> None:
        """Call `on_listed` when a watch begins after a list: kopf has passed on all of the list by then."""
        self._note_end()
        if not params.url.path.endswith(RESERVATIONS.path()) or params.response.status != _HTTP_OK:
            return
        if "watch" not in params.url.query:
            self._has_listed = True
        elif self._has_listed:
            self._has_listed, self._is_open = False, True
            self._on_listed()

    def _note_end(self) -> None:
        self._under_way = max(0, self._under_way - 1)
        self._last_request = time.monotonic()


class _ReadableLines:
    """The content of a watch's answer, in which stand-ins replace Reservations that are nested too deeply."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever aiohttp asks of a content
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield whole lines, as they come."""
        pending = b""
        async for chunk in self._content.iter_chunked(size):
            *lines, pending = (pending + chunk).split(b"\n")
            if lines:
                yield b"".join(readable_line(line) + b"\n" for line in lines)
        if pending:
            yield pending


class ReadableAnswer(aiohttp.ClientResponse):
    """Has kopf read each Reservation that anybody can create.

    Python's JSON decoder fails at about 1,000 nested levels and the API server stores 10,000: without this a single
    Reservation would keep kopf from hearing all others.
    """

    async def start(self, connection: aiohttp.connector.Connection) -> "ReadableAnswer":
        """Read the head of the answer."""
        await super().start(connection)
        if self._is_of_reservations and "watch" in self.url.query:
            self.content = _ReadableLines(self.content)  # type: ignore[assignment]  # it stands in for one
        return self

    async def json(self, **rest: Any) -> Any:  # noqa: ANN401 - kopf's own calls and answers
        """Return the document, a page of Reservations with stand-ins for those that are nested too deeply."""
        if not self._is_of_reservations:
            return await super().json(**rest)
        page = decode_page(_LIST, await self.read(), dict)
        metadata = {"resourceVersion": page.metadata.resource_version, "continue": page.metadata.continue_token}
        head = {"apiVersion": RESERVATIONS.api_version, "kind": f"{RESERVATIONS.kind}List"}
        return {**head, "metadata": metadata, "items": list(page.items or ())}

    @property
    def _is_of_reservations(self) -> bool:
        return self.status == _HTTP_OK and self.url.path.endswith(RESERVATIONS.path())


def readable_line(line: bytes) -> bytes:
    """Return a line of a watch, with a stand-in where its Reservation is nested too deeply."""
    if line.count(b"{") + line.count(b"[") <= MAX_DEPTH:
        return line
    event = decode_event(_WATCH, line)
    body = decode_item(_WATCH, event.object, dict)
    if "unreadable" not in body.get("metadata", {}):
        return line
    return msgspec.json.encode({"type": event.type, "object": body})


class Connection:
    """Logs kopf in, with a session whose requests the stream hears of."""

    def __init__(self, read_credentials: Callable[[], kopf.ConnectionInfo], stream: ReservationStream) -> None:
        self._read_credentials = read_credentials
        self._stream = stream
        self._last_login = -_LOGIN_SECONDS

    async def log_in(self) -> kopf.AiohttpSession:
        """Return a session with the credentials as they are now."""
        await asyncio.sleep(max(0.0, self._last_login + _LOGIN_SECONDS - time.monotonic()))
        self._last_login = time.monotonic()
        info = await asyncio.to_thread(self._read_credentials)
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=info.as_ssl_context()),
            headers=info.as_http_headers(),
            response_class=ReadableAnswer,
            trace_configs=[self._stream.build_trace()],
        )
        return kopf.AiohttpSession(server=info.server, aiohttp_session=session)


Declare = Callable[[kopf.OperatorRegistry, asyncio.Event], None]


async def run_kopf(program: App, stream: ReservationStream, declare: Declare) -> None:
    """Run kopf until it is asked to stop, then stop the program; raises why the program could not start.

    Some errors that pass by themselves end kopf: an error event other than 410, a 404 while the API server begins to
    serve the kind, credentials that were refused twice. The webhook must go on answering meanwhile.
    """
    stop_flag = asyncio.Event()
    try:
        for wait_seconds in EndlessWaits():
            if not await _run_once(program, stream, stop_flag, declare):
                return
            await _wait(stop_flag, wait_seconds)
    finally:
        await program.stop()


async def _run_once(program: App, stream: ReservationStream, stop_flag: asyncio.Event, declare: Declare) -> bool:
    """Run kopf once; return whether it ended though nothing had asked it to."""
    stream.reset()
    registry = kopf.OperatorRegistry()
    declare(registry, stop_flag)
    ends = asyncio.Event()
    guards = [asyncio.create_task(_end_with(stop_flag, ends)), asyncio.create_task(_end_idle(stream, ends))]
    try:
        await kopf.operator(registry=registry, clusterwide=True, standalone=True, stop_flag=ends)
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


async def _end_idle(stream: ReservationStream, ends: asyncio.Event) -> None:
    """End a run of kopf that has nothing to watch."""
    while not ends.is_set() and stream.idle_seconds() < _IDLE_SECONDS:
        await _wait(ends, _IDLE_CHECK_SECONDS)
    ends.set()


async def _wait(flag: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(flag.wait(), seconds)
    except TimeoutError:
        return
