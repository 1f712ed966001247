"""Streams of events about plans: one watch per plan, shared by its readers.

A watch runs in a thread; everything else belongs to one event loop.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Final

import msgspec
import structlog
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from berth_core import BerthError, Clock, MigrationPlan
from berth_descheduler import telemetry
from berth_descheduler.api.problems import ProblemError, from_error
from berth_descheduler.api.schemas import EventKind, describe_change
from berth_descheduler.api.settings import RestSettings, RestTimes
from berth_descheduler.report import describe_moves, describe_stored_plan
from berth_kube import MIGRATION_PLANS, Bookmark, Changed, Informer, KubeClient, Listed, Removed, WatchItem

# --- plan events -----------------------------------------------------------------------------------------------------
# Events between two states of a plan, and their ids.
#
# An id is the plan's resourceVersion, which is the same on every replica of the service. Of several events of one
# change, the last has the plain version and the others a number after it: the plain version means that nothing is
# missing up to here.


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One event."""

    kind: EventKind
    id: str
    """"" for an event that does not mark a position."""
    data: bytes

    def encode(self) -> bytes:
        """Return the event in the server-sent format; our JSON has no line ends."""
        id_line = f"id: {self.id}\n" if self.id else ""
        return f"{id_line}event: {self.kind}\ndata: ".encode() + self.data + b"\n\n"


def whole_plan(plan: MigrationPlan) -> PlanEvent:
    return PlanEvent(EventKind.PLAN, plan.metadata.resource_version, msgspec.json.encode(describe_stored_plan(plan)))


def deletion(plan: MigrationPlan) -> PlanEvent:
    data = msgspec.json.encode({"name": plan.metadata.name})
    return PlanEvent(EventKind.DELETED, f"{plan.metadata.resource_version}-deleted", data)


def events_between(before: MigrationPlan, after: MigrationPlan) -> tuple[PlanEvent, ...]:
    """Return the events of what changed between two states: moves first, then the plan."""
    if before.spec.moves != after.spec.moves:
        return (whole_plan(after),)
    return tuple(_numbered(list(_changes(before, after)), after.metadata.resource_version))


def _changes(before: MigrationPlan, after: MigrationPlan) -> Iterator[tuple[EventKind, bytes]]:
    if before.status.moves != after.status.moves:
        for move_before, move_after in zip(describe_moves(before), describe_moves(after), strict=True):
            if move_before != move_after:
                yield EventKind.MOVE, msgspec.json.encode(move_after)
    change = describe_change(after)
    if describe_change(before) != change:
        yield EventKind.PHASE, msgspec.json.encode(change)


def _numbered(changes: Sequence[tuple[EventKind, bytes]], version: str) -> Iterator[PlanEvent]:
    for number, (kind, data) in enumerate(changes, start=1):
        yield PlanEvent(kind, version if number == len(changes) else f"{version}.{number}", data)


_LOG = structlog.get_logger(__name__)


