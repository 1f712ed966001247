"""The statuses that this replica wrote while it leads; those of other writers do not count."""

from dataclasses import dataclass, field

import msgspec

from berth_core import Reservation, ReservationStatus


@dataclass(slots=True)
class StatusTracker:
    """Statuses that this replica wrote, by uid of their Reservation; empty while another replica leads."""

    epoch: int = 0
    """Rises when this replica begins or ends to lead: statuses of an earlier epoch no longer count."""

    _written: dict[str, ReservationStatus] = field(default_factory=dict)
    _stored: dict[str, ReservationStatus] = field(default_factory=dict)
    """The status that the API server holds, where it differs."""
    _underway: dict[str, ReservationStatus] = field(default_factory=dict)
    """Statuses that are being written: others may read one before its writer learns of it."""

    def begin_write(self, uid: str, status: ReservationStatus) -> None:
        self._underway[uid] = status

    def end_write(self, uid: str) -> None:
        """Forget the write in progress, whether it was stored or not."""
        self._underway.pop(uid, None)

    def published(self, known: Reservation) -> ReservationStatus:
        """Return the status that others may have read."""
        return self._underway.get(known.metadata.uid, known.status)

    def record(self, uid: str, status: ReservationStatus, epoch: int) -> None:
        """Record a status written, or found to be true, in an epoch."""
        # A write that began before the Lease was lost says nothing about what the next leader has written since.
        if epoch == self.epoch:
            self._written[uid] = status

    def forget(self, uid: str) -> None:
        self._written.pop(uid, None)
        self._stored.pop(uid, None)

    def start_epoch(self) -> dict[str, ReservationStatus]:
        """Forget all statuses; return by uid the stored ones that were overruled."""
        overruled = self._stored
        self.epoch += 1
        self._written, self._stored = {}, {}
        return overruled

    def reconcile(self, stored: Reservation) -> Reservation:
        """Return a stored Reservation with the status known to be ours."""
        uid = stored.metadata.uid
        own_status = self._written.get(uid)
        if own_status is None or own_status == stored.status:
            self._stored.pop(uid, None)
            return stored
        # Whoever may update the status subresource may write anything into it: what this replica wrote counts, and the
        # difference is corrected.
        self._stored[uid] = stored.status
        return msgspec.structs.replace(stored, status=own_status)

    def stored(self, known: Reservation) -> Reservation:
        """Return a Reservation as the API server holds it."""
        status = self._stored.get(known.metadata.uid)
        return known if status is None else msgspec.structs.replace(known, status=status)

    def has_written(self, uid: str) -> bool:
        """Return whether this replica wrote or confirmed the status in this epoch."""
        return uid in self._written

    def is_forged(self, uid: str) -> bool:
        return uid in self._stored
