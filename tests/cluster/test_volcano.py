"""Berth on Volcano's own scheduler and controllers, beside the stock scheduler."""
# ruff: noqa: ANN401 - options of a pod are passed on

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import urllib3

from berth_core import Pod
from berth_core.clock import parse_timestamp
from berth_core.labels import REVOCABLE_ZONE_LABEL, STANDING_FENCE_LABEL
from berth_core.migration_plans import MoveState
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.pod_groups import VOLCANO_SCHEDULER
from berth_core.reservations import ReservationPhase, ReservationReason, SlotState
from berth_core.revocable_zones import RevocableZone
from berth_descheduler.capabilities.queues.guarantees import measure_queues
from berth_descheduler.planner import plan
from berth_descheduler.snapshots import read_capacity, read_live_snapshot
from berth_kube.client import KubeClient
from berth_kube.resources import (
    DEPLOYMENTS,
    MIGRATION_PLANS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    RESERVATION_WINDOWS,
    RESERVATIONS,
    REVOCABLE_ZONES,
    VOLCANO_JOBS,
    VOLCANO_POD_GROUPS,
    Resource,
)
from berth_sandbox.bootstrap import OPERATOR
from berth_sandbox.sandbox import Sandbox
from cluster_objects import (
    build_deployment,
    build_reservation,
    is_gone,
    overbooked_nodes,
    pod_template,
    pods,
    reservations,
)
from descheduling_stage import Scene
from planner.clusters import making_room
from policy_scenes import DeschedulerReplica
from reservation_stage import delete_all, delete_if_there
from service_processes import OperatorProcess
from starving_world import World, starving_world
from volcano_ground import GROUP, SOON, WHOLE_NODE, Ground, configure, nodes_of
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

QUEUES: Final = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
DEFAULT_SCHEDULER: Final = "default-scheduler"


def test_volcano_places_the_pods_that_name_it(volcano_sandbox: Sandbox, ground: Ground) -> None:
    assert volcano_sandbox.read_health().complete
    ground.add_nodes(1)
    ground.create_pod("of-volcano", cpu="1")
    eventually("Volcano's pod runs", lambda: ground.pod("of-volcano").status.phase == "Running", seconds=SOON)
    assert GROUP in ground.pod("of-volcano").metadata.annotations


# --- hand-overs and plans


def test_slots_of_both_schedulers_go_to_their_owners_although_others_wait(ground: Ground) -> None:
    nodes = ground.add_nodes(6)
    schedulers = (VOLCANO_SCHEDULER, DEFAULT_SCHEDULER)
    for number, node in enumerate(nodes):
        scheduler = schedulers[number % 2]
        ground.reserve(f"slot-{number}", scheduler=scheduler, nodes=[node], app=f"owner-of-{scheduler}")
    ground.wait_until_proven()
    for scheduler in schedulers:
        ground.deploy(f"hungry-{scheduler}", replicas=15, scheduler=scheduler, labels={"hungry": "yes"})
    stock_is_hungry = lambda: (  # noqa: E731
        sum(
            p.condition("PodScheduled") == "False"
            for p in pods(ground.client, ground.namespace, app=f"hungry-{DEFAULT_SCHEDULER}")
        )
        == 15
    )
    eventually("the hungry pods of the stock scheduler found no place", stock_is_hungry, seconds=SOON)
    group_of_each = lambda: all(  # noqa: E731
        GROUP in p.metadata.annotations
        for p in pods(ground.client, ground.namespace, app=f"hungry-{VOLCANO_SCHEDULER}")
    )
    eventually("those of Volcano are known to it", group_of_each, seconds=SOON)
    for scheduler in schedulers:
        ground.deploy(f"owner-of-{scheduler}", replicas=3, scheduler=scheduler)
    eventually(
        "all Reservations are over",
        lambda: all(r.phase.terminal for r in reservations(ground.client, ground.namespace)),
        seconds=SOON,
    )
    assert [r.phase for r in reservations(ground.client, ground.namespace)] == [ReservationPhase.SUCCEEDED] * 6
    owners = [pod for one in schedulers for pod in pods(ground.client, ground.namespace, app=f"owner-of-{one}")]
    assert {pod.spec.node_name for pod in owners if pod.status.phase == "Running"} == set(nodes)
    assert not [p.key for p in pods(ground.client, ground.namespace, hungry="yes") if p.spec.node_name]
    assert overbooked_nodes(ground.client) == []


