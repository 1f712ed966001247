"""`--policy FILE`: planning and running by a policy, beside which no option may set what the policy sets."""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final, TypeVar

import click
from click.core import ParameterSource

from berth_core import InputError, MoveMethod
from berth_descheduler.goals import OFFERED_GOALS
from berth_descheduler.options.input_errors import naming_options, option_of
from berth_descheduler.options.planner import planner_settings, planning_time
from berth_descheduler.options.running import run_planner_settings
from berth_descheduler.planner import PlannerSettings, PlanScope
from berth_descheduler.plugins import default_settings, installed_plugins
from berth_descheduler.policy import RunDefaults, read_policy, read_policy_file
from berth_descheduler.registry import groups_of
from berth_descheduler.settings import CycleSettings

F = TypeVar("F", bound=Callable[..., Any])


PLANNED: Final = frozenset(
    {
        "strategy",
        "whole_nodes",
        "label_selector",
        "harmless_owner",
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
        *(option.parameter for goal in OFFERED_GOALS for group in groups_of(goal) for option in group.options),
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
        "max_replans",
        "moves",
        "taint_freed",
        "annotate_freed",
    }
)
"""The options that have a field in a policy: of planning, and of carrying out."""

_GIVEN: Final = frozenset({ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT})


def policy_option(command: F) -> F:
    """Add `--policy`."""
    text = "Use this DeschedulerPolicy (YAML, - for standard input) instead of options, except its trigger and mode."
    return click.option("--policy", type=click.Path(), metavar="FILE", help=text)(command)


def settings_to_plan(
    options: dict[str, Any], policy: str | None, *, at: str | None = None
) -> tuple[PlannerSettings, MoveMethod]:
    """Return how to plan by a policy's file or by options, and how a run would make the moves.

    Without a file, the options of `planner_options` say it. Raises `InputError` that names the option, or the field of
    the policy.
    """
    if policy is None:
        planner = planner_settings(options, at=at).in_namespace(options["namespace"])
        return planner, MoveMethod(options["moves"])
    _refuse_given(PLANNED | {"moves"})
    planner = _search(options).in_namespace(options["namespace"])
    run = read_policy(read_policy_file(policy), RunDefaults(planner=planner), installed_plugins())
    return run.planner.at(planning_time(at)), run.cycle.moves


def settings_to_run(
    options: dict[str, Any], policy: str | None, cycle: CycleSettings
) -> tuple[CycleSettings, PlannerSettings]:
    """Return how to run once, by a policy's file or options; raises `InputError` as `settings_to_plan`.

    A run by hand belongs to no policy: what it leaves behind carries no policy's name.
    """
    if policy is None:
        return cycle, run_planner_settings(options)
    _refuse_given(PLANNED | CARRIED_OUT)
    planner = _search(options).in_namespace(options["namespace"])
    run = read_policy(read_policy_file(policy), RunDefaults(cycle, planner), installed_plugins())
    return replace(run.cycle, policy=""), run.planner.at(planning_time(None))


def naming_what_was_typed(options: Mapping[str, Any], policy: str | None) -> AbstractContextManager[None]:
    """Return a context in which planning errors name options, or fields where a policy is given."""
    return naming_options(options) if policy is None else nullcontext()


def settings_to_serve(options: dict[str, Any]) -> PlannerSettings:
    """Return how to plan where the cluster's policies say the rest; raises `InputError` for options in their place."""
    _refuse_given(PLANNED | CARRIED_OUT | {"wait_for_approval"}, beside="the policies of the cluster, which say it")
    return _search(options).in_namespace(options["namespace"])


def _search(options: dict[str, Any]) -> PlannerSettings:
    """Return the planner settings without a field in a policy: the search, and control-plane nodes as targets."""
    defaults = planner_settings(options)
    scope = PlanScope(control_plane_nodes=defaults.scope.control_plane_nodes)
    return replace(default_settings(), search=defaults.search, scope=scope)


def _refuse_given(names: Iterable[str], *, beside: str = "--policy, which says it") -> None:
    """Raise `InputError` for a given option that has a field in a policy."""
    context = click.get_current_context()
    for name in sorted(names):
        if context.get_parameter_source(name) in _GIVEN:
            raise InputError(option_of(name), context.params.get(name), f"nothing beside {beside}")
