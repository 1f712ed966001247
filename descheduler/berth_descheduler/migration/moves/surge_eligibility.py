"""Why a pod cannot surge."""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import msgspec

from berth_core import InputError, PermanentError, Pod, RetryableError, SystemClock
from berth_kube import NotFoundError, ObjectReader, SurgeEligibility, why_not_surge


def why_pod_cannot_surge(eligibility: SurgeEligibility, raw_pod: dict[str, Any]) -> str:
    """Return why a pod cannot surge; what cannot be read now is asked again before the pod is let go."""
    with suppress(RetryableError, NotFoundError):
        try:
            return why_not_surge(raw_pod, eligibility.look(raw_pod))
        except (PermanentError, InputError) as error:
            return f"it cannot be determined whether it may: {error}"
    return ""


def find_unsurgeable(objects: ObjectReader, pods: Iterable[Pod]) -> dict[str, str]:
    """Return why pods cannot surge, by `namespace/name`; of pods that are alike it asks about one."""
    pods_of_kind: defaultdict[tuple[str, bool], list[Pod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda candidate: candidate.key):
        pods_of_kind[pod.controller.uid if pod.controller else pod.key, pod.is_ready].append(pod)
    reasons: dict[str, str] = {}
    eligibility = SurgeEligibility(objects, SystemClock())
    for alike_pods in pods_of_kind.values():
        raw_pod = msgspec.to_builtins(alike_pods[0])
        # Fields at their default are left out when a decoded pod is written again, while the API always has this one.
        raw_pod["spec"] = {"containers": [], **(raw_pod.get("spec") or {})}
        if reason := why_pod_cannot_surge(eligibility, raw_pod):
            reasons |= dict.fromkeys((pod.key for pod in alike_pods), reason)
    return reasons