class VolcanoScene(Scene):
    """A fragmented cluster all of whose pods are Volcano's."""

    def deploy(self, name: str, *, replicas: int, cpu: str, wait: bool = True, **spec: Any) -> None:
        super().deploy(name, replicas=replicas, cpu=cpu, wait=wait, schedulerName=VOLCANO_SCHEDULER, **spec)

    def create_pod(self, name: str, *, cpu: str, **spec: Any) -> None:
        super().create_pod(name, cpu=cpu, schedulerName=VOLCANO_SCHEDULER, **spec)


def build_job(name: str, replicas: int) -> dict[str, Any]:
    """Return a Volcano Job that needs one of its pods, and does nothing but make an evicted one again."""
    template = pod_template({"app": name}, cpu="100m", schedulerName=VOLCANO_SCHEDULER)
    return {
        "apiVersion": VOLCANO_JOBS.api_version,
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": VOLCANO_SCHEDULER,
            "queue": "default",
            "minAvailable": 1,
            "maxRetry": 3,
            "tasks": [{"name": "worker", "replicas": replicas, "template": template}],
        },
    }


def test_a_plan_for_deployments_and_jobs_of_volcano_is_carried_out(
    volcano_sandbox: Sandbox, operator_beside: OperatorProcess, admin: KubeClient, tmp_path: Path
) -> None:
    assert operator_beside.exit_code is None
    scene = VolcanoScene(volcano_sandbox, admin, tmp_path, "volcano-shop")
    try:
        scene.set_up()
        scene.cordon(*scene.high)
        admin.create(VOLCANO_JOBS, build_job("train", 2), namespace=scene.namespace)
        workers = lambda: [p for p in scene.pods(label_selector="app=train") if p.status.phase == "Running"]  # noqa: E731
        eventually("the Job runs", lambda: len(workers()) == 2, seconds=SOON)
        scene.cordon(*scene.high, closed=False)
        first = {pod.metadata.uid for pod in workers()}
        scene.run()
        assert scene.states() == [MoveState.LANDED] * 6
        targets = {move.pod: move.target for plan in scene.plans() for move in plan.spec.moves}
        assert set(targets.values()) <= set(scene.high)
        scene.wait_until_emptied()
        assert len(workers()) == 2
        assert first.isdisjoint(pod.metadata.uid for pod in workers())
        job = admin.get(VOLCANO_JOBS, "train", namespace=scene.namespace)
        assert (job["status"]["state"]["phase"], job["status"].get("retryCount", 0)) == ("Running", 0)
        scene.require_peace(pods=8)
    finally:
        delete_all(admin, VOLCANO_JOBS, scene.namespace)
        scene.clear()


# --- gangs


