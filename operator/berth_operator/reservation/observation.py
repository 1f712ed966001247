"""The observation of one Reservation, the input of pure decisions.

It shows one instant. `store.cache` collects it. Its parts: the note on a pod with its slot, which pods may take a slot,
which pods a node admits, and how much room the pods on a node leave.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

import msgspec

from berth_core import (
    AWAITS_CAPACITY_LABEL,
    CHOSEN_NODE_ANNOTATION,
    DRAINING_TAINT,
    HANDOVER_GATE,
    HANDOVER_TAINT,
    HIGHEST_SLOT_INDEX,
    INDEX_ANNOTATION,
    LATEST_UNIX_SECONDS,
    ONE_POD,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    ROOM_TAINT,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
    InputError,
    NodeSpec,
    Pod,
    PodSpec,
    Quantities,
    Reservation,
    ReservationReason,
    ReservationTask,
    ResourceAmounts,
    Slot,
    Taint,
    Toleration,
    effective_requests,
    owner_matches,
    read_whole_number,
    shape_of,
    template_differences,
    template_matches,
    tolerates,
    untolerated_taint,
)
from berth_operator.reservation.node_choice import EndingPod, NodeChoice, expected_room
from berth_operator.schedulers.kube_scheduler import SCHEDULER

# --- assignments -----------------------------------------------------------------------------------------------------
# The note on an owner pod: its slot, its node and its deadline.

_PARTS: Final = 4


@dataclass(frozen=True, slots=True)
class Assignment:
    """A slot given to a pod.

    Until `deadline` (unix seconds) others leave pod and node alone.
    """

    task: str
    index: int
    node: str
    deadline: int

    def to_annotation(self) -> str:
        """Return the annotation's value; no part may contain a slash."""
        return f"{self.task}/{self.index}/{self.node}/{self.deadline}"

    @classmethod
    def from_pod(cls, pod: Pod) -> "Assignment | None":
        """Read a pod's note; None without one of ours."""
        parts = pod.metadata.annotations.get(SLOT_ANNOTATION, "").split("/")
        if len(parts) != _PARTS:
            return None
        task, raw_index, node, raw_deadline = parts
        index = read_whole_number(raw_index, most=HIGHEST_SLOT_INDEX)
        deadline = read_whole_number(raw_deadline, most=LATEST_UNIX_SECONDS)
        return None if index is None or deadline is None else cls(task, index, node, deadline)


# --- fitting ---------------------------------------------------------------------------------------------------------
# Which pod may take which slot: namespace, owner, template, and the tightest of several tasks.


def may_own(reservation: Reservation, pod: Pod) -> bool:
    """Return whether a pod matches an owner in the Reservation's namespace."""
    return pod.metadata.namespace == reservation.metadata.namespace and any(
        owner_matches(owner, pod) for owner in reservation.spec.owners
    )


def choose_task(reservation: Reservation, pod: Pod, free: Mapping[str, int]) -> ReservationTask | None:
    """Return the smallest task whose slot the pod may take.

    Its requests are the smallest. `free` counts the free slots by task name. Taking the smallest leaves the larger
    slots to larger pods.
    """
    if not may_own(reservation, pod):
        return None
    fitting = [task for task in reservation.spec.tasks if free.get(task.name, 0) > 0 and _fits(reservation, task, pod)]
    return min(fitting, key=_size) if len(fitting) > 1 else next(iter(fitting), None)


def why_not_fitting(reservation: Reservation, pod: Pod, held: Collection[str]) -> str:
    """Return why an owner's pod fits no task in `held`.

    The text is on the closest task. "" if it fits one, or if the Reservation is not for the pod or holds nothing.
    Raises `InputError` for a bad quantity.
    """
    if not held or not may_own(reservation, pod):
        return ""
    tasks = [task for task in reservation.spec.tasks if task.name in held]
    if not tasks or any(_fits(reservation, task, pod) for task in tasks):
        return ""
    scheduler = reservation.spec.scheduler_name
    refusals = [(task, template_differences(task.template, pod, scheduler_name=scheduler)) for task in tasks]
    closest, differences = min(refusals, key=lambda refusal: len(refusal[1]))
    return f"{', '.join(differences)} (task {closest.name})"


def slots_by_key(reservation: Reservation) -> dict[tuple[str, int], Slot]:
    """Return the slots of a Reservation's status by (task, index)."""
    return {(slot.task, slot.index): slot for slot in reservation.status.slots}


