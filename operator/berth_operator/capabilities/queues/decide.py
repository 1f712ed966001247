"""Decides what is done for queues: which guarantees count, whose pods go, and what the statuses say."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from berth_core import (
    Condition,
    Enforcement,
    GatedQueue,
    GatedQueueState,
    GatedQueueStatus,
    NamespaceChoice,
    Queue,
    QueueCondition,
    QueueReason,
    QueueRoom,
    QueueState,
    QueueUse,
    Reservation,
    ResourceAmounts,
    amount_in_words,
    choose_namespaces,
    count,
    first_few,
    format_timestamp,
    guaranteed,
    queue_of_slot,
    readable_quantities,
    uncovered,
)
from berth_operator.capabilities.queues.admission import Admission, admit
from berth_operator.capabilities.queues.held_slots import QueueSlots, SlotDecision, decide_slots, read_slots
from berth_operator.capabilities.queues.places import QueuePlaces, QueuePod, Sum

_MAX_AT_ONCE: Final = 200
"""Admissions of one pass; the next one follows at once."""
_NAMED: Final = 5
_LONGEST_END: Final = timedelta(minutes=10)
"""A pod may take a year to terminate, and its queue must not hold its share a second time meanwhile."""

_NOTHING: Final = ResourceAmounts.empty()


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """What decisions about queues are made from."""

    queues: Sequence[GatedQueue]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by name."""
    of_kueue: Mapping[str, str]
    """Namespaces that Kueue manages, each with a LocalQueue there."""
    pods: Sequence[QueuePod]
    nodes: Mapping[str, ResourceAmounts]
    """What the nodes offer that count: ready, not cordoned, not of the control plane."""
    own_namespace: str
    reservations: Sequence[Reservation] = ()
    """Those with names as slots of queues have them, whoever made them."""
    labelled: frozenset[str] = frozenset()
    """Uids of Reservations that a pod waits for, or takes a slot of."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why the API server creates no slots, by uid of their queue."""
    admitting: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes that let in a slot, by uid of a queue that keeps others off its nodes; other queues are left out."""
    fenced: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes that have a fence, each with the namespaces that it is for."""
    unfenced: Mapping[str, str] = field(default_factory=dict)
    """Why a node that should be fenced is not."""
    away: frozenset[str] = frozenset()
    """The nodes that do not count."""

    @property
    def total(self) -> ResourceAmounts:
        return ResourceAmounts.total(self.nodes.values())


@dataclass(frozen=True, slots=True)
class QueueDecision:
    """What to do for the queues, in this order."""

    gated: frozenset[str]
    """Namespaces in which new pods get the gate."""
    releases: tuple[QueuePod, ...]
    """Gated pods that no queue has; their gates come off at once."""
    admits: tuple[QueuePod, ...]
    too_large: tuple[tuple[QueuePod, str], ...]
    """Pods that could never be admitted, each with the reason."""
    statuses: Mapping[str, GatedQueueStatus]
    """By uid of the queue."""
    slots: tuple[SlotDecision, ...] = ()
    """Of the queues with `enforcement: Held`, and of those whose slots are left."""
    is_whole: bool = True
    """Whether everything that fits is admitted and held; else the next pass follows at once."""


