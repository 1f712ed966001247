"""The facts of a move by which its next step is decided."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from berth_core import MoveReason
from berth_descheduler.migration.moves.replacement_readiness import Trouble
from berth_descheduler.migration.moves.steps import Finish


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


FREE: Final = {ReservationProgress.READY, ReservationProgress.UNVERIFIED}
"""Held for a pod that has not come."""


class Eviction(Enum):
    """The answer to the eviction that this run requested."""

    NOT_SENT = auto()
    BLOCKED = auto()
    """Refused for now: a disruption budget allows none."""
    INTERCEPTED = auto()
    """An admission webhook answered: another controller moves the pod, or does not let it go now."""
    REFUSED = auto()
    """Refused for good."""
    UNANSWERED = auto()
    """No answer came: taken as accepted if the pod leaves, asked again if it does not."""
    SENT = auto()
    """Accepted."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """The pod that took the move's place, as last seen."""

    name: str
    node: str
    ready: bool
    detail: str = ""
    """What the kubelet says of it while it is not Ready."""


@dataclass(frozen=True, slots=True)
class ReplicaCounts:
    """The places and the evicted pods of one controller, over the moves of the running wave."""

    held: int = 0
    """Places that are held, proven and not taken."""

    awaiting_replacement: int = 0
    """Evicted pods whose replacement has claimed no place yet and runs nowhere else either."""

    not_evicted: int = 0
    """Pods that this run still has to evict, and whose turn it is."""

    misplaced: str = ""
    """Nodes of the replacements that run without a hand-over."""

    is_full: bool = False
    """The controller has as many pods as it wants, or is gone, so that it makes no other."""


@dataclass(frozen=True, slots=True)
class Since:
    """When each wait began, in monotonic seconds; None: not begun."""

    reserving: float | None = None
    blocked: float | None = None
    evicted: float | None = None
    gone: float | None = None
    taken: float | None = None
    """Since when a replacement is known that has a node, or the place is recorded as taken."""

    started: float | None = None
    """Since when the containers of that replacement run."""

    troubled: float | None = None
    siblings: float | None = None
    stopping: float | None = None


@dataclass(frozen=True, slots=True)
class Surge:
    """What else counts of a move that is to surge; times in monotonic seconds."""

    wanted: bool = False
    """The pod is let go, and evicted once its replacement is available; if not, it is evicted first."""

    reason: str = ""
    """Why it is evicted first although it was to surge."""

    in_turn: bool = True
    """No sibling surges before it, of one controller one pod is let go at a time; nor does a move held ahead wait."""

    asked: bool = False
    """Its ReplicaSet may have been made to let it go: a request may have been carried out without an answer."""

    released: bool = False
    """Its ReplicaSet was made to let it go."""

    released_since: float | None = None
    min_ready_seconds: float = 0.0
    available: bool = False
    """A replacement that lives has the place, and was Ready for `min_ready_seconds`."""

    ready_since: float | None = None
    alone_since: float | None = None
    """Since when its controller has made no pod in its stead, or has none any more."""

    misplaced: str = ""
    """The node on which its replacement runs without a hand-over."""

    misplaced_since: float | None = None
    end: "Finish | None" = None
    """How the move ends once its pod is taken back; set, it is taken back whatever happens."""

    returned: bool = False
    """It was taken back."""

    ownerless: bool = False
    """Its ReplicaSet is gone, so it has to go as well."""


@dataclass(frozen=True, slots=True)
class MoveFacts:
    """All facts of one move at one instant."""

    target: str
    """"" if the pod is evicted without a place."""
    presence: Presence = Presence.ON_SOURCE
    place: ReservationProgress = ReservationProgress.NOT_CREATED
    place_detail: str = ""
    eviction: Eviction = Eviction.NOT_SENT
    eviction_detail: str = ""
    retry_eviction_at: float | None = None
    is_untouched: bool = False
    """The pod was read after a request without an answer, and is as it was before."""

    refusal: MoveReason = MoveReason.NONE
    """Set when the Reservation was refused for good, or a pre-eviction filter refused."""

    refusal_detail: str = ""
    replacement: Replacement | None = None
    trouble: Trouble | None = None
    """Why the replacement does not become Ready."""

    start_seconds: float = 0.0
    """How long the probes of the pod allow it to take, beside the timeouts."""

    must_be_ready: bool = True
    """Whether the evicted pod was Ready, or may have been."""

    grace_seconds: float = 0.0
    stay_detail: str = ""
    """What keeps an evicted pod that has not ended."""

    replicas: ReplicaCounts = ReplicaCounts()
    source_ready: bool = True
    """No other move of the same source and wave still waits for its place."""

    siblings_ready: bool = True
    """As many pods of its controller are Ready again as earlier waves evicted."""

    source_lost: bool = False
    """A pod of the same source stays: the node cannot be emptied any more."""

    stop: MoveReason = MoveReason.NONE
    """Set when the plan begins nothing new: PlanStopped, PodsWaiting, Aborted or Interrupted."""

    since: Since = Since()
    ahead: bool = False
    postponed: bool = False
    """Its place is asked for before its turn; or it was, in vain, and its Reservation is not gone yet."""

    surge: Surge = Surge()

    @property
    def evicted(self) -> bool:
        """Return whether this run evicted the pod."""
        if self.eviction is Eviction.UNANSWERED:
            return self.presence is not Presence.ON_SOURCE
        return self.eviction is Eviction.SENT

    @property
    def is_taken(self) -> bool:
        """Return whether the place has its pod: that is recorded, or the pod on its way there has a node."""
        is_bound = self.replacement is not None and bool(self.replacement.node)
        return self.place is ReservationProgress.BOUND or (self.place is ReservationProgress.HANDING_OVER and is_bound)
