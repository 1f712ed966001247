"""What plugins offer and what they see.

There is one small protocol per place where a policy enables a plugin. A plugin's class has `parse(args) -> plugin`, a
class method that raises `InputError` naming the argument that is wrong. One plugin may offer several of the protocols.
Plugins decide and say why; they touch nothing: what they name goes through the same planning, reserving and evicting as
everything else.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from berth_core import Deadline, Objective, Pod, Snapshot
from berth_descheduler.framework.refusals import Refusal

StrategyT_co = TypeVar("StrategyT_co", covariant=True)
"""What the planner asks for moves (`Strategy`); it is the planner's own, so that nothing here depends on it."""


class PluginKind(StrEnum):
    """Where a profile enables a plugin, in the words of `plugins`."""

    DESCHEDULE = "deschedule"
    BALANCE = "balance"
    FILTER = "filter"
    PRE_EVICTION_FILTER = "preEvictionFilter"


class ClusterView:
    """The cluster at one moment, as plugins see it.

    What is not looked at is not read.
    """

    def __init__(self, read: Callable[[], Snapshot], now: datetime | None) -> None:
        self._read = read
        self.now = now
        """None where a plan counts from no time."""

    @classmethod
    def of(cls, snapshot: Snapshot, now: datetime | None = None) -> "ClusterView":
        """Return the view of a snapshot."""
        return cls(lambda: snapshot, now)

    @cached_property
    def snapshot(self) -> Snapshot:
        """Return all objects that Berth looks at."""
        return self._read()


Objection: TypeAlias = Refusal | str
"""Why a pod may not be moved: a sentence, or a `Refusal` with one of Berth's reasons."""

PodFilter: TypeAlias = Callable[[Pod], Iterable[Objection]]
"""Says everything that speaks against moving a pod; nothing: it may be moved."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A pod that should run on another node."""

    namespace: str
    name: str
    reason: str
    """One sentence for people; the plan carries it."""

    nodes: frozenset[str] | None = None
    """Names of the nodes that would do; None: any other that takes it."""


@runtime_checkable
class DeschedulePlugin(Protocol):
    """Names single pods that should run elsewhere.

    The planner finds where.
    """

    def deschedule(self, view: ClusterView) -> Iterable[Candidate]:
        """Return the pods to move, those most in need first.

        Pods that may not be moved are sorted out afterwards, with reasons.
        """
        ...


@runtime_checkable
class BalancePlugin(Protocol[StrategyT_co]):
    """Chooses moves for the cluster as a whole.

    A profile has one at most.
    """

    def strategy(self, deadline: Deadline) -> StrategyT_co:
        """Return the strategy that proposes the moves.

        Raises `InputError` where it needs what is not installed.
        """
        ...

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        ...


@runtime_checkable
class FilterPlugin(Protocol):
    """Keeps pods where they are.

    It is asked when a plan is made and whenever the plan is looked at again.
    """

    def filter(self, view: ClusterView) -> PodFilter:
        """Return the filter that says why pods may not be moved.

        It is made once per plan.
        """
        ...


@runtime_checkable
class PreEvictionFilterPlugin(Protocol):
    """Keeps a pod right before its eviction.

    Its place elsewhere is held already.
    """

    def pre_eviction_filter(self, view: ClusterView) -> PodFilter:
        """Return the filter that says why pods may not be evicted.

        It is asked about the current pod.
        """
        ...


class PluginType(Protocol):
    """What an entry point of the group `berth.plugins` names: a plugin's class."""

    def parse(self, args: Mapping[str, Any]) -> object:
        """Return the plugin with a policy's `args`.

        Raises `InputError` that names the argument, as `minPodAge`.
        """
        ...
