"""Owns the threads in which the interface calls the API server, so that its event loop never waits.

It does not own the calls.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from berth_core.clock import Clock
from berth_descheduler.api.problems import ProblemError, ProblemKind

T = TypeVar("T")


class Workers:
    """A fixed number of threads; what is asked of them waits in turn, and not for ever."""

    def __init__(self, threads: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest")
        self._seconds = seconds

    async def run(self, work: Callable[[], T]) -> T:
        """Return what a thread makes of it; raises `ProblemError` where that takes too long, and what it raises."""
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            return await asyncio.wait_for(running, self._seconds)
        except TimeoutError as error:
            text = f"the cluster did not answer within {self._seconds:g} s"
            raise ProblemError(ProblemKind.TIMED_OUT, text) from error

    def close(self) -> None:
        """Take nothing more on; what runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)


# --- remembering -----------------------------------------------------------------------------------------------------
# A memory of answers that are good for a short while, and the asking of each question once at a time.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ShortMemory(Generic[K, V]):
    """Remembers at most so many answers, each until its time is over; for one event loop."""

    def __init__(self, clock: Clock, size: int) -> None:
        self._clock = clock
        self._size = size
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def answer(self, key: K, ask: Callable[[], Awaitable[V]], seconds: Callable[[V], float]) -> V:
        """Return the remembered answer, or ask and remember it for so many seconds; a failure is not remembered.

        Who asks the same meanwhile waits for the same answer.
        """
        until, answer = self._answers.get(key, (0.0, None))
        if answer is not None and self._clock.monotonic() < until:
            self._answers.move_to_end(key)
            return answer
        asking = self._asked.get(key)
        if asking is None:
            asking = asyncio.ensure_future(self._find(key, ask, seconds))
            self._asked[key] = asking
            asking.add_done_callback(lambda done: self._asked_is_over(key, done))
        return await asyncio.shield(asking)

    async def _find(self, key: K, ask: Callable[[], Awaitable[V]], seconds: Callable[[V], float]) -> V:
        answer = await ask()
        self._answers[key] = (self._clock.monotonic() + seconds(answer), answer)
        self._answers.move_to_end(key)
        if len(self._answers) > self._size:
            self._answers.popitem(last=False)
        return answer

    def _asked_is_over(self, key: K, done: "asyncio.Task[V]") -> None:
        del self._asked[key]
        if not done.cancelled():
            done.exception()  # told to those who wait; when nobody does any more, nobody is to be told

    def forget(self, key: K) -> None:
        """Drop an answer."""
        self._answers.pop(key, None)

    def __len__(self) -> int:
        return len(self._answers)
