"""Right before an eviction the pod's siblings are counted anew: one more may be gone, or the eviction waits."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from berth_core.errors import RetryableError
from berth_core.migration_plans import PlannedMove
from berth_core.objects import Pod
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.moves.eviction_request import evict
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_descheduler.planner import Owners
from berth_descheduler.snapshots import read_siblings
from berth_kube.resources import DEPLOYMENTS, NODES, PODS, REPLICA_SETS
from builders import FakeClock, node, owner, pod, workload
from descheduler.fake_cluster import FakeCluster, evicted
from planner_settings import plugin_set

SET = owner("StatefulSet", "db")
MOVE = PlannedMove(namespace="default", pod="db-0", pod_uid="uid-default-db-0", source="a", target="b")


class Operator:
    """An operator that is there."""

    def problem(self) -> str:
        return ""


def check(siblings: Callable[[Pod], Snapshot], gone_at_once: int = 1) -> PreEvictionCheck:
    return PreEvictionCheck(
        plugin_set(),
        Snapshot.empty,
        lambda _namespace: Snapshot(),
        FakeClock(),
        read_owners=lambda _pod: Owners(Snapshot()),
        read_siblings=siblings,
        gone_at_once=gone_at_once,
    )


def three(ready: str) -> Snapshot:
    pods = (pod(f"db-{number}", node="a", controller=SET, ready=mark == "+") for number, mark in enumerate(ready))
    return Snapshot(pods=tuple(pods), workloads=(workload("StatefulSet", "db", replicas=3),))


def raw(snapshot: Snapshot) -> dict[str, Any]:
    raw_pod: dict[str, Any] = msgspec.to_builtins(snapshot.pods[0])
    return raw_pod


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
    siblings = three(ready)
    reason = check(lambda _: siblings, at_once).why_not_now(raw(siblings))
    assert bool(reason) is stays
    assert not stays or reason.startswith("its StatefulSet db wants 3 pods and has ")


def test_an_eviction_waits_until_enough_are_ready_again() -> None:
    cluster: Any = FakeCluster()
    cluster.add(PODS, raw(three("++-")))
    cluster.add(NODES, msgspec.to_builtins(node(MOVE.target)))
    seen = [three("++-"), three("+++")]
    operator: Any = Operator()
    siblings = check(lambda _: seen.pop(0))

    waiting = evict(cluster, MOVE, operator, siblings, lambda _pod: None)
    assert (waiting.eviction, waiting.refusal) == (Eviction.BLOCKED, "")
    assert "has 2 Ready" in waiting.detail
    assert evicted(cluster) == []

    assert evict(cluster, MOVE, operator, siblings, lambda _pod: None).eviction is Eviction.SENT


def test_what_cannot_be_read_now_is_no_answer() -> None:
    def unreadable(_pod: Pod) -> Snapshot:
        raise RetryableError("not now")

    with pytest.raises(RetryableError):
        check(unreadable).why_not_now(raw(three("+++")))


def test_the_deployment_behind_a_replica_set_is_read() -> None:
    cluster: Any = FakeCluster()
    deployment = workload("Deployment", "web", replicas=3)
    replica_set = workload("ReplicaSet", "web-1", replicas=1, controller=owner("Deployment", "web"))
    cluster.add(DEPLOYMENTS, msgspec.to_builtins(deployment))
    cluster.add(REPLICA_SETS, msgspec.to_builtins(replica_set))
    of_web = pod("web-1-a", node="a", controller=owner("ReplicaSet", "web-1"))
    cluster.add(PODS, msgspec.to_builtins(of_web))

    siblings = read_siblings(cluster, of_web)

    assert [(read.kind, read.metadata.name) for read in siblings.workloads] == [
        ("Deployment", "web"),
        ("ReplicaSet", "web-1"),
    ]
    assert "Deployment web wants 3 pods and has 1 Ready" in check(lambda _: siblings).why_not_now(
        msgspec.to_builtins(of_web)
    )
