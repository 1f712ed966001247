"""Which nodes a plan has freed, and which will be free once pods that are on their way out have ended.

A replacement may be Ready long before the pod before it has ended: that has its grace period, and a pod whose kubelet
is away or that a finalizer holds never ends. A node is freed when no pod is left on it but those of DaemonSets and
mirror pods. Until then a plan says what is open in its status, and nothing on the node says anything: an autoscaler
would end the pods by removing the node. The run waits a while; the service's sweep and later runs go on from the
plan's status.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec
import structlog

from berth_core import (
    Achieved,
    BerthError,
    Clock,
    FreedMarks,
    MigrationPlan,
    MoveReason,
    MoveStatus,
    PlannedMove,
    Pod,
    is_dns_subdomain,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.manifests.plans import build_status_patch
from berth_descheduler.migration.moves.overdue_pods import is_overdue, why_it_stays
from berth_descheduler.migration.nodes.freed_marks import FreedMark, Freeing, Wanted, mark_freed
from berth_descheduler.migration.nodes.pods import read_pods_on
from berth_descheduler.migration.nodes.unready import why_not_ready
from berth_descheduler.outcome import describe_freed, describe_freeing
from berth_descheduler.settings import FreedNodes
from berth_kube import MIGRATION_PLANS, KubeClient, NotFoundError

_LOG = structlog.get_logger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.1
_LONGEST_PAUSE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class SourcesLeft:
    """What is left on the sources of a plan's moves; names are sorted."""

    freed: tuple[str, ...] = ()
    freeing: tuple[str, ...] = ()
    """Only pods are left that the plan moved, all on their way out, none of them overdue."""

    ending: tuple[Pod, ...] = ()
    """The pods that are left on those."""

    stuck: tuple[Pod, ...] = ()
    """Moved pods that are overdue, whatever else is left on their nodes."""


def read_sources(client: KubeClient, moves: Iterable[PlannedMove], *, now: datetime, end_seconds: float) -> SourcesLeft:
    """Return what is left on the moves' sources.

    Pods on their way out that the plan did not move keep a node from being freed, as in the planner.
    """
    planned_moves = tuple(moves)
    moved_uids = {move.pod_uid for move in planned_moves}
    freed_nodes, freeing_nodes, ending_pods, stuck_pods = [], [], [], []
    for source in sorted({move.source for move in planned_moves if is_dns_subdomain(move.source)}):
        pods = [pod for pod in read_pods_on(client, frozenset({source})) if pod.occupies_node]
        leaving_pods = [pod for pod in pods if pod.is_terminating and pod.metadata.uid in moved_uids]
        overdue_pods = [pod for pod in leaving_pods if is_overdue(pod, now, end_seconds)]
        stuck_pods += overdue_pods
        if not pods:
            freed_nodes.append(source)
        elif len(leaving_pods) == len(pods) and not overdue_pods:
            freeing_nodes.append(source)
            ending_pods += leaving_pods
    return SourcesLeft(tuple(freed_nodes), tuple(freeing_nodes), tuple(ending_pods), tuple(stuck_pods))


def await_sources(
    client: KubeClient,
    clock: Clock,
    moves: Collection[PlannedMove],
    *,
    end_seconds: float,
    is_over: Callable[[], bool],
) -> SourcesLeft:
    """Wait until no moved pod is on its way out any more, no longer than `end_seconds`; return what is left then."""
    sources = read_sources(client, moves, now=clock.now(), end_seconds=end_seconds)
    deadline, pause = clock.monotonic() + end_seconds, _FIRST_PAUSE_SECONDS
    while sources.freeing and not is_over() and (seconds_left := deadline - clock.monotonic()) > 0:
        clock.sleep(min(pause, seconds_left))
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        open_moves = [move for move in moves if move.source in sources.freeing]
        sources_now = read_sources(client, open_moves, now=clock.now(), end_seconds=end_seconds)
        freed_nodes = tuple(sorted({*sources.freed, *sources_now.freed}))
        sources = SourcesLeft(
            freed_nodes, sources_now.freeing, sources_now.ending, (*sources.stuck, *sources_now.stuck)
        )
    return sources


def why_they_stay(client: KubeClient, stuck: Collection[Pod]) -> dict[str, str]:
    """Return what keeps pods from ending, by their uids; asks once about each of their nodes."""
    problems = {node: why_not_ready(client, node) or "" for node in {pod.spec.node_name for pod in stuck}}
    return {pod.metadata.uid: why_it_stays(pod, problems[pod.spec.node_name]) for pod in stuck}


