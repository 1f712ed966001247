"""For an operator that fell silent, its gates and guards are taken off; one that is alive is left to its work."""

from dataclasses import dataclass
from typing import Any

import pytest

from berth_core.clock import format_precise_timestamp
from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, RESERVATION_LABEL, SLOT_ANNOTATION
from berth_descheduler.migration.operator.cleanup import StaleOperatorCleanup, is_past
from berth_kube.errors import ServerError
from berth_kube.resources import LEASES, NODES, PODS
from builders import NOON, FakeClock
from descheduler.fake_cluster import FakeCluster, call, failure, node
from waiting import soon

STALE_SECONDS = 30.0
EVERY_SECONDS = 2.0


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


def gated(name: str, labels: dict[str, str], *, slot_on: str = "", said: str = "SchedulingGated") -> dict[str, Any]:
    """A pod that waits, with a note if it has a slot on a node; what the condition PodScheduled says is said."""
    gates = [{"name": "theirs"}, {"name": HANDOVER_GATE}]
    notes = {SLOT_ANNOTATION: f"web/0/{slot_on}/5"} if slot_on else {}
    conditions = [{"type": "PodScheduled", "status": "False", "reason": said}]
    return {
        "metadata": {"name": name, "namespace": "shop", "labels": labels, "annotations": notes},
        "spec": {"schedulingGates": gates},
        "status": {"phase": "Pending", "conditions": conditions},
    }


def watch_over(made: FakeCluster, clock: FakeClock) -> StaleOperatorCleanup:
    return StaleOperatorCleanup(made, clock, "berth-system", every=EVERY_SECONDS, stale=STALE_SECONDS)  # type: ignore[arg-type]


def look_for(watch: StaleOperatorCleanup, clock: FakeClock, seconds: float) -> int:
    """Look as often as the watch does for some seconds, and return how much was taken off."""
    count = watch.look()
    for _ in range(int(seconds / EVERY_SECONDS)):
        clock.advance(EVERY_SECONDS)
        count += watch.look()
    return count


def release(made: FakeCluster, seconds: float) -> int:
    clock = FakeClock()
    return look_for(watch_over(made, clock), clock, seconds)


def gates(made: FakeCluster, name: str = "web-1") -> list[str]:
    return [gate["name"] for gate in made.objects["pods"]["shop", name]["spec"]["schedulingGates"]]


def test_an_operator_that_was_seen_silent_for_its_lease_and_no_longer_than_the_limit_is_left_to_its_work() -> None:
    made = cluster()
    assert release(made, 38) == 0
    assert gates(made) == ["theirs", HANDOVER_GATE]
    assert made.taints() == {"a": ["theirs", HANDOVER_TAINT]}


def test_after_its_lease_and_the_limit_gates_and_guards_go_and_others_stay() -> None:
    made = cluster()
    assert release(made, 40) == 2
    assert gates(made) == ["theirs"]
    assert made.taints() == {"a": ["theirs"]}


def renew(made: FakeCluster, text: str) -> None:
    made.merge_patch(LEASES, "berth-operator", {"spec": {"renewTime": text}}, namespace="berth-system")


def test_an_operator_that_renews_is_alive_whatever_the_clocks_say() -> None:
    made, clock = cluster(), FakeClock()
    watch = watch_over(made, clock)
    clock.advance(600)
    for second in range(10):
        renew(made, f"2020-01-01T00:00:0{second}.000000Z")
        assert look_for(watch, clock, 20) == 0
    assert gates(made) == ["theirs", HANDOVER_GATE]


def test_time_in_which_nobody_watched_is_no_silence() -> None:
    made, clock = cluster(), FakeClock()
    watch = watch_over(made, clock)
    assert look_for(watch, clock, 10) == 0
    clock.advance(300)  # this process was stopped
    assert watch.look() == 0


def test_time_in_which_the_api_server_was_away_is_no_silence() -> None:
    made, clock = cluster(), FakeClock()
    watch = watch_over(made, clock)
    watch.look()
    for _ in range(30):
        clock.advance(EVERY_SECONDS)
        made.faults["get leases"] = [ServerError(call("get", LEASES, "x"), failure(500))]
        with pytest.raises(ServerError):
            watch.look()
    clock.advance(EVERY_SECONDS)
    assert watch.look() == 0


