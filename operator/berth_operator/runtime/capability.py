"""What a capability is, an optional part of the operator, and what it gets from the kernel.

The kernel is everything outside `capabilities`. It knows a capability only through `registry`.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import click
import msgspec
import structlog

from berth_core import BerthError, Clock, ObjectMeta
from berth_kube import Changed, Informer, KubeClient, Listed, Resource, WatchItem
from berth_operator import telemetry
from berth_operator.admission.reviews import Review
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.act.executor import ActionWatcher
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.rules import ReservationRule
from berth_operator.runtime.workqueue import Key

_LIST_SECONDS: Final = 3.0
_EMPTY_SECONDS: Final = 300.0
"""Between two lists of a kind without objects, whose watch may be broken unnoticed."""
_WATCH_AGAIN_SECONDS: Final = 30.0
"""After a watch that could not begin, as without the kind's CRD."""

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """What a capability is built from."""

    context: Context
    recorder: EventRecorder
    priorities: PriorityClasses
    leads: Callable[[], bool]
    """Returns whether this replica may act."""
    enqueue: Callable[[Key, float], None]
    """Queues a key to be reconciled after so many seconds."""
    client_config: Callable[[], Mapping[str, Any]]
    """Returns how API servers reach the webhook, for its registration."""
    listing: Callable[[Resource, Callable[[], bool]], "PolledKind"]
    """Returns a `PolledKind` of a kind, given the function that lists it and returns whether there is any object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandSettings:
    """Options of the command line for a capability, and the function that reads its settings from them."""

    after: str
    """Name of the kernel's option after which the help lists them."""
    options: tuple[click.Option, ...]
    read: Callable[[Mapping[str, Any]], object]
    """Returns the settings for the values of all options; raises `InputError`."""


class Capability:
    """An optional part of the operator, by default one that does nothing.

    One instance lives as long as the process, and leads for a term at a time.
    """

    command: ClassVar[CommandSettings | None] = None
    """Its options of the command line."""

    kinds: ClassVar[frozenset[str]] = frozenset()
    """The kinds of keys that it reconciles: its own, and those of the kernel that concern it as well."""

    def __init__(self, kernel: Kernel) -> None:
        """Build the capability, which must not call the API server yet."""

    @staticmethod
    def build_rule(client: KubeClient) -> ReservationRule | None:
        """Return its rule on Reservations, None for none; called before the capability itself is built."""

    def listen(self) -> None:
        """Learn of new and changed objects; called several times a second while this replica leads.

        Raises nothing: what cannot be read is logged and read later.
        """

    def resync(self, is_due: Callable[[str], bool]) -> None:
        """Queue what must be compared with the API server again, for each uid that `is_due` accepts."""

    def reconcile(self, key: Key) -> None:
        """Reconcile a key of one of its kinds; after an error the key comes again."""

    def action_watcher(self) -> ActionWatcher | None:
        """Return what is called after each action on a Reservation, in the same thread; None for nothing.

        Called once, after all capabilities are built. The watcher must not raise.
        """
        return None

    def reviews(self) -> Mapping[str, Review]:
        """Return functions that answer admission reviews by path below the webhook's own, on all replicas."""
        return {}

    async def start(self) -> None:
        """Start what serves on all replicas; comes before the first list, and an error ends the operator."""

    async def stop(self) -> None:
        """Stop what was started, if anything was."""

    @property
    def answers_always(self) -> bool:
        """Return whether reviews come without a live Reservation, too: a stopping replica answers them for a while."""
        return False

    def tasks(self) -> Mapping[str, Callable[[threading.Event], None]]:
        """Return by name functions that run in threads of their own until the event is set."""
        return {}

    def stop_term(self) -> None:
        """Stop acting and forget all state of the term; called repeatedly while this replica does not lead."""


class _Header(msgspec.Struct, frozen=True):
    """The part of an object that shows that it exists."""

    metadata: ObjectMeta = ObjectMeta()


class PolledKind:
    """Lists a kind every three seconds while there are objects of it, and otherwise as soon as a watch reports one."""

    # These kinds do not come through kopf: if it watches two, and one watch ends while the connection of the other is
    # cut, it waits for ever (as in nolar/kopf#1276).

    def __init__(self, client: KubeClient, clock: Clock, resource: Resource, refresh: Callable[[], bool]) -> None:
        """`refresh` lists the kind, and returns whether there is any object of it."""
        self._client = client
        self._clock = clock
        self._resource = resource
        self._refresh = refresh
        self._informer: Informer[_Header] | None = None
        self._has_changed = threading.Event()
        self._has_objects = True
        self._listed_at: float | None = None

    def listen(self) -> bool:
        """Call `refresh` if it is time; return whether it worked. A failure is logged and tried again."""
        self._begin_watch()
        now = self._clock.monotonic()
        # Most clusters have no object of these kinds, and then a watch alone costs the API server next to nothing.
        pause = _LIST_SECONDS if self._has_objects or self._has_changed.is_set() else _EMPTY_SECONDS
        if self._listed_at is not None and now - self._listed_at < pause:
            return False
        self._listed_at = now
        # Cleared before the list is asked for: an event that comes during the list may be newer than its answer.
        self._has_changed.clear()
        self._has_objects = True  # until the answer is there
        try:
            self._has_objects = self._refresh()
        except BerthError as error:
            _LOG.warning(telemetry.SWEEP_FAILED, **{telemetry.KEY_ERROR: str(error)})
            return False
        return True

    def stop(self) -> None:
        """Stop the watch; the next call of `listen` begins anew."""
        if self._informer is not None:
            self._informer.stop()
        self._informer, self._listed_at = None, None

    def _begin_watch(self) -> None:
        if self._informer is not None:
            return
        self._informer = Informer(
            self._resource.plural,
            lambda stop: self._client.watch(self._resource, type=_Header, stop=stop),
            self._note,
            lambda _: None,  # it is listed all the same, if less often
            retry_seconds=_WATCH_AGAIN_SECONDS,
        )
        self._informer.start()

    def _note(self, event: WatchItem[_Header]) -> None:
        if isinstance(event, Changed) or (isinstance(event, Listed) and event.items):
            self._has_changed.set()
