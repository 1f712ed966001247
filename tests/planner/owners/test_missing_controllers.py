"""Controllers that are not there, want none or are being deleted, of every kind that has pods."""

import msgspec
import pytest

from berth_core import Pod
from berth_core.pod_groups import VolcanoJobState, VolcanoJobStatus
from berth_core.snapshot import Snapshot
from berth_core.snapshot_kinds import SnapshotKind
from berth_core.workloads import Workload
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import Plan, plan
from builders import node, volcano_job, volcano_pod
from planner.clusters import consolidating
from planner.owners.workloads import controller, pod_of, reference, refusals_of

LATER = "2026-11-21T12:00:00Z"
KINDS = ("ReplicaSet", "StatefulSet", "ReplicationController", "Job", "DaemonSet")
WEB = controller("ReplicaSet", "web", replicas=1)


def of(kind: str, **rest: object) -> Workload:
    spec = {"backoff_limit": 9} if kind == "Job" else {}
    return controller(kind, "maker", **spec, **rest)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", KINDS)
def test_a_controller_that_alone_is_missing_makes_nothing(kind: str) -> None:
    (refusal,) = refusals_of(pod_of(of(kind), "maker-0"), controller(kind, "other", backoff_limit=9))

    assert refusal.reason is Reason.UNKNOWN_CONTROLLER
    assert refusal.message == f"its {kind} maker is not in the snapshot"


@pytest.mark.parametrize("kind", KINDS)
def test_a_controller_of_a_kind_that_is_stated_makes_nothing_where_there_is_none_of_it(kind: str) -> None:
    other_kind = "StatefulSet" if kind == "ReplicaSet" else "ReplicaSet"
    other = controller(other_kind, "other", replicas=1)

    (refusal,) = refusals_of(pod_of(of(kind), "maker-0"), other, stated=frozenset(SnapshotKind))

    assert refusal.reason is Reason.UNKNOWN_CONTROLLER
    assert refusal.message == f"its {kind} maker is not in the snapshot"


def test_an_instance_without_any_controller_says_nothing_of_them() -> None:
    assert not refusals_of(pod_of(WEB, "web-a"), stated=frozenset(SnapshotKind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_controller_that_is_being_deleted_makes_nothing(kind: str) -> None:
    (refusal,) = refusals_of(pod_of(of(kind), "maker-0"), of(kind, deleted=LATER))

    assert refusal.reason is Reason.CONTROLLER_SCALING_DOWN
    assert refusal.message == f"its {kind} maker is being deleted or is suspended"


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController"])
def test_a_controller_that_wants_none_makes_none(kind: str) -> None:
    (refusal,) = refusals_of(pod_of(of(kind), "maker-0"), controller(kind, "maker", replicas=0))

    assert refusal.reason is Reason.CONTROLLER_SCALING_DOWN
    assert refusal.message == f"its {kind} maker wants 0 pods and has 1, so it would not make the pod again"


def planned(daemon: Pod, *workloads: Workload) -> Plan:
    """The plan for a node with a pod that may move and a daemon pod, beside one with room."""
    mate = pod_of(WEB, "web-a", node="node-b", cpu="1")
    other = pod_of(controller("ReplicaSet", "busy", replicas=1), "busy-a", node="node-a", cpu="4")
    nodes = (node("node-a", cpu="8"), node("node-b", cpu="8"))
    return plan(Snapshot(nodes=nodes, pods=(daemon, mate, other), workloads=workloads), consolidating())


def test_a_daemon_pod_that_no_daemon_set_makes_again_keeps_its_node() -> None:
    daemon = pod_of(controller("DaemonSet", "agent"), "agent-a", node="node-b")

    with_it = planned(daemon, controller("DaemonSet", "agent"))
    without_it = planned(daemon, controller("DaemonSet", "other"))
    not_known = planned(daemon)

    assert [move.pod for move in with_it.moves] == ["web-a"]
    assert [move.pod for move in not_known.moves] == ["web-a"]
    assert not [move for move in without_it.moves if move.source == "node-b"]
    (refused,) = [refused for refused in without_it.refused if refused.name == "node-b"]
    assert refused.reason is Reason.HOLDS_IMMOVABLE_PODS
    assert "default/agent-a: its DaemonSet agent is not in the snapshot" in refused.message


def test_a_daemon_set_that_wants_no_pod_makes_none() -> None:
    daemon = pod_of(controller("DaemonSet", "agent"), "agent-a")

    (refusal,) = refusals_of(daemon, controller("DaemonSet", "agent", status={"desired_number_scheduled": 0}))
    (kept,) = refusals_of(daemon, controller("DaemonSet", "agent", status={"desired_number_scheduled": 1}))

    assert refusal.reason is Reason.CONTROLLER_SCALING_DOWN
    assert kept.reason is Reason.DAEMON_POD


def test_a_deployment_that_is_being_deleted_takes_its_replica_set_along() -> None:
    replica_set = controller("ReplicaSet", "web", replicas=1, above=reference("Deployment", "web"))
    ending, living = controller("Deployment", "web", deleted=LATER), controller("Deployment", "web")

    (refusal,) = refusals_of(pod_of(replica_set, "web-a"), replica_set, ending)

    assert refusal.reason is Reason.CONTROLLER_SCALING_DOWN
    assert refusal.message == "the Deployment web of its ReplicaSet is being deleted"
    assert not refusals_of(pod_of(replica_set, "web-a"), replica_set, living)


def test_a_replica_set_goes_once_its_deployment_is_gone() -> None:
    replica_set = controller("ReplicaSet", "web", replicas=1, above=reference("Deployment", "web"))
    pod = pod_of(replica_set, "web-a")

    (refusal,) = refusals_of(pod, replica_set, controller("Deployment", "other"))

    assert refusal.reason is Reason.UNKNOWN_CONTROLLER
    assert refusal.message == "the Deployment web of its ReplicaSet is not in the snapshot"
    assert not refusals_of(pod, replica_set), "made without Deployments"


@pytest.mark.parametrize("phase", ["Aborting", "Restarting", "Completing", "Terminating", "Failed"])
def test_a_volcano_job_that_ends_makes_no_pod(phase: str) -> None:
    job = msgspec.structs.replace(volcano_job(), status=VolcanoJobStatus(state=VolcanoJobState(phase=phase)))
    running = msgspec.structs.replace(job, status=VolcanoJobStatus(state=VolcanoJobState(phase="Running")))

    (refusal,) = refusals_of(volcano_pod(), volcano_jobs=(job,))

    assert refusal.reason is Reason.NO_REPLACEMENT
    assert refusal.message.endswith(f"is {phase} and makes no pods")
    assert not refusals_of(volcano_pod(), volcano_jobs=(running,))
