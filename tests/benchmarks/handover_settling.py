"""Measures how long a node has to stay closed after the owner of a place was bound, beside a scheduler that sees late.

    python tests/benchmarks/handover_settling.py [--hand-overs 2000] [--nodes 40] [--lag 2] [--seen pods] [--way NAME]

Each node is one place, and it changes hands again and again by the protocol's own calls: fence, guard, without a fence
wait, delete the pod that is there, nominate the next one, un-gate it, see it bound, wait, guard off, fence off. Owners
are bound by the stock scheduler. Beside it, a second one tries to place hungry pods, and its watch of pods or nodes
brings everything late. Some hungry pods tolerate nothing, some everything (no guard alone keeps these off) and, if
asked for, some are placeholders of other Reservations. Prints for each way and view how many places went to another
pod, and how many nodes were over-booked:

    guard        our taint alone, taken off so many seconds after the binding was seen
    guard+fence  a fence as well, which goes right after the guard

Nothing of Berth runs: what is measured are schedulers.
"""

# ruff: noqa: T201 - it prints

import argparse
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import Node, Pod
from berth_core.labels import HANDOVER_GATE, HANDOVER_LABEL, HANDOVER_TAINT, PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_kube.errors import NotFoundError
from berth_kube.resources import NODES, PODS
from berth_kube.taints import put_taint, remove_taint
from berth_kube.watch_items import Changed, Removed
from berth_operator.reservation.manifests import build_fence
from berth_operator.settings import PlaceholderSettings
from berth_sandbox.settings import SandboxSettings
from cluster_objects import make_namespace
from contended_nodes import EVERYTHING, WHOLE, Body, ContendedNodes, build_pod, labels_for_all, priority_classes
from control_planes import control_plane, say_nothing
from late_scheduler import LATE_SCHEDULER, late_scheduler
from waiting import eventually

GUARD_SECONDS: Final = 0.3
"""Between the guard and the deletion of the pod that is there."""
BOUND_SECONDS: Final = 120.0
TOLERATION: Final = [{"key": HANDOVER_TAINT, "operator": "Exists", "effect": "NoSchedule"}]
OF_OWNERS: Final = {RESERVATION_LABEL: "uid", HANDOVER_LABEL: "true"}


@dataclass(frozen=True)
class Way:
    """One way of keeping a place, and when that ends after the binding."""

    fence: bool
    settle_seconds: float

    def __str__(self) -> str:
        return f"{'guard+fence' if self.fence else 'guard'}, {self.settle_seconds:g} s"


@dataclass(frozen=True)
class View:
    """What the second scheduler sees late, and by how much."""

    plural: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        return f"{self.plural} seen {self.seconds:g} s late" if self.plural else "all seen at once"


@dataclass(frozen=True)
class Hunger:
    """One kind of pods that wait for the places."""

    name: str
    labels: Body = field(default_factory=dict)
    spec: Body = field(default_factory=dict)


ORDINARY: Final = Hunger("ordinary")
TOLERANT: Final = Hunger("tolerant", spec={"tolerations": EVERYTHING})
PLACEHOLDERS: Final = Hunger("placeholder", {RESERVATION_LABEL: "other", PLACEHOLDER_LABEL: "true"})
HUNGERS: Final = (ORDINARY, TOLERANT, PLACEHOLDERS)
DEFAULT_HUNGERS: Final = ("ordinary", "tolerant")
WAYS: Final = (
    Way(fence=False, settle_seconds=0.0),
    Way(fence=False, settle_seconds=0.3),
    Way(fence=False, settle_seconds=3.0),
    Way(fence=True, settle_seconds=0.0),
    Way(fence=True, settle_seconds=0.3),
    Way(fence=True, settle_seconds=3.0),
)


class Board:
    """Which pod of a namespace is bound to which node, as a watch brings it."""

    def __init__(self, ground: ContendedNodes) -> None:
        self._ground = ground
        self._news = threading.Condition()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._nodes: dict[str, str] = {}
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()

    def node_of(self, name: str, *, seconds: float = 0.0) -> str:
        """Return the node of a pod, which is waited for so long; "" without one."""
        with self._news:
            self._news.wait_for(lambda: name in self._nodes, seconds)
            return self._nodes.get(name, "")

    def hungry_on(self, node: str) -> list[str]:
        with self._news:
            return [name for name, place in self._nodes.items() if place == node and name.startswith("hungry-")]

    def _follow(self) -> None:
        client, namespace = self._ground.client, self._ground.namespace
        for item in client.watch(PODS, stop=self._stop, namespace=namespace, type=Pod):
            with self._news:
                match item:
                    case Changed(pod) if pod.spec.node_name:
                        self._nodes[pod.metadata.name] = pod.spec.node_name
                    case Removed(pod):
                        self._nodes.pop(pod.metadata.name, None)
                self._news.notify_all()


