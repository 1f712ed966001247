"""The Reservations that hold slots of queues: what they look like, and which there are."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from berth_core import (
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    ONE_POD,
    PLACEHOLDER_IMAGE,
    PLACEHOLDER_LABEL,
    QUEUE_API_VERSION,
    QUEUE_KIND,
    QUEUE_SLOT_LABEL,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    Capacity,
    Enforcement,
    Fence,
    GatedQueue,
    InputError,
    Pod,
    PodTemplate,
    QueueReason,
    Reservation,
    ReservationPhase,
    ReservationSpec,
    ResourceAmounts,
    SlotState,
    effective_requests,
    format_timestamp,
    queue_of_slot,
    queue_slot_name,
    queue_slot_number,
    readable_label,
    template_matches,
)
from berth_core.decoding import convert

Body = dict[str, Any]

SLOT_LIFETIME: Final = timedelta(hours=24)
"""How long a slot is asked for at a time. It is renewed after half of that, so it ends by itself if Berth is gone."""
_TASK: Final = "slot"
_ANY_POD: Final = {"labelSelector": {"matchExpressions": [{"key": PLACEHOLDER_LABEL, "operator": "DoesNotExist"}]}}
"""An owner that is any pod of the namespace: the CRD refuses an empty selector, so this one matches all but slots."""
ON_THE_WAY: Final = frozenset({SlotState.HANDING_OVER, SlotState.TAKEN})

Verdict = tuple[str, QueueReason, str]
"""Status, reason and message of the condition `Held`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSlots:
    """What a queue's slots look like, and which Reservations for them there are."""

    queue: GatedQueue
    namespace: str = ""
    slot: ResourceAmounts = field(default_factory=ResourceAmounts.empty)
    """What one slot requests, its pod included."""
    problem: Verdict | None = None
    """Why no slot may be held, whatever is guaranteed; None if slots may be."""
    own: Mapping[str, Reservation] = field(default_factory=dict)
    """Reservations that are as the queue wants its slots, by uid."""
    unlike: tuple[Reservation, ...] = ()
    """Reservations that were made for slots of the queue, but are not as it wants them now."""
    known: frozenset[str] = frozenset()
    """Uids of all Reservations with the name of a slot, whoever made them."""
    numbers: frozenset[int] = frozenset()
    """Numbers of slots whose names are in use in the namespace."""
    refused: str = ""
    """Why the API server has refused to create a Reservation for a slot; "" if it has not."""

    def holds(self, reservation: str, name: str, requests: ResourceAmounts) -> bool:
        """Return whether a placeholder holds a slot of the queue, given uid and name of its Reservation."""
        if reservation in self.own:
            return True
        # If the Reservation is gone, the placeholder follows in a moment, and still takes its room until then.
        is_slot = queue_slot_number(name, self.queue.metadata.name, self.queue.metadata.uid) is not None
        return is_slot and reservation not in self.known and requests == self.slot

    def awaits(self, reservation: str) -> bool:
        """Return whether a Reservation is a slot for one node that is not held yet."""
        own_reservation = self.own.get(reservation)
        if (
            own_reservation is None
            or own_reservation.phase.terminal
            or own_reservation.phase is ReservationPhase.AVAILABLE
        ):
            return False
        return bool(own_reservation.spec.tasks[0].node_names)

    @property
    def takers(self) -> dict[str, str]:
        """Return the uid of a Reservation for each pod, by uid, that takes its slot."""
        return {
            slot.owner.uid: uid
            for uid, reservation in self.own.items()
            for slot in reservation.status.slots
            if slot.owner is not None and slot.state in ON_THE_WAY
        }


def read_slots(
    queue: GatedQueue,
    namespaces: Sequence[str],
    guarantee: ResourceAmounts,
    reservations: Iterable[Reservation],
    refused: str = "",
) -> QueueSlots:
    """Return the slots of a queue.

    `namespaces` are those that it has, `guarantee` is what counts of its guarantee, and `refused` why the API server
    has refused to create a slot.
    """
    name, uid = queue.metadata.name, queue.metadata.uid
    numbered = {
        reservation.metadata.uid: (reservation, number)
        for reservation in reservations
        if (number := queue_slot_number(reservation.metadata.name, name, uid)) is not None
    }
    slots_made = [reservation for reservation, _ in numbered.values() if queue_of_slot(reservation) == uid]
    namespace = _namespace(queue, namespaces)
    problem = _why_none(queue, namespace, guarantee)
    try:
        wanted_spec, slot = _wanted_spec(queue), slot_requests_of(queue)
    except InputError as error:
        problem = problem or ("False", QueueReason.NO_SHAPE, str(error))
        return QueueSlots(queue=queue, problem=problem, unlike=tuple(slots_made), known=frozenset(numbered))
    in_place = [reservation for reservation in slots_made if reservation.metadata.namespace == namespace]
    label = readable_label(name)
    own_slots = {
        reservation.metadata.uid: reservation
        for reservation in in_place
        if problem is None and _is_like(reservation, wanted_spec, label)
    }
    return QueueSlots(
        queue=queue,
        namespace=namespace,
        slot=slot,
        problem=problem,
        own=own_slots,
        unlike=tuple(reservation for reservation in slots_made if reservation.metadata.uid not in own_slots),
        known=frozenset(numbered),
        numbers=frozenset(
            number for reservation, number in numbered.values() if reservation.metadata.namespace == namespace
        ),
        refused=refused,
    )


def may_be_slot(reservation: Reservation) -> bool:
    """Return whether a Reservation's name is like those of slots; cheap, as each pass asks it of all Reservations."""
    return "-held-" in reservation.metadata.name


