"""What keeps windows, queues, starving jobs, evictions and plans from what they promise, for `berth doctor`.

Windows and queues say so themselves, by their conditions. The rest is found from what is there and what is not.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from berth_core import (
    EVICTION_WEBHOOK_CONFIGURATION,
    EVICTIONS_LABEL,
    EVICTIONS_SURGE,
    FENCE_LIMITS_ANNOTATION,
    OPERATOR_LEASE,
    STARVING_JOB_LABEL,
    STARVING_JOBS,
    Capacity,
    DeschedulerPolicy,
    InputError,
    MigrationPlan,
    Namespace,
    ObjectMeta,
    Pod,
    QueueCondition,
    QueueReason,
    Reservation,
    ReservationPhase,
    ReservationReason,
    ReservationWindow,
    Snapshot,
    WindowCondition,
    WindowReason,
    api_group,
    count,
    kind_of,
    read_whole_number,
)
from berth_descheduler.plugins import StarvingJobsArgs
from berth_descheduler.snapshots import read_beside_pods
from berth_kube import (
    DESCHEDULER_POLICIES,
    EVENTS,
    MIGRATION_PLANS,
    NAMESPACES,
    RESERVATION_WINDOWS,
    VALIDATING_WEBHOOKS,
    KubeClient,
    NotFoundError,
    Resource,
)
from berth_sandbox.invariants import ClusterState, Invariant, Violation

# --- windows ---------------------------------------------------------------------------------------------------------
# What keeps ReservationWindows from holding what they should, as their conditions say.

_INSUFFICIENT: Final = dict.fromkeys(
    (WindowReason.NO_MOVES.value, WindowReason.AWAITING_APPROVAL.value), Invariant.WINDOW_WITHOUT_MOVES
)
_UNSCHEDULED: Final = {
    WindowReason.INVALID.value: Invariant.WINDOW_INVALID,
    WindowReason.OVERLAPPING.value: Invariant.WINDOW_OVERLAPS,
}


def find_window_troubles(client: KubeClient) -> Iterator[Violation]:
    """Yield the windows that cannot open or lack capacity; one that is switched off lacks nothing."""
    try:
        bodies = client.list(RESERVATION_WINDOWS).items
    except NotFoundError:
        return
    for window in map(ReservationWindow.read, bodies):
        target = f"reservationwindow {window.key}"
        scheduled, sufficient = map(window.condition, (WindowCondition.SCHEDULED, WindowCondition.SUFFICIENT))
        if scheduled is not None and scheduled.status == "False" and scheduled.reason in _UNSCHEDULED:
            yield Violation(_UNSCHEDULED[scheduled.reason], target, scheduled.message)
        if sufficient is not None and sufficient.status == "False":
            invariant = _INSUFFICIENT.get(sufficient.reason, Invariant.WINDOW_SHORT)
            yield Violation(invariant, target, f"{sufficient.reason}: {sufficient.message}")


_QUEUE_TROUBLES: Final = {
    QueueCondition.ACCEPTED: Invariant.QUEUE_REFUSED,
    QueueCondition.ENFORCED: Invariant.QUEUE_NOT_ENFORCED,
    QueueCondition.COVERED: Invariant.QUEUE_NOT_COVERED,
    QueueCondition.HELD: Invariant.QUEUE_NOT_HELD,
}


def find_queue_troubles(state: ClusterState) -> Iterator[Violation]:
    """Yield what keeps queues from their guarantees, as their conditions say."""
    for queue in state.active_queues:
        for type_, invariant in _QUEUE_TROUBLES.items():
            one = queue.condition(type_)
            if one is not None and (one.status == "False" or one.reason == QueueReason.REMAINDER):
                yield Violation(invariant, f"queue {queue.metadata.name}", f"{one.reason}: {one.message}")


# --- starving jobs ---------------------------------------------------------------------------------------------------
# What keeps policies with `StarvingJobs` from helping, whether or not anything was left behind.

_NOTHING_RESERVED: Final = "reason=NothingReserved"
"""Selects the events on pods whose job gets nothing: warnings where no waiting helps it."""


def find_starving_troubles(
    client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
) -> Iterator[Violation]:
    """Yield what keeps starving jobs from what their policies promise."""
    for_jobs = [policy for policy in policies if _starvation_args(policy) is not None]
    yield from _unmet_limits(for_jobs, state)
    yield from filter(None, map(_idle_room, state.live_reservations))
    if for_jobs:
        yield from _refused_jobs(client, state)


def read_policies(client: KubeClient) -> Sequence[DeschedulerPolicy]:
    """Return all policies, none where the cluster does not know them."""
    try:
        return client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items
    except NotFoundError:
        return ()


def _starvation_args(policy: DeschedulerPolicy) -> StarvingJobsArgs | None:
    """Return the arguments of `StarvingJobs`; None where it is not enabled or they cannot be read."""
    for profile in policy.spec.profiles:
        if STARVING_JOBS in profile.plugins.balance.enabled:
            given = next((one.args for one in profile.plugin_config if one.name == STARVING_JOBS), {})
            with suppress(InputError):
                return StarvingJobsArgs.parse(given)
    return None


def _unmet_limits(policies: Iterable[DeschedulerPolicy], state: ClusterState) -> Iterator[Violation]:
    lease = next((one for one in state.leases if one.metadata.name == OPERATOR_LEASE), None)
    limits = lease.metadata.annotations.get(FENCE_LIMITS_ANNOTATION, "") if lease is not None else ""
    nodes = len(state.nodes)
    for policy in policies:
        args = _starvation_args(policy)
        wanted = args.most_fenced(nodes) if args is not None else 0
        for of, text in zip(("a namespace", "all namespaces together"), limits.split(","), strict=False):
            most = _most_fenced(text, nodes)
            if most is not None and most < wanted:
                detail = f"it keeps up to {wanted} of {nodes} nodes, and the operator fences {most} for {of}"
                yield Violation(Invariant.STARVING_LIMIT, f"deschedulerpolicy {policy.metadata.name}", detail)
                break


def _most_fenced(text: str, nodes: int) -> int | None:
    """Return what a limit of the operator's allows; None for any number, or what cannot be read."""
    if not text.endswith("%"):
        return read_whole_number(text, most=sys.maxsize)
    try:
        return StarvingJobsArgs.parse({"reservedNodePercent": text}).most_fenced(nodes)
    except InputError:
        return 0