class PlanFeed:
    """One plan and its last events, kept current by a watch."""

    def __init__(self, client: KubeClient, name: str, events_kept: int) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._first_look = asyncio.Event()
        self._changed: set[asyncio.Event] = set()
        self._events: deque[PlanEvent] = deque(maxlen=events_kept)
        self._event_count = 0
        self._versions: OrderedDict[str, int] = OrderedDict()
        """The position after each version of the plan, including versions without an event."""
        self._versions_kept = events_kept
        self.readers = 0
        self.plan: MigrationPlan | None = None
        """None if there is none, and before `first_look`."""
        self.deleted = False
        self.error: BerthError | None = None
        selector = f"metadata.name={name}"
        self._informer: Informer[MigrationPlan] = Informer(
            f"plan-{name}",
            lambda stop: client.watch(MIGRATION_PLANS, stop=stop, field_selector=selector, type=MigrationPlan),
            self._post,
            self._post,
        )
        self._informer.start()

    async def first_look(self) -> None:
        """Wait until the plan has been read; raises the `BerthError` of reading it."""
        await self._first_look.wait()
        if self.error is not None:
            raise self.error

    @property
    def ended(self) -> bool:
        """Return whether new readers need a new feed."""
        return self.deleted or self.error is not None

    @property
    def over(self) -> bool:
        """Return whether there will be no more events."""
        return self.ended or self.plan is None or self.plan.phase.terminal

    def close(self) -> None:
        self._informer.stop()

    def position_after(self, last_id: str) -> int | None:
        """Return the position after an event, None if it is no longer known."""
        if last_id in self._versions:
            return self._versions[last_id]
        first_position = self._event_count - len(self._events)
        positions = (first_position + index + 1 for index, event in enumerate(self._events) if event.id == last_id)
        return next(positions, None)

    def events_from(self, position: int | None) -> tuple[list[PlanEvent], int]:
        """Return the events from a position, or the whole plan, and the next position."""
        first_position = self._event_count - len(self._events)
        if position is None or position < first_position:
            return ([whole_plan(self.plan)] if self.plan is not None else []), self._event_count
        return [self._events[index] for index in range(position - first_position, len(self._events))], self._event_count

    @contextmanager
    def reading(self) -> Iterator[asyncio.Event]:
        """Yield an `asyncio.Event` that is set at every change."""
        plan_changed = asyncio.Event()
        self._changed.add(plan_changed)
        try:
            yield plan_changed
        finally:
            self._changed.discard(plan_changed)

    def wake(self) -> None:
        """Wake all readers."""
        for plan_changed in self._changed:
            plan_changed.set()

    # --- the watch, in a thread --------------------------------------------------------------------------------------

    def _post(self, item: WatchItem[MigrationPlan] | BerthError) -> None:
        try:
            self._loop.call_soon_threadsafe(self._handle, item)
        except RuntimeError:  # the loop has ended
            self._informer.stop()

    # --- the event loop ----------------------------------------------------------------------------------------------

    def _handle(self, item: WatchItem[MigrationPlan] | BerthError) -> None:
        match item:
            case Listed(items=items):
                self._update(items[0] if items else None)
            case Changed(item=plan):
                self._update(plan)
            case Removed():
                self._update(None)
            case Bookmark():
                return
            case BerthError():
                _LOG.warning(telemetry.FEED_FAILED, **{telemetry.KEY_PLAN: self._name, telemetry.KEY_ERROR: str(item)})
                self.error = item
        self._first_look.set()
        self.wake()

    def _update(self, plan: MigrationPlan | None) -> None:
        plan_before = self.plan
        if plan_before is None:
            # A plan that is created after a reader found none is for later readers.
            self.plan = None if self._first_look.is_set() else plan
        elif plan is None or plan.metadata.uid != plan_before.metadata.uid:
            if not self.deleted:
                self._add(deletion(plan_before))
            self.deleted = True
        elif not self.deleted:
            self._add(*events_between(plan_before, plan))
            self.plan = plan
        self._record_version()

    def _add(self, *events: PlanEvent) -> None:
        self._events.extend(events)
        self._event_count += len(events)

    def _record_version(self) -> None:
        if self.plan is not None and not self.deleted:
            self._versions[self.plan.metadata.resource_version] = self._event_count
            if len(self._versions) > self._versions_kept:
                self._versions.popitem(last=False)


class PlanFeeds:
    """The feeds of all followed plans; each lingers after its last reader."""

    def __init__(self, client: KubeClient, settings: RestSettings) -> None:
        self._client = client
        self._events_kept = settings.limits.events_kept
        self._linger_seconds = settings.times.linger_seconds
        self._feeds: dict[str, PlanFeed] = {}
        self.closing = False

    def __len__(self) -> int:
        return len(self._feeds)

    @contextmanager
    def following(self, name: str) -> Iterator[PlanFeed]:
        """Yield the feed of a plan, which may not exist."""
        feed = self._feeds.get(name)
        if feed is None or feed.ended:
            feed = self._feeds[name] = PlanFeed(self._client, name, self._events_kept)
        feed.readers += 1
        try:
            yield feed
        finally:
            feed.readers -= 1
            self._leave(name, feed)

    def close(self) -> None:
        """End all readers and watches."""
        self.closing = True
        for feed in self._feeds.values():
            feed.close()
            feed.wake()
        self._feeds.clear()

    def _leave(self, name: str, feed: PlanFeed) -> None:
        if feed.ended or feed.plan is None:
            self._drop(name, feed)
        elif not feed.readers and not self.closing:
            asyncio.get_running_loop().call_later(self._linger_seconds, self._drop_if_unread, name, feed)

    def _drop_if_unread(self, name: str, feed: PlanFeed) -> None:
        if not feed.readers:
            self._drop(name, feed)

    def _drop(self, name: str, feed: PlanFeed) -> None:
        """Drop a feed; its readers keep it, new readers get a new one."""
        if self._feeds.get(name) is feed:
            del self._feeds[name]
        if not feed.readers:
            feed.close()


