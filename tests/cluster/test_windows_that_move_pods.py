"""A ReservationWindow with `mayMove: Consolidate` has its place before its start, though the pods there never end."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    WINDOW_API_VERSION,
    WINDOW_KIND,
    ReservationWindow,
    SystemClock,
    WindowCondition,
)
from berth_core.clock import parse_timestamp
from berth_kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, MIGRATION_PLANS, PODS, RESERVATION_WINDOWS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, let_the_scheduler_hear, pod_template, reservations
from policy_scenes import DeschedulerReplica, read_policy
from reservation_stage import WHOLE_NODE, Stage, delete_all, delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

LONG_SECONDS: Final = 240
LIST_SECONDS: Final = 0.5
WINDOW: Final = "nightly"


@pytest.fixture
def half_full(sandbox: Sandbox, stage: Stage, tmp_path: Path) -> Iterator[Stage]:
    """Yield two nodes of 4 cpu, on each a pod of 2 cpu that never ends, beside a service that serves policies."""
    let_the_scheduler_hear(stage.client, stage.namespace, stage.nodes[0])
    web = build_deployment("web", replicas=2, cpu="2", nodeSelector=stage.selector)
    stage.client.create(DEPLOYMENTS, web, namespace=stage.namespace)
    eventually("the pods are spread", lambda: web_nodes(stage) == sorted(stage.nodes), seconds=LONG_SECONDS)
    with DeschedulerReplica(sandbox, tmp_path):
        yield stage
    delete_all(stage.client, RESERVATION_WINDOWS, stage.namespace)
    delete_if_there(stage.client, DESCHEDULER_POLICIES, stage.namespace)
    for plan in stage.client.list(MIGRATION_PLANS).items:
        delete_if_there(stage.client, MIGRATION_PLANS, plan["metadata"]["name"])


def web_nodes(stage: Stage) -> list[str]:
    pods = stage.client.list(PODS, namespace=stage.namespace, label_selector="app=web").items
    return sorted(pod["spec"].get("nodeName", "") for pod in pods if pod["status"].get("phase") == "Running")


def open_window(stage: Stage, may_move: str) -> None:
    """Create a window of one whole node that starts in half an hour and reserves from now on."""
    start = SystemClock().now() + timedelta(minutes=30)
    spec = {
        "schedule": f"{start.minute} {start.hour} * * *",
        "duration": "1h",
        "startReserveAgo": "2h",
        "podNumToReserve": 1,
        "resources": {"cpu": WHOLE_NODE, "memory": "1Gi"},
        "nodeSelector": stage.selector,
        "mayMove": may_move,
    }
    body = {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "metadata": {"name": WINDOW}, "spec": spec}
    stage.client.create(RESERVATION_WINDOWS, body, namespace=stage.namespace)


def read(stage: Stage) -> ReservationWindow:
    return ReservationWindow.read(stage.client.get(RESERVATION_WINDOWS, WINDOW, namespace=stage.namespace))


def why_insufficient(stage: Stage) -> str:
    found = read(stage).condition(WindowCondition.SUFFICIENT)
    return found.reason if found is not None and found.status == "False" else ""


def close_window(stage: Stage) -> None:
    stage.client.delete(RESERVATION_WINDOWS, WINDOW, namespace=stage.namespace)
    eventually("its Reservation is gone", lambda: not reservations(stage.client, stage.namespace), seconds=LONG_SECONDS)


def switch_on(stage: Stage) -> None:
    profile = {"name": "default", "plugins": {"balance": {"enabled": ["ReservationWindows"]}}}
    spec = {
        "trigger": {"interval": "10s"},
        "mode": "Auto",
        "nodeSelector": f"stage={stage.namespace}",
        "limits": {"maxMoves": 10, "podCoolDown": "0s"},
        "profiles": [profile],
    }
    body = {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": stage.namespace}, "spec": spec}
    stage.client.create(DESCHEDULER_POLICIES, body)


def await_run(stage: Stage) -> None:
    """Wait until the policy has begun and ended a run from now on."""
    now = SystemClock().now()

    def has_run() -> bool:
        status = read_policy(stage.client, stage.namespace).status
        ran = status.last_run_time
        return ran is not None and parse_timestamp(ran) > now and bool(status.last_verdict)

    eventually("the policy has run", has_run, seconds=LONG_SECONDS)


def test_it_holds_its_place_before_the_start_where_one_that_may_not_move_pods_waits(half_full: Stage) -> None:
    stage = half_full
    open_window(stage, "Consolidate")
    eventually("nobody moves pods", lambda: why_insufficient(stage) == "NoMoves", seconds=LONG_SECONDS)
    close_window(stage)

    switch_on(stage)
    open_window(stage, "Never")
    eventually("it waits", lambda: why_insufficient(stage) == "IdleInsufficient", seconds=LONG_SECONDS)
    await_run(stage)
    assert web_nodes(stage) == sorted(stage.nodes), "nothing has moved"
    assert [one.held for one in read(stage).status.active] == [0]
    close_window(stage)

    open_window(stage, "Consolidate")
    is_held = lambda: [o.held for o in read(stage).status.active] == [1]  # noqa: E731 - a name for a claim
    eventually("the place is held", is_held, seconds=LONG_SECONDS)
    assert read(stage).status.state == "Reserving"
    eventually("both pods run on one node", lambda: len(web_nodes(stage)) == 2, seconds=LONG_SECONDS)
    (left,) = set(web_nodes(stage))
    (held,) = set(stage.nodes) - {left}
    body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu=WHOLE_NODE)}
    body["metadata"] = {"name": "book", "annotations": {"volcano.sh/reserveable": "true"}}
    stage.client.create(PODS, body, namespace=stage.namespace)
    eventually("the window's pod runs there", lambda: stage.pod("book").spec.node_name == held, seconds=LONG_SECONDS)
