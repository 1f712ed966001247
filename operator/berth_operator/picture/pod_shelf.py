"""Owns a set of pods that is found by key and by the Reservation that each names; not thread-safe by itself.

It does not own what the pods are: placeholders and owner pods have a shelf each.
"""

from collections.abc import Callable, Iterator

from berth_core.labels import RESERVATION_LABEL
from berth_core.objects import Pod


def reservation_uid(pod: Pod) -> str:
    """Return the uid of the Reservation that a pod names, "" where it names none."""
    return pod.metadata.labels.get(RESERVATION_LABEL, "")


class PodShelf:
    """Pods by key; finding those of one Reservation, or on one node, costs as much as there are."""

    def __init__(self, key: Callable[[Pod], str]) -> None:
        self._key = key
        self._pods: dict[str, Pod] = {}
        self._by_reservation: dict[str, dict[str, Pod]] = {}
        self._by_node: dict[str, dict[str, Pod]] = {}

    def __iter__(self) -> Iterator[Pod]:
        return iter(tuple(self._pods.values()))

    def get(self, key: str) -> Pod | None:
        """Return the pod of a key."""
        return self._pods.get(key)

    def put(self, pod: Pod) -> None:
        """Put a pod in place of the one of the same key."""
        self.take(self._key(pod))
        self._pods[self._key(pod)] = pod
        for groups, name in self._groups_of(pod):
            groups.setdefault(name, {})[self._key(pod)] = pod

    def take(self, key: str) -> Pod | None:
        """Take the pod of a key away and return it."""
        pod = self._pods.pop(key, None)
        if pod is not None:
            for groups, name in self._groups_of(pod):
                del groups[name][key]
                if not groups[name]:
                    del groups[name]
        return pod

    def _groups_of(self, pod: Pod) -> tuple[tuple[dict[str, dict[str, Pod]], str], ...]:
        return (self._by_reservation, reservation_uid(pod)), (self._by_node, pod.spec.node_name)

    def of(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that name a Reservation."""
        return tuple(self._by_reservation.get(uid, {}).values())

    def on(self, node: str) -> tuple[Pod, ...]:
        """Return the pods on a node."""
        return tuple(self._by_node.get(node, {}).values())

    def named(self) -> set[str]:
        """Return the uids of the Reservations that are named."""
        return set(self._by_reservation)
