"""Owns telling placeholders apart: those that hold a slot, and those that were made to succeed one.

It does not say when one is succeeded: `decisions.deadlines` does.
"""

from collections.abc import Iterable

from berth_core.labels import INDEX_ANNOTATION, SLOT_ANNOTATION, TASK_ANNOTATION
from berth_core.objects import Pod
from berth_core.quantity import read_whole_number
from berth_core.reservations import HIGHEST_SLOT_INDEX

BySlot = dict[tuple[str, int], Pod]


def by_slot(placeholders: Iterable[Pod]) -> tuple[BySlot, BySlot]:
    """Return the placeholders that hold a slot, and the successors that are to, each by (task, index)."""
    holders: BySlot = {}
    successors: BySlot = {}
    for pod in placeholders:
        notes = pod.metadata.annotations
        index = read_whole_number(notes.get(INDEX_ANNOTATION, ""), most=HIGHEST_SLOT_INDEX)
        if index is not None:
            found = successors if SLOT_ANNOTATION in notes else holders
            found[notes.get(TASK_ANNOTATION, ""), index] = pod
    return holders, successors
