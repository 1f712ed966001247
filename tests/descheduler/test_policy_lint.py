"""What is said of a policy's file before the cluster sees it, ours or the upstream descheduler's."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner

from berth_core import DeschedulerPolicy
from berth_core.errors import InputError
from berth_descheduler.capabilities.prices.price_map import PRICE_MAP
from berth_descheduler.cli.main import berth
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy import lint as lint_module
from berth_descheduler.policy.decoding import decode_policy
from berth_descheduler.policy.files import read_policy_file
from berth_descheduler.policy.lint import MOST_ERRORS, Linted, Severity, lint_document, lint_located
from berth_kube.yaml_documents import locate_documents
from small_cluster import small_cluster

OURS: Final = """
apiVersion: berth.volcano.sh/v1alpha1
kind: DeschedulerPolicy
metadata: {name: nightly}
spec:
  trigger: {cron: "0 2 * * *"}
  mode: Auto
  profiles:
    - name: default
      pluginConfig:
        - name: Defragmentation
          args: {wholeNodes: true}
        - name: DefaultEvictor
          args: {}
      plugins:
        balance: {enabled: [Defragmentation]}
  limits: {maxMoves: 50}
"""
UPSTREAM: Final = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: pool=batch
maxNoOfPodsToEvictPerNode: 5
maxNoOfPodsToEvictPerNamespace: 50
maxNoOfPodsToEvictTotal: 100
profiles:
  - name: ProfileName
    pluginConfig:
      - name: DefaultEvictor
        args: {nodeFit: true, minReplicas: 2}
      - name: Defragmentation
        args: {lowThresholds: {cpu: 40}}
    plugins:
      balance: {enabled: [Defragmentation]}
"""


VALUES: Final = {
    "values of Berth's chart": {"policies": [], "operator": {"replicas": 2}},
    "values of the upstream descheduler's chart": {"deschedulerPolicy": {"profiles": []}, "schedule": "*/2 * * * *"},
}


@pytest.mark.parametrize(("words", "values"), VALUES.items(), ids=VALUES.keys())
def test_a_file_of_values_is_told_from_a_policy(words: str, values: dict[str, Any]) -> None:
    (linted,) = lint_document(values, installed_plugins())
    (finding,) = linted.findings
    assert (finding.severity, words in finding.message) == (Severity.ERROR, True)


@pytest.mark.parametrize(
    ("plugin", "way"), {"HighNodeUtilization": "Consolidate", "LowNodeUtilization": "HotNodes"}.items()
)
def test_the_way_from_a_plugin_of_the_upstream_descheduler_is_named(plugin: str, way: str) -> None:
    raw = yaml.safe_load(UPSTREAM.replace("enabled: [Defragmentation]", f"enabled: [Defragmentation, {plugin}]"))
    (linted,) = lint_document(raw, installed_plugins())
    assert re.search(rf"{plugin} \([^)]*{way}", linted.findings[0].message)


def ours(path: str = "", value: object = None) -> dict[str, Any]:
    """Return a policy about which there is nothing to say, with one place replaced."""
    found: dict[str, Any] = yaml.safe_load(OURS)
    if path:
        parent: Any = found["spec"]
        *steps, last = [int(step) if step.isdigit() else step for step in path.split("/")]
        for step in steps:
            parent = parent.setdefault(step, {}) if isinstance(parent, dict) else parent[step]
        parent[last] = value
    return found


def lint(raw: object) -> Linted:
    (found,) = lint_document(raw, installed_plugins())
    return found


def said(linted: Linted, severity: Severity) -> dict[str, str]:
    return {found.field: found.message for found in linted.findings if found.severity is severity}


def test_there_is_nothing_to_say_of_a_good_policy() -> None:
    assert lint(ours()) == Linted("nightly", ())


