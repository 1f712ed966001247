"""Owns which nodes no plan can empty, because a pod on them fits on no other node whatever else moves.

It does not own pods that fit somewhere and find no room there: that is the search's to find out.

To leave such nodes out is no guess: what a node can hold of movable pods at most does not grow by any move. It keeps
the search from trying them again and again, and the bounds from counting them.
"""

from dataclasses import replace

import numpy as np

from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.packing.bounds import holds
from berth_descheduler.planner.packing.columns import Columns, Mask
from berth_descheduler.planner.problems import Problem
from berth_descheduler.planner.sources import Sources
from berth_descheduler.refusals import Refusal, RefusalReason


def without_stuck_nodes(problem: Problem, columns: Columns, sources: Sources) -> Sources:
    """Return the sources without the nodes of which a pod can go to no other node, those with the reason instead."""
    homes = _HomesOfKinds(columns)
    stuck: dict[NodeIndex, PodIndex] = {}
    for node in sources.to_empty:
        found = next((pod for pod in sources.pods_of[node] if homes.is_stuck(int(columns.pod_kind[pod]), node)), None)
        if found is not None:
            stuck[node] = found
    if not stuck:
        return sources
    return replace(
        sources,
        to_empty=tuple(node for node in sources.to_empty if node not in stuck),
        pods_of={node: pods for node, pods in sources.pods_of.items() if node not in stuck},
        refusals={**sources.refusals, **{node: _refusal(problem, pod) for node, pod in stuck.items()}},
    )


class _HomesOfKinds:
    """On which nodes pods of each kind can be at all."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._most = holds(columns)
        self._only: dict[int, frozenset[int] | None] = {}
        """Per kind the nodes if there is at most one, else None."""

    def is_stuck(self, kind: int, home: NodeIndex) -> bool:
        """Tell whether a pod of a kind can be nowhere but at home."""
        if kind not in self._only:
            nodes = np.flatnonzero(self._possible(kind))
            self._only[kind] = frozenset(nodes.tolist()) if len(nodes) <= 1 else None
        only = self._only[kind]
        return only is not None and only <= {home}

    def _possible(self, kind: int) -> Mask:
        need = self._columns.need[kind]
        possible: Mask = self._columns.allowed(kind) & self._columns.takes
        for column in np.flatnonzero(need):
            possible = possible & (self._most[column] >= need[column])
        return possible


def _refusal(problem: Problem, pod: PodIndex) -> Refusal:
    key = problem.cluster.pods[pod].pod.key
    text = f"pod {key} can go to no other node, whatever else is moved"
    return Refusal(RefusalReason.NO_TARGET, text, blocking_pod=key)
