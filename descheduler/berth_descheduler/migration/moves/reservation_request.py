"""Asks for the place of a move: creates its Reservation from the live pod."""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec

from berth_core import (
    BerthError,
    MoveMethod,
    MoveReason,
    PermanentError,
    PlannedMove,
    Pod,
    PodGroup,
    RetryableError,
    is_preemptable,
    preemptable_groups,
    volcano_group_of,
)
from berth_core.decoding import convert
from berth_descheduler.migration.manifests.move_reservations import build_reservation
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.memory import DEFAULT_GRACE_SECONDS
from berth_descheduler.migration.moves.start_deadlines import ProgressDeadlines
from berth_descheduler.migration.moves.surge_eligibility import why_pod_cannot_surge
from berth_descheduler.migration.replacement_trial.trial import ReplacementTrial
from berth_kube import (
    PODS,
    RESERVATIONS,
    VOLCANO_POD_GROUPS,
    AlreadyExistsError,
    KubeClient,
    NotFoundError,
    SurgeEligibility,
    controller_reference,
    is_ready,
)


@dataclass(frozen=True, slots=True)
class PlaceTerms:
    """How long a place is held, and for how many moves one after the other."""

    ttl: timedelta
    turns: int = 1
    deadlines: ProgressDeadlines | None = None
    """Asked how long each move before this one may wait for its replacement; None: no longer than the timeouts."""

    def progress_seconds(self, raw_pod: dict[str, Any]) -> float | None:
        """Return the deadline of the pod's Deployment, None where it is not asked for or cannot be read."""
        return self.deadlines.of(raw_pod) if self.deadlines is not None else None

    def ttl_of(self, progress_seconds: float | None) -> timedelta:
        """Return the TTL of the place of a pod with that deadline; the moves before it have pods of the same kind."""
        # A replacement has its deadline until its containers run, and again until it is available.
        waits_seconds = 2 * (progress_seconds or 0.0) * (self.turns - 1)
        return self.ttl * self.turns + timedelta(seconds=waits_seconds)


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """The answer to the request for a place.

    With neither `created` nor `refusal`, the request is tried again.
    """

    created: bool = False
    was_ready: bool = True
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    not_surge: str = ""
    """Why a pod that is to surge cannot."""

    progress_seconds: float | None = None
    """The deadline of its Deployment, 0 without one; None where it was not read."""

    refusal: MoveReason = MoveReason.NONE
    detail: str = ""


def reserve(
    client: KubeClient,
    plan: PlanIdentity,
    index: int,
    move: PlannedMove,
    terms: PlaceTerms,
    eligibility: SurgeEligibility,
    trial: ReplacementTrial,
) -> ReserveAnswer:
    """Create the Reservation of a move from its live pod.

    An existing Reservation of that name is the plan's own. None is created for a pod whose replacement could not take
    the place; a surge would wait for that until its Deployment's own deadline.
    """
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="the pod is not there any more")
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    if (refused_answer := why_not_movable(raw_pod, move)) is not None:
        return refused_answer
    preemptable = _is_preemptable(client, raw_pod)
    progress_seconds = terms.progress_seconds(raw_pod)
    ttl = terms.ttl_of(progress_seconds)
    body = build_reservation(plan, index, move, raw_pod, ttl, is_preemptable=preemptable)
    if (refused_answer := _try_replacement(trial, raw_pod, body)) is not None:
        return refused_answer
    answer = replace(_create(client, raw_pod, body), progress_seconds=progress_seconds)
    # Asked only once there is a place: what the answer depends on, such as a rollout, may change while the place is
    # awaited.
    surges = answer.created and move.method is MoveMethod.SURGE
    return replace(answer, not_surge=why_pod_cannot_surge(eligibility, raw_pod)) if surges else answer


def _try_replacement(trial: ReplacementTrial, raw_pod: dict[str, Any], body: dict[str, Any]) -> ReserveAnswer | None:
    spec = body["spec"]
    refusal = trial.before_reservation(raw_pod, spec["tasks"][0]["template"], spec["schedulerName"])
    return ReserveAnswer(refusal=refusal.reason, detail=refusal.message) if refusal else None


def _is_preemptable(client: KubeClient, raw_pod: dict[str, Any]) -> bool:
    """Return whether a pod or its group is marked as preemptable; the group is read only where the pod is not."""
    with suppress(BerthError, msgspec.ValidationError):
        pod = convert(raw_pod, Pod)
        if is_preemptable(pod, ()):
            return True
        if group := volcano_group_of(pod):
            pod_group = client.get(VOLCANO_POD_GROUPS, group, namespace=pod.metadata.namespace, type=PodGroup)
            return is_preemptable(pod, preemptable_groups([pod_group.metadata]))
    return False


def _create(client: KubeClient, raw_pod: dict[str, Any], body: dict[str, Any]) -> ReserveAnswer:
    try:
        client.create(RESERVATIONS, body)
    # The name follows from plan and pod: an earlier request whose answer was lost, or the run before this one, made it.
    except AlreadyExistsError:
        pass
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    return ReserveAnswer(created=True, was_ready=is_ready(raw_pod), grace_seconds=grace_seconds(raw_pod))


def grace_seconds(raw_pod: dict[str, Any]) -> float:
    grace = raw_pod["spec"].get("terminationGracePeriodSeconds")
    return DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def why_not_movable(raw_pod: dict[str, Any], move: PlannedMove) -> ReserveAnswer | None:
    """Return why the live pod is not the planned one, else None."""
    metadata, node = raw_pod["metadata"], raw_pod["spec"].get("nodeName") or ""
    if metadata["uid"] != move.pod_uid:
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="another pod has its name by now")
    if metadata.get("deletionTimestamp"):
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="the pod is being deleted")
    if node != move.source:
        detail = f"the pod is on {node or 'no node'}, not on {move.source}"
        return ReserveAnswer(refusal=MoveReason.POD_CHANGED, detail=detail)
    owner = controller_reference(raw_pod)
    if owner is None:
        return ReserveAnswer(refusal=MoveReason.POD_CHANGED, detail="no controller would make the pod again")
    if move.owner is not None and move.owner.uid not in {"", owner.uid}:
        detail = f"the pod belongs to {owner.kind} {owner.name} now"
        return ReserveAnswer(refusal=MoveReason.POD_CHANGED, detail=detail)
    return None
