"""The calls for a room, which create, extend and delete its Reservation, and their answers.

`next_step` decides when; a refused call is repeated by the next observation of the room, not here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import structlog

from berth_core import (
    ROOM_TAINT,
    BerthError,
    Clock,
    MigrationPlan,
    ObjectReference,
    PermanentError,
    Reservation,
    RetryableError,
    Room,
    RoomReason,
    RoomSlot,
    count,
    fenced_nodes,
    first_few,
    job_uid,
    reservation_for,
)
from berth_descheduler import telemetry
from berth_descheduler.event_reasons import COMPONENT, PodEventReason
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.manifests.room_reservations import (
    build_job_reservation,
    build_room_reservation,
    ttl_from,
)
from berth_descheduler.migration.nodes.plan_taints import untaint_nodes
from berth_descheduler.registry import capability_named
from berth_kube import PODS, RESERVATIONS, AlreadyExistsError, KubeClient, NotFoundError, record_event

_LOG = structlog.get_logger(__name__)

NODES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    """The answer to the request for room.

    With neither `created` nor `refusal`, the request is tried again.
    """

    created: bool = False
    refusal: RoomReason = RoomReason.NONE
    detail: str = ""


def ask_for_room(client: KubeClient, plan: PlanIdentity, index: int, room: Room, ttl: timedelta) -> RoomAnswer:
    """Create the Reservation of a room from its live pods; one that exists by that name is the plan's own."""

    def create() -> RoomAnswer | None:
        raw_pods: dict[str, dict[str, Any]] = {}
        for slot in room.slots:
            if not slot.pod_uid:
                continue
            raw_pods[slot.pod_uid] = client.get(PODS, slot.pod, namespace=room.namespace)
            if refused_answer := _why_not_waiting(raw_pods[slot.pod_uid], room, slot):
                return refused_answer
        client.create(RESERVATIONS, build_room_reservation(plan, index, room, raw_pods, ttl))
        return None

    return _answer(create)


def _answer(create: Callable[[], RoomAnswer | None]) -> RoomAnswer:
    """Return how the creation of a Reservation went; an existing one of that name is the room's own."""
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
    """What all waiting rooms of a plan have in common."""

    policy: str
    nodes: frozenset[str]
    """The nodes of all these rooms."""

    most_fenced: int
    """How many nodes of the cluster may be fenced."""

    @classmethod
    def of(cls, plan: MigrationPlan) -> "WaitRequest":
        """Return the request of a plan; one that no policy could have made fences nothing."""
        nodes = frozenset(node for room in plan.spec.rooms if room.waits for node in room.nodes)
        max_fenced_nodes = 0
        if nodes:
            capability, predicted = capability_named(plan.spec.objective.plugin), plan.spec.predicted
            if capability is not None and predicted is not None:
                max_fenced_nodes = capability.most_fenced_nodes(plan.spec.objective, predicted.nodes)
        return cls(plan.spec.policy, nodes, max_fenced_nodes)


def ask_to_wait(client: KubeClient, clock: Clock, request: WaitRequest, room: Room) -> RoomAnswer:
    """Create the Reservation that waits for a job, if the job still needs it and the limit allows it.

    The plan may be hours old. A live Reservation of that name is the job's own.
    """
    job = room.job
    if job is None:
        return RoomAnswer(refusal=RoomReason.RESERVATION_FAILED, detail="the plan does not say for which job it is")

    def create() -> RoomAnswer | None:
        # All of them, since the limit is about the whole cluster, and other policies and people fence nodes, too.
        reservations = [Reservation.read(raw_reservation) for raw_reservation in client.list(RESERVATIONS).items]
        last_reservation = reservation_for(job_uid(job), room.namespace, reservations)
        if last_reservation is not None:
            text = f"its last Reservation {last_reservation.key} is over and has not been deleted yet"
            return None if last_reservation.is_live else RoomAnswer(refusal=RoomReason.RESERVATION_FAILED, detail=text)
        if refused_answer := _why_not_fenced(reservations, request):
            return refused_answer
        raw_pods: dict[str, dict[str, Any]] = {}
        for slot in room.slots:
            raw_pod = raw_pods[slot.pod_uid] = client.get(PODS, slot.pod, namespace=room.namespace)
            if refused_answer := _why_not_waiting(raw_pod, room, slot):
                return refused_answer
            if node := raw_pod["spec"].get("nodeName"):
                text = f"pod {room.namespace}/{slot.pod} is on {node} by now"
                return RoomAnswer(refusal=RoomReason.POD_PLACED, detail=text)
        client.create(RESERVATIONS, build_job_reservation(room, job, raw_pods, request.policy))
        # On a pod, since jobs of every kind have some, and `kubectl describe pod` is where people look why one waits.
        first_pod = ObjectReference(
            api_version="v1",
            kind="Pod",
            namespace=room.namespace,
            name=room.slots[0].pod,
            uid=room.slots[0].pod_uid,
        )
        text = f"{first_few(room.nodes, NODES_SHOWN)} kept for {room.name} until pods there have ended"
        record_event(
            client,
            regarding=first_pod,
            reason=PodEventReason.NODES_KEPT.value,
            message=text,
            reporting_component=COMPONENT,
            clock=clock,
        )
        return None

    return _answer(create)


def _why_not_fenced(reservations: Iterable[Reservation], request: WaitRequest) -> RoomAnswer | None:
    """Return why the plan's nodes may not be fenced, None if they may: too many others may be by now."""
    nodes_fenced = fenced_nodes(reservations)
    # Nodes that are fenced already cost nothing more, so a second job on the same ones is always allowed.
    if request.nodes <= nodes_fenced or len(nodes_fenced | request.nodes) <= request.most_fenced:
        return None
    text = f"{count(len(nodes_fenced), 'node')} fenced by now, at most {request.most_fenced} may be"
    return RoomAnswer(refusal=RoomReason.FENCE_LIMIT, detail=text)


def _why_not_waiting(raw: dict[str, Any], room: Room, slot: RoomSlot) -> RoomAnswer | None:
    """Return why a live pod is not the planned one, None if it is; the watch handles a pod that got a node."""
    if raw["metadata"]["uid"] != slot.pod_uid:
        text = f"another pod has the name {room.namespace}/{slot.pod} by now"
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=text)
    if raw["metadata"].get("deletionTimestamp"):
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=f"pod {room.namespace}/{slot.pod} is being deleted")
    return None


def extend(client: KubeClient, seen: Reservation, now: datetime, ttl: timedelta) -> None:
    """Extend a Reservation's TTL, counted from now; a failure is logged, and retried while there is time."""
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
    """Open nodes to all pods again; where that fails, the end of the plan tries again."""
    untaint_nodes(client, nodes, ROOM_TAINT)
