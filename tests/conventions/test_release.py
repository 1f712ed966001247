"""Every step of a release that needs no network, done as the workflow does it; the others with stand-ins."""

import io
import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

import release
from conventions.test_project_files import PROJECT
from conventions.tracked import ROOT, tracked_files

VERSION: Final = release.read_version()
TAG: Final = f"v{VERSION}"
REGISTRY: Final = "registry.example/team"
BASE: Final = "python:3.12.12-slim-bookworm@sha256:" + "a" * 64
SETTINGS: Final = {"REGISTRY": REGISTRY, "PYTHON_BASE": BASE}
ADDRESS: Final = "https://forge.example/berth/releases/download/" + TAG
DATED: Final = f"# Changes\n\n## {VERSION} (2026-01-31)\n\nFirst.\n\n- **A**: b\n\n## 0.0.1 (2025-01-31)\n\nOlder.\n"

DOCKER: Final = """\
import json, sys, tarfile, io, os
arguments = sys.argv[1:]
given = dict(one.split("=", 1) for one in arguments if one.startswith("--") and "=" in one)
with open(os.environ["CALLS"], "a") as calls:
    print(json.dumps(arguments), file=calls)
if arguments[1] == "imagetools":
    print(json.dumps({"SPDX": {}}))
elif "--metadata-file" in given:
    json.dump({"containerimage.digest": "sha256:" + "d" * 64}, open(given["--metadata-file"], "w"))
else:
    output = dict(one.split("=", 1) for one in arguments[arguments.index("--output") + 1].split(","))
    digest = "sha256:" + ("e" if os.environ.get("VARY") and "again" in output["dest"] else "c") * 64
    images = [{"digest": digest, "platform": {"os": "linux", "architecture": a}} for a in ("amd64", "arm64")]
    parts = {"index.json": {"manifests": [{"digest": "sha256:" + "b" * 64}]}}
    parts["blobs/sha256/" + "b" * 64] = {"manifests": images}
    with tarfile.open(output["dest"], "w") as layout:
        for name, part in parts.items():
            content = json.dumps(part).encode()
            member = tarfile.TarInfo(name)
            member.size = len(content)
            layout.addfile(member, io.BytesIO(content))
"""
HELM: Final = 'import sys\nprint("Pushed: there")\nprint("Digest: sha256:" + "f" * 64, file=sys.stderr)\n'


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return release.build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a stand-in for docker, which writes down how it is called, before all else on the PATH."""
    make_program(tmp_path / "docker", DOCKER)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def make_program(path: Path, text: str) -> None:
    path.write_text(f"#!{sys.executable}\n{text}", encoding="utf-8")
    path.chmod(0o755)


def tree(tmp_path: Path, changelog: str) -> Path:
    """Return what a release is checked against, with a changelog of its own."""
    for name in ("pyproject.toml", *(f"{service}/Dockerfile" for service in release.SERVICES)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "CHANGELOG.md").write_text(changelog, encoding="utf-8")
    return tmp_path


def test_the_notes_are_what_the_changelog_says_of_the_version_alone() -> None:
    assert release.notes_of(DATED, VERSION) == "First.\n\n- **A**: b\n"
    assert release.notes_of(DATED, "0.0.1") == "Older.\n"


@pytest.mark.parametrize(
    ("heading", "said"),
    {"## 9.9.9 (2026-01-31)": "has no heading", f"## {VERSION} (not released yet)": "no date"}.items(),
)
def test_a_version_without_a_date_has_no_notes(heading: str, said: str) -> None:
    with pytest.raises(release.ReleaseError, match=said):
        release.notes_of(f"# Changes\n\n{heading}\n\nText.\n", VERSION)


def test_the_notes_of_the_projects_version_can_be_cut_out_once_it_has_a_date() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = re.sub(rf"^## {re.escape(VERSION)} \(.*\)$", f"## {VERSION} (2026-01-31)", text, flags=re.MULTILINE)
    notes = release.notes_of(dated, VERSION)
    assert "- **Reservations**" in notes
    assert "\n## " not in notes


def test_nothing_stands_against_a_release_that_is_complete(tmp_path: Path) -> None:
    assert not release.find_obstacles(TAG, SETTINGS, tree(tmp_path, DATED))


@pytest.mark.parametrize(
    ("tag", "changed", "said"),
    [
        ("v9.9.9", {}, "is not that of the project's version"),
        (TAG, {"REGISTRY": ""}, "REGISTRY does not say"),
        (TAG, {"PYTHON_BASE": BASE.partition("@")[0]}, "PYTHON_BASE must pin"),
        (TAG, {"PYTHON_BASE": BASE.replace("3.12.12", "3.13.0")}, "PYTHON_BASE must pin"),
    ],
)
def test_a_release_is_refused(tmp_path: Path, tag: str, changed: dict[str, str], said: str) -> None:
    obstacles = release.find_obstacles(tag, {**SETTINGS, **changed}, tree(tmp_path, DATED))
    assert obstacles
    assert all(said in one for one in obstacles)


def test_a_base_may_come_from_a_mirror(tmp_path: Path) -> None:
    mirrored = {**SETTINGS, "PYTHON_BASE": f"{REGISTRY}/{BASE}"}
    assert not release.find_obstacles(TAG, mirrored, tree(tmp_path, DATED))


def test_the_same_files_make_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    assert release.build_wheel(tmp_path).read_bytes() == wheel.read_bytes()


def test_the_wheel_has_every_file_of_its_packages(wheel: Path) -> None:
    folders = [ROOT / folder for folder in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
    want = {
        str(path.relative_to(folder.parent)) for folder in folders for path in tracked_files() if folder in path.parents
    }
    assert "berth_descheduler/ui/static/page.js" in want
    with zipfile.ZipFile(wheel) as archive:
        assert want - set(archive.namelist()) == set()


def test_the_manifest_for_krew_has_all_that_krew_wants(wheel: Path, tmp_path: Path) -> None:
    archive = release.package_plugin(wheel, tmp_path)
    manifest: dict[str, Any] = yaml.safe_load(release.krew_manifest(archive, ADDRESS, "https://forge.example/berth"))
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    assert (manifest["apiVersion"], manifest["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert re.fullmatch(r"[a-z0-9][a-z0-9-]*", manifest["metadata"]["name"])
    spec = manifest["spec"]
    assert set(spec) == {"version", "homepage", "shortDescription", "description", "caveats", "platforms"}
    assert re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"])
    assert len(spec["shortDescription"]) <= 50
    (platform,) = spec["platforms"]
    assert set(platform) == {"selector", "uri", "sha256", "bin"}
    assert platform["uri"] == f"{ADDRESS}/{archive.name}"
    assert re.fullmatch(r"[0-9a-f]{64}", platform["sha256"])
    (expression,) = platform["selector"]["matchExpressions"]
    assert (expression["key"], expression["operator"]) == ("os", "In")
    with tarfile.open(archive) as packed:
        assert packed.getmember(platform["bin"]).mode == 0o755


def test_krew_is_sent_to_no_address_that_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match="https"):
        release.krew_manifest(tmp_path, "http://forge.example", "https://forge.example")


def test_the_same_wheel_makes_the_same_plugin(wheel: Path, tmp_path: Path) -> None:
    first = release.package_plugin(wheel, tmp_path).read_bytes()
    assert release.package_plugin(wheel, tmp_path).read_bytes() == first


def unpack(wheel: Path, into: Path) -> Path:
    """Install the plugin as krew does: unpacked in a folder, with a link to its program in another."""
    (into / "store").mkdir()
    with tarfile.open(release.package_plugin(wheel, into)) as packed:
        for member in packed:
            content = packed.extractfile(member)
            assert content is not None
            (into / "store" / member.name).write_bytes(content.read())
            (into / "store" / member.name).chmod(member.mode)
    link = into / "kubectl-berth"
    link.symlink_to(into / "store" / "kubectl-berth")
    return link


PYTHON: Final = """\
import os, pathlib, shutil, sys
with open(os.environ["CALLS"], "a") as calls:
    print(*sys.argv[1:], sep=" ", file=calls)
