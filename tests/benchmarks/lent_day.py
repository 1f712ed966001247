"""Measures a day of lent nodes in hurried time: 20 nodes, twelve of them in three zones with windows of their own.

    python tests/benchmarks/lent_day.py [--minutes 9] [--period 10s] [--seed 1] [--logs DIR]

Only the schedule of the zones is hurried: one day passes in `--minutes`. Operator, descheduler, kube-scheduler and all
budgets have true time, and `--period` is the `evictPeriod`. Deployments of preemptable pods want more room than the
usual nodes have; some have disruption budgets, some budgets by `volcano.sh/jdb-*`. Deployments of other pods are
churned and scaled all the time. A watch counts pods that are not preemptable on lent nodes, pods that are left there
when a zone closes, and budgets that are not kept.

Of the pods that are left some are kept by a budget, as the `jdb` or disruption budget of their job spares none at the
end; these are told apart. Of a job without one it says whether another of its pods was missing in the last period.
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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    BerthError,
    MigrationPlan,
    Pod,
    RevocableZone,
    has_to_leave,
    parse_duration,
    parse_timestamp,
)
from berth_core.lent_node_pods import says_preemptable
from berth_kube import Informer, KubeClient, Store, WatchItem
from berth_kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, MIGRATION_PLANS, NODES, PDBS, PODS, REVOCABLE_ZONES
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace
from control_planes import control_plane, say_nothing
from policy_scenes import DeschedulerReplica
from service_processes import OperatorProcess
from waiting import eventually

ZONES: Final = {"night": ["22:00-6:00"], "day": ["8:00-18:00"], "twice": ["10:00-14:00", "16:00-20:00"]}
LENT_PER_ZONE, USUAL, KEPT = 4, 6, 2
NAMESPACE: Final = "busy"
PREEMPTABLE: Final = {"volcano.sh/preemptable": "true"}
REPLICAS: Final = 4
LEAST: Final = 2
"""Ready pods that a Deployment with a budget keeps."""
MINUTES_OF_A_DAY: Final = 24 * 60
AFTER_BEGIN: Final = 5 / 24
"""When it is noon, as a share of the day: it begins at seven, when all zones are closed."""
POLICY: Final[dict[str, Any]] = {
    "mode": "Auto",
    "limits": {"maxMoves": 50, "podCoolDown": "0s"},
    "plansKept": 100,
    "profiles": [{"name": "default", "plugins": {"deschedule": {"enabled": ["LentNodes"]}}}],
}


class HurriedOperator(OperatorProcess):
    """An operator for which a zone's day passes in some minutes."""

    def __init__(self, sandbox: Sandbox, folder: Path, noon: datetime, speed: float) -> None:
        super().__init__(sandbox, folder)
        program = Path(__file__).resolve().parents[1] / "support" / "hurried_zones.py"
        given = (f"NOON={noon.isoformat()}", f"SPEED={speed}")
        self._command = ("env", *given, sys.executable, str(program), *self._command[1:])


