"""Validates a plan on the whole cluster.

It does so before the plan begins and before each wave. Validation ignores what the plan itself has put on the cluster:
its taints on the sources, and the places of moves that are still ahead.
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
    DEFAULT_NAMESPACE,
    MOVE_ANNOTATION,
    PLACEHOLDER_LABEL,
    PLAN_LABEL,
    RESERVATION_LABEL,
    BerthError,
    Clock,
    InputError,
    MigrationPlan,
    MoveMethod,
    MoveReason,
    MoveState,
    Node,
    PlannedMove,
    Pod,
    Reservation,
    ResourceAmounts,
    RetryableError,
    Room,
    RunMode,
    Snapshot,
    count,
    first_few,
    format_duration,
    occupied_requests,
)
from berth_core import PODS as POD_SLOTS
from berth_core.decoding import convert
from berth_descheduler import telemetry
from berth_descheduler.framework import ClusterView, Refusal, RefusalReason
from berth_descheduler.framework.interfaces import PluginSet, Refusing
from berth_descheduler.migration.nodes import is_taint_of, nodes_to_empty
from berth_descheduler.migration.plans import find_refilled
from berth_descheduler.outcome import Verdict
from berth_descheduler.planner import (
    Gangs,
    Invalid,
    Plan,
    PlannerSettings,
    UnderWay,
    gangs_of,
    revalidate,
    starved_pods,
    wish_refusals,
    with_surges,
)
from berth_descheduler.plugins import drain_of, evicts_for_room, goal_of, why_not_evicted
from berth_descheduler.settings import CycleSettings
from berth_kube import NODES, PODS, KubeClient

_NAMES_SHOWN: Final = 5
_STAYING_SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class Review:
    """The findings of one validation."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    """Moves that are no longer valid, by their position in the plan."""

    waiting: tuple[str, ...] = ()
    """Pending pods (`namespace/name`) that would lose their room to the moves."""


class Reviewer(Protocol):
    """Validates a plan before moves begin."""

    @property
    def most_at_once(self) -> int:
        """Return how many moves the policy allows in a wave."""
        ...

    def review(
        self,
        ahead: Mapping[int, PlannedMove],
        next_moves: Collection[int],
        *,
        budgets: bool = False,
        under_way: Mapping[int, PlannedMove] | None = None,
        waiting: Collection[int] = (),
    ) -> Review:
        """Return what speaks against the next of the remaining moves; raises `BerthError`.

        Without `budgets`, disruption budgets are left to the eviction, which tries again until its deadline. Moves that
        are under way are ahead as well until their pods leave; others are `waiting` for some of them.
        """
        ...


class PlanValidator:
    """Validates the moves of one plan."""

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

    @property
    def most_at_once(self) -> int:
        """Return how many moves the policy allows in a wave."""
        return self._planner.limits.waves.per_wave

    def review(
        self,
        ahead: Mapping[int, PlannedMove],
        next_moves: Collection[int],
        *,
        budgets: bool = False,
        under_way: Mapping[int, PlannedMove] | None = None,
        waiting: Collection[int] = (),
    ) -> Review:
        """Return what speaks against the next of the remaining moves."""
        if self._blocked_reason:
            return Review(dict.fromkeys(ahead, Invalid(MoveReason.POLICY_MISSING, self._blocked_reason)))
        whole = self._read_snapshot()
        begun = under_way or {}
        ahead = _still_ahead(whole, ahead, begun)
        snapshot = without_plan_objects(whole, self._name, ahead)
        if not budgets:
            snapshot = replaced(snapshot, disruption_budgets=())
        elif any(move.method is MoveMethod.SURGE for move in ahead.values()):
            snapshot = with_surges(snapshot)
        positions = sorted(ahead)
        moves = [ahead[index] for index in positions]
        found = revalidate(
            without_rooms(snapshot, self._name),
            moves,
            self._planner,
            emptied=self._emptied,
            begun=[self._moves[index] for index in sorted(self._begun_before(ahead).union(begun))],
            beside=UnderWay(
                moves=frozenset(number for number, index in enumerate(positions) if index in begun),
                waiting=frozenset(number for number, index in enumerate(positions) if index in waiting),
                leaving=tuple(move for index, move in begun.items() if index not in ahead),
            ),
        )
        invalid = {positions[number]: why for number, why in found.items()}
        self._accepted |= ahead.keys() - invalid.keys()
        begins = [ahead[index] for index in positions if index in next_moves and index not in invalid]
        drained = self._drained if begins else ()
        starved = starved_pods(without_plan_objects(whole, self._name, ahead.keys() - begun.keys()), begins, drained)
        return Review(invalid, tuple(pod.key for pod in starved if pod.metadata.uid not in self._served))

    def _begun_before(self, ahead: Collection[int]) -> set[int]:
        """Return the moves that have begun.

        These are first those recorded, later those no longer ahead.
        """
        if self._begun is None:
            skipped = {index for index, status in enumerate(self._statuses) if status.state is MoveState.SKIPPED}
            self._begun = set(range(len(self._moves))).difference(ahead, skipped)
        self._begun |= self._accepted.difference(ahead)
        return self._begun


def _still_ahead(
    snapshot: Snapshot, ahead: Mapping[int, PlannedMove], under_way: Mapping[int, PlannedMove]
) -> Mapping[int, PlannedMove]:
    """Return the moves ahead without those under way whose pods have left since, and without later moves of these."""
    if not under_way:
        return ahead
    there = {pod.metadata.uid for pod in snapshot.pods if not pod.is_terminating and pod.controller is not None}
    left = {(move.namespace, move.pod) for move in under_way.values() if move.pod_uid not in there}
    return {index: move for index, move in ahead.items() if (move.namespace, move.pod) not in left}


def served_pods(rooms: Iterable[Room]) -> frozenset[str]:
    """Return the uids of the pods that rooms are made for.

    The moves starve none of them.
    """
    return frozenset(slot.pod_uid for room in rooms for slot in room.slots if slot.pod_uid)


def names_of(pods: Iterable[str]) -> str:
    """Return the first few of the pods' names, for a sentence."""
    return first_few(sorted(pods), _NAMES_SHOWN)


