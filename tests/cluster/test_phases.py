"""Every phase and reason is reached as its page says, reported once, and survives other writers."""

import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pytest

from berth_core.clock import parse_timestamp
from berth_core.labels import QUEUE_ANNOTATION
from berth_core.reservations import ConditionType, Reservation, ReservationPhase, SlotState
from berth_kube.errors import InvalidObjectError
from berth_kube.resources import PODS, PRIORITY_CLASSES, RESERVATIONS
from berth_sandbox.binaries import find_kubectl
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, make_priority_class, told_reasons
from reservation_stage import WHOLE_NODE, Stage
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]

FINALIZER: Final = "example.com/not-yet"
RESTRICTED: Final = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def reason(stage: Stage, name: str = "place") -> tuple[str, str]:
    state = stage.read(name).status.state
    return (state.phase, state.reason) if state else ("", "")


def told(stage: Stage, name: str = "place") -> list[str]:
    return told_reasons(stage.client, name, namespace=stage.namespace)


def test_a_place_whose_pods_are_terminating_is_waited_for(stage: Stage) -> None:
    stage.create_pod("old", app="old", nodeName=stage.nodes[0])
    stage.client.merge_patch(PODS, "old", {"metadata": {"finalizers": [FINALIZER]}}, namespace=stage.namespace)
    stage.reserve(nodes=[stage.nodes[0]])
    eventually("no place is found", lambda: reason(stage) == ("Pending", "UnschedulableYet"), seconds=60)

    stage.client.delete(PODS, "old", namespace=stage.namespace, grace_seconds=0)

    waiting = stage.wait_for(ReservationPhase.WAITING)
    assert waiting.status.state is not None
    assert waiting.status.state.reason == "AwaitingCapacity"
    assert f"node {stage.nodes[0]} is chosen" in waiting.status.state.message
    assert f"{stage.namespace}/old" in waiting.status.state.message
    stage.client.merge_patch(PODS, "old", {"metadata": {"finalizers": []}}, namespace=stage.namespace)
    assert stage.wait_for(ReservationPhase.AVAILABLE).status.node == stage.nodes[0]
    eventually("each change is told once", lambda: told(stage) == ["Available", "Waiting"], seconds=60)


@pytest.mark.deep
def test_without_a_place_for_too_long_it_fails_in_the_scheduler_s_words(
    operator: OperatorProcess, stage: Stage, sandbox: Sandbox, tmp_path: Path
) -> None:
    operator.stop()
    try:
        with running_operator(sandbox, tmp_path, "--unschedulable-seconds", "2"):
            stage.reserve(template=stage.template(cpu="64"), replicas=2, ttl=None)
            ended = stage.wait_for(ReservationPhase.FAILED)
            assert ended.status.state is not None
            assert ended.status.state.reason == "Unschedulable"
            assert "Insufficient cpu" in ended.status.state.message
            stage.wait_until_empty()
    finally:
        operator.start()


def test_an_owner_of_another_namespace_is_refused_in_clear_words(stage: Stage) -> None:
    owners = [{"object": {"kind": "ReplicaSet", "name": "web", "namespace": "kube-system"}}]
    body = build_reservation("place", cpu=WHOLE_NODE, owners=owners, template=stage.template())
    with pytest.raises(InvalidObjectError, match="namespace is the Reservation's own, or left out"):
        stage.client.create(RESERVATIONS, body, namespace=stage.namespace)


def test_a_slot_more_than_is_wanted_may_be_lost(stage: Stage) -> None:
    """A pod of higher priority takes the place of one of two; the other stays, and the first is held again."""
    urgent = f"urgent-{stage.namespace}"
    make_priority_class(stage.client, urgent, 1000)
    try:
        stage.reserve(replicas=2, minAvailable=1)
        eventually("both are held", lambda: counts(stage) == (2, 0), seconds=60)

        stage.create_pod("urgent", app="urgent", priorityClassName=urgent)

        eventually("the urgent pod runs", lambda: stage.pod("urgent").status.phase == "Running", seconds=60)
        eventually("one slot is left", lambda: counts(stage) == (1, 1), seconds=60)
        assert stage.read().phase is ReservationPhase.AVAILABLE
        stage.client.delete(PODS, "urgent", namespace=stage.namespace, grace_seconds=0)
        eventually("both are held again", lambda: counts(stage) == (2, 0), seconds=60)
    finally:
        stage.client.delete(PRIORITY_CLASSES, urgent)


def counts(stage: Stage) -> tuple[int | None, int | None]:
    """Return how many slots are held and how many are still to be."""
    status = stage.read().status
    return status.available, status.pending


def test_kubectl_waits_for_the_condition(stage: Stage, sandbox: Sandbox) -> None:
    command = [str(find_kubectl(print)), "--kubeconfig", str(sandbox.kubeconfig), "-n", stage.namespace]
    wait = [*command, "wait", "reservation/place", "--timeout=180s"]
    stage.reserve(nodes=[stage.nodes[0]])
    for condition in ("Available", "HandoverReady"):
        subprocess.run([*wait, f"--for=condition={condition}"], timeout=240, check=True)
    stage.create_pod("owner")
    subprocess.run([*wait, "--for=condition=Succeeded"], timeout=240, check=True)

    ended = stage.read()
    assert {c.observed_generation for c in ended.status.conditions} == {ended.metadata.generation}


