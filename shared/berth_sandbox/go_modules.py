"""Owns what is built of which Go module: our go.mod files, the programs in them, and the command lines.

It does not own running those commands: that is `builds`.
"""

import hashlib
import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from berth_sandbox.go_toolchain import Version, parse_version

_HASH_LENGTH: Final = 10
_KUBERNETES_VERSION: Final = "k8s.io/component-base/version"
_HELM_VERSION: Final = "helm.sh/helm/v4/internal/version"


@dataclass(frozen=True, slots=True)
class Program:
    """A program and the Go package that it is built from."""

    name: str
    package: str


@dataclass(frozen=True, slots=True)
class GoModule:
    """One go.mod of ours: `requires` is the module in it that holds the programs and gives them their version."""

    name: str
    requires: str
    programs: tuple[Program, ...]

    def read_files(self) -> dict[str, str]:
        """Return our go.mod and go.sum by name."""
        folder = importlib.resources.files("berth_sandbox").joinpath("gomodules", self.name)
        return {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("go.mod", "go.sum")}

    def program_version(self) -> str:
        """Return the version of the programs, as in `v1.36.3`."""
        found = re.search(rf"\s{re.escape(self.requires)} (v\S+)", self.read_files()["go.mod"])
        if found is None:
            raise LookupError(f"go.mod of {self.name} does not require {self.requires}")
        return found[1]

    def go_version(self) -> Version:
        """Return the oldest Go that builds the module."""
        found = re.search(r"^go (\S+)$", self.read_files()["go.mod"], re.MULTILINE)
        version = None if found is None else parse_version(f"go{found[1]}")
        if version is None:
            raise LookupError(f"go.mod of {self.name} has no go line")
        return version

    def cache_key(self, platform: str) -> str:
        """Return the name of the cache folder: another set of dependencies is another folder."""
        files = self.read_files()
        digest = hashlib.sha256("\0".join(files[name] for name in sorted(files)).encode()).hexdigest()
        return f"{self.name}-{self.program_version()}-{platform}-{digest[:_HASH_LENGTH]}"

    def linker_flags(self) -> str:
        """Return the linker's flags: no debug information, and the version that the programs report."""
        version = self.program_version()
        flags = ["-s", "-w"]
        if self.name == "helm":
            flags.append(f"-X {_HELM_VERSION}.version={version}")
        if self.name == "kube":
            major, minor, _ = version.removeprefix("v").split(".", 2)
            named = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
            flags += [f"-X {_KUBERNETES_VERSION}.{name}={value}" for name, value in named.items()]
        return " ".join(flags)


KUBERNETES: Final = GoModule(
    "kube",
    "k8s.io/kubernetes",
    tuple(
        Program(name, f"k8s.io/kubernetes/cmd/{name}")
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
)
KUBECTL: Final = GoModule("kube", "k8s.io/kubernetes", (Program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),))
ETCD: Final = GoModule("etcd", "go.etcd.io/etcd/server/v3", (Program("etcd", "go.etcd.io/etcd/server/v3"),))
KWOK: Final = GoModule("kwok", "sigs.k8s.io/kwok", (Program("kwok", "sigs.k8s.io/kwok/cmd/kwok"),))
HELM: Final = GoModule("helm", "helm.sh/helm/v4", (Program("helm", "helm.sh/helm/v4/cmd/helm"),))
"""Not part of a sandbox: who tests the chart asks for it."""

CONTROL_PLANE: Final = (ETCD, KUBERNETES, KWOK)


def build_list_command(go: Path, programs: Sequence[Program]) -> tuple[str, ...]:
    """Return the command that downloads what the programs need and prints one line per package."""
    return (str(go), "list", "-deps", "-mod=readonly", *(program.package for program in programs))


def build_compile_command(go: Path, module: GoModule, programs: Sequence[Program], output: Path) -> tuple[str, ...]:
    """Return the command that builds programs into a folder and prints one line per package that it compiles.

    Go names a program after the last element of its package; one that is called otherwise is built alone.
    """
    target = output / programs[0].name if len(programs) == 1 else f"{output}/"
    return (
        str(go),
        "build",
        "-v",
        "-mod=readonly",
        "-trimpath",
        "-buildvcs=false",
        f"-ldflags={module.linker_flags()}",
        "-o",
        str(target),
        *(program.package for program in programs),
    )