@dataclass
class Seen:
    """What the watch has seen."""

    lent: dict[str, str]
    """The zone of each lent node."""
    pods: Store[Pod] = field(default_factory=Store)
    lock: threading.Lock = field(default_factory=threading.Lock)
    intruders: set[str] = field(default_factory=set)
    """Pods that are not preemptable and were on a lent node."""
    broken: Counter[str] = field(default_factory=Counter)
    """By Deployment, how often fewer of its pods were Ready than its budget says."""
    guarded: frozenset[str] = frozenset()
    """Deployments with a budget, once all their pods are Ready."""
    lent_pods: set[str] = field(default_factory=set)
    """All preemptable pods that were on a lent node."""
    closings: list[str] = field(default_factory=list)
    """Zones that have closed."""
    left: Counter[str] = field(default_factory=Counter)
    """Pods that were left when their zone closed, by what kept them."""
    period: timedelta = timedelta(0)
    missing: dict[str, datetime] = field(default_factory=dict)
    """When a pod of each Deployment was last missing."""

    def apply(self, event: WatchItem[Pod]) -> None:
        with self.lock:
            self.pods.apply(event)
            self._judge()

    def _judge(self) -> None:
        ready: Counter[str] = Counter()
        for pod in self.pods.objects():
            name, now = pod.metadata.labels.get("app", ""), datetime.now(UTC)
            ready[name] += pod.is_ready and not pod.is_terminating
            is_new = now - parse_timestamp(pod.metadata.creation_timestamp or "") < self.period
            if pod.is_terminating or (is_new and not pod.is_ready):
                self.missing[name] = now
            if pod.spec.node_name not in self.lent or not has_to_leave(pod) or pod.metadata.namespace != NAMESPACE:
                continue
            (self.lent_pods if says_preemptable(pod.metadata) else self.intruders).add(pod.metadata.uid)
        for name in self.guarded:
            self.broken[name] += ready[name] < LEAST

    def note_closing(self, zone: str) -> None:
        """Count what is left on a zone's nodes, by what keeps it."""
        self.closings.append(zone)
        with self.lock:
            on = [pod for pod in self.pods.objects() if self.lent.get(pod.spec.node_name) == zone and has_to_leave(pod)]
            found = [(pod.key, self._kept_by(pod)) for pod in on]
        self.left.update(why for _, why in found)
        print(f"  {zone} closed, {len(found)} pods left", *(f"({key}: {why})" for key, why in found), flush=True)

    def _kept_by(self, pod: Pod) -> str:
        """Return what keeps a pod that is left: `budget`, else whether it was `period` or `nothing`."""
        name = pod.metadata.labels.get("app", "")
        if name in self.guarded:
            others = (one for one in self.pods.objects() if one.metadata.labels.get("app") == name)
            ready = sum(one.is_ready and not one.is_terminating for one in others)
            return "budget" if ready <= LEAST else "nothing"
        last = self.missing.get(name)
        return "period" if last is not None and datetime.now(UTC) - last < self.period else "nothing"

    def ready(self, name: str) -> int:
        with self.lock:
            found = (pod for pod in self.pods.objects() if pod.metadata.labels.get("app") == name)
            return sum(pod.is_ready and not pod.is_terminating for pod in found)


@contextmanager
def watching(client: KubeClient, seen: Seen) -> Iterator[None]:
    """Watch all pods meanwhile."""
    failures: list[BerthError] = []
    with Informer("pods", lambda stop: client.watch(PODS, type=Pod, stop=stop), seen.apply, failures.append):
        yield
    assert not failures, failures


def make_nodes(sandbox: Sandbox, client: KubeClient) -> dict[str, str]:
    """Make the nodes, and return the zones of the lent ones."""
    taint = {"key": "kept", "value": "true", "effect": "NoSchedule"}
    sandbox.add_nodes(KEPT, NodeShape(cpu="8", memory="64Gi", taints=(taint,)), prefix="kept-")
    sandbox.add_nodes(USUAL, NodeShape(cpu="8", memory="64Gi"), prefix="usual-")
    lent = {}
    for zone in ZONES:
        sandbox.add_nodes(LENT_PER_ZONE, NodeShape(cpu="8", memory="64Gi"), prefix=f"lent-{zone}-")
    for node in client.list(NODES).items:
        name = node["metadata"]["name"]
        for zone in ZONES:
            if name.startswith(f"lent-{zone}-"):
                lent[name] = zone
                client.merge_patch(NODES, name, {"metadata": {"labels": {"volcano.sh/revocable-zone": zone}}})
    return lent


def make_zones(client: KubeClient, period: str) -> None:
    for name, windows in ZONES.items():
        spec = {"windows": windows, "evictPeriod": period}
        head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "metadata": {"name": name}}
        client.create(REVOCABLE_ZONES, {**head, "spec": spec})

    def are_fenced() -> bool:
        found = [RevocableZone.read(body) for body in client.list(REVOCABLE_ZONES).items]
        return all({one.type: one.status for one in zone.status.conditions}.get("Fenced") == "True" for zone in found)

    eventually("all lent nodes have their fences", are_fenced, seconds=120)


