"""Pods of any size share the slots of a window: a larger pod takes several of one node, all in one hand-over."""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from berth_core import (
    DividedAmounts,
    ObjectMeta,
    ObjectReference,
    Occurrence,
    Pod,
    Reservation,
    ReservationTask,
    ReservationWindow,
    SlotState,
    slots_needed,
)
from berth_core.labels import HANDOVER_GATE, SLOTS_ADD_UP_ANNOTATION
from berth_core.resources import ResourceAmounts
from berth_core.windows import ReservationWindowSpec
from berth_operator.capabilities.windows.manifests import build_window_reservation
from berth_operator.reservation.actions import (
    Action,
    AssignSlot,
    CompleteHandover,
    DeletePlaceholder,
    ExtendHandover,
    Nominate,
    Release,
    Ungate,
)
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.decide import decide
from berth_operator.reservation.fitting import FreeSlots, slots_by_key, trusted_assignment, why_not_fitting
from berth_operator.settings import OperatorSettings
from builders import NOON, pod, task
from handover_builders import (
    DEADLINE,
    PROVEN,
    UNSCHEDULABLE,
    decide_now,
    guard,
    note,
    observe,
    owner_pod,
    place,
    placeholder,
    slot,
    told,
    with_condition,
)
from properties import holds_for

PART: Final = task("web", cpu="2", memory="2Gi", replicas=10)
FIVE: Final = task("web", cpu="2", memory="2Gi", replicas=5)
FOUR: Final = Assignment("web", 0, "node-a", DEADLINE, (1, 2, 3))


def shared(
    *slots: tuple[int, str],
    part: ReservationTask = PART,
    state: SlotState = SlotState.HELD,
    sum_of: str = "true",
) -> Reservation:
    """A Reservation whose slots, given by index and node, add up."""
    return with_sum(place(*(slot(state, index, node=node) for index, node in slots), tasks=[part]), sum_of)


def with_sum(made: Reservation, sum_of: str = "true") -> Reservation:
    meta = msgspec.structs.replace(made.metadata, annotations={SLOTS_ADD_UP_ANNOTATION: sum_of})
    return msgspec.structs.replace(made, metadata=meta)


def parts_on(**nodes: int) -> list[tuple[int, str]]:
    """Number slots on nodes one after the other."""
    names = [node.replace("_", "-") for node, number in nodes.items() for _ in range(number)]
    return list(enumerate(names))


# --- how many --------------------------------------------------------------------------------------------------------

NEEDED: Final = {
    "a smaller pod": (("1", "1Gi"), 1),
    "one of a slot's size": (("2", "2Gi"), 1),
    "one of four times its cpu": (("8", "1Gi"), 4),
    "one of a little more": (("2100m", "1Gi"), 2),
    "one of more memory": (("2", "5Gi"), 3),
    "one without requests": ((None, None), 1),
}


@pytest.mark.parametrize(("asked", "want"), NEEDED.values(), ids=NEEDED)
def test_a_pod_needs_as_many_slots_as_its_largest_request_says(asked: tuple[str | None, str | None], want: int) -> None:
    cpu, memory = asked
    assert slots_needed(PART.template, pod(cpu=cpu, memory=memory), scheduler_name="") == want


def test_no_number_of_slots_has_what_the_template_lacks() -> None:
    with_device = pod(cpu="2", memory="1Gi")
    container = with_device.spec.containers[0]
    requests = {**container.resources.requests, "nvidia.com/gpu": "1"}
    resources = msgspec.structs.replace(container.resources, requests=requests)
    spec = msgspec.structs.replace(
        with_device.spec, containers=(msgspec.structs.replace(container, resources=resources),)
    )
    assert slots_needed(PART.template, msgspec.structs.replace(with_device, spec=spec), scheduler_name="") == 0
    assert slots_needed(PART.template, pod(cpu="2", scheduler_name="other"), scheduler_name="") == 0


SUMS: Final = st.builds(
    lambda cpu, memory, slots: DividedAmounts(ResourceAmounts({"cpu": cpu, "memory": memory}), slots),
    st.integers(100, 2_000_000),
    st.one_of(st.integers(1, 2000).map(lambda gi: gi << 30), st.integers(1000, 1 << 40)),
    st.integers(1, 100),
)


