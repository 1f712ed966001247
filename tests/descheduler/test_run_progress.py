"""What a run shows of itself while it goes on, on a terminal and where there is none."""

from io import StringIO

import pytest
from rich.console import Console

from berth_core.migration_plans import MoveState, MoveStatus
from berth_descheduler.outcome import Phase
from berth_descheduler.report.progress import RunProgress


def statuses(*states: MoveState) -> list[MoveStatus]:
    return [MoveStatus(namespace="shop", pod=f"web-{number}", state=state) for number, state in enumerate(states)]


def shown(*, terminal: bool) -> str:
    console = Console(file=StringIO(), force_terminal=terminal, width=100, color_system=None)
    with RunProgress(console, asks_for_approval=True) as progress:
        progress.phase_begun(Phase.SNAPSHOT)
        progress.plan_published("plan-1", approved=False)
        progress.phase_begun(Phase.APPROVAL)
        progress.plan_begun("plan-1", 4, "uid-1")
        progress.moves_changed(statuses(MoveState.EVICTED, *[MoveState.PENDING] * 3), 1)
        progress.moves_changed(statuses(MoveState.LANDED, *[MoveState.EVICTED] * 3), 1)
        progress._bar.refresh()
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_on_a_terminal_there_is_a_bar_of_the_moves_that_are_over() -> None:
    text = shown(terminal=True)

    assert "1/4" in text
    assert "wave 1: 3 evicted, 1 landed" in text


def test_without_a_terminal_there_is_a_line_where_a_move_is_over() -> None:
    lines = shown(terminal=False).splitlines()

    assert lines == [
        "reading the cluster",
        "waiting for approval: berth approve plan-1",
        "waiting for approval",
        "carrying out plan-1: 4 moves (berth show plan-1)",
        "wave 1: 3 evicted, 1 landed",
    ]


@pytest.mark.parametrize("terminal", [True, False])
def test_a_plan_that_needs_no_approval_asks_for_none(*, terminal: bool) -> None:
    console = Console(file=StringIO(), force_terminal=terminal, color_system=None)
    with RunProgress(console, asks_for_approval=False) as progress:
        progress.plan_published("plan-1", approved=True)
        progress.phase_begun(Phase.APPROVAL)
    assert isinstance(console.file, StringIO)
    assert "approv" not in console.file.getvalue()
