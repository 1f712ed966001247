"""Owns deciding what happens to which call: nothing, faults drawn from a seed, or one call that is held.

It does not carry the decision out: `proxy` does.
"""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_sandbox.faults.vocabulary import Call, Fault, FaultKind

_LONGEST_HOLD_SECONDS: Final = 60.0

EVERY_FAULT: Final[Mapping[FaultKind, float]] = {
    FaultKind.TOO_MANY: 0.0,
    FaultKind.SERVER_ERROR: 0.0,
    FaultKind.UNAVAILABLE: 0.0,
    FaultKind.CONFLICT: 0.0,
    FaultKind.RESET: 0.0,
    FaultKind.LOST_ANSWER: 0.0,
    FaultKind.STALL: 2.0,
    FaultKind.DELAY: 1.0,
}
"""The faults of ordinary calls, each with the longest time that it takes."""

WATCH_FAULTS: Final[Mapping[FaultKind, float]] = {FaultKind.CUT: 3.0, FaultKind.GONE: 0.0, FaultKind.RESET: 0.0}
"""The faults of watches."""


@dataclass(frozen=True, slots=True)
class NoFaults:
    """Lets everything through."""

    def decide(self, call: Call) -> Fault:  # noqa: ARG002 - the protocol's
        """Return that nothing happens."""
        return Fault()

    def hold(self, call: Call) -> None:
        """Hold nothing."""


class SeededFaults:
    """Draws faults from a seed; which call meets which one depends on the order in which they come in."""

    def __init__(self, seed: int, *, rate: float, watch_rate: float = 0.0) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - it must be the same again
        self._rate = rate
        self._watch_rate = watch_rate
        self._lock = threading.Lock()

    def decide(self, call: Call) -> Fault:
        """Return nothing for most calls, else one of the faults that a call of its kind can meet."""
        kinds, rate = (WATCH_FAULTS, self._watch_rate) if call.is_watch else (EVERY_FAULT, self._rate)
        with self._lock:
            if self._draw.random() >= rate:
                return Fault()
            kind = self._draw.choice(list(kinds))
            if kind is FaultKind.CONFLICT and not call.is_write:
                kind = FaultKind.SERVER_ERROR
            return Fault(kind, kinds[kind] * self._draw.uniform(0.2, 1.0))

    def hold(self, call: Call) -> None:
        """Hold nothing."""


@dataclass(slots=True)
class Hold:
    """One call that is held; `reached` is set when it comes in (or was carried out), `released` lets it go."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class HoldPlan:
    """Holds the first call that is wanted until it is released; a `kind` that holds says what comes of it."""

    def __init__(self, wanted: Callable[[Call], bool], kind: FaultKind) -> None:
        self.held = Hold()
        self._wanted = wanted
        self._kind = kind
        self._lock = threading.Lock()
        self._found = False

    def decide(self, call: Call) -> Fault:
        """Return the hold for the first call that is wanted."""
        with self._lock:
            if self._found or not self._wanted(call):
                return Fault()
            self._found = True
        return Fault(self._kind)

    def hold(self, call: Call) -> None:  # noqa: ARG002 - there is only one
        """Say that the call is here, and wait."""
        self.held.reached.set()
        self.held.released.wait(_LONGEST_HOLD_SECONDS)
