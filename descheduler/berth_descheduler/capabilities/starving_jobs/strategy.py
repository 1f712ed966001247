"""The strategy `StarvingJobs`, which finds room for jobs that starve.

Where moves are allowed, it first asks `MakeRoom` for those that let the jobs fit. What no plan can give waits: nodes
are chosen whose allocatable amounts can hold the job, and are fenced until enough of their pods have ended.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Final, TypeAlias

from berth_core import (
    CPU,
    MEMORY,
    PLACEHOLDER_LABEL,
    PODS,
    Capacity,
    InputError,
    Pod,
    PodEnds,
    PodGroup,
    Room,
    RoomSlot,
    Snapshot,
    amount_in_words,
    count,
    fenced_nodes,
    first_few,
    format_duration,
    read_timestamp,
    reservation_for,
    share_of_nodes,
)
from berth_descheduler.capabilities.starving_jobs.pending_jobs import (
    PendingJob,
    Placement,
    find_pending_jobs,
    groups_without_pods,
    pod_index,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner import (
    EvictableNamespaces,
    NodeIndex,
    PodIndex,
    Problem,
    Proposal,
    State,
    Strategy,
    odd_requests,
)
from berth_descheduler.planner.settings import WHOLE
from berth_descheduler.planner.simulation import ClassIndex, Cluster, PlacedPod, PodPresence
from berth_descheduler.planner.standing_fences import without_fences

_MOST_OWNERS: Final = 32
_MOST_SLOTS: Final = 1000
"""The most owners and slots of a Reservation: a gang waits in one, as its slots change hands together."""

_SLOTS_OF_A_FENCE: Final = 2
"""A standing fence is two pods."""

_FULL_SCORE: Final = 1_000_000
_NODES_SHOWN: Final = 3
_LONGEST_WAIT: Final = datetime.max.replace(tzinfo=UTC)

MakeRoomFor: TypeAlias = Callable[[Callable[[Pod], tuple[str, str] | None]], Strategy]


@dataclass(frozen=True, slots=True)
class StarvationRules:
    """Which jobs starve, and how much is kept for them."""

    threshold: timedelta
    node_percent: Fraction
    give_up_after: timedelta
    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    namespace_percent: Fraction = Fraction(WHOLE)
    """Of all nodes, for the jobs of one namespace together."""


class StarvingJobsStrategy:
    """Makes room for jobs that starve, by moves or by waiting."""

    def __init__(self, rules: StarvationRules, make_room: MakeRoomFor | None = None) -> None:
        """Without `make_room` nothing is moved."""
        self._rules = rules
        self._make_room = make_room

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the pods that jobs lack, whether the jobs starve or not."""
        return tuple(pod for job in _readable(find_pending_jobs(snapshot)) for pod in job.missing)

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be taken."""
        return () if self._make_room is None else self._make_room(_alone).possible_sources(problem)

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return moves that make room, the rooms that wait, and why other starving jobs get nothing.

        Raises `InputError` if the time is not known.
        """
        now = problem.settings.run.now
        if now is None:
            raise InputError("now", None, "the time of the plan, from which jobs have waited")
        snapshot = problem.cluster.snapshot
        jobs = _readable(find_pending_jobs(snapshot))
        is_allowed = self._rules.namespaces.allows
        starving = [
            job for job in jobs if is_allowed(job.reference.namespace) and job.starves(now, self._rules.threshold)
        ]
        kept_out = self._kept_out(snapshot, now)
        if not starving:
            counts = {RefusalReason.NOT_ENQUEUED.value: len(kept_out)} if kept_out else {}
            return Proposal((), kept_out, job_outcomes={"Waits": 0, "RoomMade": 0, **counts})
        able, refusals = _sort_out(snapshot, jobs, starving)
        move_proposal = self._moves(problem, state, able)
        served = {pod.uid for room in move_proposal.room for pod in room.pods[: room.fitted]}
        waiting = [job for job in able if not served.issuperset(pod.metadata.uid for pod in job.missing)]
        moved_nodes = {
            problem.cluster.node_name(node) for step in move_proposal.steps for node in (step.source, step.target)
        }
        closed_nodes = moved_nodes.union(*(room.nodes for room in move_proposal.room))
        waits, unserved = self._choose_nodes(problem, waiting, closed_nodes)
        rooms = tuple(room for room in move_proposal.room if room.fitted)
        left_out = (*refusals, *unserved, *kept_out)
        outcomes = Counter(refusal.reason.value for refusal in left_out)
        outcome_counts = {"Waits": len(waits), "RoomMade": len(able) - len(waiting), **outcomes}
        quality = move_proposal.quality if rooms else None
        return Proposal(move_proposal.steps, left_out, quality, rooms, waits=waits, job_outcomes=outcome_counts)

    def _kept_out(self, snapshot: Snapshot, now: datetime) -> tuple[Refused, ...]:
        """Return the jobs that starve without pods: no place can be held for pods that do not exist."""
        return tuple(
            _refuse_group(group)
            for group in groups_without_pods(snapshot)
            if self._rules.namespaces.allows(group.metadata.namespace)
            and (created := read_timestamp(group.metadata.creation_timestamp)) is not None
            and now - created > self._rules.threshold
        )

    def _moves(self, problem: Problem, state: State, jobs: Sequence[PendingJob]) -> Proposal:
        """Return what moves can do for the jobs, and make these moves in the state."""
        if self._make_room is None or not jobs:
            return Proposal((), ())
        gangs = {
            pod.key: (job.reference.namespace, job.reference.name)
            for job in jobs
            for pod in job.missing
            if len(job.missing) > 1
        }
        strategy = self._make_room(lambda pod: gangs.get(pod.key))
        pods = [pod for job in jobs for pod in job.missing]
        review = Problem.to_review(problem.cluster.snapshot, problem.settings, pods).keeping(problem.kept)
        review = review.wishing(problem.wishes)
        proposal = strategy.propose(review, State(review.cluster, strategy.possible_sources(review)))
        # The pods that have a node have the same numbers in both clusters: only those that wait differ.
        for step in proposal.steps:
            state.move(step.pod, step.target)
        return proposal

    def _choose_nodes(
        self, problem: Problem, jobs: Sequence[PendingJob], closed: set[str]
    ) -> tuple[tuple[Room, ...], tuple[Refused, ...]]:
        """Return the rooms that wait, and why other jobs get none.

        A job for which too few nodes may be fenced now still keeps the jobs behind it from taking them.
        """
        if not jobs:
            return (), ()
        rooms, refusals, first_job = [], [], ""
        choice = JobNodeChooser(problem, jobs, closed, self._rules)
        for job in jobs:
            if first_job:
                refusals.append(_refuse(job, Refusal(RefusalReason.BEHIND_ANOTHER_JOB, f"{first_job} waits for nodes")))
                continue
            slots = choice.choose(job)
            if isinstance(slots, Refusal):
                refusals.append(_refuse(job, slots))
                if slots.reason is RefusalReason.RESERVED_NODE_PERCENT and choice.could_later(job):
                    first_job = job.name
            else:
                rooms.append(self._room(job, slots))
        return tuple(rooms), tuple(refusals)

    def _room(self, job: PendingJob, slots: tuple[RoomSlot, ...]) -> Room:
        return Room(
            name=job.name,
            namespace=job.reference.namespace,
            gang=job.reference.name if len(slots) > 1 else "",
            slots=slots,
            capacity=Capacity.WHEN_FREE,
            job=job.reference,
            ttl=format_duration(self._rules.give_up_after),
        )


