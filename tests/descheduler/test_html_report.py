"""The page that `--report` writes: what it says, that it needs nothing else, and how it gets into its file."""

import json
import re
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from xml.etree.ElementTree import Element

import html5lib
import pytest

from berth_core.errors import InputError
from berth_core.migration_plans import (
    MoveReason,
    MoveState,
    MoveStatus,
    PlanPhase,
)
from berth_core.snapshot import Snapshot
from berth_descheduler.cli import run as run_command
from berth_descheduler.cli.main import run
from berth_descheduler.framework.refusals import RefusalReason, Refused, RefusedKind
from berth_descheduler.outcome import Forecast, Outcome, PlanOutcome, Verdict
from berth_descheduler.planner import Plan, PlannerSettings, WaveLimits, plan
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from berth_descheduler.report.html import ReportFile, render_page
from berth_descheduler.report.page import LISTED_PER_REASON, Occasion, ReportPage, Tone
from berth_descheduler.report.plan_page import plan_page, run_page
from berth_descheduler.settings import CycleSettings
from berth_kube.errors import ServerError
from berth_kube.resources import NODES
from builders import NOON, bare_pod, node, owner, pod
from descheduler.fake_cluster import call, failure, fragmented_cluster
from planner_settings import planner_settings

OCCASION = Occasion(NOON, "File snapshot.json")
NASTY = "<script>alert(1)</script>"
ATTRIBUTE = '"\' onmouseover=alert(1) x="'


def settings(**args: object) -> PlannerSettings:
    return planner_settings(args=DefragmentationArgs.parse(args), waves=WaveLimits(per_controller=1, per_wave=2))


def small_snapshot(name: str = "web", node_name: str = "low") -> Snapshot:
    nodes = (node("full", cpu="10"), node("high", cpu="10"), node(node_name, cpu="10"), node("void", cpu="10"))
    moved = [
        pod(f"{name}-{i}", node=node_name, cpu="500m", memory="1Gi", controller=owner(name=name)) for i in range(3)
    ]
    used = (
        bare_pod("a", node="high", cpu="8", memory=None),
        pod("b", node="full", cpu="10", memory=None, controller=owner(name="b")),
    )
    return Snapshot(nodes=nodes, pods=(*moved, *used))


def small_plan(name: str = "web", node_name: str = "low") -> Plan:
    return plan(small_snapshot(name, node_name), settings())


def room_plan() -> Plan:
    pods = [pod(f"p{i}", node=f"n{i}", cpu="4", memory=None, controller=owner(name=f"r{i}")) for i in range(2)]
    nodes = tuple(node(f"n{i}", cpu="10") for i in range(2))
    return plan(Snapshot(nodes=nodes, pods=tuple(pods)), settings(strategy="MakeRoom", room={"shapes": ["cpu=7"]}))


@cache
def large_plan(nodes: int = 5_000) -> Plan:
    named = tuple(node(f"n{i:04}", cpu="10") for i in range(nodes))
    used = tuple(
        pod(f"p{i:04}", node=f"n{i:04}", cpu="8" if i % 2 else "1", memory=None, controller=owner(name=f"r{i}"))
        for i in range(0, nodes, 3)
    )
    return plan(Snapshot(nodes=named, pods=used), planner_settings())


Ending = tuple[MoveState, str, str]
"""State, reason and message of a move."""


def statuses(made: Plan, *endings: Ending) -> tuple[MoveStatus, ...]:
    return tuple(
        MoveStatus(namespace=one.namespace, pod=one.pod, state=state, reason=reason, message=message, node=one.target)
        for one, (state, reason, message) in zip(made.moves, endings, strict=True)
    )


LANDED: Ending = (MoveState.LANDED, MoveReason.NONE, "")
BLOCKED: Ending = (MoveState.FAILED, MoveReason.EVICTION_BLOCKED, "budget web allows none")
SKIPPED: Ending = (MoveState.SKIPPED, MoveReason.SOURCE_NOT_EMPTIABLE, "an earlier move of low failed")


def finished(
    made: Plan,
    *endings: Ending,
    freed: tuple[str, ...] = (),
    pending: int = 0,
    note: str = "",
    frees_nodes: bool = True,
) -> Outcome:
    phase = PlanPhase.SUCCEEDED if freed else PlanPhase.PARTIAL
    done = PlanOutcome(
        "plan-1", phase, statuses(made, *endings), freed, pending, seconds=12.3, note=note, frees_nodes=frees_nodes
    )
    return Outcome(Verdict.CARRIED_OUT, done, Forecast(), seconds=13.0, phases={"snapshot": 0.5, "move": 12.0})


