"""The calls of a surge move: its pod is let go, and evicted or taken back.

Each call looks at the pod as it is now: what it finds done already, it does not do again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import msgspec

from berth_core import (
    TEMPLATE_HASH_LABEL,
    BerthError,
    InputError,
    MoveReason,
    PermanentError,
    PlannedMove,
    Pod,
    RetryableError,
)
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.eviction_request import EvictAnswer, ask_for_eviction, ask_rules
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.moves.reservation_request import grace_seconds, why_not_movable
from berth_descheduler.migration.operator.liveness import OperatorLiveness
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_kube import (
    PODS,
    ConflictError,
    KubeClient,
    Note,
    NotFoundError,
    Returned,
    SurgeEligibility,
    build_release,
    controller_reference,
    is_out,
    relabel,
    take_back,
    why_not_surge,
)


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """The answer to the request to let a pod go; without a release, a reason or a refusal it is tried again."""

    released: bool = False
    min_ready_seconds: float = 0.0
    not_surge: str = ""
    """Why the pod cannot surge."""

    refusal: MoveReason = MoveReason.NONE
    detail: str = ""
    retry_after_seconds: float | None = None


def release(
    client: KubeClient,
    plan: PlanIdentity,
    move: PlannedMove,
    operator: OperatorLiveness,
    rules: PreEvictionCheck,
    eligibility: SurgeEligibility,
) -> ReleaseAnswer:
    """Have the ReplicaSet let the planned pod go, after the same questions as before an eviction."""
    if operator_problem := operator.problem():
        return ReleaseAnswer(detail=operator_problem)
    try:
        return _release(client, plan, move, rules, eligibility)
    # The pod or its ReplicaSet has changed since it was read; the next look shows how.
    except (NotFoundError, ConflictError) as error:
        return ReleaseAnswer(detail=str(error))
    except (PermanentError, InputError) as error:
        return ReleaseAnswer(not_surge=f"it cannot be let go: {error}")
    except RetryableError as error:
        return ReleaseAnswer(detail=str(error), retry_after_seconds=error.retry_after_seconds)


def _release(
    client: KubeClient, plan: PlanIdentity, move: PlannedMove, rules: PreEvictionCheck, eligibility: SurgeEligibility
) -> ReleaseAnswer:
    """Have the pod let go, unless it is by now or may not be; raises `BerthError`."""
    raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    # An earlier request whose answer was lost has done it; asked first, as a released pod has no controller and would
    # be refused by the checks below.
    if raw_pod["metadata"]["uid"] == move.pod_uid and is_out(raw_pod):
        return _released(raw_pod)
    if (why_changed := why_not_movable(raw_pod, move)) is not None:
        return ReleaseAnswer(refusal=why_changed.refusal, detail=why_changed.detail)
    if (refused_answer := ask_rules(rules.reads(), raw_pod, move, rules)) is not None:
        return ReleaseAnswer(refusal=refused_answer.refusal, detail=refused_answer.detail)
    # From the look at the quotas until the pod is let go: the ReplicaSet's further pod counts against them only later.
    with eligibility.turn(move.namespace):
        around = eligibility.look(raw_pod)
        if reason := why_not_surge(raw_pod, around):
            return ReleaseAnswer(not_surge=reason)
        body = build_release(raw_pod, around, Note(plan=plan.name, source=move.source))
        # Before the call: one that got no answer may have been carried out.
        eligibility.note_release(move.namespace)
        relabel(client, raw_pod, body)
    return _released(body)


LookAnswer: TypeAlias = EvictAnswer | ReleaseAnswer | None
"""What became of a pod: it leaves, it was let go or that is unknown yet, or nothing."""


def look_again(client: KubeClient, move: PlannedMove) -> LookAnswer:
    """Return what an earlier request without an answer, or another client, did with the planned pod."""
    gone_answer = EvictAnswer(Eviction.BLOCKED, "the pod is not there any more", is_gone=True)
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return gone_answer
    except BerthError as error:
        return ReleaseAnswer(detail=str(error))
    metadata = raw_pod["metadata"]
    if metadata["uid"] != move.pod_uid:
        return gone_answer
    if metadata.get("deletionTimestamp"):
        return replace(gone_answer, grace_seconds=grace_seconds(raw_pod))
    if is_out(raw_pod):
        return _released(raw_pod)
    return None


def _released(released_pod: Mapping[str, Any]) -> ReleaseAnswer:
    """Return the answer for a pod that was let go, as its annotation notes it."""
    note = Note.read(released_pod["metadata"].get("annotations") or {})
    return ReleaseAnswer(released=True, min_ready_seconds=note.min_ready_seconds)


def note_of(pod: Pod) -> Note:
    """Return the note that the annotation of a released pod holds."""
    return Note.read(pod.metadata.annotations)


def evict_released(client: KubeClient, move: PlannedMove, rules: PreEvictionCheck | None) -> EvictAnswer:
    """Evict the planned pod as it was just seen: let go, and controlled by nothing.

    The rules are asked about the pod as its controller had it; without a ReplicaSet it has to go, and none are.
    """
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
        refused_answer = _why_not_evicted(raw_pod, move, rules)
        # A precondition of the eviction: if the ReplicaSet takes the pod up again in between, the API server answers
        # 409.
        version = raw_pod["metadata"]["resourceVersion"]
        answer = refused_answer or ask_for_eviction(client, move, resource_version=version)
        return replace(answer, grace_seconds=grace_seconds(raw_pod), is_gone=False)  # or it was changed meanwhile
    except NotFoundError as error:
        return EvictAnswer(Eviction.BLOCKED, str(error))
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.BLOCKED, str(error), retry_after_seconds=error.retry_after_seconds)


def _why_not_evicted(raw_pod: dict[str, Any], move: PlannedMove, rules: PreEvictionCheck | None) -> EvictAnswer | None:
    """Return why a released pod is not evicted now, None if it may be; raises `BerthError`."""
    metadata = raw_pod["metadata"]
    if metadata["uid"] != move.pod_uid or metadata.get("deletionTimestamp"):
        return EvictAnswer(Eviction.BLOCKED, "the pod is not there any more")
    if not is_out(raw_pod):
        message = "another client gave it back to its ReplicaSet"
        return EvictAnswer(Eviction.NOT_SENT, message, refusal=MoveReason.POD_CHANGED)
    # The label is ours, the ownerReference the ReplicaSet's: until its controller has removed that, it still counts the
    # pod and makes no other.
    if controller_reference(raw_pod) is not None:
        return EvictAnswer(Eviction.BLOCKED, "its ReplicaSet has not let it go yet")
    return ask_rules(rules.reads(), _as_before(raw_pod, move), move, rules) if rules else None


def _as_before(raw_pod: dict[str, Any], move: PlannedMove) -> dict[str, Any]:
    """Return a released pod as it was: its plan says who controlled it."""
    metadata = raw_pod["metadata"]
    labels = (metadata.get("labels") or {}) | {TEMPLATE_HASH_LABEL: Note.read(metadata.get("annotations") or {}).hash}
    owner = {**msgspec.to_builtins(move.owner), "controller": True} if move.owner else {}
    return {**raw_pod, "metadata": {**metadata, "labels": labels, "ownerReferences": [owner] if owner else []}}


@dataclass(frozen=True, slots=True)
class ReturnAnswer:
    """The answer to taking a released pod back, which is tried again until it is returned or ownerless."""

    returned: bool = False
    ownerless: bool = False
    """Its ReplicaSet is gone."""

    detail: str = ""


def give_back(client: KubeClient, move: PlannedMove) -> ReturnAnswer:
    """Take a released pod back."""
    owner = move.owner.name if move.owner else ""
    try:
        returned = take_back(client, move.namespace, move.pod, uid=move.pod_uid, replica_set=owner)
    except BerthError as error:
        return ReturnAnswer(detail=str(error))
    return ReturnAnswer(returned=returned is Returned.DONE, ownerless=returned is Returned.OWNERLESS)