def _alone(_pod: Pod) -> None:
    return None


def _readable(jobs: Sequence[PendingJob]) -> tuple[PendingJob, ...]:
    return tuple(job for job in jobs if job.missing and not any(map(odd_requests, job.missing)))


def _refuse(job: PendingJob, refusal: Refusal) -> Refused:
    text = f"{job.reference.kind} {job.name} starves, and nothing is reserved for it: {refusal.message}"
    job_refusal = Refusal(refusal.reason, text, constraint=refusal.constraint, resource=refusal.resource)
    return Refused.of_pod("", job.reference.namespace, job.missing[0].metadata.name, job_refusal)


def _refuse_group(group: PodGroup) -> Refused:
    namespace, name = group.metadata.namespace, group.metadata.name
    requests = ", ".join(f"{amount} of {resource}" for resource, amount in sorted(group.spec.min_resources.items()))
    asks = f", where it would ask for {requests}" if requests else ""
    text = (
        f"{group.kind} {namespace}/{name} starves, and nothing is reserved for it: it has no pods, since Volcano's "
        f"action enqueue has not let it in{asks}"
    )
    return Refused.of_pod("", namespace, name, Refusal(RefusalReason.NOT_ENQUEUED, text))


def _sort_out(
    snapshot: Snapshot, jobs: Sequence[PendingJob], starving: Sequence[PendingJob]
) -> tuple[tuple[PendingJob, ...], tuple[Refused, ...]]:
    """Return the starving jobs for which something may be reserved, and why the others get nothing."""
    pods = tuple(pod for job in jobs for pod in job.missing)
    placement = Placement(Cluster.from_snapshot(snapshot, pods))
    placeable: dict[str, bool] = {}

    def fits(job: PendingJob) -> bool:
        if job.uid not in placeable:
            placeable[job.uid] = job.lacks_pods() is None and placement.fits(job)
        return placeable[job.uid]

    able, refusals = [], []
    for job in starving:
        higher = next(
            (higher_job for higher_job in jobs if higher_job.priority > job.priority and fits(higher_job)), None
        )
        refusal = job.lacks_pods() or _why_gave_up(snapshot, job) or _why_unfit_for_one(job)
        if refusal is None and fits(job):
            refusal = Refusal(RefusalReason.FITS_NOW, "its pods fit as the cluster is, so its scheduler can place them")
        if refusal is None and higher is not None:
            text = f"{higher.name} has a higher priority and can be placed now"
            refusal = Refusal(RefusalReason.HIGHER_PRIORITY_FIRST, text)
        if refusal is None:
            able.append(job)
        else:
            refusals.append(_refuse(job, refusal))
    return tuple(able), tuple(refusals)