ARGS: Final = "profiles/0/pluginConfig/0/args"
WARNED: Final[dict[str, tuple[dict[str, object], str, str]]] = {
    "an interval within the pods' rest": (
        {"trigger": {"interval": "30m"}},
        "spec.trigger.interval",
        "is shorter than spec.limits.podCoolDown, 1h0m0s",
    ),
    "a cron line of every minute": (
        {"trigger": {"cron": "* * * * *"}},
        "spec.trigger.cron",
        "is shorter than spec.limits.podCoolDown, 1h0m0s",
    ),
    "an interval within the nodes' rest": (
        {"trigger": {"interval": "2h"}, ARGS: {"coolDownTime": "3h", "wholeNodes": True}},
        "spec.trigger.interval",
        "is shorter than coolDownTime, 3h0m0s",
    ),
    "an interval within the rest of sources and targets": (
        {"trigger": {"interval": "2h"}, "limits": {"maxMoves": 5, "nodeCoolDown": "3h"}},
        "spec.trigger.interval",
        "is shorter than spec.limits.nodeCoolDown, 3h0m0s",
    ),
    "two names of one argument": (
        {ARGS: {"fragmentThresholds": {"cpu": 70}, "defragmentThresholds": {"cpu": 70}, "wholeNodes": True}},
        "spec.profiles[0]",
        "args.fragmentThresholds: is another name of defragmentThresholds, which is given as well",
    ),
    "an interval within the time to approve": (
        {"trigger": {"interval": "1h"}, "mode": "Approve", "approval": {"timeout": "2h"}},
        "spec.trigger.interval",
        "is shorter than spec.approval.timeout, 2h0m0s",
    ),
    "automatic without limits": ({"limits": {}}, "spec.mode", "Auto without spec.limits.maxMoves"),
    "failures that stop nothing": (
        {"limits": {"maxMoves": 5, "maxFailedShare": 1}},
        "spec.limits.maxFailedShare",
        "however many moves fail",
    ),
    "freed nodes that are filled again": (
        {"freedNodes": {"taint": "None"}},
        "spec.freedNodes.taint",
        "kube-scheduler spreads pods by default (LeastAllocated)",
    ),
    "more nodes than moves": (
        {"limits": {"maxMoves": 5, "minFreedNodes": 6}},
        "spec.limits.minFreedNodes",
        "no plan can free so many nodes",
    ),
    "freed nodes of a policy that moves single pods": (
        {"limits": {"maxMoves": 9, "minFreedNodes": 2}, ARGS: {"coolDownTime": "1h"}},
        "spec.limits.minFreedNodes",
        "2 means nothing without wholeNodes",
    ),
    "single pods off the same nodes in every run": (
        {ARGS: {}},
        "spec.profiles[0].pluginConfig.Defragmentation.args.coolDownTime",
        "0 lets every run take single pods off the same low nodes",
    ),
    "more of a controller than in a wave": (
        {"limits": {"maxMoves": 9, "maxMovesPerWave": 2, "maxMovesPerController": 3}},
        "spec.limits.maxMovesPerController",
        "is above maxMovesPerWave, 2",
    ),
    "places that are held too short": (
        {"reservation": {"ttl": "1m"}},
        "spec.reservation.ttl",
        "is shorter than a move may take: places are held 8m0s",
    ),
    "a run without time": (
        {"limits": {"maxMoves": 9, "maxDuration": "5s"}},
        "spec.limits.maxDuration",
        "is shorter than a single move may take",
    ),
    "sources that cannot be": (
        {ARGS: {"lowThresholds": {"cpu": 0}, "wholeNodes": True}},
        "spec.profiles[0].pluginConfig.Defragmentation.args.lowThresholds",
        "no node is below 0 percent of cpu",
    ),
    "targets that can hardly be": (
        {ARGS: {"defragmentThresholds": {"cpu": 90}, "wholeNodes": True}},
        "spec.profiles[0].pluginConfig.Defragmentation.args.defragmentThresholds",
        "90 is just below protectionThresholds, 95",
    ),
    "savings that no node can reach": (
        {ARGS: {"strategy": "Consolidate", "nodePrice": {"default": 0.1}, "minSavingsPerMove": 0.2}},
        "spec.profiles[0].pluginConfig.Defragmentation.args.minSavingsPerMove",
        "0.2 is above every price of nodePrice",
    ),
    "a filter that hardly any pod passes": (
        {"profiles/0/pluginConfig/1/args": {"minReplicas": 100}},
        "spec.profiles[0].pluginConfig.DefaultEvictor.args.minReplicas",
        "100 replicas or more",
    ),
}


@pytest.mark.parametrize(("changes", "want_field", "want"), WARNED.values(), ids=WARNED)
def test_what_will_not_work_well_is_a_warning(changes: dict[str, object], want_field: str, want: str) -> None:
    raw = ours()
    for path, value in changes.items():
        spec = ours(path, value)["spec"]
        root = path.partition("/")[0]
        raw["spec"][root] = spec[root]
    found = said(lint(raw), Severity.WARNING)
    assert want in found[want_field]
    assert len(found) == 1


