"""Kills the descheduler or the operator before each call of a small run of surge moves, one call after the other.

    python tests/benchmarks/surge_kills.py [--process descheduler|operator] [--from 1] [--to 400] [--journal FILE]

A run moves two pods off a node, each the only one of its Deployment, one of them under a budget that allows nothing.
The first time the process is killed (SIGKILL) before its first call, then before its second, and so on until a run ends
without that call. Of the operator only calls count that change something, but for its Lease, events and dry runs.

After each kill the process is started again, and a further run is made if the descheduler was killed. Then every pod
that was let go has to be taken back or moved, each Service must have had a ready endpoint all the time (a watch of
EndpointSlices says it), no Deployment may be changed, and nothing of a run may be left. `--from` goes on where an
earlier walk ended.
"""

# ruff: noqa: T201 - it prints

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from surge_moves import KNOWN, NO_PART_OF_IT, PLANNER, Released, generations, is_live, kind_of

from berth_core import Pod
from berth_kube import DEPLOYMENTS, NODES, PDBS, PODS, SERVICES, KubeClient
from berth_sandbox.invariants import Invariant
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace, pod_template, require_rest
from control_planes import control_plane, say_nothing
from descheduling_stage import Run
from fault_proxy import FaultProxy
from faults import Call, FaultKind, HoldPlan, NoFaults
from ready_endpoints import ready_endpoints, watched_endpoints
from service_processes import OperatorProcess
from waiting import eventually

NAMESPACE: Final = "singles"
NAMES: Final = ("guarded", "plain")
NODE_CPU: Final = 8
PATIENCE_SECONDS: Final = 300.0
ORPHAN_SECONDS: Final = 60.0
MOST_RUNS: Final = 4


class Countdown:
    """Holds the call of a number, counted from now on."""

    def __init__(self, number: int, counts: Callable[[Call], bool]) -> None:
        self.number = number
        self.seen = 0
        self.call = ""
        self._counts = counts
        self.plan = HoldPlan(self._is_it, FaultKind.HOLD_BEFORE)

    def _is_it(self, call: Call) -> bool:
        if not self._counts(call):
            return False
        self.seen += 1
        self.call = f"{'WATCH' if call.is_watch else call.method} {kind_of(call.path)}"
        return self.seen == self.number

    @property
    def is_there(self) -> bool:
        return self.plan.held.reached.is_set()


def changes_something(call: Call) -> bool:
    return call.is_write and "dryRun" not in call.query and not any(part in call.path for part in NO_PART_OF_IT)


