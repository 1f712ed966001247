"""The rule of every plan on nodes that autoscalers and clouds keep, take, have not finished or wish empty."""

from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from berth_core import Node, Pod, Snapshot, Taint, tolerates
from berth_core.selectors import ending_taint
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.framework.rules import NodeRole, Rule
from berth_descheduler.planner.autoscalers.marks import (
    ANNOTATIONS_OF_NODES,
    CONDITIONS,
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    KARPENTER_DISRUPTED,
    KARPENTER_INITIALIZED,
    KARPENTER_POOLS,
    LABELS,
    NODE_GROUPS,
    TAINTS,
    YES,
    AutoscalerMark,
    Meaning,
)
from berth_descheduler.planner.autoscalers.pods import describe_protection
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets, disruptions_allowed

_LAST: Final = 1 << 10
"""Above what the ranks of other rules add up to: such a node takes pods when no other does."""

_SOFT: Final = "PreferNoSchedule"
_ENDING: Final = "NoExecute"
_DISRUPTED: Final = Taint(key=KARPENTER_DISRUPTED, effect="NoSchedule")

_REASONS: Final[Mapping[Meaning, RefusalReason]] = {
    Meaning.LEAVING: RefusalReason.NODE_LEAVING,
    Meaning.UNFINISHED: RefusalReason.NODE_NOT_INITIALIZED,
    Meaning.ONE_POD: RefusalReason.NODE_OF_ONE_POD,
    Meaning.CLOSED: RefusalReason.UNTOLERATED_TAINT,
}
"""Why a node takes no pods; the other meanings leave it open."""

_WORDS: Final[Mapping[Meaning, str]] = {
    Meaning.LEAVING: "is being removed or about to end its pods",
    Meaning.UNFINISHED: "is not initialized yet",
    Meaning.ONE_POD: "stands for a service that makes a machine for each pod",
    Meaning.CLOSED: "should run no pods for now",
}


@dataclass(frozen=True, slots=True)
class MarksOnNodes(Rule):
    """Closes nodes that go or are not finished, counts no gain where nodes stay, and fills the unwanted ones last."""

    kept_by_pods: Mapping[str, Refusal] = field(default_factory=dict)
    """By name the nodes that an autoscaler keeps for the sake of a pod that belongs to them."""

    tolerated: AbstractSet[Taint] = frozenset()
    """The taints that end pods, and that pods which might move tolerate for ever."""

    def on(self, view: ClusterView, run_began: datetime | None) -> "MarksOnNodes":
        del run_began
        snapshot = view.snapshot
        kept_by_pods = {pod.spec.node_name: refusal for pod, refusal in _keeping_pods(snapshot, view.now)}
        return replace(self, kept_by_pods=kept_by_pods, tolerated=_tolerated_for_ever(snapshot))

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        return closing_refusal(node) if use is NodeRole.TARGET else None

    def gain_refusal(self, node: Node) -> Refusal | None:
        closing = closing_refusal(node)
        if closing is not None and closing.reason is not RefusalReason.UNTOLERATED_TAINT:
            return Refusal(RefusalReason.BRINGS_NOTHING, closing.message, constraint=closing.reason)
        annotations = node.metadata.annotations
        for mark in ANNOTATIONS_OF_NODES if annotations else ():
            if annotations.get(mark.key) == mark.value:
                text = f"the node's annotation {mark.key} is {mark.value}, so it is kept even without pods"
                return Refusal(RefusalReason.BRINGS_NOTHING, text)
        return self.kept_by_pods.get(node.metadata.name)

    def target_rank(self, node: Node) -> int:
        has_soft_taint = any(
            (mark := _mark_of(taint)) is not None and (mark.meaning is Meaning.SOFT or taint.effect == _SOFT)
            for taint in node.taints
        )
        is_unwanted = (
            has_soft_taint
            or any(taint in self.tolerated for taint in node.taints)
            or any(node.condition(mark.key) == mark.value for mark in CONDITIONS)
        )
        return _LAST if is_unwanted else 0


