"""Pod groups of Volcano and Kubernetes.

The pods of a group run together or not at all. Volcano has its Job and its PodGroup. Kubernetes has the PodGroup of
`spec.schedulingGroup` (from 1.36 on, where it is enabled) and before that the pod groups within the Workload of
`spec.workloadRef` (1.35; KEP-4671).
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from berth_core.labels import RESERVEABLE_ANNOTATION
from berth_core.objects.metadata import ApiStruct, ObjectMeta, RawQuantity, api_group
from berth_core.objects.pods import Pod, PodTemplate

VOLCANO_JOB_API_VERSION: Final = "batch.volcano.sh/v1alpha1"
VOLCANO_JOB_KIND: Final = "Job"
VOLCANO_POD_GROUP_API_VERSION: Final = "scheduling.volcano.sh/v1beta1"
VOLCANO_SCHEDULER: Final = "volcano"
POD_GROUP_API_VERSIONS: Final = (
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
)
"""Newest first."""
POD_GROUP_KIND: Final = "PodGroup"
POD_GROUP_WORKLOAD_API_VERSION: Final = "scheduling.k8s.io/v1alpha1"
POD_GROUP_WORKLOAD_KIND: Final = "Workload"

GROUP_NAME_ANNOTATION: Final = "scheduling.k8s.io/group-name"
"""On a pod: the name of its Volcano PodGroup, as Volcano's controllers write it."""
_GROUP_NAME_ANNOTATIONS: Final = ("scheduling.volcano.sh/group-name", GROUP_NAME_ANNOTATION)
"""The annotations that Volcano reads; the first wins."""

VOLCANO_TASK_ANNOTATION: Final = "volcano.sh/task-spec"
"""On a pod of a Volcano Job: the name of its task."""

_DISRUPTED_AS_A_WHOLE: Final = "PodGroup"


class LifecyclePolicy(ApiStruct, frozen=True, kw_only=True):
    """Reaction of a Volcano Job to events of its pods; `event` counts in addition to `events`."""

    event: str = ""
    events: tuple[str, ...] = ()
    action: str = ""
    exit_code: int | None = None


class VolcanoTask(ApiStruct, frozen=True, kw_only=True):
    """Equal pods of a Volcano Job."""

    name: str = ""
    replicas: int = 0
    min_available: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()
    template: PodTemplate | None = None


class VolcanoJobSpec(ApiStruct, frozen=True, kw_only=True):
    """Minimum of pods, tasks and lifecycle policies of a Volcano Job."""

    min_available: int | None = None
    policies: tuple[LifecyclePolicy, ...] = ()
    tasks: tuple[VolcanoTask, ...] = ()
    queue: str = ""


class VolcanoJobState(ApiStruct, frozen=True, kw_only=True):
    """Phase of a Volcano Job, such as Running or Aborting."""

    phase: str = ""


class VolcanoJobStatus(ApiStruct, frozen=True, kw_only=True):
    """How a Volcano Job stands."""

    state: VolcanoJobState = VolcanoJobState()


class VolcanoJob(ApiStruct, frozen=True, kw_only=True):
    """A Job of Volcano, which recreates its pods."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolcanoJobSpec = VolcanoJobSpec()
    status: VolcanoJobStatus = VolcanoJobStatus()


class GangPolicy(ApiStruct, frozen=True, kw_only=True):
    """How many pods of a group must be scheduled together."""

    min_count: int = 0


class SchedulingPolicy(ApiStruct, frozen=True, kw_only=True):
    """How a group's pods are scheduled: each by itself without a gang policy."""

    gang: GangPolicy | None = None


class PodGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """How many pods a group needs: Volcano's fields, then those of Kubernetes."""

    min_member: int | None = None
    min_task_member: Mapping[str, int] = {}
    scheduling_policy: SchedulingPolicy | None = None
    disruption_mode: str | dict[str, Any] | None = None
    queue: str = ""
    min_resources: Mapping[str, RawQuantity] = {}
    """What the pods of a Volcano PodGroup request together at least."""


class PodGroupStatus(ApiStruct, frozen=True, kw_only=True):
    """Phase of a Volcano PodGroup: Pending until the action `enqueue` admits it, then Inqueue or Running."""

    phase: str = ""


class PodGroup(ApiStruct, frozen=True, kw_only=True):
    """A PodGroup of Volcano or of Kubernetes, by its `api_version`."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()

    @property
    def api_group(self) -> str:
        return api_group(self.api_version)

    @property
    def is_kept_out(self) -> bool:
        """Return whether Volcano has not admitted the group yet: until then its controllers make no pods of a Job."""
        # The reason is in docs/design/delay-pod-creation.md of Volcano: pods of a job for which there is no room would
        # only load the API server and the schedulers. So a starving job may have no pods at all.
        return self.api_group == api_group(VOLCANO_POD_GROUP_API_VERSION) and self.status.phase == "Pending"

    @property
    def minimum(self) -> int:
        """Return how many pods the group needs, 0 for any number."""
        policy = self.spec.scheduling_policy
        of_gang = policy.gang.min_count if policy is not None and policy.gang is not None else 0
        return max(self.spec.min_member or 0, of_gang)

    @property
    def is_disrupted_as_a_whole(self) -> bool:
        """Return whether its pods are disrupted all together or not at all."""
        mode = self.spec.disruption_mode
        # A text in `v1alpha2` (Kubernetes 1.36), an object with the member `single` or `all` in the versions of 1.37.
        return "all" in mode if isinstance(mode, dict) else mode == _DISRUPTED_AS_A_WHOLE


class WorkloadPodGroup(ApiStruct, frozen=True, kw_only=True):
    """A pod group within a Workload; each of its replicas is a group of its own."""

    name: str = ""
    policy: SchedulingPolicy = SchedulingPolicy()


class PodGroupWorkloadSpec(ApiStruct, frozen=True, kw_only=True):
    """The pod groups of a Workload."""

    pod_groups: tuple[WorkloadPodGroup, ...] = ()


class PodGroupWorkload(ApiStruct, frozen=True, kw_only=True):
    """A Workload of `scheduling.k8s.io/v1alpha1`."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodGroupWorkloadSpec = PodGroupWorkloadSpec()


def volcano_group_of(pod: Pod) -> str:
    """Return the name of a pod's Volcano PodGroup, "" without one."""
    annotations = pod.metadata.annotations
    names = (annotations[key] for key in _GROUP_NAME_ANNOTATIONS if annotations.get(key))
    return next(names, "") if annotations else ""


def group_key(pod: Pod) -> tuple[str, str]:
    """Return namespace and name of a pod's Volcano PodGroup; the name is "" without one."""
    return pod.metadata.namespace, volcano_group_of(pod)


def takes_word_of_group(pod: Pod) -> bool:
    """Return whether a pod's Volcano PodGroup decides if the pod may take a slot of a window.

    The pod's own annotation, whatever its value, comes first.
    """
    return RESERVEABLE_ANNOTATION not in pod.metadata.annotations and bool(volcano_group_of(pod))


def as_reserveable(pod: Pod) -> Pod:
    """Return a pod with the annotation that lets it take a slot of a window."""
    annotations = {**pod.metadata.annotations, RESERVEABLE_ANNOTATION: "true"}
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))
