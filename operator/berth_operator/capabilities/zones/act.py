"""Keep the status of RevocableZones, and let preemptable pods onto open lent nodes.

`decide` says how, and `fences` keeps the other pods off.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from berth_core import (
    DAEMON_POD_LABEL,
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
    PREEMPTABLE_LABEL,
    REVOCABLE_ZONE_LABEL,
    BerthError,
    LentFence,
    ObjectMeta,
    ObjectReference,
    Pod,
    RevocableZone,
    RevocableZoneStatus,
    ZoneState,
    has_to_leave,
    is_preemptable,
    is_unschedulable,
    preemptable_groups,
    volcano_group_of,
)
from berth_core.revocable_zones import says_preemptable
from berth_kube import PODS, REVOCABLE_ZONES, KubeClient, Listed, NotFoundError
from berth_operator.capabilities.zones import metrics
from berth_operator.capabilities.zones.decide import PodsLeft, decide_zone
from berth_operator.capabilities.zones.fences import LentFences
from berth_operator.capabilities.zones.rule import ZoneRule
from berth_operator.capabilities.zones.store import ZONE, ZoneStore
from berth_operator.reservation.act.context import WITHOUT_NODE, Context, require_lease, write_status
from berth_operator.reservation.act.events import RecordedEvent
from berth_operator.reservation.act.fences import kind_of_fence, label_oldest
from berth_operator.reservation.store.cache import Cache
from berth_operator.runtime.capability import Capability, Kernel
from berth_operator.runtime.workqueue import Key, KeyKind
from berth_operator.schedulers.volcano import POD_GROUPS

EVENTS: Final = {
    ZoneState.OPEN: ("ZoneOpened", "preemptable pods may use the nodes"),
    ZoneState.EMPTYING: ("ZoneEmptying", "no pod comes any more, so that the nodes are empty at the end"),
    ZoneState.CLOSED: ("ZoneClosed", "the nodes are closed"),
    ZoneState.SUSPENDED: ("ZoneSuspended", "the nodes are closed until the zone is switched on again"),
}
"""Reason and text of the event by the state that a zone has reached."""
NOT_EMPTY: Final = "ZoneNotEmpty"
"""The event on a zone that closes while pods are left on its nodes."""

_COUNT_SECONDS: Final = 10.0
"""Between two counts of the pods on a zone's nodes."""
_MANY_NODES: Final = 50
"""The pods of more nodes are counted by one list of all pods."""
_COUNT_SECONDS_OF_MANY: Final = 60.0
_LET_IN_SECONDS: Final = 3.0


# --- pods ------------------------------------------------------------------------------------------------------------


class _GroupHeader(msgspec.Struct, frozen=True):
    """The part of a pod group that says whether its pods are preemptable."""

    metadata: ObjectMeta


