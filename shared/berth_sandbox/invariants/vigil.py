"""Owns the patience of the check: only what is seen in every look for its bound is a breach.

It does not own what is looked for.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from berth_core.clock import Clock
from berth_sandbox.invariants.violations import BOUND_SECONDS, Invariant, Violation

_PAUSE_SECONDS: Final = 0.5


class Vigil:
    """Remembers since when each suspect has been seen without a break."""

    def __init__(self, bounds: Mapping[Invariant, float] = BOUND_SECONDS) -> None:
        self._bounds = bounds
        self._since: dict[Violation, float] = {}
        self._last_look = 0.0

    def look(self, found: Iterable[Violation], at: float) -> None:
        """Take in what a look at a monotonic time found; what it did not find is no suspect any more."""
        self._since = {violation: self._since.get(violation, at) for violation in found}
        self._last_look = at

    def breaches(self) -> tuple[Violation, ...]:
        """Return what has stood for its bound, in a fixed order."""
        return tuple(sorted(violation for violation in self._since if self._left(violation) <= 0))

    def suspects(self) -> tuple[Violation, ...]:
        """Return what was seen in the last look and may still pass."""
        return tuple(sorted(violation for violation in self._since if self._left(violation) > 0))

    def seconds_left(self) -> float:
        """Return after how long every suspect of the last look will be decided; 0 where there is none."""
        return max((self._left(violation) for violation in self._since), default=0.0)

    def _left(self, violation: Violation) -> float:
        return max(0.0, self._bounds[violation.invariant] - (self._last_look - self._since[violation]))


def keep_watch(
    look: Callable[[], Iterable[Violation]],
    clock: Clock,
    *,
    bounds: Mapping[Invariant, float] = BOUND_SECONDS,
    tell: Callable[[Vigil], None] = lambda _: None,
) -> tuple[Violation, ...]:
    """Look until nothing is in doubt and return the breaches; `tell` hears after each look.

    Between two looks it rests for as long as the last one took, half a second at least. Ends after twice the longest
    bound even if new suspects come and go: a cluster at work always has some.
    """
    vigil = Vigil(bounds)
    end = clock.monotonic() + 2 * max(bounds.values())
    while True:
        at = clock.monotonic()
        vigil.look(look(), at)
        tell(vigil)
        left = vigil.seconds_left()
        if left <= 0 or at >= end:
            return vigil.breaches()
        took = clock.monotonic() - at
        clock.sleep(min(max(_PAUSE_SECONDS, took), left))
