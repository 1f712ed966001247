"""A sandbox behaves as a cluster does, as far as Berth can tell."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import uuid4

import pytest

from berth_core import Node, Pod
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient, connect
from berth_kube.errors import ForbiddenError, InvalidObjectError, KubeError, NotFoundError
from berth_kube.resources import (
    CRDS,
    DAEMON_SETS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATIONS,
    SECRETS,
)
from berth_sandbox.errors import SandboxError
from berth_sandbox.invariants import check
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from berth_sandbox.workload import fill_cluster
from cluster_objects import build_deployment, is_gone, pod_template, pods
from control_planes import control_plane
from sandbox.live_pods import SOON, make_pod, read_pod, wait_until, watch_until
from waiting import eventually

pytestmark = pytest.mark.cluster

RUNS_FOR = "sandbox.berth.volcano.sh/runs-for-seconds"


@pytest.fixture(scope="module")
def playground(sandbox: Sandbox) -> Iterator[Sandbox]:
    """Yield the run's control plane with four nodes, which are gone at the end with all that was on them."""
    names = sandbox.add_nodes(4, NodeShape(cpu="8", memory="16Gi", pods=50))
    yield sandbox
    with sandbox.connect() as client:
        eventually("all pods are gone", lambda: not client.list(PODS).items, seconds=180)
        for name in names:
            client.delete(NODES, name)


@pytest.fixture(scope="module")
def admin(playground: Sandbox) -> Iterator[KubeClient]:
    with playground.connect() as client:
        yield client


@pytest.fixture
def namespace(admin: KubeClient) -> Iterator[str]:
    """Yield a namespace that is deleted with all that is in it."""
    name = f"test-{uuid4().hex[:8]}"
    admin.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    yield name
    admin.delete(NAMESPACES, name)


# --- nodes ---


def test_nodes_are_ready_and_of_the_size_that_was_asked_for(admin: KubeClient) -> None:
    nodes = [node for node in admin.list(NODES, type=Node).items if node.metadata.name.startswith("node-00")]
    assert [node.metadata.name for node in nodes] == ["node-000", "node-001", "node-002", "node-003"]
    for node in nodes:
        assert node.status.allocatable == {"cpu": "8", "memory": "16Gi", "pods": "50"}
        assert not node.spec.taints
        assert any(c.type == "Ready" and c.status == "True" for c in node.status.conditions)


def test_nodes_are_kept_alive_by_leases_as_kubelets_do(admin: KubeClient) -> None:
    eventually(
        "every node has a lease",
        lambda: {"node-000", "node-003"} <= {x["metadata"]["name"] for x in admin.list(LEASES).items},
        seconds=SOON,
    )


def test_nodes_can_be_added_with_labels_taints_and_other_resources(playground: Sandbox, admin: KubeClient) -> None:
    shape = NodeShape(
        cpu="2",
        labels={"pool": "gpu"},
        taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}],
        extended={"example.com/gpu": "8"},
    )
    names = playground.add_nodes(2, shape, prefix="gpu-")
    assert names == ("gpu-000", "gpu-001")
    node = admin.get(NODES, "gpu-001", type=Node)
    assert node.metadata.labels["pool"] == "gpu"
    assert node.status.allocatable["example.com/gpu"] == "8"
    assert [taint.key for taint in node.spec.taints] == ["gpu"]
    assert playground.add_nodes(1, shape, prefix="gpu-") == ("gpu-002",)
    for name in (*names, "gpu-002"):
        admin.delete(NODES, name)


# --- pods ---


def test_a_deployment_runs_also_with_init_containers_and_sidecars(admin: KubeClient, namespace: str) -> None:
    init = [{"name": "init", "image": "init"}, {"name": "side", "image": "side", "restartPolicy": "Always"}]
    admin.create(
        DEPLOYMENTS, build_deployment("web", replicas=10, cpu="100m", initContainers=init), namespace=namespace
    )
    eventually(
        "ten pods are ready",
        lambda: sum(pod.is_ready for pod in pods(admin, namespace, app="web")) == 10,
        seconds=SOON,
    )
    assert len({pod.spec.node_name for pod in pods(admin, namespace, app="web")}) == 4


