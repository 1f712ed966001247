"""The input of every strategy: cluster, settings, movable pods, nodes to drain, and what a move costs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, Protocol

from berth_core import CRITICAL_NODE_LABEL, InputError, Namespace, Node, Pod, Room, Snapshot, is_control_plane_node
from berth_descheduler.framework.enabled_plugins import Refusing
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.framework.rules import NodeRole, Rule, answers
from berth_descheduler.planner.autoscalers.nodes import MarksOnNodes
from berth_descheduler.planner.availability import Availability
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.planner.quality import FragmentationChange, Quality
from berth_descheduler.planner.rooms import RoomMade, RoomOwners
from berth_descheduler.planner.settings import PlannerSettings
from berth_descheduler.planner.simulation import (
    ClassIndex,
    Cluster,
    KeptReadings,
    NodeIndex,
    PodClass,
    PodIndex,
    PodPresence,
    State,
    Step,
    VolumeIndex,
    node_refusal,
)

_SHOWN_NAMES: Final = 5


@dataclass(frozen=True, slots=True)
class Proposal:
    """A strategy's choice: steps in a feasible order, and why not more."""

    steps: tuple[Step, ...]
    refused: tuple[Refused, ...]
    quality: Quality | None = None
    """Its proven quality; None with a strategy that proves nothing."""

    room: tuple[RoomMade, ...] = ()
    """What room was made for, with a strategy that makes it."""

    room_owners: RoomOwners | None = None
    """Whose pods may take the room of shapes."""

    reasons: Mapping[PodIndex, str] = field(default_factory=dict)
    """Why single pods move whose moves are independent, and why others are evicted."""

    waits: tuple[Room, ...] = ()
    """Rooms that no move makes: they wait until pods on their nodes have ended."""

    job_outcomes: Mapping[str, int] = field(default_factory=dict)
    """How many jobs wait in vain, by what is done for them, with a strategy that looks for such."""

    evictions: tuple[Step, ...] = ()
    """Pods that leave their node without a target: the step's own source stands in its place."""

    fragmentation: FragmentationChange | None = None
    """What of a free resource the workload cannot use, with a strategy that lowers that."""

    notes: tuple[str, ...] = ()
    """What people should know of the choice, in sentences."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """How far a plan goes by the ranks that rules give to targets."""

    are_heeded: bool = True
    """Whether nodes of a lower rank are filled first."""

    spared: frozenset[NodeIndex] = frozenset()
    """Nodes that keep their pods so that others can come to them."""


RULES_OF_EVERY_PLAN: Final[tuple[Rule, ...]] = (MarksOnNodes(),)
"""The rules that no setting takes away."""

SPARED: Final = Refusal(
    RefusalReason.NOT_NEEDED, "the policy wishes pods to come to the node, and the plan brings as much without it"
)


@dataclass(frozen=True)
class Problem:
    """One planning problem: the cluster and what is asked for."""

    cluster: Cluster
    settings: PlannerSettings
    _evictability: Evictability = field(repr=False)
    kept: Mapping[PodIndex, Refusal] = field(default_factory=dict, repr=False)
    """Pods that stay although the filter would let them go."""

    rules: tuple[Rule, ...] = field(default=(), repr=False)
    """The rules of the settings, which know the cluster by now."""

    no_sources: Mapping[NodeIndex, Refusal] = field(default_factory=dict, repr=False)
    """Nodes that give nothing by a rule, but may take something."""

    no_gain: Mapping[NodeIndex, Refusal] = field(default_factory=dict, repr=False)
    """Nodes that bring nothing when they are emptied, each with the reason."""

    wishes: Wishes = Wishes()

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, settings: PlannerSettings, waiting: Sequence[Pod] = ()) -> "Problem":
        """Return the problem of a snapshot; `waiting` are the pods to make room for.

        Raises `InputError` for a name that does not exist, if names must exist.
        """
        if settings.names_must_exist:
            _check_namespaces(snapshot, settings.scope.evictable_namespaces.named)
        problem = cls.to_review(snapshot, settings, waiting)
        if settings.names_must_exist:
            _check_resources(problem.cluster, settings.named_resources)
        return problem

    @classmethod
    def to_review(
        cls,
        snapshot: Snapshot,
        settings: PlannerSettings,
        waiting: Sequence[Pod] = (),
        kept: KeptReadings | None = None,
    ) -> "Problem":
        """Return the problem for moves planned earlier, whose names may no longer exist.

        `kept` is what was read of an earlier snapshot.
        """
        view = ClusterView.of(snapshot, settings.run.now, settings.scope.own_namespace)
        rules = tuple(rule.on(view, settings.run.began) for rule in (*RULES_OF_EVERY_PLAN, *settings.rules))
        budgets = tuple(budget for rule in rules for budget in rule.budgets())
        cluster = Cluster.from_snapshot(snapshot, waiting, settings.node_selectors, budgets, kept)
        closed = frozenset() if settings.scope.control_plane_nodes else _control_plane(cluster)
        refused_nodes = _nodes_refused_by(rules, snapshot.nodes)
        cluster = replace(
            cluster,
            held_back=refused_nodes.whole,
            shut=refused_nodes.as_targets,
            closed_to_plans=closed,
        )
        evictability = Evictability(
            snapshot,
            settings.scope.evictable_namespaces,
            settings.scope.own_namespace,
            settings.limits.max_grace,
            settings.run.now,
        )
        no_gain = _nodes_without_gain(rules, snapshot.nodes)
        return cls(cluster, settings, evictability, rules=rules, no_sources=refused_nodes.as_sources, no_gain=no_gain)

    def keeping(self, pods: Mapping[PodIndex, Refusal]) -> "Problem":
        """Return the problem with further immovable pods, each with the reason."""
        return replace(self, kept={**self.kept, **pods})

    def wishing(self, wishes: Wishes) -> "Problem":
        """Return the problem with another way to deal with wishes."""
        if wishes == self.wishes:
            return self
        wishing = replace(self, wishes=wishes)
        # None of these depends on wishes, and a plan with wishes is tried several times: filters are asked once.
        vars(wishing).update(pod_refusals=self.pod_refusals, _to_move=self._to_move, _ranks=self._ranks)
        return wishing

    @property
    def target_ranks(self) -> tuple[int, ...]:  # (nodes,)
        """Return how late each node is filled, from 0 on without gaps; all 0 where wishes do not count."""
        return self._ranks if self.wishes.are_heeded else (0,) * len(self.cluster.nodes)

    @cached_property
    def _ranks(self) -> tuple[int, ...]:  # (nodes,)
        ranking_rules = [rule for rule in self.rules if answers(rule, "target_rank")]
        if not ranking_rules:
            return (0,) * len(self.cluster.nodes)
        ranks = [sum(rule.target_rank(node) for rule in ranking_rules) for node in self.cluster.snapshot.nodes]
        positions = {rank: position for position, rank in enumerate(sorted(set(ranks)))}
        virtual = len(self.cluster.nodes) - len(ranks)  # it takes no pods
        return (*(positions[rank] for rank in ranks), *(0,) * virtual)

    @property
    def ranks_targets(self) -> bool:
        """Return whether rules wish some nodes filled before others."""
        return any(self.target_ranks)

    @cached_property
    def sources(self) -> "Sources":
        """Return which nodes may be drained, and why not the others."""
        return _find_sources(self)

    @property
    def budgets(self) -> DisruptionBudgets:
        """Return the disruption budgets of the cluster."""
        return self._evictability.budgets

    @property
    def weighs_nodes(self) -> bool:
        """Return whether a rule says what nodes cost."""
        return self.settings.weighs_nodes

    def node_weight(self, node: NodeIndex) -> int | None:
        """Return what a node costs an hour, in millionths; None if no rule knows."""
        weights = [rule.node_weight(self.cluster.nodes[node]) for rule in self.rules if rule.weighs_nodes]
        known_weights = [weight for weight in weights if weight is not None]
        return sum(known_weights) if known_weights else None

    @cached_property
    def pod_refusals(self) -> Mapping[PodIndex, Refusal]:
        """Return the immovable pods, each with the reason."""
        refusals = ((PodIndex(index), self.pod_refusal(PodIndex(index))) for index in range(len(self.cluster.pods)))
        return {index: refusal for index, refusal in refusals if refusal is not None}

    def pod_refusal(self, index: PodIndex) -> Refusal | None:
        """Return why a pod is immovable, None if it is not; whoever needs few pods asks about these alone."""
        placed_pod, refusing_rules = self.cluster.pods[index], self._refusing_rules
        pod = placed_pod.pod
        of_pod = (
            *self._evictability.refusals(pod),
            *self._availability_refusals(index, pod),
            *self._refusing(pod),
            *self._refusals_of_class(placed_pod.class_index),
        )
        is_asked = self.kept or refusing_rules or self.cluster.budgets
        passing = self._passing_refusals(index, pod, refusing_rules) if is_asked else ()
        return Refusal.in_one((*of_pod, *passing)) if of_pod or passing else None

    def _refusals_of_class(self, class_index: ClassIndex) -> tuple[Refusal, ...]:
        refusals = self._refusals_by_class.get(class_index)
        if refusals is None:
            pod_class = self.cluster.classes[class_index]
            crowded = self.cluster.crowded.get(pod_class.namespace)
            refusals = self._refusals_by_class[class_index] = _class_refusals(
                pod_class, self.cluster.volume_index, crowded
            )
        return refusals

    @cached_property
    def _refusals_by_class(self) -> dict[ClassIndex, tuple[Refusal, ...]]:
        return {}

    @cached_property
    def _refusing(self) -> Refusing:
        return self.settings.plugins.refusing(ClusterView.of(self.cluster.snapshot, self.settings.run.now))

    @cached_property
    def _refusing_rules(self) -> Sequence[Rule]:
        return [rule for rule in self.rules if answers(rule, "pod_refusal")]

    @cached_property
    def availability(self) -> Availability:
        """Return how many Ready pods each controller of the cluster lacks."""
        snapshot = self.cluster.snapshot
        return Availability(snapshot.pods, snapshot.workloads, self.settings.limits.waves.gone_of_controller)

    def _availability_refusals(self, index: PodIndex, pod: Pod) -> tuple[Refusal, ...]:
        """Return why a pod stays for its controller's sake; one that may go without a place has to."""
        # Asked first: where all moved pods may leave, it saves counting the pods of every controller.
        if pod.key in self.cluster.snapshot.leaving_freely:
            return ()
        refusal = self.availability.refusal(pod)
        return () if refusal is None or self.may_lose_its_place(index) else (refusal,)

    def _passing_refusals(self, index: PodIndex, pod: Pod, rules: Sequence[Rule]) -> tuple[Refusal, ...]:
        """Return why a pod stays in this plan."""
        of_rules = (rule.pod_refusal(pod) for rule in rules)
        refusals = (self.kept.get(index), *of_rules, self.cluster.unknown_demand(self.cluster.pods[index].class_index))
        return tuple(refusal for refusal in refusals if refusal is not None)

    def may_lose_its_place(self, pod: PodIndex) -> bool:
        """Return whether a rule allows that a pod is evicted without a target."""
        return any(rule.may_evict(self.cluster.pods[pod].pod) for rule in self.rules)

    def pods_to_move(self, node: NodeIndex) -> tuple[PodIndex, ...]:
        """Return the pods that must leave a node to free it."""
        pods = self._to_move.get(node)
        if pods is None:
            placed_pods, keeps_its_node = self.cluster.pods, self._evictability.keeps_its_node
            pods = tuple(pod for pod in self.cluster.pods_on[node] if keeps_its_node(placed_pods[pod].pod))
            self._to_move[node] = pods
        return pods

    @cached_property
    def _to_move(self) -> dict[NodeIndex, tuple[PodIndex, ...]]:
        return {}


