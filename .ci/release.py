#!/usr/bin/env python3
"""Make the parts of a release: notes, wheel, chart, plugin of kubectl, images.

Everything but `images` and `push-chart` works without a network; `--dry-run` prints what these two would run. Needs
Python 3.11 and no package but hatchling, for the wheel.
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
SERVICES: Final = ("operator", "descheduler")
PLATFORMS: Final = "linux/amd64,linux/arm64"
PLUGIN: Final = "kubectl-berth"
WRITTEN_AT: Final = 315532800
"""The modification time of files in archives: 1980, the oldest that every format of archives knows."""


class ReleaseError(Exception):
    """What stands against a release, in words for whoever makes it."""


def read_version(root: Path = ROOT) -> str:
    project: Mapping[str, Any] = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def notes_of(changelog: str, version: str) -> str:
    """Return what the changelog says of a version; raises `ReleaseError` if that is not released."""
    found = re.search(
        rf"^## {re.escape(version)} \((?P<date>[^)]*)\)\n(?P<notes>.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise ReleaseError(f"CHANGELOG.md has no heading '## {version} (DATE)'")
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", found["date"]):
        raise ReleaseError(f"CHANGELOG.md gives {version} no date such as 2026-01-31, but '{found['date']}'")
    return found["notes"].strip() + "\n"


def find_obstacles(tag: str, environment: Mapping[str, str], root: Path = ROOT) -> list[str]:
    """Return what keeps the working tree from being released under a tag."""
    version = read_version(root)
    obstacles = [] if tag == f"v{version}" else [f"the tag {tag} is not that of the project's version, v{version}"]
    try:
        notes_of((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    except ReleaseError as error:
        obstacles.append(str(error))
    if not environment.get("REGISTRY"):
        obstacles.append("REGISTRY does not say where images and chart go, such as registry.example/team")
    base = environment.get("PYTHON_BASE", "")
    for service in SERVICES:
        (default,) = re.findall(
            r"^ARG PYTHON=(\S+)$", (root / service / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE
        )
        if not re.fullmatch(rf"(\S+/)?{re.escape(default)}@sha256:[0-9a-f]{{64}}", base):
            obstacles.append(f"PYTHON_BASE must pin what {service}/Dockerfile names, as {default}@sha256:DIGEST")
    return obstacles


def build_wheel(into: Path) -> Path:
    """Build the wheel; the same files give the same bytes."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(into.resolve())]
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = into.glob(f"berth-{read_version()}-*.whl")
    return wheel


def package_chart(into: Path, helm: str) -> Path:
    subprocess.run([helm, "package", ROOT / "helm" / "berth", "--destination", into], check=True)
    return into / f"berth-{read_version()}.tgz"


