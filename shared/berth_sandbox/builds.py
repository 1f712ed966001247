"""Builds of Go programs into the user's cache, each version once, with progress."""

import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from berth_sandbox.errors import SandboxUnavailableError
from berth_sandbox.folders import cache_folder
from berth_sandbox.go_modules import (
    GoModule,
    GoProgram,
    build_compile_command,
    build_download_command,
    build_list_command,
)
from berth_sandbox.go_toolchain import INSTEAD_OF_BUILDING, find_go, go_environment
from berth_sandbox.locks import exclusive_lock

_REPORT_EVERY_SECONDS: Final = 5.0
_REPORT_EVERY_SECONDS_IN_A_PIPE: Final = 60.0
_TAIL_LINES: Final = 12
_DOWNLOADING: Final = "go: downloading "
MANIFESTS_FOLDER: Final = "manifests"
"""Folder of a module's YAML files beside its programs."""


def cached_folder(module: GoModule) -> Path:
    """Return the cache folder of a module's programs for this machine."""
    machine = os.uname()
    return cache_folder() / module.cache_key(f"{machine.sysname.lower()}-{machine.machine}")


def build_programs(module: GoModule, progress: Callable[[str], None]) -> dict[str, Path]:
    """Return the module's programs, building those that are not cached yet.

    Raises `SandboxUnavailableError` when there is no Go or the build fails. One process builds at a time; a program
    appears under its name only when it is complete.
    """
    folder = cached_folder(module)
    wanted_paths = {program.name: folder / program.name for program in module.programs}
    if all(path.exists() for path in wanted_paths.values()):
        return wanted_paths
    with exclusive_lock(
        folder / ".lock",
        on_wait=lambda: progress(f"another process is building {module.name}; waiting for it"),
    ):
        missing_programs = [program for program in module.programs if not wanted_paths[program.name].exists()]
        if missing_programs:
            _build(module, missing_programs, folder, progress)
    return wanted_paths


def _build(module: GoModule, programs: Sequence[GoProgram], folder: Path, progress: Callable[[str], None]) -> None:
    """Build programs in a temporary folder of the cache and move them into place."""
    go = find_go(module.go_version())
    programs_text = f"{', '.join(program.name for program in programs)} {module.program_version()}"
    with _scratch_folder(folder) as scratch:
        _write_files(scratch, module.read_files())
        output = scratch / "bin"
        output.mkdir()
        step = GoStep(programs_text, scratch, progress)
        if module.other:
            released = step.download(go.command, module.requires, module.other)
            _write_files(scratch, module.complete_files(released))
        if module.patched is not None:
            original = step.download(go.command, module.patched.path, module.patched.version)
            copy = scratch / module.patched.folder
            _copy_writable(original, copy)
            (copy / module.patched.added_file).write_text(module.patched.added_text, encoding="utf-8")
        packages = step.run(build_list_command(go.command, programs))
        step.run(build_compile_command(go.command, module, programs, output), packages=packages)
        if module.manifests:
            _keep_manifests(step.download(go.command, module.requires, module.program_version()), module, folder)
        for program in programs:
            built = program.name if len(programs) == 1 else program.package.rpartition("/")[2]
            (output / built).replace(folder / program.name)
    progress(f"built {programs_text} in {step.elapsed_seconds:.0f} s")


def _write_files(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def _copy_writable(original: Path, copy: Path) -> None:
    """Copy a module out of Go's cache, where everything is read-only."""
    shutil.copytree(original, copy, copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(copy):
        Path(folder).chmod(0o755)


def _keep_manifests(source: Path, module: GoModule, folder: Path) -> None:
    """Copy the YAML files of a module into the cache."""
    manifests_folder = folder / MANIFESTS_FOLDER
    manifests_folder.mkdir(exist_ok=True)
    for name in module.manifests:
        for file in (source / name).glob("*.yaml"):
            shutil.copyfile(file, manifests_folder / file.name)


@contextmanager
def _scratch_folder(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside the programs; the leftovers of a killed build are removed first."""
    scratch = folder / ".building"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


class GoStep:
    """Runs Go commands for one build and reports progress: every few seconds on a terminal, else once a minute."""

    def __init__(self, programs: str, folder: Path, progress: Callable[[str], None]) -> None:
        self._programs = programs
        self._folder = folder
        self._progress = progress
        self._started = time.monotonic()
        self._reported_at = self._started
        self._modules = 0
        self._report_every_seconds = _REPORT_EVERY_SECONDS if sys.stderr.isatty() else _REPORT_EVERY_SECONDS_IN_A_PIPE

    @property
    def elapsed_seconds(self) -> float:
        """Seconds since the build began."""
        return time.monotonic() - self._started

    def run(self, command: Sequence[str], *, packages: int = 0) -> int:
        """Run a command to its end; return the number of packages that it printed.

        `packages` is the maximum of that number, 0 while it is unknown. Raises `SandboxUnavailableError`.
        """
        packages_seen = 0
        tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._report(
            f"building {self._programs} with {command[0]}" if not packages else self._describe(packages_seen, packages)
        )
        with _started(command, self._folder) as process:
            for line in _read_lines(process):
                if line.startswith(_DOWNLOADING):
                    self._modules += 1
                # The name of a package has no blank, so that any other line is a message.
                elif line.startswith("go: ") or " " in line:
                    tail.append(line)
                elif line:
                    packages_seen += 1
                if time.monotonic() - self._reported_at >= self._report_every_seconds:
                    self._report(self._describe(packages_seen, packages))
            status = process.wait()
        if status != 0:
            raise SandboxUnavailableError(_describe_failure(self._programs, command, tail))
        return packages_seen

    def download(self, go: Path, path: str, version: str) -> Path:
        """Return the folder of a module in Go's cache; raise `SandboxUnavailableError`."""
        command = build_download_command(go, path, version)
        with _started(command, self._folder) as process:
            output, _ = process.communicate()
        if process.returncode != 0:
            raise SandboxUnavailableError(
                _describe_failure(self._programs, command, output.splitlines()[-_TAIL_LINES:])
            )
        # What go downloads it reports on standard error, which is the same stream here.
        return Path(json.loads(output[output.index("{") :])["Dir"])

    def _report(self, line: str) -> None:
        self._reported_at = time.monotonic()
        self._progress(line)

    def _describe(self, seen: int, packages: int) -> str:
        compiled = f"{seen} of at most {packages} packages compiled"
        done = compiled if packages else f"{self._modules} modules downloaded"
        return f"building {self._programs}: {done}, {self.elapsed_seconds:.0f} s"


@contextmanager
def _started(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Yield a running Go command; an early exit from the block kills it and its compilers."""
    with subprocess.Popen(  # noqa: S603 - the command is ours and Go is the user's
        command,
        cwd=folder,
        env=go_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        # go starts compilers of its own; one signal to the session's group ends them all.
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def _read_lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield each line as it comes, and an empty line after each second without any."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def pump(stream: IO[str]) -> None:
        for line in stream:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    assert process.stdout is not None  # noqa: S101 - it was asked for
    threading.Thread(target=pump, args=(process.stdout,), daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=1.0)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line


def _describe_failure(programs: str, command: Sequence[str], tail: Sequence[str]) -> str:
    """Return the failure for the user: the end of Go's output, and alternatives to a build."""
    output = "\n".join(f"  {line}" for line in tail) or "  (it said nothing)"
    return (
        f"building {programs} failed: `{' '.join(command[:3])} ...` said\n{output}\n"
        f"The build needs the Go module proxy (GOPROXY) and room for Go's caches; without them: {INSTEAD_OF_BUILDING}"
    )
