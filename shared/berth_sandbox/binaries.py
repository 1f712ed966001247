"""Owns where the control plane's programs come from: KUBEBUILDER_ASSETS, else our own cached build.

It does not own how they are built: that is `builds`.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

PROGRAMS: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok")


def find_binaries(progress: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> dict[str, Path]:
    """Return the path of every program."""
    progress("looking for binaries")
    return {name: Path(environ["KUBEBUILDER_ASSETS"]) / name for name in PROGRAMS}
