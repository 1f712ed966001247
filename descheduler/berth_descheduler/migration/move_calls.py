"""The calls that a move makes, and what their answers mean.

It creates its Reservation and evicts its pod; one that surges lets the pod go before, or takes it back. `moves` decides
when; a refused call is repeated by the next observation of the move, not here.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

import msgspec

from berth_core import (
    TEMPLATE_HASH_LABEL,
    BerthError,
    InputError,
    MoveMethod,
    MoveReason,
    PermanentError,
    PlannedMove,
    Pod,
    PodGroup,
    RetryableError,
    SystemClock,
    is_preemptable,
    preemptable_groups,
    volcano_group_of,
)
from berth_core.decoding import convert
from berth_descheduler.migration.manifests import PlanIdentity, build_reservation
from berth_descheduler.migration.moves import Eviction
from berth_descheduler.migration.operator_liveness import OperatorLiveness
from berth_descheduler.migration.validation import PreEvictionCheck
from berth_kube import (
    PODS,
    RESERVATIONS,
    VOLCANO_POD_GROUPS,
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    KubeClient,
    Note,
    NotFoundError,
    ObjectReader,
    Returned,
    SurgeEligibility,
    UnreachableError,
    build_release,
    controller_reference,
    is_out,
    is_ready,
    relabel,
    take_back,
    why_not_surge,
)

_DEFAULT_GRACE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """The answer to the request for a place.

    With neither `created` nor `refusal`, the request is tried again.
    """

    created: bool = False
    was_ready: bool = True
    grace_seconds: float = _DEFAULT_GRACE_SECONDS
    not_surge: str = ""
    """Why a pod that is to surge cannot."""

    refusal: MoveReason = MoveReason.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EvictAnswer:
    """The answer to a requested eviction."""

    eviction: Eviction
    detail: str = ""
    refusal: MoveReason = MoveReason.NONE
    """Set where Berth itself refused and requested nothing."""

    retry_after_seconds: float | None = None
    grace_seconds: float = _DEFAULT_GRACE_SECONDS
    is_gone: bool = False
    """The pod was not there any more."""


def reserve(
    client: KubeClient,
    plan: PlanIdentity,
    index: int,
    move: PlannedMove,
    ttl: timedelta,
    eligibility: SurgeEligibility,
) -> ReserveAnswer:
    """Create the Reservation of a move from its live pod.

    An existing Reservation of that name is the plan's own.
    """
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="the pod is not there any more")
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    if (refused := why_not_movable(raw_pod, move)) is not None:
        return refused
    preemptable = _is_preemptable(client, raw_pod)
    answer = _create(client, raw_pod, build_reservation(plan, index, move, raw_pod, ttl, is_preemptable=preemptable))
    surges = answer.created and move.method is MoveMethod.SURGE
    return replace(answer, not_surge=_why_not_surge(eligibility, raw_pod)) if surges else answer


def _why_not_surge(eligibility: SurgeEligibility, raw_pod: dict[str, Any]) -> str:
    """Return why a pod cannot surge; what cannot be read now is asked again before the pod is let go."""
    with suppress(RetryableError, NotFoundError):
        try:
            return why_not_surge(raw_pod, eligibility.look(raw_pod))
        except (PermanentError, InputError) as error:
            return f"it cannot be told whether it may: {error}"
    return ""


def find_unsurgeable(objects: ObjectReader, pods: Iterable[Pod]) -> dict[str, str]:
    """Return why pods cannot surge, by `namespace/name`; of pods that are alike it asks about one."""
    of_kind: defaultdict[tuple[str, bool], list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda one: one.key):
        of_kind[pod.controller.uid if pod.controller else pod.key, pod.is_ready].append(pod)
    found: dict[str, str] = {}
    eligibility = SurgeEligibility(objects, SystemClock())
    for alike in of_kind.values():
        raw_pod = msgspec.to_builtins(alike[0])
        raw_pod["spec"] = {"containers": [], **(raw_pod.get("spec") or {})}
        if reason := _why_not_surge(eligibility, raw_pod):
            found |= dict.fromkeys((pod.key for pod in alike), reason)
    return found


def _is_preemptable(client: KubeClient, raw_pod: dict[str, Any]) -> bool:
    """Return whether a pod or its group says so; the group is read only where the pod does not."""
    with suppress(BerthError, msgspec.ValidationError):
        pod = convert(raw_pod, Pod)
        if is_preemptable(pod, ()):
            return True
        if group := volcano_group_of(pod):
            found = client.get(VOLCANO_POD_GROUPS, group, namespace=pod.metadata.namespace, type=PodGroup)
            return is_preemptable(pod, preemptable_groups([found.metadata]))
    return False


def _create(client: KubeClient, raw_pod: dict[str, Any], body: dict[str, Any]) -> ReserveAnswer:
    try:
        client.create(RESERVATIONS, body)
    except AlreadyExistsError:
        pass
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    return ReserveAnswer(created=True, was_ready=is_ready(raw_pod), grace_seconds=_grace_seconds(raw_pod))


def _grace_seconds(raw_pod: dict[str, Any]) -> float:
    grace = raw_pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)


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


def evict(
    client: KubeClient, move: PlannedMove, operator: OperatorLiveness, pre_eviction_check: PreEvictionCheck
) -> EvictAnswer:
    """Evict exactly the planned pod while an operator is alive, which hands its place over.

    A pod without a place needs none. Asks the rules and filters once more before, about the pod as it is now.
    """
    silent = "" if move.is_eviction else operator.problem()
    if silent:
        return EvictAnswer(Eviction.BLOCKED, silent)
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
        if raw_pod["metadata"]["uid"] == move.pod_uid:
            with pre_eviction_check.eviction_lock(raw_pod, has_place=not move.is_eviction):
                refused = _ask_rules(raw_pod, move, pre_eviction_check)
                return refused or replace(_ask_for_eviction(client, move), grace_seconds=_grace_seconds(raw_pod))
    except NotFoundError:
        pass  # the eviction reports what became of it
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.BLOCKED, str(error), retry_after_seconds=error.retry_after_seconds)
    return _ask_for_eviction(client, move)


def _ask_rules(raw_pod: dict[str, Any], move: PlannedMove, pre_eviction_check: PreEvictionCheck) -> EvictAnswer | None:
    """Return why the pod may not be evicted, None if it may.

    Raises `BerthError` where that is unknown.
    """
    if move.is_eviction and (changed := why_not_movable(raw_pod, move)) is not None:
        return EvictAnswer(Eviction.NOT_SENT, changed.detail, refusal=changed.refusal)
    found = pre_eviction_check.refusals(raw_pod, has_place=not move.is_eviction)
    if not found:
        return None
    return EvictAnswer(Eviction.NOT_SENT, "; ".join(one.message for one in found), refusal=MoveReason.FILTERED)


def _ask_for_eviction(client: KubeClient, move: PlannedMove, *, resource_version: str | None = None) -> EvictAnswer:
    try:
        client.evict(move.namespace, move.pod, uid=move.pod_uid, resource_version=resource_version)
    except (EvictionBlockedError, EvictionInterceptedError) as error:
        answer = Eviction.BLOCKED if isinstance(error, EvictionBlockedError) else Eviction.INTERCEPTED
        return EvictAnswer(answer, error.message, retry_after_seconds=error.retry_after_seconds)
    except (NotFoundError, ConflictError):
        # Gone, or another pod has its name: the watch is about to show it.
        return EvictAnswer(Eviction.BLOCKED, "the pod is not there any more", is_gone=True)
    except UnreachableError as error:
        return EvictAnswer(Eviction.UNANSWERED if error.acted else Eviction.BLOCKED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.UNANSWERED, str(error), retry_after_seconds=error.retry_after_seconds)
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    return EvictAnswer(Eviction.SENT)


# --- surge moves -----------------------------------------------------------------------------------------------------
# The pod is let go, and evicted or taken back. Each call looks at the pod as it is now: what it finds done already, it
# does not do again.


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """The answer to the request to let a pod go; with neither of the three it is tried again."""

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
    """Have the ReplicaSet let the planned pod go, after all that an eviction asks."""
    if silent := operator.problem():
        return ReleaseAnswer(detail=silent)
    try:
        return _release(client, plan, move, rules, eligibility)
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
    if raw_pod["metadata"]["uid"] == move.pod_uid and is_out(raw_pod):
        return _released(raw_pod)
    if (changed := why_not_movable(raw_pod, move)) is not None:
        return ReleaseAnswer(refusal=changed.refusal, detail=changed.detail)
    if (refused := _ask_rules(raw_pod, move, rules)) is not None:
        return ReleaseAnswer(refusal=refused.refusal, detail=refused.detail)
    with eligibility.turn(move.namespace):
        around = eligibility.look(raw_pod)
        if reason := why_not_surge(raw_pod, around):
            return ReleaseAnswer(not_surge=reason)
        body = build_release(raw_pod, around, Note(plan=plan.name, source=move.source))
        eligibility.note_release(move.namespace)
        relabel(client, raw_pod, body)
    seconds = Note.read(body["metadata"]["annotations"]).min_ready_seconds
    return ReleaseAnswer(released=True, min_ready_seconds=seconds)


LookAnswer: TypeAlias = EvictAnswer | ReleaseAnswer | None
"""What became of a pod: it leaves, it was let go or that is unknown yet, or nothing."""


def look_again(client: KubeClient, move: PlannedMove) -> LookAnswer:
    """Return what an earlier request without an answer, or another client, did with the planned pod."""
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return EvictAnswer(Eviction.SENT)
    except BerthError as error:
        return ReleaseAnswer(detail=str(error))
    metadata = raw_pod["metadata"]
    if metadata["uid"] != move.pod_uid:
        return EvictAnswer(Eviction.SENT)
    if metadata.get("deletionTimestamp"):
        return EvictAnswer(Eviction.SENT, grace_seconds=_grace_seconds(raw_pod))
    if is_out(raw_pod):
        return _released(raw_pod)
    return None


def _released(raw_pod: dict[str, Any]) -> ReleaseAnswer:
    """Return the answer for a pod that an earlier request has let go."""
    note = Note.read(raw_pod["metadata"].get("annotations") or {})
    return ReleaseAnswer(released=True, min_ready_seconds=note.min_ready_seconds)


def note_of(pod: Pod) -> Note:
    """Return what the annotation of a released pod says."""
    return Note.read(pod.metadata.annotations)


def evict_released(client: KubeClient, move: PlannedMove, rules: PreEvictionCheck | None) -> EvictAnswer:
    """Evict the planned pod as it was just seen: let go, and controlled by nothing.

    The rules are asked about the pod as its controller had it; without a ReplicaSet it has to go, and none are.
    """
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
        refused = _why_not_evicted(raw_pod, move, rules)
        version = raw_pod["metadata"]["resourceVersion"]
        answer = refused or _ask_for_eviction(client, move, resource_version=version)
        return replace(answer, grace_seconds=_grace_seconds(raw_pod), is_gone=False)  # or it was changed meanwhile
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
    if controller_reference(raw_pod) is not None:
        return EvictAnswer(Eviction.BLOCKED, "its ReplicaSet has not let it go yet")
    return _ask_rules(_as_before(raw_pod, move), move, rules) if rules else None


def _as_before(raw_pod: dict[str, Any], move: PlannedMove) -> dict[str, Any]:
    """Return a released pod as it was: its plan says who controlled it."""
    metadata = raw_pod["metadata"]
    labels = (metadata.get("labels") or {}) | {TEMPLATE_HASH_LABEL: Note.read(metadata.get("annotations") or {}).hash}
    owner = {**msgspec.to_builtins(move.owner), "controller": True} if move.owner else {}
    return {**raw_pod, "metadata": {**metadata, "labels": labels, "ownerReferences": [owner] if owner else []}}


@dataclass(frozen=True, slots=True)
class ReturnAnswer:
    """The answer to taking a released pod back; with neither it is tried again."""

    returned: bool = False
    ownerless: bool = False
    """Its ReplicaSet is gone."""

    detail: str = ""


def give_back(client: KubeClient, move: PlannedMove) -> ReturnAnswer:
    """Take a released pod back."""
    owner = move.owner.name if move.owner else ""
    try:
        found = take_back(client, move.namespace, move.pod, uid=move.pod_uid, replica_set=owner)
    except BerthError as error:
        return ReturnAnswer(detail=str(error))
    return ReturnAnswer(returned=found is Returned.DONE, ownerless=found is Returned.OWNERLESS)
