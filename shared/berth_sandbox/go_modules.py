"""Our go.mod files, their programs, and the command lines that build them."""

import hashlib
import importlib.metadata
import importlib.resources
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from berth_core import InputError
from berth_sandbox.go_toolchain import Version, parse_version

_HASH_LENGTH: Final = 10
_KUBERNETES_VERSION: Final = "k8s.io/component-base/version"
_OTHER_SUMS: Final = "others.sum"
_GO_OF_OTHERS: Final = "1.26.0"
_HELM_VERSION: Final = "helm.sh/helm/v4/internal/version"


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program and the Go package that it is built from."""

    name: str
    package: str


@dataclass(frozen=True, slots=True)
class PatchedModule:
    """A dependency that is built from a copy with one more file.

    Our go.mod replaces it with the folder of this name beside itself; our go.sum has the checksum of the original.
    """

    path: str
    version: str
    folder: str
    added_file: str
    added_text: str


@dataclass(frozen=True, slots=True)
class GoModule:
    """One go.mod of ours; the module `requires` holds the programs and their version."""

    name: str
    requires: str
    programs: tuple[GoProgram, ...]
    patched: PatchedModule | None = None
    other: str = ""
    """The version to build instead of our go.mod's: from the go.mod and go.sum that it was released with."""
    manifests: tuple[str, ...] = ()
    """Folders of the required module whose YAML files are kept beside the programs."""
    more_sums: str = ""
    """File of checksums that only these programs need: in go.sum they would have every other program built again."""

    def read_files(self) -> dict[str, str]:
        """Return our go.mod and go.sum by name."""
        folder = importlib.resources.files("berth_sandbox").joinpath("gomodules", self.name)
        if not self.other:
            files = {name: folder.joinpath(name).read_text(encoding="utf-8") for name in ("go.mod", "go.sum")}
            if self.more_sums:
                files["go.sum"] += folder.joinpath(self.more_sums).read_text(encoding="utf-8")
            return files
        # Kubernetes itself is v1.N, and the modules of its staging folder are v0.N.
        own_line = re.compile(rf"\S+ v[01]\.{re.escape(self.other.removeprefix('v1.'))}(/go\.mod)? ")
        lines = folder.joinpath(_OTHER_SUMS).read_text(encoding="utf-8").splitlines(keepends=True)
        return {
            "go.mod": f"module berth.sandbox/kube\n\ngo {_GO_OF_OTHERS}\n\nrequire {self.requires} {self.other}\n",
            "go.sum": "".join(line for line in lines if own_line.match(line)),
        }

    def complete_files(self, released: Path) -> dict[str, str]:
        """Return go.mod and go.sum of another version, given its sources.

        The sources' go.mod replaces the modules of Kubernetes' staging folder with folders that only the repository
        has. Their go.sum has the checksums of all other modules, ours those of the staging modules.
        """
        text = released.joinpath("go.mod").read_text(encoding="utf-8")
        text = text.replace(f"module {self.requires}\n", "module berth.sandbox/kube\n", 1)
        text = re.sub(r"=> \./staging/src/(\S+)", rf"=> \1 {self.other.replace('v1.', 'v0.', 1)}", text)
        go_sum = released.joinpath("go.sum").read_text(encoding="utf-8")
        return {
            "go.mod": f"{text}\nrequire {self.requires} {self.other}\n",
            "go.sum": go_sum + self.read_files()["go.sum"],
        }

    def program_version(self) -> str:
        """Return the version of the programs, as in `v1.36.3`."""
        match = re.search(rf"\s{re.escape(self.requires)} (v\S+)", self.read_files()["go.mod"])
        if match is None:
            raise LookupError(f"go.mod of {self.name} does not require {self.requires}")
        return match[1]

    def go_version(self) -> Version:
        """Return the oldest Go that builds the module."""
        match = re.search(r"^go (\S+)$", self.read_files()["go.mod"], re.MULTILINE)
        version = None if match is None else parse_version(f"go{match[1]}")
        if version is None:
            raise LookupError(f"go.mod of {self.name} has no go line")
        return version

    def cache_key(self, platform: str) -> str:
        """Return the name of the cache folder; each set of dependencies has its own."""
        files = self.read_files()
        digest = hashlib.sha256("\0".join(files[name] for name in sorted(files)).encode()).hexdigest()
        return f"{self.name}-{self.program_version()}-{platform}-{digest[:_HASH_LENGTH]}"

    def linker_flags(self) -> str:
        """Return the linker's flags: no debug information, and the reported version."""
        version = self.program_version()
        flags = ["-s", "-w"]
        if self.name == "helm":
            flags.append(f"-X {_HELM_VERSION}.version={version}")
        if self.name == "kube":
            major, minor, _ = version.removeprefix("v").split(".", 2)
            version_variables = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
            flags += [f"-X {_KUBERNETES_VERSION}.{name}={value}" for name, value in version_variables.items()]
        return " ".join(flags)


