"""Queues are read in exact amounts, and one that cannot be read says why."""

import json

import pytest

from berth_core.queues import Queue, QueueObject, QueueState
from berth_core.resources import ResourceAmounts
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from builders import as_api, list_file, node, pod, queue

AMOUNTS = {"cpu": "2", "memory": "4G", "nvidia.com/gpu": 1}


def test_a_queue_of_volcano_has_exact_amounts() -> None:
    found = Queue.of(
        queue(guarantee=AMOUNTS, weight=3, capability={"cpu": 8}, deserved={"cpu": "4"}, reclaimable=False, parent="a")
    )

    assert found == Queue(
        name="ml",
        weight=3,
        capability=ResourceAmounts({"cpu": 8000}),
        capped=frozenset({"cpu"}),
        guarantee=ResourceAmounts({"cpu": 2000, "memory": 4_000_000_000, "nvidia.com/gpu": 1}),
        deserved=ResourceAmounts({"cpu": 4000}),
        reclaimable=False,
        parent="a",
    )


def test_a_queue_that_says_nothing_has_volcanos_defaults() -> None:
    found = Queue.of(QueueObject.read({"metadata": {"name": "bare"}}))

    assert (found.weight, found.reclaimable, found.state) == (1, True, QueueState.OPEN)
    assert not found.guarantee
    assert not found.capped


def test_a_resource_limited_to_nothing_is_limited() -> None:
    found = Queue.of(queue(capability={"nvidia.com/gpu": "0"}))

    assert found.capped == {"nvidia.com/gpu"}
    assert not found.capability


@pytest.mark.parametrize(
    ("raw", "want"),
    [("", "Open"), ("Open", "Open"), ("Closing", "Closing"), ("Closed", "Closed"), ("Odd", "Unknown")],
)
def test_the_state_is_the_controllers(raw: str, want: str) -> None:
    assert Queue.of(queue(state=raw)).state == want


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({"guarantee": {"resource": {"cpu": "much"}}}, "spec.guarantee.resource.cpu is 'much'"),
        ({"deserved": {"cpu": "-1"}}, "spec.deserved.cpu is '-1'"),
        ({"capability": {"memory": "1e30"}}, "spec.capability is too large (memory is about 1e30"),
        ({"weight": "three"}, "Expected `int | null`, got `str`"),
    ],
)
def test_a_queue_with_an_odd_value_says_so_and_stands_in(spec: dict[str, object], want: str) -> None:
    snapshot = Snapshot.from_api([as_api(queue()) | {"spec": spec}, as_api(queue("other"))])

    odd, other = snapshot.queues
    assert want in odd.unreadable
    assert not odd.guarantee
    assert not other.unreadable


def test_a_file_that_says_nothing_of_queues_has_not_read_them() -> None:
    bare = Snapshot.from_json(list_file(as_api(node("a"), kind="Node"), as_api(pod(node="a"))))
    some = Snapshot.from_json(list_file(as_api(node("a"), kind="Node"), as_api(pod(node="a")), as_api(queue())))
    written = json.loads(bare.to_json())

    assert bare.unread == (SnapshotKind.VOLCANO_QUEUES, SnapshotKind.QUEUES)
    assert SnapshotKind.VOLCANO_QUEUES not in bare.missing
    assert SnapshotKind.VOLCANO_QUEUES not in written["kinds"]
    assert some.unread == (SnapshotKind.QUEUES,)
    assert Snapshot.from_json(some.to_json()) == some
