"""Owns the listing of all ways in which one node can be filled: a count per kind, each within the node's room.

It does not own the program that chooses one way per node.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from berth_descheduler.planner.packing.columns import Ints


def list_patterns(need: Ints, limits: Ints, most: Ints, at_most: int) -> tuple[Ints, ...] | None:
    """Return per place the patterns (patterns, kinds); None if there are more than `at_most` in all.

    need: (kinds, resources), limits: (resources, places), most: (places, kinds) of each kind at each place.
    """
    found: list[Ints] = []
    known: dict[bytes, Ints] = {}
    left = at_most
    for place in range(limits.shape[1]):
        limit, bound = limits[:, place], most[place]
        key = limit.tobytes() + bound.tobytes()
        if key not in known:
            listed = _list(need.tolist(), limit.tolist(), bound.tolist(), left)
            if listed is None:
                return None
            known[key] = np.array(listed, dtype=np.int64).reshape(-1, len(need))
        left -= len(known[key])
        if left < 0:
            return None
        found.append(known[key])
    return tuple(found)


def _list(
    need: Sequence[Sequence[int]], limit: Sequence[int], most: Sequence[int], at_most: int
) -> list[tuple[int, ...]] | None:
    found: list[tuple[int, ...]] = []
    for pattern in _fillings(need, tuple(limit), most, 0):
        found.append(pattern)
        if len(found) > at_most:
            return None
    return found


def _fillings(
    need: Sequence[Sequence[int]], room: tuple[int, ...], most: Sequence[int], kind: int
) -> Iterator[tuple[int, ...]]:
    """Yield every way to fill a room with the kinds from one on."""
    if kind == len(need):
        yield ()
        return
    row = need[kind]
    for count in range(most[kind] + 1):
        left = tuple(have - count * asked for have, asked in zip(room, row, strict=True))
        if any(asked and rest < 0 for asked, rest in zip(row, left, strict=True)):
            return
        for rest_of_it in _fillings(need, left, most, kind + 1):
            yield (count, *rest_of_it)
