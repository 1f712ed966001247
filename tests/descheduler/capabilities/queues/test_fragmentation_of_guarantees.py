"""What `berth fragmentation` says of guarantees, of a file and of a live cluster."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from berth_core.snapshot import Snapshot
from berth_descheduler.cli.main import run
from builders import as_api, gated_queue, list_file, namespace, node, pod, queue
from descheduler.cluster_script import serve
from scripted_server import ScriptedServer, refusal

QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
OWN_QUEUES = "/apis/berth.volcano.sh/v1alpha1/queues"

Captured = pytest.CaptureFixture[str]


def shown(capsys: Captured, *arguments: str) -> str:
    assert run(["fragmentation", *arguments]) == 0
    return capsys.readouterr().out


SNAPSHOT = Snapshot(
    nodes=(node("a"), node("b"), node("closed", unschedulable=True)), pods=(pod("web-0", node="a", cpu="10"),)
)
WITH_QUEUE = Snapshot(
    nodes=(node("a"), node("b")),
    pods=(
        pod("web-0", node="a", cpu="10", memory="8Gi"),
        pod("waits", cpu="8", memory="16Gi", annotations={"scheduling.volcano.sh/queue-name": "ml"}),
    ),
    queue_objects=(queue(guarantee={"cpu": "32"}), queue("idle", guarantee={"cpu": 1}), queue("odd", weight="x")),
)


WITH_OWN_QUEUE = Snapshot(
    nodes=(node("a"), node("b")),
    pods=(pod("waits", cpu="8", memory="16Gi"),),
    namespaces=(namespace(labels={"team": "ml"}),),
    gated_queues=(gated_queue(guarantee={"cpu": "25%"}),),
)
"""A queue of Berth with 8 of 32 cores."""


@pytest.fixture
def with_queue(tmp_path: Path) -> str:
    path = tmp_path / "queues.json"
    path.write_bytes(WITH_QUEUE.to_json())
    return str(path)


def test_people_are_told_how_much_of_a_guarantee_is_placeable(capsys: Captured, with_queue: str) -> None:
    text = shown(capsys, "--snapshot", with_queue)

    rows = [line.split() for line in text.splitlines()]
    assert ["ml", "cpu", "32", "0", "0", "32", "32", "16", "50.0", "%"] in rows
    assert "ml: cpu=8,memory=16Gi (1 waiting): 2 of 4 more pods can be placed." in text
    assert "idle: no pod says in which pieces it needs what is left." in text
    assert "odd: cannot be read (Expected" in text


def test_machines_are_told_the_same_of_guarantees(capsys: Captured, with_queue: str) -> None:
    idle, ml, odd = json.loads(shown(capsys, "--snapshot", with_queue, "--output", "json"))["queues"]

    assert ml["resources"] == [
        {
            "resource": "cpu",
            "guaranteed": "32",
            "allocated": "0",
            "held": "0",
            "left": "32",
            "usable": "32",
            "placeable": "16",
            "placeableRatio": 0.5,
        }
    ]
    assert ml["shapes"] == [
        {"shape": "cpu=8,memory=16Gi", "askedBy": "1 waiting", "wanted": 4, "placeable": 2, "nodesWithRoom": 1}
    ]
    assert idle["resources"][0]["placeableRatio"] is None
    assert odd["unreadable"]


def test_a_file_without_queues_says_that_nothing_is_known_of_them(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "kubectl.json"
    path.write_bytes(list_file(as_api(node("a"), kind="Node"), as_api(pod(node="a"))))

    assert "Queues were not read" in shown(capsys, "--snapshot", str(path))
    assert json.loads(shown(capsys, "--snapshot", str(path), "--output", "json"))["queues"] is None


def test_an_account_that_may_not_list_queues_is_told_everything_else(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        serve(server, SNAPSHOT)
        for path in (QUEUES, OWN_QUEUES):
            server.on("GET", path, refusal(403, "Forbidden", "queues are forbidden"))
        text = shown(capsys, "--kubeconfig", server.kubeconfig(tmp_path))

    assert "Queues were not read" in text
    assert "3 nodes, 2 of them empty" in text


def test_an_account_that_may_list_one_kind_of_queues_is_told_which_is_missing(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        serve(server, WITH_OWN_QUEUE).on("GET", QUEUES, refusal(403, "Forbidden", "queues are forbidden"))
        text = shown(capsys, "--kubeconfig", server.kubeconfig(tmp_path))

    assert "Not read: queues.scheduling.volcano.sh. This assumes that no queue of Volcano has a guarantee." in text
    assert "ml: cpu=8,memory=16Gi (1 waiting): 1 of 1 more pod can be placed." in text


def test_without_the_labels_of_namespaces_a_queue_of_berth_says_that_its_pods_are_not_known(
    capsys: Captured, tmp_path: Path
) -> None:
    refused = refusal(403, "Forbidden", "forbidden")
    with ScriptedServer() as server:
        serve(server, WITH_OWN_QUEUE, Namespace=refused)
        server.on("GET", "/apis/kueue.x-k8s.io/v1beta2/localqueues", refused)
        text = shown(capsys, "--kubeconfig", server.kubeconfig(tmp_path))

    assert "ml: cannot be read (the labels of namespaces were not read" in text
    assert "Not read: localqueues.kueue.x-k8s.io. This assumes that Kueue manages no namespace." in text


def test_queues_of_both_kinds_with_one_name_are_told_apart(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "both.json"
    path.write_bytes(replace(WITH_OWN_QUEUE, queue_objects=(queue(guarantee={"cpu": "32"}),)).to_json())
    text = shown(capsys, "--snapshot", str(path))

    names = [line.split()[0] for line in text.splitlines() if line.startswith("queues.")]
    assert names[:2] == ["queues.berth.volcano.sh/ml", "queues.scheduling.volcano.sh/ml"]
