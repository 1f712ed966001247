"""The strategy `StarvingJobs`, which finds room for jobs that starve.

Where moves are allowed, it first asks `MakeRoom` for moves that let the jobs fit. For the other jobs it chooses nodes
whose allocatable amounts can hold them; these nodes are fenced until enough of their pods have ended.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final, TypeAlias

from berth_core import (
    Capacity,
    InputError,
    Pod,
    PodGroup,
    Room,
    RoomSlot,
    Snapshot,
    count,
    format_duration,
    read_timestamp,
    reservation_for,
)
from berth_descheduler.capabilities.starving_jobs.job_node_chooser import JobNodeChooser
from berth_descheduler.capabilities.starving_jobs.pending_jobs import PendingJob, find_pending_jobs, groups_without_pods
from berth_descheduler.capabilities.starving_jobs.placement import Placement
from berth_descheduler.framework.refusals import Refusal, RefusalReason, Refused
from berth_descheduler.planner import EvictableNamespaces, NodeIndex, Problem, Proposal, State, Strategy, odd_requests
from berth_descheduler.planner.pending_pods import GangOf, no_gang
from berth_descheduler.planner.settings import WHOLE
from berth_descheduler.planner.simulation import Cluster

_MAX_OWNERS: Final = 32
_MAX_SLOTS: Final = 1000
"""The most owners and slots of a Reservation: a gang waits in one, as its slots change hands together."""


MakeRoomFor: TypeAlias = Callable[[GangOf], Strategy]


@dataclass(frozen=True, slots=True)
class StarvationRules:
    """Which jobs starve, and how much is kept for them."""

    threshold: timedelta
    node_percent: Fraction
    give_up_after: timedelta
    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    namespace_percent: Fraction = Fraction(WHOLE)
    """The share of all nodes that may be fenced for the jobs of one namespace together."""


class StarvingJobsStrategy:
    """Makes room for jobs that starve, by moves or by waiting."""

    def __init__(self, rules: StarvationRules, make_room: MakeRoomFor | None = None) -> None:
        """Without `make_room` nothing is moved."""
        self._rules = rules
        self._make_room = make_room

    def waiting_pods(self, snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return the missing pods of all jobs; `Placement` needs those of jobs that do not starve as well."""
        return tuple(pod for job in _readable(find_pending_jobs(snapshot)) for pod in job.missing)

    def possible_sources(self, problem: Problem) -> tuple[NodeIndex, ...]:
        """Return the nodes from which pods may be moved."""
        return () if self._make_room is None else self._make_room(no_gang).possible_sources(problem)

    def propose(self, problem: Problem, state: State) -> Proposal:
        """Return moves that make room, the nodes to keep for other jobs, and why the rest get nothing.

        Raises `InputError` if the plan has no time, against which waiting is measured.
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
        # A job is served as a whole or not at all: half a gang holds capacity and still does not run.
        served = {pod.uid for room in move_proposal.room for pod in room.pods[: room.fitted]}
        waiting = [job for job in able if not served.issuperset(pod.metadata.uid for pod in job.missing)]
        moved_nodes = {
            problem.cluster.node_name(node) for step in move_proposal.steps for node in (step.source, step.target)
        }
        # A node that moves change is not kept in the same plan: the two would each count on the same free amounts.
        closed_nodes = moved_nodes.union(*(room.nodes for room in move_proposal.room))
        waits, unserved = self._choose_nodes(problem, waiting, closed_nodes)
        rooms = tuple(room for room in move_proposal.room if room.fitted)
        left_out = (*refusals, *unserved, *kept_out)
        outcomes = Counter(refusal.reason.value for refusal in left_out)
        outcome_counts = {"Waits": len(waits), "RoomMade": len(able) - len(waiting), **outcomes}
        quality = move_proposal.quality if rooms else None
        return Proposal(move_proposal.steps, left_out, quality, rooms, waits=waits, job_outcomes=outcome_counts)

    def _kept_out(self, snapshot: Snapshot, now: datetime) -> tuple[Refused, ...]:
        """Return the refusals of starving jobs that have no pods: there is nothing whose shape could be reserved."""
        return tuple(
            _refuse_group(group)
            for group in groups_without_pods(snapshot)
            if self._rules.namespaces.allows(group.metadata.namespace)
            and (created := read_timestamp(group.metadata.creation_timestamp)) is not None
            and now - created > self._rules.threshold
        )

    def _moves(self, problem: Problem, state: State, jobs: Sequence[PendingJob]) -> Proposal:
        """Return the moves by which jobs fit, and make them in the state."""
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
        """Return the nodes to keep for each job, and why the other jobs get none."""
        if not jobs:
            return (), ()
        rooms, refusals, first_job = [], [], ""
        chooser = JobNodeChooser(
            problem,
            jobs,
            closed,
            node_percent=self._rules.node_percent,
            namespace_percent=self._rules.namespace_percent,
        )
        for job in jobs:
            if first_job:
                refusals.append(_refuse(job, Refusal(RefusalReason.BEHIND_ANOTHER_JOB, f"{first_job} waits for nodes")))
                continue
            slots = chooser.choose(job)
            if isinstance(slots, Refusal):
                refusals.append(_refuse(job, slots))
                # A large job that must wait for the budget of fenced nodes blocks those behind it. Otherwise small jobs
                # would take each node as it comes free, and the large one would starve for ever.
                if slots.reason is RefusalReason.RESERVED_NODE_PERCENT and chooser.could_later(job):
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


def _readable(jobs: Sequence[PendingJob]) -> tuple[PendingJob, ...]:
    return tuple(job for job in jobs if job.missing and not any(map(odd_requests, job.missing)))


def _refuse(job: PendingJob, refusal: Refusal) -> Refused:
    text = f"{job.reference.kind} {job.name} starves, and nothing is reserved for it: {refusal.message}"
    job_refusal = Refusal(refusal.reason, text, constraint=refusal.constraint, resource=refusal.resource)
    return Refused.of_pod("", job.reference.namespace, job.missing[0].metadata.name, job_refusal)


def _refuse_group(group: PodGroup) -> Refused:
    namespace, name = group.metadata.namespace, group.metadata.name
    # From spec.minResources, all that Volcano says about a job whose pods it has not let its controllers make.
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
    """Split starving jobs into those for which nodes may be kept, and refusals of the others."""
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
            # A node that is fenced for a job is closed to the other as well; it would be kept from the job that is
            # served first.
            (higher_job for higher_job in jobs if higher_job.priority > job.priority and fits(higher_job)),
            None,
        )
        refusal = job.lacks_pods() or _why_gave_up(snapshot, job) or _why_unfit_for_one(job)
        if refusal is None and fits(job):
            # kube-scheduler tries an unschedulable pod again after five minutes at the latest
            # (`podMaxInUnschedulablePodsDuration`), so it may only not have looked yet.
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
    """Return how the job's last Reservation ended, as long as that exists: until then other jobs have their turn."""
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
    # The CRD bounds both lists: the API server limits the cost of CEL rules by `maxItems`, and an object has to fit
    # into an etcd request.
    if len(owners) > _MAX_OWNERS or len(job.missing) > _MAX_SLOTS:
        text = f"its {count(len(job.missing), 'pod')} of {count(len(owners), 'owner')} do not fit into one Reservation"
        return Refusal(RefusalReason.TOO_MANY_OWNERS, text)
    return None