def test_daemon_sets_run_on_every_node(admin: KubeClient, namespace: str) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "agent"},
        "spec": {"selector": {"matchLabels": {"app": "agent"}}, "template": pod_template({"app": "agent"}, cpu="10m")},
    }
    admin.create(DAEMON_SETS, body, namespace=namespace)
    eventually(
        "the agents run",
        lambda: sum(pod.is_ready for pod in pods(admin, namespace, app="agent")) == 4,
        seconds=SOON,
    )


def test_a_deleted_pod_is_gone_long_before_its_grace_period_ends(admin: KubeClient, namespace: str) -> None:
    make_pod(admin, namespace, "slow", terminationGracePeriodSeconds=3600)
    wait_until(admin, namespace, "slow", "Running")
    admin.delete(PODS, "slow", namespace=namespace)
    with suppress(NotFoundError):  # gone by now, on a busy machine
        assert read_pod(admin, namespace, "slow").is_terminating
    eventually("the pod is gone", lambda: is_gone(admin, PODS, "slow", namespace), seconds=SOON)


def test_a_kubelet_ends_no_pod_that_only_has_the_name_of_one_that_terminated(
    playground: Sandbox, admin: KubeClient, namespace: str
) -> None:
    with connect(kubeconfig=str(playground.folder / "kubeconfigs" / "kwok.yaml")) as kubelet:

        def is_refused() -> bool:
            """Return whether the API server, which takes a moment to learn of the policy, refuses."""
            make_pod(admin, namespace, "next", schedulingGates=[{"name": "example.com/later"}])
            try:
                kubelet.delete(PODS, "next", namespace=namespace, grace_seconds=0)
            except InvalidObjectError as error:
                return "the pod is not terminating" in error.message
            return False

        eventually("a pod that is to live is left alone", is_refused, seconds=SOON)
    assert not read_pod(admin, namespace, "next").is_terminating


def test_a_job_ends_after_the_seconds_that_its_pods_name(admin: KubeClient, namespace: str) -> None:
    template = pod_template({}, cpu="100m", restartPolicy="Never")
    template["metadata"]["annotations"] = {RUNS_FOR: "1"}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "once"},
        "spec": {"completions": 2, "parallelism": 2, "template": template},
    }
    admin.create(JOBS, body, namespace=namespace)
    eventually(
        "the Job is complete",
        lambda: admin.get(JOBS, "once", namespace=namespace)["status"].get("succeeded") == 2,
        seconds=SOON,
    )


def test_a_pod_that_names_no_seconds_runs_on(admin: KubeClient, namespace: str) -> None:
    make_pod(admin, namespace, "once", restartPolicy="Never")
    make_pod(admin, namespace, "short", restartPolicy="Never", annotations={RUNS_FOR: "1"})
    wait_until(admin, namespace, "short", "Succeeded")
    assert wait_until(admin, namespace, "once", "Running").is_ready


def test_a_pod_past_its_active_deadline_fails_as_under_a_kubelet(admin: KubeClient, namespace: str) -> None:
    make = lambda: make_pod(admin, namespace, "late", restartPolicy="Never", activeDeadlineSeconds=2)  # noqa: E731
    *_, before, failed = watch_until(admin, namespace, "Failed", make)
    assert (before.status.phase, failed.status.phase) == ("Running", "Failed")
    assert failed.status.reason == "DeadlineExceeded"
    assert not failed.is_ready


def test_the_second_scheduler_places_the_pods_that_name_it(admin: KubeClient, namespace: str) -> None:
    make_pod(admin, namespace, "other", schedulerName="second-scheduler")
    make_pod(admin, namespace, "nobody", schedulerName="no-such-scheduler")
    wait_until(admin, namespace, "other", "Running")
    assert read_pod(admin, namespace, "nobody").spec.node_name == ""


