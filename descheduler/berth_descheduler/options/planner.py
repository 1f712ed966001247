"""The command line options by which commands and services plan, and the settings that they ask for."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from berth_core import CPU, InputError, SystemClock, parse_selector, parse_timestamp
from berth_core.policies import MOVES_PER_CONTROLLER, MOVES_PER_WAVE
from berth_descheduler.goals import DEFAULT_GOAL, DEFAULT_GOAL_OF_COMMANDS, OFFERED_GOALS, read_goal
from berth_descheduler.options.command import with_options
from berth_descheduler.options.completion import complete_namespaces
from berth_descheduler.options.durations import NONE, duration_option
from berth_descheduler.options.input_errors import OFFERED, naming_options, option_of
from berth_descheduler.planner import PlanLimits, PlannerSettings, PlanScope, RunSoFar, SearchSettings, WaveLimits
from berth_descheduler.planner.goal import Goal
from berth_descheduler.planner.owners.owners_of_owners import read_owner_kinds
from berth_descheduler.plugins import (
    DEFRAGMENT_DEFAULT,
    LOW_DEFAULT,
    DefaultEvictor,
    DefaultEvictorArgs,
    DefragmentationArgs,
    default_plugins,
    settings_with,
)
from berth_descheduler.registry import groups_of

F = TypeVar("F", bound=Callable[..., Any])


_GOAL_OF_PARAMETER: Final = {
    parameter: goal
    for goal in reversed(OFFERED_GOALS)
    for parameter in (
        *(option.parameter for group in groups_of(goal) for option in group.options),
        *goal.shared_options,
    )
}
"""Options that only one goal reads: with another goal they are errors, as they would silently have no effect."""

_EITHER: Final = next(goal for goal in OFFERED_GOALS if goal.whole_nodes is None)
"""The goal whose arguments decide whether it empties nodes whole; every other goal decides it itself."""

_ARGS_BY_OPTION: Final = {
    "low_threshold": ("lowThresholds", LOW_DEFAULT),
    "defragment_threshold": ("defragmentThresholds", DEFRAGMENT_DEFAULT),
    "protection_threshold": ("protectionThresholds", DEFAULT_GOAL.protection_percent),
}


def planner_options(command: F) -> F:
    """Add the options from which `planner_settings` makes the settings."""
    for heading, options in reversed(_planner_options()):
        command = with_options(command, options, heading)
    return command


def _planner_options() -> Sequence[tuple[str, Sequence[Callable[[F], F]]]]:
    """Return the planner's options by their headings."""
    return (
        ("Strategy", _strategy_options()),
        ("Thresholds", _threshold_options()),
        ("Limits", _limit_options()),
        ("Search", _search_options()),
        ("What may move", _scope_options()),
    )


def _strategy_options() -> tuple[Callable[[F], F], ...]:
    return (
        click.option(
            "--strategy",
            shell_complete=lambda _context, _parameter, incomplete: [
                CompletionItem(goal.option) for goal in OFFERED_GOALS if goal.option.startswith(incomplete)
            ],
            help=f"How moves are chosen: {OFFERED}. Default: that to which other given options belong, "
            f"else {DEFAULT_GOAL_OF_COMMANDS.option}.",
        ),
        *(
            click.option(option.flag, multiple=option.is_repeated, metavar=option.metavar, help=option.help)
            for goal in reversed(OFFERED_GOALS)
            for group in groups_of(goal)
            for option in group.options
        ),
        click.option(
            "--resource-type",
            default=CPU,
            show_default=True,
            help="Resource by which nodes are ordered, or whose fragmentation is minimized.",
        ),
        click.option(
            "--whole-nodes/--single-pods",
            default=None,
            help="Empty a node whole or leave it alone, or move each pod that finds a place; default: single pods "
            "with threshold and minimize-fragmentation, else whole nodes.",
        ),
    )


def _threshold_options() -> tuple[Callable[[F], F], ...]:
    threshold: dict[str, Any] = {"metavar": "[RESOURCE=]PERCENT", "multiple": True}
    protection = f"Fill no node above this; default {DEFAULT_GOAL.protection_percent} with threshold, else 100."
    return (
        click.option("--low-threshold", **threshold, help=f"Take pods off nodes below this; default {LOW_DEFAULT}."),
        click.option(
            "--defragment-threshold", **threshold, help=f"Fill nodes above this; default {DEFRAGMENT_DEFAULT}."
        ),
        click.option("--protection-threshold", **threshold, help=protection),
        click.option(
            "--number-of-nodes",
            type=int,
            default=0,
            show_default=True,
            help="Only act if more nodes than this are low.",
        ),
    )


