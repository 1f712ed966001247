"""The settings of the extender, and the option that makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import click

from berth_core import DurationError, InputError, parse_duration
from berth_operator.runtime.capability import CommandSettings
from berth_service.process import parse_address

_OPTION: Final = "--volcano-extender-address"
_WAIT_OPTION: Final = "--volcano-enqueue-after"


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """Where Volcano's scheduler asks, and for how long its jobs wait."""

    address: tuple[str, int] | None = None
    """Host and port at which Volcano's extender plugin asks; port 0 takes a free one, None switches it off."""

    enqueue_after: timedelta | None = None
    """How long after its creation a PodGroup without pods is let in, whatever is free; None leaves it to Volcano."""


def read_settings(options: Mapping[str, Any]) -> ExtenderSettings:
    """Return the settings for the options; raises `InputError`."""
    text, wait_text = options["volcano_extender_address"], options["volcano_enqueue_after"]
    try:
        enqueue_after = parse_duration(wait_text) if wait_text else None
    except DurationError as error:
        raise InputError(_WAIT_OPTION, wait_text, "a duration such as 10m") from error
    return ExtenderSettings(parse_address(_OPTION, text) if text else None, enqueue_after)


COMMAND: Final = CommandSettings(
    after="health_address",
    options=(
        click.Option(
            [_OPTION],
            default="",
            show_default=False,
            metavar="HOST:PORT",
            help="Where Volcano's scheduler asks which pods it may evict or let in, by HTTP; default: nowhere.",
        ),
        click.Option(
            [_WAIT_OPTION],
            default="",
            show_default=False,
            metavar="DURATION",
            help="Let in Volcano's PodGroups without pods this long after their creation, such as 10m; default: never.",
        ),
    ),
    read=read_settings,
)
