"""The facts of a move by which its next step is decided."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from berth_core import MoveReason
from berth_descheduler.migration.moves.memory import Eviction, MoveMemory, Since, has_elapsed
from berth_descheduler.migration.moves.replacement_readiness import Trouble


class Presence(Enum):
    """Where the pod of a move is, by its UID."""

    ON_SOURCE = auto()
    LEAVING = auto()
    """Its deletion has begun."""
    GONE = auto()
    """Deleted, or ended by itself."""


class ReservationProgress(Enum):
    """How far the Reservation of a move has come."""

    NOT_CREATED = auto()
    """There is no Reservation, and this run has made none."""
    PENDING = auto()
    """The Reservation waits for the scheduler, or the watch has not shown it yet."""
    UNVERIFIED = auto()
    """Held, but the hand-over path is not proven."""
    READY = auto()
    """Held and proven."""
    HANDING_OVER = auto()
    """On its way to an owner."""
    BOUND = auto()
    """An owner runs in it."""
    LOST = auto()
    """The Reservation failed or was deleted."""


FREE: Final = frozenset({ReservationProgress.READY, ReservationProgress.UNVERIFIED})
"""Held for a pod that has not come."""


_UNCLAIMED: Final = FREE | {ReservationProgress.PENDING}


@dataclass(frozen=True, slots=True)
class Replacement:
    """The pod that took the move's place, as last seen."""

    name: str
    node: str
    ready: bool
    detail: str = ""
    """What the kubelet says of it while it is not Ready."""

    ending: str = ""
    """Why it is about to end, "" if nothing says so."""


@dataclass(frozen=True, slots=True)
class MoveObservation:
    """One move as observed: its pod, its place and its replacement."""

    presence: Presence
    place: ReservationProgress
    place_detail: str = ""
    is_lost_to_others: bool = False
    """Others deleted the Reservation, took the node away, or preempted what held the place."""

    replacement: Replacement | None = None
    trouble: Trouble | None = None
    """Why the replacement does not become Ready."""

    stay_detail: str = ""
    """What keeps an evicted pod that has not ended."""

    @property
    def is_unclaimed(self) -> bool:
        """Return whether the pod is gone, and its place, held or not, has none that has come."""
        return self.presence is Presence.GONE and self.place in _UNCLAIMED


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The places and the evicted pods of one controller, over the moves of the running wave."""

    held: int = 0
    """Places that are held, proven and not taken."""

    awaiting_replacement: int = 0
    """Evicted pods whose replacement has claimed no place yet and runs nowhere else either."""

    not_evicted: int = 0
    """Pods that this run still has to evict, and whose turn it is."""

    without_place: int = 0
    """Those of them that have no place yet."""

    misplaced: str = ""
    """Nodes of the replacements that run without a hand-over."""

    is_full: bool = False
    """The controller has as many pods as it wants, or is gone, so that it makes no other."""


@dataclass(frozen=True, slots=True)
class OtherMoves:
    """What other moves of the plan and the plan itself mean for a move."""

    replicas: ReplicaCounts = ReplicaCounts()
    last_gone: float | None = None
    """When the last of its evicted siblings was seen to be gone, in monotonic seconds."""

    source_ready: bool = True
    """No other move of the same source and wave still waits for its place."""

    source_lost: bool = False
    """A pod of the same source stays: the node cannot be emptied any more."""

    stop: MoveReason = MoveReason.NONE
    """Set when the plan begins nothing new: PlanStopped, PodsWaiting, Aborted or Interrupted."""

    stopping_since: float | None = None

    def is_interrupted_for(self, seconds: float, now: float) -> bool:
        """Return whether the run was asked to end that long ago: it cannot wait for ever."""
        return self.stop is MoveReason.INTERRUPTED and has_elapsed(self.stopping_since, seconds, now)


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """A move at one instant: what is remembered, what is seen, and what other moves mean for it."""

    memory: MoveMemory
    seen: MoveObservation
    others: OtherMoves = OtherMoves()

    @property
    def target(self) -> str:
        """Return the node that the pod is to come to; "" if it is evicted without a place."""
        return self.memory.move.target

    @property
    def evicted(self) -> bool:
        """Return whether this run evicted the pod."""
        return was_evicted(self.memory, self.seen)

    @property
    def is_taken(self) -> bool:
        """Return whether the place has its pod: that is recorded, or the pod on its way there has a node."""
        is_bound = self.seen.replacement is not None and bool(self.seen.replacement.node)
        # The binding is in the pod before it is in the Reservation: the operator writes its status only afterwards.
        on_its_way = self.seen.place is ReservationProgress.HANDING_OVER and is_bound
        return self.seen.place is ReservationProgress.BOUND or on_its_way

    @property
    def siblings_ready(self) -> bool:
        """Return whether as many pods of its controller are Ready again as earlier waves evicted."""
        return self.memory.waits.since(Since.SIBLINGS_UNREADY) is None

    @property
    def gone_since(self) -> float | None:
        """Return since when the pod and all of its evicted siblings are gone, None while one is not."""
        times = (self.memory.waits.since(Since.GONE), self.others.last_gone)
        return max((time for time in times if time is not None), default=None)


def was_evicted(memory: MoveMemory, observation: MoveObservation) -> bool:
    """Return whether this run or the interrupted one evicted the pod."""
    if memory.pod.answer is Eviction.UNANSWERED:
        # The connection broke before the answer: whether the API server has deleted the pod shows only in the pod
        # itself.
        return observation.presence is not Presence.ON_SOURCE
    return memory.pod.answer is Eviction.SENT
