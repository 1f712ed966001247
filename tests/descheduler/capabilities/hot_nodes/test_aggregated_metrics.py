"""Plans on a real API server whose aggregator leads to a server of the metrics API, to none, or to one that is away."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from berth_core import Pod
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, NAMESPACES, NODES, PODS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, make_namespace
from metrics_server import MetricsServer, availability, node_metrics, pod_metrics, registered, serving
from service_processes import script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NAMESPACE = "hot-nodes"
POLICY = f"""
apiVersion: berth.volcano.sh/v1alpha1
kind: DeschedulerPolicy
metadata: {{name: cool}}
spec:
  mode: Plan
  profiles:
    - name: default
      pluginConfig:
        - {{name: Defragmentation, args: {{strategy: Consolidate, evictableNamespaces: {{include: [{NAMESPACE}]}}}}}}
        - {{name: HotNodes, args: {{targetUsage: {{cpu: 70}}}}}}
      plugins:
        balance: {{enabled: [Defragmentation]}}
        filter: {{enabled: [HotNodes]}}
"""


@contextmanager
def a_pod_on_each_node(sandbox: Sandbox, client: KubeClient) -> Iterator[dict[str, str]]:
    """Yield two new nodes, by name with the pod that runs there."""
    names = sandbox.add_nodes(2)
    make_namespace(client, NAMESPACE)
    try:
        for number, name in enumerate(names):
            body = build_deployment(f"web-{number}", replicas=1, cpu="1", affinity=wish_for(name))
            client.create(DEPLOYMENTS, body, namespace=NAMESPACE)
        eventually("a pod runs on each node", lambda: sorted(running(client)) == sorted(names))
        yield running(client)
    finally:
        client.delete(NAMESPACES, NAMESPACE)
        eventually("its pods are gone", lambda: not client.list(PODS, namespace=NAMESPACE).items)
        for name in names:
            client.delete(NODES, name)


def wish_for(name: str) -> dict[str, Any]:
    field = {"key": "metadata.name", "operator": "In", "values": [name]}
    wish = {"weight": 100, "preference": {"matchFields": [field]}}
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [wish]}}


def running(client: KubeClient) -> dict[str, str]:
    pods = client.list(PODS, namespace=NAMESPACE, type=Pod).items
    return {pod.spec.node_name: pod.metadata.name for pod in pods if pod.is_ready}


class Plans:
    """Makes plans as the descheduler's own account, whose rights are those of the chart."""

    def __init__(self, sandbox: Sandbox, folder: Path) -> None:
        self._kubeconfig = f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}"
        self._folder = folder
        (folder / "policy.yaml").write_text(POLICY, encoding="utf-8")

    def moves_and_notes(self, *source: str) -> tuple[list[tuple[str, str]], list[str]]:
        """Return source and target of each move, and the notes; of the live cluster or of another source."""
        policy = f"--policy={self._folder / 'policy.yaml'}"
        document = json.loads(self._run("plan", *(source or (self._kubeconfig,)), policy, "--output=json"))
        moves = [(move["source"], move["target"]) for move in document["moves"]]
        return moves, document["predicted"].get("notes", [])

    def of_a_file(self) -> tuple[list[tuple[str, str]], list[str]]:
        """Return the same of a snapshot of the cluster in a file."""
        file = str(self._folder / "cluster.json")
        self._run("snapshot", self._kubeconfig, "--file", file)
        return self.moves_and_notes("--snapshot", file)

    @staticmethod
    def _run(*arguments: str) -> str:
        done = subprocess.run([script("berth"), *arguments], capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


UNKNOWN = "HotNodes: metrics.k8s.io is not served, does not answer or may not be listed, so no node is looked at"


def test_plans_heed_what_an_aggregated_api_serves(sandbox: Sandbox, tmp_path: Path) -> None:
    metrics, plans = MetricsServer(), Plans(sandbox, tmp_path)
    with sandbox.connect() as client, a_pod_on_each_node(sandbox, client) as pods:
        first, second = sorted(pods)

        (_,), notes = plans.moves_and_notes()
        assert notes == [UNKNOWN]

        with serving(metrics, tmp_path) as (port, authority), registered(client, port, authority):
            eventually("the aggregator reaches the server", lambda: availability(client) == "True")
            (_,), notes = plans.moves_and_notes()
            assert notes == ["HotNodes: no node is looked at, because metrics.k8s.io has no metrics of any"]

            for hot, cool in ((first, second), (second, first)):
                # The sandbox's nodes have 16 cores.
                metrics.nodes = [node_metrics(hot, "12345678901n", "1Gi"), node_metrics(cool, "250m", "512Ki")]
                metrics.pods = [pod_metrics(pod, "10m", "1Mi", NAMESPACE) for pod in pods.values()]
                moves, notes = plans.moves_and_notes()
                assert moves == [(hot, cool)]
                assert notes == [
                    f"HotNodes: 1 of 2 nodes takes no pods, not being below targetUsage: {hot} (cpu 77.1 %)"
                ]
                assert plans.of_a_file() == (moves, notes)

            metrics.nodes = [node_metrics(name, "12", "1Gi") for name in pods]
            moves, _ = plans.moves_and_notes()
            assert moves == []

        with registered(client, port, authority):
            eventually("the aggregator finds nothing there", lambda: availability(client) == "False")
            (_,), notes = plans.moves_and_notes()
            assert notes == [UNKNOWN]
