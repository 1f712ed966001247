"""Reads a profile: which plugins it enables where, with which arguments, and what is wrong with that.

A profile has the shape that upstream's `DeschedulerPolicy` gives it. `DefaultEvictor` is enabled for `filter` and
`preEvictionFilter` unless it is disabled there. Fields of errors are paths within the profile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar

from berth_core import InputError, LabelSelector
from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.interfaces import (
    BalancePlugin,
    DeschedulePlugin,
    FilterPlugin,
    PluginKind,
    PreEvictionFilterPlugin,
)
from berth_descheduler.plugins import (
    EVICTOR_NAME,
    PLUGIN_NAME,
    DefaultEvictor,
    NoBalance,
    PluginRegistry,
    find_double_names,
)

P = TypeVar("P")

_EVERYTHING: Final = "*"
_METHODS: Final[Mapping[PluginKind, tuple[str, ...]]] = {
    PluginKind.DESCHEDULE: ("deschedule",),
    PluginKind.BALANCE: ("strategy", "objective"),
    PluginKind.FILTER: ("filter",),
    PluginKind.PRE_EVICTION_FILTER: ("pre_eviction_filter",),
}
"""The attributes that a plugin needs to be enabled at an extension point."""

_ON_BY_DEFAULT: Final = frozenset({PluginKind.FILTER, PluginKind.PRE_EVICTION_FILTER})


class PolicyError(InputError):
    """A policy cannot be run; the message is that of its first error, `errors` has all."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        first_error = errors[0]
        super().__init__(first_error.field, first_error.value, first_error.expected, said=first_error.said)
        self.errors = tuple(errors)

    def within(self, place: str, *, joint: str = ".") -> "PolicyError":
        """Return the same errors with their fields named from further outside."""
        return PolicyError([error.within(place, joint=joint) for error in self.errors])

    def __reduce__(self) -> tuple[Any, ...]:
        """Make copies and pickles from all errors, as the base class would from its own arguments."""
        return (PolicyError, (self.errors,))


def errors_in(error: InputError) -> tuple[InputError, ...]:
    """Return all errors that an error stands for."""
    return error.errors if isinstance(error, PolicyError) else (error,)


@dataclass(frozen=True, slots=True)
class ProfilePlugins:
    """The plugins of a profile, ready to plan with."""

    plugins: PluginSet
    warnings: tuple[str, ...] = ()
    """About settings that are accepted but do not do what their writer may expect."""


@dataclass(frozen=True, slots=True)
class _Config:
    """The arguments of a plugin, and where they stand."""

    args: Mapping[str, Any]
    place: str = ""


@dataclass(frozen=True, slots=True)
class _EnabledPlugin:
    """A plugin's name, and where it is enabled."""

    name: str
    place: str


def read_profile(raw: Mapping[str, Any], registry: PluginRegistry) -> ProfilePlugins:
    """Return the plugins of a profile `{name, pluginConfig, plugins}`.

    Raises `InputError` that names the path, or a `PolicyError` with all plugins that are wrong.
    """
    return _ProfileReader(raw, registry).read()