def decide_queues(view: QueueView, now: datetime) -> QueueDecision:
    """Return who is admitted, which gates come off, and what the statuses say."""
    total = view.total
    accepted = _accept(view.queues, total)
    choice = choose_namespaces(view.queues, view.namespaces, view.of_kueue, view.own_namespace)
    queues = [queue for queue in accepted.queues if queue.state is QueueState.OPEN]
    slots = _read_slots(view, accepted, choice)
    tally = _Tally(view, choice.queue_of, slots, format_timestamp(now + _LONGEST_END))
    uses = {queue.name: tally.use(queue.name) for queue in queues}
    releases = tuple(pod for pod in view.pods if pod.is_gated and pod.namespace not in choice.queue_of)
    room = QueueRoom(queues, uses, total)
    admission = admit(tally.waiting, tally.queue_of, room, tally, _MAX_AT_ONCE)
    free = total.minus(tally.used_by_others).minus(ResourceAmounts.total(use.allocated for use in uses.values()))
    slot_decisions = {
        queue_name: decide_slots(
            queue_slots,
            accepted.guarantees[queue_name],
            tally.staying(queue_name, is_fenced=queue_slots.queue.metadata.uid in view.admitting),
            tuple(view.nodes.values()),
            coming=tally.coming,
            labelled=view.labelled,
            places=_places(queue_slots, view, tally) if queue_slots.queue.metadata.uid in view.admitting else None,
            now=now,
        )
        for queue_name, queue_slots in slots.items()
    }
    outcome = _Outcome(
        view=view,
        total=total,
        accepted=accepted,
        choice=choice,
        queues=queues,
        uses=uses,
        shares=room.shares,
        reals=room.reals,
        tally=tally,
        admission=admission,
        lacks=uncovered(queues, uses, free),
        slots=slot_decisions,
    )
    return QueueDecision(
        gated=frozenset(choice.queue_of),
        releases=tuple(pod for pod in releases if not pod.is_terminating),
        admits=tuple(admission.admits),
        too_large=tuple(admission.too_large),
        statuses={queue.metadata.uid: _status(queue, outcome, now) for queue in view.queues},
        slots=tuple(slot_decisions.values()),
        is_whole=admission.is_whole and all(decision.is_whole for decision in slot_decisions.values()),
    )


# --- what counts -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _CountedQueues:
    """The queues in amounts, without the guarantees that do not count; and why these do not, by name."""

    queues: tuple[Queue, ...]
    refusals: Mapping[str, Condition]

    @property
    def guarantees(self) -> dict[str, ResourceAmounts]:
        return {queue.name: queue.guarantee for queue in self.queues}


def _accept(queues: Sequence[GatedQueue], total: ResourceAmounts) -> _CountedQueues:
    """Return which guarantees count.

    The older of two queues comes first. One that was accepted stays so for as long as it is not changed, also when
    nodes are lost: what it is guaranteed must not go to others because a node restarts.
    """
    refusals: dict[str, Condition] = {}
    queues_by_name: dict[str, Queue] = {}
    ordered = sorted(queues, key=lambda queue: queue.age_order)
    for queue in ordered:
        queues_by_name[queue.metadata.name] = queue_in_amounts = queue.in_amounts(total)
        excessive = [
            resource
            for resource in queue_in_amounts.guarantee
            if resource in queue_in_amounts.capped
            and queue_in_amounts.guarantee[resource] > queue_in_amounts.capability[resource]
        ]
        if queue_in_amounts.unreadable:
            refusals[queue_in_amounts.name] = _condition("False", QueueReason.INVALID, queue_in_amounts.unreadable)
        elif excessive:
            text = f"the guarantee of {', '.join(excessive)} is above the queue's own capability"
            refusals[queue_in_amounts.name] = _condition("False", QueueReason.ABOVE_CAPABILITY, text)
    counted = _NOTHING
    for queue in sorted(ordered, key=lambda queue: not _was_accepted(queue)):
        queue_in_amounts = queues_by_name[queue.metadata.name]
        if queue_in_amounts.name in refusals or queue.spec.suspend:
            continue
        short_resources = queue_in_amounts.guarantee.lacking(total.minus(counted))
        if short_resources and not _was_accepted(queue):
            shortages = "; ".join(
                f"{resource}: {_left(queue_in_amounts.guarantee, total.minus(counted), resource)}"
                for resource in short_resources
            )
            text = f"the guarantee is above what the nodes offer beside the guarantees of the others ({shortages})"
            refusals[queue_in_amounts.name] = _condition("False", QueueReason.ABOVE_TOTAL, text)
        else:
            counted = counted.plus(queue_in_amounts.guarantee)
    accepted_queues = [
        replace(accepted_queue, guarantee=_NOTHING) if queue_name in refusals else accepted_queue
        for queue_name, accepted_queue in queues_by_name.items()
    ]
    return _CountedQueues(tuple(accepted_queues), refusals)