def part_of(divided: DividedAmounts, *, replicas: int = 1) -> ReservationTask:
    held = divided.of_slot.to_quantities()
    return task("web", cpu=held["cpu"], memory=held["memory"], replicas=replicas)


@given(divided=SUMS, number=st.integers(2, 100))
def test_equal_shares_of_a_sum_need_no_more_slots_for_being_rounded_down(divided: DividedAmounts, number: int) -> None:
    share = min(number, divided.slots)
    cpu, memory = (divided.amounts.get(name) * share // divided.slots for name in ("cpu", "memory"))
    asked, template = pod(cpu=f"{cpu}m", memory=str(memory)), part_of(divided).template
    assert slots_needed(template, asked, scheduler_name="", divided=divided) <= max(2, share)


@given(divided=SUMS, cpu=st.integers(1, 2_000_000), memory=st.integers(1, 1 << 40))
def test_slots_have_what_a_pod_requests_but_for_what_rounding_took(
    divided: DividedAmounts, cpu: int, memory: int
) -> None:
    part, asked = divided.of_slot, ResourceAmounts({"cpu": cpu, "memory": memory})
    needed = slots_needed(
        part_of(divided).template, pod(cpu=f"{cpu}m", memory=str(memory)), scheduler_name="", divided=divided
    )
    assert asked.times(divided.slots).fits_within(divided.amounts.times(needed)), "its share of the sum"
    is_exact = part.times(divided.slots) == divided.amounts
    assert asked.fits_within(part.times(needed)) or (needed > 1 and not is_exact)
    assert needed <= 2 or not asked.times(divided.slots).fits_within(divided.amounts.times(needed - 1)), "and no more"


EXACT: Final = {
    "3 thousandths of a cpu more than four": ("4003m", "1Gi", 5),
    "7 thousandths more than eight": ("8007m", "1Gi", 9),
    "a Mi more than four": ("1", "4097Mi", 5),
    "one thousandth more": ("1001m", "1Gi", 2),
    "a byte more": ("1", "1073741825", 2),
    "just four": ("4", "4Gi", 4),
}


@pytest.mark.parametrize(("cpu", "memory", "want"), EXACT.values(), ids=EXACT)
@pytest.mark.parametrize(
    "divided",
    [
        None,
        DividedAmounts(ResourceAmounts({"cpu": 10_000, "memory": 10 << 30}), 10),
        DividedAmounts(ResourceAmounts({"cpu": 99_999, "memory": 99 << 30}), 10),
        DividedAmounts(ResourceAmounts({"cpu": 1_000_000, "memory": 1 << 50}), 1),
        DividedAmounts(ResourceAmounts(), 1),
    ],
    ids=["no sum", "the sum", "the sum of larger slots", "far more than is held", "a sum of nothing"],
)
def test_where_nothing_was_rounded_the_slots_have_all(
    divided: DividedAmounts | None, cpu: str, memory: str, want: int
) -> None:
    exact = task("web", cpu="1", memory="1Gi")
    assert slots_needed(exact.template, pod(cpu=cpu, memory=memory), scheduler_name="", divided=divided) == want


def test_a_hundred_rounded_slots_lack_no_more_than_the_sum_lost() -> None:
    divided = DividedAmounts(ResourceAmounts({"cpu": 100_150, "memory": 100 << 30}), 100)
    for cpu, want in (("100150m", 100), ("100100m", 100), ("50075m", 50), ("50076m", 51)):
        asked = pod(cpu=cpu, memory="1Gi")
        assert slots_needed(part_of(divided).template, asked, scheduler_name="", divided=divided) == want, cpu


@given(divided=SUMS)
def test_the_annotation_says_the_sum(divided: DividedAmounts) -> None:
    assert DividedAmounts.from_annotation(divided.to_annotation()) == divided
    assert shared((0, "node-a"), sum_of=divided.to_annotation()).divided == divided


NO_SUMS: Final = {
    "nothing": "",
    "another word": "yes",
    "no object": "[1]",
    "no slots": '{"slots":0,"resources":{"cpu":"1"}}',
    "fewer than none": '{"slots":-3,"resources":{"cpu":"1"}}',
    "null": '{"slots":null,"resources":null}',
    "no quantity": '{"slots":3,"resources":{"cpu":"much"}}',
    "a negative one": '{"slots":3,"resources":{"cpu":"-1"}}',
    "no name of a resource": '{"slots":3,"resources":{"a b":"1"}}',
    "nested without end": '{"slots":3,"resources":' + '{"a":' * 2000,
}


@pytest.mark.parametrize("text", NO_SUMS.values(), ids=NO_SUMS)
def test_what_is_no_sum_lets_nothing_add_up(text: str) -> None:
    reservation = shared(*parts_on(node_a=4), sum_of=text)
    assert not reservation.slots_add_up
    assert FreeSlots(reservation.status.slots).choose(reservation, owner_pod(cpu="8")) is None


def test_a_window_of_a_sum_that_is_rounded_gives_all_of_it_to_one_pod() -> None:
    spec = ReservationWindowSpec(pod_num_to_reserve=3, resources={"cpu": "10", "memory": "10Gi"})
    window = ReservationWindow(metadata=ObjectMeta(name="nightly", namespace="prod", uid="w"), spec=spec)
    body = build_window_reservation(window, None, Occurrence(NOON, NOON + timedelta(hours=1), NOON), ["node-a"])
    text = body["metadata"]["annotations"][SLOTS_ADD_UP_ANNOTATION]
    assert text == '{"slots":3,"resources":{"cpu":"10","memory":"10Gi"}}'
    part = task("web", cpu="3333m", memory="3413Mi", replicas=3)
    reservation = shared(*parts_on(node_a=3), part=part, sum_of=text)
    for cpu, memory, want in (("10", "10Gi", 3), ("10", "1Gi", 3), ("6666m", "1Gi", 2), ("10001m", "1Gi", None)):
        choice = FreeSlots(reservation.status.slots).choose(reservation, owner_pod(cpu=cpu, memory=memory))
        assert (choice and choice.number) == want, (cpu, memory)


@given(
    total=st.integers(2, 64).map(lambda gi: gi << 30),
    number=st.integers(2, 40),
    parts=st.integers(1, 60),
    excess=st.integers(-2, 1 << 21),
)
@example(total=10 << 30, number=3, parts=1, excess=3579139413 - (3413 << 20))
@example(total=10 << 30, number=3, parts=1, excess=1)
def test_what_is_given_to_a_pod_counts_when_its_note_is_read_again(
    total: int, number: int, parts: int, excess: int
) -> None:
    part = (total // number) >> 20 << 20
    memory = str(parts * part + excess)
    held = task("web", cpu="1", memory=str(part), replicas=100)
    reservation = shared(*parts_on(node_a=100), part=held)
    asking = owner_pod(cpu="1", memory=memory)
    choice = FreeSlots(reservation.status.slots).choose(reservation, asking)
    assert choice is not None
    assert (choice.number == 1) is (int(memory) <= part), "one slot only for what fits in it"
    given_slots = replace(note(0), further=tuple(range(1, choice.number)))
    noted = owner_pod(cpu="1", memory=memory, given=given_slots)
    assert trusted_assignment(reservation, noted, slots_by_key(reservation)) == given_slots


# --- which -----------------------------------------------------------------------------------------------------------


def test_the_node_with_the_fewest_slots_that_suffice_gives_them() -> None:
    reservation = shared(*parts_on(small=2, middle=3, large=5))
    for cpu, want in (("2", (1, "small")), ("6", (3, "middle")), ("8", (4, "large")), ("12", None)):
        choice = FreeSlots(reservation.status.slots).choose(reservation, owner_pod(cpu=cpu))
        assert (None if choice is None else (choice.number, choice.node)) == want, cpu


def test_without_the_annotation_a_larger_pod_gets_none() -> None:
    plain = place(*(slot(SlotState.HELD, index) for index in range(4)), tasks=[PART])
    assert FreeSlots(plain.status.slots).choose(plain, owner_pod(cpu="8")) is None


def test_a_pod_that_no_node_has_enough_slots_for_is_told_so() -> None:
    reservation = shared(*parts_on(small=2, middle=3))
    why = why_not_fitting(reservation, owner_pod(cpu="8"), reservation.status.slots)
    assert why == "it needs 4 slots of one node, and no node has more than 3 (task web)"
    assert why_not_fitting(reservation, owner_pod(cpu="6"), reservation.status.slots) == ""
    assert "schedulerName" in why_not_fitting(reservation, owner_pod(scheduler_name="x"), reservation.status.slots)


NOTES: Final = {
    "as many slots as it needs": ("0+1+2+3", "8", True),
    "more than it needs": ("0+1+2+3", "6", False),
    "fewer than it needs": ("0+1", "8", False),
    "slots of another node": ("0+1+2+5", "8", False),
    "slots that do not exist": ("0+1+2+77", "8", False),
}


@pytest.mark.parametrize(("indices", "cpu", "is_trusted"), NOTES.values(), ids=NOTES)
def test_a_note_counts_for_the_slots_that_a_pod_may_have(indices: str, cpu: str, *, is_trusted: bool) -> None:
    reservation = shared(*parts_on(node_a=5, node_b=2))
    first, *further = map(int, indices.split("+"))
    noted = owner_pod(given=replace(note(first), further=tuple(further)), cpu=cpu)
    slots = {(slot.task, slot.index): slot for slot in reservation.status.slots}
    assert (trusted_assignment(reservation, noted, slots) is not None) is is_trusted


ENDED: Final = {
    "one that another pod took": (SlotState.TAKEN, "uid-other", (0,)),
    "one that is lost": (SlotState.LOST, "", (0,)),
    "one in the middle that is lost": (SlotState.LOST, "", (2,)),
    "the last one, that another pod lost": (SlotState.LOST, "uid-other", (3,)),
    "one that it lost itself before": (SlotState.LOST, "uid-web-0", (0,)),
    "all but one that it lost itself before": (SlotState.LOST, "uid-web-0", (0, 1, 3)),
    "all, which another pod took": (SlotState.TAKEN, "uid-other", (0, 1, 2, 3)),
}


@pytest.mark.parametrize("has_gate", [True, False])
@pytest.mark.parametrize(("state", "uid", "ended"), ENDED.values(), ids=ENDED)
def test_a_note_with_a_slot_whose_hand_over_is_over_costs_the_others_nothing(
    state: SlotState, uid: str, ended: tuple[int, ...], *, has_gate: bool
) -> None:
    owner = ObjectReference(api_version="v1", kind="Pod", namespace="default", name="x", uid=uid) if uid else None
    slots = [slot(state, index, owner=owner) if index in ended else slot(SlotState.HELD, index) for index in range(5)]
    holders = [placeholder(index) for index in range(5) if index not in ended]
    noted = owner_pod(cpu="8", given=FOUR, gates=(HANDOVER_GATE,) if has_gate else ())
    reservation = with_sum(place(*slots, tasks=[FIVE]))
    seen = observe(reservation, *holders, noted, guards={"node-a": guard()}, probe=PROVEN)
    decision = decide_now(seen)
    assert [action for action in decision.actions if isinstance(action, DeletePlaceholder)] == []
    assert Counter(slot.state for slot in decision.status.slots) == {
        state: len(ended),
        SlotState.HELD: 5 - len(ended),
    }
    want = (AssignSlot,) if has_gate and len(ended) == 1 else (Release,)
    assert tuple(type(action) for action in decision.actions if isinstance(action, AssignSlot | Release)) == want


def test_a_note_on_slots_that_its_pod_lost_still_counts() -> None:
    owner = ObjectReference(api_version="v1", kind="Pod", namespace="default", name="web-0", uid="uid-web-0")
    reservation = with_sum(place(*(slot(SlotState.LOST, index, owner=owner) for index in range(4)), tasks=[FIVE]))
    noted = owner_pod(cpu="8", given=FOUR)
    assert trusted_assignment(reservation, noted, slots_by_key(reservation)) == FOUR


# --- the hand-over ---------------------------------------------------------------------------------------------------


def test_all_placeholders_go_under_one_guard_and_the_gate_after_the_last() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE)
    holders = [placeholder(index) for index in range(5)]
    large = owner_pod(cpu="8")
    (assign,) = decide_now(observe(reservation, *holders, large, probe=PROVEN)).actions
    assert isinstance(assign, AssignSlot)
    assert assign.assignment.slots == FOUR.slots
    going = owner_pod(cpu="8", given=FOUR)
    seen = observe(reservation, *holders, going, probe=PROVEN)
    assert decide_now(seen).actions == (), "the node is not guarded yet"
    guarded = {"node-a": guard()}
    for first in range(4):  # any of them may be the last
        left = observe(reservation, *holders[first:], going, guards=guarded, probe=PROVEN)
        decision = decide_now(left)
        want = [("DeletePlaceholder", f"place-web-{index}") for index in range(first, 4)]
        assert [told(action) for action in decision.actions] == want
        states = Counter(slot.state for slot in decision.status.slots)
        assert states == {SlotState.HANDING_OVER: 4, SlotState.HELD: 1}
    gone = observe(reservation, holders[4], going, guards=guarded, probe=PROVEN)
    assert [told(action) for action in decide_now(gone).actions] == [("Nominate", "web-0"), ("Ungate", "web-0")]


def test_one_that_is_still_ending_keeps_the_gate_on() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE)
    ending = placeholder(3, deleted="2026-11-21T12:00:01Z")
    going = owner_pod(cpu="8", given=FOUR)
    seen = observe(reservation, ending, placeholder(4), going, guards={"node-a": guard()}, probe=PROVEN)
    assert decide_now(seen).actions == ()


