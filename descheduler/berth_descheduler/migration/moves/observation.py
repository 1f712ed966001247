"""What is observed of a move, and the facts that its next step is decided by."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

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
    Slot,
    SlotState,
    parse_timestamp,
)
from berth_descheduler.migration.moves.facts import (
    FREE,
    Eviction,
    MoveFacts,
    Presence,
    Replacement,
    ReplicaCounts,
    ReservationProgress,
    Since,
)
from berth_descheduler.migration.moves.memory import MoveProgress, OwnerKey
from berth_descheduler.migration.moves.overdue_pods import why_it_stays
from berth_descheduler.migration.moves.replacement_readiness import (
    NODE_SECONDS,
    Trouble,
    describe_unready,
    find_trouble,
    seconds_to_start,
)
from berth_descheduler.migration.plans.watch import ObservedPlan


@dataclass(frozen=True, slots=True)
class MoveObservation:
    """One move as observed: its pod, its place and its replacement."""

    presence: Presence
    place: ReservationProgress
    place_detail: str = ""
    replacement: Replacement | None = None
    trouble: Trouble | None = None
    stay_detail: str = ""

    @property
    def is_unclaimed(self) -> bool:
        """Return whether the pod is gone, and its place is held for one that has not come."""
        return self.presence is Presence.GONE and self.place in FREE


@dataclass(slots=True)
class ReplicaCounter:
    """The counts behind `moves.ReplicaCounts`; each eviction that is decided updates them."""

    held: int = 0
    awaiting_replacement: int = 0
    not_evicted: int = 0
    last_gone: float | None = None
    misplaced: tuple[str, ...] = ()
    """Nodes of the replacements that run without a hand-over."""
    is_full: bool = False

    def counts(self) -> ReplicaCounts:
        """Return the current counts; a foreign pod in a place does not count as a replacement."""
        return ReplicaCounts(
            held=self.held,
            awaiting_replacement=max(0, self.awaiting_replacement - len(self.misplaced)),
            not_evicted=self.not_evicted,
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

    def count_eviction(self, progress: MoveProgress) -> None:
        """Count an eviction for the decisions that follow on the same observation."""
        if progress.move.is_eviction:
            return
        counter = self.replicas_by_owner[progress.replicas]
        counter.awaiting_replacement += 1
        counter.not_evicted -= 1


def is_untouched(progress: MoveProgress, observed: ObservedPlan) -> bool:
    """Return whether the pod is on the source, without a Reservation."""
    return is_on_source(progress, observed) and progress.key not in observed.reservations


def is_on_source(progress: MoveProgress, observed: ObservedPlan) -> bool:
    """Return whether the pod of a move has not left, and its controller has it."""
    pod = observed.pods.get(progress.move.pod_uid)
    return _presence(pod) is Presence.ON_SOURCE and not (pod and is_released(pod))


def is_released(pod: Pod) -> bool:
    """Return whether a surge move has taken the pod out of its ReplicaSet."""
    return pod.metadata.labels.get(TEMPLATE_HASH_LABEL) == RELEASED_HASH


def observe_wave(
    wave: Iterable[MoveProgress],
    observed: ObservedPlan,
    now: float,
    gap_seconds: float,
    *,
    horizon: datetime | None = None,
) -> WaveObservation:
    """Return all moves of a wave as observed.

    Updates `seen` and the times in their progress. A place that expires before the horizon counts as lost until a pod
    was evicted for it.
    """
    observed_wave = WaveObservation()
    moves = tuple(wave)
    for progress in moves:
        observation = _expire_before_horizon(
            progress, _observe_move(progress, observed, now, gap_seconds), observed, horizon
        )
        _note_times(progress, observation, observed.pods.get(progress.move.pod_uid), now)
        observed_wave.observations[progress.index] = observation
        _count(observed_wave, progress, observation)
    _count_misplaced(observed_wave, moves, observed, now, gap_seconds)
    return observed_wave


def _count_misplaced(
    observed_wave: WaveObservation,
    moves: Iterable[MoveProgress],
    observed: ObservedPlan,
    now: float,
    gap_seconds: float,
) -> None:
    """Count the replacements that run without a hand-over.

    The webhook missed them, so no pod will come for their places. A pod counts only after `gap_seconds`: the watches
    of pods and Reservations are not synchronous.
    """
    known = {progress.move.pod_uid for progress in moves} | {progress.taken_by for progress in moves}
    known |= placed_pods(observed)
    missed = _first_evictions(observed_wave, moves, observed)
    earliest = min((created for _, created in missed.values()), default=None)
    if earliest is None:
        return
    for uid, pod in observed.pods.items():
        if (pod.metadata.creation_timestamp or "") < earliest or uid in known:
            continue
        replicas = owner_key(pod)
        if replicas not in missed or not runs_without_handover(pod):
            continue
        progress, created = missed[replicas]
        if (pod.metadata.creation_timestamp or "") >= created and (
            now - progress.misplaced_since.setdefault(uid, now) >= gap_seconds
        ):
            observed_wave.replicas_by_owner[replicas].misplaced += (pod.spec.node_name,)


def _first_evictions(
    observed_wave: WaveObservation, moves: Iterable[MoveProgress], observed: ObservedPlan
) -> dict[OwnerKey, tuple[MoveProgress, str]]:
    """Return each controller's first evicted move, and its Reservation's creation time."""
    found: dict[OwnerKey, tuple[MoveProgress, str]] = {}
    for progress in moves:
        reservation = observed.reservations.get(progress.key)
        created = reservation.metadata.creation_timestamp if reservation is not None else None
        if created and was_evicted(progress, observed_wave.observations[progress.index]):
            found.setdefault(progress.replicas, (progress, created))
    return found


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
        and RESERVATION_LABEL not in pod.metadata.labels
    )


def owner_key(pod: Pod) -> OwnerKey:
    """Return the key of a pod's controller, as `MoveProgress.replicas` does."""
    owner = pod.controller
    if owner is None:
        return (pod.metadata.namespace, pod.metadata.uid)
    return (pod.metadata.namespace, owner.kind, owner.name, owner.uid)


