"""The outcome of a cycle, worded for people.

It says what the cycle did, what it did not do and why.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from typing import Final, Self

from berth_core import (
    Achieved,
    MoveState,
    MoveStatus,
    Objective,
    PlanPhase,
    Predicted,
    RoomState,
    RoomStatus,
    count,
    first_few,
)
from berth_descheduler.room_outcomes import conclude_rooms, describe_rooms, reasons_in_brackets

_NAMES_SHOWN: Final = 5


class Phase(StrEnum):
    """The steps of a cycle, for its times; in their order."""

    LEASE = "lease"
    """Acquire the Lease."""
    LEFTOVERS = "leftovers"
    """Undo or continue what an interrupted run left."""
    SNAPSHOT = "snapshot"
    """Read the cluster."""
    PLAN = "plan"
    """Compute the plan."""
    PUBLISH = "publish"
    """Write the MigrationPlan."""
    APPROVAL = "approval"
    """Wait for the approval."""
    REVALIDATE = "revalidate"
    """Check the moves on fresh state."""
    TAINT = "taint"
    """Taint the sources."""
    MOVE = "move"
    """Carry out the moves, in the order of their waves."""
    VERIFY = "verify"
    """Verify where the pods landed."""
    UNTAINT = "untaint"
    """Take the taints off."""


class Verdict(StrEnum):
    """How far a cycle came; its `sentence` is for a run that has none of its own, "" where every run has one."""

    sentence: str

    def __new__(cls, value: str, sentence: str) -> Self:
        """Make a member of its value and its sentence, so that no verdict can be without one."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.sentence = sentence
        return member

    CARRIED_OUT = "CarriedOut", ""
    """The run carried out its plan; the sentence says how that went."""
    NOTHING_TO_MOVE = "NothingToMove", "Nothing to move by these rules."
    """There was nothing to move by these rules."""
    DRY_RUN = "DryRun", ""
    """A plan was computed and not published (`berth plan`)."""
    PLANNED = "Planned", ""
    """The run published a plan for people to look at."""
    AWAITS_APPROVAL = "AwaitsApproval", ""
    """The run published a plan that waits for its approval."""
    LEASE_HELD = "LeaseHeld", "Another run holds the lease; nothing was done."
    """Another run holds the Lease; this one did nothing."""
    NOT_APPROVED = "NotApproved", "The plan was not approved in time; nothing was moved."
    """The plan was not approved in time; nothing was moved."""
    PLAN_DELETED = "PlanDeleted", "The plan was deleted before it began; nothing was moved."
    """The plan was deleted before it began."""
    DECLINED = "Declined", "The plan was not confirmed; nothing was moved."
    """Whoever was asked did not confirm the plan; nothing was moved."""
    ABORTED = "Aborted", "The plan was aborted before it began; nothing was moved."
    """The plan was aborted before it began."""
    STOPPED = "Stopped", "Asked to stop before anything was moved."
    """The process was asked to stop before anything was moved."""
    PODS_WAIT = "PodsWait", "Not begun: pods wait for the room that the moves would take."
    """Not begun: pending pods would lose the capacity that the moves take."""
    PODS_STAY = "PodsStay", "Not begun: not every pod can leave."
    """Not begun: a pod could not leave a node that is drained."""
    NOT_CORDONED = "NotCordoned", "Not begun: not every node is cordoned."
    """Not begun: a node of the drain takes new pods."""
    NO_OPERATOR = "NoOperator", "Not begun: no operator is there."
    """Not begun: no operator is there to hold places."""
    TOO_LITTLE_GAIN = "TooLittleGain", "Not begun: too few nodes would be freed."
    """Not begun: the plan would free fewer nodes than `minFreedNodes`."""
    GAIN_UNDONE = "GainUndone", "Not begun: nodes that were freed lately have been filled again."
    """Not begun: nodes that plans freed recently have been filled again."""


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Why a plan is not begun."""

    verdict: Verdict
    sentence: str
    passes: bool = True
    """Whether waiting may help."""


def names_of(pods: Iterable[str]) -> str:
    """Return the first few of the pods' names, for a sentence."""
    return first_few(sorted(pods), _NAMES_SHOWN)


