"""The page that adds a rule, followed step by step: its files are built, installed and used by its commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from berth_core.snapshot import Snapshot
from builders import namespace, node, owner, pod
from conventions.pages import blocks_of, console_lines
from conventions.tracked import ROOT
from third_party import install_plugins

PAGE = ROOT / "descheduler" / "docs" / "plugins.md"
PROGRAM = (sys.executable, "-c", "from berth_descheduler.cli.main import main; main()")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, and the cluster of which it speaks."""
    folder = tmp_path_factory.mktemp("tutorial")
    (project,) = blocks_of(PAGE, "toml")
    (policy,) = (text for text in blocks_of(PAGE, "yaml") if "kind: DeschedulerPolicy" in text)
    (folder / "new_nodes.py").write_text("\n\n".join(blocks_of(PAGE, "python")), encoding="utf-8")
    (folder / "pyproject.toml").write_text(project, encoding="utf-8")
    (folder / "policy.yaml").write_text(policy, encoding="utf-8")
    names = ("node-1", "node-2", "node-3")
    nodes = tuple(node(name, cpu="8", labels={"example.com/new": ""} if name == "node-3" else {}) for name in names)
    places = (("web", "node-1", "shop"), ("ledger", "node-2", "bank"), ("mail", "node-3", "shop"))
    pods = tuple(
        pod(name, node=where, cpu="1", memory=None, namespace=space, controller=owner(name=name))
        for name, where, space in places
    )
    namespaces = (namespace("shop"), namespace("bank", labels={"example.com/release": "7"}))
    (folder / "cluster.json").write_bytes(Snapshot(nodes=nodes, pods=pods, namespaces=namespaces).to_json())
    return folder


def test_the_commands_of_the_page_print_what_it_shows(source: Path, tmp_path: Path) -> None:
    environment = {**install_plugins(tmp_path, source), "COLUMNS": "200"}
    shown = console_lines(PAGE)
    assert len(shown) > 1
    for command, lines in shown.items():
        arguments = [*PROGRAM, *command.split()[1:]]
        done = subprocess.run(
            arguments, cwd=source, env=environment, capture_output=True, text=True, timeout=180, check=False
        )
        assert done.returncode == 0, done.stderr
        printed = " ".join(done.stdout.split())
        assert lines
        assert not [line for line in lines if " ".join(line.split()) not in printed], printed