def _was_accepted(queue: GatedQueue) -> bool:
    """Return whether the queue as it is was accepted before."""
    accepted = queue.condition(QueueCondition.ACCEPTED)
    return (
        accepted is not None and accepted.status == "True" and accepted.observed_generation == queue.metadata.generation
    )


def _read_slots(view: QueueView, accepted: _CountedQueues, choice: NamespaceChoice) -> dict[str, QueueSlots]:
    """Return the slots of the queues that hold any, or have some left, by name of the queue."""
    with_slots = {queue_of_slot(reservation) for reservation in view.reservations}
    chosen_queues = [
        gated_queue
        for gated_queue in view.queues
        if gated_queue.spec.enforcement is Enforcement.HELD or gated_queue.metadata.uid in with_slots
    ]
    slots_by_queue = {}
    for queue in chosen_queues:
        name = queue.metadata.name
        namespaces = [namespace for namespace, queue_name in choice.queue_of.items() if queue_name == name]
        refusal = view.refused.get(queue.metadata.uid, "")
        slots_by_queue[name] = read_slots(queue, namespaces, accepted.guarantees[name], view.reservations, refusal)
    return slots_by_queue


def _places(slots: QueueSlots, view: QueueView, tally: "_Tally") -> QueuePlaces:
    """Return where the pods and slots of a queue are, and what room there is beside all pods."""
    meta, takers = slots.queue.metadata, slots.takers
    own_use, used_by_node = defaultdict[str, Sum](Sum), defaultdict[str, Sum](Sum)
    for pod in view.pods:
        is_own = tally.queue_of.get(pod.namespace) == meta.name and not pod.is_of_node
        is_promised = is_own and pod.uid in takers and not tally.is_held(pod)  # anyone may write that on a pod
        node = pod.node or (pod.promised if is_promised else "")
        if node not in view.nodes:
            continue
        if is_own:
            own_use[node].add(pod.requests)
        if not (is_own and tally.ends_soon(pod)) and not slots.awaits(pod.reservation):
            used_by_node[node].add(pod.requests)
    return QueuePlaces(
        own={node: node_use.total for node, node_use in own_use.items()},
        rooms={node: offered.minus(used_by_node[node].total) for node, offered in view.nodes.items()},
        admitting=view.admitting[meta.uid]
        - {node for node, namespaces in view.fenced.items() if namespaces and slots.namespace not in namespaces},
        before=slots.queue.status.fenced_nodes,
        fenced=frozenset(view.fenced),
        unfenced=view.unfenced,
        away=view.away,
    )


@dataclass(slots=True)
class _Slots:
    """One Reservation: what its placeholders hold, and its pods ask for that are admitted and not handed over.

    A pod takes the place of a placeholder, so the larger of the two counts. One whose placeholder is deleted already,
    while its gate is still on, counts beside them. A slot of the queue's own guarantee counts once a pod takes it.
    """

    queue: str
    is_of_guarantee: bool = False
    held: Sum = field(default_factory=Sum)
    coming: Sum = field(default_factory=Sum)

    @property
    def counted(self) -> ResourceAmounts:
        if self.is_of_guarantee and not self.coming.amounts:
            return _NOTHING
        return self.held.total.largest(self.coming.total)


