"""What is read again of a pod's controller right before the pod is evicted."""

from collections.abc import Callable
from typing import Any

import pytest

from berth_core import Pod
from berth_core.decoding import convert
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.migration.moves.eviction_request import ask_rules
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.validation.live_owners import read_owners
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_kube.errors import Call, ForbiddenError, ServerError
from berth_kube.read_cache import ReadCache
from berth_kube.resources import (
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    NAMESPACES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
    VOLCANO_JOBS,
    Resource,
)
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, Raw, failure, fragmented_cluster, pod
from planner_settings import plugin_set

LATER = "2026-11-21T12:00:00Z"
LEADER = "leaderworkerset.sigs.k8s.io/name"


def refusals(cluster: FakeCluster, name: str) -> list[tuple[RefusalReason, str]]:
    client: Any = cluster
    asked = convert(cluster.get(PODS, name, namespace="shop"), Pod)
    owners = read_owners(ReadCache(client), FakeClock(), asked)
    return [(refusal.reason, refusal.message) for refusal in owners.refusals(asked)]


def change(cluster: FakeCluster, resource: Resource, name: str, body: Raw) -> None:
    cluster.merge_patch(resource, name, body, namespace=None if resource is NAMESPACES else "shop")


def of(kind: Resource, name: str, owner: str, **metadata: Any) -> Raw:  # noqa: ANN401 - fields of the metadata
    """A pod of a controller of another kind."""
    made = pod(name, owner, "low-1", cpu="1")
    reference = {"apiVersion": kind.api_version, "kind": kind.kind, "name": owner, "uid": f"uid-{owner}"}
    made["metadata"] |= {"ownerReferences": [{**reference, "controller": True}], **metadata}
    return made


def add_owner(cluster: FakeCluster, kind: Resource, name: str, spec: Raw, status: Raw | None = None) -> None:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}"}
    cluster.add(kind, {"metadata": metadata, "spec": spec, "status": status or {}})


def add_deployment(cluster: FakeCluster) -> None:
    """Have a Deployment behind the ReplicaSet `web`."""
    reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "uid-web", "controller": True}
    change(cluster, REPLICA_SETS, "web", {"metadata": {"ownerReferences": [reference]}})
    add_owner(cluster, DEPLOYMENTS, "web", {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}})


def test_a_pod_of_a_controller_that_wants_it_may_go() -> None:
    assert refusals(fragmented_cluster(), "web-1") == []


@pytest.mark.parametrize(
    ("alter", "want"),
    [
        (lambda cluster: cluster.delete(REPLICA_SETS, "web", namespace="shop"), RefusalReason.UNKNOWN_CONTROLLER),
        (
            lambda cluster: change(cluster, REPLICA_SETS, "web", {"spec": {"replicas": 1}}),
            RefusalReason.CONTROLLER_SCALING_DOWN,
        ),
        (
            lambda cluster: change(cluster, REPLICA_SETS, "web", {"metadata": {"deletionTimestamp": LATER}}),
            RefusalReason.CONTROLLER_SCALING_DOWN,
        ),
        (
            lambda cluster: cluster.add(NAMESPACES, {"metadata": {"name": "shop"}, "status": {"phase": "Terminating"}}),
            RefusalReason.NO_REPLACEMENT,
        ),
        (
            lambda cluster: change(cluster, PODS, "web-1", {"metadata": {"finalizers": ["example.com/kept"]}}),
            RefusalReason.FOREIGN_FINALIZER,
        ),
    ],
    ids=["gone", "scaled down", "being deleted", "in a namespace that is being deleted", "with a finalizer"],
)
def test_what_has_changed_since_the_plan_keeps_the_pod(
    alter: Callable[[FakeCluster], object], want: RefusalReason
) -> None:
    cluster = fragmented_cluster()
    alter(cluster)

    assert [reason for reason, _ in refusals(cluster, "web-1")] == [want]


