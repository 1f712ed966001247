"""The load of the operator's benchmark: what is created, and reading how far sandbox and operator got with it."""

import os
import re
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from berth_core import Pod
from berth_core.clock import parse_timestamp
from berth_core.labels import HANDOVER_GATE
from berth_core.names import DEFAULT_NAMESPACE, OPERATOR_LEASE
from berth_core.reservations import Reservation
from berth_kube.client import KubeClient, connect
from berth_kube.errors import Call
from berth_kube.leases import Lease
from berth_kube.resources import LEASES, NAMESPACES, NODES, PODS
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_kube.watch_items import Changed, Listed
from berth_operator.reservation.manifests import build_placeholder
from berth_operator.settings import PlaceholderSettings
from berth_sandbox.pretended_nodes import NodeShape, build_node
from berth_sandbox.sandbox import Sandbox

NAMESPACE = "load"
SLOT_CPU = "500m"
WRITERS = 16
"""Threads that write; as many as the operator has by default."""

_LOOK_SECONDS = 0.2
"""Between two looks at the Lease of a descheduler that waits for the operator."""

_TICKS = os.sysconf("SC_CLK_TCK")


def pod_spec(cpu: str = SLOT_CPU, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a pod
    container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}}}
    return {"terminationGracePeriodSeconds": 1, "containers": [container], **spec}


def build_pod(name: str, labels: dict[str, str], cpu: str = SLOT_CPU, **spec: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": pod_spec(cpu, automountServiceAccountToken=False, **spec),
    }


def build_reservation(
    name: str, replicas: int, *, cpu: str = SLOT_CPU, app: str = "owner", nodes: Iterable[str] = ()
) -> dict[str, Any]:
    task = {"name": "main", "replicas": replicas, "template": {"spec": pod_spec(cpu)}}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": name},
        "spec": {
            "ttl": "2h",
            "owners": [{"labelSelector": {"matchLabels": {"app": app}}}],
            "tasks": [task | ({"reservationNodeNames": list(nodes)} if nodes else {})],
        },
    }


def build_bare_placeholder(name: str, namespace: str) -> dict[str, Any]:
    """Return the pod that holds a slot, as somebody would create it who has no Reservation."""
    reservation = Reservation.from_api(
        build_reservation(name, 1) | {"metadata": {"name": name, "namespace": namespace, "uid": name}}
    )
    settings = PlaceholderSettings(namespace=namespace)
    body = build_placeholder(
        reservation, reservation.spec.tasks[0], 0, priority=0, deadline_seconds=7200, settings=settings
    )
    for field_name in ("priorityClassName", "preemptionPolicy"):  # the class exists only while there are Reservations
        body["spec"].pop(field_name, None)
    labels = {"app": "plain", "tier": "none", "part-of": "measurement"}
    return body | {"metadata": body["metadata"] | {"name": name, "labels": labels}}


def spread(slots: int, reservations: int) -> list[int]:
    """Return how many slots each Reservation has, so that they are as equal as can be."""
    return [slots * (i + 1) // reservations - slots * i // reservations for i in range(reservations)]


def in_parallel(act: Callable[[Any], object], items: Iterable[Any]) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(act, items))


def make_namespace(client: KubeClient, name: str = NAMESPACE) -> None:
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def add_nodes(sandbox: Sandbox, count: int, cpu: str, *, pool: str = "") -> None:
    """Add nodes; those of a pool are for pods that select and tolerate it."""
    taints = ({"key": "pool", "value": pool, "effect": "NoSchedule"},) if pool else ()
    shape = NodeShape(cpu=cpu, memory="256Gi", pods=250, labels={"pool": pool} if pool else {}, taints=taints)
    with sandbox.connect() as client:
        before = len(ready_nodes(client))
        in_parallel(lambda i: client.create(NODES, build_node(f"{pool or 'node'}-{i:04d}", shape)), range(count))
        wait(lambda: len(ready_nodes(client)) >= before + count, seconds=120)


def ready_nodes(client: KubeClient) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in client.list(NODES).items
        if any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", ()))
    ]


def wait(check: Callable[[], object], *, seconds: float, pause: float = 0.2) -> float:
    """Wait until a check is true and return the seconds that this took."""
    started = time.monotonic()
    while not check():
        if time.monotonic() - started > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(pause)
    return time.monotonic() - started


# --- how far they got -----------------------------------------------------------------------------------------------


def read_metric(url: str, pattern: str) -> float:
    """Return the sum of the samples whose line begins with a pattern."""
    context = ssl._create_unverified_context() if url.startswith("https:") else None  # noqa: S323 - the sandbox's
    with urllib.request.urlopen(url, timeout=10, context=context) as answer:  # noqa: S310 - loopback
        text = answer.read().decode()
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))


def scheduled_pods(sandbox: Sandbox) -> float:
    """Return how many pods the scheduler has bound since it started."""
    url = f"https://127.0.0.1:{sandbox.ports.scheduler}/metrics"
    return read_metric(url, r'scheduler_schedule_attempts_total\{.*result="scheduled"')


def placeholders_left(client: KubeClient) -> int:
    return sum(
        1
        for pod in client.list(PODS, namespace=DEFAULT_NAMESPACE, type=Pod).items
        if not pod.is_terminating and not pod.is_terminal
    )


