"""Long runs that play in a thread beside the tests, one after the other.

A test that takes a run as a fixture only waits for its result, after the tests that fill the time until then. Each run
has a control plane of its own, and mostly waits.
"""

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import Final, Generic, Self, TypeVar

import pytest

from cluster_fixtures import is_worker

T = TypeVar("T")

LONGEST_SECONDS: Final = 2400.0
"""Until all of them are over, on a machine that is busy with other tests as well."""

_turn: Final = threading.Lock()
"""Held by the run that plays: two control planes that come and go would slow down all that is waited for."""


class BackgroundRun(Generic[T]):
    """Plays in a thread of its own as soon as no other run does, and keeps what came of it."""

    def __init__(self, name: str, play: Callable[[], T], *, yields: bool = False) -> None:
        """With `yields` it uses one processor and leaves the others to the tests; not for what has to be quick."""
        self._play = play
        self._yields = yields
        self._found: Future[T] = Future()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until it is over; one that has not begun yet, as when the tests are broken off, never does."""
        self._found.cancel()
        self._thread.join(LONGEST_SECONDS)

    def result(self) -> T:
        """Return what came of it, or raise what went wrong."""
        return self._found.result(timeout=LONGEST_SECONDS)

    def _run(self) -> None:
        with _turn:
            if not self._found.set_running_or_notify_cancel():
                return
            try:
                if self._yields and sys.platform == "linux":
                    # For this thread and all that it starts. A niceness would hold among processes of one session only.
                    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
                self._found.set_result(self._play())
            except BaseException as error:  # noqa: BLE001 - the thread's boundary: `result` raises it
                self._found.set_exception(error)


IN_THE_BACKGROUND: Final = ("outages", "outage_in_a_run", "removal_of_a_kind", "contention", "demos")
"""The fixtures that begin runs, in the order in which these play."""


def is_waiting(item: pytest.Item) -> bool:
    """Return whether a test waits for what plays in the background."""
    return not set(IN_THE_BACKGROUND).isdisjoint(getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session", autouse=True)
def early_runs(request: pytest.FixtureRequest) -> None:
    """Begin with the first test of the folder what tests of the run will wait for.

    Processes that share the tests of a run each have all of them in view, so there they begin when they are asked for.
    """
    if is_worker(request.config):
        return
    wanted = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    for name in IN_THE_BACKGROUND:
        if name in wanted:
            request.getfixturevalue(name)
