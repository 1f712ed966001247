"""The services of a release, with exactly its arguments and accounts, free the nodes of a fragmented cluster."""

from pathlib import Path

import pytest

from berth_core.migration_plans import MigrationPlan, MoveState, PlanPhase
from berth_core.objects import Node, Pod
from berth_core.policies import DeschedulerPolicy
from berth_kube.client import KubeClient
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS, NAMESPACES, NODES, PODS
from berth_sandbox.bootstrap import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.workload import NAMESPACE_NAMES, fill_cluster
from chart.charted import Helm
from chart.released import installed, local_values, make_certificate, running_services
from chart.test_chart_releases import delete_all_live
from cluster_objects import is_gone
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(1200)]

STAGE = {"stage": "demo"}


def plans(client: KubeClient) -> tuple[MigrationPlan, ...]:
    return client.list(MIGRATION_PLANS, type=MigrationPlan).items


def workload(client: KubeClient) -> list[Pod]:
    return [pod for pod in client.list(PODS, type=Pod).items if pod.metadata.namespace in NAMESPACE_NAMES]


def is_told(client: KubeClient) -> bool:
    """Tell whether the policy says what its run came to."""
    (policy,) = client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items
    return policy.status.last_verdict == "CarriedOut"


def clear_away(client: KubeClient) -> None:
    for name in NAMESPACE_NAMES:
        client.delete(NAMESPACES, name)
    eventually("it is gone", lambda: all(is_gone(client, NAMESPACES, name) for name in NAMESPACE_NAMES), seconds=300)
    for node in client.list(NODES, label_selector="stage=demo").items:
        client.delete(NODES, node["metadata"]["name"])


def test_the_services_of_a_release_pass_the_demo(
    helm: Helm, bare_sandbox: Sandbox, client: KubeClient, tmp_path: Path
) -> None:
    values = local_values()
    values["policies"]["consolidate"]["limits"] = {"maxMovesPerController": 4, "maxMovesPerWave": 40}
    with installed(helm, bare_sandbox, client, values):
        make_certificate(bare_sandbox, client)
        bare_sandbox.add_nodes(16, NodeShape(cpu="16", memory="64Gi", labels=STAGE), prefix="demo-")
        filled = fill_cluster(client, seed=1)
        try:
            with running_services(bare_sandbox, client, tmp_path) as services:
                eventually("a plan is carried out", lambda: any(p.phase.terminal for p in plans(client)), seconds=600)
                eventually("the policy tells what came of it", lambda: is_told(client), seconds=60)
                (plan,) = plans(client)
                freed = freed_nodes(client)
                delete_all_live(client)
                eventually("freed nodes carry no mark", lambda: not marked_nodes(client), seconds=90)
            log = services["descheduler"].tail(40)
            assert plan.phase is PlanPhase.SUCCEEDED, log
            assert {move.state for move in plan.status.moves} == {MoveState.LANDED}, log
            assert plan.spec.predicted is not None
            assert set(plan.spec.predicted.freed_nodes) == freed
            eventually("every pod runs", lambda: sum(p.is_ready for p in workload(client)) == filled.pods, seconds=90)
        finally:
            clear_away(client)


def freed_nodes(client: KubeClient) -> set[str]:
    """Return the nodes of the stage on which no pod of the workload is."""
    used = {pod.spec.node_name for pod in workload(client) if not pod.is_terminal}
    return {node.metadata.name for node in client.list(NODES, label_selector="stage=demo", type=Node).items} - used


def marked_nodes(client: KubeClient) -> list[str]:
    nodes = client.list(NODES, type=Node).items
    return [node.metadata.name for node in nodes if any(taint.key.startswith("berth") for taint in node.spec.taints)]
