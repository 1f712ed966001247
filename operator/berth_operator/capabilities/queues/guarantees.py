"""Which guarantees of queues count, and why the others do not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from berth_core import Condition, GatedQueue, Queue, QueueCondition, QueueReason, ResourceAmounts, amount_in_words

_NOTHING: Final = ResourceAmounts.empty()


@dataclass(frozen=True, slots=True)
class CountedQueues:
    """The queues in amounts, without the guarantees that do not count, and by name of the queue why these do not."""

    queues: tuple[Queue, ...]
    refusals: Mapping[str, Condition]

    @property
    def guarantees(self) -> dict[str, ResourceAmounts]:
        return {queue.name: queue.guarantee for queue in self.queues}


def accept_queues(queues: Sequence[GatedQueue], total: ResourceAmounts) -> CountedQueues:
    """Return which guarantees count, given what all nodes that count offer.

    Where not all fit, the older queues come first. A queue that was accepted stays so until it is changed, also when
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
            refusals[queue_in_amounts.name] = build_condition("False", QueueReason.INVALID, queue_in_amounts.unreadable)
        elif excessive:
            text = f"the guarantee of {', '.join(excessive)} is above the queue's own capability"
            refusals[queue_in_amounts.name] = build_condition("False", QueueReason.ABOVE_CAPABILITY, text)
    counted = _NOTHING
    # Stable sort: accepted queues first, and within both groups the older first.
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
            refusals[queue_in_amounts.name] = build_condition("False", QueueReason.ABOVE_TOTAL, text)
        else:
            counted = counted.plus(queue_in_amounts.guarantee)
    accepted_queues = [
        replace(accepted_queue, guarantee=_NOTHING) if queue_name in refusals else accepted_queue
        for queue_name, accepted_queue in queues_by_name.items()
    ]
    return CountedQueues(tuple(accepted_queues), refusals)


def _was_accepted(queue: GatedQueue) -> bool:
    """Return whether this generation of the queue was accepted before."""
    accepted = queue.condition(QueueCondition.ACCEPTED)
    return (
        accepted is not None and accepted.status == "True" and accepted.observed_generation == queue.metadata.generation
    )


def _left(guarantee: ResourceAmounts, free: ResourceAmounts, name: str) -> str:
    return f"{amount_in_words(name, max(0, free[name]))} left for {amount_in_words(name, guarantee[name])}"


def build_condition(status: str, reason: QueueReason, message: str) -> Condition:
    return Condition(type="", status=status, reason=reason, message=message)