def _limit_options() -> tuple[Callable[[F], F], ...]:
    return (
        click.option("--max-moves", type=int, help="Maximum number of moves in the plan; a run makes at most 1000."),
        click.option("--max-moves-per-node", type=int, help="Maximum number of pods moved off one node."),
        click.option("--max-moves-per-namespace", type=int, help="Maximum number of moves in one namespace."),
        click.option(
            "--max-grace-period",
            default="10m",
            metavar="DURATION",
            show_default=True,
            help="Move no pod with a longer grace period.",
        ),
        click.option(
            "--per-controller",
            type=int,
            default=MOVES_PER_CONTROLLER,
            show_default=True,
            help="Pods of one controller that are moved at once.",
        ),
        click.option("--per-wave", type=int, default=MOVES_PER_WAVE, show_default=True, help="Moves at once."),
    )


def _search_options() -> tuple[Callable[[F], F], ...]:
    return (
        click.option(
            "--time-limit",
            default="60",
            show_default=True,
            metavar="SECONDS",
            help="Time limit of the search, or none; it mostly ends sooner, and its result then depends on no clock. "
            "`berth plan` counts from its start to its output.",
        ),
        click.option(
            "--exact/--no-exact",
            default=True,
            show_default=True,
            help="Let the exact solver go on where the search ends, if it is installed and the problem small enough.",
        ),
        click.option("--seed", type=int, default=0, show_default=True, help="Seed of the search's random choices."),
    )


def _scope_options() -> tuple[Callable[[F], F], ...]:
    namespaces: dict[str, Any] = {"multiple": True, "metavar": "NAME", "shell_complete": complete_namespaces}
    return (
        click.option("--include-namespace", **namespaces, help="Move only pods of this namespace; may be repeated."),
        click.option("--exclude-namespace", **namespaces, help="Move no pods of this namespace; may be repeated."),
        click.option(
            "-l",
            "--label-selector",
            metavar="SELECTOR",
            help="Move only pods with these labels, such as app=web,tier!=db. Default: all.",
        ),
        click.option(
            "--harmless-owner",
            multiple=True,
            metavar="KIND.GROUP",
            help="Move pods whose controller belongs to this kind, too, such as Prometheus.monitoring.coreos.com; '*': "
            "to any; may be repeated.",
        ),
        click.option(
            "--control-plane-nodes",
            is_flag=True,
            help="Move pods to control-plane nodes, too; the operator needs its option of this name.",
        ),
        click.option(
            "--cool-down",
            default="0s",
            metavar="DURATION",
            show_default=True,
            help="Leave nodes alone this long after a plan.",
        ),
    )


def planner_settings(options: dict[str, Any], *, at: str | None = None) -> PlannerSettings:
    """Return the settings that the options of `planner_options` ask for; raises `InputError` naming the option.

    `at` is the time to plan at; None is now.
    """
    goal = _goal(options)
    with naming_options(options):
        args = DefragmentationArgs.parse(_args(options, goal))
        args = replace(args, own=goal.typed(args.own))
        plugins = default_plugins(args, _evictor(options["label_selector"], options["harmless_owner"]))
        settings = PlannerSettings(
            plugins=plugins,
            limits=PlanLimits(
                max_moves=options["max_moves"],
                max_moves_per_node=options["max_moves_per_node"],
                max_moves_per_namespace=options["max_moves_per_namespace"],
                max_grace=longest_grace(options),
                waves=WaveLimits(per_controller=options["per_controller"], per_wave=options["per_wave"]),
            ),
            run=RunSoFar(now=planning_time(at)),
            search=SearchSettings(options["exact"], _time_limit(options["time_limit"]), options["seed"]),
            scope=PlanScope(control_plane_nodes=options["control_plane_nodes"]),
            names_must_exist=True,
        )
        return settings_with(settings, plugins)


def longest_grace(options: dict[str, Any]) -> timedelta:
    """Return the longest grace period of pods that are moved; raises `InputError` naming the option."""
    return timedelta(seconds=duration_option(options, "max_grace_period"))


