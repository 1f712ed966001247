"""The command line options that `berth run` and the service share: how a plan is carried out."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeVar

import click

from berth_core import format_duration
from berth_descheduler.options.command import namespace_option, with_options
from berth_descheduler.options.durations import duration_option
from berth_descheduler.options.planner import longest_grace, planner_settings
from berth_descheduler.options.safety import safety_options, with_safety
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.settings import Approval, CycleSettings, ExecutionSettings, MoveTimeouts

F = TypeVar("F", bound=Callable[..., Any])


LEASE_PATIENCE_SECONDS: Final = 5
_TIMEOUTS: Final = {
    "reserve": "How long to wait until a move's place is held and proven, before the move is given up.",
    "evict": "How long to retry an eviction that a disruption budget or webhook refuses, before the move is given up.",
    "land": "How long to wait for a replacement after the pod has ended, before the move is given up.",
    "end": "How long to wait for a pod to end after its grace period, before the move is given up or the run ends.",
}
READY_TIMEOUT: Final = "ready_timeout"


def run_options(command: F) -> F:
    """Add the options from which `cycle_settings` makes the settings."""
    duration: dict[str, Any] = {"metavar": "DURATION", "show_default": True}
    options = [
        click.option("--wait-for-approval", is_flag=True, help="Publish the plan and wait for `berth approve`."),
        click.option("--approval-timeout", default="10m", **duration, help="How long to wait for that."),
        *(
            click.option(f"--{timeout}-timeout", default=_default_timeout(timeout), **duration, help=text)
            for timeout, text in _TIMEOUTS.items()
        ),
        _ready_timeout_option(),
        click.option(
            "--max-duration",
            default=format_duration(timedelta(seconds=ExecutionSettings().max_seconds or 0)),
            **duration,
            help="Begin nothing new once a plan has taken this long; it bounds how long its taints stand.",
        ),
        click.option("--reservation-ttl", default="10m", **duration, help="Minimum TTL of a Reservation."),
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
    return namespace_option(with_options(safety_options(command), options, "Carrying out"))


def _ready_timeout_option() -> Callable[[F], F]:
    return click.option(
        "--ready-timeout",
        metavar="DURATION",
        show_default=f"{_default_timeout('ready')}, or a Deployment's progressDeadlineSeconds if that is more",
        help="Fail a move if the replacement does not run in time, or is not Ready in time once it runs; "
        "what its probes ask for comes on top.",
    )


def with_ready_timeout(timeouts: MoveTimeouts, options: dict[str, Any]) -> MoveTimeouts:
    """Return the timeouts with a `--ready-timeout` that was given, which counts for Deployments as well."""
    if options[READY_TIMEOUT] is None:
        return timeouts
    ready_seconds = duration_option(options, READY_TIMEOUT)
    return replace(timeouts, ready_seconds=ready_seconds, heeds_progress_deadlines=False)


def _default_timeout(name: str) -> str:
    seconds: float = getattr(MoveTimeouts(), f"{name}_seconds")
    return f"{seconds:g}s"


def cycle_settings(options: dict[str, Any], *, trigger: str, dry_run: bool = False) -> CycleSettings:
    """Return the settings that the options of `run_options` ask for; raises `InputError` naming the option."""
    timeouts: dict[str, Any] = {
        f"{timeout}_seconds": duration_option(options, f"{timeout}_timeout") for timeout in _TIMEOUTS
    }
    settings = CycleSettings(
        execution=ExecutionSettings(
            timeouts=with_ready_timeout(MoveTimeouts(**timeouts), options),
            max_failed_share=options["max_failed_share"],
            max_seconds=duration_option(options, "max_duration"),
            max_grace=longest_grace(options),
            reservation_ttl=timedelta(seconds=duration_option(options, "reservation_ttl")),
        ),
        namespace=options["namespace"],
        lease_seconds=options["lease_seconds"],
        lease_wait_seconds=options["lease_seconds"] + LEASE_PATIENCE_SECONDS,
        approval=Approval.APPROVE if options["wait_for_approval"] else Approval.AUTO,
        approval_seconds=duration_option(options, "approval_timeout"),
        trigger=trigger,
        dry_run=dry_run,
    )
    return with_safety(settings, options)


def run_planner_settings(options: dict[str, Any]) -> PlannerSettings:
    """Return planner settings that leave Berth's own namespace alone; else a run plans as `berth plan` does."""
    return planner_settings(options).in_namespace(options["namespace"])
