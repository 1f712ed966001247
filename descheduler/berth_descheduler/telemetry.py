"""The names of the descheduler's log events and their keys.

Nothing logs under a name spelled elsewhere.
"""

from enum import StrEnum
from typing import Final

STARTED: Final = "descheduler started"
STOPPED: Final = "descheduler stopped"
STOPPING: Final = "asked to stop, finishing nothing new"
PHASE_ENDED: Final = "phase ended"
CYCLE_ENDED: Final = "cycle ended"
CYCLE_FAILED: Final = "cycle failed, the next one begins by undoing what it left"
PLAN_PUBLISHED: Final = "plan published"
PLAN_ADOPTED: Final = "plan of an interrupted run continued"
PLAN_ENDED: Final = "plan ended before it began"
PLAN_ABORTED: Final = "plan aborted"
PLAN_STOPPED: Final = "plan stopped, nothing more is begun"
PLAN_DELETED: Final = "plan was deleted, run aborted"
MOVE_CHANGED: Final = "move changed state"
ROOM_CHANGED: Final = "room changed state"
RESERVED: Final = "reservation created"
RELEASED: Final = "reservation released"
RELEASE_FAILED: Final = "reservation not released, its TTL will"
EVICTED: Final = "pod evicted"
EVICTION_BLOCKED: Final = "eviction blocked, will be tried again"
CAPACITY_UNKNOWN: Final = "fragmentation not measured, will be tried again"
CALL_FAILED: Final = "call failed, will be tried again"
TAINTED: Final = "source tainted"
UNTAINTED: Final = "draining taint taken off"
UNTAINT_FAILED: Final = "draining taint not taken off, the next run will"
MARKED: Final = "freed node marked"
MARK_FAILED: Final = "freed node not marked"
UNMARKED: Final = "mark of a freed node taken off or changed"
UNMARK_FAILED: Final = "mark of a freed node not taken off, the next sweep will"
PODS_WAIT: Final = "other pods wait for the room of the plan"
UNGATED: Final = "gate of a silent operator taken off"
UNGUARDED: Final = "guard of a silent operator taken off"
WATCHDOG_FAILED: Final = "watch over the operator failed, will be tried again"
LEADING: Final = "leader of the replicas, serving policies"
NOT_LEADING: Final = "no longer leader of the replicas"
WAITING: Final = "waiting to lead"
POLICY_INVALID: Final = "policy cannot be run"
POLICY_RUN: Final = "policy runs"
WORK_FAILED: Final = "run failed"
SWEEP_FAILED: Final = "nodes not swept, will be tried again"
CHORE_FAILED: Final = "chore failed, will be tried again"
PLAN_NOT_KEPT: Final = "old plan deleted"
WATCH_FAILED: Final = "watch failed, will be tried again"
STATUS_FAILED: Final = "plan status not written, will be tried again"
REST_STARTED: Final = "rest interface started"
REST_FAILED: Final = "rest interface failed"
REQUEST_ANSWERED: Final = "request answered"
REQUEST_FAILED: Final = "request failed, its caller was told no more than that"
REVIEW_FAILED: Final = "the cluster did not say who is asking or what they may do"
FEED_FAILED: Final = "plan not followed any more"
CERTIFICATE_LOADED: Final = "certificate read anew"
CERTIFICATE_FAILED: Final = "certificate not read, the one before it goes on"

KEY_ROOM: Final = "room"
KEY_POLICY: Final = "policy"
KEY_TRIGGER: Final = "trigger"
KEY_PLAN: Final = "plan"
KEY_PHASE: Final = "phase"
KEY_SECONDS: Final = "seconds"
KEY_MOVES: Final = "moves"
KEY_POD: Final = "pod"
KEY_STATE: Final = "state"
KEY_REASON: Final = "reason"
KEY_MESSAGE: Final = "message"
KEY_NODE: Final = "node"
KEY_RESERVATION: Final = "reservation"
KEY_ERROR: Final = "error"
KEY_SENTENCE: Final = "sentence"
KEY_IDENTITY: Final = "identity"
KEY_ADDRESS: Final = "address"
KEY_REQUEST: Final = "request"
KEY_METHOD: Final = "method"
KEY_PATH: Final = "path"
KEY_STATUS: Final = "status"
KEY_USER: Final = "user"
KEY_PEER: Final = "peer"


# --- event reasons ---------------------------------------------------------------------------------------------------
# The reasons of the Kubernetes events that the descheduler records on plans, policies, pods and controllers.

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
