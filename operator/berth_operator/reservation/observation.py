"""The observation of one Reservation at one instant, which `store.cache` makes and all decisions are based on."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from berth_core import DRAINING_TAINT, ROOM_TAINT, Pod, Reservation, ReservationReason
from berth_operator.reservation.node_access import NodeAccess
from berth_operator.reservation.node_choice import NodeChoice
from berth_operator.reservation.pod_state import awaited_node
from berth_operator.reservation.surveys import Survey


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a Reservation is impossible, in the API server's words."""

    reason: ReservationReason
    message: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of the last dry-run probe of the hand-over path."""

    gated: bool
    message: str
    age_seconds: float = math.inf
    """Seconds since the probe."""

    failures: int = 0
    """How many probes in a row have failed, this one included."""

    of_path: bool = False
    """Whether it is about the path that all Reservations share."""

    @property
    def is_final(self) -> bool:
        """Return whether the Reservation needs no further probe of its own."""
        return self.gated or self.of_path


@dataclass(frozen=True, slots=True)
class Guard:
    """Our taint on a node."""

    deadline: int
    """The taint's value in unix seconds; 0 if it is no number."""

    age_seconds: float
    """Attended seconds since this process first saw it."""

    is_fenced: bool = False
    """Its fence was made before it."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One Reservation with all its pods, nodes and results."""

    reservation: Reservation
    placeholders: Mapping[tuple[str, int], Pod] = field(default_factory=dict)
    """Placeholder pods by (task, index)."""

    successors: Mapping[tuple[str, int], Pod] = field(default_factory=dict)
    """Successors of placeholders by (task, index)."""

    owners: tuple[Pod, ...] = ()
    """Pods with the Reservation's label, oldest first."""

    missing_nodes: frozenset[str] = frozenset()
    """Names of nodes of its slots that do not exist."""

    unready_seconds: Mapping[str, float] = field(default_factory=dict)
    """For how many attended seconds nodes of its slots have not been ready, by name."""

    accesses: Mapping[str, NodeAccess] = field(default_factory=dict)
    """Access rules by node name, for nodes of its slots that do not admit every pod."""

    guards: Mapping[str, Guard] = field(default_factory=dict)
    """Our guards by node name, for the nodes of its hand-overs."""

    stage_ages: Mapping[str, float] = field(default_factory=dict)
    """Uid of an owner pod or successor to its attended seconds at its hand-over stage."""

    verdict: Verdict | None = None
    """Set if validation or creation was refused for good."""

    validated: bool = False
    """Whether the API server has validated the templates."""

    probe: ProbeResult | None = None
    """None if neither this process nor an earlier one has a result."""

    surveys: Mapping[str, Survey] = field(default_factory=dict)
    """Recent surveys by node name."""

    waiting: tuple[Pod, ...] = ()
    """Ungated pods without a place that could take a slot: they are older than the Reservation."""

    searched: bool = False
    """Whether a recent search looked for such pods."""

    choice: NodeChoice | None = None
    """The last choice of nodes for slots that await capacity."""

    is_patient: bool = False
    """Whether a rule lets it wait for its places for any time; the reconciler asks the rules, not the store."""

    counted_in: str = ""
    """Which queues count its places, as rules say; asked as `is_patient` is."""

    refusal: str = ""
    """Why admission in Berth's namespace refuses a placeholder of the Reservation, "" if it does not."""

    unfenced: Mapping[str, str] = field(default_factory=dict)
    """Why a node whose capacity is awaited has no fence, by node name."""

    def with_lost_nodes(self, lost_seconds: float) -> "Observation":
        """Return the observation with nodes as missing that were not ready for `lost_seconds`; 0 stands for never."""
        lost = {node for node, seconds in self.unready_seconds.items() if lost_seconds and seconds >= lost_seconds}
        return replace(self, missing_nodes=self.missing_nodes | lost) if lost else self

    def awaits_in_vain(self, placeholder: Pod) -> bool:
        """Return whether a placeholder awaits a node that is gone or will not admit such a pod."""
        node = awaited_node(placeholder)
        access = self.accesses.get(node, NodeAccess())
        # A running plan's taints do not count: the plan may be what makes the room.
        lasting_taints = tuple(taint for taint in access.taints if taint.key not in {DRAINING_TAINT, ROOM_TAINT})
        why_closed = replace(access, taints=lasting_taints).why_closed(placeholder.spec.tolerations)
        return bool(node) and (node in self.missing_nodes or bool(why_closed))

    def why_closed(self, placeholder: Pod) -> str:
        """Return why a placeholder's node would refuse its owner, which tolerates the same; "" if it would not."""
        access = self.accesses.get(placeholder.spec.node_name)
        return access.why_closed(placeholder.spec.tolerations) if access is not None else ""
