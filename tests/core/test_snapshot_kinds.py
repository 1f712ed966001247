"""Which kinds of objects a snapshot lacks depends on its pods, and it remembers them."""

import json

import pytest

from berth_core import Affinity, LabelSelector, OwnerReference, Pod, PodAffinity, PodAffinityTerm, Volume
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.objects.pods import PersistentVolumeClaimSource, SchedulingGroup
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import ONLY_FOR_SURGES, kubectl_command
from berth_core.snapshot_kinds import SnapshotKind as Kind
from builders import as_api, list_file, node, owner, pod

BUDGETS = Kind.DISRUPTION_BUDGETS
MOUNT = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data"))
TERM = PodAffinityTerm(topology_key="zone", namespace_selector=LabelSelector(match_labels={"team": "a"}))
NEAR = Affinity(pod_affinity=PodAffinity(required_during_scheduling_ignored_during_execution=(TERM,)))

VOLCANO = OwnerReference(
    api_version="batch.volcano.sh/v1alpha1", kind="Job", name="train", uid="uid-train", controller=True
)

NEEDED: dict[str, tuple[Pod, set[Kind]]] = {
    "a pod of a ReplicaSet": (pod(node="a"), {Kind.REPLICA_SETS}),
    "a pod of a StatefulSet": (pod(node="a", controller=owner("StatefulSet", "s")), {Kind.STATEFUL_SETS}),
    "a pod of a Job": (pod(node="a", controller=owner("Job", "j")), {Kind.JOBS}),
    "a pod of a DaemonSet": (pod(node="a", controller=owner("DaemonSet", "d")), set()),
    "a pod with a claim": (
        pod(node="a", controller=owner("DaemonSet", "d"), volumes=(MOUNT,)),
        {Kind.CLAIMS, Kind.VOLUMES, Kind.STORAGE_CLASSES, Kind.CSI_NODES, Kind.VOLUME_ATTACHMENTS},
    ),
    "a pod that selects namespaces": (
        pod(node="a", controller=owner("DaemonSet", "d"), affinity=NEAR),
        {Kind.NAMESPACES},
    ),
    "a placeholder": (
        pod(node="a", controller=owner("DaemonSet", "d"), labels={PLACEHOLDER_LABEL: "true"}),
        {Kind.RESERVATIONS},
    ),
    "a pod of a Volcano PodGroup": (
        pod(node="a", controller=owner("DaemonSet", "d"), annotations={"scheduling.k8s.io/group-name": "g"}),
        {Kind.VOLCANO_POD_GROUPS},
    ),
    "a pod of a PodGroup": (
        pod(node="a", controller=owner("DaemonSet", "d"), scheduling_group=SchedulingGroup(pod_group_name="g")),
        {Kind.POD_GROUPS},
    ),
    "a pod of a Volcano Job": (pod(node="a", controller=VOLCANO), {Kind.VOLCANO_JOBS}),
    "a pod whose class's value is not known": (
        pod(node="a", controller=owner("DaemonSet", "d"), priority=None, priority_class_name="high"),
        {Kind.PRIORITY_CLASSES},
    ),
}


@pytest.mark.parametrize(("one", "want"), NEEDED.values(), ids=NEEDED.keys())
def test_what_is_missing_depends_on_the_pods(one: Pod, want: set[Kind]) -> None:
    found = Snapshot.from_json(list_file(as_api(node("a"), kind="Node"), as_api(one)))

    assert set(found.missing) == {BUDGETS, *want}
    assert all(kind.assumed for kind in found.missing)


def test_a_file_without_nodes_and_pods_lacks_them() -> None:
    assert Snapshot.from_json(list_file()).missing == (Kind.NODES, Kind.PODS)


def test_what_is_stated_is_not_missing_and_is_written_down() -> None:
    raw = list_file(as_api(node("a"), kind="Node"), as_api(pod(node="a")))

    found = Snapshot.from_json(raw, [BUDGETS])
    again = Snapshot.from_json(found.to_json())

    assert found.missing == again.missing == (Kind.REPLICA_SETS,)
    assert again == found
    left_out = {Kind.REPLICA_SETS, *found.unread, *ONLY_FOR_SURGES}
    assert set(json.loads(found.to_json())["kinds"]) == set(Kind) - left_out


def test_kinds_that_a_later_version_wrote_are_passed_over() -> None:
    raw = json.dumps({"apiVersion": "v1", "kind": "List", "kinds": ["nodes", "pods", "moons"], "items": []}).encode()

    assert Snapshot.from_json(raw).missing == ()


def test_objects_that_a_program_hands_over_are_all_that_there_are() -> None:
    assert Snapshot.from_api([as_api(node("a"), kind="Node"), as_api(pod(node="a"))]).missing == ()
    assert Snapshot.empty().missing == ()


def test_kubectl_is_asked_for_kinds_that_clusters_may_lack_only_where_they_are_needed() -> None:
    assert "reservations" not in kubectl_command((BUDGETS,))
    assert "reservations.batch.volcano.sh" in kubectl_command((Kind.RESERVATIONS,))
    assert all(kind.value in kubectl_command(()) for kind in (Kind.NODES, Kind.PODS, BUDGETS, Kind.CLAIMS))
