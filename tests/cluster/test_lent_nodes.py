"""Lent nodes admit preemptable pods while their zone is open, and nobody else, on an unmodified kube-scheduler."""

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from berth_core import POLICY_API_VERSION, POLICY_KIND, BerthError, DeschedulerPolicy, MigrationPlan, Pod, RevocableZone
from berth_core.labels import REVOCABLE_ZONE_LABEL, STANDING_FENCE_LABEL
from berth_core.lent_node_pods import says_preemptable
from berth_core.revocable_zones import LentFence, ZoneCondition, ZoneReason
from berth_kube import Informer, Store, WatchItem
from berth_kube.errors import Call
from berth_kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    EVENTS,
    MIGRATION_PLANS,
    NODES,
    PDBS,
    PODS,
    REVOCABLE_ZONES,
)
from berth_kube.retries import Repeatable
from berth_kube.transport import Request
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, let_the_scheduler_hear
from policy_scenes import DeschedulerReplica
from reservation_stage import Stage, delete_all, delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

DOCS: Final = Path(__file__).parents[2] / "descheduler" / "docs"
ALWAYS: Final = {"windows": ["0:00-24:00"]}
PREEMPTABLE: Final = {"volcano.sh/preemptable": "true"}
LONG_SECONDS: Final = 240
LIST_SECONDS: Final = 0.5
APPS: Final = ("batch", "service")


@pytest.fixture
def zone(stage: Stage) -> Iterator[str]:
    """Yield the zone of the stage's second node, which is closed."""
    name = f"zone-{stage.namespace}"
    let_the_scheduler_hear(stage.client, stage.namespace, stage.nodes[0])  # it is to choose between the two
    stage.client.merge_patch(NODES, stage.nodes[1], {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: name}}})
    body = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "RevocableZone",
        "metadata": {"name": name},
        "spec": {**ALWAYS, "suspend": True},
    }
    stage.client.create(REVOCABLE_ZONES, body)
    wait_for_state(stage, name, "Suspended")
    yield name
    delete_if_there(stage.client, REVOCABLE_ZONES, name)
    delete_all(stage.client, DAEMON_SETS, stage.namespace)


def read(stage: Stage, name: str) -> RevocableZone:
    return RevocableZone.read(stage.client.get(REVOCABLE_ZONES, name))


def wait_for_state(stage: Stage, name: str, want: str) -> None:
    """Wait until the zone's nodes have the fence of a state."""

    def is_reached() -> bool:
        found = read(stage, name).status
        return found.state == want and {one.type: one.status for one in found.conditions}["Fenced"] == "True"

    eventually(f"the zone is {want} and fenced", is_reached, seconds=LONG_SECONDS)


def switch(stage: Stage, name: str, want: str, *, suspend: bool) -> None:
    stage.client.merge_patch(REVOCABLE_ZONES, name, {"spec": {"suspend": suspend}})
    wait_for_state(stage, name, want)


def create(stage: Stage, name: str, *, cpu: str = "1", **metadata: dict[str, str]) -> None:
    body: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", **stage.template({}, cpu=cpu)}
    body["metadata"] = {"name": name, **metadata}
    stage.client.create(PODS, body, namespace=stage.namespace)


def node_of(stage: Stage, name: str) -> str:
    return stage.pod(name).spec.node_name


def wait_for_node(stage: Stage, name: str, node: str) -> None:
    eventually(f"{name} is on {node}", lambda: node_of(stage, name) == node, seconds=LONG_SECONDS)


def is_refused(stage: Stage, name: str) -> bool:
    return stage.pod(name).condition("PodScheduled") == "False"


