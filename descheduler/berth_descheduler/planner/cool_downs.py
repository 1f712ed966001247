"""Rules that let nodes and pods rest after moves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Self

from berth_core import (
    LAST_DEFRAGMENTED_ANNOTATION,
    LAST_MOVED_ANNOTATION,
    InputError,
    Node,
    Pod,
    Snapshot,
    count,
    format_duration,
    format_timestamp,
    parse_timestamp,
)
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.framework.rules import NodeRole, Rule, RuleLimit
from berth_descheduler.planner.settings import PodName

_NO_TIME: Final = timedelta(0)


@dataclass(frozen=True, slots=True)
class SourceCoolDown(Rule):
    """A node that pods were moved off is no source for a while."""

    span: timedelta
    """0: it is one at once."""

    _now: datetime | None = None
    _run_began: datetime | None = None

    def on(self, view: ClusterView, run_began: datetime | None) -> Self:
        return replace(self, _now=view.now, _run_began=run_began)

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        last = node.metadata.annotations.get(LAST_DEFRAGMENTED_ANNOTATION)
        if use is NodeRole.TARGET or self._now is None or last is None or self.span <= _NO_TIME:
            return None
        try:
            moved_at = parse_timestamp(last)
        except InputError:
            return Refusal(RefusalReason.COOLING_DOWN, f"{LAST_DEFRAGMENTED_ANNOTATION} is {last!r}, which is no time")
        over = self._now - moved_at >= self.span  # this way round no time is too late to be added to
        is_own = self._run_began is not None and moved_at >= self._run_began
        if over or is_own:
            return None
        return Refusal(RefusalReason.COOLING_DOWN, f"pods were moved off the node at {last}")

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:
        if self.span and _is_any_node_marked(snapshot, LAST_DEFRAGMENTED_ANNOTATION):
            yield RuleLimit("coolDownTime", f"without coolDownTime: {format_duration(self.span)}")


@dataclass(frozen=True, slots=True)
class NodeCoolDown(Rule):
    """A node that pods were moved off or onto neither gives nor takes pods for a while."""

    span: timedelta
    """0: it does at once."""

    _now: datetime | None = None
    _run_began: datetime | None = None

    def on(self, view: ClusterView, run_began: datetime | None) -> Self:
        return replace(self, _now=view.now, _run_began=run_began)

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        del use
        last = node.metadata.annotations.get(LAST_MOVED_ANNOTATION)
        if last is None or self._now is None or self.span <= _NO_TIME:
            return None
        try:
            moved_at = parse_timestamp(last)
        except InputError:
            return Refusal(RefusalReason.COOLING_DOWN, f"{LAST_MOVED_ANNOTATION} is {last!r}, which is no time")
        is_own = self._run_began is not None and moved_at >= self._run_began
        if moved_at <= self._now - self.span or is_own:
            return None
        return Refusal(RefusalReason.COOLING_DOWN, f"pods were moved off the node or onto it at {last}")

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:
        if self.span and _is_any_node_marked(snapshot, LAST_MOVED_ANNOTATION):
            yield RuleLimit("nodeCoolDown", f"without nodeCoolDown: {format_duration(self.span)}")


@dataclass(frozen=True, slots=True)
class PodCoolDown(Rule):
    """Pods that plans moved lately stay."""

    moved_at: Mapping[PodName, datetime] = field(default_factory=dict)
    """The pods that rest, and when they were moved."""

    def pod_refusal(self, pod: Pod) -> Refusal | None:
        moved_at = self.moved_at.get((pod.metadata.namespace, pod.metadata.name))
        if moved_at is None:
            return None
        text = f"a plan brought it to its node at {format_timestamp(moved_at)}"
        return Refusal(RefusalReason.POD_COOLING_DOWN, text)

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:
        del snapshot
        if self.moved_at:
            resting = count(len(self.moved_at), "pod")
            yield RuleLimit("podCoolDown", f"without podCoolDown, in which {resting} rest")


def _is_any_node_marked(snapshot: Snapshot, annotation: str) -> bool:
    return any(annotation in node.metadata.annotations for node in snapshot.nodes)
