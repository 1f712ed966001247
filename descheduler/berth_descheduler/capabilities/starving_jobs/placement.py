"""Tries waiting pods on a simulation of the cluster: which jobs fit now, and which pods only fences keep off."""

from collections.abc import Iterator
from dataclasses import replace

from berth_core import PLACEHOLDER_LABEL, Pod, Snapshot, is_best_effort, owner_matches
from berth_descheduler.capabilities.starving_jobs.pending_jobs import PendingJob, has_place
from berth_descheduler.planner import NodeIndex, PodIndex, State, is_pending, odd_requests
from berth_descheduler.planner.simulation import Cluster
from berth_descheduler.planner.standing_fences import standing_fences, without_fences


class Placement:
    """Tries each job alone on the cluster as it is; `cluster` has the jobs' pods on its waiting node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._state = State(cluster)

    def fits(self, job: PendingJob) -> bool:
        """Return whether all missing pods of a job fit at once, as the cluster is now.

        Each pod takes the first node that admits it, so a tight fit that needs another order may be overlooked.
        """
        mark = self._state.mark()
        try:
            return all(self._place(pod) for pod in job.missing)
        finally:
            self._state.undo_to(mark)

    def _place(self, pod: Pod) -> bool:
        index = self._cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name]
        class_index = self._cluster.pods[index].class_index
        for node in self._nodes():
            if self._state.fits(class_index, node) and self._state.refusal(index, node) is None:
                self._state.move(index, node)
                return True
        return False

    def _nodes(self) -> Iterator[NodeIndex]:
        return (
            NodeIndex(node) for node in range(len(self._cluster.nodes)) if NodeIndex(node) != self._cluster.waiting_node
        )


def pod_index(cluster: Cluster, pod: Pod) -> PodIndex:
    """Return the index of a pod in a simulated cluster; raises `KeyError` for a pod that is not in it."""
    return cluster.pod_numbers[pod.metadata.namespace, pod.metadata.name]


def pods_kept_off(snapshot: Snapshot) -> tuple[tuple[Pod, str], ...]:
    """Return the waiting pods that would fit on a fenced node if it were not kept, each with the first such node.

    Pods that fences let in, that have something kept for them, or that are on their way to a place are left out.
    """
    fenced = standing_fences(snapshot)
    owners = [
        owner for reservation in snapshot.reservations if reservation.is_live for owner in reservation.spec.owners
    ]
    vain = (pod for pod in snapshot.pods if _waits_in_vain(pod) and not odd_requests(pod))
    waiting = [
        pod for pod in vain if not is_best_effort(pod.spec) and not any(owner_matches(owner, pod) for owner in owners)
    ]
    if not fenced or not waiting:
        return ()
    # Placeholders without a node and all Reservations are left out as well: what they await is not theirs yet, and
    # would hide that the fence alone keeps the pod off.
    opened = without_fences(snapshot)
    pods_to_keep = tuple(
        pod for pod in opened.pods if pod.spec.node_name or PLACEHOLDER_LABEL not in pod.metadata.labels
    )
    cluster = Cluster.from_snapshot(replace(opened, pods=pods_to_keep, reservations=()), waiting)
    state = State(cluster)
    nodes = [cluster.node_numbers[name] for name in sorted(fenced) if name in cluster.node_numbers]
    kept_off = []
    for pod in waiting:
        index = pod_index(cluster, pod)
        class_index = cluster.pods[index].class_index
        node = next(
            (
                node_index
                for node_index in nodes
                if state.fits(class_index, node_index) and state.refusal(index, node_index) is None
            ),
            None,
        )
        if node is not None:
            kept_off.append((pod, cluster.node_name(node)))
    return tuple(kept_off)


def _waits_in_vain(pod: Pod) -> bool:
    return is_pending(pod) and not has_place(pod) and pod.is_unschedulable
