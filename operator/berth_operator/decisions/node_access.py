"""Owns whether a node would let a pod in: whether it is ready, not cordoned, and has no taint that the pod minds.

It does not own the room on a node (`decisions.surveys`), nor what a closed node means for a slot
(`decisions.slots`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from berth_core.labels import HANDOVER_TAINT
from berth_core.objects import NodeSpec, Taint, Toleration
from berth_core.selectors import tolerates, untolerated_taint

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The scheduler takes a cordoned node as one with this taint, whether or not it has come on already."""


class NodeSign(msgspec.Struct, frozen=True):
    """The part of a node's condition that says how it is."""

    type: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """What decides whom a node lets in, without our own guard, which those are let through that it is for."""

    is_ready: bool = True
    is_cordoned: bool = False
    taints: tuple[Taint, ...] = ()

    @classmethod
    def of(cls, spec: NodeSpec, signs: Iterable[NodeSign]) -> "NodeAccess":
        """Return what a node's spec and conditions say; one that says nothing of itself yet is not taken for closed."""
        return cls(
            is_ready=all(sign.status == "True" for sign in signs if sign.type == "Ready"),
            is_cordoned=spec.unschedulable,
            taints=tuple(taint for taint in spec.taints if taint.key != HANDOVER_TAINT),
        )

    def why_closed(self, tolerations: tuple[Toleration, ...]) -> str:
        """Return why a pod with some tolerations would not get in or not start, "" where it would."""
        if not self.is_ready:
            return "is not ready"
        if self.is_cordoned and not tolerates(tolerations, _CORDON):
            return "is cordoned"
        taint = untolerated_taint(tolerations, self.taints)
        if taint is None:
            return ""
        return f"has the taint {taint.key}{f'={taint.value}' if taint.value else ''}:{taint.effect}"