@dataclass
class Scene:
    """A low node with the pods to move, and two half-full ones on which they fit."""

    client: KubeClient
    sandbox: Sandbox
    low: str = ""
    high: tuple[str, ...] = ()

    def set_up(self) -> None:
        make_namespace(self.client, NAMESPACE)
        shape = NodeShape(cpu=str(NODE_CPU))
        self.high = self.sandbox.add_nodes(2, shape, prefix="high-")
        (self.low,) = self.sandbox.add_nodes(1, shape, prefix="low-")
        for name in self.high:
            body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu=str(NODE_CPU // 2), nodeName=name)}
            body["metadata"]["name"] = f"base-{name}"
            self.client.create(PODS, body, namespace=NAMESPACE)
        self._cordon(closed=True)
        for name in NAMES:
            head, chosen = {"metadata": {"name": name}}, {"app": name}
            body = build_deployment(name, replicas=1, cpu="1")
            body["spec"]["minReadySeconds"] = 1 if name == "guarded" else 0
            self.client.create(DEPLOYMENTS, body, namespace=NAMESPACE)
            ports = {"selector": chosen, "ports": [{"port": 80}]}
            self.client.create(SERVICES, {**head, "spec": ports}, namespace=NAMESPACE)
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "guarded"}}}
        self.client.create(PDBS, {"metadata": {"name": "guarded"}, "spec": spec}, namespace=NAMESPACE)

    def reset(self) -> None:
        """Have the pods on the low node again."""
        self._cordon(closed=True)
        eventually("the pods are on the low node", self._are_low, seconds=PATIENCE_SECONDS)
        serving = lambda: ready_endpoints(self.client, NAMESPACE) == dict.fromkeys(NAMES, 1)  # noqa: E731
        eventually("they serve", serving, seconds=PATIENCE_SECONDS)
        self._cordon(closed=False)

    def _are_low(self) -> bool:
        """Delete the pods that are elsewhere; return whether each Deployment has one on the low node."""
        found = self.pods()
        for pod in found:
            if pod.spec.node_name in self.high:
                self.client.delete(PODS, pod.metadata.name, namespace=NAMESPACE, grace_seconds=0)
        return len(found) == len(NAMES) and all(pod.spec.node_name == self.low and pod.is_ready for pod in found)

    def _cordon(self, *, closed: bool) -> None:
        for name in self.high:
            self.client.merge_patch(NODES, name, {"spec": {"unschedulable": closed or None}})

    def pods(self) -> list[Pod]:
        found = self.client.list(PODS, namespace=NAMESPACE, type=Pod).items
        return [pod for pod in found if pod.metadata.labels.get("app") in NAMES]

    def faults(self, released: Released) -> Iterator[str]:
        """Yield what is not as it has to be once all is over."""
        if released.now:
            yield f"{len(released.now)} pods are let go"
        if is_live(self.client):
            yield "a plan is under way"
        for pod in self.pods():
            if pod.controller is None or not pod.is_ready:
                yield f"{pod.metadata.name} has no controller or is not Ready"
        if len(self.pods()) != len(NAMES):
            yield f"{len(self.pods())} pods, not {len(NAMES)}"
        try:
            require_rest(self.client, Invariant.PRIORITY_CLASS_LEFT)
        except AssertionError as error:
            yield str(error)


@dataclass
class Walk:
    """Kills one process before its calls."""

    scene: Scene
    process: str
    operator: OperatorProcess
    proxy: FaultProxy
    """Before the process that is killed."""

    kubeconfig: Path
    """Of the descheduler."""

    folder: Path
    calls: int = 0
    """How many calls the last run made that was not killed."""

    problems: list[str] = field(default_factory=list)

    def step(self, number: int) -> dict[str, Any] | None:
        """Kill the process before a call; return what was measured, None if a run makes no such call."""
        self.scene.reset()
        before, released = generations(self.scene.client), Released()
        with watched_endpoints(self.scene.client, NAMESPACE) as endpoints, released.watching(self.scene.client):
            countdown = Countdown(number, changes_something if self.process == "operator" else lambda _: True)
            self.proxy.plan = countdown.plan
            with self._running() as run:
                stops = lambda: countdown.is_there or run.exit_code is not None  # noqa: E731
                eventually("the call is made, or the run over", stops, seconds=PATIENCE_SECONDS)
                if not countdown.is_there:
                    self.proxy.plan, self.calls = NoFaults(), countdown.seen
                    return None
                found = self._kill(run, countdown, released)
            faults = self._await_the_end(released)
            faults += [f"{name} had {count} endpoints" for name, count in endpoints.fewest.items() if count < 1]
            faults += ["a Deployment was changed"] * (generations(self.scene.client) != before)
            if found["known"] > ORPHAN_SECONDS and found["let go"]:
                faults.append(f"no run knew of what was let go for {found['known']:.0f} s")
            seconds = max(released.after(found.pop("moment")), default=0.0)
            return {"call": number, "what": countdown.call, **found, "ended": round(seconds, 1), "faults": faults}

    @contextmanager
    def _running(self) -> Iterator[Run]:
        options = (*PLANNER, "--no-taint-freed", "--moves=Surge")
        run = Run(self.kubeconfig, self.folder, options)
        run.start()
        try:
            yield run
        finally:
            run.kill()

    def _kill(self, run: Run, countdown: Countdown, released: Released) -> dict[str, Any]:
        """Kill the process, start it again and wait for the end of the run that goes on."""
        victim = run if self.process == "descheduler" else self.operator
        victim.kill()
        moment, let_go = time.monotonic(), len(released.now)
        self.proxy.plan = NoFaults()
        countdown.plan.held.released.set()
        known = 0.0
        if victim is self.operator:
            self.operator.start()
            run.wait(PATIENCE_SECONDS)
        else:
            known = self._run_again(moment)
        return {"let go": let_go, "known": round(known, 1), "moment": moment}

    def _run_again(self, moment: float = 0.0) -> float:
        """Make a run to its end; return how long after a moment it knew what earlier ones had let go."""
        with self._running() as run:
            known = lambda: any(word in run.tail(400) for word in KNOWN) or run.exit_code is not None  # noqa: E731
            eventually("it knows", known, seconds=PATIENCE_SECONDS)
            seconds = time.monotonic() - moment
            run.wait(PATIENCE_SECONDS)
        return seconds

    def _await_the_end(self, released: Released) -> list[str]:
        """Make runs while a plan is under way; return what is not as it has to be at last."""
        for _ in range(MOST_RUNS):
            if not is_live(self.scene.client) and not released.now:
                break
            self._run_again()
        quiet = threading.Event()
        until = time.monotonic() + ORPHAN_SECONDS
        while (faults := list(self.scene.faults(released))) and time.monotonic() < until:
            quiet.wait(0.5)
        return faults


