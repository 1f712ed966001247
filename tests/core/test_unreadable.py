"""One object that cannot be decoded gets a stand-in that says why; the others of a file are read as ever."""

import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.depths import MAX_DEPTH, cut, is_cut, is_too_deep
from berth_core.object_lists import kind_of
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, Reservation, ReservationPhase
from berth_core.snapshot import Snapshot
from berth_core.unreadable import readable_body, stand_in, why_unreadable
from builders import DEEP, as_api, list_file, nested_json, node, pod, reservation, workload
from properties import holds_for

DEPTHS = {"101 levels": 101, "as deep as Python takes": 900, "1,100 levels": 1_100, "100,000 levels": 100_000}


def deep_reservation(name: str = "deep") -> dict[str, Any]:
    body = as_api(reservation(name), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    body["spec"]["tasks"][0]["template"]["spec"]["oddity"] = DEEP
    return body


def listed(*items: Any, levels: int = 1_100) -> bytes:  # noqa: ANN401 - any items
    return nested_json(json.loads(list_file(*items)), levels=levels)


def depth_of(value: object) -> int:
    if isinstance(value, dict):
        return 1 + max((depth_of(one) for one in value.values()), default=0)
    return 1 + max((depth_of(one) for one in value), default=0) if isinstance(value, list) else 0


# --- cutting


@holds_for(
    st.recursive(st.text() | st.integers() | st.none(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)),
    quick=20,
)
def test_what_is_not_too_deep_is_left_as_it_is(value: object) -> None:
    raw = json.dumps(value).encode()
    assert cut(raw) == raw
    assert not is_too_deep(value)


@pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)
def test_what_is_too_deep_is_cut_and_the_rest_kept(levels: int) -> None:
    raw = nested_json({"before": '}]\\"', "deep": [DEEP, DEEP], "after": 1}, levels=levels)
    shallow = json.loads(cut(raw))
    assert (shallow["before"], shallow["after"], len(shallow["deep"])) == ('}]\\"', 1, 2)
    assert depth_of(shallow) == MAX_DEPTH
    assert is_cut(cut(raw))
    assert cut(cut(raw)) == cut(raw)


def test_the_last_level_that_is_allowed_is_kept() -> None:
    raw = nested_json(DEEP, levels=MAX_DEPTH)
    assert cut(raw) == raw
    assert not is_too_deep(json.loads(raw))
    assert is_too_deep(json.loads(nested_json(DEEP, levels=MAX_DEPTH + 1)))


def test_bytes_that_are_no_json_are_cut_to_no_json() -> None:
    chance = random.Random(3)  # noqa: S311 - any bytes will do
    for _ in range(300):
        broken = bytearray(nested_json({"a": DEEP}, levels=300))
        for _ in range(3):
            broken[chance.randrange(len(broken))] = chance.choice(b'{}[]"\\,1')
        cut(bytes(broken))
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(cut(b"[" * 100_000))


# --- stand-ins


def test_a_stand_in_keeps_what_can_be_read() -> None:
    body = as_api(pod("p", node="node-a", labels={"app": "web"})) | {"status": {"phase": "Running", "conditions": 5}}
    found = stand_in(body, Pod, "odd")
    assert (found.key, found.metadata.unreadable, found.spec.node_name) == ("default/p", "odd", "node-a")
    assert (found.metadata.labels, found.status.phase, found.status.conditions) == ({"app": "web"}, "Running", ())


@pytest.mark.parametrize("metadata", [{}, None, 7, {"name": None}, {"name": 7, "namespace": [], "labels": "web"}])
def test_an_object_without_a_readable_name_has_a_stand_in_without_one(metadata: object) -> None:
    found = stand_in({"metadata": metadata, "spec": {"nodeName": "node-a"}}, Pod, "odd")
    assert (found.key, found.metadata.unreadable, found.spec.node_name) == ("/", "odd", "node-a")


def test_a_number_out_of_range_costs_its_field_alone() -> None:
    raw = b'{"metadata": {"name": "p"}, "spec": {"priority": 1e400}, "status": {"phase": "Running"}}'
    assert readable_body(raw) == {"metadata": {"name": "p"}, "status": {"phase": "Running"}}


