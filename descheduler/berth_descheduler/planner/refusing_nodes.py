"""Owns the summary of why many nodes refuse one pod: in words by number, and what most of them have in common.

It does not own the single refusals.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from berth_descheduler.planner.blockers import Blockers
from berth_descheduler.planner.cluster import NodeIndex, PodIndex
from berth_descheduler.refusals import Refusal, RefusalReason


@dataclass(slots=True)
class RefusingNodes:
    """The nodes that refuse a pod, counted by reason."""

    pod: PodIndex
    _counts: Counter[Refusal] = field(default_factory=Counter)
    _first: dict[Refusal, NodeIndex] = field(default_factory=dict)

    def count(self, node: NodeIndex, refusal: Refusal) -> None:
        """Count a node."""
        self._counts[refusal] += 1
        self._first.setdefault(refusal, node)

    def __bool__(self) -> bool:
        """Tell whether there are any."""
        return bool(self._counts)

    def in_words(self) -> str:
        """Return the reasons with their numbers, the most frequent first; "" if no node was counted."""
        texts: Counter[str] = Counter()
        for refusal, number in self._counts.items():
            texts[refusal.message] += number
        ordered = sorted(texts.items(), key=lambda one: (-one[1], one[0]))
        return "; ".join(f"{number} x {text}" for text, number in ordered)

    def summary(self, text: str, blockers: Blockers) -> Refusal:
        """Return in one refusal that no node takes the pod, with the most frequent reason as its constraint."""
        if not self._counts:
            return Refusal(RefusalReason.NO_TARGET, text)
        kinds: Counter[tuple[RefusalReason, str]] = Counter()
        for refusal, number in self._counts.items():
            kinds[refusal.reason, refusal.resource] += number
        usual = min(kinds, key=lambda kind: (-kinds[kind], kind))
        example = min(one for one in self._counts if (one.reason, one.resource) == usual)
        named = blockers.name(example, self.pod, self._first[example])
        return replace(named, reason=RefusalReason.NO_TARGET, message=text, constraint=example.reason)