def test_a_pod_that_waited_before_gets_several_as_well() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE)
    holders = [placeholder(index) for index in range(5)]
    waited = with_condition(owner_pod(cpu="8", gates=(), labels={"app": "web"}), UNSCHEDULABLE)
    (assign,) = decide_now(observe(reservation, *holders, waiting=(waited,), searched=True, probe=PROVEN)).actions
    assert isinstance(assign, AssignSlot)
    assert assign.assignment.slots == FOUR.slots
    going = with_condition(owner_pod(cpu="8", gates=(), given=FOUR), UNSCHEDULABLE)
    guarded = {"node-a": guard()}
    two_left = decide_now(observe(reservation, *holders[2:], going, guards=guarded, probe=PROVEN))
    assert [told(action) for action in two_left.actions] == [
        ("DeletePlaceholder", "place-web-2"),
        ("DeletePlaceholder", "place-web-3"),
    ]
    gone = decide_now(observe(reservation, holders[4], going, guards=guarded, probe=PROVEN))
    assert [told(action) for action in gone.actions] == [("Nominate", "web-0")]


def test_a_pod_that_found_another_place_leaves_its_slots_held() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE, state=SlotState.HANDING_OVER)
    holders = [placeholder(index) for index in range(5)]
    elsewhere = owner_pod(cpu="8", gates=(), given=FOUR, node="node-z", started=True)
    decision = decide_now(observe(reservation, *holders, elsewhere, probe=PROVEN))
    assert [slot.state for slot in decision.status.slots] == [SlotState.HELD] * 5
    assert [told(action) for action in decision.actions] == [("Release", "web-0")]