def count_waiting(pods: Collection[str]) -> str:
    """Return how many pods wait, for a sentence."""
    return "1 pod waits" if len(pods) == 1 else f"{len(pods)} pods wait"


def without_plan_objects(snapshot: Snapshot, plan: str, ahead: Collection[int]) -> Snapshot:
    """Return a snapshot without a plan's taints and reserved places.

    The places are those of its moves ahead.
    """
    positions = {str(index) for index in ahead}
    places = {one.metadata.uid for one in snapshot.reservations if _is_place_of(one, plan, positions)}
    return replaced(
        snapshot,
        nodes=tuple(_without_taints(node, plan) for node in snapshot.nodes),
        reservations=tuple(one for one in snapshot.reservations if one.metadata.uid not in places),
        pods=tuple(pod for pod in snapshot.pods if not _holds_one_of(pod, places)),
    )


def without_rooms(snapshot: Snapshot, plan: str) -> Snapshot:
    """Return a snapshot without the Reservations that wait for a plan's rooms."""
    rooms = {one.metadata.uid for one in snapshot.reservations if one.plan == plan and one.awaits_room}
    return replaced(
        snapshot,
        reservations=tuple(one for one in snapshot.reservations if one.metadata.uid not in rooms),
        pods=tuple(pod for pod in snapshot.pods if pod.spec.node_name or not _holds_one_of(pod, rooms)),
    )


def _nodes_to_be_emptied_whole(plan: MigrationPlan) -> tuple[str, ...] | None:
    """Return the sources that keep all pods if one pod stays.

    None stands for all sources; empty with a goal that takes single pods off nodes.
    """
    if not goal_of(plan.spec.objective).empties_nodes:
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


# --- before a plan ---------------------------------------------------------------------------------------------------
# Whether a new plan begins: whether it is worth its moves, and whether pending pods come first.

FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class NotBegun:
    """Why a plan is not begun."""

    verdict: Verdict
    sentence: str
    passes: bool = True
    """Whether waiting may help."""


def too_little_gain_reason(
    found: Plan, history: Iterable[MigrationPlan], settings: CycleSettings, now: datetime
) -> NotBegun | None:
    """Return why a plan frees too few nodes to begin.

    None if it frees enough. A node that a plan freed within the pods' cool-down and that was filled again is no gain:
    it would be filled once more.
    """
    alone = any(move.stands_alone for move in found.moves)
    if alone or not goal_of(found.objective).heeds_min_freed_nodes or not found.freed_nodes:
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
    """Return why a plan has to wait for pending pods.

    None if it takes no room from any of them.
    """
    served = served_pods(found.rooms)
    starved = [pod.key for pod in starved_pods(snapshot, found.moves) if pod.metadata.uid not in served]
    if not starved:
        return None
    what = f"{count_waiting(starved)} for room that the moves would take"
    text = f"Not begun: {what}, {waited_seconds:.0f} s by now: {names_of(starved)}."
    return NotBegun(Verdict.PODS_WAIT, text)


_PASSING: Final = frozenset({RefusalReason.BUDGET_EXHAUSTED, RefusalReason.NOT_RUNNING, RefusalReason.HANDING_OVER})
"""Why pods stay that may be able to leave a moment later."""


