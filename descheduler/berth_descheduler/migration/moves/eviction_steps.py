"""Decides the next step of a pod that is evicted without a place.

The pod leaves a node that it may not stay on, and no place is held for it: it is over when the pod is gone.
"""

from berth_core import MoveReason, MoveState
from berth_descheduler.migration.moves.facts import MoveFacts, Presence
from berth_descheduler.migration.moves.given_up import blocked_for_long, pod_stays
from berth_descheduler.migration.moves.memory import has_elapsed
from berth_descheduler.migration.moves.steps import Evict, Finish, Step, Wait
from berth_descheduler.settings import MoveTimeouts


def without_place(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    memory = facts.memory
    if (blocked_step := blocked_for_long(facts, timeouts, now)) is not None:
        return blocked_step
    if memory.retry.is_too_early(now):
        return Wait(MoveState.PENDING, memory.pod.detail)
    return Evict()


def until_gone(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    """Decide for an evicted pod: it has to go, and its controller has some seconds to make it again."""
    if facts.seen.presence is Presence.GONE:
        return _removed(facts, timeouts, now)
    if facts.others.is_interrupted_for(timeouts.shutdown_seconds, now):
        return Finish(MoveState.FAILED, MoveReason.INTERRUPTED, "stopped while the pod was ending")
    return pod_stays(facts, timeouts, now) or Wait(MoveState.EVICTED, "waits until the pod has ended")


def _removed(facts: MoveFacts, timeouts: MoveTimeouts, now: float) -> Step:
    replacement = facts.seen.replacement
    if replacement is not None:
        location = f"runs on {replacement.node}" if replacement.node else "waits for a node"
        return Finish(MoveState.REMOVED, message=f"its replacement {replacement.name} {location}")
    # No longer than that: a pod without a place may wait for a node for hours, and the node that it had to leave is
    # empty.
    if has_elapsed(facts.gone_since, timeouts.gap_seconds, now) or facts.others.stop is MoveReason.INTERRUPTED:
        return Finish(MoveState.REMOVED, message="its controller has made no other pod yet")
    return Wait(MoveState.EVICTED, "waits until its controller makes it again")