def test_a_hand_over_that_comes_to_nothing_loses_all_its_slots_once() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE, state=SlotState.HANDING_OVER)
    tried = with_condition(owner_pod(cpu="8", gates=(), given=FOUR), UNSCHEDULABLE)
    ages = {"uid-web-0": OperatorSettings().handover.timeout_seconds}
    seen = observe(reservation, placeholder(4), tried, guards={"node-a": guard()}, stage_ages=ages, probe=PROVEN)
    decision = decide_now(seen)
    assert [slot.state for slot in decision.status.slots] == [SlotState.LOST] * 4 + [SlotState.HELD]
    assert [told(action) for action in decision.actions] == [("Release", "web-0"), ("SurveyNode", "node-a")]


def test_a_pod_that_runs_has_taken_all_its_slots() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE, state=SlotState.HANDING_OVER)
    runs = owner_pod(cpu="8", given=FOUR, gates=(), node="node-a", started=True)
    decision = decide_now(observe(reservation, placeholder(4), runs, probe=PROVEN))
    assert [slot.state for slot in decision.status.slots] == [SlotState.TAKEN] * 4 + [SlotState.HELD]
    assert {slot.owner.name for slot in decision.status.slots[:4] if slot.owner} == {"web-0"}
    assert [told(action) for action in decision.actions if told(action)[1] == "web-0"] == [
        ("CompleteHandover", "web-0")
    ]


