"""Decides on the time of a hand-over: until when it is noted, when it gets more, and when it is given up.

Two clocks, for two questions. The deadline in the note on the owner pod, which the guard of the node repeats, is a time
of day: until then all others leave pod and node alone. It is extended, note first and guard after it, whenever
less than half of the time is left, so that nothing that cannot be undone happens close to it. A hand-over is given up
by the seconds for which an operator has attended to its stage (`clock_watch.AttendedTime`), and never by the time of
day: while no operator acts, or no API server answers, no time passes for a pod that is on its way.
"""

from dataclasses import replace
from datetime import datetime
from enum import Enum
from typing import Final, assert_never

from berth_core.objects import Pod
from berth_operator.reconcile.observation import Assignment, Observation, holds_our_gate, is_untried
from berth_operator.settings import HandoverSettings

_CLOCK_SLACK_SECONDS: Final = 5.0


class HandoverStage(Enum):
    """Whom a pod with a slot, which does not run yet, is waiting for."""

    HELD_BACK = "operator"
    """Our gate is on, or the placeholder is there: no pod could take the place."""

    UNTRIED = "scheduler"
    """The place is free for it, and no scheduler has said anything of it since."""

    TRIED = "scheduler again"
    """A scheduler has found no place for it."""

    BOUND = "kubelet"
    """It has its place; schedulers that have not heard so are kept off by the guard."""


def stage_of(pod: Pod, placeholder: Pod | None) -> HandoverStage:
    """Return the stage of a pod with a slot, by the placeholder of that slot."""
    if pod.spec.node_name:
        return HandoverStage.BOUND
    if holds_our_gate(pod) or placeholder is not None:
        return HandoverStage.HELD_BACK
    return HandoverStage.UNTRIED if is_untried(pod) else HandoverStage.TRIED


def deadline_from(now: datetime, handover: HandoverSettings) -> int:
    """Return the deadline of a hand-over that begins now, or gets more time now."""
    return int(now.timestamp() + handover.timeout_seconds)


def is_short_of_time(note: Assignment, now: datetime, handover: HandoverSettings) -> bool:
    """Return whether less than half of the time is left, or more than there is in all: the clock was set back."""
    left = note.deadline - now.timestamp()
    return not handover.timeout_seconds / 2 <= left <= handover.timeout_seconds + _CLOCK_SLACK_SECONDS


def extended(note: Assignment, now: datetime, handover: HandoverSettings) -> Assignment:
    """Return the note with a deadline that leaves all of the time again."""
    return replace(note, deadline=deadline_from(now, handover))


def is_given_up(
    seen: Observation, pod: Pod, note: Assignment, placeholder: Pod | None, handover: HandoverSettings
) -> bool:
    """Return whether a pod that does not run yet has had all the attended time of its stage."""
    spent_seconds = seen.stage_ages.get(pod.metadata.uid, 0.0)
    match stage_of(pod, placeholder):
        case HandoverStage.HELD_BACK:
            # Where its node would not let it in, a placeholder may be terminating for ever.
            access = seen.accesses.get(note.node) if placeholder is not None else None
            is_shut = access is not None and bool(access.why_closed(pod.spec.tolerations))
            return spent_seconds >= (handover.timeout_seconds if is_shut else handover.untried_seconds)
        case HandoverStage.UNTRIED:
            return spent_seconds >= handover.untried_seconds
        case HandoverStage.TRIED | HandoverStage.BOUND:
            return spent_seconds >= handover.timeout_seconds
        case stage:
            assert_never(stage)
