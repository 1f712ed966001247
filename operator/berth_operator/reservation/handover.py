"""Decides the next step of a pod on its way into a slot.

An owner pod takes a slot step by step, and so does the successor of a placeholder. All that is observed of it is read
into a `Handover`, and each stage leads to one next action (numbers as in the protocol):

    1. the pod carries our gate and label              -> 2. give it a slot: note, label, toleration of the guard
    2. it has a slot                                   -> fence and guard its node (`act.guards`)
    3. fenced, or guarded for the settling time        -> 3. delete the placeholder
    4. the placeholder is gone                         -> 4. nominate the node, remove the gate
    5. the pod has been bound for the settling time    -> 5. remove the guard (`act.guards`)
    6. the pod runs                                    -> 6. record it, remove note and label
    ·. less than half of its time is left              -> more time, before anything else
    ·. all its time is spent                           -> release the pod

A pod that takes several slots of one node is in one hand-over: all their placeholders go under one guard, and its gate
once the last of them is gone, so that no pod comes between.

A bound pod has its place, however long its images take: no other pod waits for it to run.

The nomination comes last because kube-scheduler counts a nominated pod as if it were on its node (its cache of
nominated pods, which KEP-5278 opens to other writers). Nominated while its placeholder is still there, it would count
twice and keep other pods in a hand-over off a full node.

Two clocks answer two questions. The deadline in the note on the pod, which the guard of the node repeats, is a time of
day: until then all other components leave pod and node alone. It is extended, the note first and the guard after it,
whenever less than half of the time is left, so that nothing irreversible happens close to it. A hand-over fails by the
seconds for which an operator has attended to its stage (`runtime.active_time`), never by the time of day: while no
operator acts, or no API server answers, no time passes for a pod that is on its way.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, assert_never

from berth_core import Pod
from berth_core.labels import HANDOVER_LABEL
from berth_operator.reservation.actions import (
    Action,
    CompleteHandover,
    DeletePlaceholder,
    ExtendHandover,
    Nominate,
    Ungate,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.observation import Guard, Observation
from berth_operator.reservation.pod_state import has_started, holds_our_gate
from berth_operator.schedulers.kube_scheduler import SCHEDULER
from berth_operator.settings import HandoverSettings

_CLOCK_SLACK_SECONDS: Final = 5.0


class AwaitedComponent(Enum):
    """The component that a pod with a slot waits for; its attended time starts anew with each."""

    OPERATOR = "operator"
    SCHEDULER = "scheduler"
    SCHEDULER_AGAIN = "scheduler again"
    KUBELET = "kubelet"


class HandoverStage(Enum):
    """How far a pod with a slot has come."""

    HELD = "held"
    """A placeholder holds its place."""

    ENDING = "ending"
    """The placeholder is terminating: no pod could take the place yet."""

    FREED = "freed"
    """The placeholder is gone, and our gate keeps the pod from schedulers."""

    UNTRIED = "untried"
    """The place is free for the pod, and no scheduler has reported on it since."""

    TRIED = "tried"
    """A scheduler has found no place for the pod."""

    BOUND = "bound"
    """The pod has its place."""

    RUNNING = "running"
    """Its containers run, or have run."""

    @property
    def awaited(self) -> AwaitedComponent:
        match self:
            case HandoverStage.HELD | HandoverStage.ENDING | HandoverStage.FREED:
                return AwaitedComponent.OPERATOR
            case HandoverStage.UNTRIED:
                return AwaitedComponent.SCHEDULER
            case HandoverStage.TRIED:
                return AwaitedComponent.SCHEDULER_AGAIN
            case HandoverStage.BOUND | HandoverStage.RUNNING:
                return AwaitedComponent.KUBELET

    @property
    def may_be_bound(self) -> bool:
        """Whether nothing but a scheduler keeps the pod from its place."""
        return self in {HandoverStage.UNTRIED, HandoverStage.TRIED}

    @property
    def has_node(self) -> bool:
        return self in {HandoverStage.BOUND, HandoverStage.RUNNING}


def stage_of(pod: Pod, placeholders: Collection[Pod]) -> HandoverStage:
    """Return the stage of a pod, given the placeholders that are left of its slots."""
    if pod.spec.node_name:
        return HandoverStage.RUNNING if has_started(pod) else HandoverStage.BOUND
    if placeholders:
        # A pod that takes several slots goes on once all have ended: until then no pod could use any part of its place.
        are_ending = all(placeholder.is_terminating for placeholder in placeholders)
        return HandoverStage.ENDING if are_ending else HandoverStage.HELD
    if holds_our_gate(pod):
        return HandoverStage.FREED
    return HandoverStage.UNTRIED if SCHEDULER.is_untried(pod) else HandoverStage.TRIED


@dataclass(frozen=True, slots=True)
class Handover:
    """What is observed of a pod on its way into a slot: an owner, or the successor of the slot's placeholder."""

    pod: Pod
    note: Assignment
    """The slot that it gets."""
    stage: HandoverStage
    placeholder: Pod | None
    """The placeholder of this slot that gives way to it; of several slots each has its own."""
    spent_seconds: float
    """Attended seconds for which it has waited for the same component."""
    has_timed_out: bool
    """Whether it has waited too long for that component."""
    is_noted: bool
    """Whether its own note names this slot, and fences admit it by its label."""
    is_guarded: bool
    """Whether the guard of its node stays at least until its deadline."""
    settling_seconds: float
    """Seconds until every scheduler has seen that guard."""
    is_node_missing: bool
    is_node_open: bool
    """Whether its node admits it."""

    @property
    def holder(self) -> Pod | None:
        """The placeholder, unless it is ending already: those of other slots may be held still."""
        return None if self.placeholder is None or self.placeholder.is_terminating else self.placeholder

    @property
    def is_settled(self) -> bool:
        """Whether every scheduler has seen its guard, and none sends another pod to its place."""
        return self.is_guarded and self.settling_seconds <= 0

    def is_short_of_time(self, now: datetime, settings: HandoverSettings) -> bool:
        """Return whether its note leaves a pod without a node too little time, or too much: the clock was set back."""
        if self.stage.has_node:
            return False
        seconds_left = self.note.deadline - now.timestamp()
        return not settings.timeout_seconds / 2 <= seconds_left <= settings.timeout_seconds + _CLOCK_SLACK_SECONDS


