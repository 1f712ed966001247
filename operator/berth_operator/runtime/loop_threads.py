"""Threads with event loops of their own, for work that must not wait for another loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

_END_SECONDS: Final = 1.0

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, from `start` to `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop and return its result."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call_soon(self, act: Callable[[], None]) -> None:
        """Schedule a callback on the loop."""
        self._loop.call_soon_threadsafe(act)

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def stop(self) -> None:
        """Cancel what still runs, then stop and close the loop; nothing may be scheduled afterwards."""
        if self._thread.is_alive():
            # `stop` itself is not thread-safe: a loop that waits in its selector would not notice it.
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        self._loop.run_forever()
        # Such as handshakes that wait for their peer: asyncio would log each of them as an error.
        if tasks := asyncio.all_tasks(self._loop):
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.wait(tasks, timeout=_END_SECONDS))


def loop_answers(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Return whether another thread's event loop answers within `seconds`."""
    done = threading.Event()
    try:
        loop.call_soon_threadsafe(done.set)
    except RuntimeError:  # it is closed
        return False
    return done.wait(seconds)