KUBERNETES: Final = GoModule(
    "kube",
    "k8s.io/kubernetes",
    tuple(
        GoProgram(name, f"k8s.io/kubernetes/cmd/{name}")
        for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    ),
)
KUBECTL: Final = GoModule("kube", "k8s.io/kubernetes", (GoProgram("kubectl", "k8s.io/kubernetes/cmd/kubectl"),))
KUBELET: Final = GoModule(
    "kube",
    "k8s.io/kubernetes",
    (GoProgram("kubelet", "k8s.io/kubernetes/cmd/kubelet"),),
    more_sums="kubelet.sum",
)
"""Built only for a sandbox with real nodes."""
ETCD: Final = GoModule("etcd", "go.etcd.io/etcd/server/v3", (GoProgram("etcd", "go.etcd.io/etcd/server/v3"),))
KWOK: Final = GoModule("kwok", "sigs.k8s.io/kwok", (GoProgram("kwok", "sigs.k8s.io/kwok/cmd/kwok"),))
HELM: Final = GoModule("helm", "helm.sh/helm/v4", (GoProgram("helm", "helm.sh/helm/v4/cmd/helm"),))
"""Not part of a sandbox: only tests of the chart use it."""
VOLCANO: Final = GoModule(
    "volcano",
    "volcano.sh/volcano",
    tuple(
        GoProgram(f"volcano-{name}", f"volcano.sh/volcano/cmd/{name}") for name in ("scheduler", "controller-manager")
    ),
    # The newest published version of its API module lacks one constant of the version that it was released with.
    PatchedModule(
        path="volcano.sh/apis",
        version="v1.14.0",
        folder="apis",
        added_file="pkg/apis/scheduling/v1beta1/queue_allocation_gate.go",
        added_text='package v1beta1\n\nconst QueueAllocationGateKey = GroupName + "/queue-allocation-gate"\n',
    ),
    manifests=("config/crd/volcano/bases", "config/crd/jobflow/bases"),
)
"""Built only for a sandbox that asks for it."""

DEFAULT_KUBERNETES: Final = "1.36"
OTHER_KUBERNETES: Final = {
    "1.31": "v1.31.0",
    "1.32": "v1.32.2",
    "1.33": "v1.33.13",
    "1.34": "v1.34.4",
    "1.35": "v1.35.4",
    "1.37": "v1.37.2",
}
"""The newest release of each minor version of which the module proxy has every module."""


def control_plane(kubernetes: str = DEFAULT_KUBERNETES) -> tuple[GoModule, ...]:
    """Return the modules of a control plane; raises InputError for a Kubernetes that is none of ours."""
    if kubernetes == DEFAULT_KUBERNETES:
        return (ETCD, KUBERNETES, KWOK)
    if kubernetes not in OTHER_KUBERNETES:
        known_versions = sorted((*OTHER_KUBERNETES, DEFAULT_KUBERNETES))
        raise InputError("kubernetes", kubernetes, f"one of {', '.join(known_versions)}")
    return (ETCD, replace(KUBERNETES, other=OTHER_KUBERNETES[kubernetes]), KWOK)


def kubelet_module(kubernetes: str = DEFAULT_KUBERNETES) -> GoModule:
    """Return the module of a control plane's kubelet; raises InputError for a Kubernetes that is none of ours."""
    return replace(KUBELET, other=control_plane(kubernetes)[1].other)


def build_list_command(go: Path, programs: Sequence[GoProgram]) -> tuple[str, ...]:
    """Return the command that downloads and lists the packages, one on each line."""
    return (str(go), "list", "-deps", "-mod=readonly", *(program.package for program in programs))


def build_download_command(go: Path, path: str, version: str) -> tuple[str, ...]:
    """Return the command that downloads a module and describes it as JSON.

    Go compares the module with the go.sum of its working folder.
    """
    return (str(go), "mod", "download", "-json", f"{path}@{version}")


def build_compile_command(go: Path, module: GoModule, programs: Sequence[GoProgram], output: Path) -> tuple[str, ...]:
    """Return the command that builds programs and prints one line for each compiled package.

    Go names each of several programs after the last element of its package.
    """
    target = output / programs[0].name if len(programs) == 1 else f"{output}/"
    return (
        str(go),
        "build",
        "-v",
        # Stated, since GOFLAGS of the user may say `-mod=mod`, by which go would change the pinned versions.
        "-mod=readonly",
        "-trimpath",
        # The cache may lie in a checkout of the user, which says nothing about these programs.
        "-buildvcs=false",
        f"-ldflags={module.linker_flags()}",
        "-o",
        str(target),
        *(program.package for program in programs),
    )
