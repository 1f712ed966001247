"""Owns the names of the invariants, how long each may be broken, and what a breach is as a value.

It does not find breaches, nor say to people what to do about them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Invariant(StrEnum):
    """What must be true, named by what is found when it is not."""

    GATE_LEFT = "GateLeft"
    """A pod keeps Berth's scheduling gate though no slot waits for it."""
    LABEL_LEFT = "LabelLeft"
    """A pod keeps the label of a hand-over though its Reservation is over."""
    NOMINATION_LEFT = "NominationLeft"
    """A pod keeps the nomination of a hand-over that does not run."""
    PLACEHOLDER_LEFT = "PlaceholderLeft"
    """A placeholder holds capacity that no live Reservation needs."""
    GUARD_LEFT = "GuardLeft"
    """A node keeps the hand-over taint past its deadline, or without a hand-over there."""
    FENCE_LEFT = "FenceLeft"
    """A pod fences a node off without a hand-over there."""
    DRAINING_LEFT = "DrainingLeft"
    """A node keeps the draining taint of a plan that is not running."""
    ROOM_GUARD_LEFT = "RoomGuardLeft"
    """A node keeps the taint by which a plan that is not running kept room there."""
    FREED_LEFT = "FreedLeft"
    """A node is marked as freed though pods are on it, or carries the taint without the mark that says why."""
    COOLING_LEFT = "CoolingLeft"
    """A node is labelled as cooling though it has rested, or does not say until when it rests."""
    PRIORITY_CLASS_LEFT = "PriorityClassLeft"
    """A PriorityClass of the operator's stands though no Reservation is live."""
    WEBHOOK_LEFT = "WebhookLeft"
    """The webhook stands in the way of pods though no Reservation is live."""
    STATUS_UNTRUE = "StatusUntrue"
    """A Reservation's status is not what its spec, pods and nodes say."""
    WORKLOAD_SHORT = "WorkloadShort"
    """A workload that a Reservation is for has fewer pods running than it asks for."""
    POD_PENDING = "PodPending"
    """A pod waits for a place."""
    NODE_OVERBOOKED = "NodeOverbooked"
    """The pods of a node request more than it has."""
    OPERATOR_ABSENT = "OperatorAbsent"
    """No operator holds its Lease."""
    HANDOVER_UNPROVEN = "HandoverUnproven"
    """A place is held, but no dry-run pod came back gated for it."""
    PLAN_ABANDONED = "PlanAbandoned"
    """A plan is running and nobody carries it out."""


BOUND_SECONDS: Final[Mapping[Invariant, float]] = {
    Invariant.GATE_LEFT: 5.0,
    Invariant.LABEL_LEFT: 10.0,
    Invariant.NOMINATION_LEFT: 5.0,
    Invariant.PLACEHOLDER_LEFT: 10.0,
    Invariant.GUARD_LEFT: 5.0,
    Invariant.FENCE_LEFT: 5.0,
    Invariant.DRAINING_LEFT: 30.0,
    Invariant.ROOM_GUARD_LEFT: 30.0,
    Invariant.FREED_LEFT: 60.0,
    Invariant.COOLING_LEFT: 60.0,
    Invariant.PRIORITY_CLASS_LEFT: 60.0,
    Invariant.WEBHOOK_LEFT: 20.0,
    Invariant.STATUS_UNTRUE: 10.0,
    Invariant.WORKLOAD_SHORT: 60.0,
    Invariant.POD_PENDING: 60.0,
    Invariant.NODE_OVERBOOKED: 5.0,
    Invariant.OPERATOR_ABSENT: 15.0,
    Invariant.HANDOVER_UNPROVEN: 15.0,
    Invariant.PLAN_ABANDONED: 30.0,
}
"""How long each may be broken while Berth works as it should; longer, and somebody must look."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """One thing that is not as it must be; `target` is `kind namespace/name`, or `kind name`."""

    invariant: Invariant
    target: str
    detail: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.target}: {self.detail}"

    @property
    def kind(self) -> str:
        """Return the kind of the target, as kubectl takes it."""
        return self.target.partition(" ")[0]

    @property
    def namespace(self) -> str:
        """Return the namespace of the target, "" where it has none."""
        return self.target.partition(" ")[2].rpartition("/")[0]

    @property
    def name(self) -> str:
        """Return the name of the target."""
        return self.target.rpartition("/" if self.namespace else " ")[2]
