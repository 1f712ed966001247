"""Owns the watches from which the operator's picture of the cluster is made: pods, nodes, rules; and what kopf hears.

It does not own the threads that it runs in. Only Reservations come through kopf: it takes a task and a deep look for
each version of each object, and there are many more versions of pods and nodes.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from berth_core.labels import PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_core.objects import Pod, PriorityClass
from berth_kube.client import KubeClient
from berth_kube.resources import LIMIT_RANGES, NODES, PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from berth_kube.watching import Bookmark, Changed, Listed, Removed
from berth_operator.cache.cache import Cache
from berth_operator.cache.cluster_rules import ClusterRules
from berth_operator.cache.nodes import GuardableNode
from berth_operator.cache.reservations import read_reservation
from berth_operator.quota.limit_range import LimitRange
from berth_operator.quota.resource_quota import ResourceQuota

_PLACEHOLDERS: Final = "placeholders"
_OWNERS: Final = "owners"
_NODES: Final = "nodes"
_CLASSES: Final = "priority-classes"
_QUOTAS: Final = "quotas"
_RANGES: Final = "limit-ranges"


def hear_reservation(cache: Cache, event_type: str | None, body: Mapping[str, Any]) -> None:
    """Take in what kopf hears of a Reservation, unless it is known already: what we write ourselves comes back."""
    metadata = body["metadata"]
    if event_type == "DELETED":
        cache.remove_reservation(metadata["uid"])
    elif not cache.knows_reservation(metadata["uid"], metadata["resourceVersion"]):
        cache.put_reservation(read_reservation(body))


class Watches:
    """Fills the cache and the rules, and keeps them up until the event to stop is set."""

    def __init__(
        self, client: KubeClient, cache: Cache, rules: ClusterRules, own_namespace: str, stop: threading.Event
    ) -> None:
        self._client = client
        self._cache = cache
        self._rules = rules
        self._own_namespace = own_namespace
        self._stop = stop
        self._listed = {name: threading.Event() for name in self.by_name()}

    def by_name(self) -> Mapping[str, Callable[[], None]]:
        """Return what follows each collection; each is to run in a thread of its own, which a BerthError ends."""
        return {
            _PLACEHOLDERS: self._follow_placeholders,
            _OWNERS: self._follow_owners,
            _NODES: self._follow_nodes,
            _CLASSES: self._follow_priority_classes,
            _QUOTAS: self._follow_quotas,
            _RANGES: self._follow_limit_ranges,
        }

    def wait_for_lists(self, seconds: float) -> None:
        """Wait until every collection was listed once, but no longer than some seconds."""
        deadline = time.monotonic() + seconds
        for event in self._listed.values():
            event.wait(max(0.0, deadline - time.monotonic()))

    def missing(self) -> tuple[str, ...]:
        """Return the names of the collections that were not listed yet."""
        return tuple(name for name, event in self._listed.items() if not event.is_set())

    def give_up(self) -> None:
        """Let whoever waits for the lists go on: something has ended that is not to end."""
        for event in self._listed.values():
            event.set()

    def _follow_placeholders(self) -> None:
        for item in self._client.watch(
            PODS, namespace=self._own_namespace, label_selector=PLACEHOLDER_LABEL, type=Pod, stop=self._stop
        ):
            match item:
                case Listed(items, version):
                    self._cache.replace_placeholders(items, version)
                    self._listed[_PLACEHOLDERS].set()
                case Changed(pod):
                    self._cache.put_placeholder(pod)
                case Removed(pod):
                    self._cache.remove_placeholder(pod)
                case Bookmark():
                    pass

    def _follow_owners(self) -> None:
        selector = f"{RESERVATION_LABEL},!{PLACEHOLDER_LABEL}"
        for item in self._client.watch(PODS, label_selector=selector, type=Pod, stop=self._stop):
            match item:
                case Listed(items, version):
                    self._cache.replace_owners(items, version)
                    self._listed[_OWNERS].set()
                case Changed(pod):
                    self._cache.put_owner(pod)
                case Removed(pod):
                    self._cache.remove_owner(pod, for_good=False)
                case Bookmark():
                    pass

    def _follow_nodes(self) -> None:
        for item in self._client.watch(NODES, type=GuardableNode, stop=self._stop):
            match item:
                case Listed(items, version):
                    self._rules.nodes.replace(items)
                    self._cache.replace_nodes(items, version)
                    self._listed[_NODES].set()
                case Changed(node):
                    self._rules.nodes.put(node)
                    self._cache.put_node(node)
                case Removed(node):
                    self._rules.nodes.forget(node.metadata.name)
                    self._cache.remove_node(node)
                case Bookmark():
                    pass

    def _follow_priority_classes(self) -> None:
        for item in self._client.watch(PRIORITY_CLASSES, type=PriorityClass, stop=self._stop):
            self._rules.classes.take(item)
            self._listed[_CLASSES].set()

    def _follow_quotas(self) -> None:
        for item in self._client.watch(RESOURCE_QUOTAS, type=ResourceQuota, stop=self._stop):
            self._rules.quotas.take(item)
            self._listed[_QUOTAS].set()

    def _follow_limit_ranges(self) -> None:
        for item in self._client.watch(LIMIT_RANGES, type=LimitRange, stop=self._stop):
            self._rules.limit_ranges.take(item)
            self._listed[_RANGES].set()