def _control_plane(cluster: Cluster) -> frozenset[NodeIndex]:
    numbered = enumerate(cluster.nodes)
    return frozenset(NodeIndex(index) for index, node in numbered if is_control_plane_node(node.metadata, node.spec))


@dataclass(frozen=True, slots=True)
class _RefusedNodes:
    """The nodes that rules refuse, each with the first reason."""

    whole: Mapping[NodeIndex, Refusal]
    as_sources: Mapping[NodeIndex, Refusal]
    as_targets: Mapping[NodeIndex, Refusal]


def _nodes_refused_by(rules: Sequence[Rule], nodes: Sequence[Node]) -> _RefusedNodes:
    both_ways: dict[NodeIndex, Refusal] = {}
    as_sources: dict[NodeIndex, Refusal] = {}
    as_targets: dict[NodeIndex, Refusal] = {}
    for rule in rules:
        if not answers(rule, "node_refusal"):
            continue
        for number, node in enumerate(nodes):
            source, target = rule.node_refusal(node, NodeRole.SOURCE), rule.node_refusal(node, NodeRole.TARGET)
            if source is not None and target is not None:
                both_ways.setdefault(NodeIndex(number), source)
            elif source is not None:
                as_sources.setdefault(NodeIndex(number), source)
            elif target is not None:
                as_targets.setdefault(NodeIndex(number), target)
    return _RefusedNodes(both_ways, as_sources, as_targets)