def closing_refusal(node: Node) -> Refusal | None:
    """Return why a node takes no pods, whatever they tolerate."""
    if node.metadata.deletion_timestamp is not None:
        return Refusal(RefusalReason.NODE_LEAVING, "the node is being deleted")
    for taint in node.taints:
        mark = _mark_of(taint)
        if mark is not None and mark.meaning in _REASONS and taint.effect != _SOFT:
            text = f"the node carries the taint {taint.key}: it {_WORDS[mark.meaning]}"
            return Refusal(_REASONS[mark.meaning], text)
    labels = node.metadata.labels
    if labels.get(KARPENTER_INITIALIZED) != YES and any(key in labels for key in KARPENTER_POOLS):
        text = f"the node lacks the label {KARPENTER_INITIALIZED}: Karpenter has not finished it"
        return Refusal(RefusalReason.NODE_NOT_INITIALIZED, text)
    for mark in LABELS:
        if labels.get(mark.key) == mark.value:
            text = f"the node's label {mark.key} is {mark.value}: it {_WORDS[mark.meaning]}"
            return Refusal(_REASONS[mark.meaning], text)
    return None


def _mark_of(taint: Taint) -> AutoscalerMark | None:
    """Return what a taint means to its owner, None for one of others."""
    exact = _TAINTS_BY_KEY.get(taint.key)
    if exact is not None:
        return exact if exact.value in {None, taint.value} else None
    return next((mark for mark in _PREFIXES if taint.key.startswith(mark.key)), None)


_TAINTS_BY_KEY: Final = {mark.key: mark for mark in TAINTS if not mark.key.endswith("/")}
_PREFIXES: Final = tuple(mark for mark in TAINTS if mark.key.endswith("/"))


def _tolerated_for_ever(snapshot: Snapshot) -> frozenset[Taint]:
    """Return the taints that end pods and that some pod which is not bound to its node tolerates for ever."""
    ending_taints = {taint for node in snapshot.nodes for taint in node.taints if taint.effect == _ENDING}
    if not ending_taints:
        return frozenset()
    tolerations = {pod.spec.tolerations for pod in snapshot.pods if pod.spec.tolerations and pod.occupies_node}
    return frozenset(
        taint
        for taint in ending_taints
        if not all(ending_taint(pod_tolerations, (taint,)) for pod_tolerations in tolerations)
    )


def _keeping_pods(snapshot: Snapshot, now: datetime | None) -> Iterator[tuple[Pod, Refusal]]:
    """Yield pods that belong to their nodes and for which an autoscaler keeps these.

    Karpenter asks its annotation of every pod that runs, those of DaemonSets and mirror pods among them, and budgets of
    the pods that it would evict. The cluster autoscaler asks neither of such pods.
    """
    # Only where two budgets may meet, or one allows nothing, can a budget hold a pod: elsewhere no selector is
    # compared.
    in_namespace = Counter(budget.metadata.namespace for budget in snapshot.disruption_budgets)
    namespaces = {name for name, budgets_there in in_namespace.items() if budgets_there > 1}
    namespaces |= {
        budget.metadata.namespace for budget in snapshot.disruption_budgets if not disruptions_allowed(budget)
    }
    budgets = DisruptionBudgets(snapshot.disruption_budgets if namespaces else (), snapshot.pods)
    of_groups = {node.metadata.name for node in snapshot.nodes if _belongs_to_group(node)} if namespaces else set()
    for pod in snapshot.pods:  # nearly all of them are passed over by the first line
        is_marked = DO_NOT_DISRUPT in pod.metadata.annotations or DO_NOT_EVICT in pod.metadata.annotations
        if not (is_marked or pod.metadata.namespace in namespaces) or not pod.spec.node_name:
            continue
        if not pod.belongs_to_node or pod.is_terminal or pod.is_terminating:
            continue
        if protection := describe_protection(pod, now):
            text = f"Karpenter keeps the node for pod {pod.key}, whose {protection}"
        elif pod.spec.node_name not in of_groups and (why := _why_not_evicted(pod, budgets)):
            text = f"Karpenter keeps the node for pod {pod.key}, which belongs to it: {why}"
        else:
            continue
        yield pod, Refusal(RefusalReason.BRINGS_NOTHING, text, blocking_pod=pod.key)


def _belongs_to_group(node: Node) -> bool:
    """Return whether the cluster autoscaler scales the node's group, and not Karpenter."""
    labels = node.metadata.labels
    return any(key in labels for key in NODE_GROUPS) and not any(key in labels for key in KARPENTER_POOLS)


def _why_not_evicted(pod: Pod, budgets: DisruptionBudgets) -> str:
    """Return which budget keeps Karpenter from evicting a pod, "" if none does."""
    # Karpenter evicts neither mirror pods nor pods that tolerate its taint (pkg/utils/pod/scheduling.go), so it does
    # not ask their budgets.
    if pod.is_mirror or tolerates(pod.spec.tolerations, _DISRUPTED):
        return ""
    refusal = budgets.refusal(pod)
    return refusal.message if refusal is not None else ""
