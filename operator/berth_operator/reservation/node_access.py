"""Whether a node admits a pod: it is ready, not cordoned, and the pod tolerates all its taints."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core import HANDOVER_TAINT, NodeSpec, Taint, Toleration, tolerates, untolerated_taint

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The taint of a cordoned node; kube-scheduler's NodeUnschedulable goes by the field, before the taint is there."""


class ConditionStatus(msgspec.Struct, frozen=True):
    """The type and status of a node's condition."""

    type: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """The conditions and taints that decide which pods a node admits, except our guard."""

    is_ready: bool = True
    is_cordoned: bool = False
    taints: tuple[Taint, ...] = ()

    @classmethod
    def of(cls, spec: NodeSpec, conditions: Iterable[ConditionStatus]) -> "NodeAccess":
        """Return the access rules of a node; one without conditions counts as ready."""
        return cls(
            is_ready=all(condition.status == "True" for condition in conditions if condition.type == "Ready"),
            is_cordoned=spec.unschedulable,
            taints=tuple(taint for taint in spec.taints if taint.key != HANDOVER_TAINT),
        )

    def why_closed(self, tolerations: tuple[Toleration, ...]) -> str:
        """Return why a pod could not enter or start, or ""."""
        if not self.is_ready:
            return "is not ready"
        if self.is_cordoned and not tolerates(tolerations, _CORDON):
            return "is cordoned"
        taint = untolerated_taint(tolerations, self.taints)
        if taint is None:
            return ""
        return f"has the taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
