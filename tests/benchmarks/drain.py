"""Drains nodes of a nearly full cluster by `kubectl drain` and by `berth drain`, one after the other, under contention.

    python tests/benchmarks/drain.py [--nodes 100] [--drained 10] [--hungry 120] [--side both] [--seed 1]

Each side has a cluster of its own, made alike. Nodes have room for ten pods, nine are there. What is left on the other
nodes is just what the drained ones hold. Half of the Deployments have one replica, which is drained; of the others two
are, and they have budgets of one. As soon as the first pod goes, hungry pods of the same size and priority come, of a
scheduler of their own, and plain pods that are small enough to fit anywhere: these say how long a pod waits anyway.
Prints how many pods went where it was planned, how long replacements and plain pods waited for a node, how many
Services had fewer ready endpoints than wanted, and how long it took.
"""

# ruff: noqa: T201 - it prints

import argparse
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import RELEASED_HASH, TEMPLATE_HASH_LABEL, BerthError, MigrationPlan, MoveState, Pod
from berth_kube import (
    DEPLOYMENTS,
    MIGRATION_PLANS,
    NODES,
    PDBS,
    PODS,
    SERVICES,
    Changed,
    Informer,
    KubeClient,
    Listed,
    Removed,
    WatchItem,
)
from berth_sandbox.binaries import find_kubectl
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace, overbooked_nodes, pod_template
from control_planes import control_plane
from descheduling_stage import Run
from ready_endpoints import Endpoints, ready_endpoints, watched_endpoints
from service_processes import running_operator
from waiting import eventually

SPACE, PLAIN = "shop", "plain"
NODE_CPU: Final = "10100m"
BASE_CPU: Final = "8"
PER_NODE: Final = 9
PLAIN_SECONDS: Final = 0.5
SETTLE_SECONDS: Final = 20.0


@dataclass
class Waits:
    """When each pod was seen first, when with a node, and when the first one of the drained nodes went."""

    drained: frozenset[str] = frozenset()
    seen: dict[str, float] = field(default_factory=dict)
    placed: dict[str, float] = field(default_factory=dict)
    apps: dict[str, str] = field(default_factory=dict)
    begun: threading.Event = field(default_factory=threading.Event)
    is_counting: bool = False

    def take(self, item: WatchItem[Pod]) -> None:
        now = time.monotonic()
        if isinstance(item, Listed):
            for pod in item.items:
                self._note(pod, now)
        elif isinstance(item, Changed):
            self._note(item.item, now)
        elif isinstance(item, Removed):
            self.seen.pop(item.item.metadata.uid, None)

    def _note(self, pod: Pod, now: float) -> None:
        uid = pod.metadata.uid
        is_let_go = pod.metadata.labels.get(TEMPLATE_HASH_LABEL) == RELEASED_HASH
        if self.is_counting and pod.spec.node_name in self.drained and (pod.is_terminating or is_let_go):
            self.begun.set()
        self.apps[uid] = pod.metadata.labels.get("app", "")
        self.seen.setdefault(uid, now if self.is_counting else -1.0)
        if pod.spec.node_name:
            self.placed.setdefault(uid, now)

    def seconds(self, prefix: str, end: float) -> list[float]:
        """Return how long the pods waited for a node that came since counting began and are there."""
        came = [uid for uid, at in self.seen.items() if at >= 0 and self.apps[uid].startswith(prefix)]
        return sorted(self.placed.get(uid, end) - self.seen[uid] for uid in came)

    def waiting(self, prefix: str) -> int:
        return sum(self.apps[uid].startswith(prefix) and uid not in self.placed for uid in self.seen)


@contextmanager
def watched_pods(client: KubeClient, waits: Waits) -> Iterator[None]:
    def fail(error: BerthError) -> None:
        print(f"the watch of pods ended: {error}", flush=True)

    with Informer("pods", lambda stop: client.watch(PODS, type=Pod, stop=stop), waits.take, fail):
        yield


@dataclass(frozen=True)
class Result:
    """What one side came to."""

    side: str
    code: int
    seconds: float
    pods: int
    left: int
    on_planned: int | None
    waits: list[float]
    pending: int
    plain: list[float]
    services_below: int
    endpoints_lost: int
    overbooked: int


