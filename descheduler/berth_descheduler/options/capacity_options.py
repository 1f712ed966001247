"""Owns the options by which a service measures the cluster's fragmentation for its metrics.

It does not own the measuring (`capacity_meter`).
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

from berth_core.errors import InputError
from berth_descheduler.capacity_meter import CapacitySettings
from berth_descheduler.options.command_options import with_options
from berth_descheduler.options.duration_options import duration_option_or_none
from berth_descheduler.planner.asked_shapes import read_shape

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
            help="Measure the cluster's fragmentation for the metrics every so often, or none for never.",
        ),
        click.option(
            _SHAPE_OPTION,
            multiple=True,
            metavar="RESOURCE=AMOUNT,...",
            help="Count in the metrics how many of this fit; may be repeated. Default: parts of a node.",
        ),
    )
    return with_options(command, options)


def capacity_settings(options: dict[str, Any]) -> CapacitySettings:
    """Return what the options ask for; raises `InputError` naming the option."""
    every = duration_option_or_none(options, "fragmentation_interval")
    try:
        shapes = tuple(map(read_shape, options["fragmentation_shape"]))
    except InputError as error:
        raise InputError(_SHAPE_OPTION, error.value, error.expected) from error
    return CapacitySettings(every_seconds=every, shapes=shapes)
