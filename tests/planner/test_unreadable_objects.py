"""One object that cannot be read costs what depends on it: the rest is planned, and the refusal names the object."""
# ruff: noqa: ANN401 - any JSON value

import json
from typing import Any, Final

import pytest

from berth_core import RESERVATION_API_VERSION, Snapshot, SnapshotKind
from berth_descheduler.framework.refusals import RefusalReason, Refused
from berth_descheduler.planner import Plan, plan
from planner.clusters import consolidating

Raw = dict[str, Any]

VOLCANO_JOB: Final = ("batch.volcano.sh/v1alpha1", "Job")
SHOP, BANK = "shop", "bank"
"""The namespace of what cannot be read, and another tenant's."""


def api_object(api_version: str, kind: str, name: str, namespace: str = "", **rest: Any) -> Raw:
    metadata = {"name": name, "uid": f"uid-{kind}-{namespace}-{name}"} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata | rest.pop("metadata", {}), **rest}


def node(name: str) -> Raw:
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return api_object("v1", "Node", name, spec={}, status={"allocatable": amounts, "conditions": [ready]})


def running(name: str, namespace: str, on: str, *, cpu: str = "1", owner: Raw | None = None, **spec: Any) -> Raw:
    reference = owner or {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{name}-rs", "controller": True}
    container = {"name": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    meta = {"ownerReferences": [{"uid": f"uid-{reference['kind']}-{namespace}-{reference['name']}", **reference}]}
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    body = {"nodeName": on, "containers": [container], **spec}
    return api_object("v1", "Pod", name, namespace, metadata=meta, spec=body, status=status)


def replica_set(pod: str, namespace: str, **meta: Any) -> Raw:
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": pod}}}
    return api_object("apps/v1", "ReplicaSet", f"{pod}-rs", namespace, metadata=meta, spec=spec)


def claim(name: str, volume: str, storage_class: str = "fast") -> Raw:
    spec = {"volumeName": volume, "storageClassName": storage_class, "accessModes": ["ReadWriteMany"]}
    return api_object("v1", "PersistentVolumeClaim", name, SHOP, spec=spec, status={"phase": "Bound"})


def with_claim(name: str) -> Raw:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


FILLED: Final = [
    node("big"),
    running(
        "filler", BANK, "big", cpu="3", owner={"apiVersion": "v1", "kind": "Thing", "name": "t", "controller": True}
    ),
]
"""The node that keeps a pod anyhow, and takes what is moved."""
HEALTHY: Final = [
    node("theirs"),
    running("ledger", BANK, "theirs"),
    replica_set("ledger", BANK),
]
"""Another tenant's pod alone on its node: it is moved, whatever is the matter in the shop."""
OURS: Final = [node("ours"), running("web", SHOP, "ours"), replica_set("web", SHOP)]
VOLUMES: Final = [
    api_object("v1", "PersistentVolume", "pv-1", spec={"csi": {"driver": "d", "volumeHandle": "h"}}),
    api_object("storage.k8s.io/v1", "StorageClass", "fast", provisioner="d"),
    claim("data", "pv-1"),
]
STORING: Final = [node("ours"), running("web", SHOP, "ours", **with_claim("data")), replica_set("web", SHOP), *VOLUMES]
EVERYTHING: Final = [*FILLED, *HEALTHY]

ODD: Final = {"spec": 7}
UNREADABLE: Final[dict[str, tuple[list[Raw], str, str]]] = {
    "Pod": (OURS, "v1 Pod shop web", "ours"),
    "Node": (OURS, "v1 Node  ours", "ours"),
    "PodDisruptionBudget": (
        [*OURS, api_object("policy/v1", "PodDisruptionBudget", "web", SHOP, spec={})],
        "policy/v1 PodDisruptionBudget shop web",
        "PodDisruptionBudget shop/web cannot be read: Expected `object`, got `int`",
    ),
    "ReplicaSet": (OURS, "apps/v1 ReplicaSet shop web-rs", "ReplicaSet shop/web-rs cannot be read"),
    "StatefulSet": (
        [
            node("ours"),
            running(
                "web",
                SHOP,
                "ours",
                owner={"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "controller": True},
            ),
            api_object("apps/v1", "StatefulSet", "db", SHOP, spec={"replicas": 1}),
        ],
        "apps/v1 StatefulSet shop db",
        "StatefulSet shop/db cannot be read",
    ),
    "Job": (
        [
            node("ours"),
            running(
                "web", SHOP, "ours", owner={"apiVersion": "batch/v1", "kind": "Job", "name": "sums", "controller": True}
            ),
            api_object("batch/v1", "Job", "sums", SHOP, spec={"backoffLimit": 9, "completions": 1}),
        ],
        "batch/v1 Job shop sums",
        "Job shop/sums cannot be read",
    ),
    "Volcano's Job": (
        [
            node("ours"),
            running(
                "web",
                SHOP,
                "ours",
                owner={"apiVersion": VOLCANO_JOB[0], "kind": VOLCANO_JOB[1], "name": "train", "controller": True},
            ),
            api_object(*VOLCANO_JOB, "train", SHOP, spec={"tasks": []}),
        ],
        "batch.volcano.sh/v1alpha1 Job shop train",
        "Job shop/train cannot be read",
    ),
    "PodGroup": (
        [
            node("ours"),
            running("web", SHOP, "ours", schedulingGroup={"podGroupName": "pg"}),
            replica_set("web", SHOP),
            api_object("scheduling.k8s.io/v1alpha2", "PodGroup", "pg", SHOP, spec={}),
        ],
        "scheduling.k8s.io/v1alpha2 PodGroup shop pg",
        "PodGroup shop/pg cannot be read",
    ),
    "PersistentVolumeClaim": (
        STORING,
        "v1 PersistentVolumeClaim shop data",
        "PersistentVolumeClaim shop/data cannot be read",
    ),
    "PersistentVolume": (STORING, "v1 PersistentVolume  pv-1", "PersistentVolume pv-1 cannot be read"),
    "VolumeAttachment": (
        [*STORING, api_object("storage.k8s.io/v1", "VolumeAttachment", "va", spec={})],
        "storage.k8s.io/v1 VolumeAttachment  va",
        "VolumeAttachment va cannot be read",
    ),
    "PriorityClass": (
        [
            node("ours"),
            running("web", SHOP, "ours", priorityClassName="high"),
            replica_set("web", SHOP),
            api_object("scheduling.k8s.io/v1", "PriorityClass", "high", value=7),
        ],
        "scheduling.k8s.io/v1 PriorityClass  high",
        "PriorityClass high cannot be read",
    ),
    "Namespace": (
        [*OURS, api_object("v1", "Namespace", SHOP), api_object("v1", "Namespace", BANK)],
        "v1 Namespace  shop",
        "Namespace shop cannot be read",
    ),
}
HARMLESS: Final = {
    "Reservation": api_object(RESERVATION_API_VERSION, "Reservation", "r", SHOP),
    "Berth's Queue": api_object("berth.volcano.sh/v1alpha1", "Queue", "q"),
    "Volcano's Queue": api_object("scheduling.volcano.sh/v1beta1", "Queue", "q"),
    "LocalQueue": api_object("kueue.x-k8s.io/v1beta1", "LocalQueue", "q", SHOP),
    "DaemonSet": api_object("apps/v1", "DaemonSet", "agent", SHOP),
}


def spoiled(items: list[Raw], which: str) -> list[Raw]:
    """The objects, of which one (`apiVersion kind namespace name`) has fields of wrong types."""
    api_version, kind, namespace, name = which.split(" ")

    def is_it(one: Raw) -> bool:
        meta = one["metadata"]
        head = (one["apiVersion"], one["kind"], meta.get("namespace", ""), meta["name"])
        return head == (api_version, kind, namespace, name)

    assert sum(map(is_it, items)) == 1
    return [(broken(one) if is_it(one) else one) for one in items]


def broken(one: Raw) -> Raw:
    match one["kind"]:
        case "Pod":
            return {**one, "spec": {**one["spec"], "tolerations": 7}}
        case "PriorityClass":
            return {**one, "value": "high"}
        case "StorageClass":
            return {**one, "provisioner": 7}
        case "Namespace":
            return {**one, "metadata": {**one["metadata"], "labels": 7}}
        case "LocalQueue":
            return {**one, "metadata": {**one["metadata"], "labels": 7}}
        case _:
            return {**one, **ODD}


def read(items: list[Raw]) -> Snapshot:
    raw = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    return Snapshot.from_json(raw, SnapshotKind)


def moved(made: Plan) -> set[str]:
    return {f"{one.namespace}/{one.pod}" for one in made.moves}


def kept(made: Plan, pod: str) -> list[Refused]:
    return [one for one in made.refused if f"{one.namespace}/{one.name}" == pod]


@pytest.mark.parametrize("items", [OURS, STORING], ids=["without volumes", "with volumes"])
def test_all_is_moved_where_everything_can_be_read(items: list[Raw]) -> None:
    made = plan(read([*EVERYTHING, *items]), consolidating())
    assert moved(made) == {"bank/ledger", "shop/web"}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_depends_on_it_stays_and_the_rest_is_moved(kind: str) -> None:
    items, which, said = UNREADABLE[kind]
    snapshot = read(spoiled([*EVERYTHING, *items], which))
    (unreadable,) = snapshot.all_unreadable()
    assert unreadable.metadata.name == which.split(" ")[3]
    made = plan(snapshot, consolidating())
    assert moved(made) == {"bank/ledger"}
    assert {one.target for one in made.moves} == {"big"}
    if kind not in {"Pod", "Node"}:
        reasons = [(one.reason, one.message) for one in kept(made, "shop/web")]
        assert [one for one in reasons if one[0] is RefusalReason.UNREADABLE_OBJECT and said in one[1]]


@pytest.mark.parametrize("kind", HARMLESS)
def test_what_decides_about_no_pod_keeps_none(kind: str) -> None:
    items = [*EVERYTHING, *OURS, broken(HARMLESS[kind])]
    snapshot = read(items)
    assert len(snapshot.all_unreadable()) == 1
    assert moved(plan(snapshot, consolidating())) == {"bank/ledger", "shop/web"}


@pytest.mark.parametrize("kind", ["CSINode", "VolumeAttachment"])
def test_a_node_of_which_something_cannot_be_read_takes_no_pods(kind: str) -> None:
    odd = {"drivers": 7, "nodeName": "big", "attacher": 7}
    items = [*EVERYTHING, *OURS, node("spare"), api_object("storage.k8s.io/v1", kind, "big", spec=odd)]
    snapshot = read(items)
    made = plan(snapshot, consolidating())
    assert [one.metadata.name for one in snapshot.unreadable] == ["big"]
    assert "big" not in {one.target for one in made.moves}
    assert made.moves, "the others make room for each other"


def test_a_budget_without_a_readable_namespace_keeps_everything() -> None:
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": 7, "spec": {}}
    made = plan(read([*EVERYTHING, *OURS, budget]), consolidating())
    assert moved(made) == set()
    assert "without a readable name cannot be read" in kept(made, "bank/ledger")[0].message


def test_a_snapshot_remembers_what_it_could_not_read() -> None:
    items, which, _ = UNREADABLE["PodDisruptionBudget"]
    snapshot = read(spoiled([*EVERYTHING, *items], which))
    again = Snapshot.from_json(snapshot.to_json(), SnapshotKind)
    assert again.unreadable == snapshot.unreadable
    assert moved(plan(again, consolidating())) == {"bank/ledger"}
