"""A picture of the nodes in a terminal: a sign per node, or per several nodes of a large cluster."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Final

from rich.text import Text

from berth_descheduler.planner import Fragmentation, NodeUsage, requested_share

_BARS: Final = "▁▂▃▄▅▆▇█"
_EMPTY: Final = "·"
PER_LINE: Final = 60
MOST_SIGNS: Final = 20 * PER_LINE
"""As many as fit on a screen."""

_STYLES: Final = ((Fraction(4, 10), "red"), (Fraction(7, 10), "yellow"), (Fraction(1), "green"))


def draw_nodes(fragmentation: Fragmentation, resource: str, max_signs: int = MOST_SIGNS) -> Text:
    """Return one sign per node, at most `max_signs`: in a large cluster a sign stands for several nodes in a row.

    The sign `·` is for a node without pods, DaemonSet and mirror pods aside.
    """
    text = Text()
    nodes_per_sign_drawn = nodes_per_sign(len(fragmentation.nodes), max_signs)
    for index, nodes in enumerate(_batched(fragmentation.nodes, nodes_per_sign_drawn)):
        if index and index % PER_LINE == 0:
            text.append("\n")
        _draw_nodes(text, nodes, resource)
    return text


def nodes_per_sign(nodes: int, max_signs: int = MOST_SIGNS) -> int:
    """Return how many nodes a sign stands for if there are at most `max_signs` signs."""
    return max(1, -(-nodes // max_signs))


def _batched(nodes: Sequence[NodeUsage], each: int) -> Iterator[Sequence[NodeUsage]]:
    return (nodes[first_index : first_index + each] for first_index in range(0, len(nodes), each))


def _draw_nodes(text: Text, nodes: Sequence[NodeUsage], resource: str) -> None:
    if all(node.pods == 0 for node in nodes):
        text.append(_EMPTY, style="bright_blue")
        return
    share = requested_share(nodes, resource)
    level = max(0, min(len(_BARS) - 1, int(share * len(_BARS))))
    style = next((style for limit, style in _STYLES if share <= limit), "magenta")
    text.append(_BARS[level], style=style)
