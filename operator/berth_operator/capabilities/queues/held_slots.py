"""The slots of a Queue with `enforcement: Held`: Reservations of one slot that hold what is left of its guarantee.

As many are wanted as fit into what is guaranteed and not allocated to the queue's pods, so that there is one less as
soon as a pod is admitted, and one more when a pod has ended. A pod takes a slot by the usual hand-over. What a slot
holds is part of the guarantee, and counts as allocated only once a pod is about to take it.
"""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
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
    QueueCondition,
    QueueReason,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationSpec,
    ResourceAmounts,
    SlotState,
    amount_in_words,
    count,
    effective_requests,
    format_timestamp,
    queue_of_slot,
    queue_slot_name,
    queue_slot_number,
    read_timestamp,
    readable_label,
    template_matches,
)
from berth_core.decoding import convert
from berth_operator.capabilities.queues.places import KeptNodes, QueuePlaces, keep_nodes

Body = dict[str, Any]

MOST_SLOTS: Final = 500
"""Slots of one queue: each is a Reservation and a pod."""
_MAX_AT_ONCE: Final = 50
"""Reservations that one pass creates for a queue."""
_TASK: Final = "slot"
_LIFETIME: Final = timedelta(hours=24)
"""For how long a slot is asked for at a time; it is renewed after half of it."""
_SETTLING_SECONDS: Final = 60
"""How long a slot may wait before the queue says that it lacks one."""
_RESTS: Final = {ReservationReason.FORBIDDEN.value: 60, ReservationReason.INVALID.value: 60}
_REST_SECONDS: Final = 10
"""How long nothing is made in the place of a slot that failed."""
_ANY_POD: Final = {"labelSelector": {"matchExpressions": [{"key": PLACEHOLDER_LABEL, "operator": "DoesNotExist"}]}}
"""An owner that is any pod of the namespace: a selector must not be empty."""
_ON_THE_WAY: Final = frozenset({SlotState.HANDING_OVER, SlotState.TAKEN})

