"""How many of a cluster's nodes may be fenced at a time: a number, a share, or the default."""

import sys
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core.quantities import read_percentage, read_whole_number

FEW_NODES: Final = 5
"""Nodes that may be fenced by default where they are fewer than half of the cluster."""

_WHOLE_PERCENT: Final = 100
_NO_LIMIT: Final = "none"
_OR_FEW: Final = f" or {FEW_NODES}"


def share_of_nodes(percent: Fraction, nodes: int) -> int:
    """Return a percentage of a cluster's nodes, rounded down; at least one if there are any."""
    return max(1, int(percent * nodes / _WHOLE_PERCENT)) if nodes and percent else 0


@dataclass(frozen=True, slots=True)
class FenceLimit:
    """The maximum number of nodes that are fenced at a time; no limit without number and percentage."""

    nodes: int | None = None

    percent: Fraction | None = None
    """Of the cluster's nodes, at least one."""

    or_few: bool = False
    """Whether `FEW_NODES` may be fenced where that is more than `percent` and fewer than half of the nodes. A tenth of
    a small cluster is one node, on which a window or gang has no room."""

    @classmethod
    def default(cls, percent: int) -> "FenceLimit":
        return cls(percent=Fraction(percent), or_few=True)

    @classmethod
    def parse(cls, text: str) -> "FenceLimit | None":
        """Parse `10`, `10%` or `none`, or what `str` writes; None for anything else."""
        if text == _NO_LIMIT:
            return cls()
        if (percent := read_percentage(text.removesuffix(_OR_FEW))) is not None and "%" in text:
            return cls(percent=percent, or_few=text.endswith(_OR_FEW))
        nodes = read_whole_number(text, most=sys.maxsize)
        return None if nodes is None else cls(nodes=nodes)

    def __str__(self) -> str:
        if self.percent is not None:
            return f"{float(self.percent):g}%{_OR_FEW if self.or_few else ''}"
        return _NO_LIMIT if self.nodes is None else str(self.nodes)

    def most_of(self, cluster_nodes: int) -> int | None:
        """Return how many nodes of a cluster may be fenced, None for any number."""
        if self.percent is None:
            return self.nodes
        few = min(FEW_NODES, (cluster_nodes - 1) // 2) if self.or_few else 0
        return max(few, share_of_nodes(self.percent, cluster_nodes))
