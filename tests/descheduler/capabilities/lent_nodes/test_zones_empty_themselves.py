"""A RevocableZone empties its nodes by itself, unless a policy says how."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from berth_core import DeschedulerPolicy, MigrationPlan, PlanPhase, SystemClock, format_timestamp
from berth_descheduler.capabilities.lent_nodes.own_runs import policy_name
from berth_descheduler.controller.own_policies import OwnPolicies
from berth_descheduler.controller.runner import Runner
from berth_descheduler.controller.status_controller import StatusController
from berth_descheduler.controller.store import PolicyStore, ServiceContext, WakeUp
from berth_descheduler.migration.plans.leases import run_lease
from berth_descheduler.picture import Picture
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.parsing import RunDefaults, read_policy
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_descheduler.run_watch import RunWatch
from berth_kube import DESCHEDULER_POLICIES, MIGRATION_PLANS, REVOCABLE_ZONES
from berth_kube.client import connect
from builders import NOON_TEXT, FakeClock
from descheduler.cycle_settings import SETTINGS
from descheduler.fake_cluster import FakeCluster
from scripted_server import ScriptedServer, page, refusal
from waiting import eventually

WITH_PLUGIN: Final = {"name": "p", "plugins": {"deschedule": {"enabled": ["LentNodes"]}}}


def zone(name: str = "rz1", *, state: str = "Closed", pods: int = 2, period: str = "1m") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": 1, "creationTimestamp": NOON_TEXT}
    spec = {"windows": ["1:00-4:00"], "evictPeriod": period}
    return {"metadata": metadata, "spec": spec, "status": {"state": state, "nodes": 1, "pods": pods}}


def policy(profile: Mapping[str, Any], **spec: Any) -> DeschedulerPolicy:  # noqa: ANN401 - fields
    return DeschedulerPolicy.from_api({"metadata": {"name": "p", "uid": "p"}, "spec": {"profiles": [profile], **spec}})


def own_policies(tmp_path: Path, *zones: dict[str, Any], of_people: tuple[DeschedulerPolicy, ...] = ()) -> OwnPolicies:
    with ScriptedServer() as server:
        server.on("GET", "/apis/berth.volcano.sh/v1alpha1/revocablezones", page(*zones))
        with connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
            own = OwnPolicies(client, SystemClock())
            own.look(of_people)
    return own


TO_EMPTY: Final = {
    "a closed one": (zone(), "1m0s", False),
    "one that is emptied before its window ends": (zone(state="Emptying"), "1m0s", False),
    "one that is switched off": (zone(state="Suspended"), "1m0s", False),
    "an open one": (zone(state="Open"), "1m0s", True),
    "one with a wrong field": (zone(state="Invalid"), "1m0s", True),
    "one that is empty": (zone(pods=0), "1m0s", True),
    "one with a period shorter than that of any policy": (zone(period="1s"), "10s", False),
}


@pytest.mark.parametrize(("body", "interval", "rests"), TO_EMPTY.values(), ids=TO_EMPTY)
def test_a_zone_runs_in_each_period_while_pods_have_to_leave(
    tmp_path: Path, body: dict[str, Any], interval: str, *, rests: bool
) -> None:
    (made,) = own_policies(tmp_path, body).all()
    assert (made.metadata.name, made.spec.trigger.interval, made.spec.suspend) == (policy_name("rz1"), interval, rests)
    run = read_policy(made, RunDefaults(), installed_plugins())
    (plugin,) = run.planner.plugins.deschedule
    assert (plugin.name, plugin.plugin.zones) == ("LentNodes", {"rz1"})


def named(*zones: str) -> dict[str, Any]:
    return {**WITH_PLUGIN, "pluginConfig": [{"name": "LentNodes", "args": {"zones": list(zones)}}]}


BY_OTHERS: Final = {
    "a policy with the plugin": (policy(WITH_PLUGIN), []),
    "one that is suspended": (policy(WITH_PLUGIN, suspend=True), []),
    "one that only shows plans": (policy(WITH_PLUGIN, mode="Plan"), []),
    "one that cannot be run": (policy(WITH_PLUGIN, nodeSelector="a b"), []),
    "one for that zone": (policy(named("rz1")), ["rz2"]),
    "one for both": (policy(named("rz1", "rz2")), []),
    "one that makes room with it": (
        policy({"name": "p", "plugins": {"balance": {"enabled": ["LentNodes"]}}}),
        ["rz1", "rz2"],
    ),
    "one without it": (policy({"name": "p"}), ["rz1", "rz2"]),
}


@pytest.mark.parametrize(("of_people", "left"), BY_OTHERS.values(), ids=BY_OTHERS)
def test_a_policy_takes_over_the_zones_that_it_names(
    tmp_path: Path, of_people: DeschedulerPolicy, left: list[str]
) -> None:
    own = own_policies(tmp_path, zone(), zone("rz2"), of_people=(of_people,))
    assert [made.metadata.name for made in own.all()] == [policy_name(name) for name in left]


def test_a_policy_of_people_goes_before_one_of_the_same_name(tmp_path: Path) -> None:
    taken = DeschedulerPolicy.from_api(
        {"metadata": {"name": policy_name("rz1"), "uid": "p"}, "spec": {"profiles": [{"name": "p"}]}}
    )
    assert own_policies(tmp_path, zone(), of_people=(taken,)).all() == ()


def test_the_last_run_of_a_zone_is_remembered(tmp_path: Path) -> None:
    own = own_policies(tmp_path, zone())
    (made,) = own.all()
    time = format_timestamp(SystemClock().now() + timedelta(minutes=1))
    own.note(made, {"status": {"lastScheduledTime": time, "lastVerdict": "NothingToMove"}})
    assert [one.status.last_scheduled_time for one in own.all()] == [time]
    known = own.of_uid("uid-rz1")
    assert known is not None
    assert own.of_uid("uid-rz2") is None
    assert (known.regarding.kind, known.regarding.name) == ("RevocableZone", "rz1")


ZONES_PATH: Final = "/apis/berth.volcano.sh/v1alpha1/revocablezones"
FORBIDDEN: Final = refusal(403, "Forbidden", "revocablezones is forbidden")
UNREAD: Final = "objects that are run without a policy not read, will be tried again"


def test_zones_that_may_not_be_read_are_as_they_were_and_the_log_says_so_once(tmp_path: Path) -> None:
    clock = FakeClock()
    with ScriptedServer() as server, connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
        server.on("GET", ZONES_PATH, FORBIDDEN, FORBIDDEN, page(zone()), FORBIDDEN, page())
        own = OwnPolicies(client, clock)
        seen: list[tuple[bool, int]] = []
        with capture_logs() as lines:
            for _ in range(5):
                own.look(())
                seen.append((own.is_read, len(own.all())))
                clock.sleep(10)
    assert seen == [(False, 0), (False, 0), (True, 1), (True, 1), (True, 0)]
    assert [line["event"] for line in lines] == [UNREAD] * 2, "once for each time that it begins"


def service_context(cluster: FakeCluster) -> ServiceContext:
    client = cluster.as_client()
    picture = Picture(client, "berth-system")
    return ServiceContext(client, FakeClock(), RunDefaults(), installed_plugins(), plan_retention=None, picture=picture)


def test_a_policy_of_people_is_the_one_of_its_name_as_soon_as_it_is_made() -> None:
    cluster = FakeCluster()
    name = policy_name("rz1")
    cluster.add(REVOCABLE_ZONES, zone())
    wake_up = WakeUp()
    context = service_context(cluster)
    metrics = PolicyMetrics(CollectorRegistry(), FakeClock())
    with PolicyStore(context, wake_up) as store:
        assert store.wait(lambda: False)
        store.look_at_own()
        lease = run_lease(cluster.as_client(), FakeClock(), SETTINGS)
        runner = Runner(context, store, metrics, lease, wake_up.event(), RunWatch(FakeClock()))
        assert runner._read_policy(name).metadata.uid == "uid-rz1"
        head = {"name": name, "uid": "uid-of-people", "generation": 1, "creationTimestamp": NOON_TEXT}
        cluster.add(DESCHEDULER_POLICIES, {"metadata": head, "spec": {"profiles": [{"name": "p"}]}, "status": {}})
        eventually("it is seen", lambda: store.known()[name].policy.metadata.uid == "uid-of-people", seconds=60)
        assert [own.metadata.name for own in store.own.all()] == [name], "the next look at the zones is to come"

        of_people = runner._read_policy(name)
        assert of_people.metadata.uid == "uid-of-people"
        assert runner._stands_for(of_people) == of_people
        runner._write(of_people, {"status": {"lastVerdict": "NothingToMove"}})
        assert StatusController(context, store, metrics, wake_up.event()).pass_once()
    written = cluster.get(DESCHEDULER_POLICIES, name, type=DeschedulerPolicy).status
    assert written.last_verdict == "NothingToMove"
    assert written.conditions, "its status is kept as that of others"


def test_plans_of_a_zone_are_left_to_the_next_leader_until_it_has_read_the_zones() -> None:
    cluster = FakeCluster()
    waits = {"policy": policy_name("rz1"), "mode": "Auto", "approved": True}
    head = {"name": "waits", "creationTimestamp": format_timestamp(SystemClock().now())}
    cluster.add(MIGRATION_PLANS, {"metadata": head, "spec": waits, "status": {"phase": "Approved"}})
    context = service_context(cluster)

    def phase() -> PlanPhase:
        return cluster.get(MIGRATION_PLANS, "waits", type=MigrationPlan).phase

    wake_up = WakeUp()
    with PolicyStore(context, wake_up) as store:
        assert store.wait(lambda: False)
        statuses = StatusController(context, store, PolicyMetrics(CollectorRegistry(), FakeClock()), wake_up.event())
        assert statuses.pass_once()
        assert phase() is PlanPhase.APPROVED, "whether there is such a zone is not known yet"
        store.look_at_own()
        assert statuses.pass_once()
    assert phase() is PlanPhase.ABORTED, "there is none"


def test_without_zones_nothing_is_run(tmp_path: Path) -> None:
    with ScriptedServer() as server, connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
        own = OwnPolicies(client, SystemClock())
        own.look(())
    assert own.all() == ()