def note_unready_replicas(progress: MoveProgress, unready: Collection[OwnerKey], now: float) -> None:
    """Record since when earlier waves leave the controller without Ready pods."""
    if progress.replicas not in unready:
        progress.siblings_since = None
    elif progress.siblings_since is None:
        progress.siblings_since = now


def derive_facts(
    progress: MoveProgress,
    observed_wave: WaveObservation,
    *,
    stop: MoveReason,
    stopping_since: float | None,
    source_lost: bool,
    holds_all: bool = False,
) -> MoveFacts:
    """Return the facts of one move within its observed wave.

    With `holds_all` it waits for the places of all moves, not only of those off its source.
    """
    observation = observed_wave.observations[progress.index]
    counter = observed_wave.replicas_by_owner[progress.replicas]
    return MoveFacts(
        target=progress.move.target,
        presence=observation.presence,
        place=observation.place,
        place_detail=observation.place_detail,
        eviction=progress.eviction,
        eviction_detail=progress.eviction_detail,
        retry_eviction_at=progress.retry_at,
        is_untouched=progress.is_untouched,
        refusal=progress.refusal,
        refusal_detail=progress.refusal_detail,
        replacement=observation.replacement,
        trouble=observation.trouble,
        start_seconds=progress.start_seconds,
        stay_detail=observation.stay_detail,
        must_be_ready=progress.was_ready,
        grace_seconds=progress.grace_seconds,
        replicas=counter.counts(),
        source_ready=_is_source_ready(progress, observed_wave, holds_all=holds_all),
        siblings_ready=progress.siblings_since is None,
        source_lost=source_lost,
        stop=stop,
        since=Since(
            reserving=progress.reserving_since,
            blocked=progress.blocked_since,
            evicted=progress.evicted_since,
            gone=_latest(progress.gone_since, counter.last_gone),
            taken=progress.taken_since,
            started=progress.started_since,
            troubled=progress.troubled_since,
            siblings=progress.siblings_since,
            stopping=stopping_since,
        ),
        ahead=progress.ahead,
        postponed=progress.postponed,
        surge=progress.surge,
    )


def _is_source_ready(progress: MoveProgress, observed_wave: WaveObservation, *, holds_all: bool) -> bool:
    """Return whether the places are held that have to be before a move's pod goes."""
    unready, wave = observed_wave.unready_sources, progress.begins_with
    if holds_all:
        return all(other != wave for other, _ in unready)
    return progress.move.stands_alone or (wave, progress.move.source) not in unready


def _observe_move(progress: MoveProgress, observed: ObservedPlan, now: float, gap_seconds: float) -> MoveObservation:
    reservation = observed.reservations.get(progress.key)
    place, detail = _place(progress, reservation, now, gap_seconds)
    pod, successor = observed.pods.get(progress.move.pod_uid), _find_successor(progress, reservation, observed)
    if place is ReservationProgress.LOST and successor is not None and successor.spec.node_name:
        place = ReservationProgress.BOUND  # whatever became of the Reservation, its pod has the place
    trouble = None if successor is None else _find_trouble(progress, successor)
    _note_start(progress, pod, successor, trouble, now)
    return MoveObservation(
        presence=_presence(pod),
        place=place,
        place_detail=detail,
        replacement=None if successor is None else _replacement(successor),
        trouble=trouble,
        stay_detail=why_it_stays(pod, progress.source_problem) if pod is not None else "",
    )


