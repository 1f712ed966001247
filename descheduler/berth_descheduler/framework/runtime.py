"""The plugins of one plan, and how they are asked.

One that fails keeps pods where they are. What plugins of others say is foreign: a filter that raises, or says something
that is no reason, refuses the pod; a deschedule plugin that does ends the planning with an error that names it. Nothing
goes on with half an answer. Raised as they are: errors to retry (`RetryableError`: the cluster could not be read) and
wrong arguments (`InputError`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from berth_core import InputError, LabelSelector, PermanentError, Pod, RetryableError
from berth_descheduler.framework.interfaces import (
    BalancePlugin,
    Candidate,
    ClusterView,
    DeschedulePlugin,
    FilterPlugin,
    Objection,
    PodFilter,
    PreEvictionFilterPlugin,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason

P = TypeVar("P", covariant=True)  # noqa: PLC0105 - one letter says enough

Refusing = Callable[[Pod], tuple[Refusal, ...]]
"""Returns all reasons why a pod may not be moved; raises nothing but `RetryableError`."""


class PluginError(PermanentError):
    """A plugin did not do what it has to."""


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

    def refusing(self, view: ClusterView) -> Refusing:
        """Return what asks all filters about a pod.

        Raises `InputError` where their arguments do not fit the cluster.
        """
        return _all_of([(one.name, _made(one.name, one.plugin.filter, view)) for one in self.filters])

    def refusing_eviction(self, view: ClusterView) -> Refusing:
        """Return what asks all pre-eviction filters; raises `InputError` as `refusing` does."""
        filters = self.pre_eviction_filters
        return _all_of([(one.name, _made(one.name, one.plugin.pre_eviction_filter, view)) for one in filters])

    def candidates(self, view: ClusterView) -> tuple[Enabled[Candidate], ...]:
        """Return the pods that deschedule plugins name, each once.

        Each comes with its plugin. Raises `PluginError`.
        """
        found: dict[tuple[str, str], Enabled[Candidate]] = {}
        for one in self.deschedule:
            for candidate in _named_by(one, view):
                found.setdefault((candidate.namespace, candidate.name), Enabled(one.name, candidate))
        return tuple(found.values())


def _made(name: str, make: Callable[[ClusterView], PodFilter], view: ClusterView) -> PodFilter:
    """Return a filter; one that cannot be made refuses every pod."""
    try:
        return make(view)
    except (InputError, RetryableError):
        raise
    except Exception as error:  # noqa: BLE001 - code of others
        failed = _failed(name, error)
        return lambda _: (failed,)


def _all_of(filters: list[tuple[str, PodFilter]]) -> Refusing:
    def refusals(pod: Pod) -> tuple[Refusal, ...]:
        """Return what the filters say, in their order.

        That is mostly nothing, of very many pods.
        """
        found: tuple[Refusal, ...] = ()
        for name, ask in filters:
            try:
                if said := ask(pod):
                    found = (*found, *[_typed(name, objection) for objection in said])
            except RetryableError:
                raise
            except Exception as error:  # noqa: BLE001 - code of others
                found = (*found, _failed(name, error))
        return found

    return refusals


def _typed(name: str, objection: Objection) -> Refusal:
    if isinstance(objection, Refusal):
        return objection
    if not isinstance(objection, str):
        raise TypeError(f"a reason is a sentence or a Refusal, not {type(objection).__name__}")
    return Refusal(RefusalReason.REFUSED_BY_PLUGIN, f"{name}: {objection}")


def _failed(name: str, error: Exception) -> Refusal:
    return Refusal(RefusalReason.PLUGIN_FAILED, f"the plugin {name} failed: {type(error).__name__}: {error}")


def _named_by(one: Enabled[DeschedulePlugin], view: ClusterView) -> tuple[Candidate, ...]:
    try:
        found = tuple(one.plugin.deschedule(view))
    except InputError:
        raise
    except Exception as error:
        raise PluginError(f"the plugin {one.name} failed: {type(error).__name__}: {error}") from error
    for candidate in found:
        if not isinstance(candidate, Candidate):
            raise PluginError(f"the plugin {one.name} named a {type(candidate).__name__}, not a Candidate")
    return found
