import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from berth_sandbox import builds
from berth_sandbox.binaries import find_binaries, find_helm, find_kubectl, is_control_plane_built
from berth_sandbox.components import VOLCANO_COMPONENTS
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.go_modules import ETCD, KUBERNETES, VOLCANO, control_plane
from sandbox.fake_go import FakeGo
from waiting import eventually

UseGo = Callable[..., FakeGo]
FindTool = Callable[[Callable[[str], None], Mapping[str, str]], Path]


@pytest.fixture
def use_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> UseGo:
    """Return a function that puts a fake Go on the PATH; builds go to a cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def use(**how: object) -> FakeGo:
        go = FakeGo(tmp_path / "go", **how)  # type: ignore[arg-type]
        monkeypatch.setenv("PATH", go.path)
        return go

    return use


def say_nothing(_line: str) -> None:
    """Drop a line."""


def read(path: Path) -> str:
    """Return a file's text, nothing where it has just gone."""
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def leftovers(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")


def test_programs_are_built_once_and_then_come_from_the_cache(use_go: UseGo) -> None:
    go = use_go()
    first = builds.build_programs(KUBERNETES, say_nothing)
    assert builds.build_programs(KUBERNETES, say_nothing) == first
    assert len(go.calls("build")) == 1
    assert {path.read_text() for path in first.values()} == {"built with CGO_ENABLED=0"}
    assert leftovers(builds.cached_folder(KUBERNETES)) == sorted(first)


def test_the_user_sees_modules_packages_and_seconds(use_go: UseGo, monkeypatch: pytest.MonkeyPatch) -> None:
    use_go()
    monkeypatch.setattr(builds, "_REPORT_EVERY_SECONDS_IN_A_PIPE", 0.0)
    said: list[str] = []
    builds.build_programs(ETCD, said.append)
    text = "\n".join(said)
    version = ETCD.program_version()
    assert re.search(rf"building etcd {re.escape(version)}: 2 modules downloaded, \d+ s$", text, re.MULTILINE)
    assert f"building etcd {version}: 5 of at most 5 packages compiled" in text
    assert said[-1].startswith(f"built etcd {version} in ")


@pytest.mark.parametrize("is_terminal", [True, False], ids=["on a terminal", "in a pipe"])
def test_progress_is_rarer_in_a_pipe(use_go: UseGo, monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> None:
    use_go()
    monkeypatch.setattr(builds, "_REPORT_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    said: list[str] = []
    builds.build_programs(ETCD, said.append)
    assert ("5 of at most 5 packages compiled" in "\n".join(said)) is is_terminal
    assert builds._REPORT_EVERY_SECONDS_IN_A_PIPE == 60


def test_whether_the_control_plane_must_be_built_is_known_before(use_go: UseGo, tmp_path: Path) -> None:
    use_go()
    assert not is_control_plane_built({})
    binaries = find_binaries(say_nothing, {})
    assert is_control_plane_built({})
    binaries["kwok"].unlink()
    assert not is_control_plane_built({})
    given = tmp_path / "given"
    given.mkdir()
    program = given / "kwok"
    program.write_text("")
    program.chmod(0o755)
    assert is_control_plane_built({"KUBEBUILDER_ASSETS": str(given)})


def test_a_build_that_fails_says_gos_last_words_and_leaves_no_program(use_go: UseGo) -> None:
    use_go(failure="cannot find module: the proxy is unreachable")
    with pytest.raises(SandboxUnavailableError) as caught:
        builds.build_programs(ETCD, say_nothing)
    text = str(caught.value)
    assert "cannot find module: the proxy is unreachable" in text
    assert "KUBEBUILDER_ASSETS" in text
    assert leftovers(builds.cached_folder(ETCD)) == []


def test_a_build_that_failed_can_be_made_good_later(use_go: UseGo) -> None:
    use_go(failure=1)
    with pytest.raises(SandboxUnavailableError):
        builds.build_programs(ETCD, say_nothing)
    use_go()
    assert builds.build_programs(ETCD, say_nothing)["etcd"].exists()


def test_what_a_killed_build_left_does_no_harm(use_go: UseGo) -> None:
    use_go()
    scratch = builds.cached_folder(ETCD) / ".building"
    (scratch / "bin").mkdir(parents=True)
    (scratch / "bin" / "etcd").write_text("half")
    assert builds.build_programs(ETCD, say_nothing)["etcd"].read_text() != "half"
    assert leftovers(builds.cached_folder(ETCD)) == ["etcd"]


def test_a_build_that_is_interrupted_ends_go_and_leaves_nothing(use_go: UseGo, tmp_path: Path) -> None:
    go = use_go(waits_for=tmp_path / "never")
    code = "from berth_sandbox import builds, go_modules; builds.build_programs(go_modules.ETCD, lambda _: None)"
    building = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        eventually("it builds", lambda: go.calls("build"), seconds=120)
        building.send_signal(signal.SIGINT)
        assert building.wait(120) != 0
    finally:
        building.kill()
        building.wait()
    assert leftovers(builds.cached_folder(ETCD)) == []
    assert not [line for line in Path("/proc").glob("[0-9]*/cmdline") if str(go.command) in read(line)]


def test_several_who_need_the_same_programs_build_them_once(use_go: UseGo, tmp_path: Path) -> None:
    go = use_go(waits_for=tmp_path / "two wait")
    said: list[str] = []
    threads = [threading.Thread(target=builds.build_programs, args=(ETCD, said.append), daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    of_waiting = "another process is building etcd"
    eventually("two wait", lambda: sum(of_waiting in line for line in tuple(said)) == 2, seconds=120)
    (tmp_path / "two wait").touch()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert len(go.calls("build")) == 1


def test_volcano_is_built_with_a_patched_copy_of_its_api_and_its_crds_lie_beside_it(use_go: UseGo) -> None:
    go = use_go()
    found = find_binaries(say_nothing, volcano=True)
    folder = builds.cached_folder(VOLCANO)
    assert go.calls("mod")[0].endswith("volcano.sh/apis@v1.14.0")
    assert go.calls("mod")[1].endswith(f"volcano.sh/volcano@{VOLCANO.program_version()}")
    programs = [found[component.binary] for component in VOLCANO_COMPONENTS]
    assert programs == [folder / "volcano-scheduler", folder / "volcano-controller-manager"]
    assert all("const QueueAllocationGateKey" in program.read_text() for program in programs)
    manifests = folder / builds.MANIFESTS_FOLDER
    assert [file.name for file in manifests.iterdir()] == ["one.yaml"]
    assert leftovers(folder) == sorted(["manifests", "volcano-scheduler", "volcano-controller-manager"])


def test_volcano_is_not_built_for_a_sandbox_without_it(use_go: UseGo) -> None:
    go = use_go()
    found = find_binaries(say_nothing)
    assert not [name for name in found if "volcano" in name]
    assert not [line for line in go.calls("build") if "volcano.sh" in line]


def test_another_kubernetes_is_built_whatever_programs_are_given(use_go: UseGo, tmp_path: Path) -> None:
    go = use_go()
    given = tmp_path / "given"
    given.mkdir()
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok"):
        (given / name).touch(mode=0o755)
    found = find_binaries(say_nothing, {"KUBEBUILDER_ASSETS": str(given)}, kubernetes="1.33")
    assert found["etcd"] == (given / "etcd").resolve()
    module = control_plane("1.33")[1]
    assert found["kube-apiserver"] == builds.cached_folder(module) / "kube-apiserver"
    assert found["kube-apiserver"] != builds.cached_folder(KUBERNETES) / "kube-apiserver"
    assert go.calls("mod")[0].endswith(f"k8s.io/kubernetes@{module.other}")
    assert len(go.calls("build")) == 1


def test_a_module_that_cannot_be_downloaded_is_said_so(use_go: UseGo) -> None:
    use_go(downloads=False)
    with pytest.raises(SandboxUnavailableError, match="checksum mismatch"):
        builds.build_programs(VOLCANO, say_nothing)
    assert leftovers(builds.cached_folder(VOLCANO)) == []


def test_programs_that_are_not_given_are_built_beside_those_that_are(use_go: UseGo, tmp_path: Path) -> None:
    go = use_go()
    given = tmp_path / "given"
    given.mkdir()
    for name in ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"):
        (given / name).touch(mode=0o755)
    found = find_binaries(say_nothing, {"KUBEBUILDER_ASSETS": str(given)})
    assert found["etcd"] == (given / "etcd").resolve()
    assert found["kwok"].parent.parent == tmp_path / "cache" / "berth"
    assert len(go.calls("build")) == 1


def test_a_folder_of_programs_that_does_not_exist_is_said_so() -> None:
    with pytest.raises(SandboxUnavailableError, match="/does/not/exist"):
        find_binaries(say_nothing, {"KUBEBUILDER_ASSETS": "/does/not/exist"})


@pytest.mark.parametrize(("find", "name"), [(find_kubectl, "kubectl"), (find_helm, "helm")])
def test_a_tool_is_taken_from_the_path_or_built(use_go: UseGo, tmp_path: Path, find: FindTool, name: str) -> None:
    go = use_go()
    assert find(say_nothing, {"PATH": str(tmp_path)}).name == name
    assert len(go.calls("build")) == 1
    mine = tmp_path / name
    mine.touch(mode=0o755)
    assert find(say_nothing, {"PATH": str(tmp_path)}) == mine
    assert len(go.calls("build")) == 1
