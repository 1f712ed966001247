"""Fills nodes with pods by kind and count, and moves others aside.

Kinds are placed from the largest to the smallest, all pods of a kind at once:
1. *Directly*, on the fullest nodes that have room. A node takes no more than leaves it the balance of resources that
   what is still to be placed asks for, and what the smaller kinds can fill without a rest; these two wishes are given
   up, one after the other, before room is wasted.
2. *By ejection*: on nodes where taking off one or two smaller pods makes room, cheapest first. The pods taken off join
   those that are still to be placed, so a chain of any length forms, always towards smaller pods.
3. *By cover*: taking off as many smaller pods as it takes, up to a limit.
4. What finds no place at the end (small pods, where odd rests are left) is *exchanged*: a larger pod gives way to
   several small ones that fill its node better, and is placed again.
All of it works on whole columns: its cost is at most kinds times nodes. Costs are what a pod of each kind is expected
to cost in thousandths of a move; `costs` tells what the last pod of each kind cost in the end.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from typing import Final

import numpy as np
import numpy.typing as npt

from berth_descheduler.planner.solver.model import Ints, Mask, PackingModel

# The sets of one or two small pods that may be moved aside for a larger one, and where they make room for it.

_SINGLES: Final = 24
_PAIRS: Final = 10


@dataclass(frozen=True, slots=True)
class _Sets:
    """What may be moved aside for a kind, the cheapest set first."""

    kinds: tuple[tuple[int, ...], ...]
    gone: Ints  # (sets, resources)
    rows: tuple[Ints, Ints]  # (sets,) each; of a single pod twice the same
    pairs: Ints  # (sets,), how many pods of the first row's kind are taken


class EjectionSets:
    """Knows the sets for every kind, each computed once."""

    def __init__(self, packing: PackingModel, order: Ints, cost: Ints, most_ejected: int) -> None:
        """Prepare; in `order` a kind may have those after it moved aside."""
        self._packing = packing
        self._cost = cost
        self._most_ejected = most_ejected
        self._row = row_of_kind(packing)
        self._order: list[int] = order.tolist()
        self._known: dict[int, _Sets] = {}

    def smaller(self, kind: int) -> list[int]:
        """Return the ejectable kinds smaller than a kind, largest first, thinned out evenly to `_SINGLES`."""
        kinds_after = self._order[self._order.index(kind) + 1 :]
        return _evenly([smaller_kind for smaller_kind in kinds_after if self._row[smaller_kind] >= 0], _SINGLES)

    def promising(self, kind: int, room: Ints, there: npt.NDArray[np.int32], may: Mask) -> list[tuple[int, ...]]:
        """Return the ejection sets that make room for a kind now; the arrays are over the same nodes."""
        if kind not in self._known:
            self._known[kind] = self._list(kind)
        sets, need = self._known[kind], self._packing.need[kind]
        if not sets.kinds:
            return []
        nodes = may.nonzero()[0]
        for column in self._packing.asked[kind]:
            nodes = nodes[room[column, nodes] >= need[column] - sets.gone[:, column].max()]
        pods_held = there[:, nodes]
        first, second = sets.rows
        makes_room = (pods_held[first] >= sets.pairs[:, None]) & (pods_held[second] > 0)
        for column in self._packing.asked[kind]:
            makes_room &= room[column, nodes] >= (need[column] - sets.gone[:, column])[:, None]
        return [sets.kinds[set_index] for set_index in np.flatnonzero(makes_room.any(axis=1))]

    def _list(self, kind: int) -> _Sets:
        """Return the sets for a kind."""
        smaller, size = self.smaller(kind), self._packing.size
        pairs = (
            pair
            for pair in combinations_with_replacement(_evenly(smaller, _PAIRS), 2)
            if self._most_ejected > 1 and size[pair[0]] + size[pair[1]] < size[kind]
        )
        cost = self._cost.tolist()
        costs = (
            (sum(cost[ejected_kind] for ejected_kind in ejection_set), ejection_set)
            for ejection_set in (*((single_kind,) for single_kind in smaller), *pairs)
        )
        kinds = tuple(ejection_set for _, ejection_set in sorted(costs))
        first_kinds = np.array([ejection_set[0] for ejection_set in kinds], dtype=np.int64)
        second_kinds = np.array([ejection_set[-1] for ejection_set in kinds], dtype=np.int64)
        two = np.array([len(ejection_set) == 2 for ejection_set in kinds], dtype=bool)  # noqa: PLR2004 - a pair
        need = self._packing.need
        freed_by_set = need[first_kinds] + need[second_kinds] * two[:, None]
        return _Sets(
            kinds,
            freed_by_set,
            (self._row[first_kinds], self._row[second_kinds]),
            1 + (two & (first_kinds == second_kinds)),
        )


def row_of_kind(packing: PackingModel) -> Ints:
    """Return each kind's row among the ejectable ones, -1 for others; (kinds,)."""
    rows = np.full(packing.kinds, -1, dtype=np.int64)
    rows[packing.ejectable] = np.arange(len(packing.ejectable))
    return rows


