"""Informers that fill the cache, one for each kind.

Only Reservations come through kopf: it spends a task and a deep comparison on each version that it sees, and pods and
nodes have many more versions. Of Reservations it sees those of a list whose spec is not handled yet, changed specs, and
the deleted ones.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from berth_core import PLACEHOLDER_LABEL, RESERVATION_LABEL, STANDING_FENCE_LABEL, BerthError, Pod, PriorityClass
from berth_core.decoding import Decoder
from berth_core.depths import is_too_deep, may_be_too_deep
from berth_kube import (
    LIMIT_RANGES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    PROMPT_WATCH,
    RESOURCE_QUOTAS,
    Bookmark,
    Changed,
    Informer,
    KubeClient,
    Listed,
    Removed,
    WatchItem,
    WatchPace,
    WatchSettings,
)
from berth_operator.quota.limit_range import LimitRange
from berth_operator.quota.resource_quota import ResourceQuota
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.pod_counts import CountedPod
from berth_operator.reservation.store.reservation_reading import read_reservation

_PLACEHOLDERS: Final = "placeholders"
_FENCES: Final = "fences"
_OWNERS: Final = "owners"
_NODES: Final = "nodes"
_CLASSES: Final = "priority-classes"
_QUOTAS: Final = "quotas"
_RANGES: Final = "limit-ranges"

# `spec.nodeName!=` and `status.phase` are among the fields that the API server selects pods by (`ToSelectableFields` in
# pkg/registry/core/pod/strategy.go).
_BOUND_SELECTOR: Final = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that take a pod slot of a node."""
_COUNT_AGAIN_SECONDS: Final = 5.0

_AT_REST: Final = WatchSettings()
"""Without a live Reservation nothing waits for events, and short connections cost requests."""

Item = TypeVar("Item")
Watch = Callable[[threading.Event], Iterable[WatchItem[Any]]]
Handle = Callable[[WatchItem[Any]], object]


def apply_event(cache: Cache, event_type: str | None, body: Mapping[str, Any]) -> None:
    """Apply kopf's event on a Reservation to the cache, unless the cache has that version already."""
    metadata = body["metadata"]
    if event_type == "DELETED":
        cache.remove_reservation(metadata["uid"])
    # The status that this replica has just written comes back as an event: it is in the cache already.
    elif not cache.knows_reservation(metadata["uid"], metadata["resourceVersion"]):
        cache.put_reservation(read_reservation(body))


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    resource_version: str
    generation: int


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    observed_generation: int


class _HandledReservation(msgspec.Struct, frozen=True):
    """The parts of a Reservation that say which version it is, and of which spec its status speaks."""

    metadata: _Metadata
    status: _Status


class _Modified(msgspec.Struct, frozen=True, tag="MODIFIED"):
    """A watch event on a Reservation that has a status."""

    object: _HandledReservation


class _NewReservation(msgspec.Struct, frozen=True):
    """The part of a Reservation that says which version it is."""

    metadata: _Metadata


class _Added(msgspec.Struct, frozen=True, tag="ADDED"):
    """A watch event on a Reservation that was just created."""

    object: _NewReservation


_HANDLED: Final[Any] = _Modified | _Added
_HANDLED_DECODER: Final[Decoder[_Modified | _Added]] = Decoder(_HANDLED)


def apply_handled(cache: Cache, line: bytes) -> str:
    """Apply a line of kopf's watch to the cache if kopf has nothing to do about it; return its resourceVersion.

    kopf has nothing to do about a new Reservation, which has no failure count to reset, nor about one whose spec is
    handled already. It has to see any other event, and a line that cannot be read or is nested too deeply: "".
    """
    try:
        event = _HANDLED_DECODER.decode_strictly(line)
        metadata = event.object.metadata
        # A changed spec: kopf has to see it, so that its handler resets the failure count of the Reservation.
        if isinstance(event, _Modified) and event.object.status.observed_generation != metadata.generation:
            return ""
        if not cache.knows_reservation(metadata.uid, metadata.resource_version):
            body = json.loads(line)["object"]
            if may_be_too_deep(line) and is_too_deep(body):
                return ""
            cache.put_reservation(read_reservation(body))
    except (msgspec.DecodeError, RecursionError):
        return ""
    return metadata.resource_version