def walk(options: argparse.Namespace, folder: Path) -> bool:
    with (
        control_plane(SandboxSettings(), progress=say_nothing) as sandbox,
        sandbox.connect() as client,
        FaultProxy(sandbox.service_account_kubeconfig(f"berth-{options.process}")) as proxy,
    ):
        scene = Scene(client, sandbox)
        scene.set_up()
        through = proxy.write_kubeconfig(folder / f"{options.process}.yaml")
        is_operator = options.process == "operator"
        own = (f"--kubeconfig={through}",) if is_operator else ()
        descheduler = sandbox.service_account_kubeconfig("berth-descheduler") if is_operator else through
        with OperatorProcess(sandbox, folder, "--identity=the-operator", *own) as operator:
            made = Walk(scene, options.process, operator, proxy, descheduler, folder)
            return describe(made, options)


def describe(made: Walk, options: argparse.Namespace) -> bool:
    """Make the walk and print each step; return whether all was well."""
    done, bad, let_go, longest, until = 0, 0, 0, 0.0, time.monotonic() + options.minutes * 60
    number = options.first
    while number <= options.last and time.monotonic() < until:
        found = made.step(number)
        if found is None:
            print(f"a run ended after {made.calls} calls: that was all", flush=True)
            break
        print(json.dumps(found), flush=True)
        if options.journal:
            with options.journal.open("a") as journal:
                journal.write(json.dumps({"process": options.process, **found}) + "\n")
        done, bad, number = done + 1, bad + bool(found["faults"]), number + 1
        let_go, longest = let_go + bool(found["let go"]), max(longest, found["ended"] if found["let go"] else 0.0)
    print(
        f"{options.process}: killed before {done} calls, {options.first} to {number - 1}; something amiss after {bad}"
    )
    print(
        f"after {let_go} pods were let go, for {longest:.1f} s at most until they were moved or taken back", flush=True
    )
    return not bad


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--process", choices=["descheduler", "operator"], default="descheduler")
    parser.add_argument("--from", type=int, default=1, dest="first")
    parser.add_argument("--to", type=int, default=400, dest="last")
    parser.add_argument("--minutes", type=float, default=60, help="begin no step after that")
    parser.add_argument("--journal", type=Path, help="a line of JSON for each call is added to this file")
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.logs or Path(name)
        folder.mkdir(exist_ok=True, parents=True)
        return 0 if walk(options, folder) else 1


if __name__ == "__main__":
    sys.exit(main())
