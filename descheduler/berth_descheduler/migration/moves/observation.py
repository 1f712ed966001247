"""What is observed of the moves of a wave: their pods, their places, and what they mean for one another."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from berth_core import (
    RELEASED_HASH,
    RESERVATION_LABEL,
    TEMPLATE_HASH_LABEL,
    ConditionType,
    MoveReason,
    MoveState,
    Pod,
    Reservation,
    ReservationPhase,
    ReservationReason,
    Slot,
    SlotState,
    read_timestamp,
)
from berth_descheduler.migration.moves.facts import (
    FREE,
    MoveObservation,
    OtherMoves,
    Presence,
    Replacement,
    ReplicaCounts,
    ReservationProgress,
    was_evicted,
)
from berth_descheduler.migration.moves.memory import Eviction, MoveMemory, OwnerKey, Since
from berth_descheduler.migration.moves.overdue_pods import why_it_stays
from berth_descheduler.migration.moves.replacement_readiness import (
    NODE_SECONDS,
    Trouble,
    describe_unready,
    find_trouble,
    seconds_to_start,
)
from berth_descheduler.migration.plans.watch import ObservedPlan, owner_key

_NO_PLACE: Final = frozenset(
    {ReservationProgress.NOT_CREATED, ReservationProgress.PENDING, ReservationProgress.UNVERIFIED}
)


@dataclass(slots=True)
class ReplicaCounter:
    """The counts behind `facts.ReplicaCounts`; each eviction that is decided updates them."""

    held: int = 0
    awaiting_replacement: int = 0
    not_evicted: int = 0
    without_place: int = 0
    last_gone: float | None = None
    misplaced: tuple[str, ...] = ()
    """Nodes of the replacements that run without a hand-over."""
    is_full: bool = False

    def counts(self) -> ReplicaCounts:
        """Return the current counts; a foreign pod in a place does not count as a replacement."""
        return ReplicaCounts(
            held=self.held,
            # A replacement that runs elsewhere will not come for a place any more, so it must not hold back its
            # siblings' evictions.
            awaiting_replacement=max(0, self.awaiting_replacement - len(self.misplaced)),
            not_evicted=self.not_evicted,
            without_place=self.without_place,
            misplaced=", ".join(sorted(set(self.misplaced))),
            is_full=self.is_full,
        )


@dataclass(slots=True)
class WaveObservation:
    """All moves of a wave as observed at one instant."""

    observations: dict[int, MoveObservation] = field(default_factory=dict)
    replicas_by_owner: dict[OwnerKey, ReplicaCounter] = field(default_factory=dict)
    unready_sources: set[tuple[int, str]] = field(default_factory=set)
    """Waves with which moves begin, and their sources, with a pod that still waits for its place."""
    placed_uids: frozenset[str] = frozenset()
    """The pods that have places of the plan, or are about to."""

    def count_eviction(self, memory: MoveMemory) -> None:
        """Count an eviction for the decisions that follow on the same observation."""
        if memory.move.is_eviction:
            return
        counter = self.replicas_by_owner[memory.replicas]
        counter.awaiting_replacement += 1
        counter.not_evicted -= 1


def is_untouched(memory: MoveMemory, observed: ObservedPlan) -> bool:
    """Return whether the pod is on the source, without a Reservation."""
    return is_on_source(memory, observed) and memory.key not in observed.reservations


def is_on_source(memory: MoveMemory, observed: ObservedPlan) -> bool:
    """Return whether the pod of a move has not left, and its controller has it."""
    pod = observed.pods.get(memory.move.pod_uid)
    return _presence(pod) is Presence.ON_SOURCE and not (pod and is_released(pod))


def is_released(pod: Pod) -> bool:
    """Return whether a surge move has taken the pod out of its ReplicaSet."""
    # The label `pod-template-hash` is in the selector of every ReplicaSet that a Deployment makes: with another value
    # the ReplicaSet releases the pod (`ClaimPods` in `pkg/controller/controller_ref_manager.go`).
    return pod.metadata.labels.get(TEMPLATE_HASH_LABEL) == RELEASED_HASH


def observe_wave(
    wave: Iterable[MoveMemory],
    observed: ObservedPlan,
    now: float,
    gap_seconds: float,
    *,
    horizon: datetime | None = None,
) -> WaveObservation:
    """Return all moves of a wave as observed.

    Updates `seen` and the times in their memory. A place that expires before the horizon counts as lost until a pod
    was evicted for it.
    """
    observed_wave = WaveObservation(placed_uids=placed_pods(observed))
    moves = tuple(wave)
    for memory in moves:
        observation = _expire_before_horizon(
            memory, _observe_move(memory, observed, now, gap_seconds), observed, horizon
        )
        _note_times(memory, observation, observed.pods.get(memory.move.pod_uid), now)
        observed_wave.observations[memory.index] = observation
        _count(observed_wave, memory, observation)
    _count_misplaced(observed_wave, moves, observed, now, gap_seconds)
    return observed_wave


def _count_misplaced(
    observed_wave: WaveObservation,
    moves: Iterable[MoveMemory],
    observed: ObservedPlan,
    now: float,
    gap_seconds: float,
) -> None:
    """Count the replacements that run without a hand-over.

    The webhook missed them, so no pod will come for their places. A pod counts only after `gap_seconds`: the watches
    of pods and Reservations are not synchronous.
    """
    first_evictions = _first_evictions(observed_wave, moves, observed)
    if not first_evictions:
        return
    known_uids = {memory.move.pod_uid for memory in moves} | {memory.successor.uid for memory in moves}
    known_uids |= observed_wave.placed_uids
    for replicas, (memory, created) in first_evictions.items():
        for uid, pod in observed.pods_by_owner.get(replicas, {}).items():
            # RFC 3339 times in UTC, which the API server writes to the second, are in order as strings, too.
            is_known = (pod.metadata.creation_timestamp or "") < created or uid in known_uids
            if is_known or not runs_without_handover(pod):
                continue
            if now - memory.misplaced.setdefault(uid, now) >= gap_seconds:
                observed_wave.replicas_by_owner[replicas].misplaced += (pod.spec.node_name,)


def _first_evictions(
    observed_wave: WaveObservation, moves: Iterable[MoveMemory], observed: ObservedPlan
) -> dict[OwnerKey, tuple[MoveMemory, str]]:
    """Return each controller's first evicted move, and its Reservation's creation time."""
    first_moves: dict[OwnerKey, tuple[MoveMemory, str]] = {}
    for memory in moves:
        reservation = observed.reservations.get(memory.key)
        created = reservation.metadata.creation_timestamp if reservation is not None else None
        if created and was_evicted(memory, observed_wave.observations[memory.index]):
            first_moves.setdefault(memory.replicas, (memory, created))
    return first_moves


def placed_pods(observed: ObservedPlan) -> frozenset[str]:
    """Return the uids of the pods that have places of the plan, or are about to."""
    statuses = [reservation.status for reservation in observed.reservations.values()]
    owners = [
        *(slot.owner for status in statuses for slot in status.slots),
        *(status.current_owner for status in statuses),
    ]
    return frozenset(owner.uid for owner in owners if owner is not None)


def runs_without_handover(pod: Pod) -> bool:
    """Return whether a live pod has a node without a hand-over."""
    return (
        bool(pod.spec.node_name)
        and not pod.is_terminating
        and not pod.is_terminal
        # The operator takes the label off only once the pod runs in its slot; one that never had it was not gated.
        and RESERVATION_LABEL not in pod.metadata.labels
    )


def note_unready_replicas(memory: MoveMemory, unready: Collection[OwnerKey], now: float) -> None:
    """Record since when earlier waves leave the controller without Ready pods."""
    memory.waits = memory.waits.note(Since.SIBLINGS_UNREADY, now, holds=memory.replicas in unready)


def observe_others(
    memory: MoveMemory,
    observed_wave: WaveObservation,
    *,
    stop: MoveReason,
    stopping_since: float | None,
    source_lost: bool,
    holds_all: bool = False,
) -> OtherMoves:
    """Return what the other moves of the observed wave and the plan mean for a move.

    With `holds_all` the move waits for the places of all moves of its wave, not only of those off its source.
    """
    counter = observed_wave.replicas_by_owner[memory.replicas]
    return OtherMoves(
        replicas=counter.counts(),
        last_gone=counter.last_gone,
        source_ready=_is_source_ready(memory, observed_wave, holds_all=holds_all),
        source_lost=source_lost,
        stop=stop,
        stopping_since=stopping_since,
    )


def _is_source_ready(memory: MoveMemory, observed_wave: WaveObservation, *, holds_all: bool) -> bool:
    """Return whether the places are held that have to be before a move's pod goes."""
    unready, wave = observed_wave.unready_sources, memory.turn.begins_with
    if holds_all:
        return all(other_wave != wave for other_wave, _ in unready)
    return memory.move.stands_alone or (wave, memory.move.source) not in unready


