"""The Reservation contract (`batch.volcano.sh/v1alpha1`): fields, phases, reasons, conditions."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from berth_core.clock import format_timestamp
from berth_core.decoding import convert
from berth_core.divided_amounts import DividedAmounts
from berth_core.labels import MOVE_ANNOTATION, PREFIX, ROOM_ANNOTATION, SLOTS_ADD_UP_ANNOTATION
from berth_core.objects.metadata import LabelSelector, ObjectMeta, OwnerReference
from berth_core.objects.pods import PodTemplate
from berth_core.quantities import read_whole_number
from berth_core.unreadable import read_or_stand_in

RESERVATION_API_VERSION: Final = "batch.volcano.sh/v1alpha1"
RESERVATION_KIND: Final = "Reservation"
HIGHEST_SLOT_INDEX: Final = 999
"""A Reservation has at most 1,000 slots."""
_HIGHEST_MOVE: Final = 10**9 - 1
"""The highest position of a move that is read; anyone may write the annotation."""


class ReservationPhase(StrEnum):
    """Phase of a Reservation; terminal phases never change."""

    PENDING = "Pending"
    """Fewer slots than `minAvailable` are held."""
    WAITING = "Waiting"
    """Nodes are chosen, but their capacity is not free yet."""
    AVAILABLE = "Available"
    """At least `minAvailable` slots are held or taken."""
    SUCCEEDED = "Succeeded"
    """The final phase of a Reservation whose owners took every slot."""
    FAILED = "Failed"
    """The final phase of a Reservation that ended without that."""

    @property
    def terminal(self) -> bool:
        return self in {ReservationPhase.SUCCEEDED, ReservationPhase.FAILED}


class Capacity(StrEnum):
    """Which capacity the slots of a Reservation take."""

    FREE = "Free"
    """What is free now."""
    WHEN_FREE = "WhenFree"
    """What the pods on chosen nodes free as they end."""


class Fence(StrEnum):
    """What is kept off the nodes whose capacity a Reservation awaits."""

    NONE = "None"
    """Nothing: others may take what becomes free."""
    NODE = "Node"
    """Every pod but DaemonSet pods, pods in a hand-over and placeholders that await the node's capacity."""


class ReservationReason(StrEnum):
    """Why a Reservation is in its phase."""

    CREATING_PLACEHOLDERS = "CreatingPlaceholders"
    """Pending: placeholders are being created."""
    PLACEHOLDER_REFUSED = "PlaceholderRefused"
    """Pending: admission in Berth's namespace refuses a placeholder, admission there or in the Reservation's namespace
    does not answer, or a pod that has lost a placeholder's labels keeps its name; the message has the last answer.
    Berth tries again. Also the reason of an event."""
    AWAITING_SCHEDULER = "AwaitingScheduler"
    """Pending: no scheduler has tried the placeholders yet."""
    UNSCHEDULABLE_YET = "UnschedulableYet"
    """Pending: the scheduler found no place so far; the message has its words."""
    AWAITING_NODE = "AwaitingNode"
    """Pending: placeholders are bound, and their nodes have not started them yet."""
    NODE_CLOSED = "NodeClosed"
    """Pending: a placeholder runs on a node that is not ready, cordoned or tainted, and lets in no owner."""
    FENCE_LIMIT = "FenceLimit"
    """Pending: no more nodes may be fenced for the namespace or the cluster; the message has the limit."""
    UNKNOWN_QUEUE = "UnknownQueue"
    """Pending: no queue has the name in `spec.queue` yet; the message has the names that are known."""
    AWAITING_CAPACITY = "AwaitingCapacity"
    """Waiting: what takes the room terminates, is expected to end, or a plan is about to move it."""
    SLOTS_HELD = "SlotsHeld"
    """Available: placeholders hold the slots."""
    HANDING_OVER = "HandingOver"
    """Available: at least one slot changes hands."""
    OWNERS_STARTING = "OwnersStarting"
    """Available: each slot that changes hands has its owner, which is bound and does not run yet. Succeeded: so it was
    when the Reservation ended."""
    OWNERS_RUNNING = "OwnersRunning"
    """Succeeded: every slot was taken by a pod that runs."""
    OWNERS_ENDED = "OwnersEnded"
    """Succeeded: every slot was taken, and a pod has run there and ended already."""
    EXPIRED = "Expired"
    """Failed: the time is up. Held places are released; pods that took their slot stay."""
    UNSCHEDULABLE = "Unschedulable"
    """Failed: the scheduler found no place for longer than `--unschedulable-seconds`."""
    PREEMPTED = "Preempted"
    """Failed: a pod of higher priority took a place."""
    NODE_LOST = "NodeLost"
    """Failed: the node of a place is gone, or has not been ready for `--node-lost-seconds`, and the place is tied to
    it."""
    HANDOVER_TIMEOUT = "HandoverTimeout"
    """Failed: an owner was not bound in time."""
    PLACE_TAKEN = "PlaceTaken"
    """Failed: another pod took a place while it changed hands."""
    INVALID = "Invalid"
    """Failed: the spec cannot be read or held, or admission would refuse such a pod; the message says why."""
    FORBIDDEN = "Forbidden"
    """Failed: a quota or a limit refuses the Reservation; the message names it and what is left."""
    DELETED = "Deleted"
    """Failed: the Reservation is being deleted, and a finalizer still keeps the object."""


