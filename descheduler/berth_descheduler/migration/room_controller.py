"""Reconciles a plan's rooms.

Observes them, acts as `rooms` decides, and records their statuses. Rooms are level-triggered, like moves: a killed run
leaves waiting Reservations, and the next run continues from what it observes. Only the end of a room is read from the
plan's status.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final, assert_never

import msgspec
import structlog

from berth_core import (
    ROOM_TAINT,
    BerthError,
    Clock,
    InputError,
    MigrationPlan,
    MoveReason,
    ObjectReference,
    PermanentError,
    Reservation,
    RetryableError,
    Room,
    RoomReason,
    RoomSlot,
    RoomState,
    RoomStatus,
    count,
    expires_at,
    fenced_nodes,
    first_few,
    job_uid,
    parse_timestamp,
    reservation_for,
)
from berth_descheduler import telemetry
from berth_descheduler.migration.context import BackgroundCalls, ObservedPlan, PlanContext, backoff_seconds
from berth_descheduler.migration.manifests import (
    PlanIdentity,
    build_job_reservation,
    build_room_reservation,
    ttl_from,
)
from berth_descheduler.migration.move_facts import MoveProgress
from berth_descheduler.migration.nodes import untaint_nodes
from berth_descheduler.migration.rooms import (
    AskForRoom,
    EndRoom,
    KeepRoom,
    RoomFacts,
    RoomProgress,
    RoomReservationProgress,
    RoomStep,
    next_room_step,
    observe_room,
    start_rooms,
    takers,
)
from berth_descheduler.plugins import StarvingJobsArgs
from berth_kube import PODS, RESERVATIONS, AlreadyExistsError, KubeClient, NotFoundError, record_event

# --- room calls ------------------------------------------------------------------------------------------------------
# The calls for a room, which create, extend and delete its Reservation, and their answers.
#
# `rooms` decides when; a refused call is repeated by the next observation of the room, not here.

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    """The answer to the request for room.

    With neither `created` nor `refusal`, the request is tried again.
    """

    created: bool = False
    refusal: RoomReason = RoomReason.NONE
    detail: str = ""


def ask_for_room(client: KubeClient, plan: PlanIdentity, index: int, room: Room, ttl: timedelta) -> RoomAnswer:
    """Create the Reservation of a room from its live pods.

    An existing Reservation of that name is the plan's own.
    """

    def create() -> RoomAnswer | None:
        raw_pods: dict[str, dict[str, Any]] = {}
        for slot in room.slots:
            if not slot.pod_uid:
                continue
            raw_pods[slot.pod_uid] = client.get(PODS, slot.pod, namespace=room.namespace)
            if refused := _why_not_waiting(raw_pods[slot.pod_uid], room, slot):
                return refused
        client.create(RESERVATIONS, build_room_reservation(plan, index, room, raw_pods, ttl))
        return None

    return _answer(create)


def _answer(create: Callable[[], RoomAnswer | None]) -> RoomAnswer:
    """Return how the creation of a Reservation went; one that is there already is the room's own."""
    try:
        return create() or RoomAnswer(created=True)
    except AlreadyExistsError:
        return RoomAnswer(created=True)
    except NotFoundError as error:
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=f"a pod is not there any more: {error}")
    except PermanentError as error:
        return RoomAnswer(refusal=RoomReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return RoomAnswer(detail=str(error))


@dataclass(frozen=True, slots=True)
class WaitRequest:
    """What all rooms of a plan that wait have in common."""

    policy: str
    nodes: frozenset[str]
    """The nodes of all of them."""

    most_fenced: int
    """How many nodes of the cluster may be fenced."""

    @classmethod
    def of(cls, plan: MigrationPlan) -> "WaitRequest":
        """Return the request of a plan; one that no policy could have made fences nothing."""
        nodes = frozenset(node for room in plan.spec.rooms if room.waits for node in room.nodes)
        most = 0
        if nodes:
            with suppress(InputError):
                args = StarvingJobsArgs.parse(plan.spec.objective.args)
                most = args.most_fenced(plan.spec.predicted.nodes if plan.spec.predicted else 0)
        return cls(plan.spec.policy, nodes, most)


def ask_to_wait(client: KubeClient, clock: Clock, request: WaitRequest, room: Room) -> RoomAnswer:
    """Create the Reservation that waits for a starving job, if the job still needs it and the limit allows it.

    The plan may be hours old. A live Reservation of that name is the job's own.
    """
    job = room.job
    if job is None:
        return RoomAnswer(refusal=RoomReason.RESERVATION_FAILED, detail="the plan does not say for which job it is")

    def create() -> RoomAnswer | None:
        reservations = [Reservation.read(one) for one in client.list(RESERVATIONS).items]
        known = reservation_for(job_uid(job), room.namespace, reservations)
        if known is not None:
            text = f"its last Reservation {known.key} is over and has not been deleted yet"
            return None if known.is_live else RoomAnswer(refusal=RoomReason.RESERVATION_FAILED, detail=text)
        if refused := _why_not_fenced(reservations, request):
            return refused
        raw_pods: dict[str, dict[str, Any]] = {}
        for slot in room.slots:
            raw = raw_pods[slot.pod_uid] = client.get(PODS, slot.pod, namespace=room.namespace)
            if refused := _why_not_waiting(raw, room, slot):
                return refused
            if on := raw["spec"].get("nodeName"):
                text = f"pod {room.namespace}/{slot.pod} is on {on} by now"
                return RoomAnswer(refusal=RoomReason.POD_PLACED, detail=text)
        client.create(RESERVATIONS, build_job_reservation(room, job, raw_pods, request.policy))
        first = ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=room.namespace,
            name=room.slots[0].pod,
            uid=room.slots[0].pod_uid,
        )
        text = f"{first_few(room.nodes, _NODES_SHOWN)} kept for {room.name} until pods there have ended"
        record_event(
            client,
            regarding=first,
            reason=telemetry.PodEventReason.NODES_KEPT.value,
            message=text,
            reporting_component=telemetry.COMPONENT,
            clock=clock,
        )
        return None

    return _answer(create)