def note_stuck(
    client: KubeClient, moves: Sequence[PlannedMove], statuses: Sequence[MoveStatus], stuck: Collection[Pod]
) -> tuple[MoveStatus, ...]:
    """Return the moves' statuses; where a move succeeded but its pod has not ended, the status says why."""
    pods = {pod.metadata.uid: pod for pod in stuck}
    reasons = why_they_stay(client, stuck)

    def note(move: PlannedMove, status: MoveStatus) -> MoveStatus:
        pod = pods.get(move.pod_uid)
        if pod is None or not status.state.succeeded or status.reason:
            return status
        message = f"the pod was evicted and has not ended on {pod.spec.node_name}: {reasons[move.pod_uid]}"
        return msgspec.structs.replace(status, reason=MoveReason.POD_STAYS.value, message=message)

    return tuple(map(note, moves, statuses))


def settle_freed_nodes(
    client: KubeClient,
    clock: Clock,
    plans: Iterable[MigrationPlan],
    *,
    end_seconds: float,
    wanted: Wanted | None = None,
) -> tuple[str, ...]:
    """Mark the nodes that have become free since their plans ended, record that, and return them.

    A node that others use by now, or whose pods have not ended in time, is given up. `wanted` returns what a node
    should carry now; without it that is what the run that freed it wanted. The next sweep retries what fails.
    """
    freed_nodes: list[str] = []
    for plan in plans:
        achieved = plan.status.achieved
        if not plan.phase.terminal or achieved is None or not achieved.freeing_nodes:
            continue
        try:
            freed_nodes += _settle(client, clock, plan, achieved, end_seconds, wanted)
        except BerthError as error:
            keys = {telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.MARK_FAILED, **keys)
    return tuple(freed_nodes)


def _settle(
    client: KubeClient,
    clock: Clock,
    plan: MigrationPlan,
    achieved: Achieved,
    end_seconds: float,
    wanted: Wanted | None,
) -> tuple[str, ...]:
    moves = [move for move in plan.spec.moves if move.source in achieved.freeing_nodes]
    sources_left = read_sources(client, moves, now=clock.now(), end_seconds=end_seconds)
    # A write that says nothing new would wake every watch of plans at each look.
    if sources_left.freeing == achieved.freeing_nodes and len(sources_left.ending) == achieved.ending_pods:
        return ()
    marks_to_carry = _marks_to_carry(plan, wanted)
    if sources_left.freed and marks_to_carry is not None:
        mark_freed(client, clock, sources_left.freed, Freeing(plan.metadata.name, plan.spec.policy, marks_to_carry))
    # The record comes after the marks: a process that ends between them leaves the record as it was.
    try:
        patch = _build_patch(
            plan, achieved, sources_left, note_stuck(client, plan.spec.moves, plan.move_statuses, sources_left.stuck)
        )
        client.merge_patch(MIGRATION_PLANS, plan.metadata.name, patch, subresource="status")
    except NotFoundError:
        pass
    return sources_left.freed


def _marks_to_carry(plan: MigrationPlan, wanted: Wanted | None) -> FreedNodes | None:
    """Return the marks that the plan's run wanted on freed nodes and that are still wanted; None for none at all."""
    marks = plan.status.freed_marks
    if marks is None:
        return None
    if wanted is None:
        return FreedNodes(taint=marks.taint, annotations=marks.annotations)
    now = wanted(
        FreedMark(at="", plan=plan.metadata.name, policy=plan.spec.policy, annotations=dict(marks.annotations))
    )
    annotations = {key: value for key, value in marks.annotations.items() if now.annotations.get(key) == value}
    return FreedNodes(taint=marks.taint and now.taint, annotations=annotations)


def marks_of(carries: FreedNodes) -> FreedMarks | None:
    """Return the freed nodes' marks as a plan's status records them, None where they carry nothing."""
    return None if carries.nothing else FreedMarks(taint=carries.taint, annotations=dict(carries.annotations))


def _build_patch(
    plan: MigrationPlan, before: Achieved, left: SourcesLeft, moves: tuple[MoveStatus, ...]
) -> dict[str, Any]:
    freed_nodes = tuple(sorted({*before.freed_nodes, *left.freed}))
    now = msgspec.structs.replace(
        before,
        freed_nodes=freed_nodes,
        freed_node_count=len(freed_nodes),
        freeing_nodes=left.freeing,
        ending_pods=len(left.ending),
        stuck_pods=before.stuck_pods + len(left.stuck),
    )
    # Only the sentences on freed nodes change; where another version has worded them, the message stays as it is.
    message = plan.status.message.replace(describe_freed(before), describe_freed(now), 1)
    if (sentence := describe_freeing(before)) and sentence in message:
        message = message.replace(sentence, describe_freeing(now), 1)
    status = msgspec.structs.replace(plan.status, achieved=now, message=message, moves=moves)
    written_status = build_status_patch(status)["status"]
    changed_fields = {
        key: written_status[key] for key in ("achieved", "message", "conditions", *(("moves",) if left.stuck else ()))
    }
    # A merge patch removes a member by null (RFC 7386).
    return {"status": {**changed_fields, **({} if left.freeing else {"freedMarks": None})}}
