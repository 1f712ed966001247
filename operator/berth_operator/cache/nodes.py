"""Owns what is known of the nodes: our guards on them and since when, whom they let in, and what they offer.

It is not thread-safe by itself (`picture.cache` guards it), and tells nobody of what has changed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Final

import msgspec

from berth_core.clock import LATEST_UNIX_SECONDS
from berth_core.labels import HANDOVER_TAINT
from berth_core.objects import (
    NodeSpec,
    ObjectMeta,
    Pod,
    has_control_plane_label,
    has_control_plane_taint,
    is_control_plane_node,
)
from berth_core.resources import PODS, QuantityError, ResourceAmounts, read_whole_number
from berth_operator.cache.cluster_rules import NodeCapacity
from berth_operator.reconcile.observation import Guard, NodeAccess, Survey


class GuardableNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The part of a node that guards, slots and limits need."""

    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeCapacity = NodeCapacity()

    @property
    def guard_deadline(self) -> str | None:
        """Return the value of our guard, None where the node has none."""
        return next((taint.value for taint in self.spec.taints if taint.key == HANDOVER_TAINT), None)

    @property
    def is_barred(self) -> bool:
        """Return whether it is of the control plane by a taint."""
        return has_control_plane_taint(self.spec)

    @property
    def is_labelled(self) -> bool:
        """Return whether it is of the control plane by a label."""
        return has_control_plane_label(self.metadata)

    @property
    def access(self) -> NodeAccess:
        """Return whom the node lets in."""
        return NodeAccess.of(self.spec, self.status.conditions)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """What is new of a node with its latest version."""

    of_guard: bool
    """Our guard came or went, or has another deadline."""

    of_access: bool
    """It lets others in than before."""


@dataclass(slots=True)
class NodeIndex:
    """Nodes by name; `seconds` returns the attended time, by which guards age."""

    seconds: Callable[[], float] = time.monotonic
    _nodes: dict[str, GuardableNode] = field(default_factory=dict)
    _guarded_since: dict[str, float] = field(default_factory=dict)
    _of_control_plane: dict[str, bool] = field(default_factory=dict)
    """Names of the control plane's nodes to whether they are so by a label."""

    def __iter__(self) -> Iterator[GuardableNode]:
        return iter(tuple(self._nodes.values()))

    def get(self, name: str) -> GuardableNode | None:
        """Return a node."""
        return self._nodes.get(name)

    def pod_slots(self, name: str) -> int:
        """Return how many pods a node takes, 0 where it is unknown."""
        offered = self._nodes[name].status.allocatable.get(PODS, "0") if name in self._nodes else "0"
        try:
            return ResourceAmounts.from_quantities({PODS: offered}).get(PODS)
        except QuantityError:
            return 0

    def put(self, node: GuardableNode) -> NodeChange:
        """Put a version of a node in place of the known one; tell what is news."""
        name = node.metadata.name
        known = self._nodes.get(name)
        self._nodes[name] = node
        if is_control_plane_node(node.metadata, node.spec):
            self._of_control_plane[name] = node.is_labelled
        else:
            self._of_control_plane.pop(name, None)
        deadline = node.guard_deadline
        if deadline is None:
            self._guarded_since.pop(name, None)
        else:
            self._guarded_since.setdefault(name, self.seconds())
        if known is None:
            return NodeChange(of_guard=deadline is not None, of_access=node.access != NodeAccess())
        return NodeChange(of_guard=deadline != known.guard_deadline, of_access=node.access != known.access)

    def take(self, name: str) -> None:
        """Forget a node."""
        self._nodes.pop(name, None)
        self._of_control_plane.pop(name, None)
        self._guarded_since.pop(name, None)

    def missing(self, names: AbstractSet[str]) -> frozenset[str]:
        """Return those of some names that no node has."""
        return frozenset(names - self._nodes.keys())

    def of_control_plane(self) -> frozenset[str]:
        """Return the names of the control plane's nodes."""
        return frozenset(self._of_control_plane)

    def barred(self) -> frozenset[str]:
        """Return the names of those that only a taint shows to be the control plane's."""
        return frozenset(name for name, labelled in self._of_control_plane.items() if not labelled)

    def guarded(self) -> AbstractSet[str]:
        """Return the names of the nodes that carry our guard."""
        return self._guarded_since.keys()

    def guards(self, names: AbstractSet[str]) -> dict[str, Guard]:
        """Return our guards on some nodes, by name."""
        now = self.seconds()
        return {name: self._guard(name, now) for name in names & self._guarded_since.keys()}

    def accesses(self, names: AbstractSet[str]) -> dict[str, NodeAccess]:
        """Return by name whom those of some nodes let in that do not let in everybody."""
        accesses = {name: self._nodes[name].access for name in names & self._nodes.keys()}
        return {name: access for name, access in accesses.items() if access != NodeAccess()}

    def _guard(self, name: str, now: float) -> Guard:
        value = self._nodes[name].guard_deadline or ""
        return Guard(read_whole_number(value, most=LATEST_UNIX_SECONDS) or 0, now - self._guarded_since[name])


# --- findings --------------------------------------------------------------------------------------------------------
# What this process found out by asking around: what is on a node, which pods wait for a slot.
#
# It is not thread-safe by itself (`picture.cache` guards it), and nothing is lost with it: all can be asked again.

_SURVEY_SECONDS: Final = 60.0
"""After this long a survey says nothing any more."""

_SEARCH_SECONDS: Final = 10.0
"""How long a search for waiting owners counts; whoever came to wait since then is found by the next."""

_FOUND_SECONDS: Final = 2.0
"""How long pods that were found waiting are taken to wait still."""


@dataclass(slots=True)
class Findings:
    """What was found out, by Reservation and by node; times are monotonic seconds."""

    _searched_at: dict[str, float] = field(default_factory=dict)
    _waiting: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    _surveys: dict[str, tuple[float, Survey]] = field(default_factory=dict)

    def put_waiting(self, uid: str, pods: Iterable[Pod]) -> None:
        """Keep which pods were found waiting for a slot just now."""
        self._waiting[uid], self._searched_at[uid] = tuple(pods), time.monotonic()

    def search_again(self, uid: str) -> None:
        """Have waiting pods searched for anew."""
        self._searched_at.pop(uid, None)
        self._waiting.pop(uid, None)

    def waiting(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that were found waiting a moment ago."""
        return self._waiting.get(uid, ()) if self._searched_within(uid, _FOUND_SECONDS) else ()

    def searched(self, uid: str) -> bool:
        """Tell whether waiting pods were searched for lately."""
        return self._searched_within(uid, _SEARCH_SECONDS)

    def put_survey(self, node: str, survey: Survey) -> None:
        """Keep what is on a node, and forget what is too old to say anything."""
        now = time.monotonic()
        self._surveys[node] = (now, survey)
        for name in [name for name, (at, _) in self._surveys.items() if at < now - _SURVEY_SECONDS]:
            del self._surveys[name]

    def surveys(self, nodes: Iterable[str]) -> dict[str, Survey]:
        """Return what is known of the pods on some nodes."""
        now = time.monotonic()
        known = ((name, self._surveys[name]) for name in nodes if name in self._surveys)
        return {name: replace(survey, age_seconds=now - at) for name, (at, survey) in known}

    def _searched_within(self, uid: str, seconds: float) -> bool:
        at = self._searched_at.get(uid)
        return at is not None and time.monotonic() - at < seconds
