"""Owns the typed reasons for which a pod or a node is not moved, and the records that carry them.

It does not decide: filters, feasibility and strategies do, and say why in these words.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Literal, TypeAlias


class RefusalReason(StrEnum):
    """Why a pod stays, why a node does not take it, or why a node is not emptied."""

    # The pod itself must not be moved.
    DAEMON_POD = "DaemonPod"
    MIRROR_POD = "MirrorPod"
    NO_CONTROLLER = "NoController"
    UNKNOWN_CONTROLLER = "UnknownController"
    CONTROLLER_SCALING_DOWN = "ControllerScalingDown"
    JOB_COULD_FAIL = "JobCouldFail"
    GANG_WOULD_RESTART = "GangWouldRestart"
    GANG_WOULD_BREAK = "GangWouldBreak"
    GANG_UNKNOWN = "GangUnknown"
    GRACE_TOO_LONG = "GraceTooLong"
    NOT_SAFE_TO_EVICT = "NotSafeToEvict"
    DO_NOT_DISRUPT = "DoNotDisrupt"
    TERMINATING = "Terminating"
    NOT_RUNNING = "NotRunning"
    SYSTEM_CRITICAL = "SystemCritical"
    LOCAL_STORAGE = "LocalStorage"
    RESOURCE_CLAIM = "ResourceClaim"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    SEVERAL_BUDGETS = "SeveralBudgets"
    NAMESPACE_NOT_EVICTABLE = "NamespaceNotEvictable"
    PLACEHOLDER = "Placeholder"
    GATED = "Gated"
    HANDING_OVER = "HandingOver"
    POD_COOLING_DOWN = "PodCoolingDown"
    NAMESPACE_LIMIT = "NamespaceLimit"
    UNKNOWN_VOLUME = "UnknownVolume"
    UNKNOWN_NODE = "UnknownNode"
    POD_DATA_ODD = "PodDataOdd"

    # A plugin of the policy keeps the pod.
    LABELS_NOT_SELECTED = "LabelsNotSelected"
    NAMESPACE_NOT_SELECTED = "NamespaceNotSelected"
    PRIORITY_TOO_HIGH = "PriorityTooHigh"
    TOO_FEW_REPLICAS = "TooFewReplicas"
    TOO_YOUNG = "TooYoung"
    PERSISTENT_STORAGE = "PersistentStorage"
    WITHOUT_BUDGET = "WithoutBudget"
    WANTS_NO_EVICTION = "WantsNoEviction"
    REFUSED_BY_PLUGIN = "RefusedByPlugin"
    PLUGIN_FAILED = "PluginFailed"
    MOVED_ALREADY = "MovedAlready"

    # The node takes no pod, or not this one.
    NODE_NOT_READY = "NodeNotReady"
    NODE_UNSCHEDULABLE = "NodeUnschedulable"
    NODE_DATA_MISSING = "NodeDataMissing"
    NODE_DATA_ODD = "NodeDataOdd"
    NODE_DRAINING = "NodeDraining"
    NODE_NOT_SELECTED = "NodeNotSelected"
    CONTROL_PLANE_NODE = "ControlPlaneNode"
    SAME_NODE = "SameNode"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    UNTOLERATED_TAINT = "UntoleratedTaint"
    NODE_AFFINITY = "NodeAffinity"
    HOST_PORT = "HostPort"
    POD_AFFINITY = "PodAffinity"
    POD_ANTI_AFFINITY = "PodAntiAffinity"
    OTHERS_ANTI_AFFINITY = "OthersAntiAffinity"
    TOPOLOGY_SPREAD = "TopologySpread"
    VOLUME_ZONE = "VolumeZone"
    VOLUME_NODE = "VolumeNode"
    ABOVE_PROTECTION = "AboveProtection"

    # The node is not emptied.
    NOT_LOW = "NotLow"
    CRITICAL_NODE = "CriticalNode"
    COOLING_DOWN = "CoolingDown"
    ALREADY_EMPTY = "AlreadyEmpty"
    RESOURCE_MISSING = "ResourceMissing"
    HOLDS_IMMOVABLE_PODS = "HoldsImmovablePods"
    EXPECTS_PODS = "ExpectsPods"
    NO_TARGET = "NoTarget"
    MOVE_LIMIT = "MoveLimit"
    NODE_LIMIT = "NodeLimit"
    TIME_LIMIT = "TimeLimit"
    TOO_FEW_LOW_NODES = "TooFewLowNodes"
    NO_ROOM_TOGETHER = "NoRoomTogether"
    BOUND_REACHED = "BoundReached"
    NOT_NEEDED = "NotNeeded"


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """A reason and a sentence for people; what the sentence names also for programs, "" where there is none."""

    reason: RefusalReason
    message: str
    constraint: RefusalReason | Literal[""] = field(default="", kw_only=True)
    """What stands behind the reason, where that alone does not say it."""

    resource: str = field(default="", kw_only=True)
    """Of which there is not enough; the first by name where it is several."""

    blocking_pod: str = field(default="", kw_only=True)
    """`namespace/name` of the pod that stands in the way."""

    also: tuple["Refusal", ...] = field(default=(), kw_only=True)
    """What else speaks against it, each with none of its own."""

    @classmethod
    def in_one(cls, refusals: Sequence["Refusal"]) -> "Refusal":
        """Return the first of some refusals with the others beside it."""
        return replace(refusals[0], also=tuple(refusals[1:])) if len(refusals) > 1 else refusals[0]

    @property
    def sentences(self) -> str:
        """Return all that is said, for people."""
        return "; ".join((self.message, *(one.message for one in self.also)))


class RefusedKind(StrEnum):
    """What a refusal is about."""

    NODE = "Node"
    POD = "Pod"


@dataclass(frozen=True, slots=True, order=True)
class Refused:
    """A node that was not emptied or a pod that was not moved; `node` is where the pod is."""

    kind: RefusedKind
    node: str
    namespace: str
    name: str
    reason: RefusalReason
    message: str
    constraint: RefusalReason | Literal[""] = ""
    resource: str = ""
    blocking_pod: str = ""
    also: tuple[Refusal, ...] = ()

    @property
    def sentences(self) -> str:
        """Return all that is said, for people."""
        return "; ".join((self.message, *(one.message for one in self.also)))

    @classmethod
    def of_node(cls, node: str, refusal: Refusal) -> "Refused":
        """Return the record about a node."""
        return cls(RefusedKind.NODE, node, "", node, *_parts(refusal))

    @classmethod
    def of_pod(cls, node: str, namespace: str, name: str, refusal: Refusal) -> "Refused":
        """Return the record about a pod."""
        return cls(RefusedKind.POD, node, namespace, name, *_parts(refusal))


_Parts: TypeAlias = tuple[RefusalReason, str, RefusalReason | Literal[""], str, str, tuple[Refusal, ...]]


def _parts(refusal: Refusal) -> _Parts:
    return (
        refusal.reason,
        refusal.message,
        refusal.constraint,
        refusal.resource,
        refusal.blocking_pod,
        refusal.also,
    )
