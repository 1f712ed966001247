"""Owns a thread with an event loop of its own, for what must not wait for the work of another loop.

It does not own what runs there.
"""

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
        """Start the thread, once."""
        self._thread.start()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what a coroutine returns there, or raise what it raises."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def call_soon(self, act: Callable[[], None]) -> None:
        """Have something done there, between two steps of what runs there."""
        self._loop.call_soon_threadsafe(act)

    @property
    def is_alive(self) -> bool:
        """Tell whether the loop runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the loop; nothing is to run there any more. One that never ran is only closed."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()
