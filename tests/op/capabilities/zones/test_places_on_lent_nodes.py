"""Open lent nodes let in the places of preemptable pods that a plan moves, and keep none of them once they close."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from berth_core import LabelSelector, LentFence, ObjectMeta, OwnerReference, Pod, matches_labels
from berth_core.decoding import convert
from berth_core.labels import (
    HANDOVER_LABEL,
    MOVE_ANNOTATION,
    PREEMPTABLE_LABEL,
    RESERVATION_LABEL,
    REVOCABLE_ZONE_LABEL,
)
from berth_core.migration_plans import PLAN_API_VERSION, PLAN_KIND
from berth_core.reservations import Reservation
from berth_kube.resources import NODES, PODS, REVOCABLE_ZONES
from berth_operator.capabilities.zones.fences import LentFences
from berth_operator.capabilities.zones.manifests import build_lent_fence
from berth_operator.capabilities.zones.rule import ZoneRule
from berth_operator.reservation.manifests import build_placeholder
from berth_operator.reservation.pod_patches import Operations, build_assignment
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.settings import PlaceholderSettings
from builders import as_api, pod, task
from handover_builders import note, owner_pod, place, placeholder
from json_patches import apply
from zone_harness import ZoneHarness, harness

__all__ = ["harness"]

SAYS_SO: Final = {"volcano.sh/preemptable": "true"}
CONTROLLER: Final = OwnerReference(
    api_version=PLAN_API_VERSION, kind=PLAN_KIND, name="plan-1", uid="uid-plan", controller=True
)
OPEN: Final = datetime(2026, 11, 21, 2, tzinfo=UTC)
SETTINGS: Final = PlaceholderSettings()


def moved(
    *, owners: tuple[OwnerReference, ...] = (CONTROLLER,), move: bool = True, notes: dict[str, str] | None = None
) -> Reservation:
    """A Reservation of one move, of a preemptable pod unless the test says otherwise."""
    wanted = task(nodes=["node-a"])
    template = msgspec.structs.replace(
        wanted.template, metadata=msgspec.structs.replace(wanted.template.metadata, annotations=notes or {})
    )
    made = place(tasks=[msgspec.structs.replace(wanted, template=template)])
    annotations = {MOVE_ANNOTATION: "0"} if move else {}
    metadata = msgspec.structs.replace(made.metadata, owner_references=owners, annotations=annotations)
    return msgspec.structs.replace(made, metadata=metadata)


def labels_of(reservation: Reservation) -> dict[str, str]:
    first_task = reservation.spec.tasks[0]
    labels = ZoneRule().slot_labels(reservation, first_task)
    body = build_placeholder(
        reservation, first_task, 0, priority=0, deadline_seconds=None, settings=SETTINGS, labels=labels
    )
    return dict(body["metadata"]["labels"])


def assigned(before: Pod, reservation: Reservation) -> Operations:
    """Return the patch that gives a pod the slot of a Reservation of one."""
    return build_assignment(before, note(), reservation, ZoneRule().slot_labels(reservation, reservation.spec.tasks[0]))


PLACES: Final = {
    "of a preemptable pod that a plan moves": (moved(notes=SAYS_SO), True),
    "of another pod that a plan moves": (moved(), False),
    "of one that says no": (moved(notes={"volcano.sh/preemptable": "false"}), False),
    "of a Reservation that no plan controls": (moved(owners=(), notes=SAYS_SO), False),
    "of a plan's Reservation that is no move": (moved(move=False, notes=SAYS_SO), False),
}


@pytest.mark.parametrize(("one", "want"), PLACES.values(), ids=PLACES)
def test_a_place_gets_past_the_fence_of_an_open_node(one: Reservation, *, want: bool) -> None:
    assert (PREEMPTABLE_LABEL in labels_of(one)) is want
    assert is_kept_off(LentFence.OPEN, labels_of(one)) is not want
    assert is_kept_off(LentFence.CLOSED, labels_of(one))


def is_kept_off(kind: LentFence, labels: dict[str, str]) -> bool:
    """Return whether the fence of a lent node keeps off a pod with these labels."""
    body = build_lent_fence("node-a", "fence", kind, {}, seconds=60, settings=SETTINGS)
    (term,) = body["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return matches_labels(convert(term["labelSelector"], LabelSelector), labels)


@pytest.mark.parametrize(("one", "want"), PLACES.values(), ids=PLACES)
def test_the_pod_that_takes_the_place_gets_past_it_too(one: Reservation, *, want: bool) -> None:
    before = owner_pod()
    after = msgspec.convert(apply(assigned(before, one), as_api(before)), Pod)
    assert (PREEMPTABLE_LABEL in after.metadata.labels) is want
    again = assigned(after, one)
    assert not any(step["path"].endswith("preemptable") for step in again), "it has the label already"


def test_a_pod_without_labels_gets_both_at_once() -> None:
    before = msgspec.structs.replace(pod(), metadata=msgspec.structs.replace(pod().metadata, resource_version="7"))
    one = moved(notes=SAYS_SO)
    after = msgspec.convert(apply(assigned(before, one), as_api(before)), Pod)
    assert set(after.metadata.labels) == {RESERVATION_LABEL, HANDOVER_LABEL, PREEMPTABLE_LABEL}


def lend(harness: ZoneHarness, **spec: Any) -> LentFences:  # noqa: ANN401 - a field of the zone
    """Have a lent node with its fence as it should be at two o'clock."""
    harness.clock.advance((OPEN - harness.clock.now()).total_seconds())
    head = {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "RevocableZone"}
    metadata = {"name": "rz1", "uid": "uid-rz1", "generation": 1, "resourceVersion": "1"}
    harness.api.put(REVOCABLE_ZONES, {**head, "metadata": metadata, "spec": {"windows": ["1:00-4:00"], **spec}})
    node = {"name": "node-a", "uid": "uid-node-a", "labels": {REVOCABLE_ZONE_LABEL: "rz1"}}
    harness.api.put(NODES, {"metadata": node, "spec": {}, "status": {"allocatable": {"pods": "110"}}})
    harness.cache.put_node(harness.api.get(NODES, "node-a", type=GuardableNode))
    harness.zones.refresh()
    return harness.zones.fences


@pytest.mark.parametrize("suspend", [False, True], ids=["open", "closed"])
def test_the_places_on_a_lent_node_go_when_it_closes(harness: ZoneHarness, *, suspend: bool) -> None:
    fences = lend(harness, suspend=suspend)
    let_in, other = placeholder(node="node-a"), placeholder(1, node="node-a")
    let_in = with_label(let_in)
    elsewhere = with_label(placeholder(2, node="node-b"))
    harness.know(let_in, other, elsewhere)
    fences.reconcile("node-a", OPEN)
    left = {one.metadata.name for one in harness.api.list(PODS, namespace="berth-system", type=Pod).items}
    names = {one.metadata.name for one in (let_in, other, elsewhere)}
    assert names - left == ({let_in.metadata.name} if suspend else set())


def test_no_place_for_later_is_chosen_on_a_lent_node() -> None:
    assert ZoneRule().may_hold(ObjectMeta(name="node-a"))
    assert not ZoneRule().may_hold(ObjectMeta(name="node-a", labels={REVOCABLE_ZONE_LABEL: "rz1"}))


def with_label(one: Pod) -> Pod:
    labels = {**one.metadata.labels, PREEMPTABLE_LABEL: "true"}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))
