"""Plans in the API: published, requested, approved, aborted; their status, events and Leases.

And what those that have ended say of cool-downs, refilled nodes and pods sent back.
"""

import secrets
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, assert_never

import msgspec
import structlog
from msgspec.structs import replace

from berth_core import (
    DESCHEDULER_LEASE,
    LEADER_LEASE,
    PLAN_API_VERSION,
    PLAN_KIND,
    POLICY_API_VERSION,
    POLICY_KIND,
    BerthError,
    Clock,
    DeschedulerPolicy,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    MoveMethod,
    MoveState,
    MoveStatus,
    Objective,
    ObjectReference,
    PermanentError,
    PlannedMove,
    PlanPhase,
    Predicted,
    RunMode,
    Snapshot,
    format_timestamp,
    parse_timestamp,
    plan_name,
    requested_plan_name,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.manifests import build_plan, build_plan_filling, build_status_patch, plan_labels
from berth_descheduler.outcome import Outcome, Verdict
from berth_descheduler.planner import Plan, record_nodes, resource_type_of
from berth_descheduler.settings import Approval, CycleSettings
from berth_descheduler.telemetry import COMPONENT, EventReason, PodEventReason, PolicyEventReason
from berth_kube import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    AlreadyExistsError,
    InvalidObjectError,
    KubeClient,
    LeaseHolder,
    NotFoundError,
    record_event,
)

_LOG = structlog.get_logger(__name__)

_UNDECIDED = frozenset({Verdict.LEASE_HELD, Verdict.STOPPED, Verdict.PLAN_DELETED})
"""Verdicts after which a requested plan is still to fill, or is gone."""


def publish_plan(
    client: KubeClient, clock: Clock, settings: CycleSettings, found: Plan, request: MigrationPlan | None
) -> MigrationPlan:
    """Publish a plan, new or into the requested one.

    Approves it at once where no approval is needed. Raises `NotFoundError` where the requested plan was deleted
    meanwhile.
    """
    spec = build_spec(clock, settings, found)
    if request is None:
        name = settings.plan_name or plan_name(clock.now().strftime("%Y%m%d-%H%M%S"), secrets.token_hex(8))
        published = client.create(MIGRATION_PLANS, build_plan(name, spec), type=MigrationPlan)
    else:
        name = request.metadata.name
        published = client.merge_patch(MIGRATION_PLANS, name, build_plan_filling(spec), type=MigrationPlan)
    if not published.spec.aborted:
        _write_phase(client, name, PlanPhase.APPROVED if spec.approved else PlanPhase.PROPOSED)
    _LOG.info(telemetry.PLAN_PUBLISHED, **{telemetry.KEY_PLAN: name, telemetry.KEY_MOVES: len(spec.moves)})
    return published


def build_spec(clock: Clock, settings: CycleSettings, found: Plan) -> MigrationPlanSpec:
    """Return the spec of a plan that is published now."""
    approve_before = None
    if settings.mode is RunMode.APPROVE:
        approve_before = format_timestamp(clock.now() + timedelta(seconds=settings.approval_seconds))
    return MigrationPlanSpec(
        policy=settings.policy,
        trigger=settings.trigger,
        mode=settings.mode,
        objective=found.objective,
        approved=settings.approval is Approval.AUTO,
        approve_before=approve_before,
        moves=_with_method(found.moves, settings.moves),
        rooms=found.rooms,
        predicted=replace(found.predicted, nodes=len(found.before.nodes)),
        nodes_before=record_nodes(
            found.before, resource_type_of(found.objective), freed=found.freed_nodes, moves=found.moves
        ),
    )


def _with_method(moves: Sequence[PlannedMove], method: MoveMethod) -> tuple[PlannedMove, ...]:
    """Return the moves with their method; an eviction without a place stays one."""
    return tuple(move if move.is_eviction else replace(move, method=method) for move in moves)