class Whereabouts(Enum):
    """Where the pod of a move is, or what came in its stead, where the state of the move does not say it."""

    PENDING = auto()
    """A pod in its stead has no node."""

    GONE = auto()
    """No pod is there in its stead."""


@dataclass(frozen=True, slots=True)
class PlanOutcome:
    """How one plan went; `statuses` in the plan's order."""

    plan: str
    phase: PlanPhase
    statuses: tuple[MoveStatus, ...] = ()
    freed_nodes: tuple[str, ...] = ()
    pending: int = 0
    seconds: float = 0.0
    note: str = ""
    """Why it was stopped, "" if it was not."""

    frees_nodes: bool = True
    """Whether the plan frees nodes rather than makes room."""

    ping_pong: int = 0
    """How many pods went back to a node that a plan of the last day moved them off, or moved within their cool-down."""

    rooms: tuple[RoomStatus, ...] = ()
    """The final statuses of the plan's rooms."""

    evictions: int = 0
    """How many of the moves have no target: they only evict."""

    outdated: bool = False
    """Whether the plan was stopped because others had made too many of its moves impossible."""

    freeing_nodes: tuple[str, ...] = ()
    """Nodes that will be free once the last of the moved pods there have ended."""

    ending: int = 0
    """How many pods have yet to end there."""

    stuck: int = 0
    """How many moved pods have not ended long after their grace period."""

    unplaced: Mapping[int, Whereabouts] = field(default_factory=dict)
    """The positions of the moves whose pods have left and run nowhere now."""

    def count(self, state: MoveState) -> int:
        return sum(status.state is state for status in self.statuses)

    @property
    def landed_on_target(self) -> int:
        """Return how many replacements run on their planned node."""
        return len(self._placed(MoveState.LANDED))

    @property
    def gone(self) -> int:
        """Return how many moved pods have no replacement now."""
        return len(self._unplaced(Whereabouts.GONE))

    def _placed(self, state: MoveState) -> list[MoveStatus]:
        """Return the moves in a state whose pods are where that says."""
        return [
            status for index, status in enumerate(self.statuses) if status.state is state and index not in self.unplaced
        ]

    def _unplaced(self, whereabouts: Whereabouts) -> list[MoveStatus]:
        return [status for index, status in enumerate(self.statuses) if self.unplaced.get(index) is whereabouts]

    @property
    def evicted(self) -> int:
        """Return how many pods left their node without a place elsewhere, as planned."""
        return self.count(MoveState.REMOVED)

    @property
    def clean(self) -> bool:
        """Return whether all moves landed and nothing stopped the plan.

        A pod that is pending or gone, one that does not end or a room that failed makes it False.
        """
        no_room = any(room.state is RoomState.FAILED for room in self.rooms)
        misplaced = self.count(MoveState.FAILED) or self.count(MoveState.ELSEWHERE) or self.pending
        # Of the others that are gone, the failed ones count already, and the skipped ones are no fault of the plan.
        lost = any(status.state is MoveState.LANDED for status in self._unplaced(Whereabouts.GONE))
        return not (no_room or misplaced or lost or self.stuck or (self.note and not self.outdated))

    @property
    def achieved(self) -> Achieved:
        """Return the numbers for the plan's status."""
        return Achieved(
            moves=len(self.statuses) - self.evictions,
            evictions=self.evicted,
            landed_on_target=self.landed_on_target,
            elsewhere=self.count(MoveState.ELSEWHERE),
            skipped=self.count(MoveState.SKIPPED),
            failed=self.count(MoveState.FAILED),
            freed_nodes=self.freed_nodes,
            freed_node_count=len(self.freed_nodes),
            freeing_nodes=self.freeing_nodes,
            ending_pods=self.ending,
            stuck_pods=self.stuck,
            pending_pods=self.pending,
            gone_pods=self.gone,
            seconds=round(self.seconds, 3),
        )

    @property
    def sentence(self) -> str:
        """Return how it went, for people: each move counts once, with the reasons of those that did not land."""
        total = len(self.statuses) - self.evictions
        parts = [
            f"{self.landed_on_target} of {count(total, 'pod')} landed on {'its' if total == 1 else 'their'} target"
        ]
        parts[0] += "" if total == 1 else "s"
        if not total and self.rooms:
            parts = ["No pod had to move"]
        if self.evictions:
            parts = [*parts[: bool(total)], f"{self.evicted} of {count(self.evictions, 'pod')} evicted without a place"]
        for state, word in (
            (MoveState.ELSEWHERE, "elsewhere"),
            (MoveState.SKIPPED, "skipped"),
            (MoveState.FAILED, "failed"),
        ):
            if placed := self._placed(state):
                parts.append(f"{len(placed)} {word}{reasons_in_brackets(placed)}")
        pending_moves = self._unplaced(Whereabouts.PENDING)
        if pending_moves:
            parts.append(f"{len(pending_moves)} pending{reasons_in_brackets(pending_moves)}")
        if gone_moves := self._unplaced(Whereabouts.GONE):
            parts.append(f"{len(gone_moves)} no longer there{reasons_in_brackets(gone_moves)}")
        if (others_pending := self.pending - len(pending_moves)) > 0:
            more_text = " more" if pending_moves else ""
            parts.append(f"{others_pending}{more_text} without a node")
        achieved = self.achieved
        freed_text = describe_freed(achieved) if self.frees_nodes or self.freed_nodes else ""
        note = f" Stopped: {self.note}." if self.note else ""
        rooms = f" {described}" if (described := describe_rooms(self.rooms)) else ""
        return f"{', '.join(parts)}{freed_text} in {self.seconds:.1f} s{describe_freeing(achieved)}.{rooms}{note}"


