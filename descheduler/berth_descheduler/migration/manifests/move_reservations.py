"""The Reservation of a move."""

from datetime import timedelta
from typing import Any, Final

import msgspec

from berth_core import (
    MANAGED_BY_DESCHEDULER,
    MANAGED_LABEL,
    MOVE_ANNOTATION,
    PLAN_LABEL,
    PREEMPTABLE_ANNOTATION,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    ObjectReference,
    PlannedMove,
    deployment_name,
    format_duration,
    reservation_name,
)
from berth_core.object_lists import RawObject
from berth_descheduler.migration.manifests.plans import PlanIdentity, controlled_by
from berth_descheduler.migration.manifests.reservation_templates import build_task, build_template
from berth_kube import controller_reference

TASK_NAME: Final = "pod"


def build_reservation(
    plan: PlanIdentity,
    index: int,
    move: PlannedMove,
    raw_pod: RawObject,
    ttl: timedelta,
    *,
    is_preemptable: bool = False,
) -> dict[str, Any]:
    """Return the Reservation of one move, built from the live pod.

    The template of a preemptable pod is annotated as such, whether the pod or its group was marked: by the annotation
    the placeholder may go where only preemptable pods may. Raises `ValueError` for a pod without a controller.
    """
    owner = controller_reference(raw_pod)
    if owner is None:
        raise ValueError(f"pod {move.namespace}/{move.pod} has no controller that would make it again")
    template = build_template(raw_pod)
    if is_preemptable:
        template["metadata"] = {**template.get("metadata", {}), "annotations": {PREEMPTABLE_ANNOTATION: "true"}}
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": _reservation_metadata(plan, index, move),
        "spec": {
            "schedulerName": raw_pod["spec"].get("schedulerName") or "default-scheduler",
            "owners": [
                {"object": msgspec.to_builtins(owner_reference)} for owner_reference in _move_owners(owner, raw_pod)
            ],
            "ttl": format_duration(ttl),
            "tasks": [build_task(TASK_NAME, template, replicas=1, node=move.target)],
        },
    }


def _move_owners(controller: ObjectReference, raw_pod: RawObject) -> list[ObjectReference]:
    """Return the owners that may take the place: the pod's controller and, as a rollout may come first, its Deployment.

    A StatefulSet gives the new pod the old name, and its pods differ in their claims: no other pod may take the place.
    """
    if controller.kind == "StatefulSet":
        name = raw_pod["metadata"]["name"]
        return [ObjectReference(api_version="v1", kind="Pod", namespace=controller.namespace, name=name)]
    deployment = deployment_name(controller.kind, controller.name, raw_pod["metadata"].get("labels") or {})
    # Without a uid: the pod names its ReplicaSet only, and the Deployment's name follows from that.
    deployment_reference = msgspec.structs.replace(controller, kind="Deployment", name=deployment, uid="")
    return [controller, deployment_reference] if deployment else [controller]


def _reservation_metadata(plan: PlanIdentity, index: int, move: PlannedMove) -> dict[str, Any]:
    return {
        "name": reservation_name(plan.name, move.pod_uid),
        "namespace": move.namespace,
        "labels": {PLAN_LABEL: plan.name, MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
        "annotations": {MOVE_ANNOTATION: str(index)},
        "ownerReferences": [controlled_by(plan)],
    }
