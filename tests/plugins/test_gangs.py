"""Which pods of gangs stay, and how many of a gang may be away at once."""

# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core import Pod
from berth_core.objects.pods import SchedulingGroup, WorkloadReference
from berth_core.pod_groups import LifecyclePolicy
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner.gangs import Gangs
from builders import (
    NOON_TEXT,
    pod,
    pod_group,
    pod_group_workload,
    volcano_job,
    volcano_owner,
    volcano_pod,
    volcano_pod_group,
    volcano_task,
)

GROUP = "scheduling.k8s.io/group-name"
MASTER_AND_WORKERS = (volcano_task("master"), volcano_task("worker", replicas=3))


@dataclass(frozen=True)
class Case:
    """`pods` are all there are, the first one is asked about; `want` are the reasons and a part of the first text."""

    pods: tuple[Pod, ...]
    objects: dict[str, Any] = field(default_factory=dict)
    want: tuple[Reason, ...] = ()
    want_text: str = ""


def workers(count: int, **rest: Any) -> tuple[Pod, ...]:
    return tuple(volcano_pod(f"train-worker-{index}", **rest) for index in range(count))


def on(event: str, action: str, *events: str, **rest: Any) -> LifecyclePolicy:
    return LifecyclePolicy(event=event, events=events, action=action, **rest)


def answering(*policies: LifecyclePolicy, of_task: tuple[LifecyclePolicy, ...] = ()) -> dict[str, Any]:
    return {"volcano_jobs": (volcano_job(volcano_task(replicas=3, policies=of_task), policies=policies),)}


def restarting(text: str, *policies: LifecyclePolicy, of_task: tuple[LifecyclePolicy, ...] = ()) -> Case:
    return Case(workers(3), answering(*policies, of_task=of_task), (Reason.GANG_WOULD_RESTART,), text)


def harmless(*policies: LifecyclePolicy, of_task: tuple[LifecyclePolicy, ...] = ()) -> Case:
    return Case(workers(3), answering(*policies, of_task=of_task))


def needing(min_available: int | None, *tasks: Any) -> dict[str, Any]:
    return {"volcano_jobs": (volcano_job(*(tasks or (volcano_task(replicas=3),)), min_available=min_available),)}


def grouped(count: int, **rest: Any) -> tuple[Pod, ...]:
    return tuple(pod(f"web-{index}", node="node-a", annotations={GROUP: "group"}, **rest) for index in range(count))


def scheduled_with(count: int) -> tuple[Pod, ...]:
    group = SchedulingGroup(pod_group_name="group")
    return tuple(pod(f"web-{index}", node="node-a", scheduling_group=group) for index in range(count))


def of_workload(name: str, *, group: str = "worker", replica: str = "") -> Pod:
    ref = WorkloadReference(name="train", pod_group=group, pod_group_replica_key=replica)
    return pod(name, node="node-a", workload_ref=ref)


def broken(objects: dict[str, Any], pods: tuple[Pod, ...], text: str = "") -> Case:
    return Case(pods, objects, (Reason.GANG_WOULD_BREAK,), text)


