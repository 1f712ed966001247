"""Read the written pages of the repository: their prose, their blocks of code and their links."""

import re
from pathlib import Path
from typing import Final

from conventions.tracked import ROOT, tracked_files

PAGES: Final = tuple(
    path for path in tracked_files() if path.suffix == ".md" and not path.is_relative_to(ROOT / "tests")
)
"""All pages, the generated ones included."""


def prose(page: Path) -> str:
    """Return a page without its code blocks, in which `#` begins a remark."""
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def blocks(language: str) -> list[str]:
    """Return the code blocks of all pages in one language."""
    return [block for page in PAGES for block in blocks_of(page, language)]


def blocks_of(page: Path, language: str) -> list[str]:
    """Return the code blocks of one page in one language."""
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def console_lines(page: Path) -> dict[str, list[str]]:
    """Return each command of a page's consoles with the lines of its output that the page shows."""
    shown: dict[str, list[str]] = {}
    for block in blocks_of(page, "console"):
        command = ""
        for line in block.splitlines():
            if line.startswith("$ "):
                command = line.removeprefix("$ ")
            shown.setdefault(command, []).extend([] if line.startswith("$ ") else [line])
    return shown


def section(heading: str) -> str:
    """Return the text under the one heading of all pages that reads so, up to the next one of its level."""
    mark = f"\n{heading}\n"
    (found,) = (text.partition(mark)[2] for page in PAGES if mark in (text := page.read_text(encoding="utf-8")))
    level = heading.partition(" ")[0]
    return found.partition(f"\n{level} ")[0]


def rows(text: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first column has a heading."""
    table = text.partition(f"| {first} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as they are made of the text."""
    heads = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def links(page: Path) -> list[str]:
    """Return the links to files and headings of the repository."""
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in link]


def names(page: Path) -> set[str]:
    """Return what a page has in code quotes."""
    return set(re.findall(r"`([^`\n]+)`", page.read_text(encoding="utf-8")))
