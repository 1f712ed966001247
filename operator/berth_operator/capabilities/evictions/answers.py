"""The answers of the webhook to evictions: a 429 while a pod has to stay, a warning where it passes unreplaced."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from berth_core import format_timestamp
from berth_operator.admission.reviews import AdmissionRequest, Answer, allow
from berth_operator.capabilities.evictions import metrics

_RETRY_SECONDS: Final = 2
_MAX_WARNING: Final = 240
"""Characters of a warning. The API server cuts longer ones at 256 where there are many (`truncateItemRunes` in
apiserver's `pkg/endpoints/filters/warning.go`)."""


@dataclass(frozen=True, slots=True)
class EvictionVerdict:
    """Whether an eviction passes, and why."""

    passes: bool
    reason: str = ""
    """What the requester reads."""
    result: str = "passed"
    """The label of the metric; "" counts nothing."""


NOT_OURS: Final = EvictionVerdict(passes=True, result="")
REPLACED: Final = EvictionVerdict(passes=True, result="replaced")


def answer_verdict(request: AdmissionRequest, verdict: EvictionVerdict, *, until: datetime | None = None) -> Answer:
    """Return the answer with a verdict, and count it; `until` is the time at which an eviction that waits will pass.

    A refusal is a 429, as that of a PodDisruptionBudget is, after which `kubectl drain` tries again.
    """
    pod = f"{request.namespace}/{request.name}"
    if not verdict.passes:
        metrics.EVICTIONS.labels(result="waits").inc()
        latest = f", at {format_timestamp(until)} at the latest" if until else ""
        message = (
            f"Berth moves pod {pod} without a gap: {verdict.reason}. "
            f"Try again: the eviction passes once another pod is available{latest}."
        )
        status = {
            "status": "Failure",
            # Clients of the Eviction API take 429 for "later" and all else for a failure (API-initiated eviction,
            # kubernetes.io/docs/concepts/scheduling-eviction/api-eviction).
            "code": 429,
            "reason": "TooManyRequests",
            "message": message,
            "details": {"retryAfterSeconds": _RETRY_SECONDS},
        }
        return _answer(request, pod, {"allowed": False, "status": status})
    if verdict.result:
        metrics.EVICTIONS.labels(result=verdict.result).inc()
    if not verdict.reason:
        return _answer(request, pod, {"allowed": True})
    warning = f"Berth lets the eviction of pod {pod} pass without a replacement: {verdict.reason}"
    return _answer(request, pod, {"allowed": True, "warnings": [warning[:_MAX_WARNING]]})


def _answer(request: AdmissionRequest, pod: str, response: Mapping[str, Any]) -> Answer:
    body = allow(request.uid).body
    return Answer({**body, "response": {**body["response"], **response}}, pod=pod)
