"""Files that are replaced as a whole, so that a full disk or an interruption leaves the old one."""

import secrets
from pathlib import Path


def create_beside(path: Path) -> Path:
    """Create an empty file in the folder of another one, with the rights of that one if it exists; raises OSError."""
    beside = path.with_name(f".{path.stem[:40]}.{secrets.token_hex(4)}.tmp")
    beside.touch(exist_ok=False)
    if path.exists():
        beside.chmod(path.stat().st_mode & 0o777)
    return beside


def replace_file(path: Path, raw: bytes) -> None:
    """Write a file, in whose place the old one stays until all is written; raises OSError.

    What cannot be replaced is written to: a device or a pipe, or a file in a folder without the right to write.
    """
    path = path.resolve()
    try:
        beside = None if path.exists() and not path.is_file() else create_beside(path)
    except PermissionError:
        beside = None
    if beside is None:
        path.write_bytes(raw)
        return
    try:
        beside.write_bytes(raw)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
