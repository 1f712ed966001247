"""Recent surveys of nodes, and recent choices of nodes.

These stores are not thread-safe: `store.cache` locks them.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Final

from berth_operator.reservation.node_choice import NodeChoice
from berth_operator.reservation.surveys import Survey

_SURVEY_SECONDS: Final = 60.0
"""How long a survey is kept."""


@dataclass(slots=True)
class NodeSurveys:
    """Surveys by node, each with its monotonic time."""

    _surveys: dict[str, tuple[float, Survey]] = field(default_factory=dict)

    def put(self, node: str, survey: Survey) -> None:
        """Store a survey, and drop the expired ones."""
        now = time.monotonic()
        self._surveys[node] = (now, survey)
        for node_name in [
            node_name for node_name, (taken_at, _) in self._surveys.items() if taken_at < now - _SURVEY_SECONDS
        ]:
            del self._surveys[node_name]

    def of(self, nodes: Iterable[str]) -> dict[str, Survey]:
        """Return the known surveys of these nodes, by name."""
        now = time.monotonic()
        known_surveys = ((node_name, self._surveys[node_name]) for node_name in nodes if node_name in self._surveys)
        return {
            node_name: replace(survey, age_seconds=now - taken_at) for node_name, (taken_at, survey) in known_surveys
        }


@dataclass(slots=True)
class NodeChoices:
    """The last choice of nodes for each Reservation by uid, with its monotonic time."""

    _choices: dict[str, tuple[float, NodeChoice]] = field(default_factory=dict)

    def put(self, uid: str, choice: NodeChoice) -> None:
        self._choices[uid] = time.monotonic(), choice

    def remove(self, uid: str) -> None:
        self._choices.pop(uid, None)

    def of(self, uid: str) -> NodeChoice | None:
        """Return a choice and its age, None without one."""
        if uid not in self._choices:
            return None
        chosen_at, choice = self._choices[uid]
        return replace(choice, age_seconds=time.monotonic() - chosen_at)

    def all(self) -> dict[str, NodeChoice]:
        return {uid: choice for uid in self._choices if (choice := self.of(uid)) is not None}
