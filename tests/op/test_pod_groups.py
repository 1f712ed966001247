"""Placeholders of a Reservation with several slots belong to one PodGroup where Volcano places them."""

from typing import Any

import pytest

from api_server_in_memory import error
from berth_core.labels import MANAGED_BY_OPERATOR, MANAGED_LABEL, RESERVATION_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.pod_groups import VOLCANO_SCHEDULER
from berth_core.reservations import Capacity, Reservation, ReservationPhase, SlotState
from berth_kube.errors import ForbiddenError, KubeError, NotFoundError
from berth_kube.resources import VOLCANO_POD_GROUPS
from berth_operator.reservation.act.fences import FenceManager
from berth_operator.reservation.act.resync import Resync
from berth_operator.reservation.actions import AssignSlot, CreatePlaceholder
from berth_operator.schedulers.volcano import build_pod_group, is_gang
from builders import task
from handover_builders import PLACE_UID, note, owner_pod, place, placeholder, slot
from operator_harness import OperatorHarness, harness

__all__ = ["harness"]

GROUP = f"berth-{PLACE_UID}"
ANNOTATION = "scheduling.k8s.io/group-name"


def gang(*slots: SlotState, replicas: int = 3, **rest: object) -> Reservation:
    """A Reservation of several slots that Volcano places."""
    held = tuple(slot(state, index) for index, state in enumerate(slots))
    return place(*held, replicas=replicas, scheduler_name=VOLCANO_SCHEDULER, **rest)


def stored_minimum(harness: OperatorHarness) -> int:
    minimum: int = harness.api.get(VOLCANO_POD_GROUPS, GROUP, namespace=DEFAULT_NAMESPACE)["spec"]["minMember"]
    return minimum


NO_GANGS = {
    "one slot": gang(replicas=1),
    "several, of which one is enough": gang(min_available=1),
    "several that each wait for a node of their own": gang(capacity=Capacity.WHEN_FREE),
    "the stock scheduler": place(replicas=3),
    "a template that names the stock scheduler": gang(tasks=[task(replicas=3, scheduler_name="default-scheduler")]),
    "one task of two that does": gang(
        tasks=[task("a", replicas=2), task("b", replicas=2, scheduler_name="default-scheduler")]
    ),
}


@pytest.mark.parametrize("one", NO_GANGS.values(), ids=NO_GANGS.keys())
def test_only_several_wanted_slots_that_volcano_places_are_a_gang(one: Reservation) -> None:
    assert not is_gang(one)


def test_a_template_may_name_volcano_itself() -> None:
    assert is_gang(place(tasks=[task(replicas=2, scheduler_name=VOLCANO_SCHEDULER)]))


def test_the_group_needs_as_many_members_as_the_reservation_wants() -> None:
    body = build_pod_group(gang(min_available=2, queue="gold"), priority=7, namespace="berth")
    assert body["metadata"]["name"] == GROUP
    assert body["metadata"]["namespace"] == "berth"
    assert body["metadata"]["labels"][RESERVATION_LABEL] == PLACE_UID
    assert body["spec"] == {"minMember": 2, "queue": "gold", "priorityClassName": "berth-placeholder-7"}
    assert "queue" not in build_pod_group(gang(), priority=7, namespace="berth")["spec"]


def test_all_placeholders_join_one_group_that_is_made_before_them(harness: OperatorHarness) -> None:
    whole = gang()
    calls = harness.perform(*(CreatePlaceholder(whole.spec.tasks[0], index) for index in range(3)), of=whole)
    created = [call.split()[1] for call in calls if call.startswith("create")]
    assert [plural for plural in created if plural != "priorityclasses"] == ["volcanopodgroups", "pods", "pods", "pods"]
    assert {one.metadata.annotations[ANNOTATION] for one in harness.cache.placeholders()} == {GROUP}
    assert stored_minimum(harness) == 3


def test_a_reservation_of_the_stock_scheduler_has_no_group(harness: OperatorHarness) -> None:
    calls = harness.perform(CreatePlaceholder(task(replicas=3), 0), of=place(replicas=3))
    assert not [call for call in calls if "volcanopodgroups" in call]
    (made,) = harness.cache.placeholders()
    assert ANNOTATION not in made.metadata.annotations


def test_without_volcanos_crd_each_placeholder_is_scheduled_by_itself(harness: OperatorHarness) -> None:
    harness.api.faults[f"create volcanopodgroups {GROUP}"] = error(NotFoundError)
    whole = gang()
    calls = harness.perform(*(CreatePlaceholder(whole.spec.tasks[0], index) for index in range(3)), of=whole)
    assert len([call for call in calls if "volcanopodgroups" in call]) == 1
    assert [ANNOTATION in one.metadata.annotations for one in harness.cache.placeholders()] == [False] * 3


