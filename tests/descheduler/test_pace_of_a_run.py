"""What a run writes and reads less often where each time takes long: a plan's status, and the whole cluster."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar, cast

from berth_core.migration_plans import MigrationPlanStatus
from berth_descheduler.migration.plans.status_writer import PlanStatusWriter
from berth_kube.client import KubeClient
from builders import FakeClock

P = ParamSpec("P")
T = TypeVar("T")


class AtOnce(Executor):
    """Does what is submitted at once, in the thread that submits it."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        done: Future[T] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


class SlowServer:
    """Takes so many seconds for a write."""

    def __init__(self, clock: FakeClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self.written: list[float] = []

    def merge_patch(self, *_: object, **__: object) -> dict[str, Any]:
        self.written.append(self._clock.monotonic())
        self._clock.advance(self._seconds)
        return {}


def seconds_apart(write_seconds: float) -> float:
    """Return how long after the first write of a status that always changes the second one begins."""
    clock = FakeClock()
    server = SlowServer(clock, write_seconds)
    writer = PlanStatusWriter(cast("KubeClient", server), "p", AtOnce(), interval_seconds=1.0, clock=clock)
    for number in range(2000):
        writer.offer(MigrationPlanStatus(message=str(number)))
        clock.advance(0.05)
        if len(server.written) > 1:
            break
    return server.written[1] - server.written[0]


def test_a_status_that_is_quickly_written_is_written_once_per_interval() -> None:
    assert 1.0 <= seconds_apart(0.01) < 1.2


def test_a_status_that_takes_long_to_write_is_written_less_often() -> None:
    assert 10.0 <= seconds_apart(2.0) < 10.2
