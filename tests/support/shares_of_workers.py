"""How the worker processes of a run share the tests: by file, and a few workers take those of a control plane."""

from collections.abc import Iterator
from typing import Any, Final

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

from cluster_fixtures import is_worker

WORKERS: Final = {"sandbox": 2, "cluster": 1}
"""The fixtures of control planes that the tests of a run share, and how many workers start one, as most is waiting.

To start one takes seconds of a processor.
"""

_GROUPED_FILES: Final = pytest.StashKey[frozenset[str]]()
"""The files with tests that are given to the workers that start a control plane; none in a run of deep tests alone."""


class ByFileAndControlPlane(LoadGroupScheduling):
    """Gives a worker a file at a time: of the control plane that it has started, while there are any, then others."""

    def _split_scope(self, nodeid: str) -> str:
        """Return the file of a test, with the control plane that it needs, such as `test_chain.py@cluster`."""
        group: str = super()._split_scope(nodeid)
        file = nodeid.split("::", 1)[0]
        return file if group == nodeid else f"{file}@{group}"

    def _assign_work_unit(self, node: WorkerController) -> None:
        first = next(
            (scope for kind in self._kinds_for(node) for scope in self.workqueue if _kind(scope) == kind), None
        )
        if first is not None:
            self.workqueue.move_to_end(first, last=False)
        super()._assign_work_unit(node)

    def _kinds_for(self, node: WorkerController) -> Iterator[str]:
        """Yield which tests a worker takes, by control plane; "" needs none."""
        started = {worker: max(map(_kind, scopes), default="") for worker, scopes in self.assigned_work.items()}
        if own := started[node]:
            yield own
        else:
            yield from (kind for kind, workers in WORKERS.items() if list(started.values()).count(kind) < workers)
        yield ""


def _kind(scope: str) -> str:
    return scope.partition("@")[2]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> ByFileAndControlPlane:  # noqa: ANN401 - classes of xdist
    return ByFileAndControlPlane(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Name the control plane that a file needs, and have what waits for control planes begin at once.

    Deep tests stay apart: all of them together would keep a few workers for most of an hour.
    """
    kinds = _kinds_of_files(items)
    for item in items:
        if _file(item) in kinds and not item.get_closest_marker("deep"):
            item.add_marker(pytest.mark.xdist_group(kinds[_file(item)]))
    yield
    config.stash[_GROUPED_FILES] = frozenset(_file(item) for item in items if _is_grouped(item))  # of those chosen
    if is_worker(config):
        grouped = (item.nodeid for item in items if _is_grouped(item))
        if config.getoption("loadgroup") and not all("@" in nodeid for nodeid in grouped):
            raise pytest.UsageError("pytest-xdist does not group tests with this pytest: see pyproject.toml")
        items.sort(key=lambda item: (_file(item) not in kinds, item.get_closest_marker("cluster") is None))


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the shared control planes after the last file that needs one: an idle one takes seconds of each minute.

    Never within a file, whose own fixtures may look at the control plane at their end.
    """
    if (
        nextitem is None
        or _file(nextitem) == _file(item)
        or _file(item) not in item.config.stash[_GROUPED_FILES]
        or _is_needed_later(nextitem)
    ):
        return
    for name in WORKERS:
        for fixture in item.session._fixturemanager.getfixturedefs(name, item) or ():
            fixture.finish(item._request)  # type: ignore[attr-defined]


def _is_needed_later(nextitem: pytest.Item) -> bool:
    """Return whether a test from the next one on needs a shared control plane, as far as this process knows.

    A worker that takes a file without one gets no more with one; a test that asks all the same starts another.
    """
    if is_worker(nextitem.config):
        return _is_grouped(nextitem) or _needs_control_plane(nextitem)
    items = nextitem.session.items
    return any(map(_needs_control_plane, items[items.index(nextitem) :]))


def _needs_control_plane(item: pytest.Item) -> bool:
    return item.get_closest_marker("cluster") is not None and not WORKERS.keys().isdisjoint(_fixtures(item))


def _is_grouped(item: pytest.Item) -> bool:
    return item.get_closest_marker("xdist_group") is not None


def _kinds_of_files(items: list[pytest.Item]) -> dict[str, str]:
    """Return which shared control plane each file needs that needs one."""
    kinds: dict[str, str] = {}
    for fixture in WORKERS:
        files = {_file(item) for item in items if item.get_closest_marker("cluster") and fixture in _fixtures(item)}
        kinds = dict.fromkeys(files, fixture) | kinds
    return kinds


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _file(item: pytest.Item) -> str:
    return item.nodeid.split("::", 1)[0]
