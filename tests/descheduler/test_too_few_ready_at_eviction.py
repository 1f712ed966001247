"""Right before an eviction the pod's siblings are counted anew: one more may be gone, or the eviction waits."""

from typing import Any

import msgspec
import pytest

from berth_core.errors import RetryableError
from berth_core.migration_plans import PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.moves.eviction_request import evict
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.validation.live_owners import read_siblings
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_kube.errors import ServerError
from berth_kube.read_cache import ReadCache
from berth_kube.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS, STATEFUL_SETS
from builders import FakeClock, node, owner, pod, workload
from descheduler.fake_cluster import FakeCluster, call, evicted, failure
from planner_settings import plugin_set

SET = owner("StatefulSet", "db")
MOVE = PlannedMove(namespace="default", pod="db-0", pod_uid="uid-default-db-0", source="a", target="b")


class Operator:
    """An operator that is there."""

    def problem(self) -> str:
        return ""


def check(cluster: FakeCluster, gone_at_once: int = 1) -> PreEvictionCheck:
    client: Any = cluster
    return PreEvictionCheck(plugin_set(), Snapshot.empty, client, FakeClock(), gone_at_once=gone_at_once)


def why_not_now(cluster: FakeCluster, name: str, gone_at_once: int = 1) -> str:
    asking = check(cluster, gone_at_once)
    return asking.why_not_now(cluster.get(PODS, name, namespace="default"), asking.reads())


def three(ready: str) -> FakeCluster:
    """A StatefulSet of three pods, `+` for each that is Ready."""
    cluster = FakeCluster()
    cluster.add(NODES, msgspec.to_builtins(node(MOVE.target)))
    stateful_set = workload("StatefulSet", "db", replicas=3)
    parallel = msgspec.structs.replace(stateful_set.spec, pod_management_policy="Parallel")
    cluster.add(STATEFUL_SETS, msgspec.to_builtins(msgspec.structs.replace(stateful_set, spec=parallel)))
    for number, mark in enumerate(ready):
        cluster.add(PODS, raw_pod(number, ready=mark == "+"))
    return cluster


def raw_pod(number: int, *, ready: bool) -> dict[str, Any]:
    raw: dict[str, Any] = msgspec.to_builtins(pod(f"db-{number}", node="a", controller=SET, ready=ready))
    return raw


@pytest.mark.parametrize(
    ("ready", "at_once", "stays"),
    [
        ("+++", 1, False),
        ("++-", 1, True),
        ("+--", 1, True),
        ("++-", 2, False),
        ("-+-", 1, False),
    ],
)
def test_siblings_are_counted_right_before_the_eviction(ready: str, at_once: int, *, stays: bool) -> None:
    reason = why_not_now(three(ready), "db-0", at_once)
    assert bool(reason) is stays
    assert not stays or reason.startswith("its StatefulSet db wants 3 pods and has ")


def test_an_eviction_waits_until_enough_are_ready_again() -> None:
    cluster = three("++-")
    client: Any = cluster
    operator: Any = Operator()
    asking = check(cluster)

    waiting = evict(client, MOVE, operator, asking, lambda _pod, _reads: None)
    assert (waiting.eviction, waiting.refusal) == (Eviction.BLOCKED, "")
    assert "has 2 Ready" in waiting.detail
    assert evicted(cluster) == []

    cluster.add(PODS, raw_pod(2, ready=True))
    assert evict(client, MOVE, operator, asking, lambda _pod, _reads: None).eviction is Eviction.SENT


def test_what_cannot_be_read_now_is_no_answer() -> None:
    cluster = three("+++")
    cluster.faults["get statefulsets"] = ServerError(call("get", STATEFUL_SETS, "db"), failure(503, "busy"))
    with pytest.raises(RetryableError):
        why_not_now(cluster, "db-0")


def test_the_deployment_behind_a_replica_set_is_read() -> None:
    cluster = FakeCluster()
    deployment = workload("Deployment", "web", replicas=3)
    replica_set = workload("ReplicaSet", "web-1", replicas=1, controller=owner("Deployment", "web"))
    cluster.add(DEPLOYMENTS, msgspec.to_builtins(deployment))
    cluster.add(REPLICA_SETS, msgspec.to_builtins(replica_set))
    of_web = pod("web-1-a", node="a", controller=owner("ReplicaSet", "web-1"))
    cluster.add(PODS, msgspec.to_builtins(of_web))
    client: Any = cluster

    siblings = read_siblings(ReadCache(client), of_web)

    assert [(read.kind, read.metadata.name) for read in siblings.workloads] == [
        ("Deployment", "web"),
        ("ReplicaSet", "web-1"),
    ]
    assert "Deployment web wants 3 pods and has 1 Ready" in why_not_now(cluster, "web-1-a")
