"""Errors of Berth; the class says what the caller can do.

BerthError
├── InputError      mend the input; a program's exit code is 2; object: Failed/Invalid
│   ├── QuantityError   (berth_core.quantities)
│   ├── DurationError   (berth_core.durations)
│   └── TimestampError  (berth_core.clock)
├── RetryableError  do the same again later
└── PermanentError  give up; trying again brings the same
"""

import re
from collections.abc import Iterable
from typing import ClassVar, Final

_LONGEST_VALUE: Final = 80
_STEP: Final = re.compile(r"[^.\[\]]+")


class BerthError(Exception):
    """Any failure that Berth itself reports; `str()` is a sentence for people."""

    exit_code: ClassVar[int] = 1
    """The program's exit code: 2 if the user can correct the cause, else 1."""


class InputError(BerthError):
    """An input is wrong; the error names field, value and expected value.

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
        """Return the same error with `place` before the field's name."""
        return InputError(f"{place}{joint}{self.field}", self.value, self.expected, said=self.said)


def field_steps(path: str) -> list[str]:
    """Return the names and positions of a path such as `spec.profiles[0].name`."""
    return _STEP.findall(path)


class RetryableError(BerthError):
    """It may work later; `retry_after_seconds` is None if no delay was given."""

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class PermanentError(BerthError):
    """It failed, and trying again will not help."""


def require_positive(field: str, value: float) -> None:
    """Raise InputError with the field unless the value is above zero."""
    if value <= 0:
        raise InputError(field, str(value), "a number above 0")


def refuse_unknown(field: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise `InputError` for the first given name that is not known."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise InputError(field, unknown[0], f"only {', '.join(sorted(known))}")


def _shown(value: object) -> str:
    """Return a value as Python quotes it, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
