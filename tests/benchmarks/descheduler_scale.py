"""The measurement of a whole run of the descheduler on a large cluster of the sandbox.

Run it as `python tests/benchmarks/descheduler_scale.py [--nodes 1000 --pods 10000 --max-moves 500]`. It prints the
seconds from the start of the program to its plan and its first eviction, the moves a second beside the pods a second
that the same scheduler placed when the cluster was filled, the program's largest memory, and where the pods landed.
With `--plain 180` it first evicts so many pods without a plan, as many at once as a wave has, and compares the rates.
With `--start-seconds 5-15` pods that start after the cluster was filled become Ready only after that time, also those
that are evicted without a plan; placeholders, which run nothing, after 1 to 2 s.
"""
# ruff: noqa: T201 - it prints, and finds what the tests share

import argparse
import json
import random
import re
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from benchmarks.operator_load import add_nodes, cpu_seconds, processor_times, scheduled_pods
from berth_core import Pod
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.migration_plans import MigrationPlan, MoveState
from berth_kube.client import KubeClient
from berth_kube.errors import EvictionBlockedError
from berth_kube.resources import MIGRATION_PLANS, PODS
from berth_kube.watch_items import Changed
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from berth_sandbox.settings import SandboxSettings, choose_lease_seconds
from berth_sandbox.workload import NAMESPACE_NAMES, fill_cluster
from control_planes import control_plane, say_nothing
from service_processes import running_operator, script

NODE_CPU = "21"
PODS_BY_NODE = 10
"""What `fill_cluster` leaves on a node of that size if 75 % are requested at first."""

FULL_SHARE = 0.75

FILL_SECONDS = 3600.0
"""For each step of filling: beside other work 22,000 pods take more than half an hour."""

PLACEHOLDER_STARTS = (1.0, 2.0)
"""Seconds until a placeholder is Ready where pods take their time: its image, `pause`, is on every node."""


@dataclass
class FirstEviction:
    """Sees when the first pod of the workload is told to go."""

    client: KubeClient
    stop: threading.Event = field(default_factory=threading.Event)
    at: float | None = None

    def watch(self) -> None:
        for seen in self.client.watch(PODS, type=Pod, stop=self.stop):
            if isinstance(seen, Changed) and seen.item.is_terminating and is_workload(seen.item):
                self.at = time.monotonic()
                return


def is_workload(pod: Pod) -> bool:
    return pod.metadata.namespace in NAMESPACE_NAMES


def put(name: str, value: float | str) -> None:
    shown = f"{value:12.2f}" if isinstance(value, float) else f"{value:>12}"
    print(f"  {name:<62}{shown}", flush=True)


def fill(sandbox: Sandbox, client: KubeClient, seed: int, *, scales_down: bool = True) -> float:
    """Fill the cluster and return how many pods a second its scheduler placed meanwhile."""
    before, started = scheduled_pods(sandbox), time.monotonic()
    placed_until = [started]

    def progress(line: str) -> None:
        if line.endswith("pods are running") and placed_until == [started]:
            placed_until.append(time.monotonic())
        print(f"  {line}", flush=True)

    filled = fill_cluster(
        client,
        seed=seed,
        requested_share=FULL_SHARE,
        scales_down=scales_down,
        progress=progress,
        timeout_seconds=FILL_SECONDS,
    )
    rate = filled.pods_before / (placed_until[-1] - started)
    put("pods", float(filled.pods))
    put("pods that the scheduler placed to fill the cluster", scheduled_pods(sandbox) - before)
    put("pods a second, from creation to running", rate)
    return rate


def slow_down(sandbox: Sandbox, seconds: tuple[float, float]) -> None:
    """Let pods that start from now on take so many seconds, evenly drawn."""
    folder = sandbox.folder / "kwok.yaml"
    made: list[dict[str, Any]] = []
    for one in yaml.safe_load_all(folder.read_text(encoding="utf-8")):
        if one["metadata"]["name"] == "pod-ready":
            made += (starting(one, "DoesNotExist", seconds), starting(one, "Exists", PLACEHOLDER_STARTS))
        else:
            made.append(one)
    folder.write_text(yaml.safe_dump_all(made), encoding="utf-8")
    sandbox.restart("kwok")


