"""Builds the objects and patches that the descheduler sends.

Every function is pure.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

import msgspec

from berth_core import (
    HANDOVER_TAINT,
    MANAGED_BY_DESCHEDULER,
    MANAGED_LABEL,
    MOVE_ANNOTATION,
    PLAN_API_VERSION,
    PLAN_KIND,
    PLAN_LABEL,
    POLICY_LABEL,
    PREEMPTABLE_ANNOTATION,
    PREFIX,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    ROOM_ANNOTATION,
    ROOM_TAINT,
    STARVING_JOB_LABEL,
    Capacity,
    Condition,
    Fence,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    ObjectReference,
    PlannedMove,
    PlanPhase,
    PodSpec,
    Reservation,
    Room,
    deployment_name,
    effective_requests,
    format_duration,
    job_uid,
    parse_selector,
    parse_timestamp,
    reservation_name,
)
from berth_core.decoding import convert
from berth_kube import controller_reference

# --- reservation templates -------------------------------------------------------------------------------------------
# What a Reservation's template keeps of a live pod: what scheduling sees, and nothing secret.
#
# The template is made from the raw pod: decoding would lose scheduling fields that are unknown here. Whatever admission
# and the API server added to the live pod is removed, because the replacement does not carry it yet when the webhook
# compares the two, and because a pod that carries both would be refused.

RawObject = Mapping[str, Any]

_KEPT_AS_THEY_ARE: Final = (
    "affinity",
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "nodeSelector",
    "os",
    "overhead",
    "priorityClassName",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "topologySpreadConstraints",
)
_KEPT_OF_A_CONTAINER: Final = ("name", "image", "resources", "ports", "restartPolicy")
_KEPT_WITHOUT_A_CLASS: Final = ("priority", "preemptionPolicy")
_DEFAULT_TOLERATIONS: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_DEFAULT_TOLERATION_SECONDS: Final = 300


def build_template(raw_pod: RawObject) -> dict[str, Any]:
    """Return the pod template that reserves a place for the pod's replacement.

    It has the form `{metadata, spec}`.
    """
    labels = _own_labels((raw_pod.get("metadata") or {}).get("labels") or {})
    template: dict[str, Any] = {"spec": _spec(raw_pod["spec"], labels)}
    if labels:
        template["metadata"] = {"labels": labels}
    return template


def build_task(name: str, template: RawObject, *, replicas: int, node: str) -> dict[str, Any]:
    """Return a Reservation's task on one node.

    Sets `requestsNothing` where the template requests nothing.
    """
    task: dict[str, Any] = {
        "name": name,
        "replicas": replicas,
        "template": template,
        "reservationNodeNames": [node],
    }
    asked = effective_requests(convert(template["spec"], PodSpec))
    return task if asked.keys() else task | {"requestsNothing": True}


def _own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in labels.items() if not key.startswith(f"{PREFIX}/")}


def _spec(raw: RawObject, labels: Mapping[str, str]) -> dict[str, Any]:
    spec: dict[str, Any] = {key: raw[key] for key in _KEPT_AS_THEY_ARE if raw.get(key)}
    if not raw.get("priorityClassName"):
        spec |= {key: raw[key] for key in _KEPT_WITHOUT_A_CLASS if raw.get(key)}
    if tolerations := [one for one in raw.get("tolerations") or () if not _was_added(one)]:
        spec["tolerations"] = tolerations
    if "affinity" in spec:
        spec["affinity"] = _without_merged_labels(spec["affinity"], labels)
    if "topologySpreadConstraints" in spec:
        spec["topologySpreadConstraints"] = [_unmerged(one, labels) for one in spec["topologySpreadConstraints"]]
    if raw.get("initContainers"):
        spec["initContainers"] = [_container(one) for one in raw["initContainers"]]
    spec["containers"] = [_container(one) for one in raw["containers"]]
    return spec


def _container(raw: RawObject) -> dict[str, Any]:
    return {key: raw[key] for key in _KEPT_OF_A_CONTAINER if raw.get(key)}


def _was_added(toleration: RawObject) -> bool:
    """Return whether admission or the operator added the toleration."""
    if toleration.get("key") in {HANDOVER_TAINT, ROOM_TAINT}:
        return True
    return (
        toleration.get("key") in _DEFAULT_TOLERATIONS
        and toleration.get("operator") == "Exists"
        and toleration.get("effect") == "NoExecute"
        and toleration.get("tolerationSeconds") == _DEFAULT_TOLERATION_SECONDS
    )


def _without_merged_labels(affinity: RawObject, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the affinity without the expressions that the API server added.

    It adds them for `matchLabelKeys`.
    """
    return {
        kind: _map_terms(part, lambda term: _unmerged(term, labels)) if kind != "nodeAffinity" else part
        for kind, part in affinity.items()
        if part is not None
    }