def test_without_an_operator_ever_the_same_is_done() -> None:
    made = cluster(lease=False)
    assert release(made, 40) == 2


def test_a_pod_just_gated_is_left_for_a_while() -> None:
    made, clock = cluster(lease=False), FakeClock()
    watch = watch_over(made, clock)
    look_for(watch, clock, 30)
    made.add(PODS, {**gated("web-2", {RESERVATION_LABEL: "r"}), "metadata": young(clock)})
    assert look_for(watch, clock, 2) == 2
    assert gates(made, "web-2") == ["theirs", HANDOVER_GATE]


def young(clock: FakeClock) -> dict[str, Any]:
    created = format_precise_timestamp(clock.now())
    return {"name": "web-2", "namespace": "shop", "labels": {RESERVATION_LABEL: "r"}, "creationTimestamp": created}


@dataclass(frozen=True, kw_only=True)
class Kept:
    said: str
    kept_seconds: float
    phase: str = "Pending"


KEPT = {
    "runs": Kept(said="", kept_seconds=0, phase="Running"),
    "was tried by a scheduler, has had a minute": Kept(said="Unschedulable", kept_seconds=60),
    "was tried by nobody, has had a quarter of an hour": Kept(said="SchedulingGated", kept_seconds=900),
}


@pytest.mark.parametrize("case", KEPT.values(), ids=KEPT.keys())
def test_a_guard_stays_until_the_pod_that_was_let_go(case: Kept) -> None:
    made, clock = cluster(), FakeClock()
    waiting = gated("web-2", {RESERVATION_LABEL: "r"}, slot_on="a", said=case.said)
    waiting["status"]["phase"] = case.phase
    made.add(PODS, waiting)
    watch = watch_over(made, clock)
    look_for(watch, clock, 40 + case.kept_seconds - EVERY_SECONDS)
    assert gates(made, "web-2") == (["theirs"] if case.kept_seconds else ["theirs", HANDOVER_GATE])
    assert HANDOVER_TAINT in made.taints()["a"]
    look_for(watch, clock, EVERY_SECONDS)
    assert made.taints() == {"a": ["theirs"]}


def test_a_pod_that_is_tried_late_has_its_minute_from_then() -> None:
    made, clock = cluster(), FakeClock()
    made.add(PODS, gated("web-2", {RESERVATION_LABEL: "r"}, slot_on="a"))
    watch = watch_over(made, clock)
    look_for(watch, clock, 600)
    tried = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    made.merge_patch(PODS, "web-2", {"status": tried}, namespace="shop", subresource="status")
    look_for(watch, clock, 58)
    assert HANDOVER_TAINT in made.taints()["a"]
    look_for(watch, clock, 6)
    assert made.taints() == {"a": ["theirs"]}


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
        ("a number that no clock reaches", "9" * 400, True),
    ],
)
def test_a_guard_says_itself_when_it_is_left_over(claim: str, deadline: str, *, want: bool) -> None:
    assert is_past(deadline, NOON, STALE_SECONDS) is want, claim


def test_a_pod_that_changed_meanwhile_does_not_keep_the_others() -> None:
    made = cluster()
    made.add(PODS, gated("web-2", {RESERVATION_LABEL: "r"}))
    made.faults["patch pods"] = [ServerError(call("patch", PODS, "web-1"), failure(500))]
    assert release(made, 40) == 2
    assert gates(made) == ["theirs", HANDOVER_GATE]
    assert gates(made, "web-2") == ["theirs"]


def test_the_watch_looks_again_and_again_and_outlives_a_failure() -> None:
    made, clock = cluster(lease=False), FakeClock()
    made.faults["get leases"] = [ServerError(call("get", LEASES, "x"), failure(500))]

    def is_off() -> bool:
        clock.advance(1)
        return gates(made) == ["theirs"]

    with StaleOperatorCleanup(made, clock, "berth-system", every=0.01, stale=0.05):  # type: ignore[arg-type]
        soon("the gate is off", is_off)