def _evenly(kinds: list[int], most: int) -> list[int]:
    """Return at most `most` of the kinds, spread evenly over the list and with both of its ends."""
    if len(kinds) <= most:
        return kinds
    return [kinds[index * (len(kinds) - 1) // (most - 1)] for index in range(most)]


MOVE: Final = 1000
"""The cost of one move."""

_HIGHEST_COST: Final = 1000 * MOVE
_SIZE_BITS: Final = 28
"""A pod as large as a node counts about half a move when sets are compared."""

_BALANCE_BITS: Final = 10
_PARITY_STEPS: Final = 4
_EXCHANGE_RATIO: Final = 6


@dataclass(frozen=True, slots=True)
class FillLimits:
    """How far a filling goes to make room."""

    most_ejected: int = 6
    """Pods moved aside for one pod; 0: none, every pod goes directly."""

    exchanges: int = 24
    """Rounds of exchanges at the end."""


@dataclass(frozen=True)
class Filled:
    """The result of a filling: arrivals, ejections, and pods without a place."""

    arrivals: Ints  # (entries, 3): kind, node, count
    ejections: Ints  # (entries, 3): kind, node, count
    unplaced: Ints  # (kinds,)
    costs: Ints  # (kinds,)
    stuck: Ints  # (nodes,), what is left of the scarcest resource and can be used by nothing

    @classmethod
    def placed(cls, packing: PackingModel, arrivals: Ints, ejections: Ints) -> "Filled":
        """Return what another way of placing pods came to, with a place for each."""
        zero_counts = np.zeros(packing.kinds, dtype=np.int64)
        return cls(arrivals, ejections, zero_counts, zero_counts + MOVE, np.zeros(packing.nodes, dtype=np.int64))

    @property
    def complete(self) -> bool:
        """Return whether every pod found a place."""
        return not self.unplaced.any()

    @property
    def ejected(self) -> int:
        """Return how many pods are moved aside."""
        return int(self.ejections[:, 2].sum())


@dataclass(frozen=True)
class Demand:
    """The pods to place."""

    counts: Ints  # (kinds,)
    first: tuple[int, ...] = ()
    """Kinds that are placed before all others, whatever their size."""

    only_on: Mapping[int, Mask] = field(default_factory=dict)  # per kind (nodes,)
    """Kinds that may go to fewer nodes than their ties say."""


def fill(
    packing: PackingModel,
    room: Ints,
    open_nodes: Mask,
    demand: Demand,
    *,
    costs: Ints,
    limits: FillLimits | None = None,
) -> Filled:
    """Return a filling of the open nodes with a demand."""
    filling = _Filling(packing, room, open_nodes, demand, (costs, limits or FillLimits()))
    filling.place_all()
    return filling.result()


_MANY_NODES: Final = 1024
"""Of more nodes than this, so many of the fullest are looked at first."""

_STALE: Final = 256
"""After so many changes nodes are put in order anew, the fullest first."""


class _Filling:
    """One filling; its columns are those of the open nodes only."""

    def __init__(
        self, packing: PackingModel, room: Ints, open_nodes: Mask, demand: Demand, means: tuple[Ints, FillLimits]
    ) -> None:
        costs, self._limits = means
        self._packing = packing
        self._demand = demand
        self._nodes = np.flatnonzero(open_nodes & packing.takes)
        self._room = np.ascontiguousarray(room[:, self._nodes])  # (resources, open nodes)
        self._ranks = packing.rank[self._nodes]  # (open nodes,)
        self._free: Ints = packing.weight @ self._room  # (open nodes,), all resources by weight
        self._by_free = self._known_free = np.empty(0, dtype=np.int64)  # (open nodes,), the fullest first
        self._changes = _STALE
        self._there = np.ascontiguousarray(packing.there[:, self._nodes])  # (rows, open nodes)
        self._row = row_of_kind(packing)
        self._left = np.zeros(packing.kinds, dtype=np.int64)
        late = np.ones(packing.kinds, dtype=bool)
        late[list(demand.first)] = False
        self._order = np.lexsort((-packing.size, late))
        self._rank = np.empty_like(self._order)
        self._rank[self._order] = np.arange(len(self._order))
        self._cost = costs + (packing.size >> _SIZE_BITS)  # (kinds,)
        self._sets = EjectionSets(packing, self._order, self._cost, self._limits.most_ejected)
        self._costs_before = costs
        self._may: dict[int, Mask] = {}
        self._last_set: dict[int, tuple[int, ...]] = {}
        self._left_by: dict[int, Mask] = {}
        """Per kind the nodes that it left in this round, so that it does not return at once."""
        self._came: list[Ints] = []
        self._went: list[Ints] = []

    def place_all(self) -> None:
        """Place what is asked for, and what is moved aside for it."""
        # Largest kinds first, as in first-fit decreasing (Johnson, 1973): what is large finds its holes before small
        # pods take them.
        self._left += self._demand.counts
        self._place_down()
        for _ in range(self._limits.exchanges if self._limits.most_ejected else 0):
            if not self._left.any() or not self._exchange():
                break
            self._place_down()

    def result(self) -> Filled:
        """Return what came of it."""
        arrivals, ejections = _net(_gathered(self._came), _gathered(self._went), self._packing.nodes)
        return Filled(arrivals, ejections, self._left.copy(), self._last_costs(), self._stuck())

    def _place_down(self) -> None:
        for kind in self._order.tolist():
            if self._left[kind]:
                self._place_directly(kind)
            if self._left[kind] and self._limits.most_ejected:
                self._place_by_ejection(kind)
            if self._left[kind] and self._limits.most_ejected > 2:  # noqa: PLR2004 - pairs have been tried
                self._place_by_cover(kind)

    def _place_directly(self, kind: int) -> None:
        rest = self._rest_after(kind)
        wishes = ("balanced and even", "balanced", "fillable", "any") if rest.any() else ("any",)
        for wish in wishes:
            for nodes, copies in self._places(kind):
                if wish != "any":
                    copies = self._keep_balance(kind, nodes, copies, rest, lowest=wish == "fillable")  # noqa: PLW2901
                if wish == "balanced and even":
                    copies = self._keep_even(kind, nodes, copies, rest)  # noqa: PLW2901
                self._fill_up(kind, nodes, copies)
                if not self._left[kind]:
                    return

    def _places(self, kind: int) -> Iterator[tuple[Ints, Ints]]:
        """Yield nodes that a kind may go to, and how many pods of it fit, at most those still to place.

        With many nodes some of the fullest come first, where most pods find a place, and then all with room.
        """
        if len(self._nodes) > _MANY_NODES and not self._packing.is_ranked:
            nodes = self._fullest(kind)
            nodes = nodes[self._allowed(kind)[nodes]]
            yield nodes, self._copies(kind, nodes)
        nodes = self._has(kind, self._packing.need[kind]).nonzero()[0]
        yield nodes, self._copies(kind, nodes)

    def _fullest(self, kind: int) -> Ints:
        """Return some of the fullest nodes that may have room for a kind, by an order that may be a little old."""
        if self._changes >= _STALE:
            free = self._packing.weight @ np.maximum(self._room, 0)
            self._by_free = np.argsort(free, kind="stable")
            self._known_free, self._changes = free[self._by_free], 0
        first_with_room = int(np.searchsorted(self._known_free, self._packing.size[kind]))
        return self._by_free[first_with_room : first_with_room + _MANY_NODES]

    def _rest_after(self, kind: int) -> Ints:
        """Return the demand left for the kinds after this one."""
        rest = self._left.copy()
        rest[self._order[: self._rank[kind] + 1]] = 0
        return rest

    def _copies(self, kind: int, nodes: Ints) -> Ints:
        """Return how many pods of a kind fit on nodes, at most those still to place; 0 or less without room for one."""
        copies = np.full(len(nodes), self._left[kind])
        for column in self._packing.asked[kind]:
            copies = np.minimum(copies, self._room[column, nodes] // self._packing.need[kind, column])
        return copies

    def _has(self, kind: int, amounts: Ints) -> Mask:
        """Return the allowed nodes of a kind with these free amounts, of the resources that the kind asks for."""
        mask = self._allowed(kind)
        for column in self._packing.asked[kind]:
            mask = mask & (self._room[column] >= amounts[column])
        return mask

    def _allowed(self, kind: int) -> Mask:
        """Return the allowed nodes of a kind, whatever is on them."""
        key = -1 - kind if kind in self._demand.only_on else int(self._packing.profile[kind])
        if key not in self._may:
            self._may[key] = self._demand.only_on.get(kind, self._packing.allowed(kind))[self._nodes]
        mask = self._may[key]
        return mask & ~self._left_by[kind] if kind in self._left_by else mask

    def _keep_balance(self, kind: int, nodes: Ints, most: Ints, rest: Ints, *, lowest: bool) -> Ints:
        """Return how many pods nodes take with their other resources in balance with the scarcest."""
        need, scarce = self._packing.need[kind], self._packing.binding
        total = rest @ self._packing.need
        if not total[scarce]:
            return most
        needs_asked = self._packing.need[(rest > 0) & (self._packing.need[:, scarce] > 0)] if lowest else None
        for column in range(len(need)):
            if column == scarce or not need[column]:
                continue
            if needs_asked is not None:
                ratio = int((needs_asked[:, column] << _BALANCE_BITS).__floordiv__(needs_asked[:, scarce]).min())
            else:
                ratio = (int(total[column]) << _BALANCE_BITS) // int(total[scarce])
            imbalance = (int(need[column]) << _BALANCE_BITS) - ratio * int(need[scarce])
            if imbalance > 0:
                spare = (self._room[column, nodes] << _BALANCE_BITS) - ratio * self._room[scarce, nodes]
                most = np.minimum(most, np.maximum(spare // imbalance, 0))
        return most

    def _keep_even(self, kind: int, nodes: Ints, most: Ints, rest: Ints) -> Ints:
        """Return how many pods nodes take without an odd rest, which smaller kinds could not fill."""
        scarce = self._packing.binding
        need = int(self._packing.need[kind, scarce])
        unit = int(np.gcd.reduce(self._packing.need[rest > 0, scarce]))
        if unit <= 1 or need % unit == 0:
            return most
        room, even_copies = self._room[scarce, nodes], most
        for _ in range(_PARITY_STEPS):
            leaves_odd_rest = ((room - even_copies * need) % unit != 0) & (even_copies > 0)
            even_copies = even_copies - leaves_odd_rest
        return np.where((room - even_copies * need) % unit == 0, even_copies, 0)

    def _fill_up(self, kind: int, nodes: Ints, most: Ints) -> None:
        """Put up to `most` pods of a kind on each node, the fullest nodes first."""
        nodes, most = nodes[most > 0], most[most > 0]
        if not len(nodes):
            return
        order = self._in_order(nodes, int(self._left[kind]))
        reached = np.cumsum(most[order])
        last_filled = int(np.searchsorted(reached, self._left[kind]))
        nodes, counts = nodes[order[: last_filled + 1]], most[order[: last_filled + 1]].copy()
        if last_filled < len(reached):
            counts[last_filled] -= reached[last_filled] - self._left[kind]
        self._arrive(kind, nodes, counts)

    def _in_order(self, nodes: Ints, count: int) -> Ints:
        """Return the positions of nodes in the order in which they are filled, of at least `count` of them.

        They come by rank, and the fullest first of those with equal rank.
        """
        if self._packing.is_ranked:
            return np.lexsort((self._free[nodes], self._ranks[nodes]))
        return smallest(self._free[nodes], count)

    def _place_by_ejection(self, kind: int) -> None:
        """Put pods where one or two smaller ones make room, the cheapest set first."""
        # An ejection chain (Glover, 1996): what is put out here is placed again by the same means, in smaller and
        # smaller steps.
        for ejected in self._sets.promising(kind, self._room, self._there, self._allowed(kind)):
            if not self._left[kind]:
                return
            gap = self._packing.need[kind] - self._packing.need[list(ejected)].sum(axis=0)
            mask = self._has(kind, gap)
            for ejected_kind in set(ejected):
                mask = mask & (self._there[self._row[ejected_kind]] >= ejected.count(ejected_kind))
            nodes = mask.nonzero()[0]
            if not len(nodes):
                continue
            order = self._in_order(nodes, int(self._left[kind]))[: self._left[kind]]
            for ejected_kind in ejected:
                self._depart(ejected_kind, nodes[order], np.ones(len(order), dtype=np.int64))
            self._arrive(kind, nodes[order], np.ones(len(order), dtype=np.int64))
            self._last_set[kind] = ejected

    def _place_by_cover(self, kind: int) -> None:
        """Place pods where several smaller ones make room: large ones first, the last as small as will do."""
        need, smaller = self._packing.need[kind], self._sets.smaller(kind)
        asked_columns = np.flatnonzero(need)
        allowed_nodes = np.flatnonzero(self._allowed(kind))
        lack = np.maximum(need[asked_columns, None] - self._room[np.ix_(asked_columns, allowed_nodes)], 0)
        taken: dict[int, Ints] = {}
        for smaller_kind in smaller:
            taken[smaller_kind] = self._whole_parts(
                self._packing.need[smaller_kind][asked_columns],
                lack,
                self._there[self._row[smaller_kind], allowed_nodes],
            )
            lack = np.maximum(lack - self._packing.need[smaller_kind][asked_columns, None] * taken[smaller_kind], 0)
        for smaller_kind in reversed(smaller):
            ends = self._packing.need[smaller_kind][asked_columns, None] >= lack
            is_last = (
                (lack > 0).any(axis=0)
                & ends.all(axis=0)
                & (self._there[self._row[smaller_kind], allowed_nodes] > taken[smaller_kind])
            )
            taken[smaller_kind] = taken[smaller_kind] + is_last
            lack[:, is_last] = 0
        number = sum(taken.values(), np.zeros(len(allowed_nodes), dtype=np.int64))
        cost = sum(
            (count * self._cost[cover_kind] for cover_kind, count in taken.items()),
            np.zeros(len(allowed_nodes), dtype=np.int64),
        )
        fitting = np.flatnonzero(~(lack > 0).any(axis=0) & (number <= self._limits.most_ejected) & (number > 0))
        chosen = fitting[np.lexsort((self._ranks[allowed_nodes[fitting]], cost[fitting]))[: self._left[kind]]]
        for smaller_kind, count in taken.items():
            self._depart(smaller_kind, allowed_nodes[chosen], count[chosen])
        self._arrive(kind, allowed_nodes[chosen], np.ones(len(chosen), dtype=np.int64))
        if len(chosen):
            last_node = chosen[-1]
            self._last_set[kind] = tuple(
                cover_kind for cover_kind, count in taken.items() for _ in range(int(count[last_node]))
            )

    @staticmethod
    def _whole_parts(need: Ints, lack: Ints, there: npt.NDArray[np.int32]) -> Ints:
        """Return how many pods of a kind fit into what nodes lack."""
        parts = np.full(lack.shape[1], np.iinfo(np.int64).max)
        for column in need.nonzero()[0]:
            is_short = lack[column] > 0
            parts = np.where(is_short, np.minimum(parts, lack[column] // need[column]), parts)
        useful = (lack[need > 0] > 0).any(axis=0)
        return np.where(useful, np.minimum(parts, there), 0).astype(np.int64)

    def _exchange(self) -> bool:
        """Exchange larger pods for small ones that fill their nodes better; return whether any moved."""
        departures_before = len(self._went)
        self._left_by.clear()
        for kind in self._order[::-1].tolist():
            for larger in self._order[: self._rank[kind]][::-1].tolist():
                if not self._left[kind]:
                    break
                if self._row[larger] >= 0:
                    self._give_way(kind, larger)
        return len(self._went) > departures_before

    def _give_way(self, kind: int, larger: int) -> None:
        need, freed_by_larger, scarce = self._packing.need[kind], self._packing.need[larger], self._packing.binding
        if not need[scarce] < freed_by_larger[scarce] <= _EXCHANGE_RATIO * need[scarce]:
            return
        mask = self._allowed(kind) & (self._there[self._row[larger]] > 0)
        nodes = mask.nonzero()[0]
        fits = np.full(len(nodes), np.iinfo(np.int64).max)
        for column in self._packing.asked[kind]:
            fits = np.minimum(fits, (self._room[column, nodes] + freed_by_larger[column]) // need[column])
        gain = fits * need[scarce] - freed_by_larger[scarce]
        order = np.argsort(-gain, kind="stable")[: int((gain > 0).sum())]
        nodes, fits = nodes[order], fits[order]
        enough = int(np.searchsorted(np.cumsum(fits), self._left[kind])) + 1
        nodes_to_clear = min(len(nodes) // 2 + 1, enough)  # the other half takes the larger pods back
        nodes, fits = nodes[:nodes_to_clear], fits[:nodes_to_clear].copy()
        if len(nodes) and fits.sum() > self._left[kind]:
            fits[-1] -= fits.sum() - self._left[kind]
        if len(nodes):
            gave_way = self._left_by.setdefault(larger, np.zeros(len(self._nodes), dtype=bool))
            gave_way[nodes] = True
            self._depart(larger, nodes, np.ones(len(nodes), dtype=np.int64))
            self._arrive(kind, nodes, fits)

    def _arrive(self, kind: int, nodes: Ints, counts: Ints) -> None:
        self._room[:, nodes] -= self._packing.need[kind][:, None] * counts
        self._free[nodes] -= self._packing.size[kind] * counts
        self._changes += len(nodes)
        self._left[kind] -= counts.sum()
        if self._row[kind] >= 0:
            self._there[self._row[kind], nodes] += counts.astype(np.int32)
        self._came.append(_entries(kind, self._nodes[nodes], counts))

    def _depart(self, kind: int, nodes: Ints, counts: Ints) -> None:
        self._room[:, nodes] += self._packing.need[kind][:, None] * counts
        self._free[nodes] += self._packing.size[kind] * counts
        self._changes += len(nodes)
        self._left[kind] += counts.sum()
        self._there[self._row[kind], nodes] -= counts.astype(np.int32)
        self._went.append(_entries(kind, self._nodes[nodes], counts))

    def _last_costs(self) -> Ints:
        """Return the cost of one more pod of each kind, estimated from the last pod placed."""
        costs = np.full(self._packing.kinds, MOVE, dtype=np.int64)
        for kind in self._order[::-1].tolist():
            if self._left[kind]:
                costs[kind] = min(_HIGHEST_COST, 4 * max(MOVE, int(self._costs_before[kind])))
            elif kind in self._last_set:
                costs[kind] = MOVE + sum(
                    min(int(costs[ejected_kind]), 20 * MOVE) for ejected_kind in self._last_set[kind]
                )
            elif not self._has(kind, self._packing.need[kind]).any():
                costs[kind] = max(2 * MOVE, int(self._costs_before[kind]))
        return costs

    def _stuck(self) -> Ints:
        """Return each node's rest of the scarcest resource, 0 where the smallest kind does not fit into it."""
        stuck = np.zeros(self._packing.nodes, dtype=np.int64)
        binding_need = self._packing.need[:, self._packing.binding]
        rest = self._room[self._packing.binding]
        if (binding_need > 0).any():
            stuck[self._nodes] = np.where(rest >= binding_need[binding_need > 0].min(), rest, 0)
        return stuck


def _entries(kind: int, nodes: Ints, counts: Ints) -> Ints:
    entries = np.empty((len(nodes), 3), dtype=np.int64)
    entries[:, 0], entries[:, 1], entries[:, 2] = kind, nodes, counts
    return entries


def smallest(values: npt.NDArray[np.generic], count: int) -> Ints:
    """Return where the `count` smallest values are, the smallest first and of equal ones the first; may be more."""
    if count < len(values) // 4:
        candidates = np.flatnonzero(values <= np.partition(values, count)[count])
        return candidates[np.argsort(values[candidates], kind="stable")]
    return np.argsort(values, kind="stable")


def _gathered(several: list[Ints]) -> Ints:
    return np.concatenate(several) if several else np.empty((0, 3), dtype=np.int64)


def _net(came: Ints, went: Ints, nodes: int) -> tuple[Ints, Ints]:
    """Return net arrivals and ejections per kind and node."""
    cells = np.concatenate([came[:, 0] * nodes + came[:, 1], went[:, 0] * nodes + went[:, 1]])
    changed_cells, inverse = np.unique(cells, return_inverse=True)
    change = np.zeros(len(changed_cells), dtype=np.int64)
    np.add.at(change, inverse, np.concatenate([came[:, 2], -went[:, 2]]))
    rows = (
        np.stack([changed_cells // nodes, changed_cells % nodes, change], axis=1)
        if nodes
        else np.empty((0, 3), dtype=np.int64)
    )
    net_departures = rows[rows[:, 2] < 0]
    net_departures[:, 2] *= -1
    return rows[rows[:, 2] > 0], net_departures