def _map_terms(part: RawObject, change: Callable[[RawObject], RawObject]) -> dict[str, Any]:
    """Return a pod (anti-)affinity with every term changed, required and preferred ones."""
    return {rule: [_change_term(term, change) for term in terms] for rule, terms in part.items() if terms is not None}


def _change_term(term: RawObject, change: Callable[[RawObject], RawObject]) -> RawObject:
    if term.get("podAffinityTerm"):
        return {**term, "podAffinityTerm": change(term["podAffinityTerm"])}
    return change(term)


def _unmerged(term: RawObject, labels: Mapping[str, str]) -> RawObject:
    """Return a term without the expressions merged from its label keys.

    They stand for its `matchLabelKeys` and `mismatchLabelKeys`.
    """
    selector = term.get("labelSelector")
    merged = list(_merged_expressions(term, labels))
    if not selector or not merged:
        return term
    expressions = [one for one in selector.get("matchExpressions") or () if one not in merged]
    cleaned = {key: value for key, value in selector.items() if key != "matchExpressions"}
    if expressions:
        cleaned["matchExpressions"] = expressions
    return {**term, "labelSelector": cleaned}


def _merged_expressions(term: RawObject, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        for key in term.get(field) or ():
            if key in labels:
                yield {"key": key, "operator": operator, "values": [labels[key]]}


TASK_NAME: Final = "pod"

_LONGEST_LABEL: Final = 63

MOST_MOVES: Final = 1000
"""The most moves of one plan. etcd takes objects up to 1.5 MiB: with long names, states and messages it refused 2,000
moves, and 1,500 left little room."""


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
    """Return a new MigrationPlan.

    Includes fields at their default that people look for.
    """
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
    """Return a merge patch that fills a requested plan.

    It sets all that was found at once.
    """
    body = build_plan("", spec)["spec"]
    kept = ("approved", "approveBefore", "moves", "nodesBefore", "objective", "predicted", "rooms")
    return {"spec": {name: body[name] for name in kept if name in body}}


def plan_labels(policy: str) -> dict[str, str]:
    """Return the labels of a plan.

    They name the policy where its name fits into a label.
    """
    named = {POLICY_LABEL: policy} if 0 < len(policy) <= _LONGEST_LABEL else {}
    return {MANAGED_LABEL: MANAGED_BY_DESCHEDULER, **named}


def build_status_patch(status: MigrationPlanStatus) -> dict[str, Any]:
    """Return a merge patch of a plan's status.

    Includes a move's state at its default.
    """
    body = msgspec.to_builtins(status)
    body["moves"] = [{**msgspec.to_builtins(move), "state": move.state.value} for move in status.moves]
    if status.rooms:
        body["rooms"] = [{**msgspec.to_builtins(room), "state": room.state.value} for room in status.rooms]
    if status.phase is not None and status.phase.terminal:
        body["conditions"] = [msgspec.to_builtins(condition) for condition in _conditions(status, status.phase)]
    return {"status": body}


def _conditions(status: MigrationPlanStatus, phase: PlanPhase) -> tuple[Condition, ...]:
    """Return the conditions of a finished plan, for `kubectl wait --for=condition=Finished`."""
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

    The template of a preemptable pod says so by an annotation, whoever said it of the pod: by that lent nodes let the
    placeholder in. Raises `ValueError` for a pod without a controller.
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
            "owners": [{"object": msgspec.to_builtins(one)} for one in _move_owners(owner, raw_pod)],
            "ttl": format_duration(ttl),
            "tasks": [build_task(TASK_NAME, template, replicas=1, node=move.target)],
        },
    }


def _move_owners(controller: ObjectReference, raw_pod: RawObject) -> list[ObjectReference]:
    """Return the owners that may take the place.

    These are the pod's controller and, since a rollout may come first, its Deployment. A StatefulSet gives the new pod
    the old name, and its pods differ in their claims: no other pod may take the place.
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
        "apiVersion": PLAN_API_VERSION,
        "kind": PLAN_KIND,
        "name": plan.name,
        "uid": plan.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


# --- room objects ----------------------------------------------------------------------------------------------------
# The Reservations that wait for a plan's rooms: their bodies and names.

RawPods = Mapping[str, RawObject]
"""The waiting pods of a room by uid."""


def room_reservation_name(plan: str, index: int) -> str:
    """Return the name of the Reservation for a plan's room."""
    return reservation_name(plan, f"room-{index}")