def _why_not_fenced(reservations: Iterable[Reservation], request: WaitRequest) -> RoomAnswer | None:
    """Return why the plan's nodes may not be fenced: too many others are by now."""
    fenced = fenced_nodes(reservations)
    if request.nodes <= fenced or len(fenced | request.nodes) <= request.most_fenced:
        return None
    text = f"{count(len(fenced), 'node')} fenced by now, at most {request.most_fenced} may be"
    return RoomAnswer(refusal=RoomReason.FENCE_LIMIT, detail=text)


def _why_not_waiting(raw: dict[str, Any], room: Room, slot: RoomSlot) -> RoomAnswer | None:
    """Return why a live pod is not the planned one.

    None if it is. The watch handles a pod that got a node.
    """
    if raw["metadata"]["uid"] != slot.pod_uid:
        text = f"another pod has the name {room.namespace}/{slot.pod} by now"
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=text)
    if raw["metadata"].get("deletionTimestamp"):
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=f"pod {room.namespace}/{slot.pod} is being deleted")
    return None


def extend(client: KubeClient, seen: Reservation, now: datetime, ttl: timedelta) -> None:
    """Extend a Reservation's TTL, counted from now.

    A failure is logged, and retried while there is time.
    """
    patch = {"spec": {"ttl": ttl_from(now, seen, ttl)}}
    try:
        client.merge_patch(RESERVATIONS, seen.metadata.name, patch, namespace=seen.metadata.namespace)
    except NotFoundError:
        return
    except BerthError as error:
        keys = {telemetry.KEY_RESERVATION: seen.key, telemetry.KEY_ERROR: str(error)}
        _LOG.warning(telemetry.CALL_FAILED, **keys)


def delete_reservation(client: KubeClient, room: Room, reservation: str) -> None:
    """Delete a room's Reservation; where that fails, its TTL releases the places."""
    keys = {telemetry.KEY_RESERVATION: f"{room.namespace}/{reservation}"}
    try:
        client.delete(RESERVATIONS, reservation, namespace=room.namespace)
    except NotFoundError:
        return
    except BerthError as error:
        _LOG.warning(telemetry.RELEASE_FAILED, **keys, **{telemetry.KEY_ERROR: str(error)})
        return
    _LOG.info(telemetry.RELEASED, **keys)


def open_nodes(client: KubeClient, nodes: Iterable[str]) -> None:
    """Open nodes to all pods again.

    Where that fails, the end of the plan retries.
    """
    untaint_nodes(client, nodes, ROOM_TAINT)


