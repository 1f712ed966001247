"""Owns the picture of a cluster in the terminal: one character per node, as high as the node is used.

It does not own the numbers: those are the planner's.
"""

from fractions import Fraction
from typing import Final

from rich.text import Text

from berth_descheduler.planner import Fragmentation, NodeUsage

_BARS: Final = "▁▂▃▄▅▆▇█"
_EMPTY: Final = "·"
_PER_LINE: Final = 60
_STYLES: Final = ((Fraction(4, 10), "red"), (Fraction(7, 10), "yellow"), (Fraction(1), "green"))


def draw_nodes(fragmentation: Fragmentation, resource: str) -> Text:
    """Return the nodes in order, `·` for one without pods but DaemonSet and mirror pods."""
    text = Text()
    for index, node in enumerate(fragmentation.nodes):
        if index and index % _PER_LINE == 0:
            text.append("\n")
        _draw_node(text, node, resource)
    return text


def _draw_node(text: Text, node: NodeUsage, resource: str) -> None:
    if node.pods == 0:
        text.append(_EMPTY, style="bright_blue")
        return
    share = _share(node, resource)
    level = min(len(_BARS) - 1, int(share * len(_BARS)))
    style = next((style for limit, style in _STYLES if share <= limit), "magenta")
    text.append(_BARS[level], style=style)


def _share(node: NodeUsage, resource: str) -> Fraction:
    have = node.allocatable.get(resource)
    return Fraction(node.requested.get(resource), have) if have else Fraction(0)
