"""Calls that a loop makes in threads.

The loop takes the answers itself in its own thread, so nothing else needs a lock.
"""

import queue
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

R = TypeVar("R")


class Caller(Protocol):
    """The move or room that a call is made for."""

    in_flight: bool


def _ignore(_: object) -> None:
    """Take an answer that nothing depends on."""


class BackgroundCalls:
    """Makes calls in threads; calls `wake` for each answer."""

    def __init__(self, workers: int, wake: Callable[[], None]) -> None:
        self.pool = ThreadPoolExecutor(workers, thread_name_prefix="call")
        self._wake = wake
        self._answers: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_closing = False

    def make(self, call: Callable[[], R], then: Callable[[R], None] = _ignore) -> None:
        """Make a call in another thread, or in this one once `close` has waited for the others.

        `then` gets the answer in the thread that takes it.
        """

        def work() -> None:
            try:
                answer = call()
            except Exception as error:  # noqa: BLE001 - raised again in the loop's thread
                # Python unbinds `error` at the end of the except clause, before the lambda runs.
                failure = error
                self._answers.put(lambda: _raise(failure))
            else:
                self._answers.put(lambda: then(answer))
            self._wake()

        if self._is_closing:
            work()
        else:
            self.pool.submit(work)

    def make_for(self, caller: Caller, call: Callable[[], R], then: Callable[[R], None] = _ignore) -> None:
        """Make a call for a move or room, which is in flight until the answer is taken."""

        def answered(answer: R) -> None:
            # First, so that the answer itself may begin the next call.
            caller.in_flight = False
            then(answer)

        caller.in_flight = True
        self.make(call, answered)

    def take_answers(self) -> None:
        """Process the answers that have come; raises what a call raised."""
        while not self._answers.empty():
            self._answers.get()()

    def close(self) -> None:
        """Wait until every call is answered, and process the answers."""
        self.pool.shutdown(wait=True)
        # An answer may lead to a further call, such as the event of an eviction, which the pool does not take any more.
        self._is_closing = True
        self.take_answers()


def _raise(error: Exception) -> None:
    raise error