# --- Berth ---


def test_berths_kinds_are_served(admin: KubeClient) -> None:
    names = {crd["metadata"]["name"] for crd in admin.list(CRDS).items}
    wanted = {
        "reservations.batch.volcano.sh",
        "migrationplans.berth.volcano.sh",
        "deschedulerpolicies.berth.volcano.sh",
    }
    assert wanted <= names


ALLOWED: dict[str, tuple[str, Callable[[KubeClient], object]]] = {
    "the operator reads all pods": ("berth-operator", lambda c: c.list(PODS)),
    "the operator reads all Reservations": ("berth-operator", lambda c: c.list(RESERVATIONS)),
    "the descheduler reads all nodes": ("berth-descheduler", lambda c: c.list(NODES)),
    "the descheduler reads all Reservations": ("berth-descheduler", lambda c: c.list(RESERVATIONS)),
}
FORBIDDEN: dict[str, tuple[str, Callable[[KubeClient], object]]] = {
    "the operator deletes no node": ("berth-operator", lambda c: c.delete(NODES, "node-000")),
    "the operator reads no secrets": ("berth-operator", lambda c: c.list(SECRETS)),
    "the operator deletes no pod of others": (
        "berth-operator",
        lambda c: c.delete(PODS, "any", namespace="kube-system"),
    ),
    "the operator evicts nobody": ("berth-operator", lambda c: c.evict("default", "any", uid="any", dry_run=True)),
    "the descheduler deletes no pod": ("berth-descheduler", lambda c: c.delete(PODS, "any", namespace="default")),
    "the descheduler writes no Reservation's status": (
        "berth-descheduler",
        lambda c: c.merge_patch(RESERVATIONS, "any", {}, namespace="default", subresource="status"),
    ),
    "the descheduler makes no PriorityClass": (
        "berth-descheduler",
        lambda c: c.create(
            PRIORITY_CLASSES,
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "any"},
                "value": 1,
            },
            dry_run=True,
        ),
    ),
    "the descheduler reads no secrets": (
        "berth-descheduler",
        lambda c: c.list(SECRETS, namespace=DEFAULT_NAMESPACE),
    ),
}


@dataclass
class AsService:
    """Calls the API as one of Berth's services."""

    playground: Sandbox

    def __call__(self, account: str, call: Callable[[KubeClient], object]) -> None:
        with connect(kubeconfig=str(self.playground.service_account_kubeconfig(account))) as client:
            call(client)


@pytest.fixture
def as_service(playground: Sandbox) -> AsService:
    return AsService(playground)


@pytest.mark.parametrize(("account", "call"), ALLOWED.values(), ids=ALLOWED.keys())
def test_a_service_may_do_what_its_rules_say(
    as_service: AsService, account: str, call: Callable[[KubeClient], object]
) -> None:
    as_service(account, call)


@pytest.mark.parametrize(("account", "call"), FORBIDDEN.values(), ids=FORBIDDEN.keys())
def test_a_service_may_do_nothing_else(
    as_service: AsService, account: str, call: Callable[[KubeClient], object]
) -> None:
    with pytest.raises(ForbiddenError):
        as_service(account, call)


def test_only_berths_services_have_an_account(playground: Sandbox) -> None:
    with pytest.raises(SandboxError, match="berth-operator"):
        playground.service_account_kubeconfig("somebody")


# --- a workload ---


@pytest.mark.deep
def test_a_filled_cluster_settles_with_what_was_planned_and_breaks_no_rule() -> None:
    said: list[str] = []
    with control_plane(SandboxSettings(nodes=6), progress=said.append) as started, started.connect() as client:
        filled = fill_cluster(client, seed=3, progress=said.append)
        running = [pod for pod in client.list(PODS, type=Pod).items if pod.is_ready]
        assert len(running) == filled.pods < filled.pods_before
        assert check(client, now=datetime.now(UTC)) == ()
    assert f"{filled.pods_before} pods are running" in said
    with pytest.raises(KubeError):
        client.list(PODS)
