"""When a refused call of a move or room is made again."""

from dataclasses import dataclass
from typing import Final

FIRST_BACKOFF_SECONDS: Final = 0.5
LONGEST_BACKOFF_SECONDS: Final = 10.0
_LONGEST_DOUBLING: Final = 10


def backoff_seconds(attempts: int, asked_for: float | None = None) -> float:
    """Return the wait after so many refusals, at least what the server asks for."""
    # The exponent is bounded first: after days of refusals the power would not fit into a float.
    doubled_seconds = FIRST_BACKOFF_SECONDS * float(2 ** min(attempts, _LONGEST_DOUBLING))
    # The server's `Retry-After` may exceed our longest wait: API Priority and Fairness sheds load by it.
    return max(min(doubled_seconds, LONGEST_BACKOFF_SECONDS), asked_for or 0.0)


@dataclass(frozen=True, slots=True)
class Retry:
    """How often calls were refused in a row, and when the next is made, in monotonic seconds; None: at once."""

    attempts: int = 0
    at: float | None = None

    def is_too_early(self, now: float) -> bool:
        return self.at is not None and now < self.at

    def after_refusal(self, now: float, asked_for: float | None = None) -> "Retry":
        """Return when the next call is made after one more refusal, which may ask for a longer wait."""
        return Retry(self.attempts + 1, now + backoff_seconds(self.attempts, asked_for))
