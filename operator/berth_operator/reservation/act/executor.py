"""Execution of actions by calls to the API server.

Each action takes one or two calls, cached at once. A failed call is raised, and the Reservation is reconciled again.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, assert_never

import structlog

from berth_core import (
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    BerthError,
    Capacity,
    ObjectReference,
    PermanentError,
    Pod,
    Reservation,
    ReservationReason,
    ReservationStatus,
    ReservationTask,
    expires_at,
    parse_timestamp,
)
from berth_kube import (
    PODS,
    RESERVATIONS,
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    NotFoundError,
)
from berth_operator import metrics, telemetry
from berth_operator.reservation.act.admission_answers import why_refused
from berth_operator.reservation.act.context import Context, delete_reservation, find_pod, require_lease, write_status
from berth_operator.reservation.act.events import EventRecorder, RecordedEvent
from berth_operator.reservation.act.handover_probe import HandoverProbe
from berth_operator.reservation.act.node_chooser import NodeChooser
from berth_operator.reservation.act.pod_groups import PodGroups
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.act.validator import Validator
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    ChooseNodes,
    CompleteHandover,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    ExtendHandover,
    Nominate,
    Probe,
    Release,
    RenewPlaceholder,
    ShortenPlaceholder,
    SurveyNode,
    Ungate,
    Validate,
    label_of,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.conditions import ConditionReason, warn_of_endless_hold
from berth_operator.reservation.manifests import (
    FENCE_PRIORITY,
    Body,
    build_placeholder,
    build_successor,
    placeholder_priority,
)
from berth_operator.reservation.node_choice import SlotId
from berth_operator.reservation.pod_patches import (
    Operations,
    build_assignment,
    build_extension,
    build_move,
    build_release,
    build_shortening,
    build_ungating,
    build_unlabelling,
)
from berth_operator.reservation.pod_state import holds_our_gate, is_at_same_step
from berth_operator.reservation.status import EventType, describe_transition, has_impossible_time
from berth_operator.reservation.store.pods import reservation_uid
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.reservation.store.slot_matching import SlotFinder
from berth_operator.schedulers.kube_scheduler import SCHEDULER
from berth_operator.schedulers.volcano import join_pod_group

_LONGEST_DEADLINE_SECONDS: Final = (1 << 31) - 1
"""The API server's maximum of activeDeadlineSeconds, which is 68 years."""
_PATCH_TRIES: Final = 8
"""How often a patch is rebuilt after a conflict; then the hand-over is reconciled again."""

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExecutedAction:
    """An action that was carried out or refused."""

    reservation: Reservation
    action: Action
    began_at: datetime
    ended_at: datetime
    failure: str | None
    """Why it was refused or could not be called; None where it was carried out."""


ActionWatcher = Callable[[ExecutedAction], None]


