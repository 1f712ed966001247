"""What a run remembers of a move.

That need not survive the run: a restarted one assumes that a pod that is gone beside a live Reservation was evicted,
and its deadlines begin anew.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from berth_core import MoveMethod, MoveReason, MoveStatus, PlannedMove, reservation_name
from berth_descheduler.migration.moves.facts import Eviction, Surge

OwnerKey: TypeAlias = tuple[str, ...]
"""Namespace and controller: pods that share them may take one another's places."""


@dataclass(slots=True)
class MoveProgress:
    """One move and what this run did for it; times in monotonic seconds."""

    index: int
    move: PlannedMove
    reservation: str
    """Name of the Reservation, derived from plan and pod."""

    status: MoveStatus
    adopted: bool = False
    """An interrupted run may have acted on it without this run knowing."""

    in_flight: bool = False
    """A call is under way; nothing is decided until it is answered."""

    asked: bool = False
    """This run created the Reservation."""

    asked_at: float | None = None
    """When the API server confirmed that it created the Reservation."""

    seen: bool = False
    """The Reservation was seen by the watch."""

    ahead: bool = False
    begins_with: int = 0
    """Its place is asked for before its turn, together with those of an earlier wave, or else of its own."""

    turn: int = 1
    """How many moves have their turns until its own is over, of its controller and of those that it waits for."""

    postponed: bool = False
    """Its place could not be held ahead: the Reservation is deleted, and made again in its turn."""

    was_ready: bool = True
    grace_seconds: float = 30.0
    refusal: MoveReason = MoveReason.NONE
    refusal_detail: str = ""
    eviction: Eviction = Eviction.NOT_SENT
    eviction_detail: str = ""
    is_untouched: bool = False
    """The pod was read after a request without an answer, and is as it was before."""

    attempts: int = 0
    retry_at: float | None = None
    reserving_since: float | None = None
    blocked_since: float | None = None
    evicted_since: float | None = None
    gone_since: float | None = None
    taken_since: float | None = None
    started_since: float | None = None
    troubled_since: float | None = None
    trouble: MoveReason = MoveReason.NONE
    """What keeps the replacement from becoming Ready, since `troubled_since`."""

    reserved_at: str = ""
    """When its Reservation was created, as the API server says; "" before that was seen."""

    taken_by: str = ""
    """The uid of the pod that its Reservation names; it has the place also once the Reservation is gone."""

    start_seconds: float = 0.0
    """How long the probes of its pod allow that to take, beside the timeouts."""

    source_problem: str = ""
    target_problem: str = ""
    """Why source and target are not Ready, where that was asked."""

    siblings_since: float | None = None
    """Since when its controller lacks Ready pods for those that earlier waves evicted."""

    misplaced_since: dict[str, float] = field(default_factory=dict)
    """When each replacement, by uid, was first seen to run without a hand-over."""

    surge: Surge = field(default_factory=Surge)

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
        if owner is None:
            return (self.move.namespace, self.move.pod_uid)
        return (self.move.namespace, owner.kind, owner.name, owner.uid)


def start_progress(plan: str, index: int, move: PlannedMove, status: MoveStatus | None) -> MoveProgress:
    """Return the progress of a move, fresh or with its recorded status."""
    fresh = MoveStatus(namespace=move.namespace, pod=move.pod)
    name = reservation_name(plan, move.pod_uid)
    known = status or fresh
    surges = move.method is MoveMethod.SURGE and known.method is not MoveMethod.EVICT and not move.is_eviction
    surge = Surge(wanted=surges, reason=known.method_reason)
    return MoveProgress(index=index, move=move, reservation=name, status=known, surge=surge, begins_with=move.wave)
