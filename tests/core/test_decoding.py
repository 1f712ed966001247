"""Null is the default: what Go writes for an empty list, and what it makes of a null anywhere."""

from typing import Any

import msgspec
import pytest

from berth_core import Container, CSINode, InputError, LabelSelector, Pod, PodDisruptionBudget, Snapshot, Workload
from berth_core.decoding import Decoder, convert, decode_json
from berth_core.reservations import Reservation


@pytest.mark.parametrize("drivers", ["null", "[]"])
def test_a_node_without_a_driver_has_none(drivers: str) -> None:
    raw = f'{{"metadata": {{"name": "n1"}}, "spec": {{"drivers": {drivers}}}}}'
    assert decode_json(raw, CSINode) == decode_json('{"metadata": {"name": "n1"}, "spec": {}}', CSINode)


def test_a_job_without_rules_has_a_policy_without_rules() -> None:
    raw: dict[str, Any] = {"kind": "Job", "spec": {"suspend": True, "podFailurePolicy": {"rules": None}}}
    policy = convert(raw, Workload).spec.pod_failure_policy
    assert policy is not None
    assert policy.rules == ()


def test_null_in_a_list_or_a_map_is_the_zero_value_as_in_go() -> None:
    raw = """{
        "metadata": {"labels": {"team": null}, "finalizers": [null]},
        "spec": {"containers": [null, {"name": "web", "resources": {"requests": {"cpu": null}}}]}
    }"""
    pod = decode_json(raw, Pod)
    assert (pod.metadata.labels, pod.metadata.finalizers) == ({"team": ""}, ("",))
    assert pod.spec.containers[0] == Container()
    assert pod.spec.containers[1].resources.requests == {"cpu": 0}


def test_null_is_kept_where_it_says_something() -> None:
    raw = '{"spec": {"selector": null, "minAvailable": null}, "metadata": {"labels": null}}'
    assert decode_json(raw, PodDisruptionBudget).spec.selector is None
    empty = '{"spec": {"selector": {}}, "metadata": {"labels": null}}'
    assert decode_json(empty, PodDisruptionBudget).spec.selector == LabelSelector()


def test_null_without_a_type_stays_as_it_is() -> None:
    volume = {"name": "data", "emptyDir": {"sizeLimit": None}}
    pod = convert({"metadata": {"labels": None}, "spec": {"volumes": [volume]}}, Pod)
    assert pod.spec.volumes[0].empty_dir == {"sizeLimit": None}


def test_null_is_no_name_and_no_object() -> None:
    with pytest.raises(msgspec.ValidationError, match="missing required field `metadata`"):
        decode_json('{"metadata": null, "spec": {"tasks": []}}', Reservation)
    with pytest.raises(msgspec.ValidationError, match="missing required field `name`"):
        convert({"metadata": {}, "spec": {"tasks": [{"name": None, "template": {}}]}}, Reservation)


def test_what_is_wrong_beside_a_null_is_what_is_said() -> None:
    with pytest.raises(msgspec.ValidationError, match=r"Expected `array`, got `int` - at `\$\.spec\.volumes`"):
        decode_json('{"metadata": {"labels": null}, "spec": {"volumes": 7}}', Pod)
    with pytest.raises(msgspec.ValidationError, match=r"at `\$\.spec\.volumes`"):
        convert({"metadata": {"labels": None}, "spec": {"volumes": 7}}, Pod)


def test_text_that_is_cut_off_is_no_misfit_of_a_later_null() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_json('{"metadata": {"labels": {"team": "null"', Pod)


def test_strictly_decoded_null_is_a_misfit() -> None:
    with pytest.raises(msgspec.ValidationError):
        Decoder(Pod).decode_strictly(b'{"spec": {"volumes": null}}')


def test_a_list_without_items_is_an_empty_cluster() -> None:
    assert Snapshot.from_json(b'{"apiVersion": "v1", "kind": "List", "items": null}').nodes == ()
    with pytest.raises(InputError, match="items is missing"):
        Snapshot.from_json(b'{"apiVersion": "v1", "kind": "List"}')


def test_text_that_is_no_utf8_is_malformed_however_deeply_it_is_nested() -> None:
    for depth in (1, 5_000):
        raw = b'{"managedFields": ' + b"[" * depth + b"]" * depth + b', "metadata": {"name": "\xff"}}'
        with pytest.raises(msgspec.DecodeError, match="malformed"):
            decode_json(raw, Pod)
