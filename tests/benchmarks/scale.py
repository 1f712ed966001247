"""The measurement of both services beside clusters of several sizes: at rest, and during a run of a policy.

Run it as `python tests/benchmarks/scale.py [--nodes 100 --nodes 500 --nodes 1000]`. For each size it fills a control
plane of its own and prints a table of the sizes so far: processor time, bytes and requests at rest, with no node marked
as freed, with 22 marked, and with a pod beside that fits nowhere; processor time and bytes for each landed move of a
run; and the descheduler's memory before the run, at most, and `--after` seconds later. Bytes are those that the API
server sends to a service, counted by a forwarder in between. `--live 1000` measures the operator's start with so many
Reservations at the end.

`--run-only` leaves out what is measured at rest, which takes seven minutes for each size, and `--rest-only` the run.
`--churn SECONDS` measures instead the memory of both services while Deployments are scaled, Reservations come and go,
and a policy runs each minute.
"""
# ruff: noqa: T201 - it prints, and finds what the tests share

import argparse
import json
import random
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from benchmarks.descheduler_scale import fill
from benchmarks.operator_load import (
    NAMESPACE,
    add_nodes,
    build_reservation,
    cpu_seconds,
    in_parallel,
    make_namespace,
    resident_megabytes,
    wait,
)
from berth_core.clock import SystemClock
from berth_core.migration_plans import MigrationPlan, MoveState
from berth_core.reservations import Reservation, ReservationPhase
from berth_descheduler.migration.nodes.freed_marks import Freeing, mark_freed
from berth_descheduler.settings import FreedNodes
from berth_kube.client import KubeClient
from berth_kube.errors import KubeError
from berth_kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, MIGRATION_PLANS, PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from berth_sandbox.settings import SandboxSettings, choose_lease_seconds
from berth_sandbox.workload import NAMESPACE_NAMES
from control_planes import control_plane, say_nothing
from policy_scenes import DeschedulerReplica
from service_processes import running_operator

NODE_CPU: Final = "36"
"""What `fill_cluster` fills with 16 pods."""

MARKED: Final = 22
SPARE: Final = "spare"
"""The pool of the nodes that are marked: no pod of the workload tolerates it."""

STARTED_SECONDS: Final = 150.0
"""After the services have started: the operator looks for leftovers for two minutes."""

SETTLING_SECONDS: Final = 60.0
"""After a change, until what it costs once is over: two sweeps of the descheduler."""

WINDOW_SECONDS: Final = 60.0
LARGE_POD_CPU: Final = "4000"

CHANGE_SECONDS: Final = 2.0
"""Between two changes of a churning cluster."""

REPORT_SECONDS: Final = 60.0
MOST_REPLICAS: Final = 8
LIFETIMES: Final = ("20s", "60s", "120s")

Figures = dict[str, float]


