"""Kubernetes events on jobs for which nothing is reserved."""

from typing import Final

from berth_core import POD_GROUP_KIND, VOLCANO_POD_GROUP_API_VERSION, Clock, ObjectReference, Snapshot
from berth_descheduler.event_reasons import COMPONENT, PodEventReason
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import Plan
from berth_kube import KubeClient, record_event

_MOST_REFUSED: Final = 20
_PATIENCE_SECONDS: Final = 5.0
"""How long the cycle waits for one event to be written."""


def announce_starving(client: KubeClient, clock: Clock, plan: Plan, snapshot: Snapshot) -> None:
    """Record why nothing is reserved for a starving job: on a waiting pod, or on its PodGroup if it has no pods."""
    if not plan.job_outcomes or not plan.refused:
        return
    uids = {(pod.metadata.namespace, pod.metadata.name): pod.metadata.uid for pod in snapshot.pods}
    groups = {
        (group.metadata.namespace, group.metadata.name): ObjectReference.of(
            VOLCANO_POD_GROUP_API_VERSION, POD_GROUP_KIND, group.metadata
        )
        for group in snapshot.pod_groups
        if group.is_kept_out
    }
    # Of more refusals than events may be written, those that time alone does not mend are worth a reader's look.
    lasting_first = sorted(plan.refused, key=lambda refused: not refused.reason.outlasts_waiting)
    for refused_job in lasting_first[:_MOST_REFUSED]:
        key = refused_job.namespace, refused_job.name
        pod = ObjectReference(api_version="v1", kind="Pod", namespace=key[0], name=key[1], uid=uids.get(key, ""))
        is_group = refused_job.reason is RefusalReason.NOT_ENQUEUED and key in groups
        regarding = groups[key] if is_group else pod
        text, is_bad = f"{refused_job.reason.value}: {refused_job.message}", refused_job.reason.outlasts_waiting
        record_event(
            # An event is news and not a record: a slow API server must not hold up the moves of the cycle for it.
            client.within(_PATIENCE_SECONDS),
            regarding=regarding,
            reason=PodEventReason.NOTHING_RESERVED.value,
            message=text,
            type="Warning" if is_bad else "Normal",
            reporting_component=COMPONENT,
            clock=clock,
        )