class Informers:
    """Fills the cache and the cluster rules until stopped."""

    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        rules: ClusterRules,
        own_namespace: str,
        failed: Callable[[BerthError], object],
    ) -> None:
        """`failed` gets each error that ends an informer; nothing waits for the lists after one."""
        self._cache = cache
        self._rules = rules
        self._failed = failed
        self._pace = WatchPace(_AT_REST)
        # Two watches with selectors instead of one of all pods: a large cluster has a hundred thousand, of which few
        # concern the operator.
        owners = f"{RESERVATION_LABEL},!{PLACEHOLDER_LABEL}"
        watched: tuple[tuple[str, Watch, Handle], ...] = (
            (
                _PLACEHOLDERS,
                lambda stop: client.watch(
                    PODS,
                    namespace=own_namespace,
                    label_selector=PLACEHOLDER_LABEL,
                    type=Pod,
                    stop=stop,
                    settings=self._pace,
                ),
                _applier(cache.replace_placeholders, cache.put_placeholder, cache.remove_placeholder),
            ),
            (
                _FENCES,
                lambda stop: client.watch(
                    PODS, namespace=own_namespace, label_selector=STANDING_FENCE_LABEL, type=Pod, stop=stop
                ),
                self._handle_fence,
            ),
            (
                _OWNERS,
                lambda stop: client.watch(PODS, label_selector=owners, type=Pod, stop=stop, settings=self._pace),
                # The API server reports a pod that no longer matches the selector as DELETED, although it lives: it may
                # come back (`convertToWatchEvent` in `pkg/storage/cacher`).
                _applier(cache.replace_owners, cache.put_owner, partial(cache.remove_owner, for_good=False)),
            ),
            (
                _NODES,
                lambda stop: client.watch(NODES, type=GuardableNode, stop=stop, settings=self._pace),
                self._handle_node,
            ),
            (
                _CLASSES,
                lambda stop: client.watch(PRIORITY_CLASSES, type=PriorityClass, stop=stop),
                rules.classes.take,
            ),
            (_QUOTAS, lambda stop: client.watch(RESOURCE_QUOTAS, type=ResourceQuota, stop=stop), rules.quotas.take),
            (_RANGES, lambda stop: client.watch(LIMIT_RANGES, type=LimitRange, stop=stop), rules.limit_ranges.take),
        )
        self._informers = {kind: self._informer(kind, watch, handle) for kind, watch, handle in watched}
        self._listed = {kind: threading.Event() for kind in self._informers}
        self._started: list[str] = []
        self._counter: Informer[CountedPod] = Informer(
            "pods of nodes",
            lambda stop: client.watch(PODS, field_selector=_BOUND_SELECTOR, type=CountedPod, stop=stop),
            _applier(
                cache.pod_counts.replace, cache.pod_counts.put, cache.pod_counts.remove, cache.pod_counts.note_heard
            ),
            lambda _error: None,  # uncounted pods are listed; a lack of rights ends the watch of owners, too
            retry_seconds=_COUNT_AGAIN_SECONDS,
        )
        self._counts = False

    def _informer(self, name: str, watch: Watch, handle: Handle) -> Informer[Any]:
        def handle_and_note(item: WatchItem[Any]) -> None:
            handle(item)
            self._listed[name].set()

        return Informer(name, watch, handle_and_note, self._fail)

    def _fail(self, error: BerthError) -> None:
        self._failed(error)
        for event in self._listed.values():
            # Whoever waits for the first lists is let go, and finds the error instead.
            event.set()

    def start(self) -> None:
        """Start what was not started yet."""
        self.attend()
        for kind, informer in self._informers.items():
            if kind not in self._started:
                informer.start()
                self._started.append(kind)

    def attend(self) -> None:
        """Notice lost connections of the objects that hold places soon, while there is a live Reservation."""
        self._pace.change(PROMPT_WATCH if self._cache.live_namespaces() else _AT_REST)

    def count_pods(self) -> None:
        """Count the pods of each node from the first live Reservation on: no hand-over comes without one."""
        if not self._counts and self._cache.live_namespaces():
            self._counts = True
            self._counter.start()

    def stop(self, seconds: float) -> None:
        """Stop all informers; wait up to `seconds` for each."""
        self._counter.stop()
        for informer in self._informers.values():
            informer.stop()
        for kind in self._started:
            self._informers[kind].join(seconds)
        if self._counts:
            self._counter.join(seconds)

    def ended(self) -> tuple[str, ...]:
        """Return the names of the informers that were started and have ended."""
        return tuple(kind for kind in self._started if not self._informers[kind].is_alive)

    def wait_for_lists(self, seconds: float) -> None:
        """Wait up to `seconds` until every collection was listed once."""
        deadline = time.monotonic() + seconds
        for event in self._listed.values():
            event.wait(max(0.0, deadline - time.monotonic()))

    def missing(self) -> tuple[str, ...]:
        """Return the names of the collections that were not listed yet."""
        return tuple(kind for kind, event in self._listed.items() if not event.is_set())

    def _handle_fence(self, item: WatchItem[Pod]) -> None:
        match item:
            case Listed():
                self._cache.fenced.replace(item)
            case Changed(pod):
                self._cache.fenced.store_of(pod).put(pod)
            case Removed(pod):
                self._cache.fenced.store_of(pod).remove(pod)
            case Bookmark():
                pass

    def _handle_node(self, item: WatchItem[GuardableNode]) -> None:
        match item:
            case Listed(items):
                self._rules.nodes.replace(items)
                self._cache.replace_nodes(item)
            case Changed(node):
                self._rules.nodes.put(node)
                self._cache.put_node(node)
            case Removed(node):
                self._rules.nodes.forget(node.metadata.name)
                self._cache.remove_node(node)
            case Bookmark():
                pass


def _applier(
    replace: Callable[[Listed[Item]], None],
    put: Callable[[Item], None],
    remove: Callable[[Item], None],
    note_heard: Callable[[], None] = lambda: None,
) -> Handle:
    """Return a function that applies the items of a watch of pods to the cache."""

    def apply(item: WatchItem[Item]) -> None:
        note_heard()
        match item:
            case Listed():
                replace(item)
            case Changed(pod):
                put(pod)
            case Removed(pod):
                remove(pod)
            case Bookmark():
                pass

    return apply
