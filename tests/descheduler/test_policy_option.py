"""`--policy FILE`: planning by a policy in a file, and what is said of files, fields and options beside it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth_core.snapshot import Snapshot
from berth_descheduler.cli.main import run
from builders import node, owner, pod, workload

NODES = (node("high", cpu="10"), node("low", cpu="10", labels={"pool": "batch"}))
PODS = (
    pod("big", node="high", cpu="8", memory="1Gi", controller=owner(name="big")),
    pod("web-0", node="low", cpu="1", memory="1Gi"),
    pod("web-1", node="low", cpu="500m", memory="1Gi"),
)
SNAPSHOT = Snapshot(nodes=NODES, pods=PODS, workloads=(workload(replicas=2), workload(name="big")))
Captured = pytest.CaptureFixture[str]


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "snapshot.json"
    path.write_bytes(SNAPSHOT.to_json())
    return str(path)


def policy(
    folder: Path,
    *,
    evictor: dict[str, Any] | None = None,
    args: dict[str, Any] | None = None,
    **spec: Any,  # noqa: ANN401 - any field of a policy
) -> str:
    """Write a policy with the arguments of our two plugins, and return the file's name."""
    profile = {
        "name": "all",
        "pluginConfig": [
            {"name": "Defragmentation", "args": args or {"strategy": "Consolidate"}},
            {"name": "DefaultEvictor", "args": evictor or {}},
        ],
        "plugins": {"balance": {"enabled": ["Defragmentation"]}},
    }
    path = folder / "policy.yaml"
    document = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "nightly"},
        "spec": {"trigger": {"cron": "0 2 * * *"}, "profiles": [profile], **spec},
    }
    path.write_text(yaml.safe_dump(document))
    return str(path)


