"""Opens and closes ReservationWindows, with one Reservation for each occurrence.

`decide` decides when. A Reservation's name follows from the window and the start, so opening an occurrence again
creates nothing. Nodes are chosen from one list of all pods, which windows that open together share.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final

import structlog

from berth_core import (
    WINDOW_API_VERSION,
    WINDOW_KIND,
    WINDOW_MOVES,
    Movers,
    ObjectReference,
    Occurrence,
    PermanentError,
    Reservation,
    ReservationWindow,
    ReservationWindowStatus,
    RetryableError,
    WindowState,
    count,
    format_timestamp,
    policies_that_move,
)
from berth_kube import DESCHEDULER_POLICIES, RESERVATION_WINDOWS, EventType, Listed, NotFoundError
from berth_operator.capabilities.windows import logs, metrics
from berth_operator.capabilities.windows.decide import WindowDecision, decide_window
from berth_operator.capabilities.windows.manifests import build_window_reservation, pod_spec_of
from berth_operator.capabilities.windows.node_chooser import WindowNodeChooser
from berth_operator.capabilities.windows.pace import OpeningPace
from berth_operator.capabilities.windows.status import waits_for_capacity, waits_for_moves
from berth_operator.capabilities.windows.store import WINDOW, WindowStore
from berth_operator.reservation.act.context import (
    create_reservation,
    delete_reservation,
    require_lease,
    set_expiry,
    write_status,
)
from berth_operator.reservation.act.events import RecordedEvent
from berth_operator.runtime.capability import Capability, Kernel
from berth_operator.runtime.workqueue import Key

OPENED: Final = "WindowReserves"
"""The event on a window whose occurrence reserves from now on."""
CLOSED: Final = "WindowClosed"
"""Reason of the event on a window whose occurrence was ended early, as it was suspended or left the schedule."""
MISSED: Final = "WindowMissed"
"""The event on a window with an occurrence that nothing opened in time."""
LEFT_OUT: Final = "WindowLeftOut"
"""The event on a window with an occurrence that does not open because too many others are open."""

_POLICIES_SECONDS: Final = 5.0
"""How long a list of the policies serves the windows that wait for moves."""
_WITHOUT_NODES_SECONDS: Final = 10.0
"""Between two looks for a node that a window may use."""

_LOG = structlog.get_logger(__name__)


@contextmanager
def _collecting(refusals: list[PermanentError]) -> Iterator[None]:
    try:
        yield
    except PermanentError as refusal:
        refusals.append(refusal)


class Windows(Capability):
    """Carries out the decisions on windows, and writes their statuses."""

    kinds = frozenset({WINDOW})

    def __init__(self, kernel: Kernel) -> None:
        context = kernel.context
        self._client = context.client
        self._cache = context.cache
        self._clock = context.clock
        self._recorder = kernel.recorder
        self._leads = kernel.leads
        self._limits = context.settings.limits
        self._enqueue = kernel.enqueue
        self.store = WindowStore(context.cache, lambda key: kernel.enqueue(key, 0.0))
        self._listing = kernel.listing(RESERVATION_WINDOWS, self.refresh)
        self._nodes = WindowNodeChooser(context)
        self._pace = OpeningPace(context.clock)
        self._policies: Sequence[Mapping[str, Any]] = ()
        self._policies_listed_at = -_POLICIES_SECONDS - 1
        self._idle_slots: Mapping[str, int] = {}

    def listen(self) -> None:
        self._listing.listen()

    def resync(self, is_due: Callable[[str], bool]) -> None:
        for window in self.store.all():
            awaits_capacity = any(map(waits_for_capacity, self.store.reservations_of(window.metadata.uid)))
            if awaits_capacity or is_due(window.metadata.uid):
                self._enqueue(Key(WINDOW, window.metadata.uid), 0.0)

    def stop_term(self) -> None:
        self._listing.stop()

    def refresh(self) -> bool:
        """Refresh all windows and their numbers, and return whether there are any; without the CRD there are none."""
        try:
            listing = self._client.list(RESERVATION_WINDOWS)
        except NotFoundError:
            return False
        windows = tuple(ReservationWindow.read(body) for body in listing.items)
        self.store.replace(Listed(windows, listing.resource_version, listing.began))
        states = Counter(window.status.state for window in self.store.all())
        for state in WindowState:
            metrics.WINDOWS.labels(state=state.value).set(states[state.value])
        return bool(windows)

    def reconcile(self, key: Key) -> None:
        """Reconcile a window, and queue it for the time at which it is due again.

        A Reservation that may not be changed keeps no other from being opened; the refusal is raised at the end.
        """
        window = self.store.get(key.name)
        if window is None:
            return
        decision = decision_before = self._decide(window)
        refusals: list[PermanentError] = []
        for reservation in decision.closes:
            with _collecting(refusals):
                self._close(window, reservation)
        for reservation, end in decision.retimed:
            with _collecting(refusals):
                self._retime(reservation, end)
        waits_seconds = [self._open(window, occurrence) for occurrence in decision.opens]
        is_without_nodes, pace_seconds = None in waits_seconds, max(filter(None, waits_seconds), default=0.0)
        if decision.closes or decision.retimed or decision.opens:
            over_pace = self._why_over_pace(window) if pace_seconds else ""
            decision = self._decide(window, without_nodes=is_without_nodes, over_pace=over_pace)
        self._write_status(window, decision.status)
        self._report(window, decision_before)
        if decision.wake_seconds is not None:
            without_nodes_seconds = _WITHOUT_NODES_SECONDS if is_without_nodes else None
            wakes_seconds = (decision.wake_seconds, without_nodes_seconds, pace_seconds or None)
            self._enqueue(key, min(seconds for seconds in wakes_seconds if seconds is not None))
        if refusals:
            raise refusals[0]

    def _decide(self, window: ReservationWindow, *, without_nodes: bool = False, over_pace: str = "") -> WindowDecision:
        reservations = self.store.reservations_of(window.metadata.uid)
        movers = self._movers() if any(map(waits_for_moves, reservations)) else Movers()
        waiting_uids = [reservation.metadata.uid for reservation in reservations if waits_for_capacity(reservation)]
        idle_slots = self._count_idle(waiting_uids) if waiting_uids else {}
        return decide_window(
            window,
            reservations,
            self._clock.now(),
            without_nodes=without_nodes,
            over_pace=over_pace,
            movers=movers,
            idle_slots=idle_slots,
            over_limit=self._why_over_limit(window),
        )

    def _count_idle(self, uids: Collection[str]) -> Mapping[str, int]:
        """Return by uid how many slots of these Reservations are idle at their start."""
        try:
            self._idle_slots = self._nodes.count_idle()
        except RetryableError:
            # The last count serves, if it has them all, so that windows close in time.
            if not self._idle_slots.keys() >= set(uids):
                raise
        return self._idle_slots

    def _why_over_limit(self, window: ReservationWindow) -> str:
        """Return that as many windows as the namespace may have are older than this one, "" if they are fewer."""
        namespace, limit = window.metadata.namespace, self._limits.of(window.metadata.namespace).windows
        if limit is None:
            return ""
        age = window.metadata.age_order
        older = sum(
            other.metadata.namespace == namespace
            and other.metadata.age_order < age
            and not (other.spec.suspend or other.metadata.deletion_timestamp)
            for other in self.store.all()
        )
        if older < limit:
            return ""
        return (
            f"the namespace {namespace} may have {limit} windows that open, and older ones are as many (limit windows)"
        )

    def _why_over_pace(self, window: ReservationWindow) -> str:
        namespace = window.metadata.namespace
        limit = self._limits.of(namespace).begun_per_minute
        return (
            f"the windows of the namespace {namespace} may begin {limit} Reservations a minute, and have begun as many "
            "(limit begunPerMinute)"
        )

    def _movers(self) -> Movers:
        """Return the policies by which a descheduler moves pods for windows, as they were a moment ago."""
        if self._clock.monotonic() - self._policies_listed_at > _POLICIES_SECONDS:
            try:
                self._policies = self._client.list(DESCHEDULER_POLICIES).items
            except NotFoundError:
                self._policies = ()
            self._policies_listed_at = self._clock.monotonic()
        return policies_that_move(self._policies, WINDOW_MOVES, self._clock.now())

    def _open(self, window: ReservationWindow, times: Occurrence) -> float | None:
        """Create the Reservation of an occurrence; return 0.

        If the namespace's limit delays it, return the seconds until it may begin; if no node may be used, None.
        """
        # Read anew before it creates anything: the store may be seconds old, and a Reservation for a window that was
        # just switched off would hold its places until it ends.
        raw = self._read_current(window)
        if raw is None:
            return 0.0
        template = raw["spec"].get("template")
        # Before the pace is asked: an occurrence that has no node must not use up the minute's openings of the others.
        nodes = self._nodes.choose(window, pod_spec_of(window), times)
        if not nodes:
            return None
        namespace = window.metadata.namespace
        if wait_seconds := self._pace.begin(namespace, self._limits.of(namespace).begun_per_minute):
            return wait_seconds
        require_lease(self._leads)
        body = build_window_reservation(window, template, times, nodes)
        if create_reservation(self._client, self._cache, body):
            late_seconds = (self._clock.now() - times.reserve_at).total_seconds()
            metrics.LATE_SECONDS.observe(max(0.0, late_seconds))
            metrics.OCCURRENCES.labels(result="opened").inc()
            self._log(logs.OPENED, window, times.start)
            slots = window.spec.pod_num_to_reserve
            reservation_name = body["metadata"]["name"]
            text = f"holds {count(slots, 'place')} for the window from {_span(times)}: Reservation {reservation_name}"
            self._record(window, "Normal", OPENED, text)
        return 0.0

    def _read_current(self, window: ReservationWindow) -> dict[str, Any] | None:
        """Return the window as it is stored, None if it is gone.

        Raises `RetryableError` if it is not the one that was decided on.
        """
        meta = window.metadata
        try:
            raw = self._client.get(RESERVATION_WINDOWS, meta.name, namespace=meta.namespace)
        except NotFoundError:
            self.store.remove(meta.uid)
            return None
        stored = ReservationWindow.read(raw)
        # The generation changes with the spec alone, so that a status that was just written is no reason to decide
        # again.
        if (stored.metadata.uid, stored.metadata.generation) != (meta.uid, meta.generation):
            self.store.put(stored)
            raise RetryableError(f"the window {window.key} has changed meanwhile")
        return raw

    def _close(self, window: ReservationWindow, reservation: Reservation) -> None:
        require_lease(self._leads)
        if delete_reservation(self._client, self._cache, reservation):
            self._log(logs.CLOSED, window, None)
            why = "it is switched off" if window.spec.suspend else "the schedule no longer has this time"
            self._record(window, "Normal", CLOSED, f"Reservation {reservation.metadata.name} was deleted: {why}")

    def _retime(self, reservation: Reservation, end: datetime) -> None:
        require_lease(self._leads)
        set_expiry(self._client, self._cache, reservation, format_timestamp(end))

    def _write_status(self, window: ReservationWindow, status: ReservationWindowStatus) -> None:
        """Write the status if it differs."""
        # A write wakes every watch of the kind, and this one itself: equal statuses must not be written again.
        if status == window.status:
            return
        require_lease(self._leads)
        try:
            body = write_status(self._client, RESERVATION_WINDOWS, window.metadata, status)
        except NotFoundError:
            self.store.remove(window.metadata.uid)
        else:
            self.store.put(ReservationWindow.read(body))

    def _report(self, window: ReservationWindow, decision: WindowDecision) -> None:
        """Record what did not open, once: `status.lastStart` is past it by now."""
        for occurrence in decision.missed:
            metrics.OCCURRENCES.labels(result="missed").inc()
            self._log(logs.MISSED, window, occurrence.start)
            self._record(window, "Warning", MISSED, f"nothing opened the window from {_span(occurrence)} in time")
        for occurrence in decision.left_out:
            metrics.OCCURRENCES.labels(result="left out").inc()
            text = f"the window from {_span(occurrence)} does not open: too many earlier ones still are"
            self._record(window, "Warning", LEFT_OUT, text)

    def _record(self, window: ReservationWindow, type_: EventType, reason: str, message: str) -> None:
        regarding = ObjectReference.of(WINDOW_API_VERSION, WINDOW_KIND, window.metadata)
        self._recorder.record(RecordedEvent(regarding, type_, reason, message))

    def _log(self, event: str, window: ReservationWindow, start: datetime | None) -> None:
        start_field = {} if start is None else {logs.KEY_START: format_timestamp(start)}
        _LOG.info(event, **{logs.KEY_WINDOW: window.key, **start_field})


def _span(times: Occurrence) -> str:
    return f"{format_timestamp(times.start)} to {format_timestamp(times.end)}"
