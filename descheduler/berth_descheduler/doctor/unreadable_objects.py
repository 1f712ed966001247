"""Objects that cannot be read. Most are found nowhere else: a plan names them, and a pod that depends on one stays."""

from collections.abc import Iterator, Sequence
from typing import Final

from berth_core import DeschedulerPolicy, MigrationPlan, ObjectMeta, Snapshot, api_group, kind_of
from berth_descheduler.snapshots import read_beside_pods
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, KubeClient, Resource
from berth_sandbox.invariants import ClusterState, Invariant, Violation

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
