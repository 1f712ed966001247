"""The plugins of one plan, and how they are asked.

A plugin that fails keeps pods where they are: a filter that raises, or answers with something else than a reason,
refuses the pod, and such a deschedule plugin ends the planning with an error that names it. Nothing goes on with half
an answer. Errors to retry (`RetryableError`: the cluster could not be read) and wrong arguments (`InputError`) are
raised as they are.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from berth_core import InputError, LabelSelector, PermanentError, Pod, RetryableError
from berth_core.object_lists import ObjectKind
from berth_descheduler.framework.interfaces import (
    BalancePlugin,
    Candidate,
    ClusterView,
    DeschedulePlugin,
    FilterPlugin,
    Objection,
    PodFilter,
    PreEvictionFilterPlugin,
    reads_of,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason

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
    # An error of the policy or of the API server is no fault of the plugin's code.
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
