"""The cached nodes: our guards, taints, readiness and capacity.

The index is not thread-safe: `store.cache` locks it.
"""

import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

import msgspec

from berth_core import (
    HANDOVER_TAINT,
    LATEST_UNIX_SECONDS,
    PODS,
    Node,
    NodeSpec,
    ObjectMeta,
    PodSpec,
    QuantityError,
    ResourceAmounts,
    has_control_plane_label,
    is_control_plane_node,
    matches_node_affinity,
    read_whole_number,
)
from berth_operator.reservation.node_access import NodeAccess
from berth_operator.reservation.observation import Guard
from berth_operator.reservation.store.cluster_rules import NodeCapacity


class GuardableNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a node that guards, slots and limits need."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeCapacity = NodeCapacity()

    @property
    def guard_deadline(self) -> str | None:
        """Return the value of our guard, None without one."""
        return next((taint.value for taint in self.spec.taints if taint.key == HANDOVER_TAINT), None)

    @property
    def is_labelled_control_plane(self) -> bool:
        return has_control_plane_label(self.metadata)

    @property
    def access(self) -> NodeAccess:
        return NodeAccess.of(self.spec, self.status.conditions)

    @property
    def offered(self) -> ResourceAmounts:
        """Return what the node has for pods, nothing if that cannot be read."""
        try:
            return ResourceAmounts.from_quantities(self.status.allocatable)
        except QuantityError:
            return ResourceAmounts.empty()

    def admits(self, spec: PodSpec, *, on_control_plane: bool) -> bool:
        """Return whether a placeholder may enter and start here, on the control plane only if that is allowed."""
        # A node that could not be decoded may have taints that are not known here.
        if self.metadata.unreadable:
            return False
        if self.access.why_closed(spec.tolerations):
            return False
        if not on_control_plane and is_control_plane_node(self.metadata, self.spec):
            return False
        return matches_node_affinity(spec, Node(metadata=self.metadata, spec=self.spec))


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What the latest version of a node changed."""

    of_guard: bool
    """Our guard was set or removed, or its deadline changed."""

    of_access: bool
    """The node admits other pods than before."""


@dataclass(slots=True)
class NodeIndex:
    """Nodes by name."""

    seconds: Callable[[], float] = time.monotonic
    """Attended time, by which guards age."""
    _nodes: dict[str, GuardableNode] = field(default_factory=dict)
    _guarded_since: dict[str, float] = field(default_factory=dict)
    _unready_since: dict[str, float] = field(default_factory=dict)
    _disregarded: set[str] = field(default_factory=set)
    """Names of nodes whose guard is being taken off."""
    _fenced: set[str] = field(default_factory=set)
    """Names of nodes on which a fence of their hand-overs stands."""
    _of_control_plane: dict[str, bool] = field(default_factory=dict)
    """Names of control-plane nodes, and whether a label marks each."""

    def __iter__(self) -> Iterator[GuardableNode]:
        return iter(tuple(self._nodes.values()))

    def get(self, name: str) -> GuardableNode | None:
        return self._nodes.get(name)

    def pod_slots(self, name: str) -> int:
        """Return a node's allocatable pods, 0 for an unknown node."""
        offered = self._nodes[name].status.allocatable.get(PODS, "0") if name in self._nodes else "0"
        try:
            return ResourceAmounts.from_quantities({PODS: offered}).get(PODS)
        except QuantityError:
            return 0

    def put(self, node: GuardableNode) -> NodeChange:
        """Store a version of a node; return what changed."""
        node_name = node.metadata.name
        known_node = self._nodes.get(node_name)
        self._nodes[node_name] = node
        # Noted as nodes change: the webhook's answers and each placeholder ask for them, and a cluster may have
        # thousands of nodes.
        if is_control_plane_node(node.metadata, node.spec):
            self._of_control_plane[node_name] = node.is_labelled_control_plane
        else:
            self._of_control_plane.pop(node_name, None)
        if node.access.is_ready:
            self._unready_since.pop(node_name, None)
        else:
            # Counted here and not by the condition's lastTransitionTime, which is another machine's clock.
            self._unready_since.setdefault(node_name, self.seconds())
        deadline = node.guard_deadline
        if deadline is None:
            self._forget_guard(node_name)
        else:
            self._guarded_since.setdefault(node_name, self.seconds())
        if known_node is None:
            return NodeChange(of_guard=deadline is not None, of_access=node.access != NodeAccess())
        return NodeChange(of_guard=deadline != known_node.guard_deadline, of_access=node.access != known_node.access)

    def remove(self, name: str) -> None:
        self._nodes.pop(name, None)
        self._unready_since.pop(name, None)
        self._of_control_plane.pop(name, None)
        self._forget_guard(name)

    def _forget_guard(self, name: str) -> None:
        self._guarded_since.pop(name, None)
        self._disregarded.discard(name)

    def disregard_guard(self, name: str) -> None:
        """Leave a guard out of what `guards` returns until it is gone, or `regard_guard` is called."""
        if name in self._guarded_since:
            self._disregarded.add(name)

    def regard_guard(self, name: str) -> None:
        self._disregarded.discard(name)

    def put_fenced(self, name: str, *, is_fenced: bool) -> None:
        if is_fenced:
            self._fenced.add(name)
        else:
            self._fenced.discard(name)

    def is_fenced(self, name: str) -> bool:
        return name in self._fenced

    def missing(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return the names that no node has."""
        return frozenset(names - self._nodes.keys())

    def unready_seconds(self, names: AbstractSet[str]) -> dict[str, float]:
        """Return for how long these nodes have not been ready, by name; ready nodes are left out."""
        now = self.seconds()
        return {node_name: now - self._unready_since[node_name] for node_name in names & self._unready_since.keys()}

    def of_control_plane(self) -> frozenset[str]:
        """Return the names of control-plane nodes."""
        return frozenset(self._of_control_plane)

    def unlabelled_control_plane(self) -> frozenset[str]:
        """Return the names of control-plane nodes that only a taint marks."""
        return frozenset(node_name for node_name, is_labelled in self._of_control_plane.items() if not is_labelled)

    def guarded(self) -> AbstractSet[str]:
        """Return the names of the nodes with our guard."""
        return self._guarded_since.keys()

    def guarded_since(self, name: str) -> float:
        """Return the attended second at which a node's guard was first seen, the present one without a guard."""
        return self._guarded_since.get(name, self.seconds())

    def guards(self, names: AbstractSet[str]) -> dict[str, Guard]:
        """Return our guards on these nodes, by name, but those that are being taken off."""
        now = self.seconds()
        return {
            node_name: self._guard(node_name, now)
            for node_name in (names & self._guarded_since.keys()) - self._disregarded
        }

    def accesses(self, names: AbstractSet[str]) -> dict[str, NodeAccess]:
        """Return the access rules of these nodes by name; nodes that are open to every pod are absent."""
        accesses = {node_name: self._nodes[node_name].access for node_name in names & self._nodes.keys()}
        return {node_name: access for node_name, access in accesses.items() if access != NodeAccess()}

    def _guard(self, name: str, now: float) -> Guard:
        value = self._nodes[name].guard_deadline or ""
        return Guard(
            deadline=read_whole_number(value, most=LATEST_UNIX_SECONDS) or 0,
            age_seconds=now - self._guarded_since[name],
            is_fenced=self.is_fenced(name),
        )
