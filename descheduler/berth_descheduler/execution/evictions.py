"""Owns the two calls that a move makes, making its Reservation and evicting its pod, and what their answers mean.

It does not decide when (`moves`) and does not repeat a refused eviction by itself: the next look at the move does.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from berth_core.errors import PermanentError, RetryableError
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_descheduler.execution.last_word import LastWord
from berth_descheduler.execution.moves import Eviction
from berth_descheduler.execution.operator_pulse import OperatorPulse
from berth_descheduler.execution.plan_objects import PlanIdentity, build_reservation, controller_reference
from berth_kube.client import KubeClient
from berth_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    EvictionBlockedError,
    EvictionInterceptedError,
    NotFoundError,
    UnreachableError,
)
from berth_kube.resources import PODS, RESERVATIONS

FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 10.0
_DEFAULT_GRACE_SECONDS: Final = 30.0
_LONGEST_DOUBLING: Final = 10


@dataclass(frozen=True, slots=True)
class ReserveAnswer:
    """What came of asking for a place; neither `created` nor `refusal`: try again."""

    created: bool = False
    was_ready: bool = True
    grace_seconds: float = _DEFAULT_GRACE_SECONDS
    refusal: MoveReason = MoveReason.NONE
    detail: str = ""


@dataclass(frozen=True, slots=True)
class EvictAnswer:
    """What came of asking for an eviction."""

    eviction: Eviction
    detail: str = ""
    refusal: MoveReason = MoveReason.NONE
    """Set where Berth itself does not ask for it."""

    retry_after_seconds: float | None = None


def backoff_seconds(attempts: int, asked_for: float | None = None) -> float:
    """Return how long to wait after so many refusals, at least as long as the server asks for."""
    doubled = FIRST_BACKOFF_SECONDS * float(2 ** min(attempts, _LONGEST_DOUBLING))
    return max(min(doubled, LONGEST_BACKOFF_SECONDS), asked_for or 0.0)


def reserve(client: KubeClient, plan: PlanIdentity, index: int, move: PlannedMove, ttl: timedelta) -> ReserveAnswer:
    """Look at the live pod and create its move's Reservation; one that is there already is ours, by its name."""
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
    except NotFoundError:
        return ReserveAnswer(refusal=MoveReason.POD_GONE, detail="the pod is not there any more")
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    return why_not_movable(raw_pod, move) or _create(
        client, raw_pod, build_reservation(plan, index, move, raw_pod, ttl)
    )


def _create(client: KubeClient, raw_pod: dict[str, Any], body: dict[str, Any]) -> ReserveAnswer:
    try:
        client.create(RESERVATIONS, body)
    except AlreadyExistsError:
        pass
    except PermanentError as error:
        return ReserveAnswer(refusal=MoveReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return ReserveAnswer(detail=str(error))
    grace = raw_pod["spec"].get("terminationGracePeriodSeconds")
    return ReserveAnswer(
        created=True,
        was_ready=_is_ready(raw_pod),
        grace_seconds=_DEFAULT_GRACE_SECONDS if grace is None else float(grace),
    )


def why_not_movable(raw_pod: dict[str, Any], move: PlannedMove) -> ReserveAnswer | None:
    """Return why the live pod is not the one that was planned for; None if it is."""
    metadata, node = raw_pod["metadata"], raw_pod["spec"].get("nodeName", "")
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


def _is_ready(raw_pod: dict[str, Any]) -> bool:
    conditions = raw_pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def evict(client: KubeClient, move: PlannedMove, operator: OperatorPulse, last_word: LastWord) -> EvictAnswer:
    """Ask for the eviction of exactly the planned pod, while there is an operator to hand its place over.

    The rules and filters are asked once more before, about the pod as it is now.
    """
    silent = operator.why_silent()
    if silent:
        return EvictAnswer(Eviction.BLOCKED, silent)
    try:
        raw_pod = client.get(PODS, move.pod, namespace=move.namespace)
        if raw_pod["metadata"]["uid"] == move.pod_uid:
            with last_word.turn_of(raw_pod):
                return _ask_rules(raw_pod, last_word) or _ask_for_eviction(client, move)
    except NotFoundError:
        pass  # the eviction finds out what became of it
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.BLOCKED, str(error), retry_after_seconds=error.retry_after_seconds)
    return _ask_for_eviction(client, move)


def _ask_rules(raw_pod: dict[str, Any], last_word: LastWord) -> EvictAnswer | None:
    """Return why the pod is not to be evicted, None if it may be; raises a `BerthError` where that is not known."""
    found = last_word.refusals(raw_pod)
    if not found:
        return None
    return EvictAnswer(Eviction.NOT_SENT, "; ".join(one.message for one in found), refusal=MoveReason.FILTERED)


def _ask_for_eviction(client: KubeClient, move: PlannedMove) -> EvictAnswer:
    try:
        client.evict(move.namespace, move.pod, uid=move.pod_uid)
    except (EvictionBlockedError, EvictionInterceptedError) as error:
        answer = Eviction.BLOCKED if isinstance(error, EvictionBlockedError) else Eviction.INTERCEPTED
        return EvictAnswer(answer, error.message, retry_after_seconds=error.retry_after_seconds)
    except (NotFoundError, ConflictError):
        # Gone, or another pod has its name: the watch is about to show it.
        return EvictAnswer(Eviction.BLOCKED, "the pod is not there any more")
    except UnreachableError as error:
        return EvictAnswer(Eviction.UNANSWERED if error.acted else Eviction.BLOCKED, str(error))
    except RetryableError as error:
        return EvictAnswer(Eviction.UNANSWERED, str(error), retry_after_seconds=error.retry_after_seconds)
    except PermanentError as error:
        return EvictAnswer(Eviction.REFUSED, str(error))
    return EvictAnswer(Eviction.SENT)