def _nodes_without_gain(rules: Sequence[Rule], nodes: Sequence[Node]) -> dict[NodeIndex, Refusal]:
    asked_rules = [rule for rule in rules if answers(rule, "gain_refusal")]
    refusals = (
        (NodeIndex(number), next(filter(None, (rule.gain_refusal(node) for rule in asked_rules)), None))
        for number, node in enumerate(nodes)
    )
    return {number: refusal for number, refusal in refusals if refusal is not None}


def _class_refusals(pods: PodClass, volume_index: VolumeIndex, crowded: Refusal | None) -> tuple[Refusal, ...]:
    """Return why all pods of a class stay: unreadable requests, unknown volumes or a `crowded` namespace."""
    unreadable_requests = Refusal(RefusalReason.POD_DATA_ODD, pods.odd) if pods.odd else None
    volumes = volume_index.volumes_of(pods)
    unknown_volumes = volumes if isinstance(volumes, Refusal) else None
    return tuple(refusal for refusal in (unreadable_requests, unknown_volumes, crowded) if refusal is not None)


def known_namespaces(snapshot: Snapshot) -> frozenset[str]:
    """Return the namespaces that there are, or that have pods where the snapshot lacks namespaces."""
    unreadable = (item for item in snapshot.unreadable if isinstance(item, Namespace))
    namespaces = {namespace.metadata.name for namespace in (*snapshot.namespaces, *unreadable)}
    return frozenset(namespaces | {pod.metadata.namespace for pod in snapshot.pods})


