"""The MigrationPlan contract (`berth.volcano.sh/v1alpha1`): moves, phases and results."""

from collections.abc import Mapping, Sequence
from enum import Enum, StrEnum
from typing import Any, Final, Self

import msgspec

from berth_core.clock import parse_timestamp
from berth_core.decoding import convert
from berth_core.errors import InputError
from berth_core.labels import PLAN_UID_ANNOTATION
from berth_core.names import LONGEST_LABEL_VALUE, is_dns_label, is_dns_subdomain
from berth_core.objects.metadata import ObjectMeta
from berth_core.plan_rooms import Room, RoomStatus
from berth_core.reservations import Condition, ObjectReference
from berth_core.text import count


class NodeBefore(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How full one node was; amounts are quantities of the recorded resource."""

    name: str
    allocatable: str
    requested: str
    pods: int
    """Pods other than DaemonSet and mirror pods."""


class NodesBefore(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Use of the nodes before the plan, by the plan's resource."""

    resource: str
    nodes: tuple[NodeBefore, ...] = ()
    left_out: int = 0
    """Number of further nodes."""


PLAN_API_VERSION: Final = "berth.volcano.sh/v1alpha1"
PLAN_KIND: Final = "MigrationPlan"

STARVING_JOBS: Final = "StarvingJobs"
"""The plugin that keeps nodes for starving jobs, and what its plans record as their strategy."""

LENT_NODES: Final = "LentNodes"
"""The plugin for lent nodes, and what its plans record as their strategy where it makes room."""

WINDOW_MOVES: Final = "ReservationWindows"
"""The plugin that moves pods off the nodes of windows, and what its plans record as their strategy."""


class RunMode(StrEnum):
    """How far a run goes by itself: it plans, waits for approval, or executes."""

    PLAN = "Plan"
    """Publish the plan and change nothing."""
    APPROVE = "Approve"
    """Publish the plan and wait for its approval."""
    AUTO = "Auto"
    """Carry the plan out without asking."""


class MoveMethod(StrEnum):
    """How a pod is moved."""

    EVICT = "Evict"
    """The pod is evicted, and its replacement takes the place."""
    SURGE = "Surge"
    """A pod of a Deployment is evicted only once its replacement is available on the target."""


class PlanPhase(StrEnum):
    """Phase of a plan."""

    REQUESTED = "Requested"
    """A run was asked for; the service has not computed the moves yet."""
    PROPOSED = "Proposed"
    """The moves are computed; nothing has begun."""
    APPROVED = "Approved"
    """The plan may be carried out and has not begun."""
    RUNNING = "Running"
    """The moves are being carried out."""
    SUCCEEDED = "Succeeded"
    """The final phase of a plan whose moves all landed, or that had nothing to move."""
    PARTIAL = "Partial"
    """The final phase of a plan of whose moves some landed, but not all."""
    FAILED = "Failed"
    """The final phase of a plan none of whose moves landed, or that an error ended."""
    ABORTED = "Aborted"
    """The final phase of a plan that was ended before all of its moves began."""

    @property
    def terminal(self) -> bool:
        return self in {PlanPhase.SUCCEEDED, PlanPhase.PARTIAL, PlanPhase.FAILED, PlanPhase.ABORTED}


class MoveState(StrEnum):
    """State of a move."""

    PENDING = "Pending"
    """Not begun."""
    RESERVING = "Reserving"
    """The target's Reservation is created and not proven yet."""
    RESERVED = "Reserved"
    """The place is held and the hand-over proven."""
    EVICTED = "Evicted"
    """The pod is evicted, and its replacement is on the way."""
    LANDED = "Landed"
    """The replacement runs on the planned node."""
    ELSEWHERE = "Elsewhere"
    """The replacement runs, but not on the planned node."""
    REMOVED = "Removed"
    """The pod of a move without a target has left its node; its controller makes it again."""
    SKIPPED = "Skipped"
    """Not begun, and nothing was touched."""
    FAILED = "Failed"
    """Given up; reason and message say why, and what was reserved is released."""

    @property
    def terminal(self) -> bool:
        return self in _OVER

    @property
    def succeeded(self) -> bool:
        return self in _SUCCEEDED


_SUCCEEDED: Final = frozenset({MoveState.LANDED, MoveState.REMOVED})
_OVER: Final = _SUCCEEDED | {MoveState.ELSEWHERE, MoveState.SKIPPED, MoveState.FAILED}


class Outlook(Enum):
    """What another plan may do with a pod whose move was not made."""

    OVERTAKEN = "Overtaken"
    """The cluster has changed, so that a new plan would do without the move."""
    PASSES = "Passes"
    """The same move may succeed later."""
    LASTS = "Lasts"
    """The same move would fail again."""


class MoveReason(StrEnum):
    """Why a move is in its state; empty when all went as planned."""

    outlook: Outlook

    def __new__(cls, value: str, outlook: Outlook) -> Self:
        """Make a member of its value and of what may become of the move, which none can leave out."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.outlook = outlook
        return member

    NONE = "", Outlook.PASSES
    INVALID_NAME = "InvalidName", Outlook.LASTS
    """The move has a namespace, pod or node name that no object can have; no call was made for it."""
    POLICY_MISSING = "PolicyMissing", Outlook.PASSES
    """The plan's policy is gone or invalid, so the limits of the move are not known."""
    NAMESPACE_NOT_EVICTABLE = "NamespaceNotEvictable", Outlook.PASSES
    """The policy takes no pods from the namespace."""
    NODE_NOT_SELECTED = "NodeNotSelected", Outlook.PASSES
    """The policy does not select the source or the target."""
    CRITICAL_NODE = "CriticalNode", Outlook.PASSES
    """The source is labelled `critical=true`."""
    ABOVE_PROTECTION = "AboveProtection", Outlook.OVERTAKEN
    """The target would go above a protection threshold."""
    POD_COOLING_DOWN = "PodCoolingDown", Outlook.PASSES
    """The pod was moved less than the pod cool-down ago."""
    NODE_COOLING_DOWN = "NodeCoolingDown", Outlook.PASSES
    """Pods were moved off or onto the source or the target less than the node cool-down ago."""
    MOVE_LIMIT = "MoveLimit", Outlook.PASSES
    """The policy allows no more moves."""
    NODE_LIMIT = "NodeLimit", Outlook.PASSES
    """The policy allows no more moves off the source."""
    NAMESPACE_LIMIT = "NamespaceLimit", Outlook.PASSES
    """The policy allows no more moves of pods of the namespace."""
    WAVE_LIMIT = "WaveLimit", Outlook.PASSES
    """The policy allows no more moves in the wave."""
    CONTROLLER_LIMIT = "ControllerLimit", Outlook.PASSES
    """The policy allows no more pods of the controller in the wave."""
    POD_GONE = "PodGone", Outlook.OVERTAKEN
    """The pod is gone."""
    POD_CHANGED = "PodChanged", Outlook.OVERTAKEN
    """The pod is not the one of the plan any more, or may not be moved any more."""
    TARGET_UNFIT = "TargetUnfit", Outlook.OVERTAKEN
    """The target does not take the pod any more."""
    SOURCE_NOT_EMPTIABLE = "SourceNotEmptiable", Outlook.OVERTAKEN
    """An earlier move off the same source failed, so the source cannot be emptied."""
    ROOM_NOT_MADE = "RoomNotMade", Outlook.OVERTAKEN
    """An earlier move did not free the room that the pod needs on the target."""
    ROOM_NOT_NEEDED = "RoomNotNeeded", Outlook.PASSES
    """The room is held or taken already, or its pod is gone or has another place."""
    RESERVATION_FAILED = "ReservationFailed", Outlook.PASSES
    """The target's Reservation failed; nothing was evicted."""
    RESERVATION_TIMEOUT = "ReservationTimeout", Outlook.PASSES
    """The place was not held in time; nothing was evicted."""
    HANDOVER_NOT_READY = "HandoverNotReady", Outlook.PASSES
    """The hand-over was not proven in time; nothing was evicted."""
    EVICTION_BLOCKED = "EvictionBlocked", Outlook.PASSES
    """A disruption budget, or siblings that were not Ready, spoke against the eviction until its deadline."""
    EVICTION_INTERCEPTED = "EvictionIntercepted", Outlook.PASSES
    """An admission webhook answered the eviction with 429 until its deadline, as KubeVirt does."""
    EVICTION_FORBIDDEN = "EvictionForbidden", Outlook.LASTS
    """The descheduler lacks the right to evict; nothing was evicted."""
    FILTERED = "Filtered", Outlook.LASTS
    """A filter, the pod's gang or its annotations keep the pod; the message says which."""
    REPLACEMENT_REFUSED = "ReplacementRefused", Outlook.LASTS
    """The API server would refuse the pod that its controller makes next, so nothing was evicted."""
    REPLACEMENT_DIFFERS = "ReplacementDiffers", Outlook.LASTS
    """The pod that its controller makes next could not take the place that is held, so nothing was evicted."""
    REPLACEMENT_TIMEOUT = "ReplacementTimeout", Outlook.LASTS
    """The pod was evicted, and no replacement took its place in time; the place is released."""
    REPLACEMENT_GONE = "ReplacementGone", Outlook.PASSES
    """Others removed the replacement before it was Ready, or deleted or scaled down what would have made it."""
    TAKEN_BACK = "TakenBack", Outlook.LASTS
    """The pod had been let go for a surge move, and its ReplicaSet has it back: it was not evicted. The move is Skipped
    where others changed something, and Failed otherwise."""
    CRASH_LOOP_BACK_OFF = "CrashLoopBackOff", Outlook.LASTS
    """A container of the replacement ends again and again; a pod that was let go is taken back."""
    IMAGE_PULL_BACK_OFF = "ImagePullBackOff", Outlook.LASTS
    """An image of the replacement could not be pulled; a pod that was let go is taken back."""
    ERR_IMAGE_NEVER_PULL = "ErrImageNeverPull", Outlook.LASTS
    """An image of the replacement is not on the target and may not be pulled; a pod that was let go is taken back."""
    INVALID_IMAGE_NAME = "InvalidImageName", Outlook.LASTS
    """No image can have the name that the replacement asks for; a pod that was let go is taken back."""
    CREATE_CONTAINER_CONFIG_ERROR = "CreateContainerConfigError", Outlook.LASTS
    """The replacement lacks a Secret, a ConfigMap or the like; a pod that was let go is taken back."""
    CREATE_CONTAINER_ERROR = "CreateContainerError", Outlook.LASTS
    """A container of the replacement could not be made; a pod that was let go is taken back."""
    RUN_CONTAINER_ERROR = "RunContainerError", Outlook.LASTS
    """A container of the replacement could not be started; a pod that was let go is taken back."""
    REFUSED_BY_KUBELET = "RefusedByKubelet", Outlook.LASTS
    """The target's kubelet refused the replacement, as with `OutOfcpu`; a pod that was let go is taken back."""
    EVICTED_BY_KUBELET = "EvictedByKubelet", Outlook.LASTS
    """The target's kubelet evicted the replacement; a pod that was let go is taken back."""
    REPLACEMENT_FAILED = "ReplacementFailed", Outlook.LASTS
    """The replacement has ended and failed; a pod that was let go is taken back."""
    NODE_NOT_READY = "NodeNotReady", Outlook.PASSES
    """The target went NotReady before the replacement was Ready; a pod that was let go is taken back."""
    POD_STAYS = "PodStays", Outlook.LASTS
    """The pod was evicted, and has not ended in time."""
    NODE_NOT_CLOSED = "NodeNotClosed", Outlook.PASSES
    """Without a target only a preemptable pod is evicted, off a closed lent node or for a pod that waits."""
    SIBLING_NOT_READY = "SiblingNotReady", Outlook.PASSES
    """A replacement of an earlier wave is not Ready, so this pod of the controller stays."""
    PODS_WAITING = "PodsWaiting", Outlook.PASSES
    """Pending pods need the capacity that the move would take; nothing was touched."""
    PLAN_STOPPED = "PlanStopped", Outlook.PASSES
    """The plan stopped by its own rules before the move began."""
    OUTDATED = "Outdated", Outlook.PASSES
    """Too much of the plan could not be done any more, so the rest is planned again."""
    ABORTED = "Aborted", Outlook.LASTS
    """The plan was aborted before the move began."""
    INTERRUPTED = "Interrupted", Outlook.LASTS
    """The process ended before the move began."""


_LABEL: Final = "a DNS-1123 label: up to 63 of a-z, 0-9 and - between"
_SUBDOMAIN: Final = "a DNS-1123 subdomain: up to 253 of a-z, 0-9, - and . between"


class PlannedMove(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One pod's move from its source node to its target, or its eviction where no node takes it.

    `requests` are quantities; `wave` counts from 1.
    """

    namespace: str
    pod: str
    pod_uid: str = msgspec.field(name="podUID", default="")
    owner: ObjectReference | None = None
    source: str
    target: str = ""
    """"" evicts the pod without a place elsewhere."""
    requests: dict[str, str] = {}
    wave: int = 1
    after: tuple[int, ...] | None = None
    """Positions of the moves of lower waves that this one needs to be over; None for all of lower waves."""
    reason: str = ""
    """Why this single pod should move; "" if the move only helps with the plan's others."""
    method: MoveMethod = MoveMethod.EVICT
    """How the plan moves the pod; one that cannot surge is evicted all the same."""

    @property
    def stands_alone(self) -> bool:
        """Return whether the move helps without the other moves off its source."""
        return bool(self.reason) or self.is_eviction

    @property
    def is_eviction(self) -> bool:
        """Return whether the pod leaves its node without a place elsewhere."""
        return not self.target

    @staticmethod
    def count_all(moves: "Sequence[PlannedMove]") -> str:
        """Return how many moves and how many evictions there are, for a sentence."""
        evictions = sum(move.is_eviction for move in moves)
        if not evictions:
            return count(len(moves), "move")
        moves_text = [count(len(moves) - evictions, "move")] if evictions < len(moves) else []
        return " and ".join([*moves_text, count(evictions, "eviction")])

    @property
    def destination(self) -> str:
        return self.target or "nowhere: evicted"

    @property
    def fault(self) -> InputError | None:
        """Return the error of the first invalid name, None if all are valid."""
        if not is_dns_label(self.namespace):
            return InputError("namespace", self.namespace, _LABEL)
        names = {"pod": self.pod, "source": self.source, "target": self.target or self.source}
        wrong = next((field for field, name in names.items() if not is_dns_subdomain(name)), None)
        return None if wrong is None else InputError(wrong, names[wrong], _SUBDOMAIN)


class RestrictionReason(StrEnum):
    """Why a plan does less than it could, or does not do what its writer may expect."""

    LIMIT_BINDS = "LimitBinds"
    """Without the fields, all at once, the same rules would do more on the same cluster."""
    SELECTS_NOTHING = "SelectsNothing"
    """The field names or selects what the plan may use, and the cluster has nothing of it: nothing is moved by it."""
    UNKNOWN_NAME = "UnknownName"
    """The field has a name that the cluster does not have, which changes nothing."""
    UNREADABLE_OBJECT = "UnreadableObject"
    """Objects of the cluster cannot be read; what depends on one stays where it is."""


class Restriction(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What holds a plan back: the fields of the policy, and a sentence for people."""

    reason: RestrictionReason
    fields: tuple[str, ...] = ()
    message: str


class Predicted(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a plan if every move lands."""

    nodes: int
    moves: int
    waves: int
    evictions: int = 0
    """Pods that leave their node without a place elsewhere; they are not among the moves."""
    freed_nodes: tuple[str, ...] = ()
    freed_node_count: int = 0
    """The length of `freed_nodes`, for `kubectl get`: its columns cannot count."""
    freed_resources: dict[str, str] = {}
    """What the freed nodes have for pods, as quantities."""
    pods_without_budget: int = 0
    """Moved pods that no disruption budget covers."""
    only_pods: int = 0
    """Moved pods whose controller has no other."""
    stateful_set_pods: int = 0
    expected_seconds: int = 0
    """An estimate by what each move waits for and how many may be under way: a move takes its pod's grace period, and
    the time that the pod took to start."""
    freed_price_per_hour: str = ""
    """Hourly price of the freed nodes less that of empty ones that are filled, exact, in the currency of the prices; ""
    without prices."""
    restrictions: tuple[Restriction, ...] = ()
    """What holds the plan back, found by planning again without it."""
    notes: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET
    """Remarks of the policy's rules for people; left out if there are none."""

    def __post_init__(self) -> None:
        """Leave out an empty list of notes; `omit_defaults` would leave out the zeros, too."""
        if not self.notes:
            msgspec.structs.force_setattr(self, "notes", msgspec.UNSET)


class Achieved(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The result of a plan; `seconds` of wall-clock time from start to end."""

    moves: int = 0
    landed_on_target: int = 0
    evictions: int = 0
    """Pods that left their node without a place elsewhere, as planned."""
    elsewhere: int = 0
    skipped: int = 0
    failed: int = 0
    freed_nodes: tuple[str, ...] = ()
    freed_node_count: int = 0
    """The length of `freed_nodes`, for `kubectl get`: its columns cannot count."""
    freeing_nodes: tuple[str, ...] = ()
    """Nodes that will be free once the last of the moved pods there have ended."""
    ending_pods: int = 0
    """How many pods those are."""
    stuck_pods: int = 0
    """Moved pods that had not ended long after their grace period; nothing waits for them any more."""
    pending_pods: int = 0
    gone_pods: int = 0
    """Moved pods that had no replacement at the end."""
    seconds: float = 0.0


class FreedMarks(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The marks that a run puts on the nodes that it frees, for those that are not free yet."""

    taint: bool = False
    annotations: dict[str, str] = {}


class Objective(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The planner's task: plugin, strategy and arguments.

    Unknown until the policy has been read, if the plan was requested by the policy's name.
    """

    plugin: str = ""
    strategy: str = ""
    args: dict[str, Any] = {}


class MigrationPlanSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The plan: its policy, mode, moves and rooms.

    Later writes add only approval, abort and the moves of a requested plan.
    """

    policy: str = ""
    trigger: str = "Manual"
    mode: RunMode | None = None
    """None for a plan of `berth run`, which executes it itself."""
    requested_by: str = ""
    objective: Objective = Objective()
    approved: bool = False
    approved_by: str = ""
    """The user who approved it over HTTP."""
    approve_before: str | None = None
    aborted: bool = False
    aborted_by: str = ""
    """The user who aborted it over HTTP."""
    moves: tuple[PlannedMove, ...] = ()
    rooms: tuple[Room, ...] = ()
    """The rooms that the moves make, and those that wait."""
    predicted: Predicted | None = None
    nodes_before: NodesBefore | None = None
    """How full the nodes were before the plan."""


class MoveStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """State of one move; the list follows the order of `spec.moves`."""

    namespace: str
    pod: str
    state: MoveState = MoveState.PENDING
    reason: str = ""
    message: str = ""
    reservation: str = ""
    replacement: str = ""
    node: str = ""
    method: MoveMethod | None = None
    """How the pod is moved; set for moves that should surge."""
    method_reason: str = ""
    """Why such a move evicts the pod first after all."""


class MigrationPlanStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Phase, outcome, the state and reason of each move, and the result."""

    phase: PlanPhase | None = None
    message: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    moves: tuple[MoveStatus, ...] = ()
    rooms: tuple[RoomStatus, ...] = ()
    achieved: Achieved | None = None
    freed_marks: FreedMarks | None = None
    """The marks that the nodes in `achieved.freeing_nodes` get once they are free."""
    replanned_as: str = ""
    """Name of the plan that replaces the rest of this one, which could not be done any more."""
    conditions: tuple[Condition, ...] = ()


class MigrationPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A MigrationPlan as the API server holds it."""

    metadata: ObjectMeta
    spec: MigrationPlanSpec = MigrationPlanSpec()
    status: MigrationPlanStatus = MigrationPlanStatus()

    @property
    def phase(self) -> PlanPhase:
        """Return the phase.

        A plan without a status is Requested if it has no moves yet, else Proposed. A plan that cannot be read is
        Failed, whatever its status says.
        """
        if fails_unread(self.metadata, self.status.phase):
            return PlanPhase.FAILED
        if self.status.phase is not None:
            return self.status.phase
        asked_for = self.spec.mode is not None and self.spec.predicted is None and not self.spec.moves
        return PlanPhase.REQUESTED if asked_for else PlanPhase.PROPOSED

    @property
    def is_aborted(self) -> bool:
        """Return whether an abort was requested; a deletion is one, also where a finalizer delays it."""
        return self.spec.aborted or self.metadata.deletion_timestamp is not None

    @property
    def came_back(self) -> bool:
        """Return whether the plan was published, begun or ended as an object with another uid.

        Such a plan was restored from a backup or replaced by force, and must not be executed again. A plan that an
        older release published has no note of its uid, but it has a status.
        """
        noted_uid = self.metadata.annotations.get(PLAN_UID_ANNOTATION)
        if noted_uid is not None:
            return noted_uid != self.metadata.uid
        return self.spec.approved and self.spec.predicted is not None and self.status.phase is None

    @property
    def fault(self) -> InputError | None:
        """Return why the plan can never be executed, None if it can.

        Older CRDs admit such plans. A plan's name is the value of a label on its Reservations and of a taint on its
        sources.
        """
        name, limit = self.metadata.name, self.spec.approve_before
        if len(name) > LONGEST_LABEL_VALUE:
            expected = f"up to {LONGEST_LABEL_VALUE} characters: make a new plan"
            return InputError("metadata.name", None, expected, said=f"{len(name)} characters long")
        try:
            if limit is not None:
                parse_timestamp(limit)
        except InputError as error:
            return InputError("spec.approveBefore", limit, error.expected)
        return None

    @property
    def move_statuses(self) -> tuple[MoveStatus, ...]:
        """Return the state of each move in the order of `spec.moves`; moves without a status are pending."""
        reported = self.status.moves[: len(self.spec.moves)]
        unreported = self.spec.moves[len(reported) :]
        return (*reported, *(MoveStatus(namespace=move.namespace, pod=move.pod) for move in unreported))

    @property
    def room_statuses(self) -> tuple[RoomStatus, ...]:
        """Return the state of each room in the order of `spec.rooms`; rooms without a status are pending."""
        reported = self.status.rooms[: len(self.spec.rooms)]
        return (*reported, *(RoomStatus(name=room.name) for room in self.spec.rooms[len(reported) :]))

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "MigrationPlan":
        """Decode an API object; raises `msgspec.ValidationError` with the field."""
        return convert(body, cls)


def fails_unread(metadata: ObjectMeta, written: PlanPhase | None) -> bool:
    """Return whether an unreadable plan is not yet in a final phase."""
    return bool(metadata.unreadable) and not (written and written.terminal)