def _observe_move(memory: MoveMemory, observed: ObservedPlan, now: float, gap_seconds: float) -> MoveObservation:
    reservation = observed.reservations.get(memory.key)
    progress, detail = _place(memory, reservation, now, gap_seconds)
    pod, successor = observed.pods.get(memory.move.pod_uid), _find_successor(memory, reservation, observed)
    if progress is ReservationProgress.LOST and successor is not None and successor.spec.node_name:
        progress = ReservationProgress.BOUND  # whatever became of the Reservation, its pod has the place
    trouble = None if successor is None else _find_trouble(memory, successor)
    _note_start(memory, pod, successor, trouble, now)
    return MoveObservation(
        presence=_presence(pod),
        place=progress,
        place_detail=detail,
        is_lost_to_others=_is_lost_to_others(reservation),
        replacement=None if successor is None else _replacement(successor),
        trouble=trouble,
        stay_detail=why_it_stays(pod, memory.nodes.source) if pod is not None else "",
    )


def _find_successor(memory: MoveMemory, reservation: Reservation | None, observed: ObservedPlan) -> Pod | None:
    """Return the pod that took the place, and remember it: the one that the Reservation names, or named last."""
    if reservation is not None:
        created = reservation.metadata.creation_timestamp or ""
        if memory.place.created != created:
            memory.place = replace(memory.place, created=created)
        slot = _slot(reservation)
        owner = (slot.owner if slot else None) or reservation.status.current_owner
        uid = owner.uid if owner else ""
        if memory.successor.uid != uid:
            if memory.successor.uid:
                # Another pod in the place has its own time.
                memory.waits = memory.waits.end(Since.TAKEN, Since.STARTED)
            memory.successor = replace(memory.successor, uid=uid, ending=None)
    elif not memory.successor.uid and (replacement_name := memory.status.replacement) and not memory.move.is_eviction:
        pods_of_that_name = (pod for pod in observed.pods.values() if pod.metadata.name == replacement_name)
        # The Reservation was collected while this run was away: only the recorded name leads to the pod.
        uid = next((pod.metadata.uid for pod in pods_of_that_name if owner_key(pod) == memory.replicas), "")
        memory.successor = replace(memory.successor, uid=uid)
    return observed.pods.get(memory.successor.uid)