def _goal(options: dict[str, Any]) -> Goal[Any, Any]:
    """Return the goal of the strategy, by the other options if no strategy is given.

    Raises `InputError` for a strategy that does not exist, and for options of another one.
    """
    implied_goals = [needed_goal for name, needed_goal in _GOAL_OF_PARAMETER.items() if options[name]]
    if options["whole_nodes"] is False:
        implied_goals.append(_EITHER)
    try:
        default = next(iter(implied_goals), DEFAULT_GOAL_OF_COMMANDS)
        goal = default if options["strategy"] is None else read_goal(options["strategy"])
    except InputError as error:
        raise InputError("--strategy", options["strategy"], f"one of {OFFERED}") from error
    for parameter, goal_needed in _GOAL_OF_PARAMETER.items():
        if options[parameter] and goal is not goal_needed:
            value = options[parameter][0] if isinstance(options[parameter], tuple) else options[parameter]
            expected = f"--strategy {goal_needed.option} beside it, not {goal.option}"
            raise InputError(option_of(parameter), value, expected)
    if goal.whole_nodes not in {None, options["whole_nodes"]} and options["whole_nodes"] is not None:
        given_option = "--whole-nodes" if options["whole_nodes"] else "--single-pods"
        expected = f"--strategy {_EITHER.option} beside it, not {goal.option}"
        raise InputError(given_option, None, expected, said="given")
    return goal


def _args(options: dict[str, Any], goal: Goal[Any, Any]) -> dict[str, Any]:
    """Return the plugin's arguments as a policy has them."""
    resource = options["resource_type"]
    goal_options = {
        field_name: value
        for goal_offered in reversed(OFFERED_GOALS)
        for group in groups_of(goal_offered)
        for field_name, value in group.read_options(options).items()
    }
    return {
        "strategy": goal.name,
        "wholeNodes": options["whole_nodes"],
        "resourceType": resource,
        "numberOfNodes": options["number_of_nodes"],
        "coolDownTime": options["cool_down"],
        "evictableNamespaces": _namespaces(options),
        **goal_options,
        **_threshold_args(options, resource),
    }


def _evictor(label_selector: str | None, harmless_owners: Sequence[str]) -> DefaultEvictor:
    """Return an evictor that keeps pods outside a selector, and those of unknown owners but these.

    Raises `InputError` for an invalid selector or kind.
    """
    args = DefaultEvictorArgs(harmless_owners=harmless_owners_option(harmless_owners))
    if label_selector is None:
        return DefaultEvictor(args)
    try:
        selector = parse_selector(label_selector)
    except InputError as error:
        raise InputError("--label-selector", label_selector, error.expected) from error
    return DefaultEvictor(replace(args, label_selector=selector))


def harmless_owners_option(kinds: Sequence[str]) -> frozenset[str]:
    """Return the kinds of `--harmless-owner`; raises `InputError` that names the option."""
    try:
        return read_owner_kinds("harmlessOwners", list(kinds))
    except InputError as error:
        raise InputError("--harmless-owner", error.value, error.expected) from error


def _time_limit(text: str) -> float | None:
    """Return a time limit in seconds, None for none; raises `InputError`."""
    if text == NONE:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise InputError("--time-limit", text, f"seconds above 0, such as 30, or {NONE}")
    return seconds


def _threshold_args(options: dict[str, Any], resource: str) -> dict[str, dict[str, str | int]]:
    """Return the thresholds that were given; the defaults of the others depend on the strategy."""
    return {
        name: _thresholds(options[option], resource, default)
        for option, (name, default) in _ARGS_BY_OPTION.items()
        if options[option]
    }


def _thresholds(given: tuple[str, ...], resource: str, default: int) -> dict[str, str | int]:
    """Return thresholds given as `PERCENT` (of the resource type) or `RESOURCE=PERCENT`."""
    percentages: dict[str, str | int] = {resource: default}
    for text in given:
        name, separator, percentage = text.rpartition("=")
        percentages[name if separator else resource] = percentage
    return percentages


def _namespaces(options: dict[str, Any]) -> dict[str, list[str]]:
    lists = {"include": options["include_namespace"], "exclude": options["exclude_namespace"]}
    return {name: list(namespaces) for name, namespaces in lists.items() if namespaces}


def planning_time(at: str | None) -> datetime:
    """Return the time to plan at, now if None; raises `InputError` naming the option."""
    if at is None:
        return SystemClock().now()
    try:
        return parse_timestamp(at)
    except InputError as error:
        raise InputError("--at", at, "an RFC 3339 time such as 2026-11-21T07:15:00Z") from error
