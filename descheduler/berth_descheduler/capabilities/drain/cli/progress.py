"""The progress and result of a drain on the terminal."""

from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from berth_core import first_few
from berth_descheduler.framework.refusals import Refused
from berth_descheduler.planner import Plan
from berth_descheduler.report import ALL_IN_JSON, RunProgress, summarise_plan
from berth_descheduler.report.summary import name_refused
from berth_descheduler.report.tables import moves_table

_LISTED_STAYING: Final = 20
_LISTED_MOVES: Final = 40


class DrainProgress(RunProgress):
    """Shows a drain, and before its first eviction which pods cannot go."""

    _printed_summary = ""
    _printed_retries = ""

    def planned(self, plan: Plan) -> None:
        """Print the plan, unless it reads as the last one did."""
        text = summarise_plan(plan)
        if text == self._printed_summary:
            self.proposed_plan = plan
            return
        self._printed_summary = text
        super().planned(plan)
        staying_pods = plan.pods_staying_on({refused.node for refused in plan.refused})
        for staying_pod in staying_pods[:_LISTED_STAYING]:
            self._console.print(
                f"cannot go: {staying_pod.namespace}/{staying_pod.name} on {staying_pod.node}: {staying_pod.sentences}",
                highlight=False,
            )
        if len(staying_pods) > _LISTED_STAYING:
            self._console.print(f"... and {len(staying_pods) - _LISTED_STAYING} more", highlight=False)

    def waiting(self, pods: Sequence[str]) -> None:
        """Print which pods are tried again, unless they are those of the last time."""
        text = f"tried again: {first_few(sorted(pods), _LISTED_STAYING)}" if pods else ""
        if text and text != self._printed_retries:
            self._console.print(text, highlight=False)
        self._printed_retries = text

    def uncordoned(self, nodes: Sequence[str], failed: Sequence[str]) -> None:
        """Print which nodes take pods again."""
        for action, names in (("uncordoned", nodes), ("could not uncordon", failed)):
            if names:
                self._console.print(f"{action}: {', '.join(names)}", highlight=False)


def print_drain(plan: Plan, staying: Sequence[Refused], console: Console) -> None:
    """Print where the pods of drained nodes go, and why some cannot go."""
    console.print(Text(summarise_plan(plan), style="bold"))
    if plan.moves:
        console.print(moves_table(plan))
    if staying:
        table = Table("pod", "on", "reason", "why", title="Cannot go", title_justify="left", title_style="bold")
        for refused in staying[:_LISTED_MOVES]:
            table.add_row(name_refused(refused), refused.node, refused.reason.value, refused.sentences)
        if len(staying) > _LISTED_MOVES:
            table.caption = f"and {len(staying) - _LISTED_MOVES} more; {ALL_IN_JSON}"
        console.print(table)
