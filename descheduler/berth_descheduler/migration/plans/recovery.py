"""Cleans up after interrupted runs and decides which of their plans continue.

The cycle itself continues them. Recovery runs while the Lease of runs is held, so no other run is alive.
"""

from collections.abc import Callable, Collection, Iterable
from datetime import datetime
from enum import Enum, auto
from typing import assert_never

import structlog
from msgspec.structs import replace

from berth_core import (
    BerthError,
    Clock,
    InputError,
    MigrationPlan,
    MigrationPlanStatus,
    MoveMethod,
    Node,
    PlanPhase,
    format_timestamp,
    parse_timestamp,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.nodes.plan_taints import left_over_nodes, untaint_nodes
from berth_descheduler.migration.plans.abort import abort_plan
from berth_descheduler.migration.plans.binding import CAME_BACK
from berth_kube import MIGRATION_PLANS, KubeClient, Note, NotFoundError, Returned, released_pods, take_back

_LOG = structlog.get_logger(__name__)


class RecoveryAction(Enum):
    """What a new run does with a plan that it finds."""

    CONTINUE = auto()
    ABORT_AS_OLD = auto()
    ABORT_AS_SUPERSEDED = auto()
    ABORT_AS_NOT_BEGUN = auto()
    ABORT_AS_ASKED = auto()
    ABORT_AS_COME_BACK = auto()
    LEAVE = auto()


def choose_recovery(plan: MigrationPlan, now: datetime, adoption_seconds: float) -> RecoveryAction:
    """Return what to do with a plan.

    A plan that began continues while it is young. A plan that was aborted half-way continues, too, to bring home the
    pods that it has evicted.

    An unbegun plan with a mode belongs to the service. Only the run that made a plan without a mode begins it, after
    its approval: any user could have written it.
    """
    if plan.phase.terminal:
        return RecoveryAction.LEAVE
    if plan.came_back and (plan.spec.mode is None or plan.phase is PlanPhase.RUNNING):
        return RecoveryAction.ABORT_AS_COME_BACK
    return _judge_begun(plan, now, adoption_seconds) if plan.phase is PlanPhase.RUNNING else _judge_unbegun(plan)


def _judge_unbegun(plan: MigrationPlan) -> RecoveryAction:
    if plan.spec.mode is not None:
        return RecoveryAction.LEAVE
    if plan.is_aborted:
        return RecoveryAction.ABORT_AS_ASKED
    return RecoveryAction.ABORT_AS_NOT_BEGUN if plan.spec.approved else RecoveryAction.ABORT_AS_SUPERSEDED


def _judge_begun(plan: MigrationPlan, now: datetime, adoption_seconds: float) -> RecoveryAction:
    try:
        begun_at = plan.status.start_time or plan.metadata.creation_timestamp
        age_seconds = (now - parse_timestamp(begun_at)).total_seconds() if begun_at else 0.0
    except InputError:
        return RecoveryAction.ABORT_AS_OLD
    return RecoveryAction.CONTINUE if age_seconds <= adoption_seconds else RecoveryAction.ABORT_AS_OLD


def recover_plans(
    client: KubeClient, clock: Clock, adoption_seconds: float, read_nodes: Callable[[], Iterable[Node]]
) -> tuple[MigrationPlan, ...]:
    """Abort plans of ended runs and remove their taints; return the plans to continue, oldest first.

    A plan that cannot be aborted now waits for the next run and blocks no other. `read_nodes` returns all nodes as
    they are once the plans are aborted.
    """
    continued_plans = []
    for plan in client.list(MIGRATION_PLANS, type=MigrationPlan).items:
        match choose_recovery(plan, clock.now(), adoption_seconds):
            case RecoveryAction.LEAVE:
                continue
            case RecoveryAction.CONTINUE:
                continued_plans.append(plan)
                continue
            case RecoveryAction.ABORT_AS_OLD:
                message = "aborted: the run was interrupted too long ago to be continued"
            case RecoveryAction.ABORT_AS_SUPERSEDED:
                message = "aborted: it was never approved, and a new run makes a new plan"
            case RecoveryAction.ABORT_AS_NOT_BEGUN:
                message = (
                    "aborted: only the berth run that makes a plan without spec.mode begins it; "
                    "a plan for the service names its policy and says mode: Approve"
                )
            case RecoveryAction.ABORT_AS_ASKED:
                message = "aborted: an abort was requested before it began"
            case RecoveryAction.ABORT_AS_COME_BACK:
                message = CAME_BACK
            case action:
                assert_never(action)
        try:
            abort_plan(client, plan, clock, message)
        except BerthError as error:
            keys = {telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_ERROR: str(error)}
            _LOG.warning(telemetry.CHORE_FAILED, **keys)
    live = {plan.metadata.name for plan in continued_plans}
    # After the aborts, whose taints are left over by now, and whether or not a plan still names them: a deleted plan
    # cannot.
    untaint_nodes(client, left_over_nodes(read_nodes(), live))
    take_back_released(client, live, clock.now())
    return tuple(sorted(continued_plans, key=lambda plan: (plan.metadata.creation_timestamp or "", plan.metadata.name)))


def take_back_released(client: KubeClient, live: Collection[str], now: datetime) -> None:
    """Give the pods that ended runs let go back to their ReplicaSets.

    A pod whose ReplicaSet is gone is evicted if its plan still moves it.
    """
    for raw_pod in released_pods(client, live, now):
        metadata = raw_pod["metadata"]
        namespace, pod_name, uid = metadata["namespace"], metadata["name"], metadata["uid"]
        note = Note.read(metadata.get("annotations") or {})
        keys = {telemetry.KEY_POD: f"{namespace}/{pod_name}", telemetry.KEY_PLAN: note.plan}
        try:
            returned = take_back(client, namespace, pod_name, uid=uid, replica_set=note.replica_set)
            if returned is Returned.DONE:
                _LOG.info(telemetry.TAKEN_BACK, **keys)
            elif _is_planned(client, note.plan, uid):
                # The version is that of the pod without a controller: if one has adopted it since, it stays.
                client.evict(namespace, pod_name, uid=uid, resource_version=metadata["resourceVersion"])
                _LOG.info(telemetry.EVICTED, **keys)
            else:
                _LOG.warning(telemetry.TAKE_BACK_FAILED, **keys, **{telemetry.KEY_ERROR: "its ReplicaSet is gone"})
        except BerthError as error:
            _LOG.warning(telemetry.TAKE_BACK_FAILED, **keys, **{telemetry.KEY_ERROR: str(error)})


def _is_planned(client: KubeClient, plan: str, uid: str) -> bool:
    """Return whether a plan of this name moves the pod."""
    try:
        stored_plan = client.get(MIGRATION_PLANS, plan, type=MigrationPlan) if plan else None
    except NotFoundError:
        return False
    return stored_plan is not None and any(
        move.pod_uid == uid and move.method is MoveMethod.SURGE for move in stored_plan.spec.moves
    )


def status_of_new_run(clock: Clock, plan: MigrationPlan) -> MigrationPlanStatus:
    """Return the status with which a run begins; a continued plan keeps its record."""
    start = plan.status.start_time or format_timestamp(clock.now())
    return replace(plan.status, phase=PlanPhase.RUNNING, start_time=start, moves=plan.move_statuses)
