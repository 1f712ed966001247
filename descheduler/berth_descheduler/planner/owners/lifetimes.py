"""Whether a pod or its namespace is about to go, or would not go when it is evicted.

Whatever the controller wants, nothing is created in a namespace that is being deleted, and a StatefulSet or a Job waits
for a pod that a finalizer keeps.
"""

from collections.abc import Iterator
from typing import Final

from berth_core import Pod, Snapshot
from berth_descheduler.framework import Refusal, RefusalReason

# KEP-2307 tracks finished pods of Jobs by this finalizer.
HARMLESS_FINALIZERS: Final = frozenset({"batch.kubernetes.io/job-tracking"})
"""The Job controller removes its finalizer as soon as it has counted the pod."""


class Lifetimes:
    """Answers for the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._terminating_namespaces = frozenset(
            namespace.metadata.name for namespace in snapshot.namespaces if namespace.is_terminating
        )

    def refusals(self, pod: Pod) -> Iterator[Refusal]:
        namespace = pod.metadata.namespace
        if namespace in self._terminating_namespaces:
            text = f"the namespace {namespace} is being deleted, and nothing can be made in it"
            yield Refusal(RefusalReason.NO_REPLACEMENT, text)
        # Who is about to delete a pod says so by the condition DisruptionTarget first (KEP-3329): an eviction, a
        # preemption, the taint controller, the pod garbage collector.
        if (disruption := pod.disruption) is not None and not pod.is_terminating:
            why = f" ({disruption.reason})" if disruption.reason else ""
            text = f"its condition {disruption.type} says that it is about to be deleted{why}"
            yield Refusal(RefusalReason.TERMINATING, text)
        for finalizer in pod.metadata.finalizers:
            if finalizer not in HARMLESS_FINALIZERS:
                text = f"its finalizer {finalizer} would keep it when it is evicted"
                yield Refusal(RefusalReason.FOREIGN_FINALIZER, text)
