"""What becomes of a Reservation for a starving gang whose pods come, go, or are placed elsewhere."""

from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from msgspec.structs import replace

from berth_core import (
    RESERVATION_LABEL,
    STARVING_JOB_LABEL,
    Pod,
    PodCondition,
    PodStatus,
    Reservation,
    SlotState,
    Snapshot,
)
from berth_core.labels import HANDOVER_GATE
from berth_core.reservations import ReservationPhase, ReservationState, ReservationStatus, Slot
from berth_descheduler.capabilities.starving_jobs.pending_jobs import find_pending_jobs
from berth_descheduler.capabilities.starving_jobs.slots_needed import SlotNeed, slots_needed
from builders import bare_pod, label_owner, node, reservation, task, volcano_pod_group

UID: Final = "uid-default-group"
KEPT: Final = "uid-default-starving"
GROUP: Final = {"scheduling.k8s.io/group-name": "group"}
UNPLACED: Final = (PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)
PLACED: Final = "the job is gone, runs, or has no pod that waits"


def member(name: str, *, cpu: str = "1", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on what the case says
    return bare_pod(name, cpu=cpu, memory=None, annotations=GROUP, **rest)


def waits(name: str, **rest: Any) -> Pod:  # noqa: ANN401 - as above
    made = member(name, phase="Pending", **rest)
    return replace(made, status=replace(made.status, conditions=UNPLACED))


def sent(name: str, *, to: str = KEPT, namespace: str = "default", gates: tuple[str, ...] = (HANDOVER_GATE,)) -> Pod:
    """A pod behind our gate, or ungated in its hand-over."""
    return member(name, phase="Pending", labels={RESERVATION_LABEL: to}, gates=gates, namespace=namespace)


def elsewhere(name: str) -> Pod:
    return member(name, node="other")


def slot(index: int, state: SlotState) -> Slot:
    return Slot(task="room", index=index, state=state, node=f"n{index}")


def kept(*states: SlotState, wanted: int | None = None, cpu: str = "1", **rest: Any) -> Reservation:  # noqa: ANN401 - as above
    """The Reservation of the gang `group`, with a slot for each state."""
    made = reservation(
        "starving",
        uid=KEPT,
        labels={STARVING_JOB_LABEL: UID},
        owners=[label_owner(app="any")],
        tasks=[task("room", cpu=cpu, replicas=len(states))],
        status=ReservationStatus(
            state=ReservationState(phase=ReservationPhase.WAITING),
            slots=tuple(slot(index, state) for index, state in enumerate(states)),
        ),
    )
    spec = {"all_or_nothing": True, "min_available": wanted, "scheduler_name": "default-scheduler", **rest}
    return replace(made, spec=replace(made.spec, **spec))


HELD, PENDING, TAKEN, LOST = SlotState.HELD, SlotState.PENDING, SlotState.TAKEN, SlotState.LOST
THREE: Final = kept(HELD, PENDING, PENDING)


@dataclass(frozen=True, kw_only=True)
class Case:
    pods: tuple[Pod, ...]
    kept: Reservation = THREE
    minimum: int | None = 3
    want: SlotNeed = field(default_factory=SlotNeed)


CASES: Final = {
    "all wait": Case(pods=(waits("a"), waits("b"), waits("c"))),
    "one was placed elsewhere: two slots suffice": Case(
        pods=(waits("a"), waits("b"), elsewhere("c")), want=SlotNeed(wanted=2)
    ),
    "two were placed elsewhere: one slot suffices": Case(
        pods=(waits("a"), elsewhere("b"), elsewhere("c")), want=SlotNeed(wanted=1)
    ),
    "that was said already": Case(
        pods=(waits("a"), waits("b"), elsewhere("c")), kept=kept(HELD, PENDING, PENDING, wanted=2)
    ),
    "another one was placed since": Case(
        pods=(waits("a"), elsewhere("b"), elsewhere("c")),
        kept=kept(HELD, PENDING, PENDING, wanted=2),
        want=SlotNeed(wanted=1),
    ),
    "one that was placed has ended: more than was said": Case(
        pods=(waits("a"), waits("b"), waits("c")),
        kept=kept(HELD, PENDING, PENDING, wanted=2),
        want=SlotNeed("the job needs 3 slots by now, and 3 are kept for it"),
    ),
    "all run": Case(pods=(elsewhere("a"), elsewhere("b"), elsewhere("c")), want=SlotNeed(PLACED)),
    "all are gone": Case(pods=(), want=SlotNeed(PLACED)),
    "one does not exist for the moment": Case(pods=(waits("a"), waits("b"))),
    "one is gone of a group that only its pods name": Case(
        pods=(waits("a"), waits("b")), minimum=None, want=SlotNeed(wanted=2)
    ),
    "more are needed than are kept": Case(
        pods=tuple(waits(name) for name in "abcd"),
        minimum=4,
        want=SlotNeed("the job needs 4 slots by now, and 3 are kept for it"),
    ),
    "more are needed, and some wait behind our gate": Case(
        pods=(sent("a"), *(waits(name) for name in "bcd")), minimum=4
    ),
    "all wait behind our gate": Case(pods=(sent("a"), sent("b"), sent("c"))),
    "some wait behind our gate, the others not yet": Case(pods=(sent("a"), sent("b"), waits("c"))),
    "some wait behind our gate, the others do not exist yet": Case(pods=(sent("a"), sent("b"))),
    "one was placed elsewhere, and the others wait behind our gate": Case(
        pods=(sent("a"), sent("b"), elsewhere("c")), want=SlotNeed(wanted=2)
    ),
    "the same in a hand-over": Case(
        pods=(sent("a", gates=()), sent("b"), elsewhere("c")),
        kept=kept(SlotState.HANDING_OVER, HELD, PENDING),
    ),
    "one took its slot, and one was placed elsewhere": Case(
        pods=(elsewhere("a"), elsewhere("b"), waits("c")), kept=kept(TAKEN, HELD, PENDING), want=SlotNeed(wanted=2)
    ),
    "one took its slot, and one slot was lost": Case(
        pods=(elsewhere("a"), waits("b"), waits("c")),
        kept=kept(TAKEN, HELD, PENDING, LOST, wanted=3),
    ),
    "one was placed elsewhere, and its slot was lost: the slot that is left suffices": Case(
        pods=(elsewhere("a"), waits("b")), minimum=2, kept=kept(LOST, HELD, wanted=2), want=SlotNeed(wanted=1)
    ),
    "another namespace's pod says that it waits for it": Case(
        pods=(elsewhere("a"), elsewhere("b"), elsewhere("c"), sent("x", namespace="mallory")), want=SlotNeed(PLACED)
    ),
    "a pod of the gang is sent to another Reservation": Case(
        pods=(waits("a"), waits("b"), sent("c", to="uid-default-window")), want=SlotNeed(wanted=2)
    ),
    "what is left fits no slot": Case(
        pods=(waits("a", cpu="2"), elsewhere("b"), elsewhere("c")),
        want=SlotNeed("the job needs 1 slots by now, and 3 are kept for it"),
    ),
    "its slots change hands one by one": Case(
        pods=(waits("a"), elsewhere("b"), elsewhere("c")),
        kept=kept(HELD, PENDING, PENDING, all_or_nothing=False),
        want=SlotNeed("the job needs 1 slots by now, and 3 are kept for it"),
    ),
    "Volcano places its placeholders together": Case(
        pods=(waits("a"), elsewhere("b"), elsewhere("c")),
        kept=kept(HELD, PENDING, PENDING, scheduler_name="volcano"),
        want=SlotNeed("the job needs 1 slots by now, and 3 are kept for it"),
    ),
    "its template cannot be read": Case(
        pods=(waits("a"), elsewhere("b"), elsewhere("c")),
        kept=kept(HELD, PENDING, PENDING, cpu="much"),
        want=SlotNeed("the job needs 1 slots by now, and 3 are kept for it"),
    ),
    "its group needs none": Case(pods=(waits("a"), elsewhere("b"), elsewhere("c")), minimum=0, want=SlotNeed(PLACED)),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_what_a_gang_needs_of_its_reservation_where(case: Case) -> None:
    groups = () if case.minimum is None else (volcano_pod_group(min_member=case.minimum),)
    snapshot = Snapshot(nodes=(node("other"),), pods=case.pods, pod_groups=groups, reservations=(case.kept,))
    jobs = find_pending_jobs(snapshot, on_their_way=True)
    of_group = case.kept
    if case.minimum is None and jobs:
        labels = {STARVING_JOB_LABEL: jobs[0].uid}
        of_group = replace(of_group, metadata=replace(of_group.metadata, labels=labels))
    assert slots_needed(of_group, snapshot, jobs) == case.want


# --- nodes that half of another gang took before the fence stood


OTHER_GROUP: Final = "scheduling.x-k8s.io/pod-group"
TWO: Final = kept(HELD, PENDING)


def of_other(name: str, *, node: str = "", cpu: str = "1") -> Pod:
    made = bare_pod(name, cpu=cpu, memory=None, node=node, labels={OTHER_GROUP: "other"}, phase="Running")
    if node:
        return made
    return replace(made, status=PodStatus(phase="Pending", conditions=UNPLACED))


IN_VAIN: Final = "n1 is in use by pods of default/other, which waits for others itself"
HALF: Final = (of_other("other-0", node="n1"), of_other("other-1"))
FOR_OTHER: Final = replace(
    reservation("for-other", owners=[label_owner(**{OTHER_GROUP: "other"})], tasks=[task("room", cpu="1", replicas=1)]),
    status=ReservationStatus(state=ReservationState(phase=ReservationPhase.WAITING)),
)

GANGS: Final[dict[str, tuple[tuple[Pod, ...], Reservation, tuple[Reservation, ...], str]]] = {
    "it waits for a node of half a gang": (HALF, TWO, (), IN_VAIN),
    "its slot there is held already": (HALF, kept(HELD, HELD), (), ""),
    "something is kept for the other gang": (HALF, TWO, (FOR_OTHER,), ""),
    "the other gang is whole": ((HALF[0], of_other("other-1", node="n0")), TWO, (), ""),
    "there is room beside half a gang": ((of_other("other-0", node="n1", cpu="500m"), HALF[1]), TWO, (), ""),
    "half a gang is on a node that it does not wait for": (
        (of_other("other-0", node="n2"), HALF[1]),
        TWO,
        (),
        "",
    ),
    "a pod of its own waits behind our gate": ((*HALF, sent("b")), TWO, (), ""),
}


@pytest.mark.parametrize(("others", "mine", "more", "why"), GANGS.values(), ids=GANGS.keys())
def test_a_reservation_is_in_vain_where_half_of_another_gang_is_in_its_way(
    others: tuple[Pod, ...], mine: Reservation, more: tuple[Reservation, ...], why: str
) -> None:
    own = tuple(waits(name) for name in "ab" if name not in {pod.metadata.name for pod in others})
    nodes = tuple(node(name, cpu="1500m") for name in ("n0", "n1", "n2"))
    groups = (volcano_pod_group(min_member=2),)
    snapshot = Snapshot(nodes=nodes, pods=(*own, *others), pod_groups=groups, reservations=(mine, *more))
    assert slots_needed(mine, snapshot, find_pending_jobs(snapshot, on_their_way=True)) == SlotNeed(why)
