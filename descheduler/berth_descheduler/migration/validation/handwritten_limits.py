"""The limits of a policy for plans that the planner did not make under them.

The planner keeps these limits; a plan made by hand, or before the policy changed, may not.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from berth_core import MoveReason, PlannedMove, count
from berth_descheduler.planner.settings import PlannerSettings

Limited: TypeAlias = tuple[MoveReason, str]
"""What is limited, and of which node, namespace, wave, or controller in a wave."""

_WHAT: Final = {
    MoveReason.MOVE_LIMIT: "in all",
    MoveReason.NODE_LIMIT: "off node {}",
    MoveReason.NAMESPACE_LIMIT: "of namespace {}",
    MoveReason.WAVE_LIMIT: "in wave {}",
    MoveReason.CONTROLLER_LIMIT: "in wave {} of one controller",
}


@dataclass(frozen=True, slots=True)
class OverLimit:
    """The limit that a move would break."""

    reason: MoveReason
    message: str


@dataclass(slots=True)
class MoveLimits:
    """Counts moves as long as they keep the limits."""

    settings: PlannerSettings
    _counts: Counter[Limited] = field(default_factory=Counter)

    def accept(self, moves: Sequence[tuple[PlannedMove, str]]) -> OverLimit | None:
        """Count moves that belong together, or return the limit they break."""
        wanted = Counter(limited for move, controller in moves for limited in _limited(move, controller))
        for (reason, what), number in wanted.items():
            most = self._most(reason)
            if most is not None and self._counts[reason, what] + number > most:
                text = _WHAT[reason].format(what.partition("/")[0])
                return OverLimit(reason, f"the policy allows {count(most, 'move')} {text}, and others come first")
        self._counts.update(wanted)
        return None

    def count_begun(self, moves: Iterable[tuple[PlannedMove, str]]) -> None:
        """Count moves that have begun, whatever the limits say."""
        for move, controller in moves:
            self._counts.update(_limited(move, controller))

    def count_earlier(self, moves: Iterable[PlannedMove]) -> None:
        """Count moves of earlier plans of the same run, whose waves are over."""
        for move in moves:
            self._counts.update([(MoveReason.NODE_LIMIT, move.source), (MoveReason.NAMESPACE_LIMIT, move.namespace)])

    def _most(self, reason: MoveReason) -> int | None:
        settings = self.settings
        return {
            MoveReason.MOVE_LIMIT: settings.limits.max_moves,
            MoveReason.NODE_LIMIT: settings.limits.max_moves_per_node,
            MoveReason.NAMESPACE_LIMIT: settings.limits.max_moves_per_namespace,
            MoveReason.WAVE_LIMIT: settings.limits.waves.per_wave,
            MoveReason.CONTROLLER_LIMIT: settings.limits.waves.per_controller,
        }[reason]


def _limited(move: PlannedMove, controller: str) -> Iterator[Limited]:
    """Yield the limits that a move counts for."""
    yield MoveReason.MOVE_LIMIT, ""
    yield MoveReason.NODE_LIMIT, move.source
    yield MoveReason.NAMESPACE_LIMIT, move.namespace
    yield MoveReason.WAVE_LIMIT, str(move.wave)
    if controller:
        yield MoveReason.CONTROLLER_LIMIT, f"{move.wave}/{controller}"