@pytest.mark.deep
def test_only_preemptable_pods_use_a_lent_node_and_only_while_it_is_open(stage: Stage, zone: str) -> None:
    usual, lent = stage.nodes
    create(stage, "first", cpu="4")
    wait_for_node(stage, "first", usual)  # though the lent one is empty
    create(stage, "service", cpu="1")
    create(stage, "by-annotation", annotations=PREEMPTABLE)
    create(stage, "by-label", labels=PREEMPTABLE)
    names = ("service", "by-annotation", "by-label")
    eventually("all are refused while it is closed", lambda: all(is_refused(stage, name) for name in names), seconds=60)

    switch(stage, zone, "Open", suspend=False)
    wait_for_node(stage, "by-annotation", lent)
    wait_for_node(stage, "by-label", lent)
    eventually("they are counted", lambda: read(stage, zone).status.pods == 2, seconds=LONG_SECONDS)
    assert node_of(stage, "service") == ""

    switch(stage, zone, "Suspended", suspend=True)
    create(stage, "too-late", labels=PREEMPTABLE)
    eventually("nobody comes any more", lambda: is_refused(stage, "too-late"), seconds=LONG_SECONDS)
    assert {node_of(stage, name) for name in ("by-annotation", "by-label")} == {lent}

    stage.client.delete(REVOCABLE_ZONES, zone)
    wait_for_node(stage, "service", lent)


def test_a_label_that_names_no_zone_keeps_pods_off_until_it_is_taken_off(stage: Stage, zone: str) -> None:
    usual, _ = stage.nodes
    label = {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: f"not-{zone}"}}}
    stage.client.merge_patch(NODES, usual, label)

    def is_fenced() -> bool:
        kind = f"{STANDING_FENCE_LABEL}={LentFence.WITHOUT_ZONE}"
        fences = stage.client.list(PODS, label_selector=kind, type=Pod).items
        return [fence.spec.node_name for fence in fences] == [usual]

    eventually("the node has the fence of one without a zone", is_fenced, seconds=LONG_SECONDS)
    create(stage, "service")
    create(stage, "by-label", labels=PREEMPTABLE)
    names = ("service", "by-label")
    eventually("none comes in", lambda: all(is_refused(stage, name) for name in names), seconds=LONG_SECONDS)
    stage.client.merge_patch(NODES, usual, {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: None}}})
    for name in names:
        wait_for_node(stage, name, usual)


def test_preemptable_pods_prefer_open_lent_nodes_and_daemon_pods_come_always(stage: Stage, zone: str) -> None:
    usual, lent = stage.nodes
    template = stage.template({"app": "agent"}, cpu="10m")
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}}
    stage.client.create(DAEMON_SETS, {**head, "spec": spec}, namespace=stage.namespace)
    eventually("its pods run on both", lambda: daemons_on(stage) == {usual, lent}, seconds=LONG_SECONDS)

    switch(stage, zone, "Open", suspend=False)
    for number in range(3):
        create(stage, f"batch-{number}", labels=PREEMPTABLE)
        wait_for_node(stage, f"batch-{number}", lent)
    create(stage, "service")
    wait_for_node(stage, "service", usual)


@pytest.mark.deep
def test_pods_have_left_a_closed_node_one_after_the_other(
    sandbox: Sandbox, stage: Stage, zone: str, tmp_path: Path
) -> None:
    usual, lent = stage.nodes
    switch(stage, zone, "Open", suspend=False)
    start_batch(stage, lent)
    fewest = 2
    with emptying(sandbox, stage, zone, tmp_path):

        def has_left() -> bool:
            nonlocal fewest
            fewest = min(fewest, len(placed(stage)))
            return placed(stage) == [usual] * 2

        eventually("all have left it", has_left, seconds=LONG_SECONDS)
    assert fewest >= 1, "one at a time"
    eventually("the zone says so", lambda: read(stage, zone).status.pods == 0, seconds=LONG_SECONDS)