class Stage:
    """A cluster before its drain."""

    def __init__(self, sandbox: Sandbox, client: KubeClient, options: argparse.Namespace) -> None:
        self.sandbox = sandbox
        self.client = client
        self._options = options
        self.seconds: int = options.seconds
        self._chance = random.Random(options.seed)  # noqa: S311 - which Deployments are scaled first
        self.drained: tuple[str, ...] = ()
        self.wanted: dict[str, int] = {}

    def fill(self) -> None:
        """Fill the nodes: first the ones to drain, then the others."""
        for name in (SPACE, PLAIN):
            make_namespace(self.client, name)
        shape = NodeShape(cpu=NODE_CPU, memory="64Gi")
        self.drained = self.sandbox.add_nodes(self._options.drained, shape, prefix="old-")
        total = self._options.drained * PER_NODE
        singles, wide = total // 3, total // 3
        drained = {f"single-{n}": 1 for n in range(singles)} | {f"wide-{n}": 2 for n in range(wide)}
        for name, replicas in drained.items():
            self._deploy(name, replicas)
        self._await_endpoints(drained)
        others = self._options.nodes - self._options.drained
        self._cordon(closed=True)
        for name in self.sandbox.add_nodes(others, shape, prefix="node-"):
            body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu=BASE_CPU, nodeName=name)}
            body["metadata"]["name"] = f"base-{name}"
            self.client.create(PODS, body, namespace=PLAIN)
        self.wanted = dict(drained)
        names = [name for name in drained if name.startswith("wide")]
        self._chance.shuffle(names)
        for turn in range(others):
            self.wanted[names[turn % len(names)]] += 1
        for name in names:
            scaled = {"spec": {"replicas": self.wanted[name]}}
            self.client.merge_patch(DEPLOYMENTS, name, scaled, namespace=SPACE)
        self._await_endpoints(self.wanted)
        self._cordon(closed=False)

    def _deploy(self, name: str, replicas: int) -> None:
        head, chosen = {"metadata": {"name": name}}, {"app": name}
        self.client.create(DEPLOYMENTS, build_deployment(name, replicas=replicas, cpu="1"), namespace=SPACE)
        self.client.create(SERVICES, {**head, "spec": {"selector": chosen, "ports": [{"port": 80}]}}, namespace=SPACE)
        if replicas > 1:
            spec = {"maxUnavailable": 1, "selector": {"matchLabels": chosen}}
            self.client.create(PDBS, {**head, "spec": spec}, namespace=SPACE)

    def _await_endpoints(self, wanted: dict[str, int]) -> None:
        eventually("all serve", lambda: ready_endpoints(self.client, SPACE) == wanted, seconds=600, pause_seconds=1)

    def _cordon(self, *, closed: bool) -> None:
        for name in self.drained:
            self.client.merge_patch(NODES, name, {"spec": {"unschedulable": closed or None}})

    def on_drained(self) -> int:
        found = self.client.list(PODS, namespace=SPACE, type=Pod).items
        return sum(pod.spec.node_name in self.drained for pod in found)

    def contend(self, waits: Waits, over: threading.Event) -> None:
        """Once the first pod goes, have hungry pods come, and plain ones until it is over."""
        while not waits.begun.wait(0.02):
            if over.is_set():
                return
        hungry = build_deployment("hungry", replicas=self._options.hungry, cpu="1", schedulerName="second-scheduler")
        self.client.create(DEPLOYMENTS, hungry, namespace=PLAIN)
        number = 0
        while not over.wait(PLAIN_SECONDS):
            body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": "plain"}, cpu="1m", memory="1Mi")}
            body["metadata"]["name"] = f"plain-{number}"
            self.client.create(PODS, body, namespace=PLAIN)
            number += 1


