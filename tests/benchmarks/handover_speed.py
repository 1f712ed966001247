"""Measures how long a pod takes from its creation until it is bound and runs, with a held place and without one.

    python tests/benchmarks/handover_speed.py [--rounds 10] [--at-once 1 --at-once 6] [--nodes 4] [--sandbox NAME]

Rounds with a Reservation and rounds of plain pods take turns on the same nodes, so that whatever else the machine does
meets both alike. In a round so many pods are created at once by one Deployment; the next begins when the nodes are
empty again. Prints the quantiles of both, and how long after the creation of a pod each step of its hand-over is seen.
With `--sandbox` its nodes may be real ones; else a sandbox with simulated nodes is started.
"""

# ruff: noqa: T201 - it prints

import argparse
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, Self

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import Node, Pod
from berth_core.labels import FENCE_LABEL, HANDOVER_TAINT, PLACEHOLDER_LABEL, SLOT_ANNOTATION
from berth_core.names import PLACEHOLDER_IMAGE
from berth_core.reservations import ConditionType
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, NODES, PODS, RESERVATIONS
from berth_kube.watch_items import Changed, Listed, Removed
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, build_reservation, label_owner, make_namespace, reservations
from control_planes import control_plane, say_nothing
from service_processes import running_operator
from waiting import eventually

STEPS: Final = ("has its slot", "node guarded", "placeholder gone", "gate off", "bound", "runs")
CPU: Final = "100m"
OWN_NAMESPACE: Final = "berth-system"
SECONDS: Final = 180.0


