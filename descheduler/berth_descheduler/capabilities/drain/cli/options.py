"""The command line options of `berth drain`, most of which mean what they do for `berth run`."""

from dataclasses import replace
from typing import Any, Final

import click

from berth_core import MoveMethod
from berth_descheduler.capabilities.drain.plugin import DRAINED_AT_ONCE, NodeDrain
from berth_descheduler.options import duration_option, naming_options, planner_options, run_options, with_options
from berth_descheduler.options.command import PARAMETERS
from berth_descheduler.options.durations import duration_option_from_zero
from berth_descheduler.options.planner import longest_grace
from berth_descheduler.options.policy import F
from berth_descheduler.options.running import LEASE_PATIENCE_SECONDS, READY_TIMEOUT, with_ready_timeout
from berth_descheduler.planner import PlanLimits, PlanScope, WaveLimits
from berth_descheduler.plugins import default_settings
from berth_descheduler.policy import RunDefaults
from berth_descheduler.settings import CycleSettings, ExecutionSettings, MoveTimeouts

_SHARED_WITH_RUN: Final = frozenset(
    {
        *("namespace", "max_grace_period", "per_controller", "control_plane_nodes", "harmless_owner"),
        *("evict_timeout", "end_timeout", READY_TIMEOUT, "pending_wait", "lease_seconds", "moves"),
    }
)


def drain_options(command: F) -> F:
    """Add the options from which `settings_to_drain` makes the settings."""

    def run() -> None:
        """Carry the options of `berth run`."""

    shared_options = [
        option for option in getattr(run_options(planner_options(run)), PARAMETERS) if option.name in _SHARED_WITH_RUN
    ]
    setattr(command, PARAMETERS, [*getattr(command, PARAMETERS, ()), *shared_options])
    limits = [
        click.option(
            "--per-wave",
            type=int,
            default=DRAINED_AT_ONCE,
            show_default=True,
            help="Moves at once; their places are held before the first pod goes.",
        ),
    ]
    options = [
        click.option("--skip-refused", is_flag=True, help="Move the other pods if some cannot go; those stay."),
        click.option(
            "--delete-emptydir-data",
            is_flag=True,
            help="Move pods with emptyDir or hostPath volumes, too; their data there is lost.",
        ),
        click.option(
            "--timeout", default="1h", show_default=True, metavar="DURATION", help="Begin nothing new after this long."
        ),
    ]
    return with_options(with_options(command, options), limits, "Limits")


def settings_to_drain(options: dict[str, Any], *, dry_run: bool) -> RunDefaults:
    """Return how a drain is carried out and what limits its plan, without any policy's limits.

    Raises `InputError` that names the option.
    """
    evict_seconds, end_seconds = (duration_option(options, option) for option in ("evict_timeout", "end_timeout"))
    cycle = CycleSettings(
        execution=ExecutionSettings(
            timeouts=with_ready_timeout(MoveTimeouts(evict_seconds=evict_seconds, end_seconds=end_seconds), options),
            max_seconds=duration_option(options, "timeout"),
            max_grace=longest_grace(options),
            pending_wait_seconds=duration_option_from_zero(options, "pending_wait"),
        ),
        namespace=options["namespace"],
        lease_seconds=options["lease_seconds"],
        lease_wait_seconds=options["lease_seconds"] + LEASE_PATIENCE_SECONDS,
        moves=MoveMethod(options["moves"]),
        dry_run=dry_run,
    )
    cycle = NodeDrain().carried_out(cycle)
    with naming_options(options):
        waves = WaveLimits(per_controller=options["per_controller"], per_wave=options["per_wave"])
    planner = replace(
        default_settings(),
        limits=PlanLimits(max_grace=longest_grace(options), waves=waves),
        scope=PlanScope(control_plane_nodes=options["control_plane_nodes"], own_namespace=options["namespace"]),
    )
    return RunDefaults(cycle, planner)
