"""The plugin `LentNodes`: pods leave lent nodes that are closed.

A node is lent if it carries the label of a zone, and closed while the operator's fence lets in DaemonSet pods only:
before the window of its zone ends, and until the next one begins. A run names as many pods of a job as its budget
allows, by default one, and none while another is missing.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_core import (
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
    REVOCABLE_ZONE_LABEL,
    STANDING_FENCE_LABEL,
    InputError,
    LentFence,
    ObjectMeta,
    Pod,
    Snapshot,
    has_to_leave,
    job_of,
    share_of,
    volcano_group_of,
)
from berth_descheduler.framework import Candidate, ClusterView

LENT_NODES: Final = "LentNodes"


@dataclass(frozen=True, slots=True)
class LentNodes:
    """Names the pods that have to leave lent nodes now."""

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "LentNodes":
        """Return the plugin; raises `InputError` for any argument: zones say all."""
        if args:
            raise InputError("args", min(args), "nothing: RevocableZones say which nodes are closed, and when")
        return cls()

    def deschedule(self, view: ClusterView) -> Iterator[Candidate]:
        """Yield the pods that may leave closed lent nodes now, by job."""
        closed = _closed_nodes(view.snapshot)
        if not closed:
            return
        groups = {(one.metadata.namespace, one.metadata.name): one.metadata for one in view.snapshot.pod_groups}
        jobs: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in view.snapshot.pods:
            if has_to_leave(pod):
                jobs[job_of(pod)].append(pod)
        for _, members in sorted(jobs.items()):
            leaving = [pod for pod in members if pod.spec.node_name in closed and not pod.is_terminating]
            if leaving:
                group = groups.get((leaving[0].metadata.namespace, volcano_group_of(leaving[0])))
                for pod in sorted(leaving, key=lambda one: one.key)[: _allowed(members, group)]:
                    node = pod.spec.node_name
                    yield Candidate(pod.metadata.namespace, pod.metadata.name, f"the lent node {node} is closed")


def _closed_nodes(snapshot: Snapshot) -> set[str]:
    """Return the lent nodes with the fence of a closed one."""
    lent = {node.metadata.name for node in snapshot.nodes if REVOCABLE_ZONE_LABEL in node.metadata.labels}
    fences = (pod for pod in snapshot.pods if pod.metadata.labels.get(STANDING_FENCE_LABEL) == LentFence.CLOSED)
    return lent & {pod.spec.node_name for pod in fences if not pod.is_terminal}


def _allowed(members: list[Pod], group: ObjectMeta | None) -> int:
    """Return how many pods of a job may leave now."""
    available = sum(pod.is_ready and not pod.is_terminating for pod in members)
    missing = len(members) - available
    most = _said(JDB_MAX_UNAVAILABLE_ANNOTATION, members, group)
    least = _said(JDB_MIN_AVAILABLE_ANNOTATION, members, group)
    if most is None and least is not None:
        return max(0, available - least)
    return max(0, (1 if most is None else most) - missing)


def _said(key: str, members: list[Pod], group: ObjectMeta | None) -> int | None:
    """Return what the pods or their group say, None for nothing that can be read."""
    for meta in (members[0].metadata, group):
        if meta is not None and key in meta.annotations:
            return share_of(meta.annotations[key], len(members))
    return None