def test_the_slots_of_one_reservation_get_their_places_together_or_not_at_all(ground: Ground) -> None:
    ground.add_nodes(3)
    ground.create_pod("in-the-way", cpu="1")
    eventually("a node is used", lambda: ground.pod("in-the-way").status.phase == "Running", seconds=SOON)
    ground.reserve("gang", scheduler=VOLCANO_SCHEDULER, replicas=3, queue="default")
    name = f"berth-{ground.reservation('gang').metadata.uid}"

    def group() -> dict[str, Any]:
        found = ground.client.list(
            VOLCANO_POD_GROUPS, namespace=DEFAULT_NAMESPACE, field_selector=f"metadata.name={name}"
        ).items
        return found[0] if found else {}

    eventually(
        "Volcano has no place for all",
        lambda: any(one["type"] == "Unschedulable" for one in group().get("status", {}).get("conditions", [])),
        seconds=SOON,
    )
    assert group()["spec"]["minMember"] == 3
    assert [pod.spec.node_name for pod in ground.placeholders()] == [""] * 3

    ground.client.delete(PODS, "in-the-way", namespace=ground.namespace, grace_seconds=0)
    ground.wait_until_proven()
    assert len({pod.spec.node_name for pod in ground.placeholders()}) == 3
    assert {pod.metadata.annotations[GROUP] for pod in ground.placeholders()} == {name}

    ground.deploy("owner", replicas=3, scheduler=VOLCANO_SCHEDULER)
    ground.wait_for("gang", ReservationPhase.SUCCEEDED)
    eventually(
        "its PodGroup goes", lambda: is_gone(ground.client, VOLCANO_POD_GROUPS, name, DEFAULT_NAMESPACE), seconds=SOON
    )
    assert verbs_on_pod_groups(ground.sandbox) == {"list", "create", "patch", "delete"}


@pytest.mark.usefixtures("own_configuration")
def test_places_that_wait_are_held_one_by_one_as_their_nodes_become_free(ground: Ground) -> None:
    configure(ground.sandbox, None, "allocate, backfill")
    idle, full = ground.add_nodes(2)
    ground.create_pod("filler", nodeName=full)
    eventually("a node is full", lambda: ground.pod("filler").status.phase == "Running", seconds=SOON)
    ground.reserve("night", scheduler=VOLCANO_SCHEDULER, replicas=2, capacity="WhenFree", fence="Node")
    held = lambda: {s.node for s in ground.reservation("night").status.slots if s.state is SlotState.HELD}  # noqa: E731
    eventually("what is idle is held, though the other place waits", lambda: held() == {idle}, seconds=SOON)
    fences = lambda: {p.spec.node_name for p in pods(ground.client, DEFAULT_NAMESPACE) if is_standing_fence(p)}  # noqa: E731
    eventually("the other node is fenced", lambda: fences() == {full}, seconds=SOON)

    ground.deploy("hungry", replicas=2, scheduler=DEFAULT_SCHEDULER)
    hungry = lambda: pods(ground.client, ground.namespace, app="hungry")  # noqa: E731
    refused = lambda: [p.condition("PodScheduled") for p in hungry()] == ["False"] * 2  # noqa: E731
    eventually("the hungry find no place", refused, seconds=SOON)
    ground.client.delete(PODS, "filler", namespace=ground.namespace, grace_seconds=0)
    ground.wait_until_proven()
    assert held() == {idle, full}
    assert refused()
    ground.deploy("owner", replicas=2, scheduler=VOLCANO_SCHEDULER)
    ground.wait_for("night", ReservationPhase.SUCCEEDED)


def is_standing_fence(pod: Pod) -> bool:
    return STANDING_FENCE_LABEL in pod.metadata.labels and not pod.is_terminating


def verbs_on_pod_groups(sandbox: Sandbox) -> set[str]:
    """Return what the operator was allowed to do to PodGroups in Berth's own namespace."""
    whole, _, _ = sandbox.audit_log.read_text(encoding="utf-8").rpartition("\n")
    entries = [json.loads(line) for line in whole.splitlines() if '"podgroups"' in line]
    return {
        entry["verb"]
        for entry in entries
        if entry["user"]["username"].endswith(f":{OPERATOR}")
        and entry["objectRef"].get("namespace") == DEFAULT_NAMESPACE
        and entry["annotations"]["authorization.k8s.io/decision"] == "allow"
    }


# --- placeholders are no victims


