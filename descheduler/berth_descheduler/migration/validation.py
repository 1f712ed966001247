"""The look at the whole cluster before a plan begins and before each of its waves: does it still hold, who waits.

What the plan itself has put on the cluster is looked through: its
taints on the sources, and the places of moves that are to be made yet.
"""

import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import datetime
from typing import Any, Final, Protocol

import msgspec
import structlog

from berth_core import (
    MOVE_ANNOTATION,
    PLACEHOLDER_LABEL,
    PLAN_LABEL,
    RESERVATION_LABEL,
    BerthError,
    Clock,
    InputError,
    MigrationPlan,
    MoveReason,
    MoveState,
    Node,
    PlannedMove,
    Pod,
    Reservation,
    ResourceAmounts,
    RetryableError,
    Room,
    Snapshot,
    format_duration,
    occupied_requests,
)
from berth_core import PODS as POD_SLOTS
from berth_descheduler import telemetry
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.framework.runtime import PluginSet, Refusing
from berth_descheduler.migration.history import find_refilled
from berth_descheduler.migration.nodes import is_taint_of, nodes_to_empty
from berth_descheduler.outcome import Verdict
from berth_descheduler.planner import Invalid, Plan, PlannerSettings, revalidate
from berth_descheduler.planner.evictability import wish_refusals
from berth_descheduler.planner.gangs import Gangs, gangs_of
from berth_descheduler.planner.pending_pods import starved_pods
from berth_descheduler.plugins.defragmentation import Goal, goal_of
from berth_descheduler.settings import CycleSettings
from berth_descheduler.text import count, first_few
from berth_kube import NODES, PODS, KubeClient

_NAMES_SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class Review:
    """What a look found."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    """Moves that do not hold any more, by their position in the plan."""

    waiting: tuple[str, ...] = ()
    """Pods (`namespace/name`) that wait for a node and would lose their room to the moves."""


class Reviewer(Protocol):
    """Who looks at the cluster before a wave."""

    def review(self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int], *, budgets: bool = False) -> Review:
        """Return what speaks against the next of the moves that are still to be made; raises a `BerthError`.

        Without `budgets` disruption budgets are left to the eviction, which tries again until its deadline.
        """
        ...


class PlanValidator:
    """Looks at the cluster for one plan."""

    def __init__(
        self,
        plan: MigrationPlan,
        planner: PlannerSettings,
        read_snapshot: Callable[[], Snapshot],
        *,
        blocked_reason: str = "",
    ) -> None:
        self._blocked_reason = blocked_reason
        self._name = plan.metadata.name
        self._moves = plan.spec.moves
        self._statuses = plan.move_statuses
        self._begun: set[int] | None = None
        self._accepted: set[int] = set()
        self._planner = planner
        self._read_snapshot = read_snapshot
        self._emptied = _nodes_to_be_emptied_whole(plan)
        self._drained = nodes_to_empty(plan.spec.moves)
        self._served = served_pods(plan.spec.rooms)

    def review(self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int], *, budgets: bool = False) -> Review:
        """Return what speaks against the next of the moves that are still to be made, as the protocol has it."""
        if self._blocked_reason:
            return Review(dict.fromkeys(ahead, Invalid(MoveReason.POLICY_MISSING, self._blocked_reason)))
        snapshot = without_plan_objects(self._read_snapshot(), self._name, ahead)
        if not budgets:
            snapshot = replaced(snapshot, disruption_budgets=())
        positions = sorted(ahead)
        moves = [ahead[index] for index in positions]
        found = revalidate(
            without_rooms(snapshot, self._name),
            moves,
            self._planner,
            emptied=self._emptied,
            begun=[self._moves[index] for index in sorted(self._begun_before(ahead))],
        )
        invalid = {positions[number]: why for number, why in found.items()}
        self._accepted |= ahead.keys() - invalid.keys()
        begun = [ahead[index] for index in positions if index in next_moves and index not in invalid]
        drained = self._drained if begun else ()
        starved = starved_pods(snapshot, begun, drained)
        return Review(invalid, tuple(pod.key for pod in starved if pod.metadata.uid not in self._served))

    def _begun_before(self, ahead: Collection[int]) -> set[int]:
        """Return the moves that have been begun: at the first look by what is recorded, later by what is not ahead."""
        if self._begun is None:
            skipped = {index for index, status in enumerate(self._statuses) if status.state is MoveState.SKIPPED}
            self._begun = set(range(len(self._moves))).difference(ahead, skipped)
        self._begun |= self._accepted.difference(ahead)
        return self._begun


def served_pods(rooms: Iterable[Room]) -> frozenset[str]:
    """Return the uids of the pods that room is made for: the moves take it from none of these."""
    return frozenset(slot.pod_uid for room in rooms for slot in room.slots if slot.pod_uid)


def names_of(pods: Iterable[str]) -> str:
    """Return the names of pods for a sentence, the first few of many."""
    return first_few(sorted(pods), _NAMES_SHOWN)


def count_waiting(pods: Collection[str]) -> str:
    """Return how many pods wait, for a sentence."""
    return "1 pod waits" if len(pods) == 1 else f"{len(pods)} pods wait"


def without_plan_objects(snapshot: Snapshot, plan: str, ahead: Collection[int]) -> Snapshot:
    """Return a snapshot without a plan's taints and without the places that it holds for moves still to be made."""
    positions = {str(index) for index in ahead}
    places = {one.metadata.uid for one in snapshot.reservations if _is_place_of(one, plan, positions)}
    return replaced(
        snapshot,
        nodes=tuple(_without_taints(node, plan) for node in snapshot.nodes),
        reservations=tuple(one for one in snapshot.reservations if one.metadata.uid not in places),
        pods=tuple(pod for pod in snapshot.pods if not _holds_one_of(pod, places)),
    )


