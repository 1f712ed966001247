"""The site has every page, and is built without a dead link or a list that is none."""

import re
from pathlib import Path

import pytest

import website
from conventions.pages import PAGES
from conventions.tracked import shown


def test_the_site_has_every_page_once() -> None:
    listed = re.findall(r"^ +- .+: (\S+\.md)$", website.SETTINGS.read_text(encoding="utf-8"), re.MULTILINE)
    pages = [shown(page).replace(".github/", "project/") for page in PAGES]
    assert sorted(listed) == sorted(pages)
    assert {file for file in website.find_files() if file.suffix == ".md"} == set(PAGES)


@pytest.mark.deep
def test_the_site_is_built_without_a_dead_link_or_a_list_that_is_none(tmp_path: Path) -> None:
    website.build(tmp_path)
    built = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html") if path.name != "404.html"}
    assert len(built) == len(PAGES)
    for path, text in built.items():
        paragraphs = re.findall(r"<p>.*?</p>", text, re.DOTALL)
        assert not [one for one in paragraphs if re.search(r"\n *([-*] |\||\d+\. )", one)], path
        assert not re.search(r'(?:src|rel="stylesheet" href)="https?:', text), path
