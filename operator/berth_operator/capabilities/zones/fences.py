"""The fences of lent nodes.

A node gets its next fence before the present one goes, so that there is no gap unless all its pod slots are used. A
fence lasts for a day without renewal: while no operator runs, nothing else would keep the node closed.
"""

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final

import structlog

from berth_core import PREEMPTABLE_LABEL, REVOCABLE_ZONE_LABEL, BerthError, LentFence, Pod, RevocableZone
from berth_kube import PODS, AlreadyExistsError, NotFoundError
from berth_operator import telemetry
from berth_operator.capabilities.zones import logs
from berth_operator.capabilities.zones.decide import lent_fence, lent_fence_notes
from berth_operator.capabilities.zones.manifests import build_lent_fence
from berth_operator.capabilities.zones.store import ZoneStore
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.fences import (
    NO_POD_SLOT,
    REQUESTS_ADDED,
    age_seconds,
    delete_at_once,
    has_room,
    kind_of_fence,
    lasts,
    name_fence_now,
    note_omission,
    requests_anything,
)
from berth_operator.reservation.act.priority_classes import PriorityClasses
from berth_operator.reservation.manifests import FENCE_PRIORITY

# The kubelet ends a fence after this time, also when no operator is left to delete it. Its successor is made at half of
# it.
_LENT_FENCE_SECONDS: Final = 24 * 3600
_LENT_PERIOD_SECONDS: Final = _LENT_FENCE_SECONDS // 2
_ADMISSION_PAUSE_SECONDS: Final = 60
"""The pause before the next try after a fence to which admission gave requests."""
_REFUSED_SECONDS: Final = 30
"""The age at which a fence that a kubelet has refused is replaced."""


_LOG = structlog.get_logger(__name__)