PRICED_BY_THE_CLUSTER: Final = {"strategy": "Consolidate", "nodePrice": {"configMap": True}, "minSavingsPerMove": 9}


def test_prices_in_the_cluster_are_not_known_without_it_and_that_is_no_warning(tmp_path: Path) -> None:
    raw, file = ours(ARGS, PRICED_BY_THE_CLUSTER), tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump(raw), encoding="utf-8")

    assert said(lint(raw), Severity.NOTE) == {
        "spec.profiles[0].pluginConfig.Defragmentation.args.nodePrice.configMap": (
            "the prices are in the ConfigMap berth-node-prices of the cluster and are not known here"
        )
    }
    assert said(lint(raw), Severity.WARNING) == {}
    called = CliRunner().invoke(berth, ["policy", "lint", str(file), "--strict"], standalone_mode=False)
    assert called.return_value == 0
    assert "note" in called.output


def test_prices_that_a_snapshot_has_are_known() -> None:
    raw = ours(ARGS, PRICED_BY_THE_CLUSTER)
    (without,) = lint_document(raw, installed_plugins(), small_cluster())
    (known,) = lint_document(raw, installed_plugins(), replace(small_cluster(), beside={PRICE_MAP.name: ()}))

    assert without.count(Severity.NOTE) == 1
    assert known.count(Severity.NOTE) == 0


def test_the_names_of_the_original_proposal_are_as_good_as_ours() -> None:
    theirs = {"ResourceType": "cpu", "fragmentThresholds": {"cpu": 75}, "CoolDownTime": 3600}
    assert lint(ours(ARGS, theirs)).findings == ()


def test_what_frees_no_nodes_is_not_warned_of_them() -> None:
    raw = ours(ARGS, {"strategy": "MakeRoom"})
    raw["spec"]["freedNodes"] = {"taint": "None"}
    raw["spec"]["limits"] = {"maxMoves": 2, "minFreedNodes": 5}
    assert lint(raw).findings == ()

    raw = ours(ARGS, {"strategy": "MinimizeFragmentation"})
    raw["spec"]["freedNodes"] = {"taint": "None"}
    assert lint(raw).findings == ()
    raw["spec"]["limits"] = {"maxMoves": 50, "minFreedNodes": 5}
    (found,) = said(lint(raw), Severity.WARNING).values()
    assert found.startswith("5 means nothing without wholeNodes")


BROKEN: Final = """\
apiVersion: berth.volcano.sh/v1alpha1
kind: DeschedulerPolicy
metadata: {name: nightly}
spec:
  trigger: {cron: "* * * * *", timeZone: Europe/Berlinn}
  mode: Automatic
  moves: Fast
  profiles:
    - name: default
      pluginConfig:
        - {name: Nope}
        - name: Defragmentation
          args: {wholeNode: true, shape: {}, strategy: Pack}
      plugins: {balance: {enabled: [Defragmentation]}}
  limits:
    maxMoves: -3
    maxMove: 2
"""


def test_every_mistake_is_named_at_once_with_its_line() -> None:
    (document,) = locate_documents(BROKEN)
    (linted,) = lint_located(document, installed_plugins())
    found = [(one.line, one.field.removeprefix("spec."), one.message) for one in linted.findings]
    args = "profiles[0].pluginConfig[1].args"
    assert [(line, field) for line, field, _ in found] == [
        (5, "trigger.timeZone"),
        (6, "mode"),
        (7, "moves"),
        (11, "profiles[0].pluginConfig[0].name"),
        (13, args),
        (13, args),
        (13, f"{args}.strategy"),
        (16, "limits.maxMoves"),
        (17, "limits.maxMove"),
    ]
    assert {one.severity for one in linted.findings} == {Severity.ERROR}
    assert "expected one of Plan, Approve, Auto" in found[1][2]
    assert "expected one of Evict, Surge" in found[2][2]


def test_what_can_be_read_no_further_is_named_once() -> None:
    for raw in ({}, [], {**ours(), "kind": "Policy"}, {**ours(), "spec": []}, {**ours(), "metadata": {}}):
        assert len(lint(raw).findings) == 1


