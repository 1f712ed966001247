"""Every option of windows and zones, once for pods that Volcano's scheduler places."""
# ruff: noqa: ANN401 - fields of API objects may be anything

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import pytest

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    WINDOW_API_VERSION,
    WINDOW_KIND,
    MigrationPlan,
    Pod,
    ReservationWindow,
    WindowCondition,
)
from berth_core.clock import format_timestamp
from berth_core.labels import RESERVATION_LABEL, REVOCABLE_ZONE_LABEL, STANDING_FENCE_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.pod_groups import VOLCANO_SCHEDULER
from berth_core.revocable_zones import LentFence, RevocableZone, ZoneCondition
from berth_kube.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NODES,
    PODS,
    RESERVATION_WINDOWS,
    REVOCABLE_ZONES,
    VOLCANO_JOBS,
)
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, make_priority_class, pod_template, pods, reservations
from policy_scenes import DeschedulerReplica
from reservation_stage import delete_all, delete_if_there
from volcano_ground import SOON, Ground, configure, nodes_of
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

TOKYO: Final = ZoneInfo("Asia/Tokyo")
RESERVEABLE: Final = {"volcano.sh/reserveable": "true"}
PREEMPTABLE: Final = {"volcano.sh/preemptable": "true"}


@pytest.fixture(scope="module", autouse=True)
def chart_scorers(volcano_sandbox: Sandbox) -> None:
    """Have Volcano score nodes as with its chart, and look at every PodGroup."""
    configure(volcano_sandbox, None, "allocate, backfill", "nodeorder", "binpack")


@pytest.fixture(autouse=True)
def cleared(ground: Ground) -> Iterator[None]:
    """Take away what would make pods again, before the ground is cleared."""
    yield
    for resource in (RESERVATION_WINDOWS, VOLCANO_JOBS, DAEMON_SETS):
        delete_all(ground.client, resource, ground.namespace)
    delete_if_there(ground.client, DESCHEDULER_POLICIES, ground.namespace)
    delete_if_there(ground.client, REVOCABLE_ZONES, ground.namespace)
    for plan in ground.client.list(MIGRATION_PLANS).items:
        delete_if_there(ground.client, MIGRATION_PLANS, plan["metadata"]["name"])


def label(ground: Ground, key: str, value: str, *nodes: str) -> None:
    for node in nodes:
        ground.client.merge_patch(NODES, node, {"metadata": {"labels": {key: value}}})


def create_job(ground: Ground, replicas: int, together: int, annotations: dict[str, str], **spec: Any) -> None:
    """Create a Volcano Job "train" of pods of one cpu, so many of which run together or not at all."""
    template = pod_template({"app": "train"}, cpu="1", schedulerName=VOLCANO_SCHEDULER, **spec)
    task = {"name": "worker", "replicas": replicas, "template": template}
    job = {"schedulerName": VOLCANO_SCHEDULER, "queue": "default", "minAvailable": together, "tasks": [task]}
    metadata = {"name": "train", "annotations": annotations}
    body = {"apiVersion": VOLCANO_JOBS.api_version, "kind": "Job", "metadata": metadata, "spec": job}
    ground.client.create(VOLCANO_JOBS, body, namespace=ground.namespace)


def await_nodes(ground: Ground, prefix: str, **want: int) -> None:
    """Wait until so many pods whose names begin so run on each node."""

    def counts() -> dict[str, int]:
        nodes = list(nodes_of(ground, prefix).values())
        return {node: nodes.count(node) for node in nodes}

    eventually(f"{prefix} on {want}", lambda: counts() == want, seconds=SOON)


def await_refused(ground: Ground, *names: str) -> None:
    """Wait until Volcano has found no place for pods."""
    refused = lambda: all(ground.pod(name).condition("PodScheduled") == "False" for name in names)  # noqa: E731
    eventually(f"{names} find no place", refused, seconds=SOON)


# --- windows


def open_window(ground: Ground, name: str = "nightly", **spec: Any) -> None:
    head = {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "metadata": {"name": name}}
    ground.client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=ground.namespace)


def change_window(ground: Ground, **spec: Any) -> None:
    ground.client.merge_patch(RESERVATION_WINDOWS, "nightly", {"spec": spec}, namespace=ground.namespace)


