"""What plans that have ended moved: it counts for cool-downs, refilled nodes and pods sent back.

Deleted plans no longer count.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from berth_core import MigrationPlan, MoveReason, MoveState, MoveStatus, PlannedMove, read_timestamp
from berth_descheduler.framework.interfaces import FailedMoves, PastMove

PING_PONG_PERIOD: Final = timedelta(hours=24)
"""How long a move counts as undone by a later one."""

PodName = tuple[str, str]

_NOT_OF_THE_POD: Final = frozenset(
    {
        MoveReason.SOURCE_NOT_EMPTIABLE,
        MoveReason.SIBLING_NOT_READY,
        MoveReason.PODS_WAITING,
        MoveReason.PLAN_STOPPED,
        MoveReason.OUTDATED,
        MoveReason.ABORTED,
        MoveReason.INTERRUPTED,
    }
)
"""Reasons that say nothing about the move's pod: the plan stopped, or waited for something else."""

_AWAY: Final = frozenset({MoveState.EVICTED, MoveState.LANDED, MoveState.ELSEWHERE, MoveState.REMOVED})
"""The pod has left its node, or is on its way."""


@dataclass(frozen=True, slots=True)
class _Arrival:
    """The last move of a pod, and the nodes that it and its predecessors left."""

    at: datetime
    left: frozenset[str] = field(default_factory=frozenset)


def find_pods_in_cooldown(
    plans: Iterable[MigrationPlan], now: datetime, cool_down: timedelta
) -> dict[PodName, datetime]:
    """Return the pods that plans moved within a cool-down, and when."""
    arrivals = _follow(_since(plans, now - cool_down))
    return {pod_name: arrival.at for pod_name, arrival in arrivals.items() if arrival.at > now - cool_down}


def find_moved_pods(plans: Iterable[MigrationPlan], now: datetime) -> dict[PodName, datetime]:
    """Return the pods that plans moved within the last day, and when."""
    return find_pods_in_cooldown(plans, now, PING_PONG_PERIOD)


def find_last_moves(
    plans: Iterable[MigrationPlan], policy: str, *, with_proposed: bool = True
) -> tuple[PlannedMove, ...]:
    """Return the moves of the youngest plan of a policy, or of the runs by hand; () if there is none with moves.

    Unless `with_proposed`, only plans that were begun count: whoever may create plans may propose any moves.
    """
    of_policy = [
        plan
        for plan in plans
        if plan.spec.policy == policy and plan.spec.moves and (with_proposed or plan.status.start_time)
    ]
    youngest = max(
        of_policy, key=lambda plan: (plan.metadata.creation_timestamp or "", plan.metadata.name), default=None
    )
    return () if youngest is None else youngest.spec.moves


def find_failed_moves(plans: Iterable[MigrationPlan], policy: str) -> dict[str, FailedMoves]:
    """Return the pods whose last moves by a policy failed, by uid.

    Moves that were not begun for reasons of the plan, or of the process, neither count nor end a row of failures.
    """
    failed: dict[str, FailedMoves] = {}
    is_over = set[str]()
    # Newest first, so that a pod's row of failures ends at its last success.
    for ended_at, plan in reversed(_by_end(plan for plan in plans if plan.spec.policy == policy)):
        for move, status in zip(plan.spec.moves, plan.move_statuses, strict=True):
            if not move.pod_uid or move.pod_uid in is_over or not status.state.terminal:
                continue
            if status.reason in _NOT_OF_THE_POD:
                continue
            if status.state not in {MoveState.FAILED, MoveState.SKIPPED}:
                # A success ends the row: only failures since then say something about the pod.
                is_over.add(move.pod_uid)
                continue
            newest = failed.get(move.pod_uid)
            first = FailedMoves(1, ended_at)
            failed[move.pod_uid] = first if newest is None else replace(newest, times=newest.times + 1)
    return failed


def find_moves_of_others(plans: Iterable[MigrationPlan], policy: str) -> tuple[PastMove, ...]:
    """Return the pods with a controller that plans of other policies than this one took off their nodes."""
    return tuple(
        PastMove(move.owner.uid, move.source, begun_at)
        for plan in plans
        if plan.spec.policy != policy and (begun_at := read_timestamp(plan.status.start_time)) is not None
        for move, status in zip(plan.spec.moves, plan.move_statuses, strict=True)
        if move.owner is not None and (status.state in _AWAY or _was_brought(status))
    )


def find_refilled(
    plans: Iterable[MigrationPlan], nodes: Collection[str], now: datetime, within: timedelta
) -> Mapping[str, str]:
    """Return which of `nodes` plans freed `within` the last time, each with the last plan that did.

    A node to empty that was freed recently has been filled again: to free it once more would not
    last.
    """
    freed_by_plan: dict[str, str] = {}
    for plan in _since(plans, now - within):
        for node in plan.status.achieved.freed_nodes if plan.status.achieved else ():
            if node in nodes and any(move.source == node for move in plan.spec.moves):
                freed_by_plan[node] = plan.metadata.name
    return freed_by_plan


def count_ping_pong(
    plans: Iterable[MigrationPlan], moved: Sequence[tuple[PlannedMove, MoveStatus]], now: datetime, rest: timedelta
) -> int:
    """Return how many pods a plan sent back, or moved again within their cool-down `rest`.

    A pod is sent back when it comes to a node that one of the earlier `plans` moved it or a predecessor off within the
    last day.
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
    yield from (plan for ended_at, plan in _by_end(plans) if ended_at > since)


def _by_end(plans: Iterable[MigrationPlan]) -> list[tuple[datetime, MigrationPlan]]:
    """Return the plans that have ended, each with its end, in that order."""
    ended_plans = [(ended_at, plan) for plan in plans if (ended_at := _ended_at(plan)) is not None]
    return sorted(ended_plans, key=lambda ended_plan: (ended_plan[0], ended_plan[1].metadata.name))


def _ended_at(plan: MigrationPlan) -> datetime | None:
    ended_at = plan.status.completion_time or (plan.status.start_time if plan.phase.terminal else None)
    return read_timestamp(ended_at)


def _follow(plans: Iterable[MigrationPlan]) -> dict[PodName, _Arrival]:
    """Return the pods that plans moved, each by its last replacement."""
    arrivals: dict[PodName, _Arrival] = {}
    for plan in plans:
        ended_at = _ended_at(plan)
        for move, status in zip(plan.spec.moves, plan.move_statuses, strict=True):
            if ended_at is None or not _was_brought(status):
                continue
            # Followed by name from replacement to replacement: each has a new uid, and Deployments' pods new names.
            earlier_arrival = arrivals.pop((move.namespace, move.pod), None)
            nodes_left_behind = frozenset({move.source}) | (earlier_arrival.left if earlier_arrival else frozenset())
            arrivals[move.namespace, status.replacement] = _Arrival(ended_at, nodes_left_behind)
    return arrivals


def _was_brought(status: MoveStatus) -> bool:
    """Return whether a move evicted a pod and its replacement is known."""
    was_evicted = status.state.succeeded or status.state in {MoveState.ELSEWHERE, MoveState.FAILED}
    return bool(status.replacement) and was_evicted
