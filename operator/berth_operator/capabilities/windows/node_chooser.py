"""Chooses the nodes of occurrences, and counts what is idle at the start of those that wait."""

import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Final

from berth_core import (
    CHOSEN_NODE_ANNOTATION,
    ONE_POD,
    Occurrence,
    Pod,
    PodSpec,
    Reservation,
    ReservationWindow,
    ResourceAmounts,
    format_timestamp,
    readable_requests,
    window_of,
)
from berth_kube import PODS
from berth_operator.capabilities.windows.idle_capacity import (
    AwaitedSlots,
    NodeOccupancy,
    SlotKey,
    choose_window_nodes,
    slot_of,
    take_awaited,
)
from berth_operator.reservation.act.context import NOT_ENDED, Context
from berth_operator.reservation.act.node_chooser import ExpectedEnds
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.surveys import slot_requests

_SURVEY_SECONDS: Final = 5.0
"""How long a list of all pods serves the windows that open."""
_COUNTED_SECONDS: Final = 15.0
"""How long it serves those that wait for capacity."""


class WindowNodeChooser:
    """Chooses the nodes of occurrences; thread-safe.

    What any window awaits counts as taken, in the order of the Reservations' age, so that no room is counted twice.
    """

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._cache = context.cache
        self._clock = context.clock
        self._admits = context.admits
        self._ends = ExpectedEnds(context)
        self._lock = threading.Lock()
        self._taken: dict[str, list[tuple[SlotKey, ResourceAmounts, datetime | None]]] = {}
        """By node the slot (for placeholders), the requests and the expected end of each pod."""
        self._listed_at = -_COUNTED_SECONDS
        self._promised: dict[str, tuple[float, AwaitedSlots]] = {}
        """The Reservations that are about to be created, by `namespace/name`."""
        self._read: dict[str, tuple[str, AwaitedSlots]] = {}
        """The version of a Reservation and what it awaits, by uid."""

    def choose(self, window: ReservationWindow, spec: PodSpec, times: Occurrence) -> tuple[str, ...]:
        """Return the nodes of an occurrence, none if no node may be used; raises the API server's error."""
        candidates = [node for node in self._cache.nodes() if self._may_use(window, spec, node)]
        if not candidates:
            return ()
        requests, slots = slot_requests(spec), window.spec.pod_num_to_reserve
        name = f"{window.metadata.namespace}/{window.reservation_name(format_timestamp(times.start))}"
        with self._lock:
            awaited_by_name = {reservation.key: awaited for reservation, awaited in self._awaited_by_windows()}
            awaited_by_name |= self._awaited_by_promises(awaited_by_name.keys())
            self._list_pods(_SURVEY_SECONDS)
            uses = self._uses_besides(awaited_by_name.values(), candidates)
            for other_name, awaited in awaited_by_name.items():
                if other_name != name:
                    take_awaited(uses, awaited)
            nodes = choose_window_nodes(uses.values(), requests, slots, times.start)
            own = AwaitedSlots(requests, {"": slots}, nodes, times.start, times.end)
            # Until the cache has the new Reservation, windows that open at the same minute must not count on its room.
            self._promised[name] = self._clock.monotonic(), own
        return nodes

    def count_idle(self) -> dict[str, int]:
        """Return how many awaited slots of each window's live Reservation, by uid, are idle at its start.

        Only nodes count that its pods may enter now. Raises the API server's error.
        """
        with self._lock:
            awaited_by_windows = list(self._awaited_by_windows())
            self._list_pods(_COUNTED_SECONDS)
            names = {name for _, awaited in awaited_by_windows for name in (*awaited.by_node, *awaited.nodes)}
            nodes = {name: node for name in names if (node := self._cache.node(name)) is not None}
            uses = self._uses_besides((awaited for _, awaited in awaited_by_windows), nodes.values())
            idle_slots: dict[str, int] = {}
            for reservation, awaited in awaited_by_windows:
                spec = reservation.spec.tasks[0].template.spec
                own_names = nodes.keys() & {*awaited.by_node, *awaited.nodes}
                open_uses = {name: uses[name] for name in own_names if self._admits(nodes[name], spec)}
                idle_slots[reservation.metadata.uid] = take_awaited(open_uses, awaited)
        return idle_slots

    def _may_use(self, window: ReservationWindow, spec: PodSpec, known: GuardableNode) -> bool:
        """Return whether a node is ready, chosen by the window, and open to its pods."""
        selector = {**window.spec.node_selector, **spec.node_selector}
        is_wanted = all(known.metadata.labels.get(key) == value for key, value in selector.items())
        return is_wanted and self._admits(known, spec)

    def _awaited_by_windows(self) -> Iterator[tuple[Reservation, AwaitedSlots]]:
        """Yield the live Reservations of windows with what they await, the oldest first."""
        live = [reservation for reservation in self._cache.reservations() if reservation.is_live]
        of_windows = [reservation for reservation in live if window_of(reservation) and reservation.spec.tasks]
        known, self._read = self._read, {}
        for reservation in sorted(of_windows, key=lambda reservation: reservation.metadata.age_order):
            uid, version = reservation.metadata.uid, reservation.metadata.resource_version
            read = known.get(uid)
            self._read[uid] = read if read and read[0] == version else (version, AwaitedSlots.of(reservation))
            yield reservation, self._read[uid][1]

    def _awaited_by_promises(self, known: Collection[str]) -> dict[str, AwaitedSlots]:
        """Return what Reservations await that are about to be created, by name."""
        oldest = self._clock.monotonic() - _SURVEY_SECONDS
        self._promised = {
            name: promise for name, promise in self._promised.items() if promise[0] >= oldest and name not in known
        }
        return {name: awaited for name, (_, awaited) in self._promised.items()}

    def _uses_besides(
        self, awaited: Iterable[AwaitedSlots], nodes: Iterable[GuardableNode]
    ) -> dict[str, NodeOccupancy]:
        """Return the use of nodes besides the placeholders of slots that are awaited."""
        awaited_keys = {key for slots in awaited for key in slots.keys}
        return {
            node.metadata.name: NodeOccupancy(
                node.metadata.name,
                node.offered,
                [
                    (requests, end)
                    for key, requests, end in self._taken.get(node.metadata.name, ())
                    if key not in awaited_keys
                ],
            )
            for node in nodes
        }

    def _list_pods(self, max_age_seconds: float) -> None:
        """List all pods if the last list is older."""
        if self._clock.monotonic() - self._listed_at < max_age_seconds:
            return
        pod_list = self._client.list(PODS, field_selector=NOT_ENDED, type=Pod)
        ends = self._ends.of(pod for pod in pod_list.items if pod.spec.node_name)
        taken: defaultdict[str, list[tuple[SlotKey, ResourceAmounts, datetime | None]]] = defaultdict(list)
        for pod in pod_list.items:
            node_name = pod.spec.node_name or pod.metadata.annotations.get(CHOSEN_NODE_ANNOTATION, "")
            if node_name:
                requests = readable_requests(pod).plus(ONE_POD)
                taken[node_name].append((slot_of(pod), requests, ends.get(pod.metadata.uid)))
        self._taken = taken
        self._listed_at = self._clock.monotonic()