def build_room_reservation(
    plan: PlanIdentity, index: int, room: Room, raw_pods: RawPods, ttl: timedelta
) -> dict[str, Any]:
    """Return the Reservation of one room, built from its live pods.

    The pods are one pod or a gang.
    """
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": room_reservation_name(plan.name, index),
            "namespace": room.namespace,
            "labels": {PLAN_LABEL: plan.name, MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
            "annotations": {ROOM_ANNOTATION: str(index)},
            "ownerReferences": [controlled_by(plan)],
        },
        "spec": {
            "schedulerName": _scheduler(raw_pods),
            "owners": _room_owners(plan, room),
            **({"queue": room.queue} if room.queue else {}),
            "ttl": format_duration(ttl),
            "tasks": _tasks(room, raw_pods),
        },
    }


def job_reservation_name(job: ObjectReference) -> str:
    """Return the name of the Reservation for a starving job, the same for every plan."""
    return reservation_name(f"starving-{job.name}", job_uid(job))


def build_job_reservation(room: Room, job: ObjectReference, raw_pods: RawPods, policy: str) -> dict[str, Any]:
    """Return the Reservation that waits for a starving job, built from its live pods.

    No plan controls it: it outlives the plan, and ends with the job, which owns it if it is an object.
    """
    owned = {"apiVersion": job.api_version, "kind": job.kind, "name": job.name, "uid": job.uid}
    annotations = {"annotations": {POLICY_LABEL: policy}} if policy else {}
    references = {"ownerReferences": [{**owned, "blockOwnerDeletion": False}]} if job.uid else {}
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": job_reservation_name(job),
            "namespace": room.namespace,
            "labels": {STARVING_JOB_LABEL: job_uid(job), MANAGED_LABEL: MANAGED_BY_DESCHEDULER},
            **annotations,
            **references,
        },
        "spec": {
            "schedulerName": _scheduler(raw_pods),
            "owners": [{"object": owner} for owner in _owners_of(raw_pods)],
            "ttl": room.ttl,
            "tasks": _tasks(room, raw_pods),
            "capacity": Capacity.WHEN_FREE.value,
            "fence": Fence.NODE.value,
            **({"allOrNothing": True} if len(room.slots) > 1 else {}),
        },
    }


def _owners_of(raw_pods: RawPods) -> list[dict[str, Any]]:
    """Return the controllers of pods, and the pods that have none, each once."""
    found: dict[str, dict[str, Any]] = {}
    for uid, raw in raw_pods.items():
        controller = controller_reference(raw)
        pod = ObjectReference(api_version="v1", kind="Pod", name=_name(raw), uid=uid)
        owner = msgspec.structs.replace(controller, namespace="") if controller is not None else pod
        found.setdefault(owner.uid, msgspec.to_builtins(owner))
    return list(found.values())


def _scheduler(raw_pods: RawPods) -> str:
    return next((raw["spec"].get("schedulerName") for raw in raw_pods.values()), "") or "default-scheduler"


def _room_owners(plan: PlanIdentity, room: Room) -> list[dict[str, Any]]:
    """Return the owners that may take the room.

    These are the room's pods or the pods that its selector selects. Otherwise it is only the plan, which means none.
    """
    if not room.is_shape:
        return [{"object": {"apiVersion": "v1", "kind": "Pod", "name": s.pod, "uid": s.pod_uid}} for s in room.slots]
    if room.selector:
        return [{"labelSelector": msgspec.to_builtins(parse_selector(room.selector))}]
    no_pod = {"apiVersion": PLAN_API_VERSION, "kind": PLAN_KIND, "name": plan.name}
    return [{"object": {**no_pod, "uid": plan.uid}}]


def _tasks(room: Room, raw_pods: RawPods) -> list[dict[str, Any]]:
    """Return one task per node and sort of pod.

    So no pod takes the room of another sort.
    """
    found: list[tuple[str, dict[str, Any], int]] = []
    for slot in room.slots:
        template = build_template(raw_pods[slot.pod_uid]) if slot.pod_uid else _template_of_shape(room)
        template.pop("metadata", None)
        for number, (node, known, count) in enumerate(found):
            if node == slot.node and known == template:
                found[number] = (node, known, count + 1)
                break
        else:
            found.append((slot.node, template, 1))
    return [
        build_task(f"room-{number}", template, replicas=count, node=node)
        for number, (node, template, count) in enumerate(found)
    ]


def _template_of_shape(room: Room) -> dict[str, Any]:
    container = {"name": "shape", "image": "shape", "resources": {"requests": dict(room.requests)}}
    return {"spec": {"containers": [container]}}


def ttl_from(now: datetime, reservation: Reservation, ttl: timedelta) -> str:
    """Return the TTL with which a Reservation expires `ttl` from now."""
    age = now - parse_timestamp(reservation.metadata.creation_timestamp or "")
    return format_duration(timedelta(seconds=max(0, round(age.total_seconds()))) + ttl)
