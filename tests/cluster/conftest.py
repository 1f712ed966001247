"""The fixtures that the cluster tests of the operator share."""

from pathlib import Path

import pytest

from descheduling_stage import cluster, scene, serving_operator
from outages import early_outages, outages
from reservation_stage import operator, stage

__all__ = ["cluster", "early_outages", "operator", "outages", "scene", "serving_operator", "stage"]

OUTAGES = {"outage", "outages"}
"""Fixtures that play for minutes in the background."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests that wait for an outage come last in their module, whatever the order of the others."""
    modules: dict[Path, int] = {}
    for item in items:
        modules.setdefault(item.path, len(modules))
    items.sort(key=lambda item: (modules[item.path], not OUTAGES.isdisjoint(getattr(item, "fixturenames", ()))))
