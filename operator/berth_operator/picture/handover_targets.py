"""Owns which pods are on the way to which nodes, and for how long they are at their stage of it.

They are known by their notes, owners' pods and successors of placeholders alike.

It is not thread-safe by itself (`picture.cache` guards it), and does not say whether a note is to be trusted.
"""

from collections import Counter
from dataclasses import dataclass, field

from berth_core.objects import Pod
from berth_operator.decisions.assignments import Assignment
from berth_operator.decisions.handover_time import HandoverStage, stage_of
from berth_operator.decisions.observation import has_started


@dataclass(slots=True)
class HandoverTargets:
    """Pods with a note, by the node that it names and by uid."""

    _by_node: dict[str, dict[str, Pod]] = field(default_factory=dict)
    _stages: dict[str, tuple[HandoverStage, float]] = field(default_factory=dict)
    """Uid of a pod to its stage, and since when it was seen there, in attended seconds."""

    def replace(self, known: Pod | None, pod: Pod | None) -> None:
        """Put a version of a pod in place of the known one; None where there was none, or is none any more."""
        if known is not None:
            self._take(known)
        given = Assignment.from_pod(pod) if pod is not None else None
        if pod is not None and given is not None:
            self._by_node.setdefault(given.node, {})[pod.metadata.uid] = pod
        elif known is not None:
            self._stages.pop(known.metadata.uid, None)

    def stage_age(self, pod: Pod, placeholder: Pod | None, now: float) -> float:
        """Return for how many attended seconds a pod is at the stage that it is seen at now."""
        stage = stage_of(pod, placeholder)
        known = self._stages.get(pod.metadata.uid)
        if known is None or known[0] is not stage:
            known = self._stages[pod.metadata.uid] = stage, now
        return now - known[1]

    def _take(self, pod: Pod) -> None:
        given = Assignment.from_pod(pod)
        group = self._by_node.get(given.node, {}) if given is not None else {}
        if given is not None and group.pop(pod.metadata.uid, None) is not None and not group:
            del self._by_node[given.node]

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods whose notes name a node."""
        return tuple(self._by_node.get(node, {}).values())

    def nodes(self) -> set[str]:
        """Return the nodes that are named."""
        return set(self._by_node)

    def count_waiting(self) -> Counter[str]:
        """Return how many of the pods of each namespace have not started; costs as much as there are."""
        pods = (pod for group in self._by_node.values() for pod in group.values())
        return Counter(pod.metadata.namespace for pod in pods if not has_started(pod))
