"""A Go command for tests that builds nothing: it downloads, lists and compiles by saying so."""

import os
import shlex
import sys
from pathlib import Path

from berth_sandbox.go_modules import VOLCANO

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
elif arguments[:2] == ["mod", "download"]:
    if not {downloads!r}:
        sys.exit("verifying " + arguments[-1] + ": checksum mismatch")
    print("go: downloading " + arguments[-1], file=sys.stderr)
    name = pathlib.Path(calls).parent / "modules" / arguments[-1].replace("/", "-")
    for folder in {folders!r}:
        (name / folder).mkdir(parents=True, exist_ok=True)
        (name / folder / "one.yaml").write_text(folder)
        (name / folder / "one.yaml").chmod(0o444)
        (name / folder).chmod(0o555)
    if name.is_dir():
        (name / "go.mod").write_text("module " + arguments[-1].split("@")[0] + chr(10))
        (name / "go.sum").write_text("example.com/one v1.0.0 h1:of-the-release=" + chr(10))
    print(chr(123) + '"Dir": "' + str(name) + '"' + chr(125))
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
        sources = "".join(file.read_text() for file in sorted(pathlib.Path().glob("*/**/*.go")))
        target.write_text("built with CGO_ENABLED=" + os.environ["CGO_ENABLED"] + sources)
        target.chmod(0o755)
"""

_FOLDERS = (*VOLCANO.manifests, "pkg/apis/scheduling/v1beta1")
"""Of every module that it downloads, each with one file; all of them are read-only, as in Go's own cache."""


class FakeGo:
    """A folder for the PATH with a `go` in it, and what it was asked."""

    def __init__(
        self,
        folder: Path,
        *,
        version: str = "go1.99.0",
        failure: str | int = 0,
        waits_for: Path | None = None,
        downloads: bool = True,
    ) -> None:
        """A build fails as told, and waits until there is a file; `downloads` says whether modules can be had."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.command = folder / "go"
        self._calls = folder / "calls"
        script = folder / "go.py"
        script.write_text(
            _SCRIPT.format(
                calls=str(self._calls),
                version=version,
                failure=failure,
                waits_for=str(waits_for) if waits_for else "",
                folders=_FOLDERS,
                downloads=downloads,
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
