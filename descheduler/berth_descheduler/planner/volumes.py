"""Owns which nodes a pod's volumes can be reached from: zones, node-bound volumes, and claims that are not known.

It does not own local storage, with which a pod is not moved at all: that is the eviction filter's.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from berth_core.objects import Node, NodeSelector
from berth_core.selectors import matches_any_term
from berth_core.storage import PersistentVolume, PersistentVolumeClaim
from berth_descheduler.planner.classes import PodClass
from berth_descheduler.refusals import Refusal, RefusalReason

ZONE_LABELS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels of a volume that bind it to a zone or region, and what they are called today."""

_ZONE_SEPARATOR: Final = "__"
_SINGLE_POD: Final = "ReadWriteOncePod"
_BOUND: Final = frozenset({"", "Bound"})
"""Phases of a claim that is bound, if it names a volume."""


@dataclass(frozen=True, slots=True)
class BoundVolume:
    """A volume of a pod and the nodes from which it can be reached."""

    claim: str
    zones: tuple[tuple[str, frozenset[str]], ...]
    """Label keys and the values of which a node must have one."""

    nodes: NodeSelector | None

    def refusal(self, node: Node) -> Refusal | None:
        """Return why the volume cannot be used on a node."""
        labels = node.metadata.labels
        zoned = not labels.keys().isdisjoint(ZONE_LABELS)  # a cluster of one zone may leave its nodes without labels
        for key, values in self.zones if zoned else ():
            if _label(labels, key) not in values:
                text = f"volume of claim {self.claim} is in {key} {', '.join(sorted(values))}"
                return Refusal(RefusalReason.VOLUME_ZONE, text)
        if self.nodes is not None and not matches_any_term(self.nodes.node_selector_terms, node):
            return Refusal(RefusalReason.VOLUME_NODE, f"volume of claim {self.claim} cannot be reached from the node")
        return None


class VolumeBook:
    """Answers what is known of the volumes of a class of pods; a claim that is not known keeps the pod where it is."""

    def __init__(self, claims: Iterable[PersistentVolumeClaim], volumes: Iterable[PersistentVolume]) -> None:
        self._claims = {(claim.metadata.namespace, claim.metadata.name): claim for claim in claims}
        self._volumes = {volume.metadata.name: volume for volume in volumes}

    def volumes_of(self, pods: PodClass) -> tuple[BoundVolume, ...] | Refusal:
        """Return the volumes that bind a class of pods to nodes, or what is not known of them."""
        bound = []
        for name in pods.claims:
            volume = self._volume(pods.namespace, name)
            if isinstance(volume, Refusal):
                return volume
            bound.append(_bound_volume(name, volume))
        return tuple(one for one in bound if one.zones or one.nodes is not None)

    def _volume(self, namespace: str, name: str) -> PersistentVolume | Refusal:
        claim = self._claims.get((namespace, name))
        if claim is None:
            return _unknown(f"claim {name} is not in the snapshot")
        if claim.metadata.deletion_timestamp is not None:
            return _unknown(f"claim {name} is being deleted")
        if not claim.spec.volume_name or claim.status.phase not in _BOUND:
            return _unknown(f"claim {name} is bound to no volume")
        if _SINGLE_POD in claim.spec.access_modes:
            return _unknown(f"claim {name} is for one pod at a time, so the old pod keeps the new one out")
        volume = self._volumes.get(claim.spec.volume_name)
        if volume is None:
            return _unknown(f"volume {claim.spec.volume_name} of claim {name} is not in the snapshot")
        return volume


def _unknown(message: str) -> Refusal:
    return Refusal(RefusalReason.UNKNOWN_VOLUME, message)


def _bound_volume(claim: str, volume: PersistentVolume) -> BoundVolume:
    labels = volume.metadata.labels
    zones = tuple((key, frozenset(labels[key].split(_ZONE_SEPARATOR))) for key in sorted(ZONE_LABELS) if key in labels)
    affinity = volume.spec.node_affinity
    return BoundVolume(claim, zones, None if affinity is None else affinity.required)


def _label(labels: Mapping[str, str], key: str) -> str | None:
    """Return a node's label, under its present name where the old one is missing."""
    value = labels.get(key)
    return labels.get(ZONE_LABELS[key]) if value is None else value
