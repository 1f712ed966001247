"""Rules that plugins hand over: what keeps pods and nodes out of a plan, and what nodes are worth.

A rule only ever narrows what a plan may do, with one exception: it may allow that a pod is evicted without a place.
What it does not answer it leaves to the other rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from typing import Protocol, Self, runtime_checkable

from berth_core import Node, Pod, Snapshot
from berth_descheduler.framework.interfaces import ClusterView, PluginSet
from berth_descheduler.framework.refusals import Refusal


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

    def on(self, view: ClusterView, run_began: datetime | None) -> Self:  # noqa: ARG002 - most rules ask for neither
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


@runtime_checkable
class RulePlugin(Protocol):
    """Hands rules over, wherever a profile enables it."""

    @property
    def rules(self) -> tuple[Rule, ...]: ...


def rules_of(plugins: PluginSet) -> tuple[Rule, ...]:
    """Return the rules that plugins hand over; a plugin that is enabled in several places is asked once."""
    enabled = (plugins.balance, *plugins.filters, *plugins.pre_eviction_filters, *plugins.deschedule)
    by_name = {plugin.name: plugin.plugin for plugin in enabled}
    return tuple(rule for plugin in by_name.values() if isinstance(plugin, RulePlugin) for rule in plugin.rules)
