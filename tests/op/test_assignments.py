"""The note on a pod keeps its slot, and nothing that is not such a note passes for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.clock import LATEST_UNIX_SECONDS
from berth_core.labels import SLOT_ANNOTATION
from berth_operator.reservation.assignment import Assignment
from builders import pod

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)


@given(task=NAMES, index=st.integers(0, 999), node=NAMES, deadline=st.integers(0, LATEST_UNIX_SECONDS))
def test_a_note_reads_as_it_was_written(task: str, index: int, node: str, deadline: int) -> None:
    written = Assignment(task=task, index=index, node=node, deadline=deadline)
    assert Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: written.to_annotation()})) == written


@given(indices=st.lists(st.integers(0, 999), min_size=2, max_size=50, unique=True))
def test_a_note_of_several_slots_reads_as_it_was_written(indices: list[int]) -> None:
    first, *further = indices
    written = Assignment(task="web", index=first, node="node-a", deadline=5, further=tuple(further))
    assert Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: written.to_annotation()})) == written
    assert written.slots == tuple(("web", index) for index in indices)


NO_NOTES = (
    "",
    "web",
    "web/0/node-a",
    "web/x/node-a/5",
    "web/0/node-a/soon",
    "web/0+0/node-a/5",
    "web/0+/node-a/5",
    "web/+1/node-a/5",
    "web/0+1000/node-a/5",
    f"web/{'+'.join(['0'] * 5000)}/node-a/5",
    "web/0/a/5/6",
    "web/-1/a/5",
    "web/1000/a/5",
    "web/0/a/-5",
    "web/0/a/\u0665",  # a digit, but of another script
    "web/0/a/1_000",
    "web/0/a/ 5",
    f"web/0/a/{'9' * 400}",
    f"web/{'9' * 5000}/a/5",
)


@pytest.mark.parametrize("text", NO_NOTES)
def test_anything_else_is_no_note(text: str) -> None:
    assert Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: text})) is None


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: text}))