def trusted_assignment(reservation: Reservation, pod: Pod, slots: Mapping[tuple[str, int], Slot]) -> Assignment | None:
    """Return the slot that a pod's note names.

    None for a forged note. Anyone who may create pods may write any note: it counts only on a pod that could be given
    that slot, and only for the node that the status names (`slots`, from `slots_by_key`).
    """
    given = Assignment.from_pod(pod)
    if given is None or not may_own(reservation, pod):
        return None
    task = next((task for task in reservation.spec.tasks if task.name == given.task), None)
    slot = slots.get((given.task, given.index))
    if task is None or slot is None or not slot.node or not _fits(reservation, task, pod):
        return None
    return given if slot.node in {given.node, pod.spec.node_name} else None


def _fits(reservation: Reservation, task: ReservationTask, pod: Pod) -> bool:
    """Return whether a pod may take a slot of a task.

    Unreadable requests fit no task.
    """
    try:
        return template_matches(task.template, pod, scheduler_name=reservation.spec.scheduler_name)
    except InputError:
        return False


def _size(task: ReservationTask) -> tuple[int, int, str]:
    requests = shape_of(task.template.spec).requests
    return requests.get("cpu"), requests.get("memory"), task.name


# --- node access -----------------------------------------------------------------------------------------------------
# Whether a node admits a pod: it is ready, not cordoned, and the pod tolerates all its taints.

_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
"""The scheduler treats a cordoned node as tainted so, also before the taint is set."""


