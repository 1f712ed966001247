"""The settings of the extender, and the option that makes them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from berth_operator.runtime.capability import CommandSettings
from berth_service.process import parse_address

_OPTION: Final = "--volcano-extender-address"


@dataclass(frozen=True, slots=True)
class ExtenderSettings:
    """Where Volcano's scheduler asks."""

    address: tuple[str, int] | None = None
    """Address and port for Volcano's extender plugin, None for none; port 0 takes a free one."""


def read_settings(options: Mapping[str, Any]) -> ExtenderSettings:
    """Return the settings for the options; raises `InputError`."""
    text = options["volcano_extender_address"]
    return ExtenderSettings(parse_address(_OPTION, text) if text else None)


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
    ),
    read=read_settings,
)
