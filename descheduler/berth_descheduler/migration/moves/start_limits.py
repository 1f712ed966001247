"""How long a replacement may take until it is available: the run's timeout, its probes, its Deployment's deadline.

A Deployment says in `progressDeadlineSeconds` after how long its controller takes a pod that is not available for
stuck. A run that gave one up sooner could never move it.
"""

from typing import Final

from berth_descheduler.migration.moves.memory import MoveMemory
from berth_descheduler.settings import MoveTimeouts

DEFAULT_PROGRESS_SECONDS: Final = 600.0
"""The `progressDeadlineSeconds` of a Deployment that does not say."""

_REPLICA_SET: Final = "ReplicaSet"


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
    return DEFAULT_PROGRESS_SECONDS if owner is not None and owner.kind == _REPLICA_SET else 0.0
