"""Owns what the operator has heard of the rules of the cluster: classes, quotas, limit ranges, what nodes offer.

It does not apply them to a Reservation: `acting.allowances` does.
"""

import threading
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL
from berth_core.objects import ObjectMeta, PriorityClass, Quantities
from berth_core.resources import ResourceAmounts
from berth_kube.watching import Bookmark, Changed, Listed, Removed, WatchItem
from berth_operator.quota.limit_range import LimitRange
from berth_operator.quota.resource_quota import ResourceQuota
from berth_operator.reconcile.observation import NodeCondition


class NodeCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a node's status says that pods may use, and how it is."""

    allocatable: Quantities = {}
    conditions: tuple[NodeCondition, ...] = ()


class CapacityNode(Protocol):
    """A node, as far as this module looks at it."""

    @property
    def metadata(self) -> ObjectMeta:
        """Return its metadata."""
        ...

    @property
    def status(self) -> NodeCapacity:
        """Return what it offers."""
        ...


class _Named(Protocol):
    @property
    def metadata(self) -> ObjectMeta: ...


N = TypeVar("N", bound=_Named)


class Store(Generic[N]):
    """What a watch has told of a collection, by namespace and name; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_namespace: dict[str, dict[str, N]] = {}

    def take(self, item: WatchItem[N]) -> None:
        """Take in what the watch yields."""
        match item:
            case Listed(items):
                self._replace(items)
            case Changed(changed):
                self.put(changed)
            case Removed(removed):
                self.forget(removed.metadata.name, removed.metadata.namespace)
            case Bookmark():
                pass

    def _replace(self, items: Iterable[N]) -> None:
        fresh: dict[str, dict[str, N]] = {}
        for item in items:
            fresh.setdefault(item.metadata.namespace, {})[item.metadata.name] = item
        with self._lock:
            self._by_namespace = fresh

    def put(self, item: N) -> None:
        """Take in one object as the API server answered it."""
        with self._lock:
            self._by_namespace.setdefault(item.metadata.namespace, {})[item.metadata.name] = item

    def forget(self, name: str, namespace: str = "") -> None:
        """Forget one object."""
        with self._lock:
            group = self._by_namespace.get(namespace, {})
            group.pop(name, None)
            if not group:
                self._by_namespace.pop(namespace, None)

    def get(self, name: str, namespace: str = "") -> N | None:
        """Return one object, None where it is not known."""
        with self._lock:
            return self._by_namespace.get(namespace, {}).get(name)

    def all_in(self, namespace: str = "") -> tuple[N, ...]:
        """Return the objects of a namespace, by default those that have none."""
        with self._lock:
            return tuple(self._by_namespace.get(namespace, {}).values())


class NodeTotals:
    """What all nodes offer together; a change costs as much as one node, whatever their number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raw: dict[str, Quantities] = {}
        self._total = ResourceAmounts.empty()

    def put(self, node: CapacityNode) -> None:
        """Take in a node."""
        with self._lock:
            self._set(node.metadata.name, node.status.allocatable)

    def forget(self, name: str) -> None:
        """Forget a node."""
        with self._lock:
            self._set(name, {})

    def replace(self, nodes: Iterable[CapacityNode]) -> None:
        """Take in a complete list of nodes."""
        with self._lock:
            self._raw, self._total = {}, ResourceAmounts.empty()
            for node in nodes:
                self._set(node.metadata.name, node.status.allocatable)

    def total(self) -> ResourceAmounts:
        """Return what all nodes offer."""
        with self._lock:
            return self._total

    def _set(self, name: str, raw: Quantities) -> None:
        known = self._raw.get(name, {})
        if raw == known:
            return
        before, after = ResourceAmounts.from_quantities(known), ResourceAmounts.from_quantities(raw)
        self._total = self._total.plus(after).minus(before)
        if raw:
            self._raw[name] = raw
        else:
            del self._raw[name]


class ClusterRules:
    """The rules that Reservations are held against."""

    def __init__(self) -> None:
        self.classes: Store[PriorityClass] = Store()
        self.quotas: Store[ResourceQuota] = Store()
        self.limit_ranges: Store[LimitRange] = Store()
        self.nodes = NodeTotals()

    def default_class(self) -> PriorityClass | None:
        """Return the class of pods that name none, of several the lowest; None where the cluster has no such class."""
        defaults = (item for item in self.classes.all_in() if item.global_default)
        return min(defaults, key=lambda item: item.value, default=None)

    def managed_classes(self) -> tuple[str, ...]:
        """Return the names of the placeholders' own classes."""
        ours = (
            item for item in self.classes.all_in() if item.metadata.labels.get(MANAGED_LABEL) == MANAGED_BY_OPERATOR
        )
        return tuple(item.metadata.name for item in ours)
