"""A pod that is moved aside for a while and then to its place: two moves of one plan, one after the other."""
# ruff: noqa: ANN401 - it passes on whatever the client is called with

from datetime import UTC, datetime
from typing import Any

import pytest

from berth_core import Pod
from berth_core.clock import format_timestamp
from berth_core.migration_plans import MigrationPlanSpec, MoveState, PlannedMove, Predicted
from berth_core.reservations import ObjectReference
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.manifests.plans import build_plan
from berth_descheduler.migration.moves.second_moves import earlier_moves
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.outcome import PlanOutcome
from berth_descheduler.planner import WaveLimits
from berth_descheduler.planner.problem import Problem
from berth_descheduler.planner.simulation.cluster import NodeIndex, PodIndex
from berth_descheduler.planner.simulation.state import State, Step
from berth_descheduler.planner.waves import assign_waves
from berth_kube.resources import MIGRATION_PLANS
from builders import node, owner, pod
from descheduler.cycle_settings import UNPROTECTED
from descheduler.fake_cluster import FakeCluster, Raw, fragmented_cluster
from descheduler.test_cycle import run
from descheduler.test_cycle_killed_anywhere import Killed, MortalProcess
from descheduler.test_cycle_killed_anywhere import run as run_mortal
from planner_settings import planner_settings

