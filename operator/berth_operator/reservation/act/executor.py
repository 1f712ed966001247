"""Execution of actions by calls to the API server.

Each action takes one or two calls, cached at once. A failed call is raised, and the Reservation is reconciled again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never

import structlog

from berth_core import BerthError, Capacity, PermanentError, Pod, Reservation, ReservationStatus
from berth_kube import PODS, RESERVATIONS, NotFoundError
from berth_operator import metrics, telemetry
from berth_operator.reservation.act.context import Context, delete_reservation, require_lease, write_status
from berth_operator.reservation.act.events import EventRecorder, RecordedEvent
from berth_operator.reservation.act.handover_pods import HandoverPods
from berth_operator.reservation.act.handover_probe import HandoverProbe
from berth_operator.reservation.act.node_chooser import NodeChooser
from berth_operator.reservation.act.placeholder_pods import PlaceholderPods
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
from berth_operator.reservation.conditions import ConditionReason, warn_of_endless_hold
from berth_operator.reservation.pod_patches import build_extension, build_shortening, build_ungating, build_unlabelling
from berth_operator.reservation.status import describe_transition, has_impossible_time
from berth_operator.reservation.store.reservation_reading import read_reservation

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
        self._clock = context.clock
        self._probe = probe
        self._validator = validator
        self._chooser = chooser
        self._recorder = recorder
        self._leads = leads
        self.placeholders = PlaceholderPods(context, priorities, pod_groups, recorder)
        self.handover_pods = HandoverPods(context, pod_groups)
        self._watchers: tuple[ActionWatcher, ...] = ()

    def watch(self, watchers: Sequence[ActionWatcher]) -> None:
        """Have each action noted once it is carried out or refused; a watcher must not raise."""
        self._watchers = tuple(watchers)

    def write_status(self, reservation: Reservation, status: ReservationStatus, *, is_settled: bool = False) -> None:
        """Write a status that differs or replaces a forged one, and record a change of phase.

        A settled one does not queue the Reservation again.
        """
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
        is_as_written = stored.status == status
        self._cache.put_written(uid, stored.status, epoch, stored, is_settled=is_settled and is_as_written)
        self._announce(reservation, status)
        warning = warn_of_endless_hold(reservation)
        if warning:
            self._recorder.record(RecordedEvent.of(reservation, "Warning", ConditionReason.NEVER_EXPIRES, warning))

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
        self._recorder.record(RecordedEvent.of(reservation, *change))

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
                self.handover_pods.assign(reservation, pod, assignment)
            case ExtendHandover(pod, assignment):
                self.handover_pods.patch(pod, lambda as_is: build_extension(as_is, assignment))
            case Nominate(pod, node):
                self.handover_pods.nominate(pod, node)
            case Ungate(pod):
                self.handover_pods.patch(pod, build_ungating)
            case CompleteHandover(pod):
                self.handover_pods.patch(pod, build_unlabelling)
            case Release(pod, elsewhere):
                self.handover_pods.release(pod, elsewhere=elsewhere)
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
                self.placeholders.create(reservation, task, index, node=node)
            case RenewPlaceholder(task, placeholder, assignment):
                self.placeholders.renew(reservation, task, placeholder, assignment)
            case ShortenPlaceholder(placeholder, seconds):
                self.handover_pods.patch(placeholder, lambda as_is: build_shortening(as_is, seconds))
            case DeletePlaceholder(placeholder, at_once, for_owner):
                self.placeholders.delete(placeholder, at_once=at_once, for_owner=for_owner)
            case _:
                assert_never(action)

    def _validate(self, reservation: Reservation) -> None:
        """Validate a new Reservation against the API server and its namespace's quota."""
        uid = reservation.metadata.uid
        self._cache.put_verdict(uid, self._validator.judge(reservation))
        if self._cache.reservation(uid) is None:
            self._validator.forget(uid)  # it was deleted before it was counted

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
