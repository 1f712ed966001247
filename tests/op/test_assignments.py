"""The note on a pod keeps its slot, and nothing that is not such a note passes for one."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.labels import SLOT_ANNOTATION
from berth_operator.decisions.assignments import Assignment
from builders import NOON, pod

NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", fullmatch=True)
DEADLINE = int(NOON.timestamp())


@given(task=NAMES, index=st.integers(0, 999), node=NAMES, deadline=st.integers(0, 2**40))
def test_a_note_reads_as_it_was_written(task: str, index: int, node: str, deadline: int) -> None:
    written = Assignment(task=task, index=index, node=node, deadline=deadline)
    assert Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: written.to_annotation()})) == written


@pytest.mark.parametrize("text", ["", "web", "web/0/node-a", "web/x/node-a/5", "web/0/node-a/soon", "web/0/a/5/6"])
def test_anything_else_is_no_note(text: str) -> None:
    assert Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: text})) is None


@given(st.text())
def test_no_text_breaks_the_reading(text: str) -> None:
    Assignment.from_pod(pod(annotations={SLOT_ANNOTATION: text}))


OPEN = {
    "a minute left of a minute": (-60, True),
    "the last second": (0, True),
    "a second past": (1, False),
    "a little more than a minute ahead, as clocks differ": (-64, True),
    "far more than a minute ahead, as after a clock was set back": (-70, False),
}


@pytest.mark.parametrize(("seconds", "want"), OPEN.values(), ids=OPEN.keys())
def test_a_hand_over_is_open_until_its_deadline(seconds: int, want: bool) -> None:  # noqa: FBT001 - what the case wants
    assignment = Assignment(task="web", index=0, node="node-a", deadline=DEADLINE)
    assert assignment.is_open(NOON + timedelta(seconds=seconds), timeout_seconds=60) is want
