"""Builds both images without a daemon, twice each, and runs them on a sandbox.

    python tests/benchmarks/images.py [--nodes 30] [--moves 40]

The digests of the two builds must be the same; then the operator's image holds and hands over the places of the moves
that the descheduler's image plans and carries out, both as the user of the chart, and every pod must land as planned.
It needs root and Debian's packages buildah and debootstrap. The base is a Debian with Python that debootstrap makes,
with this machine's certificates, because no registry is asked for one; so the digests are not those of a release.
"""

# ruff: noqa: T201 - it prints

import argparse
import base64
import json
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core.migration_plans import MigrationPlan
from berth_kube.resources import MIGRATION_PLANS
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from berth_sandbox.workload import fill_cluster
from control_planes import control_plane
from service_processes import OperatorProcess

ROOT: Final = Path(__file__).resolve().parents[2]
SERVICES: Final = ("berth-operator", "berth-descheduler")
USER: Final = "65532:65532"
SUITE: Final = "bookworm"
MIRROR: Final = "http://deb.debian.org/debian"
CERTIFICATES: Final = "etc/ssl/certs/ca-certificates.crt"
BASE: Final = "localhost/berth-try-base"
CREATED: Final = "1700000000"
"""Unix seconds that both builds give everything as its time."""


def call(*command: str | Path) -> str:
    """Run a program and return what it prints; what it says of errors is shown."""
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()


class Builder:
    """Images and containers in a folder of their own, with which they go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.command = (
            "buildah",
            f"--root={folder / 'storage'}",
            f"--runroot={folder / 'run'}",
            "--storage-driver=vfs",
        )

    def make_base(self) -> None:
        """Make the base image: Debian's Python, found as `python`, which trusts what this machine trusts."""
        folder = self._folder / "base"
        call(
            "debootstrap", "--variant=minbase", "--include=python3,python3-venv,ca-certificates", SUITE, folder, MIRROR
        )
        (folder / "usr/bin/python").symlink_to("python3")
        shutil.copy(Path("/") / CERTIFICATES, folder / CERTIFICATES)
        (folder / "etc/pip.conf").write_text(f"[global]\ncert = /{CERTIFICATES}\n", encoding="utf-8")
        container = call(*self.command, "from", "scratch")
        call(*self.command, "copy", "--quiet", container, folder, "/")
        call(*self.command, "config", "--env", "PATH=/usr/local/bin:/usr/bin:/bin", container)
        call(*self.command, "commit", "--quiet", "--rm", container, BASE)

    def build(self, service: str, tag: str) -> str:
        """Build an image without a cache and return its digest."""
        name = f"localhost/{service}:{tag}"
        options = [f"--build-arg={one}" for one in (f"PYTHON={BASE}", f"SOURCE_DATE_EPOCH={CREATED}")]
        options += ["--isolation=chroot", "--no-cache", f"--timestamp={CREATED}"]
        dockerfile = f"{service.removeprefix('berth-')}/Dockerfile"
        call(*self.command, "build", *options, f"--file={dockerfile}", f"--tag={name}")
        return str(json.loads(call(*self.command, "inspect", "--type=image", name))["FromImageDigest"])

    def write_program(self, service: str, folder: Path) -> Path:
        """Return a program that runs a service's image, on this machine's network, with its arguments."""
        container = call(*self.command, "from", f"localhost/{service}:first")
        options = ("--isolation=chroot", f"--user={USER}", f"--volume={folder}:{folder}:ro")
        program = folder / service
        run = shlex.join((*self.command, "run", *options, container, "--", service))
        program.write_text(f'#!/bin/sh\nexec {run} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
        return program


def readable_kubeconfig(sandbox: Sandbox, service: str, folder: Path) -> Path:
    """Return a copy of an account's kubeconfig that the image's user may read, with the authority's certificate."""
    config = yaml.safe_load(sandbox.service_account_kubeconfig(service).read_text(encoding="utf-8"))
    for one in config["clusters"]:
        authority = Path(one["cluster"].pop("certificate-authority"))
        one["cluster"]["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    copy = folder / f"{service}.kubeconfig"
    copy.write_text(yaml.safe_dump(config), encoding="utf-8")
    copy.chmod(0o644)
    return copy


class OperatorImage(OperatorProcess):
    """An operator that runs in its image."""

    def __init__(self, sandbox: Sandbox, folder: Path, program: Path) -> None:
        super().__init__(sandbox, folder)
        kubeconfig = readable_kubeconfig(sandbox, "berth-operator", folder)
        options = (one for one in self._command[1:] if not one.startswith("--kubeconfig="))
        self._command = (str(program), f"--kubeconfig={kubeconfig}", *options)


def carry_out(builder: Builder, folder: Path, nodes: int, moves: int) -> bool:
    """Run both images on a sandbox; return whether all pods of a plan landed."""
    operator, descheduler = (builder.write_program(service, folder) for service in SERVICES)
    with control_plane(SandboxSettings(nodes=nodes)) as sandbox, sandbox.connect() as client:
        fill_cluster(client, seed=7, progress=print)
        kubeconfig = readable_kubeconfig(sandbox, "berth-descheduler", folder)
        options = ("--once", "--strategy=consolidate", f"--max-moves={moves}", "--health-address=127.0.0.1:0")
        command = [str(descheduler), f"--kubeconfig={kubeconfig}", *options]
        with OperatorImage(sandbox, folder, operator):
            done = subprocess.run(command, timeout=600, check=False)
        plan = next(iter(client.list(MIGRATION_PLANS, type=MigrationPlan).items), None)
        print(plan.status.message if plan else "there was nothing to move")
        achieved = plan.status.achieved if plan else None
        return done.returncode == 0 and achieved is not None and achieved.landed_on_target == achieved.moves > 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Build both images and run them on a sandbox.")
    parser.add_argument("--nodes", type=int, default=30)
    parser.add_argument("--moves", type=int, default=40)
    options = parser.parse_args()
    missing = [one for one in ("buildah", "debootstrap") if shutil.which(one) is None]
    if missing:
        print(f"not run: {', '.join(missing)} is not installed", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory() as kept, tempfile.TemporaryDirectory() as seen:
        builder, folder = Builder(Path(kept)), Path(seen)
        folder.chmod(0o755)
        builder.make_base()
        same = True
        for service in SERVICES:
            first, second = builder.build(service, "first"), builder.build(service, "second")
            same &= first == second
            print(f"{service}: {first}, {'the same twice' if first == second else f'and {second}'}")
        landed = carry_out(builder, folder, options.nodes, options.moves)
    return 0 if same and landed else 1


if __name__ == "__main__":
    raise SystemExit(main())
