"""A Go command for tests that builds nothing: it downloads, lists and compiles by saying so."""

import os
import shlex
import sys
from pathlib import Path

_COMMAND = """#!/bin/sh
exec {python} -I -S {script} "$@"
"""
_SCRIPT = """
import os, pathlib, sys, time
arguments = sys.argv[1:]
calls = pathlib.Path({calls!r})
with calls.open("a") as log:
    log.write(" ".join(arguments) + chr(10))
if arguments[:1] == ["env"]:
    print({version!r})
elif arguments[:1] == ["list"]:
    print("go: downloading example.com/one v1.0.0", file=sys.stderr)
    print("go: downloading example.com/two v1.0.0", file=sys.stderr)
    print(*["package/%d" % n for n in range(5)], sep=chr(10))
elif arguments[:1] == ["build"]:
    print(*["package/%d" % n for n in range(5)], sep=chr(10), file=sys.stderr, flush=True)
    while {waits_for!r} and not os.path.exists({waits_for!r}):
        time.sleep(0.02)
    if {failure!r}:
        sys.exit({failure!r})
    output = pathlib.Path(arguments[arguments.index("-o") + 1])
    packages = [a for a in arguments[arguments.index("-o") + 2:]]
    for package in packages:
        target = output / package.rsplit("/", 1)[-1] if len(packages) > 1 else output
        target.write_text("built with CGO_ENABLED=" + os.environ["CGO_ENABLED"])
        target.chmod(0o755)
"""


class FakeGo:
    """A folder for the PATH with a `go` in it, and what it was asked."""

    def __init__(
        self, folder: Path, *, version: str = "go1.99.0", failure: str | int = 0, waits_for: Path | None = None
    ) -> None:
        """A build fails as told, and waits until there is a file."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.command = folder / "go"
        self._calls = folder / "calls"
        script = folder / "go.py"
        script.write_text(
            _SCRIPT.format(
                calls=str(self._calls), version=version, failure=failure, waits_for=str(waits_for) if waits_for else ""
            )
        )
        python, path = shlex.quote(sys.executable), shlex.quote(str(script))
        self.command.write_text(_COMMAND.format(python=python, script=path))
        self.command.chmod(0o755)

    @property
    def path(self) -> str:
        """A PATH on which this Go stands first and no other Go can be found."""
        return os.pathsep.join([str(self.folder), "/bin"])

    def calls(self, verb: str) -> list[str]:
        """Return the command lines of one verb."""
        lines = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [line for line in lines if line.startswith(verb)]
