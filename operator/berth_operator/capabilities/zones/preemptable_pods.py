"""Labels the pods that may use open lent nodes, so that the fences of such nodes admit them."""

import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from berth_core import (
    DAEMON_POD_LABEL,
    PREEMPTABLE_LABEL,
    BerthError,
    ObjectMeta,
    Pod,
    is_preemptable,
    preemptable_groups,
    volcano_group_of,
)
from berth_core.lent_node_pods import says_preemptable
from berth_kube import PODS
from berth_operator.reservation.act.context import WITHOUT_NODE, Context
from berth_operator.reservation.act.fences import label_oldest
from berth_operator.schedulers.volcano import POD_GROUPS

# Between two searches, each of which lists the cluster's pods without a node.
_LET_IN_SECONDS: Final = 3.0


class PodGroupMetadata(msgspec.Struct, frozen=True):
    """The part of a PodGroup with the annotations on whether its pods are preemptable, and on its job's budget."""

    metadata: ObjectMeta


class PreemptablePods:
    """Labels preemptable pods that a scheduler has refused: fences of open lent nodes let them pass. Thread-safe."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._lock = threading.Lock()
        self._next = 0.0
        """Monotonic time from which the pods may be listed again."""

    def let_in(self) -> None:
        """Label the oldest of them; raises the first refusal at the end."""
        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + _LET_IN_SECONDS
        labels = f"!{PREEMPTABLE_LABEL},!{DAEMON_POD_LABEL}"
        waiting_pods = self._client.list(PODS, field_selector=WITHOUT_NODE, label_selector=labels, type=Pod).items
        refused_pods = [pod for pod in waiting_pods if pod.is_unschedulable and not pod.is_terminating]
        # PodGroups are listed only if they could matter: clusters without Volcano do not serve them.
        groups = self._groups() if any(map(volcano_group_of, refused_pods)) else frozenset()
        preemptable = [pod for pod in refused_pods if is_preemptable(pod, groups)]
        label_oldest(self._client, preemptable, PREEMPTABLE_LABEL)

    def mark(self, pods: Iterable[Pod]) -> None:
        """Label the pods on open lent nodes that came by Volcano's label; raises the first refusal at the end."""
        # The owner of a pod may remove Volcano's label, and would keep the node when it closes. Berth's label stays.
        unmarked = [pod for pod in pods if PREEMPTABLE_LABEL not in pod.metadata.labels and not pod.is_terminating]
        label_oldest(self._client, [pod for pod in unmarked if says_preemptable(pod.metadata)], PREEMPTABLE_LABEL)

    def _groups(self) -> frozenset[tuple[str, str]]:
        """Return the pod groups whose pods are preemptable, none if they cannot be listed."""
        with suppress(BerthError):
            groups = self._client.list(POD_GROUPS, type=PodGroupMetadata).items
            return preemptable_groups(group.metadata for group in groups)
        return frozenset()