class CountingForwarder:
    """Forwards connections to a server on this machine and counts the bytes that it sends."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.received_bytes = 0
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pump, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pump, args=(server, client, True), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, is_counted: bool) -> None:  # noqa: FBT001
        with suppress(OSError):
            while chunk := source.recv(1 << 16):
                self.received_bytes += len(chunk) if is_counted else 0
                sink.sendall(chunk)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


class Bench:
    """Both services beside a filled cluster, and what they cost."""

    def __init__(
        self, sandbox: Sandbox, client: KubeClient, programs: Mapping[str, int], link: CountingForwarder
    ) -> None:
        self._sandbox = sandbox
        self._client = client
        self._programs = programs
        self._link = link

    def rest(self, name: str, settling_seconds: float = SETTLING_SECONDS) -> Figures:
        """Return what both cost at rest, from a moment at which the last change is over."""
        print(f"  at rest, {name}", flush=True)
        time.sleep(settling_seconds)
        processor, received, began = self._processor(), self._link.received_bytes, datetime.now(UTC)
        time.sleep(WINDOW_SECONDS)
        per_minute = 60 / WINDOW_SECONDS
        figures = {
            f"at rest, {name}: {program}, ms/s": 1000 * (seconds - processor[program]) / WINDOW_SECONDS
            for program, seconds in self._processor().items()
        }
        figures[f"at rest, {name}: descheduler, MB/min"] = (self._link.received_bytes - received) / 1e6 * per_minute
        figures[f"at rest, {name}: requests/min"] = self._requests_since(began) * per_minute
        return figures

    def run(self, moves: int, after_seconds: float) -> Figures:
        """Return what each landed move of a policy's run costs the descheduler, and its memory."""
        pid = self._programs["descheduler"]
        figures = {"descheduler before the run, MB": resident_megabytes(pid)}
        processor, received = cpu_seconds(pid), self._link.received_bytes
        self._client.create(DESCHEDULER_POLICIES, build_policy(moves))
        plan = self._await_end()
        landed = sum(status.state is MoveState.LANDED for status in plan.status.moves)
        print(f"  {plan.status.message}", flush=True)
        figures["moves landed"] = landed
        figures["a move: descheduler, ms"] = 1000 * (cpu_seconds(pid) - processor) / max(1, landed)
        figures["a move: descheduler, MB"] = (self._link.received_bytes - received) / 1e6 / max(1, landed)
        figures["descheduler at most, MB"] = resident_megabytes(pid, "VmHWM")
        time.sleep(after_seconds)
        figures[f"descheduler {after_seconds:g} s later, MB"] = resident_megabytes(pid)
        return figures

    def churn(self, seconds: float, seed: int) -> Figures:
        """Return the memory of both while the cluster changes all the time, each `REPORT_SECONDS`."""
        draw = random.Random(seed)  # noqa: S311 - chooses changes, guards nothing
        self._client.create(DESCHEDULER_POLICIES, build_policy(20, interval="1m", podCoolDown="2m"))
        began, changes, figures = time.monotonic(), 0, dict[str, float]()
        while (passed := time.monotonic() - began) < seconds:
            if passed >= len(figures) / len(self._programs) * REPORT_SECONDS:
                memory = {
                    f"after {passed / 60:.0f} min: {program}, MB": resident_megabytes(pid)
                    for program, pid in self._programs.items()
                }
                print(f"  {changes} changes, {memory}", flush=True)
                figures |= memory
            with suppress(KubeError):  # it met another change
                self._change(draw, changes)
            changes += 1
            time.sleep(CHANGE_SECONDS)
        plans = self._client.list(MIGRATION_PLANS, type=MigrationPlan).items
        landed = sum(status.state is MoveState.LANDED for plan in plans for status in plan.status.moves)
        memory = {f"at the end: {program}, MB": resident_megabytes(pid) for program, pid in self._programs.items()}
        return figures | memory | {"changes": changes, "moves landed in the plans that are left": landed}

    def _change(self, draw: random.Random, number: int) -> None:
        """Scale a Deployment, or create or delete a Reservation."""
        namespace = draw.choice(NAMESPACE_NAMES)
        match draw.randrange(4):
            case 0 | 1:
                deployments = self._client.list(DEPLOYMENTS, namespace=namespace).items
                name = draw.choice(deployments)["metadata"]["name"]
                body = {"spec": {"replicas": draw.randint(1, MOST_REPLICAS)}}
                self._client.merge_patch(DEPLOYMENTS, name, body, namespace=namespace)
            case 2:
                body = build_reservation(f"churn-{number}", draw.randint(1, 3))
                body["spec"]["ttl"] = draw.choice(LIFETIMES)
                self._client.create(RESERVATIONS, body, namespace=namespace)
            case _:
                reservations = self._client.list(RESERVATIONS, namespace=namespace).items
                if reservations:
                    name = draw.choice(reservations)["metadata"]["name"]
                    self._client.delete(RESERVATIONS, name, namespace=namespace)

    def _processor(self) -> Figures:
        return {program: cpu_seconds(pid) for program, pid in self._programs.items()}

    def _requests_since(self, moment: datetime) -> int:
        """Return how many requests both services have made since a moment; a watch is one."""
        count = 0
        for line in self._sandbox.audit_log.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            count += event["stage"] == "ResponseComplete" and datetime.fromisoformat(event["stageTimestamp"]) >= moment
        return count

    def _await_end(self) -> MigrationPlan:
        while True:
            ended = [
                plan for plan in self._client.list(MIGRATION_PLANS, type=MigrationPlan).items if plan.phase.terminal
            ]
            if ended:
                return ended[0]
            time.sleep(2)


def build_policy(moves: int, *, interval: str = "24h", **limits: Any) -> dict[str, Any]:  # noqa: ANN401 - a limit
    profile = {
        "name": "default",
        "pluginConfig": [{"name": "Defragmentation", "args": {"strategy": "Consolidate"}}],
        "plugins": {"balance": {"enabled": ["Defragmentation"]}},
    }
    return {
        "apiVersion": DESCHEDULER_POLICIES.api_version,
        "kind": DESCHEDULER_POLICIES.kind,
        "metadata": {"name": "bench"},
        "spec": {
            "trigger": {"interval": interval},
            "mode": "Auto",
            "profiles": [profile],
            "limits": {"maxMoves": moves, "maxMovesPerNamespace": moves, **limits},
        },
    }


class DeschedulerOfImage(DeschedulerReplica):
    """A descheduler with the allocator that its image has it use."""

    def __init__(self, sandbox: Sandbox, folder: Path, *options: str) -> None:
        super().__init__(sandbox, folder, *options)
        self._command = ("env", "PYTHONMALLOC=malloc", *self._command)


@contextmanager
def bench(sandbox: Sandbox, client: KubeClient, folder: Path) -> Iterator[Bench]:
    with running_operator(sandbox, folder) as operator:
        forwarded, link = forward(sandbox, "berth-descheduler", folder)
        descheduler: ServiceProcess
        with DeschedulerOfImage(sandbox, folder, f"--kubeconfig={forwarded}") as descheduler:
            yield Bench(sandbox, client, {"operator": operator.pid, "descheduler": descheduler.pid}, link)


