"""Feeds of the events of plans: one watch per plan, in a thread, shared by its readers in one event loop."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from berth_core import BerthError, MigrationPlan
from berth_descheduler import telemetry
from berth_descheduler.api.plan_events import PlanEvent, deletion, events_between, whole_plan
from berth_descheduler.api.settings import RestSettings
from berth_kube import MIGRATION_PLANS, Bookmark, Changed, Informer, KubeClient, Listed, Removed, WatchItem

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
        # Custom resources can be selected by their names without any `selectableFields` of the CRD (KEP-4358).
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

    def _post(self, item: WatchItem[MigrationPlan] | BerthError) -> None:
        """Hand an item of the watch, which runs in a thread, to the event loop."""
        try:
            self._loop.call_soon_threadsafe(self._handle, item)
        except RuntimeError:  # the loop has ended
            self._informer.stop()

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
        # A name may be given again between two looks; a plan of another uid is no continuation of this one.
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
            # A reader that reconnects meanwhile still finds the events that it missed.
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
