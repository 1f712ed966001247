import json
import random
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import msgspec
import pytest

from berth_core.errors import InputError
from berth_core.resources import ResourceAmounts
from berth_core.snapshot import Snapshot
from builders import (
    as_api,
    claim,
    container,
    disruption_budget,
    gated_queue,
    list_file,
    namespace,
    node,
    pod,
    pod_group,
    pod_group_workload,
    priority_class,
    queue,
    reservation,
    volcano_job,
    volcano_pod_group,
    volume,
    workload,
)

RESERVATION_API = "batch.volcano.sh/v1alpha1"


def everything() -> list[dict[str, Any]]:
    """One or more of each kind, in no order."""
    return [
        as_api(pod("web-1", node="node-b", cpu="2")),
        as_api(node("node-b"), kind="Node"),
        as_api(pod("web-0", node="node-a", cpu="1", memory="1Gi")),
        as_api(pod("web-0", namespace="another")),
        as_api(node("node-a"), kind="Node"),
        as_api(workload("StatefulSet", "db"), api_version="apps/v1", kind="StatefulSet"),
        as_api(workload("ReplicaSet", "web"), api_version="apps/v1", kind="ReplicaSet"),
        as_api(workload("Deployment", "web"), api_version="apps/v1", kind="Deployment"),
        as_api(workload("DaemonSet", "log"), api_version="apps/v1", kind="DaemonSet"),
        as_api(workload("Job", "batch"), api_version="batch/v1", kind="Job"),
        as_api(disruption_budget(), api_version="policy/v1", kind="PodDisruptionBudget"),
        as_api(claim(volume="pv-a"), kind="PersistentVolumeClaim"),
        as_api(volume(), kind="PersistentVolume"),
        as_api(priority_class("high", 100), api_version="scheduling.k8s.io/v1", kind="PriorityClass"),
        as_api(namespace("another"), kind="Namespace"),
        as_api(reservation(), api_version=RESERVATION_API, kind="Reservation"),
        as_api(volcano_job(), api_version="batch.volcano.sh/v1alpha1", kind="Job"),
        as_api(volcano_pod_group()),
        as_api(pod_group()),
        as_api(pod_group_workload(worker=2), api_version="scheduling.k8s.io/v1alpha1", kind="Workload"),
        as_api(queue()),
        as_api(gated_queue(), api_version="berth.volcano.sh/v1alpha1", kind="Queue"),
        {
            "apiVersion": "kueue.x-k8s.io/v1beta1",
            "kind": "LocalQueue",
            "metadata": {"name": "batch", "namespace": "another"},
            "spec": {"clusterQueue": "all"},
        },
        {
            "apiVersion": "storage.k8s.io/v1",
            "kind": "StorageClass",
            "metadata": {"name": "fast"},
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    ]


def test_a_list_becomes_objects_in_order() -> None:
    snapshot = Snapshot.from_json(list_file(*everything()))
    assert [one.metadata.name for one in snapshot.nodes] == ["node-a", "node-b"]
    assert [one.key for one in snapshot.pods] == ["another/web-0", "default/web-0", "default/web-1"]
    assert [(one.kind, one.metadata.name) for one in snapshot.workloads] == [
        ("DaemonSet", "log"),
        ("Deployment", "web"),
        ("Job", "batch"),
        ("ReplicaSet", "web"),
        ("StatefulSet", "db"),
    ]
    assert snapshot.disruption_budgets[0].status.disruptions_allowed == 1
    assert snapshot.persistent_volume_claims[0].spec.volume_name == "pv-a"
    assert snapshot.persistent_volumes[0].metadata.name == "pv-a"
    assert snapshot.storage_classes[0].volume_binding_mode == "WaitForFirstConsumer"
    assert snapshot.priority_classes[0].value == 100
    assert snapshot.namespaces[0].metadata.name == "another"
    assert snapshot.reservations[0].key == "default/place"
    assert snapshot.volcano_jobs == (volcano_job(),)
    assert snapshot.pod_groups == (pod_group(), volcano_pod_group())
    assert snapshot.pod_group_workloads == (pod_group_workload(worker=2),)
    assert snapshot.queue_objects == (queue(),)
    assert snapshot.gated_queues == (gated_queue(),)
    assert [one.metadata.namespace for one in snapshot.local_queues] == ["another"]


def test_the_order_of_the_file_means_nothing() -> None:
    items = everything()
    want = Snapshot.from_json(list_file(*items))
    for seed in range(5):
        random.Random(seed).shuffle(items)  # noqa: S311 - any order will do
        again = Snapshot.from_json(list_file(*items))
        assert again == want
        assert again.to_json() == want.to_json()


def test_all_ways_in_make_the_same() -> None:
    items = everything()
    want = Snapshot.from_json(list_file(*items))
    assert Snapshot.from_api(items) == want
    assert Snapshot.from_api(iter(items)) == want
    assert Snapshot.from_api({"apiVersion": "v1", "kind": "List", "items": items}) == want
    fields = {name: getattr(want, name) for name in want.__dataclass_fields__}
    reversed_fields = {name: value[::-1] for name, value in fields.items() if isinstance(value, tuple)}
    assert fields.keys() - reversed_fields.keys() == {"own_namespace", "beside", "read_at", "leaving_freely", "stated"}
    assert Snapshot(**{**fields, **reversed_fields}) == want


def test_written_and_read_again_a_snapshot_is_the_same() -> None:
    snapshot = Snapshot.from_api(everything())
    raw = snapshot.to_json()
    assert Snapshot.from_json(raw) == snapshot
    assert Snapshot.from_json(raw).to_json() == raw
    assert {one["kind"] for one in json.loads(raw)["items"]} == {one["kind"] for one in everything()}


def test_an_empty_snapshot_has_nothing() -> None:
    empty = Snapshot.empty()
    assert empty == Snapshot.from_api([])
    assert (empty.nodes, empty.pods, dict(empty.requests), dict(empty.allocatable)) == ((), (), {}, {})
    assert empty.pods_on("node-a") == ()


def test_kinds_that_nobody_looks_at_are_skipped() -> None:
    others = [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": 1}},
        {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "JobFlow",
            "metadata": {"name": "x"},
            "spec": {"replicas": "?"},
        },
        {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "x"}},
    ]
    assert Snapshot.from_api(others) == Snapshot.empty()


