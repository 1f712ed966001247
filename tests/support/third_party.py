"""How the tests install a distribution with plugins beside Berth: as a wheel, in a folder of its own.

It does not touch the environment of the tests: what is installed is seen only by programs that are given the folder.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

SOURCE = Path(__file__).parents[1] / "data" / "third_party_plugins"


def install_plugins(folder: Path, distribution: Path = SOURCE) -> dict[str, str]:
    """Build the wheel, install it into a folder, and return the environment in which programs find it."""
    source, site = folder / "source", folder / "site"
    shutil.copytree(distribution, source)
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder / "dist")]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,) = (folder / "dist").glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--target", str(site), str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=300)
    return {**os.environ, "PYTHONPATH": str(site)}


def write_policy(folder: Path, name: str, **spec: object) -> Path:
    """Write a policy that moves the pods off nodes with the kernel `old`, but for those of frozen namespaces."""
    profile = {
        "name": "kernels",
        "pluginConfig": [{"name": "OutdatedKernel", "args": {"kernels": ["old"]}}],
        "plugins": {
            "deschedule": {"enabled": ["OutdatedKernel"]},
            "filter": {"enabled": ["ReleaseFreeze"]},
            "preEvictionFilter": {"enabled": ["ReleaseFreeze"]},
        },
    }
    path = folder / f"{name}.yaml"
    document = {
        "apiVersion": "berth.volcano.sh/v1alpha1",
        "kind": "DeschedulerPolicy",
        "metadata": {"name": name},
        "spec": {"profiles": [profile], **spec},
    }
    path.write_text(yaml.safe_dump(document))
    return path
