"""Addresses of the API resources in use: group, version, plural, kind and scope."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from berth_core import InputError, PermanentError

_NEVER_IN_A_SEGMENT: Final = frozenset("/\\%?#")
_SEGMENT: Final = "one segment of a path: not empty, not . or .., without / \\ % ? # and control characters"


class UnaddressableError(InputError, PermanentError):
    """A name or namespace is invalid in a URL's path; `field` names it."""


def is_path_segment(text: str) -> bool:
    """Return whether a text names one object anywhere in a path.

    The API server refuses names with `/` or `%` itself, but routes a path before it looks at names.
    """
    return text not in {"", ".", ".."} and text.isprintable() and not _NEVER_IN_A_SEGMENT.intersection(text)


@dataclass(frozen=True, slots=True)
class Resource:
    """One kind of object in the API; `group` is "" for the core group."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def name_for_kubectl(self) -> str:
        """Return the kind as `kubectl get --output name` writes it."""
        return f"{self.kind.lower()}.{self.group}" if self.group else self.kind.lower()

    def path(self, name: str | None = None, *, namespace: str | None = None, subresource: str = "") -> str:
        """Return the path of one object, without a name that of all objects.

        Raises ValueError if a namespace is given for a cluster-scoped resource or missing for one object, and
        `UnaddressableError` for a name or namespace that would lead elsewhere. An empty name is such a name: it would
        address all objects.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, got {namespace!r}")
        if self.namespaced and name is not None and namespace is None:
            raise ValueError(f"{self.plural} {name!r} needs a namespace")
        root = f"/apis/{self.group}" if self.group else "/api"
        within = namespace if self.namespaced else None
        parts = [] if within is None else ["namespaces", self._segment("namespace", within)]
        parts += [self.plural] if name is None else [self.plural, self._segment("name", name)]
        parts += [subresource] if subresource else []
        return "/".join([root, self.version, *parts])

    def _segment(self, field: str, text: str) -> str:
        if not is_path_segment(text):
            raise UnaddressableError(f"{self.kind} {field}", text, _SEGMENT)
        return quote(text, safe="")

    def describe(self, name: str = "", *, namespace: str | None = None) -> str:
        """Return the target for messages: `pods default/web-0`, `pods in default`, `nodes`."""
        if name:
            return f"{self.plural} {namespace}/{name}" if namespace else f"{self.plural} {name}"
        return f"{self.plural} in {namespace}" if namespace else self.plural


PODS: Final = Resource("", "v1", "pods", "Pod")
NODES: Final = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS: Final = Resource("", "v1", "secrets", "Secret")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps", "ConfigMap")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts", "ServiceAccount")
EVENTS: Final = Resource("", "v1", "events", "Event")
SERVICES: Final = Resource("", "v1", "services", "Service")
REPLICATION_CONTROLLERS: Final = Resource("", "v1", "replicationcontrollers", "ReplicationController")
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
PVCS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PVS: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions", "ControllerRevision")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")
LEADER_WORKER_SETS: Final = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet")

HORIZONTAL_POD_AUTOSCALERS: Final = Resource("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler")

ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PDBS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
VOLUME_ATTACHMENTS: Final = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
VOLCANO_JOBS: Final = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
VOLCANO_POD_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
VOLCANO_QUEUES: Final = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
POD_GROUPS: Final = tuple(
    Resource("scheduling.k8s.io", version, "podgroups", "PodGroup") for version in ("v1beta1", "v1alpha3", "v1alpha2")
)
"""One kind by its versions, newest first; the API server's release decides which exist."""
POD_GROUP_WORKLOADS: Final = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
    namespaced=False,
)
EVICTION_REQUESTS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests", "EvictionRequest")
"""An alpha of Kubernetes 1.37; Berth only looks whether it is served."""

VALIDATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingwebhookconfigurations",
    "ValidatingWebhookConfiguration",
    namespaced=False,
)
ADMISSION_POLICIES: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
ADMISSION_POLICY_BINDINGS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)
CRDS: Final = Resource(
    "apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDINGS: Final = Resource(
    "rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False
)
ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "roles", "Role")
ROLE_BINDINGS: Final = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding")

TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False)
SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False
)

SELF_SUBJECT_REVIEWS: Final = Resource(
    "authentication.k8s.io", "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False
)
SELF_SUBJECT_ACCESS_REVIEWS: Final = Resource(
    "authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)

RESERVATIONS: Final = Resource("batch.volcano.sh", "v1alpha1", "reservations", "Reservation")
RESERVATION_WINDOWS: Final = Resource("berth.volcano.sh", "v1alpha1", "reservationwindows", "ReservationWindow")
REVOCABLE_ZONES: Final = Resource("berth.volcano.sh", "v1alpha1", "revocablezones", "RevocableZone", namespaced=False)
QUEUES: Final = Resource("berth.volcano.sh", "v1alpha1", "queues", "Queue", namespaced=False)
KUEUE_LOCAL_QUEUES: Final = tuple(
    Resource("kueue.x-k8s.io", version, "localqueues", "LocalQueue") for version in ("v1beta2", "v1beta1")
)
"""One kind by its versions, newest first; Kueue's release decides which exist."""
MIGRATION_PLANS: Final = Resource("berth.volcano.sh", "v1alpha1", "migrationplans", "MigrationPlan", namespaced=False)
DESCHEDULER_POLICIES: Final = Resource(
    "berth.volcano.sh", "v1alpha1", "deschedulerpolicies", "DeschedulerPolicy", namespaced=False
)
