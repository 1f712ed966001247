"""`berth plan` as people and machines call it: what comes out, and what is said of bad input."""

import gzip
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth_core.clock import SystemClock
from berth_core.snapshot import Snapshot
from berth_descheduler.cli.main import run
from builders import as_api, disruption_budget, list_file, node, owner, pod, workload
from descheduler.cluster_script import serve
from scripted_server import ScriptedServer, refusal, write_kubeconfig

NODES = (node("high", cpu="10"), node("low", cpu="10"))
PODS = (
    pod("big", node="high", cpu="8", memory="1Gi", controller=owner(name="big")),
    pod("web-0", node="low", cpu="1", memory="1Gi"),
    pod("web-1", node="low", cpu="500m", memory="1Gi"),
    pod("gated", gates=("quota",), controller=owner(name="batch")),
    pod("over", phase="Succeeded", controller=owner(name="batch")),
)
SNAPSHOT = Snapshot(nodes=NODES, pods=PODS, workloads=(workload(replicas=2), workload(name="big")))

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "snapshot.json"
    path.write_bytes(SNAPSHOT.to_json())
    return str(path)


THRESHOLD = ("--strategy", "threshold")


def plan_json(capsys: Captured, *arguments: str) -> dict[str, Any]:
    """Return what is planned, with the strategy `threshold` unless another one is named."""
    strategy = () if "--strategy" in arguments else THRESHOLD
    assert run(["plan", *arguments, *strategy, "--output", "json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def refused(capsys: Captured, *arguments: str) -> str:
    """The one line that a command says of its input, without `berth: `."""
    assert run(["plan", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    return line.removeprefix("berth: ")


def test_every_pod_that_stays_is_named_with_its_reason_where_that_is_asked_for(capsys: Captured, file: str) -> None:
    brief = plan_json(capsys, "--snapshot", file)
    whole = plan_json(capsys, "--snapshot", file, "--every-pod")

    assert brief["keptPods"] is None
    assert whole["keptPods"] == [
        {
            "kind": "Pod",
            "node": "high",
            "namespace": "default",
            "pod": "big",
            "reason": "NotLow",
            "message": "high is not emptied: cpu is 80 % requested, not below 40 %",
            "constraint": "",
            "resource": "cpu",
            "blockingPod": "",
            "also": [],
        }
    ]


ALIKE = Snapshot(
    nodes=tuple(node(f"n{index}", cpu="4") for index in range(3)),
    pods=tuple(pod(f"web-{index}", node=f"n{index}", cpu="1", memory="1Gi") for index in range(3)),
    workloads=(workload(replicas=3),),
)


@pytest.mark.parametrize("kept", ["n0", "n1", "n2"])
@pytest.mark.parametrize("form", ["plan", "MigrationPlan", "YAML"])
def test_a_plan_keeps_to_an_earlier_one(kept: str, form: str, capsys: Captured, tmp_path: Path) -> None:
    snapshot, earlier = tmp_path / "snapshot.json", tmp_path / "earlier"
    snapshot.write_bytes(ALIKE.to_json())
    first = plan_json(capsys, "--snapshot", str(snapshot), "--strategy", "consolidate")
    moves = [
        {**first["moves"][0], "pod": f"web-{index}", "podUID": "", "source": f"n{index}", "target": kept}
        for index in range(3)
        if f"n{index}" != kept
    ]
    document = {"moves": moves} if form == "plan" else {"kind": "MigrationPlan", "spec": {"moves": moves}}
    earlier.write_text(yaml.safe_dump(document) if form == "YAML" else json.dumps(document))

    made = plan_json(capsys, "--snapshot", str(snapshot), "--strategy", "consolidate", "--like", str(earlier))

    assert {(move["pod"], move["target"]) for move in made["moves"]} == {(move["pod"], kept) for move in moves}
    assert made["reached"] == first["reached"] == 2
    assert made["provenOptimal"] is first["provenOptimal"]


@pytest.mark.parametrize("text", ["{}", "[]", "moves: 3", '{"spec": {"moves": [{"pod": 1}]}}', "a: [", ""])
def test_a_file_without_a_plan_is_refused(text: str, capsys: Captured, file: str, tmp_path: Path) -> None:
    earlier = tmp_path / "earlier"
    earlier.write_text(text)

    assert refused(capsys, "--snapshot", file, "--like", str(earlier)).startswith("--like is ")


class ClockWhileReading(SystemClock):
    """A clock that is still but for the reading of the snapshot, which takes so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._readings = iter((0.0,))
        self._seconds = seconds

    def monotonic(self) -> float:
        return next(self._readings, self._seconds)


@pytest.mark.parametrize(("reading_seconds", "want_out_of_time"), [(9.0, False), (9.9, True), (30.0, True)])
def test_the_time_limit_counts_from_the_start_of_the_command(
    reading_seconds: float, *, want_out_of_time: bool, capsys: Captured, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ClockWhileReading(reading_seconds)
    monkeypatch.setattr("berth_descheduler.cli.plan.SystemClock", lambda: clock)

    found = plan_json(capsys, "--snapshot", file, "--strategy", "consolidate", "--time-limit", "10")

    assert found["outOfTime"] is want_out_of_time


def test_the_json_has_what_is_promised(capsys: Captured, file: str) -> None:
    found = plan_json(capsys, "--snapshot", file)

    assert found["predicted"]["freedNodes"] == ["low"]
    assert found["moves"][0] == {
        "index": 0,
        "namespace": "default",
        "pod": "web-0",
        "podUID": "uid-default-web-0",
        "source": "low",
        "target": "high",
        "wave": 1,
        "after": [],
        "requests": {"cpu": "1", "memory": "1Gi"},
        "owner": {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "namespace": "default",
            "name": "web",
            "uid": "uid-replicaset-web",
        },
        "why": "low is low: 15 % of its cpu is requested",
        "method": None,
        "methodReason": "not known: the snapshot lacks deployments.apps, daemonsets.apps, replicationcontrollers, "
        "services, horizontalpodautoscalers.autoscaling, resourcequotas",
    }
    assert [move["wave"] for move in found["moves"]] == [1, 2]
    assert (found["before"]["emptyNodes"], found["after"]["emptyNodes"]) == (0, 1)
    assert found["before"]["resources"][0] == {
        "resource": "cpu",
        "allocatable": "20",
        "requested": "9500m",
        "requestedRatio": 0.475,
        "free": "10500m",
        "largestFree": "8500m",
    }
    assert found["after"]["resources"][0]["largestFree"] == "10"
    assert [(one["kind"], one["node"], one["reason"]) for one in found["refused"]] == [("Node", "high", "NotLow")]
    assert found["objective"]["strategy"] == "Threshold"


def test_the_same_cluster_gives_the_same_bytes_in_whatever_order_it_is_listed(
    capsys: Captured, file: str, tmp_path: Path
) -> None:
    turned = tmp_path / "turned.json"
    document = json.loads(SNAPSHOT.to_json())
    turned.write_text(json.dumps(document | {"items": document["items"][::-1]}))

    outputs = []
    for name in (file, file, str(turned)):
        run(["plan", "--snapshot", name, "--output", "json"])
        outputs.append(capsys.readouterr().out)

    assert outputs[0] == outputs[1] == outputs[2]


def test_a_compressed_file_is_read_whatever_its_name(capsys: Captured, tmp_path: Path) -> None:
    for name in ("snapshot.json.gz", "snapshot"):
        (tmp_path / name).write_bytes(gzip.compress(SNAPSHOT.to_json()))
        assert plan_json(capsys, "--snapshot", str(tmp_path / name))["predicted"]["freedNodes"] == ["low"]


def test_standard_input_is_read(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(SNAPSHOT.to_json())))

    assert plan_json(capsys, "--snapshot", "-")["predicted"]["freedNodes"] == ["low"]


def test_the_live_cluster_is_read(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        kubeconfig = serve(server, SNAPSHOT).kubeconfig(tmp_path)

        assert plan_json(capsys, "--kubeconfig", kubeconfig)["predicted"]["freedNodes"] == ["low"]


def test_a_replica_set_of_the_live_cluster_that_shrinks_keeps_its_pods(capsys: Captured, tmp_path: Path) -> None:
    shrinking = Snapshot(nodes=NODES, pods=PODS, workloads=(workload(replicas=1), workload(name="big")))
    with ScriptedServer() as server:
        kubeconfig = serve(server, shrinking).kubeconfig(tmp_path)

        found = plan_json(capsys, "--kubeconfig", kubeconfig)

    assert {one["reason"] for one in found["refused"] if one["kind"] == "Pod"} == {"ControllerScalingDown"}


def test_people_get_the_outcome_the_moves_and_why_not_more(capsys: Captured, file: str) -> None:
    assert run(["plan", "--snapshot", file, *THRESHOLD]) == 0

    shown = capsys.readouterr().out
    assert "2 moves in 2 waves take single pods off 1 node and free 1 of 2 nodes; 1 is empty then." in shown
    assert "default/web-0" in shown
    assert "NotLow" in shown


def test_people_are_told_that_there_is_nothing_to_move(capsys: Captured, file: str) -> None:
    assert run(["plan", "--snapshot", file, "--low-threshold", "10"]) == 0

    assert "Nothing to move: no pod of the 2 nodes can be moved by these rules." in capsys.readouterr().out


OPTIONS = {
    "a threshold of the resource type": (["--low-threshold", "15"], []),
    "a threshold of a named resource": (["--low-threshold", "cpu=16"], ["low"]),
    "thresholds of several resources": (["--low-threshold", "40", "--low-threshold", "memory=3"], []),
    "another resource type": (["--resource-type", "memory"], []),
    "more low nodes than there are": (["--number-of-nodes", "1"], []),
    "fewer moves than are needed": (["--max-moves", "1"], []),
    "fewer moves than are needed for whole nodes": (["--whole-nodes", "--max-moves", "1"], []),
    "single pods": (["--single-pods"], ["low"]),
    "labels that all pods have": (["--label-selector", "!spare"], ["low"]),
    "labels that no pod has": (["--label-selector", "app=db"], []),
    "labels that no pod has, with another strategy": (
        ["--strategy", "consolidate", "--label-selector", "app=db"],
        [],
    ),
    "as many moves as are needed": (["--max-moves", "2"], ["low"]),
    "no moves": (["--max-moves", "0"], []),
    "no limit of time": (["--time-limit", "none"], ["low"]),
    "another strategy": (["--strategy", "consolidate"], ["high"]),
    "other namespaces than the pods'": (["--exclude-namespace", "default"], []),
    "the pods' namespace": (["--include-namespace", "default"], ["low"]),
}


@pytest.mark.parametrize(("arguments", "want_freed"), OPTIONS.values(), ids=OPTIONS.keys())
def test_options_reach_the_planner(capsys: Captured, file: str, arguments: list[str], want_freed: list[str]) -> None:
    assert plan_json(capsys, "--snapshot", file, *arguments)["predicted"]["freedNodes"] == want_freed


DEFAULTS = {
    "nothing said": ([], "Consolidate"),
    "a threshold": (["--low-threshold", "15"], "Threshold"),
    "single pods": (["--single-pods"], "Threshold"),
    "a shape": (["--shape", "cpu=2"], "MakeRoom"),
}


@pytest.mark.parametrize(("arguments", "want"), DEFAULTS.values(), ids=DEFAULTS)
def test_the_strategy_is_that_of_the_other_options_else_consolidate(
    capsys: Captured, file: str, arguments: list[str], want: str
) -> None:
    assert run(["plan", "--snapshot", file, *arguments, "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["objective"]["strategy"] == want


def write_kubectl_list(folder: Path, *more: dict[str, Any]) -> str:
    """Write a cluster of which a node can be freed as kubectl does, which does not say what it was asked for."""
    items = [as_api(one, kind="Node") for one in NODES] + [as_api(one) for one in PODS[:3]]
    path = folder / "kubectl.json"
    path.write_bytes(list_file(*items, *more))
    return str(path)


CONSOLIDATE = ("--strategy", "consolidate")


def test_without_budgets_and_controllers_nothing_is_proven_and_both_are_named(capsys: Captured, tmp_path: Path) -> None:
    file = write_kubectl_list(tmp_path)

    found = plan_json(capsys, "--snapshot", file, *CONSOLIDATE)

    assert found["missingKinds"] == [
        {"kind": "poddisruptionbudgets.policy", "assumed": "that no budget forbids an eviction"},
        {"kind": "replicasets.apps", "assumed": "that none of these is about to be scaled down or deleted"},
    ]
    assert found["reached"] == len(found["predicted"]["freedNodes"]) == 1
    assert (found["provenOptimal"], found["provenFewestMoves"]) == (False, False)
    assert (found["upperBound"], found["gap"], found["fewestMoves"], found["provenBy"]) == (None,) * 4
    assert "BoundReached" not in {one["reason"] for one in found["refused"]}


def test_people_are_told_what_is_missing_what_was_assumed_and_how_to_get_it(capsys: Captured, tmp_path: Path) -> None:
    file = write_kubectl_list(tmp_path)

    assert run(["plan", "--snapshot", file, *CONSOLIDATE]) == 0
    shown = capsys.readouterr().out

    assert "The snapshot lacks poddisruptionbudgets.policy; assumed: that no budget forbids an eviction." in shown
    (command,) = [line for line in shown.splitlines() if line.startswith("To get all: ")]
    assert command.startswith(
        "To get all: kubectl get nodes,pods,namespaces,poddisruptionbudgets.policy,deployments.apps,replicasets.apps,"
    )
    assert command.endswith(" -A -o json | berth plan --snapshot - --snapshot-kinds all")
    assert "reservations" not in command, "kubectl refuses all if it is asked for a kind that the cluster lacks"
    assert "Proven" not in shown
    assert "is not known" in shown


@pytest.mark.parametrize("kinds", ["all", "poddisruptionbudgets.policy,replicasets.apps"])
def test_kinds_that_were_asked_for_and_have_no_objects_are_not_missing(
    capsys: Captured, tmp_path: Path, kinds: str
) -> None:
    file = write_kubectl_list(tmp_path)

    found = plan_json(capsys, "--snapshot", file, "--snapshot-kinds", kinds, *CONSOLIDATE)

    assert found["missingKinds"] == []
    assert (found["upperBound"], found["provenOptimal"]) == (1, True)


def test_kinds_of_which_there_are_objects_are_not_missing(capsys: Captured, tmp_path: Path) -> None:
    budget = as_api(disruption_budget(), api_version="policy/v1", kind="PodDisruptionBudget")
    makers = [
        as_api(one, api_version="apps/v1", kind="ReplicaSet") for one in (workload(replicas=2), workload(name="big"))
    ]
    file = write_kubectl_list(tmp_path, budget, *makers)

    assert plan_json(capsys, "--snapshot", file)["missingKinds"] == []


def test_a_page_says_what_its_snapshot_lacks_and_draws_no_bound(tmp_path: Path) -> None:
    page = tmp_path / "plan.html"

    assert run(["plan", "--snapshot", write_kubectl_list(tmp_path), *CONSOLIDATE, "--report", str(page)]) == 0

    text = page.read_text(encoding="utf-8")
    assert "The snapshot lacks poddisruptionbudgets.policy" in text
    assert "upper bound" not in text


def test_pods_are_chosen_by_label_within_a_node_and_the_json_says_by_which(capsys: Captured, tmp_path: Path) -> None:
    chosen = pod("chosen", node="low", cpu="1", memory="1Gi", labels={"app": "web"}, controller=owner(name="one"))
    kept = pod("kept", node="low", cpu="1", memory="1Gi", labels={"app": "db"}, controller=owner(name="other"))
    path = tmp_path / "snapshot.json"
    path.write_bytes(Snapshot(nodes=NODES, pods=(PODS[0], chosen, kept)).to_json())

    found = plan_json(capsys, "--snapshot", str(path), "--label-selector", "app=web")

    assert [move["pod"] for move in found["moves"]] == ["chosen"]
    assert found["predicted"]["freedNodes"] == []
    assert (found["settings"]["labelSelector"], found["settings"]["wholeNodes"]) == ("app in (web)", False)
    assert {one["pod"]: one["reason"] for one in found["refused"] if one["kind"] == "Pod"} == {
        "kept": "LabelsNotSelected"
    }


SHAPE_EXPECTED = "expected amounts such as cpu=16 or cpu=12,memory=48Gi,count=3"
BAD_OPTIONS = {
    "an unknown namespace": (
        ["--include-namespace", "shop"],
        "--include-namespace is 'shop'; expected a namespace of the cluster, such as default",
    ),
    "an unknown namespace that is left out": (
        ["--exclude-namespace", "default", "--exclude-namespace", "shop"],
        "--exclude-namespace is 'shop'; expected a namespace of the cluster, such as default",
    ),
    "namespaces in and out": (
        ["--include-namespace", "default", "--exclude-namespace", "shop"],
        "--exclude-namespace is 'shop'; expected to be left out where --include-namespace is given",
    ),
    "a selector that is none": (
        ["--label-selector", "app in"],
        "--label-selector is 'app in'; expected a label selector such as pool=batch or zone in (a,b),!spot",
    ),
    "single pods with another strategy": (
        ["--strategy", "consolidate", "--single-pods"],
        "--single-pods is given; expected --strategy threshold beside it, not consolidate",
    ),
    "whole nodes with minimize-fragmentation": (
        ["--strategy", "minimize-fragmentation", "--whole-nodes"],
        "--whole-nodes is given; expected --strategy threshold beside it, not minimize-fragmentation",
    ),
    "kinds that do not exist": (
        ["--snapshot-kinds", "nodes,pdb"],
        "--snapshot-kinds is 'pdb'; expected all, or some of nodes, pods, namespaces, poddisruptionbudgets.policy,",
    ),
    "a strategy that does not exist": (
        ["--strategy", "luck"],
        "--strategy is 'luck'; expected one of threshold, consolidate, make-room, minimize-fragmentation",
    ),
    "a threshold that is no number": (
        ["--low-threshold", "cpu=few"],
        "--low-threshold is 'cpu=few'; expected a percentage from 0 to 100",
    ),
    "a threshold above 100": (
        ["--protection-threshold", "101"],
        "--protection-threshold is '101'; expected a percentage from 0 to 100",
    ),
    "a threshold above the next one": (
        ["--low-threshold", "80"],
        "--low-threshold is '80'; expected at most --defragment-threshold of cpu, which is 70",
    ),
    "a threshold below a default": (
        ["--defragment-threshold", "cpu=30"],
        "--low-threshold is 40; expected at most --defragment-threshold of cpu, which is 30",
    ),
    "a threshold of a resource that no node has": (
        ["--low-threshold", "memroy=40"],
        "--low-threshold is 'memroy=40'; expected a resource that a node has: cpu, memory, pods",
    ),
    "a resource that no node has": (
        ["--resource-type", "nvidia.com/gpu"],
        "--resource-type is 'nvidia.com/gpu'; expected a resource that a node has: cpu, memory, pods",
    ),
    "no resource": (["--resource-type", ""], "--resource-type is ''; expected a resource such as cpu, memory or"),
    "a time that is none": (["--at", "noon"], "--at is 'noon'; expected an RFC 3339 time such as 2026-11-21T07:15:00Z"),
    "a length of time that is none": (
        ["--cool-down", "soon"],
        "--cool-down is 'soon'; expected seconds, or a duration such as 30m",
    ),
    "no moves at all at once": (["--per-wave", "0"], "--per-wave is 0; expected a whole number from 1 on"),
    "no pod of a controller at once": (
        ["--per-controller", "0"],
        "--per-controller is 0; expected a whole number from 1 on",
    ),
    "fewer moves than none": (["--max-moves", "-1"], "--max-moves is -1; expected a whole number from 0 on"),
    "fewer nodes than none": (
        ["--number-of-nodes", "-1"],
        "--number-of-nodes is -1; expected a whole number from 0 on",
    ),
    "no time": (["--time-limit", "0"], "--time-limit is '0'; expected seconds above 0, such as 30, or none"),
    "less time than none": (["--time-limit", "-3"], "--time-limit is '-3'; expected seconds above 0"),
    "a time limit that is no number": (["--time-limit", "nan"], "--time-limit is 'nan'; expected seconds above 0"),
    "a shape with another strategy": (
        [*THRESHOLD, "--shape", "cpu=2"],
        "--shape is 'cpu=2'; expected --strategy make-room beside it, not threshold",
    ),
    "a pod with another strategy": (
        ["--strategy", "consolidate", "--pod", "shop/web"],
        "--pod is 'shop/web'; expected --strategy make-room beside it, not consolidate",
    ),
    "a threshold with another strategy": (
        ["--strategy", "consolidate", "--low-threshold", "30"],
        "--low-threshold is '30'; expected --strategy threshold beside it, not consolidate",
    ),
    "a price with another strategy": (
        [*THRESHOLD, "--node-price", "default=1"],
        "--node-price is 'default=1'; expected --strategy consolidate beside it, not threshold",
    ),
    "a price without an amount": (
        ["--node-price", "m5.large"],
        (
            "--node-price is 'm5.large'; expected annotation=KEY, label=KEY, configMap=true, default=AMOUNT or as "
            "m5.xlarge=0.192"
        ),
    ),
    "a price that is no amount": (
        ["--node-price", "m5.large=cheap"],
        "--node-price is 'cheap'; expected an amount from 0 to a million with at most six decimals, such as 0.192",
    ),
    "savings below none": (
        ["--node-price", "default=1", "--min-savings-per-move", "-1"],
        "--min-savings-per-move is '-1'; expected an amount from 0 to a million",
    ),
    "savings without a price": (
        ["--min-savings-per-move", "0.1"],
        "--min-savings-per-move is '0.1'; expected nothing without nodePrice",
    ),
    "two answers to what a node costs": (
        ["--node-price", "default=1", "--price", "node=0.4"],
        "--price is 'node=0.4'; expected nothing with a plan by nodePrice, which says itself what it is worth",
    ),
    "an owner with another strategy": (
        [*THRESHOLD, "--shape-owner", "ml/app=train"],
        "--shape-owner is 'ml/app=train'; expected --strategy make-room beside it, not threshold",
    ),
    "an owner without a shape": (
        ["--strategy", "make-room", "--shape-owner", "ml/app=train"],
        "--shape-owner is 'ml/app=train'; expected shapes beside it: a pod is its own owner",
    ),
    "a queue with another strategy": (
        [*THRESHOLD, "--queue", "ml"],
        "--queue is 'ml'; expected --strategy make-room beside it, not threshold",
    ),
    "a queue beside a shape": (
        ["--strategy", "make-room", "--queue", "ml", "--shape", "cpu=1,count=1"],
        "--queue is 'ml'; expected neither shapes nor pods beside it: the queue's own are meant",
    ),
    "an owner without a namespace": (
        ["--strategy", "make-room", "--shape", "cpu=1,count=1", "--shape-owner", "app=train"],
        "--shape-owner is 'app=train'; expected a namespace and a selector, as ml/app=train",
    ),
    "an owner that is everybody": (
        ["--strategy", "make-room", "--shape", "cpu=1,count=1", "--shape-owner", "ml/"],
        "--shape-owner is 'ml/'; expected a label selector such as app=train",
    ),
    "a shape without an amount": (
        ["--strategy", "make-room", "--shape", "cpu"],
        f"--shape is 'cpu'; {SHAPE_EXPECTED}",
    ),
    "a shape of nothing": (["--strategy", "make-room", "--shape", "cpu=0"], f"--shape is 'cpu=0'; {SHAPE_EXPECTED}"),
    "a shape below nothing": (
        ["--strategy", "make-room", "--shape", "cpu=-1"],
        f"--shape is 'cpu=-1'; {SHAPE_EXPECTED}",
    ),
    "a shape that is a count alone": (
        ["--strategy", "make-room", "--shape", "count=2"],
        f"--shape is 'count=2'; {SHAPE_EXPECTED}",
    ),
    "a shape that names a resource twice": (
        ["--strategy", "make-room", "--shape", "cpu=1,cpu=2"],
        f"--shape is 'cpu=1,cpu=2'; {SHAPE_EXPECTED}",
    ),
    "a shape with a comma too many": (
        ["--strategy", "make-room", "--shape", "cpu=1,"],
        f"--shape is 'cpu=1,'; {SHAPE_EXPECTED}",
    ),
    "a count of none": (
        ["--strategy", "make-room", "--shape", "cpu=1,count=0"],
        "--shape is 'cpu=1,count=0'; expected a count from 1 to 1000000",
    ),
    "a pod without a namespace": (
        ["--strategy", "make-room", "--pod", "web"],
        "--pod is 'web'; expected the namespace and the name of a pod, such as shop/web-0",
    ),
    "a pod that does not exist": (
        ["--strategy", "make-room", "--pod", "default/nobody"],
        "--pod is default/nobody, which does not exist; expected a pending pod that no gate holds back",
    ),
    "a pod that runs": (
        ["--strategy", "make-room", "--pod", "default/web-0"],
        "--pod is default/web-0, which is on low; expected a pending pod that no gate holds back",
    ),
    "a pod that is gated": (
        ["--strategy", "make-room", "--pod", "default/gated"],
        "--pod is default/gated, which its scheduling gates hold back (quota); expected a pending pod",
    ),
    "a pod that has ended": (
        ["--strategy", "make-room", "--pod", "default/over"],
        "--pod is default/over, which has ended or is about to; expected a pending pod",
    ),
}


@pytest.mark.parametrize(("arguments", "want"), BAD_OPTIONS.values(), ids=BAD_OPTIONS.keys())
def test_bad_options_are_named(capsys: Captured, file: str, arguments: list[str], want: str) -> None:
    assert refused(capsys, "--snapshot", file, *arguments).startswith(want)


def lone(one: object, kind: str) -> bytes:
    return list_file(one, {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}})


BAD_FILES = {
    "an empty file": (b"", "the snapshot is empty;"),
    "no JSON": (b"nodes: []", "the snapshot is no JSON"),
    "half a file": (SNAPSHOT.to_json()[:500], "the snapshot is cut off after 500 bytes;"),
    "half a compressed file": (gzip.compress(SNAPSHOT.to_json())[:200], "expected a whole gzip file"),
    "another kind": (json.dumps(as_api(PODS[0])).encode(), "the snapshot is a Pod of apiVersion v1;"),
}


@pytest.mark.parametrize(("raw", "want"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_bad_files_get_one_sentence(capsys: Captured, tmp_path: Path, raw: bytes, want: str) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(raw)

    assert want in refused(capsys, "--snapshot", str(path))


ODD_OBJECTS = {
    "a quantity that is none": (
        list_file(as_api(NODES[0], kind="Node"), as_api(pod("odd", node="high", cpu="one"))),
        "spec.containers[app].resources.requests.cpu is 'one'",
    ),
    "a quantity below zero": (
        list_file(as_api(NODES[0], kind="Node"), as_api(pod("odd", node="high", cpu="-1"))),
        "spec.containers[app].resources.requests.cpu is '-1'",
    ),
    "a node with a quantity below zero": (
        list_file(as_api(node("odd", cpu="-4"), kind="Node"), as_api(pod("on", node="odd"))),
        "status.allocatable.cpu is '-4'",
    ),
    "a field of the wrong type": (
        list_file(
            as_api(NODES[0], kind="Node"),
            as_api(pod("odd", node="high")) | {"spec": {"nodeName": "high", "tolerations": 7}},
        ),
        "Expected `array`, got `int` - at `$.spec.tolerations`",
    ),
}


@pytest.mark.parametrize(("raw", "want"), ODD_OBJECTS.values(), ids=ODD_OBJECTS.keys())
def test_an_odd_object_in_a_file_is_named_and_no_end_of_the_plan(
    capsys: Captured, tmp_path: Path, raw: bytes, want: str
) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(raw)
    found = plan_json(capsys, "--snapshot", str(path), "--snapshot-kinds", "all", "--every-pod")
    assert want in json.dumps(found["refused"])


def test_a_file_that_is_not_there_is_named(capsys: Captured) -> None:
    message = refused(capsys, "--snapshot", "/nowhere/snapshot.json")

    assert message == (
        "--snapshot is '/nowhere/snapshot.json'; expected a file that can be read (No such file or directory)"
    )


def test_a_server_that_cannot_be_reached_is_named(capsys: Captured, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1")

    assert "cannot reach the API server at http://127.0.0.1:1" in refused(capsys, "--kubeconfig", kubeconfig)


def test_a_server_that_forbids_is_quoted(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        forbidden = refusal(403, "Forbidden", 'User "eve" cannot list resource "pods"')
        kubeconfig = serve(server, SNAPSHOT, Pod=forbidden).kubeconfig(tmp_path)

        message = refused(capsys, "--kubeconfig", kubeconfig)

    assert message == 'cannot list pods: the API server answered 403 Forbidden: User "eve" cannot list resource "pods"'


def test_a_server_that_is_none_of_kubernetes_has_not_failed_to_have_nodes(capsys: Captured, tmp_path: Path) -> None:
    with ScriptedServer() as server:
        kubeconfig = server.kubeconfig(tmp_path)

        assert run(["plan", "--kubeconfig", kubeconfig]) == 1

    assert "cannot list nodes: the API server answered 404" in capsys.readouterr().err


def test_kinds_of_a_live_cluster_are_nothing_to_state(capsys: Captured) -> None:
    message = refused(capsys, "--snapshot-kinds", "all")

    assert message == ("--snapshot-kinds is 'all'; expected --snapshot beside it: of a live cluster all kinds are read")


def test_a_context_that_does_not_exist_is_named(capsys: Captured, tmp_path: Path) -> None:
    kubeconfig = write_kubeconfig(tmp_path, "http://127.0.0.1:1")

    message = refused(capsys, "--kubeconfig", kubeconfig, "--context", "prod")

    assert message.startswith("context is 'prod'; expected a context of")
