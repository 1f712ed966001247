"""For an operator that fell silent, its gates and guards are taken off; one that is alive is left to its work."""

from typing import Any

import pytest

from berth_core.clock import format_precise_timestamp
from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, RESERVATION_LABEL
from berth_descheduler.execution.operator_watch import OperatorWatch, is_past, release_stale_handovers
from berth_kube.errors import ServerError
from berth_kube.resources import LEASES, NODES, PODS
from builders import NOON, FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure, node
from waiting import soon

STALE_SECONDS = 30.0


def cluster(*, guard: str = "0", lease: bool = True) -> FakeCluster:
    """A node with a guard and others' taint, a gated pod, and an operator that renewed its Lease at noon."""
    made = FakeCluster()
    theirs = {"key": "theirs", "effect": "NoSchedule"}
    ours = {"key": HANDOVER_TAINT, "value": guard, "effect": "NoSchedule"}
    made.add(NODES, {**node("a"), "spec": {"taints": [theirs, ours]}})
    made.add(PODS, gated("web-1", {RESERVATION_LABEL: "r"}))
    if lease:
        spec = {"holderIdentity": "op", "leaseDurationSeconds": 8, "renewTime": format_precise_timestamp(NOON)}
        made.add(LEASES, {"metadata": {"name": "berth-operator", "namespace": "berth-system"}, "spec": spec})
    return made


def gated(name: str, labels: dict[str, str]) -> dict[str, Any]:
    gates = [{"name": "theirs"}, {"name": HANDOVER_GATE}]
    return {"metadata": {"name": name, "namespace": "shop", "labels": labels}, "spec": {"schedulingGates": gates}}


def release(made: FakeCluster, seconds_after_noon: float) -> int:
    clock = FakeClock()
    clock.advance(seconds_after_noon)
    return release_stale_handovers(made, clock, "berth-system", STALE_SECONDS, sleep=clock.sleep)  # type: ignore[arg-type]


def gates(made: FakeCluster, name: str = "web-1") -> list[str]:
    return [gate["name"] for gate in made.objects["pods"]["shop", name]["spec"]["schedulingGates"]]


def test_while_the_operator_is_alive_nothing_is_touched() -> None:
    made = cluster()
    assert release(made, 38) == 0
    assert gates(made) == ["theirs", HANDOVER_GATE]
    assert made.taints() == {"a": ["theirs", HANDOVER_TAINT]}


def test_after_its_lease_and_the_limit_gates_and_guards_go_and_others_stay() -> None:
    made = cluster()
    assert release(made, 38.5) == 2
    assert gates(made) == ["theirs"]
    assert made.taints() == {"a": ["theirs"]}


def test_an_operator_whose_clock_is_behind_is_alive_when_it_renews() -> None:
    made, clock = cluster(), FakeClock()
    clock.advance(600)

    def renew(_seconds: float) -> None:
        later = {"spec": {"renewTime": "2026-11-21T12:00:05.000000Z"}}
        made.merge_patch(LEASES, "berth-operator", later, namespace="berth-system")

    assert release_stale_handovers(made, clock, "berth-system", STALE_SECONDS, sleep=renew) == 0  # type: ignore[arg-type]
    assert gates(made) == ["theirs", HANDOVER_GATE]


def test_without_an_operator_ever_the_same_is_done() -> None:
    made = cluster(lease=False)
    assert release(made, 38.5) == 2


def test_a_pod_just_gated_is_left_for_a_while() -> None:
    made = cluster(lease=False)
    assert release(made, 30) == 1
    assert gates(made) == ["theirs", HANDOVER_GATE]


def test_a_pod_without_our_label_keeps_its_gates() -> None:
    made = cluster()
    made.add(PODS, gated("web-2", {}))
    release(made, 60)
    assert gates(made, "web-2") == ["theirs", HANDOVER_GATE]


@pytest.mark.parametrize(
    ("claim", "deadline", "want"),
    [
        ("a deadline to come", str(int(NOON.timestamp()) + 10), False),
        ("a deadline just past", str(int(NOON.timestamp()) - 30), False),
        ("a deadline long past", str(int(NOON.timestamp()) - 31), True),
        ("no deadline", "", True),
        ("no number", "true", True),
    ],
)
def test_a_guard_says_itself_when_it_is_left_over(claim: str, deadline: str, *, want: bool) -> None:
    assert is_past(deadline, NOON, STALE_SECONDS) is want, claim


def test_a_pod_that_changed_meanwhile_does_not_keep_the_others() -> None:
    made = cluster()
    made.add(PODS, gated("web-2", {RESERVATION_LABEL: "r"}))
    made.faults["patch", "pods"] = [ServerError(call("patch", PODS, "web-1"), failure(500))]
    assert release(made, 60) == 2
    assert gates(made) == ["theirs", HANDOVER_GATE]
    assert gates(made, "web-2") == ["theirs"]


def test_the_watch_looks_again_and_again_and_outlives_a_failure() -> None:
    made, clock = cluster(lease=False), FakeClock()
    clock.advance(60)
    made.faults["get", "leases"] = [ServerError(call("get", LEASES, "x"), failure(500))]
    with OperatorWatch(made, clock, "berth-system", every=0.01, stale=STALE_SECONDS):  # type: ignore[arg-type]
        soon("the gate is off", lambda: gates(made) == ["theirs"])
