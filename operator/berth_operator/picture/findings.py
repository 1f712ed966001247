"""Owns what this process found out by asking around: what is on a node, which pods wait for a slot.

It is not thread-safe by itself (`picture.cache` guards it), and nothing is lost with it: all can be asked again.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from berth_core.objects import Pod
from berth_operator.decisions.surveys import Survey

_SURVEY_SECONDS: Final = 60.0
"""After this long a survey says nothing any more."""

_SEARCH_SECONDS: Final = 10.0
"""How long a search for waiting owners counts; whoever came to wait since then is found by the next."""

_FOUND_SECONDS: Final = 2.0
"""How long pods that were found waiting are taken to wait still."""


@dataclass(slots=True)
class Findings:
    """What was found out, by Reservation and by node; times are monotonic seconds."""

    _searched_at: dict[str, float] = field(default_factory=dict)
    _waiting: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    _surveys: dict[str, tuple[float, Survey]] = field(default_factory=dict)

    def put_waiting(self, uid: str, pods: Iterable[Pod]) -> None:
        """Keep which pods were found waiting for a slot just now."""
        self._waiting[uid], self._searched_at[uid] = tuple(pods), time.monotonic()

    def search_again(self, uid: str) -> None:
        """Have waiting pods searched for anew."""
        self._searched_at.pop(uid, None)
        self._waiting.pop(uid, None)

    def waiting(self, uid: str) -> tuple[Pod, ...]:
        """Return the pods that were found waiting a moment ago."""
        return self._waiting.get(uid, ()) if self._searched_within(uid, _FOUND_SECONDS) else ()

    def searched(self, uid: str) -> bool:
        """Tell whether waiting pods were searched for lately."""
        return self._searched_within(uid, _SEARCH_SECONDS)

    def put_survey(self, node: str, survey: Survey) -> None:
        """Keep what is on a node, and forget what is too old to say anything."""
        now = time.monotonic()
        self._surveys[node] = (now, survey)
        for name in [name for name, (at, _) in self._surveys.items() if at < now - _SURVEY_SECONDS]:
            del self._surveys[name]

    def surveys(self, nodes: Iterable[str]) -> dict[str, Survey]:
        """Return what is known of the pods on some nodes."""
        now = time.monotonic()
        known = ((name, self._surveys[name]) for name in nodes if name in self._surveys)
        return {name: replace(survey, age_seconds=now - at) for name, (at, survey) in known}

    def _searched_within(self, uid: str, seconds: float) -> bool:
        at = self._searched_at.get(uid)
        return at is not None and time.monotonic() - at < seconds
