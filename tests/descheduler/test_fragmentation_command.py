"""`berth fragmentation` as people and machines call it, of a file and of a live cluster."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth_core.snapshot import Snapshot
from berth_descheduler.cli.main import run
from builders import as_api, list_file, node, pod
from descheduler.cluster_script import serve
from scripted_server import ScriptedServer, refusal, write_kubeconfig

SNAPSHOT = Snapshot(
    nodes=(node("a"), node("b"), node("closed", unschedulable=True)),
    pods=(pod("web-0", node="a", cpu="10", memory="8Gi"), pod("waits", cpu="12", memory="16Gi")),
)
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
OWN_QUEUES = "/apis/berth.volcano.sh/v1alpha1/queues"
LOOKED_AT = {"/api/v1/nodes", "/api/v1/pods", "/apis/batch.volcano.sh/v1alpha1/reservations", QUEUES, OWN_QUEUES}

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "snapshot.json"
    path.write_bytes(SNAPSHOT.to_json())
    return str(path)


def shown(capsys: Captured, *arguments: str) -> str:
    assert run(["fragmentation", *arguments]) == 0
    return capsys.readouterr().out


def test_people_are_told_how_many_fit_and_what_is_stranded_by_what(capsys: Captured, file: str) -> None:
    text = shown(capsys, "--snapshot", file, "--shape", "cpu=4,memory=8Gi")

    assert "3 nodes, 2 of them empty; 1 pod." in text
    assert "Fragmented: what is free where a pod does not fit, on average over 2 pods in 2 shapes." in text
    assert "cpu=4,memory=8Gi: 5 more fit, on 2 nodes." in text
    assert "Stranded: 47.4 % of the free cpu (18), 78.3 % of the free memory (144Gi)." in text
    rows = [line.split() for line in text.splitlines()]
    assert ["cpu", "10", "48", "20.8", "%", "38", "16", "57.9", "%"] in rows
    assert ["cordoned", "nodes", "1", "16", "64Gi", "closed:", "the", "node", "is", "cordoned"] in rows
    assert ["too", "little", "cpu", "left", "2", "2", "80Gi", "a:", "not", "enough", "cpu"] in rows


def test_without_a_shape_what_waits_is_counted_and_named(capsys: Captured, file: str) -> None:
    text = shown(capsys, "--snapshot", file)

    assert "cpu=12,memory=16Gi (1 pending pod such as default/waits): 1 more fits, on 1 node." in text


def test_a_shape_is_said_once_however_it_is_written_or_tied(capsys: Captured, tmp_path: Path) -> None:
    tied = [pod(f"tied-{number}", cpu="2", node_selector={"zone": "a"}) for number in range(2)]
    path = tmp_path / "snapshot.json"
    path.write_bytes(Snapshot(nodes=(node("a"),), pods=(pod("free", cpu="2"), *tied)).to_json())

    chosen = shown(capsys, "--snapshot", str(path))
    assert chosen.count("cpu=2") == 1
    assert "(2 pending pods such as default/tied-0)" in chosen

    named = shown(capsys, "--snapshot", str(path), "--shape", "cpu=4", "--shape", "cpu=4000m", "--shape", "cpu=1")
    assert [line.split(":")[0] for line in named.splitlines() if " more fit" in line] == ["cpu=4000m", "cpu=1"]


def test_the_json_has_what_is_promised(capsys: Captured, file: str) -> None:
    found = json.loads(shown(capsys, "--snapshot", file, "--shape", "cpu=4", "--output", "json"))

    assert found["resources"][0] == {
        "resource": "cpu",
        "allocatable": "48",
        "requested": "10",
        "requestedRatio": 0.2083,
        "free": "38",
        "largestFree": "16",
    }
    assert found["measuredAt"] is None
    assert found["shapes"] == [
        {
            "shape": "cpu=4",
            "askedBy": "",
            "fits": 5,
            "nodesWithRoom": 2,
            "absentResources": [],
            "resources": [{"resource": "cpu", "free": "38", "stranded": "18", "strandedRatio": 0.4737}],
            "strandedBy": [
                {
                    "reason": "NodeUnschedulable",
                    "resource": "",
                    "nodes": 1,
                    "amounts": {"cpu": "16"},
                    "example": "closed",
                    "message": "the node is cordoned",
                },
                {
                    "reason": "InsufficientResources",
                    "resource": "cpu",
                    "nodes": 1,
                    "amounts": {"cpu": "2"},
                    "example": "a",
                    "message": "not enough cpu",
                },
            ],
        }
    ]


def test_yaml_says_what_json_says(capsys: Captured, file: str) -> None:
    as_json = json.loads(shown(capsys, "--snapshot", file, "--output", "json"))
    as_yaml = yaml.safe_load(shown(capsys, "--snapshot", file, "--output", "yaml"))

    assert as_yaml == as_json
    assert list(as_yaml) == list(as_json)


def test_standard_input_is_read(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SNAPSHOT.to_json())))

    assert "3 nodes" in shown(capsys, "--snapshot", "-")


def test_of_a_live_cluster_only_what_is_needed_is_read(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        serve(server, SNAPSHOT)
        text = shown(capsys, "--kubeconfig", server.kubeconfig(tmp_path), "--shape", "cpu=4")
        asked = {seen.path.partition("?")[0] for seen in server.seen}

    assert "5 more fit" in text
    assert asked == LOOKED_AT


def test_an_empty_cluster_has_a_clear_answer(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_bytes(Snapshot.empty().to_json())

    assert "name a shape with --shape" in shown(capsys, "--snapshot", str(path))
    assert "No node has cpu." in shown(capsys, "--snapshot", str(path), "--shape", "cpu=1")


def test_nodes_without_pods_are_no_cluster_that_is_empty(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "nodes.json"
    path.write_bytes(list_file(as_api(node("a"), kind="Node")))

    assert run(["fragmentation", "--snapshot", str(path), "--shape", "cpu=1"]) == 2

    said = capsys.readouterr().err
    assert "--snapshot is without pods; expected what `berth snapshot` or `kubectl get nodes,pods -A -o json`" in said


REFUSED: dict[str, tuple[list[str], str]] = {
    "a shape that is none": (["--shape", "large"], "--shape is 'large'; expected amounts such as cpu=4,memory=8Gi"),
    "an amount that is none": (
        ["--shape", "cpu=4,memory=8x"],
        "--shape is 'cpu=4,memory=8x'; expected amounts such as cpu=4,memory=8Gi",
    ),
    "a count, which is the answer": (["--shape", "cpu=4,count=2"], "without a count: how many fit is the answer"),
    "a file that is not there": (["--snapshot", "missing.json"], "--snapshot is 'missing.json'"),
    "a kubeconfig that is not there": (["--kubeconfig", "missing.yaml"], "missing.yaml"),
    "an output that does not exist": (["--output", "xml"], "'xml' is not one of 'table', 'json', 'yaml'"),
}


@pytest.mark.parametrize(("arguments", "want"), REFUSED.values(), ids=REFUSED.keys())
def test_wrong_input_is_exit_code_2_and_one_line(capsys: Captured, arguments: list[str], want: str) -> None:
    assert run(["fragmentation", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert want in captured.err


def test_what_the_cluster_does_not_allow_is_said(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        replies: Any = {"Pod": refusal(403, "Forbidden", "pods is forbidden")}
        serve(server, SNAPSHOT, **replies)
        assert run(["fragmentation", "--kubeconfig", server.kubeconfig(tmp_path)]) == 2

    assert "pods is forbidden" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_said(capsys: Captured, tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path, "http://127.0.0.1:1")

    assert run(["fragmentation", "--kubeconfig", path]) == 2
    assert "127.0.0.1:1" in capsys.readouterr().err
