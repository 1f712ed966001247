"""Namespaces whose admission is slow, and how many workers may wait for them at once."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from berth_core import RetryableError

_SLOW_SECONDS: Final = 4.0
"""Below the 5 and 10 s after which API servers give up most webhooks that do not answer."""
_REMEMBERED_SECONDS: Final = 300.0
"""How long a namespace counts as slow after a slow answer; a quick one ends it at once."""
_WORKERS_PER_PLACE: Final = 4
"""One worker of so many may wait for slow namespaces."""
_TURN_SECONDS: Final = 20.0
"""How long a turn is kept: twice the longest time after which a Reservation is tried again."""


class SlowAdmissionError(RetryableError):
    """Admission in a namespace is slow, and no further worker may wait for it."""


class SlowAdmission:
    """Keeps workers free for hand-overs while admission in some namespaces hangs; thread-safe.

    An API server waits up to 30 s for a webhook (`timeoutSeconds`), and so does the worker that creates or patches a
    pod. While a policy engine is down, a few Reservations that are tried again and again would keep all workers.

    Slow namespaces take turns, however many pods are tried in one of them: Berth's own may be among them, and its first
    quick answer ends that.
    """

    def __init__(self, workers: int = 1, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._places = max(1, workers // _WORKERS_PER_PLACE)
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._under_way: dict[str, list[float]] = {}
        """When each call under way began, by namespace."""
        self._slow_until: dict[str, float] = {}
        """Until when a namespace counts as slow whose last answer was slow."""
        self._turns: dict[str, float] = {}
        """The namespaces that were turned away, in that order, and until when their turns are kept."""

    @contextmanager
    def asking(self, namespace: str, *, is_dispensable: bool = False) -> Iterator[None]:
        """Count the block as a call that has to pass admission in a namespace.

        Raises `SlowAdmissionError` where admission is slow there and a quarter of the workers wait for slow namespaces
        already. A dispensable call waits for no slow namespace.
        """
        began = self._begin(namespace, 0 if is_dispensable else self._places)
        try:
            yield
        finally:
            self._end(namespace, began)

    def _begin(self, namespace: str, places: int) -> float:
        now = self._monotonic()
        with self._lock:
            if self._is_slow(namespace, now) and not self._is_next(namespace, places, now):
                if places:
                    self._turns[namespace] = now + _TURN_SECONDS  # at the place in the order that it has
                raise SlowAdmissionError(
                    f"admission in namespace {namespace} takes longer than {_SLOW_SECONDS:g} s, so few pods are tried "
                    "there at once"
                )
            self._turns.pop(namespace, None)
            self._under_way.setdefault(namespace, []).append(now)
        return now

    def _end(self, namespace: str, began: float) -> None:
        now = self._monotonic()
        with self._lock:
            calls = self._under_way[namespace]
            calls.remove(began)
            if not calls:
                del self._under_way[namespace]
            self._slow_until.pop(namespace, None)
            if now - began >= _SLOW_SECONDS:
                self._slow_until[namespace] = now + _REMEMBERED_SECONDS
                for name in [name for name, until in self._slow_until.items() if until <= now]:
                    del self._slow_until[name]

    def _is_next(self, namespace: str, places: int, now: float) -> bool:
        """Return whether there is a place for a slow namespace beside those that wait and those that come before it."""
        waiting = sum(len(calls) for name, calls in self._under_way.items() if self._is_slow(name, now))
        self._turns = {name: until for name, until in self._turns.items() if until > now}
        earlier = takewhile(lambda name: name != namespace, self._turns)
        return waiting + sum(self._is_slow(name, now) for name in earlier) < places

    def _is_slow(self, namespace: str, now: float) -> bool:
        calls = self._under_way.get(namespace, [])
        hangs = any(now - began >= _SLOW_SECONDS for began in calls)
        return hangs or self._slow_until.get(namespace, now) > now
