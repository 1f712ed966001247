"""A plan is rehearsed on a sandbox twin: what would go wrong in the cluster goes wrong there, and is reported."""

import io
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from berth_core.migration_plans import MoveMethod
from berth_core.snapshot import Snapshot
from berth_descheduler.capabilities.rehearsal.cli import rehearsal
from berth_descheduler.capabilities.rehearsal.cli.twin import OwnerKey, Twin
from berth_descheduler.capabilities.rehearsal.cli.twin_sandbox import fill_sandbox
from berth_descheduler.planner import Plan, plan
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from berth_kube.resources import PODS
from berth_sandbox.sandbox import Sandbox
from builders import disruption_budget, node, owner, pod, workload
from cluster_objects import pod_template
from planner_settings import planner_settings
from service_processes import script

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

SECONDS = 180
NODES = tuple(node(name, cpu="10") for name in ("full", "low-a", "low-b"))
DEPLOYMENT = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"replicas": 1}}


def small_snapshot(**rest: Any) -> Snapshot:  # noqa: ANN401 - fields of the snapshot
    pods = (
        pod("big", node="full", cpu="5", controller=owner(name="big")),
        pod("web-5f-0", node="low-a", cpu="1", controller=owner(name="web-5f"), labels={"app": "web"}),
        pod("api-0", node="low-b", cpu="2", controller=owner(name="api"), labels={"app": "api"}),
    )
    workloads = (
        workload(name="big"),
        workload(name="web-5f", controller=owner("Deployment", "web")),
        workload(name="api"),
    )
    return Snapshot(nodes=NODES, pods=pods, workloads=workloads, **rest)


def make_plan(snapshot: Snapshot) -> Plan:
    found = plan(snapshot, planner_settings(DefragmentationArgs.parse({"strategy": "Consolidate"})))
    assert {move.pod for move in found.moves} == {"web-5f-0", "api-0"}
    return found


def rehearse(snapshot: Snapshot, found: Plan, deployments: Sequence[Mapping[str, Any]] = ()) -> rehearsal.Rehearsal:
    console = Console(file=io.StringIO())
    return rehearsal.rehearse(found, snapshot, deployments, MoveMethod.SURGE, console)


def test_a_plan_that_holds_goes_as_predicted_in_the_twin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rehearsal, "_PATIENCE_SECONDS", 300.0)  # this machine may be busy with something else
    snapshot = small_snapshot()
    done = rehearse(snapshot, make_plan(snapshot), (DEPLOYMENT,))
    assert done.as_predicted, done.sentence
    methods = {one.move.pod: one.status.method for one in done.moves}
    assert methods == {"web-5f-0": "Surge", "api-0": "Evict"}


def take_the_room(node_name: str, cpu: str, sandbox: Sandbox, twin: Twin, say: Any) -> Any:  # noqa: ANN401 - passed on
    """Fill the sandbox, and have a pod come that the plan knows nothing of."""
    made: tuple[Mapping[OwnerKey, str], Mapping[str, str]] = fill_sandbox(sandbox, twin, say)
    with sandbox.connect() as client:
        body = pod_template({"app": "uninvited"}, cpu=cpu, nodeName=node_name)
        client.create(PODS, {**body, "metadata": {"name": "uninvited"}}, namespace="default")
    return made


def test_a_budget_and_a_pod_that_the_plan_knows_nothing_of_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    budget = disruption_budget("api", match_labels={"app": "api"}, min_available="100%", allowed=1)
    snapshot = small_snapshot(disruption_budgets=(budget,))
    found = make_plan(snapshot)
    (target,) = {move.target for move in found.moves if move.pod == "web-5f-0"}
    taking = {"full": "5", "low-a": "9", "low-b": "8"}[target]
    monkeypatch.setattr(rehearsal, "fill_sandbox", partial(take_the_room, target, taking))

    done = rehearse(snapshot, found)

    assert not done.as_predicted
    assert {one.move.pod: (one.status.state, one.status.reason) for one in done.differences} == {
        "web-5f-0": ("Skipped", "TargetUnfit"),
        "api-0": ("Skipped", "EvictionBlocked"),
    }
    assert done.nodes_not_freed == found.freed_nodes


def test_an_interrupted_rehearsal_leaves_no_sandbox(tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    file.write_bytes(small_snapshot().to_json())
    folder = tmp_path / "sandboxes"
    folder.mkdir()
    command = [script("berth"), "plan", f"--snapshot={file}", "--strategy=consolidate", "--rehearse"]
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stderr is not None
        began = next(line for line in run.stderr if line.startswith("carrying out"))
        assert len(list(folder.iterdir())) == 1, began
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=SECONDS)
    assert (run.returncode, list(folder.iterdir())) == (130, [])
    assert "rehearsed" not in said