def _replacement(pod: Pod) -> Replacement:
    # A Job's pod may be done before it is looked at, and is never Ready then.
    ready = pod.is_ready or pod.status.phase == "Succeeded"
    detail = "" if ready else describe_unready(pod)
    return Replacement(
        name=pod.metadata.name, node=pod.spec.node_name, ready=ready, detail=detail, ending=_why_ending(pod)
    )


def _why_ending(pod: Pod) -> str:
    """Return why a pod is about to end although it may still be Ready, "" if it is not."""
    if pod.is_terminal:
        return ""
    # The kubelet may report Ready until the last container has ended (kubernetes/kubernetes#102537).
    if pod.is_terminating:
        return "is being deleted"
    disruption = pod.disruption
    return "" if disruption is None else f"is about to be ended: {disruption.message or disruption.reason}"


def _find_trouble(memory: MoveMemory, successor: Pod) -> Trouble | None:
    """Return what keeps a replacement from becoming Ready; its node explains more than its containers do."""
    trouble_of_pod = find_trouble(successor)
    # A kubelet that is away reports nothing of the pod's containers: what their last states say is out of date.
    if memory.nodes.target and not (trouble_of_pod is not None and trouble_of_pod.is_final) and not successor.is_ready:
        return Trouble(MoveReason.NODE_NOT_READY, memory.nodes.target, NODE_SECONDS)
    return trouble_of_pod


def _note_start(
    memory: MoveMemory, pod: Pod | None, successor: Pod | None, trouble: Trouble | None, now: float
) -> None:
    """Note since when a replacement has its node, since when it runs, and how long it may take to become Ready."""
    grace_seconds = memory.pod.grace_seconds
    if pod is not None and memory.adopted and pod.spec.termination_grace_period_seconds is not None:
        # The run that asked for the place knew the grace period, and has not recorded it.
        grace_seconds = float(pod.spec.termination_grace_period_seconds)
    seconds_of_pods = [seconds_to_start(asked_pod) for asked_pod in (pod, successor) if asked_pod is not None]
    start_seconds = max(seconds_of_pods, default=memory.pod.start_seconds)
    if (memory.pod.grace_seconds, memory.pod.start_seconds) != (grace_seconds, start_seconds):
        memory.pod = replace(memory.pod, grace_seconds=grace_seconds, start_seconds=start_seconds)
    if successor is None or not successor.spec.node_name:
        memory.waits = memory.waits.end(Since.STARTED, Since.TROUBLED)
        if memory.successor.trouble is not MoveReason.NONE:
            memory.successor = replace(memory.successor, trouble=MoveReason.NONE)
        return
    memory.waits = memory.waits.begin(Since.TAKEN, now)
    # Pending until all containers are created: images are pulled in that phase.
    if successor.status.phase not in {"", "Pending"}:
        memory.waits = memory.waits.begin(Since.STARTED, now)
    reason = MoveReason.NONE if trouble is None else trouble.reason
    if memory.successor.trouble is not reason:
        memory.successor = replace(memory.successor, trouble=reason)
        memory.waits = memory.waits.end(Since.TROUBLED).note(Since.TROUBLED, now, holds=trouble is not None)


