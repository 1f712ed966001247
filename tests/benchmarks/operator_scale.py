"""The measurement of the operator under many Reservations, beside plain pods of the same sandbox.

Run it as `python tests/benchmarks/operator_scale.py [--nodes 500 --reservations 2000 --slots 5000]`; `--curve` adds a
quarter and a half of that, `--only rate,idle,restart,expiry`, `--only lease` or `--only handover` measures a part. Each
size has a sandbox of its own, in which everything is measured one after the other: plain pods first, then Reservations,
then plain pods once more.
"""
# ruff: noqa: T201 - it prints, and finds what the tests share

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from benchmarks.operator_load import (
    NAMESPACE,
    WRITERS,
    add_nodes,
    build_bare_placeholder,
    build_pod,
    build_reservation,
    cpu_seconds,
    delete_pods,
    in_parallel,
    make_namespace,
    percentile,
    placeholders_left,
    processor_times,
    read_metric,
    requests_so_far,
    resident_megabytes,
    scheduled_pods,
    spread,
    wait,
    watched_bindings,
    watched_renewals,
)
from berth_core import Pod
from berth_core.clock import format_timestamp
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import ConditionType, Reservation, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import PODS, RESERVATIONS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from control_planes import control_plane, say_nothing
from service_processes import OperatorProcess, running_operator

PARTS = ("rate", "idle", "restart", "expiry", "handover")
"""What is measured unless `--only` says otherwise."""
HUNGRY_PER_SLOT = 5
SECOND_SCHEDULER = "second-scheduler"
NODE_CPU = "16"
OPERATOR_OPTIONS = ("--lease-seconds=6",)
"""The Lease as it is by default; what tests run has a shorter one."""

PULSE_SECONDS = 1.875
"""After so long without a renewal of that Lease the descheduler evicts nothing."""

PLAIN = "plain-pods"
"""The namespace of the plain pods that the Reservations are compared with."""

SETTLE_SECONDS = 5.0
BESIDE = "beside"
"""The pool, and the app, of plain pods that are created while slots change hands."""


@dataclass(frozen=True)
class Size:
    """How much there is."""

    nodes: int
    reservations: int
    slots: int
    expiries: int
    handovers: int
    hungry_on: str = "default-scheduler"
    """The scheduler of the pods that wait for the nodes of hand-overs."""

    def part(self, share: float) -> "Size":
        counts = (self.nodes, self.reservations, self.slots, self.expiries, self.handovers)
        return Size(*(max(1, int(share * n)) for n in counts), self.hungry_on)


@dataclass
class Report:
    """Figures by name, in the order in which they were measured."""

    size: Size
    figures: dict[str, float] = field(default_factory=dict)

    def put(self, name: str, value: float) -> None:
        self.figures[name] = value
        print(f"  {name:<58} {value:10.2f}", flush=True)


@dataclass(frozen=True)
class Scene:
    """One sandbox with one operator, and where the figures go."""

    sandbox: Sandbox
    client: KubeClient
    operator: OperatorProcess
    report: Report

    @property
    def metrics_url(self) -> str:
        return f"http://127.0.0.1:{self.operator.health_port}/metrics"

    def count(self, pattern: str) -> float:
        return read_metric(self.metrics_url, pattern)

    @property
    def pid(self) -> int:
        return self.operator.pid

    def reservations(self) -> tuple[Reservation, ...]:
        return self.client.list(RESERVATIONS, namespace=NAMESPACE, type=Reservation).items


# --- from creation to Available -------------------------------------------------------------------------------------


@contextmanager
def accounted(scene: Scene, what: str) -> Iterator[None]:
    """Print what each process used, and what the API server was asked for, within a block."""
    times, asked = processor_times(scene.sandbox, scene.pid), requests_so_far(scene.client)
    yield
    used = processor_times(scene.sandbox, scene.pid)
    for name, seconds in used.items():
        scene.report.put(f"{what}: cpu seconds of {name}", seconds - times.get(name, 0.0))
    for name, count in sorted(requests_so_far(scene.client).items(), key=lambda pair: -pair[1]):
        more = count - asked.get(name, 0.0)
        if more >= scene.report.size.reservations / 2:
            print(f"    {what}: {name} {more:.0f}")


