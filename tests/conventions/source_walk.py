"""The modules of Berth's packages with their syntax trees, and what an expression in them stands for."""

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

PACKAGES: Final = (
    "berth_core",
    "berth_kube",
    "berth_service",
    "berth_sandbox",
    "berth_descheduler",
    "berth_operator",
)


@dataclass(frozen=True)
class Source:
    """One imported module."""

    package: str
    namespace: dict[str, Any]
    tree: ast.Module

    def calls(self) -> Iterator[ast.Call]:
        return (one for one in ast.walk(self.tree) if isinstance(one, ast.Call))

    def value(self, expression: ast.expr | None) -> Any:  # noqa: ANN401 - whatever stands there
        """Return the value of a literal or of a module's name; None where only running the code would tell."""
        match expression:
            case ast.Constant():
                return expression.value
            case ast.Name():
                return self.namespace.get(expression.id)
            case ast.Attribute(value=ast.Name(id=owner)):
                return getattr(self.namespace.get(owner), expression.attr, None)
            case ast.List() | ast.Tuple():
                return tuple(self.value(one) for one in expression.elts)
            case _:
                return None


@cache
def sources() -> tuple[Source, ...]:
    """Return every module of the product but the `__main__` ones, which run a program."""
    return tuple(source for package in PACKAGES for source in _modules(package))


def _modules(package: str) -> Iterator[Source]:
    top = importlib.import_module(package)
    found = (one.name for one in pkgutil.walk_packages(top.__path__, f"{package}."))
    for name in (package, *found):
        if name.endswith(".__main__"):
            continue
        module = importlib.import_module(name)
        text = Path(module.__file__ or "").read_text(encoding="utf-8")
        yield Source(package, vars(module), ast.parse(text))
