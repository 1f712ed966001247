"""Measures whether gangs that starve on a busy cluster run, and how many nodes are fenced for them at most.

    python tests/benchmarks/starving_jobs.py [--gangs 50] [--nodes 50] [--percent 20] [--seconds 240] [--without]

Small pods fill the nodes; each runs for some seconds and is replaced at once by one that waits already, so that no node
is ever free. Beside them gangs wait, each of whose pods wants a whole node. A gang that runs ends soon. Prints how many
gangs have run, in which time, and the most nodes that were fenced at once. `--without` runs no descheduler.
"""

# ruff: noqa: T201, S311 - it prints; its chances are no secrets

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import POLICY_API_VERSION, POLICY_KIND, STANDING_FENCE_LABEL, Pod
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import DESCHEDULER_POLICIES, PODS
from berth_sandbox.bootstrap import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import make_namespace, pod_template
from policy_scenes import DeschedulerReplica
from service_processes import running_operator

CPUS: Final = 4
GANG_SIZE: Final = 2
GROUP: Final = "scheduling.x-k8s.io/pod-group"
SMALL_SECONDS: Final = (8.0, 16.0)
GANG_SECONDS: Final = 3.0
LOOK_SECONDS: Final = 0.5
HUNGRY_SHARE: Final = 1.3


@dataclass
class Churn:
    """Small pods that come and go, and gangs that end when they have run for a while."""

    client: KubeClient
    namespace: str
    small: int
    chance: random.Random
    ends: dict[str, float] = field(default_factory=dict)
    run: set[str] = field(default_factory=set)
    most_fenced: int = 0
    number: int = 0

    def create(self, name: str, cpu: int, labels: dict[str, str]) -> None:
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **pod_template(labels, cpu=str(cpu))}
        body["metadata"]["name"] = name
        body["spec"]["restartPolicy"] = "Never"
        self.client.create(PODS, body, namespace=self.namespace)

    def look(self) -> None:
        """Let end what has run for long enough, replace it, and count what is fenced."""
        now = time.monotonic()
        pods = self.client.list(PODS, namespace=self.namespace, type=Pod).items
        gangs: dict[str, list[Pod]] = {}
        for pod in pods:
            if GROUP in pod.metadata.labels:
                gangs.setdefault(pod.metadata.labels[GROUP], []).append(pod)
            elif pod.status.phase == "Running" and self.ends.setdefault(pod.key, now + self._lifetime()) <= now:
                self._end(pod)
        for name, members in gangs.items():
            if all(pod.status.phase == "Running" for pod in members):
                self.run.add(name)
                if self.ends.setdefault(name, now + GANG_SECONDS) <= now:
                    for pod in members:
                        self._end(pod)
        left = sum(GROUP not in pod.metadata.labels for pod in pods)
        for _ in range(self.small - left):
            self.number += 1
            self.create(f"small-{self.number}", 1, {"app": "small"})
        fences = self.client.list(
            PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod
        ).items
        self.most_fenced = max(self.most_fenced, len({pod.spec.node_name for pod in fences}))

    def _lifetime(self) -> float:
        return self.chance.uniform(*SMALL_SECONDS)

    def _end(self, pod: Pod) -> None:
        with suppress(NotFoundError):
            self.client.delete(PODS, pod.metadata.name, namespace=self.namespace, grace_seconds=0)


def build_policy(percent: int) -> dict[str, Any]:
    args = {"starvingJobTimeThreshold": 5, "reservedNodePercent": percent, "moves": "Never", "giveUpAfter": "5m"}
    profile = {
        "name": "default",
        "pluginConfig": [{"name": "StarvingJobs", "args": args}],
        "plugins": {"balance": {"enabled": ["StarvingJobs"]}},
    }
    spec = {"trigger": {"interval": "10s"}, "mode": "Auto", "profiles": [profile]}
    return {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": "starving"}, "spec": spec}


@contextmanager
def churning(churn: Churn) -> Iterator[None]:
    """Let pods come and go meanwhile."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(LOOK_SECONDS):
            churn.look()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)


def measure(options: argparse.Namespace, sandbox: Sandbox, client: KubeClient, folder: Path) -> bool:
    """Run the gangs beside the small pods and print what became of them."""
    sandbox.add_nodes(options.nodes, NodeShape(cpu=str(CPUS), memory="64Gi"))
    namespace = make_namespace(client, "busy")
    small = int(options.nodes * CPUS * HUNGRY_SHARE)
    churn = Churn(client, namespace, small, random.Random(options.seed))
    churn.look()
    time.sleep(10)
    for gang in range(options.gangs):
        for member in range(GANG_SIZE):
            churn.create(f"gang-{gang}-{member}", CPUS, {GROUP: f"gang-{gang}"})
    service = nullcontext() if options.without else DeschedulerReplica(sandbox, folder)
    with churning(churn), service:
        if not options.without:
            client.create(DESCHEDULER_POLICIES, build_policy(options.percent))
        begun = time.monotonic()
        while len(churn.run) < options.gangs and time.monotonic() - begun < options.seconds:
            time.sleep(1)
        seconds = time.monotonic() - begun
    allowed = max(1, options.nodes * options.percent // 100)
    print(f"{len(churn.run)} of {options.gangs} gangs of {GANG_SIZE} whole nodes have run after {seconds:.0f} s")
    print(f"at most {churn.most_fenced} of {options.nodes} nodes were fenced at once; {allowed} may be")
    print(f"{churn.number} small pods were created meanwhile")
    return len(churn.run) == options.gangs and churn.most_fenced <= allowed


def fence_limits(percent: int) -> tuple[str, str]:
    """Return the options by which the operator fences as many nodes for the one namespace."""
    return f"--limit=maxFencedNodes={percent}%", f"--cluster-limit=maxFencedNodes={percent}%"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gangs", type=int, default=50)
    parser.add_argument("--nodes", type=int, default=50)
    parser.add_argument("--percent", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        Sandbox.start(SandboxSettings(nodes=0), progress=lambda _: None) as sandbox,
        sandbox.connect() as client,
        running_operator(sandbox, Path(name), *fence_limits(options.percent)),
    ):
        return 0 if measure(options, sandbox, client, Path(name)) else 1


if __name__ == "__main__":
    sys.exit(main())
