"""What people ask of the service is in API objects, and asking twice is the same as asking once."""

from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from berth_core import migration_plans, policies
from berth_core.labels import MANAGED_LABEL, POLICY_LABEL
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, PlanPhase, Predicted, RunMode
from berth_descheduler.migration.manifests.plans import plan_labels
from berth_descheduler.migration.plans.conflicts import PlanStateError
from berth_descheduler.migration.plans.requests import abort, approve, request_run
from berth_kube.client import KubeClient
from berth_kube.errors import InvalidObjectError, NotFoundError
from berth_kube.resources import DESCHEDULER_POLICIES, MIGRATION_PLANS, Resource
from builders import FakeClock
from descheduler.fake_cluster import FakeCluster, Raw, call, failure


@pytest.fixture
def cluster() -> FakeCluster:
    found = FakeCluster()
    body = {"metadata": {"name": "nightly"}, "spec": {"mode": "Approve", "profiles": [{"name": "default"}]}}
    found.add(DESCHEDULER_POLICIES, {"apiVersion": policies.POLICY_API_VERSION, "kind": policies.POLICY_KIND, **body})
    return found


def as_client(cluster: FakeCluster) -> KubeClient:
    return cast("KubeClient", cluster)


def ask(cluster: FakeCluster, **options: Any) -> MigrationPlan:  # noqa: ANN401 - as the function has them
    return request_run(as_client(cluster), FakeClock(), options.pop("policy", "nightly"), **options)


def test_a_request_is_a_plan_without_moves_in_the_policys_mode(cluster: FakeCluster) -> None:
    found = ask(cluster, requested_by="ada")
    assert found.spec == MigrationPlanSpec(
        policy="nightly",
        trigger="Request",
        mode=RunMode.APPROVE,
        requested_by="ada",
        approve_before="2026-11-22T12:00:00Z",
    )
    assert found.phase is PlanPhase.REQUESTED
    assert found.metadata.labels == {MANAGED_LABEL: "berth-descheduler", POLICY_LABEL: "nightly"}


def test_a_request_may_name_its_mode(cluster: FakeCluster) -> None:
    assert ask(cluster, mode=RunMode.PLAN).spec.mode is RunMode.PLAN


def test_two_requests_without_a_key_are_two_plans(cluster: FakeCluster) -> None:
    assert ask(cluster).metadata.name != ask(cluster).metadata.name


def test_a_request_under_the_same_key_is_the_same_plan(cluster: FakeCluster) -> None:
    first = ask(cluster, requested_by="ada", idempotency_key="k")
    assert ask(cluster, requested_by="ada", idempotency_key="k").metadata.uid == first.metadata.uid


def test_keys_of_two_people_do_not_meet(cluster: FakeCluster) -> None:
    first = ask(cluster, requested_by="ada", idempotency_key="k")
    assert ask(cluster, requested_by="eve", idempotency_key="k").metadata.name != first.metadata.name


def test_a_key_that_was_used_for_something_else_is_refused(cluster: FakeCluster) -> None:
    ask(cluster, mode=RunMode.PLAN, idempotency_key="k")
    with pytest.raises(PlanStateError, match="the key was used for another request"):
        ask(cluster, mode=RunMode.AUTO, idempotency_key="k")


def test_a_run_of_a_policy_that_is_not_there_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(NotFoundError):
        ask(cluster, policy="other")


def test_a_long_name_of_a_policy_is_no_label() -> None:
    assert POLICY_LABEL not in plan_labels("a" * 64)
    assert plan_labels("a" * 63)[POLICY_LABEL] == "a" * 63


def put(cluster: FakeCluster, phase: str = "", **spec: object) -> None:
    found: dict[str, object] = {"predicted": {"nodes": 1, "moves": 0, "waves": 0}} | spec
    status = {"status": {"phase": phase}} if phase else {}
    head = {
        "apiVersion": migration_plans.PLAN_API_VERSION,
        "kind": migration_plans.PLAN_KIND,
        "metadata": {"name": "p"},
    }
    cluster.add(MIGRATION_PLANS, {**head, "spec": found, **status})


def test_an_approval_and_an_abort_are_written_into_the_plan(cluster: FakeCluster) -> None:
    put(cluster, mode="Approve")
    assert approve(as_client(cluster), "p").spec.approved
    assert abort(as_client(cluster), "p").spec.aborted
    assert cluster.plan()["spec"]["predicted"] == {"nodes": 1, "moves": 0, "waves": 0}
    assert Predicted(nodes=1, moves=0, waves=0) == MigrationPlan.from_api(cluster.plan()).spec.predicted


def test_who_approved_and_who_aborted_is_noted_once(cluster: FakeCluster) -> None:
    put(cluster, mode="Approve")
    approve(as_client(cluster), "p", asked_by="ada")
    approve(as_client(cluster), "p", asked_by="eve")
    abort(as_client(cluster), "p", asked_by="eve")
    abort(as_client(cluster), "p", asked_by="ada")
    spec = MigrationPlan.from_api(cluster.plan()).spec
    assert (spec.approved_by, spec.aborted_by) == ("ada", "eve")


class Hasty(FakeCluster):
    """Somebody else decides in the instant before a name is noted, and the API server keeps the first name."""

    def merge_patch(self, resource: Resource, name: str, body: Raw, **options: Any) -> Any:  # noqa: ANN401 - as the client
        if "approvedBy" in body["spec"]:
            self.plan()["spec"] |= {"approved": True, "approvedBy": "eve"}
            raise InvalidObjectError(call("patch", resource, name), failure(422, "approvedBy is immutable"))
        return super().merge_patch(resource, name, body, **options)


def test_an_approval_counts_although_another_came_in_the_same_instant() -> None:
    cluster = Hasty()
    put(cluster, mode="Approve")
    spec = approve(as_client(cluster), "p", asked_by="ada").spec
    assert (spec.approved, spec.approved_by) == (True, "eve")


REFUSED: Final[dict[str, tuple[Callable[[KubeClient, str], object], str, dict[str, Any], str]]] = {
    "the approval of a plan that is only shown": (approve, "Proposed", {"mode": "Plan"}, "is only shown"),
    "the approval of a plan that is over": (approve, "Aborted", {"mode": "Approve"}, "is over: it is Aborted"),
    "the approval of a plan that is aborted": (approve, "", {"aborted": True}, "is being aborted"),
    "the approval of moves nobody has seen": (approve, "Requested", {"mode": "Approve"}, "has no moves yet"),
    "the abort of a plan that is over": (abort, "Succeeded", {}, "is over: it is Succeeded"),
}


@pytest.mark.parametrize(("ask_for", "phase", "spec", "want"), REFUSED.values(), ids=REFUSED)
def test_what_comes_too_late_is_refused(
    cluster: FakeCluster, ask_for: Callable[[KubeClient, str], object], phase: str, spec: dict[str, Any], want: str
) -> None:
    put(cluster, phase, **spec)
    with pytest.raises(PlanStateError, match=want):
        ask_for(as_client(cluster), "p")


def test_nothing_is_asked_of_a_plan_that_is_not_there(cluster: FakeCluster) -> None:
    with pytest.raises(NotFoundError):
        approve(as_client(cluster), "p")
    with pytest.raises(NotFoundError):
        abort(as_client(cluster), "p")
