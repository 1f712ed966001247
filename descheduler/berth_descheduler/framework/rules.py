"""Rules that plugins hand over: what keeps pods and nodes out of a plan, and what nodes are worth.

A rule only ever narrows what a plan may do, with one exception: it may allow that a pod is evicted without a place.
It may wish that some nodes are filled before others. What it does not answer it leaves to the other rules.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum, auto
from typing import Final, Protocol, TypeVar, runtime_checkable

from berth_core import InputError, Node, Pod, RetryableError, Snapshot
from berth_descheduler.framework.enabled_plugins import PluginSet, failure_of
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal

Answer = TypeVar("Answer")


MOST_OF_BUDGET: Final = 1 << 45
"""The largest amount of a budget: sums over all pods and nodes of a cluster stay within 64 bits."""


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


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of which each target has only so much left, counted beside what pods request.

    The pods that a plan brings to a node count together there, and those that leave it give back what they took, as
    with cpu and memory. Every strategy and solver keeps to it, and so does every later look at a plan.
    """

    name: str
    """What the amount is called, as in "it is not known what the pod takes of NAME"."""

    refusal: Refusal
    """Why a node does not take a pod that takes more than is left there."""

    left: Mapping[str, int]
    """By name what each node may take beside the pods that are there now, below 0 where these are too many already.

    A node that is not named takes any number of pods.
    """

    demand: Callable[[Pod], int | None]
    """Returns what a pod takes, at least 0; None where that is not known: the pod then stays.

    Round it up coarsely: pods of one controller with the same demand are planned as one, and each further demand makes
    planning slower. Pods that do not exist yet, for which a plan makes room, are asked about as well.
    """


class Rule:
    """One rule on pods and nodes; a rule answers the questions that it is about."""

    @property
    def weighs_nodes(self) -> bool:
        """Return whether it says what nodes cost; a plan then frees the most money, not the most nodes."""
        return False

    def on(self, view: ClusterView, run_began: datetime | None) -> "Rule":  # noqa: ARG002 - most rules ask for neither
        """Return the rule with what it needs to know of a cluster; asked once for each plan.

        What was moved from `run_began` on was moved by the same run; None where no earlier plan of it is known.
        """
        return self

    def pod_refusal(self, pod: Pod) -> Refusal | None:  # noqa: ARG002 - overridden where it matters
        """Return why a pod may not be moved."""
        return None

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:  # noqa: ARG002 - overridden where it matters
        """Return why a node may not be used so."""
        return None

    def gain_refusal(self, node: Node) -> Refusal | None:  # noqa: ARG002 - overridden where it matters
        """Return why it brings nothing to empty a node, as one that is kept even without pods.

        No plan frees such a node, and none is called worse for it. Pods may leave it for other ends: to make room, or
        because they are named.
        """
        return None

    def node_weight(self, node: Node) -> int | None:  # noqa: ARG002 - overridden where it matters
        """Return what an hour of a node costs, in millionths of whatever currency the prices are in.

        Where that is None, the cost is not known and the node counts 0.
        """
        return None

    def target_rank(self, node: Node) -> int:  # noqa: ARG002 - overridden where it matters
        """Return how late a node is filled: nodes of a lower rank take pods first, and are emptied last.

        A rank is a wish. No plan frees fewer nodes, makes less room or lowers the fragmentation less for it; it may
        make a few more moves, and never more than are allowed. The ranks of several rules are added up. Keep them few:
        two nodes whose ranks differ are never taken for equal.
        """
        return 0

    def budgets(self) -> Iterator[Budget]:
        """Yield amounts of which targets have only so much left.

        This is how a rule refuses one pod on one node, by what the plan has brought there before it.
        """
        yield from ()

    def may_evict(self, pod: Pod) -> bool:  # noqa: ARG002 - overridden where it matters
        """Return whether a pod may be evicted though no place is held for it."""
        return False

    def notes(self) -> Iterator[str]:
        """Yield sentences for the readers of a plan: what the rule made of the cluster, or could not."""
        yield from ()

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:  # noqa: ARG002 - overridden where it matters
        """Yield the setting without which the rule would not keep anything of a cluster from moving."""
        yield from ()


