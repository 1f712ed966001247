"""Waiting for a MigrationPlan that the service carries out: until when, and what is shown meanwhile."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from berth_core import BerthError, Clock, MigrationPlan, PlanPhase
from berth_descheduler.report import count_states, phase_in_words
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError

POLL_SECONDS: Final = 0.5


class WaitTimeoutError(BerthError):
    """The plan was not where it was waited for in time."""


@dataclass(frozen=True, slots=True)
class PlanWaiter:
    """Looks at a plan again and again; made for one command."""

    client: KubeClient
    clock: Clock
    console: Console
    """Where progress goes."""

    timeout_seconds: float

    def wait_until_over(self, name: str) -> MigrationPlan:
        """Return a plan that is over; raises `WaitTimeoutError` if it is not in time, or deleted."""
        return self.wait(name, lambda plan: plan.phase.terminal)

    def wait(self, name: str, reached: Callable[[MigrationPlan], bool]) -> MigrationPlan:
        """Return a plan as soon as a condition holds; raises as `wait_until_over` does."""
        deadline = self.clock.monotonic() + self.timeout_seconds
        with _PlanProgress(self.console) as progress:
            while True:
                plan = self._look(name)
                progress.show(plan)
                if reached(plan):
                    return plan
                if self.clock.monotonic() >= deadline:
                    raise WaitTimeoutError(_too_late(plan, self.timeout_seconds))
                self.clock.sleep(POLL_SECONDS)

    def _look(self, name: str) -> MigrationPlan:
        try:
            return self.client.get(MIGRATION_PLANS, name, type=MigrationPlan)
        except NotFoundError as error:
            raise WaitTimeoutError(f"plan {name} was deleted, which aborts it") from error


def _too_late(plan: MigrationPlan, seconds: float) -> str:
    untouched = plan.phase in {PlanPhase.REQUESTED, PlanPhase.PROPOSED, PlanPhase.APPROVED}
    hint = ": is the descheduler running?" if untouched else f"; it goes on: berth show {plan.metadata.name}"
    return f"plan {plan.metadata.name} is still {plan.phase.value} after {seconds:g} s{hint}"


@dataclass(slots=True)
class _PlanProgress:
    """A bar of finished moves on a terminal; elsewhere a line where their number or the phase changes."""

    console: Console
    _bar: Progress = field(init=False)
    _last: tuple[PlanPhase, int] | None = None

    def __post_init__(self) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=self.console, transient=True)
        self._bar.add_task("looking", total=None)

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self._bar.stop()

    def show(self, plan: MigrationPlan) -> None:
        """Show where a plan stands."""
        statuses = plan.move_statuses
        moves_over = sum(status.state.terminal for status in statuses)
        phase_text = phase_in_words(plan).plain
        task = self._bar.task_ids[0]
        self._bar.update(task, description=phase_text, total=len(statuses) or None, completed=moves_over)
        if not self.console.is_terminal and (plan.phase, moves_over) != self._last:
            counts_text = count_states(status.state for status in statuses)
            self.console.print(
                f"{phase_text}{f': {counts_text}' if counts_text else ''}", highlight=False, markup=False
            )
        self._last = (plan.phase, moves_over)
