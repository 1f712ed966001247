"""The moves that the original defragmentation proposal asks for, written from its text alone.

It knows nothing of Berth: clusters are plain numbers here. Sections of the proposal are named beside what follows them.
What the proposal leaves open is settled as the page of the descheduler says under "Strategy `Threshold`".
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

Amounts = Mapping[str, int]


@dataclass(frozen=True)
class ProposedPod:
    """A pod as the proposal looks at it; `requests` of all its containers, in whole units."""

    namespace: str
    name: str
    requests: Amounts
    removable: bool = True
    app: str = ""
    shuns: str = ""
    """The pod goes to no node with a pod of this app in its namespace, and no such pod comes to its node."""

    needs_disk: str = ""
    tolerates: bool = False


@dataclass(frozen=True)
class ProposedNode:
    """A node as the proposal looks at it."""

    name: str
    allocatable: Amounts
    slots: int
    pods: tuple[ProposedPod, ...]
    critical: bool = False
    cooling: bool = False
    disk: str = ""
    tainted: bool = False


@dataclass(frozen=True)
class Rules:
    """The arguments of the proposal's plugin, thresholds in percent."""

    resource: str
    low: Mapping[str, int]
    defragment: Mapping[str, int]
    protection: Mapping[str, int]
    number_of_nodes: int = 0


@dataclass(frozen=True)
class Triplet:
    """One move (2.3: `<SourceNode, TargetNode, PodName>`)."""

    source: str
    target: str
    pod: str


def proposed_moves(nodes: Sequence[ProposedNode], rules: Rules) -> list[Triplet]:
    """Return the moves in their order (2.4.3: the two loops over sources and pods)."""
    low = [node for node in nodes if is_below(node, rules.low)]
    if len(low) <= rules.number_of_nodes:
        return []
    targets = list(targets_of(nodes, rules))
    arrived: dict[str, list[ProposedPod]] = {node.name: list(node.pods) for node in targets}
    moves = []
    for source in sources_of(low, rules):
        for pod in sorted((one for one in source.pods if one.removable), key=lambda one: larger_first(one, rules)):
            for target in targets:
                if accepts(target, arrived[target.name], pod, rules):
                    arrived[target.name].append(pod)
                    moves.append(Triplet(source.name, target.name, f"{pod.namespace}/{pod.name}"))
                    break
    return moves


def utilisation(node: ProposedNode, pods: Sequence[ProposedPod], resource: str) -> Fraction:
    """Return the utilisation in percent (2.2: sum of requests through allocatable)."""
    requested = sum(pod.requests.get(resource, 0) for pod in pods)
    return Fraction(100 * requested, node.allocatable[resource])


def is_below(node: ProposedNode, low: Mapping[str, int]) -> bool:
    """Return whether a node is low (2.2: `usage < lowThresholds`)."""
    return all(has(node, name) and utilisation(node, node.pods, name) < limit for name, limit in low.items())


def has(node: ProposedNode, resource: str) -> bool:
    return node.allocatable.get(resource, 0) > 0


def sources_of(low: Sequence[ProposedNode], rules: Rules) -> list[ProposedNode]:
    """Return the nodes that pods leave, in order (2.3.1: not critical, not cooling down, least used first)."""
    allowed = [node for node in low if not node.critical and not node.cooling]
    return sorted(allowed, key=lambda node: (utilisation(node, node.pods, rules.resource), node.name))


def targets_of(nodes: Sequence[ProposedNode], rules: Rules) -> Iterator[ProposedNode]:
    """Yield the nodes that pods may go to, in order (2.3.3: between the thresholds, most used first)."""
    between = [
        node
        for node in nodes
        if all(
            has(node, name) and utilisation(node, node.pods, name) > limit for name, limit in rules.defragment.items()
        )
        and all(
            has(node, name) and utilisation(node, node.pods, name) < limit for name, limit in rules.protection.items()
        )
    ]
    yield from sorted(between, key=lambda node: (-utilisation(node, node.pods, rules.resource), node.name))


def larger_first(pod: ProposedPod, rules: Rules) -> tuple[object, ...]:
    """Return by what pods are ordered (2.3.2: larger requests first)."""
    amounts = [pod.requests.get(name, 0) for name in (rules.resource, "cpu", "memory", "example.com/gpu")]
    return (*(-amount for amount in amounts), pod.namespace, pod.name)


def accepts(target: ProposedNode, there: Sequence[ProposedPod], pod: ProposedPod, rules: Rules) -> bool:
    """Return whether a target takes a pod (2.3.3: capacity, scheduling constraints, and without overloading)."""
    after = [*there, pod]
    fits = all(
        sum(one.requests.get(name, 0) for one in after) <= target.allocatable.get(name, 0)
        for name, amount in pod.requests.items()
        if amount > 0
    )
    return (
        fits
        and len(after) <= target.slots
        and all(utilisation(target, after, name) <= limit for name, limit in rules.protection.items())
        and (pod.tolerates or not target.tainted)
        and (not pod.needs_disk or pod.needs_disk == target.disk)
        and not any(shun_each_other(one, pod) for one in there)
    )


def shun_each_other(one: ProposedPod, other: ProposedPod) -> bool:
    return one.namespace == other.namespace and bool({one.shuns} & {other.app} or {other.shuns} & {one.app})
