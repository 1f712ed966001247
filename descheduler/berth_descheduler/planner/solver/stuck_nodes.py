"""Which nodes no plan can empty, because a pod on them fits on no other node whatever else moves.

To leave such nodes out is no guess: what a node can hold of movable pods at most does not grow by any move. It keeps
the search from trying them again and again, and the bounds from counting them.
"""

from dataclasses import replace

import numpy as np

from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.problem import Problem, Sources
from berth_descheduler.planner.simulation import NodeIndex, PodIndex
from berth_descheduler.planner.solver.bounds import holds
from berth_descheduler.planner.solver.model import Mask, PackingModel


def without_undrainable_nodes(problem: Problem, packing: PackingModel, sources: Sources) -> Sources:
    """Split off sources with a pod that fits on no other node, each with a refusal that names the pod."""
    homes = _PossibleNodes(packing)
    stuck: dict[NodeIndex, PodIndex] = {}
    for node in sources.to_empty:
        stuck_pod = next(
            (pod for pod in sources.pods_of[node] if homes.has_no_other_node(int(packing.pod_kind[pod]), node)), None
        )
        if stuck_pod is not None:
            stuck[node] = stuck_pod
    if not stuck:
        return sources
    return replace(
        sources,
        to_empty=tuple(node for node in sources.to_empty if node not in stuck),
        pods_of={node: pods for node, pods in sources.pods_of.items() if node not in stuck},
        refusals={**sources.refusals, **{node: _refusal(problem, pod) for node, pod in stuck.items()}},
    )


class _PossibleNodes:
    """On which nodes pods of each kind can be at all."""

    def __init__(self, packing: PackingModel) -> None:
        self._packing = packing
        self._most = holds(packing)
        self._only: dict[int, frozenset[int] | None] = {}
        """Per kind the nodes if there is at most one, else None."""

    def has_no_other_node(self, kind: int, home: NodeIndex) -> bool:
        """Return whether pods of a kind fit on no node but `home`."""
        if kind not in self._only:
            nodes = np.flatnonzero(self._possible(kind))
            self._only[kind] = frozenset(nodes.tolist()) if len(nodes) <= 1 else None
        only = self._only[kind]
        return only is not None and only <= {home}

    def _possible(self, kind: int) -> Mask:
        need = self._packing.need[kind]
        possible_nodes: Mask = self._packing.allowed(kind) & self._packing.takes
        for column in np.flatnonzero(need):
            possible_nodes = possible_nodes & (self._most[column] >= need[column])
        return possible_nodes


def _refusal(problem: Problem, pod: PodIndex) -> Refusal:
    key = problem.cluster.pods[pod].pod.key
    text = f"pod {key} can go to no other node, whatever else is moved"
    return Refusal(RefusalReason.NO_TARGET, text, blocking_pod=key)