ERRORS: Final = {
    "defragment above protection": (
        ARGS,
        {"defragmentThresholds": {"cpu": 97}},
        "spec.profiles[0].pluginConfig[0].args.defragmentThresholds.cpu",
        "less than protectionThresholds.cpu, which is 95",
    ),
    "a day that never comes": (
        "trigger",
        {"cron": "0 0 30 2 *"},
        "spec.trigger.cron",
        "this one never comes",
    ),
    "a field that there is not": ("modes", "Auto", "spec.modes", "one of "),
}


@pytest.mark.parametrize(("path", "value", "want_field", "want"), ERRORS.values(), ids=ERRORS)
def test_what_cannot_be_run_is_an_error(path: str, value: object, want_field: str, want: str) -> None:
    found = said(lint(ours(path, value)), Severity.ERROR)
    assert list(found) == [want_field]
    assert want in found[want_field]


# --- files of the upstream descheduler --------------------------------------------------------------------------------


def upstream(**changes: object) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(UPSTREAM)
    return {**found, **changes}


def test_an_upstream_file_is_read_as_it_is_where_its_plugins_are_there() -> None:
    assert lint(upstream()) == Linted("profilename", ())


def test_what_an_upstream_file_says_beside_its_profiles_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(UPSTREAM)
    policy = read_policy_file(str(path))
    limits = policy.spec.limits
    assert (limits.max_moves, limits.max_moves_per_node, limits.max_moves_per_namespace) == (100, 5, 50)
    assert policy.spec.node_selector == "pool=batch"
    assert [config.name for config in policy.spec.profiles[0].plugin_config] == ["DefaultEvictor", "Defragmentation"]


def test_plugins_that_are_not_there_are_named_all_together_and_the_rest_is_looked_at() -> None:
    raw = upstream(gracePeriodSeconds=30)
    profile = raw["profiles"][0]
    profile["plugins"] |= {"deschedule": {"enabled": ["RemoveFailedPods"]}, "sort": {"enabled": ["ByAge"]}}
    profile["pluginConfig"].append({"name": "RemoveDuplicates", "args": {}})
    profile["pluginConfig"][0]["args"]["minReplicas"] = 100
    found = lint(raw)
    (error,) = said(found, Severity.ERROR).values()
    pattern = (
        r"not installed: RemoveFailedPods \([^)]+\), ByAge, RemoveDuplicates \([^)]+\); expected only DefaultEvictor"
    )
    assert re.search(pattern, error)
    warnings = said(found, Severity.WARNING)
    assert "is not taken over" in warnings["gracePeriodSeconds"]
    assert "100 replicas" in warnings["spec.profiles[0].pluginConfig.DefaultEvictor.args.minReplicas"]


def test_each_upstream_profile_is_a_policy() -> None:
    raw = upstream()
    raw["profiles"] = [{**raw["profiles"][0], "name": name} for name in ("a", "b")]
    assert [one.name for one in lint_document(raw, installed_plugins())] == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "want"),
    [({"apiVersion": "descheduler/v1alpha1"}, "descheduler/v1alpha2"), ({"profiles": {}}, "a list of profiles")],
    ids=["an older version", "no profiles"],
)
def test_an_upstream_file_that_cannot_be_read_says_why(change: dict[str, object], want: str) -> None:
    (message,) = said(lint(upstream(**change)), Severity.ERROR).values()
    assert want in message


@pytest.mark.parametrize(
    ("profiles", "want"),
    [(2, "one profile: a file for each"), (1, "not installed: RemoveDuplicates")],
    ids=["two profiles", "a plugin that is not there"],
)
def test_a_run_by_an_upstream_file_needs_one_whole_profile(tmp_path: Path, profiles: int, want: str) -> None:
    raw = upstream()
    if profiles == 1:
        raw["profiles"][0]["plugins"]["balance"]["enabled"].append("RemoveDuplicates")
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump({**raw, "profiles": raw["profiles"] * profiles}))
    with pytest.raises(InputError, match=want):
        read_policy_file(str(path))


# --- the command ------------------------------------------------------------------------------------------------------


def run(tmp_path: Path, text: str, *options: str) -> Any:  # noqa: ANN401 - click's result
    path = tmp_path / "policy.yaml"
    path.write_text(text)
    return CliRunner().invoke(berth, ["policy", "lint", str(path), *options], standalone_mode=False)


def test_the_command_says_that_all_is_well(tmp_path: Path) -> None:
    result = run(tmp_path, OURS)
    assert result.return_value == 0
    assert result.stdout.split()[-2:] == ["nightly", "ok"]


