"""The command line options by which a service measures the cluster's fragmentation for its metrics."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from berth_core import InputError
from berth_descheduler.options.command import with_options
from berth_descheduler.options.durations import duration_option_or_none
from berth_descheduler.planner import read_shape

if TYPE_CHECKING:
    from berth_descheduler.capacity_meter import CapacitySettings


F = TypeVar("F", bound=Callable[..., Any])


_SHAPE_OPTION: Final = "--fragmentation-shape"


def capacity_options(command: F) -> F:
    """Add the options from which `capacity_settings` makes the settings."""
    options = (
        click.option(
            "--fragmentation-interval",
            default="5m",
            show_default=True,
            metavar="DURATION",
            help="Time between two measurements of the cluster's fragmentation for the metrics; none: never.",
        ),
        click.option(
            _SHAPE_OPTION,
            multiple=True,
            metavar="RESOURCE=AMOUNT,...",
            help="Count in the metrics how many of this fit; may be repeated. Default: parts of a node.",
        ),
    )
    return with_options(command, options)


def capacity_settings(options: dict[str, Any]) -> "CapacitySettings":
    """Return what the options ask for; raises `InputError` naming the option."""
    from berth_descheduler.capacity_meter import CapacitySettings  # noqa: PLC0415 - needs what only a service's extra brings

    seconds_between = duration_option_or_none(options, "fragmentation_interval")
    try:
        shapes = tuple(map(read_shape, options["fragmentation_shape"]))
    except InputError as error:
        raise InputError(_SHAPE_OPTION, error.value, error.expected) from error
    return CapacitySettings(every_seconds=seconds_between, shapes=shapes)
