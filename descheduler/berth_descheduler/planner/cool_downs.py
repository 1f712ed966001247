"""Rules that let nodes and pods rest after moves."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import ClassVar, Final, Self

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
class _CoolDownOfNodes(Rule):
    """Nodes rest for a while after the moves that an annotation records, unless the same run made them."""

    annotation: ClassVar[str]
    """When pods were moved last."""

    argument: ClassVar[str]
    """The setting of the span."""

    moved: ClassVar[str]
    """What was done then, in the words of a refusal."""

    roles: ClassVar[frozenset[NodeRole]]
    """What a node that rests is not."""

    span: timedelta
    """0: it does not rest."""

    _now: datetime | None = None
    _run_began: datetime | None = None

    def on(self, view: ClusterView, run_began: datetime | None) -> Self:
        return replace(self, _now=view.now, _run_began=run_began)

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        moved_at_text = node.metadata.annotations.get(self.annotation)
        if use not in self.roles or self._now is None or moved_at_text is None or self.span <= _NO_TIME:
            return None
        try:
            moved_at = parse_timestamp(moved_at_text)
        except InputError:
            return Refusal(RefusalReason.COOLING_DOWN, f"{self.annotation} is {moved_at_text!r}, which is no time")
        is_over = self._now - moved_at >= self.span  # this way round no time is too late to be added to
        # Plans of one run together may take further pods off a node that its first plan began to empty.
        is_own = self._run_began is not None and moved_at >= self._run_began
        return None if is_over or is_own else Refusal(RefusalReason.COOLING_DOWN, f"{self.moved} at {moved_at_text}")

    def limits(self, snapshot: Snapshot) -> Iterator[RuleLimit]:
        if self.span and any(self.annotation in node.metadata.annotations for node in snapshot.nodes):
            yield RuleLimit(self.argument, f"without {self.argument}: {format_duration(self.span)}")


class SourceCoolDown(_CoolDownOfNodes):
    """A node that pods were moved off is no source for a while."""

    __slots__ = ()
    annotation = LAST_DEFRAGMENTED_ANNOTATION
    argument = "coolDownTime"
    moved = "pods were moved off the node"
    roles = frozenset({NodeRole.SOURCE})


class NodeCoolDown(_CoolDownOfNodes):
    """A node that pods were moved off or onto neither gives nor takes pods for a while."""

    __slots__ = ()
    annotation = LAST_MOVED_ANNOTATION
    argument = "nodeCoolDown"
    moved = "pods were moved off the node or onto it"
    roles = frozenset(NodeRole)


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
