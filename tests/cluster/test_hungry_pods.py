"""Hungry pods of any priority and of both schedulers wait at a slot when it changes hands: its owner gets it."""

from contextlib import suppress
from typing import Final

import pytest

from berth_core.reservations import ReservationPhase, ReservationReason
from berth_kube.errors import AlreadyExistsError
from berth_kube.resources import DEPLOYMENTS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_deployment, make_priority_class, overbooked_nodes, pods
from fault_proxy import FaultProxy
from faults import FaultKind, HoldPlan
from handover_calls import deletes_the_placeholder
from proxied_operator import held, operator, proxy, undisturbed
from reservation_stage import Stage
from waiting import eventually

__all__ = ["operator", "proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]

SCHEDULERS: Final = ("default-scheduler", "second-scheduler")
HUNGRY_OF_EACH: Final = 3
SLOTS: Final = 8
"""As many pods of one cpu as the two nodes of a stage take."""
EVERYTHING: Final = [{"operator": "Exists"}]
HIGH: Final = "matrix-high"


@pytest.fixture(autouse=True)
def high(stage: Stage) -> None:
    """Have a priority class above the default."""
    with suppress(AlreadyExistsError):
        make_priority_class(stage.client, HIGH, 1000)


def fill_the_other_node(stage: Stage) -> None:
    stage.create_pod("filler", app="filler", nodeName=stage.nodes[1], priorityClassName=HIGH)


def create_hungry_pods(stage: Stage, priority_class: str = "", schedulers: tuple[str, ...] = SCHEDULERS) -> list[str]:
    """Create pods that nothing keeps from the slot but what holds it, and return their names.

    All but one of each scheduler tolerate every taint.
    """
    names = []
    for scheduler in schedulers:
        for number in range(HUNGRY_OF_EACH):
            names.append(f"hungry-{scheduler}-{number}")
            tolerations = EVERYTHING if number else []
            spec = {"schedulerName": scheduler, "priorityClassName": priority_class, "tolerations": tolerations}
            stage.create_pod(names[-1], app="hungry", **spec)
    return names


def wait_until_refused(stage: Stage, names: list[str]) -> None:
    """Wait until a scheduler has found no place for any of the pods."""
    eventually(
        "no scheduler finds a place",
        lambda: all(stage.pod(name).condition("PodScheduled") == "False" for name in names),
        seconds=60,
    )


def test_pods_that_tolerate_everything_get_no_place_that_changes_hands(stage: Stage) -> None:
    stage.reserve(template=stage.template(cpu="1"), replicas=SLOTS)
    stage.wait_until_proven()
    hungry = [
        build_deployment(
            f"hungry-{scheduler}",
            replicas=20,
            cpu="1",
            schedulerName=scheduler,
            nodeSelector=stage.selector,
            tolerations=EVERYTHING,
        )
        for scheduler in SCHEDULERS
    ]
    for body in hungry:
        stage.client.create(DEPLOYMENTS, body, namespace=stage.namespace)
    waiting = lambda: [p for p in pods(stage.client, stage.namespace) if p.condition("PodScheduled") == "False"]  # noqa: E731
    eventually("no scheduler finds a place", lambda: len(waiting()) == 40, seconds=120)

    owner = build_deployment("owner", replicas=SLOTS, cpu="1", nodeSelector=stage.selector)
    stage.client.create(DEPLOYMENTS, owner, namespace=stage.namespace)
    taken = stage.wait_for(ReservationPhase.SUCCEEDED, seconds=120)

    kept = [p for p in pods(stage.client, stage.namespace, app="owner") if p.spec.node_name]
    assert len(kept) == SLOTS
    assert {slot.node for slot in taken.status.slots} == set(stage.nodes)
    assert len(waiting()) == 40
    assert overbooked_nodes(stage.client) == []


@pytest.mark.parametrize("owner_priority", ["", HIGH], ids=["equal", "lower"])
def test_hungry_pods_get_nothing_where_their_priority_beside_the_owners_is(stage: Stage, owner_priority: str) -> None:
    stage.reserve(nodes=[stage.nodes[0]], template=stage.template(priorityClassName=owner_priority))
    stage.wait_until_proven()
    fill_the_other_node(stage)
    hungry = create_hungry_pods(stage)
    wait_until_refused(stage, hungry)

    stage.create_pod("owner", priorityClassName=owner_priority)
    stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert stage.pod("owner").spec.node_name == stage.nodes[0]
    assert [name for name in hungry if stage.pod(name).spec.node_name] == []
    assert overbooked_nodes(stage.client) == []


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_pods_of_higher_priority_wait_until_a_hand_over_is_done(
    proxy: FaultProxy, stage: Stage, scheduler: str
) -> None:
    # One scheduler at a time: two that preempt the owner afterwards over-book the node by themselves.
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    fill_the_other_node(stage)
    with held(proxy, HoldPlan(deletes_the_placeholder, FaultKind.PAUSE)) as hold:
        stage.create_pod("owner")
        assert hold.reached.wait(120)
        hungry = create_hungry_pods(stage, HIGH, (scheduler,))
        wait_until_refused(stage, hungry)

    taken = stage.wait_for(ReservationPhase.SUCCEEDED, seconds=60)
    assert taken.status.slots[0].node == stage.nodes[0]
    assert overbooked_nodes(stage.client) == []


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_pods_of_higher_priority_preempt_a_place_that_is_only_held(
    sandbox: Sandbox, stage: Stage, scheduler: str
) -> None:
    # One scheduler at a time, for the same reason.
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    fill_the_other_node(stage)
    sandbox.suspend("kwok")  # the placeholder is there until the operator has seen why it goes
    try:
        hungry = create_hungry_pods(stage, HIGH, (scheduler,))
        ended = stage.wait_for(ReservationPhase.FAILED, seconds=60)
    finally:
        sandbox.resume("kwok")
    assert ended.status.state is not None
    assert ended.status.state.reason == ReservationReason.PREEMPTED
    eventually("one of them runs", lambda: any(stage.pod(name).spec.node_name for name in hungry), seconds=60)
    assert overbooked_nodes(stage.client) == []