def answers(process: OperatorProcess, verb: str, verdict: str = "spared") -> float:
    """Return how often the operator gave an answer, by default that a placeholder is no victim."""
    text = urllib3.request("GET", f"http://127.0.0.1:{process.health_port}/metrics").data.decode()
    start = f'berth_volcano_extender_answers_total{{verb="{verb}",verdict="{verdict}"}} '
    return sum(float(line.removeprefix(start)) for line in text.splitlines() if line.startswith(start))


@pytest.mark.parametrize("verb", ["preemptable", "reclaimable"])
@pytest.mark.usefixtures("own_configuration")
def test_placeholders_are_victims_only_without_the_extender(
    ground: Ground, operator_beside: OperatorProcess, extender_port: int, verb: str
) -> None:
    configure(ground.sandbox, extender_port)
    ground.add_nodes(1)
    of_queue: dict[str, Any] = {}
    if verb == "reclaimable":
        for queue in ("lender", "claimer"):
            body = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": queue}}
            ground.client.create(QUEUES, body | {"spec": {"weight": 1, "reclaimable": True}})
        of_queue = {"queue": "lender"}
    for number in range(2):
        ground.reserve(f"held-{verb}-{number}", scheduler=VOLCANO_SCHEDULER, cpu="2", **of_queue)
    ground.wait_until_proven()
    before = answers(operator_beside, verb)
    if verb == "preemptable":
        urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}}
        ground.client.create(PRIORITY_CLASSES, urgent | {"value": 1000})
        ground.create_pod("hungry", cpu="2", priorityClassName="urgent")
    else:
        ground.create_pod("hungry", cpu="2", annotations={"scheduling.volcano.sh/queue-name": "claimer"})
    eventually("Volcano asked", lambda: answers(operator_beside, verb) >= before + 2, seconds=SOON)
    assert [r.phase for r in reservations(ground.client, ground.namespace)] == [ReservationPhase.AVAILABLE] * 2
    assert not ground.pod("hungry").spec.node_name

    configure(ground.sandbox, None)
    eventually("a placeholder was evicted", lambda: bool(ground.pod("hungry").spec.node_name), seconds=SOON)
    lost = lambda: [  # noqa: E731
        r.status.state.reason
        for r in reservations(ground.client, ground.namespace)
        if r.phase is ReservationPhase.FAILED and r.status.state
    ]
    eventually("its Reservation has failed", lambda: lost() == ["Preempted"], seconds=SOON)


@pytest.mark.usefixtures("own_configuration")
def test_without_the_action_enqueue_a_full_cluster_hands_over_although_an_older_group_waits(ground: Ground) -> None:
    configure(ground.sandbox, None)
    ground.add_nodes(1)
    ground.reserve("slot", scheduler=VOLCANO_SCHEDULER)
    ground.wait_until_proven()
    ground.deploy("hungry", replicas=3, scheduler=VOLCANO_SCHEDULER)
    found = lambda: pods(ground.client, ground.namespace, app="hungry")  # noqa: E731
    eventually(
        "they found no place", lambda: [p.condition("PodScheduled") for p in found()] == ["False"] * 3, seconds=SOON
    )
    ground.deploy("owner", replicas=1, scheduler=VOLCANO_SCHEDULER)
    ground.wait_for("slot", ReservationPhase.SUCCEEDED)
    assert [pod.spec.node_name for pod in found()] == [""] * 3


def youngest_age(ground: Ground) -> float:
    """Return the seconds since the last PodGroup was made: Volcano orders by times of whole seconds."""
    groups = ground.client.list(VOLCANO_POD_GROUPS, namespace=ground.namespace).items
    made = max(parse_timestamp(one["metadata"]["creationTimestamp"]) for one in groups)
    return (datetime.now(UTC) - made).total_seconds()


