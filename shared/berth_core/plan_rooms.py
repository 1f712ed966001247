"""The part of the MigrationPlan contract about the rooms that a plan makes, and their states."""

from enum import StrEnum

import msgspec

from berth_core.reservations import Capacity, ObjectReference


class RoomState(StrEnum):
    """State of a room."""

    PENDING = "Pending"
    """The plan has not created the room's Reservation yet, or it holds nothing."""
    WAITING = "Waiting"
    """Its Reservation waits on the chosen nodes; the final state of a room that waits for pods to end."""
    HELD = "Held"
    """All of it is held; the final state of a room without owners."""
    TAKEN = "Taken"
    """Whom it was made for runs in it."""
    RELEASED = "Released"
    """It is not needed any more, and nothing is held."""
    FAILED = "Failed"
    """The room was not made or not taken; the reason says why."""


class RoomReason(StrEnum):
    """Why a room is in its state; empty when all went as planned."""

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
    FENCE_LIMIT = "FenceLimit"
    """More nodes would be fenced than `reservedNodePercent` allows."""


class RoomSlot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A place on a node, and the waiting pod that gets it; a shape's slot has no pod."""

    node: str
    pod: str = ""
    pod_uid: str = msgspec.field(name="podUID", default="")


class Room(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Room that a plan makes for a pod, gang or shape."""

    name: str
    """Namespace and name of the pod or gang, or the shape as written."""
    namespace: str
    gang: str = ""
    requests: dict[str, str] = {}
    """Of a shape: the requests of each of its pods by resource."""
    selector: str = ""
    """A label selector of the pods that may take the room of a shape; "" for no pod."""
    slots: tuple[RoomSlot, ...] = ()
    queue: str = ""
    """The queue in which the room counts."""
    capacity: Capacity = Capacity.FREE
    """WhenFree: no move makes the room, its Reservation waits until pods on the nodes have ended."""
    job: ObjectReference | None = None
    """The uid of the starving job that a room waits for."""
    ttl: str = ""
    """Of a room that waits: when its Reservation gives up, as a Go duration."""

    @property
    def waits(self) -> bool:
        """Return whether the room waits for pods to end instead of for moves."""
        return self.capacity is Capacity.WHEN_FREE

    @property
    def is_shape(self) -> bool:
        """Return whether the room is for pods that do not exist yet."""
        return bool(self.requests)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Return the nodes of the slots, sorted."""
        return tuple(sorted({slot.node for slot in self.slots}))


class RoomStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """State of one room; the list follows the order of `spec.rooms`."""

    name: str
    state: RoomState = RoomState.PENDING
    reason: str = ""
    message: str = ""
    reservation: str = ""
    taken: tuple[RoomSlot, ...] = ()
    """The pods that run in the room, and where."""

    def has_ended(self, room: Room) -> bool:
        """Return whether the plan has nothing more to do for the room.

        A room without takers ends when it is held, one that waits for pods to end when its Reservation is made.
        """
        if self.state is RoomState.WAITING:
            return room.waits
        if self.state is RoomState.HELD:
            return room.is_shape
        return self.state in {RoomState.TAKEN, RoomState.RELEASED, RoomState.FAILED}