_NODES_SHOWN: Final = 3
_UNNEEDED: Final = frozenset({RoomReason.POD_GONE, RoomReason.POD_PLACED})
_READY: Final = frozenset(
    {RoomReservationProgress.WAITING, RoomReservationProgress.READY, RoomReservationProgress.BOUND}
)


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """The progress of the rest of the plan; `stopping_since` in monotonic seconds."""

    moves: Sequence[MoveProgress]
    lost_sources: Collection[str]
    """Sources on which a planned pod has to stay."""

    stop: MoveReason = MoveReason.NONE
    stopping_since: float | None = None


class RoomController:
    """Reconciles the rooms of one plan; without rooms it does nothing."""

    def __init__(self, context: PlanContext, calls: BackgroundCalls, plan: MigrationPlan) -> None:
        self._context = context
        self._settings = context.execution
        self._calls = calls
        self._plan = PlanIdentity.of(plan)
        self._rooms = start_rooms(plan)
        self._request = WaitRequest.of(plan)

    @property
    def statuses(self) -> tuple[RoomStatus, ...]:
        """Return the rooms' statuses, in the order of the plan."""
        return tuple(one.status for one in self._rooms)

    @property
    def are_asked_for(self) -> bool:
        """Return whether every room's Reservation waits on its nodes.

        A room that is over needs none.
        """
        return all(one.ended or one.hold in _READY for one in self._rooms)

    @property
    def are_over(self) -> bool:
        """Return whether all rooms are over."""
        return all(one.ended and not one.in_flight for one in self._rooms)

    def cancel(self, progress: MoveProgress) -> None:
        """Cancel a move that no room needs any more.

        A move whose pod was evicted goes on.
        """
        served = [one for one in self._rooms if progress.index in one.moves]
        if not served or any(one.is_wanted for one in served):
            return
        progress.refusal = MoveReason.ROOM_NOT_NEEDED
        progress.refusal_detail = f"it serves no room any more: {_describe(served[0])}"

    def reconcile(self, observed: ObservedPlan, plan: PlanProgress) -> None:
        """Observe every room once, decide and act."""
        now, timeouts = self._context.clock.monotonic(), self._settings.timeouts
        for one in self._rooms:
            if one.ended or one.in_flight:
                continue
            if one.room.waits:
                self._reconcile_waiting(one, plan)
                continue
            facts = _beside_moves(one, observe_room(one, observed, now, timeouts.gap_seconds), plan, now)
            self._act(one, next_room_step(facts, timeouts, now), observed.reservations.get(one.key))

    # --- acting -----------------------------------------------------------------------------------------------------

    def _act(self, one: RoomProgress, step: RoomStep, seen: Reservation | None) -> None:
        match step:
            case AskForRoom():
                self._ask(one)
            case KeepRoom():
                self._set_status(one, step.state, message=step.message, seen=seen)
                self._renew(one, seen)
            case EndRoom():
                self._end(one, step, seen)
            case _:
                assert_never(step)

    def _ask(self, one: RoomProgress) -> None:
        if one.retry_at is not None and self._context.clock.monotonic() < one.retry_at:
            return
        client, clock, ttl, request = self._context.client, self._context.clock, self._settings.ttl, self._request
        self._calls.make_for(
            one,
            lambda: (
                ask_to_wait(client, clock, request, one.room)
                if one.room.waits
                else ask_for_room(client, self._plan, one.index, one.room, ttl)
            ),
            lambda answer: self._asked(one, answer),
        )

    def _asked(self, one: RoomProgress, answer: RoomAnswer) -> None:
        if answer.created:
            one.asked_at = self._context.clock.monotonic()
            _LOG.info(telemetry.RESERVED, **self._keys(one))
            return
        one.refusal, one.refusal_detail = answer.refusal, answer.detail
        if not answer.refusal:
            one.retry_at = self._context.clock.monotonic() + backoff_seconds(one.attempts)
            one.attempts += 1
            _LOG.info(telemetry.CALL_FAILED, **self._keys(one), **{telemetry.KEY_MESSAGE: answer.detail})

    def _reconcile_waiting(self, one: RoomProgress, plan: PlanProgress) -> None:
        """Create the Reservation of a room that waits; from then on it needs the plan no more."""
        reasons = {reason.value: reason for reason in RoomReason}
        if one.asked_at is not None:
            nodes = first_few(one.room.nodes, _NODES_SHOWN)
            text = f"its Reservation {one.reservation} waits until pods on {nodes} have ended, at most {one.room.ttl}"
            one.status = msgspec.structs.replace(one.status, reservation=one.reservation)
            self._set_status(one, RoomState.WAITING, message=text, seen=None)
        elif one.refusal:
            state = RoomState.RELEASED if one.refusal in _UNNEEDED else RoomState.FAILED
            self._set_status(one, state, one.refusal, one.refusal_detail, seen=None)
        elif plan.stop:
            reason = reasons.get(plan.stop.value, RoomReason.PLAN_STOPPED)
            self._set_status(one, RoomState.RELEASED, reason, "the plan was stopped before it began", seen=None)
        else:
            self._ask(one)
            return
        one.ended = True

    def _renew(self, one: RoomProgress, seen: Reservation | None) -> None:
        """Extend the Reservation's TTL while its room is awaited.

        If this run dies, the Reservation expires.
        """
        client, ttl, now = self._context.client, self._settings.ttl, self._context.clock.now()
        if seen is not None and seen.is_live and _is_due(seen, now, ttl / 2):
            self._calls.make_for(one, lambda: extend(client, seen, now, ttl))

    def _end(self, one: RoomProgress, step: EndRoom, seen: Reservation | None) -> None:
        """End a room and open its nodes to all pods again.

        Nodes that another room needs stay closed.
        """
        one.ended = True
        self._set_status(one, step.state, step.reason, step.message, seen=seen)
        needed = {node for other in self._rooms if not other.ended for node in other.room.nodes}
        nodes = [node for node in one.room.nodes if node not in needed]
        client, now, ttl = self._context.client, self._context.clock.now(), self._settings.reservation_ttl

        def finalize() -> None:
            if step.release and (one.asked_at is not None or seen is not None):
                delete_reservation(client, one.room, one.reservation)
            elif step.state is RoomState.HELD and seen is not None:
                extend(client, seen, now, ttl)
            open_nodes(client, nodes)

        self._calls.make_for(one, finalize)

    # --- reporting --------------------------------------------------------------------------------------------------

    def _set_status(
        self,
        one: RoomProgress,
        state: RoomState,
        reason: RoomReason = RoomReason.NONE,
        message: str = "",
        *,
        seen: Reservation | None,
    ) -> None:
        before = one.status
        one.status = msgspec.structs.replace(
            before,
            state=state,
            reason=reason.value,
            message=message,
            reservation=one.reservation if seen is not None else before.reservation,
            taken=takers(seen) or before.taken,
        )
        if before.state is not state:
            keys = {
                telemetry.KEY_STATE: state.value,
                telemetry.KEY_REASON: reason.value,
                telemetry.KEY_MESSAGE: message,
            }
            _LOG.info(telemetry.ROOM_CHANGED, **self._keys(one), **keys)

    def _keys(self, one: RoomProgress) -> dict[str, str]:
        return {
            telemetry.KEY_PLAN: self._plan.name,
            telemetry.KEY_ROOM: one.room.name,
            telemetry.KEY_RESERVATION: one.key,
        }


