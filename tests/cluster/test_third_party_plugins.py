"""A third-party plugin on a real control plane: its pod moves, with a place held first."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from berth_core import Pod
from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_kube.client import KubeClient, connect
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, NAMESPACES, PODS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, make_namespace, require_rest
from control_planes import control_plane
from service_processes import running_operator, script
from third_party import install_plugins, write_policy
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

OLD = {"example.com/kernel": "old"}
RELEASE = {"example.com/release": "7"}


def pods(client: KubeClient) -> tuple[Pod, ...]:
    return tuple(pod for pod in client.list(PODS, type=Pod).items if pod.metadata.namespace in {"bank", "shop"})


def fill(sandbox: Sandbox, client: KubeClient) -> str:
    """Run a pod of the shop and one of the bank on the first node, whose kernel is old, and add two others."""
    for namespace in ("bank", "shop"):
        make_namespace(client, namespace)
    (old,) = sandbox.add_nodes(1, NodeShape(labels=OLD))
    preferred = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [prefer(OLD)]}}
    for namespace in ("bank", "shop"):
        body = build_deployment("web", replicas=1, cpu="1", affinity=preferred)
        client.create(DEPLOYMENTS, body, namespace=namespace)
    eventually("both run on the old node", lambda: where(client) == {"bank": old, "shop": old}, seconds=60)
    sandbox.add_nodes(2)
    client.merge_patch(NAMESPACES, "bank", {"metadata": {"labels": RELEASE}})
    return old


def prefer(labels: Mapping[str, str]) -> dict[str, Any]:
    """A wish, so that the plugin has something to undo and the planner is free to."""
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    return {"weight": 100, "preference": {"matchExpressions": expressions}}


def where(client: KubeClient) -> dict[str, str]:
    """The node of each namespace's pod, once both are Ready and nothing else is there."""
    found = pods(client)
    if [pod.metadata.namespace for pod in found] != ["bank", "shop"] or not all(pod.is_ready for pod in found):
        return {}
    return {pod.metadata.namespace: pod.spec.node_name for pod in found}


def berth_run(sandbox: Sandbox, environment: Mapping[str, str], policy: Path) -> subprocess.CompletedProcess[str]:
    """Run once by a policy, under the descheduler's own account."""
    kubeconfig = sandbox.service_account_kubeconfig("berth-descheduler")
    command = [script("berth"), "run", "--yes", f"--kubeconfig={kubeconfig}", f"--policy={policy}", "--output=json"]
    return subprocess.run(command, env=dict(environment), capture_output=True, text=True, timeout=300, check=False)


def test_a_pod_that_a_plugin_names_moves_and_one_that_a_filter_keeps_stays(tmp_path: Path) -> None:
    environment = install_plugins(tmp_path)
    policy = write_policy(tmp_path, "kernels")
    with (
        control_plane() as sandbox,
        connect(kubeconfig=str(sandbox.kubeconfig)) as client,
    ):
        old = fill(sandbox, client)
        before = {pod.metadata.namespace: pod.metadata.uid for pod in pods(client)}
        with running_operator(sandbox, tmp_path):
            done = berth_run(sandbox, environment, policy)

            assert done.returncode == 0, done.stderr
            outcome = json.loads(done.stdout)
            assert outcome["verdict"] == "CarriedOut"
            eventually("what was moved is gone from where it was", lambda: where(client), seconds=60)
            now = where(client)
            assert now["bank"] == old
            assert now["shop"] != old
            after = {pod.metadata.namespace: pod.metadata.uid for pod in pods(client)}
            assert after["bank"] == before["bank"]
            assert after["shop"] != before["shop"]
            (plan,) = client.list(MIGRATION_PLANS, type=MigrationPlan).items
            assert plan.phase is PlanPhase.SUCCEEDED
            (move,), (status,) = plan.spec.moves, plan.status.moves
            assert move.reason == f"OutdatedKernel: {old} has the kernel old"
            assert (status.state, status.node, now["shop"]) == (MoveState.LANDED, move.target, move.target)
            assert plan.spec.objective.strategy == "SinglePods"
            require_rest(client)
