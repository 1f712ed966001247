"""Alerts and dashboard ask for metrics, labels and values of labels that the programs have."""

import json
import re
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from itertools import pairwise

import pytest
import yaml
from prometheus_client import CollectorRegistry

from berth_core.migration_plans import MoveMethod, MoveReason, MoveState
from berth_core.reservations import ReservationPhase, ReservationReason, SlotState
from berth_descheduler.api.access_log import RequestMetrics
from berth_descheduler.policy_metrics import PolicyMetrics
from berth_operator.metrics import REGISTRY
from builders import FakeClock
from conventions.generate_copies import CHART
from conventions.pages import anchors
from conventions.tracked import ROOT
from monitoring_expressions import ALERTS, DASHBOARD, EXPRESSIONS, SELECTOR

MEANINGS: Mapping[tuple[str, str], Iterable[object]] = {
    ("berth_slots", "state"): SlotState,
    ("berth_reservation_phase_changes_total", "phase"): ReservationPhase,
    ("berth_reservation_phase_changes_total", "reason"): ReservationReason,
    ("berth_moves_total", "method"): MoveMethod,
    ("berth_moves_total", "state"): MoveState,
    ("berth_moves_total", "reason"): MoveReason,
    ("berth_policies", "valid"): ("true", "false"),
    ("berth_queue_guarantee_amount", "part"): ("guaranteed", "left", "usable", "placeable"),
    ("berth_rest_requests_total", "status"): [status.value for status in HTTPStatus],
}
OF_A_SCRAPE = {"instance"}
"""Labels that Prometheus itself adds."""

MATCHER = re.compile(r'(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"')
GROUPING = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")


def labels_of_series() -> dict[str, set[str]]:
    """Return every series that the programs can have, with its labels."""
    descheduler = CollectorRegistry()
    PolicyMetrics(descheduler, FakeClock())
    RequestMetrics(descheduler)
    found: dict[str, set[str]] = {}
    for registry in (REGISTRY, descheduler):
        for collector, names in registry._collector_to_names.items():
            labels = set(collector._labelnames)  # type: ignore[attr-defined]
            for name in names:
                found[name] = labels | ({"le"} if name.endswith("_bucket") else set())
    return found


SERIES = labels_of_series()


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_names_series_that_exist(name: str) -> None:
    asked = {series for series, _ in SELECTOR.findall(EXPRESSIONS[name])}
    assert asked
    assert asked <= set(SERIES)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_names_labels_and_values_that_exist(name: str) -> None:
    grouped = {label.strip() for text in GROUPING.findall(EXPRESSIONS[name]) for label in text.split(",")} - {""}
    known: set[str] = set(OF_A_SCRAPE)
    for series, matchers in SELECTOR.findall(EXPRESSIONS[name]):
        known |= SERIES[series]
        for label, values in MATCHER.findall(matchers or ""):
            assert label in SERIES[series]
            assert set(values.split("|")) <= {str(value) for value in MEANINGS[series, label]}
    assert grouped <= known


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_an_expression_is_whole(name: str) -> None:
    text = EXPRESSIONS[name]
    assert all(text.count(opening) == text.count(closing) for opening, closing in ("()", "{}", "[]"))
    assert text.count('"') % 2 == 0


def test_a_counter_is_asked_for_its_increase_only() -> None:
    for text in EXPRESSIONS.values():
        for found in re.finditer(r"berth_[a-z_]+_(?:total|bucket)\b", text):
            assert re.search(r"(?:rate|increase)\($", text[: found.start()])


def test_the_dashboard_shows_every_metric() -> None:
    text = DASHBOARD.read_text(encoding="utf-8")
    bases = {re.sub(r"_(?:bucket|sum|count|created|total)$", "", name) for name in SERIES}
    assert not [name for name in bases if name not in text]


def test_an_alert_says_what_it_means_and_how_bad_it_is() -> None:
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"warning", "critical"}
            assert set(rule["annotations"]) == {"summary", "description", "runbook_url"}


def test_every_alert_has_its_heading_on_the_page_of_the_runbooks_and_no_other_has() -> None:
    groups = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    page = (
        ROOT / yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))["monitoring"]["rules"]["runbookPage"]
    )
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == [*(rule["alert"] for rule in rules), "Traces"]
    asked = [rule["annotations"]["runbook_url"] for rule in rules]
    assert {f"RUNBOOK_PAGE#{anchor}" for anchor in anchors(page)} >= set(asked)
    assert len(set(asked)) == len(rules)


def test_the_panels_of_the_dashboard_do_not_cover_one_another() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    cells = [
        (column, line)
        for place in (panel["gridPos"] for panel in panels)
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_every_panel_of_the_dashboard_is_below_the_title_of_its_row() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    by_place = sorted(panels, key=lambda panel: (panel["gridPos"]["y"], panel["gridPos"]["x"]))
    rows = [panel for panel in panels if panel["type"] == "row"]
    assert panels == by_place
    assert panels[0] in rows
    assert len({row["title"] for row in rows}) == len(rows) > 1
    assert [row for row, after in pairwise(panels) if row in rows and after in rows] == []