class Sightings:
    """When each step of each pod was first seen, by watches of pods and nodes, in seconds of a monotonic clock."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [
            threading.Thread(target=self._follow_pods, daemon=True),
            threading.Thread(target=self._follow_nodes, daemon=True),
        ]
        self.seen: defaultdict[str, dict[str, float]] = defaultdict(dict)
        """Uid of a pod to its steps."""
        self.guarded: defaultdict[str, list[float]] = defaultdict(list)
        """Node to when it was guarded."""
        self.placeholders_gone: defaultdict[str, list[float]] = defaultdict(list)
        self.node_of: dict[str, str] = {}
        """Uid of a pod to the node of its slot."""

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def _follow_pods(self) -> None:
        for item in self._client.watch(PODS, stop=self._stop, type=Pod):
            now = time.monotonic()
            match item:
                case Changed(pod) if not {PLACEHOLDER_LABEL, FENCE_LABEL} & pod.metadata.labels.keys():
                    self._note_pod(pod, now)
                case Removed(pod) if PLACEHOLDER_LABEL in pod.metadata.labels:
                    with self._lock:
                        self.placeholders_gone[pod.spec.node_name].append(now)

    def _note_pod(self, pod: Pod, now: float) -> None:
        given = pod.metadata.annotations.get(SLOT_ANNOTATION, "")
        is_so = {
            "created": True,
            "has its slot": bool(given),
            "gate off": not pod.spec.scheduling_gates,
            "bound": bool(pod.spec.node_name),
            "runs": pod.status.phase == "Running",
        }
        with self._lock:
            for step in (step for step, holds in is_so.items() if holds):
                self.seen[pod.metadata.uid].setdefault(step, now)
            if given:
                self.node_of[pod.metadata.uid] = given.split("/")[2]

    def _follow_nodes(self) -> None:
        known: set[str] = set()
        for item in self._client.watch(NODES, stop=self._stop, type=Node):
            now = time.monotonic()
            match item:
                case Listed(nodes):
                    changed = nodes
                case Changed(node):
                    changed = (node,)
                case _:
                    changed = ()
            for node in changed:
                name = node.metadata.name
                if any(taint.key == HANDOVER_TAINT for taint in node.spec.taints):
                    if name not in known:
                        self.guarded[name].append(now)
                    known.add(name)
                else:
                    known.discard(name)

    def steps(self, uid: str) -> dict[str, float]:
        """Return the seconds from the creation of a pod to each of its steps."""
        with self._lock:
            seen, node = dict(self.seen[uid]), self.node_of.get(uid, "")
            begun = seen["created"]
            for step, times in (("node guarded", self.guarded), ("placeholder gone", self.placeholders_gone)):
                later = [at for at in times[node] if begun <= at <= seen.get("bound", begun)]
                if node and later:
                    seen[step] = min(later)
        return {step: at - begun for step, at in seen.items() if step != "created"}


def play_round(
    client: KubeClient, sightings: Sightings, namespace: str, name: str, count: int, *, hold: bool
) -> list[Any]:
    """Create so many pods at once and return their steps once all run and are gone again."""
    if hold:
        for number in range(count):
            body = build_reservation(f"{name}-{number}", cpu=CPU, owners=label_owner(app=name))
            client.create(RESERVATIONS, body, namespace=namespace)
        eventually(
            "all places are held and proven",
            lambda: all(r.condition(ConditionType.HANDOVER_READY) for r in reservations(client, namespace)),
            seconds=SECONDS,
        )
        time.sleep(1)
    body = build_deployment(name, replicas=count, cpu=CPU)
    for container in body["spec"]["template"]["spec"]["containers"]:
        container |= {"image": PLACEHOLDER_IMAGE, "imagePullPolicy": "IfNotPresent"}  # it is on the nodes already
    client.create(DEPLOYMENTS, body, namespace=namespace)
    mine = lambda: client.list(PODS, namespace=namespace, label_selector=f"app={name}", type=Pod).items  # noqa: E731
    running = lambda: [pod for pod in mine() if pod.status.phase == "Running"]  # noqa: E731
    eventually("they run", lambda: len(running()) == count, seconds=SECONDS)
    time.sleep(0.5)
    steps = [sightings.steps(pod.metadata.uid) for pod in mine()]
    client.delete(DEPLOYMENTS, name, namespace=namespace, propagation="Foreground")
    for one in reservations(client, namespace):
        client.delete(RESERVATIONS, one.metadata.name, namespace=namespace)
    eventually("they are gone", lambda: not mine() and not _is_busy(client), seconds=SECONDS)
    return steps


def _is_busy(client: KubeClient) -> bool:
    ours = client.list(PODS, namespace=OWN_NAMESPACE, type=Pod).items
    return any({PLACEHOLDER_LABEL, FENCE_LABEL} & pod.metadata.labels.keys() for pod in ours)


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


def measure(client: KubeClient, namespace: str, count: int, rounds: int) -> None:
    found: dict[bool, list[dict[str, float]]] = {True: [], False: []}
    with Sightings(client) as sightings:
        for number in range(rounds):
            for hold in (True, False):
                name = f"{'held' if hold else 'plain'}-{count}-{number}"
                found[hold] += play_round(client, sightings, namespace, name, count, hold=hold)
    for hold, label in ((True, "with a held place"), (False, "plain")):
        told = []
        for step in ("bound", "runs"):
            values = [steps[step] for steps in found[hold] if step in steps]
            told.append(
                f"{step} p50 {quantile(values, 0.5):.2f} p90 {quantile(values, 0.9):.2f} max {max(values):.2f} s"
            )
        print(f"{count} at once, {label:<18}: created to {', '.join(told)} ({len(found[hold])} pods)", flush=True)
    medians = [
        f"{step} {statistics.median(values):.2f}"
        for step in STEPS
        if (values := [steps[step] for steps in found[True] if step in steps])
    ]
    print(f"{count} at once, steps (p50 s since created): {', '.join(medians)}", flush=True)


@contextmanager
def cluster(name: str, nodes: int) -> Iterator[KubeClient]:
    """Yield a client of a sandbox in which an operator runs, of one that is there already if it is named."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        settings = SandboxSettings(nodes=nodes, node_cpu="4", node_memory="16Gi")
        sandbox = Sandbox.find(name) if name else stack.enter_context(control_plane(settings, progress=say_nothing))
        stack.enter_context(running_operator(sandbox, Path(folder)))
        yield stack.enter_context(sandbox.connect())


def main() -> None:
    """Run the rounds of each number of pods."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--at-once", type=int, action="append")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--sandbox", default="", help="one that is there already, without an operator")
    chosen = parser.parse_args()
    with cluster(chosen.sandbox, chosen.nodes) as client:
        namespace = make_namespace(client, f"speed-{int(time.time())}")
        for count in chosen.at_once or (1, 6):
            measure(client, namespace, count, chosen.rounds)


if __name__ == "__main__":
    main()
