"""What keeps policies with `StarvingJobs` from helping, whether or not anything was left behind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from berth_core import (
    FENCE_LIMITS_ANNOTATION,
    OPERATOR_LEASE,
    STARVING_JOB_LABEL,
    STARVING_JOBS,
    DeschedulerPolicy,
    FenceLimit,
    InputError,
    Reservation,
    ReservationPhase,
    ReservationReason,
)
from berth_descheduler.capabilities.starving_jobs.plugin import StarvingJobsArgs
from berth_descheduler.capability import Advice
from berth_kube import DESCHEDULER_POLICIES, EVENTS, LEASES, Access, KubeClient
from berth_sandbox.invariants import ClusterState, Invariant, Violation

_NOTHING_RESERVED: Final = "reason=NothingReserved"
"""Field selector of the events on pods whose job gets nothing; those of type Warning will not get better by waiting."""


def find_starving_troubles(
    client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
) -> Iterator[Violation]:
    """Yield why starving jobs do not get what their policies promise."""
    for_jobs = [policy for policy in policies if _starvation_args(policy) is not None]
    yield from _unmet_limits(for_jobs, state)
    yield from filter(None, map(_idle_room, state.live_reservations))
    if for_jobs:
        yield from _refused_jobs(client, state)


def _starvation_args(policy: DeschedulerPolicy) -> StarvingJobsArgs | None:
    """Return the arguments of `StarvingJobs`; None where it is not enabled or they cannot be read."""
    for profile in policy.spec.profiles:
        if STARVING_JOBS in profile.plugins.balance.enabled:
            raw_args = next(
                (plugin_config.args for plugin_config in profile.plugin_config if plugin_config.name == STARVING_JOBS),
                {},
            )
            with suppress(InputError):
                return StarvingJobsArgs.parse(raw_args)
    return None


def _unmet_limits(policies: Iterable[DeschedulerPolicy], state: ClusterState) -> Iterator[Violation]:
    lease = next((candidate for candidate in state.leases if candidate.metadata.name == OPERATOR_LEASE), None)
    limits = lease.metadata.annotations.get(FENCE_LIMITS_ANNOTATION, "") if lease is not None else ""
    nodes = len(state.nodes)
    for policy in policies:
        args = _starvation_args(policy)
        nodes_wanted = args.most_fenced(nodes) if args is not None else 0
        for scope, text in zip(("a namespace", "all namespaces together"), limits.split(","), strict=False):
            limit = FenceLimit.parse(text)
            fence_limit = None if limit is None else limit.most_of(nodes)
            if fence_limit is not None and fence_limit < nodes_wanted:
                detail = (
                    f"it keeps up to {nodes_wanted} of {nodes} nodes, and the operator fences {fence_limit} for {scope}"
                )
                yield Violation(Invariant.STARVING_LIMIT, f"deschedulerpolicy {policy.metadata.name}", detail)
                break


_IDLE: Final[Mapping[tuple[ReservationPhase, str], Invariant]] = {
    (ReservationPhase.PENDING, ReservationReason.FENCE_LIMIT): Invariant.ROOM_UNFENCED,
    (ReservationPhase.PENDING, ReservationReason.UNSCHEDULABLE_YET): Invariant.WAITS_IN_VAIN,
    (ReservationPhase.AVAILABLE, ReservationReason.SLOTS_HELD): Invariant.ROOM_UNCLAIMED,
}


def _idle_room(reservation: Reservation) -> Violation | None:
    """Return why a Reservation for a job does not help it now."""
    state = reservation.status.state
    if STARVING_JOB_LABEL not in reservation.metadata.labels or state is None:
        return None
    invariant = _IDLE.get((state.phase, state.reason))
    return None if invariant is None else Violation(invariant, f"reservation {reservation.key}", state.message)


def _refused_jobs(client: KubeClient, state: ClusterState) -> Iterator[Violation]:
    """Yield the waiting pods with a warning that nothing is reserved for their job."""
    waiting = {pod.metadata.uid: pod for pod in state.pods if pod.status.phase == "Pending" and not pod.spec.node_name}
    events = client.list(EVENTS, field_selector=_NOTHING_RESERVED).items
    # `lastTimestamp` is null in events of the API group events.k8s.io that were seen once, and `eventTime` is null in
    # those of the older recorders.
    by_time = sorted(events, key=lambda raw_event: raw_event.get("lastTimestamp") or raw_event.get("eventTime") or "")
    last_event_of_pod = {event["involvedObject"].get("uid") or "": event for event in by_time}
    for uid, event in last_event_of_pod.items():
        if uid in waiting and event.get("type") == "Warning":
            yield Violation(Invariant.STARVES_FOR_GOOD, f"pod {waiting[uid].key}", event.get("message") or "")


_POLICIES: Final = Access("list", DESCHEDULER_POLICIES)

ADVICE: Final[Mapping[Invariant, Advice]] = {
    Invariant.STARVING_LIMIT: Advice(
        what="A policy may keep more nodes for starving jobs than the operator fences.",
        why="A gang that needs more nodes than the operator allows its namespace waits until it is given up.",
        to_do="Raise maxFencedNodes in --limit and --cluster-limit of the operator, or lower reservedNodePercent:",
        command="kubectl edit deschedulerpolicy {name}",
        rights=(_POLICIES, Access("get", LEASES, OPERATOR_LEASE)),
    ),
    Invariant.ROOM_UNCLAIMED: Advice(
        what="All places for a starving job are held, and its pods do not take them.",
        why="No other pod can use that capacity until its pods come or the Reservation gives up.",
        to_do="A gang takes its places together; see which of its pods lacks, or runs elsewhere:",
        command="kubectl -n {namespace} describe reservation {name}",
    ),
    Invariant.STARVES_FOR_GOOD: Advice(
        what="A job starves, and nothing is reserved for it: no waiting helps.",
        why="Its pods stay Pending.",
        to_do="Mend what the event says, or delete the Reservation that gave up to have the job tried again:",
        command="kubectl -n {namespace} describe pod {name}",
        rights=(_POLICIES, Access("list", EVENTS)),
    ),
}
