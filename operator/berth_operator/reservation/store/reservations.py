"""Cached Reservations: by uid, by owner, and by the object that controls them.

These stores are not thread-safe: `store.cache` locks them.
"""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

import msgspec

from berth_core import Reservation, ReservationReason, ReservationStatus, SlotState
from berth_kube import Listed
from berth_operator.reservation.node_choice import SlotId
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.store.own_statuses import StatusTracker
from berth_operator.reservation.store.owner_index import LiveReservations
from berth_operator.reservation.store.probe_results import ProbeResults
from berth_operator.reservation.store.reservation_reading import reuse_computed, why_unreadable
from berth_operator.reservation.store.versions import Tombstones, is_newer
from berth_operator.reservation.store.waiting_pods import WaitingPods
from berth_operator.runtime.workqueue import SCOPE_KEY, Key, KeyKind


class ControlledIndex:
    """Reservations by the object of one kind that controls them."""

    def __init__(self, kind: str, controller_of: Callable[[Reservation], str]) -> None:
        self._kind = kind
        self._controller_of = controller_of
        self._by_controller: dict[str, set[str]] = {}

    def uids(self, controller: str) -> list[str]:
        """Return the uids of the Reservations that an object controls, in order."""
        return sorted(self._by_controller.get(controller, ()))

    def keys(self, reservation: Reservation) -> tuple[Key, ...]:
        """Return the key of the object that controls a Reservation."""
        controller = self._controller_of(reservation)
        return (Key(self._kind, controller),) if controller else ()

    def put(self, reservation: Reservation, known: Reservation | None) -> None:
        """Store a version of a Reservation in the place of the known one."""
        controller = self._controller_of(reservation)
        if known is not None and self._controller_of(known) != controller:
            self.remove(known)  # any user may write that reference
        if controller:
            self._by_controller.setdefault(controller, set()).add(reservation.metadata.uid)

    def remove(self, reservation: Reservation) -> None:
        controller = self._controller_of(reservation)
        group = self._by_controller.get(controller, set())
        group.discard(reservation.metadata.uid)
        if not group:
            self._by_controller.pop(controller, None)


