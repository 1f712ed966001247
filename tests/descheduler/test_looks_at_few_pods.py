"""A look at a plan's next moves asks about few pods, and is told of them what all of the cluster would be told."""

import dataclasses
import random

from hypothesis import strategies as st

from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.plan_review import without_plan_objects, without_rooms
from berth_descheduler.planner import PodIndex
from berth_descheduler.planner.disruption_budgets import with_surges
from berth_descheduler.planner.problem import Problem
from planner.random_clusters import clusters
from planner_settings import planner_settings
from properties import holds_for


@holds_for(clusters(), st.randoms(use_true_random=False))
def test_a_pod_is_refused_alone_as_among_all_others(snapshot: Snapshot, chance: random.Random) -> None:
    wide = Problem.to_review(snapshot, planner_settings()).pod_refusals
    narrow = Problem.to_review(snapshot, planner_settings())
    pods = [PodIndex(index) for index in range(len(narrow.cluster.pods))]
    for pod in chance.sample(pods, len(pods)):
        assert narrow.pod_refusal(pod) == wide.get(pod)


@holds_for(clusters(), st.booleans())
def test_what_is_taken_out_of_a_snapshot_leaves_it_in_order(snapshot: Snapshot, surges: bool) -> None:  # noqa: FBT001 - drawn
    seen = without_rooms(without_plan_objects(snapshot, "plan", {0}), "plan")
    seen = with_surges(seen) if surges else seen
    assert dataclasses.replace(seen) == seen, "made anew its objects are sorted, and the odd ones set apart"