def parsed(page: ReportPage) -> Element:
    """Read a page as a browser does, and let nothing pass that a browser would have to guess at."""
    return parse(render_page(page))


def parse(text: str) -> Element:
    root: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(text)
    return root


def text_of(element: Element) -> str:
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip()


def section(root: Element, name: str) -> Element:
    (found,) = (one for one in root.iter("section") if one.get("aria-labelledby") == name)
    return found


def rows(element: Element) -> list[list[str]]:
    return [[text_of(cell) for cell in row] for row in element.iter("tr")]


PAGES = {
    "a plan": lambda: plan_page(small_plan(), OCCASION),
    "a plan that makes room": lambda: plan_page(room_plan(), OCCASION),
    "a plan without a node": lambda: plan_page(plan(Snapshot.empty(), planner_settings()), OCCASION),
    "a plan of many nodes": lambda: plan_page(large_plan(500), OCCASION),
    "a run that went well": lambda: run_page(
        finished(small_plan(), LANDED, LANDED, LANDED, freed=("low",)), small_plan(), OCCASION, settings=CycleSettings()
    ),
    "a run that did not": lambda: run_page(
        finished(small_plan(), LANDED, BLOCKED, SKIPPED), small_plan(), OCCASION, measured=small_plan().before
    ),
    "a run that found nothing to do": lambda: run_page(Outcome(Verdict.NOTHING_TO_MOVE), large_plan(3), OCCASION),
    "a run that was not let in": lambda: run_page(Outcome(Verdict.LEASE_HELD), None, OCCASION),
    "a plan with names that are programs": lambda: plan_page(small_plan(NASTY, ATTRIBUTE), Occasion(NOON, NASTY)),
}


@pytest.fixture(params=list(PAGES.values()), ids=list(PAGES), scope="module")
def text(request: pytest.FixtureRequest) -> str:
    return render_page(request.param())


# --- any page ---------------------------------------------------------------------------------------------------------


def test_a_page_is_html_without_a_mistake(text: str) -> None:
    root = parse(text)

    names = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(names) == len(set(names))
    assert {one.get("aria-labelledby") for one in root.iter("section")} <= set(names)


