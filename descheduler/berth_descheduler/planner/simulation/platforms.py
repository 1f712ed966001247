"""The platforms of nodes, and on which of them the images of a pod are known to run.

Images are built for an operating system and an architecture, those of Windows for its build as well
(https://kubernetes.io/docs/concepts/windows/intro/#windows-os-version-support), and no object of the cluster says for
which. The scheduler does not ask: it places a pod on any node that it selects, and there the image does not start. What
is known is where the pod runs now, where others of its controller are Ready, and what the pod selects itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from berth_core import Node, NodeSelectorTerm, Pod, PodSpec
from berth_descheduler.framework import Refusal, RefusalReason

_SYSTEM: Final = "kubernetes.io/os"
_ARCHITECTURE: Final = "kubernetes.io/arch"
_BUILD: Final = "node.kubernetes.io/windows-build"
_OLDER: Final = {_SYSTEM: "beta.kubernetes.io/os", _ARCHITECTURE: "beta.kubernetes.io/arch"}
_WINDOWS: Final = "windows"

Platform: TypeAlias = tuple[tuple[str, str], ...]
"""Labels and their values, "" where a node lacks one: an unknown platform equals unknown platforms only."""


def platform_of(node: Node, selected: frozenset[str] = frozenset()) -> Platform:
    """Return the platform of a node without the parts that a pod selects itself."""
    return tuple((key, value) for key, value in _parts(node.metadata.labels) if key not in selected)


def _parts(labels: dict[str, str]) -> Iterator[tuple[str, str]]:
    # Kubelets of old versions, and some virtual ones, set the beta labels only.
    system = labels.get(_SYSTEM) or labels.get(_OLDER[_SYSTEM], "")
    yield _SYSTEM, system
    yield _ARCHITECTURE, labels.get(_ARCHITECTURE) or labels.get(_OLDER[_ARCHITECTURE], "")
    yield _BUILD, labels.get(_BUILD, "") if system == _WINDOWS else ""


@dataclass(frozen=True, slots=True)
class PlatformTie:
    """The platforms on which pods are known to run, without the parts that they select themselves."""

    platforms: tuple[Platform, ...]
    """Each once, in order."""

    selected: frozenset[str]

    def allows(self, node: Node) -> bool:
        return platform_of(node, self.selected) in self.platforms

    def refusal(self, node: Node) -> Refusal | None:
        """Return why the images may not run on a node."""
        if self.allows(node):
            return None
        known_platforms = " or ".join(map(_in_words, self.platforms))
        text = f"the pod is known to run on {known_platforms}, and the node is {_in_words(platform_of(node))}"
        return Refusal(RefusalReason.OTHER_PLATFORM, text)


class Platforms:
    """Answers for the pods of a cluster with nodes of several platforms; otherwise every pod runs on every node."""

    def __init__(self, nodes: Sequence[Node], pods: Iterable[Pod]) -> None:
        self._of_node = {node.metadata.name: node for node in nodes}
        self.differ = len({platform_of(node) for node in nodes}) > 1
        self._ready_on: defaultdict[tuple[str, ...], set[str]] = defaultdict(set)
        for pod in pods if self.differ else ():
            # Ready proves that the image starts there; a pod that merely runs may be failing for just that.
            if pod.spec.node_name in self._of_node and pod.is_ready and not pod.is_terminating:
                self._ready_on[_controller_key(pod)].add(pod.spec.node_name)

    def tie_of(self, pod: Pod) -> PlatformTie | None:
        """Return the platforms for a pod, None where nothing is known about it or it stays with its node."""
        if not self.differ or pod.belongs_to_node or pod.controller is None or pod.spec.node_name not in self._of_node:
            return None
        selected = frozenset(_selected_parts(pod.spec))
        node_names = {pod.spec.node_name} | self._ready_on.get(_controller_key(pod), set())
        platforms = {platform_of(self._of_node[name], selected) for name in node_names}
        return PlatformTie(tuple(sorted(platforms)), selected)


def _selected_parts(spec: PodSpec) -> Iterator[str]:
    """Yield the platform labels whose values a pod chooses itself: its images are then for each of these values."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity else None
    terms = required.node_selector_terms if required else ()
    for key in (_SYSTEM, _ARCHITECTURE, _BUILD):
        keys = {key, _OLDER.get(key, key)}
        if keys & spec.node_selector.keys() or (terms and all(_chooses(term, keys) for term in terms)):
            yield key


def _chooses(term: NodeSelectorTerm, keys: set[str]) -> bool:
    """Return whether a term names values; excluding some values says nothing about the others."""
    return any(requirement.key in keys and requirement.operator == "In" for requirement in term.match_expressions)


def _controller_key(pod: Pod) -> tuple[str, ...]:
    owner = pod.controller
    return (pod.metadata.namespace, owner.kind, owner.uid or owner.name) if owner else ("",)


def _in_words(platform: Platform) -> str:
    return "/".join(value or "unknown" for key, value in platform if value or key != _BUILD) or "any platform"
