"""The plugin `HotNodes`: plans are made by requests, and must not make nodes with a high actual use worse."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from berth_core import CPU, MEMORY, InputError, refuse_unknown
from berth_core.object_lists import ObjectKind
from berth_descheduler.capabilities.hot_nodes.readings import MEASURED, NODE_METRICS, POD_METRICS
from berth_descheduler.capabilities.hot_nodes.rule import HotNodesRule
from berth_descheduler.framework.interfaces import ClusterView, PodFilter
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner import Thresholds

_FIELD: Final = "targetUsage"
ARGUMENTS: Final[Mapping[str, str]] = {
    _FIELD: "Percentages of allocatable `cpu` and `memory` at which a node takes no pods; `{cpu: 70, memory: 80}`.",
}
"""Each argument with its meaning, as the reference page shows it."""

_DEFAULT: Final[Mapping[str, int]] = {CPU: 70, MEMORY: 80}


@dataclass(frozen=True, slots=True)
class HotNodes:
    """Keeps moves off nodes whose use is at a threshold; it lets every pod go."""

    reads: ClassVar[tuple[ObjectKind, ...]] = (NODE_METRICS, POD_METRICS)

    target_usage: Thresholds = field(default_factory=lambda: Thresholds.of(**_DEFAULT))
    """Percentages of what is allocatable."""

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "HotNodes":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        refuse_unknown("args", args, ARGUMENTS)
        thresholds = Thresholds.parse(_FIELD, args.get(_FIELD, _DEFAULT))
        for resource, percentage in thresholds.percentages:
            if resource not in MEASURED:
                raise InputError(f"{_FIELD}.{resource}", args[_FIELD][resource], "nothing but cpu and memory")
            if not percentage:
                raise InputError(f"{_FIELD}.{resource}", args[_FIELD][resource], "a percentage above 0, up to 100")
        return cls(thresholds)

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rule that keeps targets cool."""
        return (HotNodesRule(self.target_usage),)

    def filter(self, view: ClusterView) -> PodFilter:
        """Return a filter that keeps no pod: the rule is about nodes."""
        del view
        return lambda _: ()