OTHERS: Final = {
    "the last of them": (Assignment("web", 3, "node-a", DEADLINE), "2"),
    "the first of them": (Assignment("web", 0, "node-a", DEADLINE), "1"),
    "two in the middle": (Assignment("web", 1, "node-a", DEADLINE, (2,)), "4"),
    "one of them and a free one": (Assignment("web", 4, "node-a", DEADLINE, (3,)), "4"),
    "the same": (FOUR, "8"),
}


@pytest.mark.parametrize("is_older", [True, False])
@pytest.mark.parametrize("gates", [(), (HANDOVER_GATE,)], ids=["without the gate", "with the gate"])
@pytest.mark.parametrize(("others", "cpu"), OTHERS.values(), ids=OTHERS)
def test_another_pod_whose_note_has_some_of_the_slots_takes_none_of_them(
    others: Assignment, cpu: str, gates: tuple[str, ...], *, is_older: bool
) -> None:
    going = owner_pod(cpu="8", given=FOUR, gates=gates)
    its_owner = ObjectReference.of("v1", "Pod", going.metadata)
    slots = [slot(SlotState.HANDING_OVER, index, owner=its_owner) for index in range(4)]
    reservation = with_sum(place(*slots, slot(SlotState.HELD, 4), tasks=[FIVE]))
    other = owner_pod("aaa", cpu=cpu, given=others)
    pods = (other, going) if is_older else (going, other)
    seen = observe(reservation, placeholder(4), *pods, guards={"node-a": guard()}, probe=PROVEN)
    decision = decide_now(seen)
    owners = [slot.owner.name if slot.owner else "" for slot in decision.status.slots]
    assert owners == ["web-0"] * 4 + [""]
    assert [action for action in decision.actions if isinstance(action, Release) and action.pod is going] == []
    assert not any(isinstance(action, DeletePlaceholder) for action in decision.actions)


