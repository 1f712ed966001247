"""Search for pods that waited before their Reservation had a slot.

Such pods lack our gate. One whose Volcano PodGroup says that it may take a slot of a window is annotated so itself
before it is given one, so that whoever reads the pod knows it.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

import structlog

from berth_core import (
    RESERVATION_LABEL,
    RESERVEABLE_ANNOTATION,
    BerthError,
    Pod,
    Reservation,
    SlotState,
    as_reserveable,
    group_key,
    oldest_first,
    takes_word_of_group,
)
from berth_kube import PODS, ConflictError, KubeClient, NotFoundError
from berth_operator import telemetry
from berth_operator.reservation.act.context import WITHOUT_NODE, Annotated, Context
from berth_operator.reservation.fitting import FreeSlots
from berth_operator.reservation.store.owner_index import OwnerIndex
from berth_operator.runtime.workqueue import WAITING_KEY, Key
from berth_operator.schedulers.volcano import POD_GROUPS

_LOG = structlog.get_logger(__name__)

_PAUSE_SECONDS: Final = 1.0
"""Between two searches, however many Reservations request one."""
_MAX_NAMESPACES: Final = 5

_GROUP_SECONDS: Final = 10.0
"""How long the answer of a pod group counts."""


class ReserveableGroups:
    """Reads which pod groups let their pods take slots of windows; thread-safe.

    A group that does not exist or cannot be read lets none.
    """

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str], tuple[float, bool]] = {}
        """By namespace and name: until when it counts, in monotonic seconds, and what the group said."""

    def say(self, pod: Pod) -> bool | None:
        """Return whether the pod's group lets its pods take slots; None if it has to be read first."""
        with self._lock:
            known_answer = self._known.get(group_key(pod))
        return known_answer[1] if known_answer is not None and time.monotonic() < known_answer[0] else None

    def read(self, pod: Pod) -> None:
        """Read the group of a pod."""
        namespace, group_name = group_key(pod)
        is_reserveable = False
        with suppress(BerthError):
            is_reserveable = _says(self._client.get(POD_GROUPS, group_name, namespace=namespace, type=Annotated))
        self._learn({(namespace, group_name): is_reserveable})

    def read_all(self, pods: Iterable[Pod], places: Iterable[str | None]) -> None:
        """Read the groups of pods that are in these namespaces, None for all."""
        reserveable = dict.fromkeys(map(group_key, pods), False)
        with suppress(BerthError):
            for namespace in places:
                groups = self._client.list(POD_GROUPS, namespace=namespace, type=Annotated).items
                reserveable |= {
                    (group.metadata.namespace, group.metadata.name): True for group in groups if _says(group)
                }
        self._learn(reserveable)

    def _learn(self, reserveable: Mapping[tuple[str, str], bool]) -> None:
        now = time.monotonic()
        with self._lock:
            recent = {key: answer for key, answer in self._known.items() if now < answer[0]}
            self._known = recent | {
                key: (now + _GROUP_SECONDS, is_reserveable) for key, is_reserveable in reserveable.items()
            }


def _says(group: Annotated) -> bool:
    return group.metadata.annotations.get(RESERVEABLE_ANNOTATION) == "true"


