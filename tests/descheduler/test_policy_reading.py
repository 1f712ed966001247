"""What a policy means for a run, and how what is wrong with it is told: by the full path, with what would be right."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from berth_core import LabelSelectorRequirement
from berth_core.errors import InputError
from berth_core.migration_plans import RunMode
from berth_descheduler.planner.cool_downs import NodeCoolDown, SourceCoolDown
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.parsing import PolicyError, PolicyRun, RunDefaults, read_policy
from berth_descheduler.policy.schedule import CronSchedule, IntervalSchedule
from berth_descheduler.settings import Approval, CycleSettings, FreedNodes
from builders import NOON
from planner_settings import args_of, planner_settings

FULL: Final = """
apiVersion: berth.volcano.sh/v1alpha1
kind: DeschedulerPolicy
metadata:
  name: nightly
spec:
  trigger: {cron: "0 2 * * *", timeZone: Europe/Berlin}
  mode: Auto
  nodeSelector: pool=batch
  profiles:
    - name: default
      pluginConfig:
        - name: Defragmentation
          args: {strategy: Consolidate, resourceType: memory, coolDownTime: 30m}
        - name: DefaultEvictor
          args: {minReplicas: 2}
      plugins:
        balance: {enabled: [Defragmentation]}
  limits:
    maxMoves: 100
    maxMovesPerNode: 10
    maxMovesPerNamespace: 20
    maxMovesPerWave: 5
    maxMovesPerController: 2
    maxFailedShare: 0.5
    podCoolDown: 30m
    nodeCoolDown: 45m
    minFreedNodes: 2
    maxReplans: 1
    maxDuration: 2h
    maxGracePeriod: 5m
  approval: {timeout: 15m}
  reservation: {ttl: 20m}
  freedNodes: {taint: PreferNoSchedule, annotations: {autoscaler.example/remove: "true"}}
  plansKept: 3
"""


def raw_policy() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(FULL)
    return loaded


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the policy with one place replaced; a place that is not there is made."""
    found = raw_policy()
    parent: Any = found
    *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    for step in steps:
        parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
    parent[last] = value
    return found


def read(raw: Mapping[str, Any]) -> PolicyRun:
    defaults = RunDefaults(CycleSettings(namespace="berth", identity="me"), planner_settings(seed=7, exact=False))
    return read_policy(decode_policy(raw), defaults, installed_plugins())


