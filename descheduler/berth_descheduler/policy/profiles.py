"""What a profile says: which plugins it enables where, with which arguments.

Here is also what is wrong with that. A profile has the shape that upstream's `DeschedulerPolicy` gives it.
`DefaultEvictor` is enabled for `filter` and `preEvictionFilter` unless it is disabled there. Fields of errors are paths
within the profile.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeGuard, TypeVar

from berth_core import InputError, LabelSelector
from berth_descheduler.framework.interfaces import (
    BalancePlugin,
    DeschedulePlugin,
    Enabled,
    FilterPlugin,
    PluginKind,
    PluginSet,
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
"""What a plugin has to have to be enabled somewhere."""

_ON_BY_DEFAULT: Final = frozenset({PluginKind.FILTER, PluginKind.PRE_EVICTION_FILTER})


class PolicyError(InputError):
    """A policy cannot be run.

    It reads as its first error; `errors` are all.
    """

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(first.field, first.value, first.expected, said=first.said)
        self.errors = tuple(errors)

    def within(self, place: str, *, joint: str = ".") -> "PolicyError":
        """Return the same errors with their fields named from further outside."""
        return PolicyError([one.within(place, joint=joint) for one in self.errors])

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make it again.

        The base class's arguments are not its own.
        """
        return (PolicyError, (self.errors,))


def errors_in(error: InputError) -> tuple[InputError, ...]:
    """Return all errors that one stands for."""
    return error.errors if isinstance(error, PolicyError) else (error,)


@dataclass(frozen=True, slots=True)
class ProfilePlugins:
    """The plugins of a profile, ready to plan with."""

    plugins: PluginSet
    warnings: tuple[str, ...] = ()
    """What is accepted and does not do what its writer may expect."""


@dataclass(frozen=True, slots=True)
class _Config:
    """The arguments of a plugin, and where they stand."""

    args: Mapping[str, Any]
    place: str = ""


@dataclass(frozen=True, slots=True)
class _Use:
    """A plugin's name, and where it is enabled."""

    name: str
    place: str


def read_profile(raw: Mapping[str, Any], registry: PluginRegistry) -> ProfilePlugins:
    """Return the plugins of a profile `{name, pluginConfig, plugins}`.

    Raises `InputError` that names the path: a `PolicyError` of all plugins that are wrong.
    """
    return _Reader(raw, registry).read()