def delete_pods(client: KubeClient, namespace: str, label_selector: str = "") -> float:
    """Delete all pods of a namespace, which are gone then, and return the seconds that the deletions took."""
    listed = client.list(PODS, namespace=namespace, label_selector=label_selector, type=Pod).items
    began = time.monotonic()
    in_parallel(lambda pod: client.delete(PODS, pod.metadata.name, namespace=namespace, grace_seconds=0), listed)
    return time.monotonic() - began


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def processor_times(sandbox: Sandbox, operator_pid: int) -> dict[str, float]:
    """Return the processor time that each process has used, this one included."""
    pids = {component.value: pid for component, pid in sandbox.live_components().items()}
    pids |= {"operator": operator_pid, "this benchmark": os.getpid()}
    return {name: cpu_seconds(pid) for name, pid in pids.items()}


def requests_so_far(client: KubeClient) -> dict[str, float]:
    """Return how many requests the API server has answered, by verb and resource, without reads of its own."""
    raw = client.send(Request(Call("get", "the API server's metrics"), "GET", "/metrics"), Repeatable.ALWAYS).decode()
    found: dict[str, float] = {}
    for line in raw.splitlines():
        if line.startswith("apiserver_request_total{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            name = f"{labels['verb'].lower()} {labels['resource']} {labels['subresource']} {labels['dry_run']}".strip()
            found[name] = found.get(name, 0.0) + float(line.rsplit(" ", 1)[1])
    return found


def resident_megabytes(pid: int, key: str = "VmRSS") -> float:
    """Return the resident memory of a process; key `VmHWM` for its peak."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(key))) / 1024


# --- when pods were bound -------------------------------------------------------------------------------------------


@dataclass
class BindingTimes:
    """When pods were first seen without our gate, and when bound; by name, monotonic seconds."""

    free: dict[str, float] = field(default_factory=dict)
    bound: dict[str, float] = field(default_factory=dict)
    on_free: Callable[[str], object] = lambda _name: None

    def see(self, pod: Pod) -> None:
        """Take in one version of a pod."""
        name, now = pod.metadata.name, time.monotonic()
        if not any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates):
            if name not in self.free:
                self.on_free(name)
            self.free.setdefault(name, now)
        if pod.spec.node_name:
            self.bound.setdefault(name, now)

    def delays(self) -> list[float]:
        """Return the seconds from free to bound, in ascending order."""
        return sorted(self.bound[name] - self.free[name] for name in self.bound)


@contextmanager
def watched_bindings(
    sandbox: Sandbox, app: str, on_free: Callable[[str], object] = lambda _name: None
) -> Iterator[BindingTimes]:
    """Yield the times of the pods of one app, kept by a watch, which tells of each pod that is first seen ungated."""
    times, stop, listed = BindingTimes(on_free=on_free), threading.Event(), threading.Event()

    def follow() -> None:
        with connect(kubeconfig=str(sandbox.kubeconfig)) as client:
            for item in client.watch(PODS, namespace=NAMESPACE, label_selector=f"app={app}", type=Pod, stop=stop):
                match item:
                    case Listed():
                        listed.set()
                    case Changed(pod):
                        times.see(pod)
                    case _:
                        pass

    with following(follow, stop, listed):
        yield times


# --- when the Lease was renewed -------------------------------------------------------------------------------------


@dataclass
class Renewals:
    """The renewals of the operator's Lease: when each says that it was made, and when it was seen; unix seconds."""

    made: list[float] = field(default_factory=list)
    seen: list[float] = field(default_factory=list)

    def see(self, lease: Lease) -> None:
        """Take in one version of the Lease."""
        made = parse_timestamp(lease.spec.renew_time).timestamp() if lease.spec.renew_time else None
        if made is not None and (not self.made or made != self.made[-1]):
            self.made.append(made)
            self.seen.append(time.time())

    def gaps(self) -> list[float]:
        """Return the seconds from one renewal to the next, in ascending order."""
        return sorted(later - earlier for earlier, later in pairwise(self.made))

    def stale_share(self, seconds: float) -> float:
        """Return the share of the time in which the Lease is too old for somebody who looks five times a second.

        They know by their last look that a renewal reached the API server after it.
        """
        known = [max(made, seen - _LOOK_SECONDS) for made, seen in zip(self.made, self.seen, strict=True)]
        stale = sum(max(0.0, seen - last - seconds) for last, seen in zip(known, self.seen[1:], strict=False))
        return stale / (self.seen[-1] - self.seen[0])

    def silences(self) -> list[float]:
        """Return the seconds from one renewal until the next was seen, in ascending order."""
        return sorted(seen - made for made, seen in zip(self.made, self.seen[1:], strict=False))


@contextmanager
def watched_renewals(sandbox: Sandbox) -> Iterator[Renewals]:
    """Yield the renewals of the operator's Lease, kept by a watch."""
    renewals, stop, listed = Renewals(), threading.Event(), threading.Event()

    def follow() -> None:
        name = f"metadata.name={OPERATOR_LEASE}"
        with connect(kubeconfig=str(sandbox.kubeconfig)) as client:
            for item in client.watch(LEASES, namespace=DEFAULT_NAMESPACE, field_selector=name, type=Lease, stop=stop):
                match item:
                    case Listed():
                        listed.set()
                    case Changed(lease):
                        renewals.see(lease)
                    case _:
                        pass

    with following(follow, stop, listed):
        yield renewals


@contextmanager
def following(follow: Callable[[], None], stop: threading.Event, listed: threading.Event) -> Iterator[None]:
    """Run a watch in a thread."""
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    listed.wait(30)
    try:
        yield
    finally:
        stop.set()
        thread.join(5)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which a share of the ascending values lies."""
    return values[min(len(values) - 1, int(share * len(values)))] if values else float("nan")