def _find_successor(progress: MoveProgress, reservation: Reservation | None, observed: ObservedPlan) -> Pod | None:
    """Return the pod that took the place: the one that the Reservation names, or named before it was deleted."""
    if reservation is not None:
        progress.reserved_at = reservation.metadata.creation_timestamp or ""
        slot = _slot(reservation)
        owner = (slot.owner if slot else None) or reservation.status.current_owner
        uid = owner.uid if owner else ""
        if progress.taken_by and progress.taken_by != uid:
            progress.taken_since = progress.started_since = None
        progress.taken_by = uid
    elif not progress.taken_by and (name := progress.status.replacement) and not progress.move.is_eviction:
        named = (pod for pod in observed.pods.values() if pod.metadata.name == name)
        progress.taken_by = next((pod.metadata.uid for pod in named if owner_key(pod) == progress.replicas), "")
    return observed.pods.get(progress.taken_by)


def _replacement(pod: Pod) -> Replacement:
    ready = pod.is_ready or pod.status.phase == "Succeeded"
    detail = "" if ready else describe_unready(pod)
    return Replacement(name=pod.metadata.name, node=pod.spec.node_name, ready=ready, detail=detail)


def _find_trouble(progress: MoveProgress, successor: Pod) -> Trouble | None:
    """Return what keeps a replacement from becoming Ready; its node explains more than its containers do."""
    own = find_trouble(successor)
    if progress.target_problem and not (own is not None and own.is_final) and not successor.is_ready:
        return Trouble(MoveReason.NODE_NOT_READY, progress.target_problem, NODE_SECONDS)
    return own


def _note_start(
    progress: MoveProgress, pod: Pod | None, successor: Pod | None, trouble: Trouble | None, now: float
) -> None:
    """Note since when a replacement has its node, since when it runs, and how long it may take to become Ready."""
    if pod is not None and progress.adopted and pod.spec.termination_grace_period_seconds is not None:
        progress.grace_seconds = float(pod.spec.termination_grace_period_seconds)
    asked = [seconds_to_start(asked_pod) for asked_pod in (pod, successor) if asked_pod is not None]
    progress.start_seconds = max(asked, default=progress.start_seconds)
    if successor is None or not successor.spec.node_name:
        progress.started_since = progress.troubled_since = None
        progress.trouble = MoveReason.NONE
        return
    if progress.taken_since is None:
        progress.taken_since = now
    if progress.started_since is None and successor.status.phase not in {"", "Pending"}:
        progress.started_since = now
    reason = MoveReason.NONE if trouble is None else trouble.reason
    if progress.trouble is not reason:
        progress.trouble, progress.troubled_since = reason, now if trouble is not None else None


def _expire_before_horizon(
    progress: MoveProgress, observation: MoveObservation, observed: ObservedPlan, horizon: datetime | None
) -> MoveObservation:
    """Count a free place that expires too soon as lost.

    A place whose pod left stays as observed.
    """
    if (
        horizon is None
        or observation.place not in {ReservationProgress.READY, ReservationProgress.UNVERIFIED}
        or was_evicted(progress, observation)
    ):
        return observation
    expires = observed.reservations[progress.key].status.expires_at
    if expires is None or parse_timestamp(expires) > horizon:
        return observation
    return replace(
        observation,
        place=ReservationProgress.LOST,
        place_detail=f"it expires at {expires}, before the pod could have moved",
    )


def _presence(pod: Pod | None) -> Presence:
    if pod is None or pod.is_terminal:
        return Presence.GONE
    return Presence.LEAVING if pod.is_terminating else Presence.ON_SOURCE


def _place(
    progress: MoveProgress, reservation: Reservation | None, now: float, gap_seconds: float
) -> tuple[ReservationProgress, str]:
    """Return the progress of the place, with a detail.

    A missing Reservation counts as deleted once it was seen or is long due.
    """
    if progress.postponed:
        progress.postponed = reservation is not None
        return ReservationProgress.NOT_CREATED, ""
    if reservation is not None:
        progress.seen = True
        return read_place(reservation)
    if not progress.asked and not progress.seen:
        return ReservationProgress.NOT_CREATED, ""
    since = progress.asked_at
    if not progress.seen and since is not None and now - since < gap_seconds:
        return ReservationProgress.PENDING, "not seen yet"
    return ReservationProgress.LOST, "the Reservation was deleted"