def test_of_two_pods_that_no_status_names_the_older_one_gets_the_slots() -> None:
    reservation = shared(*parts_on(node_a=5), part=FIVE)
    older, younger = owner_pod("aaa", cpu="8", given=FOUR), owner_pod("bbb", cpu="8", given=FOUR)
    holders = [placeholder(index) for index in range(5)]
    seen = observe(reservation, *holders, older, younger, guards={"node-a": guard()}, probe=PROVEN)
    owners = {slot.owner.name for slot in decide_now(seen).status.slots if slot.owner}
    assert owners == {"aaa"}


# --- pods of all sizes -----------------------------------------------------------------------------------------------


@dataclass
class Cluster:
    """Nodes without other room than a Reservation's slots, on which pods come and hand-overs go on step by step."""

    reservation: Reservation
    holders: dict[int, Pod]
    owners: dict[str, Pod] = field(default_factory=dict)
    released: set[str] = field(default_factory=set)
    noted: dict[str, Assignment] = field(default_factory=dict)

    def step(self) -> None:
        guards = {assignment.node: guard(deadline=DEADLINE * 2) for assignment in self.noted.values()}
        seen = observe(self.reservation, *self.holders.values(), *self.owners.values(), guards=guards, probe=PROVEN)
        decision = decide(seen, NOON, OperatorSettings())
        self.reservation = msgspec.structs.replace(self.reservation, status=decision.status)
        for action in decision.actions:
            self._carry_out(action)
        self.require_room()
        for name, owner in list(self.owners.items()):
            if not owner.spec.scheduling_gates and not owner.spec.node_name:
                self._bind(name)
        self.require_room()

    def _carry_out(self, action: Action) -> None:
        match action:
            case AssignSlot(owner, assignment) | ExtendHandover(owner, assignment):
                self.noted[owner.metadata.name] = assignment
                self._change(owner, given=assignment)
            case DeletePlaceholder(holder):
                index = int(holder.metadata.annotations["berth.volcano.sh/index"])
                assert index in {i for given in self.noted.values() for _, i in given.slots}, "for no owner"
                del self.holders[index]
            case Ungate(owner):
                self._change(self.owners[owner.metadata.name], gates=())
            case CompleteHandover(owner):
                self.noted.pop(owner.metadata.name, None)
                self.owners.pop(owner.metadata.name)
            case Release(owner):
                self.released.add(owner.metadata.name)
                self.owners.pop(owner.metadata.name)
            case Nominate():
                pass
            case _:
                raise AssertionError(f"not expected: {action}")

    def _change(self, owner: Pod, **changes: object) -> None:
        name = owner.metadata.name
        cpu = owner.spec.containers[0].resources.requests["cpu"]
        kept = {"given": self.noted.get(name), "cpu": cpu, "gates": [gate.name for gate in owner.spec.scheduling_gates]}
        self.owners[name] = owner_pod(name, **{**kept, **changes})  # type: ignore[arg-type]

    def _bind(self, name: str) -> None:
        node = self.noted[name].node
        self._change(self.owners[name], node=node, started=True)

    def require_room(self) -> None:
        """Require that on each node what is held and what pods may use or have is no more than there was."""
        used = Counter(holder.spec.node_name for holder in self.holders.values())
        free_to_go = {name for name, owner in self.owners.items() if not owner.spec.scheduling_gates}
        slots = {
            (slot.task, slot.index): slot.node
            for slot in self.reservation.status.slots
            if slot.state is SlotState.TAKEN
        }
        for name in free_to_go & self.noted.keys():
            slots |= dict.fromkeys(self.noted[name].slots, self.noted[name].node)
        used.update(slots.values())
        assert used <= Counter(CAPACITY)