Verdict = tuple[str, QueueReason, str]
"""Status, reason and message of the condition `Held`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSlots:
    """What a queue's slots are like, and its Reservations for them."""

    queue: GatedQueue
    namespace: str = ""
    slot: ResourceAmounts = field(default_factory=ResourceAmounts.empty)
    """What one requests, its pod slot included."""
    problem: Verdict | None = None
    """Why no slot may be held, whatever is guaranteed; None if slots are held."""
    own: Mapping[str, Reservation] = field(default_factory=dict)
    """Reservations that are as the queue wants them, by uid."""
    unlike: tuple[Reservation, ...] = ()
    """Reservations for slots of the queue that it no longer wants like that."""
    known: frozenset[str] = frozenset()
    """Uids of all Reservations with a slot's name, whoever made them."""
    numbers: frozenset[int] = frozenset()
    """Numbers of the names that are in use."""
    refused: str = ""
    """Why the API server creates no Reservation for a slot; "" unless it has refused one."""

    def holds(self, reservation: str, name: str, requests: ResourceAmounts) -> bool:
        """Return whether a placeholder holds a slot, given uid and name of its Reservation.

        It does also while its Reservation is gone already: it follows in a moment.
        """
        if reservation in self.own:
            return True
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
        """Return by uid of a pod the Reservation whose slot it is taking."""
        return {
            slot.owner.uid: uid
            for uid, reservation in self.own.items()
            for slot in reservation.status.slots
            if slot.owner is not None and slot.state in _ON_THE_WAY
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecision:
    """What to do about a queue's slots, and what its status says of them."""

    slots: QueueSlots
    creates: tuple[int, ...] = ()
    """Numbers of the slots to create."""
    pins: Mapping[int, str] = field(default_factory=dict)
    """The node for which a slot is created, by number; the others are for any."""
    kept: tuple[str, ...] = ()
    """Nodes that others are kept off."""
    ends: tuple[Reservation, ...] = ()
    """Reservations to delete."""
    spare: tuple[Reservation, ...] = ()
    """Slots that are held and too many; pods that wait without a slot may take them yet."""
    renews: tuple[Reservation, ...] = ()
    held: int = 0
    waiting: int = 0
    verdict: Verdict | None = None
    """None without the condition."""
    is_whole: bool = True
    """Whether every slot that lacks is among those to create."""

    @property
    def held_amounts(self) -> ResourceAmounts:
        """Return what the slots hold, without counting them as pods."""
        return self.slots.slot.minus(ONE_POD).times(self.held)


# --- reading ---------------------------------------------------------------------------------------------------------


def read_slots(
    queue: GatedQueue,
    namespaces: Sequence[str],
    guarantee: ResourceAmounts,
    reservations: Iterable[Reservation],
    refused: str = "",
) -> QueueSlots:
    """Return the slots of a queue; `namespaces` are those that it has, `refused` why none is created."""
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
    """Return whether a Reservation's name is like those of slots; cheap, for all Reservations are asked."""
    return "-held-" in reservation.metadata.name


def _namespace(queue: GatedQueue, namespaces: Sequence[str]) -> str:
    """Return the namespace of the slots, "" if the queue lacks it or does not say which."""
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
    """Return the pod that a slot is for; raises `InputError` for a shape without amounts."""
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
    """Return what a slot of a queue requests, its pod slot included; raises `InputError`."""
    try:
        requests = effective_requests(slot_template(queue).spec)
    except InputError as error:
        raise error if error.field.startswith("spec.held") else error.within("spec.held.template") from error
    if not requests:
        raise InputError("spec.held.template", None, "a pod that requests something")
    return requests.plus(ONE_POD)


def _template_of(shape: Mapping[str, Any]) -> Body:
    # Kubernetes wants a limit beside each request of a resource that it cannot share out.
    limits = {
        resource: amount for resource, amount in shape.items() if "/" in resource or resource.startswith("hugepages-")
    }
    resources = {"requests": dict(shape), **({"limits": limits} if limits else {})}
    return {"spec": {"containers": [{"name": "slot", "image": PLACEHOLDER_IMAGE, "resources": resources}]}}


def _wanted_spec(queue: GatedQueue) -> ReservationSpec:
    body = build_slot(queue, msgspec.to_builtins(slot_template(queue)), "", 0, expires="")
    return msgspec.structs.replace(convert(body["spec"], ReservationSpec), expires=None)


def _is_like(reservation: Reservation, wanted: ReservationSpec, label: str) -> bool:
    """Return whether a Reservation is as it would be created now, but for its end.

    For one that is held the fence of others no longer matters. One without its label could not be renewed.
    """
    if reservation.metadata.labels.get(QUEUE_SLOT_LABEL) != label:
        return False
    tasks = tuple(task.for_any_node() for task in reservation.spec.tasks)
    comparable = msgspec.structs.replace(reservation.spec, expires=None, ttl=None, tasks=tasks)
    if reservation.phase is ReservationPhase.AVAILABLE:
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
    """Return a Reservation for a slot, for one `node` if that is given.

    `raw_template` is the template as written, None for the shape.
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
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "spec": {
            "owners": [_ANY_POD],
            "expires": expires,
            # A slot without a fence waits like any pod, for whichever node has room first.
            "capacity": (Capacity.WHEN_FREE if is_fenced else Capacity.FREE).value,
            "fence": spec.fence.value,
            "tasks": [{"name": _TASK, "replicas": 1, "template": template, **pin}],
        },
    }


def slot_end(now: datetime) -> str:
    """Return until when a slot is asked for from now on."""
    return format_timestamp(now + _LIFETIME)


# --- deciding --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Sorted:
    """A queue's Reservations by what they are worth."""

    held: list[Reservation] = field(default_factory=list)
    waiting: list[Reservation] = field(default_factory=list)
    resting: list[Reservation] = field(default_factory=list)
    """They failed a moment ago; nothing is made in their place yet."""
    over: list[Reservation] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Need:
    """How many slots a queue needs of what is left of its guarantee."""

    guarantee: ResourceAmounts
    left: ResourceAmounts
    of_slot: ResourceAmounts
    """What a slot covers of the guarantee."""

    @property
    def possible(self) -> int:
        return self.of_slot.times_within(self.left)

    @property
    def wanted(self) -> int:
        return min(self.possible, MOST_SLOTS)

    @property
    def beyond(self) -> ResourceAmounts:
        """Return what is left that no slot covers."""
        return self.left.minus(self.of_slot.times(self.possible))

    @property
    def is_divided_evenly(self) -> bool:
        """Return whether slots cover the whole guarantee of a queue without pods."""
        return not self.guarantee.minus(self.of_slot.times(self.of_slot.times_within(self.guarantee)))


def decide_slots(
    slots: QueueSlots,
    guarantee: ResourceAmounts,
    allocated: ResourceAmounts,
    nodes: Sequence[ResourceAmounts],
    *,
    coming: AbstractSet[str],
    labelled: AbstractSet[str],
    places: QueuePlaces | None,
    now: datetime,
) -> SlotDecision:
    """Return which slots to create and to end.

    `coming` are the Reservations whose slot an admitted pod is about to take, `labelled` those that pods wait for.
    `places` is None unless others are kept off the queue's nodes.
    """
    unlike_slots = tuple(
        reservation
        for reservation in slots.unlike
        if reservation.metadata.uid not in coming and _may_end(reservation, labelled)
    )
    if slots.problem is not None:
        verdict = slots.problem if slots.queue.spec.enforcement is Enforcement.HELD else None
        return SlotDecision(slots=slots, ends=unlike_slots, verdict=verdict)
    need = _Need(
        guarantee,
        ResourceAmounts({resource: max(0, amount - allocated[resource]) for resource, amount in guarantee.items()}),
        ResourceAmounts({resource: slots.slot[resource] for resource in guarantee}),
    )
    sorted_slots = _sort(slots, coming, labelled, now)
    nodes_kept = _keep(places, need, sorted_slots, slots)
    surplus = max(0, len(sorted_slots.held) + len(sorted_slots.waiting) - need.wanted)
    waiting_slots, spare_slots = (
        sorted(
            slots_of_state, key=lambda reservation: (reservation.metadata.uid in labelled, -_number(reservation, slots))
        )
        for slots_of_state in (sorted_slots.waiting, sorted_slots.held)
    )
    creates = _free_numbers(
        slots, need.wanted - len(sorted_slots.held) - len(sorted_slots.waiting) - len(sorted_slots.resting)
    )
    creates = creates[:_MAX_AT_ONCE]
    held_slots = min(len(sorted_slots.held), need.wanted)
    return SlotDecision(
        slots=slots,
        creates=creates,
        pins=dict(zip(creates, nodes_kept.vacancies, strict=False)),
        kept=nodes_kept.nodes,
        ends=(*unlike_slots, *sorted_slots.over, *waiting_slots[:surplus]),
        spare=tuple(spare_slots[: max(0, surplus - len(waiting_slots))]),
        renews=tuple(
            reservation for reservation in (*sorted_slots.held, *sorted_slots.waiting) if _is_due(reservation, now)
        ),
        held=held_slots,
        waiting=need.wanted - held_slots,
        verdict=_fenced(_judge(slots, need, sorted_slots, nodes, now), nodes_kept, places),
        is_whole=len(creates) < _MAX_AT_ONCE,
    )


def _keep(places: QueuePlaces | None, need: _Need, known: _Sorted, slots: QueueSlots) -> KeptNodes:
    """Return the nodes to keep; the slots that wait for one without room are over."""
    if places is None:
        return KeptNodes()
    pins = {
        reservation.metadata.uid: pin[0]
        for reservation in known.waiting
        if (pin := reservation.spec.tasks[0].node_names)
    }
    waiting_uids = (
        reservation.metadata.uid for reservation in known.waiting if reservation.phase is ReservationPhase.WAITING
    )
    unpinned = [uid for uid in waiting_uids if uid not in pins]
    # The pods of a template may have to be on several nodes: for each slot the emptiest one is chosen.
    is_placed = slots.queue.spec.held.template is None
    slots_lacking = need.wanted - len(known.held)
    kept_nodes = keep_nodes(
        places, need.guarantee, slots.slot, slots_lacking, pins, unpinned=unpinned, is_placed=is_placed
    )
    known.over += [reservation for reservation in known.waiting if reservation.metadata.uid in kept_nodes.misplaced]
    known.waiting = [
        reservation for reservation in known.waiting if reservation.metadata.uid not in kept_nodes.misplaced
    ]
    return kept_nodes


def _fenced(verdict: Verdict, kept: KeptNodes, places: QueuePlaces | None) -> Verdict:
    """Return a verdict, but for nodes without a fence."""
    unfenced = [node for node in kept.nodes if places is not None and node in places.unfenced]
    if verdict[0] != "True" or places is None or not unfenced:
        return verdict
    text = f"{verdict[2]}; {count(len(unfenced), 'node')} not fenced: {unfenced[0]}: {places.unfenced[unfenced[0]]}"
    return ("False", QueueReason.NOT_FENCED, text)


def _sort(slots: QueueSlots, coming: AbstractSet[str], labelled: AbstractSet[str], now: datetime) -> _Sorted:
    by_state = _Sorted()
    for uid, reservation in slots.own.items():
        if reservation.metadata.deletion_timestamp is not None:
            continue
        if reservation.phase is ReservationPhase.FAILED and _rests(reservation, now):
            by_state.resting.append(reservation)
        elif reservation.phase.terminal:
            by_state.over += [reservation] if _may_end(reservation, labelled) else []
        elif uid in coming or _changes_hands(reservation):
            continue  # what it holds counts as allocated
        elif reservation.phase is ReservationPhase.AVAILABLE:
            by_state.held.append(reservation)
        else:
            by_state.waiting.append(reservation)
    return by_state


def _may_end(reservation: Reservation, labelled: AbstractSet[str]) -> bool:
    """Return whether a Reservation can be deleted without harm to a pod that takes, or has just taken, its slot."""
    if reservation.metadata.deletion_timestamp is not None or _changes_hands(reservation):
        return False
    return not (reservation.phase.terminal and reservation.metadata.uid in labelled)


def _changes_hands(reservation: Reservation) -> bool:
    is_on_the_way = any(slot.state in _ON_THE_WAY for slot in reservation.status.slots)
    return not reservation.phase.terminal and is_on_the_way


def _rests(reservation: Reservation, now: datetime) -> bool:
    state = reservation.status.state
    rests_since = read_timestamp(state.last_transition_time) if state is not None else None
    seconds = _RESTS.get(state.reason, _REST_SECONDS) if state is not None else 0
    return rests_since is not None and _is_within(seconds, rests_since, now)


def _is_within(seconds: float, since: datetime, now: datetime) -> bool:
    """Return whether less than so long has passed; a time far ahead is left from before the clock was set back."""
    return abs((now - since).total_seconds()) < seconds


def _is_due(reservation: Reservation, now: datetime) -> bool:
    expires = read_timestamp(reservation.spec.expires)
    return expires is None or expires < now + _LIFETIME / 2


def _number(reservation: Reservation, slots: QueueSlots) -> int:
    meta = slots.queue.metadata
    return queue_slot_number(reservation.metadata.name, meta.name, meta.uid) or 0


def _free_numbers(slots: QueueSlots, many: int) -> tuple[int, ...]:
    """Return the lowest numbers without a Reservation."""
    free_numbers = [number for number in range(len(slots.numbers) + max(0, many)) if number not in slots.numbers]
    return tuple(free_numbers[: max(0, many)])


# --- what the condition says -----------------------------------------------------------------------------------------


def _judge(slots: QueueSlots, need: _Need, known: _Sorted, nodes: Sequence[ResourceAmounts], now: datetime) -> Verdict:
    """Return whether what is left of the guarantee is held."""
    if need.possible > MOST_SLOTS:
        text = f"{need.possible} slots would be needed, and a queue has at most {MOST_SLOTS}: use a larger shape"
        return ("False", QueueReason.TOO_MANY_SLOTS, text)
    slots_lacking = max(0, need.wanted - len(known.held))
    if not need.of_slot:
        return ("False", QueueReason.SHAPE_LACKS, f"a slot requests no {' and no '.join(need.guarantee)}")
    if not need.of_slot.times_within(need.guarantee):
        return ("False", QueueReason.SHAPE_TOO_LARGE, "a slot is larger than the guarantee")
    if slots_lacking and nodes and not any(slots.slot.fits_within(node) for node in nodes):
        return ("False", QueueReason.SHAPE_TOO_LARGE, "a slot is larger than each node that counts")
    return _lacks(slots, slots_lacking, need.wanted, known, now) if slots_lacking else _holds(need)


def _holds(need: _Need) -> Verdict:
    """Return what to say where every slot that is wanted is held."""
    if lacks := [resource for resource in need.guarantee if not need.of_slot[resource]]:
        return ("False", QueueReason.SHAPE_LACKS, f"a slot requests no {' and no '.join(lacks)}, which is guaranteed")
    held_text = f"{count(need.wanted, 'slot')} held" if need.wanted else "no slot fits beside what the queue's pods use"
    beyond = ", ".join(f"{amount_in_words(name, amount)} {name}" for name, amount in need.beyond.items())
    text = f"{held_text}; no slot covers {beyond}" if beyond else held_text
    if not need.is_divided_evenly:
        return ("True", QueueReason.REMAINDER, text)
    return ("True", QueueReason.SLOTS_HELD if need.wanted else QueueReason.IN_USE, text)


def _lacks(slots: QueueSlots, lacking: int, wanted: int, known: _Sorted, now: datetime) -> Verdict:
    """Return what to say of slots that are not held: that they failed, wait for long, or have only begun."""
    head = f"{lacking} of {count(wanted, 'slot')} not held"
    refused_slots = [
        reservation
        for reservation in known.resting
        if reservation.status.state and reservation.status.state.reason in _RESTS
    ]
    if refused_slots or slots.refused:
        why = _said(refused_slots[0]) if refused_slots else slots.refused
        return ("False", QueueReason.SLOTS_REFUSED, f"{head}: {why}")
    oldest = min(known.waiting, key=lambda reservation: reservation.metadata.creation_timestamp or "", default=None)
    oldest_since = read_timestamp(oldest.metadata.creation_timestamp) if oldest is not None else None
    if oldest is not None and oldest_since is not None and not _is_within(_SETTLING_SECONDS, oldest_since, now):
        return ("False", QueueReason.WAITING, f"{head}: {_said(oldest)}")
    condition_before = slots.queue.condition(QueueCondition.HELD)
    is_tried_again = condition_before is not None and condition_before.reason in {
        QueueReason.WAITING,
        QueueReason.SLOTS_REFUSED,
    }
    if (
        condition_before is not None
        and is_tried_again
        and condition_before.observed_generation == slots.queue.metadata.generation
    ):
        return ("False", QueueReason(condition_before.reason), condition_before.message)
    return ("Unknown", QueueReason.NOT_HELD_YET, head)


def _said(reservation: Reservation) -> str:
    state = reservation.status.state
    text = f"{state.reason}: {state.message}" if state is not None else "no placeholder yet"
    return f"{reservation.key} is {reservation.phase.value}, {text}"
