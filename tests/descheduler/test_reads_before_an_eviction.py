"""What is asked of the API server before one eviction: each thing once, after the lock is held."""

import threading
from collections import Counter
from typing import Any

import pytest

from berth_core.migration_plans import PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.moves.eviction_request import evict
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.replacement_trial.trial import TrialRefusal
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_kube.read_cache import ReadCache
from berth_kube.resources import DEPLOYMENTS, PODS, PVCS, PVS, REPLICA_SETS
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, Raw, fragmented_cluster, replica_set
from descheduler.test_plugins_of_a_cycle import Pulse, in_gang
from planner_settings import plugin_set

MOVE = PlannedMove(namespace="shop", pod="web-1", pod_uid="uid-web-1", source="low-1", target="high-1")


def of_a_deployment() -> FakeCluster:
    cluster = fragmented_cluster()
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web-d", "controller": True}
    controlled = replica_set("web", 2)
    controlled["metadata"]["ownerReferences"] = [reference]
    cluster.add(REPLICA_SETS, controlled)
    metadata = {"name": "web", "namespace": "shop", "uid": "uid-web-d"}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}}
    cluster.add(DEPLOYMENTS, {"metadata": metadata, "spec": spec})
    return cluster


def with_a_claim(cluster: FakeCluster) -> FakeCluster:
    cluster.add(PVCS, {"metadata": {"name": "data", "namespace": "shop"}, "spec": {"volumeName": "pv"}})
    cluster.add(PVS, {"metadata": {"name": "pv"}, "spec": {"accessModes": ["ReadWriteOnce"]}})
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    cluster.merge_patch(PODS, "web-1", {"spec": {"volumes": [volume]}}, namespace="shop")
    return cluster


def in_a_gang(cluster: FakeCluster) -> FakeCluster:
    in_gang(cluster, 1)
    return cluster


OF_EVERY_POD = {
    "get pods": 1,
    "get namespaces": 1,
    "get replicasets": 1,
    "get deployments": 1,
    "list pods": 1,
    "get nodes": 1,
}
CASES = {
    "a Deployment's": (of_a_deployment(), OF_EVERY_POD),
    "one with a claim for one node": (
        with_a_claim(of_a_deployment()),
        {**OF_EVERY_POD, "get persistentvolumeclaims": 1, "get persistentvolumes": 1},
    ),
    "one of a gang": (
        in_a_gang(of_a_deployment()),
        {**OF_EVERY_POD, "list volcanojobs": 1, "list volcanopodgroups": 1, "list podgroups": 1, "list workloads": 1},
    ),
}


@pytest.mark.parametrize(("cluster", "want_requests"), CASES.values(), ids=CASES)
def test_nothing_is_read_twice_before_one_eviction(cluster: FakeCluster, want_requests: dict[str, int]) -> None:
    client: Any = cluster
    check = PreEvictionCheck(plugin_set(), Snapshot.empty, client, FakeClock())

    def try_replacement(_raw_pod: Raw, reads: ReadCache) -> TrialRefusal | None:
        assert reads.get(REPLICA_SETS, "web", namespace="shop")["spec"]["replicas"] == 2
        return None

    pulse: Any = Pulse()
    cluster.calls.clear()
    answer = evict(client, MOVE, pulse, check, try_replacement)

    assert answer.eviction is Eviction.SENT, answer.detail
    before = cluster.calls[: next(number for number, made in enumerate(cluster.calls) if made.verb == "evict")]
    assert Counter(f"{made.verb} {made.plural}" for made in before) == want_requests


def test_what_decides_is_read_once_the_lock_is_held_and_anew_for_each_eviction() -> None:
    cluster = of_a_deployment()
    client: Any = cluster
    check = PreEvictionCheck(plugin_set(), Snapshot.empty, client, FakeClock())
    pulse: Any = Pulse()
    answers: list[Eviction] = []
    raw_pod = cluster.get(PODS, "web-1", namespace="shop")
    asking = threading.Event()
    cluster.before = lambda verb, plural, _name: asking.set() if (verb, plural) == ("get", "pods") else None

    def ask() -> None:
        answers.append(evict(client, MOVE, pulse, check, lambda _pod, _reads: None).eviction)

    second = threading.Thread(target=ask)
    with check.eviction_lock(raw_pod):
        second.start()
        assert asking.wait(30)  # it has read its pod, and waits for the lock
        unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        cluster.merge_patch(PODS, "web-2", unready, namespace="shop", subresource="status")
    second.join(30)
    ready = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    cluster.merge_patch(PODS, "web-2", ready, namespace="shop", subresource="status")
    ask()

    assert answers == [Eviction.BLOCKED, Eviction.SENT]
