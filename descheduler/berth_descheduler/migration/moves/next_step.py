"""Decides the next step of a move from its current facts.

The decisions are pure. A move has two halves that the API server shows separately: its pod leaves the source, and its
place is taken. Pods of one controller are alike, so a replacement may take the place of a sibling. Nothing is lost as
long as no more pods are evicted than places are held. So every eviction requires a *spare* place of the same
controller, not only its own Reservation.
"""

from dataclasses import replace
from typing import Final, assert_never

from berth_core import MoveReason, MoveState
from berth_descheduler.migration.moves.facts import (
    FREE,
    Eviction,
    MoveFacts,
    Presence,
    Replacement,
    ReservationProgress,
)
from berth_descheduler.migration.moves.replacement_readiness import Trouble
from berth_descheduler.migration.moves.steps import (
    Evict,
    Finish,
    LookAgain,
    Postpone,
    Release,
    Reserve,
    Step,
    TakeBack,
    Wait,
)
from berth_descheduler.settings import MoveTimeouts

_LATE_WATCHES: Final = 3
"""A replacement that was seen to take its place counts as removed after so many times the longest delay of watches."""

_NOT_MADE: Final = "its controller was deleted or wants fewer pods by now, and makes none in its stead"

_NOT_HELD: Final = {MoveReason.RESERVATION_FAILED, MoveReason.RESERVATION_TIMEOUT, MoveReason.HANDOVER_NOT_READY}


