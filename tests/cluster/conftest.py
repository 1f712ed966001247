"""The fixtures that the cluster tests of the operator share."""

import pytest

from descheduling_stage import cluster, scene, serving_operator
from outages import early_outages, is_waiting, outage_in_a_run, outages, removal_of_a_kind
from reservation_stage import operator, stage

__all__ = [
    "cluster",
    "early_outages",
    "operator",
    "outage_in_a_run",
    "outages",
    "removal_of_a_kind",
    "scene",
    "serving_operator",
    "stage",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have the tests that wait for what plays in the background come last of all."""
    items.sort(key=is_waiting)
