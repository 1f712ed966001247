"""`berth plan` with other objectives than the number of freed nodes: what it says of them."""

import json
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from berth_core import Node, Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.cli.main import run
from builders import node, pod, workload

Captured = pytest.CaptureFixture[str]


def snapshot_file(folder: Path, nodes: Sequence[Node], pods: Sequence[Pod]) -> str:
    path = folder / "snapshot.json"
    snapshot = Snapshot(nodes=tuple(nodes), pods=tuple(pods), workloads=(workload(replicas=len(pods)),))
    path.write_bytes(snapshot.to_json())
    return str(path)


def plan_json(capsys: Captured, *arguments: str) -> dict[str, Any]:
    assert run(["plan", *arguments, "--output", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_plan_that_lowers_the_fragmentation_says_by_how_much(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = (node("a", cpu="8"), node("b", cpu="6"), node("c", cpu="6"))
    pods = tuple(pod(f"web-{one}", node=one, cpu="4", memory="1Gi") for one in "abc")
    monkeypatch.setenv("COLUMNS", "160")
    how = (
        "--strategy",
        "minimize-fragmentation",
        "--snapshot",
        snapshot_file(tmp_path, nodes, pods),
        "--snapshot-kinds",
        "all",
    )

    found = plan_json(capsys, *how)
    assert run(["plan", *how]) == 0
    shown = capsys.readouterr().out

    assert [(move["pod"], move["target"], move["why"]) for move in found["moves"]] == [
        ("web-b", "a", "lowers the fragmented cpu by 25 % of what is free")
    ]
    assert found["fragmentation"] == {
        "resource": "cpu",
        "fragmentedBefore": "4",
        "fragmentedAfter": "2",
        "fragmentedRatioBefore": 0.5,
        "fragmentedRatioAfter": 0.25,
        "leastRatio": 0,
    }
    assert found["summary"] in shown
    assert "25.0 % of the free cpu is fragmented for the workload then, 50.0 % now." in found["summary"]
    assert "No plan within these limits leaves less than 0.0 % fragmented (a bound that holds for any plan)." in shown


def test_the_price_of_nodes_reaches_the_planner(capsys: Captured, tmp_path: Path) -> None:
    nodes = (node("high", cpu="10"), node("low", cpu="10"))
    pods = (pod("big", node="high", cpu="8", memory="1Gi"), pod("web", node="low", cpu="1", memory="1Gi"))
    asked = [
        "--snapshot",
        snapshot_file(tmp_path, nodes, pods),
        "--strategy",
        "consolidate",
        "--node-price",
        "default=0.25",
    ]
    dear = plan_json(capsys, *asked)["predicted"]
    assert dear["freedNodes"]
    assert Decimal(dear["freedPricePerHour"]) == Decimal("0.25") * len(dear["freedNodes"])

    too_little = plan_json(capsys, *asked, "--min-savings-per-move", "0.26")["predicted"]
    assert too_little["freedPricePerHour"] == "0"