def _check_namespaces(snapshot: Snapshot, named: frozenset[str]) -> None:
    """Raise `InputError` for a named namespace that does not exist."""
    existing = known_namespaces(snapshot)
    unknown_namespaces = sorted(named - existing)
    if unknown_namespaces:
        raise InputError(
            "evictableNamespaces", unknown_namespaces[0], f"a namespace of the cluster, such as {_some(existing)}"
        )


def _check_resources(cluster: Cluster, named: Mapping[str, str]) -> None:
    """Raise `InputError` for a field whose resource no node has."""
    known_resources = {
        name for name, column in cluster.column.items() if any(row[column] > 0 for row in cluster.capacity)
    }
    for field_name, resource in named.items():
        if known_resources and resource not in known_resources:
            raise InputError(field_name, resource, f"a resource that a node has: {_some(known_resources)}")


def _some(names: Iterable[str]) -> str:
    shown = sorted(names)[:_SHOWN_NAMES]
    return ", ".join(shown) if shown else "(it has none)"


class Strategy(Protocol):
    """Chooses the moves of a plan; the same problem gives the same proposal."""

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return the steps and the refusals; `state` matches the snapshot and may be changed."""
        ...

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes that may be drained, before anything is chosen."""
        ...

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the pods to make room for; raises `InputError` for an impossible one."""
        ...


# A node is left alone if it gives and takes nothing (`node_refusal`), if no pod may leave it for now
# (`source_refusal`), or if a pod on it has to stay (`holding_refusal`). What no plan can empty for lack of room is the
# solver's to prove.


@dataclass(frozen=True)
class Sources:
    """The nodes to drain, the nodes to take pods from, and why the others may not be drained."""

    to_empty: tuple[NodeIndex, ...]
    pods_of: Mapping[NodeIndex, tuple[PodIndex, ...]]
    """The pods that have to leave each node that may be emptied."""

    to_take_from: tuple[NodeIndex, ...]
    """Nodes that may give single pods; those that may be emptied are among them."""

    empty: tuple[NodeIndex, ...]
    """Usable nodes with no pods but DaemonSet and mirror pods, those aside that bring nothing."""

    refusals: Mapping[NodeIndex, Refusal]


def find_sources(problem: Problem) -> Sources:
    """Return which nodes may be drained, and why not the others; each problem finds it out once."""
    return problem.sources


def _find_sources(problem: Problem) -> Sources:
    refusals: dict[NodeIndex, Refusal] = {}
    pods_of: dict[NodeIndex, tuple[PodIndex, ...]] = {}
    to_take_from, empty_nodes = [], []
    for number in map(NodeIndex, range(len(problem.cluster.nodes))):
        unusable = node_refusal(problem.cluster, number)
        untouchable = unusable or source_refusal(problem, number) or _useless_refusal(problem, number)
        pods = problem.pods_to_move(number)
        if untouchable is None:
            to_take_from.append(number)
        if not pods and unusable is None and number not in problem.no_gain:
            empty_nodes.append(number)
        refusal = untouchable or _emptying_refusal(problem, number)
        if refusal is None:
            pods_of[number] = pods
        else:
            refusals[number] = refusal
    return Sources(tuple(pods_of), pods_of, tuple(to_take_from), tuple(empty_nodes), refusals)


def source_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return why no pod may leave a usable node, as it is critical or a rule keeps it; None if one may."""
    source_node = problem.cluster.nodes[node]
    if source_node.metadata.labels.get(CRITICAL_NODE_LABEL) == "true":
        return Refusal(RefusalReason.CRITICAL_NODE, f"the node is labelled {CRITICAL_NODE_LABEL}=true")
    return SPARED if node in problem.wishes.spared else problem.no_sources.get(node)