TABLE = {
    "a pod of no gang": Case((pod(node="node-a"),)),
    # What a Volcano Job does about a pod that it loses.
    "a Job that restarts when a pod is evicted": restarting(
        "its Volcano Job train answers PodEvicted with RestartJob, which takes away more than this pod",
        on("PodEvicted", "RestartJob"),
    ),
    "a Job that restarts when a pod fails": restarting(
        "answers PodFailed with RestartJob", on("PodFailed", "RestartJob")
    ),
    "a Job that restarts whatever happens": restarting("with RestartJob", on("*", "RestartJob")),
    "a Job that aborts, in a list of events": restarting(
        "with AbortJob", on("", "AbortJob", "PodPending", "PodEvicted")
    ),
    "a Job that is terminated": restarting("with TerminateJob", on("PodEvicted", "TerminateJob")),
    "a Job that is complete then": restarting("with CompleteJob", on("PodEvicted", "CompleteJob")),
    "a task that restarts": restarting("with RestartTask", of_task=(on("PodEvicted", "RestartTask"),)),
    "a partition that restarts": restarting("with RestartPartition", of_task=(on("*", "RestartPartition"),)),
    "an action that is not known": restarting("with Dance", on("PodEvicted", "Dance")),
    "an exit code that may be the pod's": restarting(
        "answers the exit code 137 with RestartJob", on("", "RestartJob", exit_code=137)
    ),
    "a task that does nothing more has the first word": harmless(
        on("PodEvicted", "RestartJob"), on("PodFailed", "RestartJob"), of_task=(on("*", "SyncJob"),)
    ),
    "the first policy that answers counts": harmless(on("*", "SyncJob"), on("PodEvicted", "RestartJob")),
    "of one event it says nothing of the other": restarting(
        "answers PodFailed", on("PodEvicted", "SyncJob"), on("PodFailed", "RestartJob")
    ),
    "a Job that only looks": harmless(on("PodEvicted", "SyncJob"), on("PodFailed", "SyncJob")),
    "a Job that restarts the pod, at the cost of a retry": restarting(
        "answers PodEvicted with RestartPod", on("PodEvicted", "RestartPod")
    ),
    "a Job that answers other events": harmless(on("TaskCompleted", "CompleteJob"), on("OutOfSync", "RestartJob")),
    "a Job without policies": harmless(),
    # What is not known.
    "a Job that is not in the snapshot": Case(
        workers(2), {}, (Reason.GANG_UNKNOWN,), "its Volcano Job train is not in"
    ),
    "a Job that was made anew": Case(
        workers(2, controller=volcano_owner(uid="uid-old")),
        needing(1),
        (Reason.GANG_UNKNOWN,),
        "is not in the snapshot",
    ),
    "a task that the Job does not have": Case(
        workers(2, task="ghost"), needing(1), (Reason.GANG_UNKNOWN,), "has no task ghost"
    ),
    "a PodGroup that is not in the snapshot": Case(
        grouped(2), {}, (Reason.GANG_UNKNOWN,), "its Volcano PodGroup group"
    ),
    "a PodGroup of Kubernetes is none of Volcano": Case(
        grouped(2), {"pod_groups": (pod_group(),)}, (Reason.GANG_UNKNOWN,)
    ),
    "a scheduling group that is not in the snapshot": Case(
        scheduled_with(2), {"pod_groups": (volcano_pod_group(),)}, (Reason.GANG_UNKNOWN,), "its PodGroup group is not"
    ),
    "a Workload that is not in the snapshot": Case(
        (of_workload("a-0"),), {}, (Reason.GANG_UNKNOWN,), "its Workload train (pod group worker) is not"
    ),
    "a pod group that the Workload does not have": Case(
        (of_workload("a-0", group="ghost"),),
        {"pod_group_workloads": (pod_group_workload(worker=1),)},
        (Reason.GANG_UNKNOWN,),
    ),
    "a Job that is being deleted": Case(
        workers(2),
        {"volcano_jobs": (volcano_job(deleted=NOON_TEXT),)},
        (Reason.CONTROLLER_SCALING_DOWN,),
        "is being deleted",
    ),
    # How many pods a gang needs.
    "a Job that needs all its pods": broken(
        needing(3), workers(3), "its Volcano Job train needs 3 running pods and has 3"
    ),
    "a Job that can spare one": Case(workers(3), needing(2)),
    "a Job that does not say how many it needs needs all": broken(needing(None), workers(3)),
    "pods that are going away do not count": broken(needing(2), (*workers(2), volcano_pod("c", deleted=NOON_TEXT))),
    "pods that have ended do not count": broken(needing(2), (*workers(2), volcano_pod("c", phase="Succeeded"))),
    "pods that wait do not count": broken(needing(2), (*workers(2), volcano_pod("c", node=""))),
    "pods of another namespace do not count": broken(needing(2), (*workers(2), volcano_pod("c", namespace="other"))),
    "the only pod of a gang takes nothing else with it": Case(workers(1), needing(1, volcano_task())),
    "the only pod that runs holds up those that wait": broken(needing(1), (*workers(1), volcano_pod("c", node=""))),
    "a task needs its only pod": broken(
        needing(4, *MASTER_AND_WORKERS),
        (volcano_pod("train-master-0", task="master"), *workers(4)),
        "the task master of its Volcano Job train needs 1 running pods and has 1",
    ),
    "minima of tasks do not count below their sum": Case(
        (volcano_pod("train-master-0", task="master"), *workers(3)), needing(3, *MASTER_AND_WORKERS)
    ),
    "a PodGroup that needs all its pods": broken(
        {"pod_groups": (volcano_pod_group(min_member=2),)},
        grouped(2),
        "its Volcano PodGroup group needs 2 running pods",
    ),
    "a PodGroup that can spare one": Case(grouped(3), {"pod_groups": (volcano_pod_group(min_member=2),)}),
    "a PodGroup of a plain pod": Case(grouped(1), {"pod_groups": (volcano_pod_group(),)}),
    "a scheduling group that needs all its pods": broken(
        {"pod_groups": (pod_group(min_count=2),)},
        scheduled_with(2),
        "its PodGroup group needs 2 running pods and has 2",
    ),
    "a scheduling group that can spare one": Case(scheduled_with(3), {"pod_groups": (pod_group(min_count=2),)}),
    "a scheduling group that is none of a gang": Case(scheduled_with(2), {"pod_groups": (pod_group(),)}),
    "a group that is disrupted as a whole": broken(
        {"pod_groups": (pod_group(disruption_mode="PodGroup"),)}, scheduled_with(2), "go together or not at all"
    ),
    "a group that is disrupted as a whole, as later versions say it": broken(
        {"pod_groups": (pod_group(disruption_mode={"all": {}}, version="v1beta1"),)}, scheduled_with(2)
    ),
    "a group of which each pod is disrupted by itself": Case(
        scheduled_with(2), {"pod_groups": (pod_group(disruption_mode={"single": {}}, version="v1beta1"),)}
    ),
    "a Workload whose pod group needs all its pods": broken(
        {"pod_group_workloads": (pod_group_workload(worker=2),)}, (of_workload("a-0"), of_workload("a-1"))
    ),
    "each replica of a pod group is a group": Case(
        tuple(of_workload(f"a-{index}", replica=str(index)) for index in range(2)),
        {"pod_group_workloads": (pod_group_workload(worker=2),)},
    ),
    "a pod of a Job and of its PodGroup is told once": broken(
        {**needing(3), "pod_groups": (volcano_pod_group(min_member=3),)}, workers(3, annotations={GROUP: "group"})
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_pod_stays_whose_eviction_takes_more_than_the_pod_away(case: Case) -> None:
    found = Gangs(Snapshot(pods=case.pods, **case.objects)).refusals(case.pods[0])

    assert tuple(refusal.reason for refusal in found) == case.want
    assert case.want_text in (found[0].message if found else "")


def test_a_gang_spares_as_many_as_run_beyond_what_it_needs() -> None:
    pods = (volcano_pod("train-master-0", task="master"), *workers(5, annotations={GROUP: "group"}))
    job = volcano_job(volcano_task("master"), volcano_task("worker", replicas=5, min_available=4), min_available=5)
    gangs = Gangs(Snapshot(pods=pods, volcano_jobs=(job,), pod_groups=(volcano_pod_group(min_member=2),)))

    assert gangs.spare(pods[1]) == {
        "default/Volcano Job train": 1,
        "default/Volcano Job train worker": 1,
        "default/Volcano PodGroup group": 3,
    }
    assert gangs.spare(pod(node="node-a")) == {}
