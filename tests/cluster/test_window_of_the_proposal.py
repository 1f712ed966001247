"""A ReservationWindow holds capacity by the clock for the pods that say so, on a real control plane."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from berth_core import ReservationWindow, SystemClock
from berth_kube.resources import NODES, PODS, RESERVATION_WINDOWS
from berth_sandbox.bootstrap import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import pod_template
from reservation_stage import Stage, delete_all, delete_if_there
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

SLOT: Final = {"cpu": "3200m", "memory": "6Gi"}
LONG_SECONDS: Final = 120


@pytest.fixture
def books(sandbox: Sandbox, stage: Stage) -> Iterator[tuple[str, ...]]:
    """Yield six nodes of 16 cpu and 64Gi, of which low pods leave idle: all of the first two, a half of the others."""
    label = {"business_type": stage.namespace}
    names = sandbox.add_nodes(6, NodeShape(labels=label), prefix=f"{stage.namespace}-ebook-")
    for name in names[2:]:
        create_pod(stage, f"low-{name}", cpu="8", nodeName=name)
    eventually("the low pods run", lambda: len(running_on(stage, "low-")) == 4, seconds=LONG_SECONDS)
    yield names
    delete_all(stage.client, RESERVATION_WINDOWS, stage.namespace)
    delete_all(stage.client, PODS, stage.namespace)
    for name in names:
        delete_if_there(stage.client, NODES, name)


def create_pod(stage: Stage, name: str, *, cpu: str, annotations: dict[str, str] | None = None, **spec: Any) -> None:  # noqa: ANN401 - a field of the pod
    body = {"apiVersion": "v1", "kind": "Pod", **pod_template({}, cpu=cpu, **spec)}
    body["metadata"] = {"name": name, "annotations": annotations or {}}
    stage.client.create(PODS, body, namespace=stage.namespace)


def read(stage: Stage) -> ReservationWindow:
    return ReservationWindow.read(stage.client.get(RESERVATION_WINDOWS, "nightly", namespace=stage.namespace))


def write(stage: Stage, start: datetime, duration: timedelta) -> None:
    """Create a window that began this minute, with the proposal's numbers, or give it another end."""
    spec = {
        "schedule": f"{start.minute} {start.hour} * * *",
        "duration": f"{int(duration.total_seconds())}s",
        "startReserveAgo": "2h",
        "podNumToReserve": 10,
        "resources": {"cpu": "32", "memory": "64Gi"},
        "nodeSelector": {"business_type": stage.namespace},
    }
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "ReservationWindow", "metadata": {"name": "nightly"}}
    stage.client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=stage.namespace)


def running_on(stage: Stage, prefix: str) -> list[str]:
    """Return the nodes of the running pods whose names begin so."""
    listed = stage.client.list(PODS, namespace=stage.namespace).items
    mine = [pod for pod in listed if pod["metadata"]["name"].startswith(prefix)]
    return [pod["spec"].get("nodeName", "") for pod in mine if pod["status"].get("phase") == "Running"]


def test_the_proposals_window_holds_ten_places_on_the_most_idle_nodes_and_gives_back_the_rest(
    stage: Stage, books: tuple[str, ...]
) -> None:
    now = SystemClock().now()
    start = now.replace(second=0, microsecond=0)
    write(stage, start, timedelta(hours=1))

    eventually(
        "ten places are held", lambda: sum(o.held for o in read(stage).status.active) == 10, seconds=LONG_SECONDS
    )
    (active,) = read(stage).status.active
    assert active.nodes == books[:2]
    assert read(stage).status.state == "Open"

    create_pod(stage, "other", cpu="3", nodeSelector={"kubernetes.io/hostname": books[0]})
    for number in range(8):
        create_pod(stage, f"book-{number}", cpu=SLOT["cpu"], annotations={"volcano.sh/reserveable": "true"})
    eventually("eight have come", lambda: len(running_on(stage, "book-")) == 8, seconds=LONG_SECONDS)
    assert set(running_on(stage, "book-")) <= set(books[:2])
    eventually("eight are counted", lambda: read(stage).status.active[0].taken == 8, seconds=LONG_SECONDS)
    assert not running_on(stage, "other")

    shorter = SystemClock().now() - start + timedelta(seconds=2)
    patch = {"spec": {"duration": f"{int(shorter.total_seconds())}s"}}
    stage.client.merge_patch(RESERVATION_WINDOWS, "nightly", patch, namespace=stage.namespace)
    eventually("the window is closed", lambda: read(stage).status.state == "Closed", seconds=LONG_SECONDS)
    (past,) = read(stage).status.history
    assert (past.reservation, past.outcome, past.desired, past.taken) == (active.reservation, "Ended", 10, 8)
    eventually("nothing is held any more", lambda: not stage.placeholders(active.reservation), seconds=LONG_SECONDS)
    assert len(running_on(stage, "book-")) == 8
    assert len(running_on(stage, "low-")) == 4, "nothing is preempted"
