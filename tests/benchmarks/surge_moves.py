"""Moves Deployments of one replica, half of them under a budget that allows nothing, and watches for gaps.

    python tests/benchmarks/surge_moves.py [--moves Surge|Evict] [--number 100] [--kill descheduler operator] [--seed 1]

Each has a Service. `berth run` empties the nodes on which they run, as often as it takes. A watch of EndpointSlices
counts the Services that ever had no ready endpoint, another how long pods are without their ReplicaSets. With `--kill`
a process is killed before or after a call of its own that changes something, drawn by chance, and started again, some
`--calls` calls later once more, but not before the pods that were let go then are taken back or gone. An orphan is a
pod that was let go when the descheduler was killed, and that no run knows of a minute later.

With `--moves both` no Deployment has a budget, and each method moves as many: what a surge costs in time.
"""

# ruff: noqa: T201 - it prints

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import RELEASED_HASH, TEMPLATE_HASH_LABEL, BerthError, MigrationPlan, MoveMethod, Pod
from berth_kube import (
    DEPLOYMENTS,
    MIGRATION_PLANS,
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
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace, pod_template
from control_planes import control_plane, say_nothing
from descheduling_stage import Run
from fault_proxy import FaultProxy
from faults import Call, FaultKind, HoldPlan, NoFaults
from ready_endpoints import Endpoints, ready_endpoints, watched_endpoints
from service_processes import OperatorProcess
from waiting import eventually

NAMESPACE: Final = "singles"
PER_SOURCE, PER_TARGET = 25, 30
NODE_CPU: Final = 8
ORPHAN_SECONDS: Final = 60.0
PATIENCE_SECONDS: Final = 420.0
NO_PART_OF_IT: Final = ("/apis/coordination.k8s.io/", "/events")
KNOWN: Final = ("reading the cluster", "of an interrupted run continued")
"""What a run says once it has taken back what earlier ones let go, or carries it on."""
PLANNER: Final = ("--whole-nodes", "--low-threshold=40", "--defragment-threshold=45", "--protection-threshold=100")


@dataclass
class Span:
    """From when to when a pod was without its ReplicaSet."""

    began: float
    ended: float | None = None

    def covers(self, moment: float) -> bool:
        return self.began <= moment < (self.ended or time.monotonic())


@dataclass
class Released:
    """When pods were without their ReplicaSets."""

    spans: list[Span] = field(default_factory=list)
    now: dict[str, Span] = field(default_factory=dict)
    """By uid."""

    def take(self, item: WatchItem[Pod]) -> None:
        if isinstance(item, Listed):
            found = {pod.metadata.uid for pod in item.items}
            for uid in found:
                self._begin(uid)
            for uid in self.now.keys() - found:
                self._end(uid)
        elif isinstance(item, Changed):
            self._begin(item.item.metadata.uid)
        elif isinstance(item, Removed):
            self._end(item.item.metadata.uid)

    def _begin(self, uid: str) -> None:
        if uid not in self.now:
            self.now[uid] = Span(time.monotonic())
            self.spans.append(self.now[uid])

    def _end(self, uid: str) -> None:
        if span := self.now.pop(uid, None):
            span.ended = time.monotonic()

    def since(self, moment: float) -> bool:
        """Return whether a pod is let go that was so at that moment."""
        return any(span.began <= moment for span in list(self.now.values()))

    def after(self, moment: float) -> list[float]:
        """Return for how long after a moment the pods were still let go that were so then."""
        return [(span.ended or time.monotonic()) - moment for span in self.spans if span.covers(moment)]

    @contextmanager
    def watching(self, client: KubeClient) -> Iterator[None]:
        chosen = f"{TEMPLATE_HASH_LABEL}={RELEASED_HASH}"
        watch = lambda stop: client.watch(PODS, label_selector=chosen, type=Pod, stop=stop)  # noqa: E731
        with Informer("released", watch, self.take, self._fail):
            yield

    def _fail(self, error: BerthError) -> None:
        print(f"the watch of released pods ended: {error}", flush=True)


class Process(Protocol):
    def start(self) -> None: ...

    def kill(self) -> None: ...


def kind_of(path: str) -> str:
    """Return the plural of the objects that a call is about, with the subresource."""
    _, _, within = path.partition("/namespaces/")
    parts = within.split("/")[1:] if within else path.strip("/").split("/")[3 if path.startswith("/apis") else 2 :]
    return "/".join((*parts[:1], *parts[2:]))


class Fate:
    """Kills a process at calls that chance draws."""

    def __init__(self, name: str, proxy: FaultProxy, chance: random.Random, calls: int) -> None:
        """`calls` that change something are between two kills, on average; 0: it is never killed."""
        self.name = name
        self.kills: list[tuple[float, str]] = []
        self._proxy = proxy
        self._chance = chance
        self._calls = calls
        self._plan: HoldPlan | None = None

    def draw(self) -> None:
        """Choose the call at which the process is killed next."""
        if not self._calls:
            return
        left = self._chance.randrange(1, 2 * self._calls)
        lock = threading.Lock()

        def is_it(call: Call) -> bool:
            nonlocal left
            if not call.is_write or any(part in call.path for part in NO_PART_OF_IT):
                return False
            with lock:
                left -= 1
                if left == 0:
                    self._call = f"{kind.value.removeprefix('hold ')} {call.method} {kind_of(call.path)}"
                return left == 0

        kind = self._chance.choice([FaultKind.HOLD_BEFORE, FaultKind.HOLD_AFTER])
        self._plan = HoldPlan(is_it, kind)
        self._proxy.plan = self._plan

    @property
    def last_kill(self) -> float:
        return self.kills[-1][0] if self.kills else 0.0

    @property
    def is_drawn(self) -> bool:
        return self._plan is not None

    def strikes(self, process: Process) -> bool:
        """Kill the process if it is at its call now; return whether it was."""
        if self._plan is None or not self._plan.held.reached.is_set():
            return False
        process.kill()
        self.kills.append((time.monotonic(), self._call))
        self._proxy.plan = NoFaults()
        self._plan.held.released.set()
        self._plan = None
        return True

    def spare(self) -> None:
        """Kill it no more."""
        self._calls = 0
        self._proxy.plan = NoFaults()


def fill(sandbox: Sandbox, client: KubeClient, options: argparse.Namespace) -> tuple[str, ...]:
    """Make the Deployments on nodes that are low, then nodes on which they fit; return the low ones."""
    make_namespace(client, NAMESPACE)
    shape = NodeShape(cpu=str(NODE_CPU))
    sources = sandbox.add_nodes(-(-options.number // PER_SOURCE), shape, prefix="low-")
    has_budgets = options.moves != "both"
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda index: deploy(client, index, has_budgets=has_budgets), range(options.number)))
    ready = lambda: sum(ready_endpoints(client, NAMESPACE).values()) == options.number  # noqa: E731
    eventually("all serve", ready, seconds=600, pause_seconds=2)
    for name in sandbox.add_nodes(-(-options.number // PER_TARGET), shape, prefix="high-"):
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu=str(NODE_CPU // 2), nodeName=name)}
        body["metadata"]["name"] = f"base-{name}"
        client.create(PODS, body, namespace=NAMESPACE)
    return sources


def deploy(client: KubeClient, index: int, *, has_budgets: bool) -> None:
    name = f"single-{index}"
    head, chosen = {"metadata": {"name": name}}, {"app": name}
    body = build_deployment(name, replicas=1, cpu="100m")
    body["spec"]["minReadySeconds"] = index // 2 % 2
    client.create(DEPLOYMENTS, body, namespace=NAMESPACE)
    client.create(SERVICES, {**head, "spec": {"selector": chosen, "ports": [{"port": 80}]}}, namespace=NAMESPACE)
    if has_budgets and index % 2:
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": chosen}}
        client.create(PDBS, {**head, "spec": spec}, namespace=NAMESPACE)


def remaining(client: KubeClient, sources: tuple[str, ...]) -> int:
    """Return how many pods are still where they were at first."""
    found = client.list(PODS, namespace=NAMESPACE, type=Pod).items
    return sum(pod.spec.node_name in sources for pod in found)


def is_live(client: KubeClient) -> bool:
    """Return whether a plan is under way."""
    return any(not plan.phase.terminal for plan in client.list(MIGRATION_PLANS, type=MigrationPlan).items)


def generations(client: KubeClient) -> dict[str, int]:
    found = client.list(DEPLOYMENTS, namespace=NAMESPACE).items
    return {one["metadata"]["name"]: one["metadata"]["generation"] for one in found}


@dataclass
class Measurement:
    """Runs the descheduler until all pods have moved."""

    client: KubeClient
    options: argparse.Namespace
    sources: tuple[str, ...]
    operator: OperatorProcess
    kubeconfig: Path
    folder: Path
    fates: dict[str, Fate]
    released: Released
    known: list[float] = field(default_factory=list)
    """When runs knew all that earlier ones had let go."""

    def run_all(self, endpoints: Endpoints) -> None:
        until = time.monotonic() + self.options.minutes * 60
        methods = ["Evict", "Surge"] if self.options.moves == "both" else [self.options.moves]
        turn = 0
        while time.monotonic() < until and ((left := remaining(self.client, self.sources)) or is_live(self.client)):
            method = methods[turn % len(methods)]
            turn += 1
            begun = time.monotonic()
            was_killed = self._run(method)
            took, moved = time.monotonic() - begun, left - remaining(self.client, self.sources)
            gaps = [name for name, count in endpoints.fewest.items() if count < 1]
            ending = "killed" if was_killed else "over"
            print(f"  {method}: {ending} after {took:.1f} s, {moved} moved, {len(gaps)} had a gap by now", flush=True)
        for fate in self.fates.values():
            fate.spare()
        while self.released.now or is_live(self.client):
            self._run("Surge")

    def _run(self, method: str) -> bool:
        """Make a run, during which processes may be killed; return whether it was."""
        options = (f"--moves={method}", f"--max-moves={self.options.batch}", f"--per-wave={self.options.per_wave}")
        run = Run(self.kubeconfig, self.folder, (*PLANNER, *options))
        run.start()
        is_known = False
        try:
            while run.exit_code is None:
                if not is_known and (is_known := any(word in run.tail(400) for word in KNOWN)):
                    self.known.append(time.monotonic())
                last = max(fate.last_kill for fate in self.fates.values())
                for fate in self.fates.values():
                    if not fate.is_drawn and is_known and not self.released.since(last):
                        fate.draw()
                if self.fates["descheduler"].strikes(run):
                    return True
                if self.fates["operator"].strikes(self.operator):
                    self.operator.start()
                time.sleep(0.02)
        finally:
            run.kill()
        return False


def measure(options: argparse.Namespace, folder: Path) -> bool:
    chance = random.Random(options.seed)  # noqa: S311 - no secret
    with (
        control_plane(SandboxSettings(), progress=say_nothing) as sandbox,
        sandbox.connect() as client,
        FaultProxy(sandbox.service_account_kubeconfig("berth-operator")) as before_operator,
        FaultProxy(sandbox.service_account_kubeconfig("berth-descheduler")) as before_descheduler,
    ):
        sources = fill(sandbox, client, options)
        proxies = {"operator": before_operator, "descheduler": before_descheduler}
        fates = {
            name: Fate(name, proxy, chance, options.calls if name in options.kill else 0)
            for name, proxy in proxies.items()
        }
        through = before_operator.write_kubeconfig(folder / "operator.yaml")
        released = Released()
        with (
            OperatorProcess(sandbox, folder, "--identity=the-operator", f"--kubeconfig={through}") as operator,
            watched_endpoints(client, NAMESPACE) as endpoints,
            released.watching(client),
        ):
            before = generations(client)
            kubeconfig = before_descheduler.write_kubeconfig(folder / "descheduler.yaml")
            found = Measurement(client, options, sources, operator, kubeconfig, folder, fates, released)
            found.run_all(endpoints)
            changed = sum(before[name] != count for name, count in generations(client).items())
            left = remaining(client, sources)
        describe_moves(client)
        return report(endpoints, found, changed, left)


def describe_moves(client: KubeClient) -> None:
    """Print what became of the moves of all plans."""
    counts: Counter[str] = Counter()
    plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    for one in (move for plan in plans for move in plan.status.moves):
        method = one.method or MoveMethod.EVICT
        counts[f"{one.state} by {method}" + (f", {one.reason}: {one.message}" if one.reason else "")] += 1
    print(f"{len(plans)} plans")
    for text, count in counts.most_common(12):
        print(f"  {count} x {text}")


def report(endpoints: Endpoints, found: Measurement, changed: int, left: int) -> bool:
    released, fates = found.released, found.fates
    below = sorted(name for name, count in endpoints.fewest.items() if count < 1)
    orphaned = [seconds for fate in fates.values() for moment, _ in fate.kills for seconds in released.after(moment)]
    unknown, orphans = [], 0
    for moment, _ in fates["descheduler"].kills:
        until = min((one for one in found.known if one > moment), default=time.monotonic())
        unknown.append(until - moment)
        orphans += sum(seconds > ORPHAN_SECONDS for seconds in released.after(moment) if unknown[-1] > ORPHAN_SECONDS)
    spans = sorted(span.ended - span.began for span in released.spans if span.ended)
    for name, fate in fates.items():
        calls = Counter(call for _, call in fate.kills)
        print(f"{name}: killed {len(fate.kills)} times: {', '.join(f'{n} {what}' for what, n in calls.items())}")
    if spans:
        print(f"let go for p50 {spans[len(spans) // 2]:.1f} s, at most {spans[-1]:.1f} s; {len(spans)} times")
    print(f"pods let go at a kill: {len(orphaned)}, the last for {max(orphaned, default=0):.1f} s after it")
    if unknown:
        print(f"a run knew of them at most {max(unknown):.1f} s after the descheduler was killed")
    print(f"{endpoints.samples} samples, {len(below)} Services that had a gap, {changed} generations changed")
    now = len(released.now)
    print(f"{orphans} orphans {ORPHAN_SECONDS:g} s after a kill, {now} pods let go now, {left} did not move")
    return not (below or changed or orphans or now or left)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=100)
    parser.add_argument("--moves", choices=["Surge", "Evict", "both"], default="Surge")
    parser.add_argument("--batch", type=int, default=250, help="the most moves of a plan")
    parser.add_argument("--per-wave", type=int, default=25)
    parser.add_argument("--kill", nargs="*", choices=["descheduler", "operator"], default=[])
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=PATIENCE_SECONDS / 60, help="begin no run after that")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.logs or Path(name)
        folder.mkdir(exist_ok=True, parents=True)
        return 0 if measure(options, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
