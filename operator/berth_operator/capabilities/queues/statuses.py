"""The statuses of queues: their conditions, numbers and amounts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from berth_core import (
    Condition,
    GatedQueue,
    GatedQueueState,
    GatedQueueStatus,
    NamespaceChoice,
    Queue,
    QueueCondition,
    QueueReason,
    QueueUse,
    ResourceAmounts,
    amount_in_words,
    count,
    first_few,
    guaranteed,
    readable_quantities,
)
from berth_operator.capabilities.queues.admission import QueueAdmission
from berth_operator.capabilities.queues.guarantees import CountedQueues, build_condition
from berth_operator.capabilities.queues.held_slots import SlotDecision
from berth_operator.capabilities.queues.tally import Tally
from berth_operator.capabilities.queues.view import QueueView

_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class QueuePass:
    """What was decided in a pass, from which the statuses are written."""

    view: QueueView
    total: ResourceAmounts
    accepted: CountedQueues
    choice: NamespaceChoice
    queues: Sequence[Queue]
    """The queues that are switched on."""
    uses: Mapping[str, QueueUse]
    shares: Mapping[str, ResourceAmounts]
    reals: Mapping[str, ResourceAmounts]
    """The real capability of each queue, by name."""

    tally: Tally
    admission: QueueAdmission
    lacks: Mapping[str, ResourceAmounts]
    slots: Mapping[str, SlotDecision]


def status_of(queue: GatedQueue, outcome: QueuePass, now: datetime) -> GatedQueueStatus:
    name = queue.metadata.name
    own_queue = next((candidate for candidate in outcome.queues if candidate.name == name), None)
    conditions = [
        (QueueCondition.ACCEPTED, _accepted(queue, outcome)),
        (QueueCondition.ENFORCED, _enforced(queue, outcome)),
        (QueueCondition.COVERED, _covered(own_queue, outcome)),
    ]
    slots = outcome.slots.get(name)
    if slots is not None and slots.verdict is not None:
        conditions.append((QueueCondition.HELD, build_condition(*slots.verdict)))
    dated_conditions = tuple(
        condition.dated(type_, queue.metadata, queue.status.conditions, now) for type_, condition in conditions
    )
    if own_queue is None:
        return GatedQueueStatus(
            observed_generation=queue.metadata.generation, state=GatedQueueState.SUSPENDED, conditions=dated_conditions
        )
    use, queue_of = outcome.uses[name], outcome.choice.queue_of
    return GatedQueueStatus(
        observed_generation=queue.metadata.generation,
        state=GatedQueueState.REFUSED if name in outcome.accepted.refusals else GatedQueueState.OPEN,
        namespaces=sum(queue_name == name for queue_name in queue_of.values()),
        admitted=outcome.tally.admitted[name],
        waiting=sum(queue_of[pod.namespace] == name for pod in outcome.tally.waiting),
        too_large=sum(queue_of[pod.namespace] == name for pod, _ in outcome.admission.too_large),
        guarantee=readable_quantities(own_queue.guarantee),
        real_capability=readable_quantities(outcome.reals[name]),
        deserved=readable_quantities(outcome.shares[name]),
        allocated=readable_quantities(use.allocated.plus(use.elsewhere)),
        request=readable_quantities(use.request),
        held=readable_quantities(slots.held_amounts) if slots is not None else {},
        held_slots=slots.held if slots is not None else 0,
        waiting_slots=slots.waiting if slots is not None else 0,
        fenced_nodes=slots.kept if slots is not None else (),
        conditions=dated_conditions,
    )


def _accepted(queue: GatedQueue, outcome: QueuePass) -> Condition:
    refusal = outcome.accepted.refusals.get(queue.metadata.name)
    if refusal is not None:
        return refusal
    if queue.spec.suspend:
        return build_condition("Unknown", QueueReason.SUSPENDED, "spec.suspend switches the queue off")
    all_guarantees = _amounts(guaranteed(outcome.queues))
    text = f"all guarantees together are {all_guarantees}, counted on {count(len(outcome.view.nodes), 'node')}"
    return build_condition("True", QueueReason.FITS, text)


def _enforced(queue: GatedQueue, outcome: QueuePass) -> Condition:
    """Return the condition of whether the queue has all the namespaces that it selects."""
    name, choice = queue.metadata.name, outcome.choice
    if queue.spec.suspend:
        return build_condition(
            "False", QueueReason.SUSPENDED, "spec.suspend switches the queue off: its pods have no gate"
        )
    namespaces_text = count(sum(queue_name == name for queue_name in choice.queue_of.values()), "namespace")
    if of_kueue := choice.of_kueue.get(name):
        text = (
            f"left out, as Kueue has a LocalQueue there: {first_few(of_kueue, _NAMED)}; enforced in {namespaces_text}"
        )
        return build_condition("False", QueueReason.OF_KUEUE, text)
    if of_another := choice.of_another.get(name):
        text = f"left out, as an older queue has it: {first_few(of_another, _NAMED)}; enforced in {namespaces_text}"
        return build_condition("False", QueueReason.OF_ANOTHER, text)
    if name not in choice.queue_of.values():
        text = "spec.namespaceSelector chooses no namespace"
        return build_condition("False", QueueReason.NO_NAMESPACES, text)
    return build_condition("True", QueueReason.GATED, f"pods of {namespaces_text} are created with the gate")


def _covered(queue: Queue | None, outcome: QueuePass) -> Condition:
    """Return the condition of whether the unused part of a guarantee is free, and if it is not, who uses it."""
    if queue is None or not queue.guarantee:
        return build_condition("Unknown", QueueReason.NO_GUARANTEE, "no guarantee counts")
    lacks = outcome.lacks[queue.name]
    if not lacks:
        return build_condition("True", QueueReason.FREE, "what is guaranteed is used by the queue or free")
    sentences = [f"of the guarantee {_amounts(lacks)} are neither used by the queue nor free"]
    if short := guaranteed(outcome.queues).lacking(outcome.total):
        sentences.append(f"the nodes offer less {' and '.join(short)} than all queues are guaranteed")
        return build_condition("False", QueueReason.NODES_LACK, ": ".join(sentences))
    used_by_others = ResourceAmounts({resource: outcome.tally.used_by_others[resource] for resource in lacks})
    users = [f"pods of no queue use {_amounts(used_by_others)}"] if used_by_others else []
    for other_queue in outcome.queues:
        excess = _beyond(other_queue, outcome, lacks)
        if other_queue.name != queue.name and excess:
            users.append(f"queue {other_queue.name} uses {_amounts(excess)} more than it may")
    return build_condition("False", QueueReason.USED_BY_OTHERS, ": ".join([*sentences, ", ".join(users)]))


def _beyond(queue: Queue, outcome: QueuePass, named: Iterable[str]) -> ResourceAmounts:
    """Return what a queue uses beyond its real capability, for the named resources."""
    real_amounts, allocated = outcome.reals[queue.name], outcome.uses[queue.name].allocated
    return ResourceAmounts(
        {
            resource: max(0, allocated[resource] - max(real_amounts[resource], queue.guarantee[resource]))
            for resource in named
        }
    )


def _amounts(amounts: ResourceAmounts) -> str:
    return ", ".join(f"{amount_in_words(name, amount)} {name}" for name, amount in amounts.items()) or "nothing"
