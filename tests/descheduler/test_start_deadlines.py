"""How long a replacement may take is read off the Deployment behind its pod, once for each ReplicaSet."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from berth_core.migration_plans import PlannedMove
from berth_core.reservations import ObjectReference
from berth_descheduler.migration.moves.memory import remember
from berth_descheduler.migration.moves.replacement_readiness import LONGEST_START_SECONDS
from berth_descheduler.migration.moves.reservation_request import PlaceTerms
from berth_descheduler.migration.moves.start_deadlines import ProgressDeadlines
from berth_descheduler.migration.moves.start_limits import start_limit
from berth_descheduler.settings import MoveTimeouts
from berth_kube.errors import ServerError
from berth_kube.resources import DEPLOYMENTS, PODS, REPLICA_SETS
from descheduler.fake_cluster import FakeCluster, Raw, call, failure
from descheduler.test_surge_of_a_cycle import Surging


def pod_of(cluster: FakeCluster, name: str = "web-1") -> Raw:
    raw_pod: Raw = cluster.get(PODS, name, namespace="shop")
    return raw_pod


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ({}, 600.0),
        ({"progressDeadlineSeconds": 900}, 900.0),
        ({"progressDeadlineSeconds": 60}, 60.0),
        ({"progressDeadlineSeconds": 2**31 - 1}, LONGEST_START_SECONDS),
    ],
    ids=["none is said", "longer", "shorter", "none at all"],
)
def test_a_pod_has_the_deadline_of_its_deployment(spec: dict[str, Any], want: float) -> None:
    cluster = Surging().cluster
    cluster.merge_patch(DEPLOYMENTS, "web", {"spec": spec}, namespace="shop")
    deadlines = ProgressDeadlines(cluster.as_client())

    assert deadlines.of(pod_of(cluster)) == want
    cluster.calls.clear()
    assert deadlines.of(pod_of(cluster, "web-2")) == want
    assert [one.plural for one in cluster.calls if one.plural != PODS.plural] == [], "its ReplicaSet was asked before"


def test_pods_of_other_controllers_have_none() -> None:
    cluster = Surging().cluster
    cluster.merge_patch(REPLICA_SETS, "api", {"metadata": {"ownerReferences": None}}, namespace="shop")
    of_stateful_set = pod_of(cluster)
    of_stateful_set["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"

    assert ProgressDeadlines(cluster.as_client()).of(pod_of(cluster, "api-1")) == 0.0
    assert ProgressDeadlines(cluster.as_client()).of(of_stateful_set) == 0.0


def test_a_deadline_that_cannot_be_read_now_is_asked_for_again() -> None:
    cluster = Surging().cluster
    deadlines = ProgressDeadlines(cluster.as_client())
    pod = pod_of(cluster)

    cluster.faults["get deployments"] = [ServerError(call("get", DEPLOYMENTS, "web"), failure(503))]
    assert deadlines.of(pod) is None
    assert deadlines.of(pod) == 600.0


def test_the_default_counts_until_the_deadline_is_read() -> None:
    timeouts = MoveTimeouts(ready_seconds=120)
    move = PlannedMove(namespace="shop", pod="web-1", source="a", target="b")
    for kind, want in (("ReplicaSet", 600.0), ("StatefulSet", 120.0)):
        owner = ObjectReference(kind=kind, name="web")
        memory = remember("plan", 0, PlannedMove(namespace="shop", pod="web-1", source="a", target="b", owner=owner))
        assert start_limit(memory, timeouts) == want
        assert start_limit(memory, replace(timeouts, heeds_progress_deadlines=False)) == 120.0
    assert start_limit(remember("plan", 0, move), timeouts) == 120.0


def test_a_place_outlives_the_moves_before_it_by_their_deadlines() -> None:
    ttl = timedelta(minutes=10)
    assert PlaceTerms(ttl).ttl_of(600.0) == ttl
    assert PlaceTerms(ttl, turns=3).ttl_of(600.0) == timedelta(minutes=3 * 10 + 2 * 20)
    assert PlaceTerms(ttl, turns=3).ttl_of(None) == timedelta(minutes=30)
