"""How many nodes may be fenced: what is given stays what it says, and the default leaves small clusters a few."""

from fractions import Fraction

import pytest

from berth_core import FenceLimit, share_of_nodes


@pytest.mark.parametrize(
    ("percent", "nodes", "want"),
    [(50, 1, 1), (50, 3, 1), (10, 100, 10), (1, 10, 1), (100, 7, 7), (50, 0, 0), (0, 9, 0)],
)
def test_a_percentage_is_rounded_down_but_one_node_is_always_possible(percent: int, nodes: int, want: int) -> None:
    assert share_of_nodes(Fraction(percent), nodes) == want
    assert FenceLimit(percent=Fraction(percent)).most_of(nodes) == want


@pytest.mark.parametrize(
    ("nodes", "want", "want_of_all"),
    [
        (1, 1, 1),
        (2, 1, 1),
        (3, 1, 1),
        (4, 1, 1),
        (5, 2, 2),
        (10, 4, 4),
        (11, 5, 5),
        (19, 5, 5),
        (20, 5, 5),
        (24, 5, 6),
        (50, 5, 12),
        (60, 6, 15),
        (1000, 100, 250),
    ],
)
def test_by_default_five_nodes_may_be_fenced_where_these_are_fewer_than_half(
    nodes: int, want: int, want_of_all: int
) -> None:
    assert FenceLimit.default(10).most_of(nodes) == want
    assert FenceLimit.default(25).most_of(nodes) == want_of_all


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("10%", FenceLimit(percent=Fraction(10))),
        ("12.5%", FenceLimit(percent=Fraction(25, 2))),
        ("10% or 5", FenceLimit.default(10)),
        ("0", FenceLimit(nodes=0)),
        ("7", FenceLimit(nodes=7)),
        ("none", FenceLimit()),
    ],
)
def test_a_limit_is_read_as_it_is_written(text: str, want: FenceLimit) -> None:
    assert FenceLimit.parse(text) == want
    assert str(want) == text


@pytest.mark.parametrize("text", ["", "-1", "101%", "10 or 5", "or 5", " or 5", "ten"])
def test_anything_else_is_no_limit(text: str) -> None:
    assert FenceLimit.parse(text) is None