class PendingOwners:
    """Lists pods without a node, once for all Reservations that requested it; thread-safe."""

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
        """Run all requested searches; those that met pods that no scheduler has tried are requested again."""
        with self._lock:
            asking_uids, self._asking = self._asking, set()
            self._searched_at = time.monotonic()
        reservations = [
            candidate
            for candidate in map(self._cache.reservation, asking_uids)
            if candidate is not None and candidate.is_live
        ]
        if not reservations:
            return
        try:
            waiting_pods = self._list_waiting({reservation.metadata.namespace for reservation in reservations})
        except BerthError:
            with self._lock:
                self._asking |= asking_uids
            raise
        by_group = self._reserveable_by_group(reservations, waiting_pods)
        waiting_pods = tuple(by_group.get(pod.metadata.uid, pod) for pod in waiting_pods)
        shares, untried_uids = distribute(reservations, waiting_pods)
        for reservation in reservations:
            pods = shares.get(reservation.metadata.uid, ())
            annotated = (self._annotate(pod) if pod.metadata.uid in by_group else pod for pod in pods)
            self._cache.put_waiting(reservation.metadata.uid, [pod for pod in annotated if pod is not None])
        for uid in untried_uids:
            self.request(uid)
        served_uids = {pod.metadata.uid for pods in shares.values() for pod in pods}
        self._consider(pod for pod in waiting_pods if pod.metadata.uid not in served_uids)

    def _reserveable_by_group(self, reservations: Iterable[Reservation], pods: Iterable[Pod]) -> dict[str, Pod]:
        """Return by uid the pods that only their group allows to take slots, with the annotation that says so."""
        homes = {reservation.metadata.namespace for reservation in reservations if _is_for_reserveable(reservation)}
        asking_pods = [pod for pod in pods if pod.metadata.namespace in homes and takes_word_of_group(pod)]
        if any(self._groups.say(pod) is None for pod in asking_pods):
            self._groups.read_all(asking_pods, _places(homes))
        return {pod.metadata.uid: as_reserveable(pod) for pod in asking_pods if self._groups.say(pod)}

    def _annotate(self, pod: Pod) -> Pod | None:
        """Write onto a pod what its group says; return None where that fails."""
        meta = pod.metadata
        body = {"metadata": {"uid": meta.uid, "annotations": {RESERVEABLE_ANNOTATION: "true"}}}
        try:
            return self._client.merge_patch(PODS, meta.name, body, namespace=meta.namespace, type=Pod)
        except (NotFoundError, ConflictError):
            return None
        except BerthError as error:
            # Admission of one namespace may forbid it; those of other namespaces get their slots all the same.
            fields = {telemetry.KEY_ACTION: "annotate", telemetry.KEY_POD: pod.key, telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.ACTION_FAILED, **fields)
            return None

    def _list_waiting(self, namespaces: set[str]) -> tuple[Pod, ...]:
        """List the pods without a node in these namespaces."""
        unsent = f"!{RESERVATION_LABEL}"
        listings = (
            self._client.list(PODS, namespace=namespace, field_selector=WITHOUT_NODE, label_selector=unsent, type=Pod)
            for namespace in _places(namespaces)
        )
        return tuple(pod for listing in listings for pod in listing.items)


def _places(namespaces: set[str]) -> list[str] | list[None]:
    """Return where to list: one list of the whole cluster replaces those of many namespaces."""
    return sorted(namespaces) if len(namespaces) <= _MAX_NAMESPACES else [None]


def _is_for_reserveable(reservation: Reservation) -> bool:
    return any(RESERVEABLE_ANNOTATION in owner.annotations for owner in reservation.spec.owners)


def distribute(reservations: list[Reservation], pods: tuple[Pod, ...]) -> tuple[dict[str, list[Pod]], set[str]]:
    """Return the waiting pods by Reservation uid, oldest first, and the uids to search again.

    A pod waits once a scheduler has found it unschedulable: an untried one may still get a place.
    """
    if not pods:
        return {}, set()
    index = OwnerIndex(reservations)
    free_by_uid: dict[str, FreeSlots] = {}
    shares: dict[str, list[Pod]] = {}
    untried_uids: set[str] = set()
    for pod in sorted(pods, key=lambda pod: pod.metadata.age_order):
        # Other gates belong to queues or controllers that have not released the pod yet.
        if pod.spec.scheduling_gates or pod.is_terminating or RESERVATION_LABEL in pod.metadata.labels:
            continue
        for reservation in oldest_first(index.candidates(pod)):
            uid = reservation.metadata.uid
            if uid not in free_by_uid:
                free_by_uid[uid] = FreeSlots(slot for slot in reservation.status.slots if slot.state is SlotState.HELD)
            choice = free_by_uid[uid].choose(reservation, pod)
            if choice is None:
                continue
            if not pod.is_unschedulable:
                untried_uids.add(uid)
                continue
            free_by_uid[uid].take(choice)
            shares.setdefault(uid, []).append(pod)
            break
    return shares, untried_uids
