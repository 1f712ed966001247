"""`berth plan` reckons with surges as a run does, as far as the snapshot says which pods can surge."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core.labels import TEMPLATE_HASH_LABEL
from berth_descheduler.cli.main import run
from builders import as_api, disruption_budget, list_file, node, owner, pod, workload

Captured = pytest.CaptureFixture[str]
Raw = dict[str, Any]

HASH: Final = "5d4f"
LABELS: Final = {"app": "web", TEMPLATE_HASH_LABEL: HASH}
OF_WEB: Final = owner("ReplicaSet", f"web-{HASH}")
WITHOUT_BUDGET: Final = [
    as_api(node("high", cpu="10"), kind="Node"),
    as_api(node("low", cpu="10"), kind="Node"),
    as_api(pod("big", node="high", cpu="8", memory="1Gi", controller=owner("StatefulSet", "big"))),
    as_api(pod("web-1", node="low", cpu="1", memory="1Gi", labels=LABELS, controller=OF_WEB)),
    as_api(workload("StatefulSet", "big", match_labels={"app": "big"}), api_version="apps/v1", kind="StatefulSet"),
    as_api(
        workload("ReplicaSet", OF_WEB.name, match_labels=LABELS, controller=owner("Deployment", "web")),
        api_version="apps/v1",
        kind="ReplicaSet",
    ),
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default", "generation": 1},
        "spec": {"replicas": 1},
        "status": {"observedGeneration": 1, "updatedReplicas": 1},
    },
]
BUDGET: Final = as_api(
    disruption_budget(match_labels={"app": "web"}, allowed=0), api_version="policy/v1", kind="PodDisruptionBudget"
)
BY_HASH: Final = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "blue", "namespace": "default"},
    "spec": {"selector": LABELS},
}
REASON: Final = "the Service blue selects pods by pod-template-hash"


@pytest.fixture
def plan(capsys: Captured, tmp_path: Path) -> Callable[..., Raw]:
    """Return what plans on a file of some objects with some options."""

    def made(items: list[Raw], *options: str) -> Raw:
        file = tmp_path / "snapshot.json"
        file.write_bytes(list_file(*items))
        assert run(["plan", "--snapshot", str(file), "--strategy", "threshold", "--output", "json", *options]) == 0
        found: Raw = json.loads(capsys.readouterr().out)
        return found

    return made


def ways(found: Raw) -> list[tuple[str, str | None, str]]:
    return [(move["pod"], move["method"], move["methodReason"]) for move in found["moves"]]


def test_a_pod_that_its_budget_keeps_surges(plan: Callable[..., Raw]) -> None:
    found = plan([*WITHOUT_BUDGET, BUDGET], "--snapshot-kinds=all")

    assert ways(found) == [("web-1", "Surge", "")]
    assert found["missingKinds"] == []


def test_a_pod_that_cannot_surge_stays_where_its_budget_keeps_it_and_is_evicted_where_none_does(
    plan: Callable[..., Raw],
) -> None:
    assert ways(plan([*WITHOUT_BUDGET, BY_HASH], "--snapshot-kinds=all")) == [("web-1", "Evict", REASON)]
    found = plan([*WITHOUT_BUDGET, BUDGET, BY_HASH], "--snapshot-kinds=all")

    assert found["moves"] == []
    (kept,) = [one for one in found["refused"] if one["pod"] == "web-1"]
    assert kept["message"].endswith(f"and it cannot surge: {REASON}")


IN_DOUBT: Final = "it cannot be determined whether it may: "
BESIDE_IT: Final = {
    "Service": "v1",
    "PodDisruptionBudget": "policy/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "ReplicationController": "v1",
    "HorizontalPodAutoscaler": "autoscaling/v2",
}
"""Kinds that decide by their spec whether a pod of their namespace can surge."""


@pytest.mark.parametrize("broken", [{"spec": 7}, {"metadata": 7, "spec": 7}], ids=["named", "without metadata"])
@pytest.mark.parametrize("kind", BESIDE_IT)
def test_a_pod_does_not_surge_beside_what_cannot_be_read(plan: Callable[..., Raw], kind: str, broken: Raw) -> None:
    odd = {"apiVersion": BESIDE_IT[kind], "kind": kind, "metadata": {"name": "odd", "namespace": "default"}, **broken}
    found = plan([*WITHOUT_BUDGET, odd], "--snapshot-kinds=all")
    if kind == "PodDisruptionBudget":
        assert found["moves"] == []
        assert {"UnreadableObject"} <= {one["reason"] for one in found["refused"]}
        return
    ((name, method, reason),) = ways(found)
    assert (name, method) == ("web-1", "Evict")
    assert reason.startswith(IN_DOUBT)


def test_without_surges_its_budget_keeps_it(plan: Callable[..., Raw]) -> None:
    assert plan([*WITHOUT_BUDGET, BUDGET], "--snapshot-kinds=all", "--moves=Evict")["moves"] == []
    found = plan(WITHOUT_BUDGET, "--snapshot-kinds=all", "--moves=Evict")
    assert ways(found) == [("web-1", "Evict", "")]


def test_a_file_that_lacks_what_decides_says_so(plan: Callable[..., Raw]) -> None:
    kinds = "--snapshot-kinds=nodes,pods,poddisruptionbudgets.policy,replicasets.apps,statefulsets.apps"
    unknown = "not known: the snapshot lacks daemonsets.apps, replicationcontrollers, services,"

    found = plan(WITHOUT_BUDGET, kinds)
    ((name, method, reason),) = ways(found)
    assert (name, method) == ("web-1", None)
    assert reason.startswith(unknown)
    assert found["missingKinds"] == []

    found = plan([*WITHOUT_BUDGET, BUDGET], kinds)
    assert found["moves"] == []
    lacking = {one["kind"]: one["assumed"] for one in found["missingKinds"]}
    assert lacking["services"] == "that no pod surges where a budget allows nothing"
    assert "deployments.apps" not in lacking


def test_the_table_says_how_each_pod_is_moved_where_that_is_known(capsys: Captured, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_bytes(list_file(*WITHOUT_BUDGET, BY_HASH))
    said = {}
    for kinds in ("all", "nodes,pods"):
        assert run(["plan", "--snapshot", str(file), "--strategy=threshold", f"--snapshot-kinds={kinds}"]) == 0
        said[kinds] = " ".join(capsys.readouterr().out.split())

    assert "Evict: the Service blue selects" in said["all"]
    assert "Evict" not in said["nodes,pods"]


@pytest.mark.parametrize("spec", [None, {"selector": ["odd"]}, {"selector": {"app": 7}}])
def test_odd_objects_keep_a_pod_from_surging_and_break_nothing(plan: Callable[..., Raw], spec: object) -> None:
    ((_, method, _),) = ways(plan([*WITHOUT_BUDGET, {**BY_HASH, "spec": spec}], "--snapshot-kinds=all"))

    assert method in {"Evict", "Surge"}