class _ProfileReader:
    """Reads one profile once."""

    def __init__(self, raw: Mapping[str, Any], registry: PluginRegistry) -> None:
        self._registry = registry
        self._configs = _read_configs(raw.get("pluginConfig") or [])
        self._uses = _read_uses(raw.get("plugins") or {})
        self._made: dict[str, object] = {}

    def read(self) -> ProfilePlugins:
        """Return what the profile says."""
        if errors := [*self._unknown_names(), *self._wrong_arguments()]:
            raise PolicyError(errors)
        deschedule_plugins = self._enabled(PluginKind.DESCHEDULE, _deschedules)
        balance_plugins = self._enabled(PluginKind.BALANCE, _balances)
        if len(balance_plugins) > 1:
            field_path = self._uses[PluginKind.BALANCE][1].place
            raise InputError(
                field_path,
                balance_plugins[1].name,
                f"one balance plugin in a profile, and {balance_plugins[0].name} is one",
            )
        if not balance_plugins and not deschedule_plugins:
            raise InputError(
                "plugins", None, "a plugin under balance or deschedule", said="without one that moves pods"
            )
        plugins = PluginSet(
            deschedule=deschedule_plugins,
            balance=balance_plugins[0]
            if balance_plugins
            else Enabled("", NoBalance(tuple(plugin.name for plugin in deschedule_plugins))),
            filters=self._enabled(PluginKind.FILTER, _filters),
            pre_eviction_filters=self._enabled(PluginKind.PRE_EVICTION_FILTER, _filters_before_eviction),
            node_selector=self._node_selector(),
        )
        return ProfilePlugins(plugins, tuple(self._warnings()))

    def _unknown_names(self) -> Iterator[InputError]:
        """Yield one error that names all plugins that are not installed."""
        named_plugins = [
            _EnabledPlugin(plugin_name, f"{config.place}.name") for plugin_name, config in self._configs.items()
        ]
        named_plugins += [use for uses in self._uses.values() for use in uses]
        known_plugins = self._registry.names
        unknown = [use for use in named_plugins if use.name not in known_plugins]
        if unknown:
            names = sorted({use.name for use in unknown})
            others_text = f"; not there either: {', '.join(names[1:])}" if len(names) > 1 else ""
            first_unknown = next(use for use in unknown if use.name == names[0])
            yield InputError(
                first_unknown.place,
                first_unknown.name,
                f"one of the plugins there are: {', '.join(known_plugins)}{others_text}",
            )

    def _wrong_arguments(self) -> Iterator[InputError]:
        """Yield what is wrong with the arguments of installed plugins, enabled or not."""
        uses = {use.name: use for point_uses in self._uses.values() for use in point_uses}
        named_plugins = {
            plugin_name: _EnabledPlugin(plugin_name, f"{config.place}.name")
            for plugin_name, config in self._configs.items()
        } | uses
        for name in self._registry.names:
            try:
                if name in named_plugins:
                    self._make(named_plugins[name])
            except InputError as error:
                yield error

    def _enabled(self, kind: PluginKind, offers: Callable[[object], TypeGuard[P]]) -> tuple[Enabled[P], ...]:
        return tuple(Enabled(use.name, self._as_kind(use, kind, offers)) for use in self._uses[kind])

    def _as_kind(self, use: _EnabledPlugin, kind: PluginKind, offers: Callable[[object], TypeGuard[P]]) -> P:
        """Return a plugin that can be enabled where it is; raises `InputError` for one that cannot."""
        plugin = self._make(use)
        if offers(plugin):
            return plugin
        origin = " and ".join(self._registry.origins(use.name))
        methods = " and ".join(_METHODS[kind])
        raise InputError(use.place, use.name, f"a plugin with {methods}, which this one of {origin} has not")

    def _make(self, use: _EnabledPlugin) -> object:
        """Return a plugin with its arguments; a plugin that is enabled in several places is one object."""
        if use.name not in self._made:
            config = self._configs.get(use.name, _Config({}))
            try:
                self._made[use.name] = self._registry.make(use.name, config.args)
            except InputError as error:
                if error.field == "name" or not config.place:
                    raise InputError(use.place, use.name, error.expected) from error
                raise error.within(config.place) from error
        return self._made[use.name]

    def _node_selector(self) -> LabelSelector | None:
        """Return the evictor's node selector, which holds for targets as well."""
        evictor = self._made.get(EVICTOR_NAME)
        return evictor.args.node_selector if isinstance(evictor, DefaultEvictor) else None

    def _warnings(self) -> Iterator[str]:
        used = {use.name for uses in self._uses.values() for use in uses}
        for plugin_name, config in self._configs.items():
            if plugin_name not in used:
                yield f"{config.place}: {plugin_name} has arguments and is not enabled"
        defragmentation = self._configs.get(PLUGIN_NAME)
        if defragmentation is not None:
            for alias, preferred in find_double_names(defragmentation.args):
                text = f"is another name of {preferred}, which is given as well: give {preferred} alone"
                yield f"{defragmentation.place}.args.{alias}: {text}"
        evictor = self._configs.get(EVICTOR_NAME)
        if evictor is not None and evictor.args.get("nodeFit") is False:
            yield f"{evictor.place}.args.nodeFit: a pod is moved only to a node that fits it, whatever is said here"


