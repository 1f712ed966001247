"""What a library prints, however it does, does not get into what a program writes to standard output."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

NOISE: Final = """
import ctypes, os
ctypes.CDLL(None).printf(b"noise of C, written at the end\\n")
os.write(1, b"noise of a descriptor\\n")
print("noise of Python")
"""
COMMAND: Final = f"""
from berth_service.standard_output import keep_output_apart, own_output
keep_output_apart()
{NOISE}
own_output().write("the answer\\n")
{NOISE}
"""
SERVICE: Final = f"""
import logging, sys, warnings
from berth_service.standard_output import keep_logs_apart, own_output
keep_logs_apart()
{NOISE}
from berth_service.logs import configure_logs
configure_logs("info", as_json=True)
{NOISE}
warnings.warn("a warning of a library")
logging.getLogger("ours").info("an entry")
print("begun", end="")
print(" and ended")
{NOISE}
"""


def run(code: str, **options: object) -> subprocess.CompletedProcess[bytes]:
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    return subprocess.run([sys.executable, "-c", code], check=False, timeout=300, **settings)  # type: ignore[call-overload, no-any-return]


def test_a_command_writes_only_what_it_writes_itself() -> None:
    done = run(COMMAND)
    assert (done.returncode, done.stdout) == (0, b"the answer\n")
    lines = done.stderr.decode().splitlines()
    assert sorted(lines) == sorted(
        2 * ["noise of C, written at the end", "noise of a descriptor", "noise of Python"],
    )


def test_what_is_printed_appears_when_it_is() -> None:
    """It would be of little use after all that it explains."""
    done = run(COMMAND + "import sys; sys.stderr.write('the end\\n')")
    lines = done.stderr.decode().splitlines()
    assert lines.index("noise of Python") < lines.index("the end")


def test_what_a_child_prints_is_kept_apart_too() -> None:
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(5)'], check=True)"
    done = run(f"{COMMAND}\n{child}")
    assert done.stdout == b"the answer\n"
    assert b"5\n" in done.stderr


def test_the_output_is_not_inherited_by_children(tmp_path: Path) -> None:
    """A process that stays would otherwise keep a pipe open whose reader waits for its end."""
    code = 'import subprocess; own_output().write(f\'{subprocess.Popen(["sleep", "3000"]).pid}\')'
    with (tmp_path / "errors").open("wb") as errors:
        done = run(f"{COMMAND}\n{code}", stderr=errors)
    answer, child = done.stdout.split(b"\n")
    os.kill(int(child), signal.SIGKILL)
    assert answer == b"the answer"


def test_a_program_that_the_process_becomes_has_the_output() -> None:
    becomes = "from berth_service.standard_output import give_output_back; give_output_back()"
    done = run(f"{COMMAND}\n{becomes}\nos.execvp('echo', ['echo', 'another answer'])")
    assert (done.returncode, done.stdout) == (0, b"the answer\nanother answer\n")


@pytest.mark.parametrize(("closed", "want"), [(1, b""), (2, b"the answer\n")])
def test_a_closed_descriptor_is_no_place_for_anything(closed: int, want: bytes, tmp_path: Path) -> None:
    """No file that is opened later gets its number, with what libraries print."""
    opened = tmp_path / "opened"
    code = (
        f"import os\nos.close({closed})\n{COMMAND}\nwith open({str(opened)!r}, 'w') as file: file.write('x')\n{NOISE}"
    )
    done = run(code)
    assert (done.returncode, done.stdout) == (0, want)
    assert opened.read_text() == "x"


def test_the_width_of_the_terminal_is_that_of_the_output() -> None:
    """Standard error, to which descriptor 1 leads by then, may be a file."""
    code = "import shutil; own_output().write(f'{shutil.get_terminal_size().columns}')"
    ours, theirs = os.openpty()
    subprocess.run(["stty", "cols", "77", "rows", "20"], stdin=theirs, check=True)
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    run(f"{COMMAND}\n{code}\nown_output().flush()", stdout=theirs, env=environment)
    assert os.read(ours, 1000).split()[-1] == b"77"
    os.close(ours)
    os.close(theirs)


def test_the_log_of_a_service_is_json_whatever_is_printed() -> None:
    done = run(SERVICE)
    assert (done.returncode, done.stdout) == (0, b"")
    entries = [json.loads(line) for line in done.stderr.splitlines()]
    events = [entry["event"] for entry in entries]
    assert [event for event in events if "warning of a library" not in event] == [
        "noise of Python",
        "an entry",
        "begun and ended",
        "noise of Python",
    ]
    assert len(events) == 5