def without_rooms(snapshot: Snapshot, plan: str) -> Snapshot:
    """Return a snapshot without the places that wait for the room which a plan makes: moves may pass them by."""
    rooms = {one.metadata.uid for one in snapshot.reservations if one.plan == plan and one.awaits_room}
    return replaced(
        snapshot,
        reservations=tuple(one for one in snapshot.reservations if one.metadata.uid not in rooms),
        pods=tuple(pod for pod in snapshot.pods if pod.spec.node_name or not _holds_one_of(pod, rooms)),
    )


def _nodes_to_be_emptied_whole(plan: MigrationPlan) -> tuple[str, ...] | None:
    """Return the sources that are left alone if one pod stays, None for all; where room is made, none is."""
    if goal_of(plan.spec.objective) is Goal.MAKE_ROOM:
        return ()
    return None if plan.spec.predicted is None else plan.spec.predicted.freed_nodes


def _is_place_of(reservation: Reservation, plan: str, positions: Collection[str]) -> bool:
    metadata = reservation.metadata
    return metadata.labels.get(PLAN_LABEL) == plan and metadata.annotations.get(MOVE_ANNOTATION) in positions


def _holds_one_of(pod: Pod, places: Collection[str]) -> bool:
    return PLACEHOLDER_LABEL in pod.metadata.labels and pod.metadata.labels.get(RESERVATION_LABEL) in places


def _without_taints(node: Node, plan: str) -> Node:
    kept = tuple(taint for taint in node.spec.taints if not is_taint_of(plan, taint))
    if len(kept) == len(node.spec.taints):
        return node
    return msgspec.structs.replace(node, spec=msgspec.structs.replace(node.spec, taints=kept))


