"""Environments of their own in which the wheel is installed, made without a package index.

They have the packages of the tests' environment that an installation asks for, and no others.
"""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class Installation:
    """A virtual environment."""

    folder: Path

    def program(self, name: str) -> Path:
        return self.folder / "bin" / name

    @property
    def site(self) -> Path:
        (found,) = (self.folder / "lib").glob("python*/site-packages")
        return found

    def run(self, *command: str, given: str = "", **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a program of the environment outside of the repository, with warnings as errors."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "BERTH_"))}
        environment |= {"PYTHONWARNINGS": "error", "HOME": str(self.folder), "COLUMNS": "120", **variables}
        return subprocess.run(
            [self.program(command[0]), *command[1:]],
            cwd=self.folder,
            env=environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )


def make_environment(folder: Path) -> Installation:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, timeout=300)
    return Installation(folder)


def install_wheel(folder: Path, wheel: Path, requirements: Iterable[str]) -> Installation:
    """Install a wheel beside what it requires and what that needs in turn."""
    made = make_environment(folder)
    for name in required_distributions(requirements):
        _link(metadata.distribution(name), made.site)
    install = [made.program("python"), "-m", "pip", "install", "--no-index", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return made


def required_distributions(requirements: Iterable[str]) -> set[str]:
    """Return the packages that are needed on this machine, and what these need in turn."""
    needed: set[tuple[str, str]] = set()
    coming = [(Requirement(text), "") for text in requirements]
    while coming:
        requirement, extra = coming.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        for wanted in ("", *requirement.extras):
            key = (canonicalize_name(requirement.name), wanted)
            if key not in needed:
                needed.add(key)
                coming += [(Requirement(text), wanted) for text in metadata.requires(key[0]) or ()]
    return {name for name, _ in needed}


def _link(distribution: metadata.Distribution, site: Path) -> None:
    files: Sequence[metadata.PackagePath] = distribution.files or ()
    for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
        link = site / top
        if not link.exists():
            link.symlink_to(Path(str(distribution.locate_file(top))))