# --- event streams ---------------------------------------------------------------------------------------------------
# A stream of server-sent events about one plan: what is sent when, and when it ends.

MEDIA_TYPE: Final = "text/event-stream"
_RECONNECT: Final = b"retry: 2000\n\n"
_HEARTBEAT: Final = b": the plan goes on\n\n"
_SERVICE_ENDS: Final = b": the service ends, ask again\n\n"


@dataclass(frozen=True, slots=True)
class StreamContext:
    """What a stream uses while it is open."""

    feeds: PlanFeeds
    clock: Clock
    times: RestTimes
    still_allowed: Callable[[], Awaitable[None]]
    """Raises `ProblemError` once the reader has lost the right."""


async def stream_events(feed: PlanFeed, last_id: str, context: StreamContext) -> AsyncGenerator[bytes, None]:
    """Yield the plan, or what followed `last_id`, then every change."""
    clock, times = context.clock, context.times
    ends_at = clock.monotonic() + times.stream_seconds
    ask_at = clock.monotonic() + times.heartbeat_seconds
    position = feed.position_after(last_id) if last_id else None
    with feed.reading() as plan_changed:
        yield _RECONNECT
        while True:
            plan_changed.clear()
            is_over = feed.over
            events, position = feed.events_from(position)
            for event in events:
                yield event.encode()
            if (ending_event := _ending(feed, context.feeds)) is not None:
                yield ending_event
            if is_over or context.feeds.closing or clock.monotonic() >= ends_at:
                return
            if clock.monotonic() >= ask_at:
                if (refusal := await _refusal(context)) is not None:
                    yield refusal
                    return
                ask_at = clock.monotonic() + times.heartbeat_seconds
                yield _HEARTBEAT
            await _wait_for(plan_changed, min(ask_at, ends_at) - clock.monotonic())


def _ending(feed: PlanFeed, feeds: PlanFeeds) -> bytes | None:
    """Return the last message of a stream that ends before its plan."""
    if feed.error is not None:
        return _problem_event(from_error(feed.error))
    return _SERVICE_ENDS if feeds.closing else None


async def _refusal(context: StreamContext) -> bytes | None:
    """Return the last message to a reader who has lost the right."""
    try:
        await context.still_allowed()
    except ProblemError as error:
        return _problem_event(error)
    return None


async def _wait_for(changed: asyncio.Event, seconds: float) -> None:
    """Wait for a change, at most for these seconds."""
    try:
        await asyncio.wait_for(changed.wait(), max(0.0, seconds))
    except TimeoutError:
        return


def _problem_event(error: ProblemError) -> bytes:
    return PlanEvent(EventKind.PROBLEM, "", error.body()).encode()


class EventStream(Response):
    """Sends chunks until they or the reader end, then calls `at_end`."""

    media_type = MEDIA_TYPE

    def __init__(self, chunks: AsyncGenerator[bytes, None], at_end: Callable[[], None]) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._chunks = chunks
        self._at_end = at_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - the protocol's
        tasks = (asyncio.ensure_future(self._send(send)), asyncio.ensure_future(_disconnected(receive)))
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            sending_result, _ = await asyncio.gather(*tasks, return_exceptions=True)
            self._at_end()
        if isinstance(sending_result, Exception):
            raise sending_result

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with aclosing(self._chunks) as chunks:
            async for chunk in chunks:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
