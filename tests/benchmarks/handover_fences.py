"""Measures who gets a place that changes hands while pods that tolerate every taint wait for it.

    python tests/benchmarks/handover_fences.py [--places 40] [--hungry 2] [--window 1.0]

Every node is taken by a placeholder. The places are handed to their owners by the protocol's own calls: guard, wait,
delete the placeholder, wait, nominate, un-gate, wait until the owner runs, wait, take the guard off. Hungry pods that
tolerate everything wait meanwhile, on the same scheduler or on a second one. `--window` is how long each place stands
empty before its owner is un-gated: longer than ever in a hand-over, so that every hungry pod has its try. Prints, and
decides nothing:

    guard        our taint alone
    fence        a pod without requests whose anti-affinity keeps others off, put on the node by spec.nodeName
    guard+fence  both

Nothing of Berth runs: what is measured is the scheduler.
"""

# ruff: noqa: T201 - it prints

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, RESERVATION_LABEL
from berth_core.objects import Node, Pod
from berth_kube.client import KubeClient
from berth_kube.events import put_taint, remove_taint
from berth_kube.resources import NODES, PODS, PRIORITY_CLASSES
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import is_gone, make_namespace, overbooked_nodes, pod_template, pods
from waiting import eventually

WHOLE: Final = "4"
SETTLE_SECONDS: Final = 0.3
BOUND_SECONDS: Final = 30.0
FENCE_PRIORITY: Final = 1_000_000_000
HUNGRY_PRIORITY: Final = 1_000_000
EVERYTHING: Final = [{"operator": "Exists"}]
GUARD_TOLERATION: Final = [{"key": HANDOVER_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
Body = dict[str, Any]


@dataclass(frozen=True)
class Way:
    """One way of keeping a place during its hand-over."""

    name: str
    guard: bool = True
    fence: bool = True


@dataclass(frozen=True)
class Hunger:
    """Who waits for the places."""

    name: str
    scheduler: str = "default-scheduler"
    preempts: bool = False
    """Whether they come with a higher priority while the places are empty; else they wait before, with the same."""


WAYS: Final = (Way("guard", fence=False), Way("fence", guard=False), Way("guard+fence"))
HUNGERS: Final = (
    Hunger("same scheduler"),
    Hunger("second scheduler", "second-scheduler"),
    Hunger("same, preempting", preempts=True),
    Hunger("second, preempting", "second-scheduler", preempts=True),
)


@dataclass(frozen=True)
class Trial:
    """All places handed over once."""

    client: KubeClient
    namespace: str
    nodes: tuple[str, ...]
    way: Way
    hunger: Hunger
    hungry_per_place: int
    window_seconds: float

    def run(self) -> None:
        """Hand every place over, and print who has it."""
        client, namespace = self.client, self.namespace
        for node in self.nodes:
            self._create(f"placeholder-{node}", build_filler(node))
            self._create(f"owner-{node}", build_owner())
        running = lambda: sum(p.status.phase == "Running" for p in pods(client, namespace, app="placeholder"))  # noqa: E731
        eventually("all placeholders run", lambda: running() == len(self.nodes), seconds=120)
        if not self.hunger.preempts:
            self._starve()
        self._everywhere(self._close)
        time.sleep(SETTLE_SECONDS)
        self._everywhere(lambda node: self._delete(f"placeholder-{node}"))
        eventually("the places are empty", lambda: not pods(client, namespace, app="placeholder"), seconds=60)
        if self.hunger.preempts:
            self._starve()
        time.sleep(self.window_seconds)
        started = time.monotonic()
        self._everywhere(self._let_go)
        until = time.monotonic() + BOUND_SECONDS
        while time.monotonic() < until and self._kept() < len(self.nodes):
            time.sleep(0.2)
        took = time.monotonic() - started
        time.sleep(SETTLE_SECONDS)
        kept = self._kept()
        self._everywhere(self._open)
        time.sleep(2)
        placed = sum(bool(pod.spec.node_name) for pod in pods(client, namespace, app="hungry"))
        print(
            f"{self.way.name:<12} hungry on {self.hunger.name:<20} kept {kept:>3} of {len(self.nodes)}, "
            f"hungry placed at the end {placed:>3}, nodes over-booked {len(overbooked_nodes(client)):>2}, "
            f"{took:4.1f} s",
            flush=True,
        )

    def _everywhere(self, act: Callable[[str], None]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(act, self.nodes))

    def _create(self, name: str, body: Body) -> None:
        body["metadata"]["name"] = name
        self.client.create(PODS, body, namespace=self.namespace)

    def _delete(self, name: str) -> None:
        self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)

    def _starve(self) -> None:
        wanted = len(self.nodes) * self.hungry_per_place
        for number in range(wanted):
            body = build_hungry(self.hunger)
            self._create(f"hungry-{number}", body)
        tried = lambda: sum(  # noqa: E731
            p.condition("PodScheduled") == "False" or bool(p.spec.node_name) for p in self._all("hungry")
        )
        eventually("all hungry pods were tried", lambda: tried() == wanted, seconds=240)

    def _all(self, app: str) -> tuple[Pod, ...]:
        return pods(self.client, self.namespace, app=app)

    def _close(self, node: str) -> None:
        if self.way.guard:
            put_taint(self.client, node, key=HANDOVER_TAINT, value="9999999999")
        if self.way.fence:
            self._create(f"fence-{node}", build_fence(node))

    def _open(self, node: str) -> None:
        if self.way.guard:
            remove_taint(self.client, node, key=HANDOVER_TAINT)
        if self.way.fence:
            self._delete(f"fence-{node}")

    def _let_go(self, node: str) -> None:
        name, namespace = f"owner-{node}", self.namespace
        status = {"status": {"nominatedNodeName": node}}
        self.client.merge_patch(PODS, name, status, namespace=namespace, subresource="status")
        self.client.merge_patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=namespace)

    def _kept(self) -> int:
        return sum(
            pod.status.phase == "Running" and pod.metadata.name == f"owner-{pod.spec.node_name}"
            for pod in self._all("owner")
        )


