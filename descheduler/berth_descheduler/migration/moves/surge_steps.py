"""Decides the next step of a pod that its ReplicaSet has let go.

The pod runs on until its replacement is available. Whatever goes wrong before, it is taken back, and nothing has
happened to it.
"""

from dataclasses import replace

from berth_core import MoveReason, MoveState
from berth_descheduler.migration.moves.facts import MoveFacts, Presence, ReservationProgress
from berth_descheduler.migration.moves.given_up import (
    blocked_for_long,
    describe_trouble,
    is_overdue,
    joined,
    readiness_detail,
    refused,
)
from berth_descheduler.migration.moves.memory import Eviction, Since
from berth_descheduler.migration.moves.start_limits import start_limit
from berth_descheduler.migration.moves.steps import Evict, Finish, Step, TakeBack, Wait
from berth_descheduler.settings import MoveTimeouts


def while_released(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that was let go and is not evicted."""
    memory = facts.memory
    if (end := _end_of_surge(facts, timeouts, now)) is not None:
        return TakeBack(end)
    # Availability as of a Deployment: Ready for minReadySeconds, which a ReplicaSet counts in the same way.
    if memory.surge.available and facts.seen.place is ReservationProgress.BOUND:
        return Wait(MoveState.RESERVED, memory.pod.detail) if memory.retry.is_too_early(now) else Evict()
    if (end := _why_taken_back(facts, timeouts, now)) is not None:
        return TakeBack(end)
    return Wait(
        MoveState.RESERVED,
        joined("waits until its replacement is available; it runs on meanwhile", readiness_detail(facts)),
    )


def _end_of_surge(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return how a move ends that may not evict its pod, None if it may."""
    memory = facts.memory
    if memory.refused.reason:
        return refused(facts)
    if memory.pod.answer is Eviction.REFUSED:
        return Finish(MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, memory.pod.detail, release=True)
    is_blocked = memory.pod.answer in {Eviction.BLOCKED, Eviction.INTERCEPTED}
    if facts.others.stop and (is_blocked or not memory.surge.available) and not _outlasts_stop(facts):
        return Finish(MoveState.SKIPPED, facts.others.stop, "taken back when the plan was stopped", release=True)
    return blocked_for_long(facts, timeouts, now)


def _outlasts_stop(facts: MoveFacts) -> bool:
    """Return whether a surge goes on although the plan begins nothing new: its replacement has its place.

    A person who aborts or interrupts the plan wants it to end.
    """
    is_claimed = facts.seen.place in {ReservationProgress.HANDING_OVER, ReservationProgress.BOUND}
    is_ended_by_people = facts.others.stop in {MoveReason.ABORTED, MoveReason.INTERRUPTED}
    return is_claimed and facts.seen.replacement is not None and not is_ended_by_people


def _why_taken_back(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return how the move of a pod ends that was let go and has to be taken back, None if all goes well."""
    memory = facts.memory
    replacement, trouble = facts.seen.replacement, facts.seen.trouble
    if (
        replacement is not None
        and trouble is not None
        and memory.waits.lasts(Since.TROUBLED, trouble.patience_seconds, now)
    ):
        return _taken_back(describe_trouble(replacement, trouble), trouble.reason)
    if why_changed := _changed_by_others(facts, timeouts, now):
        return Finish(MoveState.SKIPPED, MoveReason.TAKEN_BACK, why_changed, release=True)
    if why_amiss := _amiss_with_place(facts, timeouts, now):
        return _taken_back(why_amiss)
    if not facts.is_taken:
        overdue = memory.waits.lasts(Since.RELEASED, timeouts.land_seconds, now)
        message = joined(f"no replacement took the place within {timeouts.land_seconds:g} s", facts.seen.place_detail)
        return _taken_back(message) if overdue else None
    limit = start_limit(memory, timeouts)
    if not is_overdue(facts, limit, now):
        return None
    message = joined(f"the replacement was not available {limit:g} s after it began", readiness_detail(facts))
    return _taken_back(message, MoveReason.TAKEN_BACK if trouble is None else trouble.reason)


def _taken_back(message: str, reason: MoveReason = MoveReason.TAKEN_BACK) -> Finish:
    return Finish(MoveState.FAILED, reason, message, release=True)


def _changed_by_others(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> str:
    """Return what others have changed so that the pod does not move, "" for nothing; the move has then not failed."""
    memory = facts.memory
    if facts.seen.place is ReservationProgress.LOST and facts.seen.is_lost_to_others:
        return joined("its place was lost", facts.seen.place_detail)
    if memory.waits.lasts(Since.ALONE, timeouts.gap_seconds, now):
        return "its ReplicaSet has no pod in its stead: it was scaled down, or may make no more"
    if memory.waits.lasts(Since.MISPLACED, timeouts.gap_seconds, now) and memory.successor.uid:
        return f"its replacement was removed by others, and the next one runs on {memory.surge.misplaced}"
    return ""


def _amiss_with_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> str:
    """Return why no replacement gets the place, or gets another one, "" while one may get it."""
    memory = facts.memory
    surge, replacement = memory.surge, facts.seen.replacement
    if facts.seen.place in {ReservationProgress.NOT_CREATED, ReservationProgress.LOST}:
        return joined("its place was lost", facts.seen.place_detail)
    if (
        facts.seen.place is ReservationProgress.BOUND
        and replacement is not None
        and replacement.node not in {"", facts.target}
    ):
        return f"its replacement runs on {replacement.node}, not on {facts.target}"
    if memory.waits.lasts(Since.MISPLACED, timeouts.gap_seconds, now):
        return f"its replacement was not handed the place and runs on {surge.misplaced}"
    return ""


def taking_back(facts: MoveFacts, end: Finish, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that is being taken back."""
    memory = facts.memory
    if memory.surge.returned or facts.seen.presence is not Presence.ON_SOURCE:
        return end
    if facts.others.is_interrupted_for(timeouts.shutdown_seconds, now):
        message = "stopped before its ReplicaSet had it back: the next run gives it back"
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, message)
    return _without_replica_set(facts, timeouts, now) if memory.surge.ownerless else TakeBack(end)


def _without_replica_set(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that was let go and that nothing would take back: it has to go."""
    memory = facts.memory
    if memory.pod.answer is Eviction.REFUSED:
        return Finish(MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, memory.pod.detail, release=True)
    if (blocked_step := blocked_for_long(facts, timeouts, now)) is not None:
        return replace(blocked_step, message=f"its ReplicaSet is gone, and {blocked_step.message}")
    if memory.pod.answer is Eviction.SENT or memory.retry.is_too_early(now):
        return Wait(MoveState.RESERVED, joined("its ReplicaSet is gone, so it has to go", memory.pod.detail))
    return Evict()
