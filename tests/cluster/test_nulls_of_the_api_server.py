"""What the API server makes of empty lists and nulls is read by both programs, in every kind that they read."""

from collections.abc import Iterator
from typing import Any, Final
from uuid import uuid4

import pytest

from berth_core import BerthError, Snapshot
from berth_descheduler.planner import plan
from berth_descheduler.snapshots import dump_cluster, read_live_snapshot
from berth_kube import KubeClient, connect
from berth_kube.resources import (
    CSI_NODES,
    DAEMON_SETS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    JOBS,
    LEASES,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    PRIORITY_CLASSES,
    PVCS,
    PVS,
    REPLICA_SETS,
    RESERVATIONS,
    RESOURCE_QUOTAS,
    SERVICE_ACCOUNTS,
    STATEFUL_SETS,
    STORAGE_CLASSES,
    VOLUME_ATTACHMENTS,
    Resource,
)
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.reservation.store.informers import Informers
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from planner.clusters import consolidating
from reservation_stage import delete_if_there
from waiting import eventually

pytestmark = pytest.mark.cluster

META: Final[dict[str, Any]] = {"labels": None, "annotations": {}, "ownerReferences": [], "finalizers": None}
CONTAINER: Final[dict[str, Any]] = {
    "name": "app",
    "image": "pause",
    "resources": {"requests": {}, "limits": None},
    "ports": [],
    "env": None,
    "volumeMounts": [],
}
POD: Final[dict[str, Any]] = {
    "containers": [CONTAINER],
    "initContainers": [],
    "volumes": [],
    "tolerations": None,
    "nodeSelector": {},
    "topologySpreadConstraints": [],
    "schedulingGates": [],
    "imagePullSecrets": None,
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}, "podAffinity": None},
    "overhead": None,
    "resourceClaims": [],
}
LABELS: Final = {"app": "web"}
WORKLOAD: Final[dict[str, Any]] = {
    "replicas": 0,
    "selector": {"matchLabels": LABELS, "matchExpressions": []},
    "template": {"metadata": {"labels": LABELS, "annotations": None}, "spec": POD},
}
JOB: Final[dict[str, Any]] = {
    "suspend": True,
    "podFailurePolicy": {"rules": []},
    "template": {"metadata": {"labels": None}, "spec": POD | {"restartPolicy": "Never"}},
}
VOLUME: Final[dict[str, Any]] = {
    "capacity": {"storage": "1Gi"},
    "accessModes": ["ReadWriteMany"],
    "mountOptions": [],
    "csi": {"driver": "d", "volumeHandle": "h", "volumeAttributes": None},
}
CLAIM: Final[dict[str, Any]] = {
    "accessModes": ["ReadWriteMany"],
    "resources": {"requests": {"storage": "1Gi"}, "limits": {}},
    "selector": None,
    "storageClassName": "none",
}
RESERVATION: Final[dict[str, Any]] = {
    "owners": [{"labelSelector": {"matchLabels": LABELS, "matchExpressions": []}}],
    "tasks": [{"name": "web", "replicas": 1, "template": {"metadata": {"labels": None}, "spec": POD}}],
    "ttl": "1h",
}
POLICY: Final[dict[str, Any]] = {
    "mode": "Plan",
    "trigger": {"interval": "24h"},
    "profiles": [{"name": "p", "pluginConfig": [], "plugins": {"balance": {"enabled": [], "disabled": []}}}],
}
OBJECTS: Final[tuple[tuple[Resource, dict[str, Any]], ...]] = (
    (CSI_NODES, {"spec": {"drivers": []}}),
    (PRIORITY_CLASSES, {"value": 7, "description": None, "globalDefault": None}),
    (STORAGE_CLASSES, {"provisioner": "d", "parameters": {}, "mountOptions": [], "allowedTopologies": []}),
    (PVS, {"spec": VOLUME}),
    (
        VOLUME_ATTACHMENTS,
        {"spec": {"attacher": "d", "nodeName": "nowhere", "source": {"persistentVolumeName": "v"}}},
    ),
    (JOBS, {"spec": JOB}),
    (PODS, {"spec": POD}),
    (REPLICA_SETS, {"spec": WORKLOAD}),
    (DEPLOYMENTS, {"spec": WORKLOAD}),
    (STATEFUL_SETS, {"spec": WORKLOAD | {"serviceName": "web", "volumeClaimTemplates": []}}),
    (DAEMON_SETS, {"spec": {key: WORKLOAD[key] for key in ("selector", "template")}}),
    (PDBS, {"spec": {"selector": None, "minAvailable": 1}}),
    (PVCS, {"spec": CLAIM}),
    (RESOURCE_QUOTAS, {"spec": {"hard": {}, "scopes": [], "scopeSelector": {"matchExpressions": []}}}),
    (LIMIT_RANGES, {"spec": {"limits": []}}),
    (LEASES, {"spec": {"holderIdentity": None, "leaseDurationSeconds": None}}),
    (RESERVATIONS, {"spec": RESERVATION}),
    (DESCHEDULER_POLICIES, {"spec": POLICY}),
)