class NodeCondition(msgspec.Struct, frozen=True):
    """The type and status of a node's condition."""

    type: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class NodeAccess:
    """The conditions and taints that decide which pods a node admits.

    Our guard is left out.
    """

    is_ready: bool = True
    is_cordoned: bool = False
    taints: tuple[Taint, ...] = ()

    @classmethod
    def of(cls, spec: NodeSpec, signs: Iterable[NodeCondition]) -> "NodeAccess":
        """Return the access rules of a node.

        A node without conditions counts as ready.
        """
        return cls(
            is_ready=all(sign.status == "True" for sign in signs if sign.type == "Ready"),
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


# --- surveys ---------------------------------------------------------------------------------------------------------
# The room on one node: what is free, what terminating pods will free, and which pods came last.

SlotKey = tuple[str, str, str]
"""Uid of a Reservation, task and index of the slot that a placeholder holds."""


@dataclass(frozen=True, slots=True)
class Occupant:
    """A pod on the node that has not ended."""

    uid: str
    key: str
    requests: ResourceAmounts
    is_going: bool
    since: str
    """When it was bound, as the API server writes it."""
    holds: SlotKey | None = None
    ends_at: datetime | None = None
    """When it is expected to have ended; None if nothing says so."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The pods on a node at a recent time."""

    allocatable: ResourceAmounts
    occupants: tuple[Occupant, ...]
    age_seconds: float = 0.0

    def will_have_room(self, spec: PodSpec) -> bool:
        """Return whether a pod fits only once the terminating pods are gone."""
        return not self._has_room(spec, self.occupants) and self._has_room(spec, self._staying())

    def takers(self, owner: Pod) -> tuple[Occupant, ...]:
        """Return the pods that are in an owner's way, latest first."""
        others = tuple(one for one in self._staying() if one.uid != owner.metadata.uid)
        if self._has_room(owner.spec, others):
            return ()
        return tuple(sorted(others, key=lambda one: (one.since, one.key), reverse=True))

    def going(self) -> tuple[str, ...]:
        """Return the terminating pods by namespace and name."""
        return tuple(one.key for one in self.occupants if one.is_going)

    def expected_room(self, requests: ResourceAmounts) -> datetime | None:
        """Return when the known ends of pods leave room; None if it is there, or no end is known."""
        free = self.allocatable.minus(ResourceAmounts.total(one.requests for one in self.occupants))
        if requests.fits_within(free):
            return None
        return expected_room(free, requests, (EndingPod(one.requests, one.ends_at) for one in self.occupants))

    def _staying(self) -> tuple[Occupant, ...]:
        return tuple(one for one in self.occupants if not one.is_going)

    def _has_room(self, spec: PodSpec, occupants: Iterable[Occupant]) -> bool:
        wanted = slot_requests(spec)
        used = ResourceAmounts.total(one.requests for one in occupants)
        return all(used.get(name) + amount <= self.allocatable.get(name) for name, amount in wanted.items() if amount)


def build_survey(allocatable: Quantities, pods: Iterable[Pod], ends: Mapping[str, datetime] | None = None) -> Survey:
    """Return a survey of a node's pods; ended pods hold nothing.

    `ends` has their expected ends by uid.
    """
    known = ends or {}
    occupants = tuple(_occupant(pod, known.get(pod.metadata.uid)) for pod in pods if not pod.is_terminal)
    return Survey(ResourceAmounts.from_quantities(allocatable), occupants)


def _occupant(pod: Pod, ends_at: datetime | None) -> Occupant:
    meta = pod.metadata
    holds = None
    if PLACEHOLDER_LABEL in meta.labels:
        notes = meta.annotations
        holds = (
            meta.labels.get(RESERVATION_LABEL, ""),
            notes.get(TASK_ANNOTATION, ""),
            notes.get(INDEX_ANNOTATION, ""),
        )
    since = SCHEDULER.bound_at(pod) or meta.creation_timestamp or ""
    return Occupant(meta.uid, pod.key, slot_requests(pod.spec), pod.is_terminating, since, holds, ends_at)


def slot_requests(spec: PodSpec) -> ResourceAmounts:
    """Return what a pod takes of a node, including its pod slot."""
    return effective_requests(spec).plus(ONE_POD)


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

    unfenced: Mapping[str, str] = field(default_factory=dict)
    """Why a node whose capacity is awaited has no fence, by node name."""

    def awaits_in_vain(self, placeholder: Pod) -> bool:
        """Return whether a placeholder awaits a node that is gone or admits no such pod.

        A running plan's taints do not count: the plan may be what makes the room.
        """
        node = awaited_node(placeholder)
        access = self.accesses.get(node, NodeAccess())
        lasting = tuple(taint for taint in access.taints if taint.key not in {DRAINING_TAINT, ROOM_TAINT})
        closed = replace(access, taints=lasting).why_closed(placeholder.spec.tolerations)
        return bool(node) and (node in self.missing_nodes or bool(closed))

    def why_closed(self, placeholder: Pod) -> str:
        """Return why a placeholder's node would refuse its owner.

        The owner tolerates the same.
        """
        access = self.accesses.get(placeholder.spec.node_name)
        return access.why_closed(placeholder.spec.tolerations) if access is not None else ""


@dataclass(frozen=True, slots=True)
class SlotView:
    """One slot as observed, with its pods."""

    slot: Slot
    task: ReservationTask
    placeholder: Pod | None = None
    owner: Pod | None = None
    assignment: Assignment | None = None
    failure: ReservationReason | None = None
    """Set if the loss of this slot ends the whole Reservation."""
    successor: Pod | None = None
    renewal: Assignment | None = None
    """Set while the placeholder hands its place to the successor; the guard keeps it meanwhile."""


def awaited_node(pod: Pod) -> str:
    """Return the chosen node that a placeholder is not on yet, or ""."""
    if pod.spec.node_name or AWAITS_CAPACITY_LABEL not in pod.metadata.labels:
        return ""
    return pod.metadata.annotations.get(CHOSEN_NODE_ANNOTATION, "")


def holds_our_gate(pod: Pod) -> bool:
    """Return whether the pod has our scheduling gate."""
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def has_started(pod: Pod) -> bool:
    """Return whether the pod's containers run or have run.

    Those of a pod that the kubelet refused have not.
    """
    if not pod.spec.node_name:
        return False
    return pod.status.phase in {"Running", "Succeeded"} or (
        pod.status.phase == "Failed" and bool(pod.status.container_statuses)
    )


def is_on_its_way(pod: Pod) -> bool:
    """Return whether the pod runs, or still can."""
    return not pod.is_terminating and (has_started(pod) or not pod.is_terminal)


def holds_other_gates(pod: Pod) -> bool:
    """Return whether the pod has another scheduling gate than ours."""
    return any(gate.name != HANDOVER_GATE for gate in pod.spec.scheduling_gates)


def is_at_same_step(known: Pod, found: Pod) -> bool:
    """Return whether a changed pod is at the same hand-over step."""
    return _step(known) == _step(found)


def _step(pod: Pod) -> tuple[object, ...]:
    meta = pod.metadata
    notes = meta.labels.get(RESERVATION_LABEL), meta.annotations.get(SLOT_ANNOTATION)
    return meta.uid, *notes, holds_our_gate(pod), pod.spec.node_name, pod.is_terminating, pod.is_terminal


def assigned_owners(seen: Observation) -> dict[tuple[str, int], tuple[Pod, Assignment]]:
    """Return each slot's living pod with its assignment, by (task, index).

    Of several pods the oldest counts.
    """
    slots = slots_by_key(seen.reservation)
    found: dict[tuple[str, int], tuple[Pod, Assignment]] = {}
    for pod in seen.owners:
        given = trusted_assignment(seen.reservation, pod, slots) if is_on_its_way(pod) else None
        if given is not None:
            found.setdefault((given.task, given.index), (pod, given))
    return found
