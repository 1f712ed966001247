"""Owns the words of faults: the call that comes in, what can be done to it, and who decides.

It does nothing to any call: `proxy` does.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came in; `path` without its query."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""

    @property
    def is_watch(self) -> bool:
        """Tell whether the answer is a stream of changes."""
        return "watch=" in self.query and "watch=false" not in self.query

    @property
    def is_write(self) -> bool:
        """Tell whether the call changes something."""
        return self.method not in {"GET", "HEAD"}

    def __str__(self) -> str:
        return f"{'WATCH' if self.is_watch else self.method} {self.path}"


class FaultKind(StrEnum):
    """What happens to a call."""

    NONE = "none"
    TOO_MANY = "429"
    """Turned away with Retry-After, not carried out."""
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    CONFLICT = "409"
    RESET = "reset"
    """The connection is reset before the call is carried out."""
    LOST_ANSWER = "lost answer"
    """The call is carried out, and the connection is reset instead of an answer."""
    STALL = "stall"
    """Nothing is carried out and nothing is said for some time, then the connection is reset."""
    DELAY = "delay"
    """The call is carried out some time later."""
    CUT = "cut"
    """A watch ends in the middle of its stream after some time."""
    GONE = "410"
    """A watch is told that its place in the history is forgotten."""
    PAUSE = "pause"
    """The call waits until it is released and is then carried out."""
    HOLD_BEFORE = "hold before"
    """The call waits and is never carried out."""
    HOLD_AFTER = "hold after"
    """The call is carried out, and never answered."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one call; `seconds` for the kinds that take time."""

    kind: FaultKind = FaultKind.NONE
    seconds: float = 0.0


class FaultPlan(Protocol):
    """Who decides what happens; asked from many threads."""

    def decide(self, call: Call) -> Fault:
        """Return what happens to a call."""
        ...

    def hold(self, call: Call) -> None:
        """Wait for as long as a call is to be held."""
        ...
