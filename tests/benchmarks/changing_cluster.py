"""The measurement of runs in a cluster whose workloads others change meanwhile.

Run it as `python tests/benchmarks/changing_cluster.py [--nodes 40 --seconds 30 --seed 1]`. From the first eviction on a
third of the Deployments are scaled, rolled out or deleted, and in the minute after the run a further tenth is rolled
out, the same ones in each round: with a run as it is by default, with one that walks through its plan and leaves freed
nodes unmarked, and without any, where a planner with hindsight says how many nodes could be empty. It prints the empty
nodes at the end of each run and a minute later.
"""
# ruff: noqa: T201 - it prints, and finds what the tests share

import argparse
import json
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from benchmarks.descheduler_scale import FirstEviction, is_workload
from benchmarks.operator_load import add_nodes
from berth_core import Pod
from berth_core.migration_plans import MigrationPlan, MoveState
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, NODES, PDBS, PODS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from berth_sandbox.workload import DeploymentPlan, fill_cluster
from control_planes import control_plane, say_nothing
from descheduling_stage import Run
from service_processes import running_operator, script
from waiting import eventually

NODE_CPU = "16"
AFTERWARDS_SECONDS = 60.0
CHANGED_SHARE = 3
"""One in this many Deployments is changed during a run."""
ROLLED_LATER = 10
"""One in this many is rolled out afterwards."""

PLANNER = ("--strategy=consolidate",)
BEFORE = ("--max-replans=0", "--no-taint-freed")


@dataclass(frozen=True)
class Round:
    """What came of one round."""

    empty: int
    freed: int = 0
    skipped: int = 0
    moves: int = 0
    plans: int = 0
    seconds: float = 0.0


class Changes:
    """What happens to a third of the Deployments, spread over some seconds; the same seed draws the same."""

    def __init__(self, client: KubeClient, deployments: Sequence[DeploymentPlan], seed: int, seconds: float) -> None:
        self._client = client
        draw = random.Random(seed)  # noqa: S311 - it must be the same again
        chosen = draw.sample(sorted(deployments, key=lambda one: one.name), len(deployments) // CHANGED_SHARE)
        others = sorted(set(deployments).difference(chosen), key=lambda one: one.name)
        self._changes = [(one, number % 3, draw.random()) for number, one in enumerate(chosen)]
        self._later = [(one, 1, draw.random()) for one in draw.sample(others, len(deployments) // ROLLED_LATER)]
        self._seconds = seconds

    def happen(self) -> None:
        self._spread(self._changes, self._seconds)

    def happen_afterwards(self) -> None:
        self._spread(self._later, AFTERWARDS_SECONDS)

    def _spread(self, changes: Sequence[tuple[DeploymentPlan, int, float]], seconds: float) -> None:
        for deployment, kind, share in changes:
            self._change(deployment, kind, share)
            time.sleep(seconds / len(changes))

    def _change(self, one: DeploymentPlan, kind: int, share: float) -> None:
        if kind == 0:
            self._patch(one, {"spec": {"replicas": max(1, round(one.replicas_after * (0.5 + share)))}})
        elif kind == 1:
            again = {"berth.example.com/rolled": str(share)}
            self._patch(one, {"spec": {"template": {"metadata": {"annotations": again}}}})
        else:
            self._client.delete(DEPLOYMENTS, one.name, namespace=one.namespace, propagation="Background")

    def _patch(self, one: DeploymentPlan, body: dict[str, Any]) -> None:
        self._client.merge_patch(DEPLOYMENTS, one.name, body, namespace=one.namespace)


def workload(client: KubeClient) -> list[Pod]:
    return [pod for pod in client.list(PODS, type=Pod).items if is_workload(pod)]


def empty_nodes(client: KubeClient) -> int:
    used = {pod.spec.node_name for pod in workload(client)}
    return sum(node["metadata"]["name"] not in used for node in client.list(NODES).items)


def is_settled(client: KubeClient) -> bool:
    wanted = sum(one["spec"]["replicas"] for one in client.list(DEPLOYMENTS).items)
    pods = workload(client)
    return len(pods) == wanted and all(pod.is_ready and not pod.is_terminating for pod in pods)


def clear(client: KubeClient) -> None:
    for resource in (DEPLOYMENTS, PDBS):
        for one in client.list(resource).items:
            meta = one["metadata"]
            client.delete(resource, meta["name"], namespace=meta["namespace"], propagation="Background")
    eventually("the pods are gone", lambda: not workload(client), seconds=300)
    for resource in (MIGRATION_PLANS, NODES):
        for one in client.list(resource).items:
            client.delete(resource, one["metadata"]["name"])


def in_hindsight(sandbox: Sandbox, client: KubeClient, changes: Changes) -> Round:
    """Let the changes happen, and return what a plan for the cluster as it is then would reach."""
    changes.happen()
    eventually("the pods have settled", lambda: is_settled(client), seconds=300)
    empty = empty_nodes(client)
    command = [script("berth"), "plan", f"--kubeconfig={sandbox.kubeconfig}", "--output=json", *PLANNER]
    plan = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    freed = len(plan["predicted"]["freedNodes"])
    return Round(empty=empty + freed, freed=freed, moves=plan["predicted"]["moves"])


def with_a_run(sandbox: Sandbox, client: KubeClient, changes: Changes, folder: Path, options: Sequence[str]) -> Round:
    """Let the changes happen during a run, and return what came of it a minute later."""
    first = FirstEviction(client)
    watching = threading.Thread(target=first.watch, daemon=True)
    watching.start()
    time.sleep(2)
    run = Run(sandbox.service_account_kubeconfig("berth-descheduler"), folder, (*PLANNER, "--moves=Evict", *options))
    with run:
        begun = time.monotonic()
        watching.join(120)
        changes.happen()
        run.wait(900)
        seconds = time.monotonic() - begun
    print(f"  {run.outcome['message']}", flush=True)
    freed = empty_nodes(client)
    changes.happen_afterwards()
    plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    moves = [move for plan in plans for move in plan.status.moves]
    return Round(
        empty=empty_nodes(client),
        freed=freed,
        skipped=sum(move.state is MoveState.SKIPPED for move in moves),
        moves=len(moves),
        plans=len(plans),
        seconds=seconds,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure runs in a cluster whose workloads others change meanwhile.")
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=30.0, help="over which the changes are spread")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", nargs="*", metavar="ROUND", help="only these rounds, by their names")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        control_plane(SandboxSettings(nodes=0), progress=say_nothing) as sandbox,
    ):
        folder = Path(name)
        with sandbox.connect() as client, running_operator(sandbox, folder):
            rounds: dict[str, Callable[[Changes], Round]] = {
                "a run": lambda changes: with_a_run(sandbox, client, changes, folder, ()),
                "a planner with hindsight": lambda changes: in_hindsight(sandbox, client, changes),
                "a run that walks through": lambda changes: with_a_run(sandbox, client, changes, folder, BEFORE),
            }
            found: dict[str, Round] = {}
            for title in options.rounds or rounds:
                add_nodes(sandbox, options.nodes, NODE_CPU)
                filled = fill_cluster(client, seed=options.seed, timeout_seconds=300)
                found[title] = rounds[title](Changes(client, filled.deployments, options.seed, options.seconds))
                print(f"{title}: {found[title]}", flush=True)
                clear(client)
            best = found.get("a planner with hindsight")
            for title, one in found.items() if best else ():
                print(f"{title}: {one.empty} of {best.empty} empty nodes, {one.empty / best.empty:.0%}")


if __name__ == "__main__":
    main()