def test_a_page_needs_nothing_from_outside_and_runs_nothing(text: str) -> None:
    root = parse(text)

    assert not {"script", "link", "img", "iframe", "object", "base"} & {element.tag for element in root.iter()}
    attributes = {name for element in root.iter() for name in element.attrib}
    assert not [name for name in attributes if name in {"src", "href", "action"} or name.startswith("on")]
    (style,) = root.iter("style")
    assert not re.search(r"url\(|@import|http", style.text or "")
    policies = [
        one.get("content") or "" for one in root.iter("meta") if one.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policies[0].startswith("default-src 'none'; style-src 'unsafe-inline'")


def test_a_page_can_be_read_without_seeing_it_and_on_a_phone(text: str) -> None:
    root = parse(text)

    assert root.get("lang") == "en"
    assert len(list(root.iter("h1"))) == 1
    assert [one.get("content") for one in root.iter("meta") if one.get("name") == "viewport"]
    assert not [cell for cell in root.iter("th") if cell.get("scope") not in {"col", "row"}]
    assert all(any(cell.get("scope") == "col" for cell in table.iter("th")) for table in root.iter("table"))
    assert all(one.get("aria-label") for one in root.iter() if one.get("role") in {"img", "region"})
    assert all(next(iter(one)).tag == "summary" for one in root.iter("details"))


def test_names_are_shown_and_not_run() -> None:
    root = parsed(PAGES["a plan with names that are programs"]())

    moved = [text_of(cell) for cell in section(root, "moves").iter("th") if cell.get("scope") == "row"]
    assert [cell for cell in moved if cell.startswith(f"default/{NASTY}-0 cpu 500m, memory 1Gi")]
    titles = [one.get("title") or "" for one in section(root, "nodes").iter("i")]
    assert [title for title in titles if title.startswith(f"{ATTRIBUTE}: ")]
    assert NASTY in text_of(next(root.iter("header")))


def test_what_the_cluster_says_is_shown_and_not_run() -> None:
    made = small_plan()
    refused = Refused(RefusedKind.POD, "low", NASTY, ATTRIBUTE, RefusalReason.NO_TARGET, NASTY)
    failed = (MoveState.FAILED, NASTY, NASTY)
    outcome = finished(made, LANDED, failed, failed, note=NASTY)

    root = parsed(run_page(outcome, replace(made, refused=(refused,)), OCCASION))

    assert "script" not in {element.tag for element in root.iter()}
    assert f"Stopped: {NASTY}." in text_of(next(root.iter("h1")))
    assert rows(section(root, "troubles"))[1][-1] == f"✗ Failed {NASTY} {NASTY}"
    assert rows(section(root, "refusals"))[1] == [f"{NASTY}/{ATTRIBUTE}", NASTY]


def luminance(colour: str) -> float:
    digits = colour.lstrip("#")
    digits = digits if len(digits) == 6 else "".join(2 * digit for digit in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_texts_and_signs_stand_out_from_what_is_behind_them(scheme: int) -> None:
    css = (files("berth_descheduler") / "templates" / "report.css").read_text(encoding="utf-8")
    colours = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", css.split("(prefers-color-scheme:dark)")[scheme]))

    for behind in ("back", "panel"):
        for name in ("text", "soft", "link", "well", "badly"):
            assert contrast(colours[name], colours[behind]) >= 4.5, (name, behind)
    assert contrast(colours["edge"], colours["back"]) >= 3


# --- what a plan's page says ------------------------------------------------------------------------------------------


def test_a_plan_is_told_with_its_bound_its_moves_its_cost_and_its_settings() -> None:
    made = plan(small_snapshot(), settings(strategy="Consolidate"))
    root = parsed(plan_page(made, OCCASION))

    said = text_of(next(root.iter("header")))
    assert "Plan, not carried out" in said
    assert "3 moves in 3 waves free 1 of 4 nodes; 2 are empty then." in said
    assert "Proven optimal: no plan reaches more than 1 freed nodes" in said
    assert "upper bound 1 freed nodes, for any plan" in said
    assert "gap to the bound 0 proven optimal" in said
    assert "File snapshot.json; 20" in said
    waves = [text_of(one) for one in section(root, "moves").iter("summary")]
    assert waves == ["Wave 1: 1 move", "Wave 2: 1 move", "Wave 3: 1 move"]
    assert rows(section(root, "moves"))[1] == ["default/web-0 cpu 500m, memory 1Gi", "low → high"]
    assert rows(section(root, "costs"))[1] == ["0", "3"]
    assert ["strategy", "Consolidate"] in rows(section(root, "settings"))
    assert ["maxMoves", "no limit"] in rows(section(root, "settings"))
    assert ["protectionThresholds.cpu", "100"] in rows(section(root, "settings"))


def test_what_stays_is_grouped_by_reason_with_counts() -> None:
    shown = section(parsed(plan_page(small_plan(), OCCASION)), "refusals")

    summaries = [text_of(one) for one in shown.iter("summary")]
    assert summaries[0].startswith("2 nodes: NotLow for example full: cpu is 100 % requested")
    assert [row[0] for row in rows(shown) if row[0] != "what"][:2] == ["full", "high"]


def test_a_long_list_is_cut_and_says_so() -> None:
    page = plan_page(large_plan(), OCCASION)

    longest = max(page.refusals, key=lambda one: one.more)
    assert len(longest.rows) == LISTED_PER_REASON
    assert f"and {longest.more} more" in text_of(section(parsed(page), "refusals"))


def test_a_page_of_thousands_of_nodes_is_small_enough_for_a_phone() -> None:
    assert len(render_page(plan_page(large_plan(), OCCASION)).encode()) < 1_000_000


def test_room_is_shown_where_room_is_made() -> None:
    shown = section(parsed(plan_page(room_plan(), OCCASION)), "room")

    ((name, wanted, fit, before, after, where),) = rows(shown)[1:]
    assert (name, wanted, fit, before, after) == ("cpu=7", "most", "1", "0", "1")
    assert where in {"n0", "n1"}


def test_the_same_plan_gives_the_same_page() -> None:
    assert render_page(plan_page(small_plan(), OCCASION)) == render_page(plan_page(small_plan(), OCCASION))


# --- what a run's page says -------------------------------------------------------------------------------------------


def test_a_run_that_went_well_kept_what_was_predicted() -> None:
    made = small_plan()
    outcome = finished(made, LANDED, LANDED, LANDED, freed=("low",))

    page = run_page(outcome, made, OCCASION, measured=made.after, settings=CycleSettings())
    root = parsed(page)

    assert page.tone is Tone.WELL
    assert "✓ Run, Succeeded" in text_of(next(root.iter("header")))
    assert text_of(next(root.iter("h1"))) == "3 of 3 pods landed on their targets; 1 node freed in 12.3 s."
    assert rows(section(root, "promises"))[1:] == [
        ["pods landed on their target", "3", "3", "✓ yes"],
        ["nodes freed", "1", "1", "✓ yes"],
        ["ran elsewhere", "0", "0", "✓ yes"],
        ["skipped", "0", "0", "✓ yes"],
        ["failed", "0", "0", "✓ yes"],
        ["pods without a node", "0", "0", "✓ yes"],
        ["empty nodes at the end", "2", "2", "✓ yes"],
    ]
    assert [text_of(one) for one in section(root, "nodes").iter("h3")] == ["before", "after, measured and as planned"]
    assert "troubles" not in [one.get("id") for one in root.iter()]
    assert ["timeouts.reserve", "60s"] in rows(section(root, "settings"))
    assert rows(section(root, "seconds"))[1:] == [["snapshot", "0.50 s"], ["move", "12.00 s"], ["in all", "13.00 s"]]


def test_room_that_was_made_and_taken_breaks_no_promise_of_empty_nodes() -> None:
    made = room_plan()
    outcome = finished(made, LANDED, frees_nodes=False)

    page = run_page(outcome, made, OCCASION, measured=made.before, settings=CycleSettings())

    assert len(made.after.empty_nodes) > len(made.before.empty_nodes)
    assert "empty nodes at the end" not in [one.label for one in page.promises]
    assert {one.kept for one in page.promises} == {True}


def test_a_run_that_did_not_go_well_says_what_and_why() -> None:
    made = small_plan()

    page = run_page(finished(made, LANDED, BLOCKED, SKIPPED, pending=1), made, OCCASION, measured=made.before)
    root = parsed(page)

    assert page.tone is Tone.BADLY
    assert "✗ Run, Partial" in text_of(next(root.iter("header")))
    assert [row[0] for row in rows(section(root, "promises")) if row[-1] == "✗ no"] == [
        "pods landed on their target",
        "nodes freed",
        "skipped",
        "failed",
        "pods without a node",
        "empty nodes at the end",
    ]
    assert "Not freed: low." in text_of(section(root, "promises"))
    assert [row[2] for row in rows(section(root, "troubles"))[1:]] == [
        "✗ Failed EvictionBlocked budget web allows none",
        "↓ Skipped SourceNotEmptiable an earlier move of low failed",
    ]
    assert [text_of(one) for one in section(root, "nodes").iter("h3")] == [
        "before",
        "after, as planned",
        "after, as measured",
    ]
    assert [text_of(one) for one in section(root, "moves").iter("summary")] == [
        "Wave 1: 1 move, 1 landed",
        "Wave 2: 1 move, 1 failed",
        "Wave 3: 1 move, 1 skipped",
    ]


def test_a_pod_that_runs_elsewhere_is_shown_with_its_node() -> None:
    made = small_plan()
    outcome = finished(made, (MoveState.ELSEWHERE, MoveReason.NONE, ""), LANDED, LANDED)
    assert outcome.plan is not None
    first, *rest = outcome.plan.statuses
    strayed = MoveStatus(namespace=first.namespace, pod=first.pod, state=first.state, node="void")
    outcome = replace(outcome, plan=replace(outcome.plan, statuses=(strayed, *rest)))

    (row,) = run_page(outcome, made, OCCASION).troubles

    assert (row.target, row.node, row.state) == ("high", "void", MoveState.ELSEWHERE)


def test_a_dry_run_is_shown_as_a_plan() -> None:
    made = small_plan()

    page = run_page(Outcome(Verdict.DRY_RUN, forecast=Forecast(summary="3 moves")), made, OCCASION)

    assert (page.tone, page.promises, len(page.waves)) == (Tone.PLANNED, (), 3)


# --- the file ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "snapshot.json"
    path.write_bytes(small_snapshot().to_json())
    return str(path)


def test_the_template_is_where_an_installed_berth_finds_it() -> None:
    folder = files("berth_descheduler") / "templates"

    assert {"report.css", "report.html.j2"} <= {one.name for one in folder.iterdir()}


def test_berth_plan_writes_a_page_beside_what_it_prints(
    snapshot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    arguments = ["plan", "--snapshot", snapshot, "--report", str(target), "--output", "json"]

    assert run(arguments) == 0

    printed = capsys.readouterr()
    assert json.loads(printed.out)["predicted"]["freedNodes"] == ["low"]
    assert f"wrote {target}\n" in printed.err
    assert text_of(next(parse(target.read_text(encoding="utf-8")).iter("h1"))).endswith(
        "free 1 of 4 nodes; 2 are empty then."
    )
    assert f"File {snapshot}" in target.read_text(encoding="utf-8")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["report.html", "snapshot.json"]


BAD_FILES = {
    "a folder": (".", "a file to write to, such as report.html"),
    "standard output": ("-", "a file to write to, such as report.html"),
    "no name": ("", "a file to write to, such as report.html"),
    "a folder that is not there": ("nowhere/report.html", "a file that can be written (No such file or directory)"),
    "a folder that is a file": ("plain/report.html", "a file that can be written (Not a directory)"),
    "a name that is too long": ("x" * 300, "a file that can be written (File name too long)"),
    "a device": ("/dev/null", "a file to write to, such as report.html"),
}


@pytest.mark.parametrize(("name", "want"), BAD_FILES.values(), ids=BAD_FILES.keys())
def test_a_file_that_cannot_be_written_is_refused_before_any_work(
    name: str, want: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "plain").touch()
    monkeypatch.chdir(tmp_path)

    assert run(["plan", "--snapshot", "missing.json", "--report", name]) == 2

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("berth: --report is '")
    assert captured.err.endswith(f"; expected {want}\n")
    assert [one.name for one in tmp_path.iterdir()] == ["plain"]


def test_a_page_that_cannot_be_written_to_its_end_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    file = ReportFile.parse(str(target))

    def full(_: Path, __: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(InputError, match="No space left on device"):
        file.write(plan_page(small_plan(), OCCASION))

    assert [(one.name, one.read_text(encoding="utf-8")) for one in tmp_path.iterdir()] == [("report.html", "old")]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to(tmp_path / "real.html")

    ReportFile.parse(str(tmp_path / "link.html")).write(plan_page(small_plan(), OCCASION))

    assert (tmp_path / "link.html").is_symlink()
    assert (tmp_path / "real.html").read_text(encoding="utf-8").startswith("<!doctype html>")


# --- berth run --------------------------------------------------------------------------------------------------------


@pytest.fixture
def _cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a small cluster in memory in place of the API server."""
    made = fragmented_cluster()
    monkeypatch.setattr(run_command, "connect", lambda **_: made)
    monkeypatch.setattr(run_command, "configure_logs", lambda *_, **__: None)


@pytest.mark.usefixtures("_cluster")
def test_berth_run_writes_what_was_predicted_and_what_was_measured(tmp_path: Path) -> None:
    target = tmp_path / "run.html"

    options = ["--strategy=threshold", "--per-controller", "5", "--price", "node=0.5"]
    assert run(["run", "--yes", *options, "--report", str(target)]) == 0

    assert "worth 1.00 an hour" in target.read_text(encoding="utf-8")
    root = parse(target.read_text(encoding="utf-8"))
    assert text_of(next(root.iter("h1"))).startswith("3 of 3 pods landed on their targets; 2 nodes freed in ")
    assert {row[-1] for row in rows(section(root, "promises"))[1:]} == {"✓ yes"}
    assert [text_of(one) for one in section(root, "nodes").iter("h3")] == ["before", "after, measured and as planned"]


@pytest.mark.usefixtures("_cluster")
def test_a_run_whose_end_cannot_be_looked_at_has_a_page_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "run.html"

    def unreadable(_: object) -> Snapshot:
        raise ServerError(call("list", NODES, ""), failure(500))

    monkeypatch.setattr(run_command, "read_live_snapshot", unreadable)

    assert run(["run", "--yes", "--strategy=threshold", "--per-controller", "5", "--report", str(target)]) == 0
    assert [text_of(one) for one in section(parse(target.read_text(encoding="utf-8")), "nodes").iter("h3")] == [
        "before",
        "after, as planned",
    ]
