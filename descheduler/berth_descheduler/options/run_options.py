"""Owns the command line options that `berth run` and the service share: how a plan is carried out.

It does not own how to plan or which cluster (`command_options`), nor what the settings mean (`settings`).
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from berth_core.durations import format_duration
from berth_core.names import DEFAULT_NAMESPACE
from berth_descheduler.options.command_options import longest_grace, planner_settings, with_options
from berth_descheduler.options.duration_options import duration_option
from berth_descheduler.options.safety_options import safety_options, with_safety
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.settings import Approval, CycleSettings, ExecutionSettings, MoveTimeouts

F = TypeVar("F", bound=Callable[..., Any])

_LEASE_PATIENCE_SECONDS: Final = 5
_TIMEOUTS: Final = {
    "reserve": "Give a move up if its place is not held and proven by then.",
    "evict": "Give a move up if a disruption budget or a webhook refuses the eviction for so long.",
    "land": "Give a move up if no replacement has taken its place so long after the pod ended.",
    "ready": "Count a move as failed if the replacement is not Ready so long after it began to run.",
}


def run_options(command: F) -> F:
    """Add the options from which `cycle_settings` makes the settings."""
    duration: dict[str, Any] = {"metavar": "DURATION", "show_default": True}
    options = [
        click.option("--namespace", default=DEFAULT_NAMESPACE, show_default=True, help="Berth's own namespace."),
        click.option("--approve", is_flag=True, help="Publish the plan and wait until spec.approved is set to true."),
        click.option("--approval-timeout", default="10m", **duration, help="How long to wait for that."),
        *(
            click.option(f"--{name}-timeout", default=_default_timeout(name), **duration, help=text)
            for name, text in _TIMEOUTS.items()
        ),
        click.option(
            "--max-duration",
            default=format_duration(timedelta(seconds=ExecutionSettings().max_seconds or 0)),
            **duration,
            help="Begin nothing new once a plan has taken this long; it bounds how long its taints stand.",
        ),
        click.option("--reservation-ttl", default="10m", **duration, help="Least TTL of a Reservation."),
        click.option(
            "--lease-seconds",
            type=click.IntRange(min=2),
            default=CycleSettings().lease_seconds,
            show_default=True,
            help="How long a run that was killed keeps others waiting.",
        ),
        click.option(
            "--max-failed-share",
            type=click.FloatRange(0, 1),
            default=ExecutionSettings().max_failed_share,
            show_default=True,
            help="Stop a plan when more than this share of its moves has failed.",
        ),
    ]
    return with_options(safety_options(command), options)


def _default_timeout(name: str) -> str:
    seconds: float = getattr(MoveTimeouts(), f"{name}_seconds")
    return f"{seconds:g}s"


def cycle_settings(options: dict[str, Any], *, trigger: str, dry_run: bool = False) -> CycleSettings:
    """Return the settings that the options of `run_options` ask for; raises `InputError` naming the option."""
    timeouts = {f"{name}_seconds": duration_option(options, f"{name}_timeout") for name in _TIMEOUTS}
    settings = CycleSettings(
        execution=ExecutionSettings(
            timeouts=MoveTimeouts(**timeouts),
            max_failed_share=options["max_failed_share"],
            max_seconds=duration_option(options, "max_duration"),
            max_grace=longest_grace(options),
            reservation_ttl=timedelta(seconds=duration_option(options, "reservation_ttl")),
        ),
        namespace=options["namespace"],
        lease_seconds=options["lease_seconds"],
        lease_wait_seconds=options["lease_seconds"] + _LEASE_PATIENCE_SECONDS,
        approval=Approval.APPROVE if options["approve"] else Approval.AUTO,
        approval_seconds=duration_option(options, "approval_timeout"),
        trigger=trigger,
        dry_run=dry_run,
    )
    return with_safety(settings, options)


def run_planner_settings(options: dict[str, Any]) -> PlannerSettings:
    """Return how to plan for a run: as `berth plan` does, with Berth's own namespace left alone."""
    return replace(planner_settings(options), own_namespace=options["namespace"])