class _Tally:
    """What the pods of each queue use and ask for, and what pods of no queue use."""

    def __init__(self, view: QueueView, queue_of: Mapping[str, str], slots: Mapping[str, QueueSlots], end: str) -> None:
        """`end` is until when pods end early enough that what they leave is asked for."""
        self.queue_of = queue_of
        self._end = end
        self._takers = {pod: uid for queue_slots in slots.values() for pod, uid in queue_slots.takers.items()}
        self._of_guarantees = {
            (pod.namespace, pod.reservation)
            for pod in (view.pods if slots else ())
            if pod.is_placeholder and _holds_slot(pod, slots.get(queue_of.get(pod.namespace, "")))
        }
        self.waiting: list[QueuePod] = []
        self.admitted: Counter[str] = Counter()
        self._allocated: defaultdict[str, Sum] = defaultdict(Sum)
        self._elsewhere: defaultdict[str, Sum] = defaultdict(Sum)
        self._waiting: defaultdict[str, Sum] = defaultdict(Sum)
        self._ending: defaultdict[str, Sum] = defaultdict(Sum)
        self._unplaced: defaultdict[str, Sum] = defaultdict(Sum)
        """What admitted pods request that have no place yet."""
        self._others = Sum()
        self._slots: dict[tuple[str, str], _Slots] = {}
        """By namespace, too: any user may write the uid of another's Reservation into a label."""
        self._held = {pod.place for pod in view.pods if pod.is_placeholder}
        for pod in view.pods:
            queue = "" if pod.is_of_node else queue_of.get(pod.namespace, "")
            counts = not pod.node or pod.node in view.nodes
            if queue:
                self._add(pod, queue, counts=counts)
            elif pod.node and counts:
                self._others.add(pod.requests)

    def _add(self, pod: QueuePod, queue: str, *, counts: bool) -> None:
        if pod.is_gated:
            if not pod.is_terminating:
                self.waiting.append(pod)
                self._waiting[queue].add(pod.requests)
            return
        self.admitted[queue] += not pod.is_placeholder
        key = self._slots_of(pod)
        if not counts and not (pod.is_placeholder and key in self._of_guarantees):
            self._elsewhere[queue].add(pod.requests)
        elif key is not None:
            slots = self._slots.setdefault(key, _Slots(queue, key in self._of_guarantees))
            if pod.is_placeholder and slots.is_of_guarantee:  # the next one takes over when the end is put off
                slots.held = Sum(dict(slots.held.total.largest(pod.requests).amounts))
            else:
                (slots.held if pod.is_placeholder else slots.coming).add(pod.requests)
        else:
            self._allocated[queue].add(pod.requests)
            if self.ends_soon(pod):
                self._ending[queue].add(pod.requests)
            elif not pod.node and not pod.promised:
                self._unplaced[queue].add(pod.requests)

    def ends_soon(self, pod: QueuePod) -> bool:
        return pod.is_terminating and pod.ends_at <= self._end

    def is_held(self, pod: QueuePod) -> bool:
        """Return whether a placeholder holds the place that a pod was given."""
        return pod.place in self._held

    def _slots_of(self, pod: QueuePod) -> tuple[str, str] | None:
        """Return the Reservation of a placeholder, or of one that is there or to come and whose place a pod takes."""
        if pod.reservation and (pod.is_placeholder or not pod.slot or pod.place in self._held):
            return pod.namespace, pod.reservation
        # A pod that waited without the gate of hand-overs is on its way into a slot, too.
        key = (pod.namespace, self._takers.get(pod.uid, ""))
        return key if key in self._of_guarantees else None

    @property
    def coming(self) -> frozenset[str]:
        """Return the uids of Reservations whose slots admitted pods are about to take."""
        return frozenset(uid for (_, uid), queue_slots in self._slots.items() if queue_slots.coming.amounts)

    @property
    def used_by_others(self) -> ResourceAmounts:
        return self._others.total

    def use(self, queue: str) -> QueueUse:
        """Return what a queue uses now."""
        slot_amounts = [counts.counted for counts in self._slots.values() if counts.queue == queue]
        allocated = ResourceAmounts.total([self._allocated[queue].total, *slot_amounts])
        elsewhere = self._elsewhere[queue].total
        return QueueUse(allocated, elsewhere, allocated.plus(elsewhere).plus(self._waiting[queue].total))

    def staying(self, queue: str, *, is_fenced: bool) -> ResourceAmounts:
        """Return what a queue uses, without the pods that end soon: what they leave is held as early as can be.

        Nor do pods count that have no place yet, where others are kept off its nodes: room that they might take is
        made a slot first, and one that takes no slot has to find room elsewhere.
        """
        used_to_stay = self.use(queue).allocated.minus(self._ending[queue].total)
        return used_to_stay.minus(self._unplaced[queue].total) if is_fenced else used_to_stay

    def cost(self, pod: QueuePod) -> ResourceAmounts:
        """Return what the admission of a pod adds: less where a placeholder holds its place already."""
        slots = self._slots.get(self._slots_of(pod) or ("", ""))
        if slots is None:
            return pod.requests
        return slots.held.total.largest(slots.coming.total.plus(pod.requests)).minus(slots.counted)

    def take(self, pod: QueuePod) -> None:
        """Count a pod of a Reservation as admitted."""
        slots = self._slots.get(self._slots_of(pod) or ("", ""))
        if slots is not None:
            slots.coming.add(pod.requests)


