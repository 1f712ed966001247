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


CONTROL_PLANES: Final = ("sandbox", "cluster")
"""The fixtures of control planes that the tests of a run share, each of which one worker starts."""


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Group what shares a control plane of a run, and have what waits for control planes begin at once.

    Deep tests stay apart: all of them together would keep one worker for most of an hour.
    """
    shared = {
        _file(item): fixture
        for fixture in reversed(CONTROL_PLANES)
        for item in items
        if fixture in getattr(item, "fixturenames", ())
    }
    for item in items:
        if _file(item) in shared and not item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.xdist_group(shared[_file(item)]))
    yield
    if is_worker(config):
        grouped = (item.nodeid for item in items if item.get_closest_marker("xdist_group"))
        if config.getoption("loadgroup") and not all("@" in nodeid for nodeid in grouped):
            raise pytest.UsageError("pytest-xdist does not group tests with this pytest: see pyproject.toml")
        items.sort(
            key=lambda item: (_place_in_line(shared.get(_file(item))), item.get_closest_marker("cluster") is None)
        )


def _place_in_line(fixture: str | None) -> int:
    """Return how early tests begin: those of the control plane that most tests share first."""
    return len(CONTROL_PLANES) if fixture is None else CONTROL_PLANES.index(fixture)


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]
