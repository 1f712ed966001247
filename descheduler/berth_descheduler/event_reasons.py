"""Owns the reasons of the Kubernetes events that the descheduler records on plans, policies, pods and controllers.

It does not own the reasons of moves: those are the contract's, in `berth_core.migration_plans`.
"""

from enum import StrEnum
from typing import Final

COMPONENT: Final = "berth-descheduler"


class EventReason(StrEnum):
    """What happened to a plan."""

    STARTED = "Started"
    """The plan's first move began."""
    ADOPTED = "Adopted"
    """A run continued a plan that an interrupted run had left."""
    MOVE_FAILED = "MoveFailed"
    """A move failed; the message names the pod and the reason."""
    ROOM_FAILED = "RoomFailed"
    """A room could not be made, or its pod did not take it."""
    ABORTED = "Aborted"
    """The plan was aborted."""
    FINISHED = "Finished"
    """The plan ended; the message says what it achieved."""


class PodEventReason(StrEnum):
    """What happened to a pod, or to a pod of a controller."""

    EVICTED = "EvictedByPlan"
    """A plan evicted the pod; the message names source, target and plan."""


class PolicyEventReason(StrEnum):
    """What happened to a policy."""

    INVALID = "InvalidPolicy"
    """The policy cannot be run; the message names every wrong field."""
    VALID = "ValidPolicy"
    """The policy can be run again."""
    RUN_ENDED = "RunEnded"
    """A run of the policy ended; the message says how."""
    RUN_FAILED = "RunFailed"
    """An error ended a run of the policy."""