@dataclass(frozen=True)
class Trial:
    """One way beside a scheduler with one view."""

    ground: ContendedNodes
    board: Board
    way: Way
    view: View
    hand_overs: int
    faults: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def run(self, hunger: Iterable[Hunger]) -> None:
        ground = self.ground
        for node in ground.nodes:
            ground.create(f"owner-{node}-0", build_pod("owner", WHOLE, OF_OWNERS, nodeName=node))
        for kind in hunger:
            for number in range(len(ground.nodes)):
                self._starve(kind, number)
        ground.wait_until_tried("hungry")
        started = time.monotonic()
        rounds = -(-self.hand_overs // len(ground.nodes))
        with ThreadPoolExecutor(len(ground.nodes)) as pool:
            list(pool.map(lambda node: self._hand_over_again_and_again(node, rounds), ground.nodes))
        faults = ", ".join(f"{self.faults[name]} {name}" for name in sorted(self.faults)) or "no fault"
        taken = sorted(self.seconds)
        print(
            f"{self.view!s:<24} {self.way!s:<20} {rounds * len(ground.nodes):>5} hand-overs in "
            f"{time.monotonic() - started:>4.0f} s, un-gated to bound p50 {taken[len(taken) // 2]:.2f} "
            f"p99 {taken[len(taken) * 99 // 100]:.2f} s: {faults}",
            flush=True,
        )

    def _starve(self, kind: Hunger, number: int) -> None:
        body = build_pod("hungry", WHOLE, kind.labels, schedulerName=LATE_SCHEDULER, **kind.spec)
        self.ground.create(f"hungry-{kind.name}-{number}", body)

    def _hand_over_again_and_again(self, node: str, rounds: int) -> None:
        present = f"owner-{node}-0"
        for number in range(1, rounds + 1):
            owner = f"owner-{node}-{number}"
            gates = [{"name": HANDOVER_GATE}]
            body = build_pod("owner", WHOLE, OF_OWNERS, schedulingGates=gates, tolerations=TOLERATION)
            self.ground.create(
                owner, body | {"spec": body["spec"] | {"nodeSelector": {"kubernetes.io/hostname": node}}}
            )
            self._close(node)
            if not self.way.fence:
                time.sleep(GUARD_SECONDS)
            self.ground.delete(present)
            self._let_go(owner, node)
            if not self._is_bound(owner, node):
                self.board.node_of(owner, seconds=BOUND_SECONDS)
            time.sleep(self.way.settle_seconds)
            self._open(node)
            time.sleep(self.view.seconds + GUARD_SECONDS)  # whoever has not seen all of it acts now
            self._count_intruders(node)
            present = owner

    def _is_bound(self, owner: str, node: str) -> bool:
        """Wait until an owner is bound; whoever is in its way is taken away, and counts."""
        started = time.monotonic()
        while not self.board.node_of(owner, seconds=0.2):
            if time.monotonic() - started > 1 and self.board.hungry_on(node):
                self._remove_intruders(node, "places stolen by")
                return False
            if time.monotonic() - started > BOUND_SECONDS:
                self.faults["owners not bound"] += 1
                return False
        self.seconds.append(time.monotonic() - started)
        return True

    def _count_intruders(self, node: str) -> None:
        if self.board.hungry_on(node):
            self._remove_intruders(node, "nodes over-booked by")

    def _remove_intruders(self, node: str, what: str) -> None:
        for name in self.board.hungry_on(node):
            _, kind, number = name.split("-")
            self.faults[f"{what} {kind} pods"] += 1
            with suppress(NotFoundError):
                self.ground.delete(name)
            (hunger,) = (one for one in HUNGERS if one.name == kind)
            eventually("it is gone", lambda name=name: not self.board.node_of(name), seconds=30)
            self._starve(hunger, int(number))

    def _close(self, node: str) -> None:
        if self.way.fence:
            settings = PlaceholderSettings(namespace=self.ground.namespace)
            self.ground.create(f"fence-{node}", build_fence(node, "", seconds=3600, settings=settings))
        put_taint(self.ground.client, node, key=HANDOVER_TAINT, value="9999999999")

    def _open(self, node: str) -> None:
        remove_taint(self.ground.client, node, key=HANDOVER_TAINT)
        if self.way.fence:
            self.ground.delete(f"fence-{node}")

    def _let_go(self, owner: str, node: str) -> None:
        client, namespace = self.ground.client, self.ground.namespace
        status = {"status": {"nominatedNodeName": node}}
        client.merge_patch(PODS, owner, status, namespace=namespace, subresource="status")
        client.merge_patch(PODS, owner, {"spec": {"schedulingGates": None}}, namespace=namespace)


def main() -> None:
    """Run the chosen ways beside each view."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hand-overs", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=40)
    parser.add_argument("--lag", type=float, default=2.0)
    parser.add_argument("--seen", choices=["at-once", "pods", "nodes"], action="append")
    parser.add_argument("--way", action="append", help="such as 'guard+fence, 0.3 s'; all by default")
    parser.add_argument("--hungry", action="append", choices=[one.name for one in HUNGERS])
    chosen = parser.parse_args()
    views = [
        View() if seen == "at-once" else View(seen, chosen.lag) for seen in chosen.seen or ("at-once", "pods", "nodes")
    ]
    settings = SandboxSettings(nodes=chosen.nodes, node_cpu=WHOLE, node_memory="16Gi")
    with (
        control_plane(settings, progress=say_nothing) as sandbox,
        sandbox.connect() as client,
        labels_for_all(client),
        priority_classes(client),
    ):
        nodes = tuple(node.metadata.name for node in client.list(NODES, type=Node).items)
        for place, view in enumerate(views):
            for turn, way in enumerate(WAYS):
                if chosen.way and str(way) not in chosen.way:
                    continue
                hunger = [one for one in HUNGERS if one.name in (chosen.hungry or DEFAULT_HUNGERS)]
                hunger = [one for one in hunger if way.fence or one is not TOLERANT]
                ground = ContendedNodes(client, make_namespace(client, f"settling-{place}-{turn}"), nodes)
                board = Board(ground)
                with (
                    tempfile.TemporaryDirectory() as folder,
                    late_scheduler(sandbox, Path(folder), plural=view.plural, seconds=view.seconds),
                ):
                    Trial(ground, board, way, view, chosen.hand_overs).run(hunger)
                board.stop()
                ground.clear()


if __name__ == "__main__":
    main()