class GuardedRule(Rule):
    """A rule of a plugin, whose failures keep pods where they are, as those of filters do."""

    def __init__(self, name: str, rule: Rule) -> None:
        self._name = name
        self._rule = rule

    @property
    def guarded(self) -> Rule:
        return self._rule

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

    def gain_refusal(self, node: Node) -> Refusal | None:
        return self._refusal(lambda: self._rule.gain_refusal(node))

    def node_weight(self, node: Node) -> int | None:
        return self._answer(lambda: self._rule.node_weight(node), int)

    def target_rank(self, node: Node) -> int:
        return self._answer(lambda: self._rule.target_rank(node), int) or 0

    def budgets(self) -> Iterator[Budget]:
        """Yield the rule's budgets; one that cannot be read closes every node to every pod."""
        try:
            budgets = tuple(self._rule.budgets())
            for budget in budgets:
                _check_budget(budget)
        except RetryableError:
            raise
        except Exception as error:  # noqa: BLE001 - code of others
            yield Budget(self._name, failure_of(self._name, error), {}, lambda _: None)
            return
        yield from (replace(budget, demand=self._checked_demand(budget.demand)) for budget in budgets)

    def may_evict(self, pod: Pod) -> bool:
        return self._answer(lambda: self._rule.may_evict(pod), bool) is True

    def notes(self) -> Iterator[str]:
        notes = self._answer(lambda: tuple(self._rule.notes()), tuple) or ()
        return (note for note in notes if isinstance(note, str))

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:
        limits = self._answer(lambda: tuple(self._rule.limits(snapshot)), tuple) or ()
        return (limit for limit in limits if isinstance(limit, RuleLimit))

    def _checked_demand(self, demand: Callable[[Pod], int | None]) -> Callable[[Pod], int | None]:
        """Return a demand that checks the rule's answer: anything that is no amount counts as unknown."""

        def asked(pod: Pod) -> int | None:
            amount = self._answer(lambda: demand(pod), int)
            return amount if amount is not None and 0 <= amount <= MOST_OF_BUDGET else None

        return asked

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
        """Return the answer if it is of a kind; None for another kind and for a failure."""
        try:
            answer = ask()
        except RetryableError:
            raise
        except Exception:  # noqa: BLE001 - code of others
            return None
        return answer if type(answer) is kind else None


def _check_budget(budget: object) -> None:
    """Raise `TypeError` or `ValueError` for what is no budget."""
    if not isinstance(budget, Budget) or not isinstance(budget.refusal, Refusal):
        raise TypeError(f"budgets are of the type Budget with a Refusal, not {type(budget).__name__}")
    for node, budget_left in budget.left.items():
        if type(budget_left) is not int or abs(budget_left) > MOST_OF_BUDGET:
            raise ValueError(
                f"what {node} has left of {budget.name} is {budget_left!r}, not a whole number up to {MOST_OF_BUDGET}"
            )


def answers(rule: Rule, question: str) -> bool:
    """Return whether a rule overrides a question, by the name of its method; the other rules need not be asked."""
    method = getattr(rule.guarded if isinstance(rule, GuardedRule) else rule, question, None)
    return getattr(method, "__func__", None) is not getattr(Rule, question)


class _KeepsAll(Rule):
    """Keeps every pod, in place of a rule that cannot be asked which pods to keep."""

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
    by_name = {plugin.name: plugin.plugin for plugin in plugins.enabled}
    handing_over = ((plugin_name, plugin) for plugin_name, plugin in by_name.items() if isinstance(plugin, RulePlugin))
    return tuple(GuardedRule(plugin_name, rule) for plugin_name, plugin in handing_over for rule in plugin.rules)
