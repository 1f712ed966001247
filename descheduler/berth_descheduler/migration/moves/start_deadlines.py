"""How long a replacement may take until it is available: the run's timeout, its probes, its Deployment's deadline.

A Deployment says in `progressDeadlineSeconds` after how long its controller takes a pod that is not available for
stuck. A run that gave one up sooner could never move it.
"""

from collections.abc import Mapping
from typing import Any, Final

from berth_core import BerthError
from berth_descheduler.migration.moves.memory import MoveMemory
from berth_descheduler.migration.moves.replacement_readiness import LONGEST_START_SECONDS
from berth_descheduler.settings import MoveTimeouts
from berth_kube import DEPLOYMENTS, REPLICA_SETS, KubeClient, NotFoundError, controller_reference

DEFAULT_PROGRESS_SECONDS: Final = 600.0
"""The `progressDeadlineSeconds` of a Deployment that does not say."""


def start_limit(memory: MoveMemory, timeouts: MoveTimeouts) -> float:
    """Return how long the replacement of a move may take until its containers run, and again until it is available."""
    min_ready_seconds = memory.surge.min_ready_seconds if memory.surge.wanted else 0.0
    limit = timeouts.ready_seconds + memory.pod.start_seconds + min_ready_seconds
    return max(limit, _progress_seconds(memory)) if timeouts.heeds_progress_deadlines else limit


def _progress_seconds(memory: MoveMemory) -> float:
    """Return the deadline that was read with the pod; until then, and after a restart, the default counts."""
    if memory.pod.progress_seconds is not None:
        return memory.pod.progress_seconds
    owner = memory.move.owner
    return DEFAULT_PROGRESS_SECONDS if owner is not None and owner.kind == REPLICA_SETS.kind else 0.0


class ProgressDeadlines:
    """Reads the deadlines of pods' Deployments, once for each ReplicaSet; called from many threads."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._known: dict[tuple[str, str], float] = {}

    def of(self, raw_pod: Mapping[str, Any]) -> float | None:
        """Return the deadline in seconds; 0 for pods of other controllers, None where it cannot be read."""
        owner = controller_reference(raw_pod)
        if owner is None or owner.kind != REPLICA_SETS.kind:
            return 0.0
        key = (owner.namespace, owner.name)
        if key not in self._known:
            try:
                self._known[key] = self._read(*key)
            except BerthError:
                return None
        return self._known[key]

    def _read(self, namespace: str, replica_set: str) -> float:
        try:
            owner = controller_reference(self._client.get(REPLICA_SETS, replica_set, namespace=namespace))
            if owner is None or owner.kind != DEPLOYMENTS.kind:
                return 0.0
            deployment = self._client.get(DEPLOYMENTS, owner.name, namespace=namespace)
        except NotFoundError:
            return 0.0
        seconds = (deployment.get("spec") or {}).get("progressDeadlineSeconds")
        return DEFAULT_PROGRESS_SECONDS if seconds is None else min(float(seconds), LONGEST_START_SECONDS)
