"""Owns where programs come from: KUBEBUILDER_ASSETS, else our own cached build.

It does not own how they are built: that is `builds`.
"""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from berth_sandbox.builds import build_programs
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.go_modules import CONTROL_PLANE, HELM, KUBECTL, GoModule

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"


def find_binaries(progress: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the path of every program of the control plane, building what is neither given nor cached.

    Raises `SandboxUnavailableError` when something is missing and cannot be built.
    """
    found: dict[str, Path] = {}
    for module in CONTROL_PLANE:
        names = [program.name for program in module.programs]
        given = {name: path for name in names if (path := _given(name, environ)) is not None}
        found |= given if len(given) == len(names) else build_programs(module, progress) | given
    return found


def find_kubectl(progress: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> Path:
    """Return kubectl: the one on the PATH, in KUBEBUILDER_ASSETS, or built."""
    return _find_tool(KUBECTL, "kubectl", progress, environ)


def find_helm(progress: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> Path:
    """Return helm: the one on the PATH, in KUBEBUILDER_ASSETS, or built."""
    return _find_tool(HELM, "helm", progress, environ)


def _find_tool(module: GoModule, name: str, progress: Callable[[str], None], environ: Mapping[str, str]) -> Path:
    on_path = shutil.which(name, path=environ.get("PATH", ""))
    if on_path is not None:
        return Path(on_path)
    return _given(name, environ) or build_programs(module, progress)[name]


def _given(name: str, environ: Mapping[str, str]) -> Path | None:
    """Return a program of the folder that the user names, None when it is not there."""
    folder = environ.get(ASSETS_VARIABLE, "")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise SandboxUnavailableError(f"{ASSETS_VARIABLE} is {folder!r}, which is no folder; mend or unset it")
    path = Path(folder, name)
    return path.resolve() if os.access(path, os.X_OK) and path.is_file() else None