WEB = ObjectReference(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web", uid="uid-web")


def web_1(source: str, target: str, wave: int) -> PlannedMove:
    uid = "uid-web-1"
    return PlannedMove(namespace="shop", pod="web-1", pod_uid=uid, owner=WEB, source=source, target=target, wave=wave)


THERE_AND_ON = (web_1("low-1", "high-1", 0), web_1("high-1", "high-2", 1))


def cluster_with(*moves: PlannedMove) -> FakeCluster:
    """Return the small cluster with a plan that a run has begun and left before its first move."""
    cluster = fragmented_cluster()
    predicted = Predicted(nodes=4, moves=len(moves), waves=2)
    cluster.create(
        MIGRATION_PLANS, build_plan("aside", MigrationPlanSpec(approved=True, moves=moves, predicted=predicted))
    )
    begun = {"phase": "Running", "startTime": format_timestamp(datetime.now(UTC))}
    cluster.merge_patch(MIGRATION_PLANS, "aside", {"status": begun}, subresource="status")
    return cluster


def continued(cluster: FakeCluster) -> PlanOutcome:
    (found,) = run(cluster).adopted
    return found


def webs(cluster: FakeCluster) -> list[tuple[str, str]]:
    pods: list[Raw] = list(cluster.objects["pods"].values())
    return sorted(
        (one["metadata"]["name"], one["spec"]["nodeName"])
        for one in pods
        if one["metadata"]["name"].startswith("web-1")
    )


def test_the_second_move_takes_the_replacement_of_the_first() -> None:
    cluster = cluster_with(*THERE_AND_ON)

    found = continued(cluster)

    assert [(one.state, one.node) for one in found.statuses] == [
        (MoveState.LANDED, "high-1"),
        (MoveState.LANDED, "high-2"),
    ]
    ((name, place),) = webs(cluster)
    assert name == found.statuses[1].replacement
    assert place == "high-2"
    assert len(cluster.reservations("aside")) == 2


def test_without_the_first_move_the_second_is_not_begun() -> None:
    cluster = cluster_with(*THERE_AND_ON)
    cluster.hold = lambda reservation: cluster.set_reservation(reservation, "Failed")

    found = continued(cluster)

    assert [one.state for one in found.statuses] == [MoveState.FAILED, MoveState.SKIPPED]
    assert found.statuses[1].message == "the earlier move did not bring the pod to high-1"
    assert webs(cluster) == [("web-1", "low-1")]


def killed_and_continued(cluster: FakeCluster, process: MortalProcess) -> list[Raw]:
    """Return the statuses of the moves after a run by a process, and where that is killed after one more."""
    try:
        run_mortal(process, process)
    except Killed:
        run_mortal(cluster, MortalProcess(cluster, 10_000))
    moves: list[Raw] = cluster.get(MIGRATION_PLANS, "aside")["status"]["moves"]
    return moves


@pytest.mark.parametrize("calls", range(5, 60, 3))
def test_a_run_that_is_killed_between_the_two_is_continued(calls: int) -> None:
    cluster = cluster_with(*THERE_AND_ON)

    moves = killed_and_continued(cluster, MortalProcess(cluster, calls))

    assert [one["state"] for one in moves] == ["Landed", "Landed"]
    ((_, place),) = webs(cluster)
    assert place == "high-2"


class UnrecordedProcess(MortalProcess):
    """One whose moves get no further in the plan's status than they were when it began, as its writes are late."""

    def merge_patch(self, resource: Any, name: str, patch: Raw, **options: Any) -> Any:
        if resource == MIGRATION_PLANS and patch.get("status", {}).get("phase") == "Running":
            self._spend()
            return {}
        return self.__getattr__("merge_patch")(resource, name, patch, **options)


@pytest.mark.parametrize(
    "calls", [calls if calls % 3 == 0 else pytest.param(calls, marks=pytest.mark.deep) for calls in range(5, 60)]
)
def test_what_a_killed_run_did_not_record_is_known_by_the_second_place(calls: int) -> None:
    cluster = cluster_with(*THERE_AND_ON)

    moves = killed_and_continued(cluster, UnrecordedProcess(cluster, calls))

    assert [(one["state"], one["pod"]) for one in moves] == [("Landed", "web-1"), ("Landed", "web-1")]
    ((name, place),) = webs(cluster)
    assert (name, place) == (moves[1]["replacement"], "high-2")


def test_the_earlier_move_is_the_last_one_before() -> None:
    other = PlannedMove(namespace="shop", pod="web-2", source="low-2", target="high-1")

    assert earlier_moves((THERE_AND_ON[0], other, THERE_AND_ON[1], web_1("high-2", "low-2", 2))) == {2: 0, 3: 2}


def at(name: str, on: str) -> Pod:
    return pod(name, node=on, cpu="1", memory=None, controller=owner(name=name))


def planned(*steps: tuple[str, str]) -> list[PlannedMove]:
    return [
        PlannedMove(namespace="default", pod="a", pod_uid="uid-default-a", source=source, target=target)
        for source, target in steps
    ]


REVIEWS: dict[str, tuple[dict[str, Any], set[int]]] = {
    "both hold": ({}, set()),
    "the third node has no room any more": ({"cpu": "500m"}, {0, 1}),
    "the end has no room any more": ({"end": "500m"}, {1}),
}


@pytest.mark.parametrize(("changes", "want"), REVIEWS.values(), ids=REVIEWS)
def test_a_second_look_follows_a_pod(changes: dict[str, str], want: set[int]) -> None:
    nodes = (node("from"), node("third", cpu=changes.get("cpu", "8")), node("to", cpu=changes.get("end", "8")))
    snapshot = Snapshot(nodes=nodes, pods=(at("a", "from"),))

    assert set(revalidate(snapshot, planned(("from", "third"), ("third", "to")), UNPROTECTED, emptied=())) == want


def test_a_second_move_that_starts_where_the_first_does_not_end_falls() -> None:
    snapshot = Snapshot(nodes=(node("from"), node("third"), node("to")), pods=(at("a", "from"),))

    assert set(revalidate(snapshot, planned(("from", "third"), ("to", "from")), UNPROTECTED, emptied=())) == {1}


def test_the_two_are_never_in_one_wave() -> None:
    snapshot = Snapshot(nodes=(node("a"), node("b"), node("c")), pods=(at("p", "a"),))
    problem = Problem.from_snapshot(snapshot, planner_settings(waves=WaveLimits(per_controller=9)))
    a, b, c = NodeIndex(0), NodeIndex(1), NodeIndex(2)
    state = State(problem.cluster, [a, b])
    steps = [Step(PodIndex(0), a, b), Step(PodIndex(0), b, c)]

    assert assign_waves(problem, state, steps) == (0, 1)
