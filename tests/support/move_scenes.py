"""A move at one instant as a flat table says it; `facts` puts it into the values that the next step is decided by."""

from dataclasses import dataclass

from berth_core.migration_plans import MoveReason, PlannedMove
from berth_descheduler.migration.moves import memory
from berth_descheduler.migration.moves.facts import (
    MoveFacts,
    MoveObservation,
    OtherMoves,
    Presence,
    Replacement,
    ReplicaCounts,
    ReservationProgress,
)
from berth_descheduler.migration.moves.memory import (
    Eviction,
    FinalRefusal,
    PlaceOfMove,
    PodOfMove,
    Successor,
    Turn,
    Waits,
    remember,
)
from berth_descheduler.migration.moves.replacement_readiness import Trouble
from berth_descheduler.migration.moves.steps import Finish
from berth_descheduler.migration.retries import Retry

_NONE = ReplicaCounts()


@dataclass(frozen=True)
class Since:
    """When waits began; None: not begun."""

    reserving: float | None = None
    blocked: float | None = None
    evicted: float | None = None
    gone: float | None = None
    taken: float | None = None
    started: float | None = None
    troubled: float | None = None
    siblings: float | None = None
    stopping: float | None = None


@dataclass(frozen=True)
class Surge:
    """A pod that surges, with its waits."""

    wanted: bool = False
    reason: str = ""
    in_turn: bool = True
    asked: bool = False
    released: bool = False
    released_since: float | None = None
    min_ready_seconds: float = 0.0
    available: bool = False
    ready_since: float | None = None
    alone_since: float | None = None
    misplaced: str = ""
    misplaced_since: float | None = None
    end: Finish | None = None
    returned: bool = False
    ownerless: bool = False


@dataclass(frozen=True)
class MoveScene:
    """One move, what is remembered of it, seen of it and around it."""

    target: str
    presence: Presence = Presence.ON_SOURCE
    place: ReservationProgress = ReservationProgress.NOT_CREATED
    place_detail: str = ""
    eviction: Eviction = Eviction.NOT_SENT
    eviction_detail: str = ""
    retry_eviction_at: float | None = None
    is_untouched: bool = False
    refusal: MoveReason = MoveReason.NONE
    refusal_detail: str = ""
    replacement: Replacement | None = None
    trouble: Trouble | None = None
    start_seconds: float = 0.0
    progress_seconds: float | None = 0.0
    successor: str = ""
    is_lost_to_others: bool = False
    must_be_ready: bool = True
    grace_seconds: float = 0.0
    stay_detail: str = ""
    replicas: ReplicaCounts = _NONE
    source_ready: bool = True
    source_lost: bool = False
    stop: MoveReason = MoveReason.NONE
    since: Since = Since()
    ahead: bool = False
    postponed: bool = False
    surge: Surge = Surge()

    def facts(self) -> MoveFacts:
        move = PlannedMove(namespace="default", pod="web-0", pod_uid="uid", source="source", target=self.target)
        known = remember("plan", 0, move)
        known.turn = Turn(1, ahead=self.ahead)
        known.place = PlaceOfMove(postponed=self.postponed)
        known.pod = PodOfMove(
            answer=self.eviction,
            detail=self.eviction_detail,
            is_untouched=self.is_untouched,
            was_ready=self.must_be_ready,
            grace_seconds=self.grace_seconds,
            start_seconds=self.start_seconds,
            progress_seconds=self.progress_seconds,
        )
        known.successor = Successor(self.successor)
        known.surge = memory.Surge(
            wanted=self.surge.wanted,
            reason=self.surge.reason,
            in_turn=self.surge.in_turn,
            asked=self.surge.asked,
            released=self.surge.released,
            min_ready_seconds=self.surge.min_ready_seconds,
            available=self.surge.available,
            misplaced=self.surge.misplaced,
            end=self.surge.end,
            returned=self.surge.returned,
            ownerless=self.surge.ownerless,
        )
        known.refused = FinalRefusal(self.refusal, self.refusal_detail)
        known.retry = Retry(at=self.retry_eviction_at)
        known.waits = self._waits()
        return MoveFacts(
            known,
            MoveObservation(
                presence=self.presence,
                place=self.place,
                place_detail=self.place_detail,
                is_lost_to_others=self.is_lost_to_others,
                replacement=self.replacement,
                trouble=self.trouble,
                stay_detail=self.stay_detail,
            ),
            OtherMoves(
                replicas=self.replicas,
                source_ready=self.source_ready,
                source_lost=self.source_lost,
                stop=self.stop,
                stopping_since=self.since.stopping,
            ),
        )

    def _waits(self) -> Waits:
        since, surge = self.since, self.surge
        times = {
            memory.Since.RESERVING: since.reserving,
            memory.Since.BLOCKED: since.blocked,
            memory.Since.EVICTED: since.evicted,
            memory.Since.GONE: since.gone,
            memory.Since.TAKEN: since.taken,
            memory.Since.STARTED: since.started,
            memory.Since.TROUBLED: since.troubled,
            memory.Since.SIBLINGS_UNREADY: since.siblings,
            memory.Since.RELEASED: surge.released_since,
            memory.Since.READY: surge.ready_since,
            memory.Since.ALONE: surge.alone_since,
            memory.Since.MISPLACED: surge.misplaced_since,
        }
        return Waits({event: at for event, at in times.items() if at is not None})