def _useless_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return why it brings nothing to take any pod off a node: neither the node is gained, nor room on it."""
    return problem.no_gain.get(node) if node in problem.cluster.shut else None


def drain_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return why a node cannot be drained, whatever room there is elsewhere; None if no pod has to leave it."""
    refusal = node_refusal(problem.cluster, node) or holding_refusal(problem, node)
    return refusal or _limit_refusal(problem, len(problem.pods_to_move(node)))


def holding_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    """Return which pod must stay on a node or will come, the first of them; None if there is none."""
    cluster, pods = problem.cluster, problem.pods_to_move(node)
    expected = [pod for pod in pods if cluster.pods[pod].presence is PodPresence.EXPECTED]
    if expected:
        name = cluster.pods[expected[0]].pod.key
        return Refusal(RefusalReason.EXPECTS_PODS, f"{name} is about to come to the node", blocking_pod=name)
    blocked = [pod for pod in pods if pod in problem.pod_refusals]
    if not blocked:
        return None
    first_refusal = problem.pod_refusals[blocked[0]]
    count = f"{len(blocked)} pod{'s' if len(blocked) > 1 else ''} may not be moved"
    name = cluster.pods[blocked[0]].pod.key
    return Refusal(
        RefusalReason.HOLDS_IMMOVABLE_PODS,
        f"{count}, such as {name}: {first_refusal.sentences}",
        constraint=first_refusal.reason,
        blocking_pod=name,
    )


def _emptying_refusal(problem: Problem, node: NodeIndex) -> Refusal | None:
    if not problem.pods_to_move(node):
        return Refusal(RefusalReason.ALREADY_EMPTY, "nothing on the node has to be moved")
    return problem.no_gain.get(node) or drain_refusal(problem, node)


def _limit_refusal(problem: Problem, pods: int) -> Refusal | None:
    max_moves = problem.settings.limits.max_moves_per_node
    if max_moves is None or pods <= max_moves:
        return None
    return Refusal(RefusalReason.NODE_LIMIT, f"{pods} moves are needed, and at most {max_moves} are allowed off a node")