def window(ground: Ground, name: str = "nightly") -> ReservationWindow:
    return ReservationWindow.read(ground.client.get(RESERVATION_WINDOWS, name, namespace=ground.namespace))


def await_places(ground: Ground, state: str, *places: tuple[int, int], name: str = "nightly") -> None:
    """Wait until each active occurrence has so many places held and taken."""

    def found() -> tuple[str, list[tuple[int, int]]]:
        status = window(ground, name).status
        return status.state, [(active.held, active.taken) for active in status.active]

    eventually(f"{name} is {state} with {places}", lambda: found() == (state, list(places)), seconds=SOON)


def begins(minutes_ago: int) -> str:
    start = datetime.now(UTC) - timedelta(minutes=minutes_ago)
    return f"{start.minute} {start.hour} * * *"


def create_gated(ground: Ground, name: str, cpu: str) -> None:
    """Create a pod for a window, once more where the webhook had no answer in time on a busy machine."""

    def is_gated() -> bool:
        ground.create_pod(name, cpu=cpu, annotations=RESERVEABLE)
        if RESERVATION_LABEL in ground.pod(name).metadata.labels:
            return True
        ground.client.delete(PODS, name, namespace=ground.namespace, grace_seconds=0)
        return False

    eventually(f"{name} is gated", is_gated, seconds=SOON)


def test_a_window_by_another_clock_holds_ahead_for_pods_of_any_size_until_it_is_switched_off(ground: Ground) -> None:
    books = ground.add_nodes(2)
    label(ground, "business_type", "ebook", *books)
    (other,) = ground.add_nodes(1)
    hour = datetime.now(TOKYO).replace(minute=0, second=0, microsecond=0) + timedelta(hours=2)
    open_window(
        ground,
        schedule=f"0 {hour.hour} - {(hour.hour + 1) % 24} * * *",
        timeZone="Asia/Tokyo",
        startReserveAgo="3h",
        podNumToReserve=4,
        resources={"cpu": "8", "memory": "4Gi"},
        nodeSelector={"business_type": "ebook"},
        schedulerName=VOLCANO_SCHEDULER,
    )
    await_places(ground, "Reserving", (4, 0))
    (active,) = window(ground).status.active
    assert active.start == format_timestamp(hour.astimezone(UTC))
    assert set(active.nodes) == set(books)
    assert {pod.spec.scheduler_name for pod in ground.placeholders()} == {VOLCANO_SCHEDULER}
    ground.wait_until_proven()

    ground.create_pod("large")
    await_nodes(ground, "large", **{other: 1})
    ground.create_pod("small", cpu="2")
    await_refused(ground, "small")
    create_gated(ground, "book-0", "4")
    await_places(ground, "Reserving", (2, 2))
    create_gated(ground, "book-1", "1")
    await_places(ground, "Reserving", (1, 3))
    eventually("both run", lambda: set(nodes_of(ground, "book-").values()) == set(books), seconds=SOON)
    assert not nodes_of(ground, "small"), "its room is held for a fourth pod"

    change_window(ground, suspend=True)
    eventually("what is left is everybody's", lambda: len(nodes_of(ground, "small")) == 1, seconds=SOON)
    await_places(ground, "Suspended")
    assert len(nodes_of(ground, "book-")) == 2, "who took a place goes on"
    change_window(ground, suspend=False, startReserveAgo="0s")
    await_places(ground, "Closed")
    assert [(past.outcome, past.taken) for past in window(ground).status.history] == [("Ended", 3)]


