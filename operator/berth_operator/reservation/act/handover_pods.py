"""Patches of pods in a hand-over: owner pods, and the successors of placeholders."""

from collections.abc import Callable
from typing import Final

from berth_core import Pod, Reservation
from berth_kube import PODS, ConflictError, InvalidObjectError, NotFoundError
from berth_operator.reservation.act.context import Context, find_pod
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.pod_patches import Operations, build_assignment, build_move, build_release
from berth_operator.reservation.pod_state import holds_our_gate, is_at_same_step
from berth_operator.reservation.store.pods import reservation_uid
from berth_operator.reservation.store.slot_matching import SlotFinder
from berth_operator.schedulers.kube_scheduler import SCHEDULER

_PATCH_TRIES: Final = 8
"""How often a patch is rebuilt after a conflict; then the hand-over is reconciled again."""


class HandoverPods:
    """Patches pods in a hand-over, and caches what the API server returns."""

    def __init__(self, context: Context, pod_groups: PodGroups) -> None:
        self._client = context.client
        self._cache = context.cache
        self._rules = context.rules
        self._admission = context.admission
        self._pod_groups = pod_groups
        self._slots = SlotFinder(context.cache)

    def assign(self, reservation: Reservation, pod: Pod, assignment: Assignment) -> None:
        """Give a pod its slot."""
        # Before the first placeholder goes: with fewer pods than `minMember` Volcano would not schedule the others
        # again.
        self._pod_groups.loosen(reservation)
        task = next((task for task in reservation.spec.tasks if task.name == assignment.task), None)
        labels = self._rules.slot_labels(reservation, task) if task is not None else {}
        # Only the first step waits where admission hangs: what has begun goes on as well as it can.
        with self._admission.asking(pod.metadata.namespace):
            self.patch(pod, lambda as_is: build_assignment(as_is, assignment, reservation, labels))

    def nominate(self, pod: Pod, node: str | None) -> None:
        """Set or clear the nominated node, which the scheduler tries first."""
        try:
            # Only the subresource changes a status: any other write to a pod takes over the old one (`PrepareForUpdate`
            # in pkg/registry/core/pod/strategy.go).
            patched = self._client.merge_patch(
                PODS,
                pod.metadata.name,
                {"metadata": {"uid": pod.metadata.uid}, "status": SCHEDULER.steer(node)},
                namespace=pod.metadata.namespace,
                subresource="status",
                type=Pod,
            )
        except NotFoundError:
            self._cache.remove_pod(pod)
            return
        self._cache.put_pod(patched)

    def release(self, pod: Pod, *, elsewhere: bool = False) -> None:
        """Let a pod be scheduled as usual; with `elsewhere` send a gated one to another Reservation that has a slot."""
        other_reservation = (
            self._slots.find(pod, besides=reservation_uid(pod)) if elsewhere and holds_our_gate(pod) else None
        )
        if other_reservation is not None:
            self.patch(pod, lambda as_is: build_move(as_is, other_reservation.metadata.uid))
            return
        # The nomination goes first, because only the note shows that it is ours.
        assignment = Assignment.from_pod(pod)
        nominated_by_us = assignment is not None and SCHEDULER.steered_to(pod) == assignment.node
        with self._admission.asking(pod.metadata.namespace):
            if nominated_by_us and not pod.spec.node_name:
                self.nominate(pod, None)
            self.patch(pod, build_release)

    def patch(self, pod: Pod, build: Callable[[Pod], Operations]) -> None:
        """Patch a pod in a hand-over; forget one that is gone.

        After a conflict the patch is rebuilt for the current pod, unless that has reached another step of its
        hand-over: it is reconciled again.
        """
        try:
            patched = self._patched(pod, build)
        except NotFoundError:
            patched = None
        if patched is None:
            self._cache.remove_pod(pod)
        else:
            self._cache.put_pod(patched)

    def _patched(self, pod: Pod, build: Callable[[Pod], Operations]) -> Pod | None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        as_is = pod
        for tries_left in reversed(range(_PATCH_TRIES)):
            # Built anew in each round, as the operations depend on which maps and lists the pod has.
            operations = build(as_is)
            if not operations:
                break
            try:
                return self._client.json_patch(PODS, name, operations, namespace=namespace, type=Pod)
            except (ConflictError, InvalidObjectError):
                # 409 if others change the pod at the same time, 422 if a `test` of the patch fails.
                current = find_pod(self._client, namespace, name, as_is.metadata.uid)
                if current is None:
                    return None
                if not tries_left or current.metadata.resource_version == as_is.metadata.resource_version:
                    raise  # the pod has not changed: the patch itself is refused
                as_is = current
            if not is_at_same_step(pod, as_is):
                break
        return as_is
