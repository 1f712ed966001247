"""Finds a set of nodes whose moves have an order, where those of the set that was wished have none.

A filling says where everything ends, not in which order it gets there. On a full cluster the moves can wait for one
another in a circle that no detour opens. With one node less to empty there is room again, so nodes leave the set one by
one until the moves have an order. Then others come in for those that left.
"""

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import Final

from berth_core import Deadline, is_over
from berth_descheduler.planner import NodeIndex
from berth_descheduler.planner.solver import Candidates, Draining

_TRIED: Final = 8
"""The most nodes that are tried as the one that leaves a set."""

_EXCHANGED: Final = 64
"""The most sets that are tried with another node for one that left."""

_MAX_WORK: Final = 1_000_000
"""Nodes times kinds, times how many sets are tried."""

_TRIED_LATE: Final = 3
"""So many sets are tried after the time limit."""

_DROPPED_LATE: Final = 4
"""One of so many nodes leaves a set for each of these tries but the first, for which one node does."""

_LARGE_SET: Final = 100
"""From as many nodes on, several leave at once."""


class OrderedSets:
    """The search for a set whose moves have an order."""

    def __init__(
        self,
        candidates: Candidates,
        drain: Callable[[Collection[NodeIndex]], Draining],
        has_order: Callable[[Draining], bool],
        deadline: Deadline,
        *,
        size: int,
    ) -> None:
        """Prepare; `drain` says where the pods of a set go, and `has_order` leaves everything as it was.

        `size` is that of the cluster, in nodes times kinds.
        """
        self._most_tried = max(1, _MAX_WORK // size)
        self._drain = drain
        self._has_order = has_order
        self._deadline = deadline
        nodes, worth = candidates.nodes.tolist(), candidates.worth.tolist()
        self._worth = {NodeIndex(node): value for node, value in zip(nodes, worth, strict=True)}
        self._pods = {node: len(candidates.pods_of[node]) for node in self._worth}

    def largest_within(self, wished: Draining, least_worth: int) -> Draining | None:
        """Return the best draining that has an order of a set, of parts of it, and of parts with some other nodes.

        The result is None if there is none that is worth more than `least_worth`, or no time to find it.
        """
        dropped = self._drop_nodes(wished, least_worth)
        if dropped is None or dropped.worth >= wished.worth:
            return dropped
        return self._exchange(dropped, wished)

    def _drop_nodes(self, wished: Draining, least_worth: int) -> Draining | None:
        """Return the draining of what is left of a set once nodes have left it one by one.

        Each time those are tried first that are worth least, and of these those with most pods. If none of them helps,
        the first leaves all the same.
        """
        kept, late = set(wished.nodes), 0
        if not is_over(self._deadline) and (draining := self._ordered(kept, least_worth)) is not None:
            return draining
        while self._worth_of(kept) > least_worth and late < _TRIED_LATE:
            # Of equally worthy nodes the one with most pods goes first: it frees the most room for the moves of the
            # others.
            leaving = sorted(kept, key=lambda node: (self._worth[node], -self._pods[node], node))
            tried, dropped = leaving[: min(_TRIED, self._most_tried)], 1 + len(kept) // _LARGE_SET
            if is_over(self._deadline):
                tried, dropped, late = [], 1 + len(kept) // _DROPPED_LATE * min(late, 1), late + 1
            for node in tried:
                if (draining := self._ordered(kept - {node}, least_worth)) is not None:
                    return draining
                if is_over(self._deadline):
                    break
            kept.difference_update(leaving[:dropped])
            if not tried and (draining := self._ordered(kept, least_worth)) is not None:
                return draining
        return None

    def _exchange(self, best: Draining, wished: Draining) -> Draining:
        """Return a draining with further nodes, of others than those that left, while there is time."""
        for nodes in islice(self._wider_sets(best, wished), min(_EXCHANGED, self._most_tried)):
            if is_over(self._deadline):
                return best
            if (draining := self._ordered(nodes, best.worth)) is not None:
                return draining if draining.worth >= wished.worth else self._exchange(draining, wished)
        return best

    def _wider_sets(self, best: Draining, wished: Draining) -> Iterator[set[NodeIndex]]:
        """Yield the set of a draining with one node more, those with the fewest pods first."""
        others = self._worth.keys() - {*best.nodes, *wished.nodes}
        for node in sorted(others, key=lambda other: (self._pods[other] / self._worth[other], other)):
            yield {*best.nodes, node}

    def _ordered(self, nodes: Collection[NodeIndex], least_worth: int) -> Draining | None:
        draining = self._drain(nodes)
        is_better = draining.filled.complete and draining.worth > least_worth
        return draining if is_better and self._has_order(draining) else None

    def _worth_of(self, nodes: Collection[NodeIndex]) -> int:
        return sum(self._worth[node] for node in nodes)
