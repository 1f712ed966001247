"""Requests to the service through API objects: a run of a policy, a drain, an approval, an abort."""

import secrets
from contextlib import suppress

import msgspec

from berth_core import (
    PLAN_API_VERSION,
    PLAN_KIND,
    Clock,
    DeschedulerPolicy,
    MigrationPlan,
    MigrationPlanSpec,
    Objective,
    PlanPhase,
    RunMode,
    plan_name,
    requested_plan_name,
)
from berth_descheduler.migration.manifests.plans import plan_labels
from berth_descheduler.migration.plans.conflicts import PlanStateError
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, AlreadyExistsError, InvalidObjectError, KubeClient

REQUEST_TRIGGER = "Request"
"""The trigger of a requested plan."""

REPLAN_TRIGGER = "Replan"
"""The trigger of a plan of what an earlier plan of the same run could not do any more."""


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