def conclude_request(client: KubeClient, clock: Clock, request: MigrationPlan, outcome: Outcome) -> None:
    """Record the outcome on a requested plan that got no moves."""
    if outcome.published or outcome.plan is not None or outcome.verdict in _UNDECIDED:
        return
    nothing = outcome.verdict is Verdict.NOTHING_TO_MOVE
    planned, objective = outcome.forecast.predicted, outcome.forecast.objective
    if nothing or planned is not None:
        predicted = Predicted(
            nodes=planned.nodes if planned else 0,
            moves=0,
            waves=0,
            restrictions=planned.restrictions if planned else (),
        )
        asked = {"objective": msgspec.to_builtins(objective)} if objective is not None else {}
        filling = {"spec": {"moves": [], "predicted": msgspec.to_builtins(predicted), **asked}}
        try:
            client.merge_patch(MIGRATION_PLANS, request.metadata.name, filling)
        except NotFoundError:
            return
    end_plan(client, clock, request, PlanPhase.SUCCEEDED if nothing else PlanPhase.ABORTED, outcome.sentence)


def end_plan(client: KubeClient, clock: Clock, plan: MigrationPlan, phase: PlanPhase, message: str) -> None:
    """End an unbegun plan in a phase with a message.

    Ignores a plan that is gone.
    """
    status = MigrationPlanStatus(phase=phase, message=message, completion_time=format_timestamp(clock.now()))
    try:
        client.merge_patch(MIGRATION_PLANS, plan.metadata.name, build_status_patch(status), subresource="status")
    except NotFoundError:
        return
    _LOG.info(telemetry.PLAN_ENDED, **{telemetry.KEY_PLAN: plan.metadata.name, telemetry.KEY_MESSAGE: message})


def _write_phase(client: KubeClient, name: str, phase: PlanPhase) -> None:
    patch = build_status_patch(MigrationPlanStatus(phase=phase))
    del patch["status"]["moves"]
    client.merge_patch(MIGRATION_PLANS, name, patch, subresource="status")


# --- announcements ---------------------------------------------------------------------------------------------------
# Kubernetes events on plans, policies and pods, for `kubectl describe`.

_MOST_REFUSED: Final = 20

_PATIENCE_SECONDS: Final = 5.0
"""How long each event of an eviction may occupy a thread."""


def announce(
    client: KubeClient,
    clock: Clock,
    about: MigrationPlan | DeschedulerPolicy,
    reason: EventReason | PolicyEventReason,
    message: str,
    *,
    bad: bool = False,
) -> None:
    """Record an event on a plan or policy.

    It is a warning where `bad`; a failure is only logged.
    """
    record_event(
        client,
        regarding=_refer_to(about),
        reason=reason.value,
        message=message,
        type="Warning" if bad else "Normal",
        reporting_component=COMPONENT,
        clock=clock,
    )


def announce_eviction(client: KubeClient, clock: Clock, plan: str, move: PlannedMove) -> None:
    """Record an event on an evicted pod and on its controller.

    It names the source, the target or why there is none, and the plan.
    """
    pod = ObjectReference(api_version="v1", kind="Pod", namespace=move.namespace, name=move.pod, uid=move.pod_uid)
    regarded = [(pod, "evicted")]
    if move.owner is not None:
        regarded.append((replace(move.owner, namespace=move.namespace), f"pod {move.pod} was evicted"))
    for regarding, what in regarded:
        place = (
            f"its replacement has a place on {move.target}"
            if move.target
            else f"it has no place elsewhere: {move.reason}"
        )
        message = f"{what} from {move.source} by the plan {plan}; {place}"
        _announce_on(client, clock, regarding, PodEventReason.EVICTED, message)