def test_amounts_are_there_for_every_pod_and_node() -> None:
    snapshot = Snapshot.from_api(everything())
    second = snapshot.pods[1]
    assert snapshot.allocatable["node-a"] == ResourceAmounts({"cpu": 16000, "memory": 64 << 30, "pods": 110})
    assert snapshot.requests[second.key] == ResourceAmounts({"cpu": 1000, "memory": 1 << 30})
    assert set(snapshot.requests) == {one.key for one in snapshot.pods}
    assert set(snapshot.allocatable) == {"node-a", "node-b"}


def test_a_pod_that_has_ended_holds_nothing_of_its_node() -> None:
    snapshot = Snapshot(
        nodes=(node("node-a"),),
        pods=(
            pod("running", node="node-a"),
            pod("leaving", node="node-a", deleted="2026-11-21T12:00:00Z"),
            pod("done", node="node-a", phase="Succeeded"),
            pod("broken", node="node-a", phase="Failed"),
            pod("waiting"),
        ),
    )
    assert [one.metadata.name for one in snapshot.pods_on("node-a")] == ["leaving", "running"]


def test_a_pod_that_has_ended_may_name_a_node_that_is_gone() -> None:
    Snapshot(pods=(pod("done", node="gone", phase="Succeeded"),)).check()


def test_what_is_replaced_in_order_is_as_if_it_was_sorted_again() -> None:
    nodes = tuple(node(name, unschedulable=name == "b") for name in ("a", "b", "c"))
    snapshot = Snapshot(nodes=nodes, pods=(pod("y", node="a"), pod("x", node="c"), pod("z", node="b")))
    assert set(snapshot.nodes_by_name) == {"a", "b", "c"}  # cached
    left = {"nodes": snapshot.nodes[1:], "pods": snapshot.pods[:2], "leaving_freely": frozenset({"default/x"})}

    in_order = snapshot.replace_in_order(**left)

    assert in_order == replace(snapshot, **left)
    assert [listed.metadata.name for listed in in_order.pods] == ["x", "y"]
    assert set(in_order.nodes_by_name) == {"b", "c"}
    assert (len(snapshot.nodes), len(snapshot.pods)) == (3, 3)


def test_a_snapshot_does_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        Snapshot.empty().nodes = ()  # type: ignore[misc]


@dataclass(frozen=True)
class Bad:
    raw: bytes
    want: str


LIST_WANTED = "expected a v1 List in JSON, as `berth snapshot` writes it"
GOOD = list_file(*everything())


