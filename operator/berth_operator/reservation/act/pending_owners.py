"""Search for pods that waited before their Reservation had a slot, and events on those that no template fits.

Such pods lack our gate. One whose Volcano PodGroup says that it may take a slot of a window is annotated so itself
before it is given one, so that whoever reads the pod knows it.
"""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, NamedTuple

import structlog

from berth_core import (
    RESERVATION_LABEL,
    RESERVEABLE_ANNOTATION,
    BerthError,
    InputError,
    ObjectReference,
    Pod,
    Reservation,
    SlotState,
    as_reserveable,
    is_unschedulable,
    oldest_first,
    parse_timestamp,
    takes_word_of_group,
    volcano_group_of,
)
from berth_kube import PODS, ConflictError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import WITHOUT_NODE, Annotated, Context, EventRecorder, RecordedEvent
from berth_operator.reservation.conditions import TEMPLATE_DIFFERS
from berth_operator.reservation.fitting import choose_task, why_not_fitting
from berth_operator.reservation.store.reservations import OwnerIndex
from berth_operator.runtime.workqueue import WAITING_KEY, Key
from berth_operator.schedulers.volcano import POD_GROUPS

_PAUSE_SECONDS: Final = 1.0
"""Between two searches, however many Reservations request one."""
_MOST_NAMESPACES: Final = 5
_LOG = structlog.get_logger(__name__)

_GROUP_SECONDS: Final = 10.0
"""How long what a pod group was read to say counts."""


class ReserveableGroups:
    """Reads which pod groups say that their pods may take slots of windows; thread-safe.

    A group that does not exist or cannot be read says nothing.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}
        """By namespace and name: until when it counts, in monotonic seconds, and what the group said."""

    def say(self, pod: Pod) -> bool | None:
        """Return whether the pod's group says so; None if it has to be read first."""
        with self._lock:
            known = self._known.get(_group_of(pod))
        return known[1] if known is not None and time.monotonic() < known[0] else None

    def read(self, pod: Pod) -> None:
        """Read the group of a pod."""
        namespace, name = _group_of(pod)
        said = False
        with suppress(BerthError):
            said = _says(self._client.get(POD_GROUPS, name, namespace=namespace, type=Annotated))
        self._learn({(namespace, name): said})

    def read_all(self, pods: Iterable[Pod], places: Iterable[str | None]) -> None:
        """Read the groups of pods that are in these namespaces, None for all."""
        said = dict.fromkeys(map(_group_of, pods), False)
        with suppress(BerthError):
            for place in places:
                listed = self._client.list(POD_GROUPS, namespace=place, type=Annotated).items
                said |= {(one.metadata.namespace, one.metadata.name): True for one in listed if _says(one)}
        self._learn(said)

    def _learn(self, said: Mapping[tuple[str, str], bool]) -> None:
        now = time.monotonic()
        with self._lock:
            recent = {name: known for name, known in self._known.items() if now < known[0]}
            self._known = recent | {name: (now + _GROUP_SECONDS, one) for name, one in said.items()}


