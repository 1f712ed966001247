"""Owns the part of the MigrationPlan contract that says for whom a plan makes room, and what becomes of that.

It does not own the rest of the plan (`berth_core.migration_plans`), nor how room is held (`berth_core.reservations`).
"""

from enum import StrEnum

import msgspec


class RoomState(StrEnum):
    """Where the making of a room is."""

    PENDING = "Pending"
    """The plan has not created the room's Reservation yet, or it holds nothing."""
    WAITING = "Waiting"
    """Its Reservation waits on the chosen nodes."""
    HELD = "Held"
    """All of it is held; the end where nobody is named who is to take it."""
    TAKEN = "Taken"
    """Whom it was made for runs in it."""
    RELEASED = "Released"
    """It is not needed any more, and nothing is held."""
    FAILED = "Failed"
    """The room was not made or not taken; the reason says why."""


class RoomReason(StrEnum):
    """Why a room is in its state, for everything that did not go straight."""

    NONE = ""
    POD_GONE = "PodGone"
    """The pod that the room is for was deleted."""
    POD_PLACED = "PodPlaced"
    """The pod that the room is for has found another place."""
    POD_CHANGED = "PodChanged"
    """The pod that the room is for changed and may not fit any more."""
    RESERVATION_FAILED = "ReservationFailed"
    """The room's Reservation failed."""
    RESERVATION_TIMEOUT = "ReservationTimeout"
    """The room's Reservation was not held in time."""
    ROOM_NOT_MADE = "RoomNotMade"
    """The moves did not free the room."""
    NOT_TAKEN = "NotTaken"
    """The room was held, and no owner took it in time."""
    PLAN_STOPPED = "PlanStopped"
    """The plan stopped by its own rules."""
    ABORTED = "Aborted"
    """The plan was aborted."""
    INTERRUPTED = "Interrupted"
    """The process ended before the room was made."""


class RoomSlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A place on a node, and the waiting pod that it is for, none for a shape."""

    node: str
    pod: str = ""
    pod_uid: str = msgspec.field(name="podUID", default="")


class Room(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Room that a plan makes for one pod, for a gang, or for a shape; `namespace` is where its Reservation is."""

    name: str
    """Namespace and name of the pod or gang, or the shape as it was written."""
    namespace: str
    gang: str = ""
    requests: dict[str, str] = {}
    """Of a shape: what each of its pods asks for, quantities by resource."""
    selector: str = ""
    """Of a shape: the labels of the pods that may take the room, as a label selector; "" for nobody."""
    slots: tuple[RoomSlot, ...] = ()

    @property
    def is_shape(self) -> bool:
        """Tell whether the room is for pods that do not exist yet."""
        return bool(self.requests)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of the slots, sorted."""
        return tuple(sorted({slot.node for slot in self.slots}))


class RoomStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one room; the list stands in the order of `spec.rooms`."""

    name: str
    state: RoomState = RoomState.PENDING
    reason: str = ""
    message: str = ""
    reservation: str = ""
    taken: tuple[RoomSlot, ...] = ()
    """Who runs where in it."""

    def has_ended(self, room: Room) -> bool:
        """Tell whether nothing more is done for the room; one for nobody in particular ends by being held."""
        if self.state is RoomState.HELD:
            return room.is_shape
        return self.state in {RoomState.TAKEN, RoomState.RELEASED, RoomState.FAILED}
