"""Owns the addresses of the API resources that Berth uses: group, version, plural, kind and scope.

It does not own what is read or written there.
"""

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote


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
        """Return what stands in `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, name: str = "", *, namespace: str | None = None, subresource: str = "") -> str:
        """Return the path below the server's address of one object, or of all of them where `name` is "".

        Raises ValueError where a namespace is given for a cluster's resource, or is missing for one object.
        """
        if namespace and not self.namespaced:
            raise ValueError(f"{self.plural} have no namespace, got {namespace!r}")
        if self.namespaced and name and not namespace:
            raise ValueError(f"{self.plural} {name!r} needs a namespace")
        root = f"/apis/{self.group}" if self.group else "/api"
        parts = ["namespaces", namespace] if namespace else []
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join([root, self.version, *(quote(part, safe="") for part in parts)])

    def describe(self, name: str = "", *, namespace: str | None = None) -> str:
        """Return for people what is addressed: `pods default/web-0`, `pods in default`, `nodes`."""
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
LIMIT_RANGES: Final = Resource("", "v1", "limitranges", "LimitRange")
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
PVCS: Final = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
PVS: Final = Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False)

DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
JOBS: Final = Resource("batch", "v1", "jobs", "Job")

LEASES: Final = Resource("coordination.k8s.io", "v1", "leases", "Lease")
PDBS: Final = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
CSI_NODES: Final = Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False)
VOLUME_ATTACHMENTS: Final = Resource("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", namespaced=False)
VOLCANO_JOBS: Final = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")
VOLCANO_POD_GROUPS: Final = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
POD_GROUPS: Final = tuple(
    Resource("scheduling.k8s.io", version, "podgroups", "PodGroup") for version in ("v1beta1", "v1alpha3", "v1alpha2")
)
"""The same kind by its versions, newest first; which of them an API server has depends on its release."""
POD_GROUP_WORKLOADS: Final = Resource("scheduling.k8s.io", "v1alpha1", "workloads", "Workload")
MUTATING_WEBHOOKS: Final = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingwebhookconfigurations",
    "MutatingWebhookConfiguration",
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

RESERVATIONS: Final = Resource("batch.volcano.sh", "v1alpha1", "reservations", "Reservation")
MIGRATION_PLANS: Final = Resource("berth.volcano.sh", "v1alpha1", "migrationplans", "MigrationPlan", namespaced=False)
DESCHEDULER_POLICIES: Final = Resource(
    "berth.volcano.sh", "v1alpha1", "deschedulerpolicies", "DeschedulerPolicy", namespaced=False
)
