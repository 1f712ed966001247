"""Nodes rest after pods were moved off or onto them, for every plugin, and show it to other deschedulers."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from berth_core import Node
from berth_core.clock import Clock, format_timestamp
from berth_core.labels import (
    COOLING_LABEL,
    COOLING_UNTIL_ANNOTATION,
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
)
from berth_descheduler.migration.nodes.cooling_marks import mark_moved, sweep_cooling_nodes
from berth_descheduler.planner.cool_downs import NodeCoolDown
from berth_kube.errors import ConflictError
from berth_kube.resources import NODES
from descheduler.cycle_settings import PLANNER, SETTINGS
from descheduler.fake_cluster import FakeCluster, call, failure, fragmented_cluster
from descheduler.test_cycle import run
from planner_settings import with_settings

NOON: Final = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


class StoppedClock:
    """A clock that stands still."""

    def __init__(self, now: datetime) -> None:
        self.time = now

    def now(self) -> datetime:
        return self.time

    def monotonic(self) -> float:
        return self.time.timestamp()

    def sleep(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)


@pytest.fixture
def cluster() -> FakeCluster:
    return fragmented_cluster()


def metadata(cluster: FakeCluster, node: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.objects[NODES.plural]["", node]["metadata"]
    return found


def mark(cluster: FakeCluster, clock: Clock, *, cool_down: timedelta = HOUR) -> None:
    mark_moved(cluster, clock, sources=["low-1"], targets=["high-1", "low-1"], cool_down=cool_down)  # type: ignore[arg-type]


def sweep(cluster: FakeCluster, now: datetime) -> tuple[str, ...]:
    return sweep_cooling_nodes(cluster.as_client(), StoppedClock(now), cluster.list(NODES, type=Node).items)


def test_sources_and_targets_are_labelled_and_say_until_when(cluster: FakeCluster) -> None:
    mark(cluster, StoppedClock(NOON))
    low, high, other = (metadata(cluster, name) for name in ("low-1", "high-1", "high-2"))
    rest = {LAST_MOVED_ANNOTATION: "2026-11-21T12:00:00Z", COOLING_UNTIL_ANNOTATION: "2026-11-21T13:00:00Z"}
    assert low["labels"] == {"kubernetes.io/hostname": "low-1", COOLING_LABEL: "true"}
    assert high["labels"] == {"kubernetes.io/hostname": "high-1", COOLING_LABEL: "true"}
    assert low["annotations"] == {**rest, LAST_DEFRAGMENTED_ANNOTATION: "2026-11-21T12:00:00Z"}
    assert high["annotations"] == rest
    assert COOLING_LABEL not in other["labels"]


def test_without_a_cool_down_only_the_times_are_noted(cluster: FakeCluster) -> None:
    mark(cluster, StoppedClock(NOON), cool_down=timedelta(0))
    assert metadata(cluster, "low-1")["annotations"] == {
        LAST_MOVED_ANNOTATION: "2026-11-21T12:00:00Z",
        LAST_DEFRAGMENTED_ANNOTATION: "2026-11-21T12:00:00Z",
    }
    assert COOLING_LABEL not in metadata(cluster, "low-1")["labels"]


def test_a_longer_rest_is_not_cut_short(cluster: FakeCluster) -> None:
    mark(cluster, StoppedClock(NOON), cool_down=24 * HOUR)
    mark(cluster, StoppedClock(NOON + HOUR))
    assert metadata(cluster, "high-1")["annotations"] == {
        LAST_MOVED_ANNOTATION: "2026-11-21T13:00:00Z",
        COOLING_UNTIL_ANNOTATION: "2026-11-22T12:00:00Z",
    }


def test_what_others_write_meanwhile_stays(cluster: FakeCluster) -> None:
    raised = iter([ConflictError(call("patch", NODES, "high-1"), failure(409, "changed"))])

    def write_first(verb: str, plural: str, name: str) -> None:
        if (verb, plural, name) == ("patch", "nodes", "high-1") and (conflict := next(raised, None)) is not None:
            theirs = {"metadata": {"annotations": {"theirs": "1"}, "labels": {"theirs": "1"}}}
            cluster.merge_patch(NODES, "high-1", theirs)
            raise conflict

    cluster.before = write_first
    mark(cluster, StoppedClock(NOON))
    assert sweep(cluster, NOON + 2 * HOUR) == ("high-1", "low-1")
    assert metadata(cluster, "high-1")["labels"] == {"kubernetes.io/hostname": "high-1", "theirs": "1"}
    assert metadata(cluster, "high-1")["annotations"] == {
        "theirs": "1",
        LAST_MOVED_ANNOTATION: "2026-11-21T12:00:00Z",
    }


def test_the_mark_goes_when_the_rest_is_over_and_not_before(cluster: FakeCluster) -> None:
    mark(cluster, StoppedClock(NOON))
    assert sweep(cluster, NOON + HOUR - timedelta(seconds=1)) == ()
    assert sweep(cluster, NOON + HOUR) == ("high-1", "low-1")
    assert sweep(cluster, NOON + HOUR) == ()


@pytest.mark.parametrize("until", [{}, {COOLING_UNTIL_ANNOTATION: "soon"}], ids=["no time", "a time that is none"])
def test_a_mark_that_says_no_time_is_taken_off(cluster: FakeCluster, until: dict[str, str]) -> None:
    cluster.merge_patch(NODES, "low-2", {"metadata": {"labels": {COOLING_LABEL: "true"}, "annotations": until}})
    assert sweep(cluster, NOON) == ("low-2",)
    assert COOLING_LABEL not in metadata(cluster, "low-2")["labels"]


def test_a_run_marks_its_nodes_and_the_next_leaves_them_alone(cluster: FakeCluster) -> None:
    settings = replace(SETTINGS, node_cool_down=HOUR)
    assert run(cluster, settings=settings).clean
    marked = {raw["metadata"]["name"] for raw in cluster.raw(NODES) if COOLING_LABEL in raw["metadata"]["labels"]}
    assert {"low-1", "low-2"} < marked
    for raw in cluster.raw(NODES):
        assert (LAST_MOVED_ANNOTATION in raw["metadata"].get("annotations", {})) == (raw["metadata"]["name"] in marked)
    now = datetime.now(UTC)
    again = run(cluster, settings=settings, planner=with_settings(PLANNER, now=now).with_rule(NodeCoolDown(HOUR)))
    assert again.sentence.startswith("Nothing to move")
    assert again.forecast.refused >= len(marked)


def test_a_run_takes_off_marks_that_are_over(cluster: FakeCluster) -> None:
    over = format_timestamp(datetime.now(UTC) - HOUR)
    marks = {"labels": {COOLING_LABEL: "true"}, "annotations": {COOLING_UNTIL_ANNOTATION: over}}
    cluster.merge_patch(NODES, "high-2", {"metadata": marks})
    run(cluster)
    assert COOLING_LABEL not in metadata(cluster, "high-2")["labels"]


def test_a_node_that_still_cools_down_is_not_read_again(cluster: FakeCluster) -> None:
    mark(cluster, StoppedClock(NOON))
    calls = len(cluster.calls)
    assert sweep(cluster, NOON + HOUR / 2) == ()
    assert {call.verb for call in cluster.calls[calls:]} == {"list"}
