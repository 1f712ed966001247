"""Measures who gets a place that becomes free: the pod that was waiting for just that one, or hungry ones.

    python tests/benchmarks/room_guards.py [--places 50] [--hungry 5]

Every node is taken by one pod. For each there waits a pod that is tied to it, as a placeholder of a Reservation is, and
beside it hungry pods that any node would do for: some want all of it, some a half. Then the nodes are freed in two
halves, one after the other, as moves free a node piece by piece. Prints, and decides nothing:

    tied        nothing but the node affinity
    nominated   status.nominatedNodeName is set to the node as well
    guarded     the node carries a taint that only the tied pod tolerates

Nothing of Berth runs: what is measured is the scheduler.
"""

# ruff: noqa: T201 - it prints

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import Node, Pod
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, NODES, PODS
from berth_kube.taints import put_taint
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace, overbooked_nodes, pod_template, pods
from contended_nodes import HALF, WHOLE, tied_to
from control_planes import control_plane, say_nothing
from waiting import eventually

KEY: Final = "example.com/kept"
SETTLED_SECONDS: Final = 20.0
SCHEDULERS: Final = ("default-scheduler", "second-scheduler")


@dataclass(frozen=True)
class Way:
    """One way of keeping a place."""

    name: str
    nominated: bool = False
    guarded: bool = False


WAYS: Final = (Way("tied"), Way("nominated", nominated=True), Way("guarded", guarded=True))


@dataclass(frozen=True)
class Trial:
    """One way against hungry pods of one scheduler."""

    client: KubeClient
    namespace: str
    way: Way
    scheduler: str
    hungry: int

    def run(self, nodes: tuple[str, ...]) -> None:
        """Let the pods contend and print who has the places in the end."""
        for node in nodes:
            for part in ("a", "b"):
                self._create(f"blocker-{part}-{node}", HALF, "blocker", nodeName=node)
        self._starve(len(nodes))
        for node in nodes:
            if self.way.guarded:
                put_taint(self.client, node, key=KEY, value=self.namespace)
            self._create(f"tied-{node}", WHOLE, "tied", affinity=tied_to(node), tolerations=self._tolerations())
        eventually("the tied ones were tried", lambda: self._tried("tied") == len(nodes), seconds=60)
        for part in ("a", "b"):
            for node in nodes:
                if self.way.nominated:
                    status = {"status": {"nominatedNodeName": node}}
                    self.client.merge_patch(
                        PODS, f"tied-{node}", status, namespace=self.namespace, subresource="status"
                    )
                name = f"blocker-{part}-{node}"
                self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)
            time.sleep(1)
        self._settle()
        self._tell(len(nodes))

    def _tolerations(self) -> list[dict[str, Any]]:
        return [{"key": KEY, "operator": "Equal", "value": self.namespace, "effect": "NoSchedule"}]

    def _starve(self, places: int) -> None:
        for name, cpu in (("hungry-whole", WHOLE), ("hungry-half", HALF)):
            body = build_deployment(name, replicas=places * self.hungry, cpu=cpu, schedulerName=self.scheduler)
            self.client.create(DEPLOYMENTS, body, namespace=self.namespace)
        wanted = 2 * places * self.hungry
        tried = lambda: self._tried("hungry-whole") + self._tried("hungry-half") == wanted  # noqa: E731
        eventually("all hungry pods were tried", tried, seconds=120)

    def _tried(self, app: str) -> int:
        return sum(pod.condition("PodScheduled") == "False" for pod in pods(self.client, self.namespace, app=app))

    def _create(self, name: str, cpu: str, app: str, **spec: Any) -> None:  # noqa: ANN401 - fields of any kind
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": app}, cpu=cpu, **spec)}
        body["metadata"]["name"] = name
        self.client.create(PODS, body, namespace=self.namespace)

    def _settle(self) -> None:
        """Wait until nothing has been placed for a while, or all tied pods are."""
        until = time.monotonic() + SETTLED_SECONDS
        while time.monotonic() < until and self._placed("tied") < len(pods(self.client, self.namespace, app="tied")):
            time.sleep(0.5)

    def _placed(self, app: str) -> int:
        return sum(bool(pod.spec.node_name) for pod in pods(self.client, self.namespace, app=app))

    def _tell(self, places: int) -> None:
        thieves = self._placed("hungry-whole") + self._placed("hungry-half")
        print(
            f"{self.way.name:<10} hungry on {self.scheduler:<17} kept {self._placed('tied'):>3} of {places}, "
            f"hungry pods placed {thieves:>3}, nodes over-booked {len(overbooked_nodes(self.client)):>2}",
            flush=True,
        )


def clear(client: KubeClient, namespace: str) -> None:
    """Take everything of a trial away."""
    for name in ("hungry-whole", "hungry-half"):
        client.delete(DEPLOYMENTS, name, namespace=namespace, propagation="Background")
    for node in client.list(NODES, type=Node).items:
        client.merge_patch(NODES, node.metadata.name, {"spec": {"taints": None}})
    for pod in pods(client, namespace):
        if not pod.metadata.labels["app"].startswith("hungry"):
            client.delete(PODS, pod.metadata.name, namespace=namespace, grace_seconds=0)
    eventually(
        "the trial is cleared away", lambda: not client.list(PODS, namespace=namespace, type=Pod).items, seconds=120
    )


def main() -> None:
    """Run every way against the hungry pods of each scheduler."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--places", type=int, default=50)
    parser.add_argument("--hungry", type=int, default=5)
    chosen = parser.parse_args()
    settings = SandboxSettings(nodes=chosen.places, node_cpu=WHOLE, node_memory="16Gi", second_scheduler=True)
    with control_plane(settings, progress=say_nothing) as sandbox, sandbox.connect() as client:
        nodes = tuple(node.metadata.name for node in client.list(NODES, type=Node).items)
        for scheduler in SCHEDULERS:
            for way in WAYS:
                namespace = make_namespace(client, f"{way.name}-{scheduler.partition('-')[0]}")
                Trial(client, namespace, way, scheduler, chosen.hungry).run(nodes)
                clear(client, namespace)


if __name__ == "__main__":
    main()
