"""The note on a pod with a slot: which slot it gets, on which node, until when."""

from dataclasses import dataclass
from typing import Final

from berth_core import HIGHEST_SLOT_INDEX, LATEST_UNIX_SECONDS, SLOT_ANNOTATION, Pod, read_whole_number

_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot given to a pod.

    Until `deadline` (unix seconds) others leave pod and node alone.
    """

    task: str
    index: int
    node: str
    deadline: int

    def to_annotation(self) -> str:
        """Return the annotation's value; no part may contain a slash."""
        return f"{self.task}/{self.index}/{self.node}/{self.deadline}"

    @classmethod
    def from_pod(cls, pod: Pod) -> "Assignment | None":
        """Read a pod's note; None without one of ours."""
        parts = pod.metadata.annotations.get(SLOT_ANNOTATION, "").split("/")
        if len(parts) != _PARTS:
            return None
        task, raw_index, node, raw_deadline = parts
        index = read_whole_number(raw_index, most=HIGHEST_SLOT_INDEX)
        deadline = read_whole_number(raw_deadline, most=LATEST_UNIX_SECONDS)
        return None if index is None or deadline is None else cls(task, index, node, deadline)

    def is_of_same_slot(self, other: "Assignment") -> bool:
        return (self.task, self.index) == (other.task, other.index)
