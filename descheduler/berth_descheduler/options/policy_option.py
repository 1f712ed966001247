"""Owns `--policy FILE`: planning and running by a policy, beside which no option may say what the policy says.

It does not own what a policy means (`policies.reading`), nor the options without one (`command_options`).
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from berth_core.errors import InputError
from berth_descheduler.options.command_options import planner_settings, planning_time
from berth_descheduler.options.option_errors import naming_options, option_of
from berth_descheduler.options.run_options import run_planner_settings
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.plugins.builtin import installed_plugins
from berth_descheduler.policies.files import read_policy_file
from berth_descheduler.policies.reading import RunDefaults, read_policy
from berth_descheduler.settings import CycleSettings

F = TypeVar("F", bound=Callable[..., Any])

PLANNED: Final = frozenset(
    {
        "strategy",
        "whole_nodes",
        "label_selector",
        "shape",
        "shape_owner",
        "pod",
        "resource_type",
        "low_threshold",
        "defragment_threshold",
        "protection_threshold",
        "number_of_nodes",
        "max_moves",
        "max_moves_per_node",
        "max_moves_per_namespace",
        "max_grace_period",
        "per_controller",
        "per_wave",
        "include_namespace",
        "exclude_namespace",
        "cool_down",
    }
)
CARRIED_OUT: Final = frozenset(
    {
        "max_failed_share",
        "approval_timeout",
        "max_duration",
        "reservation_ttl",
        "pod_cool_down",
        "min_freed_nodes",
        "taint_freed",
        "annotate_freed",
    }
)
"""The options of planning, and of carrying out, that a policy says instead."""

_GIVEN: Final = frozenset({ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT})


def policy_option(command: F) -> F:
    """Add `--policy`."""
    text = "Go by this DeschedulerPolicy instead of options (YAML, - for standard input), but for trigger and mode."
    return click.option("--policy", metavar="FILE", help=text)(command)


def settings_to_plan(options: dict[str, Any], policy: str | None, *, at: str | None = None) -> PlannerSettings:
    """Return how to plan by a policy's file, or by the options of `planner_options` where there is none.

    Raises `InputError` that names the option, or the field of the policy.
    """
    if policy is None:
        return planner_settings(options, at=at)
    _refuse_given(PLANNED)
    run = read_policy(read_policy_file(policy), RunDefaults(planner=_search(options)), installed_plugins())
    return replace(run.planner, now=planning_time(at))


def settings_to_run(
    options: dict[str, Any], policy: str | None, cycle: CycleSettings
) -> tuple[CycleSettings, PlannerSettings]:
    """Return how to run once by a policy's file, or as the options say; raises `InputError` as `settings_to_plan`.

    A run by hand is nobody's policy: what it leaves behind carries no policy's name.
    """
    if policy is None:
        return cycle, run_planner_settings(options)
    _refuse_given(PLANNED | CARRIED_OUT)
    planner = replace(_search(options), own_namespace=options["namespace"])
    run = read_policy(read_policy_file(policy), RunDefaults(cycle, planner), installed_plugins())
    return replace(run.cycle, policy=""), replace(run.planner, now=planning_time(None))


def naming_what_was_typed(options: Mapping[str, Any], policy: str | None) -> AbstractContextManager[None]:
    """Return what lets errors of planning name options where these were typed, and fields with a policy."""
    return naming_options(options) if policy is None else nullcontext()


def settings_to_serve(options: dict[str, Any]) -> PlannerSettings:
    """Return how to plan where the cluster's policies say the rest; raises `InputError` for options in their place."""
    _refuse_given(PLANNED | CARRIED_OUT | {"approve"}, beside="the policies of the cluster, which say it")
    return replace(_search(options), own_namespace=options["namespace"])


def _search(options: dict[str, Any]) -> PlannerSettings:
    """Return what no policy says: the settings of the search, and whether control-plane nodes take pods."""
    defaults = planner_settings(options)
    return PlannerSettings(
        exact=defaults.exact,
        time_limit_seconds=defaults.time_limit_seconds,
        seed=defaults.seed,
        control_plane_nodes=defaults.control_plane_nodes,
    )


def _refuse_given(names: Iterable[str], *, beside: str = "--policy, which says it") -> None:
    """Raise `InputError` for an option that was given although a policy says it."""
    context = click.get_current_context()
    for name in sorted(names):
        if context.get_parameter_source(name) in _GIVEN:
            raise InputError(option_of(name), context.params.get(name), f"nothing beside {beside}")