def package_plugin(wheel: Path, into: Path) -> Path:
    """Pack what krew installs: the launcher, the wheel that it installs, and what this needs, by hash."""
    parts = {
        PLUGIN: (ROOT / ".ci" / PLUGIN).read_bytes().replace(b"@VERSION@", read_version().encode()),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "requirements.lock": (ROOT / "descheduler" / "requirements.lock").read_bytes(),
        wheel.name: wheel.read_bytes(),
    }
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in sorted(parts.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = len(content), WRITTEN_AT, 0o755 if name == PLUGIN else 0o644
            archive.addfile(member, io.BytesIO(content))
    packed = into / f"{PLUGIN}-{read_version()}.tar.gz"
    packed.write_bytes(gzip.compress(plain.getvalue(), mtime=WRITTEN_AT))
    return packed


def krew_manifest(archive: Path, address: str, homepage: str) -> str:
    """Return the manifest for krew, which finds the archive below an address."""
    if not address.startswith("https://"):
        raise ReleaseError(f"krew loads archives from https:// addresses only, not from '{address}'")
    return f"""\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: berth
spec:
  version: v{read_version()}
  homepage: {homepage}
  shortDescription: Frees nodes without losing a pod on the way
  description: |
    Plans which pods move where so that nodes become empty or large pods fit, shows and approves plans that a policy
    has made, and finds what is amiss. Planning needs nothing in the cluster but the right to read it.
  caveats: |
    Needs Python 3.11 or newer. The first call installs the program for you, which takes a minute.
  platforms:
    - selector:
        matchExpressions:
          - {{key: os, operator: In, values: [darwin, linux]}}
      uri: {address}/{archive.name}
      sha256: {hashlib.sha256(archive.read_bytes()).hexdigest()}
      bin: {PLUGIN}
"""


def image_digests(archive: Path) -> dict[str, str]:
    """Return the digest of each platform's image in an archive of the OCI layout."""
    with tarfile.open(archive) as layout:

        def read(name: str) -> dict[str, Any]:
            member = layout.extractfile(name)
            if member is None:
                raise ReleaseError(f"{archive} has a folder where {name} should be")
            found: dict[str, Any] = json.load(member)
            return found

        (index,) = read("index.json")["manifests"]
        images = read("blobs/" + index["digest"].replace(":", "/"))["manifests"]
    return {f"{one['platform']['os']}/{one['platform']['architecture']}": one["digest"] for one in images}


@dataclass(frozen=True)
class Builder:
    """Builds images with Docker's buildx and pushes them; prints its commands instead if it only shows them."""

    registry: str
    base: str
    into: Path
    dry: bool

    def release(self, service: str) -> str:
        """Build an image twice, compare, push it and write its bill of materials; return what names it for good."""
        archives = [self.into / f"{service}-{time}.tar" for time in ("first", "again")]
        for archive in archives:
            layout = f"type=oci,dest={archive},rewrite-timestamp=true"
            self._run([*self._build(service), "--no-cache", "--provenance=false", "--output", layout])
        if not self.dry:
            first, again = map(image_digests, archives)
            if first != again or set(first) != set(PLATFORMS.split(",")):
                raise ReleaseError(f"two builds of {service} differ: {first}, {again}")
        image, about = f"{self.registry}/berth-{service}", self.into / f"{service}.json"
        pushed = [f"--tag={image}:{read_version()}", "--sbom=true", "--provenance=mode=max", f"--metadata-file={about}"]
        self._run([*self._build(service), *pushed, "--output", "type=image,push=true,rewrite-timestamp=true"])
        digest = "sha256:DIGEST" if self.dry else json.loads(about.read_bytes())["containerimage.digest"]
        named = f"{image}@{digest}"
        bill = self._run(["docker", "buildx", "imagetools", "inspect", named, "--format", "{{ json .SBOM }}"])
        if not self.dry:
            (self.into / f"berth-{service}.sbom.json").write_text(bill, encoding="utf-8")
        return str(named)

    def _build(self, service: str) -> list[str]:
        definition, base = f"--file={ROOT / service / 'Dockerfile'}", f"--build-arg=PYTHON={self.base}"
        return ["docker", "buildx", "build", str(ROOT), definition, base, f"--platform={PLATFORMS}"]

    def push_chart(self, chart: Path, helm: str) -> str:
        """Push the chart as an OCI artifact, and return what names it for good."""
        # helm says it among its errors.
        said = self._run([helm, "push", str(chart), f"oci://{self.registry}/charts"], errors=subprocess.STDOUT)
        found = re.search(r"^Digest:\s*(sha256:[0-9a-f]{64})$", said, re.MULTILINE)
        if found is None and not self.dry:
            raise ReleaseError(f"helm does not say under which digest it pushed the chart: {said}")
        return f"{self.registry}/charts/berth@{found[1] if found else 'sha256:DIGEST'}"

    def _run(self, command: Sequence[str], errors: int | None = None) -> str:
        print("+", " ".join(command), file=sys.stderr)
        if self.dry:
            return ""
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=errors, encoding="utf-8").stdout


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("dist"), help="folder for what is made")
    parser.add_argument("--helm", default="helm", help="helm's program")
    parser.add_argument("--dry-run", action="store_true", help="print what would reach a registry")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check", help="say what stands against a release").add_argument("tag")
    commands.add_parser("notes", help="print the notes of the project's version")
    commands.add_parser("wheel", help="build the wheel")
    commands.add_parser("chart", help="package the chart")
    plugin = commands.add_parser("plugin", help="package the plugin of kubectl, and write its manifest for krew")
    plugin.add_argument("--address", required=True, help="where the archive will be found")
    plugin.add_argument("--homepage", required=True)
    commands.add_parser("images", help="build both images twice, compare, push, and print their names with digests")
    commands.add_parser("push-chart", help="push the packaged chart, and print its name with its digest")
    return parser.parse_args(arguments)


def make(options: argparse.Namespace, environment: Mapping[str, str]) -> list[str]:
    """Do what a command line asks for, and return the lines that it prints."""
    registry, base = environment.get("REGISTRY", ""), environment.get("PYTHON_BASE", "")
    builder = Builder(registry, base, options.into, options.dry_run)
    makers: dict[str, Callable[[], list[str]]] = {
        "notes": lambda: notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), read_version()).splitlines(),
        "wheel": lambda: [str(build_wheel(options.into))],
        "chart": lambda: [str(package_chart(options.into, options.helm))],
        "plugin": lambda: _make_plugin(options),
        "images": lambda: [builder.release(service) for service in SERVICES],
        "push-chart": lambda: [builder.push_chart(options.into / f"berth-{read_version()}.tgz", options.helm)],
    }
    if options.command == "check":
        obstacles = find_obstacles(options.tag, environment)
        if obstacles:
            raise ReleaseError("\n".join(obstacles))
        return [f"{options.tag} can be released"]
    options.into.mkdir(parents=True, exist_ok=True)
    return makers[options.command]()


def _make_plugin(options: argparse.Namespace) -> list[str]:
    archive = package_plugin(build_wheel(options.into), options.into)
    manifest = options.into / "berth.yaml"
    manifest.write_text(krew_manifest(archive, options.address, options.homepage), encoding="utf-8")
    return [str(archive), str(manifest)]


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        print(*make(parse(arguments), os.environ), sep="\n")
    except (ReleaseError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