def errors(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return every error by its field."""
    try:
        read(raw)
    except PolicyError as error:
        return {one.field: str(one) for one in error.errors}
    except InputError as error:
        return {error.field: str(error)}
    return {}


def test_a_full_policy_means_what_it_says() -> None:
    run = read(raw_policy())
    assert (run.name, run.mode, run.plans_kept) == ("nightly", RunMode.AUTO, 3)
    assert run.schedule == CronSchedule.parse("0 2 * * *", "Europe/Berlin")
    planner, limits = run.planner, run.planner.limits
    assert (limits.max_moves, limits.max_moves_per_node, limits.max_moves_per_namespace) == (100, 10, 20)
    assert (planner.limits.waves.per_wave, planner.limits.waves.per_controller) == (5, 2)
    assert planner.scope.node_selector is not None
    wanted = LabelSelectorRequirement(key="pool", operator="In", values=("batch",))
    assert planner.scope.node_selector.match_expressions == (wanted,)
    assert args_of(planner).goal.name == "Consolidate"
    assert planner.rule(SourceCoolDown) == SourceCoolDown(timedelta(minutes=30))
    cycle = run.cycle
    assert (cycle.policy, cycle.min_freed_nodes, cycle.max_replans) == ("nightly", 2, 1)
    assert cycle.pod_cool_down == timedelta(minutes=30)
    assert cycle.freed == FreedNodes(taint=True, annotations={"autoscaler.example/remove": "true"})
    assert cycle.node_cool_down == timedelta(minutes=45)
    assert planner.rule(NodeCoolDown) == NodeCoolDown(timedelta(minutes=45))
    assert cycle.approval_seconds == 900
    assert (cycle.execution.max_failed_share, cycle.execution.max_seconds) == (0.5, 7200)
    assert planner.limits.max_grace == cycle.execution.max_grace == timedelta(minutes=5)
    assert cycle.execution.reservation_ttl == timedelta(minutes=20)


def test_what_a_policy_does_not_say_is_the_programs() -> None:
    run = read(raw_policy())
    assert (run.cycle.namespace, run.cycle.identity) == ("berth", "me")
    assert (run.planner.search.seed, run.planner.search.exact) == (7, False)


WAITS: Final[dict[str, tuple[dict[str, str], float, float]]] = {
    "half an interval": ({"interval": "40s"}, 20, 20),
    "no less than ten seconds": ({"interval": "10s"}, 10, 10),
    "no longer than others": ({"interval": "3m"}, 60, 90),
    "half a minute by cron": ({"cron": "* * * * *"}, 30, 30),
}


@pytest.mark.parametrize(("trigger", "place", "ready"), WAITS.values(), ids=WAITS)
def test_a_plan_that_empties_lent_nodes_waits_for_no_pod_for_long(
    trigger: dict[str, str], place: float, ready: float
) -> None:
    profile: dict[str, Any] = {"name": "default", "plugins": {"deschedule": {"enabled": ["LentNodes"]}}}
    raw = {**raw_policy(), "spec": {"trigger": trigger, "profiles": [profile]}}
    execution, usual = read(raw).cycle.execution, CycleSettings().execution
    waits = execution.timeouts
    assert (waits.reserve_seconds, execution.pending_wait_seconds) == (place, place)
    assert (waits.evict_seconds, waits.land_seconds, waits.ready_seconds) == (ready, ready, ready)
    profile["plugins"]["deschedule"]["enabled"] = []
    profile["plugins"]["balance"] = {"enabled": ["LentNodes"]}
    assert read(raw).cycle.execution.timeouts == usual.timeouts


def test_a_run_has_its_own_mode_trigger_and_time() -> None:
    run = read(raw_policy())
    asked = run.settings(RunMode.PLAN, "Request")
    assert (asked.mode, asked.trigger, asked.approval) == (RunMode.PLAN, "Request", Approval.APPROVE)
    assert run.settings(RunMode.AUTO, "Cron").approval is Approval.AUTO
    assert run.planner_at(NOON).run.now == NOON


def test_a_policy_of_few_words_has_the_defaults_of_the_contract() -> None:
    profile = {"name": "default", "plugins": {"balance": {"enabled": ["Defragmentation"]}}}
    raw = {**raw_policy(), "spec": {"profiles": [profile], "trigger": {"interval": "30m"}}}
    run = read(raw)
    assert run.mode is RunMode.PLAN
    assert run.schedule == IntervalSchedule(timedelta(minutes=30))
    assert run.planner.limits.max_moves is None
    assert run.planner.scope.node_selector is None
    assert (run.planner.limits.waves.per_wave, run.planner.limits.waves.per_controller) == (25, 1)
    assert (run.cycle.pod_cool_down, run.cycle.min_freed_nodes, run.cycle.max_replans) == (timedelta(hours=1), 1, 3)
    assert run.cycle.freed.taint
    assert run.cycle.execution.max_seconds == 3600
    assert run.plans_kept == 10


ARGS: Final = "spec/profiles/0/pluginConfig/0/args"
BAD: Final[dict[str, tuple[str, object, str, str]]] = {
    "a cron line that is none": ("spec/trigger", {"cron": "@daily"}, "spec.trigger.cron", "five fields"),
    "a time zone that there is not": (
        "spec/trigger/timeZone",
        "Europe/Gotham",
        "spec.trigger.timeZone",
        "such as Europe/Berlin",
    ),
    "a selector that is none": ("spec/nodeSelector", "pool=a b", "spec.nodeSelector", "a label selector such as"),
    "an impossible threshold": (
        f"{ARGS}/lowThresholds",
        {"memory": 140},
        "spec.profiles[0].pluginConfig[0].args.lowThresholds.memory",
        "a percentage from 0 to 100",
    ),
    "an argument that there is not": (
        f"{ARGS}/lowTresholds",
        {"cpu": 40},
        "spec.profiles[0].pluginConfig[0].args",
        "lowThresholds",
    ),
    "a plugin that there is not": (
        "spec/profiles/0/plugins/balance/enabled",
        ["LowNodeUtilization"],
        "spec.profiles[0].plugins.balance.enabled[0]",
        "DefaultEvictor, Defragmentation",
    ),
    "a grace period of nothing": ("spec/limits/maxGracePeriod", "0s", "spec.limits.maxGracePeriod", "a duration above"),
    "a length of time that is none": ("spec/limits/podCoolDown", "soon", "spec.limits.podCoolDown", "a duration"),
    "a rest of nodes that is none": ("spec/limits/nodeCoolDown", "-1h", "spec.limits.nodeCoolDown", "a duration"),
    "no time to approve": ("spec/approval/timeout", "0s", "spec.approval.timeout", "a duration above zero"),
    "a time to hold places without end": ("spec/reservation/ttl", "999999h", "spec.reservation.ttl", "a duration"),
    "more moves than a plan holds": ("spec/limits/maxMoves", 5000, "spec.limits.maxMoves", "from 1 to 1000"),
    "no moves off a node": ("spec/limits/maxMovesPerNode", 0, "spec.limits.maxMovesPerNode", "from 1 on"),
    "a share above all": ("spec/limits/maxFailedShare", 2, "spec.limits.maxFailedShare", "from 0 to 1"),
    "no moves at once": ("spec/limits/maxMovesPerWave", 0, "spec.limits.maxMovesPerWave", "from 1 to 1000"),
    "two profiles": ("spec/profiles", [{"name": "a"}, {"name": "b"}], "spec.profiles", "exactly one profile"),
    "no plugin that does anything": (
        "spec/profiles/0/plugins",
        {},
        "spec.profiles[0].plugins",
        "balance or deschedule",
    ),
    "a field that there is not": ("spec/limit", {"maxMoves": 1}, "spec.limit", "limits"),
    "a field that there is not, deeper": ("spec/limits/maxmoves", 1, "spec.limits.maxmoves", "maxMoves"),
    "a word for a number": ("spec/limits/maxMoves", "ten", "spec.limits.maxMoves", "a value of the type int"),
    "a mode that there is not": ("spec/mode", "Manual", "spec.mode", "one of Plan, Approve, Auto"),
    "a profile without a name": ("spec/profiles", [{}], "spec.profiles[0].name", "missing"),
    "no name": ("metadata", {}, "metadata.name", "missing"),
    "no spec": ("spec", None, "spec", "an object"),
    "another version": ("apiVersion", "berth.volcano.sh/v1", "apiVersion", "berth.volcano.sh/v1alpha1"),
    "another kind": ("kind", "Policy", "kind", "DeschedulerPolicy"),
}


@pytest.mark.parametrize(("path", "value", "want_field", "want"), BAD.values(), ids=BAD)
def test_what_is_wrong_is_told_by_its_path(path: str, value: object, want_field: str, want: str) -> None:
    found = errors(changed(path, value))
    assert list(found) == [want_field]
    assert want in found[want_field]


def test_everything_that_is_wrong_is_told_at_once() -> None:
    raw = changed("spec/trigger", {"cron": "never"})
    raw["spec"]["nodeSelector"] = "=="
    raw["spec"]["approval"]["timeout"] = "soon"
    assert list(errors(raw)) == ["spec.trigger.cron", "spec.nodeSelector", "spec.approval.timeout"]


def test_the_limits_are_those_of_the_api_server() -> None:
    crd = yaml.safe_load((Path(__file__).parents[2] / "crds" / "deschedulerpolicies.yaml").read_text(encoding="utf-8"))
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["limits"]
    for name, field in schema["properties"].items():
        if field["type"] != "integer":
            continue
        assert errors(changed(f"spec/limits/{name}", field["minimum"])) == {}
        assert list(errors(changed(f"spec/limits/{name}", field["minimum"] - 1))) == [f"spec.limits.{name}"]
        beyond = field.get("maximum", 10**6) + 1
        assert bool(errors(changed(f"spec/limits/{name}", beyond))) is ("maximum" in field)


def test_a_document_that_is_no_policy_is_refused() -> None:
    with pytest.raises(InputError, match="a DeschedulerPolicy"):
        decode_policy(["a", "list"])
