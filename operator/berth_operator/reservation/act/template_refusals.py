"""Events on pods that match an owner but no template, so that users see why a place stays free.

The webhook reports pods that it did not gate; they have no uid yet, and mostly no name, so a search finds them once
they are stored. `PendingOwners` reports the waiting ones. Each pod gets one event per Reservation, and a namespace a
few per minute: a user who may create pods cannot have events written at will.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

import structlog

from berth_core import (
    RESERVATION_LABEL,
    BerthError,
    InputError,
    ObjectReference,
    Pod,
    Reservation,
    SlotState,
    parse_timestamp,
)
from berth_kube import PODS
from berth_operator import telemetry
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder, RecordedEvent
from berth_operator.reservation.conditions import OWNER_DIFFERS, TEMPLATE_DIFFERS
from berth_operator.reservation.fitting import why_not_fitting, why_not_owner

_LOG = structlog.get_logger(__name__)

_SEARCH_DELAYS_SECONDS: Final = (2.0, 10.0)
"""Delays until the searches for an owner's pods: a pod is stored a moment after its review."""
_TICK_SECONDS: Final = 0.5
_MAX_OWNERS: Final = 200
"""Owners with a search under way; pods of other owners get no event."""
_MAX_COMPARED: Final = 1000
"""Pairs of pod and Reservation that one search compares."""
_MAX_RECORDED: Final = 10_000
_MAX_EVENTS_PER_MINUTE: Final = 10
"""Events in a namespace."""
_MINUTE_SECONDS: Final = 60.0
_YOUNG: Final = timedelta(minutes=2)
_MAX_LABELS: Final = 3


class _Owner(NamedTuple):
    """The pods to search for: a namespace, and a label selector that is "" for all its pods."""

    namespace: str
    selector: str


class TemplateRefusals:
    """Records on pods why no held place fits them; thread-safe."""

    def __init__(self, context: Context, recorder: EventRecorder) -> None:
        self._client = context.client
        self._cache = context.cache
        self._recorder = recorder
        self._clock = context.clock
        self._lock = threading.Lock()
        self._due: dict[_Owner, list[float]] = {}
        self._recorded: OrderedDict[tuple[str, str], None] = OrderedDict()
        """Uids of pods and Reservations, oldest first."""
        self._recorded_at: dict[str, deque[float]] = {}
        """Times of the events in each namespace within the last minute."""

    def schedule(self, pod: Pod) -> None:
        """Schedule a search for a pod that was not gated. This is cheap enough to be done in each review."""
        # A pod under review has no name yet if its controller uses generateName, so it is found again by its labels.
        labels = sorted(pod.metadata.labels.items())[:_MAX_LABELS]
        owner = _Owner(pod.metadata.namespace, ",".join(f"{key}={value}" for key, value in labels))
        with self._lock:
            if owner not in self._due and len(self._due) < _MAX_OWNERS:
                now = self._clock.monotonic()
                self._due[owner] = [now + delay_seconds for delay_seconds in _SEARCH_DELAYS_SECONDS]

    def run(self, stop: threading.Event) -> None:
        """Search for scheduled pods until stopped."""
        while not stop.wait(_TICK_SECONDS):
            self.search()

    def search(self) -> None:
        """Search for the pods of one owner that is due."""
        owner = self._next_due()
        if owner is None:
            return
        oldest = self._clock.now() - _YOUNG
        try:
            pods = self._client.list(PODS, namespace=owner.namespace, label_selector=owner.selector, type=Pod).items
            self.report([pod for pod in pods if _was_created_after(pod, oldest)])
        except BerthError as error:
            _LOG.warning(
                telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "refused pods", telemetry.KEY_ERROR: str(error)}
            )

    def report(self, pods: Iterable[Pod]) -> None:
        """Record an event on each owner pod that differs from the template."""
        pairs = (
            (reservation, pod) for pod in pods if _is_concerned(pod) for reservation in self._cache.candidates(pod)
        )
        for reservation, pod in islice(pairs, _MAX_COMPARED):
            with suppress(InputError):  # an unreadable quantity or time: nothing certain to report
                self._compare(reservation, pod)

    def _next_due(self) -> _Owner | None:
        now = self._clock.monotonic()
        with self._lock:
            owner = next((candidate for candidate, times in self._due.items() if times[0] <= now), None)
            if owner is not None:
                times = self._due.pop(owner)[1:]
                if times:
                    self._due[owner] = times
            return owner

    def _compare(self, reservation: Reservation, pod: Pod) -> None:
        created_at = parse_timestamp(reservation.metadata.creation_timestamp or "")
        # A pod that was bound before the Reservation existed was never meant for it.
        if not pod.spec.node_name or _was_created_after(pod, created_at):
            pod_and_reservation = (pod.metadata.uid, reservation.metadata.uid)
            with self._lock:
                is_recorded = pod_and_reservation in self._recorded
            why = None if is_recorded else self._why_refused(reservation, pod)
            if why is not None and self._has_budget(pod.metadata.namespace):
                self._record(reservation, pod, *why)

    def _why_refused(self, reservation: Reservation, pod: Pod) -> tuple[str, str] | None:
        """Return the reason and message of the event, None for no event."""
        slots = self._cache.published_status(reservation).slots
        held = tuple(slot for slot in slots if slot.state is SlotState.HELD)
        name = reservation.metadata.name
        if why := why_not_fitting(reservation, pod, held):
            text = f"the Reservation {name} is for this pod, but its template does not fit (SpecNotMatch): {why}"
            return TEMPLATE_DIFFERS, text
        if why := why_not_owner(reservation, pod, held):
            text = f"the Reservation {name} names an earlier object of the same name as owner (OwnerNotMatch): {why}"
            return OWNER_DIFFERS, text
        return None

    def _has_budget(self, namespace: str) -> bool:
        """Count an event of a namespace; return False if those of the minute are used up."""
        now = self._clock.monotonic()
        with self._lock:
            self._recorded_at = {
                recent: times for recent, times in self._recorded_at.items() if now - times[-1] < _MINUTE_SECONDS
            }
            times = self._recorded_at.setdefault(namespace, deque(maxlen=_MAX_EVENTS_PER_MINUTE))
            # Events are objects in etcd: a CronJob with a template that never fits would otherwise write one per pod
            # for ever.
            if len(times) == _MAX_EVENTS_PER_MINUTE and now - times[0] < _MINUTE_SECONDS:
                return False
            times.append(now)
            return True

    def _record(self, reservation: Reservation, pod: Pod, reason: str, message: str) -> None:
        meta = pod.metadata
        with self._lock:
            self._recorded[meta.uid, reservation.metadata.uid] = None
            while len(self._recorded) > _MAX_RECORDED:
                self._recorded.popitem(last=False)
        regarding = ObjectReference.of("v1", "Pod", meta)
        self._recorder.record(RecordedEvent(regarding, "Warning", reason, message))


def _is_concerned(pod: Pod) -> bool:
    meta = pod.metadata
    return not (pod.is_terminating or pod.is_terminal or meta.unreadable or RESERVATION_LABEL in meta.labels)


def _was_created_after(pod: Pod, moment: datetime) -> bool:
    created = pod.metadata.creation_timestamp
    return created is not None and parse_timestamp(created) >= moment
