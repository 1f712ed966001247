"""Owns the time that a planning may take, as a question that is asked now and then.

It does not read a clock of its own: it is given one. By default there is no limit: a plan depends on its input only.
"""

from dataclasses import dataclass, field
from typing import Protocol

from berth_core.clock import Clock


class Deadline(Protocol):
    """Tells how much time is left."""

    def remaining_seconds(self) -> float | None:
        """Return the seconds that are left, not below 0; None if there is no limit."""
        ...


class NoDeadline:
    """No limit."""

    def remaining_seconds(self) -> None:
        """Return None."""
        return


@dataclass
class ClockDeadline:
    """A limit counted from when it was made."""

    clock: Clock
    seconds: float | None
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin to count."""
        self._started = self.clock.monotonic()

    def remaining_seconds(self) -> float | None:
        """Return the seconds that are left; None if there is no limit."""
        return None if self.seconds is None else max(0.0, self._started + self.seconds - self.clock.monotonic())


def is_over(deadline: Deadline) -> bool:
    """Tell whether the time is used up."""
    left = deadline.remaining_seconds()
    return left is not None and left <= 0
