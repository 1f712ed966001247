"""The placeholders of slots: created, renewed by a successor, deleted."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from berth_core import (
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    BerthError,
    Pod,
    Reservation,
    ReservationReason,
    ReservationTask,
    RetryableError,
    expires_at,
    parse_timestamp,
)
from berth_kube import PODS, AlreadyExistsError, ForbiddenError, NotFoundError
from berth_operator import metrics
from berth_operator.reservation.act.admission_answers import why_refused
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder, RecordedEvent
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.manifests import (
    FENCE_PRIORITY,
    Body,
    build_placeholder,
    build_successor,
    placeholder_priority,
)
from berth_operator.reservation.node_choice import SlotId
from berth_operator.schedulers.volcano import join_pod_group

_LONGEST_DEADLINE_SECONDS: Final = (1 << 31) - 1
"""The API server's maximum of activeDeadlineSeconds, which is 68 years."""


class PlaceholderPods:
    """Creates and deletes placeholders, and caches what the API server returns."""

    def __init__(
        self, context: Context, priorities: PriorityClasses, pod_groups: PodGroups, recorder: EventRecorder
    ) -> None:
        self._client = context.client
        self._cache = context.cache
        self._settings = context.settings
        self._clock = context.clock
        self._rules = context.rules
        self._admission = context.admission
        self._priorities = priorities
        self._pod_groups = pod_groups
        self._recorder = recorder

    def create(
        self,
        reservation: Reservation,
        task: ReservationTask,
        index: int,
        change: Callable[[Body], Body] = lambda body: body,
        *,
        node: str = "",
    ) -> None:
        """Create the placeholder of one slot, or take the one that exists."""
        priority = placeholder_priority(self._priorities.of(task.template.spec))
        body = build_placeholder(
            reservation,
            task,
            index,
            priority=priority,
            deadline_seconds=self._deadline_seconds(reservation),
            settings=self._settings.placeholders,
            excluded_nodes=None
            if self._settings.limits.control_plane_nodes
            else self._cache.unlabelled_control_plane_nodes(),
            node=node,
            labels=self._rules.slot_labels(reservation, task),
            annotations=self._rules.placeholder_annotations(reservation),
        )
        namespace = self._settings.placeholders.namespace
        try:
            with self._admission.asking(namespace):
                body = change(join_pod_group(body, self._pod_groups.ensure(reservation, priority=priority)))
                # Before the pod: the admission plugin Priority refuses a pod of a class that does not exist.
                self._priorities.ensure(priority)
                pod = self._create_new_pod(body)
        except BerthError as error:
            if isinstance(error, ForbiddenError):
                self._priorities.forget(priority)  # our own class may be missing
            self._note_refusal(reservation, (task.name, index), why_refused(error))
            raise
        if pod is None:
            # The name follows from the slot: a pod of an operator that ended before it could record it is found again.
            pod = self._client.get(PODS, body["metadata"]["name"], namespace=namespace, type=Pod)
            if not pod.metadata.labels.keys() >= {PLACEHOLDER_LABEL, RESERVATION_LABEL}:
                # Its watch selects placeholders by their labels, and the operator may delete no pod without them.
                why = f"pod {pod.metadata.name} has the name of one, but has lost its labels; delete it"
                self._note_refusal(reservation, (task.name, index), why)
                raise RetryableError(why)
        self._cache.put_refusal(reservation.metadata.uid, (task.name, index), "")
        self._cache.put_placeholder(pod)
        with suppress(BerthError):  # a hand-over tries again; the first one need not wait for it
            self._priorities.ensure(FENCE_PRIORITY)

    def _create_new_pod(self, body: Body) -> Pod | None:
        """Create a pod in Berth's namespace; None if there is one of its name already."""
        try:
            return self._client.create(PODS, body, namespace=self._settings.placeholders.namespace, type=Pod)
        except AlreadyExistsError:
            return None

    def _note_refusal(self, reservation: Reservation, slot: SlotId, why: str) -> None:
        """Record why admission refuses a placeholder; the API server is asked again, as after every failed call."""
        if not why:
            return
        text = f"namespace {self._settings.placeholders.namespace} takes no placeholder of task {slot[0]}: {why}"
        if self._cache.put_refusal(reservation.metadata.uid, slot, text):
            self._recorder.record(RecordedEvent.of(reservation, "Warning", ReservationReason.PLACEHOLDER_REFUSED, text))

    def renew(self, reservation: Reservation, task: ReservationTask, placeholder: Pod, assignment: Assignment) -> None:
        """Create the successor of a placeholder."""
        self.create(
            reservation,
            task,
            assignment.index,
            lambda body: build_successor(body, reservation, assignment, placeholder.metadata.uid),
        )

    def _deadline_seconds(self, reservation: Reservation) -> int | None:
        """Return activeDeadlineSeconds for a placeholder created now."""
        # The kubelet enforces it even while no operator runs, so no place is held for ever.
        expiry = expires_at(reservation)
        if expiry is None:
            return None
        seconds_left = (expiry - self._clock.now()).total_seconds()
        return min(int(seconds_left) + self._settings.placeholders.deadline_margin_seconds, _LONGEST_DEADLINE_SECONDS)

    def delete(self, placeholder: Pod, *, at_once: bool = False, for_owner: bool = False) -> None:
        """Delete this placeholder, and no other pod of its name; `at_once` does not wait for a kubelet.

        Unless a pod takes its place (`for_owner`), the time for which it ran counts as wasted.
        """
        try:
            self._client.delete(
                PODS,
                placeholder.metadata.name,
                namespace=placeholder.metadata.namespace,
                uid=placeholder.metadata.uid,
                grace_seconds=0 if at_once else None,
            )
        except NotFoundError:
            self._cache.remove_placeholder(placeholder)
        else:
            if at_once and not placeholder.metadata.finalizers:
                self._cache.remove_placeholder(placeholder)  # the API server waits for no kubelet: it is gone
            if not for_owner and not placeholder.is_terminating and placeholder.status.start_time:
                held_seconds = (self._clock.now() - parse_timestamp(placeholder.status.start_time)).total_seconds()
                metrics.WASTED_SECONDS.inc(max(0.0, held_seconds))
