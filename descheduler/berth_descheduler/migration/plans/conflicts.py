"""What a plan's mode or state forbids; REST answers such a request with 409."""

from berth_core import MigrationPlan, MigrationPlanSpec, PermanentError, PlanPhase, RunMode


class PlanStateError(PermanentError):
    """The plan's state does not allow the request."""


def refuse_approval(plan: MigrationPlan) -> None:
    """Raise `PlanStateError` where a plan's mode or state forbids its approval."""
    name, policy = plan.metadata.name, plan.spec.policy
    if plan.spec.mode is RunMode.PLAN:
        how_to_ask_again = f"run policy {policy}" if policy else "ask for it again"
        raise PlanStateError(f"plan {name} is only shown: {how_to_ask_again} in the mode Approve or Auto")
    refuse_abort(plan)
    if plan.is_aborted:
        raise PlanStateError(f"plan {name} is being aborted")
    if plan.phase is PlanPhase.REQUESTED:
        raise PlanStateError(f"plan {name} has no moves yet: wait until it is Proposed")


def refuse_abort(plan: MigrationPlan) -> None:
    """Raise `PlanStateError` for a plan that is over, about which nothing can be decided any more."""
    if plan.phase.terminal:
        raise PlanStateError(f"plan {plan.metadata.name} is over: it is {plan.phase.value}")


def refuse_other_request(known: MigrationPlan, spec: MigrationPlanSpec, *, any_mode: bool) -> None:
    """Raise `PlanStateError` where a request has the idempotency key of another one."""
    if not _ask_for_the_same(known.spec, spec, any_mode=any_mode):
        subject = f"of policy {known.spec.policy}" if known.spec.policy else "of another drain"
        raise PlanStateError(f"the key was used for another request: plan {known.metadata.name} is {subject}")


def _ask_for_the_same(known: MigrationPlanSpec, spec: MigrationPlanSpec, *, any_mode: bool) -> bool:
    """Return whether two requests ask for the same; the objective of a policy's plan comes with its moves."""
    if (known.policy, known.requested_by) != (spec.policy, spec.requested_by):
        return False
    return (any_mode or known.mode is spec.mode) and (bool(known.policy) or known.objective == spec.objective)
