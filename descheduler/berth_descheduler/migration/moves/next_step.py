"""Decides the next step of a move from its current facts.

The decisions are pure. A move has two halves that the API server shows separately: its pod leaves the source, and its
place is taken. Pods of one controller are alike, so a replacement may take the place of a sibling. Nothing is lost as
long as no more pods are evicted than places are held. So every eviction requires a *spare* place of the same
controller, not only its own Reservation.
"""

from typing import Final, assert_never

from berth_core import MoveReason, MoveState
from berth_descheduler.migration.moves.eviction_steps import until_gone, without_place
from berth_descheduler.migration.moves.facts import FREE, MoveFacts, Presence, Replacement, ReservationProgress
from berth_descheduler.migration.moves.given_up import (
    blocked_for_long,
    describe_trouble,
    is_overdue,
    joined,
    pod_stays,
    readiness_detail,
    refused,
)
from berth_descheduler.migration.moves.memory import Eviction, Since, has_elapsed
from berth_descheduler.migration.moves.start_limits import start_limit
from berth_descheduler.migration.moves.steps import (
    Evict,
    Finish,
    LookAgain,
    Postpone,
    ReleaseFromOwner,
    Reserve,
    Step,
    TakeBack,
    Wait,
)
from berth_descheduler.migration.moves.surge_steps import taking_back, while_released
from berth_descheduler.settings import MoveTimeouts

_LATE_WATCHES: Final = 3
"""A replacement that took its place and is not seen counts as removed after this many times the longest watch delay."""

_NOT_MADE: Final = "its controller was deleted or wants fewer pods by now, and makes none in its stead"
_NOT_HELD: Final = {MoveReason.RESERVATION_FAILED, MoveReason.RESERVATION_TIMEOUT, MoveReason.HANDOVER_NOT_READY}


