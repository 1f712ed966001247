"""What plugins offer, and what they see.

There is one small protocol per place where a policy enables a plugin. A plugin's class has `parse(args) -> plugin`, a
class method that raises `InputError` naming the argument that is wrong. One plugin may offer several of the protocols.
Plugins decide and say why; they touch nothing: what they name goes through the same planning, reserving and evicting as
everything else.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from berth_core import DEFAULT_NAMESPACE, Deadline, Objective, Pod, Snapshot
from berth_core.object_lists import ObjectKind, RawObject
from berth_descheduler.framework.refusals import Refusal

StrategyT_co = TypeVar("StrategyT_co", covariant=True)
"""What the planner asks for moves (`Strategy`); it is the planner's own, so that nothing here depends on it."""


class PluginKind(StrEnum):
    """Where a profile enables a plugin, in the words of `plugins`."""

    DESCHEDULE = "deschedule"
    BALANCE = "balance"
    FILTER = "filter"
    PRE_EVICTION_FILTER = "preEvictionFilter"


@dataclass(frozen=True, slots=True)
class FailedMoves:
    """How often in a row the moves of one pod failed, and when the last of them did."""

    times: int
    at: datetime


NO_FAILURES: Final[Mapping[str, FailedMoves]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class PastMove:
    """A pod that a plan has taken off its node."""

    controller_uid: str
    source: str
    at: datetime
    """When the plan was begun."""


class ClusterView:
    """The cluster at one moment, as plugins see it; what no plugin looks at is not read."""

    def __init__(
        self,
        read: Callable[[], Snapshot],
        now: datetime | None,
        own_namespace: str = DEFAULT_NAMESPACE,
        failed: Mapping[str, FailedMoves] = NO_FAILURES,
        of_others: Sequence[PastMove] = (),
    ) -> None:
        self._read = read
        self.now = now
        """None where a plan counts from no time."""
        self.own_namespace = own_namespace
        """Berth's namespace, in which only Berth makes pods."""
        self.failed = failed
        """How the last moves of pods failed that the same policy planned, by the pods' uids."""
        self.of_others = of_others
        """What plans of other policies, and of runs by hand, have moved."""

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        now: datetime | None = None,
        own_namespace: str = DEFAULT_NAMESPACE,
        failed: Mapping[str, FailedMoves] = NO_FAILURES,
        of_others: Sequence[PastMove] = (),
    ) -> "ClusterView":
        return cls(lambda: snapshot, now, own_namespace, failed, of_others)

    @cached_property
    def snapshot(self) -> Snapshot:
        """Return all objects that Berth looks at."""
        return self._read()

    @property
    def read_at(self) -> datetime | None:
        """Return the time from which the age of `objects` counts, None where that is not known.

        It is that of the reading: a file may be looked at long after it was written.
        """
        return self.snapshot.read_at or self.now

    def objects(self, kind: ObjectKind) -> tuple[RawObject, ...] | None:
        """Return the objects of a kind that the plugin's `reads` names, as the API server has them.

        None where the cluster does not serve the kind, or Berth may not list it: that stops no plan.
        """
        return self.snapshot.beside.get(kind.name)


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

    or_evict: bool = False
    """Whether it is evicted where no node takes it.

    Counts for preemptable pods on lent nodes that are closed; every other pod keeps its place.
    """


@runtime_checkable
class DeschedulePlugin(Protocol):
    """Names single pods that should run elsewhere; the planner finds where."""

    def deschedule(self, view: ClusterView) -> Iterable[Candidate]:
        """Return the pods to move, those most in need first.

        Pods that may not be moved are sorted out afterwards, with reasons.
        """
        ...


@runtime_checkable
class BalancePlugin(Protocol[StrategyT_co]):
    """Chooses moves for the cluster as a whole; a profile has at most one."""

    def strategy(self, deadline: Deadline) -> StrategyT_co:
        """Return the strategy that proposes the moves; raises `InputError` if what it needs is not installed."""
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
        """Return the filter that says why pods may not be moved; it is made once per plan."""
        ...


@runtime_checkable
class PreEvictionFilterPlugin(Protocol):
    """Keeps a pod right before its eviction, when its place elsewhere is held already."""

    def pre_eviction_filter(self, view: ClusterView) -> PodFilter:
        """Return the filter that says why pods may not be evicted.

        It is asked about the current pod.
        """
        ...


def reads_of(plugin: object) -> tuple[ObjectKind, ...]:
    """Return the kinds beside those of a snapshot that a plugin or its class reads, as its `reads` says.

    A class whose plugins read more or less by their arguments says in `may_read` what they all read together.
    """
    kinds = getattr(plugin, "may_read" if isinstance(plugin, type) and hasattr(plugin, "may_read") else "reads", ())
    return tuple(kind for kind in kinds if isinstance(kind, ObjectKind)) if isinstance(kinds, tuple) else ()


class PluginType(Protocol):
    """What an entry point of the group `berth.plugins` names: a plugin's class."""

    def parse(self, args: Mapping[str, Any]) -> object:
        """Return the plugin with a policy's `args`; raises `InputError` that names the argument, as `minPodAge`."""
        ...