BAD = {
    "nothing": Bad(b"", f"the snapshot is empty; {LIST_WANTED}"),
    "blanks": Bad(b" \n", f"the snapshot is empty; {LIST_WANTED}"),
    "a web page": Bad(
        b"<html></html>",
        f"the snapshot is no JSON (JSON is malformed: invalid character (byte 0)); {LIST_WANTED}",
    ),
    "YAML": Bad(
        b"kind: List\n",
        f"the snapshot is no JSON (JSON is malformed: invalid character (byte 0)); {LIST_WANTED}",
    ),
    "a file that ends in the middle": Bad(
        GOOD[:-40], f"the snapshot is cut off after {len(GOOD) - 40} bytes; {LIST_WANTED}"
    ),
    "a file that ends early": Bad(GOOD[:5], f"the snapshot is cut off after 5 bytes; {LIST_WANTED}"),
    "something behind": Bad(
        b'{"kind":"List","apiVersion":"v1","items":[]}x',
        f"the snapshot is no JSON (JSON is malformed: trailing characters (byte 45)); {LIST_WANTED}",
    ),
    "an array": Bad(b"[]", f"the snapshot is of JSON type array; {LIST_WANTED}"),
    "a number": Bad(b"5", f"the snapshot is of JSON type int; {LIST_WANTED}"),
    "brackets without end": Bad(b'{"items":' + b"[" * 100_000, LIST_WANTED),
    "bytes that are no text": Bad(b'{"kind":"\xff\xfe"}', LIST_WANTED),
    "an empty object": Bad(b"{}", f"the snapshot is an object without a kind of apiVersion (none); {LIST_WANTED}"),
    "a single pod": Bad(json.dumps(as_api(pod())).encode(), f"the snapshot is a Pod of apiVersion v1; {LIST_WANTED}"),
    "a list of one kind": Bad(
        b'{"kind":"PodList","apiVersion":"v1","items":[]}', f"the snapshot is a PodList of apiVersion v1; {LIST_WANTED}"
    ),
    "a List without items": Bad(
        b'{"kind":"List","apiVersion":"v1"}', "the snapshot's field items is missing; expected the list of objects"
    ),
    "items that are no list": Bad(
        b'{"kind":"List","apiVersion":"v1","items":{}}', f"the snapshot: items is of JSON type object; {LIST_WANTED}"
    ),
    "an item that is no object": Bad(list_file(5), "items[0] is of JSON type int; expected object"),
    "an item without a kind": Bad(list_file({}), "items[0].kind is missing; expected that of an API object"),
    "an item that is no text": Bad(
        b'{"kind":"List","apiVersion":"v1","items":[{"kind":"\xff"}]}', "expected an API object in JSON"
    ),
    "a pod twice": Bad(
        list_file(as_api(pod()), as_api(pod(cpu="7"))), "Pod default/web-0 is listed twice; expected each object once"
    ),
    "a node twice": Bad(
        list_file(as_api(node(), kind="Node"), as_api(node(), kind="Node")),
        "Node node-a is listed twice; expected each object once",
    ),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_bad_input_gets_one_clear_sentence(case: Bad) -> None:
    with pytest.raises(InputError) as caught:
        Snapshot.from_json(case.raw)
    assert str(caught.value).endswith(case.want)
    assert "\n" not in str(caught.value)


def listed(**changes: object) -> bytes:
    """A List of one pod on its node, with fields of the pod's changed."""
    return list_file(as_api(node("node-a"), kind="Node"), {**as_api(pod(node="node-a")), **changes})


def asking(**requests: object) -> bytes:
    raw = as_api(pod(node="node-a", containers=[container("app")]))
    raw["spec"]["containers"][0]["resources"] = {"requests": requests}
    return list_file(as_api(node("node-a"), kind="Node"), raw)


UNREADABLE = {
    "a field of the wrong type": (listed(spec={"nodeName": 5}), "Expected `str`, got `int` - at `$.spec.nodeName`"),
    "a text where a list belongs": (
        listed(spec={"containers": "web"}),
        "Expected `array`, got `str` - at `$.spec.containers`",
    ),
    "a request of the wrong type": (
        asking(cpu=[1]),
        "Expected `int | float | str`, got `array` - at `$.spec.containers[0].resources.requests[...]`",
    ),
    "an item without a name": (list_file({"apiVersion": "v1", "kind": "Pod"}), "Object without a name"),
    "an item without metadata": (
        list_file({"apiVersion": "v1", "kind": "Pod", "metadata": 7}),
        "Object without a name",
    ),
    "a Reservation without tasks": (
        list_file({"apiVersion": RESERVATION_API, "kind": "Reservation", "metadata": {"name": "r"}, "spec": {}}),
        "Object missing required field `tasks` - at `$.spec`",
    ),
}


@pytest.mark.parametrize(("raw", "why"), UNREADABLE.values(), ids=UNREADABLE)
def test_an_object_that_cannot_be_read_says_why(raw: bytes, why: str) -> None:
    (found,) = Snapshot.from_json(raw).all_unreadable()
    assert found.metadata.unreadable == why


@pytest.mark.parametrize(
    "raw",
    [
        asking(cpu="-1"),
        asking(memory="64GB"),
        list_file(as_api(node("node-a", cpu="many"), kind="Node")),
        list_file(as_api(node("node-a", cpu="-1"), kind="Node")),
    ],
)
def test_an_odd_amount_does_not_spoil_a_file(raw: bytes) -> None:
    assert [one.metadata.name for one in Snapshot.from_json(raw).nodes] == ["node-a"]


def test_every_place_to_cut_a_file_is_an_error_of_the_input() -> None:
    raw = list_file(*everything()[:3])
    for length in range(len(raw)):
        with pytest.raises(InputError):
            Snapshot.from_json(raw[:length])


def test_every_flipped_byte_is_read_or_refused_clearly() -> None:
    raw = list_file(as_api(node("node-a"), kind="Node"), as_api(pod(node="node-a")))
    chance = random.Random(7)  # noqa: S311 - any bytes will do
    for _ in range(2_000):
        broken = bytearray(raw)
        broken[chance.randrange(len(raw))] = chance.randrange(256)
        with suppress(InputError):
            assert isinstance(Snapshot.from_json(bytes(broken)), Snapshot)


def test_two_workloads_of_different_kinds_may_share_a_name() -> None:
    snapshot = Snapshot(workloads=(workload("ReplicaSet", "web"), workload("Deployment", "web")))
    snapshot.check()
    assert [one.kind for one in snapshot.workloads] == ["Deployment", "ReplicaSet"]


def test_objects_of_a_live_cluster_need_not_be_checked() -> None:
    late = pod("late", node="a-node-that-has-just-gone")
    snapshot = Snapshot(pods=(late,))
    assert snapshot.pods_on("a-node-that-has-just-gone") == (late,)
    assert msgspec.json.decode(snapshot.to_json())["kind"] == "List"


def test_a_pod_on_a_node_that_does_not_exist_makes_no_file_unreadable() -> None:
    """The API server takes any name of a node, and `berth snapshot` writes what the API server has."""
    snapshot = Snapshot.from_json(list_file(as_api(pod(node="node-z"))))

    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert [listed.spec.node_name for listed in snapshot.pods] == ["node-z"]


LONG_INTEGERS = {
    "a priority": {"spec": {"priority": 1 << 64}},
    "a quantity": {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": 10**25}}}]}},
    "a number below zero": {"spec": {"terminationGracePeriodSeconds": -(1 << 63) - 1}},
    "a volume's source, which has no schema here": {"spec": {"volumes": [{"name": "v", "csi": {"size": 10**400}}]}},
}


@pytest.mark.parametrize("body", LONG_INTEGERS.values(), ids=LONG_INTEGERS)
def test_an_integer_beyond_64_bits_makes_its_object_unreadable_and_no_other(body: dict[str, Any]) -> None:
    head = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd", "namespace": "default"}}
    snapshot = Snapshot.from_json(list_file(as_api(pod("even")), {**head, **body}, as_api(node(), kind="Node")))

    even, odd = snapshot.pods
    assert not even.metadata.unreadable
    assert odd.metadata.unreadable.endswith("is an integer beyond 64 bits")
    assert Snapshot.from_json(snapshot.to_json()) == snapshot
    assert msgspec.msgpack.encode(snapshot.pods)


def test_long_digits_within_texts_and_the_largest_integers_are_left_as_they_are() -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "annotations": {"a": '9999999999999999999999, \\"'}},
        "spec": {"priority": (1 << 63) - 1, "activeDeadlineSeconds": -(1 << 63)},
    }
    (read,) = Snapshot.from_json(list_file(body)).pods

    assert not read.metadata.unreadable
    assert (read.spec.priority, read.spec.active_deadline_seconds) == ((1 << 63) - 1, -(1 << 63))