@pytest.mark.deep
def test_pods_that_no_other_node_takes_are_evicted_and_wait(
    sandbox: Sandbox, stage: Stage, zone: str, tmp_path: Path
) -> None:
    usual, lent = stage.nodes
    stage.client.merge_patch(REVOCABLE_ZONES, zone, {"spec": {"evictPeriod": "5s"}})
    create(stage, "service", cpu="4")
    wait_for_node(stage, "service", usual)
    switch(stage, zone, "Open", suspend=False)
    start_batch(stage, lent, cpu="2")
    with emptying(sandbox, stage, zone, tmp_path):
        eventually("none runs any more", lambda: placed(stage) == [], seconds=LONG_SECONDS)
        eventually("the zone says so", lambda: read(stage, zone).status.pods == 0, seconds=LONG_SECONDS)

        def evictions() -> int:
            """Return how many pods the plans that are over say they have evicted."""
            found = [plan.status.achieved for plan in stage.client.list(MIGRATION_PLANS, type=MigrationPlan).items]
            return sum(one.evictions for one in found if one is not None)

        eventually("the plans say so", lambda: evictions() == 2, seconds=LONG_SECONDS)
    assert node_of(stage, "service") == usual
    switch(stage, zone, "Open", suspend=False)
    eventually("they run again when it opens", lambda: placed(stage) == [lent] * 2, seconds=LONG_SECONDS)


@pytest.mark.deep
def test_a_place_that_is_never_held_keeps_no_pod_when_the_node_is_due(
    sandbox: Sandbox, stage: Stage, zone: str, tmp_path: Path
) -> None:
    lent = stage.nodes[1]
    switch(stage, zone, "Open", suspend=False)
    start_one_without_a_scheduler(stage, lent)  # no place of such a pod is ever held
    today = datetime.now(UTC)
    days = [f"{day:%a}" for day in (today, today + timedelta(days=1))]
    closing = {"days": days, "evictBefore": "48h", "evictPeriod": "1m"}
    with emptying(sandbox, stage, zone, tmp_path, "Emptying", **closing):
        failed = "ReservationTimeout"
        eventually(
            "a plan waits for a place no longer than that", lambda: ends(stage).get(failed), seconds=LONG_SECONDS
        )
        assert "within 10 s" in ends(stage)[failed]
        assert placed(stage) == [lent]

        longer = {"spec": {"evictPeriod": "49h"}}  # more time than there is left
        stage.client.merge_patch(REVOCABLE_ZONES, zone, longer)
        eventually("the next one evicts it", lambda: "Removed" in ends(stage), seconds=LONG_SECONDS)
        eventually("the node is empty", lambda: is_empty(stage, zone), seconds=LONG_SECONDS)
        why = "is due to be empty; no other node is tried"
        eventually("it is said why", lambda: any(why in one for one in messages(stage)), seconds=LONG_SECONDS)


def messages(stage: Stage) -> list[str]:
    return [one["message"] for one in stage.client.list(EVENTS, namespace=stage.namespace).items]


def start_one_without_a_scheduler(stage: Stage, lent: str) -> None:
    """Have a Deployment of one preemptable pod on the lent node, which the test itself binds."""
    labels = {"app": "batch", **PREEMPTABLE}
    template = stage.template(labels, cpu="1", schedulerName="nobody")
    spec = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "batch"}}
    stage.client.create(DEPLOYMENTS, {**head, "spec": spec}, namespace=stage.namespace)
    selector = "app=batch"
    found: list[Pod] = []

    def is_made() -> bool:
        found[:] = stage.client.list(PODS, namespace=stage.namespace, label_selector=selector, type=Pod).items
        return bool(found)

    eventually("the pod is made", is_made, seconds=LONG_SECONDS)
    name = found[0].metadata.name
    target = {"apiVersion": "v1", "kind": "Node", "name": lent}
    body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
    path = PODS.path(name, namespace=stage.namespace, subresource="binding")
    call = Call("bind", f"pods {name}")
    stage.client.send(Request(call, "POST", path, body=msgspec.json.encode(body)), Repeatable.UNLESS_ACTED)
    eventually("it is on the lent node", lambda: placed(stage) == [lent], seconds=LONG_SECONDS)


