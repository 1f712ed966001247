"""Measures what keeps others off a node for hours: a fence, beside a NoSchedule taint and beside nothing.

    python tests/benchmarks/standing_fences.py [scene ...] [--seconds 12]

A standing fence is two pods without requests, put on the node by `spec.nodeName`, whose anti-affinity is against all
pods but those that may enter. Prints, and decides nothing; `--seconds` is how long a scene watches. The scenes:

    intruders   who gets onto free fenced nodes: priorities, tolerations, schedulers, what was pending or nominated
    volcano     the same for pods of Volcano's scheduler
    many        100 free fenced nodes, five hungry pods of two schedulers for each
    system      pods of a system priority come, and a preempted fence is made again, sooner or later
    race        nodes are fenced while pods are scheduled onto them
    waking      how soon the pods that a fence kept off are placed when it is gone
    awaited     who gets what ends on a fenced node, and how soon; with and without churn elsewhere
    label       how soon a pod is placed that gets a label which the fence admits
    daemons     the roll-out of a DaemonSet over nodes that are kept
    spread      what a kept node does to a Deployment that spreads over all nodes
    cost        scheduling 2,000 pods on 1,000 nodes, 0, 100 and 500 of them fenced, or tainted

Nothing of Berth runs: what is measured are the schedulers.
"""

# ruff: noqa: T201 - it prints

import argparse
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import VOLCANO_SCHEDULER, Node, Pod
from berth_core.labels import (
    BEST_EFFORT_LABEL,
    DAEMON_POD_LABEL,
    FENCE_LABEL,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    SUCCESSOR_LABEL,
)
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import DAEMON_SETS, DEPLOYMENTS, NODES, PODS
from berth_kube.taints import put_taint, remove_taint
from berth_kube.watch_items import Changed, Removed
from berth_operator.reservation.manifests import FenceKind
from berth_sandbox.components import Component
from berth_sandbox.configuration import SECOND_SCHEDULER_NAME
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace
from contended_nodes import (
    AWAITING,
    EVERYTHING,
    HALF,
    WHOLE,
    Body,
    ContendedNodes,
    Sightings,
    build_pod,
    labels_for_all,
    priority_classes,
    quantiles,
    tied_to,
    wait_at_most,
)
from control_planes import control_plane, say_nothing
from waiting import eventually

HIGH, NEVER = "high", "never"
SYSTEM_CLUSTER: Final = "system-cluster-critical"
SYSTEM_NODE: Final = "system-node-critical"
TAINT: Final = "example.com/kept"
CHURN: Final = "example.com/churn"
FINALIZER: Final = "example.com/slow"
HOSTNAME: Final = "kubernetes.io/hostname"
SCHEDULERS: Final = ("default-scheduler", SECOND_SCHEDULER_NAME)
ORDINARY_PODS: Final = 2000
_NUMBERS: Final = count(1)


@dataclass(frozen=True)
class Bench:
    """A sandbox with its nodes."""

    sandbox: Sandbox
    client: KubeClient
    nodes: tuple[str, ...]
    watch_seconds: float

    @contextmanager
    def contended(self) -> Iterator[ContendedNodes]:
        """Yield the nodes with a new namespace, whose pods are deleted afterwards."""
        ground = ContendedNodes(self.client, make_namespace(self.client, f"trial-{next(_NUMBERS)}"), self.nodes)
        try:
            yield ground
        finally:
            self.untaint()
            ground.clear()

    def taint(self, node: str) -> None:
        put_taint(self.client, node, key=TAINT, value="true")

    def untaint(self) -> None:
        for node in self.client.list(NODES, type=Node).items:
            if any(taint.key == TAINT for taint in node.spec.taints):
                remove_taint(self.client, node.metadata.name, key=TAINT)

    def keep(self, ground: ContendedNodes, keeper: str) -> None:
        """Keep others off all nodes by "nothing", "taint" or "fence", the last with a class after a comma."""
        kind, _, priority_class = keeper.partition(", ")
        if kind == "taint":
            ground.everywhere(self.taint)
        elif kind == "fence":
            ground.everywhere(lambda node: ground.fence(node, priority_class=priority_class))
        time.sleep(1)


# --- who gets in -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Hunger:
    """Who wants the nodes, and when: before or after they are kept."""

    name: str
    spec: Body = field(default_factory=dict)
    labels: Body = field(default_factory=dict)
    comes: str = "after"