class ReservationStore:
    """All known Reservations; a change returns the keys that it concerns."""

    def __init__(self, tombstones: Tombstones) -> None:
        self._tombstones = tombstones
        self._by_uid: dict[str, Reservation] = {}
        self._controlled: list[ControlledIndex] = []
        self._verdicts: dict[str, Verdict] = {}
        self._validated: set[str] = set()
        self._refusals: dict[str, dict[SlotId, str]] = {}
        self.live = LiveReservations()
        self.statuses = StatusTracker()
        self.probes = ProbeResults()
        self.waiting = WaitingPods()
        self.on_version: Callable[[Reservation], None] = lambda _: None
        self.on_end: Callable[[str], None] = lambda _: None

    def __iter__(self) -> Iterator[Reservation]:
        return iter(tuple(self._by_uid.values()))

    def __contains__(self, uid: str) -> bool:
        return uid in self._by_uid

    def uids(self) -> AbstractSet[str]:
        return self._by_uid.keys()

    def get(self, uid: str) -> Reservation | None:
        return self._by_uid.get(uid)

    def index_controlled(self, kind: str, controller_of: Callable[[Reservation], str]) -> "ControlledIndex":
        """Return an index that is kept up to date from now on."""
        index = ControlledIndex(kind, controller_of)
        self._controlled.append(index)
        return index

    def named(self, uids: Iterable[str]) -> tuple[Reservation, ...]:
        """Return the Reservations with these uids, which are known."""
        return tuple(self._by_uid[uid] for uid in uids)

    def _controller_keys(self, reservation: Reservation) -> tuple[Key, ...]:
        """Return the keys of the objects that control a Reservation."""
        return tuple(key for index in self._controlled for key in index.keys(reservation))

    def put(self, reservation: Reservation, listed: Listed[Reservation] | None = None) -> tuple[Key, ...]:
        """Store a Reservation that is neither gone nor outdated."""
        uid = reservation.metadata.uid
        known_reservation = self._by_uid.get(uid)
        if not self._tombstones.takes(reservation.metadata, known_reservation, listed):
            return ()
        if known_reservation is not None:
            if not is_newer(reservation.metadata, known_reservation.metadata):
                self._forget_findings(uid)  # they are of a history that etcd no longer has
            reuse_computed(reservation, known_reservation)
        scope_changed = self._replace(self.statuses.reconcile(reservation), known_reservation)
        controllers = self._controller_keys(reservation)
        return (Key(KeyKind.RESERVATION, uid), *controllers, *((SCOPE_KEY,) if scope_changed else ()))

    def put_written(
        self, uid: str, status: ReservationStatus, epoch: int, stored: Reservation | None
    ) -> tuple[Key, ...]:
        """Store a status that this replica wrote, with the Reservation as stored."""
        known_reservation = self._by_uid.get(uid)
        if known_reservation is None:
            return ()
        raw = self.statuses.stored(known_reservation)
        self.statuses.record(uid, status, epoch)
        if stored is None:
            return ()
        if is_newer(stored.metadata, known_reservation.metadata):
            return self.put(stored)
        # The watch was faster, and the status counted as another writer's.
        scope_changed = self._replace(self.statuses.reconcile(raw), known_reservation)
        return (*self._controller_keys(raw), *((SCOPE_KEY,) if scope_changed else ()))

    def start_epoch(self) -> None:
        """Trust the API server's statuses again."""
        for uid, status in self.statuses.start_epoch().items():
            known_reservation = self._by_uid[uid]
            self._replace(msgspec.structs.replace(known_reservation, status=status), known_reservation)

    def _replace(self, reservation: Reservation, known: Reservation | None) -> bool:
        """Store a version; return whether the Reservation is new or changed liveness."""
        uid = reservation.metadata.uid
        self._by_uid[uid] = reservation
        for index in self._controlled:
            index.put(reservation, known)
        self.on_version(reservation)
        self.live.put(reservation)
        # A pod may have come before there was a place for it, without a gate; now it could be given one.
        if _count_held(reservation) > _count_held(known):
            self.waiting.search_again(uid)
        return known is None or known.is_live != reservation.is_live

    def remove(self, uid: str) -> tuple[Key, ...]:
        # A list that began before the deletion may arrive after it, and must not bring the Reservation back.
        self._tombstones.add(uid)
        known_reservation = self._by_uid.pop(uid, None)
        if known_reservation is not None:
            self.live.remove(known_reservation)
            for index in self._controlled:
                index.remove(known_reservation)
        self.on_end(uid)
        self._forget_findings(uid)
        return (
            Key(KeyKind.RESERVATION, uid),
            *(self._controller_keys(known_reservation) if known_reservation is not None else ()),
            SCOPE_KEY,
        )

    def _forget_findings(self, uid: str) -> None:
        """Forget what this process has learned about a Reservation or written to it."""
        self.probes.forget(uid)
        self._verdicts.pop(uid, None)
        self._validated.discard(uid)
        self._refusals.pop(uid, None)
        self.waiting.search_again(uid)
        self.statuses.forget(uid)

    def put_verdict(self, uid: str, verdict: Verdict | None) -> None:
        """Record that the templates were validated, and the refusal if any."""
        if uid in self._by_uid:
            self._validated.add(uid)
            if verdict is not None:
                self._verdicts[uid] = verdict

    def put_refusal(self, uid: str, slot: SlotId, text: str) -> bool:
        """Record why admission refuses a slot's placeholder, "" if it does not; return whether the text is new."""
        refusals = self._refusals.setdefault(uid, {}) if uid in self._by_uid else {}
        is_new = bool(text) and text not in refusals.values()
        refusals.pop(slot, None)
        if text:
            refusals[slot] = text
        if not refusals:
            self._refusals.pop(uid, None)
        return is_new

    def refusal_of(self, uid: str) -> str:
        """Return the last answer by which admission refused a placeholder of a Reservation, "" if none did."""
        return next(reversed(self._refusals.get(uid, {}).values()), "")

    def verdict_on(self, reservation: Reservation) -> Verdict | None:
        """Return why a Reservation is impossible, including an unreadable spec."""
        why = why_unreadable(reservation)
        unreadable = Verdict(ReservationReason.INVALID, why) if why else None
        return self._verdicts.get(reservation.metadata.uid) or unreadable

    def is_validated(self, uid: str) -> bool:
        """Return whether the API server has validated the templates."""
        return uid in self._validated


def _count_held(reservation: Reservation | None) -> int:
    return sum(slot.state is SlotState.HELD for slot in reservation.status.slots) if reservation else 0