def _group_of(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, volcano_group_of(pod)


def _says(group: Annotated) -> bool:
    return group.metadata.annotations.get(RESERVEABLE_ANNOTATION) == "true"


class PendingOwners:
    """Lists pods without a node for the Reservations that requested it.

    One list serves all of them. Thread-safe.
    """

    def __init__(
        self,
        context: Context,
        enqueue: Callable[[Key, float], None],
        consider: Callable[[Iterable[Pod]], None] = lambda _: None,
    ) -> None:
        """`consider` gets the waiting pods without a slot."""
        self._client = context.client
        self._groups = ReserveableGroups(context.client)
        self._consider = consider
        self._cache = context.cache
        self._enqueue = enqueue
        self._lock = threading.Lock()
        self._asking: set[str] = set()
        self._searched_at = 0.0

    def request(self, uid: str) -> None:
        with self._lock:
            self._asking.add(uid)
            pause = self._searched_at + _PAUSE_SECONDS - time.monotonic()
        self._enqueue(WAITING_KEY, max(0.0, pause))

    def request_all(self) -> None:
        """Request a search for every Reservation with a held slot."""
        for reservation in self._cache.reservations():
            if reservation.is_live and any(slot.state is SlotState.HELD for slot in reservation.status.slots):
                self.request(reservation.metadata.uid)

    def search(self) -> None:
        """Run all requested searches.

        Searches with pods that no scheduler has tried are repeated.
        """
        with self._lock:
            asking, self._asking = self._asking, set()
            self._searched_at = time.monotonic()
        known = [r for r in map(self._cache.reservation, asking) if r is not None and r.is_live]
        if not known:
            return
        try:
            waiting = self._list_waiting({reservation.metadata.namespace for reservation in known})
        except BerthError:
            with self._lock:
                self._asking |= asking
            raise
        by_group = self._reserveable_by_group(known, waiting)
        waiting = tuple(by_group.get(pod.metadata.uid, pod) for pod in waiting)
        found, untried = distribute(known, waiting)
        for reservation in known:
            pods = found.get(reservation.metadata.uid, ())
            annotated = (self._annotate(pod) if pod.metadata.uid in by_group else pod for pod in pods)
            self._cache.put_waiting(reservation.metadata.uid, [pod for pod in annotated if pod is not None])
        for uid in untried:
            self.request(uid)
        served = {pod.metadata.uid for pods in found.values() for pod in pods}
        self._consider(pod for pod in waiting if pod.metadata.uid not in served)

    def _reserveable_by_group(self, reservations: Iterable[Reservation], pods: Iterable[Pod]) -> dict[str, Pod]:
        """Return by uid the pods that their group alone lets take slots, as they are with the annotation."""
        homes = {one.metadata.namespace for one in reservations if _is_for_reserveable(one)}
        asking = [pod for pod in pods if pod.metadata.namespace in homes and takes_word_of_group(pod)]
        if any(self._groups.say(pod) is None for pod in asking):
            self._groups.read_all(asking, _places(homes))
        return {pod.metadata.uid: as_reserveable(pod) for pod in asking if self._groups.say(pod)}

    def _annotate(self, pod: Pod) -> Pod | None:
        """Write onto a pod what its group says; return None where that fails.

        Rules of one namespace may forbid it, and the others are searched all the same.
        """
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid, "annotations": {RESERVEABLE_ANNOTATION: "true"}}}
        try:
            return self._client.merge_patch(PODS, meta.name, body, namespace=meta.namespace, type=Pod)
        except (NotFoundError, ConflictError):
            return None
        except BerthError as error:
            told = {telemetry.KEY_ACTION: "annotate", telemetry.KEY_POD: pod.key, telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.ACTION_FAILED, **told)
            return None

    def _list_waiting(self, namespaces: set[str]) -> tuple[Pod, ...]:
        """List the pods without a node in these namespaces."""
        unsent = f"!{RESERVATION_LABEL}"
        listings = (
            self._client.list(PODS, namespace=place, field_selector=WITHOUT_NODE, label_selector=unsent, type=Pod)
            for place in _places(namespaces)
        )
        return tuple(pod for listing in listings for pod in listing.items)


def _places(namespaces: set[str]) -> list[str] | list[None]:
    """Return where to list: one list of the whole cluster replaces those of many namespaces."""
    return sorted(namespaces) if len(namespaces) <= _MOST_NAMESPACES else [None]


def _is_for_reserveable(reservation: Reservation) -> bool:
    return any(RESERVEABLE_ANNOTATION in owner.annotations for owner in reservation.spec.owners)


def distribute(reservations: list[Reservation], pods: tuple[Pod, ...]) -> tuple[dict[str, list[Pod]], set[str]]:
    """Return pods by Reservation uid, and the uids to search again.

    The oldest pods come first. A pod waits if the scheduler found it unschedulable; an untried pod may still get a
    place.
    """
    if not pods:
        return {}, set()
    index = OwnerIndex(reservations)
    free: dict[str, Counter[str]] = {}
    found: dict[str, list[Pod]] = {}
    untried: set[str] = set()
    for pod in sorted(pods, key=lambda pod: (pod.metadata.creation_timestamp or "", pod.metadata.uid)):
        if pod.spec.scheduling_gates or pod.is_terminating or RESERVATION_LABEL in pod.metadata.labels:
            continue
        for reservation in oldest_first(index.candidates(pod)):
            uid = reservation.metadata.uid
            if uid not in free:
                free[uid] = Counter(s.task for s in reservation.status.slots if s.state is SlotState.HELD)
            task = choose_task(reservation, pod, free[uid])
            if task is None:
                continue
            if not is_unschedulable(pod):
                untried.add(uid)
                continue
            free[uid][task.name] -= 1
            found.setdefault(uid, []).append(pod)
            break
    return found, untried


# --- pods that no template fits --------------------------------------------------------------------------------------
# Events on pods that match an owner but no template, so that users see why a place stays free. The webhook reports pods
# that it did not gate; they have no uid yet, and mostly no name, so a search finds them once they are stored.
# `PendingOwners` reports the waiting ones. Each pod gets one event per Reservation, and a namespace a few per minute: a
# user who may create pods cannot have events written at will.