def build_pod(app: str, cpu: str, labels: Body, **spec: Any) -> Body:  # noqa: ANN401 - fields of any kind
    return {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": app, **labels}, cpu=cpu, **spec)}


def build_filler(node: str) -> Body:
    return build_pod("placeholder", WHOLE, {RESERVATION_LABEL: "uid"}, nodeName=node)


def build_owner() -> Body:
    gates = [{"name": HANDOVER_GATE}]
    return build_pod("owner", WHOLE, {RESERVATION_LABEL: "uid"}, schedulingGates=gates, tolerations=GUARD_TOLERATION)


def build_hungry(hunger: Hunger) -> Body:
    spec: Body = {"priorityClassName": "hungry"} if hunger.preempts else {}
    return build_pod("hungry", WHOLE, {}, schedulerName=hunger.scheduler, tolerations=EVERYTHING, **spec)


def build_fence(node: str) -> Body:
    """Return the pod that keeps all but those of a hand-over and DaemonSet pods off its node."""
    keys = (RESERVATION_LABEL, "pod-template-generation")
    strangers = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"} for key in keys]}
    term = {"topologyKey": "kubernetes.io/hostname", "namespaceSelector": {}, "labelSelector": strangers}
    body = build_pod(
        "fence",
        "0",
        {RESERVATION_LABEL: "uid"},
        nodeName=node,
        priorityClassName="fence",
        tolerations=EVERYTHING,
        affinity={"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
    )
    body["spec"]["containers"][0].pop("resources")
    return body


@contextmanager
def priority_classes(client: KubeClient) -> Iterator[None]:
    """Make the two classes that the pods name."""
    for name, value in (("hungry", HUNGRY_PRIORITY), ("fence", FENCE_PRIORITY)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        client.create(PRIORITY_CLASSES, body | {"value": value})
    eventually("the classes are there", lambda: not is_gone(client, PRIORITY_CLASSES, "fence"), seconds=30)
    yield


def clear(client: KubeClient, namespace: str) -> None:
    """Take everything of a trial away."""
    while left := client.list(PODS, namespace=namespace, type=Pod).items:
        for pod in sorted(left, key=lambda pod: pod.metadata.labels["app"] != "hungry"):
            if not is_gone(client, PODS, pod.metadata.name, namespace):
                client.delete(PODS, pod.metadata.name, namespace=namespace, grace_seconds=0)


def main() -> None:
    """Run every way against every kind of hungry pods."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--places", type=int, default=40)
    parser.add_argument("--hungry", type=int, default=2)
    parser.add_argument("--window", type=float, default=1.0)
    chosen = parser.parse_args()
    settings = SandboxSettings(nodes=chosen.places, node_cpu=WHOLE, node_memory="16Gi", second_scheduler=True)
    with (
        Sandbox.start(settings, progress=lambda _: None) as sandbox,
        sandbox.connect() as client,
        priority_classes(client),
    ):
        nodes = tuple(node.metadata.name for node in client.list(NODES, type=Node).items)
        for hunger in HUNGERS:
            for way in WAYS:
                name = f"{way.name}-{hunger.name}".replace("+", "-").replace(", ", "-").replace(" ", "-")
                namespace = make_namespace(client, name)
                Trial(client, namespace, nodes, way, hunger, chosen.hungry, chosen.window).run()
                clear(client, namespace)


if __name__ == "__main__":
    main()
