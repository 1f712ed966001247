"""A cache of answers that expire, each of which is asked for once at a time."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from berth_core import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TtlCache(Generic[K, V]):
    """Keeps at most `size` answers until they expire; for one event loop."""

    def __init__(self, clock: Clock, size: int) -> None:
        self._clock = clock
        self._size = size
        self._answers: OrderedDict[K, tuple[float, V]] = OrderedDict()
        self._asked: dict[K, asyncio.Task[V]] = {}

    async def answer(self, key: K, ask: Callable[[], Awaitable[V]], seconds: Callable[[V], float]) -> V:
        """Return the cached answer, or ask and cache the answer for `seconds(answer)`; failures are not cached.

        Concurrent callers with the same key wait for the same answer.
        """
        until, answer = self._answers.get(key, (0.0, None))
        if answer is not None and self._clock.monotonic() < until:
            self._answers.move_to_end(key)
            return answer
        answer_task = self._asked.get(key)
        if answer_task is None:
            answer_task = asyncio.ensure_future(self._find(key, ask, seconds))
            self._asked[key] = answer_task
            answer_task.add_done_callback(lambda finished_task: self._asked_is_over(key, finished_task))
        # One caller that is cancelled must not cancel the answer of the others.
        return await asyncio.shield(answer_task)

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
            done.exception()  # marks it as retrieved: the waiting callers get it, and asyncio need not report it

    def forget(self, key: K) -> None:
        self._answers.pop(key, None)

    def __len__(self) -> int:
        return len(self._answers)