def test_a_zone_empties_its_node_without_a_policy_one_pod_in_each_period(
    sandbox: Sandbox, stage: Stage, zone: str, tmp_path: Path
) -> None:
    usual, lent = stage.nodes
    stage.client.merge_patch(REVOCABLE_ZONES, zone, {"spec": {"evictPeriod": "10s"}})
    switch(stage, zone, "Open", suspend=False)
    start_batch(stage, lent)
    fewest = 2

    def has_left() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(placed(stage)))
        return placed(stage) == [usual] * 2

    with DeschedulerReplica(sandbox, tmp_path):
        switch(stage, zone, "Suspended", suspend=True)
        eventually("all have left it", has_left, seconds=LONG_SECONDS)
        eventually("the zone says so", lambda: read(stage, zone).status.pods == 0, seconds=LONG_SECONDS)
        eventually("events on the zone say what was done", lambda: ended_runs(stage, zone), seconds=LONG_SECONDS)
    assert fewest >= 1, "one at a time"
    plans = stage.client.list(MIGRATION_PLANS, type=MigrationPlan).items
    own = [plan for plan in plans if plan.spec.policy == f"revocablezone-{zone}"]
    assert sum(plan.status.achieved.landed_on_target for plan in own if plan.status.achieved) == 2
    for plan in own:
        delete_if_there(stage.client, MIGRATION_PLANS, plan.metadata.name)


def ended_runs(stage: Stage, zone: str) -> list[str]:
    """Return the messages of the events of a zone's own runs."""
    events = stage.client.list(EVENTS, field_selector=f"involvedObject.name={zone},reason=RunEnded").items
    return [event["message"] for event in events]


def ends(stage: Stage) -> dict[str, str]:
    """Return how moves have ended, by reason or else by state, each with its message."""
    plans = stage.client.list(MIGRATION_PLANS, type=MigrationPlan).items
    moves = [move for plan in plans for move in plan.move_statuses if move.namespace == stage.namespace]
    return {move.reason or move.state.value: move.message for move in moves if move.state.terminal}


def is_empty(stage: Stage, zone: str) -> bool:
    found = read(stage, zone)
    said = found.condition(ZoneCondition.EMPTY_IN_TIME)
    return found.status.pods == 0 and said is not None and said.reason == ZoneReason.EMPTY


def start_batch(stage: Stage, lent: str, *, cpu: str = "1") -> None:
    """Have a Deployment of two preemptable pods on the lent node."""
    labels = {"app": "batch", **PREEMPTABLE}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": stage.template(labels, cpu=cpu)}
    head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "batch"}}
    stage.client.create(DEPLOYMENTS, {**head, "spec": spec}, namespace=stage.namespace)
    eventually("all are on the lent node", lambda: placed(stage) == [lent] * 2, seconds=LONG_SECONDS)


@contextmanager
def emptying(
    sandbox: Sandbox, stage: Stage, zone: str, folder: Path, state: str = "Suspended", **closing: object
) -> Iterator[None]:
    """Close the zone, by default by hand, with a descheduler that empties its node."""
    policy = yaml.safe_load((DOCS / "lent-nodes.yaml").read_text(encoding="utf-8"))
    policy["metadata"]["name"] = zone
    policy["spec"]["trigger"] = {"interval": "10s"}
    policy["spec"]["profiles"][0]["pluginConfig"] = [
        {"name": "DefaultEvictor", "args": {"namespaces": {"include": [stage.namespace]}}}
    ]
    try:
        with DeschedulerReplica(sandbox, folder):
            stage.client.create(DESCHEDULER_POLICIES, policy)
            stage.client.merge_patch(REVOCABLE_ZONES, zone, {"spec": closing or {"suspend": True}})
            wait_for_state(stage, zone, state)
            yield
    finally:
        delete_if_there(stage.client, DESCHEDULER_POLICIES, zone)
        for plan in stage.client.list(MIGRATION_PLANS).items:
            delete_if_there(stage.client, MIGRATION_PLANS, plan["metadata"]["name"])


