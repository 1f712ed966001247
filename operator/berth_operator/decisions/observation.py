"""Owns what the operator sees of one Reservation at one instant, as a value for pure decisions.

It does not collect it: `picture.cache` does.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_core.labels import HANDOVER_GATE, RESERVATION_LABEL, SLOT_ANNOTATION
from berth_core.objects import Pod
from berth_core.reservations import Reservation, ReservationReason
from berth_operator.decisions.assignments import Assignment
from berth_operator.decisions.fitting import slots_by_key, trusted_assignment
from berth_operator.decisions.node_access import NodeAccess
from berth_operator.decisions.surveys import Survey

_GATED_REASON: Final = "SchedulingGated"
"""What the condition PodScheduled says of a pod that was created with a gate, until a scheduler has tried it."""


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
    age_seconds: float = math.inf
    """How long ago it was made."""

    failures: int = 0
    """How many proofs in a row have failed, this one included."""

    of_path: bool = False
    """Whether it is about the path that all Reservations share, and not about this one alone."""

    @property
    def is_final(self) -> bool:
        """Tell whether the Reservation is not to be probed for by itself again."""
        return self.gated or self.of_path


@dataclass(frozen=True, slots=True)
class Guard:
    """Our taint on a node."""

    deadline: int
    """Its value, unix seconds; 0 where it is no number."""

    age_seconds: float
    """For how long this process has seen it, in attended seconds."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One Reservation and all that belongs to it."""

    reservation: Reservation
    placeholders: Mapping[tuple[str, int], Pod] = field(default_factory=dict)
    """Placeholder pods by (task, index)."""

    successors: Mapping[tuple[str, int], Pod] = field(default_factory=dict)
    """Placeholder pods by (task, index) that are to take the place of the one before."""

    owners: tuple[Pod, ...] = ()
    """Pods that carry the Reservation's label, oldest first."""

    missing_nodes: frozenset[str] = frozenset()
    """Names of the nodes that its slots are on and that do not exist."""

    accesses: Mapping[str, NodeAccess] = field(default_factory=dict)
    """Node name to whom it lets in, for those of its slots' nodes that do not let in everybody."""

    guards: Mapping[str, Guard] = field(default_factory=dict)
    """Node name to our guard there, for the nodes of its hand-overs."""

    running_ages: Mapping[str, float] = field(default_factory=dict)
    """Uid of an owner pod or successor to the seconds that this process has seen it started for."""

    stage_ages: Mapping[str, float] = field(default_factory=dict)
    """Uid of an owner pod or successor with a slot to the attended seconds that it is at its stage of the hand-over."""

    verdict: Verdict | None = None
    """Set when validation or creation was refused for good."""

    validated: bool = False
    """Whether the templates were put to the API server."""

    probe: ProbeResult | None = None
    """None where this process has neither probed nor taken over what an earlier one proved."""

    surveys: Mapping[str, Survey] = field(default_factory=dict)
    """Node name to what its pods say, where they were asked lately."""

    waiting: tuple[Pod, ...] = ()
    """Pods without a place that could take a slot and were not gated, as they were created before it was held."""

    searched: bool = False
    """Whether such pods were searched for lately."""

    def why_closed(self, placeholder: Pod) -> str:
        """Return why the node of a placeholder would not let in its owner, who tolerates as much, "" where it would."""
        access = self.accesses.get(placeholder.spec.node_name)
        return access.why_closed(placeholder.spec.tolerations) if access is not None else ""


def holds_our_gate(pod: Pod) -> bool:
    """Tell whether our scheduling gate is on the pod."""
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def is_untried(pod: Pod) -> bool:
    """Tell whether a scheduler may bind the pod and has not said anything of it since it was gated."""
    said = next((one.reason for one in pod.status.conditions if one.type == "PodScheduled"), "")
    return not pod.spec.scheduling_gates and not pod.spec.node_name and said in {"", _GATED_REASON}


def has_started(pod: Pod) -> bool:
    """Tell whether the pod's containers run or have run on a node; one that the kubelet turned away has not."""
    if not pod.spec.node_name:
        return False
    return pod.status.phase in {"Running", "Succeeded"} or (
        pod.status.phase == "Failed" and bool(pod.status.container_statuses)
    )


def is_on_its_way(pod: Pod) -> bool:
    """Tell whether the pod runs, or still can."""
    return not pod.is_terminating and (has_started(pod) or not pod.is_terminal)


def holds_other_gates(pod: Pod) -> bool:
    """Tell whether somebody else's scheduling gate is on the pod."""
    return any(gate.name != HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def is_at_same_step(known: Pod, found: Pod) -> bool:
    """Return whether a pod that others may have changed is at the step of its hand-over that it was known at."""
    return _step(known) == _step(found)


def _step(pod: Pod) -> tuple[object, ...]:
    meta = pod.metadata
    notes = meta.labels.get(RESERVATION_LABEL), meta.annotations.get(SLOT_ANNOTATION)
    return meta.uid, *notes, holds_our_gate(pod), pod.spec.node_name, pod.is_terminating, pod.is_terminal


def assigned_owners(seen: Observation) -> dict[tuple[str, int], tuple[Pod, Assignment]]:
    """Return by (task, index) the living pod that was given the slot; of several, which never should be, the oldest."""
    slots = slots_by_key(seen.reservation)
    found: dict[tuple[str, int], tuple[Pod, Assignment]] = {}
    for pod in seen.owners:
        given = trusted_assignment(seen.reservation, pod, slots) if is_on_its_way(pod) else None
        if given is not None:
            found.setdefault((given.task, given.index), (pod, given))
    return found