def next_step(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Return the next step of a move.

    `now` is in the monotonic seconds of `facts.since`.
    """
    if facts.surge.end is not None and (facts.surge.ownerless or not facts.evicted):
        return _taking_back(facts, facts.surge.end, timeouts, now)
    if facts.evicted:
        return _after_eviction(facts, timeouts, now) if facts.target else _until_gone(facts, timeouts, now)
    match facts.presence:
        case Presence.ON_SOURCE if facts.surge.released:
            return _while_released(facts, timeouts, now)
        case Presence.ON_SOURCE:
            step = _before_turn(facts, _before_eviction(facts, timeouts, now))
            return TakeBack(step) if facts.surge.asked and isinstance(step, Finish) else step
        case Presence.LEAVING | Presence.GONE if facts.surge.released:
            return _after_eviction(facts, timeouts, now)
        case Presence.LEAVING | Presence.GONE:
            return _left_by_itself(facts, timeouts, now)
        case _:
            assert_never(facts.presence)


def _left_by_itself(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that left without this run's eviction.

    It may land all the same.
    """
    if facts.place in {ReservationProgress.HANDING_OVER, ReservationProgress.BOUND}:
        return _after_eviction(facts, timeouts, now)
    message = "the pod was deleted or has ended before its turn"
    if facts.eviction is Eviction.INTERCEPTED:
        message = _joined(
            "the pod was moved or deleted by another client after its eviction was requested", facts.eviction_detail
        )
    return Finish(MoveState.SKIPPED, MoveReason.POD_GONE, message, release=True)


def _before_eviction(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    step = _given_up(facts) or _behind_siblings(facts, timeouts, now)
    if step is not None:
        return step
    return _by_place(facts, timeouts, now) if facts.target else _without_place(facts, timeouts, now)


def _before_turn(facts: MoveFacts, step: Step) -> Step:
    """Return the step, but ask later for a place that could not be held ahead: a quota may have room only then."""
    if not isinstance(step, Finish):
        return Postpone("") if facts.postponed else step
    is_early = facts.ahead and not facts.surge.in_turn
    return Postpone(step.message) if is_early and step.reason in _NOT_HELD and step.state is MoveState.FAILED else step


def _given_up(facts: MoveFacts) -> Step | None:
    """Return how a cancelled move ends, None if it goes on."""
    if facts.stop:
        return Finish(MoveState.SKIPPED, facts.stop, "not begun when the plan was stopped", release=True)
    if facts.source_lost:
        message = "another pod has to stay on the source, so emptying it is given up"
        return Finish(MoveState.SKIPPED, MoveReason.SOURCE_NOT_EMPTIABLE, message, release=True)
    if facts.refusal:
        return _refused(facts)
    if facts.eviction is Eviction.REFUSED:
        return Finish(MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, facts.eviction_detail, release=True)
    return None


def _behind_siblings(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step | None:
    """Return the step of a move that waits for its siblings.

    None if it need not wait.
    """
    if facts.siblings_ready:
        return None
    limit = timeouts.ready_seconds + facts.start_seconds
    if _elapsed(facts.since.siblings, limit, now):
        message = f"a pod that took a sibling's place was not Ready for {limit:g} s"
        return Finish(MoveState.SKIPPED, MoveReason.SIBLING_NOT_READY, message, release=True)
    state = MoveState.PENDING if facts.place is ReservationProgress.NOT_CREATED else MoveState.RESERVED
    return Wait(state, "waits until the pods that took its siblings' places are Ready")


def _by_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    match facts.place:
        case ReservationProgress.NOT_CREATED if not (facts.surge.in_turn or facts.ahead):
            return Wait(MoveState.PENDING, "waits for the move of a sibling")
        case ReservationProgress.NOT_CREATED if not _elapsed(facts.since.reserving, timeouts.reserve_seconds, now):
            return Reserve()
        case ReservationProgress.LOST:
            return Finish(MoveState.FAILED, MoveReason.RESERVATION_FAILED, facts.place_detail, release=True)
        case ReservationProgress.NOT_CREATED | ReservationProgress.PENDING | ReservationProgress.UNVERIFIED:
            return _await_place(facts, timeouts, now)
        case ReservationProgress.READY | ReservationProgress.HANDING_OVER | ReservationProgress.BOUND:
            return _await_eviction(facts, timeouts, now)
        case _:
            assert_never(facts.place)


def _refused(facts: MoveFacts) -> Finish:
    untouched = {MoveReason.FILTERED, MoveReason.POD_GONE, MoveReason.POD_CHANGED, MoveReason.ROOM_NOT_NEEDED}
    state = MoveState.SKIPPED if facts.refusal in untouched else MoveState.FAILED
    return Finish(state, facts.refusal, facts.refusal_detail, release=True)


def _await_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    if not _elapsed(facts.since.reserving, timeouts.reserve_seconds, now):
        return Wait(MoveState.RESERVING, facts.place_detail)
    if facts.place is ReservationProgress.UNVERIFIED:
        reason, what = MoveReason.HANDOVER_NOT_READY, "its hand-over was not proven"
    else:
        reason, what = MoveReason.RESERVATION_TIMEOUT, "the place was not held"
    message = _joined(f"{what} within {timeouts.reserve_seconds:g} s", facts.place_detail)
    return Finish(MoveState.FAILED, reason, message, release=True)


def _await_eviction(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    if (blocked := _blocked_for_long(facts, timeouts, now)) is not None:
        return blocked
    if not facts.source_ready:
        return Wait(MoveState.RESERVED, "waits until every pod that leaves with it has a place")
    if facts.replicas.held <= facts.replicas.awaiting_replacement:
        return _without_spare_place(facts, now)
    if _is_too_early(facts, now):
        return Wait(MoveState.RESERVED, facts.eviction_detail)
    if not facts.surge.in_turn:
        return Wait(MoveState.RESERVED, "waits for the move of a sibling")
    return Release() if facts.surge.wanted else Evict()


def _blocked_for_long(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return the end of a move whose eviction was refused until its deadline, else None."""
    if not _elapsed(facts.since.blocked, timeouts.evict_seconds, now):
        return None
    message = _joined(f"the eviction was refused for {timeouts.evict_seconds:g} s", facts.eviction_detail)
    webhook = facts.eviction is Eviction.INTERCEPTED
    reason = MoveReason.EVICTION_INTERCEPTED if webhook else MoveReason.EVICTION_BLOCKED
    return Finish(MoveState.FAILED, reason, message, release=True)


def _without_spare_place(facts: MoveFacts, now: float) -> Step:
    if facts.replicas.awaiting_replacement:
        return Wait(MoveState.RESERVED, "waits until its evicted siblings have their places")
    if facts.place is ReservationProgress.READY:
        return Wait(MoveState.RESERVED, "waits for a look at its siblings' places")
    if (facts.surge.asked or facts.eviction is Eviction.UNANSWERED) and not facts.is_untouched:
        # Pods and Reservations come by watches of their own: what took the place may be its own replacement.
        return Wait(MoveState.RESERVED, facts.eviction_detail) if _is_too_early(facts, now) else LookAgain()
    message = "its place went to another pod of the same owner"
    return Finish(MoveState.SKIPPED, MoveReason.RESERVATION_FAILED, message, release=True)


def _after_eviction(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    match facts.place:
        case ReservationProgress.BOUND | ReservationProgress.HANDING_OVER if (
            facts.is_taken and facts.presence is not Presence.ON_SOURCE
        ):
            return _await_ready(facts, timeouts, now)
        case ReservationProgress.LOST | ReservationProgress.NOT_CREATED:
            message = _joined("the pod was evicted, then its Reservation was lost", facts.place_detail)
            message += "; its replacement is scheduled as usual"
            return Finish(MoveState.FAILED, MoveReason.RESERVATION_FAILED, message, release=True)
        case (
            ReservationProgress.PENDING
            | ReservationProgress.UNVERIFIED
            | ReservationProgress.READY
            | ReservationProgress.HANDING_OVER
            | ReservationProgress.BOUND
        ):
            return _await_landing(facts, timeouts, now)
        case _:
            assert_never(facts.place)


def _await_ready(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a taken place.

    Its Succeeded Reservation holds nothing and stays for people to see. One that is not recorded as taken although its
    pod has long had its node has no operator that records anything.
    """
    seen, trouble, unrecorded = facts.replacement, facts.trouble, facts.place is not ReservationProgress.BOUND
    is_settled = not unrecorded or _elapsed(facts.since.taken, timeouts.gap_seconds, now)
    is_hopeless = trouble is not None and (trouble.has_ended or (trouble.is_final and facts.must_be_ready))
    if seen is not None and trouble is not None and is_hopeless:
        return Finish(MoveState.FAILED, trouble.reason, _troubled(seen, trouble), release=unrecorded)
    if seen is not None and seen.node and is_settled and (seen.ready or not facts.must_be_ready):
        return _landed(facts.target, seen.node)
    if seen is None and _elapsed(facts.since.taken, _LATE_WATCHES * timeouts.gap_seconds, now):
        message = f"the replacement was removed from {facts.target} by others before it was Ready"
        return Finish(MoveState.FAILED, MoveReason.REPLACEMENT_GONE, message)
    limit = timeouts.ready_seconds + facts.start_seconds
    if _is_overdue(facts, limit, now):
        reason = MoveReason.REPLACEMENT_TIMEOUT if trouble is None else trouble.reason
        message = _joined(f"the replacement {_what_is_amiss(seen)} after {limit:g} s", _detail(facts))
        return Finish(MoveState.FAILED, reason, message, release=unrecorded)
    if facts.stop is MoveReason.INTERRUPTED and _elapsed(facts.since.stopping, timeouts.shutdown_seconds, now):
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, "stopped before the replacement was Ready")
    return Wait(MoveState.EVICTED, _joined("waits until the replacement is Ready", _detail(facts)))


def _is_overdue(facts: MoveFacts, limit: float, now: float) -> bool:
    """Return whether a replacement took longer than `limit` until its containers ran, or from then until now.

    Images of some gigabytes take their time before the containers start, and probes theirs after that.
    """
    return _elapsed(facts.since.taken if facts.since.started is None else facts.since.started, limit, now)


def _detail(facts: MoveFacts) -> str:
    if facts.trouble is not None:
        return facts.trouble.message
    return facts.replacement.detail if facts.replacement is not None else ""


def _troubled(seen: Replacement, trouble: Trouble) -> str:
    return f"the replacement {seen.name} on {seen.node} does not become Ready: {trouble.message}"


def _what_is_amiss(seen: Replacement | None) -> str:
    """Return why a replacement is not Ready."""
    if seen is None:
        return "was not seen"
    return f"runs on {seen.node} but is not Ready" if seen.node else "has no node yet"


def _landed(target: str, node: str) -> Finish:
    if node == target:
        return Finish(MoveState.LANDED)
    return Finish(MoveState.ELSEWHERE, message=f"the replacement runs on {node}, not on {target}")


def _await_landing(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    if facts.stop is MoveReason.INTERRUPTED and _elapsed(facts.since.stopping, timeouts.shutdown_seconds, now):
        message = "stopped while the replacement was on its way; its Reservation stays and is handed over"
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, message)
    if facts.place in FREE and (stays := _stays(facts, timeouts, now)) is not None:
        return stays
    is_free = facts.presence is Presence.GONE and facts.place in FREE
    if is_free and not facts.replicas.awaiting_replacement:
        return _place_left_over(facts)
    if is_free and facts.replicas.is_full:
        return Finish(MoveState.FAILED, MoveReason.REPLACEMENT_GONE, _NOT_MADE, release=True)
    if _elapsed(*_landing_clock(facts, timeouts), now):
        message = _joined(f"no replacement took the place within {timeouts.land_seconds:g} s", facts.place_detail)
        return Finish(MoveState.FAILED, MoveReason.REPLACEMENT_TIMEOUT, message, release=True)
    return Wait(MoveState.EVICTED, facts.place_detail)


def _stays(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return the end of a move whose evicted pod has not ended long after its grace period, else None.

    Its place is given back: nothing is made in its stead before it is gone, or that had come by now.
    """
    is_leaving = facts.presence is not Presence.GONE
    if not is_leaving or not _elapsed(facts.since.evicted, facts.grace_seconds + timeouts.end_seconds, now):
        return None
    message = f"the pod was evicted and had not ended {timeouts.end_seconds:g} s after its grace period"
    release = bool(facts.target)
    return Finish(MoveState.FAILED, MoveReason.POD_STAYS, _joined(message, facts.stay_detail), release=release)


def _place_left_over(facts: MoveFacts) -> Step:
    """Decide for a place left free: a sibling that still moves takes it, but one that surges waits for its turn."""
    if facts.replicas.not_evicted and not facts.surge.wanted:
        return Wait(MoveState.EVICTED, "its replacement has another place, a sibling gets this one")
    message = "its replacement took the place of a sibling that stays where it is"
    if facts.replicas.misplaced:
        message = (
            f"its replacement was not handed the place and runs on {facts.replicas.misplaced}, not on {facts.target}"
        )
    return Finish(MoveState.ELSEWHERE, message=message, release=True)


def _landing_clock(facts: MoveFacts, timeouts: MoveTimeouts) -> tuple[float | None, float]:
    """Return when the wait for a landing began and its length.

    The length includes the pod's grace period until the pod is gone.
    """
    if facts.presence is Presence.GONE and facts.since.gone is not None:
        return facts.since.gone, timeouts.land_seconds
    return facts.since.evicted, timeouts.land_seconds + facts.grace_seconds


def _while_released(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that was let go and is not evicted."""
    if (end := _end_of_surge(facts, timeouts, now)) is not None:
        return TakeBack(end)
    if facts.surge.available and facts.place is ReservationProgress.BOUND:
        return Wait(MoveState.RESERVED, facts.eviction_detail) if _is_too_early(facts, now) else Evict()
    if (end := _why_taken_back(facts, timeouts, now)) is not None:
        return TakeBack(end)
    return Wait(
        MoveState.RESERVED, _joined("waits until its replacement is available; it runs on meanwhile", _detail(facts))
    )


def _end_of_surge(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return how a move ends that may not evict its pod, None if it may."""
    if facts.refusal:
        return _refused(facts)
    if facts.eviction is Eviction.REFUSED:
        return Finish(MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, facts.eviction_detail, release=True)
    is_blocked = facts.eviction in {Eviction.BLOCKED, Eviction.INTERCEPTED}
    if facts.stop and (is_blocked or not facts.surge.available):
        return Finish(MoveState.SKIPPED, facts.stop, "taken back when the plan was stopped", release=True)
    return _blocked_for_long(facts, timeouts, now)


def _why_taken_back(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return how the move of a pod ends that was let go and has to be taken back, None if all goes well."""
    seen, trouble = facts.replacement, facts.trouble
    if seen is not None and trouble is not None and _elapsed(facts.since.troubled, trouble.patience_seconds, now):
        return _taken_back(_troubled(seen, trouble), trouble.reason)
    if amiss := _amiss_with_place(facts, timeouts, now):
        return _taken_back(amiss)
    if not facts.is_taken:
        overdue = _elapsed(facts.surge.released_since, timeouts.land_seconds, now)
        message = _joined(f"no replacement took the place within {timeouts.land_seconds:g} s", facts.place_detail)
        return _taken_back(message) if overdue else None
    limit = timeouts.ready_seconds + facts.start_seconds + facts.surge.min_ready_seconds
    if not _is_overdue(facts, limit, now):
        return None
    message = _joined(f"the replacement was not available {limit:g} s after it began", _detail(facts))
    return _taken_back(message, MoveReason.TAKEN_BACK if trouble is None else trouble.reason)


def _taken_back(message: str, reason: MoveReason = MoveReason.TAKEN_BACK) -> Finish:
    return Finish(MoveState.FAILED, reason, message, release=True)


def _amiss_with_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> str:
    """Return why no replacement gets the place, or another than planned; "" if one may."""
    surge, seen = facts.surge, facts.replacement
    if facts.place in {ReservationProgress.NOT_CREATED, ReservationProgress.LOST}:
        return _joined("its place was lost", facts.place_detail)
    if facts.place is ReservationProgress.BOUND and seen is not None and seen.node not in {"", facts.target}:
        return f"its replacement runs on {seen.node}, not on {facts.target}"
    if _elapsed(surge.misplaced_since, timeouts.gap_seconds, now):
        return f"its replacement was not handed the place and runs on {surge.misplaced}"
    if _elapsed(surge.alone_since, timeouts.gap_seconds, now):
        return "its ReplicaSet has no pod in its stead: it was scaled down, or may make no more"
    return ""


def _taking_back(facts: MoveFacts, end: Finish, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that is being taken back."""
    if facts.surge.returned or facts.presence is not Presence.ON_SOURCE:
        return end
    if facts.stop is MoveReason.INTERRUPTED and _elapsed(facts.since.stopping, timeouts.shutdown_seconds, now):
        message = "stopped before its ReplicaSet had it back: the next run gives it back"
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, message)
    return _without_replica_set(facts, timeouts, now) if facts.surge.ownerless else TakeBack(end)


def _without_replica_set(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that was let go and that nothing would take back: it has to go."""
    if facts.eviction is Eviction.REFUSED:
        return Finish(MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, facts.eviction_detail, release=True)
    if (blocked := _blocked_for_long(facts, timeouts, now)) is not None:
        return replace(blocked, message=f"its ReplicaSet is gone, and {blocked.message}")
    if facts.eviction is Eviction.SENT or _is_too_early(facts, now):
        return Wait(MoveState.RESERVED, _joined("its ReplicaSet is gone, so it has to go", facts.eviction_detail))
    return Evict()


def _without_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    if (blocked := _blocked_for_long(facts, timeouts, now)) is not None:
        return blocked
    if _is_too_early(facts, now):
        return Wait(MoveState.PENDING, facts.eviction_detail)
    return Evict()


def _until_gone(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for an evicted pod: it has to go, and its controller has some seconds to make it again."""
    if facts.presence is Presence.GONE:
        return _removed(facts, timeouts, now)
    if facts.stop is MoveReason.INTERRUPTED and _elapsed(facts.since.stopping, timeouts.shutdown_seconds, now):
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, "stopped while the pod was ending")
    return _stays(facts, timeouts, now) or Wait(MoveState.EVICTED, "waits until the pod has ended")


def _removed(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    seen = facts.replacement
    if seen is not None:
        where = f"runs on {seen.node}" if seen.node else "waits for a node"
        return Finish(MoveState.REMOVED, message=f"its replacement {seen.name} {where}")
    if _elapsed(facts.since.gone, timeouts.gap_seconds, now) or facts.stop is MoveReason.INTERRUPTED:
        return Finish(MoveState.REMOVED, message="its controller has made no other pod yet")
    return Wait(MoveState.EVICTED, "waits until its controller makes it again")


def _is_too_early(facts: MoveFacts, now: float) -> bool:
    """Return whether the last refusal asks to wait longer before the next request."""
    return facts.retry_eviction_at is not None and now < facts.retry_eviction_at


def _elapsed(since: float | None, seconds: float, now: float) -> bool:
    return since is not None and now - since >= seconds


def _joined(what: str, detail: str) -> str:
    return f"{what}: {detail}" if detail else what
