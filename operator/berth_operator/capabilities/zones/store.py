"""The RevocableZones that the operator knows, and the fences on lent nodes."""

from collections.abc import Callable, Iterable
from typing import Final

from berth_core import RevocableZone, is_lent_fence
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.listed_objects import ListedObjects
from berth_operator.runtime.workqueue import Key, KeyKind

ZONE: Final = "zone"
"""The kind of key whose name is the uid of a zone."""


class ZoneStore(ListedObjects[RevocableZone]):
    """All known zones, and the fences on lent nodes. Thread-safe."""

    def __init__(self, cache: Cache, enqueue: Callable[[Key], None]) -> None:
        super().__init__(ZONE, enqueue)
        self.are_known = False
        """Whether the zones were listed once; until then no fence of a lent node is taken off."""
        self.fences = cache.fenced.keep_fences(is_lent_fence)

    def named(self, name: str) -> RevocableZone | None:
        """Return the zone of a name, None for none."""
        return next((zone for zone in self.all() if zone.metadata.name == name), None)

    def queue_all(self) -> None:
        """Queue every zone: its status counts nodes and pods, which change by themselves."""
        for zone in self.all():
            self._enqueue(Key(ZONE, zone.metadata.uid))

    def queue_nodes(self, names: Iterable[str]) -> None:
        """Queue nodes whose fences are not as they should be."""
        for node_name in names:
            self._enqueue(Key(KeyKind.NODE, node_name))
