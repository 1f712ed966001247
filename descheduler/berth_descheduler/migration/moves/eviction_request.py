"""Asks for the eviction of a move's pod."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from berth_core import MoveReason, PermanentError, PlannedMove, Pod, RetryableError
from berth_core.decoding import convert
from berth_core.object_lists import RawObject
from berth_descheduler.framework import RefusalReason
from berth_descheduler.migration.moves.memory import DEFAULT_GRACE_SECONDS, Eviction
from berth_descheduler.migration.moves.reservation_request import grace_seconds, why_not_movable
from berth_descheduler.migration.nodes.targets import why_target_ends_pod
from berth_descheduler.migration.operator.liveness import OperatorLiveness
from berth_descheduler.migration.replacement_trial.trial import TrialRefusal
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_kube import (
    PODS,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    KubeClient,
    NotFoundError,
    ReadCache,
    UnreachableError,
)

_PASSING: Final = frozenset({RefusalReason.LOWER_ORDINAL_NOT_READY})
"""What other moves of the same controller cause until their replacements are Ready: asked again, like a budget."""

TryReplacement: TypeAlias = Callable[[RawObject, ReadCache], TrialRefusal | None]
"""Returns why a pod's replacement could not take its place, by what is read from the cache."""


@dataclass(frozen=True, slots=True)
class EvictAnswer:
    """The answer to a requested eviction."""

    eviction: Eviction
    detail: str = ""
    refusal: MoveReason = MoveReason.NONE
    """Set where Berth itself refused and requested nothing."""

    retry_after_seconds: float | None = None
    grace_seconds: float = DEFAULT_GRACE_SECONDS
    is_gone: bool = False
    """The pod was not there any more."""


_GONE: Final = EvictAnswer(Eviction.BLOCKED, "the pod is not there any more", is_gone=True)
"""The pod is gone, or another one has its name: the watch is about to show that."""


def evict(
    client: KubeClient,
    move: PlannedMove,
    operator: OperatorLiveness,
    pre_eviction_check: PreEvictionCheck,
    try_replacement: TryReplacement,
) -> EvictAnswer:
    """Evict exactly the planned pod, while an operator is alive to hand its place over.

    A pod without a place needs no operator. Before, the rules and filters are asked once more about the pod as it is
    now, and whether its controller's next pod could take the place.
    """
    # Asked here and not once per plan: an operator may die between any two evictions, and its places would stay
    # Available.
    operator_problem = "" if move.is_eviction else operator.problem()
    if operator_problem:
        return EvictAnswer(Eviction.BLOCKED, operator_problem)
    try:
        raw_pod = _read_pod(client, move)
        if raw_pod is None:
            return _GONE
        if raw_pod["metadata"].get("deletionTimestamp"):
            # An eviction would be accepted, and be none: others have deleted the pod, or an earlier request did
            # (`canIgnorePDB` in the API server's pkg/registry/core/pod/storage/eviction.go).
            return EvictAnswer(Eviction.BLOCKED, "the pod is being deleted", is_gone=True)
        # The lock covers the questions and the eviction: two siblings that were judged at the same time could each be
        # allowed because of the other.
        with pre_eviction_check.eviction_lock(raw_pod, has_place=not move.is_eviction) as reads:
            refused_answer = ask_rules(reads, raw_pod, move, pre_eviction_check)
            if refused_answer is None and not move.is_eviction:
                refused_answer = _ask_about_replacement(reads, raw_pod, pre_eviction_check, try_replacement)
            return refused_answer or replace(ask_for_eviction(client, move), grace_seconds=grace_seconds(raw_pod))
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.BLOCKED, str(error), retry_after_seconds=error.retry_after_seconds)


def _read_pod(client: KubeClient, move: PlannedMove) -> dict[str, Any] | None:
    """Return the planned pod, None if it is gone, also where another has its name; raises `BerthError`."""
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return None
    # A StatefulSet makes its pod again under the same name: only the uid says that it is the planned one.
    return raw_pod if raw_pod["metadata"]["uid"] == move.pod_uid else None


def _ask_about_replacement(
    reads: ReadCache,
    raw_pod: dict[str, Any],
    pre_eviction_check: PreEvictionCheck,
    try_replacement: TryReplacement,
) -> EvictAnswer | None:
    """Return why the pod has to stay for its siblings' or its replacement's sake, None if it may be evicted."""
    reason = pre_eviction_check.why_not_now(raw_pod, reads)
    if reason:  # its siblings come back first, as they may within the eviction's deadline
        return EvictAnswer(Eviction.BLOCKED, reason)
    refusal = try_replacement(raw_pod, reads)
    return EvictAnswer(Eviction.NOT_SENT, refusal.message, refusal=refusal.reason) if refusal else None


def ask_rules(
    reads: ReadCache, raw_pod: dict[str, Any], move: PlannedMove, pre_eviction_check: PreEvictionCheck
) -> EvictAnswer | None:
    """Return why the pod may not be evicted, None if it may; raises `BerthError` where that is unknown."""
    if move.is_eviction and (why_changed := why_not_movable(raw_pod, move)) is not None:
        return EvictAnswer(Eviction.NOT_SENT, why_changed.detail, refusal=why_changed.refusal)
    refusals = pre_eviction_check.refusals(raw_pod, reads, has_place=not move.is_eviction)
    if refusals:
        detail = "; ".join(refusal.message for refusal in refusals)
        if all(refusal.reason in _PASSING for refusal in refusals):
            return EvictAnswer(Eviction.BLOCKED, detail)
        return EvictAnswer(Eviction.NOT_SENT, detail, refusal=MoveReason.FILTERED)
    if not move.is_eviction and (problem := why_target_ends_pod(reads, move.target, convert(raw_pod, Pod).spec)):
        return EvictAnswer(Eviction.NOT_SENT, problem, refusal=MoveReason.TARGET_UNFIT)
    return None


def ask_for_eviction(client: KubeClient, move: PlannedMove, *, resource_version: str | None = None) -> EvictAnswer:
    try:
        # The uid is a precondition of the deletion, so that the API server never evicts a namesake that came in
        # between.
        client.evict(move.namespace, move.pod, uid=move.pod_uid, resource_version=resource_version)
    # 429: a budget allows no disruption now, or its status is older than its spec. It is asked again, as `kubectl
    # drain` does.
    except (EvictionBlockedError, EvictionInterceptedError) as error:
        answer = Eviction.BLOCKED if isinstance(error, EvictionBlockedError) else Eviction.INTERCEPTED
        return EvictAnswer(answer, error.message, retry_after_seconds=error.retry_after_seconds)
    # 409: the uid among the delete options is another one by now, so the name is that of another pod.
    except (NotFoundError, ConflictError):
        return _GONE
    # A request whose connection broke may have been carried out: only one that was never sent is simply made again.
    except UnreachableError as error:
        return EvictAnswer(Eviction.UNANSWERED if error.acted else Eviction.BLOCKED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.UNANSWERED, str(error), retry_after_seconds=error.retry_after_seconds)
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    return EvictAnswer(Eviction.SENT)