@pytest.mark.usefixtures("own_configuration")
@pytest.mark.parametrize("with_extender", [False, True], ids=["it stalls without", "and not with the extender"])
def test_an_older_group_and_the_action_enqueue(ground: Ground, extender_port: int, with_extender: bool) -> None:  # noqa: FBT001 - the case
    configure(ground.sandbox, extender_port if with_extender else None, "enqueue, allocate, backfill")
    ground.add_nodes(1)
    slot = f"slot-{with_extender}".lower()
    ground.reserve(slot, scheduler=VOLCANO_SCHEDULER)
    ground.wait_until_proven()
    ground.deploy("hungry", replicas=3, scheduler=VOLCANO_SCHEDULER)

    def phases(app: str) -> set[str]:
        """Return what Volcano says of the groups of pods; those of a Deployment are one group."""
        names = {pod.metadata.annotations.get(GROUP) for pod in pods(ground.client, ground.namespace, app=app)}
        groups = ground.client.list(VOLCANO_POD_GROUPS, namespace=ground.namespace).items
        return {one.get("status", {}).get("phase", "") for one in groups if one["metadata"]["name"] in names}

    eventually("they wait to be let in", lambda: phases("hungry") == {"Pending"}, seconds=SOON)
    eventually("a younger group is younger by a second", lambda: youngest_age(ground) > 2, seconds=SOON)
    ground.deploy("owner", replicas=1, scheduler=VOLCANO_SCHEDULER)
    if with_extender:
        ground.wait_for(slot, ReservationPhase.SUCCEEDED)
    else:
        eventually(
            "an older group is let in for the place that is free for the owner alone",
            lambda: not ground.placeholders() and "Inqueue" in phases("hungry") and phases("owner") == {"Pending"},
            seconds=SOON,
        )
    hungry = pods(ground.client, ground.namespace, app="hungry")
    assert [pod.spec.node_name for pod in hungry] == [""] * 3


@pytest.mark.usefixtures("own_configuration")
def test_a_job_of_volcano_that_starves_gets_its_node_although_older_and_younger_ones_wait(
    volcano_sandbox: Sandbox, operator_beside: OperatorProcess, extender_port: int, tmp_path: Path
) -> None:
    assert operator_beside.exit_code is None
    configure(volcano_sandbox, extender_port, "enqueue, allocate, backfill")
    with starving_world(volcano_sandbox, tmp_path, nodes=1, scheduler=VOLCANO_SCHEDULER) as (world, _):
        world.starve_pod_4()
        world.create("pod-6")
        world.create("pod-7")
        world.await_refused("pod-6", "pod-7")
        world.end("pod-2", "pod-3")
        world.await_running("pod-5")
        world.end_pod_5()


