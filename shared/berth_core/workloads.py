"""Owns the parts that Berth looks at of the API's objects that make pods: ReplicaSets, StatefulSets, Jobs and others.

It does not own what may be done to their pods: that is the descheduler's plugins'.
"""

from berth_core.objects import ApiStruct, LabelSelector, ObjectMeta, PodCondition


class PodFailurePolicyRule(ApiStruct, frozen=True, kw_only=True):
    """What a Job does about pods that failed in some way; a rule without conditions is about exit codes."""

    action: str = ""
    on_pod_conditions: tuple[PodCondition, ...] = ()


class PodFailurePolicy(ApiStruct, frozen=True, kw_only=True):
    """What a Job does about failed pods: the first rule that applies decides."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """The fields that the kinds of workloads share, and those of a Job."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """How many pods of a workload there are."""

    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    active: int | None = None
    failed: int | None = None


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A ReplicaSet, StatefulSet, Job, Deployment or DaemonSet; lists of one kind leave `kind` empty."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()