class PreemptablePods:
    """Lets preemptable pods that a scheduler has refused past the fences of open lent nodes; thread-safe."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._lock = threading.Lock()
        self._next = 0.0
        """Monotonic time from which the pods may be listed again."""

    def let_in(self) -> None:
        """Label the oldest such pods; raises the first refusal at the end."""
        with self._lock:
            if time.monotonic() < self._next:
                return
            self._next = time.monotonic() + _LET_IN_SECONDS
        labels = f"!{PREEMPTABLE_LABEL},!{DAEMON_POD_LABEL}"
        waiting_pods = self._client.list(PODS, field_selector=WITHOUT_NODE, label_selector=labels, type=Pod).items
        refused_pods = [pod for pod in waiting_pods if is_unschedulable(pod) and not pod.is_terminating]
        groups = self._groups() if any(map(volcano_group_of, refused_pods)) else frozenset()
        preemptable = [pod for pod in refused_pods if is_preemptable(pod, groups)]
        label_oldest(self._client, preemptable, PREEMPTABLE_LABEL)

    def mark(self, pods: Iterable[Pod]) -> None:
        """Label the pods on open lent nodes that came by Volcano's label; raises the first refusal at the end.

        Whoever owns a pod may take that label off again, and would keep the node when it closes. Berth's stays.
        """
        unmarked = [pod for pod in pods if PREEMPTABLE_LABEL not in pod.metadata.labels and not pod.is_terminating]
        label_oldest(self._client, [pod for pod in unmarked if says_preemptable(pod.metadata)], PREEMPTABLE_LABEL)

    def _groups(self) -> frozenset[tuple[str, str]]:
        """Return the pod groups that say so; none where they cannot be listed."""
        with suppress(BerthError):
            return preemptable_groups(
                group.metadata for group in self._client.list(POD_GROUPS, type=_GroupHeader).items
            )
        return frozenset()


# --- zones -----------------------------------------------------------------------------------------------------------


def list_zones(client: KubeClient, cache: Cache, store: ZoneStore) -> None:
    """Refresh all zones, and queue them and the nodes whose fences nothing wants any more.

    Without the CRD there are none.
    """
    with suppress(NotFoundError):
        listing = client.list(REVOCABLE_ZONES)
        zones_listed = tuple(RevocableZone.read(body) for body in listing.items)
        store.replace(Listed(zones_listed, listing.resource_version, listing.began))
    store.are_known = True
    zones = store.all()
    states = Counter(zone.status.state for zone in zones)
    for state in ZoneState:
        metrics.ZONES.labels(state=state.value).set(states[state.value])
    metrics.LENT_NODES.clear()
    metrics.LENT_NODE_PODS.clear()
    for zone in zones:
        metrics.LENT_NODES.labels(zone=zone.metadata.name).set(zone.status.nodes)
        metrics.LENT_NODE_PODS.labels(zone=zone.metadata.name).set(zone.status.pods)
    store.queue_all()
    names = {zone.metadata.name for zone in zones}
    nodes = (node.metadata for node in cache.nodes()) if zones else ()
    label_by_node = {meta.name: label for meta in nodes if (label := meta.labels.get(REVOCABLE_ZONE_LABEL))}
    without_zone = {node for node, label in label_by_node.items() if label not in names}
    kinds = {pod.spec.node_name: kind_of_fence(pod) for pod in store.fences.all()}
    without_fence = {node for node in without_zone if kinds.get(node) != LentFence.WITHOUT_ZONE}
    store.queue_nodes((kinds.keys() - label_by_node.keys()) | without_fence)


class Zones(Capability):
    """Keeps the fences of zones as they should be, and writes their status."""

    kinds = frozenset({ZONE, KeyKind.NODE})

    @staticmethod
    def build_rule(client: KubeClient) -> ZoneRule:  # noqa: ARG004 - the interface's
        return ZoneRule()

    def __init__(self, kernel: Kernel) -> None:
        context = kernel.context
        self._client = context.client
        self._cache = context.cache
        self._clock = context.clock
        self._own_namespace = context.settings.placeholders.namespace
        self._recorder = kernel.recorder
        self._leads = kernel.leads
        self._enqueue = kernel.enqueue
        self.store = ZoneStore(context.cache, lambda key: kernel.enqueue(key, 0.0))
        self.fences = LentFences(context, kernel.priorities, self.store)
        self._listing = kernel.listing(REVOCABLE_ZONES, self.refresh)
        self._pods = PreemptablePods(context)
        self._counts: dict[str, tuple[float, PodsLeft]] = {}
        """By uid of a zone the pods on its nodes, and the monotonic time of that."""

    def listen(self) -> None:
        self._listing.listen()

    def stop_term(self) -> None:
        self._listing.stop()

    def refresh(self) -> bool:
        list_zones(self._client, self._cache, self.store)
        return bool(self.store.all()) or bool(self.store.fences.all())

    def resync(self, _: Callable[[str], bool]) -> None:
        self.store.queue_nodes({fence.spec.node_name for fence in self.store.fences.all()})

    def reconcile(self, key: Key) -> None:
        """Reconcile a zone, and queue it for when it opens or closes next; or the fence of a node."""
        if key.kind == ZONE:
            self._reconcile_zone(key)
        else:
            self.fences.reconcile(key.name, self._clock.now())

    def _reconcile_zone(self, key: Key) -> None:
        zone = self.store.get(key.name)
        if zone is None or zone.metadata.deletion_timestamp:
            self._counts.pop(key.name, None)
            return
        now = self._clock.now()
        nodes = self._nodes_of(zone.metadata.name)
        counted_before = self._counts.get(zone.metadata.uid)
        pods_left = self._left_on(zone, nodes)
        refused_nodes = self.fences.refused(nodes, now)
        decision_before = decide_zone(
            zone, self.fences.standing(zone, nodes, now), pods_left, now, refused=refused_nodes
        )
        written_zone = self._write_status(zone, decision_before.status)
        if written_zone is None:
            return
        fenced = self.fences.standing(written_zone, nodes, now)
        nodes_without_fence = {node for node, stands in fenced.items() if not stands}
        self.store.queue_nodes(nodes_without_fence | self.fences.outdated(written_zone, nodes))
        decision = decide_zone(written_zone, fenced, pods_left, now, refused=refused_nodes)
        self._report(zone, decision.status)
        if decision.status.state == ZoneState.OPEN and nodes:
            self._pods.let_in()
            if self._counts.get(zone.metadata.uid) is not counted_before:
                self._pods.mark(pods_left.pods)
        if decision.wake_seconds is not None:
            self._enqueue(key, decision.wake_seconds)

    def _nodes_of(self, zone: str) -> list[str]:
        """Return the nodes with the label of a zone."""
        node_metas = (node.metadata for node in self._cache.nodes())
        return sorted(meta.name for meta in node_metas if meta.labels.get(REVOCABLE_ZONE_LABEL) == zone)

    def _left_on(self, zone: RevocableZone, nodes: Sequence[str]) -> PodsLeft:
        """Return the pods on a zone's nodes that leave when it closes, as they were a moment ago."""
        counted, known_left = self._counts.get(zone.metadata.uid, (0.0, PodsLeft()))
        period = _COUNT_SECONDS if len(nodes) <= _MANY_NODES else _COUNT_SECONDS_OF_MANY
        if counted and time.monotonic() - counted < period:
            return known_left
        selectors = [f"spec.nodeName={node}" for node in nodes] if len(nodes) <= _MANY_NODES else ["spec.nodeName!="]
        zone_nodes = set(nodes)
        leaving = tuple(
            pod
            for selector in selectors
            for pod in self._client.list(PODS, field_selector=selector, type=Pod).items
            if pod.spec.node_name in zone_nodes and has_to_leave(pod, self._own_namespace)
        )
        pods_left = PodsLeft(leaving, self._groups_of(leaving))
        self._counts[zone.metadata.uid] = time.monotonic(), pods_left
        return pods_left

    def _groups_of(self, pods: Sequence[Pod]) -> dict[tuple[str, str], ObjectMeta]:
        """Return the PodGroups of pods that do not have the budget of their job themselves; none if not listed."""
        budgets = {JDB_MAX_UNAVAILABLE_ANNOTATION, JDB_MIN_AVAILABLE_ANNOTATION}
        if not any(volcano_group_of(pod) and budgets.isdisjoint(pod.metadata.annotations) for pod in pods):
            return {}
        with suppress(BerthError):
            groups = self._client.list(POD_GROUPS, type=_GroupHeader).items
            return {(group.metadata.namespace, group.metadata.name): group.metadata for group in groups}
        return {}

    def _write_status(self, zone: RevocableZone, status: RevocableZoneStatus) -> RevocableZone | None:
        """Write the status if it differs; return the zone with it, None if the zone is gone."""
        if status == zone.status:
            return zone
        require_lease(self._leads)
        try:
            body = write_status(self._client, REVOCABLE_ZONES, zone.metadata, status)
        except NotFoundError:
            self.store.remove(zone.metadata.uid)
            return None
        written_zone = RevocableZone.read(body)
        self.store.put(written_zone)
        return written_zone

    def _report(self, zone: RevocableZone, status: RevocableZoneStatus) -> None:
        """Record a change of state; the status settles it, so that it is recorded once."""
        if status.state == zone.status.state or (not zone.status.state and status.state == ZoneState.CLOSED):
            return
        reason, text = EVENTS.get(ZoneState(status.state), ("", ""))
        regarding = ObjectReference.of(REVOCABLE_ZONES.api_version, REVOCABLE_ZONES.kind, zone.metadata)
        if reason:
            until_text = f" until {status.closes_at}" if status.closes_at else ""
            self._recorder.record(RecordedEvent(regarding, "Normal", reason, f"{text}{until_text}"))
        if status.state == ZoneState.CLOSED and status.pods:
            message = f"{status.pods} pods were left on the nodes at the end"
            self._recorder.record(RecordedEvent(regarding, "Warning", NOT_EMPTY, message))