# --- beginnings ------------------------------------------------------------------------------------------------------
# Whether a plan that was found is begun: whether it is worth its moves, and whether other pods come first.

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Why a plan is not begun."""

    verdict: Verdict
    sentence: str


def too_little_gain_reason(
    found: Plan, history: Iterable[MigrationPlan], settings: CycleSettings, now: datetime
) -> NotBegun | None:
    """Return why a plan that is to free nodes does not bring enough to begin it, None if it does.

    A node that a plan freed within the cool-down of pods and that has been filled again is no gain: what filled it
    would fill it once more.
    """
    alone = any(move.stands_alone for move in found.moves)
    if alone or goal_of(found.objective) is Goal.MAKE_ROOM or not found.freed_nodes:
        return None
    refilled = find_refilled(history, found.freed_nodes, now, settings.pod_cool_down)
    lasting, least = len(found.freed_nodes) - len(refilled), max(1, settings.min_freed_nodes)
    if lasting >= least:
        return None
    if not refilled:
        what = f"{count(lasting, 'node')} would be freed with {count(len(found.moves), 'move')}"
        text = f"Not begun: {what}, at least {least} are asked for."
        return NotBegun(Verdict.TOO_LITTLE_GAIN, text)
    plans = names_of(set(refilled.values()))
    text = (
        f"Not begun: {names_of(refilled)} would be freed once more, but {plans} did so less than "
        f"{format_duration(settings.pod_cool_down)} ago and pods have come back since."
    )
    return NotBegun(Verdict.GAIN_UNDONE, text)


def pods_waiting_reason(found: Plan, snapshot: Snapshot, waited_seconds: float) -> NotBegun | None:
    """Return why a plan has to wait for pods that wait themselves, None if it takes no room from any."""
    served = served_pods(found.rooms)
    starved = [pod.key for pod in starved_pods(snapshot, found.moves) if pod.metadata.uid not in served]
    if not starved:
        return None
    what = f"{count_waiting(starved)} for room that the moves would take"
    text = f"Not begun: {what}, {waited_seconds:.0f} s by now: {names_of(starved)}."
    return NotBegun(Verdict.PODS_WAIT, text)


# --- last word -------------------------------------------------------------------------------------------------------
# The last question before an eviction: what rules and filters say of the pod as it is now, its place being held.
#
# Plugins are asked one at a time, whichever thread asks, and none is shown a cluster that is older than half a minute.
# Of a gang, everything is read anew, and its pods are evicted one after another: no two go on the same look. What
# cannot be found out keeps the pod where it is.

_OLDEST_VIEW_SECONDS: Final = 30.0


class PreEvictionCheck:
    """Asks the rules that may change at any time, and the pre-eviction filters of one plan.

    `read_gangs` returns the pods of a namespace with their groups, `read_snapshot` the whole cluster.
    """

    def __init__(
        self,
        plugins: PluginSet,
        read_snapshot: Callable[[], Snapshot],
        read_gangs: Callable[[str], Snapshot],
        clock: Clock,
    ) -> None:
        self._plugins = plugins
        self._read_snapshot = read_snapshot
        self._read_gangs = read_gangs
        self._clock = clock
        self._lock = threading.Lock()
        self._gang_lock = threading.Lock()
        self._refusing: Refusing | None = None
        self._made_at = 0.0

    def eviction_lock(self, raw_pod: dict[str, Any]) -> AbstractContextManager[Any]:
        """Return what to hold from the question to the end of the eviction: no two pods of gangs go at once."""
        try:
            in_gang = bool(gangs_of(msgspec.convert(raw_pod, Pod)))
        except msgspec.ValidationError:
            in_gang = True
        return self._gang_lock if in_gang else nullcontext()

    def refusals(self, raw_pod: dict[str, Any]) -> tuple[Refusal, ...]:
        """Return all that speaks against evicting a pod now; raises `RetryableError` if the cluster cannot be read."""
        try:
            pod = msgspec.convert(raw_pod, Pod)
            of_gang = Gangs(self._read_gangs(pod.metadata.namespace)).refusals(pod) if gangs_of(pod) else ()
            return (*of_gang, *wish_refusals(pod), *self._ask_filters(pod))
        except (InputError, msgspec.ValidationError) as error:
            return (Refusal(RefusalReason.PLUGIN_FAILED, str(error)),)

    def _ask_filters(self, pod: Pod) -> tuple[Refusal, ...]:
        if not self._plugins.pre_eviction_filters:
            return ()
        with self._lock:
            return self._current()(pod)

    def _current(self) -> Refusing:
        """Return the filters on a view that is young enough; the cluster is read only if one of them looks at it."""
        now = self._clock.monotonic()
        if self._refusing is None or now - self._made_at > _OLDEST_VIEW_SECONDS:
            self._refusing = self._plugins.refusing_eviction(ClusterView(self._read_snapshot, self._clock.now()))
            self._made_at = now
        return self._refusing


# --- room left -------------------------------------------------------------------------------------------------------
# Whether targets have room for moves although others, which were to make that room, did not take place.

_READ_SECONDS: Final = 5.0


def insufficient_targets(client: KubeClient, moves: Mapping[int, PlannedMove]) -> dict[int, tuple[str, ...]]:
    """Return what resources the target of each move lacks now, of those that lack any.

    Moves to the same target are looked at in their order, each with those before it in place. A node that cannot be
    read is taken to have room: then the reservation tells.
    """
    to_target: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(moves):
        to_target[moves[index].target].append(index)
    lacking: dict[int, tuple[str, ...]] = {}
    for target, indices in sorted(to_target.items()):
        try:
            free = _read_free(client.within(_READ_SECONDS), target)
            found = _lacking_by_move(free, [moves[index] for index in indices])
        except BerthError:
            continue
        lacking |= {index: names for index, names in zip(indices, found, strict=True) if names}
    return lacking


def _lacking_by_move(free: ResourceAmounts, moves: Sequence[PlannedMove]) -> list[tuple[str, ...]]:
    """Return what each of some moves to one node lacks if those before it that fit take their part."""
    found = []
    for move in moves:
        asked = _with_slot(ResourceAmounts.from_quantities(move.requests))
        found.append(asked.lacking(free))
        if not found[-1]:
            free = free.minus(asked)
    return found


def _read_free(client: KubeClient, name: str) -> ResourceAmounts:
    """Return what nothing takes of a node; raises `BerthError`."""
    node = client.get(NODES, name, type=Node)
    pods = client.list(PODS, field_selector=f"spec.nodeName={name}", type=Pod).items
    taken = (_with_slot(occupied_requests(pod)) for pod in pods if not pod.is_terminal)
    return ResourceAmounts.from_quantities(node.status.allocatable).minus(ResourceAmounts.total(taken))


def _with_slot(asked: ResourceAmounts) -> ResourceAmounts:
    return asked.largest(ResourceAmounts({POD_SLOTS: 1}))


# --- wave gate -------------------------------------------------------------------------------------------------------
# What has to be so before moves begin: the plan still holds, and no pod that waits would lose its room to them.
#
# It does not look (`plan_review`) and does not skip or stop anything: it says what is to be skipped and why to stop.

_LOG = structlog.get_logger(__name__)
_CONFIRM_SECONDS: Final = 1.0
"""What does not hold is looked at once more after this long: a label or a count may lag behind what has happened."""

_PAUSE_SECONDS: Final = 1.0
_LONGEST_BLIND_SECONDS: Final = 180.0
"""How long the cluster may be unreadable before a plan is stopped."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """How a gate was passed: what is to be skipped, or why nothing more may begin."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    stop: MoveReason = MoveReason.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class WaveValidator:
    """Where a plan waits before it begins, and before each of its waves."""

    reviewer: Reviewer
    clock: Clock
    pending_wait_seconds: float
    """How long pods that come first are waited for."""

    budgets: bool
    """Whether moves whose disruption budget allows none do not hold."""

    stopped: Callable[[], bool]
    """Tells whether there is no point in waiting any more."""

    def validate(self, ahead: Callable[[], Mapping[int, PlannedMove]], next_moves: Collection[int]) -> ValidationResult:
        """Wait until the next moves may begin, or may not; `ahead` gives the moves that are still to be made."""
        begun_at = self.clock.monotonic()
        doubted: Mapping[int, Invalid] | None = None
        while not self.stopped():
            waited = self.clock.monotonic() - begun_at
            review = self._look(ahead(), next_moves)
            if isinstance(review, RetryableError):
                if waited >= _LONGEST_BLIND_SECONDS:
                    return ValidationResult(
                        stop=MoveReason.PLAN_STOPPED, message=f"the cluster could not be read: {review}"
                    )
            elif review.waiting:
                if waited >= self.pending_wait_seconds:
                    return ValidationResult(stop=MoveReason.PODS_WAITING, message=_pods_waiting_message(review, waited))
            elif doubted is not None or not review.invalid:
                return ValidationResult(
                    {index: why for index, why in review.invalid.items() if index in (doubted or ())}
                )
            else:
                doubted = review.invalid
                self.clock.sleep(_CONFIRM_SECONDS)
                continue
            self.clock.sleep(_PAUSE_SECONDS)
        return ValidationResult()

    def _look(self, ahead: Mapping[int, PlannedMove], next_moves: Collection[int]) -> Review | RetryableError:
        try:
            return self.reviewer.review(ahead, next_moves, budgets=self.budgets)
        except RetryableError as error:
            _LOG.info(telemetry.CALL_FAILED, **{telemetry.KEY_ERROR: str(error)})
            return error


def _pods_waiting_message(review: Review, waited: float) -> str:
    what = f"{count_waiting(review.waiting)} for the room that the moves would take"
    return f"{what}, {waited:.0f} s by now: {names_of(review.waiting)}"
