"""What people ask of the service is in API objects, and asking twice is the same as asking once."""

from collections.abc import Callable
from typing import Any, Final, cast

import pytest

from berth_core import migration_plans, policies
from berth_core.labels import MANAGED_LABEL, POLICY_LABEL
from berth_core.migration_plans import MigrationPlan, MigrationPlanSpec, PlanPhase, Predicted, RunMode
from berth_core.names import requested_plan_name
from berth_descheduler.migration.manifests.plans import plan_labels
from berth_descheduler.migration.plans.conflicts import PlanStateError
from berth_descheduler.migration.plans.looked_at import AnotherPlanError, LookedAt
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


def test_a_name_cannot_be_taken_first_by_who_does_not_know_the_secret(cluster: FakeCluster) -> None:
    """Whoever may create plans may take a name that follows from what callers send alone."""
    head = {"apiVersion": migration_plans.PLAN_API_VERSION, "kind": migration_plans.PLAN_KIND}
    squatted = {"metadata": {"name": requested_plan_name("ada", "k")}, "spec": {"policy": "weekly", "mode": "Plan"}}
    cluster.create(MIGRATION_PLANS, {**head, **squatted})
    with pytest.raises(PlanStateError):
        ask(cluster, requested_by="ada", idempotency_key="k")
    mine, again = (ask(cluster, requested_by="ada", idempotency_key="k", name_secret=b"secret") for _ in range(2))
    assert mine.spec.policy == "nightly"
    assert again.metadata.uid == mine.metadata.uid
    other = ask(cluster, requested_by="ada", idempotency_key="k", name_secret=b"another secret")
    assert other.metadata.name != mine.metadata.name
    assert len({plan_name.removeprefix("run-") for plan_name in (mine.metadata.name, other.metadata.name)}) == 2


def test_a_plan_that_was_asked_for_before_names_had_a_secret_still_counts(cluster: FakeCluster) -> None:
    first = ask(cluster, requested_by="ada", idempotency_key="k")
    again = ask(cluster, requested_by="ada", idempotency_key="k", name_secret=b"secret")
    assert again.metadata.uid == first.metadata.uid


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


def seen(cluster: FakeCluster) -> LookedAt:
    """Return the plan as who looks at it now would name it."""
    return LookedAt.of(MigrationPlan.from_api(cluster.plan()))


def test_an_approval_and_an_abort_are_written_into_the_plan(cluster: FakeCluster) -> None:
    put(cluster, mode="Approve")
    assert approve(as_client(cluster), "p", seen(cluster)).spec.approved
    assert abort(as_client(cluster), "p").spec.aborted
    assert cluster.plan()["spec"]["predicted"] == {"nodes": 1, "moves": 0, "waves": 0}
    assert Predicted(nodes=1, moves=0, waves=0) == MigrationPlan.from_api(cluster.plan()).spec.predicted


def test_who_approved_and_who_aborted_is_noted_once(cluster: FakeCluster) -> None:
    put(cluster, mode="Approve")
    looked_at = seen(cluster)
    approve(as_client(cluster), "p", looked_at, asked_by="ada")
    approve(as_client(cluster), "p", looked_at, asked_by="eve")
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
    spec = approve(as_client(cluster), "p", seen(cluster), asked_by="ada").spec
    assert (spec.approved, spec.approved_by) == (True, "eve")


def approve_as_it_is(client: KubeClient, name: str) -> object:
    plan = client.get(MIGRATION_PLANS, name, type=MigrationPlan)
    return approve(client, name, LookedAt.of(plan))