WARNING: Final = OURS.replace("mode: Auto", "mode: Auto\n  freedNodes: {taint: None}")
WRONG: Final = OURS.replace("0 2 * * *", "@daily")


@pytest.mark.parametrize(
    ("text", "options", "want"),
    [(WARNING, (), 0), (WARNING, ("--strict",), 1), (WRONG, (), 2), (f"{WARNING}---{WRONG}", (), 2)],
    ids=["a warning", "a warning where none may be", "an error", "an error in one of two documents"],
)
def test_the_exit_code_says_how_bad_it_is(tmp_path: Path, text: str, options: tuple[str, ...], want: int) -> None:
    assert run(tmp_path, text, *options).return_value == want


def test_machines_read_the_findings(tmp_path: Path) -> None:
    (found,) = json.loads(run(tmp_path, WRONG, "--output=json").stdout)
    assert (found["policy"], found["valid"]) == ("nightly", False)
    (finding,) = found["findings"]
    assert (finding["severity"], finding["field"]) == ("error", "spec.trigger.cron")
    assert "five fields" in finding["message"]


@pytest.mark.parametrize(("text", "want"), [("", "FILE is empty"), ("a: [", "a file in YAML")], ids=["empty", "broken"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str, want: str) -> None:
    error = run(tmp_path, text).exception
    assert isinstance(error, InputError)
    assert want in str(error)


FEW: Final = {
    "maxMoves": (2, "2 is less than a usual node holds, and a node with more pods is never emptied: 5 or more"),
    "maxMovesPerNode": (4, "4 is less than a usual node holds, and a node with more pods is never emptied: 5 or more"),
    "maxMovesPerNamespace": (
        2,
        "2 is less than a usual node holds, and a node with more pods of one namespace is never emptied: 5 or more",
    ),
}


@pytest.mark.parametrize(("name", "most", "want"), [(name, *case) for name, case in FEW.items()], ids=FEW)
def test_a_limit_below_what_a_usual_node_holds_is_warned_of(name: str, most: int, want: str) -> None:
    raw = ours(f"limits/{name}", most)
    assert said(lint(raw), Severity.WARNING)[f"spec.limits.{name}"] == want
    assert lint(ours(f"limits/{name}", 5)).findings == ()


def test_a_limit_that_bounds_single_pods_is_not_compared_with_nodes() -> None:
    raw = ours("limits/maxMovesPerNamespace", 1)
    raw["spec"]["profiles"][0]["pluginConfig"][0]["args"] = {"wholeNodes": False, "coolDownTime": "1h"}
    assert lint(raw).findings == ()


def test_with_a_snapshot_limits_are_compared_with_what_its_nodes_hold() -> None:
    (few,) = lint_document(ours("limits/maxMovesPerNamespace", 3), installed_plugins(), small_cluster())
    assert said(few, Severity.WARNING) == {
        "spec.limits.maxMovesPerNamespace": "3 is enough for 4 of 20 nodes in use, as a usual node there holds 4 pods "
        "of one namespace, and one with more than 3 is never emptied: 4 or more"
    }
    (enough,) = lint_document(ours("limits/maxMovesPerNamespace", 4), installed_plugins(), small_cluster())
    assert enough.findings == ()


def test_the_command_reads_the_snapshot_of_a_cluster(tmp_path: Path) -> None:
    file, snapshot = tmp_path / "policy.yaml", tmp_path / "cluster.json"
    file.write_text(yaml.safe_dump(ours("limits/maxMovesPerNamespace", 3)))
    snapshot.write_bytes(small_cluster().to_json())
    done = CliRunner().invoke(berth, ["policy", "lint", "--strict", "--snapshot", str(snapshot), str(file)])
    assert "3 is enough for 4 of 20 nodes in use" in " ".join(done.output.split())


def test_errors_beyond_a_number_are_not_looked_for_until_the_first_are_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each error costs a reading of the whole policy, and a file may have thousands."""
    readings: list[object] = []

    def read_and_count(raw: object) -> DeschedulerPolicy:
        readings.append(raw)
        return decode_policy(raw)

    monkeypatch.setattr(lint_module, "decode_policy", read_and_count)
    linted = lint(ours(ARGS, {f"unknown{number}": number for number in range(3 * MOST_ERRORS)}))

    assert len(readings) <= MOST_ERRORS
    assert len(linted.findings) == MOST_ERRORS + 1
    assert linted.findings[-1].message.startswith(f"the first {MOST_ERRORS} errors are named here")
