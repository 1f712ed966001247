"""What the API server says to a DeschedulerPolicy, before Berth sees it."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import pytest

from berth_core.migration_plans import RunMode
from berth_core.policies import (
    POLICY_API_VERSION,
    POLICY_KIND,
    ApprovalRules,
    DeschedulerPolicy,
    DeschedulerPolicySpec,
    FreedNodes,
    FreedTaint,
    Limits,
    PluginConfig,
    Plugins,
    PluginSet,
    Profile,
    ReservationRules,
    Trigger,
)
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import convert_upstream
from descheduler.test_policy_conversion import upstream
from plain_api import PlainApi

pytestmark = pytest.mark.cluster

POLICIES: Final = "apis/berth.volcano.sh/v1alpha1/deschedulerpolicies"

Store = Callable[[str, dict[str, Any]], str]

SPEC: Final = DeschedulerPolicySpec(
    trigger=Trigger(cron="0 2 * * *", time_zone="Europe/Berlin"),
    suspend=True,
    mode=RunMode.AUTO,
    node_selector="pool=batch,tier in (a,b)",
    profiles=(
        Profile(
            name="default",
            plugin_config=(
                PluginConfig(
                    name="Defragmentation", args={"lowThresholds": {"cpu": 30}, "unknown": [{"kept": "as it is"}]}
                ),
                PluginConfig(name="DefaultEvictor", args={"minReplicas": 2}),
            ),
            plugins=Plugins(
                balance=PluginSet(enabled=("Defragmentation",), disabled=("Other",)),
                deschedule=PluginSet(enabled=("Third",)),
                filter=PluginSet(enabled=("DefaultEvictor",)),
                pre_eviction_filter=PluginSet(enabled=("DefaultEvictor",)),
            ),
        ),
    ),
    limits=Limits(
        max_moves=100,
        max_moves_per_node=10,
        max_moves_per_namespace=20,
        max_moves_per_wave=5,
        max_moves_per_controller=2,
        max_failed_share=0.5,
        pod_cool_down="30m",
        min_freed_nodes=0,
        max_replans=0,
        max_duration="2h",
        max_grace_period="1m",
    ),
    approval=ApprovalRules(timeout="15m"),
    reservation=ReservationRules(ttl="20m"),
    freed_nodes=FreedNodes(taint=FreedTaint.NONE, annotations={"autoscaler.example/remove": "true"}),
    plans_kept=3,
)


def policy(**changes: object) -> dict[str, Any]:
    """Return a policy with parts of its spec replaced."""
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": POLICY_KIND,
        "spec": {"profiles": [{"name": "default"}], **changes},
    }


def test_a_policy_is_kept_as_it_was_given(api: PlainApi, stored: Store) -> None:
    path = stored(POLICIES, {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "spec": msgspec.to_builtins(SPEC)})
    assert DeschedulerPolicy.from_api(api.get(path).body).spec == SPEC


def test_a_policy_that_says_little_says_what_it_means(api: PlainApi, stored: Store) -> None:
    body = api.get(stored(POLICIES, policy())).body
    assert DeschedulerPolicy.from_api(body).spec == DeschedulerPolicySpec(profiles=(Profile(name="default"),))
    everything: dict[str, Any] = {"balance": {}, "deschedule": {}, "filter": {}, "preEvictionFilter": {}}
    assert body["spec"] == {
        "trigger": {},
        "suspend": False,
        "mode": "Plan",
        "moves": "Surge",
        "profiles": [{"name": "default", "plugins": everything}],
        "limits": {
            "maxMovesPerWave": 25,
            "maxMovesPerController": 1,
            "maxFailedShare": 0.2,
            "podCoolDown": "1h",
            "nodeCoolDown": "0s",
            "maxGracePeriod": "10m",
            "minFreedNodes": 1,
            "maxReplans": 3,
        },
        "approval": {"timeout": "1h"},
        "reservation": {"ttl": "10m"},
        "freedNodes": {"taint": "PreferNoSchedule"},
        "plansKept": 10,
    }


GOOD: Final[dict[str, dict[str, Any]]] = {
    "no trigger": {},
    "times with lists and steps": {"trigger": {"cron": "*/5 8-18 * * MON-FRI"}},
    "times in another zone": {"trigger": {"cron": "0 2 * * *", "timeZone": "America/New_York"}},
    "an interval": {"trigger": {"interval": "1h30m"}},
    "the shortest interval": {"trigger": {"interval": "10s"}},
    "no cool-down": {"limits": {"podCoolDown": "0s"}},
    "no cool-down without a unit": {"limits": {"podCoolDown": "0"}},
    "a rest of nodes": {"limits": {"nodeCoolDown": "1h30m"}},
    "a share that is whole": {"limits": {"maxFailedShare": 1}},
}


@pytest.mark.parametrize("spec", GOOD.values(), ids=GOOD)
def test_a_policy_is_admitted(api: PlainApi, spec: dict[str, Any]) -> None:
    answer = api.create(POLICIES, policy(**spec) | {"metadata": {"name": "good"}}, dry_run=True)
    assert not answer.refused, answer.message


BAD: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "times and an interval": (
        {"trigger": {"cron": "0 2 * * *", "interval": "1h"}},
        "cron and interval exclude each other: give the times or the distance, not both",
    ),
    "a time zone without times": (
        {"trigger": {"timeZone": "Europe/Berlin"}},
        "timeZone only has a meaning beside cron: leave it out",
    ),
    "a time zone beside an interval": (
        {"trigger": {"timeZone": "Europe/Berlin", "interval": "1h"}},
        "timeZone only has a meaning beside cron: leave it out",
    ),
    "six fields": ({"trigger": {"cron": "0 0 2 * * *"}}, "cron must have exactly five fields"),
    "four fields": ({"trigger": {"cron": "0 2 * *"}}, "cron must have exactly five fields"),
    "a nickname": ({"trigger": {"cron": "@daily"}}, "cron must have exactly five fields"),
    "an empty line": ({"trigger": {"cron": ""}}, "cron must have exactly five fields"),
    "an interval in words": ({"trigger": {"interval": "hourly"}}, "must be a Go duration"),
    "an interval without a unit": ({"trigger": {"interval": "600"}}, "must be a Go duration"),
    "an interval of nothing": ({"trigger": {"interval": "0s"}}, "interval must be at least 10s: a run takes its time"),
    "a very short interval": ({"trigger": {"interval": "9s"}}, "interval must be at least 10s: a run takes its time"),
    "an interval for ever": ({"trigger": {"interval": "99999999h"}}, "is longer than can be kept"),
    "a mode that there is not": ({"mode": "Manual"}, 'supported values: "Plan", "Approve", "Auto"'),
    "no profiles": ({"profiles": []}, "spec.profiles in body should have at least 1 items"),
    "two profiles": (
        {"profiles": [{"name": "a"}, {"name": "b"}]},
        "spec.profiles: Too many: 2: must have at most 1 item",
    ),
    "a profile without a name": ({"profiles": [{}]}, "spec.profiles[0].name: Required value"),
    "arguments twice": (
        {"profiles": [{"name": "a", "pluginConfig": [{"name": "Defragmentation"}, {"name": "Defragmentation"}]}]},
        "Duplicate value",
    ),
    "no moves at all": ({"limits": {"maxMoves": 0}}, "spec.limits.maxMoves in body should be greater than or equal to"),
    "more moves than a plan holds": ({"limits": {"maxMoves": 1001}}, "should be less than or equal to 1000"),
    "a share above all": ({"limits": {"maxFailedShare": 1.5}}, "should be less than or equal to 1"),
    "a grace period of nothing": ({"limits": {"maxGracePeriod": "0s"}}, "must be above zero"),
    "a negative rest of nodes": ({"limits": {"nodeCoolDown": "-1h"}}, "must be a Go duration"),
    "a negative cool-down": ({"limits": {"podCoolDown": "-1h"}}, "must be a Go duration"),
    "no time at all": ({"limits": {"maxDuration": "0s"}}, "must be above zero: leave it out for the default"),
    "no time to approve": ({"approval": {"timeout": "0m"}}, "must be above zero"),
    "no time to hold a place": ({"reservation": {"ttl": "0"}}, "must be above zero"),
    "a taint that keeps everything off": (
        {"freedNodes": {"taint": "NoSchedule"}},
        'supported values: "PreferNoSchedule", "None"',
    ),
    "no plans kept": ({"plansKept": 0}, "spec.plansKept in body should be greater than or equal to 1"),
}


@pytest.mark.parametrize(("spec", "want_message"), BAD.values(), ids=BAD)
def test_a_policy_is_refused_in_clear_words(api: PlainApi, spec: dict[str, Any], want_message: str) -> None:
    answer = api.create(POLICIES, policy(**spec) | {"metadata": {"name": "bad"}}, dry_run=True)
    assert answer.code == 422
    assert want_message in answer.message


UNKNOWN: Final[dict[str, dict[str, Any]]] = {
    "spec.limit": {"limit": {"maxMoves": 5}},
    "spec.limits.maxMove": {"limits": {"maxMove": 5}},
    "spec.profiles[0].plugin": {"profiles": [{"name": "default", "plugin": {}}]},
    "spec.profiles[0].plugins.filter.enable": {
        "profiles": [{"name": "default", "plugins": {"filter": {"enable": ["Mine"]}}}]
    },
}


@pytest.mark.parametrize(("name", "spec"), UNKNOWN.items(), ids=UNKNOWN)
def test_an_unknown_field_is_refused_by_its_name_as_kubectl_asks(
    api: PlainApi, name: str, spec: dict[str, Any]
) -> None:
    answer = api.create(POLICIES, policy(**spec) | {"metadata": {"name": "bad"}}, dry_run=True, strict=True)
    assert answer.code == 400
    assert f'unknown field "{name}"' in answer.message


def test_everything_in_a_policy_may_be_changed(api: PlainApi, stored: Store) -> None:
    path = stored(POLICIES, policy(trigger={"cron": "0 2 * * *"}))
    answer = api.merge_patch(path, {"spec": {"trigger": {"cron": None, "interval": "30m"}, "mode": "Auto"}})
    assert not answer.refused, answer.message


def test_a_policy_that_was_converted_is_admitted_without_a_field_that_is_unknown(api: PlainApi) -> None:
    (converted,) = convert_upstream(upstream(), installed_plugins())
    answer = api.create(POLICIES, converted.policy, dry_run=True, strict=True)
    assert (answer.refused, answer.message) == (False, "")