def drain(stage: Stage, side: str, start: Callable[[], int]) -> Result:
    """Drain the nodes, and return what was seen of it."""
    waits, over = Waits(frozenset(stage.drained)), threading.Event()
    client, pods = stage.client, stage.on_drained()
    endpoints: Endpoints
    with watched_pods(client, waits), watched_endpoints(client, SPACE) as endpoints:
        eventually("the pods are seen", lambda: len(waits.seen) >= pods, seconds=60)
        waits.is_counting = True
        contention = threading.Thread(target=stage.contend, args=(waits, over))
        contention.start()
        began = time.monotonic()
        try:
            code = start()
            seconds = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
        finally:
            over.set()
            contention.join()
        end = time.monotonic()
    below = {name: stage.wanted[name] - count for name, count in endpoints.fewest.items() if name in stage.wanted}
    replacements = sorted([*waits.seconds("single", end), *waits.seconds("wide", end)])
    return Result(
        *(side, code, seconds, pods, stage.on_drained()),
        on_planned=landed(client) if side == "berth" else None,
        waits=replacements,
        pending=waits.waiting("single") + waits.waiting("wide"),
        plain=waits.seconds("plain", end),
        services_below=sum(lost > 0 for lost in below.values()),
        endpoints_lost=sum(lost for lost in below.values() if lost > 0),
        overbooked=len(overbooked_nodes(client)),
    )


def landed(client: KubeClient) -> int:
    """Return how many replacements run on the node that their plan named."""
    plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    moves = [pair for plan in plans for pair in zip(plan.spec.moves, plan.move_statuses, strict=True)]
    return sum(status.state is MoveState.LANDED and status.node == move.target for move, status in moves)


def drain_with_kubectl(sandbox: Sandbox, stage: Stage) -> int:
    kubectl = str(find_kubectl(print))
    options = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={stage.seconds}s")
    command = [kubectl, f"--kubeconfig={sandbox.kubeconfig}", "drain", *stage.drained, *options]
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode


def drain_with_berth(sandbox: Sandbox, stage: Stage, folder: Path, more: list[str]) -> int:
    options = (*stage.drained, f"--timeout={stage.seconds}s", *more)
    run = Run(sandbox.kubeconfig, folder, options, "drain")
    run.start()
    code = run.wait(stage.seconds + 180)
    print(*(f"  {one['message']}" for one in run.outcome["runs"]), sep="\n", flush=True)
    return code


def measure(side: str, options: argparse.Namespace) -> Result:
    folder = Path(tempfile.mkdtemp())
    with control_plane(SandboxSettings(second_scheduler=True)) as sandbox, sandbox.connect() as client:
        stage = Stage(sandbox, client, options)
        stage.fill()
        print(f"{side}: {stage.on_drained()} pods to drain", flush=True)
        if side == "kubectl":
            return drain(stage, side, lambda: drain_with_kubectl(sandbox, stage))
        with running_operator(sandbox, folder):
            return drain(stage, side, lambda: drain_with_berth(sandbox, stage, folder, options.option))


def show(result: Result) -> None:
    waits, plain = result.waits or [0.0], result.plain or [0.0]
    p99 = plain[min(len(plain) - 1, int(0.99 * len(plain)))]
    planned = "" if result.on_planned is None else f", {result.on_planned} of {result.pods} on their planned node"
    print(f"{result.side}: exit code {result.code} after {result.seconds:.1f} s, {result.left} pods left{planned}")
    print(f"  replacements waited {waits[-1]:.2f} s at most, {waits[len(waits) // 2]:.2f} s in the middle,", end=" ")
    print(f"{result.pending} wait still; plain pods {p99:.2f} s at the 99th percentile ({len(plain)})")
    print(f"  longest wait {waits[-1] / max(p99, 0.001):.1f} times that of plain pods")
    print(f"  {result.endpoints_lost} ready endpoints lost, in {result.services_below} Services;", end=" ")
    print(f"{result.overbooked} nodes overbooked", flush=True)


def main() -> None:
    """Drain with each side, and print what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--drained", type=int, default=10)
    parser.add_argument("--hungry", type=int, default=120)
    parser.add_argument("--seconds", type=int, default=240, help="the timeout of each drain")
    parser.add_argument("--side", choices=["kubectl", "berth", "both"], default="both")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--option", action="append", default=[], help="another option of berth drain")
    options = parser.parse_args()
    sides = ["kubectl", "berth"] if options.side == "both" else [options.side]
    results = [measure(side, options) for side in sides]
    for result in results:
        show(result)


if __name__ == "__main__":
    main()
