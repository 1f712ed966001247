"""The typed reasons for which pods and nodes are not moved.

Here are also the records that carry them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum, auto
from typing import Final, Literal, Self, TypeAlias


class Refuser(Enum):
    """What refuses: it decides what a refusal means for a plan that was made before.

    No table of reasons stands elsewhere that a new reason could be missing in: each reason names its refuser.
    """

    POD = auto()
    """The pod, its controller or its volumes, as they are now."""
    FILTER = auto()
    """A plugin of the policy, for the pod."""
    TARGET = auto()
    """The node that would take the pod."""
    SOURCE = auto()
    """The node that would be emptied."""
    JOB_FOR_NOW = auto()
    """A job that starves, for which something may be reserved later."""
    JOB_FOR_GOOD = auto()
    """A job that starves and gets nothing, however long it waits."""


class RefusalReason(StrEnum):
    """Why a pod stays, why a node is not emptied, or why a node does not take a pod."""

    refuser: Refuser

    def __new__(cls, value: str, refuser: Refuser) -> Self:
        """Make a member of its value and of what refuses, which none can leave out."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.refuser = refuser
        return member

    # The pod itself must not be moved.
    DAEMON_POD = "DaemonPod", Refuser.POD
    """A DaemonSet runs the pod on every node and would make it again on this one."""
    MIRROR_POD = "MirrorPod", Refuser.POD
    """The kubelet runs the pod from a file on its node."""
    NO_CONTROLLER = "NoController", Refuser.POD
    """The pod has no controller that would make it again."""
    UNKNOWN_CONTROLLER = "UnknownController", Refuser.POD
    """The pod's controller is of a kind that may not make pods again, or is not in the snapshot."""
    CONTROLLER_SCALING_DOWN = "ControllerScalingDown", Refuser.POD
    """The controller is scaling down, suspended or being deleted, and would not make the pod again."""
    NO_REPLACEMENT = "NoReplacement", Refuser.POD
    """Nothing would be made in the pod's stead: its Job ends or has its successes, its namespace is being deleted, or
    its StatefulSet makes no pod of its name."""
    LOWER_ORDINAL_NOT_READY = "LowerOrdinalNotReady", Refuser.POD
    """The pod's StatefulSet makes no pod while one of a lower ordinal is missing, terminating or not Ready."""
    TEMPLATE_DIFFERS = "TemplateDiffers", Refuser.POD
    """The template from which the replacement is made asks for more than the pod, or for other nodes."""
    FOREIGN_FINALIZER = "ForeignFinalizer", Refuser.POD
    """A finalizer would keep the evicted pod until another program removes it."""
    JOB_COULD_FAIL = "JobCouldFail", Refuser.POD
    """An eviction counts as a failure of the pod's Job and could fail the Job."""
    GANG_WOULD_RESTART = "GangWouldRestart", Refuser.POD
    """The gang's policies answer the eviction with more than a restart of the pod."""
    GANG_WOULD_BREAK = "GangWouldBreak", Refuser.POD
    """Fewer pods of the gang would run than it needs."""
    GANG_UNKNOWN = "GangUnknown", Refuser.POD
    """The gang that the pod names, or its task, is not in the snapshot."""
    GRACE_TOO_LONG = "GraceTooLong", Refuser.POD
    """The pod's `terminationGracePeriodSeconds` is above the allowed grace period."""
    NOT_SAFE_TO_EVICT = "NotSafeToEvict", Refuser.POD
    """The pod has the annotation `cluster-autoscaler.kubernetes.io/safe-to-evict: "false"`."""
    DO_NOT_DISRUPT = "DoNotDisrupt", Refuser.POD
    """The pod has the annotation `karpenter.sh/do-not-disrupt: "true"`, or with a duration that is not over."""
    TERMINATING = "Terminating", Refuser.POD
    """The pod is being deleted, or another program is about to delete it."""
    NOT_RUNNING = "NotRunning", Refuser.POD
    """The pod's phase is not Running."""
    SYSTEM_CRITICAL = "SystemCritical", Refuser.POD
    """The pod has a priority class or a priority of the system."""
    LOCAL_STORAGE = "LocalStorage", Refuser.POD
    """The pod has a volume that would be lost with it: `emptyDir`, `hostPath`, an ephemeral claim, or a
    PersistentVolume of such a kind that names no node."""
    SHARED_VOLUME = "SharedVolume", Refuser.POD
    """Another pod uses a claim of the pod whose volume is attached to one node at a time."""
    RESOURCE_CLAIM = "ResourceClaim", Refuser.POD
    """The pod holds devices through resource claims, and a placeholder cannot hold those."""
    BUDGET_EXHAUSTED = "BudgetExhausted", Refuser.POD
    """The pod's disruption budget allows no disruption now."""
    TOO_FEW_READY = "TooFewReady", Refuser.POD
    """As many pods of the controller are gone or not Ready as may be at once, and this one is Ready."""
    SEVERAL_BUDGETS = "SeveralBudgets", Refuser.POD
    """Several disruption budgets select the pod, and the API server then refuses every eviction."""
    TOO_MANY_RULES = "TooManyRules", Refuser.POD
    """The budgets, affinities and spread constraints of the pod's namespace ask a plan for more comparisons than it
    makes."""
    NAMESPACE_NOT_EVICTABLE = "NamespaceNotEvictable", Refuser.POD
    """The arguments exclude the pod's namespace."""
    PLACEHOLDER = "Placeholder", Refuser.POD
    """The pod is a placeholder of a Reservation."""
    GATED = "Gated", Refuser.POD
    """A scheduling gate keeps the pod from being scheduled."""
    HANDING_OVER = "HandingOver", Refuser.POD
    """The pod is taking the place of a Reservation."""
    POD_COOLING_DOWN = "PodCoolingDown", Refuser.POD
    """A plan moved the pod to its node less than the pod cool-down ago."""
    NAMESPACE_LIMIT = "NamespaceLimit", Refuser.POD
    """The plan already moves as many pods of the namespace as it may."""
    UNKNOWN_VOLUME = "UnknownVolume", Refuser.POD
    """The snapshot does not say from which nodes one of the pod's volumes can be reached."""
    UNKNOWN_NODE = "UnknownNode", Refuser.POD
    """The pod's node is not in the snapshot."""
    UNREADABLE_OBJECT = "UnreadableObject", Refuser.POD
    """An object that decides about the pod, such as its budget, its controller or its volume, cannot be read."""
    POD_DATA_ODD = "PodDataOdd", Refuser.POD
    """The pod's requests cannot be read, or are larger than any machine."""

    # A plugin of the policy keeps the pod.
    LABELS_NOT_SELECTED = "LabelsNotSelected", Refuser.FILTER
    """`labelSelector` does not select the pod."""
    NAMESPACE_NOT_SELECTED = "NamespaceNotSelected", Refuser.FILTER
    """`namespaceLabelSelector` does not select the pod's namespace."""
    PRIORITY_TOO_HIGH = "PriorityTooHigh", Refuser.FILTER
    """The pod's priority is at or above `priorityThreshold`."""
    TOO_FEW_REPLICAS = "TooFewReplicas", Refuser.FILTER
    """The pod's controller has fewer live pods than `minReplicas`."""
    UNKNOWN_OWNER = "UnknownOwner", Refuser.FILTER
    """The pod's controller belongs to an object of a kind that may answer an eviction, and is not in
    `harmlessOwners`."""
    TOO_YOUNG = "TooYoung", Refuser.FILTER
    """The pod started less than `minPodAge` ago, or has not started."""
    PERSISTENT_STORAGE = "PersistentStorage", Refuser.FILTER
    """The pod mounts a claim, and the policy keeps such pods."""
    WITHOUT_BUDGET = "WithoutBudget", Refuser.FILTER
    """No disruption budget selects the pod, and the policy keeps such pods."""
    WANTS_NO_EVICTION = "WantsNoEviction", Refuser.FILTER
    """The pod has the annotation `prefer-no-eviction`, and the policy makes it mandatory."""
    ENDS_SOON = "EndsSoon", Refuser.FILTER
    """The pod is expected to end soon by itself, and the policy keeps such pods."""
    REFUSED_BY_PLUGIN = "RefusedByPlugin", Refuser.FILTER
    """A plugin of the policy keeps the pod; the message names the plugin."""
    PLUGIN_FAILED = "PluginFailed", Refuser.FILTER
    """A filter failed, which keeps every pod, or a plugin named a pod that is on no node."""
    MOVED_ALREADY = "MovedAlready", Refuser.POD
    """The same plan already moves the pod for a plugin."""

    # The node takes no pod, or not this one.
    NODE_NOT_READY = "NodeNotReady", Refuser.TARGET
    """The node is not Ready."""
    NODE_UNSCHEDULABLE = "NodeUnschedulable", Refuser.TARGET
    """The node is cordoned."""
    NODE_DATA_MISSING = "NodeDataMissing", Refuser.TARGET
    """The node does not report an allocatable amount of a needed resource."""
    NODE_DATA_ODD = "NodeDataOdd", Refuser.TARGET
    """The node, or a pod on it, cannot be read or has amounts that no machine has."""
    NODE_DRAINING = "NodeDraining", Refuser.TARGET
    """The node carries a taint of a running plan."""
    NODE_NOT_SELECTED = "NodeNotSelected", Refuser.TARGET
    """`nodeSelector` does not select the node."""
    CONTROL_PLANE_NODE = "ControlPlaneNode", Refuser.TARGET
    """The node belongs to the control plane and takes no moved pods by default."""
    LENT_NODE = "LentNode", Refuser.TARGET
    """The node is lent by the clock: it takes only preemptable pods that `LentNodes` moves, while it is open."""
    NODE_LEAVING = "NodeLeaving", Refuser.TARGET
    """The node is being removed, or is about to end its pods, so it takes none, whatever they tolerate."""
    NODE_NOT_INITIALIZED = "NodeNotInitialized", Refuser.TARGET
    """The node is not initialized yet: Karpenter, its cloud or a startup taint says so."""
    NODE_OF_ONE_POD = "NodeOfOnePod", Refuser.TARGET
    """The node stands for a service that makes a machine of its own for each pod, such as Fargate."""
    SAME_NODE = "SameNode", Refuser.TARGET
    """The pod is on the node already."""
    INSUFFICIENT_RESOURCES = "InsufficientResources", Refuser.TARGET
    """The node has too little of a resource left, or no free pod slot."""
    UNTOLERATED_TAINT = "UntoleratedTaint", Refuser.TARGET
    """The node has a taint that the pod does not tolerate, or for some seconds only."""
    NODE_AFFINITY = "NodeAffinity", Refuser.TARGET
    """The pod's `nodeSelector` or required node affinity excludes the node."""
    OTHER_PLATFORM = "OtherPlatform", Refuser.TARGET
    """The node has another operating system or architecture than those on which the pod is known to run."""
    HOST_PORT = "HostPort", Refuser.TARGET
    """A host port that the pod needs is in use on the node."""
    POD_AFFINITY = "PodAffinity", Refuser.TARGET
    """The node's domain has no pod that the pod's required affinity asks for."""
    POD_ANTI_AFFINITY = "PodAntiAffinity", Refuser.TARGET
    """The pod's anti-affinity excludes a pod in the node's domain."""
    OTHERS_ANTI_AFFINITY = "OthersAntiAffinity", Refuser.TARGET
    """The anti-affinity of a pod in the node's domain excludes the pod or a placeholder."""
    TOPOLOGY_SPREAD = "TopologySpread", Refuser.TARGET
    """The move would violate a `DoNotSchedule` topology spread constraint."""
    VOLUME_ZONE = "VolumeZone", Refuser.TARGET
    """One of the pod's volumes is in another zone."""
    VOLUME_NODE = "VolumeNode", Refuser.TARGET
    """One of the pod's volumes cannot be reached from the node."""
    ABOVE_PROTECTION = "AboveProtection", Refuser.TARGET
    """The pod would take the node above a protection threshold."""

    # The node is not emptied.
    NOT_LOW = "NotLow", Refuser.SOURCE
    """The node's utilization is not below the low thresholds."""
    CRITICAL_NODE = "CriticalNode", Refuser.SOURCE
    """The node is labelled `critical=true`."""
    COOLING_DOWN = "CoolingDown", Refuser.SOURCE
    """A plan moved pods off the node, or onto it, less than the node cool-down ago."""
    ALREADY_EMPTY = "AlreadyEmpty", Refuser.SOURCE
    """The node has no pod to move."""
    RESOURCE_MISSING = "ResourceMissing", Refuser.SOURCE
    """The node has none of a resource that a threshold names."""
    BRINGS_NOTHING = "BringsNothing", Refuser.SOURCE
    """It brings nothing to empty the node: an autoscaler keeps it, it goes anyway, or it stands for a service."""
    HOLDS_IMMOVABLE_PODS = "HoldsImmovablePods", Refuser.SOURCE
    """The node holds pods that must not be moved."""
    EXPECTS_PODS = "ExpectsPods", Refuser.SOURCE
    """A pod or a placeholder is about to come to the node."""
    NO_TARGET = "NoTarget", Refuser.SOURCE
    """No node takes the pod, or one of the node's pods."""
    MOVE_LIMIT = "MoveLimit", Refuser.SOURCE
    """The plan has too few moves left."""
    NODE_LIMIT = "NodeLimit", Refuser.SOURCE
    """More pods would have to leave the node than the limit allows."""
    TIME_LIMIT = "TimeLimit", Refuser.SOURCE
    """The time limit ended the search."""
    TOO_FEW_LOW_NODES = "TooFewLowNodes", Refuser.SOURCE
    """No more nodes are low than `numberOfNodes`."""
    SAVES_TOO_LITTLE = "SavesTooLittle", Refuser.SOURCE
    """The node has no price, or its price is less than `minSavingsPerMove` for each pod that would have to leave it."""
    NO_ROOM_TOGETHER = "NoRoomTogether", Refuser.SOURCE
    """Each pod fits somewhere, but no place was found for all of them together."""
    BOUND_REACHED = "BoundReached", Refuser.SOURCE
    """The plan already reaches the upper bound: no plan frees more nodes or makes more room."""
    NOT_NEEDED = "NotNeeded", Refuser.SOURCE
    """The plan's goal does not need the pod's place."""

    # Nothing is reserved for a job that starves.
    FITS_NOW = "FitsNow", Refuser.JOB_FOR_NOW
    """The job's pods fit as the cluster is: its scheduler can place them."""
    TOO_FEW_PODS = "TooFewPods", Refuser.JOB_FOR_NOW
    """The job has fewer pods than it needs."""
    NOT_ENQUEUED = "NotEnqueued", Refuser.JOB_FOR_NOW
    """Volcano has not let the job's PodGroup in, so it has no pods."""
    HIGHER_PRIORITY_FIRST = "HigherPriorityFirst", Refuser.JOB_FOR_NOW
    """A job of higher priority can be placed now, and comes first."""
    LARGER_THAN_ANY_NODE = "LargerThanAnyNode", Refuser.JOB_FOR_GOOD
    """One of the job's pods requests more than any node has, pods of DaemonSets left aside."""
    STARVES_BY_RULES = "StarvesByRules", Refuser.JOB_FOR_GOOD
    """Affinity, taints, volumes or other rules keep the job's pods off the nodes that could hold them."""
    NODES_PROMISED = "NodesPromised", Refuser.JOB_FOR_NOW
    """What the nodes could hold beside DaemonSets is promised to others, or too little for the job as a whole."""
    RESERVED_NODE_PERCENT = "ReservedNodePercent", Refuser.JOB_FOR_NOW
    """More nodes would be fenced than `reservedNodePercent` allows."""
    BEHIND_ANOTHER_JOB = "BehindAnotherJob", Refuser.JOB_FOR_NOW
    """A job that comes before it waits for nodes to be fenced."""
    GAVE_UP = "GaveUp", Refuser.JOB_FOR_GOOD
    """Its last Reservation failed or gave up, and has not been deleted yet."""
    TOO_MANY_OWNERS = "TooManyOwners", Refuser.JOB_FOR_GOOD
    """The job's pods have more owners, or it needs more slots, than one Reservation can name."""

    @property
    def outlasts_waiting(self) -> bool:
        """Return whether a starving job gets nothing, however long it waits."""
        return self.refuser is Refuser.JOB_FOR_GOOD


@dataclass(frozen=True, slots=True, order=True)
class Refusal:
    """A reason and a sentence for people.

    The other fields tell programs what the sentence names; they are "" where it names nothing.
    """

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
        return "; ".join((self.message, *(refusal.message for refusal in self.also)))


class RefusedKind(StrEnum):
    """What a refusal is about."""

    NODE = "Node"
    """A node that is not emptied."""
    POD = "Pod"
    """A pod that is not moved."""


@dataclass(frozen=True, slots=True, order=True)
class Refused:
    """A node that was not emptied or a pod not moved.

    `node` is where the pod is.
    """

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
        return "; ".join((self.message, *(refusal.message for refusal in self.also)))

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


_PASSING: Final = frozenset(
    {
        RefusalReason.BUDGET_EXHAUSTED,
        RefusalReason.TOO_FEW_READY,
        RefusalReason.LOWER_ORDINAL_NOT_READY,
        RefusalReason.NOT_RUNNING,
        RefusalReason.HANDING_OVER,
    }
)
"""Why pods stay that may be able to leave a moment later."""


def may_pass(reason: RefusalReason) -> bool:
    """Return whether a pod that stays for this reason may be able to leave a moment later."""
    return reason in _PASSING
