"""A RevocableZone empties its nodes by itself, unless a policy says how."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import DeschedulerPolicy, SystemClock, format_timestamp
from berth_descheduler.capabilities.lent_nodes.own_runs import policy_name
from berth_descheduler.controller.own_policies import OwnPolicies
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.parsing import RunDefaults, read_policy
from berth_kube.client import connect
from builders import NOON_TEXT
from scripted_server import ScriptedServer, page

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
    known = own.named(policy_name("rz1"))
    assert known is not None
    assert (known.regarding.kind, known.regarding.name) == ("RevocableZone", "rz1")


def test_without_zones_nothing_is_run(tmp_path: Path) -> None:
    with ScriptedServer() as server, connect(kubeconfig=server.kubeconfig(tmp_path)) as client:
        own = OwnPolicies(client, SystemClock())
        own.look(())
    assert own.all() == ()
