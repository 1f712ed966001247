"""Reservations from Python without Berth's own client: pykube, and the example of the operator's pages."""

import math
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pykube
import pytest
from pykube.exceptions import HTTPError

from berth_core.reservations import ReservationPhase
from berth_kube.resources import PODS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import label_owner, pod_template, told_reasons
from conventions.tracked import ROOT
from pykube_client import Reservation, connect, write_kubeconfig
from reservation_stage import WHOLE_NODE, Stage
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

EXAMPLE: Final = ROOT / "operator" / "docs" / "reserve_a_place.py"
CONDITIONS_OF_A_READY_PLACE: Final = {
    "Available": "True",
    "HandoverReady": "True",
    "Succeeded": "False",
    "Failed": "False",
    "Bounded": "True",
}


@pytest.fixture
def kubeconfig(stage: Stage, sandbox: Sandbox, tmp_path: Path) -> Path:
    return write_kubeconfig(tmp_path / "kubeconfig", sandbox.kubeconfig, namespace=stage.namespace)


@pytest.fixture
def api(kubeconfig: Path) -> Iterator[pykube.HTTPClient]:
    client = connect(kubeconfig)
    yield client
    client.session.close()


def whole_node(stage: Stage, **spec: object) -> dict[str, Any]:
    """Return the spec of a Reservation of one whole node of the stage."""
    task = {"name": "main", "template": stage.template()} | spec
    return {"ttl": "10m", "owners": label_owner(app="owner"), "tasks": [task]}


def test_pykube_sees_a_place_held_and_taken(stage: Stage, api: pykube.HTTPClient) -> None:
    place = Reservation.build(api, "place", whole_node(stage, reservationNodeNames=[stage.nodes[1]]))
    place.create()

    def is_ready() -> bool:
        return place.has_reached("Available") and place.conditions == CONDITIONS_OF_A_READY_PLACE

    eventually("the place is held and its hand-over proven", is_ready, seconds=60)
    assert place.printed() == {
        "Name": "place",
        "Phase": "Available",
        "Node": stage.nodes[1],
        "Available": 1,
        "Taken": 0,
        "Desired": 1,
        "Owner": None,
        "Expires": place.status["expiresAt"],
        "Reason": "SlotsHeld",
    }

    owner = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": "owner"})}
    owner["metadata"]["name"] = "owner"
    pykube.Pod(api, owner).create()
    eventually("the place is taken", lambda: place.has_reached("Succeeded"), seconds=60)

    assert pykube.Pod.objects(api).get_by_name("owner").obj["spec"]["nodeName"] == stage.nodes[1]
    assert place.conditions["Succeeded"] == "True"
    assert place.status["state"]["message"] == f"{stage.namespace}/owner runs on node {stage.nodes[1]}"
    columns = place.printed()
    assert (columns["Available"], columns["Taken"], columns["Owner"]) == (0, 1, "owner")

    def told() -> list[str]:
        return told_reasons(stage.client, "place", namespace=stage.namespace)

    eventually("each change of phase is told", lambda: told() == ["Available", "Succeeded"], seconds=60)


def test_pykube_extends_and_deletes_a_reservation(stage: Stage, api: pykube.HTTPClient) -> None:
    place = Reservation.build(api, "place", whole_node(stage))
    place.create()
    eventually("the place is held", lambda: place.has_reached("Available"), seconds=60)
    end = place.status["expiresAt"]

    place.patch({"spec": {"ttl": "20m"}})

    def is_extended() -> bool:
        place.reload()
        return bool(place.status["expiresAt"] > end)

    eventually("the end is later", is_extended, seconds=60)
    with pytest.raises(HTTPError, match="owners are immutable once there are any: delete the Reservation") as refused:
        place.patch({"spec": {"owners": label_owner(app="thief")}})
    assert refused.value.code == 422
    place.delete()
    eventually("the Reservation is gone", lambda: not place.exists(), seconds=60)
    stage.wait_until_empty()


def run_example(kubeconfig: Path) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath, "KUBECONFIG": str(kubeconfig)}  # without the proxies and bundles of the machine
    command = [sys.executable, str(EXAMPLE)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)


def test_the_example_reserves_a_place_and_its_pod_gets_it(stage: Stage, kubeconfig: Path, tmp_path: Path) -> None:
    ran = run_example(kubeconfig)

    assert (ran.returncode, ran.stderr) == (0, "")
    held = stage.read("web-place")
    assert ran.stdout.splitlines() == [
        f"web-place is Available on node {held.status.node} until {held.status.expires_at}.",
        f"Next: create a pod of this template with the label app=web in namespace {stage.namespace}.",
        f"To give the place back: kubectl delete reservation web-place --namespace {stage.namespace}",
    ]

    again = run_example(kubeconfig)
    assert (again.returncode, again.stdout) == (1, "")
    assert again.stderr.startswith("cannot reserve a place: ")
    assert again.stderr.endswith('reservations.batch.volcano.sh "web-place" already exists\n')

    lost = run_example(tmp_path / "none")
    assert (lost.returncode, lost.stdout) == (1, "")
    assert lost.stderr == f"cannot reserve a place: Configuration file {tmp_path / 'none'} not found\n"

    pod = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": "web"}, cpu="500m")}
    pod["metadata"]["name"] = "web"
    stage.client.create(PODS, pod, namespace=stage.namespace)
    taken = stage.wait_for(ReservationPhase.SUCCEEDED, "web-place")
    assert stage.pod("web").spec.node_name == taken.status.node == held.status.node


@pytest.mark.parametrize(
    ("template", "wait_seconds", "want_words"),
    [
        ({"nodeSelector": {"stage": "none"}}, 1, "place is Pending: "),
        (
            {"priorityClassName": "no-such-class"},
            math.inf,  # a refusal ends the wait, not the time
            'place is Failed: task main: no PriorityClass is named "no-such-class"',
        ),
    ],
    ids=["time is up", "refused"],
)
def test_the_example_says_why_there_is_no_place(
    stage: Stage, api: pykube.HTTPClient, template: dict[str, Any], wait_seconds: float, want_words: str
) -> None:
    reserve = runpy.run_path(str(EXAMPLE))["reserve"]
    spec = whole_node(stage, template=pod_template({}, cpu=WHOLE_NODE, **template))

    with pytest.raises(RuntimeError, match=want_words):
        reserve(api, "place", spec, wait_seconds=wait_seconds)