def drain_not_begun_reason(found: Plan, snapshot: Snapshot, mode: RunMode | None) -> NotBegun | None:
    """Return why a drain does not begin that has to take every pod along, or whose nodes still take pods.

    None if it begins, or is for looking at only, and for other plans.
    """
    drain = drain_of(found.objective)
    if drain is None:
        return None
    nodes = (node for node in snapshot.nodes if node.metadata.name in drain.nodes)
    taking = [node.metadata.name for node in nodes if not node.spec.unschedulable]
    if taking and mode is not RunMode.PLAN:
        text = f"Not begun: not cordoned: {names_of(taking)}."
        return NotBegun(Verdict.NOT_CORDONED, text, passes=False)
    staying = () if drain.skip_refused else found.pods_staying_on(drain.nodes)
    if not staying:
        return None
    named = sorted(f"{one.namespace}/{one.name} ({one.reason})" for one in staying)
    text = f"Not begun: {count(len(staying), 'pod')} cannot leave: {first_few(named, _STAYING_SHOWN)}."
    return NotBegun(Verdict.PODS_STAY, text, passes=all(one.reason in _PASSING for one in staying))


# --- pre-eviction ----------------------------------------------------------------------------------------------------
# The last check before an eviction: the rules and filters, asked about the pod as it is now, with its place held.
#
# Plugins are called one at a time, in any thread, and see no cluster that is older than half a minute. Pods of a gang
# are evicted one after another, each on freshly read state. An unanswered question keeps the pod where it is.

_OLDEST_VIEW_SECONDS: Final = 30.0


