"""A pod that another client deletes in the moment of its move was not evicted, and nothing says that it was."""

import threading

import pytest

from berth_core.migration_plans import PlannedMove
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.moves.surge_requests import look_again
from berth_descheduler.observers import CycleObserver
from berth_kube.resources import EVENTS, PODS
from builders import NOON_TEXT
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock, states
from descheduler.fake_cluster import FakeCluster, evicted, fragmented_cluster


def mark_deleted(cluster: FakeCluster, name: str) -> None:
    """Mark a pod as the API server does where its deletion takes its grace period."""
    with cluster.lock:
        metadata = cluster.objects["pods"]["shop", name]["metadata"]
        metadata["deletionTimestamp"] = NOON_TEXT


def test_a_pod_that_is_being_deleted_is_not_evicted() -> None:
    cluster = fragmented_cluster()
    looks = iter(range(1, 1_000_000))

    def delete_first(verb: str, plural: str, name: str) -> None:
        """Another client deletes the pod after its place is held; it has ended at the next look, before the watch."""
        if (verb, plural, name) == ("get", PODS.plural, "api-1") and has_place(cluster):
            match next(looks):
                case 1:
                    mark_deleted(cluster, "api-1")
                case 2:
                    cluster.remove(PODS, cluster.objects["pods"]["shop", "api-1"])
                case _:
                    pass

    cluster.before = delete_first
    context = CycleContext(cluster.as_client(), BriskClock(), CycleObserver(), threading.Event())
    outcome = Cycle(context, SETTINGS, PLANNER).run()

    assert states(outcome)["api-1"] == ("Skipped", "PodGone")
    assert "api-1" not in evicted(cluster)
    assert not [event for event in cluster.raw(EVENTS) if "api-1" in str(event) and "vict" in str(event)]


def has_place(cluster: FakeCluster) -> bool:
    return any(
        reservation["spec"]["owners"][0]["object"]["name"] == "api" and "status" in reservation
        for reservation in cluster.reservations()
    )


@pytest.mark.parametrize("is_there", [True, False], ids=["being deleted", "gone"])
def test_a_look_at_a_pod_that_has_left_does_not_say_that_it_was_evicted(*, is_there: bool) -> None:
    cluster = fragmented_cluster()
    raw_pod = cluster.objects["pods"]["shop", "web-1"]
    move = PlannedMove(namespace="shop", pod="web-1", pod_uid=raw_pod["metadata"]["uid"], source="low-1", target="x")
    if is_there:
        mark_deleted(cluster, "web-1")
    else:
        cluster.remove(PODS, raw_pod)

    answer = look_again(cluster.as_client(), move)

    assert answer is not None
    assert (answer.eviction, answer.is_gone) == (Eviction.BLOCKED, True)  # type: ignore[union-attr]
