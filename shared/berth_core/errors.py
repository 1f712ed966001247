"""The tree of Berth's errors; a class says what the caller can do.

BerthError
├── InputError      mend the input; a program's exit code is 2; object: Failed/Invalid
│   ├── QuantityError   (berth_core.resources)
│   ├── DurationError   (berth_core.clock)
│   └── TimestampError  (berth_core.clock)
├── RetryableError  do the same again later
└── PermanentError  give up; trying again brings the same
"""

from typing import ClassVar, Final

_LONGEST_VALUE: Final = 80


class BerthError(Exception):
    """Anything that Berth itself says went wrong; `str()` is a sentence for people."""

    exit_code: ClassVar[int] = 1
    """With what a program ends because of it: 2 where whoever started it can mend the cause, else 1."""


class InputError(BerthError):
    """Something given to Berth is wrong; it names the field, the value and what would be right.

    `said` replaces the value in the sentence where quoting it would not help, as in "is truncated".
    """

    exit_code = 2

    def __init__(self, field: str, value: object, expected: str, *, said: str = "") -> None:
        super().__init__(field, value, expected)
        self.field = field
        self.value = value
        self.expected = expected
        self.said = said

    def __str__(self) -> str:
        return f"{self.field} is {self.said or _shown(self.value)}; expected {self.expected}"

    def within(self, place: str, *, joint: str = ".") -> "InputError":
        """Return the same error with the field named from further outside."""
        return InputError(f"{place}{joint}{self.field}", self.value, self.expected, said=self.said)


class RetryableError(BerthError):
    """It did not work now and may work later; `retry_after_seconds` is None where nobody said when."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class PermanentError(BerthError):
    """It did not work and will not work by trying again."""


def require_positive(field: str, value: float) -> None:
    """Raise InputError that names the field unless the value is above zero."""
    if value <= 0:
        raise InputError(field, str(value), "a number above 0")


def _shown(value: object) -> str:
    """Return a value as it stands in a sentence: quoted, and cut where it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