class LentFences:
    """Reconciles the fence of a lent node with its zone; thread-safe."""

    def __init__(self, context: Context, priorities: PriorityClasses, store: ZoneStore) -> None:
        self._refused: dict[str, datetime] = {}
        """When admission last gave the fence of a node requests."""
        self._client = context.client
        self._cache = context.cache
        self._store = store
        self._priorities = priorities
        self._settings = context.settings.placeholders

    def wanted(self, node: str, now: datetime) -> LentFence | None:
        """Return the fence that a node should have, None for a node that is not lent."""
        # While there is any zone, a label that names none keeps pods off, as Volcano's plugin `tdm` does
        # (`availableRevocableZone`).
        if not self._store.all() or not self._label_of(node):
            return None
        zone = self._zone_of(node)
        if zone is None:
            return LentFence.WITHOUT_ZONE
        return None if zone.metadata.deletion_timestamp else lent_fence(zone, now)

    def refused(self, nodes: Iterable[str], now: datetime) -> set[str]:
        """Return the nodes whose fence got requests from admission within the last minute."""
        pause = timedelta(seconds=_ADMISSION_PAUSE_SECONDS)
        return {node for node in nodes if node in self._refused and now - self._refused[node] < pause}

    def _label_of(self, node: str) -> str:
        known_node = self._cache.node(node)
        return known_node.metadata.labels.get(REVOCABLE_ZONE_LABEL, "") if known_node is not None else ""

    def _zone_of(self, node: str) -> RevocableZone | None:
        label = self._label_of(node)
        return self._store.named(label) if label else None

    def standing(self, zone: RevocableZone, nodes: Iterable[str], now: datetime) -> dict[str, bool]:
        """Return whether each node of a zone has the fence that it should have, and no other."""
        kinds: defaultdict[str, set[str]] = defaultdict(set)
        for fence in self._store.fences.all():
            if not fence.is_terminal and not fence.is_terminating:
                kinds[fence.spec.node_name].add(kind_of_fence(fence))
        wanted_fence = lent_fence(zone, now)
        return {node: kinds[node] == {wanted_fence.value} for node in nodes}

    def outdated(self, zone: RevocableZone, nodes: Iterable[str]) -> set[str]:
        """Return the nodes whose fence has other annotations than the zone says by now."""
        zone_nodes = set(nodes)
        fences = (fence for fence in self._store.fences.all() if fence.spec.node_name in zone_nodes)
        return {fence.spec.node_name for fence in fences if not fence.is_terminal and _missing_notes(fence, zone)}

    def reconcile(self, node: str, now: datetime) -> None:
        """Give a node the fence that it should have, then delete others, and placeholders if the node is closed."""
        if not self._store.are_known:
            return
        wanted_fence = self.wanted(node, now)
        self._fence(node, wanted_fence, now)
        standing_kinds = {kind_of_fence(fence) for fence in self._standing_on(node)}
        if wanted_fence is LentFence.CLOSED and wanted_fence in standing_kinds:
            self._give_up_places(node)
        if (zone := self._zone_of(node)) is not None:
            self._annotate(node, zone)

    def _annotate(self, node: str, zone: RevocableZone) -> None:
        """Write onto the fence of a node what its zone says by now."""
        for fence in self._standing_on(node):
            notes = {} if fence.is_terminating else _missing_notes(fence, zone)
            if notes:
                patch, meta = {"metadata": {"annotations": notes}}, fence.metadata
                with suppress(NotFoundError):
                    patched_fence = self._client.merge_patch(PODS, meta.name, patch, namespace=meta.namespace, type=Pod)
                    self._store.fences.put(patched_fence)

    def _fence(self, node: str, wanted: LentFence | None, now: datetime) -> None:
        for ended_fence in self._store.fences.on(node):
            if ended_fence.is_terminal and (wanted is None or age_seconds(ended_fence, now) >= _REFUSED_SECONDS):
                self._delete(ended_fence)  # the next one may have its name
        standing_fences = self._standing_on(node)
        lasting_fences = [
            fence_pod
            for fence_pod in standing_fences
            if kind_of_fence(fence_pod) == wanted and lasts(fence_pod, _LENT_PERIOD_SECONDS, now)
        ]
        if wanted is not None and not lasting_fences:
            next_fence = self._create_next(node, wanted, now)
            if next_fence is None:
                return
            lasting_fences = [next_fence]
        # The old fence goes last: while both stand, only pods that both admit may enter.
        names = {fence.metadata.name for fence in lasting_fences}
        for fence in self._standing_on(node):
            if fence.metadata.name not in names:
                self._delete(fence)

    def _standing_on(self, node: str) -> list[Pod]:
        return [fence for fence in self._store.fences.on(node) if not fence.is_terminal]

    def _create_next(self, node: str, wanted: LentFence, now: datetime) -> Pod | None:
        """Create the next fence of a node, in place of the present one if no pod slot is free; None if it cannot be."""
        standing_fences = self._standing_on(node)
        if self.refused([node], now):
            return None
        if any(fence.is_terminating and kind_of_fence(fence) == wanted for fence in standing_fences):
            return None  # system pods are on their way in: a fence made now would be preempted, too
        # A kubelet counts fences, too: beyond `allocatable.pods` it fails a pod with the reason OutOfpods
        # (`pkg/kubelet/lifecycle/predicate.go`).
        if not has_room(self._client, self._cache, node):
            if not standing_fences:
                note_omission(node, NO_POD_SLOT)
                return None
            for fence in standing_fences:  # a kubelet refuses a pod beyond the last slot
                self._delete(fence)
        return self._create(node, wanted, now)

    def _give_up_places(self, node: str) -> None:
        """Delete the placeholders that came while a node was open: the pods that they hold for may come no more."""
        # Their Reservations create them again, and the fence keeps the new ones off.
        for pod in self._cache.placeholders():
            if pod.spec.node_name == node and PREEMPTABLE_LABEL in pod.metadata.labels and not pod.is_terminating:
                delete_at_once(self._client, pod)

    def _create(self, node: str, kind: LentFence, now: datetime) -> Pod | None:
        """Create the fence of a node; return None if there cannot be one, or if it exists already."""
        fence_name = name_fence_now(node, kind, _LENT_PERIOD_SECONDS, now)
        zone = self._zone_of(node)
        notes = lent_fence_notes(zone) if zone is not None else {}
        body = build_lent_fence(node, fence_name, kind, notes, seconds=_LENT_FENCE_SECONDS, settings=self._settings)
        try:
            self._priorities.ensure(FENCE_PRIORITY)
            fence = self._client.create(PODS, body, namespace=self._settings.namespace, type=Pod)
        except AlreadyExistsError:
            return None  # its watch reports it
        except BerthError:
            self._priorities.forget(FENCE_PRIORITY)  # our own class may be missing
            raise
        self._store.fences.put(fence)
        if requests_anything(fence):
            self._delete(fence)
            self._refused[node] = now
            note_omission(node, REQUESTS_ADDED)
            return None
        self._refused.pop(node, None)
        _LOG.info(logs.FENCED, **{telemetry.KEY_NODE: node, telemetry.KEY_STATE: kind.value})
        return fence

    def _delete(self, fence: Pod) -> None:
        delete_at_once(self._client, fence)
        self._store.fences.remove(fence)


def _missing_notes(fence: Pod, zone: RevocableZone) -> dict[str, str]:
    """Return the annotations that a zone's fence lacks; the end of an opening that is over stays on it."""
    return {key: note for key, note in lent_fence_notes(zone).items() if fence.metadata.annotations.get(key) != note}
