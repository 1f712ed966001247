"""A ReservationWindow holds capacity by the clock for the pods that say so, on a real control plane."""

import json
import subprocess
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from berth_core import RESERVATION_LABEL, ReservationWindow, SystemClock
from berth_kube.resources import NODES, PODS, RESERVATION_WINDOWS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import pod_template
from reservation_stage import WHOLE_NODE, Stage, delete_all, delete_if_there
from service_processes import script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

SLOT: Final = {"cpu": "3200m", "memory": "6Gi"}
RESERVEABLE: Final = {"volcano.sh/reserveable": "true"}
LONG_SECONDS: Final = 120
LIST_SECONDS: Final = 0.5


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


def create_gated(stage: Stage, name: str, cpu: str = SLOT["cpu"]) -> bool:
    """Create a pod of the window; return False, without it, if the webhook had no answer in time on a busy machine."""
    create_pod(stage, name, cpu=cpu, annotations=RESERVEABLE)
    if RESERVATION_LABEL in stage.pod(name).metadata.labels:
        return True
    stage.client.delete(PODS, name, namespace=stage.namespace, grace_seconds=0)
    return False


def read(stage: Stage) -> ReservationWindow:
    return ReservationWindow.read(stage.client.get(RESERVATION_WINDOWS, "nightly", namespace=stage.namespace))


def open_window(stage: Stage, **spec: Any) -> datetime:  # noqa: ANN401 - a field of the spec
    """Create a window that began this minute, by default with the proposal's numbers; return when it began."""
    start = SystemClock().now().replace(second=0, microsecond=0)
    spec = {
        "schedule": f"{start.minute} {start.hour} * * *",
        "duration": "1h",
        "startReserveAgo": "2h",
        "podNumToReserve": 10,
        "resources": {"cpu": "32", "memory": "64Gi"},
        "nodeSelector": {"business_type": stage.namespace},
        **spec,
    }
    spec = {name: value for name, value in spec.items() if value is not None}
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "ReservationWindow", "metadata": {"name": "nightly"}}
    stage.client.create(RESERVATION_WINDOWS, {**head, "spec": spec}, namespace=stage.namespace)
    return start


def held(stage: Stage) -> int:
    return sum(one.held for one in read(stage).status.active)


def on(*nodes: str) -> dict[str, Any]:
    """Return the part of a pod's spec by which only these nodes may be its."""
    named = {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [named]}]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


def running_on(stage: Stage, prefix: str) -> list[str]:
    """Return the nodes of the running pods whose names begin so."""
    listed = stage.client.list(PODS, namespace=stage.namespace).items
    mine = [pod for pod in listed if pod["metadata"]["name"].startswith(prefix)]
    return [pod["spec"].get("nodeName", "") for pod in mine if pod["status"].get("phase") == "Running"]


def await_refused(stage: Stage, *names: str) -> None:
    """Wait until the scheduler finds no place for pods."""
    refused = lambda: all(stage.pod(name).condition("PodScheduled") == "False" for name in names)  # noqa: E731
    eventually(f"{names} find no place", refused, seconds=LONG_SECONDS)


def in_calendar(sandbox: Sandbox, window: str) -> list[tuple[str, int]]:
    """Return what `berth calendar` lists of a window, with the number of places that are held."""
    command = [script("berth"), "calendar", "--kubeconfig", str(sandbox.kubeconfig), "--output", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG_SECONDS, check=True)
    items = json.loads(done.stdout)["items"]
    return [(one["what"], one["held"]) for one in items if one["window"] == window]


