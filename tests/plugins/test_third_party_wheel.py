"""Third-party plugins: built as a wheel, installed, found by entry points, used by `berth plan`."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth_core.snapshot import Snapshot
from berth_descheduler.plugins.registry import OWN_PLUGINS, installed_plugins
from builders import namespace, node, owner, pod, workload
from third_party import install_plugins, write_policy

PROGRAM = (sys.executable, "-c", "from berth_descheduler.cli.main import main; main()")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of programs that see the plugins."""
    return install_plugins(tmp_path_factory.mktemp("third-party"))


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """A file with a node whose kernel is old, and a namespace in which a release is running."""
    pods = (
        pod("web-0", node="aged", namespace="shop", cpu="1", memory=None),
        pod("bank-0", node="aged", namespace="bank", cpu="1", memory=None, controller=owner(name="bank")),
        pod("base", node="fresh", namespace="shop", cpu="2", memory=None, controller=owner(name="base")),
    )
    cluster = Snapshot(
        nodes=(node("aged", labels={"example.com/kernel": "old"}), node("fresh"), node("idle")),
        pods=pods,
        namespaces=(namespace("shop"), namespace("bank", labels={"example.com/release": "7"})),
        workloads=tuple(
            workload(name=name, namespace=space)
            for name, space in (("web", "shop"), ("base", "shop"), ("bank", "bank"))
        ),
    )
    path = tmp_path / "snapshot.json"
    path.write_bytes(cluster.to_json())
    return path


def berth(environment: Mapping[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], env=dict(environment), capture_output=True, text=True, timeout=180, check=False
    )


def planned(environment: Mapping[str, str], *arguments: str) -> dict[str, Any]:
    done = berth(environment, "plan", *arguments, "--output", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def with_profile(path: Path, kinds: Mapping[str, Sequence[str]], **args: Any) -> Path:  # noqa: ANN401
    """Change which plugins a policy's file enables, and their arguments."""
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    profile = document["spec"]["profiles"][0]
    profile["plugins"] = {kind: {"enabled": list(names)} for kind, names in kinds.items()}
    profile["pluginConfig"] = [{"name": name, "args": given} for name, given in args.items()]
    path.write_text(yaml.safe_dump(document))
    return path


def test_the_pods_that_the_plugin_names_are_moved_but_for_those_that_the_filter_keeps(
    installed: dict[str, str], snapshot: Path, tmp_path: Path
) -> None:
    found = planned(installed, "--snapshot", str(snapshot), "--policy", str(write_policy(tmp_path, "kernels")))

    assert [(move["pod"], move["source"], move["target"]) for move in found["moves"]] == [("web-0", "aged", "fresh")]
    assert found["moves"][0]["why"] == "OutdatedKernel: aged has the kernel old"
    (kept,) = [one for one in found["refused"] if one["pod"] == "bank-0"]
    assert kept["reason"] == "RefusedByPlugin"
    assert kept["message"] == (
        "OutdatedKernel wants it elsewhere (aged has the kernel old); ReleaseFreeze: a release is running in bank"
    )
    assert found["settings"]["plugins"]["filter"] == ["ReleaseFreeze", "DefaultEvictor"]


def test_an_argument_is_read_by_the_plugin_and_named_by_its_path(installed: dict[str, str], tmp_path: Path) -> None:
    path = with_profile(
        write_policy(tmp_path, "p"), {"deschedule": ["OutdatedKernel"]}, OutdatedKernel={"kernels": "old"}
    )
    done = berth(installed, "plan", "--policy", str(path))

    assert done.returncode == 2
    assert done.stderr == (
        "berth: spec.profiles[0].pluginConfig[0].args.kernels is 'old'; expected a list of kernels, such as 5.15\n"
    )


def test_a_broken_plugin_of_the_distribution_breaks_only_the_policies_that_use_it(
    installed: dict[str, str], tmp_path: Path
) -> None:
    path = with_profile(write_policy(tmp_path, "p"), {"deschedule": ["Broken"]})
    done = berth(installed, "plan", "--policy", str(path))

    assert done.returncode == 2
    assert "spec.profiles[0].plugins.deschedule.enabled[0] is 'Broken'" in done.stderr
    assert "AttributeError in example-berth-plugins 1.0" in done.stderr


def test_a_plugin_is_enabled_only_where_it_is_of_use(installed: dict[str, str], tmp_path: Path) -> None:
    path = with_profile(write_policy(tmp_path, "p"), {"balance": ["ReleaseFreeze"]})
    done = berth(installed, "plan", "--policy", str(path))

    assert done.returncode == 2
    assert "a plugin with strategy and objective, which this one of example-berth-plugins 1.0 has not" in done.stderr


def test_the_tests_own_environment_stays_as_it_is(installed: dict[str, str]) -> None:
    assert installed
    assert installed_plugins().names == tuple(sorted(OWN_PLUGINS))