def planned(capsys: Captured, *arguments: str) -> dict[str, Any]:
    assert run(["plan", *arguments, "--output", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: Captured, *arguments: str) -> str:
    assert run([*arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line.removeprefix("berth: ")


def test_a_plan_goes_by_the_policy(capsys: Captured, tmp_path: Path, snapshot: str) -> None:
    by_policy = planned(capsys, "--snapshot", snapshot, "--policy", policy(tmp_path))
    by_options = planned(capsys, "--snapshot", snapshot, "--strategy", "consolidate")

    assert by_policy["moves"] == by_options["moves"]
    assert by_policy["predicted"]["freedNodes"] == ["high"]
    assert by_policy["settings"]["plugins"]["filter"] == ["DefaultEvictor"]


def test_what_the_policy_keeps_is_kept_with_all_reasons(capsys: Captured, tmp_path: Path, snapshot: str) -> None:
    evictor = {"minReplicas": 3, "labelSelector": {"matchLabels": {"app": "db"}}}
    found = planned(capsys, "--snapshot", snapshot, "--policy", policy(tmp_path, evictor=evictor))

    assert found["moves"] == []
    (kept,) = [one for one in found["refused"] if one["pod"] == "web-0"]
    assert (kept["reason"], [one["reason"] for one in kept["also"]]) == ("LabelsNotSelected", ["TooFewReplicas"])
    page = tmp_path / "plan.html"
    command = ["plan", "--snapshot", snapshot, "--policy", policy(tmp_path, evictor=evictor), "--report", str(page)]
    assert run(command) == 0
    for shown in (capsys.readouterr().out, page.read_text(encoding="utf-8")):
        words = " ".join(shown.split())
        assert "the labelSelector does not select it" in words
        assert "minReplicas, which is 3" in words


def test_the_policys_nodes_and_limits_count(capsys: Captured, tmp_path: Path, snapshot: str) -> None:
    assert not planned(capsys, "--snapshot", snapshot, "--policy", policy(tmp_path, nodeSelector="pool=batch"))["moves"]
    limited = planned(capsys, "--snapshot", snapshot, "--policy", policy(tmp_path, limits={"maxMoves": 7}))
    assert limited["settings"]["maxMoves"] == 7


def test_options_of_the_search_may_stand_beside_it(capsys: Captured, tmp_path: Path, snapshot: str) -> None:
    found = planned(capsys, "--snapshot", snapshot, "--policy", policy(tmp_path), "--seed", "7", "--no-exact")
    assert (found["settings"]["seed"], found["settings"]["exact"]) == (7, False)


def test_whether_control_plane_nodes_take_pods_is_no_matter_of_a_policy(capsys: Captured, tmp_path: Path) -> None:
    path = tmp_path / "control-plane.json"
    labelled = (NODES[0], node("low", cpu="10", labels={"node-role.kubernetes.io/control-plane": ""}))
    path.write_bytes(replace(SNAPSHOT, nodes=labelled).to_json())
    for how in (("--strategy", "consolidate"), ("--policy", policy(tmp_path))):
        kept = planned(capsys, "--snapshot", str(path), *how)
        allowed = planned(capsys, "--snapshot", str(path), *how, "--control-plane-nodes")

        assert (kept["predicted"]["freedNodes"], allowed["predicted"]["freedNodes"]) == (["low"], ["high"])
        assert (kept["settings"]["controlPlaneNodes"], allowed["settings"]["controlPlaneNodes"]) == (False, True)


BESIDE = {
    ("plan", "--max-moves", "3"): "--max-moves is 3; expected nothing beside --policy, which says it",
    (
        "plan",
        "--strategy",
        "consolidate",
    ): "--strategy is 'consolidate'; expected nothing beside --policy, which says it",
    ("run", "--dry-run", "--cool-down", "1h"): "--cool-down is '1h'; expected nothing beside --policy, which says it",
    ("run", "--dry-run", "--max-failed-share", "0.5"): (
        "--max-failed-share is 0.5; expected nothing beside --policy, which says it"
    ),
}


@pytest.mark.parametrize(("arguments", "want"), BESIDE.items(), ids=[" ".join(one) for one in BESIDE])
def test_what_the_policy_says_may_not_stand_beside_it(
    capsys: Captured, tmp_path: Path, arguments: tuple[str, ...], want: str
) -> None:
    assert refused(capsys, *arguments, "--policy", policy(tmp_path)) == want


def test_a_field_that_is_wrong_is_named_by_its_path(capsys: Captured, tmp_path: Path) -> None:
    said = refused(capsys, "plan", "--policy", policy(tmp_path, evictor={"evictDaemonSetPods": True}))
    assert said.startswith("spec.profiles[0].pluginConfig[1].args.evictDaemonSetPods is True; expected false, as a ")


def test_a_resource_that_no_node_has_moves_nothing_and_is_named(
    capsys: Captured, tmp_path: Path, snapshot: str
) -> None:
    args = {"strategy": "Threshold", "resourceType": "nvidia.com/gpu"}
    assert run(["plan", "--snapshot", snapshot, "--policy", policy(tmp_path, args=args), "-o", "json"]) == 0
    predicted = json.loads(capsys.readouterr().out)["predicted"]
    assert predicted["moves"] == 0
    idle = [one["fields"] for one in predicted["restrictions"] if one["reason"] == "SelectsNothing"]
    assert ["resourceType"] in idle


FILES = {
    "there is none": (None, "expected a file that can be read: "),
    "it is no YAML": ("{", "expected a file in YAML: "),
    "it is empty": ("", "is a file with 0 documents; expected a file with one policy"),
    "it holds two": ("a: 1\n---\nb: 2\n", "is a file with 2 documents; expected a file with one policy"),
    "it is something else": ("[1, 2]", "expected a DeschedulerPolicy"),
}


@pytest.mark.parametrize(("text", "want"), FILES.values(), ids=FILES.keys())
def test_a_file_that_holds_no_policy_is_refused(capsys: Captured, tmp_path: Path, text: str | None, want: str) -> None:
    path = tmp_path / "other.yaml"
    if text is not None:
        path.write_text(text)
    assert want in refused(capsys, "plan", "--policy", str(path))
