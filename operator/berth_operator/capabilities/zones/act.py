"""Keep the status of RevocableZones, and have preemptable pods let onto open lent nodes.

`decide` says how, and `fences` keeps the other pods off.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from berth_core import (
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
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
    volcano_group_of,
)
from berth_kube import PODS, REVOCABLE_ZONES, KubeClient, Listed, NotFoundError
from berth_operator.capabilities.zones import metrics
from berth_operator.capabilities.zones.decide import PodsLeft, decide_zone
from berth_operator.capabilities.zones.fences import LentFences
from berth_operator.capabilities.zones.preemptable_pods import PodGroupMetadata, PreemptablePods
from berth_operator.capabilities.zones.rule import ZoneRule
from berth_operator.capabilities.zones.store import ZONE, ZoneStore
from berth_operator.reservation.act.context import require_lease, write_status
from berth_operator.reservation.act.events import RecordedEvent
from berth_operator.reservation.act.fences import kind_of_fence
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
"""Reason of the event on a zone that closes while pods are left on its nodes."""

_COUNT_SECONDS: Final = 10.0
"""Between two counts of the pods on a zone's nodes."""
_MANY_NODES: Final = 50
"""The pods of more nodes are counted by one list of all pods."""
_COUNT_SECONDS_OF_MANY: Final = 60.0


def list_zones(client: KubeClient, cache: Cache, store: ZoneStore) -> None:
    """Refresh all zones, none without the CRD, and queue them and the nodes whose fences nothing needs any more."""
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
        """The monotonic time of the last count of the pods on a zone's nodes, and its result, by the zone's uid."""

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
        """Reconcile the fence of a node, or a zone, which is queued again for when it opens or closes next."""
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
        # Decided twice: fences follow the state in the status that has been written, not one that may never be stored.
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
        """Return the pods on a zone's nodes that leave when it closes, as of the last count or a new one."""
        counted, known_left = self._counts.get(zone.metadata.uid, (0.0, PodsLeft()))
        period = _COUNT_SECONDS if len(nodes) <= _MANY_NODES else _COUNT_SECONDS_OF_MANY
        if counted and time.monotonic() - counted < period:
            return known_left
        # One indexed list per node (`MatchPod` in pkg/registry/core/pod/strategy.go) while these are few; beyond, one
        # list of all bound pods costs the API server less.
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
        """Return the PodGroups if a pod lacks the annotations of its job's budget; none if they cannot be listed."""
        budgets = {JDB_MAX_UNAVAILABLE_ANNOTATION, JDB_MIN_AVAILABLE_ANNOTATION}
        if not any(volcano_group_of(pod) and budgets.isdisjoint(pod.metadata.annotations) for pod in pods):
            return {}
        with suppress(BerthError):
            groups = self._client.list(POD_GROUPS, type=PodGroupMetadata).items
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
        """Record a change of state, once: it is in the status by now."""
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
