"""The images of real nodes: one static program of ours, built here and imported into each node's containerd.

Nodes cannot reach a registry. The program is the pause container of every pod, the placeholder's container, and with
arguments a server or a job for the pods of demos and tests.
"""

import hashlib
import importlib.resources
import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_core import PLACEHOLDER_IMAGE
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.folders import cache_folder
from berth_sandbox.go_modules import KUBERNETES
from berth_sandbox.go_toolchain import find_go, go_environment
from berth_sandbox.locks import exclusive_lock

PAUSE_IMAGE: Final = "berth.invalid/pause:1"
APP_IMAGE: Final = "berth.invalid/app:1"
"""For containers that do something; its arguments say what, and its entrypoint is `/app`."""
IMAGES: Final = (PAUSE_IMAGE, APP_IMAGE, PLACEHOLDER_IMAGE)

_PROGRAM: Final = "app"
_SOURCE: Final = "main.go"
_LINKER_FLAGS: Final = "-s -w"
_HASH_LENGTH: Final = 10
# The user of the pause image of Kubernetes: pods with `runAsNonRoot` are refused an image whose user is root.
_USER: Final = "65535:65535"
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class NodeImages:
    """The built program, and the archive of all images that are it."""

    program: Path
    archive: Path


def build_images(progress: Callable[[str], None], environ: Mapping[str, str] = os.environ) -> NodeImages:
    """Return the images, building the program where it is not cached; raises `SandboxUnavailableError`."""
    source = importlib.resources.files("berth_sandbox").joinpath("real_nodes", "program", _SOURCE).read_bytes()
    machine = os.uname().machine
    key = hashlib.sha256(b"\0".join((source, *(name.encode() for name in IMAGES)))).hexdigest()[:_HASH_LENGTH]
    folder = cache_folder(environ) / f"node-images-{machine}-{key}"
    images = NodeImages(folder / _PROGRAM, folder / "images.tar")
    if images.archive.exists():
        return images
    with exclusive_lock(folder / ".lock", on_wait=lambda: progress("another process builds the nodes' images")):
        if not images.archive.exists():
            _build_program(source, images.program, environ)
            partial = images.archive.with_suffix(".partial")
            architecture = _ARCHITECTURES.get(machine, machine)
            partial.write_bytes(build_archive(images.program.read_bytes(), IMAGES, architecture))
            # Others look for the archive without the lock, so it must never be there half written.
            partial.replace(images.archive)
    return images


def _build_program(source: bytes, program: Path, environ: Mapping[str, str]) -> None:
    file = program.parent / _SOURCE
    file.write_bytes(source)
    go = str(find_go(KUBERNETES.go_version(), environ).command)
    command = (go, "build", "-trimpath", f"-ldflags={_LINKER_FLAGS}", "-o", str(program), str(file))
    built = subprocess.run(  # noqa: S603 - Go of the user
        command,
        cwd=program.parent,
        env={**go_environment(environ), "GO111MODULE": "off", "GOFLAGS": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if built.returncode != 0:
        raise SandboxUnavailableError(f"building the program of the nodes' images failed: {built.stderr.strip()}")


def build_archive(program: bytes, names: Sequence[str], architecture: str) -> bytes:
    """Return a Docker archive of one image with one program under several names."""
    layer = _pack({_PROGRAM: program}, mode=0o755)
    config = {
        "architecture": architecture,
        "os": "linux",
        "config": {"Entrypoint": [f"/{_PROGRAM}"], "User": _USER},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created_by": "berth"}],
    }
    config_text = json.dumps(config).encode()
    config_name = f"{hashlib.sha256(config_text).hexdigest()}.json"
    manifest = json.dumps([{"Config": config_name, "RepoTags": list(names), "Layers": ["layer.tar"]}]).encode()
    return _pack({config_name: config_text, "layer.tar": layer, "manifest.json": manifest}, mode=0o644)


def _pack(files: Mapping[str, bytes], *, mode: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in files.items():
            # Without times and owners, so that the same program always makes the same image.
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
