"""The rule behind `HotNodes`: nodes that use much take no pods, no move brings one there, and cool nodes fill first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import cached_property, partial
from typing import Final

from berth_core import CPU, InputError, Node, Pod, agreeing, count, first_few
from berth_descheduler.capabilities.hot_nodes.measured import MeasuredCluster, NodeUse
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.framework.rules import MOST_OF_BUDGET, Budget, NodeRole, Rule
from berth_descheduler.planner import Thresholds, plain_percentage
from berth_descheduler.planner.settings import WHOLE

HOT_NODES: Final = "HotNodes"

_RANKS: Final = 4
"""Nodes rank by quarters of the way to the threshold: every reading differs a little, and plans should not."""

_LEAST_CPU: Final = 5_000_000
_LEAST_MEMORY: Final = 8 << 20
"""The smallest steps to which use is rounded up: the planner groups equal pods, so each different amount slows it."""

_TENTHS: Final = 10
_SHOWN: Final = 5


@dataclass(frozen=True)
class HotNodesRule(Rule):
    """Keeps the use of targets below thresholds; without metrics of a node it says nothing about it."""

    target_usage: Thresholds
    measured: MeasuredCluster | None = None

    def on(self, view: ClusterView, run_began: datetime | None) -> "HotNodesRule":
        del run_began
        resources = tuple(name for name, _ in self.target_usage.percentages)
        return replace(self, measured=MeasuredCluster(view, resources))

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        known = self._nodes.get(node.metadata.name)
        # A hot node may well lose pods; only pods that come would make it hotter.
        if known is None or use is NodeRole.SOURCE:
            return None
        for resource, threshold in self.target_usage.percentages:
            if _nearness(known, resource, threshold) >= 1:
                text = f"{HOT_NODES}: {_percent(known.share(resource))} of its {resource} is in use, "
                text += f"not below {resource}: {plain_percentage(threshold)} of targetUsage"
                return Refusal(RefusalReason.REFUSED_BY_PLUGIN, text, resource=resource)
        return None

    def budgets(self) -> Iterator[Budget]:
        measured = self.measured
        if measured is None or not measured.nodes:
            return
        arriving_pods = {name: tuple(measured.arriving(name, known)) for name, known in measured.nodes.items()}
        for resource, threshold in self.target_usage.percentages:
            text = f"{HOT_NODES}: with the pod's own {resource} the node would use more than "
            text += f"{resource}: {plain_percentage(threshold)} of targetUsage"
            demand = partial(_demand, measured, resource)
            yield Budget(
                name=f"{resource} in use",
                refusal=Refusal(RefusalReason.REFUSED_BY_PLUGIN, text, resource=resource),
                left={
                    # A pod that arrived after the scrape is missing in the reading. Without it, each run within a
                    # scrape interval would send the next pods to the same cool node.
                    name: _left(known, resource, threshold, sum(demand(pod) or 0 for pod in arriving_pods[name]))
                    for name, known in measured.nodes.items()
                },
                demand=demand,
            )

    def target_rank(self, node: Node) -> int:
        if not self._nodes:
            return 0
        known = self._nodes.get(node.metadata.name)
        if known is None:
            return _RANKS - 1  # without metrics it is not known to be cool
        nearest = max(_nearness(known, resource, threshold) for resource, threshold in self.target_usage.percentages)
        return min(_RANKS - 1, int(nearest * _RANKS))

    def notes(self) -> Iterator[str]:
        if self.measured is None:
            return
        hot = [node.metadata.name for node in self.measured.view.snapshot.nodes if self._is_hot(node)]
        if hot:
            nodes = len(self.measured.view.snapshot.nodes)
            shares = [f"{name} ({self._shares(self._nodes[name])})" for name in hot]
            take = agreeing(len(hot), "take")
            text = f"{len(hot)} of {count(nodes, 'node')} {take} no pods, not being below targetUsage"
            yield f"{HOT_NODES}: {text}: {first_few(shares, _SHOWN)}"
        yield from (f"{HOT_NODES}: {sentence}" for sentence in self.measured.unknown())

    @cached_property
    def _nodes(self) -> Mapping[str, NodeUse]:
        return {} if self.measured is None else self.measured.nodes

    def _is_hot(self, node: Node) -> bool:
        return self.node_refusal(node, NodeRole.TARGET) is not None

    def _shares(self, known: NodeUse) -> str:
        return ", ".join(f"{name} {_percent(known.share(name))}" for name, _ in self.target_usage.percentages)


def _nearness(known: NodeUse, resource: str, threshold: Fraction) -> Fraction:
    """Return a node's use as a part of its threshold: from 1 on the node is hot."""
    return known.share(resource) * WHOLE / threshold


def _left(known: NodeUse, resource: str, threshold: Fraction, arriving: int) -> int:
    """Return the use that a node may still take on, beside pods that its reading does not include yet."""
    left = int(known.allocatable[resource] * threshold / WHOLE) - known.use[resource] - arriving
    # The planner adds these of all nodes in 64 bits, whatever a reading or a threshold makes of them.
    return max(-MOST_OF_BUDGET, min(MOST_OF_BUDGET, left))


def _demand(measured: MeasuredCluster, resource: str, pod: Pod) -> int | None:
    try:
        amount = measured.use_of(pod)[resource]
    except InputError:
        return None  # unreadable requests: the pod stays anyway
    return min(MOST_OF_BUDGET, coarse_cpu(amount) if resource == CPU else coarse_memory(amount))


def coarse_cpu(nanos: int) -> int:
    """Round up to tenths, quarters or halves of the leading decimal digit: 0.12, 0.325 and 0.65 cores as they are."""
    unit = 10 ** max(0, len(str(nanos)) - 1)
    per_digit = 10 if nanos <= 2 * unit else 4 if nanos <= 5 * unit else 2
    return _rounded_up(nanos, max(_LEAST_CPU, unit // per_digit))


def coarse_memory(amount: int) -> int:
    """Round up to eighths of the power of two below: 1Gi, 1152Mi and 1.5Gi as they are."""
    return _rounded_up(amount, max(_LEAST_MEMORY, (1 << max(0, amount.bit_length() - 1)) // 8))


def _rounded_up(amount: int, step: int) -> int:
    return -(-amount // step) * step


def _percent(share: Fraction) -> str:
    """Return a percentage with one decimal at most, rounded down so that none seems to reach a threshold."""
    tenths = int(share * WHOLE * _TENTHS)
    return f"{tenths // _TENTHS} %" if tenths % _TENTHS == 0 else f"{tenths // _TENTHS}.{tenths % _TENTHS} %"
