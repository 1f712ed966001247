"""Owns the note on an owner pod that says which slot it was given, on which node and until when.

It does not decide who gets a slot (`decisions.reconcile`), nor whether a note may be trusted
(`decisions.fitting`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core.labels import SLOT_ANNOTATION
from berth_core.objects import Pod

_CLOCK_SLACK_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot given to a pod; `deadline` in unix seconds, after which the hand-over is given up."""

    task: str
    index: int
    node: str
    deadline: int

    def to_annotation(self) -> str:
        """Return the annotation's value; none of its parts may contain a slash."""
        return f"{self.task}/{self.index}/{self.node}/{self.deadline}"

    def is_open(self, now: datetime, timeout_seconds: float) -> bool:
        """Tell whether the deadline is ahead, and no further than a hand-over may take: a clock may have been set."""
        left = self.deadline - now.timestamp()
        return 0 <= left <= timeout_seconds + _CLOCK_SLACK_SECONDS

    def seconds_since(self, now: datetime, timeout_seconds: float) -> float:
        """Return how long ago the slot was given."""
        return now.timestamp() - (self.deadline - timeout_seconds)

    @classmethod
    def from_pod(cls, pod: Pod) -> "Assignment | None":
        """Read a pod's assignment; None where there is none or where it is not one of ours."""
        parts = pod.metadata.annotations.get(SLOT_ANNOTATION, "").split("/")
        try:
            task, index, node, deadline = parts
            return cls(task=task, index=int(index), node=node, deadline=int(deadline))
        except ValueError:
            return None
