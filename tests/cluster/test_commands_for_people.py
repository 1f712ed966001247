"""The commands for people as processes against a real control plane, with the service that does what they ask for."""

import json
import os
import pty
import select
import shutil
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import html5lib
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from berth_core.migration_plans import PlanPhase
from berth_kube.resources import DESCHEDULER_POLICIES
from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from descheduling_stage import LEASE_SECONDS, Scene
from monitoring_expressions import asked_series
from service_processes import OperatorProcess, script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

POLICY = "people"
OVER_HTTP = "berth_rest_"
"""How series of the HTTP interface begin, which is not served here."""

ARGS = {
    "wholeNodes": True,
    "lowThresholds": {"cpu": 40},
    "defragmentThresholds": {"cpu": 45},
    "protectionThresholds": {"cpu": 100},
}


def policy(name: str = POLICY, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a policy
    config = [{"name": "Defragmentation", "args": ARGS}]
    profile = {
        "name": "default",
        "pluginConfig": config,
        "plugins": {"balance": {"enabled": ["Defragmentation"]}},
    }
    return {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": name},
        "spec": {"mode": "Approve", "profiles": [profile], "limits": {"podCoolDown": "0s"}, **spec},
    }


@contextmanager
def service(sandbox: Sandbox, folder: Path) -> Iterator[str]:
    """Serve the cluster's policies, and yield the address of its metrics."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    command = [
        script("berth-descheduler"),
        f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
        f"--health-address={address}",
        f"--lease-seconds={LEASE_SECONDS}",
        "--fragmentation-interval=1s",
    ]
    with ServiceProcess(command, folder / "descheduler.log") as process:
        try:
            process.wait_until_leading(port)  # commands do not wait for a service that is not there
            yield address
        except BaseException:
            print(process.tail(100))  # noqa: T201 - pytest shows it with the failure
            raise


class Terminal:
    """Calls commands as a person does who has a kubeconfig; `kubectl berth` where kubectl is there."""

    def __init__(self, kubeconfig: Path) -> None:
        beside = str(Path(script("kubectl-berth")).parent)
        path = f"{beside}:{os.environ['PATH']}"
        self.environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path, "COLUMNS": "200"}
        self.kubectl_berth = ["kubectl", "berth"] if shutil.which("kubectl") else [script("kubectl-berth")]

    def call(self, *arguments: str, want: int = 0, program: list[str] | None = None) -> str:
        command = [*(program or [script("berth")]), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=self.environment)
        assert done.returncode == want, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout if want == 0 else done.stdout + done.stderr

    def read(self, *arguments: str) -> Any:  # noqa: ANN401 - whatever it is
        return json.loads(self.call(*arguments, "--output=json"))


@pytest.fixture
def terminal(cluster: Sandbox) -> Terminal:
    return Terminal(cluster.kubeconfig)


def test_a_cluster_is_looked_at_before_anything_runs(scene: Scene, terminal: Terminal) -> None:
    text = terminal.call("fragmentation", "--shape=cpu=6,memory=8Gi")
    assert "cpu=6,memory=8Gi: 2 more fit, on 2 nodes." in text
    assert "too little cpu left" in text
    assert yaml.safe_load(terminal.call("fragmentation", "--output=yaml"))["nodes"] == 4

    frame = terminal.read("top")
    assert {line["name"] for line in frame["nodeList"]} == {*scene.high, *scene.low}
    assert (frame["emptyNodes"], frame["pods"], frame["plan"]) == (0, 6, None)
    assert "4 nodes, 0 empty; 6 pods, 0 waiting; 0 places held" in terminal.call("top", "--once")

    assert "There are no plans" in terminal.call("plans", program=terminal.kubectl_berth)
    assert "There are no policies" in terminal.call("policies")
    assert "berth: PLAN is 'none'" in terminal.call("show", "none", want=2)
    assert "POLICY is 'none'" in terminal.call("policies", "run", "none", want=2)


def test_people_run_a_policy_look_at_its_plan_approve_it_and_see_what_came_of_it(
    scene: Scene, serving_operator: OperatorProcess, terminal: Terminal, tmp_path: Path
) -> None:
    scene.client.create(DESCHEDULER_POLICIES, policy())
    with service(scene.sandbox, tmp_path) as address:
        made = terminal.read("policies", "run", POLICY, "--wait")
        name = made["name"]
        assert (made["phase"], made["mode"], made["plannedMoves"]) == ("Proposed", "Approve", 4)
        assert f"berth approve {name}" in terminal.call("show", name)
        assert terminal.read("plans", "--phase=Proposed")["items"][0]["name"] == name
        offered = [f"plain,{name}"]
        line = f"berth approve {name[:-2]}"
        eventually("the name is completed in time", lambda: completed(terminal, line) == offered, seconds=60)

        done = terminal.read("approve", name, "--wait")

        assert (done["phase"], done["achieved"]["landedOnTarget"]) == ("Succeeded", 4)
        assert {one["state"] for one in done["moves"]} == {"Landed"}
        assert sorted(done["achieved"]["freedNodes"]) == sorted(scene.low)
        assert_the_page_is_whole(terminal, name, tmp_path / "plan.html")
        assert "is over: it is Succeeded" in terminal.call("abort", name, want=1)
        row = next(line for line in terminal.call("policies").splitlines() if line.startswith(POLICY))
        assert name in row
        eventually("the metrics show it", lambda: metrics_show_it(address), seconds=60)
        programs = (address, f"127.0.0.1:{serving_operator.health_port}")
        there = {one for program in programs for one in series_of(program)}
        assert not {one for one in asked_series() - there if not one.startswith(OVER_HTTP)}
    scene.client.delete(DESCHEDULER_POLICIES, POLICY)
    scene.require_peace(pods=6)


def test_a_plan_that_waits_is_aborted_and_nothing_moves(scene: Scene, terminal: Terminal, tmp_path: Path) -> None:
    scene.client.create(DESCHEDULER_POLICIES, policy())
    with service(scene.sandbox, tmp_path):
        name = terminal.read("policies", "run", POLICY, "--wait")["name"]

        assert terminal.call("abort", name, "--wait").startswith("Aborted: ")

    (plan,) = scene.plans()
    assert plan.phase is PlanPhase.ABORTED
    assert all(scene.pods_on(node) for node in scene.low)
    scene.client.delete(DESCHEDULER_POLICIES, POLICY)
    scene.require_peace(pods=6)


def test_a_live_picture_shows_a_run_on_a_terminal(scene: Scene, terminal: Terminal) -> None:
    ours, theirs = pty.openpty()
    command = [script("berth"), "top", "--interval=200ms"]
    environment = {**terminal.environment, "TERM": "xterm", "LINES": "40"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as top:
        os.close(theirs)
        shown = bytearray()
        run = scene.start()
        deadline = time.monotonic() + 240
        while run.exit_code is None or b"4 nodes, 2 empty" not in shown:
            assert time.monotonic() < deadline, shown.decode(errors="replace")
            if select.select([ours], [], [], 0.2)[0]:
                shown += os.read(ours, 65536)
        top.terminate()
        with suppress(OSError):  # it has closed its end
            while part := os.read(ours, 65536):
                shown += part
        os.close(ours)
        assert top.wait(60) == 0
    text = shown.decode(errors="replace")
    assert run.outcome["achieved"]["landedOnTarget"] == 4
    assert "draining" in text
    assert "Running" in text
    assert "of 4 over" in text


def completed(terminal: Terminal, line: str) -> list[str]:
    """Return what bash is offered for the last word of a line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1), "_BERTH_COMPLETE": "bash_complete"}
    command = [script("berth")]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, env={**terminal.environment, **words}
    )
    return done.stdout.split()


