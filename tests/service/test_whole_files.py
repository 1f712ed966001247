"""A file is replaced as a whole, or stays as it was."""

import errno
import os
from pathlib import Path

import pytest

from berth_service.whole_files import replace_file


def test_a_file_is_replaced_and_keeps_its_rights(tmp_path: Path) -> None:
    file, link = tmp_path / "a.json", tmp_path / "link.json"
    file.write_bytes(b"old")
    file.chmod(0o600)
    link.symlink_to(file)
    replace_file(link, b"new")
    assert (file.read_bytes(), link.is_symlink(), file.stat().st_mode & 0o777) == (b"new", True, 0o600)
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", "link.json"}


@pytest.mark.parametrize("old", [None, b"old"], ids=["new", "there"])
def test_a_full_disk_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: bytes | None) -> None:
    file = tmp_path / "a.json"
    if old is not None:
        file.write_bytes(old)
    write = Path.write_bytes

    def write_a_part(path: Path, raw: bytes) -> int:
        write(path, raw[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_bytes", write_a_part)
    with pytest.raises(OSError, match="No space left"):
        replace_file(file, b"new")
    assert [path.read_bytes() for path in tmp_path.iterdir()] == ([] if old is None else [old])


def test_a_device_is_written_to() -> None:
    replace_file(Path(os.devnull), b"new")
    assert not Path(os.devnull).is_file()


def test_a_file_whose_folder_lets_none_be_made_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b"old")

    def refuse(_path: Path, **_options: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "touch", refuse)
    replace_file(file, b"new")
    assert file.read_bytes() == b"new"
