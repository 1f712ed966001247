"""`berth plan --rehearse`: which plans are rehearsed, and what the command shows of that."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from berth_core.migration_plans import MoveMethod, MoveState, MoveStatus
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.rehearsal.cli import rehearsal
from berth_descheduler.capabilities.rehearsal.cli.rehearsal import Rehearsal, RehearsedMove
from berth_descheduler.cli.main import run
from berth_descheduler.planner import Plan
from builders import node, owner, pod

Captured = pytest.CaptureFixture[str]

NODES = (node("full", cpu="10"), node("low", cpu="10"))
BIG = pod("big", node="full", cpu="5", controller=owner(name="big"))
WEB = pod("web-0", node="low", cpu="1", controller=owner(name="web"))


def rehearsed(proposed_plan: Plan, state: MoveState) -> Rehearsal:
    moves = tuple(
        RehearsedMove(move, MoveStatus(namespace=move.namespace, pod=move.pod, state=state))
        for move in proposed_plan.moves
    )
    freed_nodes = proposed_plan.freed_nodes if state is MoveState.LANDED else ()
    return Rehearsal(moves, planned_nodes=tuple(proposed_plan.freed_nodes), freed_nodes=tuple(freed_nodes))


@pytest.fixture
def plan_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Return what runs `berth plan --rehearse` on pods, with moves that all end in a state."""

    def run_on(*options: str, pods: Sequence[Any] = (BIG, WEB), state: MoveState = MoveState.LANDED) -> int:
        def rehearse(
            proposed_plan: Plan,
            _snapshot: Snapshot,
            _deployments: Sequence[Mapping[str, Any]],
            _way: MoveMethod,
            _to: Console,
        ) -> Rehearsal:
            assert proposed_plan.moves
            return rehearsed(proposed_plan, state)

        monkeypatch.setattr(rehearsal, "rehearse", rehearse)
        file = tmp_path / "snapshot.json"
        file.write_bytes(Snapshot(nodes=NODES, pods=tuple(pods)).to_json())
        return run(["plan", f"--snapshot={file}", "--strategy=consolidate", "--rehearse", *options])

    return run_on


@pytest.mark.parametrize(("state", "want_code"), [(MoveState.LANDED, 0), (MoveState.PENDING, 1)])
def test_the_plans_json_has_what_came_of_its_rehearsal(
    plan_command: Callable[..., int], capsys: Captured, state: MoveState, want_code: int
) -> None:
    assert plan_command("-o", "json", state=state) == want_code

    document = json.loads(capsys.readouterr().out)
    assert [move["pod"] for move in document["moves"]] == ["web-0"]
    assert document["rehearsal"]["asPredicted"] is (want_code == 0)
    assert [differing["pod"] for differing in document["rehearsal"]["differences"]] == ["web-0"] * want_code


def test_people_read_what_came_of_a_rehearsal_below_the_plan(
    plan_command: Callable[..., int], capsys: Captured
) -> None:
    assert plan_command() == 0

    plan_shown, sentence, _ = capsys.readouterr().out.partition(
        "rehearsed: 1 of 1 move as predicted; 1 of 1 node freed"
    )
    assert sentence
    assert "web-0" in plan_shown


def test_a_plan_without_moves_needs_no_rehearsal(plan_command: Callable[..., int], capsys: Captured) -> None:
    assert plan_command("-o", "json", pods=(BIG,)) == 0

    assert "rehearsal" not in json.loads(capsys.readouterr().out)
