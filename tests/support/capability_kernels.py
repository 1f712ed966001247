"""What a capability is built from, around an API server in memory."""

from collections.abc import Callable
from functools import partial

from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.runtime.capability import Kernel, PolledKind
from berth_operator.runtime.workqueue import Key


class PolledListing(PolledKind):
    """Lists every three seconds without the thread that watches for the first object."""

    def _begin_watch(self) -> None:
        self._has_changed.set()


def build_kernel(
    context: Context,
    *,
    recorder: EventRecorder,
    leads: Callable[[], bool],
    enqueue: Callable[[Key, float], None],
    rules: ClusterRules | None = None,
) -> Kernel:
    return Kernel(
        context=context,
        recorder=recorder,
        priorities=PriorityClasses(context.client, rules or ClusterRules()),
        leads=leads,
        enqueue=enqueue,
        client_config=lambda: {"url": "https://127.0.0.1:1/handover/x"},
        listing=partial(PolledListing, context.client, context.clock),
    )
