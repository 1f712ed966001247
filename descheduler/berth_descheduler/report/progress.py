"""Progress of a run: a line for each step and a bar."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from berth_core import MoveState, MoveStatus, count
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Phase
from berth_descheduler.planner import Plan
from berth_descheduler.report.prices import NO_PRICES, Prices
from berth_descheduler.report.summary import judge_plan, summarise_plan
from berth_descheduler.report.tables import print_plan

_STEPS: Final[Mapping[Phase, str]] = {
    Phase.LEASE: "waiting for the lease",
    Phase.LEFTOVERS: "cleaning up after earlier runs",
    Phase.SNAPSHOT: "reading the cluster",
    Phase.APPROVAL: "waiting for approval",
    Phase.VERIFY: "verifying the result",
}
_SHOWN: Final = (
    MoveState.RESERVING,
    MoveState.RESERVED,
    MoveState.EVICTED,
    MoveState.LANDED,
    MoveState.ELSEWHERE,
    MoveState.REMOVED,
    MoveState.SKIPPED,
    MoveState.FAILED,
)

_YES: Final = frozenset({"y", "yes"})


class RunProgress(CycleObserver):
    """Shows a run; without a terminal, prints a line whenever a move is over."""

    def __init__(
        self, console: Console, *, asks_for_approval: bool, stop: threading.Event | None = None, asks: bool = False
    ) -> None:
        self._console = console
        self._stop = stop or threading.Event()
        self._has_shown_stop = False
        self._has_shown_untried = False
        self._will_ask = asks
        self._shown: Mapping[Phase, str] = (
            _STEPS
            if asks_for_approval
            else {phase: step for phase, step in _STEPS.items() if phase is not Phase.APPROVAL}
        )
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task = self._bar.add_task("starting", total=None)
        self._last_line = ""
        self.proposed_plan: Plan | None = None
        """None until something is planned."""
        self.begun: Plan | None = None
        """The plan that was begun last, None for one of another run."""
        self._waves = 0
        self._over = 0

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._console.is_terminal:
            self._bar.stop()

    def phase_begun(self, phase: Phase) -> None:
        if phase in self._shown:
            self._show(self._shown[phase])

    def planned(self, plan: Plan) -> None:
        self.proposed_plan = plan
        self._waves = plan.waves
        if self._will_ask:
            return  # the question shows all of it
        self._console.print(f"planned: {summarise_plan(plan)}", highlight=False, markup=False)
        if judgement := judge_plan(plan):
            self._console.print(judgement, highlight=False, markup=False)

    def ask(self, plan: Plan, read_answer: Callable[[], str], prices: Prices = NO_PRICES) -> bool:
        """Show a plan and return whether the answer is to carry it out."""
        self._will_ask = False
        if self._console.is_terminal:
            self._bar.stop()
        print_plan(plan, self._console, prices)
        self._console.print("\nCarry this plan out? [y/N] ", end="", highlight=False)
        answer = read_answer()
        if not answer:
            self._console.print()
        if self._console.is_terminal:
            self._bar.start()
        return answer.lower() in _YES

    def plan_published(self, name: str, *, approved: bool) -> None:
        """Print how to approve a plan that waits for approval."""
        if not approved:
            self._console.print(f"waiting for approval: berth approve {name}", highlight=False, soft_wrap=True)

    def plan_begun(self, name: str, moves: int, uid: str) -> None:  # noqa: ARG002 - overridden where it matters
        """Print the plan's name, for `berth show` and `berth abort`."""
        self.begun = self.proposed_plan
        line = f"carrying out {name}: {count(moves, 'move')} (berth show {name})"
        self._console.print(line, highlight=False, soft_wrap=True)
        self._bar.update(self._task, total=moves, completed=0)

    def cut_off(self, why: str) -> None:
        """Print why the run does not go on just now."""
        self._show(f"cut off, tried again: {why}")

    def replacements_untried(self, reason: str) -> None:
        """Print once per command why replacements are not tried, however many plans the command carries out."""
        if not self._has_shown_untried:
            self._has_shown_untried = True
            line = f"what comes back is not tried by dry run before evictions: {reason}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def moves_changed(self, statuses: Sequence[MoveStatus], wave: int) -> None:
        """Show the moves by state; without a terminal, only when one ends."""
        counts = Counter(status.state for status in statuses)
        moves_over = sum(status.state.terminal for status in statuses)
        if self._stop.is_set() and not self._has_shown_stop:
            self._has_shown_stop = True
            line = "stopping: nothing new begins, and the pods that were evicted are waited for for a while"
            self._console.print(f"{line}; Ctrl-C again ends at once, and the next run cleans up", highlight=False)
        if not self._console.is_terminal and moves_over == self._over:
            return
        self._over = moves_over
        self._bar.update(self._task, completed=moves_over)
        states = ", ".join(f"{counts[state]} {state.value.lower()}" for state in _SHOWN if counts[state])
        self._show(f"wave {wave}{f' of {self._waves}' if self._waves else ''}: {states or 'starting'}")

    def _show(self, line: str) -> None:
        if line == self._last_line:
            return
        self._last_line = line
        if self._console.is_terminal:
            self._bar.update(self._task, description=line)
        else:
            self._console.print(line, highlight=False)
