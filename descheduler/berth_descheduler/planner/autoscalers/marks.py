"""Every mark of an autoscaler or a cloud that Berth reads: one table, of which a page has a copy.

The values are those that the owner of a mark acts on; with any other value a mark says nothing. The sources:
`cluster-autoscaler/FAQ.md`, `simulator/drainability/rules` and `utils/taints` of kubernetes/autoscaler;
`pkg/utils/pod/scheduling.go`, `pkg/controllers/state/statenode.go` and `pkg/apis/v1` of kubernetes-sigs/karpenter; the
manuals of the clouds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Final

from berth_core.objects.pods import DAEMONSET_POD_ANNOTATION


class Owner(StrEnum):
    """Who writes or defines a mark."""

    CLUSTER_AUTOSCALER = "cluster autoscaler"
    KARPENTER = "Karpenter"
    KUBERNETES = "Kubernetes"
    EKS = "EKS"
    AKS = "AKS"
    GKE = "GKE"
    TERMINATION_HANDLER = "AWS Node Termination Handler"
    VIRTUAL_KUBELET = "Virtual Kubelet"


class Place(StrEnum):
    """Where a mark stands."""

    POD_ANNOTATION = "pod, annotation"
    NODE_ANNOTATION = "node, annotation"
    NODE_LABEL = "node, label"
    NODE_TAINT = "node, taint"
    NODE_CONDITION = "node, condition"


class Meaning(Enum):
    """What a mark on a node says of the node."""

    KEPT = auto()
    """An autoscaler does not remove it, with pods or without."""

    LEAVING = auto()
    """It is being removed, or ends its pods soon."""

    UNFINISHED = auto()
    """What made it has not finished it."""

    ONE_POD = auto()
    """It stands for a service that makes a machine for each pod."""

    CLOSED = auto()
    """No pod should run there for now."""

    SOFT = auto()
    """Pods should rather run elsewhere."""


EFFECTS: Final[Mapping[Meaning, str]] = {
    Meaning.KEPT: "the node is not freed (`BringsNothing`)",
    Meaning.LEAVING: "the node takes no pods, whatever they tolerate (`NodeLeaving`), and is not freed",
    Meaning.UNFINISHED: "the node takes no pods, whatever they tolerate (`NodeNotInitialized`), and is not freed",
    Meaning.ONE_POD: "the node takes no pods, whatever they tolerate (`NodeOfOnePod`), and is not freed",
    Meaning.CLOSED: "the node takes no pods, whatever they tolerate (`UntoleratedTaint`)",
    Meaning.SOFT: "the node takes pods last",
}


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark and what Berth makes of it."""

    key: str
    """A taint's may be a prefix, which ends with a slash."""

    owner: Owner
    place: Place
    values: str = "any"
    """The values that mean something, in words."""

    effect: str = ""
    """What Berth does then, in words."""

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Return the mark as the page has it."""
        shown_key = f"`{self.key}…`" if self.key.endswith("/") else f"`{self.key}`"
        return shown_key, f"{self.place} ({self.owner})", self.values, self.effect


@dataclass(frozen=True, slots=True)
class AutoscalerMark(Mark):
    """A mark on a node."""

    meaning: Meaning = Meaning.KEPT
    value: str | None = None
    """The value that means it; None: any."""


def _on_node(
    place: Place, key: str, owner: Owner, meaning: Meaning, value: str | None = None, *, remark: str = ""
) -> AutoscalerMark:
    words = "any" if value is None else f'`"{value}"`'
    return AutoscalerMark(key, owner, place, f"{words}{remark}", EFFECTS[meaning], meaning, value)


SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DAEMONSET_POD: Final = DAEMONSET_POD_ANNOTATION
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DO_NOT_EVICT: Final = "karpenter.sh/do-not-evict"
"""What Karpenter called it before version 0.32."""

SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
KARPENTER_INITIALIZED: Final = "karpenter.sh/initialized"
KARPENTER_POOLS: Final = ("karpenter.sh/nodepool", "karpenter.sh/provisioner-name")
"""Labels of the nodes that Karpenter has made, the second one before its version 0.32."""

KARPENTER_DISRUPTED: Final = "karpenter.sh/disrupted"
NODE_GROUPS: Final = ("cloud.google.com/gke-nodepool", "eks.amazonaws.com/nodegroup", "kubernetes.azure.com/agentpool")
"""Labels of nodes of groups that the cluster autoscaler scales."""

YES: Final = "true"
NO: Final = "false"

POD_MARKS: Final = (
    Mark(
        SAFE_TO_EVICT, Owner.CLUSTER_AUTOSCALER, Place.POD_ANNOTATION, '`"false"`', "the pod stays (`NotSafeToEvict`)"
    ),
    Mark(
        SAFE_TO_EVICT,
        Owner.CLUSTER_AUTOSCALER,
        Place.POD_ANNOTATION,
        '`"true"`',
        "`emptyDir` and `hostPath` volumes do not keep the pod",
    ),
    Mark(
        SAFE_LOCAL_VOLUMES,
        Owner.CLUSTER_AUTOSCALER,
        Place.POD_ANNOTATION,
        "names of volumes with commas and no spaces between them",
        "these volumes do not keep the pod; of volumes in memory none has to be named",
    ),
    Mark(
        DAEMONSET_POD,
        Owner.CLUSTER_AUTOSCALER,
        Place.POD_ANNOTATION,
        '`"true"`',
        "the pod counts as one of a DaemonSet: it stays (`DaemonPod`), and its node is empty without it",
    ),
    Mark(
        DO_NOT_DISRUPT,
        Owner.KARPENTER,
        Place.POD_ANNOTATION,
        '`"true"`',
        "the pod stays (`DoNotDisrupt`)",
    ),
    Mark(
        DO_NOT_DISRUPT,
        Owner.KARPENTER,
        Place.POD_ANNOTATION,
        'a Go duration above 0, such as `"15m"` or `"1h30m"`',
        "the pod stays for so long from its `status.startTime` on, or always where it has none",
    ),
    Mark(
        DO_NOT_EVICT,
        Owner.KARPENTER,
        Place.POD_ANNOTATION,
        '`"true"` (before 0.32)',
        "the pod stays (`DoNotDisrupt`)",
    ),
)

ANNOTATIONS_OF_NODES: Final = (
    _on_node(Place.NODE_ANNOTATION, SCALE_DOWN_DISABLED, Owner.CLUSTER_AUTOSCALER, Meaning.KEPT, YES),
    _on_node(Place.NODE_ANNOTATION, DO_NOT_DISRUPT, Owner.KARPENTER, Meaning.KEPT, YES),
    _on_node(
        Place.NODE_ANNOTATION,
        "karpenter.sh/do-not-consolidate",
        Owner.KARPENTER,
        Meaning.KEPT,
        YES,
        remark=" (before 0.32)",
    ),
)

TAINTS: Final = (
    _on_node(Place.NODE_TAINT, "ToBeDeletedByClusterAutoscaler", Owner.CLUSTER_AUTOSCALER, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, KARPENTER_DISRUPTED, Owner.KARPENTER, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "karpenter.sh/disruption", Owner.KARPENTER, Meaning.LEAVING, remark=" (before 1.0)"),
    _on_node(Place.NODE_TAINT, "node.kubernetes.io/out-of-service", Owner.KUBERNETES, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "node.cloudprovider.kubernetes.io/shutdown", Owner.KUBERNETES, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "cloud.google.com/impending-node-termination", Owner.GKE, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "remediator.kubernetes.azure.com/unschedulable", Owner.AKS, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "remediator.aks.microsoft.com/unschedulable", Owner.AKS, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "aws-node-termination-handler/", Owner.TERMINATION_HANDLER, Meaning.LEAVING),
    _on_node(Place.NODE_TAINT, "karpenter.sh/unregistered", Owner.KARPENTER, Meaning.UNFINISHED),
    _on_node(Place.NODE_TAINT, "node.cloudprovider.kubernetes.io/uninitialized", Owner.KUBERNETES, Meaning.UNFINISHED),
    _on_node(
        Place.NODE_TAINT,
        "startup-taint.cluster-autoscaler.kubernetes.io/",
        Owner.CLUSTER_AUTOSCALER,
        Meaning.UNFINISHED,
    ),
    _on_node(
        Place.NODE_TAINT,
        "ignore-taint.cluster-autoscaler.kubernetes.io/",
        Owner.CLUSTER_AUTOSCALER,
        Meaning.UNFINISHED,
    ),
    _on_node(
        Place.NODE_TAINT, "status-taint.cluster-autoscaler.kubernetes.io/", Owner.CLUSTER_AUTOSCALER, Meaning.CLOSED
    ),
    _on_node(Place.NODE_TAINT, "DeletionCandidateOfClusterAutoscaler", Owner.CLUSTER_AUTOSCALER, Meaning.SOFT),
    _on_node(Place.NODE_TAINT, "eks.amazonaws.com/compute-type", Owner.EKS, Meaning.ONE_POD, "fargate"),
    _on_node(Place.NODE_TAINT, "virtual-kubelet.io/provider", Owner.VIRTUAL_KUBELET, Meaning.ONE_POD),
)
"""One with the effect `PreferNoSchedule` means that pods should rather run elsewhere, whatever it says besides."""

LABELS: Final = (
    _on_node(Place.NODE_LABEL, "eks.amazonaws.com/compute-type", Owner.EKS, Meaning.ONE_POD, "fargate"),
    _on_node(Place.NODE_LABEL, "type", Owner.VIRTUAL_KUBELET, Meaning.ONE_POD, "virtual-kubelet"),
)

NOT_INITIALIZED: Final = AutoscalerMark(
    KARPENTER_INITIALIZED,
    Owner.KARPENTER,
    Place.NODE_LABEL,
    'all but `"true"`, and none, on nodes with the label `karpenter.sh/nodepool` (or `karpenter.sh/provisioner-name`)',
    EFFECTS[Meaning.UNFINISHED],
    Meaning.UNFINISHED,
)

CONDITIONS: Final = tuple(
    _on_node(Place.NODE_CONDITION, key, Owner.AKS, Meaning.SOFT, "True")
    for key in (
        "VMEventScheduled",
        "FreezeScheduled",
        "RebootScheduled",
        "RedeployScheduled",
        "PreemptScheduled",
        "TerminateScheduled",
    )
)

NODE_MARKS: Final = (*ANNOTATIONS_OF_NODES, *TAINTS, NOT_INITIALIZED, *LABELS, *CONDITIONS)

MARKS: Final[tuple[Mark, ...]] = (*POD_MARKS, *NODE_MARKS)