class ConditionType(StrEnum):
    """Standard conditions of a Reservation, for `kubectl wait`."""

    AVAILABLE = "Available"
    """True while at least `minAvailable` slots are held or taken."""
    HANDOVER_READY = "HandoverReady"
    """True when a dry-run pod came back gated: the hand-over path works, whatever is held."""
    SUCCEEDED = "Succeeded"
    """True when every slot was taken by an owner."""
    FAILED = "Failed"
    """True when the Reservation ended without that."""
    BOUNDED = "Bounded"
    """True if `ttl` or `expires` ends it; False if it holds its places until it is deleted."""


class SlotState(StrEnum):
    """State of a slot between its placeholder and its owner."""

    PENDING = "Pending"
    """No placeholder runs for the slot, or its node lets in no owner."""
    HELD = "Held"
    """A placeholder runs on an allowed node that would let in the owner."""
    HANDING_OVER = "HandingOver"
    """An owner is on its way into the slot, or is bound there and does not run yet."""
    TAKEN = "Taken"
    """An owner runs in the slot."""
    LOST = "Lost"
    """The place is gone; the reason says how."""
    RELEASED = "Released"
    """The Reservation ended and gave the place back."""

    @property
    def is_occupied(self) -> bool:
        """Return whether a placeholder or an owner has the place."""
        return self in {SlotState.HELD, SlotState.HANDING_OVER, SlotState.TAKEN}


