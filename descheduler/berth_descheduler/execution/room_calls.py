"""Owns the calls that are made for a room: asking for it, keeping it for longer, giving it back; and their answers.

It does not decide when (`rooms`) and does not repeat what was refused: the next look at the room does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import structlog

from berth_core.errors import BerthError, PermanentError, RetryableError
from berth_core.labels import ROOM_TAINT
from berth_core.plan_rooms import Room, RoomReason, RoomSlot
from berth_core.reservations import Reservation
from berth_descheduler import log_keys
from berth_descheduler.execution.plan_objects import PlanIdentity
from berth_descheduler.execution.room_objects import build_room_reservation, ttl_from
from berth_descheduler.execution.source_taints import untaint_nodes
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, NotFoundError
from berth_kube.resources import PODS, RESERVATIONS

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RoomAnswer:
    """What came of asking for room; neither `created` nor `refusal`: try again."""

    created: bool = False
    refusal: RoomReason = RoomReason.NONE
    detail: str = ""


def ask_for_room(client: KubeClient, plan: PlanIdentity, index: int, room: Room, ttl: timedelta) -> RoomAnswer:
    """Look at the pods that wait and create the Reservation of a room; one that is there is ours, by its name."""
    raw_pods: dict[str, dict[str, Any]] = {}
    try:
        for slot in room.slots:
            if not slot.pod_uid:
                continue
            raw_pods[slot.pod_uid] = client.get(PODS, slot.pod, namespace=room.namespace)
            if refused := _why_not_waiting(raw_pods[slot.pod_uid], room, slot):
                return refused
        client.create(RESERVATIONS, build_room_reservation(plan, index, room, raw_pods, ttl))
    except AlreadyExistsError:
        pass
    except NotFoundError as error:
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=f"a pod is not there any more: {error}")
    except PermanentError as error:
        return RoomAnswer(refusal=RoomReason.RESERVATION_FAILED, detail=str(error))
    except RetryableError as error:
        return RoomAnswer(detail=str(error))
    return RoomAnswer(created=True)


def _why_not_waiting(raw: dict[str, Any], room: Room, slot: RoomSlot) -> RoomAnswer | None:
    """Return why a live pod is not the one that room was planned for; one that got a node is seen to by the watch."""
    if raw["metadata"]["uid"] != slot.pod_uid:
        text = f"another pod has the name {room.namespace}/{slot.pod} by now"
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=text)
    if raw["metadata"].get("deletionTimestamp"):
        return RoomAnswer(refusal=RoomReason.POD_GONE, detail=f"pod {room.namespace}/{slot.pod} is being deleted")
    return None


def keep_for_longer(client: KubeClient, seen: Reservation, now: datetime, ttl: timedelta) -> None:
    """Let a Reservation live so much longer from now on; where that fails, it is tried again while there is time."""
    patch = {"spec": {"ttl": ttl_from(now, seen, ttl)}}
    try:
        client.merge_patch(RESERVATIONS, seen.metadata.name, patch, namespace=seen.metadata.namespace)
    except NotFoundError:
        return
    except BerthError as error:
        keys = {log_keys.KEY_RESERVATION: seen.key, log_keys.KEY_ERROR: str(error)}
        _LOG.warning(log_keys.CALL_FAILED, **keys)


def give_back(client: KubeClient, room: Room, reservation: str) -> None:
    """Delete the Reservation of a room; where that fails, its TTL releases the places."""
    keys = {log_keys.KEY_RESERVATION: f"{room.namespace}/{reservation}"}
    try:
        client.delete(RESERVATIONS, reservation, namespace=room.namespace)
    except NotFoundError:
        return
    except BerthError as error:
        _LOG.warning(log_keys.RELEASE_FAILED, **keys, **{log_keys.KEY_ERROR: str(error)})
        return
    _LOG.info(log_keys.RELEASED, **keys)


def open_nodes(client: KubeClient, nodes: Iterable[str]) -> None:
    """Let nodes be used again by everybody; where that fails, the end of the plan tries it again."""
    untaint_nodes(client, nodes, ROOM_TAINT)
