"""Packages that only an extra of the installation brings, and the error that asks for it."""

import sys
from collections.abc import Mapping
from enum import StrEnum
from importlib.util import find_spec
from types import MappingProxyType
from typing import ClassVar, Final

from berth_core import BerthError


class Extra(StrEnum):
    """The extras that a program may ask for."""

    DEMO = "demo"
    DESCHEDULER = "descheduler"
    OPERATOR = "operator"
    SANDBOX = "sandbox"
    TRACES = "traces"


_OF_DESCHEDULER: Final = ("fastapi", "h11", "prometheus_client", "pydantic", "starlette", "uvicorn")
_OF_OPERATOR: Final = ("aiohttp", "cryptography", "kopf", "prometheus_client")
_OF_SANDBOX: Final = ("cryptography",)
MODULES: Final[Mapping[Extra, tuple[str, ...]]] = MappingProxyType(
    {
        Extra.DEMO: tuple(sorted({*_OF_DESCHEDULER, *_OF_OPERATOR, *_OF_SANDBOX})),
        Extra.DESCHEDULER: _OF_DESCHEDULER,
        Extra.OPERATOR: _OF_OPERATOR,
        Extra.SANDBOX: _OF_SANDBOX,
        # The package above them comes with others, too.
        Extra.TRACES: ("opentelemetry.exporter.otlp.proto.http", "opentelemetry.sdk"),
    }
)
"""Imported modules of each extra; the sandbox's Go is left out, because the machine may have it without its wheel."""


class MissingPackagesError(BerthError):
    """Packages are not installed."""

    exit_code: ClassVar[int] = 2

    def __init__(self, purpose: str, missing: tuple[str, ...], requirement: str) -> None:
        packages_text = "packages that are" if len(missing) > 1 else "a package that is"
        super().__init__(
            f"{purpose} needs {packages_text} not installed ({', '.join(missing)}): pip install '{requirement}'"
        )

    @classmethod
    def of_import(cls, program: str, error: ModuleNotFoundError) -> "MissingPackagesError":
        """Return the error for a module that every installation should have, but this one lacks."""
        return cls(program, ((error.name or str(error)).partition(".")[0],), "berth")


def require(extra: Extra, purpose: str) -> None:
    """Raise `MissingPackagesError` unless all packages of an extra are installed."""
    missing = tuple(name for name in MODULES[extra] if not _is_installed(name))
    if missing:
        raise MissingPackagesError(purpose, missing, f"berth[{extra}]")


def _is_installed(name: str) -> bool:
    try:
        # Looked for and not imported, which takes long and may print.
        return find_spec(name) is not None
    except ModuleNotFoundError:  # a package above it
        return False


def require_or_end(extra: Extra, program: str) -> None:
    """End the process with the sentence that asks for an extra unless all its packages are installed."""
    try:
        require(extra, "this service")
    except MissingPackagesError as error:
        sys.stderr.write(f"{program}: {error}\n")
        sys.exit(error.exit_code)
