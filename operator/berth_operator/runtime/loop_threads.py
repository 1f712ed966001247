"""Threads with event loops of their own, for work that must not wait for another loop."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class LoopThread:
    """Runs coroutines for other threads, from `start` to `stop`."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

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
        """Stop and close the loop; nothing may be scheduled afterwards."""
        if self._thread.is_alive():
            # `stop` itself is not thread-safe: a loop that waits in its selector would not notice it.
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()


def loop_answers(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Return whether another thread's event loop answers within `seconds`."""
    done = threading.Event()
    try:
        loop.call_soon_threadsafe(done.set)
    except RuntimeError:  # it is closed
        return False
    return done.wait(seconds)
