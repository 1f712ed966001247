"""A target that is about to end the pods on it gets none by an eviction, and no move has landed there."""

from typing import Any

import pytest

from berth_core import PodSpec, Taint, Toleration
from berth_descheduler.migration.nodes.targets import why_target_ends_pod
from berth_descheduler.outcome import Outcome
from berth_kube.errors import NotFoundError, RetryableError
from berth_kube.resources import NODES, PODS
from builders import node
from descheduler.cycle_settings import states
from descheduler.fake_cluster import FakeCluster, Raw, call, evicted, failure, fragmented_cluster
from descheduler.test_execution_safety_of_a_cycle import run

EVERYTHING = {"operator": "Exists"}
FOR_A_MINUTE = {"key": "maint", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
GOING = {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
ENDING = {"key": "maint", "effect": "NoExecute"}


def tolerant_cluster(toleration: Raw) -> FakeCluster:
    cluster = fragmented_cluster()
    for raw_pod in cluster.raw(PODS):
        cluster.put(PODS, {**raw_pod, "spec": {**raw_pod["spec"], "tolerations": [toleration]}})
    return cluster


def taint_targets(cluster: FakeCluster, taint: Raw) -> None:
    for raw_node in cluster.raw(NODES):
        if raw_node["metadata"]["name"].startswith("high"):
            cluster.put(NODES, {**raw_node, "spec": {**raw_node["spec"], "taints": [taint]}})


def endings(outcome: Outcome) -> set[tuple[str, str]]:
    return set(states(outcome).values())


@pytest.mark.parametrize(
    ("toleration", "taint"), [(EVERYTHING, GOING), (FOR_A_MINUTE, ENDING)], ids=["going", "ending"]
)
def test_no_pod_is_evicted_for_a_target_that_is_about_to_go(toleration: Raw, taint: Raw) -> None:
    cluster = tolerant_cluster(toleration)

    def hold(reservation: Raw) -> None:
        cluster.hold_at_once(reservation)
        taint_targets(cluster, taint)

    cluster.hold = hold

    outcome = run(cluster)

    assert evicted(cluster) == []
    assert ("Skipped", "TargetUnfit") in endings(outcome)
    assert not any(state == "Landed" for state, _ in endings(outcome))


@pytest.mark.parametrize(
    ("toleration", "taint"), [(EVERYTHING, GOING), (FOR_A_MINUTE, ENDING)], ids=["going", "ending"]
)
def test_no_move_has_landed_on_a_target_that_is_about_to_go(toleration: Raw, taint: Raw) -> None:
    cluster = tolerant_cluster(toleration)

    def land(raw_pod: Raw) -> None:
        cluster.land_at_once(raw_pod)
        taint_targets(cluster, taint)

    cluster.land = land

    outcome = run(cluster)

    assert evicted(cluster)
    assert ("Failed", "TargetUnfit") in endings(outcome)
    assert not any(state == "Landed" for state, _ in endings(outcome))


class Nodes:
    """What the API server answers for one node."""

    def __init__(self, answer: object) -> None:
        self._answer = answer

    def get(self, resource: object, name: str, **_: Any) -> object:  # noqa: ANN401 - whatever a client is asked
        assert (resource, name) == (NODES, "node-a")
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


def problem_of(answer: object, *tolerations: Toleration) -> str:
    client: Any = Nodes(answer)
    return why_target_ends_pod(client, "node-a", PodSpec(tolerations=tolerations))


def test_why_a_target_ends_a_pod_is_said() -> None:
    maintenance = node(taints=[Taint(key="maint", effect="NoExecute")])
    minute = Toleration(key="maint", operator="Exists", effect="NoExecute", toleration_seconds=60)

    assert problem_of(node()) == ""
    assert problem_of(maintenance, Toleration(operator="Exists")) == ""
    assert problem_of(maintenance, minute) == "node-a: taint maint=:NoExecute ends the pod after 60 s"
    assert problem_of(maintenance) == "node-a: taint maint=:NoExecute ends the pod after 0 s"
    assert problem_of(NotFoundError(call("get", NODES, "node-a"), failure(404))) == "node node-a is gone"
    with pytest.raises(RetryableError):
        problem_of(RetryableError("not now"))
