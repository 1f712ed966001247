"""Threads that call the API server, so that the event loop never blocks."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from berth_descheduler.api.problems import ProblemError, ProblemKind

T = TypeVar("T")


class Workers:
    """A thread pool whose callers wait in turn, each with a time limit."""

    def __init__(self, threads: int, seconds: float) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rest")
        self._seconds = seconds

    async def run(self, work: Callable[[], T]) -> T:
        """Run a function in a thread; raises `ProblemError` at the time limit."""
        future = asyncio.get_running_loop().run_in_executor(self._pool, work)
        try:
            # Only the wait ends at the time limit: the thread is taken until the client's own timeout ends its call.
            return await asyncio.wait_for(future, self._seconds)
        except TimeoutError as error:
            text = f"the cluster did not answer within {self._seconds:g} s"
            raise ProblemError(ProblemKind.TIMED_OUT, text) from error

    def close(self) -> None:
        """Cancel what is queued; running calls are not awaited."""
        self._pool.shutdown(wait=False, cancel_futures=True)
