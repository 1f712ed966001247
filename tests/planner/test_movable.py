"""Which pods may be moved at all."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import OwnerReference, Pod, PodCondition, Volume
from berth_core.decoding import convert
from berth_core.objects.disruption_budgets import PodDisruptionBudgetStatus
from berth_core.objects.pods import PersistentVolumeClaimSource
from berth_core.snapshot import Snapshot
from berth_core.workloads import PodFailurePolicy, PodFailurePolicyRule, Workload, WorkloadSpec, WorkloadStatus
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.planner.settings import EvictableNamespaces
from builders import bare_pod, disruption_budget, owner, pod, volcano_job, volcano_pod, workload

WEB = {"app": "web"}
LATER = "2026-11-21T12:00:00Z"
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
BERTH = "berth.volcano.sh"


@dataclass(frozen=True)
class Case:
    """A pod, what else there is, and why it stays (None: it may be moved)."""

    want: Reason | None
    pod: Pod
    more: Mapping[str, Any] = field(default_factory=dict)
    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)


def running(**rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return pod(**{"node": "node-a", "labels": WEB, **rest})


def mounted(**source: Any) -> Pod:  # noqa: ANN401 - the same
    return running(volumes=(Volume(name="data", **source),))


def of(api_version: str, kind: str) -> OwnerReference:
    return OwnerReference(api_version=api_version, kind=kind, name="maker", uid="uid-maker", controller=True)


def mirror() -> Pod:
    return running(annotations={"kubernetes.io/config.mirror": "1"}, controller=owner("Node", "node-a"))


def stale_budget() -> Any:  # noqa: ANN401 - the same
    made = disruption_budget(match_labels=WEB, allowed=1)
    meta = msgspec.structs.replace(made.metadata, generation=3)
    return msgspec.structs.replace(
        made, metadata=meta, status=PodDisruptionBudgetStatus(disruptions_allowed=1, observed_generation=2)
    )


def disrupted(action: str, status: str = "True") -> PodFailurePolicyRule:
    return PodFailurePolicyRule(
        action=action, on_pod_conditions=(PodCondition(type="DisruptionTarget", status=status),)
    )


def exited(action: str) -> PodFailurePolicyRule:
    return PodFailurePolicyRule(action=action)


def policy(*rules: PodFailurePolicyRule) -> PodFailurePolicy:
    return PodFailurePolicy(rules=rules)


def job(failed: int | None = None, **spec: Any) -> Workload:  # noqa: ANN401 - a builder passes on what the case says
    made = msgspec.structs.replace(workload("Job", replicas=None), status=WorkloadStatus(failed=failed))
    return msgspec.structs.replace(made, spec=WorkloadSpec(**spec))


def of_job(want: Reason | None, failed: int | None = None, **spec: Any) -> Case:  # noqa: ANN401 - the same
    return Case(want, running(controller=owner("Job")), {"workloads": (job(failed, **spec),)})


TABLE = {
    "a pod of a ReplicaSet may": Case(None, running()),
    "a pod of a StatefulSet may": Case(None, running(controller=owner("StatefulSet"))),
    "a pod of a ReplicationController may": Case(None, running(controller=of("v1", "ReplicationController"))),
    "a pod of a Job that is not known may not": Case(Reason.JOB_COULD_FAIL, running(controller=owner("Job"))),
    "a pod of a Job that outlives its evictions may": of_job(None, backoff_limit=2),
    "a pod of a Job that one eviction would fail may not": of_job(Reason.JOB_COULD_FAIL, backoff_limit=0),
    "a pod that may move twice counts twice": of_job(Reason.JOB_COULD_FAIL, backoff_limit=1),
    "failures so far count": of_job(Reason.JOB_COULD_FAIL, failed=5, backoff_limit=6),
    "a Job with more failures than allowed outlives none": of_job(Reason.JOB_COULD_FAIL, failed=9, backoff_limit=6),
    "failures so far leave enough": of_job(None, failed=4, backoff_limit=6),
    "a Job that does not say how many failures it outlives": of_job(Reason.JOB_COULD_FAIL),
    "a Job that counts failures per index": of_job(Reason.JOB_COULD_FAIL, backoff_limit=99, backoff_limit_per_index=1),
    "a Job that ignores disruptions": of_job(None, backoff_limit=0, pod_failure_policy=policy(disrupted("Ignore"))),
    "a Job that ignores disruptions per index": of_job(
        None, backoff_limit_per_index=0, pod_failure_policy=policy(disrupted("Ignore"))
    ),
    "a Job that ignores other things first": of_job(
        None, backoff_limit=0, pod_failure_policy=policy(exited("Ignore"), disrupted("Ignore"))
    ),
    "a Job that looks at exit codes first": of_job(
        Reason.JOB_COULD_FAIL, backoff_limit=9, pod_failure_policy=policy(exited("FailJob"), disrupted("Ignore"))
    ),
    "a Job that counts disruptions": of_job(
        Reason.JOB_COULD_FAIL, backoff_limit=9, pod_failure_policy=policy(disrupted("Count"))
    ),
    "a Job that disruptions fail": of_job(
        Reason.JOB_COULD_FAIL, backoff_limit=9, pod_failure_policy=policy(disrupted("FailJob"), disrupted("Ignore"))
    ),
    "a Job that ignores pods that were not disrupted": of_job(
        Reason.JOB_COULD_FAIL, backoff_limit=9, pod_failure_policy=policy(disrupted("Ignore", status="False"))
    ),
    "a policy without rules is none": of_job(None, backoff_limit=6, pod_failure_policy=policy()),
    "a Job that is suspended": of_job(Reason.CONTROLLER_SCALING_DOWN, backoff_limit=6, suspend=True),
    "a pod of a Volcano Job that is not known may not": Case(Reason.GANG_UNKNOWN, volcano_pod()),
    "a pod of a Volcano Job may": Case(None, volcano_pod(), {"volcano_jobs": (volcano_job(),)}),
    "a pod that the cluster autoscaler has to leave may not": Case(
        Reason.NOT_SAFE_TO_EVICT, running(annotations={SAFE_TO_EVICT: "false"})
    ),
    "a pod that is safe to evict may": Case(None, running(annotations={SAFE_TO_EVICT: "true"})),
    "a pod that Karpenter has to leave may not": Case(
        Reason.DO_NOT_DISRUPT, running(annotations={DO_NOT_DISRUPT: "true"})
    ),
    "a pod that Karpenter may disrupt may": Case(None, running(annotations={DO_NOT_DISRUPT: "false"})),
    "a pod that ends within the longest grace period may": Case(None, running(termination_grace_period_seconds=600)),
    "a pod that takes longer may not": Case(
        Reason.GRACE_TOO_LONG, running(termination_grace_period_seconds=601, controller=owner("StatefulSet"))
    ),
    "a pod that takes ten years may not": Case(
        Reason.GRACE_TOO_LONG, running(termination_grace_period_seconds=315_360_000)
    ),
    "a pod of a DaemonSet may not": Case(Reason.DAEMON_POD, running(controller=owner("DaemonSet"))),
    "a mirror pod may not": Case(Reason.MIRROR_POD, mirror()),
    "a bare pod may not": Case(Reason.NO_CONTROLLER, bare_pod(node="node-a")),
    "a pod of a controller of another kind may not": Case(
        Reason.UNKNOWN_CONTROLLER, running(controller=of("example.com/v1", "Robot"))
    ),
    "a ReplicaSet of another group is another kind": Case(
        Reason.UNKNOWN_CONTROLLER, running(controller=of("example.com/v1", "ReplicaSet"))
    ),
    "a pod whose ReplicaSet is there may": Case(None, running(), {"workloads": (workload(),)}),
    "a pod whose ReplicaSet alone is missing may not": Case(
        Reason.UNKNOWN_CONTROLLER, running(), {"workloads": (workload(name="other"),)}
    ),
    "a pod whose ReplicaSet was made anew may not": Case(
        Reason.UNKNOWN_CONTROLLER, running(controller=owner(uid="uid-old")), {"workloads": (workload(),)}
    ),
    "a pod of a ReplicaSet that shrinks may not": Case(
        Reason.CONTROLLER_SCALING_DOWN, running(), {"workloads": (workload(replicas=0),)}
    ),
    "a pod that is being deleted may not": Case(Reason.TERMINATING, running(deleted=LATER)),
    "a pending pod may not": Case(Reason.NOT_RUNNING, running(phase="Pending")),
    "a pod that has ended may not": Case(Reason.NOT_RUNNING, running(phase="Succeeded")),
    "a gated pod may not": Case(Reason.GATED, pod(gates=("example.com/wait",))),
    "a pod of high priority may": Case(None, running(priority=1_999_999_999)),
    "a pod of system priority may not": Case(Reason.SYSTEM_CRITICAL, running(priority=2_000_000_000)),
    "a pod of a system class may not": Case(
        Reason.SYSTEM_CRITICAL, running(priority=None, priority_class_name="system-node-critical")
    ),
    "a pod with a projected volume may": Case(None, mounted()),
    "a pod with a claim may": Case(None, mounted(persistent_volume_claim=PersistentVolumeClaimSource(claim_name="a"))),
    "a pod with an emptyDir may, where a policy says so": Case(None, mounted(empty_dir={})),
    "a pod with an ephemeral claim may not": Case(Reason.LOCAL_STORAGE, mounted(ephemeral={})),
    "a pod with an inline disk may not": Case(Reason.UNKNOWN_VOLUME, mounted(iscsi={"iqn": "x"})),
    **{
        f"a pod with {kind} may not": Case(Reason.UNKNOWN_VOLUME, mounted(**{kind: {}}))
        for kind in (
            *("csi", "gce_persistent_disk", "aws_elastic_block_store", "azure_disk", "rbd", "fc", "cinder"),
            *("vsphere_volume", "photon_persistent_disk", "portworx_volume", "scale_io", "storageos", "flex_volume"),
            "flocker",
        )
    },
    "a pod with a resource claim may not": Case(Reason.RESOURCE_CLAIM, running(resource_claims=({"name": "gpu"},))),
    "a placeholder may not": Case(Reason.PLACEHOLDER, running(labels={f"{BERTH}/placeholder": "true"})),
    "a pod in its hand-over may not": Case(Reason.HANDING_OVER, running(labels={f"{BERTH}/reservation": "uid"})),
    "Berth's own pods may not": Case(Reason.NAMESPACE_NOT_EVICTABLE, running(namespace="berth-system")),
    "a pod of an excluded namespace may not": Case(
        Reason.NAMESPACE_NOT_EVICTABLE, running(), namespaces=EvictableNamespaces(exclude=frozenset({"default"}))
    ),
    "a pod of another namespace may": Case(
        None, running(), namespaces=EvictableNamespaces(exclude=frozenset({"shop"}))
    ),
    "a pod of an included namespace may": Case(
        None, running(), namespaces=EvictableNamespaces(include=frozenset({"default"}))
    ),
    "a pod of none of the included may not": Case(
        Reason.NAMESPACE_NOT_EVICTABLE, running(), namespaces=EvictableNamespaces(include=frozenset({"shop"}))
    ),
    "a pod whose budget allows a disruption may": Case(
        None, running(), {"disruption_budgets": (disruption_budget(match_labels=WEB, allowed=1),)}
    ),
    "a pod whose budget allows none may not": Case(
        Reason.BUDGET_EXHAUSTED, running(), {"disruption_budgets": (disruption_budget(match_labels=WEB, allowed=0),)}
    ),
    "a budget whose status is old allows none": Case(
        Reason.BUDGET_EXHAUSTED, running(), {"disruption_budgets": (stale_budget(),)}
    ),
    "a budget of everybody is one": Case(
        Reason.BUDGET_EXHAUSTED, running(), {"disruption_budgets": (disruption_budget(allowed=0),)}
    ),
    "a budget of others is none": Case(
        None, running(), {"disruption_budgets": (disruption_budget(match_labels={"app": "db"}, allowed=0),)}
    ),
    "a budget of another namespace is none": Case(
        None,
        running(),
        {"disruption_budgets": (disruption_budget(match_labels=WEB, namespace="shop", allowed=0),)},
    ),
    "a pod under two budgets may not": Case(
        Reason.SEVERAL_BUDGETS,
        running(),
        {"disruption_budgets": tuple(disruption_budget(name, match_labels=WEB, allowed=5) for name in ("a", "b"))},
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_what_is_not_sure_to_come_back_unharmed_is_not_moved(case: Case) -> None:
    snapshot = Snapshot(pods=(case.pod,), **case.more)

    found = Evictability(snapshot, case.namespaces).refusals(case.pod)

    assert [refusal.reason for refusal in found] == ([] if case.want is None else [case.want])
    assert all(refusal.message for refusal in found)


def test_every_reason_is_named_and_not_the_first_alone() -> None:
    stuck = bare_pod(
        node="node-a",
        namespace="shop",
        deleted=LATER,
        phase="Pending",
        ready=True,
        priority=2_000_000_000,
        labels={f"{BERTH}/placeholder": "true"},
        volumes=(Volume(name="disk", iscsi={"iqn": "x"}), Volume(name="claim", ephemeral={})),
    )
    snapshot = Snapshot(
        pods=(stuck,),
        disruption_budgets=(
            disruption_budget("all", namespace="shop", match_labels={f"{BERTH}/placeholder": "true"}, allowed=0),
        ),
    )

    found = Evictability(snapshot, EvictableNamespaces(exclude=frozenset({"shop"}))).refusals(stuck)

    assert [refusal.reason for refusal in found] == [
        Reason.TERMINATING,
        Reason.NOT_RUNNING,
        Reason.PLACEHOLDER,
        Reason.NAMESPACE_NOT_EVICTABLE,
        Reason.SYSTEM_CRITICAL,
        Reason.NO_CONTROLLER,
        Reason.UNKNOWN_VOLUME,
        Reason.LOCAL_STORAGE,
        Reason.BUDGET_EXHAUSTED,
    ]


def test_only_as_many_pods_are_said_to_be_too_many_as_the_replica_set_has() -> None:
    pods = tuple(running(name=f"web-{i}") for i in range(3))

    enough = Evictability(Snapshot(pods=pods, workloads=(workload(replicas=3),)))
    shrinking = Evictability(Snapshot(pods=pods, workloads=(workload(replicas=2),)))

    assert not enough.refusals(pods[0])
    (refusal,) = shrinking.refusals(pods[0])
    assert refusal.message == "its ReplicaSet web wants 2 pods and has 3, so it would not make the pod again"


def test_every_pod_of_a_job_counts_as_one_that_may_be_evicted() -> None:
    pods = tuple(running(name=f"work-{i}", controller=owner("Job")) for i in range(3))

    enough = Evictability(Snapshot(pods=pods, workloads=(job(backoff_limit=6),)))
    too_few = Evictability(Snapshot(pods=pods, workloads=(job(failed=1, backoff_limit=6),)))

    assert not enough.refusals(pods[0])
    (refusal,) = too_few.refusals(pods[0])
    assert refusal.message == "its Job web outlives 5 more failures, an eviction is one, and it has 3 pods"


def test_what_a_job_does_about_failures_is_read_from_the_api() -> None:
    rules = [
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    items = [
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-job-web"},
            "spec": {"backoffLimit": 6, "podFailurePolicy": {"rules": rules}},
            "status": {"failed": 2},
        }
    ]

    (found,) = Snapshot.from_api(items).workloads

    assert found == msgspec.structs.replace(
        job(failed=2, backoff_limit=6, pod_failure_policy=policy(exited("Ignore"), disrupted("Ignore"))),
        metadata=found.metadata,
    )


@pytest.mark.parametrize(
    ("source", "stays"),
    [
        *((name, True) for name in ("cinder", "vsphereVolume", "fc", "flexVolume", "portworxVolume", "scaleIO")),
        *((name, True) for name in ("storageos", "photonPersistentDisk", "iscsi", "rbd", "azureDisk", "csi")),
        *((name, True) for name in ("gcePersistentDisk", "awsElasticBlockStore", "flocker")),
        *((name, False) for name in ("nfs", "glusterfs", "cephfs", "azureFile", "quobyte", "image", "gitRepo")),
        *((name, False) for name in ("configMap", "secret", "downwardAPI", "projected")),
    ],
)
def test_each_source_of_volumes_in_a_pod_is_decided_about(source: str, *, stays: bool) -> None:
    """By the names that the API has."""
    volume = convert({"name": "data", source: {}}, Volume)
    refusals = Evictability(Snapshot()).refusals(running(volumes=(volume,)))
    assert [refusal.reason for refusal in refusals] == ([Reason.UNKNOWN_VOLUME] if stays else [])
