"""The loop of all simulations: each takes its turn, what must never be is looked for, and time passes.

There are no threads and no waiting: one clock for all, which only the loop moves, and one API server in memory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random
from typing import Any, Generic, TypeVar

from api_server_in_memory import ApiServerInMemory, Raw
from berth_kube.resources import Resource
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.events import EventRecorder
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.capability import Kernel
from berth_operator.runtime.registry import build_rules
from berth_operator.runtime.workqueue import Key
from berth_operator.settings import OperatorSettings
from builders import FakeClock
from capability_kernels import build_kernel

Turn = Callable[[], object]
RandomEvent = Callable[[Random], object]


@dataclass(eq=False)
class Simulation(ABC):
    """States who takes a turn, and what is wrong; `faults` has each wrong once."""

    clock: FakeClock = field(default_factory=FakeClock)
    faults: list[str] = field(default_factory=list)

    @abstractmethod
    def turns(self, seconds: float) -> Iterator[Turn]:
        """Yield the turns of one step in their order; the clock is advanced between them, where that belongs."""

    def violations(self) -> Iterable[str]:
        """Return what must never be and is so now."""
        return ()

    def step(self, seconds: float) -> None:
        """Let each take its turn, and check after each."""
        for turn in self.turns(seconds):
            turn()
            self.faults += [violation for violation in self.violations() if violation not in self.faults]


class Settling(Simulation):
    """A simulation that comes to rest after whatever has happened."""

    @abstractmethod
    def settle(self) -> None:
        """Take steps until nothing is due."""

    def happen(self, events: Sequence[RandomEvent], *, seed: int, steps: int, rests: int = 1) -> Iterator[int]:
        """Have one of the events happen at each step, and yield the step's number once all have heard and acted."""
        chance = Random(seed)  # noqa: S311 - events, no secrets
        for step in range(steps):
            events[chance.randrange(len(events))](chance)
            for _ in range(rests):
                self.settle()
            yield step


Controller = TypeVar("Controller")


@dataclass(eq=False)
class CapabilitySimulation(Settling, Generic[Controller]):
    """One operator at a time with one capability.

    `restart` puts another operator in its place, which knows only what the API server holds.
    """

    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    nodes: tuple[GuardableNode, ...] = ()
    settings: OperatorSettings = field(default_factory=OperatorSettings)

    @abstractmethod
    def build(self, kernel: Kernel) -> Controller:
        """Return the capability's part of an operator that has just been started."""

    @abstractmethod
    def is_own(self, key: Key) -> bool:
        """Return whether a key is the capability's."""

    def may_act(self) -> bool:
        """Return whether the operator is up and has the lease."""
        return True

    def restart(self) -> None:
        self.due: dict[Key, datetime] = {}
        self.cache = Cache(self.enqueue)
        client = self.api.as_client()
        self.recorder = EventRecorder(client)
        context = Context(client, self.cache, self.settings, self.clock, build_rules(client))
        kernel = build_kernel(context, recorder=self.recorder, leads=self.may_act, enqueue=self.enqueue)
        self.controller = self.build(kernel)
        for node in self.nodes:
            self.cache.put_node(node)

    def enqueue(self, key: Key, seconds: float = 0.0) -> None:
        """Queue a key; the earliest of several times counts."""
        if self.is_own(key):
            moment = self.clock.now() + timedelta(seconds=seconds)
            self.due[key] = min(moment, self.due.get(key, moment))

    def stored(self, resource: Resource) -> list[Raw]:
        return self.api.raw(resource)

    def events(self) -> list[str]:
        """Return the reasons of the events that were recorded since the last call."""
        reasons: list[str] = []
        waiting: Any = self.recorder._waiting
        while not waiting.empty():
            reasons.append(waiting.get_nowait().reason)
        return reasons
