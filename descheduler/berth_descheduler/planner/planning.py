"""Makes a plan from a snapshot: problem, proposal within the limits, waves, and the numbers before and after."""

import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Final, TypeAlias

from msgspec import UNSET

from berth_core import (
    EPHEMERAL_STORAGE,
    PODS,
    Deadline,
    EarlierDeadline,
    MoveMethod,
    NoDeadline,
    Objective,
    ObjectReference,
    OwnerReference,
    PlannedMove,
    Pod,
    Predicted,
    ResourceAmounts,
    Restriction,
    Room,
    Snapshot,
    SnapshotKind,
    read_timestamp,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused, RefusedKind
from berth_descheduler.planner.disruption_budgets import pods_needing_surge, with_reasons_not_to_surge, with_surges
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.durations import estimate_seconds
from berth_descheduler.planner.fragmentation import Fragmentation, measure
from berth_descheduler.planner.pending_pods import is_pending, pods_competing_for_room
from berth_descheduler.planner.plan_limits import propose_within
from berth_descheduler.planner.pods_moved_before import propose_few_second_moves
from berth_descheduler.planner.problem import Problem, Proposal, Strategy
from berth_descheduler.planner.quality import FragmentationChange, Quality
from berth_descheduler.planner.rooms import MOST_ROOMS, RoomMade, RoomOwners, planned_rooms
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation import NodeIndex, State, Step, odd_requests
from berth_descheduler.planner.single_pods import Named, joined, name_pods, problem_after, propose_for_named
from berth_descheduler.planner.waves import assign_waves, find_predecessors, longest_chain
from berth_descheduler.planner.weights import NodeWeights, format_weight
from berth_descheduler.planner.wishes import propose_as_wished

_AFTER_SEARCH: Final = 0.1
"""The part of the time that is left for what follows a search: order, waves and reasons."""


_WITHOUT_STUCK: Final = 1 / 3
"""The part of the time that is left to plan again without the pods that cannot surge."""


# Every node has these as well: no node is bought for them.
_NOT_BOUGHT: Final = frozenset({PODS, EPHEMERAL_STORAGE})
_STATEFUL_SET: Final = "StatefulSet"
# The API server's default of `terminationGracePeriodSeconds`.
_USUAL_GRACE_SECONDS: Final = 30
_LARGEST_NUMBER: Final = (1 << 31) - 1
_MILLION: Final = 1_000_000
_MOST_NOTES: Final = 64
_LONGEST_NOTE: Final = 1_000
"""Characters; `spec.predicted.notes` of a plan takes no more of either."""

_LONGEST_START_SECONDS: Final = 120
"""A pod that was not ready for a while meanwhile seems to have taken longer."""


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What a plan disturbs."""

    pods: int
    controllers: int
    priorities: tuple[tuple[int, int], ...]
    """Priorities and how many of the moved pods have them, the highest first."""

    without_budget: int = 0
    """Pods that no disruption budget covers."""
    only_pods: int = 0
    """Pods whose controller has no other, which is an outage unless it surges."""
    stateful_set_pods: int = 0
    seconds: int = 0
    """How long it may take, by what moves wait for, by grace periods and by how long the pods took to start."""
    disruption: int = 0
    """The sum of what the moved pods weigh, by which of equally good plans the gentlest was chosen."""


@dataclass(frozen=True, slots=True)
class MoveWay:
    """How a pod would be moved, as `status.moves` of a plan says it."""

    method: MoveMethod | None = None
    """None: not known."""
    reason: str = ""
    """Why it is evicted first although the plan is to surge, or why that is not known."""


@dataclass(frozen=True)
class Plan:
    """Ordered moves in waves, what they achieve, and why not more."""

    settings: PlannerSettings
    moves: tuple[PlannedMove, ...]
    """With the evictions, which have no target."""
    freed_nodes: tuple[str, ...]
    refused: tuple[Refused, ...]
    before: Fragmentation
    after: Fragmentation
    objective: Objective
    """What was asked for, as a MigrationPlan records it."""

    quality: Quality | None = None
    """Its proven quality; None with a strategy that proves nothing."""
    room: tuple[RoomMade, ...] = ()
    """The rooms that the plan makes; none with a strategy that frees nodes."""
    room_owners: RoomOwners | None = None
    """Whose pods may take the room of shapes."""

    waits: tuple[Room, ...] = ()
    """The rooms that no move makes, which wait until pods on their nodes have ended."""

    job_outcomes: Mapping[str, int] = field(default_factory=dict)
    """How many jobs wait in vain, by what is done for them, with a strategy that looks for such."""

    fragmentation: FragmentationChange | None = None
    """What of a free resource the workload cannot use, with a strategy that lowers that."""

    cost: PlanCost = PlanCost(0, 0, ())
    weights: NodeWeights | None = None
    """What the nodes weigh; None: no rule says so."""
    missing_kinds: tuple[SnapshotKind, ...] = ()
    """Kinds of objects that the snapshot lacks, about which something was assumed."""
    competing_pods: tuple[str, ...] = ()
    """Waiting pods that tolerate every taint and may take the room that is made for others, by namespace and name."""
    ways: tuple[MoveWay, ...] = ()
    """How each of the moves is made; empty where nothing was asked."""
    restrictions: tuple[Restriction, ...] = ()
    """What holds it back, where that was asked."""
    notes: tuple[str, ...] = ()
    """What rules made of the cluster, or could not, and what second moves of pods bring, in sentences."""
    control_plane_only: bool = False
    """Every node is of the control plane, where no place is held: there is no target at all."""

    @property
    def waves(self) -> int:
        """Return the number of waves."""
        return max((move.wave for move in self.moves), default=0)

    @property
    def evictions(self) -> int:
        """Return how many of the moves have no target."""
        return sum(move.is_eviction for move in self.moves)

    def pods_staying_on(self, nodes: Collection[str]) -> tuple[Refused, ...]:
        """Return the pods that cannot leave some nodes, without those that are left to the next plan by `maxMoves`."""
        pods = (
            refused_pod
            for refused_pod in self.refused
            if refused_pod.kind is RefusedKind.POD and refused_pod.node in nodes
        )
        return tuple(refused_pod for refused_pod in pods if refused_pod.reason is not RefusalReason.MOVE_LIMIT)

    @property
    def least_fragmented(self) -> Fraction | None:
        """Return the share of what is free below which no plan brings the fragmentation; None if it is not known."""
        change, quality = self.fragmentation, self.quality
        if change is None or quality is None or quality.is_snapshot_incomplete:
            return None
        if quality.proven_optimal:
            return change.share_after
        return max(Fraction(0), change.share_before - Fraction(quality.upper_bound, _MILLION))

    @property
    def does_nothing(self) -> bool:
        """Return whether the plan neither moves a pod nor waits for room."""
        return not self.moves and not self.waits

    @property
    def rooms(self) -> tuple[Room, ...]:
        """Return the rooms of the plan; without moves only those that wait."""
        if not self.moves:
            return self.waits
        emptied = {move.source for move in self.moves}
        own_namespace = self.settings.scope.own_namespace
        planned = planned_rooms(self.room, emptied, own_namespace=own_namespace, owners=self.room_owners)
        return (*planned, *self.waits[: MOST_ROOMS - len(planned)])

    @property
    def has_order(self) -> bool:
        """Return whether some move has to wait for another."""
        return self.longest_chain > 1

    @cached_property
    def longest_chain(self) -> int:
        """Return the most moves of which each has to wait for the one before; 0 without moves."""
        return longest_chain([move.wave for move in self.moves], [move.after for move in self.moves])

    @property
    def predicted(self) -> Predicted:
        """Return what the plan achieves if every move lands."""
        return Predicted(
            nodes=len(self.before.nodes),
            moves=len(self.moves) - self.evictions,
            waves=self.waves,
            evictions=self.evictions,
            freed_nodes=self.freed_nodes,
            freed_node_count=len(self.freed_nodes),
            freed_resources=self._freed_resources,
            pods_without_budget=self.cost.without_budget,
            only_pods=self.cost.only_pods,
            stateful_set_pods=self.cost.stateful_set_pods,
            expected_seconds=self.cost.seconds,
            freed_price_per_hour="" if self.weights is None else format_weight(self.freed_weight),
            restrictions=self.restrictions,
            notes=self.notes or UNSET,
        )

    @property
    def filled_nodes(self) -> tuple[str, ...]:
        """Return the nodes that were empty and take pods."""
        return tuple(sorted(set(self.before.empty_nodes) - set(self.after.empty_nodes)))

    @property
    def freed_weight(self) -> int:
        """Return what the freed nodes weigh, less those that are filled; never below 0, and 0 without weights."""
        if self.weights is None:
            return 0
        return max(0, self.weights.total(self.freed_nodes) - self.weights.total(self.filled_nodes))

    @property
    def _freed_resources(self) -> dict[str, str]:
        freed = set(self.freed_nodes)
        total = ResourceAmounts.total(node.allocatable for node in self.after.nodes if node.name in freed)
        return {name: amount for name, amount in total.to_quantities().items() if name not in _NOT_BOUGHT}


def plan(snapshot: Snapshot, settings: PlannerSettings, deadline: Deadline | None = None) -> Plan:
    """Return the plan for a snapshot; raises `InputError` that names what is wrong with it or with the settings.

    The same input gives the same plan unless time runs out.
    """
    balance = settings.plugins.balance.plugin
    searching = EarlierDeadline(deadline or NoDeadline(), _AFTER_SEARCH)
    strategy: Strategy = balance.strategy(searching)
    snapshot = snapshot.within(settings.scope.own_namespace)
    named_pods = name_pods(snapshot, settings)
    problem = Problem.from_snapshot(snapshot, settings, strategy.waiting_pods(snapshot))

    def propose(kept: Problem) -> tuple[Proposal, State]:
        return propose_few_second_moves(
            kept,
            lambda sparing: propose_as_wished(
                sparing, lambda wishing: _propose(strategy, wishing, named_pods), searching
            ),
            searching,
        )

    problem, state, proposal = propose_within(problem, propose)
    steps = (*proposal.steps, *proposal.evictions)
    waves = assign_waves(problem, state, steps)
    moves = tuple(
        _planned(problem, step, wave + 1, after, proposal.reasons.get(step.pod, ""))
        for step, wave, after in zip(steps, waves, find_predecessors(problem, state, steps, waves), strict=True)
    )
    before, after = measure(problem, ()), measure(problem, steps)
    # What was empty before is not freed by the plan, and what an autoscaler keeps anyway is no gain.
    freed = tuple(sorted(set(after.empty_nodes) - set(before.empty_nodes) - _not_gained(problem, steps, named_pods)))
    return Plan(
        settings=settings,
        moves=moves,
        freed_nodes=freed,
        refused=tuple(sorted((*proposal.refused, *_left_out(problem)))),
        before=before,
        after=after,
        quality=proposal.quality,
        objective=balance.objective,
        room_owners=proposal.room_owners,
        room=proposal.room,
        waits=proposal.waits[:MOST_ROOMS],
        job_outcomes=proposal.job_outcomes,
        fragmentation=proposal.fragmentation,
        cost=_cost(problem, steps, moves),
        weights=_weights(problem),
        missing_kinds=snapshot.missing,
        competing_pods=tuple(pod.key for pod in pods_competing_for_room(snapshot, moves, proposal.room)),
        notes=_notes(problem, proposal),
        control_plane_only=0 < len(snapshot.nodes) == len(problem.cluster.closed_to_plans),
    )


def _not_gained(problem: Problem, steps: Iterable[Step], named: Named) -> set[str]:
    """Return the nodes that are no gain without pods, except those that are emptied because their pods were named."""
    if not problem.no_gain:
        return set()
    named_keys = {(named_pod.plugin.namespace, named_pod.plugin.name) for named_pod in named}
    pods = problem.cluster.pods
    emptied_by_name = {
        step.source
        for step in steps
        if (pods[step.pod].pod.metadata.namespace, pods[step.pod].pod.metadata.name) in named_keys
    }
    return {problem.cluster.node_name(node) for node in problem.no_gain.keys() - emptied_by_name}


WhyNotSurge: TypeAlias = Callable[[Iterable[Pod]], Mapping[str, str]]
"""Returns why pods cannot surge, by `namespace/name`."""


def plan_surges(
    snapshot: Snapshot, make: Callable[[Snapshot, Deadline], Plan], why_not: WhyNotSurge, deadline: Deadline
) -> Plan:
    """Return a plan whose pods surge where they can.

    `make` plans on a snapshot until a deadline. It is asked again where the plan needs surges that are not possible;
    where it may be, a part of the time is left for that.
    """
    surging = with_surges(snapshot)
    surging_plan = make(surging, deadline if surging == snapshot else EarlierDeadline(deadline, _WITHOUT_STUCK))
    if stuck := why_not(pods_needing_surge(snapshot, surging_plan.moves)):
        surging_plan = make(with_surges(snapshot, stuck), deadline)
        surging_plan = replace(surging_plan, refused=with_reasons_not_to_surge(surging_plan.refused, stuck))
    return surging_plan


def with_evictions_first(plan: Plan) -> Plan:
    """Return a plan that says that its pods are evicted first."""
    return replace(plan, ways=(MoveWay(MoveMethod.EVICT),) * len(plan.moves))


def without_surges(snapshot: Snapshot, make: Callable[[Snapshot], Plan], lacking: Sequence[SnapshotKind]) -> Plan:
    """Return a plan for which it is not known which pods can surge, as the snapshot lacks some kinds.

    The plan lists these kinds as missing where surges would allow more, since a run might make that larger plan.
    """
    if with_surges(snapshot) != snapshot:
        snapshot = replace(snapshot, missing=(*snapshot.missing, *lacking))
    evicting_plan, unknown_way = make(snapshot), MoveWay(reason=f"not known: the snapshot lacks {', '.join(lacking)}")
    return replace(
        evicting_plan,
        ways=tuple(MoveWay(MoveMethod.EVICT) if move.is_eviction else unknown_way for move in evicting_plan.moves),
    )


def with_ways(plan: Plan, snapshot: Snapshot, why_not: WhyNotSurge) -> Plan:
    """Return a plan that says which of its pods surge, and of the others why not."""
    moved_keys = {f"{move.namespace}/{move.pod}" for move in plan.moves if not move.is_eviction}
    reasons = dict(why_not(pod for pod in snapshot.pods if pod.key in moved_keys))
    ways = []
    for move in plan.moves:
        key = f"{move.namespace}/{move.pod}"
        reason = "" if move.is_eviction else reasons.get(key, "")
        ways.append(MoveWay(MoveMethod.EVICT if reason or move.is_eviction else MoveMethod.SURGE, reason))
        reasons[key] = "the plan moves it once more"
    return replace(plan, ways=tuple(ways))


def _propose(strategy: Strategy, problem: Problem, named: Named) -> tuple[Proposal, State]:
    """Return the proposal and the final state: single pods come first, then the cluster as a whole."""
    if not named:
        state = State(problem.cluster, strategy.possible_sources(problem))
        return strategy.propose(problem, state), state
    named_proposal, state = propose_for_named(problem, named)
    later_problem = problem_after(problem, named_proposal, strategy.waiting_pods(problem.cluster.snapshot))
    cluster_proposal = strategy.propose(
        later_problem, State(later_problem.cluster, strategy.possible_sources(later_problem))
    )
    return joined(named_proposal, cluster_proposal), state


def measure_cluster(snapshot: Snapshot, settings: PlannerSettings) -> Fragmentation:
    """Return the fragmentation without a plan; raises `InputError` as `plan` does."""
    return measure(Problem.from_snapshot(snapshot, settings), ())


def _notes(problem: Problem, proposal: Proposal) -> tuple[str, ...]:
    notes = dict.fromkeys((*proposal.notes, *(note for rule in problem.rules for note in rule.notes())))
    return tuple(textwrap.shorten(note, _LONGEST_NOTE, placeholder=" …") for note in [*notes][:_MOST_NOTES])


def _weights(problem: Problem) -> NodeWeights | None:
    if not problem.weighs_nodes:
        return None
    nodes = map(NodeIndex, range(len(problem.cluster.nodes)))
    weights = {problem.cluster.node_name(node): problem.node_weight(node) for node in nodes}
    known_weights = {name: weight for name, weight in weights.items() if weight is not None}
    return NodeWeights(known_weights, tuple(sorted(weights.keys() - known_weights.keys())))


def _cost(problem: Problem, steps: Sequence[Step], moves: Sequence[PlannedMove]) -> PlanCost:
    pods = [problem.cluster.pods[pod].pod for pod in dict.fromkeys(step.pod for step in steps)]
    siblings = Counter(
        (placed_pod.pod.metadata.namespace, placed_pod.pod.controller) for placed_pod in problem.cluster.pods
    )
    seconds = [_seconds_to_move(problem.cluster.pods[step.pod].pod) for step in steps]
    owners = ((pod.metadata.namespace, pod.controller) for pod in pods)
    controllers = {(namespace, owner.kind, owner.uid or owner.name) for namespace, owner in owners if owner is not None}
    priorities = Counter(pod.spec.priority or 0 for pod in pods)
    return PlanCost(
        len(pods),
        len(controllers),
        tuple(sorted(priorities.items(), reverse=True)),
        without_budget=sum(not problem.budgets.covering(pod) for pod in pods),
        only_pods=sum(pod.controller is None or siblings[pod.metadata.namespace, pod.controller] == 1 for pod in pods),
        stateful_set_pods=sum(pod.controller is not None and pod.controller.kind == _STATEFUL_SET for pod in pods),
        seconds=min(estimate_seconds(moves, seconds), _LARGEST_NUMBER),
        disruption=sum(map(DisruptionCost(problem).weight, {step.pod for step in steps})) if steps else 0,
    )


def _seconds_to_move(pod: Pod) -> int:
    """Return how long a pod may take to end, and took to become ready."""
    grace = pod.spec.termination_grace_period_seconds
    ready = next(
        (
            pod_condition.last_transition_time
            for pod_condition in pod.status.conditions
            if pod_condition.type == "Ready"
        ),
        None,
    )
    began, became = read_timestamp(pod.status.start_time), read_timestamp(ready)
    start = (became - began).total_seconds() if began is not None and became is not None else 0.0
    return (_USUAL_GRACE_SECONDS if grace is None else grace) + int(min(max(start, 0.0), _LONGEST_START_SECONDS))


def _left_out(problem: Problem) -> Iterator[Refused]:
    """Yield the pods on unknown nodes and waiting pods with unreadable requests, which no strategy considers."""
    for pod in problem.cluster.on_unknown_nodes:
        text = f"its node {pod.spec.node_name} is not in the snapshot"
        yield _refused(pod, Refusal(RefusalReason.UNKNOWN_NODE, text))
    for pod in filter(is_pending, problem.cluster.elsewhere):
        if why_unreadable := odd_requests(pod):
            yield _refused(pod, Refusal(RefusalReason.POD_DATA_ODD, why_unreadable))


def _refused(pod: Pod, refusal: Refusal) -> Refused:
    return Refused.of_pod(pod.spec.node_name, pod.metadata.namespace, pod.metadata.name, refusal)


def _planned(problem: Problem, step: Step, wave: int, after: tuple[int, ...] | None, reason: str) -> PlannedMove:
    pod = problem.cluster.pods[step.pod].pod
    return PlannedMove(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        owner=_reference(pod, pod.controller),
        source=_name(problem, step.source),
        target="" if step.target == step.source else _name(problem, step.target),
        requests=problem.cluster.amounts_of(step.pod).to_quantities(),
        wave=wave,
        after=after,
        reason=reason,
    )


def _reference(pod: Pod, owner: OwnerReference | None) -> ObjectReference | None:
    if owner is None:
        return None
    return ObjectReference(
        api_version=owner.api_version,
        kind=owner.kind,
        namespace=pod.metadata.namespace,
        name=owner.name,
        uid=owner.uid,
    )


def _name(problem: Problem, node: NodeIndex) -> str:
    return problem.cluster.node_name(node)
