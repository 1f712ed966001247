"""Owns the picture of a cluster in the terminal: a character per node, as high as the node is used.

It does not own the numbers: those are the planner's.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from rich.text import Text

from berth_descheduler.display.plan_figures import requested_share
from berth_descheduler.planner import Fragmentation, NodeUsage

_BARS: Final = "▁▂▃▄▅▆▇█"
_EMPTY: Final = "·"
PER_LINE: Final = 60
_MOST_SIGNS: Final = 20 * PER_LINE
"""More than fit on a screen would tell nothing."""

_STYLES: Final = ((Fraction(4, 10), "red"), (Fraction(7, 10), "yellow"), (Fraction(1), "green"))


def draw_nodes(fragmentation: Fragmentation, resource: str) -> Text:
    """Return the nodes in order, `·` for those without pods but DaemonSet and mirror pods.

    In a large cluster a character stands for several nodes that follow one another.
    """
    text = Text()
    each = nodes_per_sign(len(fragmentation.nodes))
    for index, nodes in enumerate(_batched(fragmentation.nodes, each)):
        if index and index % PER_LINE == 0:
            text.append("\n")
        _draw_nodes(text, nodes, resource)
    return text


def nodes_per_sign(nodes: int) -> int:
    """Return for how many nodes a character stands in a cluster of so many."""
    return max(1, -(-nodes // _MOST_SIGNS))


def _batched(nodes: Sequence[NodeUsage], each: int) -> Iterator[Sequence[NodeUsage]]:
    """Yield the nodes so many at a time."""
    return (nodes[first : first + each] for first in range(0, len(nodes), each))


def _draw_nodes(text: Text, nodes: Sequence[NodeUsage], resource: str) -> None:
    if all(node.pods == 0 for node in nodes):
        text.append(_EMPTY, style="bright_blue")
        return
    share = requested_share(nodes, resource)
    level = max(0, min(len(_BARS) - 1, int(share * len(_BARS))))
    style = next((style for limit, style in _STYLES if share <= limit), "magenta")
    text.append(_BARS[level], style=style)
