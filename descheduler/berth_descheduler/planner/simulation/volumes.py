"""Where a pod's volumes are reachable: zones, nodes, unknown claims."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from berth_core import Node, NodeSelector, PersistentVolume, PersistentVolumeClaim, matches_any_term
from berth_descheduler.framework import Refusal, RefusalReason
from berth_descheduler.planner.simulation.pod_classes import PodClass

ZONE_LABELS: Final = {
    "topology.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region": "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""Labels by which kube-scheduler's plugin VolumeZone binds a volume to a zone or region, and their present names."""

# Between the zones of a regional disk in its label, as `LabelZonesToSet` of k8s.io/cloud-provider reads it.
_ZONE_SEPARATOR: Final = "__"
_SINGLE_POD: Final = "ReadWriteOncePod"
"""Access mode of a claim that one pod uses at a time (KEP-2485)."""

_BOUND: Final = frozenset({"", "Bound"})
"""Phases of a claim that is bound, if it names a volume."""


@dataclass(frozen=True, slots=True)
class BoundVolume:
    """A pod's volume and the nodes that can reach it."""

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


class VolumeIndex:
    """Finds the volumes of a class of pods; a claim that is not known keeps its pod in place."""

    def __init__(self, claims: Iterable[PersistentVolumeClaim], volumes: Iterable[PersistentVolume]) -> None:
        self._claims = {(claim.metadata.namespace, claim.metadata.name): claim for claim in claims}
        self._volumes = {volume.metadata.name: volume for volume in volumes}

    def volumes_of(self, pods: PodClass) -> tuple[BoundVolume, ...] | Refusal:
        """Return the volumes that bind a class of pods to nodes, or a refusal if one is not known."""
        bound = []
        for name in pods.claims:
            volume = self._volume(pods.namespace, name)
            if isinstance(volume, Refusal):
                return volume
            bound.append(_bound_volume(name, volume))
        return tuple(bound_volume for bound_volume in bound if bound_volume.zones or bound_volume.nodes is not None)

    def _volume(self, namespace: str, name: str) -> PersistentVolume | Refusal:
        claim = self._claims.get((namespace, name))
        if claim is None:
            return _unknown(f"claim {name} is not in the snapshot")
        if claim.metadata.deletion_timestamp is not None:
            return _unknown(f"claim {name} is being deleted")
        if not claim.spec.volume_name or claim.status.phase not in _BOUND:
            return _unknown(f"claim {name} is bound to no volume")
        # The plugin VolumeRestrictions lets no second pod near the claim on any node while the first one exists.
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
    """Return a node's label by its old name or, where that is missing, by its present one."""
    value = labels.get(key)
    return labels.get(ZONE_LABELS[key]) if value is None else value
