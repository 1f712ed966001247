"""Requests to the service through API objects: a run of a policy, a drain, an approval, an abort."""

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

import msgspec

from berth_core import (
    PLAN_API_VERSION,
    PLAN_KIND,
    Clock,
    DeschedulerPolicy,
    MigrationPlan,
    MigrationPlanSpec,
    Objective,
    RunMode,
    format_timestamp,
    plan_name,
    requested_plan_name,
)
from berth_descheduler.migration.manifests.plans import plan_labels
from berth_descheduler.migration.plans.conflicts import (
    PlanStateError,
    refuse_abort,
    refuse_approval,
    refuse_other_request,
)
from berth_descheduler.migration.plans.looked_at import LookedAt, refuse_another_plan
from berth_kube import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    AlreadyExistsError,
    ConflictError,
    InvalidObjectError,
    KubeClient,
    NotFoundError,
)

REQUEST_TRIGGER = "Request"
"""The trigger of a requested plan."""

_REQUEST_LASTS: Final = timedelta(hours=24)

REPLAN_TRIGGER = "Replan"
"""The trigger of a plan of what an earlier plan of the same run could not do any more."""

_TRIES: Final = 5
"""How often an approval looks at a plan that others write to at the same time."""


def request_run(
    client: KubeClient,
    clock: Clock,
    policy: str,
    *,
    mode: RunMode | None = None,
    requested_by: str = "",
    idempotency_key: str = "",
    name_secret: bytes = b"",
) -> MigrationPlan:
    """Request a run of a policy and return its Requested plan.

    The run will fill this plan. Without a mode the policy's counts. A key makes the request idempotent: a repeated one
    returns the existing plan, whatever its phase; with `name_secret` no other caller can know, and take, its name.
    Raises `NotFoundError` without such a policy, and `PlanStateError` where the key was used for another request.
    """
    # Read first, so that a wrong name is refused here and not by a plan that ends an hour later.
    stored_policy = client.get(DESCHEDULER_POLICIES, policy, type=DeschedulerPolicy)
    spec = MigrationPlanSpec(
        policy=policy,
        trigger=REQUEST_TRIGGER,
        mode=mode or stored_policy.spec.mode,
        requested_by=requested_by,
        approve_before=_latest_begin(clock),
    )
    return _request(client, clock, spec, idempotency_key, name_secret, any_mode=mode is None)


def request_drain(
    client: KubeClient,
    clock: Clock,
    objective: Objective,
    *,
    mode: RunMode,
    requested_by: str = "",
    idempotency_key: str = "",
    name_secret: bytes = b"",
) -> MigrationPlan:
    """Request a drain and return its Requested plan, as `request_run` does for a policy."""
    spec = MigrationPlanSpec(
        trigger=REQUEST_TRIGGER,
        mode=mode,
        requested_by=requested_by,
        objective=objective,
        approve_before=_latest_begin(clock),
    )
    return _request(client, clock, spec, idempotency_key, name_secret)


def _latest_begin(clock: Clock) -> str:
    """Return until when a request counts: one that comes back from a backup later requests nothing."""
    return format_timestamp(clock.now() + _REQUEST_LASTS)


def _request(
    client: KubeClient,
    clock: Clock,
    spec: MigrationPlanSpec,
    idempotency_key: str,
    name_secret: bytes,
    *,
    any_mode: bool = False,
) -> MigrationPlan:
    """Create a requested plan, or return the one of the same key; raises `PlanStateError` if that is another's."""
    name = plan_name(clock.now().strftime("%Y%m%d-%H%M%S"), secrets.token_hex(8))
    if idempotency_key:
        name = requested_plan_name(spec.requested_by, idempotency_key, name_secret)
    if idempotency_key and name_secret:
        # A plan that was asked for before its name depended on a secret counts; another's under that name does not.
        with suppress(NotFoundError, PlanStateError):
            earlier_plan = client.get(
                MIGRATION_PLANS, requested_plan_name(spec.requested_by, idempotency_key), type=MigrationPlan
            )
            refuse_other_request(earlier_plan, spec, any_mode=any_mode)
            return earlier_plan
    try:
        return client.create(MIGRATION_PLANS, build_requested_plan(name, spec), type=MigrationPlan)
    # Two requests with one key have one name, so that etcd decides which of them comes first.
    except AlreadyExistsError:
        stored_plan = client.get(MIGRATION_PLANS, name, type=MigrationPlan)
    refuse_other_request(stored_plan, spec, any_mode=any_mode)
    return stored_plan


def approve(client: KubeClient, plan: str, looked_at: LookedAt, *, asked_by: str = "") -> MigrationPlan:
    """Approve the plan that was looked at and return it, recording `asked_by` if it was not approved before.

    Raises `NotFoundError`, `PlanStateError` where its mode or state forbids it, and `AnotherPlanError` where it is not
    the plan that was looked at.
    """
    for remaining_tries in reversed(range(_TRIES)):
        stored_plan = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
        refuse_another_plan(client, stored_plan, looked_at)
        refuse_approval(stored_plan)
        # With both in the patch, the API server answers 409 where the plan was changed or made again since it was
        # looked at.
        metadata = {"uid": stored_plan.metadata.uid, "resourceVersion": stored_plan.metadata.resource_version}
        try:
            asker = "" if stored_plan.spec.approved else asked_by
            return _decide(client, plan, "approved", asker, metadata=metadata)
        except ConflictError:  # another wrote in between: maybe only the plan's status
            if not remaining_tries:
                raise
    raise AssertionError("the last try returns or raises")


def abort(client: KubeClient, plan: str, *, asked_by: str = "") -> MigrationPlan:
    """Request a plan's abort and return the plan; raises `NotFoundError`, or `PlanStateError` if it is over.

    It records `asked_by`, unless an abort was requested before.
    """
    stored_plan = client.get(MIGRATION_PLANS, plan, type=MigrationPlan)
    refuse_abort(stored_plan)
    # Without a resourceVersion: to stop is right whatever has changed meanwhile.
    return _decide(client, plan, "aborted", "" if stored_plan.spec.aborted else asked_by)


def _decide(
    client: KubeClient, plan: str, decision: str, asked_by: str, *, metadata: dict[str, str] | None = None
) -> MigrationPlan:
    """Record a decision on a plan and who made it; raises `ConflictError` where `metadata` is not the plan's.

    The name is left out where another client was first: the API server keeps the first name, and refuses a write that
    would change it.
    """
    body: dict[str, Any] = {"spec": {decision: True}, **({"metadata": metadata} if metadata else {})}
    if asked_by:
        with suppress(InvalidObjectError):
            named_body = {**body, "spec": {decision: True, f"{decision}By": asked_by}}
            return client.merge_patch(MIGRATION_PLANS, plan, named_body, type=MigrationPlan)
    return client.merge_patch(MIGRATION_PLANS, plan, body, type=MigrationPlan)


def build_requested_plan(name: str, spec: MigrationPlanSpec) -> dict[str, object]:
    """Return a requested plan, without moves: the service finds them."""
    return {
        "apiVersion": PLAN_API_VERSION,
        "kind": PLAN_KIND,
        "metadata": {"name": name, "labels": plan_labels(spec.policy)},
        "spec": msgspec.to_builtins(spec),
    }
