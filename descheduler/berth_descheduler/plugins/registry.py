"""The plugins: Berth's own, and those of installed distributions.

The latter are found by their entry points. A distribution's code is imported when a policy uses it and not before: one
that cannot be imported, or whose name is taken, is an error of the policies that use it, and of no others.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, cast

from berth_core import InputError, Objective
from berth_core.object_lists import ObjectKind
from berth_descheduler.capability import OnDemand
from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.interfaces import PluginType, reads_of
from berth_descheduler.goals import goal_named
from berth_descheduler.planner import PlannerSettings
from berth_descheduler.planner.goal import Goal
from berth_descheduler.plugins.default_evictor import EVICTOR_NAME, DefaultEvictor
from berth_descheduler.plugins.defragmentation import PLUGIN_NAME, Defragmentation, DefragmentationArgs, settings_with
from berth_descheduler.plugins.ends_soon import ENDS_SOON, EndsSoon
from berth_descheduler.registry import EVERY_CAPABILITY, capability_goal

ENTRY_POINT_GROUP: Final = "berth.plugins"
_OWN: Final = "berth"


@dataclass(frozen=True, slots=True)
class Registration:
    """One plugin that can be named in a policy."""

    name: str
    origin: str
    """The distribution that brings it, with its version."""

    load: Callable[[], PluginType]
    """May raise anything: it imports code of others."""


class PluginRegistry:
    """Makes plugins by their names."""

    def __init__(self, registrations: Iterable[Registration]) -> None:
        self._of_name: dict[str, list[Registration]] = {}
        for registration in registrations:
            self._of_name.setdefault(registration.name, []).append(registration)

    @classmethod
    def discover(cls, own: Mapping[str, PluginType], installed: Iterable[EntryPoint] | None = None) -> "PluginRegistry":
        """Return a registry of Berth's own and installed plugins; imports nothing."""
        plugin_entry_points = entry_points(group=ENTRY_POINT_GROUP) if installed is None else installed
        ours = (Registration(plugin_name, _OWN, _already_loaded(plugin)) for plugin_name, plugin in own.items())
        return cls((*ours, *map(_registration, plugin_entry_points)))

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of all plugins, sorted."""
        return tuple(sorted(self._of_name))

    def reads(self) -> tuple[ObjectKind, ...]:
        """Return the kinds that plugins read beside those of a snapshot, apart from plugins that cannot be loaded."""
        kinds: set[ObjectKind] = set()
        for registrations in self._of_name.values():
            for registration in registrations:
                with suppress(Exception):  # code of others, which only its own policies need
                    kinds.update(reads_of(registration.load()))
        return tuple(sorted(kinds))

    def origins(self, name: str) -> tuple[str, ...]:
        """Return the distributions that bring a plugin of this name."""
        return tuple(sorted(registration.origin for registration in self._of_name.get(name, ())))

    def make(self, name: str, args: Mapping[str, Any]) -> object:
        """Return a plugin with its arguments.

        Raises `InputError` that names the field: `name` for a plugin that there is not or that cannot be used, with the
        distribution to blame, and `args` or `args.FIELD` for an argument.
        """
        registration = self._the_one(name)
        try:
            # The first import of code from another distribution: whatever it raises is the fault of that distribution.
            plugin_type = registration.load()
            parse = plugin_type.parse
        except Exception as error:
            raise InputError("name", name, f"a plugin that can be loaded: {_blame(registration, error)}") from error
        try:
            return parse(args)
        except InputError as error:
            raise error if error.field == "args" else error.within("args") from error
        except Exception as error:
            raise InputError("args", dict(args), f"what the plugin reads: {_blame(registration, error)}") from error

    def _the_one(self, name: str) -> Registration:
        registrations = self._of_name.get(name, [])
        if not registrations:
            raise InputError("name", name, f"one of the plugins there are: {', '.join(self.names)}")
        if len(registrations) > 1:
            raise InputError(
                "name", name, f"a name that one distribution brings, not {' and '.join(self.origins(name))}"
            )
        return registrations[0]


def _already_loaded(plugin: PluginType) -> Callable[[], PluginType]:
    return lambda: plugin


def _registration(point: EntryPoint) -> Registration:
    dist = point.dist
    origin = f"{dist.name} {dist.version}" if dist is not None else "an unknown distribution"
    return Registration(point.name, origin, lambda: cast("PluginType", point.load()))


def _blame(registration: Registration, error: Exception) -> str:
    return f"{type(error).__name__} in {registration.origin}: {error}"


OWN_PLUGINS: Final[Mapping[str, PluginType]] = {
    PLUGIN_NAME: Defragmentation,
    EVICTOR_NAME: DefaultEvictor,
    ENDS_SOON: EndsSoon,
    **{capability.name: capability.plugin for capability in EVERY_CAPABILITY if capability.plugin is not None},
}


def goal_of(objective: Objective) -> Goal[Any, Any]:
    """Return what a recorded plan is for; plans of third-party plugins free nodes."""
    return capability_goal(objective) or goal_named(objective.strategy)


def default_plugins(args: DefragmentationArgs | None = None, evictor: DefaultEvictor | None = None) -> PluginSet:
    """Return Berth's own plugins, which plan where no policy names others."""
    filters = (Enabled(EVICTOR_NAME, evictor or DefaultEvictor()),)
    balance = Enabled(PLUGIN_NAME, Defragmentation(args or DefragmentationArgs()))
    return PluginSet(balance=balance, filters=filters, pre_eviction_filters=filters)


def default_settings() -> PlannerSettings:
    """Return the planner's settings where no policy says otherwise."""
    plugins = default_plugins()
    return settings_with(PlannerSettings(plugins=plugins), plugins)


def on_demand_settings(settings: PlannerSettings, plugin: OnDemand) -> PlannerSettings:
    """Return settings by which nothing is moved but what people ask for."""
    evictor = DefaultEvictor.parse(plugin.evictor_args)
    enabled = Enabled(plugin.objective.plugin, plugin)
    return settings_with(settings, replace(default_plugins(evictor=evictor), balance=enabled, deschedule=(enabled,)))


def installed_plugins() -> PluginRegistry:
    """Return the plugins that a policy can name: Berth's own and those that are installed beside it."""
    return PluginRegistry.discover(OWN_PLUGINS)
