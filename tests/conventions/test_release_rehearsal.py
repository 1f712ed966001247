"""The rehearsal of a release says what passed, what failed and what this machine cannot try."""

import json
import sys
from pathlib import Path

import pytest

import rehearsal
from rehearsal import Folders, LeftOutError, RehearsalError


def site(tmp_path: Path, **pages: str) -> Path:
    for name, text in pages.items():
        (tmp_path / f"{name}.html").write_text(text, encoding="utf-8")
    return tmp_path


def test_a_site_is_walked_from_its_first_page(tmp_path: Path) -> None:
    index = '<a href="second.html#here">on</a><a href="https://example.org/">out</a><img src="a.png">'
    (tmp_path / "a.png").write_bytes(b"")
    folder = site(tmp_path, index=index, second='<h2 id="here">Here</h2><a href="./">back</a>')
    assert rehearsal.walk_site(folder).startswith("served, 2 pages walked")


@pytest.mark.parametrize(
    ("index", "want"),
    {
        '<a href="gone.html">on</a>': "gone.html: HTTP Error 404",
        '<a href="second.html#there">on</a>': "#there, which the page does not have",
        '<script src="https://example.org/a.js"></script>': "loads https://example.org/a.js",
        '<link rel="stylesheet" href="gone.css">': "gone.css: HTTP Error 404",
    }.items(),
)
def test_what_is_wrong_with_a_site_fails(tmp_path: Path, index: str, want: str) -> None:
    with pytest.raises(RehearsalError, match=want):
        rehearsal.walk_site(site(tmp_path, index=index, second=""))


def test_each_step_is_reported_and_failures_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(_: Folders) -> str:
        raise RehearsalError("it broke")

    def leave_out(_: Folders) -> str:
        raise LeftOutError("there is none")

    def make(folders: Folders) -> None:
        (folders.parts / "part").write_text("a part", encoding="utf-8")

    folders = Folders(tmp_path)
    folders.parts.mkdir()
    all_steps = [("source", make, lambda _: "fine"), ("chart", make, fail), ("images", make, leave_out)]
    assert rehearsal.rehearse(folders, [], all_steps) == 1
    lines = [line.split(maxsplit=4) for line in capsys.readouterr().out.splitlines()]
    assert [(line[0], line[-1].split("  ")[-1]) for line in lines] == [
        ("passed", "fine"),
        ("FAILED", "it broke"),
        ("left", "there is none"),
    ]
    (sums,) = (folders.parts / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    assert sums.endswith("  part")

    assert rehearsal.rehearse(folders, ["images"], all_steps) == 0
    assert "chart" not in capsys.readouterr().out


def test_each_python_is_found_or_left_out() -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    answer = rehearsal.run(rehearsal.find_python(version), "--version")
    assert answer.startswith(f"Python {version}.")
    with pytest.raises(LeftOutError, match=r"no python9\.9"):
        rehearsal.find_python("9.9")


def test_images_are_left_out_where_nothing_builds_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "docker").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (tmp_path / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LeftOutError, match="`docker info` fails and there is no buildah"):
        rehearsal.use_images(Folders(tmp_path))


def test_a_bill_that_differs_from_its_lock_fails(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.parts.mkdir()
    for service in ("operator", "descheduler"):
        (folders.source / service).mkdir(parents=True)
        (folders.source / service / "requirements.lock").write_text("a==1.0 \\\n    --hash=sha256:0\nb==2\n")
        components = [{"name": "A", "version": "1.0"}, {"name": "b", "version": "2"}]
        (folders.parts / f"berth-{service}.cdx.json").write_text(json.dumps({"components": components}))
    assert rehearsal.use_bills(folders) == "packages listed: operator 2, descheduler 2"
    (folders.parts / "berth-operator.cdx.json").write_text(json.dumps({"components": components[:1]}))
    with pytest.raises(RehearsalError, match=r"operator differs from its lock: \[\('b', '2'\)\]"):
        rehearsal.use_bills(folders)


def test_a_rehearsal_begins_in_a_clean_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        rehearsal.main(["--into", str(tmp_path)])
    assert "exists already" in capsys.readouterr().err


@pytest.mark.deep
def test_a_release_is_made_from_a_clean_clone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert rehearsal.main(["--into", str(tmp_path / "work"), "--only", "bills", "--only", "plugin"]) == 0
    outcomes = [line.split()[:2] for line in capsys.readouterr().out.splitlines()[:-1]]
    assert outcomes == [["passed", "source"], ["passed", "bills"], ["passed", "plugin"]]
    names = (tmp_path / "work" / "parts" / "SHA256SUMS").read_text(encoding="utf-8")
    assert [name for name in (".whl", ".tar.gz", "berth.yaml", ".cdx.json") if name not in names] == []
