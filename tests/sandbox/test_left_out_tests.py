"""Tests of real nodes where these cannot be: left out, and named at the end of the run."""

from dataclasses import dataclass, field
from typing import Any

import pytest

import cluster_fixtures
from berth_sandbox.real_nodes.requirements import refusal_of_machine

FILE = "tests/cluster/test_real_nodes.py"


@dataclass
class Item:
    """A test as far as its collection is concerned."""

    nodeid: str
    marks: tuple[str, ...] = ()

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None


@dataclass
class Run:
    """A run of tests: what it notes, what it is told, and what it writes at its end."""

    stash: pytest.Stash = field(default_factory=pytest.Stash)
    deselected: list[Item] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)

    @property
    def hook(self) -> "Run":
        return self

    def pytest_deselected(self, items: list[Item]) -> None:
        self.deselected += items

    def write_line(self, line: str) -> None:
        self.lines.append(line)


def collect(items: list[Item]) -> Run:
    run: Any = Run()
    given: Any = items
    cluster_fixtures.pytest_collection_modifyitems(run, given)
    cluster_fixtures.pytest_terminal_summary(run, run)
    return run  # type: ignore[no-any-return]


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(cluster_fixtures, "refusal_of_machine", lambda: "they need root")
    return "they need root"


def test_a_file_that_cannot_run_is_named_with_the_reason(refusal: str) -> None:
    other = Item("tests/cluster/test_chain.py::test_a")
    left = [Item(f"{FILE}::test_{name}", ("real_nodes",)) for name in "ab"]
    items = [other, *left]
    run = collect(items)
    assert items == [other]
    assert run.deselected == left
    assert run.lines == [f"left out: {FILE}, 2 tests: {refusal}"]


@pytest.mark.usefixtures("refusal")
def test_a_run_that_would_not_have_run_it_does_not_name_it() -> None:
    items = [Item("tests/cluster/test_chain.py::test_a")]
    run = collect(items)
    assert (len(items), run.lines, run.deselected) == (1, [], [])


def test_nothing_is_left_out_where_real_nodes_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_fixtures, "refusal_of_machine", lambda: "")
    items = [Item(f"{FILE}::test_a", ("real_nodes",))]
    run = collect(items)
    assert (len(items), run.lines, run.deselected) == (1, [], [])


def test_what_can_be_installed_is_no_reason_to_leave_tests_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before = refusal_of_machine()
    monkeypatch.setenv("PATH", "/nowhere")
    assert refusal_of_machine() == before