def _namespace(queue: GatedQueue, namespaces: Sequence[str]) -> str:
    """Return the namespace of the slots, "" if the queue does not have it or does not say which of several it is."""
    held_namespace = queue.spec.held.namespace
    if held_namespace:
        return held_namespace if held_namespace in namespaces else ""
    return namespaces[0] if len(namespaces) == 1 else ""


def _why_none(queue: GatedQueue, namespace: str, guarantee: ResourceAmounts) -> Verdict | None:
    spec = queue.spec
    if spec.suspend or spec.enforcement is not Enforcement.HELD:
        return ("Unknown", QueueReason.SUSPENDED, "the queue holds nothing while it is switched off")
    if not guarantee:
        return ("Unknown", QueueReason.NO_GUARANTEE, "no guarantee counts")
    if not namespace:
        held_namespace = spec.held.namespace
        text = (
            f"the queue does not have namespace {held_namespace}"
            if held_namespace
            else "held.namespace must name one of its namespaces"
        )
        return ("False", QueueReason.NO_NAMESPACE, text)
    return None


def slot_template(queue: GatedQueue) -> PodTemplate:
    """Return the template of the pod that a slot is for; raises `InputError` for a shape without amounts."""
    held_spec = queue.spec.held
    if held_spec.template is not None:
        return held_spec.template
    try:
        amounts = ResourceAmounts.from_quantities(held_spec.shape)
    except InputError as error:
        raise error.within("spec.held.shape") from error
    empty = next((resource for resource in held_spec.shape if amounts[resource] <= 0), None)
    if empty is not None or not held_spec.shape:
        field_name = f"spec.held.shape.{empty}" if empty else "spec.held.shape"
        raise InputError(field_name, held_spec.shape.get(empty or ""), "what one slot requests, more than 0")
    return convert(_template_of(held_spec.shape), PodTemplate)


def takes_slot(queue: GatedQueue, pod: Pod) -> bool:
    """Return whether a pod looks like those that a queue's slots are for."""
    return template_matches(slot_template(queue), pod, scheduler_name="")


def slot_requests_of(queue: GatedQueue) -> ResourceAmounts:
    """Return what a slot of a queue requests, its pod included; raises `InputError`."""
    try:
        requests = effective_requests(slot_template(queue).spec)
    except InputError as error:
        raise error if error.field.startswith("spec.held") else error.within("spec.held.template") from error
    if not requests:
        raise InputError("spec.held.template", None, "a pod that requests something")
    return requests.plus(ONE_POD)


def _template_of(shape: Mapping[str, Any]) -> Body:
    # Of resources that cannot be overcommitted a request needs a limit (`IsOvercommitAllowed` in the API server's
    # `pkg/apis/core/validation/validation.go`).
    limits = {
        resource: amount for resource, amount in shape.items() if "/" in resource or resource.startswith("hugepages-")
    }
    resources = {"requests": dict(shape), **({"limits": limits} if limits else {})}
    return {"spec": {"containers": [{"name": "slot", "image": PLACEHOLDER_IMAGE, "resources": resources}]}}


def _wanted_spec(queue: GatedQueue) -> ReservationSpec:
    body = build_slot(queue, msgspec.to_builtins(slot_template(queue)), "", 0, expires="")
    return msgspec.structs.replace(convert(body["spec"], ReservationSpec), expires=None)


def _is_like(reservation: Reservation, wanted: ReservationSpec, label: str) -> bool:
    """Return whether a Reservation is as it would be created now, apart from its end and its node."""
    # The admission policy lets the operator renew only Reservations with this label.
    if reservation.metadata.labels.get(QUEUE_SLOT_LABEL) != label:
        return False
    tasks = tuple(task.for_any_node() for task in reservation.spec.tasks)
    comparable = msgspec.structs.replace(reservation.spec, expires=None, ttl=None, tasks=tasks)
    if reservation.phase is ReservationPhase.AVAILABLE:  # how it waited for its place no longer matters
        comparable = msgspec.structs.replace(comparable, capacity=wanted.capacity, fence=wanted.fence)
    return comparable == wanted


def build_slot(
    queue: GatedQueue,
    raw_template: Mapping[str, Any] | None,
    namespace: str,
    number: int,
    *,
    expires: str,
    node: str = "",
) -> Body:
    """Return the Reservation for a slot, on `node` if that is given.

    `raw_template` is the template as written in the queue, so that fields which Berth does not read are kept; None
    stands for the shape.
    """
    meta, spec = queue.metadata, queue.spec.held
    owner = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "name": meta.name, "uid": meta.uid}
    is_fenced = spec.fence is Fence.NODE
    template = raw_template if raw_template is not None else _template_of(spec.shape)
    pin = {"reservationNodeNames": [node]} if node else {}
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": queue_slot_name(meta.name, meta.uid, number),
            "namespace": namespace,
            "labels": {QUEUE_SLOT_LABEL: readable_label(meta.name), MANAGED_LABEL: MANAGED_BY_OPERATOR},
            # To set `blockOwnerDeletion` takes the right to finalizers of the queue, where the admission plugin
            # OwnerReferencesPermissionEnforcement is on, as on OpenShift.
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "spec": {
            "owners": [_ANY_POD],
            "expires": expires,
            # Without a fence a slot waits like any pod, for whichever node has room first.
            "capacity": (Capacity.WHEN_FREE if is_fenced else Capacity.FREE).value,
            "fence": spec.fence.value,
            "tasks": [{"name": _TASK, "replicas": 1, "template": template, **pin}],
        },
    }


def slot_end(now: datetime) -> str:
    """Return the end of a slot that is created or renewed now."""
    return format_timestamp(now + SLOT_LIFETIME)
