"""The used parts of controllers of pods: ReplicaSets, StatefulSets, Jobs and others."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import ValidationError

from berth_core.decoding import convert
from berth_core.objects.metadata import ApiStruct, LabelSelector, ObjectMeta, OwnerReference, api_group
from berth_core.objects.pods import PodCondition, PodTemplate


class PodFailurePolicyRule(ApiStruct, frozen=True, kw_only=True):
    """Reaction of a Job to failed pods; a rule without conditions is about exit codes."""

    action: str = ""
    on_pod_conditions: tuple[PodCondition, ...] = ()


class PodFailurePolicy(ApiStruct, frozen=True, kw_only=True):
    """Reactions of a Job to failed pods; the first rule that applies decides."""

    rules: tuple[PodFailurePolicyRule, ...] = ()


class SuccessPolicyRule(ApiStruct, frozen=True, kw_only=True):
    """Which indexes of a Job, such as `0,2-4`, or how many of these or of all have to succeed."""

    succeeded_indexes: str | None = None
    succeeded_count: int | None = None


class SuccessPolicy(ApiStruct, frozen=True, kw_only=True):
    """When an Indexed Job has succeeded before all of its indexes have: one rule is enough."""

    rules: tuple[SuccessPolicyRule, ...] = ()


class RollingUpdate(ApiStruct, frozen=True, kw_only=True):
    """How far a rolling update goes, and how fast.

    A StatefulSet's pods below `partition` keep the revision before; `max_unavailable` pods may be gone at once, a
    number or a percentage such as `25%`.
    """

    partition: int | None = None
    max_unavailable: int | str | None = None


class UpdateStrategy(ApiStruct, frozen=True, kw_only=True):
    """How a Deployment or a StatefulSet replaces its pods; the types are RollingUpdate, Recreate and OnDelete."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class Ordinals(ApiStruct, frozen=True, kw_only=True):
    """The ordinal of a StatefulSet's first pod."""

    start: int | None = None


class ClaimTemplate(ApiStruct, frozen=True, kw_only=True):
    """The template of the claim that a StatefulSet makes for each of its pods; its name is the volume's."""

    metadata: ObjectMeta = ObjectMeta()


class LeaderWorkerTemplate(ApiStruct, frozen=True, kw_only=True):
    """How a LeaderWorkerSet restarts a group that has lost a pod."""

    restart_policy: str = ""


class WorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """Fields that the kinds of workloads share, then those of a StatefulSet, a Job and a LeaderWorkerSet."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate | None = None
    min_ready_seconds: int | None = None
    pod_management_policy: str = ""
    update_strategy: UpdateStrategy | None = None
    ordinals: Ordinals | None = None
    volume_claim_templates: tuple[ClaimTemplate, ...] = ()
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool = False
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: PodFailurePolicy | None = None
    completion_mode: str = ""
    success_policy: SuccessPolicy | None = None
    active_deadline_seconds: int | None = None
    managed_by: str = ""
    leader_worker_template: LeaderWorkerTemplate | None = None
    strategy: UpdateStrategy | None = None
    """How a Deployment replaces its pods."""


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """Numbers of a workload's pods, a StatefulSet's revisions and how a Job stands."""

    replicas: int | None = None
    ready_replicas: int | None = None
    available_replicas: int | None = None
    desired_number_scheduled: int | None = None
    current_revision: str = ""
    update_revision: str = ""
    active: int | None = None
    failed: int | None = None
    succeeded: int | None = None
    completed_indexes: str = ""
    """The indexes of an Indexed Job that have succeeded, such as `0,2-4`."""

    start_time: str | None = None
    conditions: tuple[PodCondition, ...] = ()


class ControllerRevision(ApiStruct, frozen=True, kw_only=True):
    """A former state of a StatefulSet, a DaemonSet or another controller, which decides the form of `data`."""

    metadata: ObjectMeta = ObjectMeta()
    revision: int = 0
    data: Mapping[str, Any] = {}

    @property
    def template(self) -> PodTemplate | None:
        """Return the pod template that a StatefulSet keeps as a patch of its spec, None without a readable one."""
        spec = self.data.get("spec")
        template = spec.get("template") if isinstance(spec, dict) else None
        if not isinstance(template, dict):
            return None
        try:
            # A revision is a strategic merge patch of the StatefulSet: `$patch: replace` in it is a directive and no
            # field (`getPatch` in pkg/controller/statefulset/stateful_set_utils.go).
            return convert({key: field for key, field in template.items() if key != "$patch"}, PodTemplate)
        except ValidationError:
            return None


DEPLOYMENT_KIND: Final = ("apps", "Deployment")
REPLICA_SET_KIND: Final = ("apps", "ReplicaSet")
STATEFUL_SET_KIND: Final = ("apps", "StatefulSet")
DAEMON_SET_KIND: Final = ("apps", "DaemonSet")
REPLICATION_CONTROLLER_KIND: Final = ("", "ReplicationController")
JOB_KIND: Final = ("batch", "Job")


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A ReplicaSet, StatefulSet, Job, Deployment, DaemonSet, ReplicationController or LeaderWorkerSet.

    The items of a list of one kind have an empty `kind`.
    """

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()

    @property
    def group_kind(self) -> tuple[str, str]:
        """Return API group and kind; the core group is ""."""
        return api_group(self.api_version), self.kind

    @property
    def keeps_pods_of_current_revision(self) -> bool:
        """Return whether a StatefulSet makes some pods from the revision before its template.

        It does so for ordinals below the partition (`newVersionedStatefulSetPod` in pkg/controller/statefulset).
        """
        strategy, status = self.spec.update_strategy, self.status
        partition = strategy.rolling_update.partition if strategy is not None and strategy.rolling_update else None
        return bool(partition and status.current_revision) and status.current_revision != status.update_revision

    @property
    def controller(self) -> OwnerReference | None:
        """Return the reference to what controls the workload, such as a ReplicaSet's Deployment."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)
