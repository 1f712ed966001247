"""Owns the memory of what this replica wrote as the status of each Reservation while it leads.

What somebody else writes there is not believed. It is not thread-safe by itself: `picture.cache` guards it.
"""

from dataclasses import dataclass, field

import msgspec

from berth_core.reservations import Reservation, ReservationStatus


@dataclass(slots=True)
class OwnStatuses:
    """Statuses by the uid of their Reservation; empty while another replica leads, for then that one is right."""

    reign: int = 0
    """Counts the times that this replica began anew: what was written in an earlier reign says nothing in this one."""

    _written: dict[str, ReservationStatus] = field(default_factory=dict)
    _stored: dict[str, ReservationStatus] = field(default_factory=dict)
    """What the API server holds, where that is something else."""
    _underway: dict[str, ReservationStatus] = field(default_factory=dict)
    """What is being written: others may know it before its writer hears that it is stored."""

    def begin_to_write(self, uid: str, status: ReservationStatus) -> None:
        """Remember what is about to be written."""
        self._underway[uid] = status

    def end_writing(self, uid: str) -> None:
        """Forget what was being written, stored or not."""
        self._underway.pop(uid, None)

    def told(self, believed: Reservation) -> ReservationStatus:
        """Return the status of a Reservation that others may know by now."""
        return self._underway.get(believed.metadata.uid, believed.status)

    def keep(self, uid: str, status: ReservationStatus, reign: int) -> None:
        """Remember what was written, or found to be true, in a reign."""
        if reign == self.reign:
            self._written[uid] = status

    def forget(self, uid: str) -> None:
        """Forget a Reservation that is gone."""
        self._written.pop(uid, None)
        self._stored.pop(uid, None)

    def begin_anew(self) -> dict[str, ReservationStatus]:
        """Forget all; return by uid what the API server holds where it was not believed."""
        doubted = self._stored
        self.reign += 1
        self._written, self._stored = {}, {}
        return doubted

    def believe(self, stored: Reservation) -> Reservation:
        """Return a Reservation as the API server holds it, but with the status that is known to be ours."""
        uid = stored.metadata.uid
        ours = self._written.get(uid)
        if ours is None or ours == stored.status:
            self._stored.pop(uid, None)
            return stored
        self._stored[uid] = stored.status
        return msgspec.structs.replace(stored, status=ours)

    def stored(self, believed: Reservation) -> Reservation:
        """Return a Reservation as the API server holds it."""
        status = self._stored.get(believed.metadata.uid)
        return believed if status is None else msgspec.structs.replace(believed, status=status)

    def knows(self, uid: str) -> bool:
        """Tell whether this replica has written the status, or found it true, since it began."""
        return uid in self._written

    def is_forged(self, uid: str) -> bool:
        """Tell whether somebody else has changed the status."""
        return uid in self._stored
