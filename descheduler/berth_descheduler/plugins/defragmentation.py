"""The balance plugin `Defragmentation`: the arguments that all goals have, and the goal that they name."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar, Final

from berth_core import CPU, Deadline, InputError, Objective, format_duration, parse_duration, refuse_unknown
from berth_core.object_lists import ObjectKind
from berth_descheduler.framework.enabled_plugins import Enabled, PluginSet
from berth_descheduler.framework.rules import Rule, rules_of
from berth_descheduler.goals import DEFAULT_GOAL, OFFERED_GOALS, read_goal
from berth_descheduler.goals.move_pods.goal import MovePodsGoal
from berth_descheduler.planner import EvictableNamespaces, PlannerSettings, Strategy, Thresholds
from berth_descheduler.planner.cool_downs import NodeCoolDown, PodCoolDown, SourceCoolDown
from berth_descheduler.planner.goal import ArgumentGroup, Goal
from berth_descheduler.planner.rooms import RoomOfGuarantee
from berth_descheduler.registry import EVERY_CAPABILITY, groups_of, room_of_guarantee

PLUGIN_NAME: Final = "Defragmentation"

LOW_DEFAULT: Final = 40
DEFRAGMENT_DEFAULT: Final = 70

_NAMES: Final = [f"`{goal.name}`{' (default)' if goal is DEFAULT_GOAL else ''}" for goal in OFFERED_GOALS]
_ALWAYS_WHOLE: Final = [f"`{goal.name}`" for goal in OFFERED_GOALS if goal.whole_nodes]

ARGUMENTS: Final[Mapping[str, str]] = {
    "strategy": f"How moves are chosen: {', '.join(_NAMES[:-1])} or {_NAMES[-1]}.",
    "wholeNodes": f"Empty a node whole or leave it alone: {' and '.join(_ALWAYS_WHOLE)} always, others not by default.",
    "resourceType": "Orders nodes; what `MinimizeFragmentation` is about. `cpu` by default; a node must have it.",
    "lowThresholds": "`Threshold`: percentages below which a node is a source; `{cpu: 40}` by default.",
    "defragmentThresholds": "`Threshold`: percentages above which a node is a target; `{cpu: 70}` by default.",
    "protectionThresholds": "Percentages above which no move fills a node; 95 with `Threshold`, 100 with the others.",
    "numberOfNodes": "`Threshold`: act only if more nodes than this are low; 0 by default.",
    "evictableNamespaces": "Namespaces whose pods may move: a list `include` or a list `exclude`; all by default.",
    "coolDownTime": "How long a node that pods were moved off is no source again; none by default.",
    **{
        argument: meaning
        for goal in OFFERED_GOALS
        for group in groups_of(goal)
        for argument, meaning in group.arguments.items()
    },
}
"""Each argument with its meaning, as the reference page shows it."""

_ALIASES: Final = {
    "ResourceType": "resourceType",
    "ProtectionThresholds": "protectionThresholds",
    "DefragmentThresholds": "defragmentThresholds",
    "FragmentThresholds": "defragmentThresholds",
    "fragmentThresholds": "defragmentThresholds",
    "LowThresholds": "lowThresholds",
    "NumberOfNodes": "numberOfNodes",
    "EvictableNamespaces": "evictableNamespaces",
    "CoolDownTime": "coolDownTime",
}
"""Names of the original proposal, which has some arguments under several."""


def find_double_names(raw: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the arguments that are given under two names, each with the preferred one."""
    names_and_preferred = [(argument, _ALIASES.get(argument, argument)) for argument in raw]
    names = [preferred for _, preferred in names_and_preferred]
    return tuple(
        (argument, preferred)
        for argument, preferred in names_and_preferred
        if argument != preferred and names.count(preferred) > 1
    )


