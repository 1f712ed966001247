import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import labels, names

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
QUALIFIED = re.compile(r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
OBJECT_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,100}[a-z0-9])?", fullmatch=True)
UIDS = st.uuids().map(str)


@given(OBJECT_NAMES, UIDS, OBJECT_NAMES, st.integers(0, 10**6))
def test_a_placeholders_name_is_valid_and_always_the_same(reservation: str, uid: str, task: str, index: int) -> None:
    name = names.placeholder_name(reservation, uid, task, index)
    assert DNS_LABEL.fullmatch(name)
    assert name == names.placeholder_name(reservation, uid, task, index)


@given(OBJECT_NAMES, UIDS)
def test_a_reservations_name_is_valid_and_always_the_same(plan: str, uid: str) -> None:
    name = names.reservation_name(plan, uid)
    assert DNS_LABEL.fullmatch(name)
    assert name == names.reservation_name(plan, uid)


@given(OBJECT_NAMES, st.integers(0, 10**9))
def test_a_fences_name_is_valid_and_of_its_node_and_period(node: str, period: int) -> None:
    name = names.fence_name(node, period)
    assert DNS_LABEL.fullmatch(name)
    assert name not in {names.fence_name(node, period + 1), names.fence_name(f"{node}a", period)}


@given(UIDS)
def test_a_probes_name_is_valid_and_its_own(uid: str) -> None:
    assert DNS_LABEL.fullmatch(names.probe_name(uid))
    assert names.probe_name(uid) != names.probe_name(uid + "x")


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_every_priority_has_a_class_of_its_own(first: int, second: int) -> None:
    assert DNS_LABEL.fullmatch(names.priority_class_name(first))
    assert (names.priority_class_name(first) == names.priority_class_name(second)) == (first == second)


def test_slots_have_names_of_their_own() -> None:
    slots = [
        ("a", "u1", "web", 0),
        ("a", "u1", "web", 1),
        ("a", "u1", "db", 0),
        ("a", "u2", "web", 0),
        ("a-web", "u1", "0", 0),
    ]
    assert len({names.placeholder_name(*slot) for slot in slots}) == len(slots)


def test_a_plan_is_named_after_its_time() -> None:
    name = names.plan_name("20261121-071500", "seed")
    assert name.startswith("plan-20261121-071500-")
    assert DNS_LABEL.fullmatch(name)
    assert name != names.plan_name("20261121-071500", "another seed")


KEYS = {
    name: value
    for name, value in vars(labels).items()
    if name.endswith(("_LABEL", "_ANNOTATION", "_GATE", "_TAINT")) and isinstance(value, str)
}


@pytest.mark.parametrize("name", KEYS)
def test_a_key_is_one_that_the_api_server_takes(name: str) -> None:
    assert QUALIFIED.fullmatch(KEYS[name])


def test_keys_of_our_own_have_our_prefix_and_differ_within_their_sort() -> None:
    of_volcano = {name for name, key in KEYS.items() if key.partition("/")[0].endswith("volcano.sh")}
    of_volcano -= {name for name, key in KEYS.items() if key.startswith(labels.PREFIX)}
    of_kubernetes = {"CRITICAL_NODE_LABEL", "DAEMON_POD_LABEL", "MANAGED_LABEL", "TEMPLATE_HASH_LABEL"}
    of_kubernetes |= {"LEADER_WORKER_SET_LABEL"}
    others = {*of_kubernetes, *of_volcano}
    ours = {name: key for name, key in KEYS.items() if name not in others}
    assert all(key.startswith(f"{labels.PREFIX}/") for key in ours.values())
    for sort in ("_LABEL", "_ANNOTATION", "_TAINT"):
        keys = [key for name, key in ours.items() if name.endswith(sort)]
        assert len(keys) == len(set(keys))
