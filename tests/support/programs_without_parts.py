"""Copies of a program without one of its capabilities: its folder, its lines of the registry and its tests."""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from conventions.tracked import ROOT

_LINKED: Final = ("crds", "descheduler", "helm", "operator", "shared", ".ci", "pyproject.toml")
_IMPORTED: Final = """
import importlib, pkgutil, {package}
for module in pkgutil.walk_packages({package}.__path__, "{package}."):
    if not module.name.endswith(".__main__"):
        importlib.import_module(module.name)
from {registry} import CAPABILITIES
print({package}.__path__[0], *(capability.__module__.split(".")[2] for capability in CAPABILITIES))
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A program with capabilities; paths are relative to the project's root."""

    package: Path
    registry: Path
    tests: Path

    @property
    def capabilities(self) -> list[str]:
        """Return the names of the folders of its capabilities, sorted."""
        return sorted(folder.parent.name for folder in (ROOT / self.package / "capabilities").glob("*/__init__.py"))

    def copy_without(self, name: str, to: Path) -> Path:
        """Copy the tree, delete a capability and its tests, and take its lines out of the registry."""
        own = self.package.parts[0]
        for folder in (Path(own), self.tests):
            shutil.copytree(ROOT / folder, to / folder)  # with what is compiled, which is as old as its source
        for entry in (ROOT / "tests").iterdir():
            if entry.name not in {self.tests.name, "__pycache__"}:
                (to / "tests" / entry.name).symlink_to(entry)
        for link in _LINKED:
            if link != own:
                (to / link).symlink_to(ROOT / link)
        shutil.rmtree(to / self.package / "capabilities" / name)
        shutil.rmtree(to / self.tests / "capabilities" / name)
        registry = to / self.registry
        lines = registry.read_text(encoding="utf-8").splitlines(keepends=True)
        (imported,) = (line for line in lines if f".capabilities.{name}." in line)
        (listed,) = re.findall(r"import (\w+)$", imported)
        kept = (line for line in lines if line not in {imported, f"    {listed},\n"})
        registry.write_text("".join(kept), encoding="utf-8")
        return to

    def import_whole(self, copy: Path) -> tuple[Path, list[str]]:
        """Import all of a copy and return where it is, and which capabilities it has, sorted."""
        registry = ".".join(self.registry.with_suffix("").parts[1:])
        where, *left = self.run(copy, "-c", _IMPORTED.format(package=self.package.name, registry=registry)).split()
        return Path(where), sorted(left)

    def run(self, copy: Path, *arguments: str) -> str:
        """Run Python in a copy, with the program of the copy; fail with its output if it fails."""
        environment = {**os.environ, "PYTHONPATH": str(copy / self.package.parts[0]), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
