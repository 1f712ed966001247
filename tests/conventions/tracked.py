"""The list of the repository's files, as a fresh clone has them."""

import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_LEFT_OUT: Final = frozenset({"__pycache__", "dist", "node_modules"})


def _without_git() -> Iterator[Path]:
    for path in ROOT.rglob("*"):
        parts = path.relative_to(ROOT).parts
        if path.is_file() and not _LEFT_OUT.intersection(parts) and not _hidden(parts):
            yield path


def _hidden(parts: tuple[str, ...]) -> bool:
    return any(part.startswith(".") and part not in {".ci", ".github", ".gitignore"} for part in parts)


@cache
def tracked_files() -> tuple[Path, ...]:
    """Return every file under version control that exists; where git does not tell, every file that is not hidden."""
    git = shutil.which("git")
    asked = git and subprocess.run([git, "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if not asked or asked.returncode:
        return tuple(sorted(_without_git()))
    paths = (ROOT / name for name in asked.stdout.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files() -> tuple[Path, ...]:
    """Return the tracked Python modules."""
    return tuple(path for path in tracked_files() if path.suffix == ".py")


def text_files() -> Iterator[tuple[Path, str]]:
    """Yield the tracked files that are UTF-8 text, with it."""
    for path in tracked_files():
        raw = path.read_bytes()
        if b"\0" in raw:
            continue
        try:
            yield path, raw.decode()
        except UnicodeDecodeError:
            continue


def shown(path: Path) -> str:
    """Return the path as it stands in the repository."""
    return path.relative_to(ROOT).as_posix()
