"""Control characters of names and messages never reach a terminal: not in tables, errors, logs, reports or JSON."""

import gzip
import io
import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.panel import Panel
from rich.table import Table

from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_core.text import printable_line, printable_text
from berth_descheduler import snapshots
from berth_descheduler.cli.main import run
from berth_descheduler.options.output import to_json, to_yaml
from berth_descheduler.report.terminal import Terminal
from berth_descheduler.snapshots import read_snapshot_file
from builders import DEEP, as_api, meta, nested_json, node, owner, pod

CLEAR = "\x1b[2J"
EVIL = f"evil{CLEAR}\x07\x9b31m\x7f[/red]:bomb:"
ALLOWED = "\n\t"

Captured = pytest.CaptureFixture[str]


def controls(text: str) -> set[str]:
    return {one for one in text if (ord(one) < 0x20 or 0x7F <= ord(one) < 0xA0) and one not in ALLOWED}


@pytest.fixture
def evil_file(tmp_path: Path) -> Path:
    """A snapshot whose every text is one that no API server has."""
    nodes = (node("low", cpu="10"), node(f"n-{EVIL}", cpu="10", labels={EVIL: EVIL}))
    pods = (
        pod(f"p-{EVIL}", node="low", namespace=f"s-{EVIL}", cpu="1", memory=None, controller=owner(name=EVIL)),
        pod("q", node=f"n-{EVIL}", cpu="6", memory=None, requests={"cpu": "6", f"r-{EVIL}": "1"}, phase=f"Odd{EVIL}"),
        pod("waits", cpu="9", memory=None, scheduler_name=EVIL, phase="Pending"),
    )
    path = tmp_path / "evil.json"
    path.write_bytes(Snapshot(nodes=nodes, pods=pods).to_json())
    return path


@pytest.mark.parametrize(
    "command",
    [
        ("plan", "--strategy", "threshold"),
        ("plan", "--strategy", "consolidate"),
        ("plan", "--strategy", "make-room", "--shape", "cpu=8"),
        ("plan", "--strategy", "consolidate", "--output", "json"),
        ("plan", "--strategy", "consolidate", "--output", "yaml"),
        ("fragmentation",),
        ("fragmentation", "--output", "json"),
    ],
    ids=" ".join,
)
def test_a_command_shows_none(command: tuple[str, ...], evil_file: Path, capsys: Captured) -> None:
    code = run([*command, "--snapshot", str(evil_file)])
    shown = capsys.readouterr()
    assert code in {0, 2}, shown.err
    assert controls(shown.out + shown.err) == set()


def test_a_report_for_the_browser_has_none(evil_file: Path, tmp_path: Path, capsys: Captured) -> None:
    report = tmp_path / "report.html"
    run(["plan", "--strategy", "consolidate", "--snapshot", str(evil_file), "--report", str(report)])
    assert controls(report.read_text(encoding="utf-8")) == set()
    assert "evil\u241b[2J" in report.read_text(encoding="utf-8")
    capsys.readouterr()


def test_an_error_is_one_line_without_them(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "bad.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": f"a{EVIL}\nb"}), encoding="utf-8")
    assert run(["plan", "--snapshot", str(path)]) == 2
    said = capsys.readouterr().err
    assert (controls(said), said.count("\n")) == (set(), 1)
    assert "a" + printable_line(EVIL) in said


def test_a_console_keeps_its_own_colours_and_shows_the_rest_as_signs() -> None:
    console = Terminal(file=io.StringIO(), force_terminal=True, width=200, color_system="standard")
    table = Table(EVIL)
    table.add_row(EVIL, style="red")
    for one in (EVIL, table, Panel(EVIL)):
        console.print(one, style="bold")
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "\x1b[1m" in shown
    assert CLEAR not in shown
    assert controls(shown) == {"\x1b"}
    assert "[/red]:bomb:" in shown


