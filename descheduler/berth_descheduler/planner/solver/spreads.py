"""The spreads over domains that the integer program knows: those of pods that differ in nothing, with `maxSkew: 1`.

A pod comes only to a domain in which there are then at most one more than in the lowest. So the lowest count never
falls: a pod from there finds a place in no other domain. And a domain to which pods came has at most one more than the
lowest in the end, however many it had before. With a larger skew neither holds.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from berth_descheduler.planner.simulation import State
from berth_descheduler.planner.solver.model import Ints, PackingModel

_MOST_DOMAINS: Final = 32
"""A spread over more has a row for each in the program, and tells it little."""


@dataclass(frozen=True)
class KindSpread:
    """A spread of one kind over domains."""

    kind: int
    domain_of: Ints  # (nodes,), -1 for nodes in no domain
    counts: Ints  # (domains,), pods of the kind, whether they may be moved or not


def read_spreads(packing: PackingModel, state: State) -> tuple[KindSpread, ...]:
    """Return the spreads of the kinds of which pods may be moved."""
    kinds = np.unique(packing.pod_kind[packing.pod_kind >= 0])
    spreads = []
    for kind in kinds[packing.dependent[kinds]].tolist():
        for spread in state.topology_spread.own_spreads(packing.class_of[kind]):
            if len(spread.counts) > _MOST_DOMAINS:
                continue
            number = {domain: position for position, domain in enumerate(sorted(spread.counts))}
            domain_of = [-1 if domain is None else number[domain] for domain in spread.domain_of]
            counts = [spread.counts[domain] for domain in number]
            spreads.append(KindSpread(kind, np.array(domain_of, dtype=np.int64), np.array(counts, dtype=np.int64)))
    return tuple(spreads)
