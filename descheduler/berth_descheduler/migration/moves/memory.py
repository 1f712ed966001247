"""What a run remembers of a move.

That need not survive the run: a restarted one assumes that a pod that is gone beside a live Reservation was evicted,
and its deadlines begin anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final, TypeAlias

from berth_core import MoveMethod, MoveReason, MoveStatus, PlannedMove, reservation_name
from berth_descheduler.migration.moves.steps import Finish
from berth_descheduler.migration.retries import Retry

OwnerKey: TypeAlias = tuple[str, ...]
"""Namespace and controller: pods that share them may take one another's places."""

DEFAULT_GRACE_SECONDS: Final = 30.0
"""The grace period of a pod that names none."""


class Since(Enum):
    """What a wait began with."""

    RESERVING = auto()
    """The place was first asked for."""
    CREATED = auto()
    """The API server confirmed that it created the Reservation."""
    BLOCKED = auto()
    """An eviction, or a request to let the pod go, was first refused for now."""
    EVICTED = auto()
    GONE = auto()
    """The pod was first seen to be gone."""
    TAKEN = auto()
    """A replacement is known that has a node, or the place is recorded as taken."""
    STARTED = auto()
    """The containers of that replacement run."""
    TROUBLED = auto()
    """The same trouble keeps the replacement from becoming Ready."""
    SIBLINGS_UNREADY = auto()
    """The controller lacks Ready pods for those that earlier waves evicted."""
    RELEASED = auto()
    """The ReplicaSet let the pod go."""
    READY = auto()
    """The replacement of a pod that was let go is Ready in its place."""
    ALONE = auto()
    """The controller has made no pod in the stead of one that was let go, or has none any more."""
    MISPLACED = auto()
    """The replacement of a pod that was let go runs without a hand-over."""


@dataclass(frozen=True, slots=True)
class Waits:
    """When each wait began, in monotonic seconds."""

    begun: Mapping[Since, float] = field(default_factory=dict)

    def since(self, event: Since) -> float | None:
        """Return when a wait began, None if it has not."""
        return self.begun.get(event)

    def lasts(self, event: Since, seconds: float, now: float) -> bool:
        """Return whether a wait has begun and lasts that long."""
        return has_elapsed(self.begun.get(event), seconds, now)

    def begin(self, event: Since, now: float) -> "Waits":
        """Return the waits with one more; one that has begun goes on."""
        return self if event in self.begun else Waits({**self.begun, event: now})

    def begin_anew(self, event: Since, now: float) -> "Waits":
        """Return the waits with one that begins now, whether it had begun or not."""
        return Waits({**self.begun, event: now})

    def end(self, *events: Since) -> "Waits":
        """Return the waits without some."""
        if self.begun.keys().isdisjoint(events):
            return self
        return Waits({event: begun_at for event, begun_at in self.begun.items() if event not in events})

    def note(self, event: Since, now: float, *, holds: bool) -> "Waits":
        """Return the waits with one that lasts as long as something holds."""
        return self.begin(event, now) if holds else self.end(event)