def test_who_forgets_an_end_is_warned_once(stage: Stage) -> None:
    stage.reserve(ttl=None)
    held = stage.wait_until_proven()
    assert not held.condition(ConditionType.BOUNDED)
    eventually("it is told", lambda: told(stage) == ["Available", "NeverExpires"], seconds=60)

    stage.client.merge_patch(RESERVATIONS, "place", {"spec": {"ttl": "10m"}}, namespace=stage.namespace)

    eventually("it has an end", lambda: stage.read().condition(ConditionType.BOUNDED), seconds=60)
    assert stage.read().status.observed_generation == 2
    assert told(stage).count("NeverExpires") == 1


def test_the_queue_goes_with_the_placeholder(stage: Stage) -> None:
    stage.reserve(queue="batch")
    stage.wait_for(ReservationPhase.AVAILABLE)
    assert stage.placeholders()[0].metadata.annotations[QUEUE_ANNOTATION] == "batch"
    assert stage.read().spec.queue == "batch"


def test_nobody_else_can_say_that_a_slot_was_taken(stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    before = settled(stage)
    placeholder = stage.placeholders()[0].metadata.uid

    forged = {"slots": [{"task": "main", "index": 0, "state": "Taken", "node": "elsewhere"}]}
    stage.client.merge_patch(RESERVATIONS, "place", {"status": forged}, namespace=stage.namespace, subresource="status")

    eventually("the status is as it was", lambda: stage.read().status == before.status, seconds=60)
    time.sleep(0.5)
    assert [pod.metadata.uid for pod in stage.placeholders()] == [placeholder]
    stage.create_pod("owner")
    taken = stage.wait_for(ReservationPhase.SUCCEEDED)
    assert taken.status.slots[0].state is SlotState.TAKEN
    assert stage.pod("owner").spec.node_name == stage.nodes[0]


def settled(stage: Stage) -> Reservation:
    """Return the Reservation when it is proven and nothing has been written for a while."""
    seen = [stage.wait_until_proven()]

    def is_quiet() -> bool:
        time.sleep(1)
        seen.append(stage.read())
        return seen[-1].metadata.resource_version == seen[-2].metadata.resource_version

    eventually("nothing is written any more", is_quiet, seconds=60)
    return seen[-1]


def lives(stage: Stage) -> tuple[str, int, str]:
    """Return the uid, the deadline and the phase of the only placeholder, blanks while one hands over to the next."""
    found = [pod for pod in stage.placeholders() if not pod.is_terminating]
    if len(found) != 1:
        return "", 0, ""
    return found[0].metadata.uid, found[0].spec.active_deadline_seconds or 0, found[0].status.phase


@pytest.mark.deep
def test_an_extended_reservation_keeps_its_place_though_others_want_it(stage: Stage) -> None:
    """No placeholder can be let run longer: another takes its place, and a hungry pod of the same priority does not."""
    stage.create_pod("filler", app="filler", nodeName=stage.nodes[1])
    stage.reserve(nodes=[stage.nodes[0]], ttl="10m")
    created = parse_timestamp(stage.wait_until_proven().metadata.creation_timestamp or "")
    stage.create_pod("hungry", app="hungry")
    eventually("it is hungry", lambda: stage.pod("hungry").condition("PodScheduled") == "False", seconds=60)
    eventually("it is told", lambda: told(stage) == ["Available"], seconds=60)
    first, longest, _ = lives(stage)

    def extend(seconds: int) -> None:
        ttl = f"{int((datetime.now(UTC) - created).total_seconds()) + seconds}s"
        stage.client.merge_patch(RESERVATIONS, "place", {"spec": {"ttl": ttl}}, namespace=stage.namespace)

    extend(65)  # another placeholder comes two minutes before the first ends, a minute after its Reservation: in 5 s
    eventually("it ends earlier", lambda: lives(stage)[1] < longest and lives(stage)[0] == first)
    extend(1200)

    def another_lasts() -> bool:
        uid, seconds, phase = lives(stage)
        return uid not in {"", first} and seconds > 1100 and phase == "Running"

    eventually("another placeholder runs, and for long", another_lasts, seconds=60)
    eventually("nothing is left", lambda: not [x for x in stage.leftovers() if "hungry" not in x], seconds=60)
    assert stage.read().phase is ReservationPhase.AVAILABLE
    assert stage.pod("hungry").spec.node_name == ""
    assert told(stage) == ["Available"], "nobody was told that it was not Available"
    stage.client.delete(PODS, "hungry", namespace=stage.namespace, grace_seconds=0)
    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED)
    assert stage.pod("owner").spec.node_name == stage.nodes[0]


def test_a_shortened_reservation_s_placeholder_ends_earlier_too(stage: Stage) -> None:
    stage.reserve(ttl="0s")
    stage.wait_for(ReservationPhase.AVAILABLE)
    first, seconds, _ = lives(stage)
    assert seconds == 0

    stage.client.merge_patch(RESERVATIONS, "place", {"spec": {"ttl": "10m"}}, namespace=stage.namespace)

    eventually("it has an end", lambda: 560 < lives(stage)[1] <= 661, seconds=60)
    assert lives(stage)[0] == first
