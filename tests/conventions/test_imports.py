"""How the modules hang together: no circle, packages asked through their face."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from conventions.tracked import ROOT, python_files

COMPONENTS: Final = ("descheduler", "operator", "shared")
FACE_FOR_OTHERS: Final = "berth_descheduler.framework"
"""What it lists is promised to authors of plugins; Berth's own modules also need what is not."""


@dataclass(frozen=True)
class Import:
    """One name that a module imports from one of ours."""

    importer: str
    module: str
    name: str


@cache
def module_files() -> dict[str, Path]:
    """Return the file of every module and package of the product by its dotted name."""
    paths = [path for path in python_files() if path.relative_to(ROOT).parts[0] in COMPONENTS]
    return {_dotted(path): path for path in paths if "docs" not in path.parts}


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax tree of every module and package of the product by its dotted name."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in module_files().items()}


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports() -> tuple[Import, ...]:
    return tuple(one for importer, tree in trees().items() for one in _imports_of(importer, tree))


def _imports_of(importer: str, tree: ast.Module) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(importer, alias.name, "") for alias in node.names if alias.name in trees())
        elif isinstance(node, ast.ImportFrom) and node.module in trees():
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(importer, inner, "") if inner in trees() else Import(importer, node.module, alias.name)


@cache
def packages() -> set[str]:
    return {name.rpartition(".")[0] for name in trees() if "." in name}


@cache
def modules() -> set[str]:
    return trees().keys() - packages()


def face(package: str) -> set[str]:
    """Return the names that a package offers."""
    listed = [node.value for node in trees()[package].body if _is_all(node)]
    return {name for value in listed for name in ast.literal_eval(value)}


def _is_all(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def test_no_modules_import_each_other() -> None:
    left = {name: {one.module for one in imports() if one.importer == name} for name in trees()}
    while free := {name for name, needed in left.items() if not needed & left.keys()}:
        left = {name: needed for name, needed in left.items() if name not in free}

    assert not sorted(left)


def test_no_module_asks_the_face_of_a_package_that_it_is_in() -> None:
    assert not [one for one in imports() if one.importer.startswith(f"{one.module}.")]


def test_others_ask_a_package_for_what_its_face_offers() -> None:
    faces = {package: face(package) for package in packages() - {FACE_FOR_OTHERS}}

    assert not [
        one
        for one in imports()
        for package, offered in faces.items()
        if one.module.startswith(f"{package}.") and one.name in offered
        if one.importer in modules() and not one.importer.startswith(f"{package}.")
    ]
