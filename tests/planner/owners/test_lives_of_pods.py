"""Pods that are about to go, or would not go when they are evicted."""

import pytest

from berth_core import Namespace, ObjectMeta
from berth_core.objects.metadata import NamespaceStatus
from berth_descheduler.framework.refusals import RefusalReason as Reason
from planner.owners.workloads import controller, pod_of, refusals_of, with_condition

WEB = controller("ReplicaSet", "web", replicas=1)


@pytest.mark.parametrize(
    "namespace",
    [
        Namespace(metadata=ObjectMeta(name="default", deletion_timestamp="2026-11-21T12:00:00Z")),
        Namespace(metadata=ObjectMeta(name="default"), status=NamespaceStatus(phase="Terminating")),
    ],
    ids=["deleted", "terminating"],
)
def test_nothing_is_made_in_a_namespace_that_is_being_deleted(namespace: Namespace) -> None:
    (refusal,) = refusals_of(pod_of(WEB, "web-a"), WEB, namespaces=[namespace])

    assert refusal.reason is Reason.NO_REPLACEMENT
    assert refusal.message == "the namespace default is being deleted, and nothing can be made in it"


def test_other_namespaces_may_be_deleted() -> None:
    gone = Namespace(metadata=ObjectMeta(name="gone"), status=NamespaceStatus(phase="Terminating"))
    active = Namespace(metadata=ObjectMeta(name="default"), status=NamespaceStatus(phase="Active"))

    assert not refusals_of(pod_of(WEB, "web-a"), WEB, namespaces=[gone, active])


def test_a_pod_that_another_program_is_about_to_delete_stays() -> None:
    marked = with_condition(pod_of(WEB, "web-a"), "DisruptionTarget", reason="DeletionByTaintManager")

    (refusal,) = refusals_of(marked, WEB)

    assert refusal.reason is Reason.TERMINATING
    assert refusal.message == (
        "its condition DisruptionTarget says that it is about to be deleted (DeletionByTaintManager)"
    )


def test_a_finalizer_of_another_program_keeps_a_pod() -> None:
    (refusal,) = refusals_of(pod_of(WEB, "web-a", finalizers=["example.com/backup"]), WEB)

    assert refusal.reason is Reason.FOREIGN_FINALIZER
    assert refusal.message == "its finalizer example.com/backup would keep it when it is evicted"


def test_the_job_controllers_own_finalizer_keeps_none() -> None:
    job = controller("Job", "work", backoff_limit=9)

    assert not refusals_of(pod_of(job, "work-a", finalizers=["batch.kubernetes.io/job-tracking"]), job)