def build_gang(name: str, *, annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """Return a Volcano Job of two pods of a whole node each, which start together."""
    template = pod_template({"app": name}, cpu=WHOLE_NODE, schedulerName=VOLCANO_SCHEDULER)
    template["spec"]["restartPolicy"] = "Never"
    template["metadata"]["annotations"] = annotations or {}
    task = {"name": "worker", "replicas": 2, "template": template}
    spec = {"schedulerName": VOLCANO_SCHEDULER, "queue": "default", "minAvailable": 2, "tasks": [task]}
    head = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job"}
    return {**head, "metadata": {"name": name, "annotations": annotations or {}}, "spec": spec}


@pytest.fixture
def jobs_of_volcano(ground: Ground) -> Iterator[None]:
    """Take the Jobs of Volcano away at the end."""
    yield
    delete_all(ground.client, VOLCANO_JOBS, ground.namespace)


@pytest.mark.usefixtures("own_configuration", "jobs_of_volcano")
def test_a_gang_that_starves_without_pods_runs_before_thirty_younger_pods(
    volcano_sandbox: Sandbox, ground: Ground, extender_port: int, tmp_path: Path
) -> None:
    """With the actions of Volcano's chart, on four full nodes of 4 cpu."""
    configure(ground.sandbox, extender_port, "enqueue, allocate, backfill")
    ground.add_nodes(4)
    fillers = [f"filler-{number}" for number in range(16)]
    for name in fillers:
        ground.create_pod(name, cpu="1")
    eventually("all nodes are full", lambda: len(nodes_of(ground, "filler-")) == 16, seconds=SOON)
    ground.client.create(VOLCANO_JOBS, build_gang("gang"), namespace=ground.namespace)
    younger = [f"young-{number}" for number in range(30)]
    world = World(ground.client, ground.namespace, (), VOLCANO_SCHEDULER)
    with DeschedulerReplica(volcano_sandbox, tmp_path):
        try:
            world.switch_on(starvingJobTimeThreshold=1, reservedNodePercent=50)
            eventually("its pods come, and two nodes are kept for them", lambda: len(world.fenced()) == 2, seconds=SOON)
            for name in younger:
                ground.create_pod(name, cpu="1")
            for name in fillers:
                ground.client.delete(PODS, name, namespace=ground.namespace, grace_seconds=0)
            eventually("the gang runs", lambda: len(nodes_of(ground, "gang-")) == 2, seconds=SOON)
            assert len(nodes_of(ground, "young-")) <= 8, "those on the other two nodes"
        finally:
            world.switch_off()
            for plan_body in ground.client.list(MIGRATION_PLANS).items:
                delete_if_there(ground.client, MIGRATION_PLANS, plan_body["metadata"]["name"])


@pytest.mark.usefixtures("own_configuration", "jobs_of_volcano")
@pytest.mark.parametrize("named", [True, False], ids=["by name", "of a window"])
def test_a_job_without_pods_gets_the_places_that_are_held_for_it_on_a_full_cluster(
    ground: Ground,
    extender_port: int,
    named: bool,  # noqa: FBT001 - the case
) -> None:
    configure(ground.sandbox, extender_port, "enqueue, allocate, backfill")
    nodes = ground.add_nodes(3)
    if named:
        template = pod_template({}, cpu=WHOLE_NODE, schedulerName=VOLCANO_SCHEDULER)
        owners = [{"object": {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "name": "gang"}}]
        body = build_reservation("place", cpu=WHOLE_NODE, owners=owners, template=template, replicas=2)
        ground.client.create(RESERVATIONS, body, namespace=ground.namespace)
    else:
        start = datetime.now(UTC)
        spec = {
            "schedule": f"{start.minute} {start.hour} * * *",
            "duration": "1h",
            "podNumToReserve": 2,
            "resources": {"cpu": "8", "memory": "1Gi"},
            "schedulerName": VOLCANO_SCHEDULER,
        }
        head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "ReservationWindow", "metadata": {"name": "nightly"}}
        ground.client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=ground.namespace)
    eventually("two places are held", lambda: len(ground.placeholders()) == 2, seconds=SOON)
    ground.wait_until_proven()
    held = {pod.spec.node_name for pod in ground.placeholders()}
    for number in range(5):
        ground.create_pod(f"hungry-{number}", cpu="4")
    eventually("the third node is full", lambda: len(nodes_of(ground, "hungry-")) == 1, seconds=SOON)
    annotations = None if named else {"volcano.sh/reserveable": "true"}
    ground.client.create(VOLCANO_JOBS, build_gang("gang", annotations=annotations), namespace=ground.namespace)
    eventually("the Job runs", lambda: len(nodes_of(ground, "gang-")) == 2, seconds=SOON)
    assert set(nodes_of(ground, "gang-").values()) == held
    assert held | set(nodes_of(ground, "hungry-").values()) == set(nodes)
    delete_all(ground.client, RESERVATION_WINDOWS, ground.namespace)


# --- zones


@pytest.fixture
def zone(ground: Ground) -> Iterator[str]:
    """Yield a zone that is closed and has no node yet."""
    name = f"zone-{ground.namespace}"[:63].rstrip("-")
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "metadata": {"name": name}}
    spec = {"windows": ["0:00-24:00"], "suspend": True, "evictPeriod": "10s"}
    ground.client.create(REVOCABLE_ZONES, {**head, "spec": spec})
    yield name
    delete_if_there(ground.client, REVOCABLE_ZONES, name)
    for body in ground.client.list(MIGRATION_PLANS).items:
        delete_if_there(ground.client, MIGRATION_PLANS, body["metadata"]["name"])


