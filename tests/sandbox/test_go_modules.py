import re
from pathlib import Path

import pytest

from berth_sandbox.go_modules import (
    ETCD,
    HELM,
    KUBECTL,
    KUBERNETES,
    KWOK,
    OTHER_KUBERNETES,
    VOLCANO,
    GoModule,
    build_compile_command,
    control_plane,
)

MODULES = (*control_plane(), KUBECTL, HELM, VOLCANO)
OTHERS = [control_plane(version)[1] for version in OTHER_KUBERNETES]
RELEASED_GO_MOD = """module k8s.io/kubernetes

go 1.22.0

require k8s.io/api v0.0.0

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
)
"""


def test_kubernetes_is_of_one_release_throughout() -> None:
    text = KUBERNETES.read_files()["go.mod"]
    staging = KUBERNETES.program_version().replace("v1.", "v0.", 1)
    replaced = re.findall(r"^replace (k8s\.io/\S+) => (\S+) (\S+)$", text, re.MULTILINE)
    assert len(replaced) >= 30
    assert all(source == target and version == staging for source, target, version in replaced)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: "-".join(p.name for p in module.programs))
def test_every_program_is_a_tool_of_its_go_mod(module: GoModule) -> None:
    text = module.read_files()["go.mod"]
    assert all(re.search(rf"\b{re.escape(program.package)}$", text, re.MULTILINE) for program in module.programs)


@pytest.mark.parametrize("module", MODULES, ids=lambda module: "-".join(p.name for p in module.programs))
def test_every_required_module_has_its_checksum(module: GoModule) -> None:
    files = module.read_files()
    required = set(re.findall(r"^\s*(?:require )?(\S+) (v\S+)(?: // indirect)?$", files["go.mod"], re.MULTILINE))
    replaced = dict(re.findall(r"^replace (\S+) => \S+ (\S+)$", files["go.mod"], re.MULTILINE))
    sums = set(re.findall(r"^(\S+) (v[^/\s]+)(?:/go\.mod)? h1:", files["go.sum"], re.MULTILINE))
    wanted = {(name, replaced.get(name, version)) for name, version in required}
    assert wanted
    assert wanted <= sums


@pytest.mark.parametrize("module", [ETCD, HELM, KWOK, KUBERNETES, VOLCANO], ids=lambda module: module.name)
def test_a_build_changes_neither_go_mod_nor_the_users_flags(module: GoModule) -> None:
    command = build_compile_command(Path("/go"), module, module.programs, Path("/out"))
    assert "-mod=readonly" in command
    assert "-trimpath" in command
    assert command[-len(module.programs) :] == tuple(program.package for program in module.programs)


def test_what_a_go_mod_replaces_with_a_folder_is_the_module_that_is_patched() -> None:
    replaced = re.findall(r"^replace (\S+) => \./(\S+)$", VOLCANO.read_files()["go.mod"], re.MULTILINE)
    assert VOLCANO.patched is not None
    assert replaced == [(VOLCANO.patched.path, VOLCANO.patched.folder)]
    assert f"{VOLCANO.patched.path} {VOLCANO.patched.version} h1:" in VOLCANO.read_files()["go.sum"]


def test_several_programs_are_built_into_a_folder_and_a_single_one_under_its_name() -> None:
    several = build_compile_command(Path("/go"), KUBERNETES, KUBERNETES.programs, Path("/out"))
    assert several[several.index("-o") + 1] == "/out/"
    single = build_compile_command(Path("/go"), ETCD, ETCD.programs, Path("/out"))
    assert single[single.index("-o") + 1] == "/out/etcd"


def test_kubernetes_reports_its_version() -> None:
    assert f"version.gitVersion={KUBERNETES.program_version()}" in KUBERNETES.linker_flags()


def test_helm_reports_its_version() -> None:
    assert f"internal/version.version={HELM.program_version()}" in HELM.linker_flags()


def test_each_platform_and_set_of_dependencies_has_a_cache_of_its_own() -> None:
    keys = {module.cache_key(platform) for module in control_plane() for platform in ("linux-x86_64", "linux-aarch64")}
    assert len(keys) == 6
    assert KUBECTL.cache_key("linux-x86_64") == KUBERNETES.cache_key("linux-x86_64")


@pytest.mark.parametrize("module", OTHERS, ids=lambda module: module.other)
def test_another_kubernetes_is_built_from_the_go_mod_of_its_release(module: GoModule, tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text(RELEASED_GO_MOD)
    (tmp_path / "go.sum").write_text("example.com/one v1.0.0 h1:of-the-release=\n")
    files = module.complete_files(tmp_path)
    staging = module.other.replace("v1.", "v0.", 1)
    assert "module berth.sandbox/kube\n" in files["go.mod"]
    assert f"k8s.io/api => k8s.io/api {staging}\n" in files["go.mod"]
    assert f"require k8s.io/kubernetes {module.other}\n" in files["go.mod"]
    assert "of-the-release" in files["go.sum"]


@pytest.mark.parametrize("module", OTHERS, ids=lambda module: module.other)
def test_the_modules_of_another_kubernetes_have_our_checksums_of_that_release_alone(module: GoModule) -> None:
    sums = re.findall(r"^(\S+) (v[^/\s]+)(/go\.mod)? h1:\S+=$", module.read_files()["go.sum"], re.MULTILINE)
    assert len(sums) == len(module.read_files()["go.sum"].splitlines())
    staging = module.other.replace("v1.", "v0.", 1)
    assert {version for _, version, _ in sums} == {module.other, staging}
    assert {("k8s.io/kubernetes", module.other, end) for end in ("", "/go.mod")} <= set(sums)
    assert {("k8s.io/client-go", staging, end) for end in ("", "/go.mod")} <= set(sums)


def test_each_kubernetes_has_a_cache_of_its_own_and_reports_its_version() -> None:
    assert len({module.cache_key("linux-x86_64") for module in (KUBERNETES, *OTHERS)}) == 1 + len(OTHERS)
    assert all(f"version.gitVersion={module.other}" in module.linker_flags() for module in OTHERS)