def make_workloads(client: KubeClient) -> frozenset[str]:
    """Make the Deployments; return those with a budget."""
    guarded = set()
    for number in range(5):
        deploy(client, f"plain-{number}", {})
    for number in range(12):
        deploy(client, f"batch-{number}", {"labels": PREEMPTABLE})
    tolerations = [{"key": "kept", "operator": "Exists"}]
    for name, notes in (("pdb", {}), ("jdb-least", {"volcano.sh/jdb-min-available": str(LEAST)})):
        deploy(client, name, {"labels": PREEMPTABLE, "annotations": notes}, tolerations=tolerations)
        guarded.add(name)
    budget = {"minAvailable": LEAST, "selector": {"matchLabels": {"app": "pdb"}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"}, "spec": budget}
    client.create(PDBS, body, namespace=NAMESPACE)
    notes = {"volcano.sh/jdb-max-unavailable": "50%"}
    deploy(client, "jdb-most", {"labels": PREEMPTABLE, "annotations": notes}, tolerations=tolerations)
    return frozenset({*guarded, "jdb-most"})


def deploy(client: KubeClient, name: str, says: dict[str, Any], **spec: Any) -> None:  # noqa: ANN401 - a pod's spec
    body = build_deployment(name, replicas=REPLICAS, cpu="1", **spec)
    metadata = body["spec"]["template"]["metadata"]
    metadata["labels"] |= says.get("labels", {})
    metadata["annotations"] = says.get("annotations", {})
    client.create(DEPLOYMENTS, body, namespace=NAMESPACE)


def churn(client: KubeClient, rng: random.Random) -> None:
    """Delete a pod without a budget, or scale a Deployment of plain pods."""
    with suppress(BerthError):
        if rng.random() < 0.2:
            name = f"plain-{rng.randrange(5)}"
            replicas = {"spec": {"replicas": rng.randint(2, 6)}}
            client.merge_patch(DEPLOYMENTS, name, replicas, namespace=NAMESPACE)
            return
        found = client.list(PODS, namespace=NAMESPACE, type=Pod).items
        free = [pod for pod in found if pod.metadata.labels.get("app", "").startswith(("plain", "batch"))]
        client.delete(PODS, rng.choice(free).metadata.name, namespace=NAMESPACE)


def live(client: KubeClient, seen: Seen, rng: random.Random, end: datetime) -> None:
    """Let the day pass: churn, and count what is left whenever a zone closes."""
    closes: dict[str, datetime] = {}
    while (now := datetime.now(UTC)) < end:
        for name in [name for name, at in closes.items() if now >= at]:
            del closes[name]
            seen.note_closing(name)
        for body in client.list(REVOCABLE_ZONES).items:
            zone = RevocableZone.read(body)
            at = parse_timestamp(zone.status.closes_at) if zone.status.closes_at else None
            if at is not None and at > now:
                closes[zone.metadata.name] = at
        churn(client, rng)
        time.sleep(0.5)


def measure(options: argparse.Namespace, folder: Path) -> tuple[Seen, Counter[str]]:
    speed = MINUTES_OF_A_DAY / options.minutes
    with control_plane(SandboxSettings(nodes=0), progress=say_nothing) as sandbox, sandbox.connect() as client:
        make_namespace(client, NAMESPACE)
        seen = Seen(make_nodes(sandbox, client), period=parse_duration(options.period))
        day = timedelta(minutes=options.minutes)
        noon = (datetime.now(UTC) + day * AFTER_BEGIN).replace(microsecond=0)
        with HurriedOperator(sandbox, folder, noon, speed), DeschedulerReplica(sandbox, folder):
            make_zones(client, options.period)
            policy = {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": "lent-nodes"}}
            client.create(DESCHEDULER_POLICIES, {**policy, "spec": {**POLICY, "trigger": {"interval": options.period}}})
            with watching(client, seen):
                guarded = make_workloads(client)
                for name in guarded:
                    eventually(f"{name} is Ready", lambda one=name: seen.ready(one) == REPLICAS, seconds=120)
                seen.guarded = guarded
                begun = datetime.now(UTC)
                chance = random.Random(options.seed)  # noqa: S311 - no secret
                live(client, seen, chance, begun + day)
            plans = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    counts: Counter[str] = Counter(plans=len(plans))
    for plan in plans:
        if (achieved := plan.status.achieved) is not None:
            counts.update(moved=achieved.landed_on_target, evicted=achieved.evictions, failed=achieved.failed)
    return seen, counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9)
    parser.add_argument("--period", default="10s")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.logs or Path(name)
        folder.mkdir(exist_ok=True, parents=True)
        seen, counts = measure(options, folder)
    broken = sum(seen.broken.values())
    left = ", ".join(f"kept by {why} {seen.left[why]}" for why in ("budget", "period", "nothing"))
    print(f"windows that ended: {len(seen.closings)}, pods left at the hour: {seen.left.total()} ({left})")
    print(f"preemptable pods that used lent nodes: {len(seen.lent_pods)}, others: {len(seen.intruders)}")
    print(f"times a budget was not kept: {broken}")
    print(
        f"plans: {counts['plans']}, moved: {counts['moved']}, evicted: {counts['evicted']}, failed: {counts['failed']}"
    )
    unexcused = seen.left.total() - seen.left["budget"]
    return 0 if seen.closings and not unexcused + len(seen.intruders) + broken else 1


if __name__ == "__main__":
    sys.exit(main())
