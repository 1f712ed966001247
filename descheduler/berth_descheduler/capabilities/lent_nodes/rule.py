"""The rule of lent nodes: which pods may be moved there, and which may be evicted without a target."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

from berth_core import (
    EMPTY_BY_ANNOTATION,
    Node,
    Pod,
    Snapshot,
    closed_lent_nodes,
    is_lent_fence,
    may_lose_its_place,
    read_timestamp,
)
from berth_descheduler.capabilities.lent_nodes.jobs import preemptable_groups_in
from berth_descheduler.framework import ClusterView, Refusal, RefusalReason
from berth_descheduler.framework.rules import NodeRole, Rule
from berth_descheduler.planner.simulation.cluster import lent_nodes, node_and_presence
from berth_descheduler.planner.simulation.node_fit import lent_text

_SHORTEST_STAY: Final = timedelta(minutes=10)
"""No pod is moved to a lent node that closes sooner than this."""


@dataclass(frozen=True, slots=True)
class LentNodesRule(Rule):
    """Keeps moves off lent nodes unless the plugin plans them, and lets preemptable pods be evicted off closed ones."""

    takes_moves: bool = False
    """Whether preemptable pods may be moved to open lent nodes."""

    evicts_for_room: bool = False
    """Whether preemptable pods on nodes that are not lent may be evicted without a target to make room for others."""

    def on(self, view: ClusterView, run_began: datetime | None) -> "LentNodesRule":
        del run_began
        return _LentNodesAtATime(self.takes_moves, self.evicts_for_room, view)


@dataclass(frozen=True)
class _LentNodesAtATime(LentNodesRule):
    """The rule, applied to one view of the cluster."""

    view: ClusterView | None = None

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        if use is NodeRole.SOURCE or self._lent.get(node.metadata.name) is not True:
            return None  # the fence of a closed node keeps pods off, whatever a policy says
        ends = self._ends.get(node.metadata.name, ())
        now = None if self.view is None else self.view.now
        # A pod that arrives minutes before the node closes is restarted twice for almost no work between.
        if self.takes_moves and (now is None or all(end - now >= _SHORTEST_STAY for end in ends)):
            return None
        return Refusal(RefusalReason.LENT_NODE, f"{lent_text(node)}, to which no pod is moved now")

    def may_evict(self, pod: Pod) -> bool:
        node = pod.spec.node_name
        for_room = self.evicts_for_room and node not in self._lent
        return (node in self._closed or for_room) and may_lose_its_place(pod, self._preemptable)

    @cached_property
    def _snapshot(self) -> Snapshot:
        return Snapshot.empty() if self.view is None else self.view.snapshot

    @cached_property
    def _lent(self) -> Mapping[str, bool]:
        """Whether each lent node is open, by its name."""
        nodes = self._snapshot.nodes
        return {nodes[node].metadata.name: is_open for node, is_open in lent_nodes(self._snapshot).items()}

    @cached_property
    def _ends(self) -> Mapping[str, Sequence[datetime]]:
        """The times at which lent nodes must be empty, from the annotations of their fences."""
        ends: defaultdict[str, list[datetime]] = defaultdict(list)
        for fence in self._snapshot.pods if self._lent else ():
            end = read_timestamp(fence.metadata.annotations.get(EMPTY_BY_ANNOTATION)) if is_lent_fence(fence) else None
            if end is not None:
                ends[node_and_presence(fence)[0]].append(end)
        return ends

    @cached_property
    def _closed(self) -> Collection[str]:
        own_namespace = "" if self.view is None else self.view.own_namespace
        return closed_lent_nodes(self._snapshot.nodes, self._snapshot.pods, own_namespace)

    @cached_property
    def _preemptable(self) -> Collection[tuple[str, str]]:
        return preemptable_groups_in(self._snapshot)