def _expire_before_horizon(
    memory: MoveMemory, observation: MoveObservation, observed: ObservedPlan, horizon: datetime | None
) -> MoveObservation:
    """Count a free place that expires too soon as lost, unless a pod was evicted for it."""
    # Afterwards it is too late to wait for a better place: the pod has left, and this one may still be taken in time.
    if horizon is None or observation.place not in FREE or was_evicted(memory, observation):
        return observation
    expires_at = observed.reservations[memory.key].status.expires_at
    expiry = read_timestamp(expires_at)
    if expiry is None or expiry > horizon:
        return observation
    return replace(
        observation,
        place=ReservationProgress.LOST,
        place_detail=f"it expires at {expires_at}, before the pod could have moved",
    )


def _presence(pod: Pod | None) -> Presence:
    if pod is None or pod.is_terminal:
        return Presence.GONE
    return Presence.LEAVING if pod.is_terminating else Presence.ON_SOURCE


def _place(
    memory: MoveMemory, reservation: Reservation | None, now: float, gap_seconds: float
) -> tuple[ReservationProgress, str]:
    """Return the progress of the place, with a detail for people.

    A missing Reservation counts as deleted once it was seen or is long due.
    """
    place_memory = memory.place
    # Its Reservation is being deleted on our own request, which must not look like a loss.
    if place_memory.postponed:
        memory.place = replace(place_memory, postponed=reservation is not None)
        return ReservationProgress.NOT_CREATED, ""
    if reservation is not None:
        if not place_memory.seen:
            memory.place = replace(place_memory, seen=True)
        return read_place(reservation)
    if not place_memory.asked and not place_memory.seen:
        return ReservationProgress.NOT_CREATED, ""
    is_due = memory.waits.since(Since.CREATED) is None or memory.waits.lasts(Since.CREATED, gap_seconds, now)
    if not place_memory.seen and not is_due:
        return ReservationProgress.PENDING, "not seen yet"
    return ReservationProgress.LOST, "the Reservation was deleted"


_LOST_TO_OTHERS: Final = frozenset(
    {ReservationReason.PREEMPTED, ReservationReason.NODE_LOST, ReservationReason.PLACE_TAKEN, ReservationReason.DELETED}
)


def _is_lost_to_others(reservation: Reservation | None) -> bool:
    """Return whether a Reservation that holds nothing any more was deleted, or failed for what others did."""
    if reservation is None or reservation.metadata.deletion_timestamp:
        return True
    state = reservation.status.state
    return state is not None and state.phase is ReservationPhase.FAILED and state.reason in _LOST_TO_OTHERS


def read_place(reservation: Reservation) -> tuple[ReservationProgress, str]:
    """Return the progress of a one-slot Reservation's place, with the Reservation's reason and message."""
    state = reservation.status.state
    detail = ": ".join(part for part in (state.reason, state.message) if part) if state else ""
    slot = _slot(reservation)
    slot_state = slot.state if slot else SlotState.PENDING
    if reservation.phase is ReservationPhase.FAILED:
        return ReservationProgress.LOST, detail
    if reservation.phase is ReservationPhase.SUCCEEDED or slot_state is SlotState.TAKEN:
        return ReservationProgress.BOUND, detail
    # It may have finalizers of others, and holds nothing from now on.
    if reservation.metadata.deletion_timestamp:
        return ReservationProgress.LOST, "the Reservation is being deleted"
    if slot_state is SlotState.HANDING_OVER:
        return ReservationProgress.HANDING_OVER, detail
    if reservation.phase is ReservationPhase.AVAILABLE and reservation.condition(ConditionType.AVAILABLE):
        handover_condition = reservation.condition(ConditionType.HANDOVER_READY)
        return (
            (ReservationProgress.READY, detail)
            if handover_condition
            else (ReservationProgress.UNVERIFIED, _handover_detail(reservation))
        )
    return ReservationProgress.PENDING, detail if state else "no operator has looked at it; is berth-operator running?"


