"""Measures what the webhook adds to pod creations, beside the same load without it; prints, and decides nothing.

    python tests/benchmarks/webhook_load.py [--rate 200] [--seconds 6] [--rounds 3] [--reservations 100] [--hostile 157]

Every round creates pods at the same rate in several ways:

    absent      no Reservation is live: the webhook is not registered
    elsewhere   Reservations are live, in other namespaces than the pods'
    let be      in a namespace with live Reservations, pods that none of them is for
    gated       in that namespace, dry runs of pods that a slot is held for
    beside      the same, while another namespace has many Reservations with large affinities that select alike, and
                pods that are nearly like them are created there five times a second (`hostile`)

Those with live Reservations take turns of half a second, so that whatever else the machine does meets all of them
alike; what is added is told against those of the same moments that the webhook is not called for. Creations are begun
on time whether or not earlier ones are done; the times are those of the whole call.
"""

# ruff: noqa: T201 - it prints

import argparse
import asyncio
import itertools
import ssl
import statistics
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core.reservations import ConditionType
from berth_kube.client import KubeClient
from berth_kube.resources import MUTATING_WEBHOOKS, RESERVATIONS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, label_owner, make_namespace, reservations
from control_planes import control_plane
from service_processes import OperatorProcess, running_operator
from waiting import eventually

NOBODY = "nobody"
"""A scheduler that does not exist: the pods are created and lie there, which costs the cluster the least."""


@dataclass(frozen=True)
class Way:
    """One way of creating pods."""

    name: str
    namespace: str
    app: str
    dry_run: bool = False
    terms: int = 0
    """How many terms of affinity the pods have."""

    def body(self, number: int) -> dict[str, Any]:
        container = {"name": "main", "image": "pause", "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}}}
        scheduler = {} if self.app == "owner" else {"schedulerName": NOBODY}
        affinity = {"affinity": build_affinity(self.terms)} if self.terms else {}
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": f"pod-{number}-", "labels": {"app": self.app}},
            "spec": {"containers": [container], "automountServiceAccountToken": False, **scheduler, **affinity},
        }


def build_affinity(terms: int) -> dict[str, Any]:
    """Return node preferences that matter to nobody, some 150 bytes each."""
    expressions = [{"key": f"example.com/label-{n}", "operator": "NotIn", "values": ["a", "b", "c"]} for n in range(3)]
    preferences = [
        {
            "weight": 1 + n % 100,
            "preference": {"matchExpressions": [*expressions, {"key": f"k{n}", "operator": "Exists"}]},
        }
        for n in range(terms)
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}}


ABSENT = (Way("absent", "plain", "other"), Way("absent, dry run", "covered", "owner", dry_run=True))
WAYS = (
    Way("elsewhere", "plain", "other"),
    Way("let be", "covered", "other"),
    Way("elsewhere, dry run", "plain", "owner", dry_run=True),
    Way("gated", "covered", "owner", dry_run=True),
)
BESIDE = Way("beside", "covered", "owner", dry_run=True)
HOSTILE_PLACES = Way("hostile", "hostile", "owner", terms=300)
HOSTILE = Way("hostile", "hostile", "owner", dry_run=True, terms=301)
"""Its pods have one term more than the templates, so that each Reservation is compared and none fits."""
HOSTILE_RATE = 5.0
WITHOUT = {"elsewhere": "absent", "let be": "elsewhere", "elsewhere, dry run": "absent, dry run"}
WITHOUT |= {"gated": "elsewhere, dry run", "beside": "gated"}
"""Each way and the one that it is held against."""

SLICE_SECONDS = 0.5