def test_a_template_takes_a_job_whose_pod_group_is_reserveable_and_missed_says_which_windows_open(
    ground: Ground,
) -> None:
    (tainted, plain) = ground.add_nodes(2)
    label(ground, "dedicated", "books", tainted)
    taint = {"key": "dedicated", "value": "books", "effect": "NoSchedule"}
    ground.client.merge_patch(NODES, tainted, {"spec": {"taints": [taint]}})
    make_priority_class(ground.client, "books", 1000)
    fields: dict[str, Any] = {
        "nodeSelector": {"dedicated": "books"},
        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "books", "effect": "NoSchedule"}],
        "priorityClassName": "books",
    }
    shared = {"cron": begins(30), "duration": "2h", "podNumToReserve": 2}
    template = pod_template({}, cpu="2", schedulerName=VOLCANO_SCHEDULER, **fields)
    open_window(ground, "skipped", **shared, missed="Skip", template=template)
    open_window(ground, **shared, missed="Rest", template=template)
    await_places(ground, "Open", (2, 0))
    await_places(ground, "Closed", name="skipped")
    placeholders = ground.placeholders()
    assert {(pod.spec.node_name, pod.spec.scheduler_name) for pod in placeholders} == {(tainted, VOLCANO_SCHEDULER)}
    ground.wait_until_proven()
    ground.create_pod("ordinary", cpu="1")
    ground.create_pod("intruder", cpu="4", **fields)
    await_nodes(ground, "ordinary", **{plain: 1})
    await_refused(ground, "intruder")

    create_job(ground, 2, 2, RESERVEABLE, **fields)
    await_nodes(ground, "train-", **{tainted: 2})
    workers = pods(ground.client, ground.namespace, app="train")
    assert {pod.metadata.annotations.get("volcano.sh/reserveable") for pod in workers} == {"true"}
    await_places(ground, "Open", (0, 2))
    phases = lambda: [active.phase for active in window(ground).status.active]  # noqa: E731
    eventually("its Reservation is over", lambda: phases() == ["Succeeded"], seconds=SOON)
    assert not nodes_of(ground, "intruder")

    change_window(ground, duration="20m")
    eventually("it is closed at once", lambda: window(ground).status.state == "Closed", seconds=SOON)
    (past,) = window(ground).status.history
    assert (past.outcome, past.desired, past.taken) == ("Taken", 2, 2)
    assert len(nodes_of(ground, "train-")) == 2


def test_occurrences_that_overlap_have_places_of_their_own_eight_at_most(ground: Ground) -> None:
    ground.add_nodes(2)
    open_window(
        ground,
        schedule="* * * * *",
        duration="30m",
        podNumToReserve=1,
        resources={"cpu": "1"},
        schedulerName=VOLCANO_SCHEDULER,
        historyLimit=3,
    )
    await_places(ground, "Open", *[(1, 0)] * 8)
    assert len({active.start for active in window(ground).status.active}) == 8
    assert len(ground.placeholders()) == 8

    def why(condition: WindowCondition, status: str) -> str:
        found = window(ground).condition(condition)
        return found.reason if found is not None and found.status == status else ""

    eventually("it says so", lambda: why(WindowCondition.SCHEDULED, "False") == "Overlapping", seconds=SOON)
    eventually("all are sufficient", lambda: why(WindowCondition.SUFFICIENT, "True"), seconds=SOON)
    ground.create_pod("filler", cpu="1")
    await_refused(ground, "filler")
    change_window(ground, duration="1s")
    eventually("those that are past are given back", lambda: len(nodes_of(ground, "filler")) == 1, seconds=SOON)
    eventually("three are remembered", lambda: len(window(ground).status.history) == 3, seconds=SOON)


