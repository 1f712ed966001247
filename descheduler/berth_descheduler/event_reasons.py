"""The reasons of the Kubernetes events that the descheduler records on plans, policies, pods and controllers."""

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
    REPLACEMENTS_NOT_TRIED = "ReplacementsNotTried"
    """What controllers make next is not tried by dry run before evictions; the message says why."""
    REPLANNED = "Replanned"
    """The rest of the plan was planned again; the message names the new plan."""


class PodEventReason(StrEnum):
    """What happened to a pod, or to a pod of a controller."""

    EVICTED = "EvictedByPlan"
    """A plan evicted the pod; the message names source, plan, and target or why there is none."""
    LET_GO = "LetGoByPlan"
    """A surge move had the pod's ReplicaSet let it go; the message names the plan and the target."""
    TAKEN_BACK = "TakenBackByPlan"
    """A surge move gave the pod back to its ReplicaSet; the message says why."""
    RESOURCE_RESERVED = "NodeResourceReserved"
    """The pod would fit on a node that is kept for a starving job; the message names the node."""
    NODES_KEPT = "NodesKept"
    """Nodes are kept for the starving job of the pod until pods there have ended; the message names them."""
    NOTHING_RESERVED = "NothingReserved"
    """The job of the pod starves, and nothing is reserved for it; the message says why."""


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