def describe_freed(achieved: Achieved) -> str:
    """Return how many nodes are free, as the end of a clause."""
    return f"; {count(len(achieved.freed_nodes), 'node')} freed"


def describe_freeing(achieved: Achieved) -> str:
    """Return which nodes will be free and which pods have not ended in time, as the end of a clause; "" for none."""
    sentence = ""
    if freeing := len(achieved.freeing_nodes):
        freeing_text = f"{freeing} more" if achieved.freed_nodes else f"{freeing}"
        sentence = f"; {freeing_text} will be freed once {_count_pods(achieved.ending_pods)} ended"
    if achieved.stuck_pods:
        sentence += f"; {_count_pods(achieved.stuck_pods)} not ended in time"
    return sentence


def freed_later(achieved: Achieved) -> str:
    """Return how many more nodes will be free and when, for a table; "" for none."""
    freeing = len(achieved.freeing_nodes)
    return f" ({freeing} more once {_count_pods(achieved.ending_pods)} ended)" if freeing else ""


def _count_pods(number: int) -> str:
    return f"{count(number, 'pod')} {'has' if number == 1 else 'have'}"


@dataclass(frozen=True, slots=True)
class RoomForecast:
    """What the plan makes room for, and how much of it fits."""

    name: str
    wanted: int | None
    fitted: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What was planned, before any move."""

    predicted: Predicted | None = None
    """As a plan records it; None where nothing was planned."""

    objective: Objective | None = None
    """What was asked for, as a plan records it; None where nothing was planned."""

    refused: int = 0
    summary: str = ""
    """The plan in a sentence."""

    upper_bound: int | None = None
    """The most freed nodes, or pods with room, that any plan could bring; None if the strategy does not say."""

    proven_optimal: bool | None = None
    room: tuple[RoomForecast, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a cycle did."""

    verdict: Verdict
    plan: PlanOutcome | None = None
    published: str = ""
    """Name of the plan that was published, "" where none was."""

    forecast: Forecast = field(default_factory=Forecast)
    adopted: tuple[PlanOutcome, ...] = ()
    """Plans of interrupted runs that this cycle brought to their end."""

    replanned: tuple[PlanOutcome, ...] = ()
    """Earlier plans of this run, of which it planned the rest again."""

    not_replanned: str = ""
    """Why the rest of the last plan was not planned again, "" where nothing was left of it."""

    why: str = ""
    """Why it was not begun, in a sentence that names pods, nodes and numbers; "" where the verdict says all."""

    seconds: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds by phase."""

    @property
    def clean(self) -> bool:
        """Return whether everything that was begun went as planned."""
        blocked_verdicts = {
            Verdict.LEASE_HELD,
            Verdict.NOT_APPROVED,
            Verdict.PLAN_DELETED,
            Verdict.DECLINED,
            Verdict.ABORTED,
            Verdict.STOPPED,
            Verdict.PODS_WAIT,
            Verdict.PODS_STAY,
            Verdict.NOT_CORDONED,
            Verdict.NO_OPERATOR,
        }
        ended_well = all(
            plan_outcome.clean and (plan_outcome.outdated or plan_outcome.phase is not PlanPhase.ABORTED)
            for plan_outcome in self.plans
        )
        return self.verdict not in blocked_verdicts and ended_well

    @property
    def plans(self) -> tuple[PlanOutcome, ...]:
        """Return all plans that the cycle brought to their end."""
        return (*self.adopted, *self.replanned, *([self.plan] if self.plan else []))

    @property
    def sentence(self) -> str:
        """Return what was done: plans of interrupted runs, earlier plans of this run, its last plan."""
        adopted_text = "".join(
            f"Continued {plan_outcome.plan}: {plan_outcome.sentence} " for plan_outcome in self.adopted
        )
        replanned_text = "".join(f"{plan_outcome.sentence} Planned again: " for plan_outcome in self.replanned)
        replanning_text = f" Planned again: {self.not_replanned}" if self.not_replanned else ""
        return f"{adopted_text}{replanned_text}{self._own_sentence()}{replanning_text}"

    def _own_sentence(self) -> str:
        if self.plan is not None and self.verdict is Verdict.CARRIED_OUT:
            return f"{self.plan.sentence}{self._room_sentence(self.plan)}"
        if self.verdict is Verdict.DRY_RUN:
            return f"Planned only: {self.forecast.summary}"
        if self.verdict is Verdict.PLANNED:
            return f"Planned only, as {self.published}: {self.forecast.summary}"
        if self.verdict is Verdict.AWAITS_APPROVAL:
            return f"Plan {self.published} waits for its approval: {self.forecast.summary}"
        if self.verdict is Verdict.NOTHING_TO_MOVE and self.forecast.summary:
            return self.forecast.summary
        return self.why or self.verdict.sentence

    def _room_sentence(self, plan: PlanOutcome) -> str:
        """Return what has room now, as far as the moves show; the plan's sentence is about kept rooms."""
        if not self.forecast.room or plan.rooms:
            return ""
        rooms = ", ".join(
            f"{room.fitted}{'' if room.wanted is None else f' of {room.wanted}'} x {room.name}"
            for room in self.forecast.room
        )
        if plan.landed_on_target + plan.evicted == len(plan.statuses):
            return f" Now there is room for {rooms}."
        return f" Not every pod landed on its target, so there may be less room than planned: {rooms}."


def conclude(statuses: Sequence[MoveStatus], rooms: Sequence[RoomStatus] = (), *, interrupted: bool) -> PlanPhase:
    landed_moves = sum(status.state.succeeded for status in statuses)
    if interrupted:
        return PlanPhase.ABORTED
    if rooms:
        return conclude_rooms(rooms, statuses)
    if landed_moves == len(statuses):
        return PlanPhase.SUCCEEDED
    return PlanPhase.PARTIAL if landed_moves else PlanPhase.FAILED