@pytest.mark.deep
def test_preemptable_pods_make_room_for_others_by_moving_to_open_lent_nodes(
    sandbox: Sandbox, stage: Stage, zone: str, tmp_path: Path
) -> None:
    usual, lent = stage.nodes
    services = fill(stage)
    with making_room(sandbox, stage, zone, tmp_path):
        eventually("a run finds no place for batch", lambda: has_run(stage, zone), seconds=LONG_SECONDS)
        assert [placed(stage, name) for name in APPS] == [[usual] * 2] * 2, "nothing moves to a closed node"
        switch(stage, zone, "Open", suspend=False)
        wait_for_node(stage, "web", usual)
        eventually("batch is on the lent node", lambda: placed(stage) == [lent] * 2, seconds=LONG_SECONDS)
    assert uids(stage, "service") == services, "no other pod was touched"


@pytest.mark.deep
def test_preemptable_pods_are_evicted_for_others_where_no_node_takes_them(
    sandbox: Sandbox, stage: Stage, zone: str, tmp_path: Path
) -> None:
    usual, lent = stage.nodes
    services = fill(stage)
    with making_room(sandbox, stage, zone, tmp_path, evictions="LastResort"):
        wait_for_node(stage, "web", usual)
        assert placed(stage) == [], "they wait for a node"
    assert uids(stage, "service") == services, "no other pod was touched"
    switch(stage, zone, "Open", suspend=False)
    eventually("batch is on the lent node", lambda: placed(stage) == [lent] * 2, seconds=LONG_SECONDS)


def fill(stage: Stage) -> set[str]:
    """Fill the usual node, half of it preemptable, and have a pod wait; return the uids of the other half."""
    at_once = {**PREEMPTABLE, "volcano.sh/jdb-max-unavailable": "100%"}
    for name, said in (("batch", {"annotations": at_once}), ("service", {})):
        template = stage.template({"app": name}, cpu="1")
        template["metadata"] |= said
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": name}}, "template": template}
        head = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}}
        stage.client.create(DEPLOYMENTS, {**head, "spec": spec}, namespace=stage.namespace)
    full = [[stage.nodes[0]] * 2] * 2
    eventually("they fill the node", lambda: [placed(stage, name) for name in APPS] == full, seconds=LONG_SECONDS)
    create(stage, "web", cpu="2")
    eventually("no node takes web", lambda: is_refused(stage, "web"), seconds=LONG_SECONDS)
    return uids(stage, "service")