def _deschedules(plugin: object) -> TypeGuard[DeschedulePlugin]:
    return isinstance(plugin, DeschedulePlugin)


def _balances(plugin: object) -> TypeGuard[BalancePlugin[Any]]:
    return isinstance(plugin, BalancePlugin)


def _filters(plugin: object) -> TypeGuard[FilterPlugin]:
    return isinstance(plugin, FilterPlugin)


def _filters_before_eviction(plugin: object) -> TypeGuard[PreEvictionFilterPlugin]:
    return isinstance(plugin, PreEvictionFilterPlugin)


def _read_configs(raw: object) -> dict[str, _Config]:
    """Return the arguments by plugin; raises `InputError` for what has another shape."""
    configs: dict[str, _Config] = {}
    for index, entry in enumerate(_listed(raw, "pluginConfig")):
        field_path = f"pluginConfig[{index}]"
        _check_fields(entry, field_path, {"name", "args"})
        plugin_name, args = entry.get("name"), entry.get("args") or {}
        if not isinstance(plugin_name, str) or not plugin_name:
            raise InputError(f"{field_path}.name", plugin_name, "the name of a plugin")
        if not isinstance(args, Mapping):
            raise InputError(f"{field_path}.args", args, "a mapping of the plugin's arguments")
        if plugin_name in configs:
            raise InputError(
                f"{field_path}.name", plugin_name, f"each plugin once; {configs[plugin_name].place} is about it, too"
            )
        configs[plugin_name] = _Config(args, field_path)
    return configs


def _read_uses(raw: object) -> dict[PluginKind, tuple[_EnabledPlugin, ...]]:
    """Return where plugins are enabled; raises `InputError` for what has another shape."""
    _check_fields(raw, "plugins", {kind.value for kind in PluginKind})
    return {kind: tuple(_uses_of(raw, kind)) for kind in PluginKind}


def _uses_of(raw: Any, kind: PluginKind) -> Iterator[_EnabledPlugin]:  # noqa: ANN401 - a part of unread input
    field_path = f"plugins.{kind.value}"
    lists = raw.get(kind.value) or {}
    _check_fields(lists, field_path, {"enabled", "disabled"})
    enabled, disabled = _names(lists, field_path, "enabled"), _names(lists, field_path, "disabled")
    for index, plugin_name in enumerate(enabled):
        if plugin_name in disabled or plugin_name in enabled[:index]:
            expected = "a plugin that is not disabled as well" if plugin_name in disabled else "each plugin once"
            raise InputError(f"{field_path}.enabled[{index}]", plugin_name, expected)
        yield _EnabledPlugin(plugin_name, f"{field_path}.enabled[{index}]")
    if kind in _ON_BY_DEFAULT and not {EVICTOR_NAME, _EVERYTHING} & {*enabled, *disabled}:
        yield _EnabledPlugin(EVICTOR_NAME, field_path)


def _names(given: Mapping[str, Any], place: str, field_name: str) -> tuple[str, ...]:
    names = _listed(given.get(field_name) or [], f"{place}.{field_name}")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name:
            raise InputError(f"{place}.{field_name}[{index}]", name, "the name of a plugin")
    return tuple(names)


def _listed(raw: object, place: str) -> Sequence[Any]:
    if not isinstance(raw, list | tuple):
        raise InputError(place, raw, "a list")
    return raw


def _check_fields(raw: object, place: str, known: set[str]) -> None:
    if not isinstance(raw, Mapping):
        raise InputError(place, raw, f"a mapping with {', '.join(sorted(known))}")
    unknown = sorted(str(field_name) for field_name in set(raw) - known)
    if unknown:
        raise InputError(f"{place}.{unknown[0]}", raw[unknown[0]], f"nothing here but {', '.join(sorted(known))}")
