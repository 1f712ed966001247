"""The bodies of MigrationPlans and the patches of their statuses."""

from dataclasses import dataclass
from typing import Any, Final, Self

import msgspec

from berth_core import (
    LONGEST_LABEL_VALUE,
    MANAGED_BY_DESCHEDULER,
    MANAGED_LABEL,
    PLAN_API_VERSION,
    PLAN_KIND,
    POLICY_LABEL,
    Condition,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    PlanPhase,
)

MOST_MOVES: Final = 1000
"""The most moves of one plan. etcd takes requests up to 1.5 MiB (`--max-request-bytes`): with long names, states and
messages it refused 2,000 moves, and 1,500 left little room."""


@dataclass(frozen=True, slots=True)
class PlanIdentity:
    """The identity of a published plan, for references to it."""

    name: str
    uid: str

    @classmethod
    def of(cls, plan: MigrationPlan) -> Self:
        """Return the identity of a plan."""
        return cls(name=plan.metadata.name, uid=plan.metadata.uid)


def build_plan(name: str, spec: MigrationPlanSpec) -> dict[str, Any]:
    """Return a new MigrationPlan, which has the fields that people look for even where they are at their default."""
    body = msgspec.to_builtins(spec)
    body["approved"] = spec.approved
    body["moves"] = [{**msgspec.to_builtins(move), "wave": move.wave} for move in spec.moves]
    body["objective"] = {**msgspec.to_builtins(spec.objective), "plugin": spec.objective.plugin}
    body["objective"]["strategy"] = spec.objective.strategy
    body["trigger"] = spec.trigger
    return {
        "apiVersion": PLAN_API_VERSION,
        "kind": PLAN_KIND,
        "metadata": {"name": name, "labels": plan_labels(spec.policy)},
        "spec": body,
    }


def build_plan_filling(spec: MigrationPlanSpec) -> dict[str, Any]:
    """Return the fields of the spec that fill a requested plan, all at once."""
    body = build_plan("", spec)["spec"]
    field_names = ("approved", "approveBefore", "moves", "nodesBefore", "objective", "predicted", "rooms")
    return {field_name: body[field_name] for field_name in field_names if field_name in body}


def plan_labels(policy: str) -> dict[str, str]:
    """Return the labels of a plan; they name its policy where the policy's name fits into a label value."""
    # A policy's name may have 253 characters, a label value 63: without the label the plan is found by its spec alone.
    policy_label = {POLICY_LABEL: policy} if 0 < len(policy) <= LONGEST_LABEL_VALUE else {}
    return {MANAGED_LABEL: MANAGED_BY_DESCHEDULER, **policy_label}


def build_status_patch(status: MigrationPlanStatus) -> dict[str, Any]:
    """Return a merge patch of a plan's status, with the states of moves and rooms even at their default."""
    body = msgspec.to_builtins(status)
    # A merge patch has no way to change one entry of a list (RFC 7386): all moves are sent each time.
    body["moves"] = [{**msgspec.to_builtins(move), "state": move.state.value} for move in status.moves]
    if status.rooms:
        body["rooms"] = [{**msgspec.to_builtins(room), "state": room.state.value} for room in status.rooms]
    if status.phase is not None and status.phase.terminal:
        body["conditions"] = [msgspec.to_builtins(condition) for condition in _conditions(status, status.phase)]
    return {"status": body}


def _conditions(status: MigrationPlanStatus, phase: PlanPhase) -> tuple[Condition, ...]:
    """Return the conditions of a finished plan, for `kubectl wait --for=condition=Finished`."""
    status_by_type = {"Finished": True, "Succeeded": phase is PlanPhase.SUCCEEDED}
    return tuple(
        Condition(
            type=type_,
            status=str(is_true),
            reason=phase.value,
            message=status.message,
            last_transition_time=status.completion_time or "",
        )
        for type_, is_true in status_by_type.items()
    )


def controlled_by(plan: PlanIdentity) -> dict[str, Any]:
    """Return the reference that ties an object to its plan.

    `blockOwnerDeletion` stays off: with the admission plugin OwnerReferencesPermissionEnforcement, which OpenShift
    enables, it would need a right on the plan's finalizers.
    """
    return {
        "apiVersion": PLAN_API_VERSION,
        "kind": PLAN_KIND,
        "name": plan.name,
        "uid": plan.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }
