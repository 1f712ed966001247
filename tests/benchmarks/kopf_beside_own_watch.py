"""Measures what it costs that kopf hears Reservations, beside a watch of the API client in one run; prints ratios.

    python tests/benchmarks/kopf_beside_own_watch.py [--reservations 450]

Three processes hear the same Reservations of the same sandbox at the same time and fill a cache each: one with the
client's watch, one as the operator does, with kopf for what it has something to do about, and one with kopf for every
version. Meanwhile an operator holds the places and writes the statuses;
then each Reservation is given a label, which is an event that nobody answers. Printed are processor time for each
version that was heard, the time from the sending of a write until its version was in the cache, and how much of the
operator's processor time, and of everything's, the difference is.
"""

# ruff: noqa: T201 - it prints

import argparse
import asyncio
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, cast

import kopf

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from operator_load import (
    NAMESPACE,
    add_nodes,
    build_reservation,
    in_parallel,
    make_namespace,
    percentile,
    processor_times,
    wait,
)

from berth_core.reservations import Reservation, ReservationPhase
from berth_kube.client import KubeClient, connect
from berth_kube.configuration import find_source
from berth_kube.resources import RESERVATIONS
from berth_kube.watch_items import Bookmark, Changed, Listed, Removed
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.informers import apply_event, apply_handled
from berth_operator.runtime.app import App
from berth_operator.runtime.kopf_handlers import declare_reservations
from berth_operator.runtime.kopf_runtime import ReservationStream, configure
from berth_operator.runtime.kopf_session import Connection as KopfConnection
from control_planes import control_plane
from service_processes import running_operator

WAYS: Final = ("own watch", "as it is", "kopf alone")
SLOTS_PER_NODE: Final = 100
MILLIS: Final = 1000