def _why_gave_up(snapshot: Snapshot, job: PendingJob) -> Refusal | None:
    """Return how the last Reservation for a job ended, as long as it is there: others have their turn first."""
    last_reservation = reservation_for(job.uid, job.reference.namespace, snapshot.reservations)
    if last_reservation is None or last_reservation.is_live:
        return None
    state = last_reservation.status.state
    ending = ": ".join(filter(None, (state.reason, state.message))) if state else "it is being deleted"
    return Refusal(
        RefusalReason.GAVE_UP, f"its Reservation {last_reservation.key} ended ({ending}) and has not been deleted yet"
    )


def _why_unfit_for_one(job: PendingJob) -> Refusal | None:
    owners = {pod.controller.uid if pod.controller else pod.metadata.uid for pod in job.missing}
    if len(owners) > _MOST_OWNERS or len(job.missing) > _MOST_SLOTS:
        text = f"its {count(len(job.missing), 'pod')} of {count(len(owners), 'owner')} do not fit into one Reservation"
        return Refusal(RefusalReason.TOO_MANY_OWNERS, text)
    return None


# --- nodes -----------------------------------------------------------------------------------------------------------
# Which nodes are kept for a job: those that pass every rule but the free amounts and whose allocatable amounts can hold
# its pods beside what never leaves, at most so many that no more than a percentage of the cluster is fenced.


Rank: TypeAlias = tuple[bool, int, int, datetime, str]