@dataclass(frozen=True, slots=True)
class DefragmentationArgs:
    """The plugin's arguments; every threshold map has the `resource_type` among its resources."""

    resource_type: str = CPU
    """The resource by whose utilisation nodes are ordered."""

    low: Thresholds = field(default_factory=lambda: Thresholds.of(cpu=LOW_DEFAULT))
    """A source is below all of these."""

    defragment: Thresholds = field(default_factory=lambda: Thresholds.of(cpu=DEFRAGMENT_DEFAULT))
    """A target is above all of these."""

    protection: Thresholds = field(default_factory=lambda: Thresholds.of(cpu=DEFAULT_GOAL.protection_percent))
    """A target is below all of these, and no move takes it above one."""

    number_of_nodes: int = 0
    """Nothing is done unless more nodes than this are low."""

    evictable_namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    """Whose pods may be moved; the others count as what they hold."""

    cool_down: timedelta = timedelta(0)
    """How long after pods were moved off a node it is no source again; 0: at once."""

    goal: Goal[Any, Any] = DEFAULT_GOAL
    """What the moves are for, and so which strategy chooses them."""

    whole_nodes: bool | None = None
    """Whether a node is emptied whole or left alone; None becomes what is usual with the goal."""

    own: Any = None
    """What the goal has read from its own arguments; None becomes their defaults."""

    further: Mapping[ArgumentGroup[Any], Any] = field(default_factory=dict, hash=False)
    """What capabilities have read from the arguments that they add to those of the goal; missing ones by default."""

    def __post_init__(self) -> None:
        """Refuse arguments that contradict one another, naming the field."""
        if self.whole_nodes is None:
            object.__setattr__(self, "whole_nodes", bool(self.goal.whole_nodes))
        if self.own is None:
            object.__setattr__(self, "own", self.goal.read({}))
        groups = (group for group in groups_of(self.goal) if group is not self.goal)
        further = {group: self.further[group] if group in self.further else group.read({}) for group in groups}
        object.__setattr__(self, "further", further)
        for name, thresholds in self._maps():
            if thresholds.get(self.resource_type) is None:
                raise InputError(
                    name, thresholds.to_mapping(), f"a percentage for the resourceType {self.resource_type}"
                )
        if self.number_of_nodes < 0:
            raise InputError("numberOfNodes", self.number_of_nodes, "a whole number from 0 on")
        if self.cool_down < timedelta(0):
            raise InputError("coolDownTime", format_duration(self.cool_down), "a length of time from 0 on")
        required = self.goal.whole_nodes
        if required is not None and self.empties_whole_nodes is not required:
            usual = f"{str(required).lower()} or nothing with the strategy {self.goal.name}"
            raise InputError("wholeNodes", self.whole_nodes, usual)
        self.goal.check(self)

    @property
    def groups(self) -> tuple[tuple[ArgumentGroup[Any], Any], ...]:
        """Return the groups of arguments that only its goal has, each with what was read from them."""
        return (*self.further.items(), (self.goal, self.own))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """Return the rules that these arguments make."""
        return tuple(rule for group, own in self.groups for rule in group.rules(own))

    @property
    def weighs_nodes(self) -> bool:
        return any(rule.weighs_nodes for rule in self.rules)

    @property
    def room_of_guarantee(self) -> RoomOfGuarantee:
        """Return what knows the guarantees that room can be made for."""
        return room_of_guarantee

    @property
    def empties_whole_nodes(self) -> bool:
        """Return whether a node is emptied whole or left alone."""
        return bool(self.whole_nodes)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "DefragmentationArgs":
        """Return the arguments of a policy's `args`; raises `InputError` that names the field.

        The names of the original proposal are read as well; two names of one argument have to say the same.
        """
        # The preferred name goes before its aliases, and of these the one that comes first.
        names = {_ALIASES.get(argument, argument): argument for argument in reversed([*raw])}
        names |= {argument: argument for argument in raw if argument in ARGUMENTS}
        given_arguments = {preferred: raw[argument] for preferred, argument in names.items()}
        for alias, preferred in find_double_names(raw):
            if raw[alias] != given_arguments[preferred]:
                expected = f"what {names[preferred]} says, of which it is another name: give {preferred} alone"
                raise InputError(alias, raw[alias], expected)
        try:
            return cls._parse(given_arguments)
        except InputError as error:
            field_name, dot, sub_field = error.field.partition(".")
            typed_field = f"{names.get(field_name, field_name)}{dot}{sub_field}"
            raise InputError(typed_field, error.value, error.expected, said=error.said) from error

    @classmethod
    def _parse(cls, raw: Mapping[str, Any]) -> "DefragmentationArgs":
        """Return the arguments by their preferred names."""
        refuse_unknown("args", raw, ARGUMENTS)
        resource = raw.get("resourceType", CPU)
        if not isinstance(resource, str) or not resource:
            raise InputError("resourceType", resource, "a resource such as cpu, memory or nvidia.com/gpu")
        goal = read_goal(raw.get("strategy", DEFAULT_GOAL.name))
        # Newest first, as the help lists their options.
        values = {
            group: group.read(raw) for offered_goal in reversed(OFFERED_GOALS) for group in groups_of(offered_goal)
        }
        _refuse_those_of_others(values, goal)
        return cls(
            resource_type=resource,
            low=_thresholds(raw, "lowThresholds", {resource: LOW_DEFAULT}),
            defragment=_thresholds(raw, "defragmentThresholds", {resource: DEFRAGMENT_DEFAULT}),
            protection=_thresholds(raw, "protectionThresholds", {resource: goal.protection_percent}),
            number_of_nodes=_whole_number(raw.get("numberOfNodes", 0)),
            evictable_namespaces=EvictableNamespaces.parse(raw.get("evictableNamespaces")),
            cool_down=_cool_down(raw.get("coolDownTime", 0)),
            goal=goal,
            whole_nodes=_flag(raw.get("wholeNodes")),
            own=values[goal],
            further=values,
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads, every field given."""
        return {
            "resourceType": self.resource_type,
            **{name: thresholds.to_mapping() for name, thresholds in self._maps()},
            "numberOfNodes": self.number_of_nodes,
            "evictableNamespaces": self.evictable_namespaces.to_mapping(),
            "coolDownTime": format_duration(self.cool_down),
            "strategy": self.goal.name,
            "wholeNodes": self.empties_whole_nodes,
            **{name: value for group, own in self.groups for name, value in group.write(own).items()},
        }

    @property
    def named_resources(self) -> dict[str, str]:
        """Return each field that names a resource by which nodes are judged, with the resource."""
        return {"resourceType": self.resource_type, **self.goal.named_resources(self)}

    def _maps(self) -> tuple[tuple[str, Thresholds], ...]:
        return (
            ("lowThresholds", self.low),
            ("defragmentThresholds", self.defragment),
            ("protectionThresholds", self.protection),
        )


def _refuse_those_of_others(values: Mapping[ArgumentGroup[Any], Any], wanted: Goal[Any, Any]) -> None:
    """Raise `InputError` for arguments that only another goal has than the one that is wanted."""
    for goal in reversed(OFFERED_GOALS):
        for group in groups_of(goal) if goal is not wanted else ():
            if values[group] != group.read({}):
                name, value = next(iter(group.write(values[group]).items()))
                raise InputError(name, value, f"nothing with a strategy other than {goal.name}")


def _thresholds(raw: Mapping[str, Any], field_name: str, default: Mapping[str, int]) -> Thresholds:
    return Thresholds.parse(field_name, raw.get(field_name, default))


def _whole_number(raw: object) -> int:
    if isinstance(raw, bool) or not isinstance(raw, int):
        raise InputError("numberOfNodes", raw, "a whole number from 0 on")
    return raw


def _flag(raw: object) -> bool | None:
    if raw is None or isinstance(raw, bool):
        return raw
    raise InputError("wholeNodes", raw, "true or false")


def _cool_down(raw: object) -> timedelta:
    """Return a cool-down given in seconds or in Go's duration syntax."""
    if isinstance(raw, bool) or not isinstance(raw, int | str):
        raise InputError("coolDownTime", raw, "seconds, or a duration such as 30m")
    if isinstance(raw, int):
        return timedelta(seconds=raw)
    try:
        return parse_duration(raw)
    except InputError as error:
        raise InputError("coolDownTime", raw, "seconds, or a duration such as 30m") from error


@dataclass(frozen=True, slots=True)
class Defragmentation:
    """Empties nodes or makes room, by the strategy of its arguments."""

    args: DefragmentationArgs = field(default_factory=DefragmentationArgs)

    may_read: ClassVar[tuple[ObjectKind, ...]] = tuple(
        kind for goal in OFFERED_GOALS for group in groups_of(goal) for kind in group.may_read
    )
    """What plans of any goal read beside a snapshot."""

    @property
    def reads(self) -> tuple[ObjectKind, ...]:
        """Return what plans of its goal read beside a snapshot."""
        return tuple(kind for group, own in self.args.groups for kind in group.reads(own))

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "Defragmentation":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        return cls(DefragmentationArgs.parse(args))

    def strategy(self, deadline: Deadline) -> Strategy:
        goal = self.args.goal
        return goal.strategy(goal.request(self.args), deadline)

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=PLUGIN_NAME, strategy=self.args.goal.name, args=self.args.to_mapping())


