"""The fixtures that the cluster tests of the operator share."""

import pytest

from background_runs import early_runs, is_waiting
from cluster_fixtures import is_worker, nothing_is_left
from contention import contention
from demo_runs import demos
from descheduling_stage import cluster, paced_operator, paced_scene, scene, serving_operator
from outages import outage_in_a_run, outages, removal_of_a_kind
from reservation_stage import operator, stage
from volcano_ground import admin, extender_port, ground, operator_beside, own_configuration, volcano_sandbox

__all__ = [
    "admin",
    "cluster",
    "contention",
    "demos",
    "early_runs",
    "extender_port",
    "ground",
    "nothing_is_left",
    "operator",
    "operator_beside",
    "outage_in_a_run",
    "outages",
    "own_configuration",
    "paced_operator",
    "paced_scene",
    "removal_of_a_kind",
    "scene",
    "serving_operator",
    "stage",
    "volcano_sandbox",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Have the tests that wait for what plays in the background come last of all.

    Of several processes one takes them first, for they take longest.
    """
    items.sort(key=is_waiting, reverse=is_worker(config))
