"""Reads how long Deployments give their pods to become available."""

from collections.abc import Mapping
from typing import Any

from berth_core import BerthError
from berth_descheduler.migration.moves.replacement_readiness import LONGEST_START_SECONDS
from berth_descheduler.migration.moves.start_limits import DEFAULT_PROGRESS_SECONDS
from berth_kube import DEPLOYMENTS, REPLICA_SETS, KubeClient, NotFoundError, controller_reference


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
                # Two threads may read the same at once: the answers are equal, and a lock would be held during a call.
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
        # The greatest int32 stands for no deadline (`HasProgressDeadline` in pkg/controller/deployment/util), and no
        # plan can wait that long.
        return DEFAULT_PROGRESS_SECONDS if seconds is None else min(float(seconds), LONGEST_START_SECONDS)
