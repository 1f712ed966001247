"""The names of the invariants, how long each may be broken, and a breach as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Invariant(StrEnum):
    """The invariants, each named by its violation; what is the cause of others comes first."""

    OPERATOR_ABSENT = "OperatorAbsent"
    """No operator holds its Lease."""
    HANDOVER_UNPROVEN = "HandoverUnproven"
    """A place is held, but no dry-run pod came back gated for it."""
    QUEUE_GATE_LEFT = "QueueGateLeft"
    """A pod keeps the gate of queues though no queue has its namespace."""
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
    """A pod fences a node off without a hand-over or an awaited slot there."""
    DRAINING_LEFT = "DrainingLeft"
    """A node keeps the draining taint of a plan that is not running."""
    RELEASED_LEFT = "ReleasedLeft"
    """A pod was taken out of its ReplicaSet for a surge move, and no plan that runs moves it."""
    ROOM_GUARD_LEFT = "RoomGuardLeft"
    """A node keeps the taint by which a plan that is not running kept room there."""
    FREED_LEFT = "FreedLeft"
    """A node is marked as freed though pods are on it, or carries the taint without the mark that says why."""
    COOLING_LEFT = "CoolingLeft"
    """A node is labelled as cooling though it has rested, or does not say until when it rests."""
    PRIORITY_CLASS_LEFT = "PriorityClassLeft"
    """A PriorityClass of the operator's stands though no Reservation is live and no operator runs."""
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
    PLAN_ABANDONED = "PlanAbandoned"
    """A plan is running and no program executes it."""
    STARVING_LIMIT = "StarvingLimit"
    """A policy keeps more nodes for starving jobs than the operator fences."""
    ROOM_UNFENCED = "RoomUnfenced"
    """A Reservation that waits for capacity may fence no node, or too few."""
    WAITS_IN_VAIN = "WaitsInVain"
    """A Reservation waits for capacity that no node could have."""
    ROOM_UNCLAIMED = "RoomUnclaimed"
    """All places for a starving job are held, and its pods do not take them."""
    STARVES_FOR_GOOD = "StarvesForGood"
    """A job starves, and no waiting helps it."""
    QUEUE_REFUSED = "QueueRefused"
    """The guarantee of a Queue does not count."""
    QUEUE_NOT_ENFORCED = "QueueNotEnforced"
    """A Queue lacks namespaces that it chooses, or chooses none."""
    QUEUE_NOT_COVERED = "QueueNotCovered"
    """Others use a part of what a Queue is guaranteed, or the nodes lack it."""
    QUEUE_NOT_HELD = "QueueNotHeld"
    """A part of what a Queue is guaranteed is neither used nor held by its slots."""
    EVICTIONS_UNANSWERED = "EvictionsUnanswered"
    """Pods ask for a replacement before they are evicted, and no operator answers evictions."""
    WINDOW_INVALID = "WindowInvalid"
    """A ReservationWindow cannot open."""
    WINDOW_OVERLAPS = "WindowOverlaps"
    """A ReservationWindow is open so often at once that occurrences are left out."""
    WINDOW_WITHOUT_MOVES = "WindowWithoutMoves"
    """A ReservationWindow may move pods, and no policy does so."""
    WINDOW_SHORT = "WindowShort"
    """A ReservationWindow does not find its capacity by its start."""
    ZONE_INVALID = "ZoneInvalid"
    """A RevocableZone cannot open."""
    ZONE_UNKNOWN = "ZoneUnknown"
    """A node's label names a RevocableZone that does not exist."""
    ZONE_WITHOUT_NODES = "ZoneWithoutNodes"
    """No node has the label of a RevocableZone."""
    ZONE_UNFENCED = "ZoneUnfenced"
    """Nodes of a RevocableZone lack the fence that they should have."""
    ZONE_NOT_EMPTIED = "ZoneNotEmptied"
    """The policy for a RevocableZone does not take off by itself the pods that have to leave, or too seldom."""
    ZONE_LATE = "ZoneLate"
    """The nodes of a RevocableZone are not empty at the end of its window, or will not be."""
    DAEMON_KEPT_OFF = "DaemonKeptOff"
    """A DaemonSet selects lent nodes and does not tolerate their taints."""
    OBJECT_UNREADABLE = "ObjectUnreadable"
    """An object that plans go by cannot be read."""
    PLACEHOLDER_REFUSED = "PlaceholderRefused"
    """Admission refuses the placeholder of a Reservation, or does not answer about it."""
    TRIAL_UNBOUNDED = "TrialUnbounded"
    """The account that tries replacements by dry run may create pods, and no admission policy keeps it to dry runs."""


BOUND_SECONDS: Final[Mapping[Invariant, float]] = {
    Invariant.QUEUE_GATE_LEFT: 30.0,
    Invariant.GATE_LEFT: 5.0,
    Invariant.LABEL_LEFT: 10.0,
    Invariant.NOMINATION_LEFT: 5.0,
    Invariant.PLACEHOLDER_LEFT: 10.0,
    Invariant.GUARD_LEFT: 5.0,
    Invariant.FENCE_LEFT: 5.0,
    Invariant.DRAINING_LEFT: 30.0,
    Invariant.RELEASED_LEFT: 45.0,
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
    Invariant.STARVING_LIMIT: 0.0,
    Invariant.ROOM_UNFENCED: 60.0,
    Invariant.WAITS_IN_VAIN: 60.0,
    Invariant.ROOM_UNCLAIMED: 60.0,
    Invariant.STARVES_FOR_GOOD: 0.0,
    Invariant.QUEUE_REFUSED: 0.0,
    Invariant.QUEUE_NOT_ENFORCED: 0.0,
    Invariant.QUEUE_NOT_COVERED: 0.0,
    Invariant.QUEUE_NOT_HELD: 0.0,
    Invariant.EVICTIONS_UNANSWERED: 30.0,
    Invariant.WINDOW_INVALID: 0.0,
    Invariant.WINDOW_OVERLAPS: 0.0,
    Invariant.WINDOW_WITHOUT_MOVES: 0.0,
    Invariant.WINDOW_SHORT: 0.0,
    Invariant.ZONE_INVALID: 0.0,
    Invariant.ZONE_UNKNOWN: 0.0,
    Invariant.ZONE_WITHOUT_NODES: 0.0,
    Invariant.ZONE_UNFENCED: 30.0,
    Invariant.ZONE_NOT_EMPTIED: 0.0,
    Invariant.ZONE_LATE: 0.0,
    Invariant.DAEMON_KEPT_OFF: 0.0,
    Invariant.OBJECT_UNREADABLE: 0.0,
    Invariant.PLACEHOLDER_REFUSED: 0.0,
    Invariant.TRIAL_UNBOUNDED: 0.0,
}
"""How long each may be broken while Berth works as it should."""


@dataclass(frozen=True, slots=True, order=True)
class Violation:
    """A broken invariant; `target` is `kind namespace/name`, or `kind name`."""

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