def against(selector: Body) -> Body:
    term = {"topologyKey": HOSTNAME, "namespaceSelector": {}, "labelSelector": selector}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


OF_A_HANDOVER: Final = {RESERVATION_LABEL: "uid"}
PLACEHOLDER: Final = OF_A_HANDOVER | {PLACEHOLDER_LABEL: "true"}


def hungers(second: str) -> tuple[Hunger, ...]:
    """Return all kinds of pods, with the name of the other scheduler."""
    other, high = {"schedulerName": second}, {"priorityClassName": HIGH}
    return (
        Hunger("equal priority"),
        Hunger("equal priority, other scheduler", other),
        Hunger("priority 1e9", high),
        Hunger("priority 1e9, other scheduler", other | high),
        Hunger("own anti-affinity against its like", against({"matchLabels": {"app": "hungry"}})),
        Hunger("own anti-affinity against all", against({})),
        Hunger("pending before", comes="before"),
        Hunger("pending before, other scheduler", other, comes="before"),
        Hunger("nominated before", high, comes="nominated"),
        Hunger("scheduler restarted", comes="restart"),
        Hunger(SYSTEM_CLUSTER, {"priorityClassName": SYSTEM_CLUSTER}),
        Hunger(SYSTEM_NODE, {"priorityClassName": SYSTEM_NODE}),
        Hunger("plain placeholder", labels=PLACEHOLDER),
        Hunger("awaited placeholder", labels=AWAITING),
        Hunger("awaited placeholder, other scheduler", other, labels=AWAITING),
        Hunger("successor", labels=PLACEHOLDER | {SUCCESSOR_LABEL: "true"}),
        Hunger("in a hand-over", labels=OF_A_HANDOVER),
        Hunger("label of a DaemonSet", labels={DAEMON_POD_LABEL: "1"}),
        Hunger("label best-effort", labels={BEST_EFFORT_LABEL: "true"}),
        Hunger("spec.nodeName", comes="bound"),
    )


def measure_intruders(bench: Bench) -> None:
    for hunger in hungers(SECOND_SCHEDULER_NAME):
        for keeper in ("taint", "fence", f"fence, {SYSTEM_NODE}"):
            _measure_hunger(bench, keeper, hunger, settle_seconds=3)


def measure_volcano(bench: Bench) -> None:
    for hunger in (hungers(VOLCANO_SCHEDULER)[index] for index in (1, 3, 7, 14)):
        for keeper in ("nothing", "taint", "fence"):
            _measure_hunger(bench, keeper, hunger, settle_seconds=bench.watch_seconds)


def _measure_hunger(bench: Bench, keeper: str, hunger: Hunger, *, settle_seconds: float) -> None:
    with bench.contended() as ground:
        hungry = build_pod("hungry", WHOLE, hunger.labels, tolerations=EVERYTHING, **hunger.spec)
        come = lambda: ground.create_many("hungry", 2 * len(ground.nodes), hungry)  # noqa: E731
        is_early = hunger.comes in {"before", "nominated"}
        if is_early:
            for node in ground.nodes:
                _fill(ground, node)
            come()
            ground.wait_until_tried("hungry")
        bench.keep(ground, keeper)
        if is_early:
            for node in ground.nodes:
                _empty(ground, node)
        elif hunger.comes == "bound":
            ground.everywhere(
                lambda node: ground.create(f"hungry-{node}", build_pod("hungry", WHOLE, {}, nodeName=node))
            )
        else:
            come()
        ground.wait_until_tried("hungry")
        if hunger.comes == "restart":
            bench.sandbox.restart(Component.SCHEDULER)
        time.sleep(settle_seconds)
        entered = {pod.spec.node_name for pod in ground.pods("hungry")} - {""}
        standing = Counter(pod.spec.node_name for pod in ground.fences() if not pod.is_terminating)
        whole = sum(pods_there == len(FenceKind) for pods_there in standing.values())
        print(
            f"{hunger.name:<36} {keeper:<28} entered {len(entered):>3} of {len(ground.nodes)} nodes, "
            f"fenced at the end {whole:>3}",
            flush=True,
        )


