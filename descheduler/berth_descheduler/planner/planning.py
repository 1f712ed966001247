"""Owns the way from a snapshot to a plan: problem, strategy, waves, numbers before and after.

It does not own any rule of its own.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from berth_core.migration_plans import Objective, PlannedMove, Predicted
from berth_core.objects import OwnerReference, Pod
from berth_core.plan_rooms import Room
from berth_core.reservations import ObjectReference
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_descheduler.planner.balance import balance_of
from berth_descheduler.planner.classes import odd_requests
from berth_descheduler.planner.cluster import NodeIndex
from berth_descheduler.planner.deadlines import Deadline, NoDeadline
from berth_descheduler.planner.descheduling import Named, joined, name_pods, problem_after, propose_for_named
from berth_descheduler.planner.fragmentation import Fragmentation, measure
from berth_descheduler.planner.limits import propose_within
from berth_descheduler.planner.planned_rooms import RoomTerms, planned_rooms
from berth_descheduler.planner.problems import Problem, Proposal, Strategy
from berth_descheduler.planner.quality import Quality, RoomMade
from berth_descheduler.planner.room_seekers import is_pending
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.state import State, Step
from berth_descheduler.planner.waiting_pods import pods_competing_for_room
from berth_descheduler.planner.waves import assign_waves
from berth_descheduler.refusals import Refusal, RefusalReason, Refused


@dataclass(frozen=True, slots=True)
class PlanCost:
    """What a plan disturbs."""

    pods: int
    controllers: int
    priorities: tuple[tuple[int, int], ...]
    """Priorities and how many of the moved pods have them, the highest first."""


@dataclass(frozen=True)
class Plan:
    """What to move, in order and in waves, what it brings, and why not more."""

    settings: PlannerSettings
    moves: tuple[PlannedMove, ...]
    freed_nodes: tuple[str, ...]
    refused: tuple[Refused, ...]
    before: Fragmentation
    after: Fragmentation
    quality: Quality | None = None
    """How good it is by proof; None with a strategy that does not say."""
    room: tuple[RoomMade, ...] = ()
    """What room was made for; nothing with a strategy that frees nodes."""
    cost: PlanCost = PlanCost(0, 0, ())
    missing_kinds: tuple[SnapshotKind, ...] = ()
    """Kinds of objects that the snapshot lacks, about which something was assumed."""
    competing_pods: tuple[str, ...] = ()
    """Waiting pods that tolerate every taint and may take the room that is made for others, by namespace and name."""
    control_plane_only: bool = False
    """Every node is of the control plane, where no place is held: there is no target at all."""

    @property
    def waves(self) -> int:
        """Return the number of waves."""
        return max((move.wave for move in self.moves), default=0)

    @property
    def rooms(self) -> tuple[Room, ...]:
        """Return for whom the plan makes room, and where; nothing if it moves nothing."""
        terms = RoomTerms(self.settings.own_namespace, self.settings.args.room.owners)
        return planned_rooms(self.room, terms, {move.source for move in self.moves}) if self.moves else ()

    @property
    def predicted(self) -> Predicted:
        """Return what the plan brings if every move lands."""
        return Predicted(
            nodes=len(self.before.nodes), moves=len(self.moves), waves=self.waves, freed_nodes=self.freed_nodes
        )

    @property
    def objective(self) -> Objective:
        """Return what was asked for, as a MigrationPlan records it."""
        return balance_of(self.settings).objective


def plan(snapshot: Snapshot, settings: PlannerSettings, deadline: Deadline | None = None) -> Plan:
    """Return the plan for a snapshot; the same snapshot and settings give the same plan, unless it is out of time.

    Raises `InputError` that names what is wrong with the snapshot or the settings.
    """
    balance = balance_of(settings)
    strategy = balance.strategy(settings, deadline or NoDeadline())
    named = name_pods(snapshot, settings)
    problem = Problem.from_snapshot(snapshot, settings, strategy.waiting_pods(snapshot))
    problem, state, proposal = propose_within(problem, lambda kept: _propose(strategy, kept, named))
    waves = assign_waves(problem, state, proposal.steps)
    moves = tuple(
        _planned(problem, step, wave + 1, proposal.reasons.get(step.pod, ""))
        for step, wave in zip(proposal.steps, waves, strict=True)
    )
    before, after = measure(problem, ()), measure(problem, proposal.steps)
    freed = tuple(sorted(set(after.empty_nodes) - set(before.empty_nodes)))
    return Plan(
        settings=settings,
        moves=moves,
        freed_nodes=freed,
        refused=tuple(sorted((*proposal.refused, *_left_out(problem)))),
        before=before,
        after=after,
        quality=proposal.quality,
        room=proposal.room,
        cost=_cost(problem, proposal.steps),
        missing_kinds=snapshot.missing,
        competing_pods=tuple(pod.key for pod in pods_competing_for_room(snapshot, moves, proposal.room)),
        control_plane_only=0 < len(snapshot.nodes) == len(problem.cluster.closed_to_plans),
    )


def _propose(strategy: Strategy, problem: Problem, named: Named) -> tuple[Proposal, State]:
    """Return what is to be moved for single pods and then for the cluster as a whole, and a state of the problem."""
    if not named:
        state = State(problem.cluster, strategy.possible_sources(problem))
        return strategy.propose(problem, state), state
    first, state = propose_for_named(problem, named)
    after = problem_after(problem, first.steps, strategy.waiting_pods(problem.cluster.snapshot))
    second = strategy.propose(after, State(after.cluster, strategy.possible_sources(after)))
    return joined(first, second), state


def measure_cluster(snapshot: Snapshot, settings: PlannerSettings) -> Fragmentation:
    """Return how the pods of a cluster lie, with nothing planned; raises `InputError` as `plan` does."""
    return measure(Problem.from_snapshot(snapshot, settings), ())


def _cost(problem: Problem, steps: Sequence[Step]) -> PlanCost:
    pods = [problem.cluster.pods[pod].pod for pod in dict.fromkeys(step.pod for step in steps)]
    owners = ((pod.metadata.namespace, pod.controller) for pod in pods)
    controllers = {(namespace, one.kind, one.uid or one.name) for namespace, one in owners if one is not None}
    priorities = Counter(pod.spec.priority or 0 for pod in pods)
    return PlanCost(len(pods), len(controllers), tuple(sorted(priorities.items(), reverse=True)))


def _left_out(problem: Problem) -> Iterator[Refused]:
    """Yield the pods that no strategy looks at, and why: on a node that is not known, or waiting and not readable."""
    for pod in problem.cluster.strays:
        text = f"its node {pod.spec.node_name} is not in the snapshot"
        yield _refused(pod, Refusal(RefusalReason.UNKNOWN_NODE, text))
    for pod in filter(is_pending, problem.cluster.elsewhere):
        if odd := odd_requests(pod):
            yield _refused(pod, Refusal(RefusalReason.POD_DATA_ODD, odd))


def _refused(pod: Pod, refusal: Refusal) -> Refused:
    return Refused.of_pod(pod.spec.node_name, pod.metadata.namespace, pod.metadata.name, refusal)


def _planned(problem: Problem, step: Step, wave: int, reason: str) -> PlannedMove:
    pod = problem.cluster.pods[step.pod].pod
    return PlannedMove(
        namespace=pod.metadata.namespace,
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        owner=_reference(pod, pod.controller),
        source=_name(problem, step.source),
        target=_name(problem, step.target),
        requests=problem.cluster.amounts_of(step.pod).to_quantities(),
        wave=wave,
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
