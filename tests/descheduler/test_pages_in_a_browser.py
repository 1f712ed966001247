"""The report and the page of the HTTP interface in a real browser: on a phone, in the dark, on paper, for everybody."""

import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Final

import pytest

from berth_descheduler.cli.main import run
from berth_descheduler.report.html import render_page
from berth_descheduler.report.plan_page import plan_page
from browser import MISSING, PROGRAM, Browser, browsing, find_browser
from descheduler.rest_server import populated, serving
from descheduler.test_html_report import OCCASION, PAGES, small_plan

PHONE: Final = 390
DESK: Final = 1280
WIDE: Final = 2560
PAPER: Final = 717
"""What the margins leave of A4, in CSS pixels."""

DEMO: Final = "the plan of the demo"
LONG: Final = "a plan with long names"
REST: Final = "the HTTP interface"
OPENED: Final = (DEMO, LONG, "a plan that makes room", "a run that did not", REST)

TOO_WIDE: Final = "document.documentElement.scrollWidth - innerWidth"
CUT: Final = """
[...document.querySelectorAll("table")].filter(one => one.getBoundingClientRect().right > innerWidth).length
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The address of each page: of a file, or of an interface that runs."""
    folder = tmp_path_factory.mktemp("pages")
    made = {DEMO: folder / "plan.html"}
    snapshot = str(files("berth_descheduler.capabilities.demo") / "data" / "demo-snapshot.json.gz")
    assert run(["plan", "--snapshot", snapshot, "--report", str(made[DEMO])]) == 0
    pages = {**PAGES, LONG: lambda: plan_page(small_plan("web" * 20, f"ip-10-0-0-1.{'compute' * 30}"), OCCASION)}
    for number, name in enumerate(set(OPENED) & set(pages)):
        made[name] = folder / f"{number}.html"
        made[name].write_text(render_page(pages[name]()), encoding="utf-8")
    with serving(populated()) as url:
        yield {REST: f"{url}/docs", **{name: path.as_uri() for name, path in made.items()}}


def test_without_a_browser_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(PROGRAM, raising=False)
    with pytest.raises(AssertionError, match=r"apt-get install -y chromium"):
        find_browser()
    assert PROGRAM in MISSING


@pytest.mark.deep
@pytest.mark.parametrize("name", OPENED)
def test_a_page_can_be_used_by_everybody_on_a_phone_and_at_a_desk(
    name: str, browser: Browser, addresses: dict[str, str]
) -> None:
    browser.open(addresses[name], width=PHONE)
    assert browser.evaluate(TOO_WIDE) <= 0
    assert browser.find_barriers() == []
    browser.show(width=DESK, scheme="dark")
    assert browser.evaluate(TOO_WIDE) <= 0
    assert browser.find_pale_texts("header, section:nth-of-type(-n+2)") == []


@pytest.mark.deep
@pytest.mark.parametrize("name", OPENED)
def test_a_page_is_printed_on_a4_with_whole_tables_and_dark_on_white(
    name: str, browser: Browser, addresses: dict[str, str]
) -> None:
    browser.open(addresses[name], width=PAPER, scheme="dark")
    sizes = set(re.findall(rb"/MediaBox \[0 0 (\d+)[.\d]* (\d+)[.\d]*\]", browser.print_on_a4()))
    assert sizes == {(b"595", b"841")}
    browser.show(width=PAPER, scheme="dark", media="print")
    assert browser.evaluate(CUT) == 0
    assert browser.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert browser.evaluate("getComputedStyle(document.body).color") == "rgb(22, 32, 44)"


@pytest.mark.deep
def test_a_report_begins_with_gain_and_risk_and_unfolds_the_first_wave_alone(
    browser: Browser, addresses: dict[str, str]
) -> None:
    browser.open(addresses[DEMO], width=PHONE)
    text = browser.evaluate("document.body.innerText")
    places = [text.index(said) for said in ("Gain: ", "Risk: ", "Nodes\n", "Moves\n")]
    assert places == sorted(places)
    waves = browser.evaluate("[...document.querySelectorAll('#moves ~ details')].map(one => one.open)")
    assert waves == [True, *[False] * (len(waves) - 1)]
    assert len(waves) > 1


@pytest.mark.deep
def test_the_map_of_a_report_uses_a_wide_screen_and_lines_stay_short(
    browser: Browser, addresses: dict[str, str]
) -> None:
    browser.open(addresses[DEMO], width=WIDE)
    map_width = browser.evaluate("document.querySelector('.maps').getBoundingClientRect().width")
    line_width = browser.evaluate("Math.max(...[...document.querySelectorAll('p')].map(line => line.clientWidth))")
    assert map_width > 0.8 * WIDE
    assert 0 < line_width < 0.5 * WIDE
    assert browser.evaluate(TOO_WIDE) <= 0
