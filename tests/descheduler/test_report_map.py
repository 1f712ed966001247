"""The picture of the nodes on a page: who is drawn how, in what order, and what a cell stands for."""

from dataclasses import dataclass

import pytest

from berth_core.resources import ResourceAmounts
from berth_descheduler.planner import Fragmentation, NodeUsage
from berth_descheduler.report.node_map import Band, draw_maps


def usage(name: str, cpu: int, *, pods: int = 1) -> NodeUsage:
    return NodeUsage(name, ResourceAmounts({"cpu": 100}), ResourceAmounts({"cpu": cpu}), pods)


def state(*nodes: NodeUsage) -> Fragmentation:
    return Fragmentation(nodes)


@dataclass(frozen=True)
class Drawn:
    before: NodeUsage
    after: NodeUsage | None
    want_before: tuple[Band, int]
    want_after: tuple[Band, int, bool]


DRAWN = {
    "a node that is emptied": Drawn(usage("n", 30), usage("n", 0, pods=0), (Band.LOW, 3), (Band.EMPTY, 0, True)),
    "a node that was empty": Drawn(
        usage("n", 5, pods=0), usage("n", 5, pods=0), (Band.EMPTY, 0), (Band.EMPTY, 0, False)
    ),
    "a node that is filled up": Drawn(usage("n", 1), usage("n", 100), (Band.LOWEST, 1), (Band.FULL, 10, False)),
    "a node with more than it has": Drawn(usage("n", 50), usage("n", 101), (Band.HALF, 5), (Band.OVER, 10, False)),
    "pods that ask for nothing": Drawn(usage("n", 0), usage("n", 61), (Band.LOWEST, 1), (Band.HIGH, 7, False)),
    "a node that was taken away": Drawn(usage("n", 50), None, (Band.HALF, 5), (Band.GONE, 0, False)),
}


@pytest.mark.parametrize("case", DRAWN.values(), ids=DRAWN.keys())
def test_a_node_is_drawn(case: Drawn) -> None:
    after = state() if case.after is None else state(case.after)
    drawn = draw_maps({"before": state(case.before), "after": after}, "cpu")

    ((before,), (then,)) = (one.cells for one in drawn.maps)
    assert (before.band, before.level, before.freed) == (*case.want_before, False)
    assert (then.band, then.level, then.freed) == case.want_after


def test_the_fullest_come_first_and_keep_their_places() -> None:
    before = state(usage("a", 10), usage("b", 90), usage("c", 0, pods=0), usage("d", 90))
    after = state(usage("new", 1), usage("a", 0, pods=0), usage("b", 100), usage("c", 0, pods=0), usage("d", 90))

    drawn = draw_maps({"before": before, "after": after}, "cpu")

    assert [cell.title for cell in drawn.maps[0].cells] == [
        "b: 90 % cpu, 1 pod",
        "d: 90 % cpu, 1 pod",
        "a: 10 % cpu, 1 pod",
        "c: 0 % cpu, 0 pods",
        "new: not there",
    ]
    assert drawn.maps[1].cells[2].title == "a: 0 % cpu, 0 pods, freed"
    assert drawn.maps[1].summary == "after: 5 nodes, 2 without pods, 38 % of cpu requested."


def test_a_picture_of_some_nodes_says_how_many_there_are_more() -> None:
    assert draw_maps({"before": state(usage("n", 1))}, "cpu", left_out=7).left_out == 7


@pytest.mark.parametrize(("nodes", "want_cells", "want_each"), [(400, 400, 1), (401, 201, 2), (10_000, 400, 25)])
def test_in_a_large_cluster_a_cell_is_several_nodes(nodes: int, want_cells: int, want_each: int) -> None:
    before = state(*(usage(f"n{i:05}", 50) for i in range(nodes)))
    after = state(*(usage(f"n{i:05}", 50 if i < 60 else 0, pods=int(i < 60)) for i in range(nodes)))

    drawn = draw_maps({"before": before, "after": after}, "cpu")

    assert (len(drawn.maps[0].cells), drawn.nodes_per_cell) == (want_cells, want_each)
    assert sum(cell.freed for cell in drawn.maps[1].cells) == want_cells - 60 // want_each
    assert {row.band: row.nodes for row in drawn.bands}[Band.EMPTY] == (0, nodes - 60)
    assert {row.band: row.widths for row in drawn.bands}[Band.HALF] == (100, 6000 // nodes)


@dataclass(frozen=True)
class Explained:
    before: Fragmentation
    after: Fragmentation
    want: tuple[str, ...]


ORDINARY = ("no pods", "up to 20 %", "to 40 %", "to 60 %", "to 80 %", "to 100 %")
EXPLAINED = {
    "nothing but ordinary cells": Explained(state(usage("n", 50)), state(usage("n", 50)), ORDINARY),
    "a freed node": Explained(state(usage("n", 50)), state(usage("n", 0, pods=0)), ("no pods", "freed", *ORDINARY[1:])),
    "a node with more than it has": Explained(
        state(usage("n", 50)), state(usage("n", 101)), (*ORDINARY, "above 100 %")
    ),
    "a node that was taken away": Explained(state(usage("n", 50)), state(), (*ORDINARY, "not there")),
    "cells of two nodes of 600": Explained(
        state(*(usage(f"n{i:03}", 50) for i in range(600))),
        state(*(usage(f"n{i:03}", 0, pods=0) for i in range(598))),
        ("no pods", "freed, at least half of the 2 nodes", *ORDINARY[1:], "not there"),
    ),
}


@pytest.mark.parametrize("case", EXPLAINED.values(), ids=EXPLAINED.keys())
def test_the_legend_has_what_the_cells_show(case: Explained) -> None:
    drawn = draw_maps({"before": case.before, "after": case.after}, "cpu")

    assert tuple(entry.meaning for entry in drawn.legend) == case.want
    shown = {(cell.band, cell.freed) for node_map in drawn.maps for cell in node_map.cells}
    assert shown <= {(entry.band, entry.freed) for entry in drawn.legend}
