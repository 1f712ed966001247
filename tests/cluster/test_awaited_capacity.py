"""A Reservation that waits for capacity gets what ends on its nodes, and nobody else does."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from berth_core import Pod
from berth_core.clock import format_timestamp, parse_timestamp
from berth_core.labels import BEST_EFFORT_LABEL, STANDING_FENCE_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import ReservationPhase, SlotState
from berth_kube.resources import NODES, PODS, RESERVATIONS
from reservation_stage import Stage
from waiting import eventually as eventually_within

ONE_MILLICPU: Final = {"resources": {"requests": {"cpu": "1m"}}}

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("operator")]


def eventually(claim: str, reached: Callable[[], bool], *, seconds: float = 60) -> None:
    eventually_within(claim, reached, seconds=seconds)


def fenced(stage: Stage) -> list[str]:
    """Return the nodes that any standing fence is on."""
    found = stage.client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod).items
    fences = [pod for pod in found if pod.spec.node_name in stage.nodes and not pod.is_terminating]
    return sorted({pod.spec.node_name for pod in fences})


def message(stage: Stage) -> str:
    state = stage.read().status.state
    return state.message if state else ""


def fill(stage: Stage, **runtimes: str) -> None:
    """Run a pod of a whole node on each node, with what it says of its runtime."""
    for node, (name, runtime) in zip(stage.nodes, runtimes.items(), strict=True):
        body = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": "old"}, nodeName=node)}
        notes = {"volcano.sh/maximum-runtime": runtime} if runtime else {}
        body["metadata"] |= {"name": name, "annotations": notes}
        stage.client.create(PODS, body, namespace=stage.namespace)
    eventually("the nodes are full", lambda: all(stage.pod(name).status.phase == "Running" for name in runtimes))


def end(stage: Stage, name: str) -> None:
    stage.client.delete(PODS, name, namespace=stage.namespace, grace_seconds=0)


def test_what_ends_on_the_chosen_node_goes_to_the_slot_and_then_to_its_owner(stage: Stage) -> None:
    fill(stage, service="", batch="1h")
    stage.reserve(capacity="WhenFree", fence="Node")

    waiting = stage.wait_for(ReservationPhase.WAITING)
    (slot,) = waiting.status.slots
    assert (slot.state, slot.node) == (SlotState.PENDING, stage.nodes[1])  # the one that says when it ends
    eventually("its expected end is told", lambda: stage.read().status.slots[0].expected_at is not None)
    expected = parse_timestamp(stage.read().status.slots[0].expected_at or "")
    assert timedelta(minutes=55) < expected - datetime.now(UTC) <= timedelta(hours=1)
    assert "its pods have ended, expected at" in message(stage)

    eventually("the node is fenced", lambda: fenced(stage) == [stage.nodes[1]])
    hungry = [f"hungry-{number}" for number in range(5)]
    for name in hungry:
        stage.create_pod(name, app="hungry", tolerations=[{"operator": "Exists"}])
    eventually("the hungry wait", lambda: all(stage.pod(name).condition("PodScheduled") == "False" for name in hungry))
    end(stage, "batch")
    assert stage.wait_for(ReservationPhase.AVAILABLE).status.node == stage.nodes[1]
    eventually("the fence is gone", lambda: not fenced(stage))
    assert [name for name in hungry if stage.pod(name).spec.node_name] == []

    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED)
    assert stage.pod("owner").spec.node_name == stage.nodes[1]


def test_pods_without_requests_get_onto_a_fenced_node(stage: Stage) -> None:
    """They may use no other node."""
    fill(stage, one="", another="1h")
    stage.reserve(capacity="WhenFree", fence="Node")
    eventually("the other node is fenced", lambda: fenced(stage) == [stage.nodes[1]])

    idle = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": "idle"})}
    idle["spec"]["nodeSelector"] = {"kubernetes.io/hostname": stage.nodes[1]}
    idle["metadata"]["name"] = "idle"
    del idle["spec"]["containers"][0]["resources"]
    stage.client.create(PODS, idle, namespace=stage.namespace)
    hungry = {**idle, "metadata": {"name": "hungry"}}
    hungry["spec"] = idle["spec"] | {"containers": [idle["spec"]["containers"][0] | ONE_MILLICPU]}
    stage.client.create(PODS, hungry, namespace=stage.namespace)

    eventually("the pod without requests runs there", lambda: stage.pod("idle").spec.node_name == stage.nodes[1])
    assert stage.pod("hungry").spec.node_name == ""
    assert BEST_EFFORT_LABEL not in stage.pod("hungry").metadata.labels


def test_a_node_that_is_gone_is_chosen_no_more_and_its_fence_goes(stage: Stage) -> None:
    fill(stage, service="", batch="1h")
    stage.reserve(capacity="WhenFree", fence="Node")
    eventually("the node is fenced", lambda: fenced(stage) == [stage.nodes[1]])
    stage.client.delete(NODES, stage.nodes[1])
    eventually(
        "another node is chosen and fenced",
        lambda: fenced(stage) == [stage.nodes[0]],
        seconds=120,
    )
    eventually("the status names it", lambda: stage.read().status.slots[0].node == stage.nodes[0])


def test_what_fits_no_node_even_when_empty_says_so(stage: Stage) -> None:
    stage.reserve(template=stage.template(cpu="5"), capacity="WhenFree", fence="Node", ttl=None)
    eventually(
        "it says so", lambda: "of 2 nodes that admit its pods none has enough allocatable room" in message(stage)
    )
    assert stage.read().phase is ReservationPhase.PENDING
    assert fenced(stage) == []


def test_a_gang_gets_all_of_its_slots_or_none(stage: Stage) -> None:
    stage.reserve(replicas=2, allOrNothing=True)
    stage.wait_until_proven()
    stage.create_pod("first")
    eventually("it waits gated", lambda: stage.pod("first").is_gated)
    stage.create_pod("second")
    stage.wait_for(ReservationPhase.SUCCEEDED)
    assert {stage.pod(name).spec.node_name for name in ("first", "second")} == set(stage.nodes)


def test_a_reservation_that_ends_while_it_waits_leaves_nothing(stage: Stage) -> None:
    fill(stage, one="", another="")
    stage.reserve(capacity="WhenFree", fence="Node", ttl="1h")
    eventually("a node is fenced", lambda: len(fenced(stage)) == 1)
    soon_over = {"spec": {"ttl": None, "expires": format_timestamp(datetime.now(UTC) + timedelta(seconds=1))}}
    stage.client.merge_patch(RESERVATIONS, "place", soon_over, namespace=stage.namespace)
    stage.wait_for(ReservationPhase.FAILED)
    stage.wait_until_empty()
    eventually("the fence is gone", lambda: not fenced(stage))
