"""The note on a pod with a slot: which slot it gets, or which several, on which node, until when."""

from dataclasses import dataclass
from typing import Final

from berth_core import HIGHEST_SLOT_INDEX, LATEST_UNIX_SECONDS, SLOT_ANNOTATION, Pod, read_whole_number

_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """One slot given to a pod, or several slots of one task on one node."""

    task: str
    index: int
    node: str
    deadline: int
    """Unix seconds until which all others leave pod and node alone."""
    further: tuple[int, ...] = ()
    """The indices of the other slots."""

    @property
    def slots(self) -> tuple[tuple[str, int], ...]:
        """Return the slots by task and index, the first one first."""
        return tuple((self.task, index) for index in (self.index, *self.further))

    def to_annotation(self) -> str:
        """Return the annotation's value; no part may contain a slash."""
        indices = "+".join(map(str, (self.index, *self.further)))
        return f"{self.task}/{indices}/{self.node}/{self.deadline}"

    @classmethod
    def from_pod(cls, pod: Pod) -> "Assignment | None":
        """Read a pod's note; None without one of ours."""
        parts = pod.metadata.annotations.get(SLOT_ANNOTATION, "").split("/")
        if len(parts) != _PARTS:
            return None
        task, raw_indices, node, raw_deadline = parts
        indices = _read_indices(raw_indices)
        deadline = read_whole_number(raw_deadline, most=LATEST_UNIX_SECONDS)
        return None if not indices or deadline is None else cls(task, indices[0], node, deadline, indices[1:])

    def is_of_same_slot(self, other: "Assignment") -> bool:
        return self.slots == other.slots


def _read_indices(text: str) -> tuple[int, ...]:
    """Return different indices such as 0+3+7; () for anything else."""
    if text.count("+") > HIGHEST_SLOT_INDEX:
        return ()
    raw_indices = text.split("+")
    indices = {index for raw in raw_indices if (index := read_whole_number(raw, most=HIGHEST_SLOT_INDEX)) is not None}
    return tuple(map(int, raw_indices)) if len(indices) == len(raw_indices) else ()