def announce_surge(client: KubeClient, clock: Clock, plan: str, move: PlannedMove, back: str = "") -> None:
    """Record an event on a pod that a surge move has let go, or has given back, and why."""
    pod = ObjectReference(api_version="v1", kind="Pod", namespace=move.namespace, name=move.pod, uid=move.pod_uid)
    reason = PodEventReason.TAKEN_BACK if back else PodEventReason.LET_GO
    message = f"let go by its ReplicaSet for the plan {plan}, until its replacement on {move.target} is available"
    if back:
        message = f"given back to its ReplicaSet by the plan {plan}: {back}"
    _announce_on(client, clock, pod, reason, message, bad=bool(back))


def announce_starving(client: KubeClient, clock: Clock, found: Plan, snapshot: Snapshot) -> None:
    """Record on a waiting pod of each starving job for which nothing is reserved why that is so."""
    if not found.starving or not found.refused:
        return
    uids = {(pod.metadata.namespace, pod.metadata.name): pod.metadata.uid for pod in snapshot.pods}
    for one in sorted(found.refused, key=lambda one: not one.reason.outlasts_waiting)[:_MOST_REFUSED]:
        uid = uids.get((one.namespace, one.name), "")
        pod = ObjectReference(api_version="v1", kind="Pod", namespace=one.namespace, name=one.name, uid=uid)
        text, bad = f"{one.reason.value}: {one.message}", one.reason.outlasts_waiting
        _announce_on(client, clock, pod, PodEventReason.NOTHING_RESERVED, text, bad=bad)


def _announce_on(
    client: KubeClient,
    clock: Clock,
    regarding: ObjectReference,
    reason: PodEventReason,
    message: str,
    *,
    bad: bool = False,
) -> None:
    """Record an event on a pod or what controls it, without keeping the caller for long."""
    record_event(
        client.within(_PATIENCE_SECONDS),
        regarding=regarding,
        reason=reason.value,
        message=message,
        type="Warning" if bad else "Normal",
        reporting_component=COMPONENT,
        clock=clock,
    )


def _refer_to(about: MigrationPlan | DeschedulerPolicy) -> ObjectReference:
    match about:
        case MigrationPlan():
            kind, api_version = PLAN_KIND, PLAN_API_VERSION
        case DeschedulerPolicy():
            kind, api_version = POLICY_KIND, POLICY_API_VERSION
        case _:
            assert_never(about)
    return ObjectReference.of(api_version, kind, about.metadata)


def note_replanned(client: KubeClient, clock: Clock, plan: str, again: str) -> None:
    """Record on a plan, which is over, which further plan has its rest; a failure is only logged."""
    try:
        found = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
        status = {"replannedAs": again, "message": f"{found.status.message} Planned again as {again}."}
        client.merge_patch(MIGRATION_PLANS, plan, {"status": status}, subresource="status")
    except NotFoundError:
        return
    except BerthError as error:
        _LOG.warning(telemetry.STATUS_FAILED, **{telemetry.KEY_PLAN: plan, telemetry.KEY_ERROR: str(error)})
        return
    message = f"What could not be done any more is planned again as {again}"
    announce(client, clock, found, EventReason.REPLANNED, message)


# --- leases ----------------------------------------------------------------------------------------------------------
# The descheduler's Leases: one for runs, one at a time, and one for the replica that serves policies.


def run_lease(client: KubeClient, clock: Clock, settings: CycleSettings) -> LeaseHolder:
    """Return the holder of the Lease of runs.

    A holder that is kept knows how long the current one has been silent.
    """
    return _lease(client, clock, settings, DESCHEDULER_LEASE)


def leader_lease(client: KubeClient, clock: Clock, settings: CycleSettings) -> LeaseHolder:
    """Return the holder of the leader Lease.

    The leader serves the policies.
    """
    return _lease(client, clock, settings, LEADER_LEASE)


def _lease(client: KubeClient, clock: Clock, settings: CycleSettings, name: str) -> LeaseHolder:
    return LeaseHolder(
        client,
        settings.namespace,
        name,
        settings.identity,
        duration_seconds=settings.lease_seconds,
        clock=clock,
    )


# --- plan requests ---------------------------------------------------------------------------------------------------
# Requests to the service through API objects: a run of a policy, an approval, an abort.

