"""Caches priority classes, quotas, limit ranges and node capacity."""

import threading
from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from berth_core import InputError, ObjectMeta, PriorityClass, Quantities, ResourceAmounts
from berth_kube import Bookmark, Changed, HasMetadata, Listed, Removed, WatchItem
from berth_operator.quota.limit_range import LimitRange
from berth_operator.quota.resource_quota import ResourceQuota
from berth_operator.reservation.node_access import ConditionStatus


class NodeCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node's allocatable resources and conditions."""

    allocatable: Quantities = {}
    conditions: tuple[ConditionStatus, ...] = ()


class CapacityNode(Protocol):
    """A node with its capacity."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def status(self) -> NodeCapacity: ...


N = TypeVar("N", bound=HasMetadata)


class RuleStore(Generic[N]):
    """Watched objects by namespace and name; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_namespace: dict[str, dict[str, N]] = {}

    def take(self, item: WatchItem[N]) -> None:
        match item:
            case Listed(items):
                self._replace(items)
            case Changed(changed):
                self.put(changed)
            case Removed(removed):
                self.forget(removed.metadata.name, removed.metadata.namespace)
            # A bookmark has a resourceVersion and no object.
            case Bookmark():
                pass

    def _replace(self, items: Iterable[N]) -> None:
        fresh_by_namespace: dict[str, dict[str, N]] = {}
        for item in items:
            fresh_by_namespace.setdefault(item.metadata.namespace, {})[item.metadata.name] = item
        with self._lock:
            self._by_namespace = fresh_by_namespace

    def put(self, item: N) -> None:
        """Store an object as the API server returned it."""
        with self._lock:
            self._by_namespace.setdefault(item.metadata.namespace, {})[item.metadata.name] = item

    def forget(self, name: str, namespace: str = "") -> None:
        with self._lock:
            group = self._by_namespace.get(namespace, {})
            group.pop(name, None)
            if not group:
                self._by_namespace.pop(namespace, None)

    def get(self, name: str, namespace: str = "") -> N | None:
        with self._lock:
            return self._by_namespace.get(namespace, {}).get(name)

    def all_in(self, namespace: str = "") -> tuple[N, ...]:
        """Return the objects of a namespace, by default the cluster-scoped ones."""
        with self._lock:
            return tuple(self._by_namespace.get(namespace, {}).values())


class NodeTotals:
    """Sum of what all nodes offer, kept up to date at the cost of one node per change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._raw: dict[str, Quantities] = {}
        self._total = ResourceAmounts.empty()

    def put(self, node: CapacityNode) -> None:
        with self._lock:
            self._set(node.metadata.name, node.status.allocatable)

    def forget(self, name: str) -> None:
        with self._lock:
            self._set(name, {})

    def replace(self, nodes: Iterable[CapacityNode]) -> None:
        with self._lock:
            self._raw, self._total = {}, ResourceAmounts.empty()
            for node in nodes:
                self._set(node.metadata.name, node.status.allocatable)

    def total(self) -> ResourceAmounts:
        with self._lock:
            return self._total

    def _set(self, name: str, raw: Quantities) -> None:
        quantities_before = self._raw.get(name, {})
        # Kubelets write their status every few minutes, and conditions in between; the amounts hardly ever change
        # (KEP-589).
        if raw == quantities_before:
            return
        try:
            amounts_after = ResourceAmounts.from_quantities(raw)
        except InputError:
            raw, amounts_after = {}, ResourceAmounts.empty()  # a node with odd amounts offers nothing
        self._total = self._total.plus(amounts_after).minus(ResourceAmounts.from_quantities(quantities_before))
        if raw:
            self._raw[name] = raw
        else:
            self._raw.pop(name, None)


class ClusterRules:
    """The rules that Reservations are checked against."""

    def __init__(self) -> None:
        self.classes: RuleStore[PriorityClass] = RuleStore()
        self.quotas: RuleStore[ResourceQuota] = RuleStore()
        self.limit_ranges: RuleStore[LimitRange] = RuleStore()
        self.nodes = NodeTotals()

    def why_unknown(self, namespace: str) -> str:
        """Return which rule of a namespace cannot be read, "" if all can."""
        of_kinds = (("ResourceQuota", self.quotas.all_in), ("LimitRange", self.limit_ranges.all_in))
        reasons = (
            f"{kind} {rule.metadata.name or 'without a readable name'} cannot be read: {rule.metadata.unreadable}"
            for kind, all_in in of_kinds
            for rule in (*all_in(namespace), *all_in(""))  # one without a readable namespace may be of this one
            if rule.metadata.unreadable
        )
        return next(reasons, "")

    def default_class(self) -> PriorityClass | None:
        """Return the global default class, the lowest of several."""
        defaults = (item for item in self.classes.all_in() if item.global_default)
        return min(defaults, key=lambda item: item.value, default=None)
