"""Results for machines can be read whatever libraries print, on each command; so can the logs of both services.

The programs run as they are installed, beside a library that prints from its import to the end of the process: straight
to the descriptor, by C's buffered output and by Python's.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from berth_core.snapshot import Snapshot
from builders import node, pod
from conventions.tracked import ROOT
from descheduler.cluster_script import serve
from descheduler.stored_bodies import plan as stored_plan
from descheduler.test_command_line import COMMANDS
from scripted_server import ScriptedServer, answer, page
from service_processes import script

NOISE: Final = "noise of a library"
LIBRARY: Final = f"""
import atexit, builtins, ctypes, importlib.abc, os, sys, threading

def print_all():
    os.write(1, b"{NOISE} at its descriptor\\n")
    ctypes.CDLL(None).printf(b"{NOISE} in C, written at the end\\n")
    print("{NOISE} in Python", flush=True)

def print_on():
    while True:
        print_all()
        stopped.wait(0.2)

stopped = threading.Event()

class AtTheFirstLibrary(importlib.abc.MetaPathFinder):
    begun = False

    def find_spec(self, name, path, target=None):
        if name in {{"click", "numpy", "rich", "yaml", "kubernetes", "highspy", "kopf", "fastapi"}}:
            print_all()
            if not self.begun:
                self.begun = True
                threading.Thread(target=print_on, daemon=True).start()
                atexit.register(print_all)

sys.meta_path.insert(0, AtTheFirstLibrary())
"""
SNAPSHOT: Final = Snapshot(
    nodes=(node("a"), node("b"), node("c")), pods=(pod("web-0", node="a", cpu="4"), pod("waits", cpu="14"))
)
POLICY: Final = ROOT / "descheduler" / "docs" / "starving-jobs.yaml"
GROUP: Final = "/apis/berth.volcano.sh/v1alpha1"


@dataclass(frozen=True, slots=True)
class Place:
    """What the calls are made with."""

    environment: dict[str, str]
    kubeconfig: str
    snapshot: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program of this installation."""
        command = [script(program), *arguments]
        return subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
            stdin=subprocess.DEVNULL,
        )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("noisy")
    (folder / "sitecustomize.py").write_text(LIBRARY)
    snapshot = folder / "snapshot.json"
    snapshot.write_bytes(SNAPSHOT.to_json())
    environment = {**os.environ, "PYTHONPATH": str(folder), "HOME": str(folder)}
    with serve(ScriptedServer(), SNAPSHOT) as server:
        over = stored_plan("night-1", "Succeeded")
        server.on("GET", f"{GROUP}/migrationplans", page(over))
        server.on("GET", f"{GROUP}/migrationplans/night-1", answer(over))
        server.on("GET", f"{GROUP}/deschedulerpolicies", page())
        server.on("GET", "/apis/batch.volcano.sh/v1alpha1/reservationwindows", page())
        yield Place(environment, server.kubeconfig(folder), snapshot)


def is_json(text: str) -> bool:
    return isinstance(json.loads(text), dict | list)


def is_yaml(text: str) -> bool:
    return isinstance(yaml.safe_load(text), dict | list)


def is_names(text: str) -> bool:
    return all("/" in line and " " not in line for line in text.splitlines())


READ_BY: Final = {"json": is_json, "yaml": is_yaml, "name": is_names}

RESULTS: Final = {
    "calendar": ("json",),
    "drain b --dry-run": ("json",),
    "fragmentation": ("json",),
    "plan": ("json",),
    "plan --snapshot=SNAPSHOT --strategy=consolidate": ("json", "yaml"),
    "plans": ("json", "name"),
    "policies": ("json",),
    "policy lint POLICY": ("json",),
    "run --dry-run": ("json",),
    "sandbox status": ("json",),
    "show night-1": ("json",),
    "top": ("json",),
}
"""Commands that have a result on the server above, and the forms that are tried of it."""

WITHOUT_RESULT: Final = {
    "abort",
    "approve",
    "demo",
    "doctor",
    "policies run",
    "policy convert",
    "sandbox down",
    "sandbox exec",
    "sandbox kubeconfig",
    "sandbox up",
    "snapshot",
    "ui",
    "uninstall",
}
"""They write by the same functions, but need more of a cluster."""


def test_every_command_is_tried_or_named() -> None:
    tried = {path for path in COMMANDS for command in RESULTS if command.split()[: len(path)] == list(path)}
    assert {" ".join(path) for path in set(COMMANDS) - tried} == WITHOUT_RESULT


@pytest.mark.parametrize(
    "command", [command if command == "plan" else pytest.param(command, marks=pytest.mark.deep) for command in RESULTS]
)
def test_results_can_be_read_beside_a_noisy_library(place: Place, command: str) -> None:
    words = command.replace("SNAPSHOT", str(place.snapshot)).replace("POLICY", str(POLICY)).split()
    reads_cluster = not {"--snapshot", "lint", "sandbox"} & set(command.replace("=", " ").split())
    cluster = [f"--kubeconfig={place.kubeconfig}"] if reads_cluster else []
    for output in RESULTS[command]:
        done = place.run("berth", *words, *cluster, f"--output={output}")
        assert done.returncode in {0, 1}, done.stderr
        assert READ_BY[output](done.stdout), done.stdout
        assert NOISE not in done.stdout
        assert NOISE in done.stderr


@pytest.mark.deep
def test_a_snapshot_a_help_and_a_completion_are_whole_beside_a_noisy_library(place: Place) -> None:
    written = place.run("berth", "snapshot", f"--kubeconfig={place.kubeconfig}")
    assert json.loads(written.stdout)["kind"] == "List"
    shown = place.run("berth", "plan", "--help")
    assert shown.stdout.startswith("Usage: ")
    assert NOISE not in shown.stdout
    assert place.run("berth", "--version").stdout.startswith("berth, version ")
    names = place.run("kubectl_complete-berth", "plan")
    assert [line.partition("\t")[0] for line in names.stdout.splitlines()] == ["plan", "plans", ":4"]
    environment = {"_BERTH_COMPLETE": "bash_complete", "COMP_WORDS": "berth pla", "COMP_CWORD": "1"}
    completed = replace(place, environment=place.environment | environment).run("berth")
    assert completed.stdout == "plain,plan\nplain,plans\n"


SERVICES: Final = {
    "berth-descheduler": ("--once", "--health-address=127.0.0.1:0"),
    "berth-operator": ("--health-address=127.0.0.1:0", "--webhook-port=0"),
}


@pytest.mark.parametrize("program", ["berth-descheduler", pytest.param("berth-operator", marks=pytest.mark.deep)])
def test_the_log_of_a_service_can_be_read_beside_a_noisy_library(place: Place, program: str) -> None:
    """Both end soon, because the server knows no Leases."""
    done = place.run(program, *SERVICES[program], f"--kubeconfig={place.kubeconfig}")
    assert done.stdout == ""
    *entries, last = (line for line in done.stderr.splitlines() if NOISE not in line)
    noise = [line for line in done.stderr.splitlines() if NOISE in line]
    assert {json.loads(line)["event"] for line in noise} == {f"{NOISE} in Python"}
    assert all(json.loads(entry)["event"] for entry in entries)
    assert "404 NotFound" in last
    assert place.run(program, "--help").stdout.startswith(f"Usage: {program} ")