def measure_plain_pods(scene: Scene, when: str) -> tuple[float, float]:
    """Return how many plain pods the sandbox schedules a second, and how many it gets to run; then delete them.

    They are what holds slots, created as the Reservations are, by one client with as many threads; no webhook is asked.
    """
    count, client, report = scene.report.size.slots, scene.client, scene.report
    what = f"plain pods {when}"
    before, started = scheduled_pods(scene.sandbox), time.monotonic()
    with accounted(scene, what):
        in_parallel(lambda i: client.create(PODS, build_bare_placeholder(f"plain-{i}", PLAIN)), range(count))
        report.put(f"{what}: seconds until all were created", time.monotonic() - started)
        wait(lambda: scheduled_pods(scene.sandbox) - before >= count, seconds=600)
        scheduled = time.monotonic() - started
        report.put(f"{what}: seconds until all were scheduled", scheduled)
        wait_until_plain_pods_run(client)
        ran = time.monotonic() - started
        report.put(f"{what}: seconds until all ran", ran)
    report.put(f"{what}: seconds until all were deleted", delete_pods(client, PLAIN))
    time.sleep(SETTLE_SECONDS)
    return count / scheduled, count / ran


def wait_until_plain_pods_run(client: KubeClient) -> None:
    pending = "status.phase=Pending"
    wait(lambda: not client.list(PODS, namespace=PLAIN, field_selector=pending).items, seconds=300, pause=0.5)


def measure_rate(scene: Scene) -> None:
    """Compare Reservations with the same plain pods, before and beside them: a cluster gets slower as it fills."""
    size, report = scene.report.size, scene.report
    before = measure_plain_pods(scene, "before")
    already, began = scheduled_pods(scene.sandbox), time.monotonic()
    with accounted(scene, "Reservations"):
        bodies = [build_reservation(f"r-{i}", n) for i, n in enumerate(spread(size.slots, size.reservations))]
        in_parallel(lambda body: scene.client.create(RESERVATIONS, body, namespace=NAMESPACE), bodies)
        report.put("Reservations: seconds until all were created", time.monotonic() - began)
        wait(lambda: scheduled_pods(scene.sandbox) - already >= size.slots, seconds=900)
        bound = time.monotonic() - began
        report.put("Reservations: seconds until all slots were scheduled", bound)
        available = r'berth_reservation_phase_changes_total\{phase="Available"'
        wait(lambda: scene.count(available) >= size.reservations, seconds=900)
        seconds = time.monotonic() - began
        report.put("Reservations: seconds until all were Available", seconds)
    proven = wait(
        lambda: all(r.condition(ConditionType.HANDOVER_READY) for r in scene.reservations()), seconds=300, pause=1
    )
    report.put("seconds more until all were proven", proven)
    time.sleep(SETTLE_SECONDS)
    after = measure_plain_pods(scene, "after")
    scheduled, ran = ((one + other) / 2 for one, other in zip(before, after, strict=True))
    report.put("plain pods, mean of before and after: scheduled a second", scheduled)
    report.put("plain pods, mean of before and after: running a second", ran)
    report.put("slots scheduled a second", size.slots / bound)
    report.put("slots Available a second", size.slots / seconds)
    report.put("slots scheduled : plain pods scheduled", size.slots / bound / scheduled)
    report.put("slots Available : plain pods running", size.slots / seconds / ran)
    report.put("slots Available : plain pods scheduled (wanted: 0.7)", size.slots / seconds / scheduled)
    report.put("the same against the plain pods before alone", size.slots / seconds / before[0])


def measure_lease(scene: Scene) -> None:
    """Create all Reservations at once, and measure how far apart the operator's renewals of its Lease are meanwhile."""
    count, report = scene.report.size.reservations, scene.report
    with watched_renewals(scene.sandbox) as renewals:
        began = time.monotonic()
        bodies = [build_reservation(f"l-{i}", 1) for i in range(count)]
        in_parallel(lambda body: scene.client.create(RESERVATIONS, body, namespace=NAMESPACE), bodies)
        available = r'berth_reservation_phase_changes_total\{phase="Available"'
        wait(lambda: scene.count(available) >= count, seconds=900)
        report.put(f"{count} Reservations at once: seconds until all were Available", time.monotonic() - began)
    silences = renewals.silences()
    report.put("seconds from one renewal of the Lease to the next: p50", percentile(renewals.gaps(), 0.5))
    report.put("seconds from one renewal of the Lease to the next: longest", renewals.gaps()[-1])
    report.put("seconds until the next renewal was seen: p50", percentile(silences, 0.5))
    report.put("seconds until the next renewal was seen: longest", silences[-1])
    report.put("renewals of the Lease", len(silences))
    report.put("renewals of the Lease seen too late for an eviction", sum(one > PULSE_SECONDS for one in silences))
    report.put("% of the time in which nothing would be evicted", 100 * renewals.stale_share(PULSE_SECONDS))