class ObjectReference(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A reference to a pod or to its controller."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""

    @classmethod
    def of(cls, api_version: str, kind: str, meta: ObjectMeta) -> "ObjectReference":
        """Return the reference by which `kubectl describe` finds an object's events."""
        return cls(api_version=api_version, kind=kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


class ReservationOwner(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The pods that may take a slot: an object, a selector or annotations name them; any of these will do."""

    object: ObjectReference | None = None
    label_selector: LabelSelector | None = None
    annotations: dict[str, str] = {}
    """Annotations of the pod, each with this value."""


class ReservationTask(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A number of equal slots."""

    name: str
    template: PodTemplate
    replicas: int = 1
    requests_nothing: bool = False
    """Whether the template requests nothing on purpose, so that only a pod slot is held."""
    reservation_node_names: tuple[str, ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        """Return the nodes that a slot may be on, empty for any."""
        return self.reservation_node_names

    def allows(self, node: str) -> bool:
        """Return whether a slot may be on a node."""
        return not self.node_names or node in self.node_names

    def for_any_node(self) -> "ReservationTask":
        """Return this task with slots that may be on any node."""
        return msgspec.structs.replace(self, reservation_node_names=())


class ReservationSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What to hold, for which pods and for how long; `ttl` is a Go duration, `expires` an RFC 3339 time."""

    tasks: tuple[ReservationTask, ...]
    scheduler_name: str = ""
    min_available: int | None = None
    queue: str = ""
    owners: tuple[ReservationOwner, ...] = ()
    ttl: str | None = None
    expires: str | None = None
    capacity: Capacity = Capacity.FREE
    fence: Fence = Fence.NONE
    all_or_nothing: bool = False
    """Whether slots change hands only once pods for `wanted` slots have come."""

    @property
    def replicas(self) -> int:
        """Return the number of slots over all tasks."""
        return sum(task.replicas for task in self.tasks)

    @property
    def wanted(self) -> int:
        """Return how many slots make the Reservation Available: `minAvailable`, by default all."""
        return self.replicas if self.min_available is None else self.min_available


class ReservationState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The phase and why."""

    phase: ReservationPhase
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A standard condition; `status` is `True`, `False` or `Unknown`."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int | None = None

    def dated(self, type_: str, meta: ObjectMeta, known: Iterable["Condition"], now: datetime) -> "Condition":
        """Return an object's condition of a type with the time at which its status last changed.

        That is the time in `known` if the status is the same there, else `now`.
        """
        times = (
            condition.last_transition_time
            for condition in known
            if (condition.type, condition.status) == (type_, self.status)
        )
        return Condition(
            type=str(type_),
            status=self.status,
            reason=self.reason,
            message=self.message,
            last_transition_time=next(times, "") or format_timestamp(now),
            observed_generation=meta.generation,
        )


class Slot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One replica of a task: its node, its placeholder and its owner."""

    task: str
    index: int
    state: SlotState
    node: str = ""
    placeholder: str = ""
    owner: ObjectReference | None = None
    reason: str = ""
    """Why a slot is lost, or held but not ready for a hand-over: a `ReservationReason`."""
    message: str = ""
    expected_at: str | None = None
    """When the pods on its node are expected to have left room for it; None while that is not known."""


class TaskStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Number of a task's slots in each state; `phase` maps a `SlotState` to a count."""

    phase: dict[str, int]


class ReservationStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The observed state of a Reservation; recomputed each time, never incremented."""

    state: ReservationState | None = None
    node: str = ""
    """For people: the node of the slots, or "3 nodes"."""
    min_available: int | None = None
    task_status_count: dict[str, TaskStatus] = {}
    pending: int | None = None
    available: int | None = None
    succeeded: int | None = None
    failed: int | None = None
    desired: int | None = None
    conditions: tuple[Condition, ...] = ()
    current_owner: ObjectReference | None = None
    allocatable: dict[str, str] = {}
    """What all slots are for together, whatever their states."""
    held: dict[str, str] = {}
    """What is held for owners now."""
    allocated: dict[str, str] = {}
    """What owners have taken."""
    slots: tuple[Slot, ...] = ()
    expires_at: str | None = None
    counted_in: str = ""
    """For people: which queues count its places, of a Reservation with `spec.queue`."""
    observed_generation: int | None = None


class Reservation(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A Reservation as the API server holds it."""

    metadata: ObjectMeta
    spec: ReservationSpec
    status: ReservationStatus = ReservationStatus()

    @property
    def phase(self) -> ReservationPhase:
        """Return the phase; a Reservation without a status is Pending."""
        return self.status.state.phase if self.status.state else ReservationPhase.PENDING

    @property
    def slots_add_up(self) -> bool:
        """Return whether a pod that is larger than a slot may take several of one node."""
        return self.divided is not None or self.metadata.annotations.get(SLOTS_ADD_UP_ANNOTATION) == "true"

    @property
    def divided(self) -> DividedAmounts | None:
        """Return the sum whose equal parts the slots are, None if the annotation gives none."""
        return DividedAmounts.from_annotation(self.metadata.annotations.get(SLOTS_ADD_UP_ANNOTATION, ""))

    @property
    def is_live(self) -> bool:
        """Return whether the Reservation is neither finished nor being deleted."""
        return not self.phase.terminal and self.metadata.deletion_timestamp is None

    @property
    def key(self) -> str:
        """Return `namespace/name`, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    @property
    def plan(self) -> str:
        """Return the MigrationPlan that controls the Reservation, "" without one.

        Any user may write that reference; with a uid that does not exist, the garbage collector deletes the object.
        """
        owner = self._plan_owner
        return "" if owner is None else owner.name

    @property
    def plan_uid(self) -> str:
        """Return the uid of that MigrationPlan, "" without one."""
        owner = self._plan_owner
        return "" if owner is None else owner.uid

    @property
    def _plan_owner(self) -> OwnerReference | None:
        owners = self.metadata.owner_references
        return next((owner for owner in owners if owner.controller and _is_plan(owner.api_version, owner.kind)), None)

    @property
    def move(self) -> int | None:
        """Return the position in its plan of the move that the Reservation is for; None for anything but a number."""
        return read_whole_number(self.metadata.annotations.get(MOVE_ANNOTATION, ""), most=_HIGHEST_MOVE)

    @property
    def awaits_room(self) -> bool:
        """Return whether a plan makes the room that the Reservation waits for."""
        return bool(self.plan) and ROOM_ANNOTATION in self.metadata.annotations

    def condition(self, type_: ConditionType) -> bool:
        """Return whether a condition is True."""
        return any(condition.type == type_ and condition.status == "True" for condition in self.status.conditions)

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "Reservation":
        """Decode an API object; raises `msgspec.ValidationError` with the field."""
        return convert(body, cls)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "Reservation":
        """Decode an API object; an unreadable spec gives no tasks and `metadata.unreadable`.

        The schema admits templates with fields of the wrong type: one such object must not stop a reader of many.
        """
        return read_or_stand_in(body, cls, spec={})


def _is_plan(api_version: str, kind: str) -> bool:
    return kind == "MigrationPlan" and api_version.partition("/")[0] == PREFIX
