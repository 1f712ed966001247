"""Pods of LeaderWorkerSets, whose groups start again as a whole."""

import pytest

from berth_core import Pod
from berth_core.workloads import LeaderWorkerTemplate, Ordinals, Workload
from berth_descheduler.framework.refusals import RefusalReason as Reason
from planner.owners.workloads import controller, pod_of, reference, refusals_of

PREFIX = "leaderworkerset.sigs.k8s.io"
LEADERS = controller(
    "StatefulSet", "vllm", above=reference("LeaderWorkerSet", "vllm"), pod_management_policy="Parallel"
)
WORKERS = controller(
    "StatefulSet",
    "vllm-0",
    above=reference("Pod", "vllm-0"),
    pod_management_policy="Parallel",
    ordinals=Ordinals(start=1),
)


def member(of: Workload, name: str, index: str, *, size: str = "2") -> Pod:
    labels = {f"{PREFIX}/name": "vllm", f"{PREFIX}/worker-index": index}
    return pod_of(of, name, labels=labels, annotations={f"{PREFIX}/size": size})


LEADER, WORKER = member(LEADERS, "vllm-0", "0"), member(WORKERS, "vllm-0-1", "1")


def leader_worker_set(restart_policy: str) -> Workload:
    return controller(
        "LeaderWorkerSet", "vllm", leader_worker_template=LeaderWorkerTemplate(restart_policy=restart_policy)
    )


@pytest.mark.parametrize(
    ("restart_policy", "known"),
    [
        ("", "by its restartPolicy RecreateGroupOnPodRestart"),
        ("RecreateGroupOnPodRestart", "by its restartPolicy RecreateGroupOnPodRestart"),
        ("RecreateGroupAfterStart", "by its restartPolicy RecreateGroupAfterStart"),
        ("RecreateGroupInPlace", "by its restartPolicy RecreateGroupInPlace"),
    ],
)
def test_a_worker_that_goes_restarts_its_group(restart_policy: str, known: str) -> None:
    (refusal,) = refusals_of(WORKER, LEADERS, WORKERS, leader_worker_set(restart_policy), others=[LEADER])

    assert refusal.reason is Reason.GANG_WOULD_RESTART
    assert refusal.message == f"its LeaderWorkerSet vllm restarts the whole group {known}"


def test_a_policy_that_is_not_known_counts_as_the_default() -> None:
    (refusal,) = refusals_of(WORKER, LEADERS, WORKERS, others=[LEADER])
    (without_workloads,) = refusals_of(WORKER, others=[LEADER])

    assert refusal == without_workloads
    assert refusal.message.endswith("unless its restartPolicy is None, which is not known")


@pytest.mark.parametrize("restart_policy", ["None", "Default"])
def test_a_policy_that_restarts_nothing_lets_workers_go_and_no_leader(restart_policy: str) -> None:
    workloads = (LEADERS, WORKERS, leader_worker_set(restart_policy))

    (refusal,) = refusals_of(LEADER, *workloads, others=[WORKER])

    assert not refusals_of(WORKER, *workloads, others=[LEADER])
    assert refusal.reason is Reason.GANG_WOULD_RESTART
    assert refusal.message == (
        "it leads a group of its LeaderWorkerSet vllm, whose workers belong to it and go with it"
    )


def test_a_leader_without_workers_takes_none_along() -> None:
    alone = member(LEADERS, "vllm-0", "0", size="1")

    assert not refusals_of(alone, LEADERS, leader_worker_set("RecreateGroupOnPodRestart"))


def test_pods_whose_stateful_set_belongs_to_a_pod_are_a_group_without_labels_too() -> None:
    unlabelled = pod_of(WORKERS, "vllm-0-1")

    (refusal,) = refusals_of(unlabelled, LEADERS, WORKERS)

    assert refusal.reason is Reason.GANG_WOULD_RESTART
    assert refusal.message.startswith("its group of the pod vllm-0 restarts the whole group")
