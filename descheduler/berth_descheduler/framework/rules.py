"""Rules that plugins hand over: what keeps pods and nodes out of a plan, and what nodes are worth.

A rule only ever narrows what a plan may do, with one exception: it may allow that a pod is evicted without a place.
What it does not answer it leaves to the other rules.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol, TypeVar, runtime_checkable

from berth_core import InputError, Node, Pod, RetryableError, Snapshot
from berth_descheduler.framework.interfaces import ClusterView, PluginSet, failure_of
from berth_descheduler.framework.refusals import Refusal

Answer = TypeVar("Answer")


class NodeRole(Enum):
    """What a plan may do with a node."""

    SOURCE = auto()
    """Move pods off it."""

    TARGET = auto()
    """Move pods to it."""


@dataclass(frozen=True, slots=True)
class RuleLimit:
    """The setting behind a rule that may keep a plan from doing more."""

    field: str
    condition: str
    """What would have to be so, as in "without nodeCoolDown: 1h0m0s"."""


class Rule:
    """One rule on pods and nodes; a rule answers the questions that it is about."""

    @property
    def weighs_nodes(self) -> bool:
        """Return whether it says what nodes cost; a plan then frees the most money, not the most nodes."""
        return False

    def on(self, view: ClusterView, run_began: datetime | None) -> "Rule":  # noqa: ARG002 - most rules ask for neither
        """Return the rule with what it needs to know of a cluster; asked once for each plan.

        What was moved from `run_began` on was moved by the same run. None: there is no earlier plan of it.
        """
        return self

    def pod_refusal(self, pod: Pod) -> Refusal | None:  # noqa: ARG002 - the others answer it
        """Return why a pod may not be moved."""
        return None

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:  # noqa: ARG002 - the others answer it
        """Return why a node may not be used so."""
        return None

    def node_weight(self, node: Node) -> int | None:  # noqa: ARG002 - the others answer it
        """Return what an hour of a node costs, in millionths of whatever currency the prices are in.

        None where it is not known: the node then counts 0.
        """
        return None

    def may_evict(self, pod: Pod) -> bool:  # noqa: ARG002 - the others answer it
        """Return whether a pod may be evicted though no place is held for it."""
        return False

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:  # noqa: ARG002 - the others answer it
        """Yield the setting without which the rule would not keep anything of a cluster from moving."""
        yield from ()


class GuardedRule(Rule):
    """A rule of a plugin, whose failures keep pods where they are, as those of filters do."""

    def __init__(self, name: str, rule: Rule) -> None:
        self._name = name
        self._rule = rule

    @property
    def weighs_nodes(self) -> bool:
        return self._answer(lambda: self._rule.weighs_nodes, bool) is True

    def on(self, view: ClusterView, run_began: datetime | None) -> Rule:
        try:
            return GuardedRule(self._name, self._rule.on(view, run_began))
        except (InputError, RetryableError):
            raise
        except Exception as error:  # noqa: BLE001 - code of others
            return _KeepsAll(failure_of(self._name, error))

    def pod_refusal(self, pod: Pod) -> Refusal | None:
        return self._refusal(lambda: self._rule.pod_refusal(pod))

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        return self._refusal(lambda: self._rule.node_refusal(node, use))

    def node_weight(self, node: Node) -> int | None:
        return self._answer(lambda: self._rule.node_weight(node), int)

    def may_evict(self, pod: Pod) -> bool:
        return self._answer(lambda: self._rule.may_evict(pod), bool) is True

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:
        limits = self._answer(lambda: tuple(self._rule.limits(snapshot)), tuple) or ()
        return (limit for limit in limits if isinstance(limit, RuleLimit))

    def _refusal(self, ask: Callable[[], object]) -> Refusal | None:
        try:
            refusal = ask()
        except RetryableError:
            raise
        except Exception as error:  # noqa: BLE001 - code of others
            return failure_of(self._name, error)
        if refusal is None or isinstance(refusal, Refusal):
            return refusal
        return failure_of(self._name, TypeError(f"a rule refuses with a Refusal, not {type(refusal).__name__}"))

    @staticmethod
    def _answer(ask: Callable[[], object], kind: type[Answer]) -> Answer | None:
        """Return an answer of a kind; what is of another kind, or fails, is none."""
        try:
            answer = ask()
        except RetryableError:
            raise
        except Exception:  # noqa: BLE001 - code of others
            return None
        return answer if type(answer) is kind else None


class _KeepsAll(Rule):
    """Keeps every pod, for the rule that should say which cannot be asked."""

    def __init__(self, refusal: Refusal) -> None:
        self._refusal = refusal

    def pod_refusal(self, pod: Pod) -> Refusal:
        del pod
        return self._refusal


@runtime_checkable
class RulePlugin(Protocol):
    """Hands rules over, wherever a profile enables it."""

    @property
    def rules(self) -> tuple[Rule, ...]: ...


def rules_of(plugins: PluginSet) -> tuple[Rule, ...]:
    """Return the rules that plugins hand over; a plugin that is enabled in several places is asked once."""
    enabled = (plugins.balance, *plugins.filters, *plugins.pre_eviction_filters, *plugins.deschedule)
    by_name = {plugin.name: plugin.plugin for plugin in enabled}
    handing_over = ((name, plugin) for name, plugin in by_name.items() if isinstance(plugin, RulePlugin))
    return tuple(GuardedRule(name, rule) for name, plugin in handing_over for rule in plugin.rules)
