"""For how long the operator's own client and kopf have heard nothing from the API server."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

LONGEST_SILENCE_SECONDS: Final = 60.0
"""Far longer than any pause between two answers: each client asks, or hears a bookmark, every half a minute."""


def _never() -> float:
    return 0.0


@dataclass(frozen=True, slots=True)
class Silence:
    """Seconds since the operator's own client and kopf last heard from the API server."""

    own_seconds: Callable[[], float] = _never
    kopf_seconds: Callable[[], float] = _never

    def why_unhealthy(self) -> str:
        """Return the fault that only a new process would mend, "" if there is none."""
        # If the API server answers no client, a restarted operator would only know less and be back later.
        is_answered = self.own_seconds() <= LONGEST_SILENCE_SECONDS
        return self._of_kopf() if is_answered else ""

    def why_not_ready(self) -> str:
        """Return why the cache is out of date, "" if it is not."""
        seconds = self.own_seconds()
        if seconds > LONGEST_SILENCE_SECONDS:
            return f"the API server has not answered for {seconds:.0f} s"
        return self._of_kopf()

    def _of_kopf(self) -> str:
        seconds = self.kopf_seconds()
        return f"kopf has heard nothing for {seconds:.0f} s" if seconds > LONGEST_SILENCE_SECONDS else ""
