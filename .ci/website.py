#!/usr/bin/env python3
"""Build the site from the pages of the folders; a dead link fails.

Needs mkdocs-material, which the extra berth[dev] brings along.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
SETTINGS: Final = ROOT / ".github" / "site.yml"
_LINK: Final = re.compile(r"\]\(([^)\s#]+)")
_CODE: Final = re.compile(r"```.*?```", re.DOTALL)
_HIDDEN: Final = re.compile(r"(\]\((?:\.\./)*)\.github/")


def find_files(root: Path = ROOT) -> set[Path]:
    """Return the pages and files that links lead to from the README."""
    found: set[Path] = set()
    coming = [root / "README.md"]
    while coming:
        file = coming.pop()
        if file in found or not file.is_file():
            continue
        found.add(file)
        if file.suffix == ".md":
            text = _CODE.sub("", file.read_text(encoding="utf-8"))
            coming += [(file.parent / link).resolve() for link in _LINK.findall(text) if "://" not in link]
    return found


def copy_files(into: Path, root: Path = ROOT) -> None:
    """Copy what the site shows; hosts of sites leave out folders with a dot."""
    for file in find_files(root):
        folder, *rest = file.relative_to(root).parts
        target = into.joinpath("project" if folder == ".github" else folder, *rest)
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(_HIDDEN.sub(r"\1project/", file.read_text(encoding="utf-8")), encoding="utf-8")
        else:
            shutil.copyfile(file, target)


def build(into: Path) -> None:
    """Build the site into a folder; raises `CalledProcessError`."""
    with tempfile.TemporaryDirectory() as folder:
        pages, settings = Path(folder) / "pages", Path(folder) / "mkdocs.yml"
        copy_files(pages)
        settings.write_text(f"INHERIT: {SETTINGS}\ndocs_dir: {pages}\nsite_dir: {into.resolve()}\n", encoding="utf-8")
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(settings)]
        subprocess.run(command, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=Path("dist/site"), help="folder for the site")
    try:
        build(parser.parse_args().into)
    except subprocess.CalledProcessError as error:
        return int(error.returncode)
    return 0


if __name__ == "__main__":
    sys.exit(main())