def read_place(reservation: Reservation) -> tuple[ReservationProgress, str]:
    """Return the progress of a one-slot Reservation's place.

    With it come the Reservation's reason and message.
    """
    state = reservation.status.state
    detail = ": ".join(part for part in (state.reason, state.message) if part) if state else ""
    slot = _slot(reservation)
    slot_state = slot.state if slot else SlotState.PENDING
    if reservation.phase is ReservationPhase.FAILED:
        return ReservationProgress.LOST, detail
    if reservation.phase is ReservationPhase.SUCCEEDED or slot_state is SlotState.TAKEN:
        return ReservationProgress.BOUND, detail
    if reservation.metadata.deletion_timestamp:
        return ReservationProgress.LOST, "the Reservation is being deleted"
    if slot_state is SlotState.HANDING_OVER:
        return ReservationProgress.HANDING_OVER, detail
    if reservation.phase is ReservationPhase.AVAILABLE and reservation.condition(ConditionType.AVAILABLE):
        proven = reservation.condition(ConditionType.HANDOVER_READY)
        return (
            (ReservationProgress.READY, detail)
            if proven
            else (ReservationProgress.UNVERIFIED, _handover_detail(reservation))
        )
    return ReservationProgress.PENDING, detail if state else "no operator has looked at it; is berth-operator running?"


def _slot(reservation: Reservation) -> Slot | None:
    return reservation.status.slots[0] if reservation.status.slots else None


def _handover_detail(reservation: Reservation) -> str:
    found = [one for one in reservation.status.conditions if one.type == ConditionType.HANDOVER_READY]
    return ": ".join(filter(None, (found[0].reason, found[0].message))) if found else "the operator is silent; too old?"


def _note_times(progress: MoveProgress, observation: MoveObservation, pod: Pod | None, now: float) -> None:
    """Note what began by now; a pod that an interrupted run may have evicted counts as evicted once it leaves."""
    if observation.presence is Presence.GONE and progress.gone_since is None:
        progress.gone_since = now
    if observation.place is ReservationProgress.BOUND and progress.taken_since is None:
        progress.taken_since = now
    if pod is not None and pod.is_terminal and not pod.is_terminating:  # by itself: an eviction would have deleted it
        if progress.eviction is Eviction.UNANSWERED:
            progress.eviction = Eviction.NOT_SENT
    elif (
        progress.adopted
        and progress.eviction is Eviction.NOT_SENT
        and observation.presence is not Presence.ON_SOURCE
        and (progress.move.is_eviction or observation.place is not ReservationProgress.NOT_CREATED)
    ):
        progress.eviction, progress.evicted_since = Eviction.SENT, now


def _count(observed_wave: WaveObservation, progress: MoveProgress, observation: MoveObservation) -> None:
    counter = observed_wave.replicas_by_owner.setdefault(progress.replicas, ReplicaCounter())
    if progress.move.is_eviction:
        return  # no sibling waits for its place, and it takes none
    claimed = observation.place in {ReservationProgress.HANDING_OVER, ReservationProgress.BOUND}
    left = was_evicted(progress, observation) or (observation.presence is not Presence.ON_SOURCE and claimed)
    left = left or progress.surge.released  # its ReplicaSet makes another pod, as after an eviction
    if progress.finished:
        counter.awaiting_replacement += _left_unbalanced(progress, left=left, claimed=claimed)
        return
    counter.held += observation.place is ReservationProgress.READY
    counter.awaiting_replacement += left - claimed
    counter.not_evicted += not left and progress.surge.in_turn
    if left and progress.gone_since is not None:
        counter.last_gone = _latest(counter.last_gone, progress.gone_since)
    if (
        not left
        and (progress.surge.in_turn or progress.ahead)
        and observation.place
        in {
            ReservationProgress.NOT_CREATED,
            ReservationProgress.PENDING,
            ReservationProgress.UNVERIFIED,
        }
    ):
        observed_wave.unready_sources.add((progress.begins_with, progress.move.source))


def _left_unbalanced(progress: MoveProgress, *, left: bool, claimed: bool) -> int:
    """Return the balance of a finished move.

    1: it used a sibling's place; -1: a sibling used its own.
    """
    if left and not claimed and progress.status.state is MoveState.ELSEWHERE:
        return 1
    return -1 if claimed and not left else 0


def was_evicted(progress: MoveProgress, observation: MoveObservation) -> bool:
    """Return whether this run or the interrupted one evicted the pod."""
    if progress.eviction is Eviction.UNANSWERED:
        return observation.presence is not Presence.ON_SOURCE
    return progress.eviction is Eviction.SENT


def _latest(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return other if one is None else one
    return max(one, other)
