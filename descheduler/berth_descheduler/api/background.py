"""Owns the threads in which the interface calls the API server, so that its event loop never waits.

It does not own the calls.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

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
