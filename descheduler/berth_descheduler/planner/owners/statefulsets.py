"""Which pods a StatefulSet makes again, when, and from which of its two revisions.

This follows its controller (pkg/controller/statefulset, `updateStatefulSet` and `newVersionedStatefulSetPod`). It makes
the ordinals from `start` on, as many as `replicas`; unless it is Parallel, one after another, and none while one before
is not Running, Ready and available. Pods below `partition` get the current revision, all others the update revision,
which is the StatefulSet's template; with OnDelete every pod gets the update revision. No revision keeps the claim
templates: each pod mounts the claims that these name, which are made if they do not exist.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from berth_core import InputError, Pod, PodSpec, PodTemplate, Workload, count, parse_timestamp
from berth_descheduler.framework import Refusal, RefusalReason

REVISION_LABEL: Final = "controller-revision-hash"

_PARALLEL: Final = "Parallel"
_ON_DELETE: Final = "OnDelete"
_POD_NAME: Final = re.compile(r"(?P<parent>.*)-(?P<ordinal>[0-9]+)", re.DOTALL)


def ordinal_of(stateful_set: Workload, pod: Pod) -> int | None:
    """Return the ordinal in a pod's name, None if it is not a name of this StatefulSet's pods."""
    name = _POD_NAME.fullmatch(pod.metadata.name)
    return int(name["ordinal"]) if name and name["parent"] == stateful_set.metadata.name else None


def ordinal_refusal(stateful_set: Workload, pod: Pod) -> Refusal | None:
    """Return why the StatefulSet would not make the pod's ordinal again."""
    title, ordinal = f"StatefulSet {stateful_set.metadata.name}", ordinal_of(stateful_set, pod)
    if ordinal is None:
        return Refusal(RefusalReason.NO_REPLACEMENT, f"its {title} makes no pod of the name {pod.metadata.name}")
    first, replicas = _start(stateful_set), stateful_set.spec.replicas
    if ordinal < first or (replicas is not None and ordinal >= first + replicas):
        wanted = "pods" if replicas is None else count(replicas, "pod")
        text = f"its {title} wants {wanted} from the ordinal {first} on, so it would not make {pod.metadata.name} again"
        return Refusal(RefusalReason.CONTROLLER_SCALING_DOWN, text)
    return None


def first_unready(stateful_set: Workload, pods: Iterable[Pod], now: datetime | None) -> tuple[int, str] | None:
    """Return the lowest ordinal that holds up an ordered StatefulSet, and why; None if no pod does."""
    if stateful_set.spec.pod_management_policy == _PARALLEL:
        return None
    pods_by_ordinal = {ordinal_of(stateful_set, pod): pod for pod in pods}
    highest = max((ordinal for ordinal in pods_by_ordinal if ordinal is not None), default=-1)
    for ordinal in range(_start(stateful_set), highest + 1):
        pod = pods_by_ordinal.get(ordinal)
        problem = "is not there" if pod is None else _why_unready(pod, stateful_set.spec.min_ready_seconds or 0, now)
        if problem:
            return ordinal, problem
    return None


def takes_current_revision(stateful_set: Workload, pod: Pod) -> bool:
    """Return whether the replacement is made from the revision before the StatefulSet's template."""
    strategy, ordinal = stateful_set.spec.update_strategy, ordinal_of(stateful_set, pod)
    if strategy is None or strategy.type == _ON_DELETE or strategy.rolling_update is None or ordinal is None:
        return False
    return ordinal < _start(stateful_set) + (strategy.rolling_update.partition or 0)


def claims_refusal(stateful_set: Workload, template: PodTemplate, pod: Pod) -> Refusal | None:
    """Return why the replacement, which is made from a template, would not mount the claims that the pod mounts.

    That happens when a StatefulSet is made again with other claim templates while its pods stay.
    """
    suffix = f"-{pod.metadata.name}"
    made = {f"{claim.metadata.name}{suffix}" for claim in stateful_set.spec.volume_claim_templates}
    mounted, own = _claims_of(pod.spec), {f"{volume.name}{suffix}" for volume in pod.spec.volumes}
    further = sorted(made - mounted)
    missing = sorted((mounted & own) - made - _claims_of(template.spec))
    pairs = (("mounts", further), ("does not mount", missing))
    differences = [f"{verb} the claim {', '.join(claims)}" for verb, claims in pairs if claims]
    if not differences:
        return None
    beginning = f"the replacement that its StatefulSet {stateful_set.metadata.name} makes"
    return Refusal(RefusalReason.TEMPLATE_DIFFERS, f"{beginning} {' and '.join(differences)}")


def _claims_of(spec: PodSpec) -> set[str]:
    sources = (volume.persistent_volume_claim for volume in spec.volumes)
    return {source.claim_name for source in sources if source is not None}


def revision_of(pod: Pod) -> str:
    """Return the revision from which a StatefulSet made a pod, "" if the pod does not have it."""
    return pod.metadata.labels.get(REVISION_LABEL, "")


def _start(stateful_set: Workload) -> int:
    # Ordinals begin elsewhere than at 0 where a StatefulSet is moved between clusters in slices (KEP-3335).
    return (stateful_set.spec.ordinals.start or 0) if stateful_set.spec.ordinals else 0


def _why_unready(pod: Pod, min_ready_seconds: int, now: datetime | None) -> str:
    """Return why a pod holds up those after it, "" if it does not."""
    if pod.is_terminating:
        return "is being deleted"
    if pod.status.phase != "Running":
        return f"is {pod.status.phase or 'not Running'}"
    if not pod.is_ready:
        return "is not Ready"
    # KEP-2599; the StatefulSet waits for as long before it makes the next pod.
    if now is None or not min_ready_seconds or _has_been_ready(pod, timedelta(seconds=min_ready_seconds), now):
        return ""
    return f"has not been Ready for {min_ready_seconds} s"


def _has_been_ready(pod: Pod, duration: timedelta, now: datetime) -> bool:
    """Return whether a pod has been Ready for long enough; where that is not known, it has not."""
    ready = next((condition for condition in pod.status.conditions if condition.type == "Ready"), None)
    since = ready.last_transition_time if ready is not None else None
    try:
        return since is not None and now - parse_timestamp(since) >= duration
    except InputError:
        return False