def test_the_deployment_behind_a_replica_set_is_read() -> None:
    cluster = fragmented_cluster()
    add_deployment(cluster)
    assert refusals(cluster, "web-1") == []

    change(cluster, DEPLOYMENTS, "web", {"metadata": {"deletionTimestamp": LATER}})

    ((reason, message),) = refusals(cluster, "web-1")
    assert (reason, message) == (
        RefusalReason.CONTROLLER_SCALING_DOWN,
        "the Deployment web of its ReplicaSet is being deleted",
    )

    cluster.delete(DEPLOYMENTS, "web", namespace="shop")

    ((reason, message),) = refusals(cluster, "web-1")
    assert (reason, message) == (
        RefusalReason.UNKNOWN_CONTROLLER,
        "the Deployment web of its ReplicaSet is not in the snapshot",
    )


def test_the_siblings_of_a_stateful_set_are_read() -> None:
    cluster = fragmented_cluster()
    add_owner(cluster, STATEFUL_SETS, "db", {"replicas": 2, "selector": {"matchLabels": {"app": "db"}}})
    for name in ("db-0", "db-1"):
        cluster.add(PODS, of(STATEFUL_SETS, name, "db"))
    assert refusals(cluster, "db-1") == []

    unready = {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    cluster.merge_patch(PODS, "db-0", unready, namespace="shop", subresource="status")

    ((reason, _),) = refusals(cluster, "db-1")
    assert reason is RefusalReason.LOWER_ORDINAL_NOT_READY
    assert refusals(cluster, "db-0") == []


def test_a_pod_that_its_replica_set_has_let_go_does_not_count_to_it() -> None:
    """A surge asks about the pod as its ReplicaSet had it, when this has another one in its stead."""
    cluster = fragmented_cluster()
    asked = convert(cluster.get(PODS, "web-1", namespace="shop"), Pod)
    change(cluster, PODS, "web-1", {"metadata": {"ownerReferences": [], "labels": {"app": "let-go"}}})
    cluster.add(PODS, pod("web-3", "web", "high-1", cpu="1"))
    client: Any = cluster

    assert not read_owners(ReadCache(client), FakeClock(), asked).refusals(asked)


def test_failures_of_a_job_count_when_the_plan_is_made_only() -> None:
    """Each eviction of a plan is one, so that the later ones would be refused for the earlier ones."""
    cluster = fragmented_cluster()
    add_owner(cluster, JOBS, "work", {"backoffLimit": 2, "parallelism": 1, "completions": 1}, {"failed": 2})
    cluster.add(PODS, of(JOBS, "work-a", "work"))

    assert refusals(cluster, "work-a") == []


def test_a_group_that_starts_again_is_read() -> None:
    cluster = fragmented_cluster()
    add_owner(cluster, STATEFUL_SETS, "llm-0", {"replicas": 1, "ordinals": {"start": 1}})
    labels = {LEADER: "llm", "leaderworkerset.sigs.k8s.io/worker-index": "1"}
    cluster.add(PODS, of(STATEFUL_SETS, "llm-0-1", "llm-0", labels=labels))
    ((reason, unknown),) = refusals(cluster, "llm-0-1")

    add_owner(cluster, LEADER_WORKER_SETS, "llm", {"leaderWorkerTemplate": {"restartPolicy": "None"}})

    assert (reason, "which is not known" in unknown) == (RefusalReason.GANG_WOULD_RESTART, True)
    assert refusals(cluster, "llm-0-1") == []


def test_a_volcano_job_is_read_for_its_template() -> None:
    cluster = fragmented_cluster()
    larger = {"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": "4"}}}]}}
    add_owner(cluster, VOLCANO_JOBS, "train", {"tasks": [{"name": "worker", "replicas": 1, "template": larger}]})
    cluster.add(PODS, of(VOLCANO_JOBS, "train-worker-0", "train", annotations={"volcano.sh/task-spec": "worker"}))

    ((reason, message),) = refusals(cluster, "train-worker-0")

    assert reason is RefusalReason.TEMPLATE_DIFFERS
    assert "asks for cpu 4 instead of 1" in message