def test_the_proposals_window_holds_ten_places_on_the_most_idle_nodes_and_gives_back_the_rest(
    sandbox: Sandbox, stage: Stage, books: tuple[str, ...]
) -> None:
    start = open_window(stage)
    eventually("ten places are held", lambda: held(stage) == 10, seconds=LONG_SECONDS)
    (active,) = read(stage).status.active
    assert active.nodes == books[:2]
    assert read(stage).status.state == "Open"
    assert in_calendar(sandbox, f"{stage.namespace}/nightly") == [("closes", 10), ("reserves", 0), ("opens", 0)]

    create_pod(stage, "other", cpu="3", **on(*books[:2]))
    await_refused(stage, "other")
    stage.wait_until_proven(active.reservation, seconds=LONG_SECONDS)
    for name in (f"book-{number}" for number in range(8)):
        eventually(f"{name} is gated", lambda: create_gated(stage, name), seconds=LONG_SECONDS)  # noqa: B023 - called at once
    eventually("eight have come", lambda: len(running_on(stage, "book-")) == 8, seconds=LONG_SECONDS)
    assert set(running_on(stage, "book-")) <= set(books[:2])
    eventually("eight are counted", lambda: read(stage).status.active[0].taken == 8, seconds=LONG_SECONDS)
    assert not running_on(stage, "other"), "its room is held for two more"

    shorter = SystemClock().now() - start + timedelta(seconds=2)
    patch = {"spec": {"duration": f"{int(shorter.total_seconds())}s"}}
    stage.client.merge_patch(RESERVATION_WINDOWS, "nightly", patch, namespace=stage.namespace)
    eventually("the window is closed", lambda: read(stage).status.state == "Closed", seconds=LONG_SECONDS)
    (past,) = read(stage).status.history
    assert (past.reservation, past.outcome, past.desired, past.taken) == (active.reservation, "Ended", 10, 8)
    eventually("nothing is held any more", lambda: not stage.placeholders(active.reservation), seconds=LONG_SECONDS)
    eventually("outside the window others get in", lambda: len(running_on(stage, "other")) == 1, seconds=LONG_SECONDS)
    assert len(running_on(stage, "book-")) == 8
    assert len(running_on(stage, "low-")) == 4, "nothing is preempted"


def test_pods_of_any_size_share_what_a_window_holds_and_others_do_not_come_between(
    stage: Stage, books: tuple[str, ...]
) -> None:
    open_window(stage, resources={"cpu": "20", "memory": "20Gi"})
    eventually("ten places of 2 cpu are held", lambda: held(stage) == 10, seconds=LONG_SECONDS)
    (active,) = read(stage).status.active
    stage.wait_until_proven(active.reservation, seconds=LONG_SECONDS)
    hungry = [f"hungry-{number}" for number in range(8)]
    for name in hungry:
        create_pod(stage, name, cpu="2", **on(books[0]))
    await_refused(stage, *hungry)
    for number, (cpu, taken) in enumerate((("8", 4), ("3", 6), ("1", 7), ("6", 10))):
        name = f"book-{number}"
        eventually(f"{name} is gated", lambda: create_gated(stage, name, cpu), seconds=LONG_SECONDS)  # noqa: B023 - called at once
        eventually(f"{name} runs", lambda: len(running_on(stage, name)) == 1, seconds=LONG_SECONDS)  # noqa: B023
        eventually(
            f"its {cpu} cpu are counted",
            lambda: [one.taken for one in read(stage).status.active] == [taken],  # noqa: B023
            seconds=LONG_SECONDS,
        )
        assert taken == 10 or not running_on(stage, "hungry-"), "no other pod has come between"
    assert running_on(stage, "book-0") == [books[0]]
    assert not stage.placeholders(active.reservation)


def test_others_get_in_on_other_nodes_on_surplus_and_once_the_windows_pods_have_come(stage: Stage) -> None:
    node, another = stage.nodes
    create_pod(stage, "filler", cpu=WHOLE_NODE, nodeName=node)
    eventually("the node is full", lambda: running_on(stage, "filler") == [node], seconds=LONG_SECONDS)
    template = pod_template({}, cpu="3", **on(node))
    open_window(stage, podNumToReserve=1, template=template, resources=None, nodeSelector={})
    eventually("the node is fenced", lambda: stage.is_fenced(node), seconds=LONG_SECONDS)

    create_pod(stage, "elsewhere", cpu="1", **on(another))
    create_pod(stage, "surplus", cpu="1", **on(node))
    create_pod(stage, "later", cpu="2", **on(node))
    eventually("it runs on another node", lambda: running_on(stage, "elsewhere") == [another], seconds=LONG_SECONDS)
    await_refused(stage, "surplus", "later")

    stage.client.delete(PODS, "filler", namespace=stage.namespace, grace_seconds=0)
    eventually("it runs beside the place", lambda: running_on(stage, "surplus") == [node], seconds=LONG_SECONDS)
    eventually("the place is held", lambda: held(stage) == 1, seconds=LONG_SECONDS)
    assert not running_on(stage, "later"), "a place of 3 cpu and a pod of 1 leave nothing"

    create_pod(stage, "book", cpu="1", annotations=RESERVEABLE, **on(node))
    eventually("the window's pod runs", lambda: running_on(stage, "book") == [node], seconds=LONG_SECONDS)
    eventually("what it leaves is everybody's", lambda: running_on(stage, "later") == [node], seconds=LONG_SECONDS)
    eventually("it has come", lambda: [o.taken for o in read(stage).status.active] == [1], seconds=LONG_SECONDS)
    assert read(stage).status.state == "Open", "the window is not over"
