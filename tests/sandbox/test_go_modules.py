import re
from pathlib import Path

import pytest

from berth_sandbox.go_toolchain import (
    CONTROL_PLANE,
    ETCD,
    HELM,
    KUBECTL,
    KUBERNETES,
    KWOK,
    VOLCANO,
    GoModule,
    build_compile_command,
)

MODULES = (*CONTROL_PLANE, KUBECTL, HELM, VOLCANO)


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
    keys = {module.cache_key(platform) for module in CONTROL_PLANE for platform in ("linux-x86_64", "linux-aarch64")}
    assert len(keys) == 6
    assert KUBECTL.cache_key("linux-x86_64") == KUBERNETES.cache_key("linux-x86_64")