@contextmanager
def making_room(sandbox: Sandbox, stage: Stage, zone: str, folder: Path, **args: str) -> Iterator[None]:
    """Have a descheduler that makes room in this stage's namespace."""
    only = {"namespaces": {"include": [stage.namespace]}}
    profile = {
        "name": "default",
        "pluginConfig": [{"name": "LentNodes", "args": {**only, **args}}, {"name": "DefaultEvictor", "args": only}],
        "plugins": {"balance": {"enabled": ["LentNodes"]}},
    }
    spec = {"trigger": {"interval": "10s"}, "mode": "Auto", "limits": {"podCoolDown": "0s"}, "profiles": [profile]}
    head = {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": zone}}
    try:
        with DeschedulerReplica(sandbox, folder):
            stage.client.create(DESCHEDULER_POLICIES, {**head, "spec": spec})
            yield
    finally:
        delete_if_there(stage.client, DESCHEDULER_POLICIES, zone)
        for plan in stage.client.list(MIGRATION_PLANS).items:
            delete_if_there(stage.client, MIGRATION_PLANS, plan["metadata"]["name"])


def has_run(stage: Stage, policy: str) -> bool:
    """Return whether a policy has run and moved nothing."""
    status = stage.client.get(DESCHEDULER_POLICIES, policy, type=DeschedulerPolicy).status
    return bool(status.last_run_time) and status.last_verdict == "NothingToMove"


def uids(stage: Stage, app: str) -> set[str]:
    found = stage.client.list(PODS, namespace=stage.namespace, label_selector=f"app={app}", type=Pod).items
    return {pod.metadata.uid for pod in found}


def placed(stage: Stage, app: str = "batch") -> list[str]:
    """Return the nodes of the pods of a Deployment that run."""
    found = stage.client.list(PODS, namespace=stage.namespace, label_selector=f"app={app}", type=Pod).items
    return sorted(pod.spec.node_name for pod in found if pod.is_ready and not pod.is_terminating)


def daemons_on(stage: Stage) -> set[str]:
    found = stage.client.list(PODS, namespace=stage.namespace, label_selector="app=agent").items
    return {pod["spec"].get("nodeName", "") for pod in found if pod["status"].get("phase") == "Running"}


# --- a day -----------------------------------------------------------------------------------------------------------


@dataclass
class Watched:
    """What a watch of a namespace's pods sees of two zones with two nodes each."""

    zone_of: dict[str, str]
    pods: Store[Pod] = field(default_factory=Store)
    intruders: set[str] = field(default_factory=set)
    guarded: set[str] = field(default_factory=set)
    """Deployments of which one pod has to run at all times."""
    missing: set[str] = field(default_factory=set)
    """Those of which none did."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def apply(self, event: WatchItem[Pod]) -> None:
        with self.lock:
            self.pods.apply(event)
            for pod in self.pods.objects():
                if pod.spec.node_name in self.zone_of and not says_preemptable(pod.metadata):
                    self.intruders.add(pod.metadata.name)
            self.missing |= {name for name in self.guarded if not self._running(name)}

    def guard(self, name: str) -> bool:
        """Have one pod of a Deployment run from now on, if both do."""
        with self.lock:
            if self._running(name) == 2:
                self.guarded.add(name)
            return name in self.guarded

    def _running(self, name: str) -> int:
        own = (pod for pod in self.pods.objects() if pod.metadata.labels.get("app") == name)
        return sum(pod.status.phase == "Running" and not pod.is_terminating for pod in own)

    def is_empty(self, *zones: str) -> bool:
        with self.lock:
            return not any(self.zone_of.get(pod.spec.node_name) in zones for pod in self.pods.objects())


@contextmanager
def watching(stage: Stage, zone_of: dict[str, str]) -> Iterator[Watched]:
    """Watch the pods of the stage, and require at the end that all was well at all times."""
    seen, failures = Watched(zone_of), list[BerthError]()

    def watch(stop: threading.Event) -> Iterable[WatchItem[Pod]]:
        return stage.client.watch(PODS, namespace=stage.namespace, type=Pod, stop=stop)

    with Informer("pods", watch, seen.apply, failures.append):
        yield seen
    assert (seen.intruders, seen.missing, failures) == (set(), set(), [])


@pytest.fixture
def lent_nodes(sandbox: Sandbox, stage: Stage) -> Iterator[dict[str, str]]:
    """Yield two nodes of each of two zones, which are closed by the clock, and the zone of each."""
    later = window(timedelta(hours=2), timedelta(hours=3))
    zone_of = {}
    for name in (f"early-{stage.namespace}", f"late-{stage.namespace}"):
        labels = {"stage": stage.namespace, "lent": stage.namespace, REVOCABLE_ZONE_LABEL: name}
        made = sandbox.add_nodes(2, NodeShape(cpu="4", memory="16Gi", labels=labels), prefix=f"{name}-")
        zone_of |= dict.fromkeys(made, name)
        head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "metadata": {"name": name}}
        stage.client.create(REVOCABLE_ZONES, {**head, "spec": {"windows": [later], "evictPeriod": "10s"}})
    try:
        for name in set(zone_of.values()):
            wait_for_state(stage, name, "Closed")
        yield zone_of
    finally:
        for name in set(zone_of.values()):
            delete_if_there(stage.client, REVOCABLE_ZONES, name)
        for resource in (DEPLOYMENTS, PDBS, PODS):
            delete_all(stage.client, resource, stage.namespace)
        eventually("nothing is left on them", lambda: not pods_on(stage, zone_of), seconds=LONG_SECONDS)
        for node in zone_of:
            delete_if_there(stage.client, NODES, node)


def window(begin: timedelta, end: timedelta) -> str:
    now = datetime.now(UTC)
    return f"{now + begin:%H:%M}-{now + end:%H:%M}"


def pods_on(stage: Stage, nodes: Collection[str]) -> list[str]:
    return [pod.key for pod in stage.client.list(PODS, type=Pod).items if pod.spec.node_name in nodes]


def deploy(stage: Stage, name: str, said: dict[str, Any], *, cpu: str, **selector: str) -> None:
    body = build_deployment(name, replicas=2, cpu=cpu, nodeSelector=stage.selector | selector)
    metadata = body["spec"]["template"]["metadata"]
    metadata["labels"] |= said.get("labels", {})
    metadata["annotations"] = said.get("annotations", {})
    stage.client.create(DEPLOYMENTS, body, namespace=stage.namespace)


def fill_two_zones(stage: Stage, seen: Watched) -> None:
    """Have pods on open lent nodes: some with room elsewhere and a budget, and some without."""
    deploy(stage, "pdb", {"labels": PREEMPTABLE}, cpu="1")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "pdb"}}}
    head = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"}}
    stage.client.create(PDBS, {**head, "spec": budget}, namespace=stage.namespace)
    jdb = {"annotations": {"volcano.sh/jdb-min-available": "1"}, "labels": PREEMPTABLE}
    deploy(stage, "jdb", jdb, cpu="1")
    for name in ("pdb", "jdb"):
        eventually(f"{name} runs", lambda one=name: seen.guard(one))
    deploy(stage, "batch", {"labels": PREEMPTABLE}, cpu="3", lent=stage.namespace)
    eventually("batch runs", lambda: len(placed(stage)) == 2)


@pytest.mark.deep
def test_two_zones_are_emptied_one_after_the_other_within_budgets_and_take_no_others(
    sandbox: Sandbox, stage: Stage, lent_nodes: dict[str, str], tmp_path: Path
) -> None:
    zones = list(dict.fromkeys(lent_nodes.values()))
    with watching(stage, lent_nodes) as seen:
        deploy(stage, "hungry", {}, cpu="4", lent=stage.namespace)
        for name in zones:
            today = {"windows": [window(-timedelta(hours=1), timedelta(hours=3))]}
            stage.client.merge_patch(REVOCABLE_ZONES, name, {"spec": today})
            wait_for_state(stage, name, "Open")
        fill_two_zones(stage, seen)
        with emptying(sandbox, stage, zones[0], tmp_path, "Emptying", evictBefore="24h"):
            for name in zones:
                stage.client.merge_patch(REVOCABLE_ZONES, name, {"spec": {"evictBefore": "24h"}})
                wait_for_state(stage, name, "Emptying")
                delete_one(stage, "batch")
                delete_one(stage, "hungry")
                eventually(f"{name} is empty", lambda one=name: seen.is_empty(one), seconds=LONG_SECONDS)
                eventually(f"{name} says so", lambda one=name: is_empty(stage, one), seconds=LONG_SECONDS)
        over = {"windows": [window(-timedelta(hours=2), -timedelta(hours=1))]}
        for name in zones:
            stage.client.merge_patch(REVOCABLE_ZONES, name, {"spec": over})
            wait_for_state(stage, name, "Closed")
        eventually("they are left empty", lambda: seen.is_empty(*zones), seconds=LONG_SECONDS)
    delete_if_there(stage.client, DEPLOYMENTS, "batch", stage.namespace)  # it would take both nodes as well
    stage.client.delete(REVOCABLE_ZONES, zones[0])
    eventually("without the zone they take others", lambda: placed(stage, "hungry"), seconds=LONG_SECONDS)


def delete_one(stage: Stage, app: str) -> None:
    """Delete a pod as somebody else may at any time."""
    found = stage.client.list(PODS, namespace=stage.namespace, label_selector=f"app={app}", type=Pod).items
    for pod in found[:1]:
        delete_if_there(stage.client, PODS, pod.metadata.name, stage.namespace)
