"""A look at a plan's next moves asks about few pods, and hears of them what a look at the whole cluster would hear."""

import dataclasses
import random

import msgspec
from hypothesis import strategies as st

from berth_core import OwnerReference
from berth_core.labels import MOVE_ANNOTATION, PLACEHOLDER_LABEL, PLAN_LABEL, RESERVATION_LABEL, ROOM_ANNOTATION
from berth_core.migration_plans import PLAN_API_VERSION, PLAN_KIND
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import Reservation
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.plan_review import without_plan_objects, without_rooms
from berth_descheduler.planner import PodIndex
from berth_descheduler.planner.disruption_budgets import with_surges
from berth_descheduler.planner.problem import Problem
from builders import pod, reservation
from planner.random_clusters import clusters
from planner_settings import planner_settings
from properties import holds_for

PLAN = "plan-1"


@holds_for(clusters(), st.randoms(use_true_random=False))
def test_a_pod_is_refused_alone_as_among_all_others(snapshot: Snapshot, chance: random.Random) -> None:
    refusals = Problem.to_review(snapshot, planner_settings()).pod_refusals
    asked_singly = Problem.to_review(snapshot, planner_settings())
    pods = [PodIndex(index) for index in range(len(asked_singly.cluster.pods))]
    for index in chance.sample(pods, len(pods)):
        assert asked_singly.pod_refusal(index) == refusals.get(index)


def room() -> Reservation:
    """The Reservation of a room that the plan makes."""
    made = reservation("room")
    controller = OwnerReference(
        api_version=PLAN_API_VERSION, kind=PLAN_KIND, name=PLAN, uid="uid-plan", controller=True
    )
    head = msgspec.structs.replace(made.metadata, owner_references=(controller,), annotations={ROOM_ANNOTATION: "0"})
    return msgspec.structs.replace(made, metadata=head)


@st.composite
def clusters_of_a_plan(draw: st.DrawFn) -> Snapshot:
    """A cluster with the places of two moves and a room of a plan, whose placeholders are on any node or none."""
    snapshot = draw(clusters())
    places = [
        reservation(f"move-{number}", labels={PLAN_LABEL: PLAN}, annotations={MOVE_ANNOTATION: f"{number}"})
        for number in range(2)
    ]
    reservations = (*places, room())
    node_names = ["", *(node.metadata.name for node in snapshot.nodes)]
    placeholders = [
        pod(
            f"placeholder-of-{of.metadata.name}",
            namespace=DEFAULT_NAMESPACE,
            node=draw(st.sampled_from(node_names)),
            labels={PLACEHOLDER_LABEL: "true", RESERVATION_LABEL: of.metadata.uid},
        )
        for of in reservations
    ]
    return dataclasses.replace(
        snapshot, pods=(*snapshot.pods, *placeholders), reservations=(*snapshot.reservations, *reservations)
    )


@holds_for(clusters_of_a_plan(), st.booleans())
def test_what_is_taken_out_of_a_snapshot_leaves_it_in_order(snapshot: Snapshot, surges: bool) -> None:  # noqa: FBT001 - drawn
    seen = without_rooms(without_plan_objects(snapshot, PLAN, {0}), PLAN)
    seen = with_surges(seen) if surges else seen
    anew = dataclasses.replace(seen)
    assert anew == seen, "made anew its objects are sorted, and the odd ones set apart"
    assert seen.marked_pods == anew.marked_pods
    is_bound = {placed.metadata.name: bool(placed.spec.node_name) for placed in snapshot.pods}
    left_out = {"placeholder-of-move-0"} | ({"placeholder-of-room"} - {name for name in is_bound if is_bound[name]})
    assert is_bound.keys() - {placed.metadata.name for placed in seen.pods} == left_out
    left_reservations = {kept.metadata.name for kept in snapshot.reservations} - {"move-0", "room"}
    assert {kept.metadata.name for kept in seen.reservations} == left_reservations
