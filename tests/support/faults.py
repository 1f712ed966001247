"""Faults of calls to the API server, and the plans that choose among them; a `FaultProxy` acts on what they decide."""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came in; `path` without its query."""

    method: str
    path: str
    query: str = ""
    body: bytes = b""

    @property
    def is_watch(self) -> bool:
        """Return whether the answer is a stream of changes."""
        return "watch=" in self.query and "watch=false" not in self.query

    @property
    def is_write(self) -> bool:
        """Return whether the call changes something."""
        return self.method not in {"GET", "HEAD"}

    def __str__(self) -> str:
        return f"{'WATCH' if self.is_watch else self.method} {self.path}"


class FaultKind(StrEnum):
    """What happens to a call."""

    NONE = "none"
    TOO_MANY = "429"
    """The call is refused with Retry-After and not carried out."""
    SERVER_ERROR = "500"
    UNAVAILABLE = "503"
    CONFLICT = "409"
    RESET = "reset"
    """The connection is reset before the call is carried out."""
    LOST_ANSWER = "lost answer"
    """The call is carried out, and the connection is reset instead of an answer."""
    STALL = "stall"
    """The call is neither carried out nor answered for some time, then the connection is reset."""
    DELAY = "delay"
    """The call is carried out some time later."""
    NO_BACKEND = "no backend"
    """The load balancer in front of the API server has no healthy backend for some time.

    It closes the connection of the call, which is not carried out, and until the time is over each connection that it
    accepts, before the TLS handshake has ended.
    """
    CUT = "cut"
    """A watch ends in the middle of its stream after some time."""
    LAG = "lag"
    """A watch brings each change some time late, in order."""
    GONE = "410"
    """A watch learns that its resource version has been compacted."""
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
    """Decides what happens to a call; called from many threads."""

    def decide(self, call: Call) -> Fault:
        """Return what happens to a call."""
        ...

    def hold(self, call: Call) -> None:
        """Wait while a call is held."""
        ...


LONGEST_HOLD_SECONDS: Final = 600.0
"""A held call goes on after this time, whatever the test does."""

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
    """Lets every call through."""

    def decide(self, call: Call) -> Fault:  # noqa: ARG002 - the protocol's
        return Fault()

    def hold(self, call: Call) -> None: ...


class SeededFaults:
    """Draws faults from a seed; which call gets which fault depends on the order of calls."""

    def __init__(self, seed: int, *, rate: float, watch_rate: float = 0.0) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - a seed has to draw the same faults again
        self._rate = rate
        self._watch_rate = watch_rate
        self._lock = threading.Lock()

    def decide(self, call: Call) -> Fault:
        """Return a fault that fits the call's kind, none for most calls."""
        kinds, rate = (WATCH_FAULTS, self._watch_rate) if call.is_watch else (EVERY_FAULT, self._rate)
        with self._lock:
            if self._draw.random() >= rate:
                return Fault()
            kind = self._draw.choice(list(kinds))
            if kind is FaultKind.CONFLICT and not call.is_write:
                kind = FaultKind.SERVER_ERROR
            return Fault(kind, kinds[kind] * self._draw.uniform(0.2, 1.0))

    def hold(self, call: Call) -> None: ...


@dataclass(slots=True)
class Hold:
    """One held call: `reached` is set at its arrival, `released` lets it go on."""

    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)


class HoldPlan:
    """Holds the first matching call until it is released; `kind` says how it ends."""

    def __init__(self, wanted: Callable[[Call], bool], kind: FaultKind) -> None:
        self.held = Hold()
        self._wanted = wanted
        self._kind = kind
        self._lock = threading.Lock()
        self._is_used = False

    def decide(self, call: Call) -> Fault:
        with self._lock:
            if self._is_used or not self._wanted(call):
                return Fault()
            self._is_used = True
        return Fault(self._kind)

    def hold(self, call: Call) -> None:  # noqa: ARG002 - there is only one
        """Report that the call has arrived, and wait."""
        self.held.reached.set()
        self.held.released.wait(LONGEST_HOLD_SECONDS)


class BalancerFaults:
    """Makes the load balancer lose its backends for some seconds at every `calls`-th call that is no watch."""

    def __init__(self, *, calls: int, seconds: float) -> None:
        self._calls, self._seconds = calls, seconds
        self._lock = threading.Lock()
        self._seen = 0

    def decide(self, call: Call) -> Fault:
        if call.is_watch:
            return Fault()
        with self._lock:
            self._seen += 1
            is_chosen = self._seen % self._calls == 0
        return Fault(FaultKind.NO_BACKEND, self._seconds) if is_chosen else Fault()

    def hold(self, call: Call) -> None: ...


class BalancerFaultAt:
    """Makes the load balancer lose its backends for some seconds at the first matching call."""

    def __init__(self, wanted: Callable[[Call], bool], *, seconds: float) -> None:
        self.has_happened = False
        self._wanted = wanted
        self._seconds = seconds
        self._lock = threading.Lock()

    def decide(self, call: Call) -> Fault:
        with self._lock:
            if self.has_happened or not self._wanted(call):
                return Fault()
            self.has_happened = True
        return Fault(FaultKind.NO_BACKEND, self._seconds)

    def hold(self, call: Call) -> None: ...


@dataclass(frozen=True, slots=True)
class LateWatch:
    """Delays every change that watches of a collection, such as `nodes`, bring."""

    plural: str
    seconds: float

    def decide(self, call: Call) -> Fault:
        is_late = call.is_watch and call.path.rpartition("/")[2] == self.plural
        return Fault(FaultKind.LAG, self.seconds) if is_late else Fault()

    def hold(self, call: Call) -> None: ...