def switch(ground: Ground, zone: str, want: str, *, suspend: bool) -> None:
    """Open or close a zone, and wait until its nodes have the fence of that."""
    ground.client.merge_patch(REVOCABLE_ZONES, zone, {"spec": {"suspend": suspend}})

    def is_reached() -> bool:
        status = RevocableZone.read(ground.client.get(REVOCABLE_ZONES, zone)).status
        fenced = {condition.type: condition.status for condition in status.conditions}.get("Fenced")
        return (status.state, status.nodes, fenced) == (want, 1, "True")

    eventually(f"the zone is {want} and fenced", is_reached, seconds=SOON)


def test_a_lent_node_takes_preemptable_pods_of_volcano_while_it_is_open_and_is_emptied_without_a_policy(
    volcano_sandbox: Sandbox, ground: Ground, zone: str, tmp_path: Path
) -> None:
    lent, usual = ground.add_nodes(2)
    ground.client.merge_patch(NODES, lent, {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: zone}}})
    switch(ground, zone, "Suspended", suspend=True)
    ground.create_pod("first")
    eventually("it is not on the lent node", lambda: nodes_of(ground, "first") == {"first": usual}, seconds=SOON)
    ground.create_pod("service", cpu="1")
    preemptable = {"volcano.sh/preemptable": "true"}
    body = build_deployment("batch", replicas=2, cpu="1", schedulerName=VOLCANO_SCHEDULER)
    body["spec"]["template"]["metadata"]["labels"] |= preemptable
    ground.client.create(DEPLOYMENTS, body, namespace=ground.namespace)
    ground.create_pod("by-annotation", cpu="1", annotations=preemptable)
    refused = lambda name: ground.pod(name).condition("PodScheduled") == "False"  # noqa: E731
    names = ("service", "by-annotation")
    eventually("Volcano finds no place while it is closed", lambda: all(map(refused, names)), seconds=SOON)
    switch(ground, zone, "Open", suspend=False)
    on_lent = lambda: set(nodes_of(ground, "batch-").values()) | set(nodes_of(ground, "by-").values())  # noqa: E731
    eventually("three run", lambda: len(nodes_of(ground, "b")) == 3, seconds=SOON)
    assert on_lent() == {lent}
    assert not nodes_of(ground, "service")
    ground.client.delete(PODS, "first", namespace=ground.namespace, grace_seconds=0)
    eventually("the service runs elsewhere", lambda: nodes_of(ground, "service") == {"service": usual}, seconds=SOON)
    with DeschedulerReplica(volcano_sandbox, tmp_path):
        switch(ground, zone, "Suspended", suspend=True)
        moved = lambda: set(nodes_of(ground, "batch-").values()) == {usual} and len(nodes_of(ground, "batch-")) == 2  # noqa: E731
        eventually("the Deployment's pods have left, one in each period", moved, seconds=SOON)
    assert nodes_of(ground, "by-") == {"by-annotation": lent}, "nothing would make it again"


# --- queues


def test_a_reservation_waits_for_the_queue_that_it_names(ground: Ground) -> None:
    ground.add_nodes(1)
    ground.reserve("early", scheduler=VOLCANO_SCHEDULER, cpu="1", queue="late")

    def is_told() -> bool:
        state = ground.reservation("early").status.state
        return state is not None and state.reason == ReservationReason.UNKNOWN_QUEUE and "default" in state.message

    eventually("it says which queues there are", is_told, seconds=SOON)
    ground.client.create(
        QUEUES,
        {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "late"}} | {"spec": {"weight": 1}},
    )
    ground.wait_for("early", ReservationPhase.AVAILABLE)


