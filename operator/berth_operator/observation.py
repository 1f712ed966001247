"""Owns what the operator sees of one Reservation at one instant, as a value for pure decisions.

It does not collect it: `berth_operator.cache` does.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from berth_core.labels import HANDOVER_GATE
from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationReason
from berth_operator.assignments import Assignment


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why a Reservation cannot be carried out, in the API server's words."""

    reason: ReservationReason
    message: str


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """How the last dry-run proof of the hand-over path ended."""

    gated: bool
    message: str


@dataclass(frozen=True, slots=True)
class Observation:
    """One Reservation and all that belongs to it."""

    reservation: Reservation
    placeholders: Mapping[tuple[str, int], Pod] = field(default_factory=dict)
    """Placeholder pods by (task, index)."""

    owners: tuple[Pod, ...] = ()
    """Pods that carry the Reservation's label, oldest first."""

    nodes: frozenset[str] = frozenset()
    """Names of the nodes that exist."""

    guard_ages: Mapping[str, float] = field(default_factory=dict)
    """Node name to the seconds that this process has seen its guard for."""

    running_ages: Mapping[str, float] = field(default_factory=dict)
    """Uid of an owner pod to the seconds that this process has seen it started for."""

    verdict: Verdict | None = None
    """Set when validation or creation was refused for good."""

    validated: bool = False
    """Whether the templates were put to the API server."""

    probe: ProbeResult | None = None
    """None where this process has not probed yet."""


def holds_our_gate(pod: Pod) -> bool:
    """Tell whether our scheduling gate is on the pod."""
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def has_started(pod: Pod) -> bool:
    """Tell whether the pod's containers run or have run on a node."""
    return bool(pod.spec.node_name) and pod.status.phase in {"Running", "Succeeded", "Failed"}


def is_alive(pod: Pod) -> bool:
    """Tell whether the pod is there to stay for now."""
    return not pod.is_terminating


def assigned_owner(seen: Observation, task: str, index: int) -> tuple[Pod, Assignment] | None:
    """Return the living pod that was given a slot; of several, which never should be, the oldest."""
    for pod in seen.owners:
        assignment = Assignment.from_pod(pod)
        if assignment and (assignment.task, assignment.index) == (task, index) and is_alive(pod):
            return pod, assignment
    return None