def has_elapsed(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since >= seconds


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
class Turn:
    """When the move has its turn among the moves of its plan."""

    begins_with: int
    """The wave with which it begins: its own, or an earlier one where its place is asked for ahead."""

    number: int = 1
    """How many turns are over once its own is: those of its controller's moves, and of the moves that it waits for."""

    ahead: bool = False
    """Its place is asked for before its turn."""


@dataclass(frozen=True, slots=True)
class PlaceOfMove:
    """What this run did for the place of the move, and saw of its Reservation."""

    asked: bool = False
    """This run created the Reservation."""

    seen: bool = False
    """The Reservation was seen by the watch."""

    postponed: bool = False
    """It could not be held ahead: the Reservation is deleted, and made again in the move's turn."""

    created: str = ""
    """When the Reservation was created, as the API server says; "" before that was seen."""


@dataclass(frozen=True, slots=True)
class PodOfMove:
    """The pod of the move, and the answer to its eviction."""

    answer: Eviction = Eviction.NOT_SENT
    detail: str = ""
    is_untouched: bool = False
    """The pod was read after a request without an answer, and is as it was before."""

    was_ready: bool = True
    """It was Ready when its place was asked for, or may have been."""

    grace_seconds: float = DEFAULT_GRACE_SECONDS
    start_seconds: float = 0.0
    """How long its probes allow it to take, beside the timeouts."""

    progress_seconds: float | None = None
    """The `progressDeadlineSeconds` of its Deployment, 0 without one; None before it is read."""


@dataclass(frozen=True, slots=True)
class FinalRefusal:
    """Why the Reservation was refused for good, or a filter refused the eviction; no reason: neither was."""

    reason: MoveReason = MoveReason.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Successor:
    """The pod that took the place."""

    uid: str = ""
    """As the Reservation names it, or named it: the pod keeps the place when the Reservation is gone."""

    trouble: MoveReason = MoveReason.NONE
    """What keeps it from becoming Ready."""

    ending: str | None = None
    """Why its node will end it, "" if it will not; None: not asked yet."""


@dataclass(frozen=True, slots=True)
class Surge:
    """How a pod surges: its ReplicaSet lets it go, and it is evicted once its replacement is available."""

    wanted: bool = False
    """The pod is let go, and evicted once its replacement is available; if not, it is evicted first."""

    reason: str = ""
    """Why it is evicted first although it was to surge."""

    in_turn: bool = True
    """No sibling surges before it, for a controller lets go one pod at a time, and it does not wait for other moves."""

    asked: bool = False
    """Its ReplicaSet may have been made to let it go: a request may have been carried out without an answer."""

    released: bool = False
    """Its ReplicaSet was made to let it go."""

    min_ready_seconds: float = 0.0
    available: bool = False
    """A replacement that lives has the place, and was Ready for `min_ready_seconds`."""

    misplaced: str = ""
    """The node on which its replacement runs without a hand-over."""

    end: Finish | None = None
    """How the move ends once its pod is taken back; set, it is taken back whatever happens."""

    returned: bool = False
    """It was taken back."""

    ownerless: bool = False
    """Its ReplicaSet is gone, so it has to go as well."""

    @property
    def is_let_go(self) -> bool:
        """Return whether the pod was let go, or may have been."""
        return self.asked or self.released


@dataclass(frozen=True, slots=True)
class NodeProblems:
    """Why source and target are not Ready, where that was asked."""

    source: str = ""
    target: str = ""


@dataclass(slots=True)
class MoveMemory:
    """One move, what this run did for it and when."""

    index: int
    move: PlannedMove
    reservation: str
    """Name of the Reservation, derived from plan and pod."""

    status: MoveStatus
    turn: Turn
    adopted: bool = False
    """An interrupted run may have acted on it without this run knowing."""

    in_flight: bool = False
    """A call is under way; nothing is decided until it is answered."""

    place: PlaceOfMove = PlaceOfMove()
    pod: PodOfMove = PodOfMove()
    successor: Successor = Successor()
    surge: Surge = Surge()
    refused: FinalRefusal = FinalRefusal()
    retry: Retry = field(default_factory=Retry)
    waits: Waits = field(default_factory=Waits)
    nodes: NodeProblems = NodeProblems()
    misplaced: dict[str, float] = field(default_factory=dict)
    """When each replacement, by uid, was first seen to run without a hand-over."""

    @property
    def finished(self) -> bool:
        """Return whether the move is over."""
        return self.status.state.terminal

    @property
    def key(self) -> str:
        """Return `namespace/name` of the Reservation."""
        return f"{self.move.namespace}/{self.reservation}"

    @property
    def replicas(self) -> OwnerKey:
        """Return the key of the pods that may take one another's places."""
        owner = self.move.owner
        # Nothing but the pod itself could take its place.
        if owner is None:
            return (self.move.namespace, self.move.pod_uid)
        return (self.move.namespace, owner.kind, owner.name, owner.uid)

    @property
    def is_open(self) -> bool:
        """Return whether the move was begun: a place or, without one, the eviction was asked for."""
        was_asked = self.move.is_eviction and self.pod.answer is not Eviction.NOT_SENT
        return was_asked or self.waits.since(Since.RESERVING) is not None or self.place.seen

    def note_released(self, min_ready_seconds: float, now: float) -> None:
        """Remember that the ReplicaSet has let the pod go: what was refused before counts no more."""
        self.retry = Retry()
        self.waits = self.waits.end(Since.BLOCKED).begin_anew(Since.RELEASED, now)
        self.surge = replace(self.surge, released=True, min_ready_seconds=min_ready_seconds)


def remember(plan: str, index: int, move: PlannedMove, status: MoveStatus | None = None) -> MoveMemory:
    """Return the memory of a move that begins, or of one whose status is recorded."""
    known_status = status or MoveStatus(namespace=move.namespace, pod=move.pod)
    surges = move.method is MoveMethod.SURGE and known_status.method is not MoveMethod.EVICT and not move.is_eviction
    return MoveMemory(
        index=index,
        move=move,
        reservation=reservation_name(plan, move.pod_uid),
        status=known_status,
        turn=Turn(move.wave),
        surge=Surge(wanted=surges, reason=known_status.method_reason),
    )