if sys.argv[1:3] == ["-m", "venv"]:
    folder = pathlib.Path(sys.argv[-1]) / "bin"
    folder.mkdir(parents=True)
    shutil.copy(__file__, folder / "python")
    shutil.copy(__file__, folder / "kubectl-berth")
sys.exit("version_info" in sys.argv[-1] and int(os.environ.get("OLD", "0")))
"""


def call_plugin(link: Path, **changed: str) -> subprocess.CompletedProcess[str]:
    make_program(link.parent / "python-of-the-user", PYTHON)
    environment = {
        "PATH": os.environ["PATH"],
        "XDG_CACHE_HOME": str(link.parent / "cache"),
        "BERTH_PYTHON": str(link.parent / "python-of-the-user"),
        "CALLS": str(link.parent / "calls"),
        **changed,
    }
    return subprocess.run([link, "plan", "a b"], env=environment, capture_output=True, text=True, check=False)


def test_the_plugin_installs_its_wheel_at_the_first_call_and_not_again(wheel: Path, tmp_path: Path) -> None:
    link = unpack(wheel, tmp_path)
    for _ in range(2):
        assert call_plugin(link).returncode == 0
    first, *others = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    store, home = tmp_path / "store", tmp_path / "cache" / "kubectl-berth" / VERSION
    assert "version_info" in first
    assert others == [
        f"-m venv --clear {home}",
        f"-m pip install --quiet --require-hashes --requirement {store}/requirements.lock",
        f"-m pip install --quiet --no-deps {store}/{wheel.name}",
        "plan a b",
        "plan a b",
    ]


def test_the_plugin_says_which_python_it_needs(wheel: Path, tmp_path: Path) -> None:
    refused = call_plugin(unpack(wheel, tmp_path), OLD="1")
    assert refused.returncode == 2
    assert "Python 3.11" in refused.stderr


def test_images_are_built_twice_compared_and_then_pushed(calls: Path, tmp_path: Path) -> None:
    builder = release.Builder(REGISTRY, BASE, tmp_path, dry=False)
    assert builder.release("operator") == f"{REGISTRY}/berth-operator@sha256:" + "d" * 64
    first, again, pushed, bill = (json.loads(line) for line in calls.read_text(encoding="utf-8").splitlines())
    for call in (first, again, pushed):
        assert call[:3] == ["buildx", "build", str(ROOT)]
        assert {f"--build-arg=PYTHON={BASE}", "--platform=linux/amd64,linux/arm64"} <= set(call)
        assert "rewrite-timestamp=true" in call[-1]
    assert "--no-cache" in first
    assert "--no-cache" in again
    assert {"--sbom=true", "--provenance=mode=max", f"--tag={REGISTRY}/berth-operator:{VERSION}"} <= set(pushed)
    assert bill[:2] == ["buildx", "imagetools"]
    assert json.loads((tmp_path / "berth-operator.sbom.json").read_text(encoding="utf-8"))


def test_images_of_which_two_builds_differ_are_not_pushed(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VARY", "1")
    with pytest.raises(release.ReleaseError, match="two builds of operator differ"):
        release.Builder(REGISTRY, BASE, tmp_path, dry=False).release("operator")
    assert "push=true" not in calls.read_text(encoding="utf-8")


def test_a_dry_run_calls_neither_docker_nor_a_registry(
    calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    for command in ("images", "push-chart"):
        assert release.main(["--into", str(tmp_path), "--dry-run", command]) == 0
    assert not calls.exists()
    said = capsys.readouterr()
    assert said.out.splitlines() == [
        f"{REGISTRY}/{name}@sha256:DIGEST" for name in ("berth-operator", "berth-descheduler", "charts/berth")
    ]
    assert len(said.err.splitlines()) == 9


def test_the_chart_is_named_by_the_digest_that_helm_says(tmp_path: Path) -> None:
    make_program(tmp_path / "helm", HELM)
    builder = release.Builder(REGISTRY, BASE, tmp_path, dry=False)
    pushed = builder.push_chart(tmp_path / "berth.tgz", str(tmp_path / "helm"))
    assert pushed == f"{REGISTRY}/charts/berth@sha256:" + "f" * 64


def test_what_fails_is_said_and_ends_the_workflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["check", "v9.9.9"]) == 1
    assert "v9.9.9" in capsys.readouterr().err
    assert release.main(["--into", str(tmp_path), "--helm", "false", "chart"]) == 1
    assert "false" in capsys.readouterr().err


def test_digests_are_read_of_each_platform(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "odd.tar", "w") as layout:
        content = b'{"manifests": [{"digest": "sha256:0"}]}'
        member = tarfile.TarInfo("index.json")
        member.size = len(content)
        layout.addfile(member, io.BytesIO(content))
        folder = tarfile.TarInfo("blobs/sha256/0")
        folder.type = tarfile.DIRTYPE
        layout.addfile(folder)
    with pytest.raises(release.ReleaseError, match="a folder"):
        release.image_digests(tmp_path / "odd.tar")