def _holds_slot(pod: QueuePod, slots: QueueSlots | None) -> bool:
    return slots is not None and slots.holds(pod.reservation, pod.reservation_name, pod.requests)


# --- status ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What the statuses are written from."""

    view: QueueView
    total: ResourceAmounts
    accepted: _CountedQueues
    choice: NamespaceChoice
    queues: Sequence[Queue]
    """Those that are switched on."""
    uses: Mapping[str, QueueUse]
    shares: Mapping[str, ResourceAmounts]
    reals: Mapping[str, ResourceAmounts]
    """The real capability of each queue, by name."""

    tally: _Tally
    admission: Admission
    lacks: Mapping[str, ResourceAmounts]
    slots: Mapping[str, SlotDecision]


def _status(queue: GatedQueue, seen: _Outcome, now: datetime) -> GatedQueueStatus:
    name = queue.metadata.name
    own_queue = next((candidate for candidate in seen.queues if candidate.name == name), None)
    conditions = [
        (QueueCondition.ACCEPTED, _accepted(queue, seen)),
        (QueueCondition.ENFORCED, _enforced(queue, seen)),
        (QueueCondition.COVERED, _covered(own_queue, seen)),
    ]
    slots = seen.slots.get(name)
    if slots is not None and slots.verdict is not None:
        conditions.append((QueueCondition.HELD, _condition(*slots.verdict)))
    dated_conditions = tuple(
        condition.dated(type_, queue.metadata, queue.status.conditions, now) for type_, condition in conditions
    )
    if own_queue is None:
        return GatedQueueStatus(
            observed_generation=queue.metadata.generation, state=GatedQueueState.SUSPENDED, conditions=dated_conditions
        )
    use, queue_of = seen.uses[name], seen.choice.queue_of
    return GatedQueueStatus(
        observed_generation=queue.metadata.generation,
        state=GatedQueueState.REFUSED if name in seen.accepted.refusals else GatedQueueState.OPEN,
        namespaces=sum(queue_name == name for queue_name in queue_of.values()),
        admitted=seen.tally.admitted[name],
        waiting=sum(queue_of[pod.namespace] == name for pod in seen.tally.waiting),
        too_large=sum(queue_of[pod.namespace] == name for pod, _ in seen.admission.too_large),
        guarantee=readable_quantities(own_queue.guarantee),
        real_capability=readable_quantities(seen.reals[name]),
        deserved=readable_quantities(seen.shares[name]),
        allocated=readable_quantities(use.allocated.plus(use.elsewhere)),
        request=readable_quantities(use.request),
        held=readable_quantities(slots.held_amounts) if slots is not None else {},
        held_slots=slots.held if slots is not None else 0,
        waiting_slots=slots.waiting if slots is not None else 0,
        fenced_nodes=slots.kept if slots is not None else (),
        conditions=dated_conditions,
    )