# --- at rest --------------------------------------------------------------------------------------------------------


def measure_idle(scene: Scene, seconds: float = 30) -> None:
    """Measure what the operator uses when nothing changes."""
    time.sleep(5)
    used = cpu_seconds(scene.pid)
    time.sleep(seconds)
    share = (cpu_seconds(scene.pid) - used) / seconds
    scene.report.put("at rest: % of a core (wanted: below 5)", 100 * share)
    scene.report.put("at rest: MB resident (wanted: below 250)", resident_megabytes(scene.pid))
    scene.report.put("peak: MB resident", resident_megabytes(scene.pid, "VmHWM"))


def measure_restart(scene: Scene) -> None:
    """Restart the operator in an orderly way, then after a kill: in its pod, by its name, and as another one.

    Another one has to wait until the Lease has run out.
    """
    restart(scene, "restarted", scene.operator.stop, scene.operator)
    restart(scene, "killed, again in its pod", scene.operator.kill, scene.operator)
    with tempfile.TemporaryDirectory() as folder:
        other = OperatorProcess(scene.sandbox, Path(folder), *OPERATOR_OPTIONS, "--identity=another")
        try:
            restart(scene, "killed, another one", scene.operator.kill, other)
        finally:
            other.stop()
    scene.operator.start()


def restart(scene: Scene, how: str, end: Callable[[], None], next_one: OperatorProcess) -> None:
    """End the operator, take places away meanwhile, start the next and wait until the statuses are true again."""
    end()
    some = scene.reservations()[:: max(1, scene.report.size.reservations // 20)]
    doomed = [r.status.slots[0].placeholder for r in some]
    in_parallel(lambda name: scene.client.delete(PODS, name, namespace=DEFAULT_NAMESPACE, grace_seconds=0), doomed)
    wait(lambda: not placeholders_named(scene.client, doomed), seconds=30)
    began = time.monotonic()
    next_one.start()
    scene.report.put(f"{how}: seconds until it led", time.monotonic() - began)
    wait(lambda: len(placeholders_named(scene.client, doomed)) == len(doomed), seconds=120)
    wait(lambda: all(r.phase is ReservationPhase.AVAILABLE for r in scene.reservations()), seconds=120)
    scene.report.put(f"{how}: seconds until all was true (wanted: below 10)", time.monotonic() - began)


def placeholders_named(client: KubeClient, names: list[str]) -> list[str]:
    """Return which of a few placeholders exist and are not about to go."""
    found = []
    for name in names:
        try:
            pod = client.get(PODS, name, namespace=DEFAULT_NAMESPACE, type=Pod)
        except NotFoundError:
            continue
        if not pod.is_terminating:
            found.append(name)
    return found


def measure_expiry(scene: Scene) -> None:
    """Let many Reservations expire in the same second, after all is quiet that telling them so has caused.

    Before and after, one client with as many threads as the operator deletes as many plain pods that run.
    """
    doomed = scene.reservations()[: scene.report.size.expiries]
    slots = sum(r.spec.replicas for r in doomed)
    plain_seconds = [seconds_to_delete(scene, slots)]
    before, deleted = placeholders_left(scene.client), 'berth_operator_actions_total{action="DeletePlaceholder"'
    deleted_before = scene.count(re.escape(deleted))
    at = (datetime.now(UTC) + timedelta(seconds=20 + len(doomed) / 20)).replace(microsecond=0)
    expires = format_timestamp(at)
    patch = {"spec": {"ttl": None, "expires": expires}}
    in_parallel(lambda r: scene.client.merge_patch(RESERVATIONS, r.metadata.name, patch, namespace=NAMESPACE), doomed)
    wait(lambda: sum(r.status.expires_at == expires for r in scene.reservations()) == len(doomed), seconds=60, pause=1)
    quiet = (at - datetime.now(UTC)).total_seconds()
    if quiet < SETTLE_SECONDS:
        print(f"  (all was told only {quiet:.1f} s before)")
    time.sleep(max(0.0, quiet))
    wait(lambda: scene.count(re.escape(deleted)) - deleted_before >= slots, seconds=120)
    wait(lambda: placeholders_left(scene.client) <= before - slots, seconds=30)
    what = f"{len(doomed)} expiries of {slots} slots in one second"
    seconds = (datetime.now(UTC) - at).total_seconds()
    scene.report.put(f"{what}: seconds (wanted: 10)", seconds)
    ended = r'berth_reservation_phase_changes_total\{phase="Failed",reason="Expired"'
    wait(lambda: scene.count(ended) >= len(doomed), seconds=60)
    scene.report.put(f"{what}: until told, seconds", (datetime.now(UTC) - at).total_seconds())
    plain_seconds.append(seconds_to_delete(scene, slots))
    scene.report.put(f"{slots} plain pods, deleted before and after: seconds, mean", sum(plain_seconds) / 2)
    scene.report.put("places free : plain pods deleted (wanted: 1.3)", seconds / (sum(plain_seconds) / 2))


def seconds_to_delete(scene: Scene, count: int) -> float:
    """Create plain pods, wait until all run, and return the seconds that it takes to delete them."""
    in_parallel(lambda i: scene.client.create(PODS, build_bare_placeholder(f"plain-{i}", PLAIN)), range(count))
    wait_until_plain_pods_run(scene.client)
    time.sleep(SETTLE_SECONDS)
    seconds = delete_pods(scene.client, PLAIN)
    time.sleep(SETTLE_SECONDS)
    return seconds


# --- hand-overs -----------------------------------------------------------------------------------------------------


def measure_handovers(scene: Scene) -> None:
    """Hand many slots over at once while hungry pods wait for the same nodes.

    Each time that an owner is un-gated a plain pod is created, which fits on nodes of its own: what that takes until it
    is bound is what any pod takes at that moment, with the same hungry pods before it.
    """
    count, client, report = scene.report.size.handovers, scene.client, scene.report
    measure_plain_bindings(scene, count)
    add_nodes(scene.sandbox, count // 25 + 1, NODE_CPU, pool=BESIDE)
    in_parallel(
        lambda i: client.create(
            RESERVATIONS, build_reservation(f"h-{i}", 1, cpu=NODE_CPU, nodes=[f"node-{i:04d}"]), namespace=NAMESPACE
        ),
        range(count),
    )
    wait(lambda: all(r.condition(ConditionType.HANDOVER_READY) for r in scene.reservations()), seconds=300, pause=1)
    in_parallel(
        lambda i: client.create(
            PODS,
            build_pod(f"hungry-{i}", {"app": "hungry"}, NODE_CPU, schedulerName=scene.report.size.hungry_on),
            namespace="hungry",
        ),
        range(count * HUNGRY_PER_SLOT),
    )
    wait(lambda: found_unschedulable(client) == count * HUNGRY_PER_SLOT, seconds=200, pause=2)
    with (
        accounted(scene, "hand-overs"),
        ThreadPoolExecutor(WRITERS) as writers,
        watched_bindings(scene.sandbox, BESIDE) as beside,
        watched_bindings(scene.sandbox, "owner", lambda name: writers.submit(create_beside, client, name)) as times,
    ):
        began = time.monotonic()
        in_parallel(
            lambda i: client.create(PODS, build_pod(f"owner-{i}", {"app": "owner"}, NODE_CPU), namespace=NAMESPACE),
            range(count),
        )
        wait(lambda: all(r.phase.terminal for r in scene.reservations()), seconds=400, pause=1)
        report.put(f"{count} hand-overs at once: seconds until all were recorded", time.monotonic() - began)
        wait(lambda: len(beside.bound) == len(times.free), seconds=120)
    stolen = sum(bool(p.spec.node_name) for p in client.list(PODS, namespace="hungry", type=Pod).items)
    done = sum(r.phase is ReservationPhase.SUCCEEDED for r in scene.reservations())
    report.put("slots stolen (wanted: 0)", stolen)
    report.put("slots taken by their owners", done)
    delays, plain = times.delays(), beside.delays()
    report.put("un-gated to bound: p50 seconds", percentile(delays, 0.5))
    report.put("un-gated to bound: p99 seconds", percentile(delays, 0.99))
    report.put("plain pods created at the same moments, to bound: p50 seconds", percentile(plain, 0.5))
    report.put("plain pods created at the same moments, to bound: p99 seconds", percentile(plain, 0.99))
    report.put("ratio of the p50 (wanted: below 3)", percentile(delays, 0.5) / percentile(plain, 0.5))
    report.put("ratio of the p99 (wanted: below 2)", percentile(delays, 0.99) / percentile(plain, 0.99))


def create_beside(client: KubeClient, name: str) -> None:
    """Create a plain pod for the nodes that no hungry pod may use."""
    tolerations = [{"key": "pool", "value": BESIDE, "effect": "NoSchedule"}]
    body = build_pod(f"{BESIDE}-{name}", {"app": BESIDE}, nodeSelector={"pool": BESIDE}, tolerations=tolerations)
    client.create(PODS, body, namespace=NAMESPACE)


def found_unschedulable(client: KubeClient) -> int:
    """Return how many of the hungry pods the scheduler has tried in vain."""
    return sum(p.condition("PodScheduled") == "False" for p in client.list(PODS, namespace="hungry", type=Pod).items)


def measure_plain_bindings(scene: Scene, count: int) -> None:
    """Measure the seconds from creation to binding of as many plain pods, created at once while no other pod waits."""
    with watched_bindings(scene.sandbox, "plain") as times:
        in_parallel(
            lambda i: scene.client.create(
                PODS, build_pod(f"plain-{i}", {"app": "plain"}, NODE_CPU), namespace=NAMESPACE
            ),
            range(count),
        )
        wait(lambda: len(times.bound) == count, seconds=120)
    delays = times.delays()
    scene.report.put("plain pods and no hungry ones, created to bound: p50 seconds", percentile(delays, 0.5))
    scene.report.put("plain pods and no hungry ones, created to bound: p99 seconds", percentile(delays, 0.99))
    delete_pods(scene.client, NAMESPACE)
    wait(lambda: not scene.client.list(PODS, namespace=NAMESPACE).items, seconds=120, pause=1)


# --- the whole ------------------------------------------------------------------------------------------------------

MEASUREMENTS: dict[str, Callable[[Scene], None]] = {
    "rate": measure_rate,
    "idle": measure_idle,
    "restart": measure_restart,
    "expiry": measure_expiry,
    "handover": measure_handovers,
    "lease": measure_lease,
}


def measure(size: Size, parts: list[str], options: list[str]) -> Report:
    """Measure the parts in one sandbox of a size."""
    report = Report(size)
    print(f"{size.nodes} nodes, {size.reservations} Reservations, {size.slots} slots", flush=True)
    with (
        tempfile.TemporaryDirectory() as folder,
        control_plane(
            SandboxSettings(second_scheduler=size.hungry_on == SECOND_SCHEDULER), progress=say_nothing
        ) as sandbox,
        sandbox.connect() as client,
    ):
        add_nodes(sandbox, size.nodes, NODE_CPU)
        for namespace in (NAMESPACE, PLAIN, "hungry"):
            make_namespace(client, namespace)
        with running_operator(sandbox, Path(folder), *OPERATOR_OPTIONS, "--identity=one", *options) as operator:
            for part in parts:
                MEASUREMENTS[part](Scene(sandbox, client, operator, report))
    return report


def print_table(reports: list[Report]) -> None:
    """Print the figures of all sizes side by side."""
    names = list(dict.fromkeys(name for report in reports for name in report.figures))
    print(f"\n{'':<60}" + "".join(f"{report.size.reservations:>8} R" for report in reports))
    for name in names:
        print(f"{name:<60}" + "".join(f"{report.figures.get(name, float('nan')):10.2f}" for report in reports))


def main() -> None:
    """Measure what the options ask for and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=500)
    parser.add_argument("--reservations", type=int, default=2000)
    parser.add_argument("--slots", type=int, default=5000)
    parser.add_argument("--expiries", type=int, default=1000)
    parser.add_argument("--handovers", type=int, default=500)
    parser.add_argument("--hungry-on", default="default-scheduler", choices=("default-scheduler", SECOND_SCHEDULER))
    parser.add_argument("--curve", action="store_true", help="measure a quarter and a half of it, too")
    parser.add_argument("--only", default=",".join(PARTS), help="comma-separated: " + ", ".join(MEASUREMENTS))
    parser.add_argument("options", nargs="*", help="more options of the operator, after --")
    given = parser.parse_args()
    whole = Size(given.nodes, given.reservations, given.slots, given.expiries, given.handovers, given.hungry_on)
    shares = (0.25, 0.5, 1.0) if given.curve else (1.0,)
    parts = given.only.split(",")
    apart = ("handover", "lease")
    groups = [[p for p in parts if p not in apart], *([p] for p in apart if p in parts)]
    reports = []
    for share in shares:
        size = whole.part(share)
        joined = Report(size)
        for group in filter(None, groups):
            joined.figures |= measure(size, group, given.options).figures
        reports.append(joined)
    print_table(reports)


if __name__ == "__main__":
    main()
