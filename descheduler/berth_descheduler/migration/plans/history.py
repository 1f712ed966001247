"""What plans that have ended moved: it counts for cool-downs, refilled nodes and pods sent back.

Deleted plans no longer count.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from berth_core import MigrationPlan, MoveState, MoveStatus, PlannedMove, parse_timestamp

PING_PONG_PERIOD: Final = timedelta(hours=24)
"""How long a move counts as undone by a later one."""

PodName = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Arrival:
    """The last move of a pod, and the nodes it left.

    The nodes include those of its predecessors.
    """

    at: datetime
    left: frozenset[str] = field(default_factory=frozenset)


def find_pods_in_cooldown(
    plans: Iterable[MigrationPlan], now: datetime, cool_down: timedelta
) -> dict[PodName, datetime]:
    """Return the pods that plans moved within a cool-down, and when."""
    arrivals = _follow(_since(plans, now - cool_down))
    return {name: arrival.at for name, arrival in arrivals.items() if arrival.at > now - cool_down}


def find_refilled(
    plans: Iterable[MigrationPlan], nodes: Collection[str], now: datetime, within: timedelta
) -> Mapping[str, str]:
    """Return which nodes were freed recently, each with its last plan.

    `within` says how recently; the plan is the last that freed the node. A node to empty that was freed recently has
    been filled again: to free it once more would not last.
    """
    freed: dict[str, str] = {}
    for plan in _since(plans, now - within):
        for node in plan.status.achieved.freed_nodes if plan.status.achieved else ():
            if node in nodes and any(move.source == node for move in plan.spec.moves):
                freed[node] = plan.metadata.name
    return freed


def count_ping_pong(
    plans: Iterable[MigrationPlan], moved: Sequence[tuple[PlannedMove, MoveStatus]], now: datetime, rest: timedelta
) -> int:
    """Return how many pods a plan sent back or moved too soon.

    Too soon means again within their cool-down. A pod is sent back when it comes to a node that one of the earlier
    `plans` moved it or a predecessor off within the last day.
    """
    arrivals = _follow(_since(plans, now - PING_PONG_PERIOD))
    count = 0
    for move, status in moved:
        arrival = arrivals.get((move.namespace, move.pod))
        if arrival is not None and _was_brought(status):
            count += (status.node or move.target) in arrival.left or arrival.at > now - rest
    return count


def _since(plans: Iterable[MigrationPlan], since: datetime) -> Iterator[MigrationPlan]:
    """Yield the plans that ended since then, in that order."""
    ended = [(at, plan.metadata.name, plan) for plan in plans if (at := _ended_at(plan)) is not None and at > since]
    yield from (plan for _, _, plan in sorted(ended, key=lambda one: one[:2]))


def _ended_at(plan: MigrationPlan) -> datetime | None:
    ended = plan.status.completion_time or (plan.status.start_time if plan.phase.terminal else None)
    return parse_timestamp(ended) if ended else None


def _follow(plans: Iterable[MigrationPlan]) -> dict[PodName, _Arrival]:
    """Return the pods that plans moved, each by its last replacement."""
    arrivals: dict[PodName, _Arrival] = {}
    for plan in plans:
        at = _ended_at(plan)
        for move, status in zip(plan.spec.moves, plan.move_statuses, strict=True):
            if at is None or not _was_brought(status):
                continue
            before = arrivals.pop((move.namespace, move.pod), None)
            left = frozenset({move.source}) | (before.left if before else frozenset())
            arrivals[move.namespace, status.replacement] = _Arrival(at, left)
    return arrivals


def _was_brought(status: MoveStatus) -> bool:
    """Return whether a move evicted a pod and its replacement is known."""
    evicted = status.state.succeeded or status.state in {MoveState.ELSEWHERE, MoveState.FAILED}
    return bool(status.replacement) and evicted