def _accepted(queue: GatedQueue, seen: _Outcome) -> Condition:
    refusal = seen.accepted.refusals.get(queue.metadata.name)
    if refusal is not None:
        return refusal
    if queue.spec.suspend:
        return _condition("Unknown", QueueReason.SUSPENDED, "spec.suspend switches the queue off")
    text = f"guaranteed are {_amounts(guaranteed(seen.queues))} in all; the nodes that count are {len(seen.view.nodes)}"
    return _condition("True", QueueReason.FITS, text)


def _enforced(queue: GatedQueue, seen: _Outcome) -> Condition:
    """Return whether the queue has all the namespaces that it chooses."""
    name, choice = queue.metadata.name, seen.choice
    if queue.spec.suspend:
        return _condition("False", QueueReason.SUSPENDED, "spec.suspend switches the queue off: its pods have no gate")
    namespaces_text = count(sum(queue_name == name for queue_name in choice.queue_of.values()), "namespace")
    if of_kueue := choice.of_kueue.get(name):
        text = (
            f"left out, as Kueue has a LocalQueue there: {first_few(of_kueue, _NAMED)}; enforced in {namespaces_text}"
        )
        return _condition("False", QueueReason.OF_KUEUE, text)
    if of_another := choice.of_another.get(name):
        text = f"left out, as an older queue has it: {first_few(of_another, _NAMED)}; enforced in {namespaces_text}"
        return _condition("False", QueueReason.OF_ANOTHER, text)
    if name not in choice.queue_of.values():
        text = "spec.namespaceSelector chooses no namespace"
        return _condition("False", QueueReason.NO_NAMESPACES, text)
    return _condition("True", QueueReason.GATED, f"pods of {namespaces_text} are created with the gate")


def _covered(queue: Queue | None, seen: _Outcome) -> Condition:
    """Return whether what a queue is guaranteed and does not use is free, and if not, who uses it."""
    if queue is None or not queue.guarantee:
        return _condition("Unknown", QueueReason.NO_GUARANTEE, "no guarantee counts")
    lacks = seen.lacks[queue.name]
    if not lacks:
        return _condition("True", QueueReason.FREE, "what is guaranteed is used by the queue or free")
    sentences = [f"of the guarantee {_amounts(lacks)} are neither used by the queue nor free"]
    if short := guaranteed(seen.queues).lacking(seen.total):
        sentences.append(f"the nodes offer less {' and '.join(short)} than all queues are guaranteed")
        return _condition("False", QueueReason.NODES_LACK, ": ".join(sentences))
    used_by_others = ResourceAmounts({resource: seen.tally.used_by_others[resource] for resource in lacks})
    users = [f"pods of no queue use {_amounts(used_by_others)}"] if used_by_others else []
    for other_queue in seen.queues:
        excess = _beyond(other_queue, seen, lacks)
        if other_queue.name != queue.name and excess:
            users.append(f"queue {other_queue.name} uses {_amounts(excess)} more than it may")
    return _condition("False", QueueReason.USED_BY_OTHERS, ": ".join([*sentences, ", ".join(users)]))


def _beyond(queue: Queue, seen: _Outcome, named: Iterable[str]) -> ResourceAmounts:
    """Return what a queue uses beyond its real capability, of the named resources."""
    real_amounts, allocated = seen.reals[queue.name], seen.uses[queue.name].allocated
    return ResourceAmounts(
        {
            resource: max(0, allocated[resource] - max(real_amounts[resource], queue.guarantee[resource]))
            for resource in named
        }
    )


def _left(guarantee: ResourceAmounts, free: ResourceAmounts, name: str) -> str:
    return f"{amount_in_words(name, max(0, free[name]))} left for {amount_in_words(name, guarantee[name])}"


def _amounts(amounts: ResourceAmounts) -> str:
    return ", ".join(f"{amount_in_words(name, amount)} {name}" for name, amount in amounts.items()) or "nothing"


def _condition(status: str, reason: QueueReason, message: str) -> Condition:
    return Condition(type="", status=status, reason=reason, message=message)