_WAITS_SECONDS: Final = (2.0, 10.0)
"""Delays until the searches for an owner's pods: a pod is stored a moment after its review."""
_TICK_SECONDS: Final = 0.5
_MOST_OWNERS: Final = 200
"""Owners with a search under way; pods of other owners get no event."""
_MOST_COMPARED: Final = 1000
"""Pairs of pod and Reservation that one search compares."""
_MOST_RECORDED: Final = 10_000
_MOST_A_MINUTE: Final = 10
"""Events in a namespace."""
_MINUTE_SECONDS: Final = 60.0
_YOUNG: Final = timedelta(minutes=2)
_MOST_LABELS: Final = 3


class _Owner(NamedTuple):
    """The pods to search for: a namespace and a label selector.

    The selector is "" for all pods.
    """

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
        """Schedule a search for a pod that was not gated.

        This costs next to nothing.
        """
        labels = sorted(pod.metadata.labels.items())[:_MOST_LABELS]
        owner = _Owner(pod.metadata.namespace, ",".join(f"{key}={value}" for key, value in labels))
        with self._lock:
            if owner not in self._due and len(self._due) < _MOST_OWNERS:
                now = self._clock.monotonic()
                self._due[owner] = [now + wait_seconds for wait_seconds in _WAITS_SECONDS]

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
            found = self._client.list(PODS, namespace=owner.namespace, label_selector=owner.selector, type=Pod).items
            self.report([pod for pod in found if _was_created_after(pod, oldest)])
        except BerthError as error:
            _LOG.warning(
                telemetry.ACTION_FAILED, **{telemetry.KEY_ACTION: "refused pods", telemetry.KEY_ERROR: str(error)}
            )

    def report(self, pods: Iterable[Pod]) -> None:
        """Record an event on each owner pod that differs from the template."""
        pairs = (
            (reservation, pod) for pod in pods if _is_concerned(pod) for reservation in self._cache.candidates(pod)
        )
        for reservation, pod in islice(pairs, _MOST_COMPARED):
            with suppress(InputError):  # an unreadable quantity or time: nothing certain to report
                self._compare(reservation, pod)

    def _next_due(self) -> _Owner | None:
        now = self._clock.monotonic()
        with self._lock:
            owner = next((one for one, times in self._due.items() if times[0] <= now), None)
            if owner is not None:
                times = self._due.pop(owner)[1:]
                if times:
                    self._due[owner] = times
            return owner

    def _compare(self, reservation: Reservation, pod: Pod) -> None:
        made = parse_timestamp(reservation.metadata.creation_timestamp or "")
        if not pod.spec.node_name or _was_created_after(pod, made):
            pair = (pod.metadata.uid, reservation.metadata.uid)
            with self._lock:
                known = pair in self._recorded
            why = "" if known else self._why_refused(reservation, pod)
            if why and self._has_budget(pod.metadata.namespace):
                self._record(reservation, pod, why)

    def _why_refused(self, reservation: Reservation, pod: Pod) -> str:
        slots = self._cache.published_status(reservation).slots
        held = frozenset(slot.task for slot in slots if slot.state is SlotState.HELD)
        return why_not_fitting(reservation, pod, held)

    def _has_budget(self, namespace: str) -> bool:
        """Count an event against its namespace's budget.

        Returns False if the budget of the minute is used up.
        """
        now = self._clock.monotonic()
        with self._lock:
            for known in [one for one, times in self._recorded_at.items() if now - times[-1] >= _MINUTE_SECONDS]:
                del self._recorded_at[known]
            times = self._recorded_at.setdefault(namespace, deque(maxlen=_MOST_A_MINUTE))
            if len(times) == _MOST_A_MINUTE and now - times[0] < _MINUTE_SECONDS:
                return False
            times.append(now)
            return True

    def _record(self, reservation: Reservation, pod: Pod, why: str) -> None:
        meta = pod.metadata
        with self._lock:
            self._recorded[meta.uid, reservation.metadata.uid] = None
            while len(self._recorded) > _MOST_RECORDED:
                self._recorded.popitem(last=False)
        regarding = ObjectReference.of("v1", "Pod", meta)
        message = f"the Reservation {reservation.metadata.name} is for this pod, but its template does not fit: {why}"
        self._recorder.record(RecordedEvent(regarding, "Warning", TEMPLATE_DIFFERS, message))


def _is_concerned(pod: Pod) -> bool:
    meta = pod.metadata
    return not (pod.is_terminating or pod.is_terminal or meta.unreadable or RESERVATION_LABEL in meta.labels)


def _was_created_after(pod: Pod, moment: datetime) -> bool:
    created = pod.metadata.creation_timestamp
    return created is not None and parse_timestamp(created) >= moment
