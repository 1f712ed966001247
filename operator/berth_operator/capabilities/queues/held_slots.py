"""Decides which slots a Queue with `enforcement: Held` holds: Reservations for what is left of its guarantee.

As many slots are wanted as fit into what is guaranteed and not allocated to the queue's pods. So there is one less as
soon as a pod is admitted, and one more when a pod has ended. A pod takes a slot by the usual hand-over. What a slot
holds is part of the guarantee, and counts as allocated only once a pod is about to take it.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from berth_core import (
    ONE_POD,
    Enforcement,
    QueueCondition,
    QueueReason,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ResourceAmounts,
    amount_in_words,
    count,
    queue_slot_number,
    read_timestamp,
)
from berth_operator.capabilities.queues.places import KeptNodes, QueuePlaces, keep_nodes
from berth_operator.capabilities.queues.slot_reservations import ON_THE_WAY, SLOT_LIFETIME, QueueSlots, Verdict

MAX_SLOTS: Final = 500
"""Maximum number of slots of one queue: each is a Reservation and a pod."""
_MAX_AT_ONCE: Final = 50
"""Maximum number of Reservations that one pass creates for a queue."""
_SETTLING_SECONDS: Final = 60
"""How long a slot may wait before the condition of the queue turns false."""
_REFUSAL_RESTS: Final = {ReservationReason.FORBIDDEN.value: 60, ReservationReason.INVALID.value: 60}
"""Seconds for which a slot that failed with this reason is not replaced: it would be refused again."""
_REST_SECONDS: Final = 10
"""The same for all other reasons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDecision:
    """What to do about a queue's slots, and what its status reports of them."""

    slots: QueueSlots
    creates: tuple[int, ...] = ()
    """Numbers of the slots to create."""
    pins: Mapping[int, str] = field(default_factory=dict)
    """By number, the node for which a slot is created; the other slots are for any node."""
    kept: tuple[str, ...] = ()
    """Nodes that others are kept off."""
    ends: tuple[Reservation, ...] = ()
    """Reservations to delete."""
    spare: tuple[Reservation, ...] = ()
    """Held slots that are too many; pods that wait without a slot may still take them."""
    renews: tuple[Reservation, ...] = ()
    """Reservations whose end is put off."""
    held: int = 0
    waiting: int = 0
    verdict: Verdict | None = None
    """The condition `Held`, None for a queue that has none."""
    is_whole: bool = True
    """Whether every slot that is lacking is among those to create."""

    @property
    def held_amounts(self) -> ResourceAmounts:
        """Return what the held slots hold, without counting them as pods."""
        return self.slots.slot.minus(ONE_POD).times(self.held)


@dataclass(slots=True)
class _SlotsByState:
    """A queue's Reservations by what they are worth to it."""

    held: list[Reservation] = field(default_factory=list)
    waiting: list[Reservation] = field(default_factory=list)
    resting: list[Reservation] = field(default_factory=list)
    """Slots that failed a moment ago and are not replaced yet."""
    over: list[Reservation] = field(default_factory=list)
    """Slots that are of no more use."""


