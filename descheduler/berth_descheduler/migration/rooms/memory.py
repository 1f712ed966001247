"""What a run remembers of a room.

That need not survive the run: a restarted one observes the Reservation, and only the end of a room is recorded.
"""

from dataclasses import dataclass, field

from berth_core import MigrationPlan, Room, RoomReason, RoomStatus
from berth_descheduler.migration.manifests.room_reservations import job_reservation_name, room_reservation_name
from berth_descheduler.migration.retries import Retry
from berth_descheduler.migration.rooms.moves import moves_of_rooms
from berth_descheduler.migration.rooms.next_step import RoomReservationProgress


@dataclass(slots=True)
class RoomMemory:
    """One room with what this run did for it and when; times are in monotonic seconds."""

    index: int
    room: Room
    reservation: str
    """Name of the Reservation, derived from plan and index."""

    moves: frozenset[int]
    """The positions of the moves that make it."""

    status: RoomStatus
    ended: bool = False
    """The room is over: nothing more is done for it."""

    in_flight: bool = False
    """A call is under way; nothing is decided until it is answered."""

    hold: RoomReservationProgress = RoomReservationProgress.NOT_CREATED
    spoilt: str = ""
    """Why it cannot be made any more."""

    seen: bool = False
    refusal: RoomReason = RoomReason.NONE
    refusal_detail: str = ""
    retry: Retry = field(default_factory=Retry)
    asked_at: float | None = None
    unsettled_since: float | None = None
    still_since: float | None = None
    held_since: float | None = None
    placed_since: float | None = None

    @property
    def key(self) -> str:
        """Return `namespace/name` of the Reservation."""
        return f"{self.room.namespace}/{self.reservation}"

    @property
    def is_wanted(self) -> bool:
        """Return whether moves may still have to make it."""
        return (
            not self.ended
            and not self.spoilt
            and self.hold not in {RoomReservationProgress.READY, RoomReservationProgress.BOUND}
        )


def start_rooms(plan: MigrationPlan) -> tuple[RoomMemory, ...]:
    """Return the memory of all rooms of a plan; recorded ends stay."""
    moves_by_room = moves_of_rooms(plan.spec.rooms, plan.spec.moves)
    rooms = []
    for index, (room, status) in enumerate(zip(plan.spec.rooms, plan.room_statuses, strict=True)):
        name = job_reservation_name(room.job) if room.job else room_reservation_name(plan.metadata.name, index)
        rooms.append(RoomMemory(index, room, name, moves_by_room[index], status, ended=status.has_ended(room)))
    return tuple(rooms)
