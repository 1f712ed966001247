"""Owns the note on an owner pod that says which slot it was given, on which node and until when.

It does not decide who gets a slot: `berth_operator.reconcile` does.
"""

from dataclasses import dataclass

from berth_core.labels import SLOT_ANNOTATION
from berth_core.objects import Pod


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

    @classmethod
    def from_pod(cls, pod: Pod) -> "Assignment | None":
        """Read a pod's assignment; None where there is none or where it is not one of ours."""
        parts = pod.metadata.annotations.get(SLOT_ANNOTATION, "").split("/")
        try:
            task, index, node, deadline = parts
            return cls(task=task, index=int(index), node=node, deadline=int(deadline))
        except ValueError:
            return None
