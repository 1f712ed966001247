"""What keeps Reservations, evictions and plans from what they promise, for `berth doctor`.

Reservations say so themselves, by their states. The rest is found from what is there and what is not.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from berth_core import (
    EVICTION_WEBHOOK_CONFIGURATION,
    EVICTIONS_LABEL,
    EVICTIONS_SURGE,
    STARVING_JOB_LABEL,
    Capacity,
    DeschedulerPolicy,
    MigrationPlan,
    Namespace,
    ObjectMeta,
    Pod,
    ReservationPhase,
    ReservationReason,
    Snapshot,
    api_group,
    count,
    kind_of,
)
from berth_descheduler.snapshots import read_beside_pods
from berth_kube import (
    DESCHEDULER_POLICIES,
    MIGRATION_PLANS,
    NAMESPACES,
    VALIDATING_WEBHOOKS,
    KubeClient,
    NotFoundError,
    Resource,
)
from berth_sandbox.invariants import ClusterState, Invariant, Violation

# --- reservations ----------------------------------------------------------------------------------------------------

_IN_VAIN: Final[Mapping[tuple[ReservationPhase, str], Invariant]] = {
    (ReservationPhase.PENDING, ReservationReason.FENCE_LIMIT): Invariant.ROOM_UNFENCED,
    (ReservationPhase.PENDING, ReservationReason.UNSCHEDULABLE_YET): Invariant.WAITS_IN_VAIN,
}


def find_waits_in_vain(state: ClusterState) -> Iterator[Violation]:
    """Yield the Reservations that wait for capacity in vain; what others own says so of its own."""
    for reservation in state.live_reservations:
        meta, reservation_state = reservation.metadata, reservation.status.state
        is_of_others = STARVING_JOB_LABEL in meta.labels or any(owner.controller for owner in meta.owner_references)
        if reservation_state is None or is_of_others or reservation.spec.capacity is not Capacity.WHEN_FREE:
            continue
        if (invariant := _IN_VAIN.get((reservation_state.phase, reservation_state.reason))) is not None:
            yield Violation(invariant, f"reservation {reservation.key}", reservation_state.message)


def find_refused_placeholders(state: ClusterState) -> Iterator[Violation]:
    """Yield the Reservations whose placeholders admission in Berth's namespace refuses, whoever made them."""
    for reservation in state.live_reservations:
        reservation_state = reservation.status.state
        if reservation_state is not None and reservation_state.reason == ReservationReason.PLACEHOLDER_REFUSED:
            target = f"reservation {reservation.key}"
            yield Violation(Invariant.PLACEHOLDER_REFUSED, target, reservation_state.message)


# --- policies ---------------------------------------------------------------------------------------------------------


def read_policies(client: KubeClient) -> Sequence[DeschedulerPolicy]:
    """Return all policies, none where the cluster does not know them."""
    try:
        return client.list(DESCHEDULER_POLICIES, type=DeschedulerPolicy).items
    except NotFoundError:
        return ()


# --- evictions by others ---------------------------------------------------------------------------------------------
# Whether an operator answers evictions wherever pods or namespaces ask for that.

_COMPONENT: Final = "app.kubernetes.io/component"


def find_unanswered_evictions(client: KubeClient, state: ClusterState) -> Iterator[Violation]:
    """Yield the namespaces, and pods elsewhere, that ask for replacements where nothing answers evictions."""
    eviction_label = f"{EVICTIONS_LABEL}={EVICTIONS_SURGE}"
    namespaces = client.list(NAMESPACES, label_selector=eviction_label, type=Namespace).items
    names = {opted_in_namespace.metadata.name for opted_in_namespace in namespaces}
    pods = [pod for pod in state.pods if _asks_by_itself(pod) and pod.metadata.namespace not in names]
    if not (namespaces or pods) or not (why := _why_unanswered(client, state)):
        return
    for asking_namespace in namespaces:
        yield Violation(Invariant.EVICTIONS_UNANSWERED, f"namespace {asking_namespace.metadata.name}", why)
    for namespace in sorted({pod.metadata.namespace for pod in pods}):
        asking_pods = [pod for pod in pods if pod.metadata.namespace == namespace]
        text = f"{count(len(asking_pods), 'pod')} with the label {eviction_label}: {why}"
        yield Violation(Invariant.EVICTIONS_UNANSWERED, f"namespace {namespace}", text)


def _asks_by_itself(pod: Pod) -> bool:
    return pod.metadata.labels.get(EVICTIONS_LABEL) == EVICTIONS_SURGE and not pod.is_terminal


def _why_unanswered(client: KubeClient, state: ClusterState) -> str:
    """Return why no eviction is answered, "" if one is."""
    configurations: Sequence[dict[str, Any]] = client.list(VALIDATING_WEBHOOKS).items
    configuration = next(
        (
            webhook_configuration
            for webhook_configuration in configurations
            if webhook_configuration["metadata"]["name"] == EVICTION_WEBHOOK_CONFIGURATION
        ),
        None,
    )
    if configuration is None:
        return f"there is no ValidatingWebhookConfiguration {EVICTION_WEBHOOK_CONFIGURATION}: it is switched off"
    webhooks = configuration.get("webhooks") or ()
    if not webhooks:
        return "no operator has registered its webhooks"
    service = webhooks[0]["clientConfig"].get("service")
    operator_pods = [pod for pod in state.pods if service and pod.metadata.namespace == service["namespace"]]
    is_ready = any(pod.is_ready for pod in operator_pods if pod.metadata.labels.get(_COMPONENT) == "operator")
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
    objects_of_berth: dict[Resource, Sequence[MigrationPlan | DeschedulerPolicy]] = {
        MIGRATION_PLANS: state.plans,
        DESCHEDULER_POLICIES: policies,
    }
    for resource, objects in objects_of_berth.items():
        unreadable_metas = (read_object.metadata for read_object in objects if read_object.metadata.unreadable)
        yield from (_unreadable(resource.name_for_kubectl, meta) for meta in unreadable_metas)


def _unreadable(kind: str, meta: ObjectMeta) -> Violation:
    name = meta.name or _UNNAMED
    key = f"{meta.namespace}/{name}" if meta.namespace else name
    return Violation(Invariant.OBJECT_UNREADABLE, f"{kind} {key}", meta.unreadable)
