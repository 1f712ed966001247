"""Slots that are held are given to the oldest pods that fit, each once, and all others go their own way."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.labels import HANDOVER_GATE
from berth_core.reservations import SlotState
from berth_operator.reservation.actions import AssignSlot, Release
from berth_operator.settings import OperatorSettings
from builders import NOON
from handover_builders import PROVEN, decide_now, note, observe, owner_pod, place, placeholder, slot, told

SETTINGS = OperatorSettings()
HELD = place(slot(SlotState.HELD))


def test_a_gated_pod_is_given_a_held_slot_until_a_deadline() -> None:
    (assign,) = decide_now(observe(HELD, placeholder(), owner_pod(), probe=PROVEN)).actions
    want = note(deadline=int(NOON.timestamp()) + int(SETTINGS.handover.timeout_seconds))
    assert assign == AssignSlot(owner_pod(), want)


@dataclass(frozen=True, kw_only=True)
class Giving:
    pods: tuple[Pod, ...]
    want: list[tuple[str, str]]


GIVINGS = {
    "the oldest pods are served, the others go their own way": Giving(
        pods=(owner_pod("web-0"), owner_pod("web-1"), owner_pod("web-2")),
        want=[("AssignSlot", "web-0"), ("AssignSlot", "web-1"), ("Release", "web-2")],
    ),
    "a pod without our gate is not served: it may be bound by now": Giving(
        pods=(owner_pod(gates=()),), want=[("Release", "web-0")]
    ),
    "a pod with another's gate waits, and its slot with it": Giving(
        pods=(owner_pod("web-0", gates=("example.com/wait", HANDOVER_GATE)), owner_pod("web-1"), owner_pod("web-2")),
        want=[("AssignSlot", "web-1"), ("Release", "web-2")],
    ),
    "a pod that asks for more than is held goes its own way": Giving(
        pods=(owner_pod(cpu="4"),), want=[("Release", "web-0")]
    ),
    "a pod that is no owner goes its own way": Giving(
        pods=(owner_pod(labels={"app": "db", "berth.volcano.sh/reservation": "uid-default-place"}),),
        want=[("Release", "web-0")],
    ),
    "a pod that is being deleted is left alone": Giving(pods=(owner_pod(deleted="2026-11-21T12:00:01Z"),), want=[]),
    "a note of a slot that does not exist is no note": Giving(
        pods=(owner_pod(given=note(7)),), want=[("AssignSlot", "web-0")]
    ),
    "a note of a node that is not the slot's is no note": Giving(
        pods=(owner_pod(given=note(node="node-z")),), want=[("AssignSlot", "web-0")]
    ),
    "a note on a stranger is no note": Giving(
        pods=(owner_pod(given=note(), labels={"app": "db", "berth.volcano.sh/reservation": "uid-default-place"}),),
        want=[("Release", "web-0")],
    ),
    "a note on a larger pod is no note": Giving(pods=(owner_pod(given=note(), cpu="4"),), want=[("Release", "web-0")]),
    "of two pods with one slot the oldest has it": Giving(
        pods=(owner_pod("web-0", given=note()), owner_pod("web-1", given=note())), want=[("AssignSlot", "web-1")]
    ),
}


@pytest.mark.parametrize("case", GIVINGS.values(), ids=GIVINGS.keys())
def test_giving_slots(case: Giving) -> None:
    both = place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2)
    decision = decide_now(observe(both, placeholder(0), placeholder(1), *case.pods, probe=PROVEN))
    assert [told(action) for action in decision.actions] == case.want


@given(pods=st.integers(0, 6), slots=st.integers(1, 6))
def test_no_slot_is_given_twice_and_no_pod_is_left_between(pods: int, slots: int) -> None:
    reservation = place(*(slot(SlotState.HELD, number) for number in range(slots)), replicas=slots)
    holders = [placeholder(number) for number in range(slots)]
    owners = [owner_pod(f"web-{number}") for number in range(pods)]

    actions = decide_now(observe(reservation, *holders, *owners, probe=PROVEN)).actions

    given_slots = [(a.assignment.task, a.assignment.index) for a in actions if isinstance(a, AssignSlot)]
    served = [a.pod.metadata.name for a in actions if isinstance(a, AssignSlot)]
    released = [a.pod.metadata.name for a in actions if isinstance(a, Release)]
    assert len(set(given_slots)) == len(given_slots) == min(pods, slots)
    assert sorted(served + released) == sorted(pod.metadata.name for pod in owners)