def _fill(ground: ContendedNodes, node: str) -> None:
    """Put a pod onto a whole node that a preemptor cannot get rid of at once."""
    body = build_pod("filler", WHOLE, {}, nodeName=node)
    body["metadata"]["finalizers"] = [FINALIZER]
    ground.create(f"filler-{node}", body)


def _empty(ground: ContendedNodes, node: str) -> None:
    name, gone = f"filler-{node}", {"metadata": {"finalizers": None}}
    ground.client.merge_patch(PODS, name, gone, namespace=ground.namespace)
    with suppress(NotFoundError):
        ground.delete(name)


def measure_many(bench: Bench) -> None:
    with bench.contended() as ground:
        bench.keep(ground, "fence")
        for index, scheduler in enumerate(("default-scheduler",) * 3 + (SECOND_SCHEDULER_NAME,) * 2):
            spec = {"schedulerName": scheduler, "tolerations": EVERYTHING, "priorityClassName": HIGH}
            ground.create_many(f"hungry-{index}", len(bench.nodes), build_pod("hungry", "1", {}, **spec))
        ground.wait_until_tried("hungry")
        time.sleep(bench.watch_seconds)
        wanted = len(ground.pods("hungry"))
        print(f"{len(bench.nodes)} free fenced nodes, {wanted} hungry pods of 1 cpu: entered {ground.placed('hungry')}")


# --- the fence's own life --------------------------------------------------------------------------------------------

AT_ONCE, WHEN_GONE, NOT = "at once", "when it is gone", "not"
LABELLED: Final = "not, but the system pods get a label"


def measure_system(bench: Bench) -> None:
    """Let system pods come to fenced nodes where pods of the highest user priority wait as well."""
    for how in (AT_ONCE, WHEN_GONE, NOT, LABELLED):
        for scheduler in SCHEDULERS:
            with bench.contended() as ground, _remaking(ground, how) as remade:
                bench.keep(ground, f"fence, {SYSTEM_NODE}" if how == LABELLED else "fence")
                spec = {"schedulerName": scheduler, "tolerations": EVERYTHING, "priorityClassName": HIGH}
                ground.create_many("hungry", 50, build_pod("hungry", HALF, {}, **spec))
                ground.wait_until_tried("hungry")
                ground.create_many("system", 3, build_pod("system", HALF, {}, priorityClassName=SYSTEM_CLUSTER))
                ground.wait_until_tried("system")
                if how == LABELLED:
                    for pod in ground.pods("system"):
                        _admit(ground, pod.metadata.name)
                time.sleep(bench.watch_seconds)
                print(
                    f"hungry on {scheduler:<17} fence made again {how:<36}: system pods placed "
                    f"{ground.placed('system')} of 3, intruders {ground.placed('hungry'):>2}, made again {len(remade)}",
                    flush=True,
                )


def _admit(ground: ContendedNodes, name: str) -> None:
    labels = {"metadata": {"labels": {BEST_EFFORT_LABEL: "true"}}}
    ground.client.merge_patch(PODS, name, labels, namespace=ground.namespace)


@contextmanager
def _remaking(ground: ContendedNodes, how: str) -> Iterator[list[str]]:
    """Make each fence again that a scheduler deletes; yield the nodes."""
    stop, remade, seen = threading.Event(), [], set()

    def follow() -> None:
        selector = f"{FENCE_LABEL}=true"
        for item in ground.client.watch(PODS, stop=stop, namespace=ground.namespace, label_selector=selector, type=Pod):
            match item:
                case Changed(pod) if how == AT_ONCE and pod.is_terminating and pod.metadata.uid not in seen:
                    pass
                case Removed(pod) if how == WHEN_GONE:
                    pass
                case _:
                    continue
            seen.add(pod.metadata.uid)
            remade.append(pod.spec.node_name)
            ground.fence(pod.spec.node_name, number=len(remade))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield remade
    finally:
        stop.set()
        thread.join()