@given(st.text())
def test_signs_stand_for_control_characters_and_for_nothing_else(text: str) -> None:
    assert controls(printable_text(text)) == set()
    assert controls(printable_line(text)) | ({"\n"} & set(printable_line(text))) == set()
    plain = "".join(one for one in text if not controls(one))
    assert "".join(one for one in printable_text(text) if one in plain) == plain or controls(text)


@given(st.text())
def test_json_and_yaml_escape_them(text: str) -> None:
    for written in (to_json({"text": text}), to_yaml({"text": text})):
        assert controls(written) == set()
    assert msgspec.json.decode(to_json({"text": text})) == {"text": text}


@pytest.mark.parametrize("as_json", [True, False], ids=["for machines", "for people"])
def test_a_line_of_the_log_escapes_them(as_json: bool) -> None:  # noqa: FBT001 - a parameter of the case
    script = (
        "import structlog; from berth_service.logs import configure_logs\n"
        f"configure_logs('info', as_json={as_json})\n"
        f"structlog.get_logger().info({EVIL!r}, pod={EVIL!r})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, timeout=180)
    assert b"evil" in done.stderr
    assert controls(done.stderr.decode()) == set()


# --- files that are larger than they look


def test_a_file_that_unpacks_to_gigabytes_is_an_error_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bomb = Path("bomb.gz")
    with gzip.open(bomb, "wb") as packed:
        for _ in range(64):
            packed.write(bytes(1 << 20))
    tracemalloc.start()
    try:
        with mock.patch.object(snapshots, "LARGEST_BYTES", 4 << 20), pytest.raises(InputError) as caught:
            read_snapshot_file(str(bomb))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert str(caught.value) == f"--snapshot is {str(bomb)!r}; expected a file of at most {4 << 20} bytes, unpacked"
    assert peak < 16 << 20


def test_a_packed_file_of_many_times_its_length_is_an_error_long_before_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    bomb = Path("bomb.gz")
    bomb.write_bytes(gzip.compress(bytes(8 << 20)))
    assert 200 * bomb.stat().st_size < 4 << 20

    with (
        mock.patch.object(snapshots, "_ALWAYS_UNPACKED_BYTES", 4 << 20),
        pytest.raises(InputError, match=f"a file of at most {4 << 20} bytes, unpacked"),
    ):
        read_snapshot_file(str(bomb))


def test_a_file_without_an_end_is_an_error() -> None:
    with (
        mock.patch.object(snapshots, "LARGEST_BYTES", 4 << 20),
        pytest.raises(InputError, match="a file of at most 4194304 bytes"),
    ):
        read_snapshot_file("/dev/zero")


def test_a_policy_that_is_a_bomb_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    laughs = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    deep = nested_json({"kind": "DeschedulerPolicy", "spec": {"profiles": [DEEP]}}, levels=2_000).decode()
    for text in (laughs, "a: &a [*a]", deep, f"a: {CLEAR}"):
        path = tmp_path / "policy.yaml"
        path.write_text(text)
        for command in (["policy", "lint", str(path)], ["plan", "--policy", str(path), "--snapshot", "-"]):
            assert run(command) == 2
            shown = capsys.readouterr()
            assert "a file in YAML" in shown.out + shown.err
            assert controls(shown.out + shown.err) == set()


def test_a_kubeconfig_that_is_a_bomb_is_one_line(tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "config"
    path.write_text("a: &a [*a]")
    assert run(["plan", "--kubeconfig", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_stand_in_is_shown_with_the_field(tmp_path: Path, capsys: Captured) -> None:
    odd = as_api(node("odd"), kind="Node") | {"metadata": msgspec.to_builtins(meta("odd")) | {EVIL: DEEP}}
    path = tmp_path / "deep.json"
    path.write_bytes(nested_json({"kind": "List", "apiVersion": "v1", "items": [odd]}))
    assert run(["plan", "--strategy", "consolidate", "--snapshot", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "is nested more" in shown
    assert controls(shown) == set()