def starting(stage: dict[str, Any], operator: str, seconds: tuple[float, float]) -> dict[str, Any]:
    """Return kwok's stage of a pod that becomes Ready, for placeholders or for all others, with its time."""
    placeholders = {"key": f'.metadata.labels["{PLACEHOLDER_LABEL}"]', "operator": operator}
    expressions = [*stage["spec"]["selector"]["matchExpressions"], {"jq": placeholders}]
    low, high = (int(1000 * one) for one in seconds)
    delay = {"durationMilliseconds": low, "jitterDurationMilliseconds": high}
    name = f"{stage['metadata']['name']}-{operator.lower()}"
    spec = {**stage["spec"], "selector": {"matchExpressions": expressions}, "delay": delay}
    return {**stage, "metadata": {"name": name}, "spec": spec}


def seconds_range(text: str) -> tuple[float, float]:
    """Return LOW-HIGH as two numbers."""
    low, _, high = text.partition("-")
    return float(low), float(high)


def run(sandbox: Sandbox, client: KubeClient, options: argparse.Namespace, folder: Path) -> float:
    """Run the descheduler once, print its figures and return its moves a second, from the first eviction on."""
    command = [
        script("berth-descheduler"),
        f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
        "--once",
        "--health-address=127.0.0.1:0",
        *("--strategy=consolidate", f"--moves={options.moves}"),
        f"--max-moves={options.max_moves}",
        f"--per-controller={options.per_controller}",
        f"--per-wave={options.per_wave}",
    ]
    first = FirstEviction(client)
    watching = threading.Thread(target=first.watch, daemon=True)
    watching.start()
    time.sleep(2)
    process = ServiceProcess(command, folder / "berth-descheduler.log")
    started = time.monotonic()
    with process:
        megabytes, processor, before = 0.0, 0.0, 0.0
        while process.exit_code is None:
            megabytes = max(megabytes, largest_memory(process.pid))
            processor = max(processor, cpu_seconds(process.pid))
            before = before if first.at else processor
            time.sleep(0.1)
        ended = time.monotonic()
    first.stop.set()
    put("seconds until the first eviction", (first.at or float("nan")) - started)
    put("seconds of the whole run", ended - started)
    put("seconds of processor time", processor)
    put("largest memory, MB", megabytes)
    count = landed(client)
    put("milliseconds of processor time for a move, from there on", 1000 * (processor - before) / count)
    rate = count / (ended - (first.at or ended))
    put("moves a second, from the first eviction on", rate)
    put("exit code", str(process.exit_code))
    return rate


def largest_memory(pid: int) -> float:
    """Return the most memory that a process has had so far, in MB; 0 if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1000 if found else 0.0


def calls_so_far(sandbox: Sandbox) -> Counter[str]:
    """Return how many calls each of Berth's accounts has made, by verb and kind."""
    made: Counter[str] = Counter()
    for line in sandbox.audit_log.read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        target = event.get("objectRef", {})
        kind = "/".join(filter(None, (target.get("resource"), target.get("subresource"))))
        made[f"{event['user']['username'].rsplit(':', 1)[1]} {event['verb']} {kind}"] += 1
    return made