def test_the_place_of_what_was_cut_is_named() -> None:
    shallow = json.loads(cut(nested_json(deep_reservation())))
    want = "spec.tasks[0].template.spec.oddity.… is nested more than 100 levels deep"
    assert why_unreadable(shallow, None) == want


# --- files


@pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)
def test_a_reservation_that_is_nested_too_deeply_does_not_spoil_a_file(levels: int) -> None:
    good = as_api(reservation("good"), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    raw = listed(deep_reservation(), good, as_api(node("node-a"), kind="Node"), levels=levels)
    snapshot = Snapshot.from_json(raw)
    assert [one.metadata.name for one in snapshot.reservations] == ["deep", "good"]
    assert snapshot.reservations[0].spec.tasks == ()
    assert "oddity" in snapshot.reservations[0].metadata.unreadable
    assert not snapshot.reservations[1].metadata.unreadable
    again = Snapshot.from_json(snapshot.to_json())
    assert again.reservations[0].metadata.unreadable == snapshot.reservations[0].metadata.unreadable


@pytest.mark.parametrize("levels", DEPTHS.values(), ids=DEPTHS)
def test_a_pod_and_a_node_that_are_nested_too_deeply_are_named_in_their_stand_ins(levels: int) -> None:
    odd_pod = as_api(pod("p", node="node-a")) | {"status": {"phase": "Running", "extra": DEEP}}
    odd_node = as_api(node("node-a"), kind="Node") | {"more": DEEP}
    snapshot = Snapshot.from_json(listed(odd_pod, odd_node, as_api(pod("q")), levels=levels))
    assert [one.metadata.unreadable[:12] for one in snapshot.pods] == ["status.extra", ""]
    assert snapshot.nodes[0].metadata.unreadable.startswith("more")
    assert snapshot.pods_on("node-a") == (snapshot.pods[0],)


def test_a_template_with_a_field_of_the_wrong_type_does_not_spoil_a_file() -> None:
    odd = as_api(reservation("odd"), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    odd["spec"]["tasks"][0]["template"]["spec"]["tolerations"] = "all"
    (found,) = Snapshot.from_json(list_file(odd)).reservations
    assert found.metadata.unreadable.startswith("Expected `array`, got `str`")
    assert found.spec.tasks == ()


def test_a_kind_of_which_nothing_can_be_told_is_left_out_and_kept_apart() -> None:
    odd = as_api(workload("StatefulSet", "db"), api_version="apps/v1", kind="StatefulSet") | {"more": DEEP}
    snapshot = Snapshot.from_json(listed(odd))
    (found,) = snapshot.unreadable
    assert (snapshot.workloads, kind_of(found), found.metadata.name) == ((), ("apps/v1", "StatefulSet"), "db")
    assert found.metadata.unreadable.endswith("nested more than 100 levels deep")
    assert Snapshot.from_json(snapshot.to_json()).unreadable == snapshot.unreadable


def test_a_group_of_pods_that_cannot_be_read_is_as_one_that_is_not_there() -> None:
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": {"name": "j", "namespace": "default"}}
    deep, odd, good = {**job, "more": DEEP}, {**job, "spec": {"policies": "many"}}, {**job, "metadata": {"name": "g"}}
    snapshot = Snapshot.from_json(listed(deep, odd, good))
    assert [one.metadata.name for one in snapshot.volcano_jobs] == ["g"]
    assert [one.metadata.name for one in snapshot.unreadable] == ["j", "j"]


def test_a_reservation_of_the_wrong_types_is_read_as_far_as_it_goes() -> None:
    body = as_api(reservation("odd"), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    body["spec"]["tasks"][0]["replicas"] = "two"
    body["status"] = {"state": {"phase": "Available"}, "slots": 5}
    found = Reservation.read(body)
    assert found.metadata.unreadable.startswith("Expected `int`, got `str`")
    assert (found.phase, found.status.slots, found.spec.tasks) == (ReservationPhase.AVAILABLE, (), ())