@dataclass(frozen=True, slots=True)
class _Need:
    """How many slots a queue needs for what is left of its guarantee."""

    guarantee: ResourceAmounts
    left: ResourceAmounts
    of_slot: ResourceAmounts
    """What one slot covers, in the resources of the guarantee."""

    @property
    def possible(self) -> int:
        return self.of_slot.times_within(self.left)

    @property
    def wanted(self) -> int:
        return min(self.possible, MAX_SLOTS)

    @property
    def beyond(self) -> ResourceAmounts:
        """Return the remainder that no whole slot covers."""
        return self.left.minus(self.of_slot.times(self.possible))

    @property
    def is_divided_evenly(self) -> bool:
        """Return whether slots would cover the whole guarantee if the queue had no pods."""
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
    """Return which slots to create, renew and end.

    `coming` has the uids of Reservations whose slot an admitted pod is about to take, `labelled` of those for which
    pods wait. `nodes` is what each node that counts offers. `places` is None unless others are kept off the queue's
    nodes.
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
    by_state = _by_state(slots, coming, labelled, now)
    nodes_kept = _keep(places, need, by_state, slots)  # before anything is counted: it gives up waiting slots
    surplus = max(0, len(by_state.held) + len(by_state.waiting) - need.wanted)
    # The highest numbers end first, and last those for which a pod waits.
    waiting_slots, spare_slots = (
        sorted(
            slots_of_state, key=lambda reservation: (reservation.metadata.uid in labelled, -_number(reservation, slots))
        )
        for slots_of_state in (by_state.waiting, by_state.held)
    )
    creates = _free_numbers(slots, need.wanted - len(by_state.held) - len(by_state.waiting) - len(by_state.resting))
    # The next pass makes the rest: a large guarantee must not keep gates of other queues waiting.
    creates = creates[:_MAX_AT_ONCE]
    held_slots = min(len(by_state.held), need.wanted)
    return SlotDecision(
        slots=slots,
        creates=creates,
        pins=dict(zip(creates, nodes_kept.vacancies, strict=False)),
        kept=nodes_kept.nodes,
        ends=(*unlike_slots, *by_state.over, *waiting_slots[:surplus]),
        spare=tuple(spare_slots[: max(0, surplus - len(waiting_slots))]),
        renews=tuple(reservation for reservation in (*by_state.held, *by_state.waiting) if _is_due(reservation, now)),
        held=held_slots,
        waiting=need.wanted - held_slots,
        verdict=_fenced(_judge(slots, need, by_state, nodes, now), nodes_kept, places),
        is_whole=len(creates) < _MAX_AT_ONCE,
    )


def _keep(places: QueuePlaces | None, need: _Need, by_state: _SlotsByState, slots: QueueSlots) -> KeptNodes:
    """Return the nodes to keep; slots that wait for a node without room move to those that are over."""
    if places is None:
        return KeptNodes()
    pins = {
        reservation.metadata.uid: pin[0]
        for reservation in by_state.waiting
        if (pin := reservation.spec.tasks[0].node_names)
    }
    waiting_uids = (
        reservation.metadata.uid for reservation in by_state.waiting if reservation.phase is ReservationPhase.WAITING
    )
    unpinned = [uid for uid in waiting_uids if uid not in pins]
    # A template may require its pods to be on several nodes: the emptiest node is then chosen for each slot.
    is_placed = slots.queue.spec.held.template is None
    slots_lacking = need.wanted - len(by_state.held)
    kept_nodes = keep_nodes(
        places, need.guarantee, slots.slot, slots_lacking, pins, unpinned=unpinned, is_placed=is_placed
    )
    by_state.over += [
        reservation for reservation in by_state.waiting if reservation.metadata.uid in kept_nodes.misplaced
    ]
    by_state.waiting = [
        reservation for reservation in by_state.waiting if reservation.metadata.uid not in kept_nodes.misplaced
    ]
    return kept_nodes


def _fenced(verdict: Verdict, kept: KeptNodes, places: QueuePlaces | None) -> Verdict:
    """Return the verdict, or another if it is true but a kept node has no fence."""
    unfenced = [node for node in kept.nodes if places is not None and node in places.unfenced]
    if verdict[0] != "True" or places is None or not unfenced:
        return verdict
    text = f"{verdict[2]}; {count(len(unfenced), 'node')} not fenced: {unfenced[0]}: {places.unfenced[unfenced[0]]}"
    return ("False", QueueReason.NOT_FENCED, text)


def _by_state(slots: QueueSlots, coming: AbstractSet[str], labelled: AbstractSet[str], now: datetime) -> _SlotsByState:
    by_state = _SlotsByState()
    for uid, reservation in slots.own.items():
        if reservation.metadata.deletion_timestamp is not None:
            continue
        if reservation.phase is ReservationPhase.FAILED and _rests(reservation, now):
            by_state.resting.append(reservation)
        elif reservation.phase.terminal:
            by_state.over += [reservation] if _may_end(reservation, labelled) else []
        elif uid in coming or _changes_hands(reservation):
            continue  # what it holds counts as allocated already
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
    is_on_the_way = any(slot.state in ON_THE_WAY for slot in reservation.status.slots)
    return not reservation.phase.terminal and is_on_the_way


def _rests(reservation: Reservation, now: datetime) -> bool:
    state = reservation.status.state
    rests_since = read_timestamp(state.last_transition_time) if state is not None else None
    seconds = _REFUSAL_RESTS.get(state.reason, _REST_SECONDS) if state is not None else 0
    return rests_since is not None and _is_within(seconds, rests_since, now)


def _is_within(seconds: float, since: datetime, now: datetime) -> bool:
    """Return whether less than so many seconds have passed since then."""
    # A time far ahead was written before the clock was set back; waiting until then would take as long.
    return abs((now - since).total_seconds()) < seconds


def _is_due(reservation: Reservation, now: datetime) -> bool:
    expires = read_timestamp(reservation.spec.expires)
    # Slots expire by themselves if no operator renews them, so that an uninstalled operator leaves none behind.
    return expires is None or expires < now + SLOT_LIFETIME / 2


def _number(reservation: Reservation, slots: QueueSlots) -> int:
    meta = slots.queue.metadata
    return queue_slot_number(reservation.metadata.name, meta.name, meta.uid) or 0


def _free_numbers(slots: QueueSlots, wanted: int) -> tuple[int, ...]:
    """Return the lowest numbers without a Reservation, as many as are wanted."""
    wanted = max(0, wanted)
    free_numbers = [number for number in range(len(slots.numbers) + wanted) if number not in slots.numbers]
    return tuple(free_numbers[:wanted])


def _judge(
    slots: QueueSlots, need: _Need, by_state: _SlotsByState, nodes: Sequence[ResourceAmounts], now: datetime
) -> Verdict:
    """Return the verdict on whether what is left of the guarantee is held."""
    if need.possible > MAX_SLOTS:
        text = f"{need.possible} slots would be needed, and a queue has at most {MAX_SLOTS}: use a larger shape"
        return ("False", QueueReason.TOO_MANY_SLOTS, text)
    slots_lacking = max(0, need.wanted - len(by_state.held))
    if not need.of_slot:
        return ("False", QueueReason.SHAPE_LACKS, f"a slot requests no {' and no '.join(need.guarantee)}")
    if not need.of_slot.times_within(need.guarantee):
        return ("False", QueueReason.SHAPE_TOO_LARGE, "a slot is larger than the guarantee")
    if slots_lacking and nodes and not any(slots.slot.fits_within(node) for node in nodes):
        return ("False", QueueReason.SHAPE_TOO_LARGE, "a slot is larger than each node that counts")
    return _lacks(slots, slots_lacking, need.wanted, by_state, now) if slots_lacking else _holds(need)


def _holds(need: _Need) -> Verdict:
    """Return the verdict if every slot that is wanted is held."""
    if lacks := [resource for resource in need.guarantee if not need.of_slot[resource]]:
        return ("False", QueueReason.SHAPE_LACKS, f"a slot requests no {' and no '.join(lacks)}, which is guaranteed")
    held_text = f"{count(need.wanted, 'slot')} held" if need.wanted else "no slot fits beside what the queue's pods use"
    beyond = ", ".join(f"{amount_in_words(name, amount)} {name}" for name, amount in need.beyond.items())
    text = f"{held_text}; no slot covers {beyond}" if beyond else held_text
    if not need.is_divided_evenly:
        return ("True", QueueReason.REMAINDER, text)
    return ("True", QueueReason.SLOTS_HELD if need.wanted else QueueReason.IN_USE, text)


def _lacks(slots: QueueSlots, lacking: int, wanted: int, by_state: _SlotsByState, now: datetime) -> Verdict:
    """Return the verdict if slots are not held, because they failed, have waited for long, or have only begun."""
    head = f"{lacking} of {count(wanted, 'slot')} not held"
    refused_slots = [
        reservation
        for reservation in by_state.resting
        if reservation.status.state and reservation.status.state.reason in _REFUSAL_RESTS
    ]
    if refused_slots or slots.refused:
        why = _state_text(refused_slots[0]) if refused_slots else slots.refused
        return ("False", QueueReason.SLOTS_REFUSED, f"{head}: {why}")
    oldest = min(by_state.waiting, key=lambda reservation: reservation.metadata.creation_timestamp or "", default=None)
    oldest_since = read_timestamp(oldest.metadata.creation_timestamp) if oldest is not None else None
    # The oldest decides: newer slots may not have been tried by a scheduler yet.
    if oldest is not None and oldest_since is not None and not _is_within(_SETTLING_SECONDS, oldest_since, now):
        return ("False", QueueReason.WAITING, f"{head}: {_state_text(oldest)}")
    # While slots are tried again, the condition keeps what it said: it must not turn with each attempt.
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


def _state_text(reservation: Reservation) -> str:
    state = reservation.status.state
    text = f"{state.reason}: {state.message}" if state is not None else "no placeholder yet"
    return f"{reservation.key} is {reservation.phase.value}, {text}"
