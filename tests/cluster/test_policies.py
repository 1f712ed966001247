"""Policies in a real cluster: they run by their triggers and on request, as far as their mode says, and never twice."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import Node
from berth_core.clock import SystemClock
from berth_core.labels import COOLING_LABEL, COOLING_UNTIL_ANNOTATION, POLICY_LABEL
from berth_core.migration_plans import PLAN_API_VERSION, MigrationPlan, MoveReason, MoveState, PlanPhase, RunMode
from berth_core.names import LEADER_LEASE
from berth_core.plan_rooms import RoomState
from berth_core.policies import SCHEDULED, VALID
from berth_descheduler.migration.plans import requests as plans
from berth_descheduler.migration.plans.looked_at import LookedAt
from berth_kube.client import KubeClient, Propagation
from berth_kube.errors import InvalidObjectError
from berth_kube.leases import Lease
from berth_kube.resources import CRDS, DESCHEDULER_POLICIES, LEASES, MIGRATION_PLANS, NODES, PODS
from berth_sandbox.sandbox import Sandbox
from cluster_objects import told_reasons
from policy_scenes import (
    HIGH,
    LOW,
    DeschedulerReplica,
    Pool,
    build_policy,
    condition_of,
    plans_of,
    read_plan,
    read_policy,
)
from service_processes import OperatorProcess
from waiting import eventually

pytestmark = pytest.mark.cluster

TAKEOVER_SECONDS: Final = 90
ONE_BY_ONE: Final = {"maxMovesPerWave": 1}
"""Limits that leave a test time to step in between the first move and the last."""


Pools = Callable[[str], Pool]


@pytest.fixture(scope="module")
def pools(cluster: Sandbox, serving_operator: OperatorProcess) -> Iterator[Pools]:
    """Yield what makes a pool of nodes with its pods, the first time that a test of the module asks for it."""
    assert serving_operator.exit_code is None
    with cluster.connect() as client:
        made: dict[str, Pool] = {}

        def pool(name: str) -> Pool:
            if name not in made:
                made[name] = Pool(client, name)
                names = cluster.add_nodes(HIGH + LOW, prefix=f"{name}-")
                made[name].label(tuple(client.get(NODES, node, type=Node) for node in names))
                made[name].fill()
                made[name].settle()
            return made[name]

        try:
            yield pool
        finally:
            for one in made.values():
                one.clear()
            eventually("all pods are gone", lambda: not client.list(PODS).items, seconds=120)
            for node in client.list(NODES).items:
                client.delete(NODES, node["metadata"]["name"])


@pytest.fixture
def client(cluster: Sandbox, serving_operator: OperatorProcess) -> Iterator[KubeClient]:
    """Yield a client; policies and plans of the test are gone after it."""
    assert serving_operator.exit_code is None
    with cluster.connect() as admin:
        yield admin
        for resource in (DESCHEDULER_POLICIES, MIGRATION_PLANS):
            for one in admin.list(resource).items:
                admin.delete(resource, one["metadata"]["name"])


@contextmanager
def serving(sandbox: Sandbox, folder: Path, *options: str) -> Iterator[DeschedulerReplica]:
    with DeschedulerReplica(sandbox, folder, *options) as replica:
        try:
            yield replica
        except BaseException:
            print(replica.tail(150))  # noqa: T201 - pytest shows it with the failure
            raise


@pytest.fixture
def service(cluster: Sandbox, client: KubeClient, tmp_path: Path) -> Iterator[DeschedulerReplica]:
    del client  # what the service leaves is cleared away after it
    with serving(cluster, tmp_path) as replica:
        replica.wait_until_leading(replica.health_port)
        yield replica


def apply(client: KubeClient, name: str, pool: str, **spec: Any) -> None:  # noqa: ANN401 - fields of an API object
    client.create(DESCHEDULER_POLICIES, build_policy(name, pool, **spec))


def ask(client: KubeClient, policy: str, mode: RunMode | None = None) -> str:
    return plans.request_run(client, SystemClock(), policy, mode=mode, requested_by="ada").metadata.name


def reaches(client: KubeClient, plan: str, *phases: PlanPhase, seconds: float = 60) -> MigrationPlan:
    eventually(f"{plan} is {phases}", lambda: read_plan(client, plan).phase in phases, seconds=seconds)
    return read_plan(client, plan)


def landed(plan: MigrationPlan) -> int:
    return sum(move.state is MoveState.LANDED for move in plan.status.moves)


def some_landed(client: KubeClient, plan: str) -> Callable[[], bool]:
    return lambda: landed(read_plan(client, plan)) > 0


def wait_until_told(client: KubeClient, policy: str, reason: str) -> None:
    def told() -> bool:
        return reason in told_reasons(client, policy, namespace="default")

    eventually(f"an event of {policy} tells {reason}", told, seconds=60)


def far_hour() -> int:
    """Return an hour of the day, in any zone, that does not come while a test runs."""
    return (SystemClock().now() + timedelta(hours=12)).hour


def bring_back(client: KubeClient, plan: str) -> MigrationPlan:
    """Bring a plan back as a backup does: with its spec, labels and annotations; return the new object."""
    body = client.get(MIGRATION_PLANS, plan)
    kept = {key: body["metadata"][key] for key in ("name", "labels", "annotations")}
    client.delete(MIGRATION_PLANS, plan)
    eventually("the plan is gone", lambda: not any(names(raw, plan) for raw in client.list(MIGRATION_PLANS).items))
    client.create(MIGRATION_PLANS, {**body, "metadata": kept})
    return read_plan(client, plan)


def names(body: dict[str, Any], plan: str) -> bool:
    return bool(body["metadata"]["name"] == plan)


@pytest.mark.deep
@pytest.mark.usefixtures("service")
def test_a_plan_that_comes_back_from_a_backup_is_not_carried_out_again(client: KubeClient, pools: Pools) -> None:
    pools("back")
    apply(client, "back", "back", limits={"maxMovesPerController": 5, "podCoolDown": "0s", "nodeCoolDown": "0s"})
    ran = ask(client, "back", RunMode.AUTO)
    done = reaches(client, ran, PlanPhase.SUCCEEDED, seconds=120)
    assert done.spec.approve_before is not None
    came_back = bring_back(client, ran)
    assert came_back.metadata.uid != done.metadata.uid
    assert came_back.spec.approved
    ended = reaches(client, ran, PlanPhase.ABORTED)
    assert ended.status.message.startswith("aborted: it came back from a backup")
    assert not any(move.state.succeeded for move in ended.status.moves)


@pytest.mark.deep
@pytest.mark.usefixtures("service")
def test_good_policies_run_beside_a_bad_one_which_says_what_is_wrong(client: KubeClient, pools: Pools) -> None:
    pools("shown")
    nightly_line = f"0 {far_hour()} * * *"
    apply(client, "often", "shown", trigger={"interval": "20s"}, plansKept=2, limits={"podCoolDown": "0s"})
    apply(client, "nightly", "shown", trigger={"cron": nightly_line, "timeZone": "Europe/Berlin"})
    wrong = build_policy("wrong", "shown")
    wrong["spec"]["profiles"][0]["plugins"]["balance"]["enabled"] = ["LowNodeUtilization"]
    client.create(DESCHEDULER_POLICIES, wrong)

    eventually("the interval has run", lambda: read_policy(client, "often").status.last_verdict, seconds=120)
    often = read_policy(client, "often")
    assert (often.status.last_verdict, often.status.last_plan) == (
        "Planned",
        plans_of(client, "often")[0].metadata.name,
    )
    assert often.status.last_outcome.startswith(f"Planned only, as {often.status.last_plan}: ")
    assert often.status.fragmentation is not None
    assert {use.resource for use in often.status.fragmentation.resources} >= {"cpu", "memory"}
    (plan,) = plans_of(client, "often")
    assert (plan.phase, plan.spec.mode, plan.metadata.labels[POLICY_LABEL]) == (
        PlanPhase.PROPOSED,
        RunMode.PLAN,
        "often",
    )
    assert {move.namespace for move in plan.spec.moves} == {"shown"}, (
        "nodes that the policy is not about are left alone"
    )

    eventually("the other is seen", lambda: read_policy(client, "nightly").condition(SCHEDULED), seconds=60)
    nightly = read_policy(client, "nightly")
    assert condition_of(nightly, SCHEDULED)["message"] == f"cron {nightly_line} in Europe/Berlin"
    assert nightly.status.next_run_time is not None
    assert (nightly.status.last_run_time, plans_of(client, "nightly")) == (None, ())

    eventually("the bad one is told", lambda: read_policy(client, "wrong").condition(VALID), seconds=60)
    told = condition_of(read_policy(client, "wrong"), VALID)
    assert (told["status"], told["reason"]) == ("False", "InvalidField")
    assert "spec.profiles[0].plugins.balance.enabled[0] is 'LowNodeUtilization'" in told["message"]
    wait_until_told(client, "wrong", "InvalidPolicy")

    mended = build_policy("wrong", "shown", trigger={"interval": "1h"})["spec"]
    client.merge_patch(DESCHEDULER_POLICIES, "wrong", {"spec": mended})
    eventually("mended, it runs at once", lambda: read_policy(client, "wrong").status.last_verdict, seconds=120)
    mended_is_told = lambda: condition_of(read_policy(client, "wrong"), VALID)["status"] == "True"  # noqa: E731
    eventually("it is told", mended_is_told, seconds=60)

    first = often.status.last_scheduled_time
    client.merge_patch(DESCHEDULER_POLICIES, "often", {"spec": {"trigger": {"interval": "10s"}}})
    eventually("it runs again", lambda: read_policy(client, "often").status.last_scheduled_time != first, seconds=60)
    client.merge_patch(DESCHEDULER_POLICIES, "often", {"spec": {"suspend": True}})
    eventually("no more runs are due", lambda: read_policy(client, "often").status.next_run_time is None, seconds=60)
    # Runs are made one after the other: once this one is over, nothing that was due before comes any more.
    reaches(client, ask(client, "often"), PlanPhase.PROPOSED, seconds=120)
    asked = [ask(client, "often") for _ in range(2)]
    for name in asked:
        reaches(client, name, PlanPhase.PROPOSED, seconds=120)
    kept = set(asked)
    eventually("older plans go", lambda: {p.metadata.name for p in plans_of(client, "often")} == kept, seconds=80)


@pytest.mark.deep
@pytest.mark.usefixtures("service")
def test_what_was_missed_is_made_up_for_once(client: KubeClient, pools: Pools) -> None:
    pools("shown")
    hour = far_hour()
    apply(client, "missed", "shown", trigger={"cron": f"0 {hour} * * *"})
    eventually("it is seen", lambda: read_policy(client, "missed").condition(SCHEDULED), seconds=60)
    eventually("it has run", lambda: has_run_since_it_was_antedated(client, "missed"), seconds=120, pause_seconds=0.5)
    status = read_policy(client, "missed").status
    assert status.last_scheduled_time is not None
    assert status.last_scheduled_time.endswith(f"T{hour:02}:00:00Z")
    eventually("the next is ahead", lambda: is_ahead(client, "missed"), seconds=60)
    assert len(plans_of(client, "missed")) == 1


def has_run_since_it_was_antedated(client: KubeClient, policy: str) -> bool:
    """Return whether a policy has run; until then its schedule is said to be old, whatever the service writes."""
    status = client.get(DESCHEDULER_POLICIES, policy)["status"]
    if status.get("lastVerdict"):
        return True
    conditions = [one | {"lastTransitionTime": "2026-01-01T00:00:00Z"} for one in status["conditions"]]
    client.merge_patch(DESCHEDULER_POLICIES, policy, {"status": {"conditions": conditions}}, subresource="status")
    return False


def is_ahead(client: KubeClient, policy: str) -> bool:
    status = read_policy(client, policy).status
    return (status.next_run_time or "") > (status.last_scheduled_time or "")


@pytest.mark.usefixtures("service")
def test_a_plan_is_carried_out_once_it_is_approved_and_others_run_meanwhile(client: KubeClient, pools: Pools) -> None:
    pool = pools("approve")
    apply(client, "careful", "approve", mode="Approve")
    apply(client, "hasty", "approve", mode="Approve", approval={"timeout": "2s"})
    name = ask(client, "careful")
    plan = reaches(client, name, PlanPhase.PROPOSED, seconds=120)
    assert len(plan.spec.moves) == len(pool.movers())
    assert plan.spec.requested_by == "ada"

    forgotten = reaches(client, ask(client, "hasty"), PlanPhase.ABORTED, seconds=120)
    assert forgotten.status.message == "aborted: it was not approved in time"
    assert not pool.is_emptied()

    plans.approve(client, name, LookedAt.of(read_plan(client, name)))
    done = reaches(client, name, PlanPhase.SUCCEEDED, seconds=120)
    assert landed(done) == len(done.spec.moves)
    pool.require_rest()
    assert pool.is_emptied()
    eventually("it is told", lambda: read_policy(client, "careful").status.last_verdict == "CarriedOut", seconds=60)
    wait_until_told(client, "careful", "RunEnded")


@pytest.mark.deep
@pytest.mark.usefixtures("service")
def test_a_plan_that_is_aborted_in_the_middle_comes_to_a_safe_end(client: KubeClient, pools: Pools) -> None:
    pool = pools("abort")
    apply(client, "auto", "abort", mode="Auto", limits=ONE_BY_ONE)
    name = ask(client, "auto")
    eventually("the first pod has landed", some_landed(client, name), seconds=60, pause_seconds=0.02)
    plans.abort(client, name)
    done = reaches(client, name, PlanPhase.ABORTED)
    pool.require_rest()
    assert not [move for move in done.status.moves if not move.state.terminal]
    eventually("the policy tells it", lambda: read_policy(client, "auto").status.last_verdict, seconds=60)


@pytest.mark.deep
@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
def test_a_plan_that_is_deleted_in_the_middle_leaves_nothing_behind(
    client: KubeClient, pools: Pools, propagation: Propagation
) -> None:
    name_of_pool = f"delete-{propagation.lower()}"
    pool = pools(name_of_pool)
    apply(client, "auto", name_of_pool, mode="Auto", limits=ONE_BY_ONE)
    name = ask(client, "auto")
    eventually("the first pod has landed", some_landed(client, name), seconds=60, pause_seconds=0.02)
    client.delete(MIGRATION_PLANS, name, propagation=propagation)
    pool.require_rest()
    assert not pool.is_emptied()
    eventually("the policy tells it", lambda: read_policy(client, "auto").status.last_verdict, seconds=120)


@pytest.mark.usefixtures("service")
def test_a_request_that_comes_to_nothing_says_so(client: KubeClient) -> None:
    apply(client, "auto", "nowhere", mode="Auto")
    done = reaches(client, ask(client, "auto"), PlanPhase.SUCCEEDED, seconds=120)
    assert (done.spec.moves, done.spec.predicted is not None) == ((), True)
    assert done.status.message
    name = ask(client, "auto")
    client.delete(DESCHEDULER_POLICIES, "auto")
    reaches(client, name, PlanPhase.SUCCEEDED, PlanPhase.ABORTED, seconds=120)


@pytest.mark.deep
def test_the_other_replica_adopts_what_a_killed_leader_was_at(
    cluster: Sandbox, client: KubeClient, pools: Pools, tmp_path: Path
) -> None:
    pool = pools("crash")
    apply(client, "auto", "crash", mode="Auto", trigger={"interval": "1h"})
    with serving(cluster, tmp_path) as first:
        first.wait_until_leading(first.health_port)
        with serving(cluster, tmp_path) as second:
            eventually("it has begun", lambda: plans_of(client, "auto"), seconds=120)
            (plan,) = plans_of(client, "auto")
            name = plan.metadata.name
            eventually("the first pod has landed", some_landed(client, name), seconds=60, pause_seconds=0.02)
            before = leader(client)
            first.kill()
            eventually("the other leads", lambda: leader(client) not in {None, before}, seconds=TAKEOVER_SECONDS)
            done = reaches(client, name, PlanPhase.SUCCEEDED, seconds=90)
            assert landed(done) == len(done.spec.moves)
            pool.require_rest()
            assert pool.is_emptied()
            eventually("it is noted", lambda: read_policy(client, "auto").status.last_scheduled_time, seconds=120)
            second.require_running()
            assert len(plans_of(client, "auto")) == 1, "the run is not made twice"


def leader(client: KubeClient) -> str | None:
    return client.get(LEASES, LEADER_LEASE, namespace="berth-system", type=Lease).spec.holder_identity


def without_checks(schema: Any) -> Any:  # noqa: ANN401 - a schema
    """Return a schema as an older CRD had it: types alone."""
    if isinstance(schema, list):
        return [without_checks(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    checks = {"x-kubernetes-validations", "pattern", "maxLength", "minLength"}
    return {key: without_checks(value) for key, value in schema.items() if key not in checks}


def is_created(client: KubeClient, body: dict[str, Any], *, dry_run: bool = False) -> bool:
    try:
        client.create(MIGRATION_PLANS, body, dry_run=dry_run)
    except InvalidObjectError:
        return False
    return True


def cooling(client: KubeClient) -> set[str]:
    """Return the nodes that other deschedulers are to leave alone."""
    return {one.metadata.name for one in client.list(NODES, label_selector=COOLING_LABEL, type=Node).items}


def hand_made(name: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of an API object
    body = {"policy": "beside", "mode": "Approve", "approved": True, **spec}
    return {"apiVersion": PLAN_API_VERSION, "kind": "MigrationPlan", "metadata": {"name": name}, "spec": body}


@pytest.mark.deep
def test_plans_that_an_older_crd_let_through_are_failed_and_others_carried_out_whose_nodes_rest(
    cluster: Sandbox, client: KubeClient, pools: Pools, tmp_path: Path
) -> None:
    long_name, far = 64 * "x", "9999-12-31T23:59:59-23:59"
    shape = {"name": "cpu=1", "requests": {"cpu": "1"}}
    astray = {"namespace": "../../../apis", "pod": "x", "source": "..", "target": "%2e%2e"}
    old = [
        hand_made(long_name, moves=[{**astray, "namespace": "beside"}]),
        hand_made("a-late", approveBefore=far, moves=[{**astray, "namespace": "beside"}]),
        hand_made("a-stray", moves=[astray], rooms=[{**shape, "namespace": "a/b", "slots": [{"node": "../x"}]}]),
    ]
    pools("beside")
    apply(client, "beside", "beside", limits={"maxMovesPerController": 5, "podCoolDown": "0s", "nodeCoolDown": "1h"})
    name = MIGRATION_PLANS.plural + "." + MIGRATION_PLANS.group
    checked = client.get(CRDS, name)["spec"]["versions"]
    client.merge_patch(CRDS, name, {"spec": {"versions": without_checks(checked)}})
    for body in old:
        eventually(f"{body['metadata']['name']} is stored", partial(is_created, client, body), seconds=60)
    client.merge_patch(CRDS, name, {"spec": {"versions": checked}})
    body = hand_made("y" * 64)
    eventually("the CRD checks again", lambda: not is_created(client, body, dry_run=True), seconds=60)
    with serving(cluster, tmp_path) as replica:
        replica.wait_until_leading(replica.health_port)
        good = ask(client, "beside", RunMode.AUTO)
        reaches(client, good, PlanPhase.SUCCEEDED, seconds=120)
        for one in old:
            assert reaches(client, one["metadata"]["name"], PlanPhase.FAILED).status.message
        done = read_plan(client, good)
        used = {move.node for move in done.status.moves} | {move.source for move in done.spec.moves}
        assert cooling(client) == used
    over = {"metadata": {"annotations": {COOLING_UNTIL_ANNOTATION: "2020-01-01T00:00:00Z"}}}
    for node in used:
        client.merge_patch(NODES, node, over)
    with serving(cluster, tmp_path):  # sweeps at its start, and then every half a minute
        eventually("nodes that have rested say so", lambda: not cooling(client), seconds=120)
    stray = read_plan(client, "a-stray").status
    assert [(move.state, move.reason) for move in stray.moves] == [(MoveState.SKIPPED, MoveReason.INVALID_NAME)]
    assert [room.state for room in stray.rooms] == [RoomState.FAILED]
    assert pools("beside").is_emptied()
