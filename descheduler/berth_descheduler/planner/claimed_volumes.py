"""Which pods stay for the sake of the volumes behind their claims.

A volume without ReadWriteMany or ReadOnlyMany is attached to one node at a time, and as long as a pod there uses it, no
other node has it. Its users cannot move one after another: the first would wait for the last. A volume that is a folder
or a disk of one node should name that node by its node affinity. If it does not, a scheduler lets the pod go to other
nodes, and its data would stay behind.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from berth_core import NodeSelectorTerm, PersistentVolume, PersistentVolumeClaim, Pod, Snapshot
from berth_descheduler.framework.refusals import Refusal, RefusalReason

_HOSTNAME: Final = "kubernetes.io/hostname"
_NAME_FIELD: Final = "metadata.name"
_FOR_MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


class ClaimedVolumes:
    """Answers for the pods of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._claims = {
            (claim.metadata.namespace, claim.metadata.name): claim for claim in snapshot.persistent_volume_claims
        }
        self._volumes = {volume.metadata.name: volume for volume in snapshot.persistent_volumes}
        self._users: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        """Pods that mount each claim and have not ended, also those on no node yet and those that are ending."""
        for pod in snapshot.pods:
            if pod.spec.volumes and not pod.is_terminal:
                for name in pod.claim_names:
                    self._users[pod.metadata.namespace, name].append(pod)

    def refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod's volumes keep it where it is."""
        return tuple(self._refusals(pod)) if pod.spec.volumes else ()

    def _refusals(self, pod: Pod) -> Iterator[Refusal]:
        for name in pod.claim_names:
            claim = self._claims.get((pod.metadata.namespace, name))
            if claim is None:
                continue
            volume = self._volumes.get(claim.spec.volume_name)
            if volume is not None and _is_on_unnamed_node(volume):
                text = f"its claim {name} has a volume on its node, whose node affinity does not name that node alone"
                yield Refusal(RefusalReason.LOCAL_STORAGE, text)
            users = self._users[pod.metadata.namespace, name]
            other = next((user for user in users if user.metadata.name != pod.metadata.name), None)
            if other is not None and is_for_one_node(claim, volume):
                text = f"its claim {name} is attached to one node at a time, and {other.key} uses it, too"
                yield Refusal(RefusalReason.SHARED_VOLUME, text, blocking_pod=other.key)


def _is_on_unnamed_node(volume: PersistentVolume) -> bool:
    """Return whether a volume is a part of some node, and its node affinity lets pods go to others."""
    spec = volume.spec
    if spec.host_path is None and spec.local is None:
        return False
    required = spec.node_affinity.required if spec.node_affinity is not None else None
    return required is None or not all(map(_names_one_node, required.node_selector_terms))


def _names_one_node(term: NodeSelectorTerm) -> bool:
    requirements = (
        *(requirement for requirement in term.match_expressions if requirement.key == _HOSTNAME),
        *(requirement for requirement in term.match_fields if requirement.key == _NAME_FIELD),
    )
    return any(requirement.operator == "In" and len(requirement.values) == 1 for requirement in requirements)


def is_for_one_node(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> bool:
    """Return whether a volume is attached to one node at a time.

    The volume's own access modes decide, then those of its claim; without any of them the answer is False.
    """
    # A claim may ask for less than its volume offers, and what is bound goes by the volume.
    modes = (volume.spec.access_modes if volume is not None else ()) or claim.spec.access_modes
    return bool(modes) and _FOR_MANY_NODES.isdisjoint(modes)
