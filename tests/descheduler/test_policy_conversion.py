"""Policy files of the upstream descheduler become policies of ours, which move nothing that the file keeps."""

import copy
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from berth_core.errors import InputError
from berth_descheduler.cli.main import berth
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.conversion import convert_upstream
from berth_descheduler.policy.lint import Severity, lint_document
from berth_descheduler.policy.upstream import INSTEAD

FILE: Final = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
nodeSelector: pool=batch
maxNoOfPodsToEvictPerNode: 40
maxNoOfPodsToEvictPerNamespace: 50
maxNoOfPodsToEvictTotal: 100
profiles:
  - name: Pack nodes
    pluginConfig:
      - name: HighNodeUtilization
        args:
          thresholds: {cpu: 20, memory: 30.5, pods: 20}
          numberOfNodes: 2
          evictableNamespaces: {exclude: [kube-system]}
      - name: DefaultEvictor
        args: {nodeFit: true, minReplicas: 2, priorityThreshold: {value: 10000}}
    plugins:
      balance: {enabled: [HighNodeUtilization]}
"""


def upstream(change: Callable[[dict[str, Any]], object] = lambda _: None) -> dict[str, Any]:
    """Return the file after a change of its one profile."""
    raw: dict[str, Any] = yaml.safe_load(FILE)
    change(raw["profiles"][0])
    return raw


def evictor(**args: object) -> Callable[[dict[str, Any]], object]:
    return lambda profile: profile["pluginConfig"][1].update(args=args)


def packing(**args: object) -> Callable[[dict[str, Any]], object]:
    return lambda profile: profile["pluginConfig"][0]["args"].update(args)


def enabling(point: str, *plugins: str) -> Callable[[dict[str, Any]], object]:
    return lambda profile: profile["plugins"].setdefault(point, {}).setdefault("enabled", []).extend(plugins)


def test_the_plugin_that_packs_nodes_becomes_ours_with_all_that_the_file_says() -> None:
    (converted,) = convert_upstream(upstream(), installed_plugins())
    assert converted.policy == {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": "pack-nodes"},
        "spec": {
            "mode": "Plan",
            "nodeSelector": "pool=batch",
            "limits": {"maxMoves": 100, "maxMovesPerNode": 40, "maxMovesPerNamespace": 50},
            "profiles": [
                {
                    "name": "Pack nodes",
                    "pluginConfig": [
                        {
                            "name": "DefaultEvictor",
                            "args": {"nodeFit": True, "minReplicas": 2, "priorityThreshold": {"value": 10000}},
                        },
                        {
                            "name": "Defragmentation",
                            "args": {
                                "strategy": "Threshold",
                                "wholeNodes": True,
                                "resourceType": "cpu",
                                "lowThresholds": {"cpu": 20, "memory": 30.5, "pods": 20},
                                "defragmentThresholds": {"cpu": 20},
                                "protectionThresholds": {"cpu": 100},
                                "numberOfNodes": 2,
                                "evictableNamespaces": {"exclude": ["kube-system"]},
                            },
                        },
                    ],
                    "plugins": {"balance": {"enabled": ["Defragmentation"]}},
                }
            ],
        },
    }
    (note,) = converted.notes
    assert re.match(r"HighNodeUtilization: became Defragmentation .* Consolidate", note)


LEFT_OUT: Final[dict[str, tuple[Callable[[dict[str, Any]], object], str]]] = {
    "actual use": (packing(metricsUtilization={"metricsServer": True}), r"metricsUtilization: .*HotNodes"),
    "pods of the system": (evictor(evictSystemCriticalPods=True), r"evictSystemCriticalPods: .*always stay"),
    "pods of DaemonSets": (evictor(evictDaemonSetPods=True), r"evictDaemonSetPods: .*always stay"),
    "failed pods": (
        evictor(podProtections={"defaultDisabled": ["FailedBarePods", "PodsWithLocalStorage"]}),
        r"defaultDisabled FailedBarePods: .*always stay",
    ),
    "arguments of a plugin that is not enabled": (
        lambda profile: profile["pluginConfig"].append({"name": "PodLifeTime", "args": {"maxPodLifeTimeSeconds": 9}}),
        r"PodLifeTime: left out",
    ),
    "a plugin of others": (enabling("deschedule", "EvictOnFridays"), r"EvictOnFridays: .*no plugin of this name"),
    **{
        name: (enabling("balance", name), rf"{name}: left out; {re.escape(INSTEAD[name])}")
        for name in INSTEAD
        if name != "HighNodeUtilization"
    },
}


@pytest.mark.parametrize(("change", "want"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_what_is_not_carried_over_is_named_and_the_policy_is_without_errors(
    change: Callable[[dict[str, Any]], object], want: str
) -> None:
    (converted,) = convert_upstream(upstream(change), installed_plugins())
    assert any(re.search(want, note) for note in converted.notes), converted.notes
    (linted,) = lint_document(converted.policy, installed_plugins())
    assert not linted.count(Severity.ERROR), linted


NARROWING: Final[dict[str, tuple[Callable[[dict[str, Any]], object], str]]] = {
    "a selector that cannot be read": (evictor(labelSelector={"matchLabels": ["app"]}), r"labelSelector"),
    "an argument that is unknown": (evictor(onlyOnFridays=True), r"onlyOnFridays"),
    "an argument of the plugin that packs nodes": (
        packing(evictionModes=["OnlyThresholdingResources"]),
        r"evictionModes",
    ),
    "a filter that is not installed": (enabling("filter", "OurFilter"), r"filter\.enabled\[0\].*OurFilter"),
    "a plugin that packs nodes without thresholds": (packing(thresholds={}), r"thresholds"),
    "a threshold of a number": (packing(thresholds={1: 20}), r"thresholds.*names of resources"),
    "arguments of no plugin": (lambda profile: profile["pluginConfig"].append("DefaultEvictor"), r"pluginConfig\[2\]"),
}


@pytest.mark.parametrize(("change", "want"), NARROWING.values(), ids=NARROWING.keys())
def test_what_keeps_pods_and_cannot_be_carried_over_is_an_error(
    change: Callable[[dict[str, Any]], object], want: str
) -> None:
    with pytest.raises(InputError, match=rf"profiles\[0\].*{want}"):
        convert_upstream(upstream(change), installed_plugins())


def test_the_document_is_left_as_it_is() -> None:
    raw = upstream(evictor(evictDaemonSetPods=True))
    before = copy.deepcopy(raw)
    convert_upstream(raw, installed_plugins())
    assert raw == before


def test_a_limit_above_what_a_plan_may_have_becomes_the_most() -> None:
    (converted,) = convert_upstream({**upstream(), "maxNoOfPodsToEvictTotal": 5000}, installed_plugins())
    assert converted.policy is not None
    assert converted.policy["spec"]["limits"]["maxMoves"] == 1000
    assert any("5000 became maxMoves: 1000" in note for note in converted.notes)


@pytest.mark.parametrize(
    ("names", "want"),
    {
        ("Night run", "night_run"): ("night-run", "night-run-2"),
        ("", "---"): ("profile", "profile-2"),
        ("ab" * 200,): ("ab" * 100,),
    }.items(),
    ids=["alike but for what Kubernetes refuses", "none", "long"],
)
def test_policies_have_names_that_kubernetes_takes(names: tuple[str, ...], want: tuple[str, ...]) -> None:
    raw = upstream()
    raw["profiles"] = [{**copy.deepcopy(raw["profiles"][0]), "name": name} for name in names]
    converted = convert_upstream(raw, installed_plugins())
    assert tuple(profile.policy["metadata"]["name"] for profile in converted if profile.policy) == want


# --- the command ------------------------------------------------------------------------------------------------------


def run(tmp_path: Path, raw: Mapping[str, Any]) -> Result:
    path = tmp_path / "policy.yaml"
    path.write_text(yaml.safe_dump(dict(raw)))
    return CliRunner().invoke(berth, ["policy", "convert", str(path)], standalone_mode=False)


def with_a_profile_that_levels() -> dict[str, Any]:
    raw = upstream()
    levels = {"name": "level", "plugins": {"balance": {"enabled": ["LowNodeUtilization"]}}}
    return {**raw, "profiles": [*raw["profiles"], levels]}


def test_the_command_writes_policies_and_says_in_comments_what_is_otherwise(tmp_path: Path) -> None:
    result = run(tmp_path, with_a_profile_that_levels())
    assert result.return_value == 0
    (policy, nothing) = yaml.safe_load_all(result.stdout)
    assert (policy["metadata"]["name"], nothing) == ("pack-nodes", None)
    comments = [line for line in result.stdout.splitlines() if line.startswith("# ")]
    assert any("LowNodeUtilization: left out" in comment for comment in comments)
    assert any("set spec.trigger and spec.mode" in comment for comment in comments)
    assert "level: LowNodeUtilization: left out" in result.stderr


def test_no_name_in_a_file_gets_out_of_the_comments(tmp_path: Path) -> None:
    raw = with_a_profile_that_levels()
    raw["profiles"][1]["plugins"]["balance"]["enabled"] = ["Level\n---\nkind: Namespace"]
    result = run(tmp_path, raw)
    assert [document["kind"] for document in yaml.safe_load_all(result.stdout) if document] == ["DeschedulerPolicy"]


NOTHING: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "only plugins that are not there": (
        {**with_a_profile_that_levels(), "profiles": with_a_profile_that_levels()["profiles"][1:]},
        "LowNodeUtilization: left out",
    ),
    "a policy of ours": (
        {"apiVersion": "berth.volcano.sh/v1alpha1", "kind": "DeschedulerPolicy", "metadata": {"name": "a"}},
        "a DeschedulerPolicy of Berth already",
    ),
    "an older version": ({**upstream(), "apiVersion": "descheduler/v1alpha1"}, "descheduler/v1alpha2"),
}


@pytest.mark.parametrize(("raw", "want"), NOTHING.values(), ids=NOTHING.keys())
def test_the_command_refuses_what_no_policy_comes_of(tmp_path: Path, raw: dict[str, Any], want: str) -> None:
    result = run(tmp_path, raw)
    assert isinstance(result.exception, InputError)
    assert want in str(result.exception)
    assert not result.stdout
