"""The planner's settings and plugins as they are where no policy says otherwise."""

from dataclasses import dataclass, replace
from typing import Any

from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.interfaces import ClusterView, PodFilter
from berth_descheduler.framework.rules import Rule
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.plugins.defragmentation import (
    Defragmentation,
    DefragmentationArgs,
    settings_with,
    with_defragmentation,
)
from berth_descheduler.plugins.registry import default_plugins


def planner_settings(args: DefragmentationArgs | None = None, **fields: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the settings
    plugins = fields.pop("plugins", default_plugins())
    settings = with_settings(PlannerSettings(plugins=plugins), **fields)
    return settings_with(settings, plugins if args is None else with_defragmentation(plugins, args))


def with_settings(settings: PlannerSettings, **fields: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the settings
    """The settings with other values of fields, those of their parts among them."""
    for part in ("limits", "scope", "run", "search"):
        known = getattr(settings, part)
        own = {name: fields.pop(name) for name in [*fields] if hasattr(known, name)}
        if own:
            settings = replace(settings, **{part: replace(known, **own)})
    return replace(settings, **fields)


def plugin_set(**fields: Any) -> PluginSet:  # noqa: ANN401 - fields of the set
    return replace(default_plugins(), **fields)


def with_plugins(settings: PlannerSettings, **fields: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the set
    return settings_with(settings, replace(settings.plugins, **fields))


def args_of(settings: PlannerSettings) -> DefragmentationArgs:
    """The arguments of `Defragmentation` that the settings are made with."""
    plugin = settings.plugins.balance.plugin
    assert isinstance(plugin, Defragmentation)
    return plugin.args


def with_args(settings: PlannerSettings, **args: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the arguments
    """The settings with other arguments of `Defragmentation`, those that only its goal has among them."""
    given = args_of(settings)
    own = {name: args.pop(name) for name in [*args] if not hasattr(given, name)}
    if own:
        args["own"] = replace(given.own, **own)
    return settings_with(settings, with_defragmentation(settings.plugins, replace(given, **args)))


@dataclass(frozen=True)
class Toy:
    """A filter plugin as others write one, which lets every pod go and hands a rule over."""

    rules: tuple[Rule, ...]

    def filter(self, view: ClusterView) -> PodFilter:
        del view
        return lambda _: ()


def ruled(how: PlannerSettings, *rules: Rule) -> PlannerSettings:
    return with_plugins(how, filters=(*default_plugins().filters, Enabled("Toy", Toy(rules))))