REQUEST_TRIGGER = "Request"
"""The trigger of a requested plan."""

REPLAN_TRIGGER = "Replan"
"""The trigger of a plan of what an earlier plan of the same run could not do any more."""


class PlanStateError(PermanentError):
    """The plan's state does not allow the request."""


def request_run(
    client: KubeClient,
    clock: Clock,
    policy: str,
    *,
    mode: RunMode | None = None,
    requested_by: str = "",
    idempotency_key: str = "",
) -> MigrationPlan:
    """Request a run of a policy and return its Requested plan.

    The run will fill this plan. Without a mode the policy's counts. A key makes the request idempotent: a repeated one
    returns the existing plan, whatever its phase. Raises `NotFoundError` without such a policy, and `PlanStateError`
    where the key was used for another request.
    """
    wanted = client.get(DESCHEDULER_POLICIES, policy, type=DeschedulerPolicy)
    spec = MigrationPlanSpec(
        policy=policy, trigger=REQUEST_TRIGGER, mode=mode or wanted.spec.mode, requested_by=requested_by
    )
    return _request(client, clock, spec, idempotency_key, any_mode=mode is None)


def request_drain(
    client: KubeClient,
    clock: Clock,
    objective: Objective,
    *,
    mode: RunMode,
    requested_by: str = "",
    idempotency_key: str = "",
) -> MigrationPlan:
    """Request a drain and return its Requested plan, as `request_run` does for a policy."""
    spec = MigrationPlanSpec(trigger=REQUEST_TRIGGER, mode=mode, requested_by=requested_by, objective=objective)
    return _request(client, clock, spec, idempotency_key)


def _request(
    client: KubeClient, clock: Clock, spec: MigrationPlanSpec, idempotency_key: str, *, any_mode: bool = False
) -> MigrationPlan:
    """Create a requested plan, or return the one of the same key; raises `PlanStateError` if that is another's."""
    name = plan_name(clock.now().strftime("%Y%m%d-%H%M%S"), secrets.token_hex(8))
    if idempotency_key:
        name = requested_plan_name(spec.requested_by, idempotency_key)
    try:
        return client.create(MIGRATION_PLANS, build_requested_plan(name, spec), type=MigrationPlan)
    except AlreadyExistsError:
        found = client.get(MIGRATION_PLANS, name, type=MigrationPlan)
    if not _asks_the_same(found.spec, spec, any_mode=any_mode):
        of_what = f"of policy {found.spec.policy}" if found.spec.policy else "of another drain"
        raise PlanStateError(f"the key was used for another request: plan {name} is {of_what}")
    return found


def _asks_the_same(one: MigrationPlanSpec, other: MigrationPlanSpec, *, any_mode: bool) -> bool:
    """Return whether two requests ask for the same; the objective of a policy's plan comes with its moves."""
    if (one.policy, one.requested_by) != (other.policy, other.requested_by):
        return False
    return (any_mode or one.mode is other.mode) and (bool(one.policy) or one.objective == other.objective)


def approve(client: KubeClient, plan: str, *, asked_by: str = "") -> MigrationPlan:
    """Approve a plan and return it.

    Raises `NotFoundError`, or `PlanStateError` where its mode or state forbids it. Records `asked_by`, unless the plan
    was approved before.
    """
    found = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
    if found.spec.mode is RunMode.PLAN:
        again = f"run policy {found.spec.policy}" if found.spec.policy else "ask for it again"
        raise PlanStateError(f"plan {plan} is only shown: {again} in the mode Approve or Auto")
    if found.phase.terminal:
        raise PlanStateError(f"plan {plan} is over: it is {found.phase.value}")
    if found.spec.aborted:
        raise PlanStateError(f"plan {plan} is being aborted")
    if found.phase is PlanPhase.REQUESTED:
        raise PlanStateError(f"plan {plan} has no moves yet: wait until it is Proposed")
    return _decide(client, plan, "approved", "" if found.spec.approved else asked_by)