class PreEvictionCheck:
    """Checks just before an eviction whether the pod may be evicted.

    Asks the rules whose answers change at any time, and the plan's pre-eviction filters. `read_gangs` returns the pods
    of a namespace with their groups, `read_snapshot` the whole cluster.
    """

    def __init__(
        self,
        plugins: PluginSet,
        read_snapshot: Callable[[], Snapshot],
        read_gangs: Callable[[str], Snapshot],
        clock: Clock,
        own_namespace: str = DEFAULT_NAMESPACE,
    ) -> None:
        self._own_namespace = own_namespace
        self._plugins = plugins
        self._read_snapshot = read_snapshot
        self._read_gangs = read_gangs
        self._clock = clock
        self._lock = threading.Lock()
        self._gang_lock = threading.Lock()
        self._refusing: Refusing | None = None
        self._made_at = 0.0

    def eviction_lock(self, raw_pod: dict[str, Any], *, has_place: bool = True) -> AbstractContextManager[Any]:
        """Return the lock to hold until the eviction is over.

        Pods of gangs go one by one, and those without a place: budgets of jobs count pods.
        """
        if not has_place:
            return self._gang_lock
        try:
            in_gang = bool(gangs_of(convert(raw_pod, Pod)))
        except msgspec.ValidationError:
            in_gang = True
        return self._gang_lock if in_gang else nullcontext()

    def refusals(self, raw_pod: dict[str, Any], *, has_place: bool = True) -> tuple[Refusal, ...]:
        """Return all refusals to evict a pod now.

        Raises `RetryableError` if the cluster cannot be read.
        """
        try:
            pod = convert(raw_pod, Pod)
            of_gang = Gangs(self._read_gangs(pod.metadata.namespace)).refusals(pod) if gangs_of(pod) else ()
            of_node = () if has_place else self._lent_node_refusals(pod)
            return (*of_node, *of_gang, *wish_refusals(pod), *self._ask_filters(pod))
        except (InputError, msgspec.ValidationError) as error:
            return (Refusal(RefusalReason.PLUGIN_FAILED, str(error)),)

    def _lent_node_refusals(self, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod may not be evicted without a place: its node is open again, or its job spares none."""
        own, neighbours = self._read_gangs(self._own_namespace), self._read_gangs(pod.metadata.namespace)
        for_room = evicts_for_room(self._plugins)
        why = why_not_evicted(pod, neighbours, own, self._own_namespace, self._clock.now(), for_room=for_room)
        return (Refusal(RefusalReason.REFUSED_BY_PLUGIN, why),) if why else ()

    def _ask_filters(self, pod: Pod) -> tuple[Refusal, ...]:
        if not self._plugins.pre_eviction_filters:
            return ()
        with self._lock:
            return self._current()(pod)

    def _current(self) -> Refusing:
        """Return the filters on a fresh view of the cluster.

        The cluster is read only if a filter needs it.
        """
        now = self._clock.monotonic()
        if self._refusing is None or now - self._made_at > _OLDEST_VIEW_SECONDS:
            self._refusing = self._plugins.refusing_eviction(
                ClusterView(self._read_snapshot, self._clock.now(), self._own_namespace)
            )
            self._made_at = now
        return self._refusing


# --- room left -------------------------------------------------------------------------------------------------------
# Whether targets have room for moves although earlier moves, which should have made it, did not take place.

_READ_SECONDS: Final = 5.0


def insufficient_targets(client: KubeClient, moves: Mapping[int, PlannedMove]) -> dict[int, tuple[str, ...]]:
    """Return the resources that the targets lack, by move.

    Moves to the same target count in their order, each after the ones before it. An unreadable node is assumed to have
    room: the Reservation will show.
    """
    to_target: defaultdict[str, list[int]] = defaultdict(list)
    for index in sorted(moves):
        if not moves[index].is_eviction:
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
    """Return what each move to one node lacks.

    Earlier moves that fit use up free space.
    """
    found = []
    for move in moves:
        asked = _with_slot(ResourceAmounts.from_quantities(move.requests))
        found.append(asked.lacking(free))
        if not found[-1]:
            free = free.minus(asked)
    return found


def _read_free(client: KubeClient, name: str) -> ResourceAmounts:
    """Return the free resources of a node; raises `BerthError`."""
    node = client.get(NODES, name, type=Node)
    pods = client.list(PODS, field_selector=f"spec.nodeName={name}", type=Pod).items
    taken = (_with_slot(occupied_requests(pod)) for pod in pods if not pod.is_terminal)
    return ResourceAmounts.from_quantities(node.status.allocatable).minus(ResourceAmounts.total(taken))


def _with_slot(asked: ResourceAmounts) -> ResourceAmounts:
    return asked.largest(ResourceAmounts({POD_SLOTS: 1}))


# --- wave validation -------------------------------------------------------------------------------------------------
# Before moves begin, the plan must still be valid and no pending pod may lose its room to them. The result names the
# moves to skip and the reason to stop; the caller acts on it.

_LOG = structlog.get_logger(__name__)
LOOK_SECONDS: Final = 1.0
"""Between two looks: a label or a count may lag behind, so an invalid move is looked at once more."""

_LONGEST_BLIND_SECONDS: Final = 180.0
"""How long the cluster may be unreadable before a plan is stopped."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Which moves to skip, or why nothing more may begin."""

    invalid: Mapping[int, Invalid] = field(default_factory=dict)
    stop: MoveReason = MoveReason.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class WaveValidator:
    """Validates the moves of a plan before it begins, and lets it wait for pending pods."""

    reviewer: Reviewer
    clock: Clock
    pending_wait_seconds: float
    """How long to wait for pending pods."""

    budgets: bool
    """Whether an exhausted disruption budget makes a move invalid."""

    stopped: Callable[[], bool]
    """Returns whether waiting is pointless."""

    def validate(self, ahead: Callable[[], Mapping[int, PlannedMove]], next_moves: Collection[int]) -> ValidationResult:
        """Wait for the decision whether the next moves may begin.

        `ahead` returns the remaining moves.
        """
        looks = Looks(self.pending_wait_seconds, self.clock.monotonic())
        while not self.stopped():
            now = self.clock.monotonic()
            result = looks.judge(look(self.reviewer, ahead(), next_moves, budgets=self.budgets), now)
            if result is not None:
                return result
            self.clock.sleep(LOOK_SECONDS)
        return ValidationResult()


@dataclass(slots=True)
class Looks:
    """Judges one look after another at moves before they begin."""

    pending_wait_seconds: float
    begun_at: float
    doubted: Mapping[int, Invalid] | None = None
    """What the look before found to be invalid."""

    def judge(self, review: Review | RetryableError, now: float) -> ValidationResult | None:
        """Return the result; None: it takes another look, for which `now` is the time that this one began."""
        waited = now - self.begun_at
        if isinstance(review, RetryableError):
            if waited < _LONGEST_BLIND_SECONDS:
                return None
            return ValidationResult(stop=MoveReason.PLAN_STOPPED, message=f"the cluster could not be read: {review}")
        if review.waiting:
            if waited < self.pending_wait_seconds:
                return None
            return ValidationResult(stop=MoveReason.PODS_WAITING, message=_pods_waiting_message(review, waited))
        if self.doubted is None and review.invalid:
            self.doubted = review.invalid
            return None
        return ValidationResult({index: why for index, why in review.invalid.items() if index in (self.doubted or ())})


def look(
    reviewer: Reviewer,
    ahead: Mapping[int, PlannedMove],
    next_moves: Collection[int],
    *,
    budgets: bool = False,
    under_way: Mapping[int, PlannedMove] | None = None,
    waiting: Collection[int] = (),
) -> Review | RetryableError:
    """Return what speaks against the next moves, or why that cannot be seen for now."""
    try:
        return reviewer.review(ahead, next_moves, budgets=budgets, under_way=under_way, waiting=waiting)
    except RetryableError as error:
        _LOG.info(telemetry.CALL_FAILED, **{telemetry.KEY_ERROR: str(error)})
        return error


def _pods_waiting_message(review: Review, waited: float) -> str:
    what = f"{count_waiting(review.waiting)} for the room that the moves would take"
    return f"{what}, {waited:.0f} s by now: {names_of(review.waiting)}"