def _beside_moves(one: RoomProgress, facts: RoomFacts, plan: PlanProgress, now: float) -> RoomFacts:
    """Return a room's facts with those of its moves and its plan."""
    is_moving = any(not move.finished for move in plan.moves if move.index in one.moves)
    lost = sorted(set(one.room.nodes).intersection(plan.lost_sources))
    one.spoilt = f"a pod had to stay on {', '.join(lost)}" if lost else ""
    one.still_since = None if is_moving else (one.still_since or now)
    reasons = {reason.value: reason for reason in RoomReason}
    return replace(
        facts,
        spoilt=one.spoilt,
        is_moving=is_moving,
        still_since=one.still_since,
        stop=reasons.get(plan.stop.value, RoomReason.PLAN_STOPPED),
        stopping_since=plan.stopping_since,
    )


def _is_due(seen: Reservation, now: datetime, least: timedelta) -> bool:
    """Return whether a Reservation ends within this time."""
    ends = expires_at(seen.spec, parse_timestamp(seen.metadata.creation_timestamp or ""))
    return ends is not None and ends - now < least


def _describe(one: RoomProgress) -> str:
    """Return why a room needs no more moves, for a sentence."""
    if one.ended:
        status = one.status
        why = f" ({': '.join(part for part in (status.reason, status.message) if part)})" if status.reason else ""
        return f"that for {one.room.name} is {status.state.value}{why}"
    return one.spoilt or f"that for {one.room.name} is held already"