def next_step(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Return the next step of a move; `now` is in monotonic seconds, as are the times in the facts."""
    memory = facts.memory
    # Once a pod is taken back, nothing else may end its move: it would run on without a controller.
    if memory.surge.end is not None and (memory.surge.ownerless or not facts.evicted):
        return taking_back(facts, memory.surge.end, timeouts, now)
    if facts.evicted:
        return _after_eviction(facts, timeouts, now) if facts.target else until_gone(facts, timeouts, now)
    match facts.seen.presence:
        case Presence.ON_SOURCE if memory.surge.released:
            return while_released(facts, timeouts, now)
        case Presence.ON_SOURCE:
            step = _before_turn(facts, _before_eviction(facts, timeouts, now))
            # A request without an answer may have let the pod go all the same.
            return TakeBack(step) if memory.surge.asked and isinstance(step, Finish) else step
        case Presence.LEAVING | Presence.GONE if memory.surge.released:
            return _after_eviction(facts, timeouts, now)
        case Presence.LEAVING | Presence.GONE:
            return _left_by_itself(facts, timeouts, now)
        case _:
            assert_never(facts.seen.presence)


def _left_by_itself(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a pod that left without this run's eviction; its replacement may land all the same."""
    memory = facts.memory
    # Another client's eviction or deletion moved it for us: the webhook gates every owner, whoever removed the old pod.
    if facts.seen.place in {ReservationProgress.HANDING_OVER, ReservationProgress.BOUND}:
        return _after_eviction(facts, timeouts, now)
    message = "the pod was deleted or has ended before its turn"
    if memory.pod.answer is Eviction.INTERCEPTED:
        message = joined(
            "the pod was moved or deleted by another client after its eviction was requested", memory.pod.detail
        )
    return Finish(MoveState.SKIPPED, MoveReason.POD_GONE, message, release=True)


def _before_eviction(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    step = _given_up(facts) or _behind_siblings(facts, timeouts, now)
    if step is not None:
        return step
    return _by_place(facts, timeouts, now) if facts.target else without_place(facts, timeouts, now)


def _before_turn(facts: MoveFacts, step: Step) -> Step:
    """Return the step; a place that cannot be held ahead is asked for later, when a quota may have room for it."""
    memory = facts.memory
    if not isinstance(step, Finish):
        return Postpone("") if memory.place.postponed else step
    is_early = memory.turn.ahead and not memory.surge.in_turn
    return Postpone(step.message) if is_early and step.reason in _NOT_HELD and step.state is MoveState.FAILED else step


def _given_up(facts: MoveFacts) -> Step | None:
    """Return how a cancelled move ends, None if it goes on."""
    memory = facts.memory
    # Before the other reasons, so that the status says that the plan was stopped, and not what would have stopped this
    # move.
    if facts.others.stop:
        return Finish(MoveState.SKIPPED, facts.others.stop, "not begun when the plan was stopped", release=True)
    if facts.others.source_lost:
        message = "another pod has to stay on the source, so emptying it is given up"
        return Finish(MoveState.SKIPPED, MoveReason.SOURCE_NOT_EMPTIABLE, message, release=True)
    if memory.refused.reason:
        return refused(facts)
    if memory.pod.answer is Eviction.REFUSED:
        return Finish(MoveState.FAILED, MoveReason.EVICTION_FORBIDDEN, memory.pod.detail, release=True)
    return None


def _behind_siblings(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step | None:
    """Return the step of a move that waits for its siblings, None if it need not wait."""
    memory = facts.memory
    if facts.siblings_ready:
        return None
    limit = start_limit(memory, timeouts)
    if memory.waits.lasts(Since.SIBLINGS_UNREADY, limit, now):
        message = f"a pod that took a sibling's place was not Ready for {limit:g} s"
        return Finish(MoveState.SKIPPED, MoveReason.SIBLING_NOT_READY, message, release=True)
    state = MoveState.PENDING if facts.seen.place is ReservationProgress.NOT_CREATED else MoveState.RESERVED
    return Wait(state, "waits until the pods that took its siblings' places are Ready")


def _by_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    memory = facts.memory
    match facts.seen.place:
        # A sibling's place would stand idle for its whole turn, and might be too late for its TTL.
        case ReservationProgress.NOT_CREATED if not (memory.surge.in_turn or memory.turn.ahead):
            return Wait(MoveState.PENDING, "waits for the move of a sibling")
        case ReservationProgress.NOT_CREATED if not memory.surge.in_turn and facts.others.replicas.without_place:
            # A quota may have room for one place more: it is for the pod that can leave.
            return Wait(MoveState.PENDING, "waits until the sibling before it has a place")
        case ReservationProgress.NOT_CREATED if not memory.waits.lasts(Since.RESERVING, timeouts.reserve_seconds, now):
            return Reserve()
        case ReservationProgress.LOST:
            return Finish(MoveState.FAILED, MoveReason.RESERVATION_FAILED, facts.seen.place_detail, release=True)
        case ReservationProgress.NOT_CREATED | ReservationProgress.PENDING | ReservationProgress.UNVERIFIED:
            return _await_place(facts, timeouts, now)
        case ReservationProgress.READY | ReservationProgress.HANDING_OVER | ReservationProgress.BOUND:
            return _await_eviction(facts, timeouts, now)
        case _:
            assert_never(facts.seen.place)


def _await_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    if not facts.memory.waits.lasts(Since.RESERVING, timeouts.reserve_seconds, now):
        return Wait(MoveState.RESERVING, facts.seen.place_detail)
    if facts.seen.place is ReservationProgress.UNVERIFIED:
        reason, shortfall = MoveReason.HANDOVER_NOT_READY, "its hand-over was not proven"
    else:
        reason, shortfall = MoveReason.RESERVATION_TIMEOUT, "the place was not held"
    message = joined(f"{shortfall} within {timeouts.reserve_seconds:g} s", facts.seen.place_detail)
    return Finish(MoveState.FAILED, reason, message, release=True)


def _await_eviction(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    memory = facts.memory
    if (blocked_step := blocked_for_long(facts, timeouts, now)) is not None:
        return blocked_step
    # The first eviction of a source waits for the last place: if one pod has no place, none has to leave.
    if not facts.others.source_ready:
        return Wait(MoveState.RESERVED, "waits until every pod that leaves with it has a place")
    # Whichever pod of its controller comes first takes the place, so the places of siblings count, not only its own.
    if facts.others.replicas.held <= facts.others.replicas.awaiting_replacement:
        return _without_spare_place(facts, now)
    if memory.retry.is_too_early(now):
        return Wait(MoveState.RESERVED, memory.pod.detail)
    if not memory.surge.in_turn:
        return Wait(MoveState.RESERVED, "waits for the move of a sibling")
    # A ReplicaSet that has let a pod go makes another one at once, so its place is taken while the old pod still
    # serves.
    return ReleaseFromOwner() if memory.surge.wanted else Evict()


def _without_spare_place(facts: MoveFacts, now: float) -> Step:
    memory = facts.memory
    if facts.others.replicas.awaiting_replacement:
        return Wait(MoveState.RESERVED, "waits until its evicted siblings have their places")
    if facts.seen.place is ReservationProgress.READY:
        return Wait(MoveState.RESERVED, "waits for a look at its siblings' places")
    if (memory.surge.asked or memory.pod.answer is Eviction.UNANSWERED) and not memory.pod.is_untouched:
        # Pods and Reservations come by watches of their own: what took the place may be its own replacement.
        return Wait(MoveState.RESERVED, memory.pod.detail) if memory.retry.is_too_early(now) else LookAgain()
    message = "its place went to another pod of the same owner"
    return Finish(MoveState.SKIPPED, MoveReason.RESERVATION_FAILED, message, release=True)


def _after_eviction(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    match facts.seen.place:
        case ReservationProgress.BOUND | ReservationProgress.HANDING_OVER if (
            facts.is_taken and facts.seen.presence is not Presence.ON_SOURCE
        ):
            return _await_ready(facts, timeouts, now)
        case ReservationProgress.LOST | ReservationProgress.NOT_CREATED:
            message = joined("its Reservation was lost", facts.seen.place_detail)
            message += "; its replacement is scheduled as usual"
            return _without_landing(facts, MoveReason.RESERVATION_FAILED, message, release=True)
        case (
            ReservationProgress.PENDING
            | ReservationProgress.UNVERIFIED
            | ReservationProgress.READY
            | ReservationProgress.HANDING_OVER
            | ReservationProgress.BOUND
        ):
            return _await_landing(facts, timeouts, now)
        case _:
            assert_never(facts.seen.place)


def _await_ready(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for a taken place.

    Its Succeeded Reservation holds nothing and stays for people to see. One that is not recorded as taken although its
    pod has long had its node has no operator that records anything.
    """
    memory = facts.memory
    replacement, trouble = facts.seen.replacement, facts.seen.trouble
    unrecorded = facts.seen.place is not ReservationProgress.BOUND
    # The operator records a place as taken a moment after its pod has its node.
    is_settled = not unrecorded or memory.waits.lasts(Since.TAKEN, timeouts.gap_seconds, now)
    is_hopeless = trouble is not None and (trouble.has_ended or (trouble.is_final and memory.pod.was_ready))
    if replacement is not None and trouble is not None and is_hopeless:
        return Finish(MoveState.FAILED, trouble.reason, describe_trouble(replacement, trouble), release=unrecorded)
    # A pod that was not Ready before need not become so: a broken pod is moved like any other.
    has_arrived = replacement is not None and (replacement.ready or not memory.pod.was_ready)
    if replacement is not None and replacement.node and is_settled and has_arrived and not replacement.ending:
        return _landed(facts.target, replacement.node, memory.successor.ending or "")
    # Reservations and pods come through separate watches without an order between them, so a pod that is missing may
    # only be late.
    if replacement is None and memory.waits.lasts(Since.TAKEN, _LATE_WATCHES * timeouts.gap_seconds, now):
        message = f"the replacement was removed from {facts.target} by others before it was Ready"
        return _without_landing(facts, MoveReason.REPLACEMENT_GONE, message, release=False)
    limit = start_limit(memory, timeouts)
    if is_overdue(facts, limit, now):
        reason = MoveReason.REPLACEMENT_TIMEOUT if trouble is None else trouble.reason
        message = joined(f"the replacement {_what_is_amiss(replacement)} after {limit:g} s", readiness_detail(facts))
        return Finish(MoveState.FAILED, reason, message, release=unrecorded)
    if facts.others.is_interrupted_for(timeouts.shutdown_seconds, now):
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, "stopped before the replacement was Ready")
    return Wait(_state_on_the_way(facts), joined("waits until the replacement is Ready", readiness_detail(facts)))


def _what_is_amiss(seen: Replacement | None) -> str:
    """Return what a replacement lacks to be Ready, as a predicate of a sentence."""
    if seen is None:
        return "was not seen"
    if seen.node and seen.ending:
        return seen.ending
    return f"runs on {seen.node} but is not Ready" if seen.node else "has no node yet"


def _landed(target: str, node: str, ending: str) -> Finish:
    """Decide for a replacement that is there; one that its node is about to end has not landed."""
    if node == target and ending:
        return Finish(MoveState.FAILED, MoveReason.TARGET_UNFIT, f"the replacement will not stay on {ending}")
    if node == target:
        return Finish(MoveState.LANDED)
    return Finish(MoveState.ELSEWHERE, message=f"the replacement runs on {node}, not on {target}")


def _await_landing(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    if facts.others.is_interrupted_for(timeouts.shutdown_seconds, now):
        # Not released: the pod is gone already, and the operator hands the place over without the descheduler.
        message = "stopped while the replacement was on its way; its Reservation stays and is handed over"
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, message)
    if facts.seen.place in FREE and (end := pod_stays(facts, timeouts, now)) is not None:
        return end
    # Some controllers, such as a StatefulSet, replace a pod only once it is gone: a free place means nothing before
    # (`processReplica` in `pkg/controller/statefulset`).
    is_free = facts.seen.presence is Presence.GONE and facts.seen.place in FREE
    if is_free and not facts.others.replicas.awaiting_replacement:
        return _place_left_over(facts)
    if facts.seen.is_unclaimed and facts.others.replicas.is_full:
        return _without_landing(facts, MoveReason.REPLACEMENT_GONE, _NOT_MADE, release=True)
    if has_elapsed(*_landing_clock(facts, timeouts), now):
        message = joined(f"no replacement took the place within {timeouts.land_seconds:g} s", facts.seen.place_detail)
        return _without_landing(facts, MoveReason.REPLACEMENT_TIMEOUT, message, release=True)
    return Wait(_state_on_the_way(facts), facts.seen.place_detail)


def _without_landing(facts: MoveFacts, reason: MoveReason, message: str, *, release: bool) -> Finish:
    """Return the end of a move whose pod has left and lands nowhere: skipped where others deleted the pod."""
    if facts.evicted:
        return Finish(MoveState.FAILED, reason, f"the pod was evicted, then {message}", release=release)
    text = f"the pod was deleted by others before its eviction, then {message}"
    return Finish(MoveState.SKIPPED, MoveReason.POD_GONE, text, release=release)


def _state_on_the_way(facts: MoveFacts) -> MoveState:
    """Return the state of a move whose pod has left: others may have deleted it."""
    return MoveState.EVICTED if facts.evicted else MoveState.RESERVED


def _place_left_over(facts: MoveFacts) -> Step:
    """Decide for a place left free: a sibling that still moves takes it, but one that surges waits for its turn."""
    if facts.others.replicas.not_evicted and not facts.memory.surge.wanted:
        return Wait(_state_on_the_way(facts), "its replacement has another place, a sibling gets this one")
    message = "its replacement took the place of a sibling that stays where it is"
    if nodes := facts.others.replicas.misplaced:
        message = f"its replacement was not handed the place and runs on {nodes}, not on {facts.target}"
    return Finish(MoveState.ELSEWHERE, message=message, release=True)


def _landing_clock(facts: MoveFacts, timeouts: MoveTimeouts) -> tuple[float | None, float]:
    """Return when the wait for a landing began, and how many seconds it may last.

    Until the pod is gone, they include the pod's grace period.
    """
    memory = facts.memory
    if facts.seen.presence is Presence.GONE and facts.gone_since is not None:
        return facts.gone_since, timeouts.land_seconds
    return memory.waits.since(Since.EVICTED), timeouts.land_seconds + memory.pod.grace_seconds
