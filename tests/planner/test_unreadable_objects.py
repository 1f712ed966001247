"""One object that cannot be read costs what depends on it: the rest is planned, and the refusal names the object."""

import json
from typing import get_args

import pytest

from berth_core import Snapshot, SnapshotKind
from berth_core.object_lists import Listed, decode_list, encode_items
from berth_descheduler.framework.refusals import RefusalReason, Refused
from berth_descheduler.planner import Plan, plan
from planner.clusters import consolidating
from unreadable_scenes import (
    EVERYTHING,
    FILLED,
    HARMLESS,
    HEALTHY,
    OURS,
    SHOP,
    STORING,
    UNREADABLE,
    Raw,
    api_object,
    broken,
    node,
    spoiled,
)


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


def test_each_kind_of_a_snapshot_has_its_scene() -> None:
    items = [one for scene, _, _ in UNREADABLE.values() for one in scene] + [*HARMLESS.values()]
    objects = (one for item in items for one in decode_list(encode_items([item])).objects)
    assert set(map(type, objects)) == set(get_args(Listed))


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


ADDRESSES = {"addresses": [{"type": "Hostname", "address": "big"}, {"type": "InternalIP", "address": "10.0.0.7"}]}
BIG = {**FILLED[0], "status": {**FILLED[0]["status"], **ADDRESSES}}
TWIN = {**node("twin"), "status": {**node("twin")["status"], **ADDRESSES}}


def lost(**status: object) -> Raw:
    """A pod whose node's name cannot be read."""
    return api_object("v1", "Pod", "lost", SHOP, spec={"nodeName": 7}, status={"phase": "Running", **status})


def test_a_pod_whose_node_cannot_be_read_closes_the_node_whose_address_it_reports() -> None:
    items = [BIG, FILLED[1], *HEALTHY, *OURS, node("spare"), lost(hostIP="10.0.0.7")]
    made = plan(read(items), consolidating())
    (pod,) = [one for one in read(items).pods if one.metadata.name == "lost"]
    assert pod.spec.node_name == "big"
    assert made.moves
    assert "big" not in {one.target for one in made.moves}
    why = [one.message for one in made.refused if one.node == "big"]
    assert any("it is not known what pod shop/lost takes of the node: Expected `str`" in text for text in why), why


@pytest.mark.parametrize(
    ("pod", "more"),
    [
        (lost(), []),
        (lost(hostIP="10.9.9.9"), []),
        (lost(hostIP=7), []),
        (lost(hostIP="10.0.0.7"), [TWIN]),
        ({**lost(), "spec": 7}, []),
    ],
    ids=["no address", "an address of no node", "an odd address", "an address of two nodes", "no spec at all"],
)
def test_a_pod_that_may_be_on_any_node_closes_none_and_is_named(pod: Raw, more: list[Raw]) -> None:
    snapshot = read([BIG, FILLED[1], *HEALTHY, *OURS, pod, *more])
    assert moved(plan(snapshot, consolidating())) == {"bank/ledger", "shop/web"}
    assert [one.metadata.name for one in snapshot.all_unreadable()] == ["lost"]


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