@dataclass
class Heard:
    """What one process has heard: when each version was in its cache, and the processor time since it began."""

    times: dict[str, float] = field(default_factory=dict)
    cache: Cache = field(default_factory=lambda: Cache(lambda _key: None))
    cpu_before: float = 0.0

    def apply_event(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        apply_event(self.cache, event_type, body)
        self.times[body["metadata"]["resourceVersion"]] = time.monotonic()

    def apply_handled(self, line: bytes) -> str:
        version = apply_handled(self.cache, line)
        if version:
            self.times[version] = time.monotonic()
        return version

    def begin_reservation(self, uid: str) -> None:
        """Do nothing: the operator forgets a number here."""

    def answer(self, pipe: Connection) -> None:
        """Answer what the benchmark asks."""
        while (question := pipe.recv()) != "end":
            if question == "begin":
                self.times.clear()
                self.cpu_before = time.process_time()
                pipe.send(None)
            else:
                pipe.send((time.process_time() - self.cpu_before, dict(self.times)))


def hear_as_it_is(kubeconfig: str, pipe: Connection) -> None:
    """Hear Reservations as the operator does."""
    heard = Heard()
    run_kopf(heard, ReservationStream(lambda: None, heard.apply_handled), kubeconfig, pipe)


def hear_by_kopf(kubeconfig: str, pipe: Connection) -> None:
    """Hear Reservations with the operator's handlers only."""
    run_kopf(Heard(), ReservationStream(lambda: None), kubeconfig, pipe)


def run_kopf(heard: Heard, stream: ReservationStream, kubeconfig: str, pipe: Connection) -> None:
    registry, settings = kopf.OperatorRegistry(), kopf.OperatorSettings()
    configure(settings)
    connection = KopfConnection(find_source(kubeconfig, None), stream)

    async def log_in(**_: Any) -> kopf.AiohttpSession:  # noqa: ANN401 - kopf's keyword arguments
        return await connection.log_in()

    kopf.on.login(id="login", registry=registry)(log_in)
    declare_reservations(registry, cast("App", heard))
    threading.Thread(target=heard.answer, args=(pipe,), daemon=True).start()
    asyncio.run(kopf.operator(registry=registry, settings=settings, clusterwide=True, standalone=True))


def hear_by_watch(kubeconfig: str, pipe: Connection) -> None:
    """Hear Reservations with the watch that pods and nodes are heard by."""
    heard = Heard()
    threading.Thread(target=heard.answer, args=(pipe,), daemon=True).start()
    with connect(kubeconfig=kubeconfig) as client:
        for item in client.watch(RESERVATIONS, stop=threading.Event()):
            match item:
                case Listed(bodies):
                    for body in bodies:
                        heard.apply_event(None, body)
                case Changed(body):
                    heard.apply_event("MODIFIED", body)
                case Removed(body):
                    heard.apply_event("DELETED", body)
                case Bookmark():
                    pass


@dataclass
class Listener:
    """One of the two processes."""

    name: str
    pipe: Connection
    process: multiprocessing.process.BaseProcess

    @classmethod
    def start(cls, name: str, run: Callable[[str, Connection], None], kubeconfig: str) -> "Listener":
        ours, theirs = multiprocessing.get_context("spawn").Pipe()
        process = multiprocessing.get_context("spawn").Process(target=run, args=(kubeconfig, theirs), daemon=True)
        process.start()
        return cls(name, ours, process)

    def ask(self, question: str) -> Any:  # noqa: ANN401 - what the question is about
        self.pipe.send(question)
        return self.pipe.recv()


def write_all(names: list[str], write: Callable[[str], Mapping[str, Any]]) -> dict[str, float]:
    """Write one version of each Reservation; return by version when its write was sent."""
    sent: dict[str, float] = {}

    def act(name: str) -> None:
        began = time.monotonic()
        sent[write(name)["metadata"]["resourceVersion"]] = began

    in_parallel(act, names)
    return sent


def measure(count: int) -> None:
    """Run everything and print the tables."""
    with (
        control_plane() as sandbox,
        sandbox.connect() as client,
        tempfile.TemporaryDirectory() as folder,
        running_operator(sandbox, Path(folder), "--identity=one") as operator,
    ):
        add_nodes(sandbox, -(-count // SLOTS_PER_NODE), "64")
        make_namespace(client)
        kubeconfig = str(sandbox.service_account_kubeconfig("berth-operator"))
        runs = (hear_by_watch, hear_as_it_is, hear_by_kopf)
        listeners = [Listener.start(name, run, kubeconfig) for name, run in zip(WAYS, runs, strict=True)]
        warm_up(client, listeners)
        for one in listeners:
            one.ask("begin")
        names = [f"place-{number}" for number in range(count)]
        before = processor_times(sandbox, operator.pid)
        sent = create(client, names)
        lives = {one.name: one.ask("report")[0] for one in listeners}
        after = processor_times(sandbox, operator.pid)
        sent |= label(client, names)
        wait(lambda: all(sent.keys() <= one.ask("report")[1].keys() for one in listeners), seconds=60)
        report_hearing({one.name: one.ask("report") for one in listeners}, sent)
        report_share(lives, {name: after[name] - before[name] for name in after if name != "this benchmark"})
        for one in listeners:
            one.pipe.send("end")
            one.process.terminate()


def warm_up(client: KubeClient, listeners: list[Listener]) -> None:
    """Wait until all processes hear."""
    client.create(RESERVATIONS, build_reservation("warm-up", 1), namespace=NAMESPACE)
    wait(lambda: all_available(client, 1), seconds=120)

    def is_heard() -> bool:
        body = client.get(RESERVATIONS, "warm-up", namespace=NAMESPACE)
        return all(body["metadata"]["resourceVersion"] in one.ask("report")[1] for one in listeners)

    wait(is_heard, seconds=60)


def create(client: KubeClient, names: list[str]) -> dict[str, float]:
    """Create Reservations and wait until all are Available; return when each write was sent."""
    sent = write_all(names, lambda name: client.create(RESERVATIONS, build_reservation(name, 1), namespace=NAMESPACE))
    wait(lambda: all_available(client, len(names)), seconds=600, pause=1)
    return sent


def label(client: KubeClient, names: list[str]) -> dict[str, float]:
    """Give each Reservation a label, which nobody answers; return when each write was sent."""
    body = {"metadata": {"labels": {"seen": "true"}}}
    return write_all(names, lambda name: client.merge_patch(RESERVATIONS, name, body, namespace=NAMESPACE))


def all_available(client: KubeClient, count: int) -> bool:
    found = client.list(RESERVATIONS, namespace=NAMESPACE, type=Reservation).items
    return sum(one.phase is ReservationPhase.AVAILABLE for one in found) >= count


def report_hearing(answers: Mapping[str, tuple[float, dict[str, float]]], sent: Mapping[str, float]) -> None:
    """Print what each way took for a version, and when it was in the cache."""
    print(f"{'':24}{'versions':>10}{'cpu s':>8}{'ms a version':>14}{'p50 ms':>8}{'p90 ms':>8}{'p99 ms':>8}")
    rows: dict[str, list[float]] = {}
    for name, (cpu, times) in answers.items():
        late = sorted((times[version] - began) * MILLIS for version, began in sent.items())
        quantiles = [percentile(late, share) for share in (0.5, 0.9, 0.99)]
        rows[name] = [len(times), cpu, cpu * MILLIS / len(times), *quantiles]
    for name in WAYS[1:]:
        rows[f"{name} / {WAYS[0]}"] = [more / less for less, more in zip(rows[WAYS[0]], rows[name], strict=True)]
    for name, row in rows.items():
        whole = 2 if "/" in name else 0
        print(f"{name:24}{row[0]:10.{whole}f}{row[1]:8.2f}{row[2]:14.2f}" + "".join(f"{ms:8.2f}" for ms in row[3:]))


def report_share(lives: Mapping[str, float], spent: Mapping[str, float]) -> None:
    """Print what kopf adds to the processor time until all are Available."""
    more = lives["as it is"] - lives["own watch"]
    operator = spent["operator"] - more
    everything = statistics.fsum(spent.values()) - more
    print(f"until all are Available kopf adds {more:.2f} s of processor time:")
    print(f"{more / operator:.1%} to the operator's {operator:.1f} s")
    print(f"{more / everything:.1%} to the {everything:.1f} s of the control plane and the operator")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reservations", type=int, default=450)
    measure(parser.parse_args().reservations)


if __name__ == "__main__":
    main()