def holders_of(note: Assignment, placeholders: Mapping[tuple[str, int], Pod]) -> tuple[Pod, ...]:
    """Return the placeholders that are left of the slots of a note."""
    return tuple(placeholders[key] for key in note.slots if key in placeholders)


def read_handover(
    seen: Observation, pod: Pod, note: Assignment, placeholder: Pod | None, settings: HandoverSettings
) -> Handover:
    """Return what is observed of a pod on its way into the slot of a note."""
    stage = stage_of(pod, holders_of(note, seen.placeholders))
    spent_seconds = seen.stage_ages.get(pod.metadata.uid, 0.0)
    own_note = Assignment.from_pod(pod)
    # An older operator gave slots without the label by which fences admit a pod.
    is_labelled = stage.has_node or HANDOVER_LABEL in pod.metadata.labels
    access = seen.accesses.get(note.node)
    is_node_open = access is None or not access.why_closed(pod.spec.tolerations)
    guard = seen.guards.get(note.node)
    return Handover(
        pod,
        note,
        stage,
        placeholder,
        spent_seconds,
        has_timed_out=_has_timed_out(stage, spent_seconds, settings, is_node_open=is_node_open),
        is_noted=is_labelled and (own_note is None or own_note.is_of_same_slot(note)),
        # The guard of an earlier hand-over may be removed at any moment.
        is_guarded=guard is not None and guard.deadline >= note.deadline,
        settling_seconds=_settling_seconds(guard, settings),
        is_node_missing=note.node in seen.missing_nodes,
        is_node_open=is_node_open,
    )


def _has_timed_out(
    stage: HandoverStage, spent_seconds: float, settings: HandoverSettings, *, is_node_open: bool
) -> bool:
    match stage:
        case HandoverStage.HELD | HandoverStage.ENDING if not is_node_open:
            # Its kubelet may be away as well: the placeholder may terminate for ever.
            return spent_seconds >= settings.timeout_seconds
        case HandoverStage.HELD | HandoverStage.ENDING | HandoverStage.FREED | HandoverStage.UNTRIED:
            return spent_seconds >= settings.untried_seconds
        case HandoverStage.TRIED:
            return spent_seconds >= settings.timeout_seconds
        case HandoverStage.BOUND | HandoverStage.RUNNING:
            return False


def _settling_seconds(guard: Guard | None, settings: HandoverSettings) -> float:
    # Schedulers see a fence before the end of the placeholder, as both are pods: they come through one watch, in order.
    # The taint comes through the watch of nodes, which has no order with that of pods (kubernetes/kubernetes#87083).
    if guard is None or guard.is_fenced:
        return 0.0
    return settings.unfenced_settle_seconds - guard.age_seconds


def deadline_from(now: datetime, settings: HandoverSettings) -> int:
    """Return the deadline of a hand-over that begins or is extended now."""
    return int(now.timestamp() + settings.timeout_seconds)


def next_steps(handover: Handover, now: datetime, settings: HandoverSettings) -> list[Action]:
    """Return a hand-over's next step; none while it waits."""
    pod, node = handover.pod, handover.note.node
    match handover.stage:
        case HandoverStage.RUNNING:
            return [CompleteHandover(pod)]
        case _ if not handover.is_noted or handover.is_short_of_time(now, settings):
            # Before anything else: a pod that is ungated, or whose placeholder is deleted, near the deadline would have
            # its place guarded for a moment only.
            return [ExtendHandover(pod, replace(handover.note, deadline=deadline_from(now, settings)))]
        case HandoverStage.HELD if handover.is_settled and (holder := handover.holder) is not None:
            # A placeholder runs nothing that must end first. A node that takes no pods shows by not ending it that the
            # owner is better off elsewhere.
            return [DeletePlaceholder(holder, at_once=handover.is_node_open, for_owner=True)]
        case HandoverStage.FREED if handover.is_guarded:
            # In this order: a scheduler may try the pod the moment its last gate is gone (KEP-3521).
            return [Nominate(pod, node), Ungate(pod)]
        case HandoverStage.UNTRIED | HandoverStage.TRIED if handover.is_guarded and SCHEDULER.steered_to(pod) != node:
            # kube-scheduler clears the nomination of a pod for which it finds no place (KEP-5278).
            return [Nominate(pod, node)]
        case (
            HandoverStage.HELD
            | HandoverStage.ENDING
            | HandoverStage.FREED
            | HandoverStage.UNTRIED
            | HandoverStage.TRIED
            | HandoverStage.BOUND
        ):
            return []
        case stage:
            assert_never(stage)
