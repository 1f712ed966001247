"""The ends of moves that do not go well, for pods that surge and for others."""

from berth_core import MoveReason, MoveState
from berth_descheduler.migration.moves.facts import MoveFacts, Presence, Replacement
from berth_descheduler.migration.moves.memory import Eviction, Since
from berth_descheduler.migration.moves.replacement_readiness import Trouble
from berth_descheduler.migration.moves.steps import Finish
from berth_descheduler.settings import MoveTimeouts


def refused(facts: MoveFacts) -> Finish:
    memory = facts.memory
    untouched = {
        MoveReason.FILTERED,
        MoveReason.POD_GONE,
        MoveReason.POD_CHANGED,
        MoveReason.ROOM_NOT_NEEDED,
        MoveReason.TARGET_UNFIT,
        MoveReason.REPLACEMENT_REFUSED,
        MoveReason.REPLACEMENT_DIFFERS,
    }
    # Skipped moves do not count as failures of the plan, which stops after too many of them: here nothing was
    # attempted.
    state = MoveState.SKIPPED if memory.refused.reason in untouched else MoveState.FAILED
    return Finish(state, memory.refused.reason, memory.refused.detail, release=True)


def blocked_for_long(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return the end of a move whose eviction was refused until its deadline, else None."""
    memory = facts.memory
    if not memory.waits.lasts(Since.BLOCKED, timeouts.evict_seconds, now):
        return None
    message = joined(f"the eviction was refused for {timeouts.evict_seconds:g} s", memory.pod.detail)
    is_intercepted = memory.pod.answer is Eviction.INTERCEPTED
    reason = MoveReason.EVICTION_INTERCEPTED if is_intercepted else MoveReason.EVICTION_BLOCKED
    return Finish(MoveState.FAILED, reason, message, release=True)


def pod_stays(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Finish | None:
    """Return the end of a move whose evicted pod has not ended long after its grace period, else None.

    Its place is given back: a controller that replaces a pod as soon as it terminates has done so by now, and others do
    so only once the pod is gone.
    """
    memory = facts.memory
    is_leaving = facts.seen.presence is not Presence.GONE
    if not is_leaving or not memory.waits.lasts(Since.EVICTED, memory.pod.grace_seconds + timeouts.end_seconds, now):
        return None
    message = f"the pod was evicted and had not ended {timeouts.end_seconds:g} s after its grace period"
    release = bool(facts.target)
    return Finish(MoveState.FAILED, MoveReason.POD_STAYS, joined(message, facts.seen.stay_detail), release=release)


def is_overdue(facts: MoveFacts, limit: float, now: float) -> bool:
    """Return whether a replacement took longer than `limit` until its containers ran, or from then until now.

    Images of some gigabytes take their time before the containers start, and probes theirs after that.
    """
    waits = facts.memory.waits
    return waits.lasts(Since.TAKEN if waits.since(Since.STARTED) is None else Since.STARTED, limit, now)


def readiness_detail(facts: MoveFacts) -> str:
    if facts.seen.trouble is not None:
        return facts.seen.trouble.message
    return facts.seen.replacement.detail if facts.seen.replacement is not None else ""


def describe_trouble(replacement: Replacement, trouble: Trouble) -> str:
    return f"the replacement {replacement.name} on {replacement.node} does not become Ready: {trouble.message}"


def joined(message: str, detail: str) -> str:
    return f"{message}: {detail}" if detail else message
