"""What all commands of `berth` have in common: outputs, help, the name they are called by, colours."""

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import click
import pytest

from berth_core.snapshot import Snapshot
from berth_descheduler import registry
from berth_descheduler.cli.kubectl_completion import complete_for_kubectl
from berth_descheduler.cli.main import berth, run
from builders import node, pod

BERTH = "from berth_descheduler.cli.main import main; main()"
COLOUR = re.compile(r"\x1b\[(\d+;)*(3[0-7]|9[0-7])(;\d+)*m")
SNAPSHOT = Snapshot(nodes=(node("a"), node("b")), pods=(pod("web-0", node="a", cpu="10"), pod("waits", cpu="12")))
WRITE_NO_RESULTS = {
    ("snapshot",),
    ("ui",),
    ("policy", "convert"),
    *(("sandbox", name) for name in ("up", "down", "kubeconfig", "exec")),
}
"""They make a file, an object for kubectl, a page, a sandbox, print one path, or run what they are given."""


def commands(group: click.Group, above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, (*above, name))
        if not isinstance(found, click.Group) or found.invoke_without_command:
            yield (*above, name), found


COMMANDS = dict(commands(berth))
SHOW_OBJECTS = {"abort", "approve", "calendar", "drain", "plans", "policies", "run", "show", "top"}


@pytest.mark.parametrize("path", sorted(set(COMMANDS) - WRITE_NO_RESULTS), ids=" ".join)
def test_every_command_with_a_result_writes_it_for_people_and_for_machines(path: tuple[str, ...]) -> None:
    (option,) = [one for one in COMMANDS[path].params if one.name == "output"]
    assert isinstance(option.type, click.Choice)
    of_objects = {"name"} if path[0] in SHOW_OBJECTS and path[-1] != "lint" else set()
    assert set(option.type.choices) == {"table", "json", "yaml", "wide"} | of_objects
    assert option.default == "table"


SHORT = {"--namespace": "-n", "--output": "-o", "--selector": "-l", "--label-selector": "-l", "--all-namespaces": "-A"}


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_options_that_kubectl_has_are_as_short_as_there(path: tuple[str, ...]) -> None:
    for one in COMMANDS[path].params:
        for name, short in SHORT.items():
            assert name not in one.opts or short in one.opts


@pytest.mark.parametrize("path", sorted(COMMANDS), ids=" ".join)
def test_every_command_has_help_that_says_what_it_does(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*path, "--help"]) == 0
    assert re.match(rf"Usage: .* {' '.join(path)} \[", text := capsys.readouterr().out)
    assert re.search(r"\n\n  [A-Z].+\.\n", text, re.DOTALL)


def test_the_help_lists_every_command_once_under_a_heading(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = re.findall(
        r"^  ([a-z]+)  ", capsys.readouterr().out.partition("Look:")[2].partition("Exit codes")[0], re.MULTILINE
    )
    assert sorted(listed) == sorted({path[0] for path in COMMANDS})


def test_the_help_without_capabilities_has_no_heading_without_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "EVERY_CAPABILITY", ())
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert "\nMove pods now:\n" in text
    assert "Try it on this machine" not in text
    assert run(["demo"]) == 2


def test_the_help_has_every_exit_code_and_the_ways_of_completion(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    for line in ("  0    done", "  1    it failed", "  2    the input is wrong", "  130  interrupted"):
        assert line in text
    for shell in ("bash_source", "zsh_source", "fish_source"):
        assert f"_BERTH_COMPLETE={shell} berth" in text


def test_as_a_plugin_of_kubectl_it_calls_itself_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/kubectl-berth"])

    assert run(["plans", "--help"]) == 0
    assert "Usage: kubectl berth plans" in capsys.readouterr().out


def test_kubectl_is_told_what_may_follow_and_that_no_file_names_do(capsys: pytest.CaptureFixture[str]) -> None:
    complete_for_kubectl(["plans", "--ph"])
    first, last = capsys.readouterr().out.splitlines()
    assert first.startswith("--phase\t")
    assert last == ":4"

    complete_for_kubectl(["pla"])
    names = [line.partition("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert names == ["plan", "plans", ":4"]


def test_kubectl_is_told_where_names_of_files_follow(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["policy", "lint", ""], ["plan", "--snapshot", ""], ["show", "--report", ""]):
        complete_for_kubectl(words)
        assert capsys.readouterr().out == ":0\n"


def test_wrong_arguments_are_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["defragment"]) == 2
    assert run(["plans", "--colour"]) == 2
    assert "No such command 'defragment'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "meant"),
    [(["plann"], "plan"), (["drian", "node"], "drain"), (["sandbox", "upp"], "up"), (["policy", "lnt"], "lint")],
)
def test_a_command_that_is_spelt_nearly_so_is_named(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert re.search(rf"Did you mean [^?]*'{meant}'", capsys.readouterr().err)


@pytest.mark.parametrize("columns", ["60", "80", "120"])
def test_the_help_of_all_commands_cuts_no_sentence(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert run(["--help"]) == 0
    assert "..." not in capsys.readouterr().out.partition("\nLook:\n")[2]


# --- colours ----------------------------------------------------------------------------------------------------------


def seen_on_a_terminal(command: list[str], environment: dict[str, str]) -> str:
    """Return what a program writes to a terminal."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as running:
        os.close(theirs)
        parts = []
        with suppress(OSError):  # the program has closed its end
            while part := os.read(ours, 65536):
                parts.append(part)
        assert running.wait(180) == 0
    os.close(ours)
    return b"".join(parts).decode()


@pytest.mark.parametrize(
    ("settings", "want_colours"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["as it is", "with NO_COLOR", "on a terminal without colours"],
)
def test_a_terminal_gets_colours_unless_it_wants_none(
    tmp_path: Path, settings: dict[str, str], *, want_colours: bool
) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(SNAPSHOT.to_json())
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "HOME", "LANG"}}
    command = [sys.executable, "-c", BERTH, "plan", "--snapshot", str(path)]

    text = seen_on_a_terminal(command, {**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **settings})

    assert "Fragmentation" in text
    assert bool(COLOUR.search(text)) is want_colours


def test_a_pipe_gets_no_colours(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(SNAPSHOT.to_json())
    command = [sys.executable, "-c", BERTH, "plan", "--snapshot", str(path)]

    text = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout

    assert "Fragmentation" in text
    assert "\x1b" not in text
