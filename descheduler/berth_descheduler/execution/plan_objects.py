"""Owns the bodies of all objects and patches that the descheduler sends; every function here is pure.

It does not send them, and it does not own a Reservation's template (`reservation_templates`).
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Self

import msgspec

from berth_core import migration_plans, reservations
from berth_core.durations import format_duration
from berth_core.labels import (
    HANDOVER_GATE,
    MANAGED_BY_DESCHEDULER,
    MANAGED_LABEL,
    MOVE_ANNOTATION,
    PLAN_LABEL,
    POLICY_LABEL,
)
from berth_core.matching import deployment_name
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, MigrationPlanStatus, PlannedMove, PlanPhase
from berth_core.names import reservation_name
from berth_core.reservations import Condition, ObjectReference
from berth_descheduler.execution.reservation_templates import RawObject, build_task, build_template

TASK_NAME: Final = "pod"

_LONGEST_LABEL: Final = 63

MOST_MOVES: Final = 1000
"""The most moves of one plan. etcd takes objects up to 1.5 MiB: with long names, states and messages 2,000 moves were
refused, and 1,500 left little room."""


@dataclass(frozen=True, slots=True)
class PlanIdentity:
    """What other objects need to know of a published plan."""

    name: str
    uid: str

    @classmethod
    def of(cls, plan: MigrationPlan) -> Self:
        """Return that of a plan."""
        return cls(name=plan.metadata.name, uid=plan.metadata.uid)


def build_plan(name: str, spec: MigrationPlanSpec) -> dict[str, Any]:
    """Return a MigrationPlan to be created; fields that people look for are written even at their defaults."""
    body = msgspec.to_builtins(spec)
    body["approved"] = spec.approved
    body["moves"] = [{**msgspec.to_builtins(move), "wave": move.wave} for move in spec.moves]
    body["objective"] = {**msgspec.to_builtins(spec.objective), "plugin": spec.objective.plugin}
    body["objective"]["strategy"] = spec.objective.strategy
    body["trigger"] = spec.trigger
    return {
        "apiVersion": migration_plans.API_VERSION,
        "kind": migration_plans.KIND,
        "metadata": {"name": name, "labels": plan_labels(spec.policy)},
        "spec": body,
    }


def build_plan_filling(spec: MigrationPlanSpec) -> dict[str, Any]:
    """Return a merge patch that gives a plan that was asked for what was found, all of it at once."""
    body = build_plan("", spec)["spec"]
    kept = ("approved", "approveBefore", "moves", "nodesBefore", "objective", "predicted", "rooms")
    return {"spec": {name: body[name] for name in kept if name in body}}


def plan_labels(policy: str) -> dict[str, str]:
    """Return the labels of a plan; the policy's name is among them where it is short enough for a label's value."""
    named = {POLICY_LABEL: policy} if 0 < len(policy) <= _LONGEST_LABEL else {}
    return {MANAGED_LABEL: MANAGED_BY_DESCHEDULER, **named}


def build_status_patch(status: MigrationPlanStatus) -> dict[str, Any]:
    """Return a merge patch of a plan's status; a move's state is written even where it is the default."""
    body = msgspec.to_builtins(status)
    body["moves"] = [{**msgspec.to_builtins(move), "state": move.state.value} for move in status.moves]
    if status.rooms:
        body["rooms"] = [{**msgspec.to_builtins(room), "state": room.state.value} for room in status.rooms]
    if status.phase is not None and status.phase.terminal:
        body["conditions"] = [msgspec.to_builtins(condition) for condition in _conditions(status, status.phase)]
    return {"status": body}


def _conditions(status: MigrationPlanStatus, phase: PlanPhase) -> tuple[Condition, ...]:
    """Return the conditions of a plan that is over, for `kubectl wait --for=condition=Finished`; it has none before."""
    truths = {"Finished": True, "Succeeded": phase is PlanPhase.SUCCEEDED}
    return tuple(
        Condition(
            type=type_,
            status=str(truth),
            reason=phase.value,
            message=status.message,
            last_transition_time=status.completion_time or "",
        )
        for type_, truth in truths.items()
    )


def controller_reference(raw_pod: RawObject) -> ObjectReference | None:
    """Return the pod's controller as a Reservation's owner names it, None if nothing makes the pod again."""
    metadata = raw_pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return ObjectReference(
                api_version=owner["apiVersion"],
                kind=owner["kind"],
                namespace=metadata.get("namespace", ""),
                name=owner["name"],
                uid=owner["uid"],
            )
    return None


def build_reservation(
    plan: PlanIdentity, index: int, move: PlannedMove, raw_pod: RawObject, ttl: timedelta
) -> dict[str, Any]:
    """Return the Reservation of one move, made from the live pod; raises `ValueError` if that has no controller."""
    owner = controller_reference(raw_pod)
    if owner is None:
        raise ValueError(f"pod {move.namespace}/{move.pod} has no controller that would make it again")
    return {
        "apiVersion": reservations.API_VERSION,
        "kind": reservations.KIND,
        "metadata": _reservation_metadata(plan, index, move),
        "spec": {
            "schedulerName": raw_pod["spec"].get("schedulerName", "default-scheduler"),
            "owners": [{"object": msgspec.to_builtins(one)} for one in _owners(owner, raw_pod)],
            "ttl": format_duration(ttl),
            "tasks": [build_task(TASK_NAME, build_template(raw_pod), replicas=1, node=move.target)],
        },
    }


def _owners(controller: ObjectReference, raw_pod: RawObject) -> list[ObjectReference]:
    """Return who may take the place: the pod's controller, and its Deployment, for a rollout may come first.

    A StatefulSet names the new pod as the old one, and its pods differ in their claims: no other may take the place.
    """
    if controller.kind == "StatefulSet":
        return [ObjectReference(api_version="v1", kind="Pod", namespace=controller.namespace, name=_name(raw_pod))]
    deployment = deployment_name(controller.kind, controller.name, raw_pod["metadata"].get("labels") or {})
    behind = msgspec.structs.replace(controller, kind="Deployment", name=deployment, uid="")
    return [controller, behind] if deployment else [controller]


def _name(raw_pod: RawObject) -> str:
    return str(raw_pod["metadata"]["name"])


def _reservation_metadata(plan: PlanIdentity, index: int, move: PlannedMove) -> dict[str, Any]:
    return {
        "name": reservation_name(plan.name, move.pod_uid),
        "namespace": move.namespace,
        "labels": {PLAN_LABEL: plan.name, MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
        "annotations": {MOVE_ANNOTATION: str(index)},
        "ownerReferences": [controlled_by(plan)],
    }


def controlled_by(plan: PlanIdentity) -> dict[str, Any]:
    """Return the reference that ties an object to its plan.

    `blockOwnerDeletion` stays off: it would need a right on the plan's finalizers.
    """
    return {
        "apiVersion": migration_plans.API_VERSION,
        "kind": migration_plans.KIND,
        "name": plan.name,
        "uid": plan.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def build_ungate_operations(raw_pod: RawObject) -> list[dict[str, Any]]:
    """Return JSON patch operations that take Berth's own gate off exactly this pod; none where it has none.

    The very entry is tested, so that a list of gates that has changed is not hit at the wrong place.
    """
    operations: list[dict[str, Any]] = []
    gates = raw_pod["spec"].get("schedulingGates") or ()
    for index in reversed(range(len(gates))):
        if gates[index].get("name") == HANDOVER_GATE:
            path = f"/spec/schedulingGates/{index}"
            operations.append({"op": "test", "path": f"{path}/name", "value": HANDOVER_GATE})
            operations.append({"op": "remove", "path": path})
    same = {"op": "test", "path": "/metadata/uid", "value": raw_pod["metadata"]["uid"]}
    return [same, *operations] if operations else []
