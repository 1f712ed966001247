"""Watching the invariants: only a violation that every look shows for its whole bound is a breach."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from berth_core import Clock
from berth_sandbox.invariants.violations import BOUND_SECONDS, Invariant, Violation

_PAUSE_SECONDS: Final = 0.5


class InvariantMonitor:
    """Records since when each violation has been seen without a break."""

    def __init__(self, bounds: Mapping[Invariant, float] = BOUND_SECONDS) -> None:
        self._bounds = bounds
        self._since: dict[Violation, float] = {}
        self._last_look = 0.0

    def look(self, violations: Iterable[Violation], at: float) -> None:
        """Record the violations at a monotonic time; all others are no longer suspected."""
        self._since = {violation: self._since.get(violation, at) for violation in violations}
        self._last_look = at

    def breaches(self) -> tuple[Violation, ...]:
        """Return the violations that lasted for their bound, in a fixed order."""
        return tuple(sorted(violation for violation in self._since if self._left(violation) <= 0))

    def suspects(self) -> tuple[Violation, ...]:
        """Return the violations of the last look that may still pass."""
        return tuple(sorted(violation for violation in self._since if self._left(violation) > 0))

    def seconds_left(self) -> float:
        """Return the seconds until every suspect is decided, 0 without any."""
        return max((self._left(violation) for violation in self._since), default=0.0)

    def _left(self, violation: Violation) -> float:
        return max(0.0, self._bounds[violation.invariant] - (self._last_look - self._since[violation]))


def monitor_invariants(
    look: Callable[[], Iterable[Violation]],
    clock: Clock,
    *,
    bounds: Mapping[Invariant, float] = BOUND_SECONDS,
    tell: Callable[[InvariantMonitor], None] = lambda _: None,
) -> tuple[Violation, ...]:
    """Look until nothing is in doubt and return the breaches.

    `tell` gets each look's result. Between two looks it waits for as long as the last one took, but at least half a
    second. Ends after twice the longest bound even if new suspects come and go: a busy cluster always has some.
    """
    monitor = InvariantMonitor(bounds)
    end = clock.monotonic() + 2 * max(bounds.values())
    while True:
        looked_at = clock.monotonic()
        monitor.look(look(), looked_at)
        tell(monitor)
        seconds_left = monitor.seconds_left()
        if seconds_left <= 0 or looked_at >= end:
            return monitor.breaches()
        took = clock.monotonic() - looked_at
        clock.sleep(min(max(_PAUSE_SECONDS, took), seconds_left))