class _Reader:
    """One reading of one profile."""

    def __init__(self, raw: Mapping[str, Any], registry: PluginRegistry) -> None:
        self._registry = registry
        self._configs = _read_configs(raw.get("pluginConfig") or [])
        self._uses = _read_uses(raw.get("plugins") or {})
        self._made: dict[str, object] = {}

    def read(self) -> ProfilePlugins:
        """Return what the profile says."""
        if errors := [*self._unknown_names(), *self._wrong_arguments()]:
            raise PolicyError(errors)
        deschedule = self._enabled(PluginKind.DESCHEDULE, _deschedules)
        balances = self._enabled(PluginKind.BALANCE, _balances)
        if len(balances) > 1:
            place = self._uses[PluginKind.BALANCE][1].place
            raise InputError(place, balances[1].name, f"one balance plugin in a profile, and {balances[0].name} is one")
        if not balances and not deschedule:
            raise InputError(
                "plugins", None, "a plugin under balance or deschedule", said="without one that moves pods"
            )
        plugins = PluginSet(
            deschedule=deschedule,
            balance=balances[0] if balances else Enabled("", NoBalance(tuple(one.name for one in deschedule))),
            filters=self._enabled(PluginKind.FILTER, _filters),
            pre_eviction_filters=self._enabled(PluginKind.PRE_EVICTION_FILTER, _filters_before_eviction),
            node_selector=self._node_selector(),
        )
        return ProfilePlugins(plugins, tuple(self._warnings()))

    def _unknown_names(self) -> Iterator[InputError]:
        """Yield what is wrong if there are not all plugins, in one sentence."""
        named = [_Use(name, f"{config.place}.name") for name, config in self._configs.items()]
        named += [use for uses in self._uses.values() for use in uses]
        known = self._registry.names
        unknown = [use for use in named if use.name not in known]
        if unknown:
            names = sorted({use.name for use in unknown})
            others = f"; not there either: {', '.join(names[1:])}" if len(names) > 1 else ""
            first = next(use for use in unknown if use.name == names[0])
            yield InputError(first.place, first.name, f"one of the plugins there are: {', '.join(known)}{others}")

    def _wrong_arguments(self) -> Iterator[InputError]:
        """Yield for each plugin that there is what is wrong with its arguments, also where it is not enabled."""
        uses = {use.name: use for one in self._uses.values() for use in one}
        named = {name: _Use(name, f"{config.place}.name") for name, config in self._configs.items()} | uses
        for name in self._registry.names:
            try:
                if name in named:
                    self._make(named[name])
            except InputError as error:
                yield error

    def _enabled(self, kind: PluginKind, offers: Callable[[object], TypeGuard[P]]) -> tuple[Enabled[P], ...]:
        return tuple(Enabled(use.name, self._as_kind(use, kind, offers)) for use in self._uses[kind])

    def _as_kind(self, use: _Use, kind: PluginKind, offers: Callable[[object], TypeGuard[P]]) -> P:
        """Return a plugin that can be enabled where it is.

        Raises `InputError` for one that cannot.
        """
        plugin = self._make(use)
        if offers(plugin):
            return plugin
        origin = " and ".join(self._registry.origins(use.name))
        methods = " and ".join(_METHODS[kind])
        raise InputError(use.place, use.name, f"a plugin with {methods}, which this one of {origin} has not")

    def _make(self, use: _Use) -> object:
        """Return a plugin with its arguments.

        One that is enabled in several places is one object.
        """
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
        for name, config in self._configs.items():
            if name not in used:
                yield f"{config.place}: {name} has arguments and is not enabled"
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
    found: dict[str, _Config] = {}
    for index, one in enumerate(_listed(raw, "pluginConfig")):
        place = f"pluginConfig[{index}]"
        _check_fields(one, place, {"name", "args"})
        name, args = one.get("name"), one.get("args") or {}
        if not isinstance(name, str) or not name:
            raise InputError(f"{place}.name", name, "the name of a plugin")
        if not isinstance(args, Mapping):
            raise InputError(f"{place}.args", args, "a mapping of the plugin's arguments")
        if name in found:
            raise InputError(f"{place}.name", name, f"each plugin once; {found[name].place} is about it, too")
        found[name] = _Config(args, place)
    return found


def _read_uses(raw: object) -> dict[PluginKind, tuple[_Use, ...]]:
    """Return where plugins are enabled; raises `InputError` for what has another shape."""
    _check_fields(raw, "plugins", {kind.value for kind in PluginKind})
    return {kind: tuple(_uses_of(raw, kind)) for kind in PluginKind}


def _uses_of(raw: Any, kind: PluginKind) -> Iterator[_Use]:  # noqa: ANN401 - a part of unread input
    place = f"plugins.{kind.value}"
    given = raw.get(kind.value) or {}
    _check_fields(given, place, {"enabled", "disabled"})
    enabled, disabled = _names(given, place, "enabled"), _names(given, place, "disabled")
    for index, name in enumerate(enabled):
        if name in disabled or name in enabled[:index]:
            expected = "a plugin that is not disabled as well" if name in disabled else "each plugin once"
            raise InputError(f"{place}.enabled[{index}]", name, expected)
        yield _Use(name, f"{place}.enabled[{index}]")
    if kind in _ON_BY_DEFAULT and not {EVICTOR_NAME, _EVERYTHING} & {*enabled, *disabled}:
        yield _Use(EVICTOR_NAME, place)


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
    unknown = sorted(str(name) for name in set(raw) - known)
    if unknown:
        raise InputError(f"{place}.{unknown[0]}", raw[unknown[0]], f"nothing here but {', '.join(sorted(known))}")
