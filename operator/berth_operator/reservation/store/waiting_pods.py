"""Pods that waited before their Reservation had a slot, as the last search found them."""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from berth_core import Pod

_SEARCH_SECONDS: Final = 10.0
"""How long a search for waiting pods counts; the next one finds newer pods."""

_FOUND_SECONDS: Final = 2.0
"""How long a pod that was found waiting counts as waiting."""


@dataclass(slots=True)
class WaitingPods:
    """Pods that wait for a slot, by uid of their Reservation."""

    _searched_at: dict[str, float] = field(default_factory=dict)
    """In monotonic seconds."""
    _found: dict[str, tuple[Pod, ...]] = field(default_factory=dict)

    def put(self, uid: str, pods: Iterable[Pod]) -> None:
        self._found[uid], self._searched_at[uid] = tuple(pods), time.monotonic()

    def search_again(self, uid: str) -> None:
        """Expire the last search, so that another one is due."""
        self._searched_at.pop(uid, None)
        self._found.pop(uid, None)

    def of(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that waited at a recent search."""
        return self._found.get(uid, ()) if self._searched_within(uid, _FOUND_SECONDS) else ()

    def searched(self, uid: str) -> bool:
        """Return whether a recent search covers the Reservation."""
        return self._searched_within(uid, _SEARCH_SECONDS)

    def _searched_within(self, uid: str, seconds: float) -> bool:
        searched_at = self._searched_at.get(uid)
        return searched_at is not None and time.monotonic() - searched_at < seconds