@pytest.mark.usefixtures("own_configuration")
def test_a_queue_pays_for_the_places_of_the_stock_scheduler_only_with_the_extender(
    ground: Ground, operator_beside: OperatorProcess, extender_port: int
) -> None:
    configure(ground.sandbox, None, "allocate, backfill")
    capped = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "capped"}}
    ground.client.create(QUEUES, capped | {"spec": {"weight": 1, "capability": {"cpu": "4"}}})
    ground.add_nodes(2)
    ground.reserve("place", scheduler=DEFAULT_SCHEDULER, cpu="3", queue="capped")
    ground.wait_until_proven()

    def create(name: str) -> None:
        ground.create_pod(name, cpu="1", annotations={"scheduling.volcano.sh/queue-name": "capped"})

    runs = lambda name: ground.pod(name).status.phase == "Running"  # noqa: E731
    for name in ("first", "second"):
        create(name)
        eventually(f"{name} runs, as Volcano counts no place of another scheduler", lambda: runs(name), seconds=SOON)  # noqa: B023 - called at once
    counted = lambda: ground.client.get(QUEUES, "capped").get("status", {}).get("allocated", {}).get("cpu")  # noqa: E731
    eventually("Volcano has counted both", lambda: counted() == "2", seconds=SOON)

    configure(ground.sandbox, extender_port, "allocate, backfill")
    create("third")

    def is_considered() -> bool:
        group = ground.pod("third").metadata.annotations.get(GROUP)
        found = ground.client.list(VOLCANO_POD_GROUPS, namespace=ground.namespace).items
        return any(one["metadata"]["name"] == group and one["status"]["phase"] == "Inqueue" for one in found)

    eventually("Volcano has considered it", is_considered, seconds=SOON)
    refused = lambda: answers(operator_beside, "queueOverused", "overused")  # noqa: E731
    before = refused()
    eventually("its queue was overused twice since", lambda: refused() >= before + 2, seconds=SOON)
    assert not ground.pod("third").spec.node_name
    ground.client.delete(RESERVATIONS, "place", namespace=ground.namespace)
    eventually("it runs once the place is given back", lambda: runs("third"), seconds=SOON)


def test_a_guarantee_in_useless_pieces_is_seen_and_could_be_put_together(ground: Ground) -> None:
    promised = {"apiVersion": QUEUES.api_version, "kind": "Queue", "metadata": {"name": "promised"}}
    ground.client.create(QUEUES, promised | {"spec": {"weight": 1, "guarantee": {"resource": {"cpu": WHOLE_NODE}}}})
    try:
        nodes = ground.add_nodes(2)
        for closed, name in zip(nodes, ("one", "two"), strict=True):
            ground.client.merge_patch(NODES, closed, {"spec": {"unschedulable": True}})
            ground.client.create(DEPLOYMENTS, build_deployment(name, replicas=1, cpu="2"), namespace=ground.namespace)
            runs = lambda app=name: [p.status.phase for p in pods(ground.client, ground.namespace, app=app)]  # noqa: E731
            eventually(f"{name} runs", lambda: runs() == ["Running"], seconds=SOON)  # noqa: B023 - called at once
            ground.client.merge_patch(NODES, closed, {"spec": {"unschedulable": None}})
        ground.create_pod("whole", annotations={"scheduling.volcano.sh/queue-name": "promised"})
        eventually("it is in its queue", lambda: GROUP in ground.pod("whole").metadata.annotations, seconds=SOON)

        (found,) = measure_queues(read_capacity(ground.client))
        made = plan(read_live_snapshot(ground.client), making_room(room={"queue": "promised"}))
    finally:
        ground.client.delete(QUEUES, "promised")

    assert (found.queue.name, found.left["cpu"], found.share("cpu")) == ("promised", 4000, 0)
    assert len(made.moves) == 1
    (room,) = made.rooms
    assert (room.gang, room.queue) == (ground.pod("whole").metadata.annotations[GROUP], "promised")