def test_an_existing_group_is_taken_by_a_restarted_operator(harness: OperatorHarness) -> None:
    harness.api.put(VOLCANO_POD_GROUPS, build_pod_group(gang(), priority=0, namespace=DEFAULT_NAMESPACE))
    harness.perform(CreatePlaceholder(gang().spec.tasks[0], 0), of=gang())
    (made,) = harness.cache.placeholders()
    assert made.metadata.annotations[ANNOTATION] == GROUP


def test_the_minimum_is_dropped_before_the_first_slot_changes_hands(harness: OperatorHarness) -> None:
    held = gang(SlotState.HELD, SlotState.HELD, SlotState.HELD)
    harness.api.put(VOLCANO_POD_GROUPS, build_pod_group(held, priority=0, namespace=DEFAULT_NAMESPACE))
    owner = owner_pod()
    harness.know(owner, of=held)
    calls = harness.perform(AssignSlot(owner, note()), AssignSlot(owner, note()), of=held)
    assert [call.split()[:2] for call in calls][:2] == [["merge", "volcanopodgroups"], ["patch", "pods"]]
    assert len([call for call in calls if "volcanopodgroups" in call]) == 1
    assert stored_minimum(harness) == 1


@pytest.mark.parametrize("state", [SlotState.HANDING_OVER, SlotState.TAKEN])
def test_a_placeholder_after_the_first_owner_belongs_to_no_group(harness: OperatorHarness, state: SlotState) -> None:
    rest = gang(state, SlotState.HELD, SlotState.PENDING, min_available=2)
    calls = harness.perform(CreatePlaceholder(rest.spec.tasks[0], 2), of=rest)
    assert not [call for call in calls if "volcanopodgroups" in call]
    (made,) = harness.cache.placeholders()
    assert ANNOTATION not in made.metadata.annotations


# --- cleaning up


def groups(harness: OperatorHarness) -> set[str]:
    return {body["metadata"]["name"] for body in harness.api.list(VOLCANO_POD_GROUPS).items}


def put_group(harness: OperatorHarness, of: Reservation) -> None:
    body = build_pod_group(of, priority=0, namespace=DEFAULT_NAMESPACE)
    body["metadata"]["uid"] = f"uid-{body['metadata']['name']}"
    harness.api.put(VOLCANO_POD_GROUPS, body)


def sweep(harness: OperatorHarness) -> None:
    fences = FenceManager(harness.context, harness.priorities)
    parts = (harness.scope, harness.pod_groups, fences)
    Resync(harness.context, *parts, harness.queued.append).run()


def test_the_group_of_a_reservation_that_is_over_or_gone_is_deleted(harness: OperatorHarness) -> None:
    live, over = gang(uid="live", name="live"), gang(uid="over", name="over", phase=ReservationPhase.SUCCEEDED)
    for one in (live, over):
        harness.know(of=one)
        put_group(harness, one)
    put_group(harness, gang(uid="gone"))
    sweep(harness)
    assert groups(harness) == {"berth-live"}


def test_a_group_stays_while_a_placeholder_of_it_does(harness: OperatorHarness) -> None:
    over = gang(phase=ReservationPhase.FAILED)
    harness.know(placeholder(), of=over)
    put_group(harness, over)
    sweep(harness)
    assert groups(harness) == {GROUP}


def test_a_cluster_without_such_reservations_is_asked_once(harness: OperatorHarness) -> None:
    made = harness.pod_groups
    for everything in (True, False, False):
        assert made.collect(lambda _uid: True, everything=everything) == ()
    assert len([call for call in harness.api.calls if "volcanopodgroups" in call]) == 1


def test_a_sweep_deletes_so_many_that_it_is_soon_over_and_the_next_ones_delete_the_rest(
    harness: OperatorHarness,
) -> None:
    for number in range(250):
        harness.api.put(VOLCANO_POD_GROUPS, group_of(number))
    groups = harness.pod_groups
    found = [len(groups.collect(lambda _uid: False, everything=first)) for first in (True, False, False, False)]
    assert found == [100, 100, 50, 0]


def group_of(number: int) -> dict[str, Any]:
    labels = {MANAGED_LABEL: MANAGED_BY_OPERATOR, RESERVATION_LABEL: f"gone-{number}"}
    meta = {"name": f"berth-gone-{number}", "namespace": DEFAULT_NAMESPACE, "uid": f"uid-{number}", "labels": labels}
    return {"metadata": meta, "spec": {"minMember": 1}}


@pytest.mark.parametrize("kind", [NotFoundError, ForbiddenError])
def test_a_sweep_goes_on_where_there_is_no_crd_or_no_right(harness: OperatorHarness, kind: type[KubeError]) -> None:
    harness.pod_groups.collect(lambda _uid: True, everything=True)
    (call,) = harness.api.calls
    harness.api.faults[call] = error(kind)
    assert harness.pod_groups.collect(lambda _uid: True, everything=True) == ()
    assert harness.api.calls == [call, call]
