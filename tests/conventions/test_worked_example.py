"""What the pages say of an example, and of the keys of a plan, is what `berth plan` says."""

import json
import re
from pathlib import Path

import pytest

from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.cli.main import run
from builders import disruption_budget, node, owner, pod
from conventions.pages import rows, section
from planner.clusters import api_items

SECTION = section("## A worked example")


@pytest.fixture
def example(tmp_path: Path) -> str:
    """Write the cluster of the page's table to a file and return its name."""
    pods = [
        pod(
            name,
            namespace="shop",
            node=where,
            cpu=cpu,
            memory=f"{2 * int(cpu)}Gi",
            labels={"app": name[:-2]},
            controller=owner(name=name[:-2]),
        )
        for where, there in rows(SECTION, "node")
        for name, cpu in (one.split() for one in there.split(", "))
    ]
    budget = disruption_budget("ledger", namespace="shop", match_labels={"app": "ledger"}, allowed=0)
    nodes = tuple(node(where, cpu="8", memory="32Gi") for where, _ in rows(SECTION, "node"))
    items = api_items(Snapshot(nodes=nodes, pods=tuple(pods), disruption_budgets=(budget,)))
    file = tmp_path / "example.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "kinds": list(SnapshotKind), "items": items}))
    return str(file)


def test_the_plan_of_the_example_is_as_the_page_says(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["plan", "--strategy", "consolidate", "--snapshot", example]) == 0
    said = capsys.readouterr().out
    shown = re.search(r"```\n(.*?)```", SECTION, re.DOTALL)
    assert shown
    assert said.startswith(shown[1])

    assert run(["plan", "--strategy", "consolidate", "--snapshot", example, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    moves = [[str(m["wave"]), f"{m['namespace']}/{m['pod']}", m["source"], m["target"]] for m in made["moves"]]
    assert sorted(moves) == sorted(rows(SECTION, "wave"))
    reasons = {one["node"]: one["reason"] for one in made["refused"] if one["kind"] == "Node"}
    assert reasons == {"node-1": "BoundReached", "node-2": "BoundReached", "node-5": "HoldsImmovablePods"}


def test_by_thresholds_two_pods_of_the_example_move_as_the_page_says(
    example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--strategy", "threshold", "--snapshot", example, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert {(m["pod"], m["target"]) for m in made["moves"]} == {("ads-1", "node-1"), ("mail-1", "node-2")}
    assert made["predicted"]["freedNodes"] == []
    without_target = {one["pod"] for one in made["refused"] if one["reason"] == "NoTarget" and one["kind"] == "Pod"}
    assert without_target == {"web-1", "web-2"}


def test_by_thresholds_no_node_of_the_example_is_emptied_whole_as_the_page_says(
    example: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "--strategy", "threshold", "--whole-nodes", "--snapshot", example, "--output", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["moves"] == []
    without_target = {one["pod"] or one["node"] for one in made["refused"] if one["reason"] == "NoTarget"}
    assert without_target == {"node-3", "node-4", "web-1", "web-2"}


def test_the_pages_name_the_keys_of_a_plan(example: str, capsys: pytest.CaptureFixture[str]) -> None:
    table = rows(section("## What `berth plan` says"), "key")
    told = {key for cell, _ in table for key in re.findall(r"`(\w+)`", cell)}
    keys: set[str] = set()
    for more in (["--strategy", "consolidate"], ["--strategy", "make-room", "--shape", "cpu=1", "--every-pod"]):
        assert run(["plan", "--snapshot", example, "--output", "json", *more]) == 0
        keys |= json.loads(capsys.readouterr().out).keys()
    assert told == keys
