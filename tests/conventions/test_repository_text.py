import re
from collections.abc import Iterator
from typing import Final

import pytest

from conventions.tracked import shown, text_files

# Each pattern is written so that it does not fit itself: this file is read too.
FORBIDDEN: Final = {
    "a path of somebody's machine": re.compile(r"(?<![\w.$}\])>-])/(?:w[o]rk|r[o]ot|h[o]me|U[s]ers)/"),
    "a path in the shared temporary folder": re.compile(r"(?<![\w.$}\])-])/t[m]p/"),
    "the address of a package index": re.compile(
        r"--(?:extra-)?index[-]url[ =]|f[i]les\.pythonhosted\.|p[y]pi\.org/simple|GOPROXY[=]http"
    ),
    "a number of a tracker": re.compile(r"\b[i]ssue #?\d+"),
    "a merge that was not finished": re.compile(r"^(?:<{7}|>{7}) ", re.MULTILINE),
}


def findings(pattern: re.Pattern[str]) -> Iterator[str]:
    for path, text in text_files():
        for found in pattern.finditer(text):
            yield f"{shown(path)}:{text.count(chr(10), 0, found.start()) + 1}: {found.group()!r}"


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_repository_does_not_contain(what: str) -> None:
    assert not list(findings(FORBIDDEN[what]))


@pytest.mark.parametrize(
    ("what", "text"),
    {
        "a path of somebody's machine": "see /" + "home/ann/berth",
        "a path in the shared temporary folder": "open('/" + "tmp/berth')",
        "the address of a package index": "pip install --index" + "-url https://mirror.example",
        "a number of a tracker": "as issue" + " 12 asks",
        "a merge that was not finished": "<" * 7 + " HEAD",
    }.items(),
)
def test_the_pattern_finds(what: str, text: str) -> None:
    assert FORBIDDEN[what].search(text)


def test_text_ends_with_one_line_end_and_no_line_ends_in_blanks() -> None:
    sources = (".py", ".yaml", ".toml", ".tpl", ".lock")
    untidy = [
        shown(path)
        for path, text in text_files()
        if path.suffix in sources
        and (re.search(r"[ \t]+$", text, re.MULTILINE) or (text and not re.search(r"[^\n]\n\Z", text)))
    ]
    assert not untidy
