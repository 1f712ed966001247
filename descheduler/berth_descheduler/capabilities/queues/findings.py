"""What keeps queues from their guarantees, as their conditions say, for `berth doctor`."""

from collections.abc import Iterator, Mapping
from typing import Final

from berth_core import QueueCondition, QueueReason
from berth_descheduler.capability import Advice
from berth_kube import QUEUES, Access
from berth_sandbox.invariants import ClusterState, Invariant, Violation

_TROUBLES: Final = {
    QueueCondition.ACCEPTED: Invariant.QUEUE_REFUSED,
    QueueCondition.ENFORCED: Invariant.QUEUE_NOT_ENFORCED,
    QueueCondition.COVERED: Invariant.QUEUE_NOT_COVERED,
    QueueCondition.HELD: Invariant.QUEUE_NOT_HELD,
}


def find_queue_troubles(state: ClusterState) -> Iterator[Violation]:
    """Yield what keeps queues from their guarantees."""
    for queue in state.active_queues:
        for type_, invariant in _TROUBLES.items():
            condition = queue.condition(type_)
            if condition is not None and (condition.status == "False" or condition.reason == QueueReason.REMAINDER):
                yield Violation(invariant, f"queue {queue.metadata.name}", f"{condition.reason}: {condition.message}")


_QUEUES: Final = Access("list", QUEUES)

ADVICE: Final[Mapping[Invariant, Advice]] = {
    Invariant.QUEUE_REFUSED: Advice(
        what="The guarantee of a queue does not count.",
        why="Other queues may use what it asks for; its own pods are admitted within what these leave.",
        to_do="Lower the guarantee, raise the capability, or mend the field that is named:",
        command="kubectl edit bq {name}",
        rights=(_QUEUES,),
    ),
    Invariant.QUEUE_NOT_ENFORCED: Advice(
        what="A queue does not have all namespaces that it chooses, or chooses none.",
        why="The pods there are not admitted by it, and use nothing of its guarantee.",
        to_do="Choose other namespaces, or leave these to the other queue or to Kueue:",
        command="kubectl edit bq {name}",
        rights=(_QUEUES,),
    ),
    Invariant.QUEUE_NOT_COVERED: Advice(
        what="A part of what a queue is guaranteed is neither used by its pods nor free.",
        why="Its pods wait for a place until the pods that use it end.",
        to_do="The message says who uses it. A queue over all namespaces, or enforcement Held, prevents it:",
        command="kubectl describe bq {name}",
        rights=(_QUEUES,),
    ),
    Invariant.QUEUE_NOT_HELD: Advice(
        what="A part of what a queue is guaranteed is neither used by its pods nor held by its slots.",
        why="Other pods may use it, also those of no queue.",
        to_do="The reason says whether it waits for room, or what to change (held.shape, held.namespace, limits):",
        command="kubectl describe bq {name}",
        rights=(_QUEUES,),
    ),
}
