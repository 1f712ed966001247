"""Holds plans that the planner did not make under a policy's limits to them: made by hand, or before a change of it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias, assert_never

from berth_core import MoveReason, PlannedMove, count
from berth_descheduler.planner import PlannerSettings


class PlanLimit(Enum):
    """What a policy limits."""

    MOVES = MoveReason.MOVE_LIMIT
    NODE = MoveReason.NODE_LIMIT
    NAMESPACE = MoveReason.NAMESPACE_LIMIT
    WAVE = MoveReason.WAVE_LIMIT
    CONTROLLER = MoveReason.CONTROLLER_LIMIT

    def describe(self, subject: str) -> str:
        """Return which moves are limited, for a sentence."""
        match self:
            case PlanLimit.MOVES:
                return "in all"
            case PlanLimit.NODE:
                return f"off node {subject}"
            case PlanLimit.NAMESPACE:
                return f"of namespace {subject}"
            case PlanLimit.WAVE:
                return f"in wave {subject}"
            case PlanLimit.CONTROLLER:
                return f"in wave {subject} of one controller"
            case _:
                assert_never(self)


Limited: TypeAlias = tuple[PlanLimit, str]
"""What is limited, and of which node, namespace, wave, or controller in a wave."""


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
        wanted_counts = Counter(limited for move, controller in moves for limited in _limited(move, controller))
        for (limit, subject), wanted_moves in wanted_counts.items():
            allowed_moves = self._allowed(limit)
            if allowed_moves is not None and self._counts[limit, subject] + wanted_moves > allowed_moves:
                text = limit.describe(subject.partition("/")[0])
                return OverLimit(
                    limit.value, f"the policy allows {count(allowed_moves, 'move')} {text}, and others come first"
                )
        self._counts.update(wanted_counts)
        return None

    def count_begun(self, moves: Iterable[tuple[PlannedMove, str]]) -> None:
        """Count moves that have begun, whatever the limits say."""
        for move, controller in moves:
            self._counts.update(_limited(move, controller))

    def count_earlier(self, moves: Iterable[PlannedMove]) -> None:
        """Count moves of earlier plans of the same run, whose waves are over."""
        for move in moves:
            self._counts.update([(PlanLimit.NODE, move.source), (PlanLimit.NAMESPACE, move.namespace)])

    def _allowed(self, limit: PlanLimit) -> int | None:
        limits = self.settings.limits
        match limit:
            case PlanLimit.MOVES:
                return limits.max_moves
            case PlanLimit.NODE:
                return limits.max_moves_per_node
            case PlanLimit.NAMESPACE:
                return limits.max_moves_per_namespace
            case PlanLimit.WAVE:
                return limits.waves.per_wave
            case PlanLimit.CONTROLLER:
                return limits.waves.per_controller
            case _:
                assert_never(limit)


def _limited(move: PlannedMove, controller: str) -> Iterator[Limited]:
    """Yield the limits that a move counts for."""
    yield PlanLimit.MOVES, ""
    yield PlanLimit.NODE, move.source
    yield PlanLimit.NAMESPACE, move.namespace
    yield PlanLimit.WAVE, str(move.wave)
    if controller:
        yield PlanLimit.CONTROLLER, f"{move.wave}/{controller}"
