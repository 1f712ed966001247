"""Command line options that are lengths of time."""

from datetime import timedelta
from typing import Any, Final

from berth_core import DurationError, InputError, parse_duration
from berth_descheduler.options.input_errors import option_of

NONE: Final = "none"


def duration_option(options: dict[str, Any], name: str) -> float:
    """Return the seconds of an option that is above zero; raises `InputError` naming the option."""
    return _read(options, name, "a duration above zero such as 90s or 1h30m", least=timedelta.resolution)


def duration_option_or_none(options: dict[str, Any], name: str) -> float | None:
    """Return the seconds of an option, None where it is `none`; raises as `duration_option`."""
    return None if options[name] == NONE else duration_option(options, name)


def duration_option_from_zero(options: dict[str, Any], name: str) -> float:
    """Return the seconds of an option that may be zero; raises `InputError` naming the option."""
    return _read(options, name, "a duration from 0 on, such as 0s, 90s or 1h30m", least=timedelta(0))


def _read(options: dict[str, Any], name: str, expected: str, *, least: timedelta) -> float:
    option = option_of(name)
    try:
        span = parse_duration(options[name])
    except DurationError as error:
        raise InputError(option, options[name], expected) from error
    if span < least:
        raise InputError(option, options[name], expected)
    return span.total_seconds()
