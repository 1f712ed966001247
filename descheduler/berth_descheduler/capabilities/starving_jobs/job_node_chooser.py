"""The choice of nodes that are kept for starving jobs until enough of their pods have ended."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property
from typing import Final, TypeAlias

from berth_core import (
    CPU,
    MEMORY,
    PLACEHOLDER_LABEL,
    PODS,
    Pod,
    PodEnds,
    RoomSlot,
    amount_in_words,
    count,
    fenced_nodes,
    first_few,
    share_of_nodes,
)
from berth_descheduler.capabilities.starving_jobs.pending_jobs import PendingJob, find_pending_jobs
from berth_descheduler.capabilities.starving_jobs.placement import pod_index
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner import NodeIndex, PodIndex, Problem, State
from berth_descheduler.planner.simulation import ClassIndex, Cluster, PlacedPod, PodPresence
from berth_descheduler.planner.standing_fences import without_fences

_SLOTS_OF_A_FENCE: Final = 2
"""A standing fence is two pods."""
_FULL_SCORE: Final = 1_000_000
_NODES_SHOWN: Final = 3
_LONGEST_WAIT: Final = datetime.max.replace(tzinfo=UTC)

Rank: TypeAlias = tuple[bool, int, int, datetime, str]


class JobNodeChooser:
    """Chooses nodes to keep for one job after another; those of earlier jobs stay chosen.

    A node qualifies if only the free amounts keep the job's pods off now, and if its allocatable amounts hold them
    beside the pods that never leave. At most a percentage of the cluster's nodes is fenced.
    """

    def __init__(
        self,
        problem: Problem,
        jobs: Sequence[PendingJob],
        closed: set[str],
        *,
        node_percent: Fraction,
        namespace_percent: Fraction,
    ) -> None:
        """`closed` names nodes that moves or other rooms use; the percentages limit how many may be fenced."""
        # The fences of earlier rooms would refuse the pods, though a node that is fenced already is the one that costs
        # nothing more of the percentages. What it has promised is left out of `_beside`.
        snapshot = without_fences(problem.cluster.snapshot)
        pods = [pod for job in jobs for pod in job.missing]
        review = Problem.to_review(snapshot, problem.settings, pods).wishing(problem.wishes)
        self._cluster, self._target_ranks = review.cluster, review.target_ranks
        self._state = State(self._cluster)
        self._limit = share_of_nodes(node_percent, len(snapshot.nodes))
        self._namespace_limit = share_of_nodes(namespace_percent, len(snapshot.nodes))
        self._fenced = set(fenced_nodes(snapshot.reservations))
        self._fenced_for = {
            namespace: set(
                fenced_nodes(
                    reservation for reservation in snapshot.reservations if reservation.metadata.namespace == namespace
                )
            )
            for namespace in {job.reference.namespace for job in jobs}
        }
        """The nodes that a namespace's Reservations fence, by namespace."""
        self._closed = {self._cluster.node_numbers[name] for name in closed if name in self._cluster.node_numbers}
        self._end_of = PodEnds(snapshot.pod_groups).of
        self._stuck = frozenset(
            uid
            for pending_job in find_pending_jobs(snapshot)
            if not pending_job.is_ready
            for uid in pending_job.placed_uids
        )
        """Uids of running pods of incomplete gangs, which do not end before the rest of their gang runs."""
        self._nodes = [NodeIndex(node) for node in range(len(snapshot.nodes))]
        self._fence_slots = [0] * self._cluster.columns
        self._fence_slots[self._cluster.column[PODS]] = _SLOTS_OF_A_FENCE
        self._beside = [self._left(node, lambda placed_pod: not self._stays(placed_pod)) for node in self._nodes]
        """Per node: allocatable amounts less those of pods that stay and of promised slots."""
        self._coming = [self._left(node, self._ends) for node in self._nodes]
        """The same, but pods that never end by themselves count as staying, too."""
        self._ranks: dict[tuple[ClassIndex, NodeIndex], Rank] = {}
        self._passing: dict[ClassIndex, list[NodeIndex]] = {}
        """The nodes that pass all rules except free amounts, by pod class; filled on demand."""

    def choose(self, job: PendingJob) -> tuple[RoomSlot, ...] | Refusal:
        """Return a node for each missing pod of a job, or why there is none for all of them."""
        # First by what is idle and ends soon; if that needs too many nodes, by what each node holds, to need fewer.
        for rank in (self._rank, self._capacity_rank):
            mark = self._state.mark()
            taken_nodes: dict[PodIndex, NodeIndex] = {}
            for pod in self._larger_first(job):
                node = self._best(pod, rank, set(taken_nodes.values()), self._fenced_for[job.reference.namespace])
                if node is None:
                    break
                self._take(pod, node, 1)
                taken_nodes[pod] = node
            if len(taken_nodes) == len(job.missing):
                names = {self._cluster.node_name(node) for node in taken_nodes.values()}
                self._fenced |= names
                self._fenced_for[job.reference.namespace] |= names
                return tuple(self._slot(pod, taken_nodes[pod_index(self._cluster, pod)]) for pod in job.missing)
            for pod, node in taken_nodes.items():
                self._give_back(pod, node)
            self._state.undo_to(mark)
        return self._why_none(job)

    def could_later(self, job: PendingJob) -> bool:
        """Return whether the job would get nodes once the nodes of others are no longer fenced.

        Where namespaces have a lower limit than all together, only other namespaces' nodes count as released: a
        namespace that has used up its own limit must not block the others.
        """
        mark = self._state.mark()
        fenced_before, fenced_for_namespace = self._fenced, self._fenced_for[job.reference.namespace]
        is_shared = self._namespace_limit < self._limit
        self._fenced = set()
        self._fenced_for[job.reference.namespace] = set(fenced_for_namespace) if is_shared else set()
        try:
            slots = self.choose(job)
            if isinstance(slots, Refusal):
                return False
            for slot, pod in zip(slots, job.missing, strict=True):
                self._give_back(pod_index(self._cluster, pod), self._cluster.node_numbers[slot.node])
            self._state.undo_to(mark)
            return True
        finally:
            self._fenced, self._fenced_for[job.reference.namespace] = fenced_before, fenced_for_namespace

    def _slot(self, pod: Pod, node: NodeIndex) -> RoomSlot:
        return RoomSlot(node=self._cluster.node_name(node), pod=pod.metadata.name, pod_uid=pod.metadata.uid)

    def _larger_first(self, job: PendingJob) -> list[PodIndex]:
        pod_indices = [pod_index(self._cluster, pod) for pod in job.missing]
        # First-fit decreasing: large pods have the fewest candidates, so they choose first.
        return sorted(pod_indices, key=lambda pod: [-amount for amount in self._needs(pod)])

    def _take(self, pod: PodIndex, node: NodeIndex, times: int) -> None:
        if times > 0:
            self._state.move(pod, node)
        for rows in (self._beside, self._coming):
            row = [free_amount - need * times for free_amount, need in zip(rows[node], self._needs(pod), strict=True)]
            rows[node] = tuple(row)
        # A rank depends on what is idle on its own node only, so those of other nodes are still right.
        self._ranks = {key: rank for key, rank in self._ranks.items() if key[1] != node}

    def _give_back(self, pod: PodIndex, node: NodeIndex) -> None:
        self._take(pod, node, -1)

    def _best(
        self,
        pod: PodIndex,
        rank: Callable[[ClassIndex, NodeIndex], Rank],
        chosen_nodes: set[NodeIndex],
        fenced_for_namespace: set[str],
    ) -> NodeIndex | None:
        class_index = self._cluster.pods[pod].class_index
        chosen_names = set(map(self._cluster.node_name, chosen_nodes))
        by_all, by_own = self._fenced | chosen_names, fenced_for_namespace | chosen_names
        is_full, is_own_full = len(by_all) >= self._limit, len(by_own) >= self._namespace_limit
        open_nodes = (
            node
            for node in self._candidates(class_index)
            if (not is_full or self._cluster.node_name(node) in by_all)
            and (not is_own_full or self._cluster.node_name(node) in by_own)
            and self._holds(self._beside[node], class_index)
            and self._state.refusal_by_others(pod, node) is None
        )
        return min(open_nodes, key=lambda node: rank(class_index, node), default=None)

    def _candidates(self, class_index: ClassIndex) -> Sequence[NodeIndex]:
        if class_index not in self._passing:
            node_fit = self._state.node_fit
            self._passing[class_index] = [
                node for node in self._nodes if node not in self._closed and node_fit.refusal(class_index, node) is None
            ]
        return self._passing[class_index]

    def _holds(self, row: Sequence[int], class_index: ClassIndex) -> bool:
        needs = self._cluster.requests[class_index]
        return all(need <= free_amount for need, free_amount in zip(needs, row, strict=True) if need)

    def _needs(self, pod: PodIndex) -> tuple[int, ...]:
        return self._cluster.requests[self._cluster.pods[pod].class_index]

    def _rank(self, class_index: ClassIndex, node: NodeIndex) -> Rank:
        """Return a sort key, lowest for the best node; nodes that never come free by themselves sort last."""
        key = class_index, node
        if key not in self._ranks:
            comes = self._holds(self._coming[node], class_index)
            score = node_score(self._cluster, class_index, self._state.free[node])
            expected = self._expected_at(class_index, node) if comes else _LONGEST_WAIT
            self._ranks[key] = (not comes, self._target_ranks[node], -score, expected, self._cluster.node_name(node))
        return self._ranks[key]

    def _capacity_rank(self, class_index: ClassIndex, node: NodeIndex) -> Rank:
        """Return a sort key, lowest for the node that holds most pods of the class, so that few nodes suffice."""
        row, needs = self._beside[node], self._cluster.requests[class_index]
        number = min(free_amount // need for free_amount, need in zip(row, needs, strict=True) if need)
        comes = self._holds(self._coming[node], class_index)
        return (not comes, self._target_ranks[node], -number, _LONGEST_WAIT, self._cluster.node_name(node))

    def _expected_at(self, class_index: ClassIndex, node: NodeIndex) -> datetime:
        """Return when enough pods of the node will have ended; the latest time if too few have a known end."""
        free = list(self._state.free[node])
        ends = [
            (end, placed_pod)
            for placed_pod in self._pods_on(node)
            if not self._stays(placed_pod) and (end := self._end_of(placed_pod.pod))
        ]
        for end, ending_pod in sorted(ends, key=lambda item: (item[0], item[1].pod.key)):
            needs = self._cluster.requests[ending_pod.class_index]
            free = [free_amount + freed_amount for free_amount, freed_amount in zip(free, needs, strict=True)]
            if self._holds(free, class_index):
                return end
        return _LONGEST_WAIT

    def _pods_on(self, node: NodeIndex) -> Iterator[PlacedPod]:
        return (self._cluster.pods[pod] for pod in self._cluster.pods_on[node])

    def _left(self, node: NodeIndex, leaves: Callable[[PlacedPod], bool]) -> tuple[int, ...]:
        """Return a node's capacity less a fence's pods and the pods that do not leave."""
        capacity = self._cluster.capacity[node]
        row = [capacity_amount - need for capacity_amount, need in zip(capacity, self._fence_slots, strict=True)]
        for placed_pod in self._pods_on(node):
            if not leaves(placed_pod):
                row = [
                    left_amount - need
                    for left_amount, need in zip(row, self._cluster.requests[placed_pod.class_index], strict=True)
                ]
        return tuple(row)

    def _ends(self, placed: PlacedPod) -> bool:
        """Return whether a pod ends by itself."""
        if self._stays(placed):
            return False
        # The kubelet restarts the containers of a pod with restartPolicy Always whatever their exit code, so such a pod
        # ends only at its activeDeadlineSeconds or when it is deleted.
        return placed.pod.spec.restart_policy in {"Never", "OnFailure"} or self._end_of(placed.pod) is not None

    def _stays(self, placed: PlacedPod) -> bool:
        """Return whether a pod's amounts never become free: pods of DaemonSets, promised slots, incomplete gangs."""
        return (
            placed.pod.belongs_to_node
            or PLACEHOLDER_LABEL in placed.pod.metadata.labels
            or placed.presence is PodPresence.EXPECTED
            or placed.pod.metadata.uid in self._stuck
        )

    def _why_none(self, job: PendingJob) -> Refusal:
        """Return why the first pod without a node gets none; else that the nodes are too few for all together."""
        for pod in self._larger_first(job):
            if (refusal := self._why_pod(pod)) is not None:
                return refusal
        fenced = len(self._fenced)
        if fenced or len(job.missing) > 1:
            nodes = f"{count(fenced, 'node')} of at most {self._limit} {'is' if fenced == 1 else 'are'} fenced already"
            own_fenced = len(self._fenced_for[job.reference.namespace])
            if own_fenced and self._namespace_limit < self._limit:
                nodes += f", {own_fenced} of at most {self._namespace_limit} for its namespace"
            text = f"there are too few nodes for its {count(len(job.missing), 'pod')} together: {nodes}"
            return Refusal(RefusalReason.RESERVED_NODE_PERCENT, text)
        return Refusal(RefusalReason.NODES_PROMISED, "no node can hold it beside what is promised to others")

    def _why_pod(self, pod: PodIndex) -> Refusal | None:
        class_index, job_pod = self._cluster.pods[pod].class_index, self._cluster.pods[pod].pod
        large = [node for node in self._nodes if self._holds(self._daemons_aside[node], class_index)]
        if not large:
            return self._too_large(job_pod, class_index)
        passing = {*self._candidates(class_index)}
        if not any(node in passing or node in self._closed for node in large):
            refusal = self._state.node_fit.refusal(class_index, large[0])
            return self._by_rules(job_pod, large, refusal)
        allowed_nodes = [node for node in large if node in passing and self._state.refusal_by_others(pod, node) is None]
        if not allowed_nodes:
            first_passing = next((node for node in large if node in passing), large[0])
            return self._by_rules(job_pod, large, self._state.refusal_by_others(pod, first_passing))
        if not any(self._holds(self._beside[node], class_index) for node in allowed_nodes):
            text = (
                f"what the nodes that could hold pod {job_pod.key} have is promised to others, or held by half a gang"
            )
            return Refusal(RefusalReason.NODES_PROMISED, text)
        return None

    @cached_property
    def _daemons_aside(self) -> list[tuple[int, ...]]:
        return [self._left(node, lambda placed_pod: not placed_pod.pod.belongs_to_node) for node in self._nodes]

    def _too_large(self, pod: Pod, class_index: ClassIndex) -> Refusal:
        needs = self._cluster.requests[class_index]
        rows = self._daemons_aside
        for name, column in self._cluster.column.items():
            largest_amount = max((row[column] for row in rows), default=0)
            if needs[column] > largest_amount:
                amounts = f"{name} {amount_in_words(name, needs[column])}, and no node has more than"
                text = f"pod {pod.key} requests {amounts} {amount_in_words(name, max(0, largest_amount))} for such pods"
                return Refusal(RefusalReason.LARGER_THAN_ANY_NODE, text, resource=name)
        text = f"no node has all at once that pod {pod.key} requests"
        return Refusal(RefusalReason.LARGER_THAN_ANY_NODE, text)

    def _by_rules(self, pod: Pod, nodes: Sequence[NodeIndex], why: Refusal | None) -> Refusal:
        names = first_few([self._cluster.node_name(node) for node in nodes], _NODES_SHOWN)
        because = f": {why.message}" if why is not None else ""
        text = f"the nodes that could hold pod {pod.key} do not take it, whatever ends there ({names}){because}"
        return Refusal(RefusalReason.STARVES_BY_RULES, text, constraint=why.reason if why is not None else "")


def node_score(cluster: Cluster, class_index: ClassIndex, free: Sequence[int]) -> int:
    """Return how much of a pod's request is idle on a node, in millionths.

    Per resource that is idle / request, at most 1; together ((cpu + memory) / 2 + 2 * others) / 3, with the mean of the
    other resources. A resource that is not requested counts 1.
    """
    # The formula is that of Volcano's proposed `reserve` action (volcano-sh/volcano#298).
    needs = cluster.requests[class_index]

    def single(column: int) -> int:
        return min(_FULL_SCORE, max(0, free[column]) * _FULL_SCORE // needs[column]) if needs[column] else _FULL_SCORE

    other_columns = [
        column for name, column in cluster.column.items() if name not in {CPU, MEMORY, PODS} and needs[column]
    ]
    scalar = sum(map(single, other_columns)) // len(other_columns) if other_columns else _FULL_SCORE
    cpu, memory = single(cluster.column[CPU]), single(cluster.column[MEMORY])
    return ((cpu + memory) + 4 * scalar) // 6