def abort(client: KubeClient, plan: str, *, asked_by: str = "") -> MigrationPlan:
    """Request a plan's abort and return the plan.

    Raises `NotFoundError`, or `PlanStateError` if it is over. Records `asked_by`, unless an abort was requested before.
    """
    found = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
    if found.phase.terminal:
        raise PlanStateError(f"plan {plan} is over: it is {found.phase.value}")
    return _decide(client, plan, "aborted", "" if found.spec.aborted else asked_by)


def _decide(client: KubeClient, plan: str, decision: str, asked_by: str) -> MigrationPlan:
    """Record a decision on a plan and who made it.

    Leaves out the name where another client was first: the API server keeps the first name, and refuses a write that
    would change it.
    """
    spec: dict[str, bool | str] = {decision: True}
    if asked_by:
        with suppress(InvalidObjectError):
            body = {"spec": {**spec, f"{decision}By": asked_by}}
            return client.merge_patch(MIGRATION_PLANS, plan, body, type=MigrationPlan)
    return client.merge_patch(MIGRATION_PLANS, plan, {"spec": spec}, type=MigrationPlan)


def build_requested_plan(name: str, spec: MigrationPlanSpec) -> dict[str, object]:
    """Return a requested plan, without moves: the service finds them."""
    return {
        "apiVersion": PLAN_API_VERSION,
        "kind": PLAN_KIND,
        "metadata": {"name": name, "labels": plan_labels(spec.policy)},
        "spec": msgspec.to_builtins(spec),
    }


# --- status writer ---------------------------------------------------------------------------------------------------
# Writes a plan's status on change, and no more often than an interval allows.

_WRITES_APART: Final = 5
"""Of the time that a write takes, from one to the next."""


class PlanStatusWriter:
    """Writes the status of one plan in the background.

    Only the newest status counts.
    """

    def __init__(self, client: KubeClient, plan: str, pool: Executor, *, interval_seconds: float, clock: Clock) -> None:
        self._client = client
        self._plan = plan
        self._pool = pool
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._written: MigrationPlanStatus | None = None
        self._begun_at: float | None = None
        self._writing: Future[bool] | None = None
        self._write_seconds = 0.0
        """How long the last write took; a large plan on a busy API server is written less often."""

    def offer(self, status: MigrationPlanStatus) -> None:
        """Begin to write a changed status.

        Does nothing while a write is under way or too recent.
        """
        if self._writing is not None and self._writing.done():
            if not self._writing.result():
                self._written = None
            self._writing = None
        now = self._clock.monotonic()
        interval = max(self._interval_seconds, _WRITES_APART * self._write_seconds)
        too_soon = self._begun_at is not None and now - self._begun_at < interval
        if self._writing is not None or too_soon or status == self._written:
            return
        self._begun_at, self._written = now, status
        self._writing = self._pool.submit(self._write, status)

    def _write(self, status: MigrationPlanStatus) -> bool:
        begun_at = self._clock.monotonic()
        written = write_status(self._client, self._plan, status)
        self._write_seconds = self._clock.monotonic() - begun_at
        return written


def write_status(client: KubeClient, plan: str, status: MigrationPlanStatus) -> bool:
    """Write a plan's status and return whether that worked.

    The status is only for people, so a failure stops nothing.
    """
    try:
        client.merge_patch(MIGRATION_PLANS, plan, build_status_patch(status), subresource="status")
    except NotFoundError:
        return True
    except BerthError as error:
        _LOG.warning(telemetry.STATUS_FAILED, **{telemetry.KEY_PLAN: plan, telemetry.KEY_ERROR: str(error)})
        return False
    return True


# --- plans that have ended --------------------------------------------------------------------------------------------
# What they moved counts for cool-downs; deleted plans no longer count.

PING_PONG_WINDOW: Final = timedelta(hours=24)
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
    arrivals = _follow(_since(plans, now - PING_PONG_WINDOW))
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