class ActionExecutor:
    """Carries out the actions of one Reservation at a time."""

    def __init__(
        self,
        context: Context,
        *,
        probe: HandoverProbe,
        priorities: PriorityClasses,
        pod_groups: PodGroups,
        validator: Validator,
        chooser: NodeChooser,
        recorder: EventRecorder,
        leads: Callable[[], bool],
    ) -> None:
        """`leads` returns whether this replica may act."""
        self._client = context.client
        self._cache = context.cache
        self._settings = context.settings
        self._clock = context.clock
        self._rules = context.rules
        self._probe = probe
        self._priorities = priorities
        self._pod_groups = pod_groups
        self._validator = validator
        self._chooser = chooser
        self._recorder = recorder
        self._slots = SlotFinder(context.cache)
        self._leads = leads
        self._watchers: tuple[ActionWatcher, ...] = ()

    def watch(self, watchers: Sequence[ActionWatcher]) -> None:
        """Have each action noted once it is carried out or refused; a watcher must not raise."""
        self._watchers = tuple(watchers)

    def write_status(self, reservation: Reservation, status: ReservationStatus) -> None:
        """Write a status that differs or replaces a forged one, and record a change of phase."""
        # The epoch is read before the call: if the term ends meanwhile, another replica may write after us.
        uid, epoch = reservation.metadata.uid, self._cache.epoch
        is_forged = self._cache.is_forged(uid)
        # An unchanged status is not written: each write is an event for every watch of Reservations.
        if status == reservation.status and not is_forged:
            self._cache.put_written(uid, status, epoch)
            return
        require_lease(self._leads)
        if is_forged:
            _LOG.warning(telemetry.STATUS_CORRECTED, **{telemetry.KEY_RESERVATION: reservation.key})
        if has_impossible_time(reservation.status.state, self._now()):
            _LOG.warning(telemetry.STATUS_DATED, **{telemetry.KEY_RESERVATION: reservation.key})
        try:
            body = write_status(self._client, RESERVATIONS, reservation.metadata, status)
        except NotFoundError:
            self._cache.remove_reservation(reservation.metadata.uid)
            raise
        stored = read_reservation(body)
        self._cache.put_written(uid, stored.status, epoch, stored)
        self._announce(reservation, status)
        warning = warn_of_endless_hold(reservation)
        if warning:
            self._record(reservation, "Warning", ConditionReason.NEVER_EXPIRES, warning)

    def _announce(self, reservation: Reservation, status: ReservationStatus) -> None:
        if status.state is None:
            return
        change = describe_transition(reservation.status.state, status.state)
        if change is None:
            return
        metrics.PHASE_CHANGES.labels(phase=status.state.phase.value, reason=status.state.reason).inc()
        _LOG.info(
            telemetry.PHASE_CHANGED,
            **{
                telemetry.KEY_RESERVATION: reservation.key,
                telemetry.KEY_PHASE: status.state.phase.value,
                telemetry.KEY_REASON: status.state.reason,
                telemetry.KEY_MESSAGE: status.state.message,
            },
        )
        self._record(reservation, *change)

    def _record(self, reservation: Reservation, type_: EventType, reason: str, message: str) -> None:
        regarding = ObjectReference.of(RESERVATION_API_VERSION, RESERVATION_KIND, reservation.metadata)
        self._recorder.record(RecordedEvent(regarding, type_, reason, message))

    def execute(self, reservation: Reservation, actions: Sequence[Action]) -> None:
        """Execute actions in order; after a refused action, skip the other actions on its pod.

        Raises the first refusal at the end, at once if the API server does not answer, and NotLeadingError if another
        replica may act by now.
        """
        first_refusal: PermanentError | None = None
        skipped: set[str] = set()
        for action in actions:
            pod_uid = _pod_uid(action)
            if pod_uid and pod_uid in skipped:
                continue
            # Before each call: the time since the last one may have been longer than the Lease.
            require_lease(self._leads)
            try:
                self._execute_watched(reservation, action)
            except PermanentError as error:
                first_refusal = first_refusal or error
                skipped.add(pod_uid)
                continue
            label = label_of(type(action))
            metrics.ACTIONS.labels(action=label).inc()
            _LOG.debug(telemetry.ACTION, **{telemetry.KEY_ACTION: label, telemetry.KEY_RESERVATION: reservation.key})
        if first_refusal is not None:
            raise first_refusal

    def _execute_watched(self, reservation: Reservation, action: Action) -> None:
        if not self._watchers:
            self._execute_one(reservation, action)
            return
        began_at, failure = self._now(), None
        try:
            self._execute_one(reservation, action)
        except BerthError as error:
            failure = str(error)
            raise
        finally:
            step = ExecutedAction(reservation, action, began_at, self._now(), failure)
            for watcher in self._watchers:
                watcher(step)

    def _execute_one(self, reservation: Reservation, action: Action) -> None:
        match action:
            case Validate():
                self._validate(reservation)
            case CreatePlaceholder() | RenewPlaceholder() | ShortenPlaceholder() | DeletePlaceholder():
                self._change_placeholder(reservation, action)
            case AssignSlot(pod, assignment):
                self._assign(reservation, pod, assignment)
            case ExtendHandover(pod, assignment):
                self._patch_pod(pod, lambda as_is: build_extension(as_is, assignment))
            case Nominate(pod, node):
                self._nominate(pod, node)
            case Ungate(pod):
                self._patch_pod(pod, build_ungating)
            case CompleteHandover(pod):
                self._patch_pod(pod, build_unlabelling)
            case Release(pod, elsewhere):
                self.release(pod, elsewhere=elsewhere)
            case ChooseNodes() | SurveyNode() | Probe():
                self._find_out(reservation, action)
            case DeleteReservation():
                self._delete(reservation)
            case _:
                assert_never(action)

    def _find_out(self, reservation: Reservation, action: ChooseNodes | SurveyNode | Probe) -> None:
        match action:
            case ChooseNodes(slots):
                self._chooser.choose(reservation, slots)
            case SurveyNode(node):
                self._survey(reservation, node)
            case Probe():
                self._probe.probe(reservation)
            case _:
                assert_never(action)

    def _change_placeholder(
        self,
        reservation: Reservation,
        action: CreatePlaceholder | RenewPlaceholder | ShortenPlaceholder | DeletePlaceholder,
    ) -> None:
        match action:
            case CreatePlaceholder(task, index, node):
                self._create_placeholder(reservation, task, index, node=node)
            case RenewPlaceholder(task, placeholder, assignment):
                self._renew(reservation, task, placeholder, assignment)
            case ShortenPlaceholder(placeholder, seconds):
                self._patch_pod(placeholder, lambda as_is: build_shortening(as_is, seconds))
            case DeletePlaceholder(placeholder, at_once, for_owner):
                self.delete_placeholder(placeholder, at_once=at_once, for_owner=for_owner)
            case _:
                assert_never(action)

    def _validate(self, reservation: Reservation) -> None:
        """Validate a new Reservation against the API server and its namespace's quota."""
        uid = reservation.metadata.uid
        self._cache.put_verdict(uid, self._validator.judge(reservation))
        if self._cache.reservation(uid) is None:
            self._validator.forget(uid)  # it was deleted before it was counted

    def _create_placeholder(
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
        body = change(join_pod_group(body, self._pod_groups.ensure(reservation, priority=priority)))
        namespace = self._settings.placeholders.namespace
        try:
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
            self._record(reservation, "Warning", ReservationReason.PLACEHOLDER_REFUSED, text)

    def _renew(self, reservation: Reservation, task: ReservationTask, placeholder: Pod, assignment: Assignment) -> None:
        """Create the successor of a placeholder."""
        self._create_placeholder(
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
        seconds_left = (expiry - self._now()).total_seconds()
        return min(int(seconds_left) + self._settings.placeholders.deadline_margin_seconds, _LONGEST_DEADLINE_SECONDS)

    def delete_placeholder(self, placeholder: Pod, *, at_once: bool = False, for_owner: bool = False) -> None:
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
                held_seconds = (self._now() - parse_timestamp(placeholder.status.start_time)).total_seconds()
                metrics.WASTED_SECONDS.inc(max(0.0, held_seconds))

    def _assign(self, reservation: Reservation, pod: Pod, assignment: Assignment) -> None:
        """Give a pod its slot."""
        # Before the first placeholder goes: with fewer pods than `minMember` Volcano would not schedule the others
        # again.
        self._pod_groups.loosen(reservation)
        task = next((task for task in reservation.spec.tasks if task.name == assignment.task), None)
        labels = self._rules.slot_labels(reservation, task) if task is not None else {}
        self._patch_pod(pod, lambda as_is: build_assignment(as_is, assignment, reservation, labels))

    def _nominate(self, pod: Pod, node: str | None) -> None:
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
            self._patch_pod(pod, lambda as_is: build_move(as_is, other_reservation.metadata.uid))
            return
        # The nomination goes first, because only the note shows that it is ours.
        assignment = Assignment.from_pod(pod)
        nominated_by_us = assignment is not None and SCHEDULER.steered_to(pod) == assignment.node
        if nominated_by_us and not pod.spec.node_name:
            self._nominate(pod, None)
        self._patch_pod(pod, build_release)

    def _patch_pod(self, pod: Pod, build: Callable[[Pod], Operations]) -> None:
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

    def _survey(self, reservation: Reservation, node: str) -> None:
        # The API server indexes pods by `spec.nodeName` (`MatchPod` in pkg/registry/core/pod/strategy.go), so this list
        # costs no scan of all pods.
        pod_list = self._client.list(PODS, field_selector=f"spec.nodeName={node}", type=Pod)
        ends = self._chooser.ends(pod_list.items) if reservation.spec.capacity is Capacity.WHEN_FREE else None
        self._cache.put_pods_of_node(node, pod_list.items, ends, asked_by=reservation.metadata.uid)

    def _delete(self, reservation: Reservation) -> None:
        if delete_reservation(self._client, self._cache, reservation):
            _LOG.info(telemetry.COLLECTED, **{telemetry.KEY_RESERVATION: reservation.key})

    def _now(self) -> datetime:
        return self._clock.now()


def _pod_uid(action: Action) -> str:
    """Return the uid of an action's pod, "" for none."""
    match action:
        case AssignSlot(pod) | ExtendHandover(pod) | Nominate(pod) | Ungate(pod) | CompleteHandover(pod) | Release(pod):
            return pod.metadata.uid
        case DeletePlaceholder(pod) | ShortenPlaceholder(pod):
            return pod.metadata.uid
        case (
            Validate()
            | ChooseNodes()
            | CreatePlaceholder()
            | RenewPlaceholder()
            | SurveyNode()
            | Probe()
            | DeleteReservation()
        ):
            return ""
        case _:
            assert_never(action)
