"""What the operator decides for a Reservation that takes capacity when it is free."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import ObjectMeta, Pod, Taint
from berth_core.labels import DRAINING_TAINT, SLOT_ANNOTATION
from berth_core.reservations import Capacity, Fence, Reservation, ReservationPhase, ReservationReason, SlotState
from berth_kube.errors import ServerError
from berth_kube.resources import JOBS, PODS
from berth_operator.reservation.act.node_chooser import NodeChooser
from berth_operator.reservation.actions import AssignSlot, ChooseNodes, CreatePlaceholder, Release
from berth_operator.reservation.decide import Decision
from berth_operator.reservation.node_access import ConditionStatus, NodeAccess
from berth_operator.reservation.node_choice import NodeChoice
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.store.cluster_rules import NodeCapacity
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.surveys import Survey, build_survey
from builders import NOON, as_api, node, owner, pod, task
from handover_builders import awaiting, decide_now, note, observe, owner_pod, place, placeholder, resident, slot, told
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

AWAITING = place(capacity=Capacity.WHEN_FREE, fence=Fence.NODE)
GETS_ROOM = "0 of 1 slot is held; node node-a is chosen and gets room once its pods have ended"
CHOSEN = NodeChoice({("web", 0): "node-a"})


def state(decision: Decision) -> tuple[str, str, str]:
    found = decision.status.state
    assert found is not None
    return found.phase, found.reason, found.message


def test_nodes_are_chosen_before_placeholders_are_made() -> None:
    decision = decide_now(observe(AWAITING))
    assert decision.actions == (ChooseNodes((("web", 0),)),)


def test_a_placeholder_is_made_for_the_chosen_node() -> None:
    decision = decide_now(observe(AWAITING, choice=CHOSEN))
    assert decision.actions == (CreatePlaceholder(AWAITING.spec.tasks[0], 0, "node-a"),)


OUTDATED = {
    "it is old": {"choice": replace(CHOSEN, age_seconds=11)},
    "its node is gone": {"choice": CHOSEN, "missing_nodes": frozenset({"node-a"})},
}


@pytest.mark.parametrize("seen", OUTDATED.values(), ids=OUTDATED.keys())
def test_an_outdated_choice_is_made_again(seen: dict[str, Any]) -> None:
    assert decide_now(observe(AWAITING, **seen)).actions == (ChooseNodes((("web", 0),)),)


def test_slots_without_a_node_say_why_and_are_tried_again_later() -> None:
    choice = NodeChoice(reason=ReservationReason.FENCE_LIMIT, message="its namespace may fence 1 node", age_seconds=3)
    decision = decide_now(observe(AWAITING, choice=choice))
    assert state(decision) == (
        "Pending",
        "FenceLimit",
        "0 of 1 slot is held; its namespace may fence 1 node",
    )
    assert decision.actions == ()
    assert decision.wake_seconds == pytest.approx(7)


def survey(*pods: Pod, minutes: float | None) -> Survey:
    ends = {} if minutes is None else {one.metadata.uid: NOON + timedelta(minutes=minutes) for one in pods}
    return build_survey({"cpu": "4", "memory": "16Gi", "pods": "110"}, pods, ends)


def test_a_refused_placeholder_waits_and_says_until_when() -> None:
    surveys = {"node-a": survey(resident("old", cpu="4"), minutes=5)}
    decision = decide_now(observe(AWAITING, awaiting(), surveys=surveys))
    assert state(decision) == (
        "Waiting",
        "AwaitingCapacity",
        f"{GETS_ROOM}, expected at 2026-11-21T12:05:00Z",
    )
    (found,) = decision.status.slots
    assert (found.state, found.node, found.expected_at) == (SlotState.PENDING, "node-a", "2026-11-21T12:05:00Z")


def test_without_known_ends_nothing_is_expected() -> None:
    decision = decide_now(
        observe(AWAITING, awaiting(), surveys={"node-a": survey(resident("old", cpu="4"), minutes=None)})
    )
    assert decision.status.slots[0].expected_at is None
    assert state(decision)[2].endswith("gets room once its pods have ended")


def test_the_second_slot_of_a_node_is_expected_after_the_first() -> None:
    early, late = resident("early", cpu="2"), resident("late", cpu="2")
    ends = {early.metadata.uid: NOON + timedelta(minutes=1), late.metadata.uid: NOON + timedelta(minutes=9)}
    surveys = {"node-a": build_survey({"cpu": "4", "memory": "16Gi", "pods": "110"}, (early, late), ends)}
    two = place(capacity=Capacity.WHEN_FREE, tasks=[task(replicas=2, cpu="2")])
    decision = decide_now(observe(two, awaiting(), awaiting(index=1), surveys=surveys))
    assert [one.expected_at for one in decision.status.slots] == ["2026-11-21T12:01:00Z", "2026-11-21T12:09:00Z"]


def test_a_node_without_its_fence_is_named() -> None:
    decision = decide_now(observe(AWAITING, awaiting(), unfenced={"node-a": "it has no pod slot to spare"}))
    assert state(decision)[2].endswith("; node node-a is not fenced: it has no pod slot to spare")


def test_waiting_never_fails_for_want_of_a_place() -> None:
    long_ago = place(
        capacity=Capacity.WHEN_FREE,
        phase=ReservationPhase.PENDING,
        reason="UnschedulableYet",
        since="2026-11-20T00:00:00Z",
        ttl=None,
    )
    refused = NodeChoice(reason=ReservationReason.UNSCHEDULABLE_YET, message="no node", age_seconds=1)
    assert state(decide_now(observe(long_ago, choice=refused)))[:2] == ("Pending", "UnschedulableYet")


IN_VAIN = {
    "the node is gone": ({"missing_nodes": frozenset({"node-a"})}, True),
    "the node is cordoned": ({"accesses": {"node-a": NodeAccess(is_cordoned=True)}}, True),
    "a plan drains the node": (
        {"accesses": {"node-a": NodeAccess(taints=(Taint(key=DRAINING_TAINT, value="plan", effect="NoSchedule"),))}},
        False,
    ),
    "nothing is wrong": ({}, False),
}


@pytest.mark.parametrize(("seen", "want"), IN_VAIN.values(), ids=IN_VAIN.keys())
def test_a_placeholder_leaves_its_node_where(seen: dict[str, Any], *, want: bool) -> None:
    actions = [told(action) for action in decide_now(observe(AWAITING, awaiting(), **seen)).actions]
    assert (("DeletePlaceholder", "place-web-0") in actions) is want


# --- all or nothing


GANG = place(slot(SlotState.HELD), slot(SlotState.HELD, 1, node="node-b"), replicas=2, all_or_nothing=True)
HOLDERS = (placeholder(), placeholder(1, node="node-b"))


def kinds(seen: Observation) -> list[type]:
    return [type(action) for action in decide_now(seen).actions if isinstance(action, AssignSlot | Release)]


def gated(name: str) -> Pod:
    return owner_pod(name)


def test_a_gang_waits_until_all_of_its_pods_have_come() -> None:
    assert kinds(observe(GANG, *HOLDERS, gated("web-0"))) == []
    assert kinds(observe(GANG, *HOLDERS, gated("web-0"), gated("web-1"))) == [AssignSlot, AssignSlot]


def test_pods_that_waited_before_count_for_the_gang() -> None:
    assert (
        kinds(observe(GANG, *HOLDERS, gated("web-0"), waiting=(owner_pod("web-1", gates=(), labels={"app": "web"}),)))
        == [AssignSlot] * 2
    )


def test_once_begun_the_rest_of_a_gang_follows() -> None:
    begun = place(slot(SlotState.TAKEN), slot(SlotState.HELD, 1, node="node-b"), replicas=2, all_or_nothing=True)
    assert kinds(observe(begun, HOLDERS[1], gated("web-1"))) == [AssignSlot]


def test_min_available_of_a_gang_is_enough() -> None:
    gang = msgspec.structs.replace(GANG, spec=msgspec.structs.replace(GANG.spec, min_available=1))
    assert kinds(observe(gang, *HOLDERS, gated("web-0"))) == [AssignSlot]


# --- the choice as the cluster is


def choose(harness: OperatorHarness, of: Reservation) -> NodeChoice:
    harness.know(of=of)
    slots = [("web", number) for number in range(of.spec.replicas)]
    NodeChooser(harness.context, harness.standing_fences.budget).choose(of, slots)
    return harness.cache.choices()[of.metadata.uid]


def known(harness: OperatorHarness, name: str, *pods: Pod, **rest: Any) -> None:  # noqa: ANN401 - passed on
    body = as_api(node(name, cpu="4", memory="16Gi", **rest))
    harness.cache.put_node(msgspec.convert(body, GuardableNode))
    for one in pods:
        harness.api.put(PODS, as_api(one))


def test_the_choice_goes_by_jobs_and_leaves_out_nodes_that_admit_no_such_pod(harness: OperatorHarness) -> None:
    whole = place(tasks=[task(cpu="4")], capacity=Capacity.WHEN_FREE)
    known(harness, "closed", unschedulable=True)
    known(harness, "master", labels={"node-role.kubernetes.io/control-plane": ""})
    known(harness, "service", pod("service", node="service", cpu="4"))
    job_owner = msgspec.structs.replace(owner("Job", "batch"), api_version="batch/v1")
    known(harness, "batch", pod("batch", node="batch", cpu="4", controller=job_owner))
    job = {"spec": {"activeDeadlineSeconds": 600}, "status": {"startTime": "2026-11-21T11:59:00Z"}}
    harness.api.put(JOBS, {"metadata": {"name": "batch", "namespace": "default"}, **job})
    assert choose(harness, whole).nodes == {("web", 0): "batch"}


def with_uid(reservation: Reservation, name: str) -> Reservation:
    meta = msgspec.structs.replace(reservation.metadata, uid=f"uid-{name}", name=name)
    return msgspec.structs.replace(reservation, metadata=meta)


WHOLE_NODE = place(tasks=[task(cpu="4")], capacity=Capacity.WHEN_FREE, fence=Fence.NODE)


def test_a_note_that_a_tenant_wrote_claims_no_room(harness: OperatorHarness) -> None:
    forged = note(node="free").to_annotation()
    known(harness, "free", pod("forged", cpu="4", annotations={SLOT_ANNOTATION: forged}))
    known(harness, "labelled", owner_pod("labelled", given=note(node="labelled")))
    assert choose(harness, WHOLE_NODE).nodes.keys() == {("web", 0)}


def test_a_pod_that_was_given_a_slot_claims_its_room(harness: OperatorHarness) -> None:
    holder = place(slot(SlotState.HANDING_OVER, node="node-a"), tasks=[task(cpu="4")])
    sent = owner_pod(given=note(), cpu="4", memory="64Mi")
    known(harness, "node-a", sent)
    harness.know(sent, of=holder)
    assert choose(harness, with_uid(WHOLE_NODE, "other")).nodes == {}


@pytest.mark.parametrize("cpu", ["many", "-4", "1e9999"])
def test_a_node_with_unreadable_amounts_is_not_chosen_and_keeps_no_other_from_it(
    harness: OperatorHarness, cpu: str
) -> None:
    odd = GuardableNode(
        metadata=ObjectMeta(name="node-a"),
        status=NodeCapacity(allocatable={"cpu": cpu}, conditions=(ConditionStatus(type="Ready", status="True"),)),
    )
    harness.cache.put_node(odd)
    known(harness, "node-b")
    choice = choose(harness, place(tasks=[task(cpu="4")], capacity=Capacity.WHEN_FREE))
    assert choice.nodes == {("web", 0): "node-b"}


@pytest.mark.parametrize("cpu", ["many", "-4", "1e9999"])
def test_a_pod_with_unreadable_requests_keeps_no_node_from_being_chosen(harness: OperatorHarness, cpu: str) -> None:
    known(harness, "node-a", pod("odd", node="node-a", cpu=cpu), pod("old", node="node-a", cpu="1"))
    known(harness, "node-b")
    choice = choose(harness, place(tasks=[task(cpu="4")], capacity=Capacity.WHEN_FREE))
    assert choice.nodes == {("web", 0): "node-b"}


@pytest.mark.parametrize("cpu", ["many", "-4", "1e9999"])
def test_a_survey_counts_a_pod_with_unreadable_requests_as_a_pod_only(cpu: str) -> None:
    survey = build_survey({"cpu": "4", "memory": "16Gi", "pods": "2"}, [pod("odd", node="node-a", cpu=cpu)])
    assert not survey.takers(pod("owner", cpu="4"))
    full = build_survey({"cpu": "4", "memory": "16Gi", "pods": "1"}, [pod("odd", node="node-a", cpu=cpu)])
    assert [taker.key for taker in full.takers(pod("owner", cpu="4"))] == ["default/odd"]


def test_choices_in_a_row_share_one_list_of_pods_and_no_room(harness: OperatorHarness) -> None:
    for name in ("node-a", "node-b"):
        known(harness, name)
    chooser = NodeChooser(harness.context, harness.standing_fences.budget)
    nodes = set()
    for name in ("first", "second"):
        one = with_uid(place(tasks=[task(cpu="4")], capacity=Capacity.WHEN_FREE), name)
        harness.know(of=one)
        chooser.choose(one, [("web", 0)])
        nodes.add(harness.cache.choices()[f"uid-{name}"].nodes["web", 0])
    assert nodes == {"node-a", "node-b"}
    assert len([call for call in harness.api.calls if call.startswith("list pods")]) == 1


def test_two_choices_in_a_row_fence_no_more_nodes_than_a_limit_allows(harness: OperatorHarness) -> None:
    for name in ("node-a", "node-b"):
        known(harness, name, pod(f"old-{name}", node=name, cpu="4"))
    first = choose(harness, with_uid(WHOLE_NODE, "first"))
    assert len(first.nodes) == 1
    second = choose(harness, with_uid(WHOLE_NODE, "second"))
    assert (second.nodes, second.reason) == ({}, ReservationReason.FENCE_LIMIT)


def test_a_gang_that_may_fence_too_few_nodes_fences_none(harness: OperatorHarness) -> None:
    for name in ("node-a", "node-b"):
        known(harness, name, pod(f"old-{name}", node=name, cpu="4"))
    two = place(tasks=[task(cpu="4", replicas=2)], capacity=Capacity.WHEN_FREE, fence=Fence.NODE)
    assert len(choose(harness, with_uid(two, "pair")).nodes) == 1
    gang = msgspec.structs.replace(two, spec=msgspec.structs.replace(two.spec, all_or_nothing=True))
    found = choose(harness, with_uid(gang, "pair"))
    assert (found.nodes, found.reason) == ({}, ReservationReason.FENCE_LIMIT)
    one_is_enough = msgspec.structs.replace(gang, spec=msgspec.structs.replace(gang.spec, min_available=1))
    assert len(choose(harness, with_uid(one_is_enough, "pair")).nodes) == 1


@pytest.mark.parametrize("call", ["get jobs batch", "get volcanopodgroups team"])
def test_what_only_says_when_pods_end_may_fail(harness: OperatorHarness, call: str) -> None:
    job_owner = msgspec.structs.replace(owner("Job", "batch"), api_version="batch/v1")
    group = {"scheduling.k8s.io/group-name": "team"}
    known(harness, "node-a", pod("batch", node="node-a", cpu="4", controller=job_owner, annotations=group))
    harness.api.faults[call] = error(ServerError)
    assert choose(harness, WHOLE_NODE).nodes == {("web", 0): "node-a"}
    assert call in harness.api.calls


# --- an owner that the scheduler binds before it is nominated


def bound(node: str) -> Pod:
    return owner_pod("web-0", given=note(), gates=(), node=node, phase="Pending")


def test_an_owner_that_is_bound_to_its_slot_s_node_has_it_although_the_placeholder_seems_there() -> None:
    """Its placeholder is gone; the watch of placeholders only says so later."""
    changing = place(slot(SlotState.HANDING_OVER), capacity=Capacity.WHEN_FREE)
    decision = decide_now(observe(changing, placeholder(), bound("node-a")))
    assert decision.status.slots[0].state is SlotState.HANDING_OVER
    assert not any(isinstance(action, Release) for action in decision.actions)


def test_an_owner_that_is_bound_elsewhere_leaves_the_slot_held() -> None:
    changing = place(slot(SlotState.HANDING_OVER), capacity=Capacity.WHEN_FREE)
    decision = decide_now(observe(changing, placeholder(), bound("node-b")))
    assert decision.status.slots[0].state is SlotState.HELD
    assert any(isinstance(action, Release) for action in decision.actions)
