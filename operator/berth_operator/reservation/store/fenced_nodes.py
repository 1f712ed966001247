"""Standing fences, and the nodes that should have one: they are kept for namespaces, or their capacity is awaited."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import replace

from berth_core import Fence, Pod
from berth_kube import Listed
from berth_operator.reservation.store.listed_objects import FenceStore
from berth_operator.reservation.store.pods import PodIndex, reservation_key, reservation_uid
from berth_operator.reservation.store.reservations import ReservationStore
from berth_operator.runtime.workqueue import BEST_EFFORT_KEY, Key, KeyKind


class FencedNodes:
    """The fences that stand and the nodes that need one; thread-safe, and each change queues the keys concerned."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        enqueue: Callable[[Key], None],
        reservations: ReservationStore,
        placeholders: PodIndex,
    ) -> None:
        self._lock = lock
        self._enqueue = enqueue
        self._reservations = reservations
        self._placeholders = placeholders
        self.fences = FenceStore(enqueue, BEST_EFFORT_KEY)
        """Standing fences."""
        self._other_fences: list[tuple[Callable[[Pod], bool], FenceStore]] = []
        self._unfenced: dict[str, str] = {}
        """Node whose capacity is awaited to why it has no fence."""
        self._kept: Mapping[str, frozenset[str]] | None = {}

    def keep_fences(self, are_concerned: Callable[[Pod], bool]) -> FenceStore:
        """Return a store for certain fences, which count as no standing fences from now on."""
        store = FenceStore(self._enqueue)
        self._other_fences.append((are_concerned, store))
        return store

    def store_of(self, fence: Pod) -> FenceStore:
        return next((store for is_concerned, store in self._other_fences if is_concerned(fence)), self.fences)

    def replace(self, listed: Listed[Pod]) -> None:
        """Store a complete list of fences of all sorts."""
        by_store: dict[int, list[Pod]] = defaultdict(list)
        for fence in listed.items:
            by_store[id(self.store_of(fence))].append(fence)
        for store in (self.fences, *(store for _, store in self._other_fences)):
            store.replace(replace(listed, items=tuple(by_store[id(store)])))

    def keep_nodes(self, kept: Mapping[str, frozenset[str]] | None) -> None:
        """Record the kept nodes, each with the namespaces that use it; while they are unknown (None) no fence goes."""
        with self._lock:
            kept_before, self._kept = self._kept, kept
        if kept_before != kept:
            fenced = [pod.spec.node_name for pod in self.fences.all()] if kept_before is None else []
            for node in sorted({*(kept_before or ()), *(kept or ()), *fenced}):
                self._enqueue(Key(KeyKind.NODE, node))

    def kept_from(self, namespace: str) -> frozenset[str]:
        """Return the nodes that are kept for other namespaces."""
        with self._lock:
            return frozenset(node for node, homes in self._to_be_fenced().items() if namespace not in homes)

    def _to_be_fenced(self) -> Mapping[str, frozenset[str]]:
        """Return the kept nodes, except those that may have no fence."""
        return {node: homes for node, homes in (self._kept or {}).items() if node not in self._unfenced}

    def unfenced(self, among: AbstractSet[str] | None = None) -> dict[str, str]:
        """Return why nodes that should be fenced are not, of all nodes or of some."""
        with self._lock:
            nodes = self._unfenced.keys() if among is None else among & self._unfenced.keys()
            return {node: self._unfenced[node] for node in nodes}

    @property
    def knows_kept_nodes(self) -> bool:
        with self._lock:
            return self._kept is not None

    def users(self, node: str) -> frozenset[str]:
        """Return the namespaces for which a node should be fenced.

        It is kept for them, or their Reservations await its capacity after a scheduler has found no room there.
        """
        with self._lock:
            waiting_pods = [pod for pod in self._placeholders.awaiting(node) if not pod.is_terminating]
            uids = {reservation_uid(pod) for pod in waiting_pods if pod.is_unschedulable}
            known_reservations = [
                reservation for uid in uids if (reservation := self._reservations.get(uid)) is not None
            ]
            kept_namespaces = (self._kept or {}).get(node, frozenset())
        awaiting = (
            reservation
            for reservation in known_reservations
            if reservation.is_live and reservation.spec.fence is Fence.NODE
        )
        return kept_namespaces | {reservation.metadata.namespace for reservation in awaiting}

    def nodes(self, namespace: str | None = None, *, awaited: bool = False) -> frozenset[str]:
        """Return the nodes that are fenced, for a namespace if one is given; `awaited` adds those soon to be fenced."""
        with self._lock:
            fenced = {pod.spec.node_name for pod in self.fences.all() if not pod.is_terminal}
            uids_by_node = {
                node: set(map(reservation_uid, self._placeholders.awaiting(node)))
                for node in self._placeholders.awaited_nodes()
            }
            wanting = {
                reservation.metadata.uid: reservation.metadata.namespace
                for uid in set().union(*uids_by_node.values())
                if (reservation := self._reservations.get(uid)) is not None and reservation.spec.fence is Fence.NODE
            }
            kept_by_node, nodes_to_fence = self._kept or {}, self._to_be_fenced().keys()
        namespaces_by_node = {
            node: {wanting[uid] for uid in uids if uid in wanting} for node, uids in uids_by_node.items()
        }
        if awaited:
            fenced |= nodes_to_fence | {node for node, namespaces in namespaces_by_node.items() if namespaces}
        return frozenset(
            node
            for node in fenced
            if namespace in {None, *namespaces_by_node.get(node, ()), *kept_by_node.get(node, ())}
        )

    def put_unfenced(self, node: str, why: str) -> None:
        """Record why an awaited node has no fence, "" for one that has or needs none."""
        with self._lock:
            why_before = self._unfenced.get(node, "")
            if why:
                self._unfenced[node] = why
            else:
                self._unfenced.pop(node, None)
            concerned_pods = self._placeholders.awaiting(node) if why_before != why else ()
        for pod in concerned_pods:
            self._enqueue(reservation_key(pod))

    def awaited_nodes(self) -> set[str]:
        """Return the nodes with a standing fence, that are kept, or whose capacity is awaited."""
        with self._lock:
            nodes = {*self._placeholders.awaited_nodes(), *(self._kept or ())}
            return nodes | {pod.spec.node_name for pod in self.fences.all()}
