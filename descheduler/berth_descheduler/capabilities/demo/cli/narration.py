"""The demo on a console: lines, a progress bar and node maps."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from berth_core import MigrationPlan, MoveState
from berth_descheduler.planner import Fragmentation
from berth_descheduler.report import draw_nodes

_RESOURCE = "cpu"


class ConsoleNarrator:
    """Narrates the demo on a console; a context manager that removes its progress bar."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("moves landed"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._last_wave_shown = -1

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def say(self, line: str) -> None:
        """Print that a step has begun or ended."""
        self._console.print(f"• {line}", highlight=False, markup=False)

    def show_nodes(self, title: str, fragmentation: Fragmentation) -> None:
        """Show one character per node, as high as its cpu is requested."""
        requested = float(fragmentation.utilisation(_RESOURCE))
        self._console.print()
        self._console.print(f"{title} (cpu {requested:.0%} requested overall)", style="bold", highlight=False)
        self._console.print(draw_nodes(fragmentation, _RESOURCE))
        self._console.print()

    def show_moves(self, running_plan: MigrationPlan) -> None:
        """Show how many moves have landed, and announce each wave as it begins."""
        moves = running_plan.spec.moves
        if self._task is None:
            self.say(f"MigrationPlan {running_plan.metadata.name}: {len(moves)} moves")
            self._task = self._progress.add_task("moving pods", total=len(moves))
        states = [move.state for move in running_plan.status.moves]
        self._progress.update(self._task, completed=sum(state is MoveState.LANDED for state in states))
        begun_waves = [move.wave for move, state in zip(moves, states, strict=False) if state is not MoveState.PENDING]
        wave = max(begun_waves, default=-1)
        if wave > self._last_wave_shown:
            size = sum(move.wave == wave for move in moves)
            places = f"{size} place{'' if size == 1 else 's'}"
            self.say(f"wave {wave} of {max(move.wave for move in moves)}: {places} reserved before any eviction")
            self._last_wave_shown = wave