def test_pods_of_volcano_move_for_a_window_that_allows_it_and_limits_of_fences_are_named(
    volcano_sandbox: Sandbox, ground: Ground, tmp_path: Path
) -> None:
    nodes = ground.add_nodes(2)
    for closed, name in zip(nodes, ("web-0", "web-1"), strict=True):
        ground.client.merge_patch(NODES, closed, {"spec": {"unschedulable": True}})
        body = build_deployment(name, replicas=1, cpu="2", schedulerName=VOLCANO_SCHEDULER)
        ground.client.create(DEPLOYMENTS, body, namespace=ground.namespace)
        eventually(f"{name} runs", lambda: len(nodes_of(ground, name)) == 1, seconds=SOON)  # noqa: B023 - called at once
        ground.client.merge_patch(NODES, closed, {"spec": {"unschedulable": None}})
    shared = {"schedule": begins(0), "duration": "1h", "schedulerName": VOLCANO_SCHEDULER}

    def insufficient() -> tuple[str, str]:
        found = window(ground).condition(WindowCondition.SUFFICIENT)
        return (found.reason, found.message) if found is not None and found.status == "False" else ("", "")

    open_window(ground, **shared, podNumToReserve=2, resources={"cpu": "8"}, mayMove="Never")
    eventually("one of two nodes may be fenced", lambda: insufficient()[0] == "FenceLimit", seconds=SOON)
    assert "maxFencedNodes" in insufficient()[1]
    ground.client.delete(RESERVATION_WINDOWS, "nightly", namespace=ground.namespace)
    eventually("it is gone", lambda: not reservations(ground.client, ground.namespace), seconds=SOON)

    open_window(ground, **shared, podNumToReserve=1, resources={"cpu": "4", "memory": "1Gi"}, mayMove="Consolidate")
    eventually("no policy moves pods", lambda: insufficient()[0] == "NoMoves", seconds=SOON)
    assert len(nodes_of(ground, "web-")) == 2
    profile = {"name": "default", "plugins": {"balance": {"enabled": ["ReservationWindows"]}}}
    limits = {"maxMoves": 10, "podCoolDown": "0s"}
    spec = {"trigger": {"interval": "10s"}, "mode": "Auto", "limits": limits, "profiles": [profile]}
    head = {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": ground.namespace}}
    with DeschedulerReplica(volcano_sandbox, tmp_path):
        ground.client.create(DESCHEDULER_POLICIES, {**head, "spec": spec})
        await_places(ground, "Open", (1, 0))
        ground.client.delete(DESCHEDULER_POLICIES, ground.namespace)
    eventually("both pods run", lambda: len(nodes_of(ground, "web-")) == 2, seconds=SOON)
    (left,) = set(nodes_of(ground, "web-").values())
    (held,) = set(nodes) - {left}
    create_gated(ground, "book", "4")
    await_nodes(ground, "book", **{held: 1})


# --- zones


def lend(ground: Ground, *nodes: str, **spec: Any) -> None:
    """Create a zone, by default of the whole day, with these nodes."""
    label(ground, REVOCABLE_ZONE_LABEL, ground.namespace, *nodes)
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone", "metadata": {"name": ground.namespace}}
    ground.client.create(REVOCABLE_ZONES, {**head, "spec": {"windows": ["0:00-24:00"], **spec}})


def zone(ground: Ground) -> RevocableZone:
    return RevocableZone.read(ground.client.get(REVOCABLE_ZONES, ground.namespace))


def change_zone(ground: Ground, want: str, **spec: Any) -> None:
    """Change a zone, and wait until its nodes have the fence of the state that follows."""
    ground.client.merge_patch(REVOCABLE_ZONES, ground.namespace, {"spec": spec})
    generation = ground.client.get(REVOCABLE_ZONES, ground.namespace)["metadata"]["generation"]

    def is_reached() -> bool:
        found = zone(ground)
        fenced = found.condition(ZoneCondition.FENCED)
        seen = found.status.observed_generation == generation
        return seen and found.status.state == want and fenced is not None and fenced.status == "True"

    eventually(f"the zone is {want} and fenced", is_reached, seconds=SOON)


def fences_on(ground: Ground, node: str) -> list[str]:
    """Return the kinds of the fences of a node, of those that are ending, too."""
    found = (pod for pod in pods(ground.client, DEFAULT_NAMESPACE) if STANDING_FENCE_LABEL in pod.metadata.labels)
    return [pod.metadata.labels[STANDING_FENCE_LABEL] for pod in found if pod.spec.node_name == node]


def daemons(ground: Ground) -> set[str]:
    return {pod.spec.node_name for pod in pods(ground.client, ground.namespace, app="agent") if pod.is_ready}


def test_preemptable_pods_of_volcano_prefer_open_lent_nodes_which_daemons_use_always(ground: Ground) -> None:
    usual, lent = ground.add_nodes(2)
    lend(ground, lent, suspend=True)
    change_zone(ground, "Suspended", suspend=True)
    labels = {"app": "agent"}
    template = pod_template(labels, cpu="10m", schedulerName=VOLCANO_SCHEDULER)
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent"}}
    body |= {"spec": {"selector": {"matchLabels": labels}, "template": template}}
    ground.client.create(DAEMON_SETS, body, namespace=ground.namespace)
    eventually("they run on both", lambda: daemons(ground) == {usual, lent}, seconds=SOON)
    ground.create_pod("early", cpu="500m", labels=PREEMPTABLE)
    await_nodes(ground, "early", **{usual: 1})

    change_zone(ground, "Open", suspend=False)
    eventually(
        "the fence of an open node alone stands",
        lambda: fences_on(ground, lent) == [LentFence.OPEN.value],
        seconds=SOON,
    )
    for number in range(3):
        ground.create_pod(f"batch-{number}", cpu="1", labels=PREEMPTABLE)
        await_nodes(ground, "batch-", **{lent: number + 1})
    ground.create_pod("service", cpu="500m")
    await_nodes(ground, "service", **{usual: 1})

    ground.client.merge_patch(NODES, usual, {"metadata": {"labels": {REVOCABLE_ZONE_LABEL: "of-no-zone"}}})
    without = LentFence.WITHOUT_ZONE.value
    eventually("a label without a zone has a fence", lambda: fences_on(ground, usual) == [without], seconds=SOON)
    ground.create_pod("late", cpu="500m")
    ground.create_pod("whole", cpu="2", labels=PREEMPTABLE)
    await_refused(ground, "late", "whole")


def test_a_zone_opens_by_its_own_clock_and_is_emptied_before_the_end_within_the_budgets_of_its_jobs(
    volcano_sandbox: Sandbox, ground: Ground, tmp_path: Path
) -> None:
    usual, lent = ground.add_nodes(2)
    ground.create_pod("filler", nodeName=usual)
    now = datetime.now(TOKYO)
    begin, end = now - timedelta(hours=1), now + timedelta(hours=3)
    other_days = {f"{now + timedelta(days=number):%a}" for number in range(7)} - {f"{begin:%a}"}
    times = {"windows": [f"{begin:%H:%M}-{end:%H:%M}"], "timeZone": "Asia/Tokyo", "days": sorted(other_days)}
    lend(ground, lent, **times, evictPeriod="10s", evictBefore="0s")
    change_zone(ground, "Closed", suspend=False)
    create_job(ground, 3, 1, {**PREEMPTABLE, "volcano.sh/jdb-min-available": "1"})
    at_once = {**PREEMPTABLE, "volcano.sh/jdb-max-unavailable": "100%"}
    body = build_deployment("batch", replicas=2, cpu="500m", schedulerName=VOLCANO_SCHEDULER)
    body["spec"]["template"]["metadata"] |= {"labels": {"app": "batch", **PREEMPTABLE}, "annotations": at_once}
    ground.client.create(DEPLOYMENTS, body, namespace=ground.namespace)
    waiting = lambda: [pod.condition("PodScheduled") for pod in all_batch(ground)]  # noqa: E731
    eventually("none comes on other days", lambda: waiting() == ["False"] * 5, seconds=SOON)

    change_zone(ground, "Open", days=[f"{begin:%a}"])
    await_nodes(ground, "train-", **{lent: 3})
    await_nodes(ground, "batch-", **{lent: 2})
    eventually("five are counted", lambda: zone(ground).status.pods == 5, seconds=SOON)
    ground.client.delete(PODS, "filler", namespace=ground.namespace, grace_seconds=0)
    names = ("train-", "batch-")
    left = lambda: [sorted(nodes_of(ground, name).values()) for name in names]  # noqa: E731
    with DeschedulerReplica(volcano_sandbox, tmp_path):
        change_zone(ground, "Emptying", evictBefore="5h")
        eventually("all have left", lambda: left() == [[usual] * 3, [usual] * 2], seconds=SOON)
        eventually("the zone says so", lambda: zone(ground).status.pods == 0, seconds=SOON)
    plans = ground.client.list(MIGRATION_PLANS, type=MigrationPlan).items
    most = [max(sum(move.pod.startswith(name) for move in plan.spec.moves) for plan in plans) for name in names]
    assert most == [2, 2], "as many in one run as the budgets spare, of three and of two"


def all_batch(ground: Ground) -> tuple[Pod, ...]:
    return (*pods(ground.client, ground.namespace, app="train"), *pods(ground.client, ground.namespace, app="batch"))
