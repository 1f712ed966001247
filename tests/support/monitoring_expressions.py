"""The expressions of the chart's alerts and dashboard, and what they ask for."""

import json
import re
from collections.abc import Iterator

import yaml

from conventions.generate_copies import CHART

ALERTS = CHART / "monitoring" / "alerts.yaml"
DASHBOARD = CHART / "monitoring" / "dashboard.json"
SELECTOR = re.compile(r"\b(berth_[a-z_]+)(?:\{([^}]*)\})?")


def expressions() -> Iterator[tuple[str, str]]:
    """Yield each expression with what it is for."""
    for group in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])
    for panel in json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]:
        targets = panel.get("targets", ())  # a row has none
        yield from ((f"{panel['title']} {target['refId']}", target["expr"]) for target in targets)


EXPRESSIONS = dict(expressions())


def asked_series() -> set[str]:
    """Return the series that are asked for."""
    return {series for text in EXPRESSIONS.values() for series, _ in SELECTOR.findall(text)}
