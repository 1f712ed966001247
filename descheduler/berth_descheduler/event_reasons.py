"""Owns the reasons of the Kubernetes events that the descheduler records on plans, policies, pods and controllers.

It does not own the reasons of moves: those are the contract's, in `berth_core.migration_plans`.
"""

from enum import StrEnum
from typing import Final

COMPONENT: Final = "berth-descheduler"


class EventReason(StrEnum):
    """What happened to a plan."""

    STARTED = "Started"
    ADOPTED = "Adopted"
    MOVE_FAILED = "MoveFailed"
    ROOM_FAILED = "RoomFailed"
    ABORTED = "Aborted"
    FINISHED = "Finished"


class PodEventReason(StrEnum):
    """What happened to a pod, or to a pod of a controller."""

    EVICTED = "EvictedByPlan"


class PolicyEventReason(StrEnum):
    """What happened to a policy."""

    INVALID = "InvalidPolicy"
    VALID = "ValidPolicy"
    RUN_ENDED = "RunEnded"
    RUN_FAILED = "RunFailed"
