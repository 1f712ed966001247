"""Where programs are found: in KUBEBUILDER_ASSETS, else among our own cached builds."""

import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from berth_sandbox.builds import build_programs, cached_folder
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.go_modules import DEFAULT_KUBERNETES, HELM, KUBECTL, VOLCANO, GoModule, control_plane, kubelet_module

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"

CONTROL_PLANE_CPU_MINUTES: Final = 25
"""About how much processor time the programs of the control plane take to build."""


def is_control_plane_built(environ: Mapping[str, str] = os.environ, *, kubernetes: str = DEFAULT_KUBERNETES) -> bool:
    """Return whether all programs of the control plane are given or in the cache, so that none has to be built."""
    return all(
        len(_given_programs(module, environ)) == len(module.programs)
        or all((cached_folder(module) / program.name).exists() for program in module.programs)
        for module in control_plane(kubernetes)
    )


def _given_programs(module: GoModule, environ: Mapping[str, str]) -> dict[str, Path]:
    """Return those programs of a module that the user's folder has; none for another Kubernetes than the default."""
    names = () if module.other else (program.name for program in module.programs)
    return {name: path for name in names if (path := _given(name, environ)) is not None}


def find_binaries(
    progress: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    *,
    kubernetes: str = DEFAULT_KUBERNETES,
    volcano: bool = False,
    kubelet: bool = False,
) -> dict[str, Path]:
    """Return the path of each control-plane program, and of the kubelet and Volcano's if asked for.

    Builds the missing ones. Raises `SandboxUnavailableError` when something is missing and cannot be built. Volcano's
    programs are always our own builds, since their CRDs lie beside them; so are those of another Kubernetes than the
    default, since a given program does not say its version.
    """
    binaries: dict[str, Path] = {}
    for module in control_plane(kubernetes):
        given_binaries = _given_programs(module, environ)
        complete = len(given_binaries) == len(module.programs)
        binaries |= given_binaries if complete else build_programs(module, progress) | given_binaries
    if kubelet:
        module = kubelet_module(kubernetes)
        given_kubelet = None if module.other else _given("kubelet", environ)
        binaries |= {"kubelet": given_kubelet} if given_kubelet else build_programs(module, progress)
    if volcano:
        binaries |= build_programs(VOLCANO, progress)
    return binaries


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
    """Return a program in the folder that the user names, None if it is not there."""
    folder = environ.get(ASSETS_VARIABLE, "")
    if not folder:
        return None
    if not Path(folder).is_dir():
        raise SandboxUnavailableError(f"{ASSETS_VARIABLE} is {folder!r}, which is no folder; mend or unset it")
    path = Path(folder, name)
    return path.resolve() if os.access(path, os.X_OK) and path.is_file() else None