def forward(sandbox: Sandbox, account: str, folder: Path) -> tuple[Path, CountingForwarder]:
    """Return an account's kubeconfig that leads through a forwarder, and the forwarder."""
    body = yaml.safe_load(sandbox.service_account_kubeconfig(account).read_text(encoding="utf-8"))
    cluster = body["clusters"][0]["cluster"]
    link = CountingForwarder(urlsplit(cluster["server"]).port or 443)
    cluster["server"] = f"https://127.0.0.1:{link.port}"
    forwarded = folder / f"{account}.yaml"
    forwarded.write_text(yaml.safe_dump(body), encoding="utf-8")
    return forwarded, link


def start_operator(sandbox: Sandbox, client: KubeClient, folder: Path, live: int) -> Figures:
    """Return what the operator's start costs where so many Reservations of one slot are live."""
    make_namespace(client)
    bodies = [build_reservation(f"live-{number:04d}", 1, cpu="10m") for number in range(live)]

    def are_held() -> bool:
        reservations = client.list(RESERVATIONS, namespace=NAMESPACE, type=Reservation).items
        phases = [reservation.phase for reservation in reservations]
        return phases == [ReservationPhase.AVAILABLE] * live

    with running_operator(sandbox, folder):
        in_parallel(lambda body: client.create(RESERVATIONS, body, namespace=NAMESPACE), bodies)
        wait(are_held, seconds=900, pause=2)
    forwarded, link = forward(sandbox, "berth-operator", folder)
    began = time.monotonic()
    with running_operator(sandbox, folder, f"--kubeconfig={forwarded}") as operator:
        seconds, received = time.monotonic() - began, link.received_bytes / 1e6
        figures = {f"start with {live} live: operator, s": seconds, f"start with {live} live: operator, MB": received}
        return figures | {f"start with {live} live: operator, ms": 1000 * cpu_seconds(operator.pid)}


def measure(nodes: int, options: argparse.Namespace) -> Figures:
    print(f"{nodes} nodes", flush=True)
    figures: Figures = {}
    with (
        tempfile.TemporaryDirectory() as name,
        control_plane(SandboxSettings(lease_seconds=choose_lease_seconds(nodes)), progress=say_nothing) as sandbox,
        sandbox.connect() as client,
    ):
        add_nodes(sandbox, nodes - MARKED, NODE_CPU)
        fill(sandbox, client, options.seed, scales_down=False)
        add_nodes(sandbox, MARKED, NODE_CPU, pool=SPARE)
        with bench(sandbox, client, Path(name)) as services:
            figures["pods"] = len(client.list(PODS).items)
            if options.churn:
                return figures | services.churn(options.churn, options.seed)
            if options.run_only:
                time.sleep(WINDOW_SECONDS)  # the descheduler warms up
            else:
                figures |= rest(services, client)
            if not options.rest_only:
                figures |= services.run(options.moves, options.after)
        return figures | (start_operator(sandbox, client, Path(name), options.live) if options.live else {})


def rest(services: Bench, client: KubeClient) -> Figures:
    """Return what both services cost at rest, with nothing to do and with what may look like it."""
    figures = services.rest("none marked", STARTED_SECONDS)
    spare = [f"{SPARE}-{number:04d}" for number in range(MARKED)]
    mark_freed(client, SystemClock(), spare, Freeing("bench", "", FreedNodes(taint=True)))
    figures |= services.rest(f"{MARKED} marked")
    client.create(PODS, build_large_pod())
    figures |= services.rest("a pod that fits nowhere")
    client.delete(PODS, "large", namespace="default")
    return figures


def build_large_pod() -> dict[str, Any]:
    requests = {"requests": {"cpu": LARGE_POD_CPU}}
    spec = {"containers": [{"name": "app", "image": "pause", "resources": requests}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "large", "namespace": "default"}, "spec": spec}


def show(by_size: Mapping[int, Figures]) -> None:
    """Print a column for each size."""
    names = list(dict.fromkeys(name for figures in by_size.values() for name in figures))
    print(f"{'nodes':<52}" + "".join(f"{size:>10}" for size in by_size))
    for name in names:
        print(f"{name:<52}" + "".join(f"{figures.get(name, float('nan')):>10.2f}" for figures in by_size.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure both services beside clusters of several sizes.")
    parser.add_argument("--nodes", type=int, action="append", help="may be given several times; default 100, 500, 1000")
    parser.add_argument("--moves", type=int, default=100, help="the limit of the run")
    parser.add_argument("--after", type=float, default=600.0, help="seconds after the run, for the memory")
    parser.add_argument("--live", type=int, default=0, help="Reservations with which the operator starts at the end")
    parser.add_argument("--run-only", action="store_true", help="leave out what both cost at rest")
    parser.add_argument("--rest-only", action="store_true", help="leave out the run")
    parser.add_argument("--churn", type=float, default=0.0, help="seconds of changes, in the place of all else")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    by_size: dict[int, Figures] = {}
    for nodes in options.nodes or [100, 500, 1000]:
        by_size[nodes] = measure(nodes, options)
        show(by_size)


if __name__ == "__main__":
    main()