def assert_the_page_is_whole(terminal: Terminal, name: str, target: Path) -> None:
    terminal.call("show", name, f"--report={target}")
    page = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(target.read_text(encoding="utf-8"))
    text = " ".join(page.itertext())
    assert f"Plan {name}, Succeeded" in text
    assert "4 of 4 pods landed on their targets" in text
    assert [heading.text for heading in page.iter("h3")] == ["when planned", "now"]
    drawn = Counter(cell.get("class") for cell in page.iter("i") if cell.get("title", "").endswith(", freed"))
    assert drawn == {"empty l0 freed": 2}


def read_metrics(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text: str = answer.read().decode()
    return text


def series_of(address: str) -> set[str]:
    """Return the series that a program really has, those without samples as yet included."""
    found = set()
    for family in text_string_to_metric_families(read_metrics(address)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        found |= {name, f"{name}_bucket"} if family.type == "histogram" else {name}
    return found


def metrics_show_it(address: str) -> bool:
    text = read_metrics(address)
    wanted = (
        'berth_plan_seconds_count{phase="Succeeded"} 1.0',
        "berth_landed_on_target_ratio 1.0",
        "berth_nodes_empty 2.0",
        'berth_shape_room{shape="cpu=4,memory=32Gi"}',
        'berth_stranded_ratio{resource="cpu",shape="cpu=4,memory=32Gi"}',
        "berth_ping_pong_moves_total 0.0",
    )
    return all(line in text for line in wanted)