CAPACITY: Final = {"node-a": 4, "node-b": 3, "node-c": 3}


@holds_for(
    sizes=st.lists(st.integers(1, 10), max_size=12),
    pauses=st.lists(st.booleans(), min_size=12, max_size=12),
    quick=20,
)
def test_pods_of_any_size_share_the_slots_and_none_comes_between(sizes: list[int], pauses: list[bool]) -> None:
    """A pod gets its slots at once and of one node, or goes its own way; no node has more on it than it holds."""
    slots = [(index, node) for index, node in enumerate(n for n, count in CAPACITY.items() for _ in range(count))]
    cluster = Cluster(shared(*slots), {index: placeholder(index, node=node) for index, node in slots})
    parts: dict[str, int] = {}
    for number, (cpu, pause) in enumerate(zip(sizes, pauses, strict=False)):
        name = f"web-{number}"
        cluster.owners[name] = owner_pod(name, cpu=str(cpu))
        parts[name] = -(-cpu // 2)
        if pause:
            cluster.step()
    for _ in range(8):
        cluster.step()
    assert not cluster.owners, "all have their slots or were let go"
    taken = Counter(slot.owner.name for slot in cluster.reservation.status.slots if slot.owner is not None)
    assert taken == {name: parts[name] for name in parts.keys() - cluster.released}
    nodes = {
        name: {slot.node for slot in cluster.reservation.status.slots if slot.owner and slot.owner.name == name}
        for name in taken
    }
    assert all(len(names) == 1 for names in nodes.values()), "of one node each"
    left = Counter(slot.node for slot in cluster.reservation.status.slots if slot.state is SlotState.HELD)
    assert len(cluster.holders) == left.total() == 10 - taken.total()
    if cluster.released == set(parts):
        assert all(number > 4 for number in parts.values())
    total = ResourceAmounts({"cpu": 2000}).times(taken.total())
    assert total.get("cpu") >= sum(1000 * cpu for number, cpu in enumerate(sizes) if f"web-{number}" in taken)