@pytest.mark.parametrize("kind", ["replicasets", "namespaces", "deployments"])
def test_what_may_not_be_read_is_not_known(kind: str) -> None:
    cluster = fragmented_cluster()
    add_deployment(cluster)

    def forbid(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("get", kind):
            raise ForbiddenError(Call(verb, name), failure(403))

    cluster.before = forbid

    assert refusals(cluster, "web-1") == []


def test_an_answer_that_does_not_come_is_none() -> None:
    cluster = fragmented_cluster()

    def fail(verb: str, plural: str, name: str) -> None:
        if (verb, plural) == ("get", "replicasets"):
            raise ServerError(Call(verb, name), failure(500))

    cluster.before = fail

    with pytest.raises(ServerError):
        refusals(cluster, "web-1")


def test_what_passes_by_itself_is_asked_again_and_the_rest_skips_the_move() -> None:
    cluster = fragmented_cluster()
    add_owner(cluster, STATEFUL_SETS, "db", {"replicas": 2, "selector": {"matchLabels": {"app": "db"}}})
    cluster.add(PODS, of(STATEFUL_SETS, "db-1", "db"))
    client: Any = cluster
    check = PreEvictionCheck(plugin_set(), Snapshot.empty, client, FakeClock())
    move = PlannedMove(namespace="shop", pod="db-1", pod_uid="uid-db-1", source="low-1", target="high-1")

    blocked = ask_rules(check.reads(), cluster.get(PODS, "db-1", namespace="shop"), move, check)
    change(cluster, STATEFUL_SETS, "db", {"spec": {"replicas": 1}})
    refused = ask_rules(check.reads(), cluster.get(PODS, "db-1", namespace="shop"), move, check)

    assert blocked is not None
    assert (blocked.eviction, blocked.refusal) == (Eviction.BLOCKED, MoveReason.NONE)
    assert refused is not None
    assert (refused.eviction, refused.refusal) == (Eviction.NOT_SENT, MoveReason.FILTERED)


@pytest.mark.parametrize(("reason", "stays"), [("EvictionByEvictionAPI", False), ("PreemptionByScheduler", True)])
def test_a_mark_that_an_earlier_request_for_the_eviction_has_left_keeps_no_pod(reason: str, stays: bool) -> None:  # noqa: FBT001 - a column of the table
    cluster = fragmented_cluster()
    client: Any = cluster
    conditions = [{"type": "Ready", "status": "True"}, {"type": "DisruptionTarget", "status": "True", "reason": reason}]
    cluster.merge_patch(PODS, "web-1", {"status": {"conditions": conditions}}, namespace="shop", subresource="status")
    check = PreEvictionCheck(plugin_set(), Snapshot.empty, client, FakeClock())

    refused = check.refusals(cluster.get(PODS, "web-1", namespace="shop"), check.reads())

    assert [refusal.reason for refusal in refused] == ([RefusalReason.TERMINATING] if stays else [])


def test_the_revision_is_read_from_which_a_stateful_set_makes_a_pod() -> None:
    cluster = fragmented_cluster()
    raw_pod = of(STATEFUL_SETS, "db-0", "db", labels={"app": "db", "controller-revision-hash": "db-2"})
    cluster.add(PODS, raw_pod)
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    template = {"spec": {"containers": raw_pod["spec"]["containers"]}}
    spec = {"replicas": 2, "updateStrategy": rolling, "podManagementPolicy": "Parallel", "template": template}
    add_owner(cluster, STATEFUL_SETS, "db", spec, {"currentRevision": "db-1", "updateRevision": "db-2"})
    unknown = refusals(cluster, "db-0")
    assert unknown == [
        (
            RefusalReason.TEMPLATE_DIFFERS,
            "its StatefulSet db makes the replacement from revision db-1, which is not known",
        )
    ]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "uid-db", "controller": True}
    metadata = {"name": "db-1", "namespace": "shop", "ownerReferences": [owner]}
    kept = {"spec": {"template": {**template, "$patch": "replace"}}}
    cluster.add(CONTROLLER_REVISIONS, {"metadata": metadata, "revision": 1, "data": kept})
    assert refusals(cluster, "db-0") == []
