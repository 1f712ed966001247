"""The cached nodes: our guards, taints and readiness, capacity, recent surveys and choices.

These stores are not thread-safe, `PodCounts` excepted: `store.cache` locks them.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

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
    has_control_plane_taint,
    is_control_plane_node,
    matches_node_affinity,
    read_whole_number,
)
from berth_operator.reservation.node_access import NodeAccess
from berth_operator.reservation.node_choice import NodeChoice
from berth_operator.reservation.observation import Guard
from berth_operator.reservation.store.cluster_rules import NodeCapacity
from berth_operator.reservation.surveys import Survey


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
    def is_tainted_control_plane(self) -> bool:
        return has_control_plane_taint(self.spec)

    @property
    def is_labelled_control_plane(self) -> bool:
        return has_control_plane_label(self.metadata)

    @property
    def access(self) -> NodeAccess:
        return NodeAccess.of(self.spec, self.status.conditions)

    def admits(self, spec: PodSpec, *, on_control_plane: bool) -> bool:
        """Return whether a placeholder may enter and start here, on the control plane only if that is allowed."""
        if self.metadata.unreadable:
            return False
        if self.access.why_closed(spec.tolerations):
            return False
        if not on_control_plane and is_control_plane_node(self.metadata, self.spec):
            return False
        return matches_node_affinity(spec, Node(metadata=self.metadata, spec=self.spec))


class _Place(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Identity(msgspec.Struct, frozen=True):
    uid: str = ""


class PlacedPod(msgspec.Struct, frozen=True):
    """The part of a pod that says on which node it takes a pod slot."""

    metadata: _Identity
    spec: _Place = _Place()


_LONGEST_SILENCE_SECONDS: Final = 150.0
"""The API server sends a bookmark about once a minute: a watch that is silent for longer is cut, or cannot begin."""


class PodCounts:
    """How many pods take a pod slot of each node; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._heard_at = 0.0
        self._nodes: dict[str, str] | None = None
        """Pod uid to node; None before the first list."""
        self._counts: Counter[str] = Counter()

    def on(self, node: str) -> int | None:
        """Return the number of pods on a node, None before the first list and while the watch is silent."""
        with self._lock:
            is_silent = time.monotonic() - self._heard_at > _LONGEST_SILENCE_SECONDS
            return None if self._nodes is None or is_silent else self._counts[node]

    def note_heard(self) -> None:
        """Record that the watch has brought something, if only a bookmark."""
        self._heard_at = time.monotonic()

    def replace(self, pods: Iterable[PlacedPod], _version: str) -> None:
        self.note_heard()
        with self._lock:
            self._nodes = {pod.metadata.uid: pod.spec.node_name for pod in pods}
            self._counts = Counter(self._nodes.values())

    def put(self, pod: PlacedPod) -> None:
        """Count a pod on its node, which never changes."""
        with self._lock:
            if self._nodes is not None and pod.metadata.uid not in self._nodes:
                self._nodes[pod.metadata.uid] = pod.spec.node_name
                self._counts[pod.spec.node_name] += 1

    def remove(self, pod: PlacedPod) -> None:
        """Count a pod no more that is gone or has ended."""
        with self._lock:
            node = self._nodes.pop(pod.metadata.uid, None) if self._nodes is not None else None
            if node is None:
                return
            self._counts[node] -= 1
            if not self._counts[node]:
                del self._counts[node]


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
        name = node.metadata.name
        known = self._nodes.get(name)
        self._nodes[name] = node
        if is_control_plane_node(node.metadata, node.spec):
            self._of_control_plane[name] = node.is_labelled_control_plane
        else:
            self._of_control_plane.pop(name, None)
        deadline = node.guard_deadline
        if deadline is None:
            self._forget_guard(name)
        else:
            self._guarded_since.setdefault(name, self.seconds())
        if known is None:
            return NodeChange(of_guard=deadline is not None, of_access=node.access != NodeAccess())
        return NodeChange(of_guard=deadline != known.guard_deadline, of_access=node.access != known.access)

    def remove(self, name: str) -> None:
        self._nodes.pop(name, None)
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

    def of_control_plane(self) -> frozenset[str]:
        """Return the names of control-plane nodes."""
        return frozenset(self._of_control_plane)

    def unlabelled_control_plane(self) -> frozenset[str]:
        """Return the names of control-plane nodes that only a taint marks."""
        return frozenset(name for name, labelled in self._of_control_plane.items() if not labelled)

    def guarded(self) -> AbstractSet[str]:
        """Return the names of the nodes with our guard."""
        return self._guarded_since.keys()

    def guarded_since(self, name: str) -> float:
        """Return the attended second at which a node's guard was first seen, the present one without a guard."""
        return self._guarded_since.get(name, self.seconds())

    def guards(self, names: AbstractSet[str]) -> dict[str, Guard]:
        """Return our guards on these nodes, by name, but those that are being taken off."""
        now = self.seconds()
        return {name: self._guard(name, now) for name in (names & self._guarded_since.keys()) - self._disregarded}

    def accesses(self, names: AbstractSet[str]) -> dict[str, NodeAccess]:
        """Return the access rules of these nodes by name.

        Nodes that are open to every pod are left out.
        """
        accesses = {name: self._nodes[name].access for name in names & self._nodes.keys()}
        return {name: access for name, access in accesses.items() if access != NodeAccess()}

    def _guard(self, name: str, now: float) -> Guard:
        value = self._nodes[name].guard_deadline or ""
        return Guard(
            deadline=read_whole_number(value, most=LATEST_UNIX_SECONDS) or 0,
            age_seconds=now - self._guarded_since[name],
            is_fenced=self.is_fenced(name),
        )


# --- surveys ---------------------------------------------------------------------------------------------------------

_SURVEY_SECONDS: Final = 60.0
"""How long a survey is kept."""


@dataclass(slots=True)
class NodeSurveys:
    """Surveys by node, each with its monotonic time."""

    _surveys: dict[str, tuple[float, Survey]] = field(default_factory=dict)

    def put(self, node: str, survey: Survey) -> None:
        """Store a survey, and drop the expired ones."""
        now = time.monotonic()
        self._surveys[node] = (now, survey)
        for name in [name for name, (at, _) in self._surveys.items() if at < now - _SURVEY_SECONDS]:
            del self._surveys[name]

    def of(self, nodes: Iterable[str]) -> dict[str, Survey]:
        """Return the known surveys of these nodes, by name."""
        now = time.monotonic()
        known = ((name, self._surveys[name]) for name in nodes if name in self._surveys)
        return {name: replace(survey, age_seconds=now - at) for name, (at, survey) in known}


# --- choices ---------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class NodeChoices:
    """The last choice of nodes for each Reservation by uid, with its monotonic time."""

    _choices: dict[str, tuple[float, NodeChoice]] = field(default_factory=dict)

    def put(self, uid: str, choice: NodeChoice) -> None:
        self._choices[uid] = time.monotonic(), choice

    def remove(self, uid: str) -> None:
        self._choices.pop(uid, None)

    def of(self, uid: str) -> NodeChoice | None:
        """Return a choice and its age, None without one."""
        if uid not in self._choices:
            return None
        chosen_at, choice = self._choices[uid]
        return replace(choice, age_seconds=time.monotonic() - chosen_at)

    def all(self) -> dict[str, NodeChoice]:
        return {uid: choice for uid in self._choices if (choice := self.of(uid)) is not None}
