"""Owns following plans: one watch for each plan that somebody reads, shared by its readers, with its last events.

It does not own what the events are (`plan_events`) nor who reads them. A watch runs in a thread; everything else is
for one event loop.
"""

import asyncio
import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from berth_core.errors import BerthError
from berth_core.migration_plans import MigrationPlan
from berth_descheduler import log_keys
from berth_descheduler.api.plan_events import PlanEvent, deletion, events_between, whole_plan
from berth_descheduler.api.settings import RestSettings
from berth_kube.client import KubeClient
from berth_kube.resources import MIGRATION_PLANS
from berth_kube.watching import Bookmark, Changed, Listed, Removed, WatchItem

_LOG = structlog.get_logger(__name__)


class PlanFeed:
    """What is known of one plan, kept up by a watch until it is closed."""

    def __init__(self, client: KubeClient, name: str, events_kept: int) -> None:
        self._client = client
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._stop = threading.Event()
        self._looked = asyncio.Event()
        self._changed: set[asyncio.Event] = set()
        self._events: deque[PlanEvent] = deque(maxlen=events_kept)
        self._told = 0
        self._versions: OrderedDict[str, int] = OrderedDict()
        """The places after versions of the plan, also of those with which nothing was told."""
        self._versions_kept = events_kept
        self.readers = 0
        self.plan: MigrationPlan | None = None
        """As it is; None where there is none, and before `looked`."""
        self.deleted = False
        self.error: BerthError | None = None
        threading.Thread(target=self._follow, name=f"rest plan {name}", daemon=True).start()

    async def looked(self) -> None:
        """Wait until the plan was looked for; raises the `BerthError` that kept it from being found."""
        await self._looked.wait()
        if self.error is not None:
            raise self.error

    @property
    def ended(self) -> bool:
        """Tell whether it is of no use to new readers."""
        return self.deleted or self.error is not None

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come."""
        return self.ended or self.plan is None or self.plan.phase.terminal

    def close(self) -> None:
        """End the watch."""
        self._stop.set()

    def place_after(self, last_id: str) -> int | None:
        """Return the place of the event that follows one, None where it is not known any more."""
        if last_id in self._versions:
            return self._versions[last_id]
        first = self._told - len(self._events)
        found = (first + index + 1 for index, event in enumerate(self._events) if event.id == last_id)
        return next(found, None)

    def events_from(self, place: int | None) -> tuple[list[PlanEvent], int]:
        """Return the events from a place on and the next place; the whole plan where some are not known any more."""
        first = self._told - len(self._events)
        if place is None or place < first:
            return ([whole_plan(self.plan)] if self.plan is not None else []), self._told
        return [self._events[index] for index in range(place - first, len(self._events))], self._told

    @contextmanager
    def reading(self) -> Iterator[asyncio.Event]:
        """Yield an event that is set whenever there is something new."""
        changed = asyncio.Event()
        self._changed.add(changed)
        try:
            yield changed
        finally:
            self._changed.discard(changed)

    def wake(self) -> None:
        """Let all readers look."""
        for changed in self._changed:
            changed.set()

    # --- the watch, in a thread --------------------------------------------------------------------------------------

    def _follow(self) -> None:
        selector = f"metadata.name={self._name}"
        try:
            watch = self._client.watch(MIGRATION_PLANS, stop=self._stop, field_selector=selector, type=MigrationPlan)
            for item in watch:
                self._tell(item)
        except BerthError as error:
            self._tell(error)

    def _tell(self, found: WatchItem[MigrationPlan] | BerthError) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take, found)
        except RuntimeError:  # the loop has ended
            self._stop.set()

    # --- the event loop ----------------------------------------------------------------------------------------------

    def _take(self, found: WatchItem[MigrationPlan] | BerthError) -> None:
        match found:
            case Listed(items=items):
                self._see(items[0] if items else None)
            case Changed(item=plan):
                self._see(plan)
            case Removed():
                self._see(None)
            case Bookmark():
                return
            case BerthError():
                _LOG.warning(log_keys.FEED_FAILED, **{log_keys.KEY_PLAN: self._name, log_keys.KEY_ERROR: str(found)})
                self.error = found
        self._looked.set()
        self.wake()

    def _see(self, plan: MigrationPlan | None) -> None:
        before = self.plan
        if before is None:
            # One that is made after it was looked for in vain is for those who ask anew.
            self.plan = None if self._looked.is_set() else plan
        elif plan is None or plan.metadata.uid != before.metadata.uid:
            if not self.deleted:
                self._add(deletion(before))
            self.deleted = True
        elif not self.deleted:
            self._add(*events_between(before, plan))
            self.plan = plan
        self._note_version()

    def _add(self, *events: PlanEvent) -> None:
        self._events.extend(events)
        self._told += len(events)

    def _note_version(self) -> None:
        if self.plan is not None and not self.deleted:
            self._versions[self.plan.metadata.resource_version] = self._told
            if len(self._versions) > self._versions_kept:
                self._versions.popitem(last=False)


class PlanFeeds:
    """The feeds of all plans that are read; one that is left by its last reader is kept a while for the next."""

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
        """Yield the feed of a plan, which may be found not to exist."""
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
        """Let all readers end, and end all watches."""
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
        """Forget a feed; readers that are left go on reading it, new ones get a new one."""
        if self._feeds.get(name) is feed:
            del self._feeds[name]
        if not feed.readers:
            feed.close()
