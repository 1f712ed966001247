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
from dataclasses import dataclass
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import Node
from berth_core.labels import HANDOVER_GATE, HANDOVER_LABEL, HANDOVER_TAINT, RESERVATION_LABEL
from berth_kube.resources import NODES, PODS
from berth_kube.taints import put_taint, remove_taint
from berth_operator.reservation.manifests import build_fence
from berth_operator.settings import PlaceholderSettings
from berth_sandbox.settings import SandboxSettings
from cluster_objects import make_namespace, overbooked_nodes
from contended_nodes import (
    EVERYTHING,
    WHOLE,
    Body,
    ContendedNodes,
    build_pod,
    labels_for_all,
    priority_classes,
    wait_at_most,
)
from control_planes import control_plane, say_nothing
from waiting import eventually

SETTLE_SECONDS: Final = 0.3
BOUND_SECONDS: Final = 30.0
HUNGRY_PRIORITY: Final = 1_000_000
GUARD_TOLERATION: Final = [{"key": HANDOVER_TAINT, "operator": "Exists", "effect": "NoSchedule"}]


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

    ground: ContendedNodes
    way: Way
    hunger: Hunger
    hungry_per_place: int
    window_seconds: float

    def run(self) -> None:
        """Hand every place over, and print who has it."""
        ground, wanted = self.ground, len(self.ground.nodes)
        for node in ground.nodes:
            ground.create(f"placeholder-{node}", build_filler(node))
            ground.create(f"owner-{node}", build_owner())
        eventually("all placeholders run", lambda: ground.running("placeholder") == wanted, seconds=120)
        if not self.hunger.preempts:
            self._starve()
        ground.everywhere(self._close)
        time.sleep(SETTLE_SECONDS)
        ground.everywhere(lambda node: ground.delete(f"placeholder-{node}"))
        eventually("the places are empty", lambda: not ground.pods("placeholder"), seconds=60)
        if self.hunger.preempts:
            self._starve()
        time.sleep(self.window_seconds)
        started = time.monotonic()
        ground.everywhere(self._let_go)
        wait_at_most(lambda: self._kept() == wanted, BOUND_SECONDS)
        took = time.monotonic() - started
        time.sleep(SETTLE_SECONDS)
        kept = self._kept()
        ground.everywhere(self._open)
        time.sleep(2)
        print(
            f"{self.way.name:<12} hungry on {self.hunger.name:<20} kept {kept:>3} of {wanted}, "
            f"hungry placed at the end {ground.placed('hungry'):>3}, "
            f"nodes over-booked {len(overbooked_nodes(ground.client)):>2}, {took:4.1f} s",
            flush=True,
        )

    def _starve(self) -> None:
        count = len(self.ground.nodes) * self.hungry_per_place
        self.ground.create_many("hungry", count, build_hungry(self.hunger))
        self.ground.wait_until_tried("hungry")

    def _close(self, node: str) -> None:
        if self.way.guard:
            put_taint(self.ground.client, node, key=HANDOVER_TAINT, value="9999999999")
        if self.way.fence:
            settings = PlaceholderSettings(namespace=self.ground.namespace)
            self.ground.create(f"fence-{node}", build_fence(node, "", seconds=3600, settings=settings))

    def _open(self, node: str) -> None:
        if self.way.guard:
            remove_taint(self.ground.client, node, key=HANDOVER_TAINT)
        if self.way.fence:
            self.ground.delete(f"fence-{node}")

    def _let_go(self, node: str) -> None:
        client, name, namespace = self.ground.client, f"owner-{node}", self.ground.namespace
        status = {"status": {"nominatedNodeName": node}}
        client.merge_patch(PODS, name, status, namespace=namespace, subresource="status")
        client.merge_patch(PODS, name, {"spec": {"schedulingGates": None}}, namespace=namespace)

    def _kept(self) -> int:
        return sum(
            pod.status.phase == "Running" and pod.metadata.name == f"owner-{pod.spec.node_name}"
            for pod in self.ground.pods("owner")
        )


def build_filler(node: str) -> Body:
    return build_pod("placeholder", WHOLE, {RESERVATION_LABEL: "uid"}, nodeName=node)


def build_owner() -> Body:
    gates = [{"name": HANDOVER_GATE}]
    return build_pod(
        "owner",
        WHOLE,
        {RESERVATION_LABEL: "uid", HANDOVER_LABEL: "true"},
        schedulingGates=gates,
        tolerations=GUARD_TOLERATION,
    )


def build_hungry(hunger: Hunger) -> Body:
    spec: Body = {"priorityClassName": "hungry"} if hunger.preempts else {}
    return build_pod("hungry", WHOLE, {}, schedulerName=hunger.scheduler, tolerations=EVERYTHING, **spec)


def main() -> None:
    """Run every way against every kind of hungry pods."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--places", type=int, default=40)
    parser.add_argument("--hungry", type=int, default=2)
    parser.add_argument("--window", type=float, default=1.0)
    chosen = parser.parse_args()
    settings = SandboxSettings(nodes=chosen.places, node_cpu=WHOLE, node_memory="16Gi", second_scheduler=True)
    with (
        control_plane(settings, progress=say_nothing) as sandbox,
        sandbox.connect() as client,
        labels_for_all(client),
        priority_classes(client, hungry=HUNGRY_PRIORITY),
    ):
        nodes = tuple(node.metadata.name for node in client.list(NODES, type=Node).items)
        for hunger in HUNGERS:
            for way in WAYS:
                name = f"{way.name}-{hunger.name}".replace("+", "-").replace(", ", "-").replace(" ", "-")
                namespace = make_namespace(client, name)
                ground = ContendedNodes(client, namespace, nodes)
                Trial(ground, way, hunger, chosen.hungry, chosen.window).run()
                ground.clear()


if __name__ == "__main__":
    main()