def _slot(reservation: Reservation) -> Slot | None:
    return reservation.status.slots[0] if reservation.status.slots else None


def _handover_detail(reservation: Reservation) -> str:
    conditions = [
        condition for condition in reservation.status.conditions if condition.type == ConditionType.HANDOVER_READY
    ]
    return (
        ": ".join(filter(None, (conditions[0].reason, conditions[0].message)))
        if conditions
        else "the operator is silent; too old?"
    )


def _note_times(memory: MoveMemory, observation: MoveObservation, pod: Pod | None, now: float) -> None:
    """Note what began by now; a pod that an interrupted run may have evicted counts as evicted once it leaves."""
    if observation.presence is Presence.GONE:
        memory.waits = memory.waits.begin(Since.GONE, now)
    if observation.place is ReservationProgress.BOUND:
        memory.waits = memory.waits.begin(Since.TAKEN, now)
    if pod is not None and pod.is_terminal and not pod.is_terminating:  # by itself: an eviction would have deleted it
        if memory.pod.answer is Eviction.UNANSWERED:
            memory.pod = replace(memory.pod, answer=Eviction.NOT_SENT)
    elif (
        memory.adopted
        and memory.pod.answer is Eviction.NOT_SENT
        and observation.presence is not Presence.ON_SOURCE
        and (memory.move.is_eviction or observation.place is not ReservationProgress.NOT_CREATED)
    ):
        memory.pod = replace(memory.pod, answer=Eviction.SENT)
        memory.waits = memory.waits.begin_anew(Since.EVICTED, now)


def _count(observed_wave: WaveObservation, memory: MoveMemory, observation: MoveObservation) -> None:
    counter = observed_wave.replicas_by_owner.setdefault(memory.replicas, ReplicaCounter())
    if memory.move.is_eviction:
        return  # no sibling waits for its place, and it takes none
    is_claimed = observation.place in {ReservationProgress.HANDING_OVER, ReservationProgress.BOUND}
    has_left = was_evicted(memory, observation) or (observation.presence is not Presence.ON_SOURCE and is_claimed)
    has_left = has_left or memory.surge.released  # its ReplicaSet makes another pod, as after an eviction
    if memory.finished:
        counter.awaiting_replacement += _left_unbalanced(memory, left=has_left, claimed=is_claimed)
        return
    # Only a proven place counts: without a webhook that gates, the replacement goes anywhere.
    counter.held += observation.place is ReservationProgress.READY
    counter.awaiting_replacement += has_left - is_claimed
    counter.not_evicted += not has_left and memory.surge.in_turn
    gone_since = memory.waits.since(Since.GONE)
    if has_left and gone_since is not None:
        counter.last_gone = gone_since if counter.last_gone is None else max(counter.last_gone, gone_since)
    has_no_place = not has_left and observation.place in _NO_PLACE
    counter.without_place += has_no_place and memory.surge.in_turn
    if has_no_place and (memory.surge.in_turn or memory.turn.ahead):
        observed_wave.unready_sources.add((memory.turn.begins_with, memory.move.source))


def _left_unbalanced(memory: MoveMemory, *, left: bool, claimed: bool) -> int:
    """Return 1 for a finished move that used a sibling's place, -1 where a sibling used its own, else 0."""
    if left and not claimed and memory.status.state is MoveState.ELSEWHERE:
        return 1
    return -1 if claimed and not left else 0


def find_doubtful_nodes(
    wave: Sequence[MoveMemory], observed_wave: WaveObservation, now: float, gap_seconds: float
) -> frozenset[str]:
    """Return the targets whose replacements have not been Ready for `gap_seconds`, and the sources whose pods stay.

    A source counts once its pod has been on its way out for its grace period and `gap_seconds` more.
    """
    nodes: set[str] = set()
    for memory in (memory for memory in wave if not memory.finished):
        observation, move = observed_wave.observations[memory.index], memory.move
        replacement = observation.replacement
        is_unready = replacement is not None and replacement.node == move.target and not replacement.ready
        if is_unready and memory.waits.lasts(Since.TAKEN, gap_seconds, now):
            nodes.add(move.target)
        longest = memory.pod.grace_seconds + gap_seconds
        if observation.presence is Presence.LEAVING and memory.waits.lasts(Since.EVICTED, longest, now):
            nodes.add(move.source)
    return frozenset(nodes)
