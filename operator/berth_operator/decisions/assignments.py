"""Owns the note on an owner pod that says which slot it was given, on which node and until when.

It does not decide who gets a slot (`decisions.reconcile`), whether a note may be trusted (`decisions.fitting`), nor
what its deadline means (`decisions.handover_time`).
"""

from dataclasses import dataclass
from typing import Final

from berth_core.clock import LATEST_UNIX_SECONDS
from berth_core.labels import SLOT_ANNOTATION
from berth_core.objects import Pod
from berth_core.quantity import read_whole_number
from berth_core.reservations import HIGHEST_SLOT_INDEX

_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot given to a pod; `deadline` in unix seconds, until which others leave the pod and its node alone."""

    task: str
    index: int
    node: str
    deadline: int

    def to_annotation(self) -> str:
        """Return the annotation's value; none of its parts may contain a slash."""
        return f"{self.task}/{self.index}/{self.node}/{self.deadline}"

    @classmethod
    def from_pod(cls, pod: Pod) -> "Assignment | None":
        """Read a pod's assignment; None where there is none or where it is not one of ours."""
        parts = pod.metadata.annotations.get(SLOT_ANNOTATION, "").split("/")
        if len(parts) != _PARTS:
            return None
        task, raw_index, node, raw_deadline = parts
        index = read_whole_number(raw_index, most=HIGHEST_SLOT_INDEX)
        deadline = read_whole_number(raw_deadline, most=LATEST_UNIX_SECONDS)
        return None if index is None or deadline is None else cls(task, index, node, deadline)
