"""The command line options about the safety of others: who comes first, what rests, what freed nodes carry."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from berth_core import InputError, Limits, MoveMethod, format_duration
from berth_descheduler.options.command import with_options
from berth_descheduler.options.durations import duration_option_from_zero
from berth_descheduler.settings import CycleSettings, ExecutionSettings, FreedNodes

F = TypeVar("F", bound=Callable[..., Any])

_PENDING_WAIT: Final = timedelta(seconds=ExecutionSettings().pending_wait_seconds)
_REPLANS: Final = Limits().max_replans


moves_option: Final = click.option(
    "--moves",
    type=click.Choice([method.value for method in MoveMethod]),
    default=CycleSettings().moves.value,
    show_default=True,
    help="Surge: evict a Deployment's pod only once its replacement is available, where that is possible.",
)


def safety_options(command: F) -> F:
    """Add the options from which `with_safety` makes its part of the settings."""
    duration: dict[str, Any] = {"metavar": "DURATION", "show_default": True}
    options = [
        click.option(
            "--pending-wait",
            default=format_duration(_PENDING_WAIT),
            **duration,
            help="How long to wait for pending pods whose room the moves would take.",
        ),
        click.option(
            "--pod-cool-down",
            default="0s",
            **duration,
            help="How long a moved pod is not moved again, and a freed node is not freed again.",
        ),
        click.option(
            "--min-freed-nodes",
            type=click.IntRange(min=0),
            default=CycleSettings().min_freed_nodes,
            show_default=True,
            help="Do not begin a plan that frees fewer nodes.",
        ),
        click.option(
            "--max-replans",
            type=click.IntRange(0, 100),
            default=_REPLANS,
            show_default=True,
            help="How often to plan again for moves that have become impossible because others changed pods or nodes.",
        ),
        moves_option,
        click.option(
            "--taint-freed/--no-taint-freed",
            default=True,
            show_default=True,
            help="Taint freed nodes PreferNoSchedule until a run finds them needed.",
        ),
        click.option(
            "--annotate-freed",
            multiple=True,
            metavar="KEY=VALUE",
            help="Annotate freed nodes until a run finds them needed; may be given several times.",
        ),
    ]
    return with_options(command, options, "Safety")


def with_safety(settings: CycleSettings, options: dict[str, Any]) -> CycleSettings:
    """Return settings with what the options of `safety_options` ask for; raises `InputError` naming the option."""
    wait_seconds = duration_option_from_zero(options, "pending_wait")
    return replace(
        settings,
        execution=replace(settings.execution, pending_wait_seconds=wait_seconds),
        pod_cool_down=timedelta(seconds=duration_option_from_zero(options, "pod_cool_down")),
        min_freed_nodes=options["min_freed_nodes"],
        max_replans=options["max_replans"],
        moves=MoveMethod(options["moves"]),
        freed=FreedNodes(taint=options["taint_freed"], annotations=_annotations(options["annotate_freed"])),
    )


def _annotations(given: tuple[str, ...]) -> dict[str, str]:
    annotations = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise InputError("--annotate-freed", text, "KEY=VALUE")
        annotations[key] = value
    return annotations
