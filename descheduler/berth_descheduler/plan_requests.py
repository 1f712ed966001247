"""Owns what people ask of the service through API objects: a run of a policy, an approval, an abort.

It does not own what the service makes of it (`policy_service`), nor who may ask: the API server decides that.
"""

import secrets
from contextlib import suppress

import msgspec

from berth_core import migration_plans
from berth_core.clock import Clock
from berth_core.errors import PermanentError
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, PlanPhase, RunMode
from berth_core.names import plan_name, requested_plan_name
from berth_core.policies import DeschedulerPolicy
from berth_descheduler.execution.plan_objects import plan_labels
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, InvalidObjectError
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS

REQUEST_TRIGGER = "Request"
"""What a plan that somebody asked for says of its trigger."""


class PlanStateError(PermanentError):
    """The plan is not in a state in which this can be asked of it."""


def request_run(
    client: KubeClient,
    clock: Clock,
    policy: str,
    *,
    mode: RunMode | None = None,
    requested_by: str = "",
    idempotency_key: str = "",
) -> MigrationPlan:
    """Ask for a run of a policy and return the plan that it will fill, in the phase Requested.

    Without a mode the policy's counts. A key makes asking again the same as asking once: the plan that is there is
    returned, however far it is. Raises `NotFoundError` where there is no such policy, and `PlanStateError` where the
    key was used for another request.
    """
    wanted = client.get(DESCHEDULER_POLICIES, policy, type=DeschedulerPolicy)
    spec = MigrationPlanSpec(
        policy=policy, trigger=REQUEST_TRIGGER, mode=mode or wanted.spec.mode, requested_by=requested_by
    )
    name = plan_name(clock.now().strftime("%Y%m%d-%H%M%S"), secrets.token_hex(8))
    if idempotency_key:
        name = requested_plan_name(requested_by, idempotency_key)
    try:
        return client.create(MIGRATION_PLANS, build_requested_plan(name, spec), type=MigrationPlan)
    except AlreadyExistsError:
        found = client.get(MIGRATION_PLANS, name, type=MigrationPlan)
    asked = (found.spec.policy, found.spec.requested_by, found.spec.mode if mode else None)
    if asked != (policy, requested_by, mode):
        raise PlanStateError(f"the key was used for another request: plan {name} is of policy {found.spec.policy}")
    return found


def approve(client: KubeClient, plan: str, *, asked_by: str = "") -> MigrationPlan:
    """Let a plan be carried out and return it; raises `NotFoundError`, or `PlanStateError` where it is too late.

    `asked_by` is noted, unless somebody approved it before.
    """
    found = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
    if found.spec.mode is RunMode.PLAN:
        raise PlanStateError(f"plan {plan} is only shown: run policy {found.spec.policy} in the mode Approve or Auto")
    if found.phase.terminal:
        raise PlanStateError(f"plan {plan} is over: it is {found.phase.value}")
    if found.spec.aborted:
        raise PlanStateError(f"plan {plan} is being aborted")
    if found.phase is PlanPhase.REQUESTED:
        raise PlanStateError(f"plan {plan} has no moves yet: wait until it is Proposed")
    return _decide(client, plan, "approved", "" if found.spec.approved else asked_by)


def abort(client: KubeClient, plan: str, *, asked_by: str = "") -> MigrationPlan:
    """Ask that a plan is brought to a safe end and return it; raises `NotFoundError`, or `PlanStateError` if it is.

    `asked_by` is noted, unless somebody had it aborted before.
    """
    found = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
    if found.phase.terminal:
        raise PlanStateError(f"plan {plan} is over: it is {found.phase.value}")
    return _decide(client, plan, "aborted", "" if found.spec.aborted else asked_by)


def _decide(client: KubeClient, plan: str, decision: str, asked_by: str) -> MigrationPlan:
    """Set a field of a plan with a note of who asked for it, without the note where somebody else was a moment before.

    The API server keeps the first note, and refuses the write that would change it.
    """
    spec: dict[str, bool | str] = {decision: True}
    if asked_by:
        with suppress(InvalidObjectError):
            body = {"spec": {**spec, f"{decision}By": asked_by}}
            return client.merge_patch(MIGRATION_PLANS, plan, body, type=MigrationPlan)
    return client.merge_patch(MIGRATION_PLANS, plan, {"spec": spec}, type=MigrationPlan)


def build_requested_plan(name: str, spec: MigrationPlanSpec) -> dict[str, object]:
    """Return a plan that is asked for: without moves, which the service finds."""
    return {
        "apiVersion": migration_plans.API_VERSION,
        "kind": migration_plans.KIND,
        "metadata": {"name": name, "labels": plan_labels(spec.policy)},
        "spec": msgspec.to_builtins(spec),
    }