_IN_WAITING: Final[Mapping[tuple[ReservationPhase, str], Invariant]] = {
    (ReservationPhase.PENDING, ReservationReason.FENCE_LIMIT): Invariant.ROOM_UNFENCED,
    (ReservationPhase.PENDING, ReservationReason.UNSCHEDULABLE_YET): Invariant.WAITS_IN_VAIN,
}
_OF_JOB: Final = {**_IN_WAITING, (ReservationPhase.AVAILABLE, ReservationReason.SLOTS_HELD): Invariant.ROOM_UNCLAIMED}


def _idle_room(one: Reservation) -> Violation | None:
    """Return why a Reservation waits in vain; windows and queues say it."""
    waits = one.spec.capacity is Capacity.WHEN_FREE and not any(by.controller for by in one.metadata.owner_references)
    known = _OF_JOB if STARVING_JOB_LABEL in one.metadata.labels else _IN_WAITING if waits else {}
    state = one.status.state
    found = known.get((state.phase, state.reason)) if state is not None else None
    return Violation(found, f"reservation {one.key}", state.message) if found and state is not None else None


def _refused_jobs(client: KubeClient, state: ClusterState) -> Iterator[Violation]:
    """Yield the waiting pods of which an event says that nothing is reserved for their job, for a lasting reason."""
    waiting = {pod.metadata.uid: pod for pod in state.pods if pod.status.phase == "Pending" and not pod.spec.node_name}
    events = client.list(EVENTS, field_selector=_NOTHING_RESERVED).items
    by_time = sorted(events, key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "")
    last = {event["involvedObject"].get("uid") or "": event for event in by_time}
    for uid, event in last.items():
        if uid in waiting and event.get("type") == "Warning":
            yield Violation(Invariant.STARVES_FOR_GOOD, f"pod {waiting[uid].key}", event.get("message") or "")


