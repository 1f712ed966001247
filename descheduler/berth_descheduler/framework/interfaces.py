"""What plugins offer, what they see, and how the enabled ones are asked.

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
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from berth_core import (
    DEFAULT_NAMESPACE,
    Deadline,
    InputError,
    LabelSelector,
    Objective,
    PermanentError,
    Pod,
    RetryableError,
    Snapshot,
)
from berth_core.snapshot import ObjectKind, RawObject
from berth_descheduler.framework.refusals import Refusal, RefusalReason

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
        """Return the view of a snapshot."""
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


# --- enabled plugins -------------------------------------------------------------------------------------------------
# The plugins of one plan, and how they are asked. A plugin that fails keeps pods where they are: a filter that raises,
# or answers with something else than a reason, refuses the pod, and such a deschedule plugin ends the planning with an
# error that names it. Nothing goes on with half an answer. Errors to retry (`RetryableError`: the cluster could not be
# read) and wrong arguments (`InputError`) are raised as they are.

P = TypeVar("P", covariant=True)  # noqa: PLC0105 - one letter says enough

Refusing = Callable[[Pod], tuple[Refusal, ...]]
"""Returns all reasons why a pod may not be moved; raises nothing but `RetryableError`."""


class PluginError(PermanentError):
    """A plugin did not do what its protocol asks."""


@dataclass(frozen=True, slots=True)
class Enabled(Generic[P]):
    """A plugin under the name by which a policy enables it."""

    name: str
    plugin: P


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginSet:
    """The plugins of one plan, each kind in calling order."""

    filters: tuple[Enabled[FilterPlugin], ...]

    pre_eviction_filters: tuple[Enabled[PreEvictionFilterPlugin], ...]

    balance: Enabled[BalancePlugin[Any]]

    deschedule: tuple[Enabled[DeschedulePlugin], ...] = ()

    node_selector: LabelSelector | None = None
    """Only these nodes give and take pods, whatever else the planner's settings select; None: all."""

    @property
    def enabled(self) -> tuple[Enabled[Any], ...]:
        """Return the plugins of all kinds; one that is enabled in several places comes several times."""
        return (self.balance, *self.filters, *self.pre_eviction_filters, *self.deschedule)

    @property
    def reads(self) -> tuple[ObjectKind, ...]:
        """Return the kinds that the plugins read beside those of a snapshot, sorted."""
        return tuple(sorted({kind for enabled_plugin in self.enabled for kind in reads_of(enabled_plugin.plugin)}))

    def refusing(self, view: ClusterView) -> Refusing:
        """Return what asks all filters about a pod; raises `InputError` if their arguments do not fit the cluster."""
        return _all_of(
            [
                (enabled_plugin.name, _made(enabled_plugin.name, enabled_plugin.plugin.filter, view))
                for enabled_plugin in self.filters
            ]
        )

    def refusing_eviction(self, view: ClusterView) -> Refusing:
        """Return what asks all pre-eviction filters; raises `InputError` as `refusing` does."""
        filters = self.pre_eviction_filters
        return _all_of(
            [
                (enabled_plugin.name, _made(enabled_plugin.name, enabled_plugin.plugin.pre_eviction_filter, view))
                for enabled_plugin in filters
            ]
        )

    def candidates(self, view: ClusterView) -> tuple[Enabled[Candidate], ...]:
        """Return the pods that deschedule plugins name, each once and with its plugin; raises `PluginError`."""
        candidates: dict[tuple[str, str], Enabled[Candidate]] = {}
        for enabled_plugin in self.deschedule:
            for candidate in _named_by(enabled_plugin, view):
                candidates.setdefault((candidate.namespace, candidate.name), Enabled(enabled_plugin.name, candidate))
        return tuple(candidates.values())


def _made(name: str, make: Callable[[ClusterView], PodFilter], view: ClusterView) -> PodFilter:
    """Return a filter; one that cannot be made refuses every pod."""
    try:
        return make(view)
    except (InputError, RetryableError):
        raise
    except Exception as error:  # noqa: BLE001 - code of others
        failure = failure_of(name, error)
        return lambda _: (failure,)


def _all_of(filters: list[tuple[str, PodFilter]]) -> Refusing:
    def refusals(pod: Pod) -> tuple[Refusal, ...]:
        """Return what the filters say, in their order; for most pods that is nothing."""
        refusals_of_pod: tuple[Refusal, ...] = ()
        for plugin_name, ask in filters:
            try:
                if objections := ask(pod):
                    refusals_of_pod = (*refusals_of_pod, *[_typed(plugin_name, objection) for objection in objections])
            except RetryableError:
                raise
            except Exception as error:  # noqa: BLE001 - code of others
                refusals_of_pod = (*refusals_of_pod, failure_of(plugin_name, error))
        return refusals_of_pod

    return refusals


def _typed(name: str, objection: Objection) -> Refusal:
    if isinstance(objection, Refusal):
        return objection
    if not isinstance(objection, str):
        raise TypeError(f"a reason is a sentence or a Refusal, not {type(objection).__name__}")
    return Refusal(RefusalReason.REFUSED_BY_PLUGIN, f"{name}: {objection}")


def failure_of(name: str, error: Exception) -> Refusal:
    """Return the refusal of everything that a plugin was asked about when it failed."""
    return Refusal(RefusalReason.PLUGIN_FAILED, f"the plugin {name} failed: {type(error).__name__}: {error}")


def _named_by(enabled: Enabled[DeschedulePlugin], view: ClusterView) -> tuple[Candidate, ...]:
    try:
        candidates = tuple(enabled.plugin.deschedule(view))
    except InputError:
        raise
    except Exception as error:
        raise PluginError(f"the plugin {enabled.name} failed: {type(error).__name__}: {error}") from error
    for candidate in candidates:
        if not isinstance(candidate, Candidate):
            raise PluginError(f"the plugin {enabled.name} named a {type(candidate).__name__}, not a Candidate")
    return candidates
