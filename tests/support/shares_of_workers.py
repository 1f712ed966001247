"""How the worker processes of a run share the tests: by file, and those of one control plane together."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from xdist.scheduler import LoadGroupScheduling

from cluster_fixtures import is_worker


class ByFileAndControlPlane(LoadGroupScheduling):
    """Gives a worker a whole file, or all files on the same control plane, whose start takes seconds of a processor."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the group of a test, without one its file."""
        group: str = super()._split_scope(nodeid)
        return nodeid.split("::", 1)[0] if group == nodeid else group


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> ByFileAndControlPlane:  # noqa: ANN401 - classes of xdist
    return ByFileAndControlPlane(config, log)


WORKERS: Final = {"sandbox": 2, "cluster": 1}
"""The fixtures of control planes that the tests of a run share, and how many workers start one, as most is waiting."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Group what shares a control plane of a run, and have what waits for control planes begin at once.

    Deep tests stay apart: all of them together would keep one worker for most of an hour.
    """
    groups = _groups_of_files(items)
    for item in items:
        if _file(item) in groups and not item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.xdist_group(groups[_file(item)]))
    yield
    if is_worker(config):
        grouped = (item.nodeid for item in items if item.get_closest_marker("xdist_group"))
        if config.getoption("loadgroup") and not all("@" in nodeid for nodeid in grouped):
            raise pytest.UsageError("pytest-xdist does not group tests with this pytest: see pyproject.toml")
        items.sort(key=lambda item: (_file(item) not in groups, item.get_closest_marker("cluster") is None))


def _groups_of_files(items: list[pytest.Item]) -> dict[str, str]:
    """Return the group of each file with tests on a control plane that is shared, such as `sandbox-1`."""
    groups = {}
    for fixture, workers in WORKERS.items():
        files = {_file(item) for item in items if item.get_closest_marker("cluster") and fixture in _fixtures(item)}
        groups |= {file: f"{fixture}-{number % workers}" for number, file in enumerate(sorted(files - groups.keys()))}
    return groups


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]