# --- evictions by others ---------------------------------------------------------------------------------------------
# Whether an operator answers evictions wherever pods or namespaces ask for that.

_COMPONENT: Final = "app.kubernetes.io/component"


def find_unanswered_evictions(client: KubeClient, state: ClusterState) -> Iterator[Violation]:
    """Yield the namespaces, and pods elsewhere, that ask for replacements where nothing answers evictions."""
    chosen = f"{EVICTIONS_LABEL}={EVICTIONS_SURGE}"
    namespaces = client.list(NAMESPACES, label_selector=chosen, type=Namespace).items
    names = {one.metadata.name for one in namespaces}
    pods = [pod for pod in state.pods if _asks_by_itself(pod) and pod.metadata.namespace not in names]
    if not (namespaces or pods) or not (why := _why_unanswered(client, state)):
        return
    for one in namespaces:
        yield Violation(Invariant.EVICTIONS_UNANSWERED, f"namespace {one.metadata.name}", why)
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        own = [pod for pod in pods if pod.metadata.namespace == namespace]
        text = f"{count(len(own), 'pod')} with the label {chosen}: {why}"
        yield Violation(Invariant.EVICTIONS_UNANSWERED, f"namespace {namespace}", text)


def _asks_by_itself(pod: Pod) -> bool:
    return pod.metadata.labels.get(EVICTIONS_LABEL) == EVICTIONS_SURGE and not pod.is_terminal


def _why_unanswered(client: KubeClient, state: ClusterState) -> str:
    """Return why no eviction is answered, "" if one is."""
    found: Sequence[dict[str, Any]] = client.list(VALIDATING_WEBHOOKS).items
    configuration = next((one for one in found if one["metadata"]["name"] == EVICTION_WEBHOOK_CONFIGURATION), None)
    if configuration is None:
        return f"there is no ValidatingWebhookConfiguration {EVICTION_WEBHOOK_CONFIGURATION}: it is switched off"
    webhooks = configuration.get("webhooks") or ()
    if not webhooks:
        return "no operator has registered its webhooks"
    service = webhooks[0]["clientConfig"].get("service")
    own = [pod for pod in state.pods if service and pod.metadata.namespace == service["namespace"]]
    is_ready = any(pod.is_ready for pod in own if pod.metadata.labels.get(_COMPONENT) == "operator")
    return "" if is_ready or not service else f"no operator is Ready in the namespace {service['namespace']}"


# --- objects that cannot be read --------------------------------------------------------------------------------------
# Most are found nowhere else: a plan names them, and a pod that depends on one is refused with it.

_UNNAMED: Final = "(unnamed)"


def find_unreadable_objects(
    client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
) -> Iterator[Violation]:
    """Yield the objects of all kinds that plans go by which cannot be read, as far as the kinds may be listed."""
    snapshot = Snapshot(
        nodes=state.nodes,
        pods=state.pods,
        reservations=state.reservations,
        gated_queues=state.queues,
        **read_beside_pods(client),
    )
    for unreadable in snapshot.all_unreadable():
        api_version, kind = kind_of(unreadable)
        group = api_group(api_version)
        yield _unreadable(f"{kind.lower()}.{group}" if group else kind.lower(), unreadable.metadata)
    of_berth: dict[Resource, Sequence[MigrationPlan | DeschedulerPolicy]] = {
        MIGRATION_PLANS: state.plans,
        DESCHEDULER_POLICIES: policies,
    }
    for resource, objects in of_berth.items():
        unreadable_metas = (item.metadata for item in objects if item.metadata.unreadable)
        yield from (_unreadable(resource.name_for_kubectl, meta) for meta in unreadable_metas)


def _unreadable(kind: str, meta: ObjectMeta) -> Violation:
    name = meta.name or _UNNAMED
    key = f"{meta.namespace}/{name}" if meta.namespace else name
    return Violation(Invariant.OBJECT_UNREADABLE, f"{kind} {key}", meta.unreadable)