@pytest.fixture
def admin(sandbox: Sandbox) -> Iterator[KubeClient]:
    with connect(kubeconfig=str(sandbox.kubeconfig), user_agent="berth-null-test/1") as client:
        yield client


@pytest.fixture
def name(admin: KubeClient) -> Iterator[str]:
    """The name of the namespace and of everything in it, and of what has no namespace."""
    name = f"null-{uuid4().hex[:8]}"
    admin.create(NAMESPACES, {"metadata": {"name": name, **META}})
    accounts = lambda: admin.list(SERVICE_ACCOUNTS, namespace=name).items  # noqa: E731
    eventually("pods may be created", accounts, seconds=120)
    yield name
    delete_if_there(admin, NODES, f"{name}-000")
    for resource, _ in OBJECTS:
        if not resource.namespaced:
            delete_if_there(admin, resource, name)
    admin.delete(NAMESPACES, name)


def create_all(client: KubeClient, name: str) -> dict[str, dict[str, Any]]:
    """Create one object of each kind; returns them as they are stored, by kind."""
    stored = {}
    for resource, body in OBJECTS:
        namespace = name if resource.namespaced else None
        head = {"apiVersion": resource.api_version, "kind": resource.kind}
        made = client.create(resource, {**head, "metadata": {"name": name, **META}, **body}, namespace=namespace)
        assert made["metadata"]["name"] == name
        stored[resource.kind] = client.get(resource, name, namespace=namespace)
    return stored


def test_both_programs_read_what_the_api_server_makes_of_empty_lists_and_nulls(
    sandbox: Sandbox, admin: KubeClient, name: str
) -> None:
    sandbox.add_nodes(1, NodeShape(cpu="4", memory="8Gi"), prefix=f"{name}-")
    stored = create_all(admin, name)
    assert stored["CSINode"]["spec"] == {"drivers": None}, "as every kubelet without a driver writes it"
    assert stored["Job"]["spec"]["podFailurePolicy"] == {"rules": None}

    live = read_live_snapshot(admin)
    from_file = Snapshot.from_json(dump_cluster(admin))
    for snapshot in (live, from_file):
        assert snapshot.all_unreadable() == ()
        assert name in {one.metadata.name for one in snapshot.csi_nodes}
        assert name in {one.metadata.name for one in snapshot.workloads}
        assert plan(snapshot, consolidating()).moves == ()

    check_operator(admin, name)


def check_operator(client: KubeClient, name: str) -> None:
    failures: list[BerthError] = []
    cache, rules = Cache(lambda _: None), ClusterRules()
    informers = Informers(client, cache, rules, "berth-system", failures.append)
    informers.start()
    try:
        informers.wait_for_lists(120)
        assert (informers.missing(), failures) == ((), [])
        rule = [*rules.quotas.all_in(name), *rules.limit_ranges.all_in(name), rules.classes.get(name)]
        assert [one.metadata.unreadable for one in rule if one is not None] == ["", "", ""]
        assert rules.why_unknown(name) == ""
    finally:
        informers.stop(30)
