"""Makes room by evictions for pods that no moves help.

Each pod gets the node from which the fewest victims have to go; the pods of a gang get room together or not at all.
Victims that fit on another node are moved there after all, and the others are evicted without a target.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from berth_core import Pod, job_of
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, Proposal, State, Step
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.pending_pods import gang_of, room_on, without_served
from berth_descheduler.planner.simulation import ClassIndex

Placed: TypeAlias = tuple[PodIndex, NodeIndex]
"""A waiting pod with the node on which it gets room."""


def with_evictions(problem: Problem, state: State, moved: Proposal, spare: Mapping[str, int]) -> Proposal:
    """Return the proposal `moved` with the evictions that let more pods fit; all steps are made in `state`.

    `spare` is the number of pods that may leave by job, 0 for a job that is absent.
    """
    run = _Evictions(problem, moved, spare)
    placements = tuple(run.place_all())
    if not placements:
        return moved
    before, cluster = state.mark(), problem.cluster
    run.move_where_possible(state)
    metas = [cluster.pods[pod].pod.metadata for pod, _ in placements]
    served, names = {meta.uid for meta in metas}, {(meta.namespace, meta.name) for meta in metas}
    return replace(
        moved,
        steps=(*moved.steps, *state.steps[before:]),
        evictions=tuple(run.evictions),
        reasons={**moved.reasons, **run.reasons},
        room=(
            *without_served(moved.room, served),
            *(room_on(cluster.pods[pod].pod, cluster.node_name(node)) for pod, node in placements),
        ),
        refused=tuple(
            refusal for refusal in moved.refused if refusal.node or (refusal.namespace, refusal.name) not in names
        ),
        # The solver's bound is on plans of moves, and says nothing about plans with evictions.
        quality=None,
    )


@dataclass
class _Evictions:
    """One search, in a state of its own, in which victims are put on the waiting node."""

    problem: Problem
    moved: Proposal
    spare: Mapping[str, int]
    evictions: list[Step] = field(default_factory=list)
    reasons: dict[PodIndex, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Apply the given moves and rooms to the search's own state."""
        cluster = self.problem.cluster
        self._kept = self.problem.pod_refusals
        self._cost = DisruptionCost(self.problem)
        self._state = State(cluster)
        self._gone: Counter[str] = Counter()
        self._victims: dict[PodIndex, str] = {}
        """The victims, each with the name of the pod that gets its room."""
        self._hopeless: set[ClassIndex] = set()
        """Pod classes that found no room; there is only less of it for later pods of the class."""
        self._moved = {step.pod for step in self.moved.steps}
        limit = self.problem.settings.limits.max_moves
        # An eviction disturbs a pod as much as a move does, so both count towards `maxMoves`.
        self._most = len(cluster.pods) if limit is None else limit - len(self.moved.steps)
        for step in self.moved.steps:
            self._state.move(step.pod, step.target)
        uids = {cluster.pods[pod].pod.metadata.uid: pod for pod in self._waiting()}
        for room in self.moved.room:
            for waiting_pod, node in zip(room.pods, room.nodes, strict=False):
                self._state.move(uids.pop(waiting_pod.uid), cluster.node_numbers[node])
        self._left = sorted(uids.values())

    def place_all(self) -> Iterator[Placed]:
        """Yield the pods that get room, in descending order of priority."""
        units: defaultdict[object, list[PodIndex]] = defaultdict(list)
        for pod in self._left:
            units[gang_of(self._pod(pod)) or pod].append(pod)
        for unit in sorted(units.values(), key=lambda pods: (-max(map(self._priority, pods)), pods)):
            mark, gone_before, victims_before = self._state.mark(), self._gone.copy(), dict(self._victims)
            placements = [(pod, node) for pod in unit if (node := self._place(pod)) is not None]
            # A gang with room for some of its pods only would evict others for nothing.
            if len(placements) == len(unit):
                yield from placements
            else:
                self._state.undo_to(mark)
                self._gone, self._victims = gone_before, victims_before

    def move_where_possible(self, state: State) -> None:
        """Move victims to nodes that admit them, lent nodes first, and evict the others."""
        cluster = self.problem.cluster
        sources = {cluster.pods[pod].node for pod in self._victims}
        open_nodes = [node for node, takes in cluster.lent.items() if takes]
        possible_nodes = [
            *open_nodes,
            *(node for node in self._nodes() if node not in cluster.lent and node not in sources),
        ]
        possible_nodes.sort(key=lambda node: self.problem.target_ranks[node])
        for pod, waiting in sorted(self._victims.items()):
            target = next((node for node in possible_nodes if self._state.refusal(pod, node) is None), None)
            # In `state` the other victims are still in place: spread and anti-affinity see them when the move begins.
            if target is None or state.refusal(pod, target) is not None:
                source = cluster.pods[pod].node
                self.evictions.append(Step(pod, source, source))
                self.reasons[pod] = f"{waiting} waits for {cluster.node_name(source)}; no other node takes it"
            else:
                self._state.move(pod, target)
                state.move(pod, target)

    def _place(self, pod: PodIndex) -> NodeIndex | None:
        """Put a waiting pod on the node with the fewest, then the cheapest victims; return it, or None."""
        class_index = self.problem.cluster.pods[pod].class_index
        if class_index in self._hopeless:
            return None
        cheapest: tuple[int, int, int, NodeIndex, list[PodIndex]] | None = None
        for node in self._nodes():
            if self._state.node_fit.refusal(class_index, node) is not None:
                continue
            victims = self._victims_on(node, pod)
            if victims is not None:
                rank = self.problem.target_ranks[node]
                choice = (len(victims), sum(map(self._cost.weight, victims)), rank, node, victims)
                cheapest = choice if cheapest is None else min(cheapest, choice)
        if cheapest is None:
            self._hopeless.add(class_index)
            return None
        *_, node, victims = cheapest
        for victim in victims:
            self._remove(victim)
            self._gone[job_of(self._pod(victim))] += 1
            self._victims[victim] = self._pod(pod).key
        self._state.move(pod, node)
        return node

    def _victims_on(self, node: NodeIndex, pod: PodIndex) -> list[PodIndex] | None:
        """Return the victims on a node for a waiting pod, None if it does not fit even without them."""
        mark, victims = self._state.mark(), list[PodIndex]()
        jobs = self._gone.copy()
        refusal = self._state.refusal(pod, node)
        # Victims of an earlier pod may have left room for this one, too.
        for victim in self._candidates(node, pod) if refusal is not None else ():
            job = job_of(self._pod(victim))
            if len(self._victims) + len(victims) >= self._most or jobs[job] >= self.spare.get(job, 0):
                continue
            jobs[job] += 1
            victims.append(victim)
            self._remove(victim)
            refusal = self._state.refusal(pod, node)
            if refusal is None:
                break
        self._state.undo_to(mark)
        return victims if refusal is None else None

    def _candidates(self, node: NodeIndex, pod: PodIndex) -> list[PodIndex]:
        """Return the pods on a node that may go for a waiting pod, the cheapest first."""
        if node in self.problem.cluster.lent:
            return []
        candidates = [
            candidate
            for candidate in self.problem.cluster.pods_on[node]
            if candidate not in self._kept
            and candidate not in self._victims
            and candidate not in self._moved
            # Nothing would create a pod without a controller again.
            and self._pod(candidate).controller is not None
            # As in preemption, no pod goes for one of lower priority.
            and self._priority(candidate) <= self._priority(pod)
        ]
        return self._cost.cheapest_first(candidates)

    def _remove(self, pod: PodIndex) -> None:
        waiting = self.problem.cluster.waiting_node
        # The simulation has no pods without a node; on the waiting node a victim needs nothing, and can still be moved.
        if waiting is not None:
            self._state.move(pod, waiting)

    def _nodes(self) -> Iterator[NodeIndex]:
        return (NodeIndex(node) for node in range(len(self.problem.cluster.snapshot.nodes)))

    def _waiting(self) -> tuple[PodIndex, ...]:
        waiting = self.problem.cluster.waiting_node
        return () if waiting is None else self.problem.cluster.pods_on[waiting]

    def _pod(self, pod: PodIndex) -> Pod:
        return self.problem.cluster.pods[pod].pod

    def _priority(self, pod: PodIndex) -> int:
        return self._pod(pod).spec.priority or 0