def measure_race(bench: Bench) -> None:
    """Fence nodes one after the other while pods are scheduled as fast as they can be made."""
    for schedulers in (SCHEDULERS[:1], SCHEDULERS):
        with bench.contended() as ground, Sightings(ground) as seen:
            over, numbers = threading.Event(), count()

            def flood(over: threading.Event = over, numbers: Iterator[int] = numbers) -> None:
                while not over.is_set():
                    number = next(numbers)
                    spec = {"schedulerName": schedulers[number % len(schedulers)], "tolerations": EVERYTHING}  # noqa: B023
                    ground.create(f"hungry-{number}", build_pod("hungry", "10m", {}, **spec))

            threads = [threading.Thread(target=flood) for _ in range(4)]
            for thread in threads:
                thread.start()
            time.sleep(2)
            fenced = {}
            for node in bench.nodes[: len(bench.nodes) * 4 // 5]:
                fenced[node] = (ground.fence(node), time.monotonic())
                time.sleep(0.1)
            time.sleep(3)
            over.set()
            for thread in threads:
                thread.join()
            ground.wait_until_tried("hungry")
        came = [(at, *fenced[node], version) for at, node, version in seen.bound.values() if node in fenced]
        late = [at - since for at, fence, since, version in came if version > fence]
        print(
            f"{len(schedulers)} schedulers, {len(seen.bound)} pods placed, {len(fenced)} nodes fenced meanwhile: "
            f"{len(came) - len(late)} pods there before, {len(late)} bound after the fence was made, {quantiles(late)}",
            flush=True,
        )


def measure_waking(bench: Bench) -> None:
    for in_one in (True, False):
        with bench.contended() as ground, Sightings(ground) as seen:
            ground.everywhere(lambda node, in_one=in_one: ground.fence(node, in_one=in_one))
            ground.create_many("hungry", len(ground.nodes), build_pod("hungry", WHOLE, {}))
            ground.wait_until_tried("hungry")
            time.sleep(2)
            started = time.monotonic()
            ground.unfence()
            wait_at_most(lambda: ground.placed("hungry") == len(ground.nodes), bench.watch_seconds)
            took = [at - started for name, (at, *_) in seen.bound.items() if name.startswith("hungry")]
            shape = "one pod with both terms" if in_one else "a pod for each term"
            print(
                f"fences gone, {shape:<24}: placed within {bench.watch_seconds:g} s {len(took):>2} of "
                f"{len(ground.nodes)}, {quantiles(took)}",
                flush=True,
            )


# --- who may enter ---------------------------------------------------------------------------------------------------


def measure_awaited(bench: Bench) -> None:
    """Let the two pods of each node end, the second one when the first half of all nodes is free."""
    for keeper in ("nothing", "fence"):
        for churn in (0, 20):
            with bench.contended() as ground, Sightings(ground) as seen:
                _await_capacity(bench, ground, keeper)
                with _churning(ground, churn):
                    time.sleep(bench.watch_seconds * (3 if churn else 1))
                    for part in ("a", "b"):
                        for node in ground.nodes:
                            ground.delete(f"filler-{part}-{node}", grace_seconds=None)
                            time.sleep(0.2)
                    wait_at_most(lambda: ground.running("awaited") == len(ground.nodes), 30)
                    time.sleep(1)
                free = {node: seen.gone[f"filler-b-{node}"] for node in ground.nodes}
                bound = [seen.bound[f"awaited-{n}"][0] - at for n, at in free.items() if f"awaited-{n}" in seen.bound]
                ran = [seen.ran[f"awaited-{n}"] - at for n, at in free.items() if f"awaited-{n}" in seen.ran]
                print(
                    f"{keeper:<8} {churn:>2} pods/s elsewhere: awaited placeholders running {len(ran):>2} of "
                    f"{len(ground.nodes)}, intruders {ground.placed('hungry'):>2}; from the end of the last pod to "
                    f"bound {quantiles(bound)}, to running {quantiles(ran)}",
                    flush=True,
                )


def _await_capacity(bench: Bench, ground: ContendedNodes, keeper: str) -> None:
    """Fill the nodes in halves; have hungry pods of both schedulers wait, then the awaited placeholders."""
    for node in ground.nodes:
        for part in ("a", "b"):
            ground.create(f"filler-{part}-{node}", build_pod("filler", HALF, {}, nodeName=node))
    for scheduler in SCHEDULERS:
        count_of_each = 2 * len(ground.nodes)
        body = build_pod("hungry", HALF, {}, schedulerName=scheduler)
        ground.create_many(f"hungry-{scheduler}", count_of_each, body)
    ground.wait_until_tried("hungry")
    bench.keep(ground, keeper)
    for node in ground.nodes:
        body = build_pod("awaited", WHOLE, AWAITING, affinity=tied_to(node), priorityClassName=NEVER)
        ground.create(f"awaited-{node}", body)
    ground.wait_until_tried("awaited")


@contextmanager
def _churning(ground: ContendedNodes, per_second: int) -> Iterator[None]:
    """Have pods come and go on nodes of their own, which wakes all that wait again and again."""
    stop = threading.Event()

    def churn() -> None:
        for number in count():
            if stop.wait(1 / per_second):
                return
            spec = {"nodeSelector": {CHURN: "true"}, "tolerations": EVERYTHING}
            ground.create(f"churn-{number}", build_pod("churn", "1", {}, **spec))
            if number >= 10:
                ground.delete(f"churn-{number - 10}")

    threads = [threading.Thread(target=churn)] if per_second else []
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def measure_label(bench: Bench) -> None:
    with bench.contended() as ground, Sightings(ground) as seen:
        bench.keep(ground, "fence")
        names = [f"modest-{number}" for number in range(20)]
        for name in names:
            ground.create(name, build_pod("modest", "0", {}, memory="0"))
        ground.wait_until_tried("modest")
        time.sleep(bench.watch_seconds)
        unasked = ground.placed("modest")
        labelled = {}
        for name in names:
            labelled[name] = time.monotonic()
            _admit(ground, name)
            time.sleep(0.2)
        wait_at_most(lambda: ground.running("modest") == len(names), 60)
        took = [seen.bound[name][0] - at for name, at in labelled.items() if name in seen.bound]
        print(
            f"{len(names)} pods without requests: entered without the label {unasked}, with it {len(took)}; "
            f"from the label to bound {quantiles(took)}"
        )


# --- what else it does -----------------------------------------------------------------------------------------------


def measure_daemons(bench: Bench) -> None:
    for keeper in ("nothing", "fence", "taint"):
        with bench.contended() as ground:
            ground.create_daemons(max_unavailable=3)
            wait_at_most(lambda: _daemons(ground).get("numberReady") == len(ground.nodes), 60)
            bench.keep(ground, keeper)
            ground.roll_daemons_out()
            started = time.monotonic()
            done = lambda: _are_new(_daemons(ground), len(ground.nodes))  # noqa: E731
            wait_at_most(done, max(30, bench.watch_seconds))
            took, left = time.monotonic() - started, _daemons(ground)
            print(
                f"roll-out of a DaemonSet, {keeper:<8}: new pods {left.get('updatedNumberScheduled', 0)} of "
                f"{len(ground.nodes)}, ready {left.get('numberReady', 0)}, "
                f"{'complete' if done() else 'stuck'} after {took:.1f} s",
                flush=True,
            )
            ground.client.delete(DAEMON_SETS, "agent", namespace=ground.namespace, propagation="Background")


def _daemons(ground: ContendedNodes) -> Body:
    found: Body = ground.client.get(DAEMON_SETS, "agent", namespace=ground.namespace)
    return found["status"] | {"generation": found["metadata"]["generation"]}


def _are_new(status: Body, wanted: int) -> bool:
    fields = ("desiredNumberScheduled", "updatedNumberScheduled", "numberReady")
    seen = status.get("observedGeneration") == status["generation"]
    return seen and all(status.get(name) == wanted for name in fields)


def measure_spread(bench: Bench) -> None:
    """Keep one node and count the replicas that the others take."""
    for keeper, policy in (("nothing", "Ignore"), ("fence", "Honor"), ("taint", "Ignore"), ("taint", "Honor")):
        with bench.contended() as ground:
            bench.keep(replace(ground, nodes=bench.nodes[:1]), keeper)
            constraint = {
                "maxSkew": 1,
                "topologyKey": HOSTNAME,
                "whenUnsatisfiable": "DoNotSchedule",
                "nodeTaintsPolicy": policy,
                "labelSelector": {"matchLabels": {"app": "spread"}},
            }
            wanted = 3 * len(bench.nodes)
            body = build_deployment("spread", replicas=wanted, cpu="100m", topologySpreadConstraints=[constraint])
            bench.client.create(DEPLOYMENTS, body, namespace=ground.namespace)
            eventually("the replicas exist", lambda: len(ground.pods("spread")) == wanted, seconds=60)  # noqa: B023
            ground.wait_until_tried("spread")
            time.sleep(2)
            print(
                f"one of {len(bench.nodes)} nodes kept by {keeper:<8} nodeTaintsPolicy {policy:<7}: placed "
                f"{ground.placed('spread')} of {wanted} replicas with maxSkew 1",
                flush=True,
            )
            bench.client.delete(DEPLOYMENTS, "spread", namespace=ground.namespace, propagation="Background")


ROUNDS: Final = (("nothing", 0), ("fence", 100), ("fence", 500), ("taint", 500), ("nothing", 0))


def measure_cost(bench: Bench) -> None:
    """Let the scheduler find as many pods as it can schedule, in each round beside other kept nodes."""
    found: dict[str, list[tuple[float, float]]] = {}
    for keeper, count_kept in ROUNDS:
        with bench.contended() as ground:
            bench.keep(replace(ground, nodes=bench.nodes[:count_kept]), keeper)
            pid = bench.sandbox.live_components()[Component.SCHEDULER]
            bench.sandbox.suspend(Component.SCHEDULER)
            ground.create_many("ordinary", ORDINARY_PODS, build_pod("ordinary", "100m", {}))
            bench.sandbox.resume(Component.SCHEDULER)
            started, used = time.monotonic(), _processor_seconds(pid)
            wait_at_most(lambda: ground.placed("ordinary") == ORDINARY_PODS, 240, pause_seconds=1.0)
            per_second = ground.placed("ordinary") / (time.monotonic() - started)
            milliseconds = 1000 * (_processor_seconds(pid) - used) / ORDINARY_PODS
            found.setdefault(f"{keeper} {count_kept}", []).append((per_second, milliseconds))
            text = f"{per_second:5.0f} pods/s, {milliseconds:5.2f} ms of processor a pod"
            print(f"{keeper:<8} on {count_kept:>3} of {len(bench.nodes)} nodes: {text}", flush=True)
    means = {name: [sum(part) / len(rounds) for part in zip(*rounds, strict=True)] for name, rounds in found.items()}
    plain_speed, plain_cost = means["nothing 0"]
    for name, (speed, cost) in means.items():
        print(f"{name:<12}: throughput x{speed / plain_speed:.2f}, processor time x{cost / plain_cost:.2f}")


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# --- the scenes ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """What to measure, and on how many nodes."""

    measure: Callable[[Bench], None]
    nodes: int = 10
    settings: Body = field(default_factory=lambda: {"second_scheduler": True})
    churn_nodes: int = 0


SCENES: Final = {
    "intruders": Scene(measure_intruders),
    "volcano": Scene(measure_volcano, settings={"volcano": True}),
    "many": Scene(measure_many, nodes=100),
    "system": Scene(measure_system),
    "race": Scene(measure_race, nodes=50),
    "waking": Scene(measure_waking),
    "awaited": Scene(measure_awaited, nodes=20, churn_nodes=5),
    "label": Scene(measure_label),
    "daemons": Scene(measure_daemons),
    "spread": Scene(measure_spread, nodes=5),
    "cost": Scene(measure_cost, nodes=1000, settings={}),
}


def run(name: str, watch_seconds: float) -> None:
    scene = SCENES[name]
    settings: dict[str, Any] = {"nodes": scene.nodes, "node_cpu": WHOLE, "node_memory": "16Gi", **scene.settings}
    with (
        control_plane(SandboxSettings(**settings), progress=say_nothing) as sandbox,
        sandbox.connect() as client,
        labels_for_all(client),
        priority_classes(client, high=1_000_000_000, never=0),
    ):
        nodes = tuple(node.metadata.name for node in client.list(NODES, type=Node).items)
        for node in sandbox.add_nodes(scene.churn_nodes, prefix="churn-"):
            client.merge_patch(NODES, node, {"metadata": {"labels": {CHURN: "true"}}})
            put_taint(client, node, key=CHURN, value="true")
        print(f"--- {name}", flush=True)
        scene.measure(Bench(sandbox, client, nodes, watch_seconds))


def main() -> None:
    """Run the scenes that are asked for, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("scenes", nargs="*", choices=[*SCENES, []], metavar="scene")
    parser.add_argument("--seconds", type=float, default=12)
    chosen = parser.parse_args()
    for name in chosen.scenes or SCENES:
        run(name, chosen.seconds)


if __name__ == "__main__":
    main()