@dataclass(frozen=True, slots=True)
class NoBalance:
    """The balance plugin of a profile that enables none: only named pods are moved."""

    goal: ClassVar[MovePodsGoal] = MovePodsGoal()

    plugins: tuple[str, ...] = ()
    """The deschedule plugins that the profile enables."""

    def strategy(self, _deadline: Deadline) -> Strategy:
        """Return the strategy that moves nothing."""
        return self.goal.strategy(None, _deadline)

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=", ".join(self.plugins), strategy=self.goal.name)


def with_defragmentation(plugins: PluginSet, args: DefragmentationArgs) -> PluginSet:
    """Return the plugins with `Defragmentation` as the balance plugin."""
    return replace(plugins, balance=Enabled(PLUGIN_NAME, Defragmentation(args)))


def settings_with(settings: PlannerSettings, plugins: PluginSet) -> PlannerSettings:
    """Return the settings with other plugins and with what their arguments ask of the planner itself.

    The planner knows no arguments of third-party plugins: it orders nodes by cpu and protects none.
    """
    balance = plugins.balance.plugin
    args = balance.args if isinstance(balance, Defragmentation) else None
    return replace(
        settings,
        plugins=plugins,
        resource_type=args.resource_type if args else CPU,
        scope=replace(
            settings.scope, evictable_namespaces=args.evictable_namespaces if args else EvictableNamespaces()
        ),
        protection=args.protection if args else Thresholds(()),
        rules=(
            # In the order in which refusals are named: of several rules that refuse a node, the first one is shown.
            SourceCoolDown(args.cool_down if args else timedelta(0)),
            *_kept_rules(settings),
            *(rule for capability in EVERY_CAPABILITY for rule in capability.rules(plugins)),
            *(args.rules if args else ()),
            *rules_of(plugins),
        ),
        named_resources=args.named_resources if args else {"resourceType": CPU},
    )


def _kept_rules(settings: PlannerSettings) -> tuple[Rule, ...]:
    """Return the rules that no plugin has handed over."""
    return tuple(rule for rule in settings.rules if isinstance(rule, NodeCoolDown | PodCoolDown))