class JobNodeChooser:
    """Chooses nodes for one job after the other, and keeps what it has chosen."""

    def __init__(self, problem: Problem, jobs: Sequence[PendingJob], closed: set[str], rules: StarvationRules) -> None:
        snapshot = without_fences(problem.cluster.snapshot)
        pods = [pod for job in jobs for pod in job.missing]
        review = Problem.to_review(snapshot, problem.settings, pods).wishing(problem.wishes)
        self._cluster, self._target_ranks = review.cluster, review.target_ranks
        self._state = State(self._cluster)
        self._most = share_of_nodes(rules.node_percent, len(snapshot.nodes))
        self._most_of_namespace = share_of_nodes(rules.namespace_percent, len(snapshot.nodes))
        self._fenced = set(fenced_nodes(snapshot.reservations))
        self._fenced_for = {
            namespace: set(
                fenced_nodes(
                    reservation for reservation in snapshot.reservations if reservation.metadata.namespace == namespace
                )
            )
            for namespace in {job.reference.namespace for job in jobs}
        }
        """By namespace: the nodes that its Reservations fence."""
        self._closed = {self._cluster.node_numbers[name] for name in closed if name in self._cluster.node_numbers}
        self._end_of = PodEnds(snapshot.pod_groups).of
        self._stuck = frozenset(
            uid
            for pending_job in find_pending_jobs(snapshot)
            if not pending_job.is_ready
            for uid in pending_job.placed_uids
        )
        """Pods of gangs that wait for the rest of their pods: they end no sooner than these come."""
        self._nodes = [NodeIndex(node) for node in range(len(snapshot.nodes))]
        self._fence_slots = [0] * self._cluster.columns
        self._fence_slots[self._cluster.column[PODS]] = _SLOTS_OF_A_FENCE
        self._beside = [self._left(node, lambda placed_pod: not self._stays(placed_pod)) for node in self._nodes]
        """Per node what its allocatable amounts leave beside pods that stay and what is promised."""
        self._coming = [self._left(node, self._ends) for node in self._nodes]
        """The same with only what is free by itself: pods that never end count as staying."""
        self._ranks: dict[tuple[ClassIndex, NodeIndex], Rank] = {}

    def choose(self, job: PendingJob) -> tuple[RoomSlot, ...] | Refusal:
        """Return a place for every missing pod of a job, or why there is none for all of them."""
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
        """Return whether the job gets its nodes once others are fenced no more.

        If a namespace may have fewer nodes fenced than all together, other namespaces need not wait for it.
        """
        mark = self._state.mark()
        fenced_before, fenced_for_namespace = self._fenced, self._fenced_for[job.reference.namespace]
        is_shared = self._most_of_namespace < self._most
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
        return sorted(pod_indices, key=lambda pod: [-amount for amount in self._needs(pod)])

    def _take(self, pod: PodIndex, node: NodeIndex, times: int) -> None:
        if times > 0:
            self._state.move(pod, node)
        for rows in (self._beside, self._coming):
            row = [free_amount - need * times for free_amount, need in zip(rows[node], self._needs(pod), strict=True)]
            rows[node] = tuple(row)
        self._ranks = {key: rank for key, rank in self._ranks.items() if key[1] != node}

    def _give_back(self, pod: PodIndex, node: NodeIndex) -> None:
        self._take(pod, node, -1)

    # --- candidates ---------------------------------------------------------------------------------------------------

    def _best(
        self,
        pod: PodIndex,
        rank: Callable[[ClassIndex, NodeIndex], Rank],
        mine: set[NodeIndex],
        of_namespace: set[str],
    ) -> NodeIndex | None:
        class_index = self._cluster.pods[pod].class_index
        chosen_names = set(map(self._cluster.node_name, mine))
        by_all, by_own = self._fenced | chosen_names, of_namespace | chosen_names
        is_full, is_own_full = len(by_all) >= self._most, len(by_own) >= self._most_of_namespace
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

    @cached_property
    def _passing(self) -> dict[ClassIndex, list[NodeIndex]]:
        """Return the nodes that lasting rules allow, filled by class."""
        return {}

    def _holds(self, row: Sequence[int], class_index: ClassIndex) -> bool:
        needs = self._cluster.requests[class_index]
        return all(need <= free_amount for need, free_amount in zip(needs, row, strict=True) if need)

    def _needs(self, pod: PodIndex) -> tuple[int, ...]:
        return self._cluster.requests[self._cluster.pods[pod].class_index]

    # --- ranks --------------------------------------------------------------------------------------------------------

    def _rank(self, class_index: ClassIndex, node: NodeIndex) -> Rank:
        """Return the key that is lowest for the best node; nodes with pods that never end in the way come last."""
        key = class_index, node
        if key not in self._ranks:
            comes = self._holds(self._coming[node], class_index)
            score = node_score(self._cluster, class_index, self._state.free[node])
            expected = self._expected_at(class_index, node) if comes else _LONGEST_WAIT
            self._ranks[key] = (not comes, self._target_ranks[node], -score, expected, self._cluster.node_name(node))
        return self._ranks[key]

    def _capacity_rank(self, class_index: ClassIndex, node: NodeIndex) -> Rank:
        """Return a key that is lowest for the node that holds most such pods, so that few nodes do."""
        row, needs = self._beside[node], self._cluster.requests[class_index]
        number = min(free_amount // need for free_amount, need in zip(row, needs, strict=True) if need)
        comes = self._holds(self._coming[node], class_index)
        return (not comes, self._target_ranks[node], -number, _LONGEST_WAIT, self._cluster.node_name(node))

    def _expected_at(self, class_index: ClassIndex, node: NodeIndex) -> datetime:
        """Return when enough of the node's pods will have ended, as far as these say."""
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

    # --- amounts ------------------------------------------------------------------------------------------------------

    def _pods_on(self, node: NodeIndex) -> Iterator[PlacedPod]:
        return (self._cluster.pods[pod] for pod in self._cluster.pods_on[node])

    def _left(self, node: NodeIndex, leaves: Callable[[PlacedPod], bool]) -> tuple[int, ...]:
        """Return what a node has beside the pods that do not leave."""
        capacity = self._cluster.capacity[node]
        row = [capacity_amount - need for capacity_amount, need in zip(capacity, self._fence_slots, strict=True)]
        for placed_pod in self._pods_on(node):
            if not leaves(placed_pod):
                row = [
                    left_amount - need
                    for left_amount, need in zip(row, self._cluster.requests[placed_pod.class_index], strict=True)
                ]
        return tuple(row)

    def _ends(self, one: PlacedPod) -> bool:
        """Return whether a pod ends by itself some time: pods that are restarted for ever do not."""
        if self._stays(one):
            return False
        return one.pod.spec.restart_policy in {"Never", "OnFailure"} or self._end_of(one.pod) is not None

    def _stays(self, one: PlacedPod) -> bool:
        """Return whether a pod's amounts become free for no job: DaemonSets', what is promised, and half gangs'."""
        return (
            one.pod.belongs_to_node
            or PLACEHOLDER_LABEL in one.pod.metadata.labels
            or one.presence is PodPresence.EXPECTED
            or one.pod.metadata.uid in self._stuck
        )

    # --- reasons ------------------------------------------------------------------------------------------------------

    def _why_none(self, job: PendingJob) -> Refusal:
        """Return the first of the job's pods that finds no node, and why; else that all of them do not."""
        for pod in self._larger_first(job):
            if (refusal := self._why_pod(pod)) is not None:
                return refusal
        fenced = len(self._fenced)
        if fenced or len(job.missing) > 1:
            nodes = f"{count(fenced, 'node')} of at most {self._most} {'is' if fenced == 1 else 'are'} fenced already"
            own_fenced = len(self._fenced_for[job.reference.namespace])
            if own_fenced and self._most_of_namespace < self._most:
                nodes += f", {own_fenced} of at most {self._most_of_namespace} for its namespace"
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
    other resources. What is not requested is not missing and counts 1.
    """
    needs = cluster.requests[class_index]

    def single(column: int) -> int:
        return min(_FULL_SCORE, max(0, free[column]) * _FULL_SCORE // needs[column]) if needs[column] else _FULL_SCORE

    other_columns = [
        column for name, column in cluster.column.items() if name not in {CPU, MEMORY, PODS} and needs[column]
    ]
    scalar = sum(map(single, other_columns)) // len(other_columns) if other_columns else _FULL_SCORE
    cpu, memory = single(cluster.column[CPU]), single(cluster.column[MEMORY])
    return ((cpu + memory) + 4 * scalar) // 6
