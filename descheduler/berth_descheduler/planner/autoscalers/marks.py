"""Every mark of an autoscaler that Berth reads: one table, of which the page on managed clusters has a copy.

The values are those that the owner of a mark acts on; with any other value a mark says nothing. The sources:
`cluster-autoscaler/FAQ.md`, `simulator/drainability/rules` and `utils/taints` of kubernetes/autoscaler;
`pkg/utils/pod/scheduling.go`, `pkg/controllers/state/statenode.go` and `pkg/apis/v1` of kubernetes-sigs/karpenter.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from berth_core.objects import DAEMONSET_POD_ANNOTATION


class Owner(StrEnum):
    """Who writes or defines a mark."""

    CLUSTER_AUTOSCALER = "cluster autoscaler"
    KARPENTER = "Karpenter"


class Place(StrEnum):
    """Where a mark stands."""

    POD_ANNOTATION = "pod, annotation"


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark and what Berth makes of it."""

    key: str
    owner: Owner
    place: Place
    values: str
    """The values that mean something, in words."""

    effect: str
    """What Berth does then, in words."""

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Return the mark as the page has it."""
        return f"`{self.key}`", f"{self.place} ({self.owner})", self.values, self.effect


SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DAEMONSET_POD: Final = DAEMONSET_POD_ANNOTATION
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DO_NOT_EVICT: Final = "karpenter.sh/do-not-evict"
"""What Karpenter called it before version 0.32."""

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

MARKS: Final = POD_MARKS