REFUSED: Final[dict[str, tuple[Callable[[KubeClient, str], object], str, dict[str, Any], str]]] = {
    "the approval of a plan that is only shown": (approve_as_it_is, "Proposed", {"mode": "Plan"}, "is only shown"),
    "the approval of a plan that is over": (approve_as_it_is, "Aborted", {"mode": "Approve"}, "is over: it is Aborted"),
    "the approval of a plan that is aborted": (approve_as_it_is, "", {"aborted": True}, "is being aborted"),
    "the approval of moves nobody has seen": (approve_as_it_is, "Requested", {"mode": "Approve"}, "has no moves yet"),
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
        approve(as_client(cluster), "p", LookedAt(uid="gone"))
    with pytest.raises(NotFoundError):
        abort(as_client(cluster), "p")


# --- an approval is of the plan that was looked at --------------------------------------------------------------------


def move(pod: str, target: str) -> Raw:
    return {"namespace": "shop", "pod": pod, "source": "n1", "target": target}


def make_anew(cluster: FakeCluster) -> None:
    """Delete the plan and make another one under its name, as whoever may create plans can."""
    cluster.delete(MIGRATION_PLANS, "p")
    head = {"apiVersion": migration_plans.PLAN_API_VERSION, "kind": migration_plans.PLAN_KIND}
    spec = {"mode": "Approve", "moves": [move("db-0", "n9")], "predicted": {"nodes": 1, "moves": 1, "waves": 1}}
    cluster.create(MIGRATION_PLANS, {**head, "metadata": {"name": "p"}, "spec": spec})


NAMED: Final[dict[str, Callable[[LookedAt], LookedAt]]] = {
    "by uid": lambda plan: LookedAt(uid=plan.uid),
    "by version": lambda plan: LookedAt(version=plan.version),
    "by both": lambda plan: LookedAt(uid=plan.uid, version=plan.version),
    "by uid, with the moves": lambda plan: LookedAt(uid=plan.uid, moves=plan.moves),
}


@pytest.mark.parametrize("name_it", NAMED.values(), ids=NAMED)
def test_an_approval_does_not_go_to_a_plan_that_was_made_anew_under_the_name(
    cluster: FakeCluster, name_it: Callable[[LookedAt], LookedAt]
) -> None:
    put(cluster, "Proposed", mode="Approve", moves=[move("web-0", "n2")])
    looked_at = name_it(seen(cluster))
    make_anew(cluster)
    with pytest.raises(AnotherPlanError, match="plan p is not the one that was looked at: it was made anew") as refused:
        approve(as_client(cluster), "p", looked_at)
    assert "shop/db-0 from n1 to n9" in str(refused.value)
    assert {"uid", "moves"} <= {difference.field for difference in refused.value.differences}
    assert "approved" not in cluster.plan()["spec"]


@pytest.mark.parametrize("name_it", NAMED.values(), ids=NAMED)
def test_an_approval_does_not_go_to_a_plan_that_is_made_anew_in_that_instant(
    cluster: FakeCluster, name_it: Callable[[LookedAt], LookedAt]
) -> None:
    put(cluster, "Proposed", mode="Approve", moves=[move("web-0", "n2")])
    looked_at = name_it(seen(cluster))

    def before(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("patch", MIGRATION_PLANS.plural):
            cluster.before = lambda *_: None
            make_anew(cluster)

    cluster.before = before
    with pytest.raises(AnotherPlanError):
        approve(as_client(cluster), "p", looked_at)
    assert "approved" not in cluster.plan()["spec"]


def write_status(cluster: FakeCluster) -> None:
    message = f"written at version {cluster.version}"
    cluster.merge_patch(MIGRATION_PLANS, "p", {"status": {"message": message}}, subresource="status")


def test_what_a_version_names_has_not_changed_at_all_and_what_a_uid_names_moves_the_same(cluster: FakeCluster) -> None:
    put(cluster, "Proposed", mode="Approve", moves=[move("web-0", "n2")])
    looked_at = seen(cluster)
    write_status(cluster)
    with pytest.raises(AnotherPlanError, match="its moves are the same; look at it again"):
        approve(as_client(cluster), "p", LookedAt(version=looked_at.version))
    assert approve(as_client(cluster), "p", LookedAt(uid=looked_at.uid)).spec.approved


def test_a_version_that_the_api_server_has_forgotten_is_refused_with_what_is_there_now(cluster: FakeCluster) -> None:
    put(cluster, "Proposed", mode="Approve", moves=[move("web-0", "n2")])
    with pytest.raises(AnotherPlanError, match="it now moves shop/web-0 from n1 to n2; look at it again"):
        approve(as_client(cluster), "p", LookedAt(version="1"))


def test_a_status_that_is_written_in_that_instant_does_not_keep_an_approval_by_uid(cluster: FakeCluster) -> None:
    put(cluster, "Proposed", mode="Approve")
    writes = iter(range(3))

    def before(verb: str, plural: str, _name: str) -> None:
        if (verb, plural) == ("patch", MIGRATION_PLANS.plural) and next(writes, None) is not None:
            raw = cluster.plan()
            cluster.put(MIGRATION_PLANS, {**raw, "status": {**raw["status"], "message": str(cluster.version)}})

    cluster.before = before
    assert approve(as_client(cluster), "p", LookedAt(uid=seen(cluster).uid)).spec.approved


def test_an_approval_by_version_is_the_same_as_often_as_it_is_sent(cluster: FakeCluster) -> None:
    put(cluster, "Proposed", mode="Approve")
    looked_at = LookedAt(version=seen(cluster).version)
    first, again = (approve(as_client(cluster), "p", looked_at, asked_by="ada").spec for _ in range(2))
    assert (first.approved, again.approved, again.approved_by) == (True, True, "ada")
    make_anew(cluster)
    cluster.plan()["spec"]["approved"] = True
    with pytest.raises(AnotherPlanError, match="made anew"):
        approve(as_client(cluster), "p", looked_at, asked_by="ada")
