"""When a refused call of a move or room is made again."""

from typing import Final

FIRST_BACKOFF_SECONDS: Final = 0.5

LONGEST_BACKOFF_SECONDS: Final = 10.0

_LONGEST_DOUBLING: Final = 10


def backoff_seconds(attempts: int, asked_for: float | None = None) -> float:
    """Return the wait after some refusals.

    It is at least what the server asks for.
    """
    doubled = FIRST_BACKOFF_SECONDS * float(2 ** min(attempts, _LONGEST_DOUBLING))
    return max(min(doubled, LONGEST_BACKOFF_SECONDS), asked_for or 0.0)