class PlainEvictions:
    """Evicts pods without a plan, so many at once; each is over when a pod that was made in its stead is Ready."""

    def __init__(self, client: KubeClient, at_once: int) -> None:
        self._client = client
        self._at_once = at_once
        self._news = threading.Condition()
        self._ready: Counter[str] = Counter()
        self._known: set[str] = set()
        self._stop = threading.Event()

    def run(self, wanted: int, seed: int) -> float:
        """Return the evictions a second, from the first one to the last pod that is Ready."""
        pods = [pod for pod in self._client.list(PODS, type=Pod).items if is_workload(pod) and pod.controller]
        self._known = {pod.metadata.uid for pod in pods}
        threading.Thread(target=self._watch, daemon=True).start()
        chosen = random.Random(seed).sample(pods, wanted)  # noqa: S311 - chooses pods, guards nothing
        started = time.monotonic()
        with ThreadPoolExecutor(self._at_once) as pool:
            list(pool.map(self._evict, chosen))
        seconds = time.monotonic() - started
        self._stop.set()
        return wanted / seconds

    def _evict(self, pod: Pod) -> None:
        while True:
            try:
                self._client.evict(pod.metadata.namespace, pod.metadata.name, uid=pod.metadata.uid)
                break
            except EvictionBlockedError:
                time.sleep(0.5)
        owner = pod.controller
        assert owner is not None
        with self._news:
            assert self._news.wait_for(lambda: self._ready[owner.uid] > 0, 120), pod.key
            self._ready[owner.uid] -= 1

    def _watch(self) -> None:
        for seen in self._client.watch(PODS, type=Pod, stop=self._stop):
            item = seen.item if isinstance(seen, Changed) else None
            if item is None or item.metadata.uid in self._known or not (item.is_ready and item.controller):
                continue
            with self._news:
                self._known.add(item.metadata.uid)
                self._ready[item.controller.uid] += 1
                self._news.notify_all()


def landed(client: KubeClient) -> int:
    """Print where the pods of the plan are and return how many landed as planned."""
    (plan,) = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    count = sum(one.state is MoveState.LANDED for one in plan.status.moves)
    freed = plan.status.achieved.freed_node_count if plan.status.achieved else 0
    pending = [pod for pod in client.list(PODS, type=Pod).items if is_workload(pod) and not pod.spec.node_name]
    put("moves", str(len(plan.spec.moves)))
    put("waves", str(max((move.wave for move in plan.spec.moves), default=0)))
    put("landed on their target", str(count))
    put("nodes freed", str(freed))
    put("pods pending at the end", str(len(pending)))
    print(f"  {plan.status.message}", flush=True)
    reasons = Counter(f"{one.reason}: {one.message}" for one in plan.status.moves if one.reason)
    for reason, times in reasons.most_common(10):
        print(f"  {times} x {reason}", flush=True)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure a whole run of the descheduler on a large cluster.")
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--max-moves", type=int, default=500)
    parser.add_argument("--moves", choices=["Evict", "Surge"], default="Evict")
    parser.add_argument("--per-controller", type=int, default=2)
    parser.add_argument("--per-wave", type=int, default=64)
    parser.add_argument("--plain", type=int, default=0)
    parser.add_argument("--start-seconds", type=seconds_range)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        control_plane(
            SandboxSettings(lease_seconds=choose_lease_seconds(options.nodes)), progress=say_nothing
        ) as sandbox,
    ):
        print(f"{options.nodes} nodes, some {options.nodes * PODS_BY_NODE:.0f} pods")
        add_nodes(sandbox, options.nodes, NODE_CPU)
        with sandbox.connect() as client:
            placed = fill(sandbox, client, options.seed)
            if options.start_seconds:
                slow_down(sandbox, options.start_seconds)
            if options.plain:
                plain = PlainEvictions(client, options.per_wave).run(options.plain, options.seed)
                put(f"plain evictions a second, {options.per_wave} at once", plain)
            with running_operator(sandbox, Path(name)) as operator:
                before, calls = processor_times(sandbox, operator.pid), calls_so_far(sandbox)
                moved = run(sandbox, client, options, Path(name))
                for program, seconds in processor_times(sandbox, operator.pid).items():
                    put(f"seconds of processor time of {program}", seconds - before[program])
                for call, times in (calls_so_far(sandbox) - calls).most_common(24):
                    print(f"  {times:6} x {call}")
            if options.plain:
                put("moves a second / plain evictions a second", moved / plain)
            put("moves a second / pods a second when the cluster was filled", moved / placed)


if __name__ == "__main__":
    main()
