"""How the worker processes of a run share the tests: by file, and those of one control plane together."""

from collections.abc import Iterator
from typing import Any

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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Group what shares the control plane of a run, and have what waits for control planes begin at once.

    Deep tests stay apart: all of them together would keep one worker for most of an hour.
    """
    shared = {_file(item) for item in items if "sandbox" in getattr(item, "fixturenames", ())}
    for item in items:
        if _file(item) in shared and not item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.xdist_group("control plane"))
    yield
    if is_worker(config):
        items.sort(key=lambda item: (_file(item) not in shared, item.get_closest_marker("cluster") is None))


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]