class Load:
    """Creates pods at a rate over the API server's own protocol and keeps how long each call took."""

    def __init__(self, kubeconfig: Path, rate: float, seconds: float) -> None:
        config = yaml.safe_load(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self._context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self._context.load_cert_chain(user["client-certificate"], user["client-key"])
        self._server = cluster["server"]
        self._rate = rate
        self._count = int(rate * seconds)

    def run(self, *ways: Way, beside: Way | None = None) -> dict[str, list[float]]:
        """Return by way the milliseconds of every call; each has the rate to itself in its turns.

        Calls of the way that is `beside` them come all the time, at a rate of their own.
        """
        return asyncio.run(self._run(ways, beside))

    async def _run(self, ways: tuple[Way, ...], beside: Way | None) -> dict[str, list[float]]:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=64)
        found: dict[str, list[float]] = {way.name: [] for way in ways}
        per_turn = int(self._rate * SLICE_SECONDS)
        async with aiohttp.ClientSession(connector=connector) as session:
            began = time.perf_counter()
            calls = []
            others: list[float] = []
            noise = asyncio.create_task(self._go_on(session, beside, others)) if beside else None
            for number in range(self._count * len(ways)):
                way = ways[number // per_turn % len(ways)]
                await asyncio.sleep(max(0.0, began + number / self._rate - time.perf_counter()))
                calls.append(asyncio.create_task(self._create(session, way, number, found[way.name])))
            await asyncio.gather(*calls)
            if noise is not None and beside is not None:
                noise.cancel()
                found[beside.name] = others
        return found

    async def _go_on(self, session: aiohttp.ClientSession, way: Way, millis: list[float]) -> None:
        """Make calls of one way until cancelled, each on time whether or not earlier ones are done."""
        calls: set[asyncio.Task[None]] = set()
        for number in itertools.count():
            call = asyncio.create_task(self._create(session, way, number, millis))
            calls.add(call)
            call.add_done_callback(calls.discard)
            await asyncio.sleep(1 / HOSTILE_RATE)

    async def _create(self, session: aiohttp.ClientSession, way: Way, number: int, millis: list[float]) -> None:
        url = f"{self._server}/api/v1/namespaces/{way.namespace}/pods{'?dryRun=All' if way.dry_run else ''}"
        millis.append(await _create(session, url, way.body(number)))


async def _create(session: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> float:
    began = time.perf_counter()
    async with session.post(url, json=body) as answer:
        await answer.read()
        if answer.status != 201:
            raise RuntimeError(await answer.text())
    return (time.perf_counter() - began) * 1000


def percentile(values: list[float], share: float) -> float:
    return statistics.quantiles(values, n=1000, method="inclusive")[int(share * 1000) - 1]


@contextmanager
def live_reservations(client: KubeClient, count: int, way: Way = BESIDE) -> Iterator[None]:
    """Have Reservations live that are proven, and released at the end."""
    for number in range(count):
        body = build_reservation(f"place-{number}", cpu="1m", owners=label_owner(app="owner"))
        body["spec"]["tasks"][0]["template"] = {"spec": {**way.body(0)["spec"]}}
        client.create(RESERVATIONS, body, namespace=way.namespace)
    eventually(
        "all are proven",
        lambda: all(r.condition(ConditionType.HANDOVER_READY) for r in reservations(client, way.namespace)),
        seconds=300,
    )
    yield
    for number in range(count):
        client.delete(RESERVATIONS, f"place-{number}", namespace=way.namespace)
    eventually("they are gone", lambda: not reservations(client, way.namespace), seconds=120)


def measure(sandbox: Sandbox, client: KubeClient, options: argparse.Namespace) -> dict[str, list[list[float]]]:
    """Return by way the milliseconds of the calls of each round."""
    load = Load(sandbox.kubeconfig, options.rate, options.seconds)
    found: dict[str, list[list[float]]] = {way.name: [] for way in (*ABSENT, *WAYS, BESIDE, HOSTILE)}
    load.run(ABSENT[0])  # warms everything up
    for _ in range(options.rounds):
        rounds = load.run(*ABSENT)
        with live_reservations(client, options.reservations):
            rounds |= load.run(*WAYS)
            with live_reservations(client, options.hostile, HOSTILE_PLACES):
                rounds |= load.run(BESIDE, beside=HOSTILE)
        eventually("the webhook is gone", lambda: not client.list(MUTATING_WEBHOOKS).items, seconds=60)
        for name, millis in rounds.items():
            found[name].append(millis)
    return found


def report(found: dict[str, list[list[float]]], options: argparse.Namespace) -> None:
    print(f"{options.rate:g} creations a second, {options.reservations} live Reservations, {options.rounds} rounds")
    print(f"{'':20}{'p50 ms':>8}{'p90 ms':>8}{'p99 ms':>8}{'added p50':>11}{'added p90':>11}{'added p99':>11}")
    for name in found:
        own, base = (
            [statistics.median(percentile(one, share) for one in found[way]) for share in (0.5, 0.9, 0.99)]
            for way in (name, WITHOUT.get(name, name))
        )
        added = [mine - others for mine, others in zip(own, base, strict=True)]
        print(f"{name:20}" + "".join(f"{ms:8.1f}" for ms in own) + "".join(f"{ms:11.1f}" for ms in added))


def report_reviews(operator: OperatorProcess) -> None:
    """Print how long the webhook itself took for a review, and what the operator computed in all."""
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.health_port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if line.startswith("berth_webhook_seconds"))
    count, total = (float(told[f"berth_webhook_seconds_{part}"]) for part in ("count", "sum"))
    within = float(told['berth_webhook_seconds_bucket{le="0.01"}'])
    print(f"of {count:g} reviews the webhook itself answered {within / count:.1%} within 10 ms, ", end="")
    print(f"on average after {total / count * 1000:.2f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=200.0)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reservations", type=int, default=100)
    parser.add_argument("--hostile", type=int, default=157)
    options = parser.parse_args()
    with (
        control_plane() as sandbox,
        tempfile.TemporaryDirectory() as folder,
        sandbox.connect() as client,
        running_operator(sandbox, Path(folder), "--retention=1", "--lease-seconds=8") as operator,
    ):
        sandbox.add_nodes(20, NodeShape(cpu="16", memory="64Gi"))
        for namespace in ("plain", "covered", "hostile"):
            make_namespace(client, namespace)
        report(measure(sandbox, client, options), options)
        report_reviews(operator)


if __name__ == "__main__":
    main()
