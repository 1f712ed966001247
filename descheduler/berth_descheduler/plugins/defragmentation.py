"""The balance plugin `Defragmentation`: its arguments, strategies and their purposes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum, StrEnum, auto
from typing import Any, Final, assert_never

from berth_core import (
    CPU,
    LENT_NODES,
    STARVING_JOBS,
    WINDOW_MOVES,
    Deadline,
    InputError,
    Objective,
    Pod,
    Snapshot,
    format_duration,
    parse_duration,
    refuse_unknown,
)
from berth_descheduler.framework.interfaces import Enabled, PluginSet
from berth_descheduler.goals.free_nodes.threshold import Threshold, ThresholdRules
from berth_descheduler.planner import (
    EvictableNamespaces,
    NodeIndex,
    NodePrices,
    PlannerSettings,
    Problem,
    Proposal,
    RoomRequest,
    State,
    Strategy,
    Thresholds,
    format_money,
    parse_money,
    plain_percentage,
)

PLUGIN_NAME: Final = "Defragmentation"

LOW_DEFAULT: Final = 40
DEFRAGMENT_DEFAULT: Final = 70
PROTECTION_DEFAULT: Final = 95
"""With the strategy `Threshold`; the others fill nodes up where nothing else is said."""

PROTECTION_DEFAULT_OF_OTHERS: Final = 100

_WORD_START: Final = re.compile("(?<!^)(?=[A-Z])")

ARGUMENTS: Final[Mapping[str, str]] = {
    "strategy": "How moves are chosen: `Threshold` (default), `Consolidate`, `MakeRoom` or `MinimizeFragmentation`.",
    "wholeNodes": "Empty a node whole or leave it alone: `Consolidate` and `MakeRoom` always, others not by default.",
    "resourceType": "Orders nodes; what `MinimizeFragmentation` is about. `cpu` by default; a node must have it.",
    "lowThresholds": "`Threshold`: percentages below which a node is a source; `{cpu: 40}` by default.",
    "defragmentThresholds": "`Threshold`: percentages above which a node is a target; `{cpu: 70}` by default.",
    "protectionThresholds": "Percentages above which no move fills a node; 95 with `Threshold`, 100 with the others.",
    "numberOfNodes": "`Threshold`: act only if more nodes than this are low; 0 by default.",
    "evictableNamespaces": "Namespaces whose pods may move: a list `include` or a list `exclude`; all by default.",
    "coolDownTime": "How long a node that pods were moved off is no source again; none by default.",
    "nodePrice": "`Consolidate`: what a node's hour costs, by `annotation`, `label`, `instanceTypes` or `default`.",
    "minSavingsPerMove": "`Consolidate` with `nodePrice`: what each move has to save an hour; 0 by default.",
    "room": "`MakeRoom`: lists `shapes` and `pods`, or a `queue`; `owners` of shapes; all pending pods by default.",
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
    """Return the arguments that are given under another name as well.

    Each comes with the name that is preferred.
    """
    given = [(name, _ALIASES.get(name, name)) for name in raw]
    names = [preferred for _, preferred in given]
    return tuple((name, preferred) for name, preferred in given if name != preferred and names.count(preferred) > 1)


SINGLE_PODS: Final = "SinglePods"
"""What a plan records as its strategy if it only moves pods that plugins name."""


class Goal(Enum):
    """What a plan is for."""

    FREE_NODES = auto()
    MAKE_ROOM = auto()
    LOWER_FRAGMENTATION = auto()
    MOVE_PODS = auto()
    """It moves the pods that deschedule plugins name, and no others."""


class StrategyName(StrEnum):
    """How the moves are chosen."""

    THRESHOLD = "Threshold"
    CONSOLIDATE = "Consolidate"
    MAKE_ROOM = "MakeRoom"
    MINIMIZE_FRAGMENTATION = "MinimizeFragmentation"

    @property
    def goal(self) -> Goal:
        """Return what plans of the strategy are for."""
        others = {
            StrategyName.MAKE_ROOM: Goal.MAKE_ROOM,
            StrategyName.MINIMIZE_FRAGMENTATION: Goal.LOWER_FRAGMENTATION,
        }
        return others.get(self, Goal.FREE_NODES)

    @property
    def whole_nodes(self) -> bool | None:
        """Return whether it empties nodes whole; None where the arguments say that."""
        match self:
            case StrategyName.THRESHOLD:
                return None
            case StrategyName.CONSOLIDATE | StrategyName.MAKE_ROOM:
                return True
            case StrategyName.MINIMIZE_FRAGMENTATION:
                return False

    @property
    def option(self) -> str:
        """Return the name as the command line has it."""
        return _WORD_START.sub("-", self.value).lower()

    @classmethod
    def parse(cls, raw: object) -> "StrategyName":
        """Return the strategy of a name; raises `InputError`.

        The name may be in any case and with or without hyphens.
        """
        names = {name.value.lower(): name for name in cls}
        found = names.get(raw.lower().replace("-", "")) if isinstance(raw, str) else None
        if found is None:
            raise InputError("strategy", raw, f"one of {', '.join(name.value for name in cls)}")
        return found


def goal_of(objective: Objective) -> Goal:
    """Return what a recorded plan is for.

    Plans of plugins by others free nodes.
    """
    if objective.strategy in {SINGLE_PODS, WINDOW_MOVES}:
        return Goal.MOVE_PODS
    if objective.strategy in {STARVING_JOBS, LENT_NODES}:
        return Goal.MAKE_ROOM
    return {name.value: name.goal for name in StrategyName}.get(objective.strategy, Goal.FREE_NODES)


@dataclass(frozen=True, slots=True)
class DefragmentationArgs:
    """The plugin's arguments; every threshold map has the `resource_type` among its resources."""

    resource_type: str = CPU
    """The resource by whose utilisation nodes are ordered."""

    low: Thresholds = field(default_factory=lambda: Thresholds.of(cpu=LOW_DEFAULT))
    """A source is below all of these."""

    defragment: Thresholds = field(default_factory=lambda: Thresholds.of(cpu=DEFRAGMENT_DEFAULT))
    """A target is above all of these."""

    protection: Thresholds = field(default_factory=lambda: Thresholds.of(cpu=PROTECTION_DEFAULT))
    """A target is below all of these, and no move takes it above one."""

    number_of_nodes: int = 0
    """Nothing is done unless more nodes than this are low."""

    evictable_namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    """Whose pods may be moved; the others count as what they hold."""

    cool_down: timedelta = timedelta(0)
    """How long after pods were moved off a node it is no source again; 0: at once."""

    strategy: StrategyName = StrategyName.THRESHOLD

    whole_nodes: bool | None = None
    """Whether a node is emptied whole or left alone; None becomes what is usual with the strategy."""

    room: RoomRequest = field(default_factory=RoomRequest)
    """What `MakeRoom` makes room for."""

    node_prices: NodePrices = field(default_factory=NodePrices)
    """What an hour of each node costs: with any, `Consolidate` frees the most money."""

    min_savings_per_move: int = 0
    """What each move has to save an hour, in millionths."""

    def __post_init__(self) -> None:
        """Refuse arguments that contradict one another, naming the field."""
        if self.whole_nodes is None:
            object.__setattr__(self, "whole_nodes", bool(self.strategy.whole_nodes))
        for name, thresholds in self._maps():
            if thresholds.get(self.resource_type) is None:
                raise InputError(
                    name, thresholds.to_mapping(), f"a percentage for the resourceType {self.resource_type}"
                )
        if self.number_of_nodes < 0:
            raise InputError("numberOfNodes", self.number_of_nodes, "a whole number from 0 on")
        if self.strategy is not StrategyName.MAKE_ROOM and not self.room.names_nothing:
            raise InputError("room", self.room.to_mapping(), "nothing with a strategy other than MakeRoom")
        if self.strategy is not StrategyName.CONSOLIDATE and self.node_prices:
            raise InputError(
                "nodePrice", self.node_prices.to_mapping(), "nothing with a strategy other than Consolidate"
            )
        if self.min_savings_per_move and not self.node_prices:
            expected = "nothing without nodePrice, by which a node's moves save something"
            raise InputError("minSavingsPerMove", format_money(self.min_savings_per_move), expected)
        if self.cool_down < timedelta(0):
            raise InputError("coolDownTime", format_duration(self.cool_down), "a length of time from 0 on")
        only = self.strategy.whole_nodes
        if only is not None and self.empties_whole_nodes is not only:
            usual = f"{str(only).lower()} or nothing with the strategy {self.strategy.value}"
            raise InputError("wholeNodes", self.whole_nodes, usual)
        if self.strategy is StrategyName.THRESHOLD:
            self._check_order()

    @property
    def empties_whole_nodes(self) -> bool:
        """Return whether a node is emptied whole or left alone."""
        return bool(self.whole_nodes)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "DefragmentationArgs":
        """Return the arguments of a policy's `args`.

        Raises `InputError` that names the field. The names of the original proposal are read as well; two names of one
        argument have to say the same.
        """
        names = {_ALIASES.get(name, name): name for name in reversed([*raw])}
        names |= {name: name for name in raw if name in ARGUMENTS}
        given = {preferred: raw[name] for preferred, name in names.items()}
        for alias, preferred in find_double_names(raw):
            if raw[alias] != given[preferred]:
                expected = f"what {names[preferred]} says, of which it is another name: give {preferred} alone"
                raise InputError(alias, raw[alias], expected)
        try:
            return cls._parse(given)
        except InputError as error:
            field_name, dot, rest = error.field.partition(".")
            typed = f"{names.get(field_name, field_name)}{dot}{rest}"
            raise InputError(typed, error.value, error.expected, said=error.said) from error

    @classmethod
    def _parse(cls, raw: Mapping[str, Any]) -> "DefragmentationArgs":
        """Return the arguments by their preferred names."""
        refuse_unknown("args", raw, ARGUMENTS)
        resource = raw.get("resourceType", CPU)
        if not isinstance(resource, str) or not resource:
            raise InputError("resourceType", resource, "a resource such as cpu, memory or nvidia.com/gpu")
        strategy = StrategyName.parse(raw.get("strategy", StrategyName.THRESHOLD.value))
        protection = PROTECTION_DEFAULT if strategy is StrategyName.THRESHOLD else PROTECTION_DEFAULT_OF_OTHERS
        return cls(
            resource_type=resource,
            low=_thresholds(raw, "lowThresholds", {resource: LOW_DEFAULT}),
            defragment=_thresholds(raw, "defragmentThresholds", {resource: DEFRAGMENT_DEFAULT}),
            protection=_thresholds(raw, "protectionThresholds", {resource: protection}),
            number_of_nodes=_whole_number(raw.get("numberOfNodes", 0)),
            evictable_namespaces=EvictableNamespaces.parse(raw.get("evictableNamespaces")),
            cool_down=_cool_down(raw.get("coolDownTime", 0)),
            strategy=strategy,
            whole_nodes=_flag(raw.get("wholeNodes")),
            room=RoomRequest.parse(raw.get("room")),
            node_prices=NodePrices.parse(raw.get("nodePrice")),
            min_savings_per_move=parse_money("minSavingsPerMove", raw.get("minSavingsPerMove", 0)),
        )

    def to_mapping(self) -> dict[str, Any]:
        """Return what `parse` reads, every field given."""
        return {
            "resourceType": self.resource_type,
            **{name: thresholds.to_mapping() for name, thresholds in self._maps()},
            "numberOfNodes": self.number_of_nodes,
            "evictableNamespaces": self.evictable_namespaces.to_mapping(),
            "coolDownTime": format_duration(self.cool_down),
            "strategy": self.strategy.value,
            "wholeNodes": self.empties_whole_nodes,
            **({"room": self.room.to_mapping()} if self.strategy is StrategyName.MAKE_ROOM else {}),
            **({"nodePrice": self.node_prices.to_mapping()} if self.node_prices else {}),
            **({"minSavingsPerMove": format_money(least)} if (least := self.min_savings_per_move) else {}),
        }

    @property
    def named_resources(self) -> dict[str, str]:
        """Return each field that names a resource, with the resource.

        Nodes are judged by these resources.
        """
        maps = (("lowThresholds", self.low), ("defragmentThresholds", self.defragment))
        fields = {f"{name}.{resource}": resource for name, given in maps for resource, _ in given.percentages}
        return {"resourceType": self.resource_type, **fields}

    def _maps(self) -> tuple[tuple[str, Thresholds], ...]:
        return (
            ("lowThresholds", self.low),
            ("defragmentThresholds", self.defragment),
            ("protectionThresholds", self.protection),
        )

    def _check_order(self) -> None:
        for name, low in self.low.percentages:
            defragment = self.defragment.get(name)
            if defragment is not None and low > defragment:
                raise InputError(
                    f"lowThresholds.{name}",
                    plain_percentage(low),
                    f"at most defragmentThresholds.{name}, which is {plain_percentage(defragment)}",
                )
        for name, defragment in self.defragment.percentages:
            protection = self.protection.get(name)
            if protection is not None and defragment >= protection:
                raise InputError(
                    f"defragmentThresholds.{name}",
                    plain_percentage(defragment),
                    f"less than protectionThresholds.{name}, which is {plain_percentage(protection)}",
                )


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

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "Defragmentation":
        """Return the plugin with a policy's `args`.

        Raises `InputError` that names the field.
        """
        return cls(DefragmentationArgs.parse(args))

    def strategy(self, deadline: Deadline) -> Strategy:
        """Return the strategy."""
        return make_strategy(self.args, deadline)

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=PLUGIN_NAME, strategy=self.args.strategy.value, args=self.args.to_mapping())


@dataclass(frozen=True, slots=True)
class NoBalance:
    """The balance plugin of a profile that enables none.

    Only named pods are moved.
    """

    plugins: tuple[str, ...] = ()
    """The deschedule plugins that the profile enables."""

    def strategy(self, _deadline: Deadline) -> Strategy:
        """Return the strategy that moves nothing."""
        return NoopStrategy()

    @property
    def objective(self) -> Objective:
        """Return what is asked for, as a MigrationPlan records it."""
        return Objective(plugin=", ".join(self.plugins), strategy=SINGLE_PODS)


class NoopStrategy:
    """Proposes no moves, and no reasons for that."""

    def possible_sources(self, _problem: Problem) -> tuple[NodeIndex, ...]:
        """Return none."""
        return ()

    def waiting_pods(self, _snapshot: Snapshot) -> tuple[Pod, ...]:
        """Return none."""
        return ()

    def propose(self, _problem: Problem, _state: State) -> Proposal:
        """Return nothing."""
        return Proposal((), ())


def make_strategy(args: DefragmentationArgs, deadline: Deadline) -> Strategy:
    """Return the strategy of the arguments."""
    match args.strategy:
        case StrategyName.THRESHOLD:
            rules = ThresholdRules(args.low, args.defragment, args.number_of_nodes, args.empties_whole_nodes)
            return Threshold(rules)
        case StrategyName.CONSOLIDATE:
            from berth_descheduler.goals.free_nodes.consolidate import Consolidate  # noqa: PLC0415 - numpy takes a while to import

            return Consolidate(deadline)
        case StrategyName.MAKE_ROOM:
            from berth_descheduler.goals.make_room.strategy import MakeRoom  # noqa: PLC0415 - numpy takes a while to import

            return MakeRoom(args.room, deadline)
        case StrategyName.MINIMIZE_FRAGMENTATION:
            from berth_descheduler.goals.lower_fragmentation.strategy import MinimizeFragmentation  # noqa: PLC0415 - numpy takes a while to import

            return MinimizeFragmentation(deadline)
        case _:
            assert_never(args.strategy)


def with_defragmentation(plugins: PluginSet, args: DefragmentationArgs) -> PluginSet:
    """Return the plugins with `Defragmentation` as the balance plugin."""
    return replace(plugins, balance=Enabled(PLUGIN_NAME, Defragmentation(args)))


def settings_with(settings: PlannerSettings, plugins: PluginSet) -> PlannerSettings:
    """Return the settings with other plugins.

    Also sets what their arguments ask of the planner itself. Of plugins by others the planner knows no arguments: it
    orders nodes by cpu and protects none.
    """
    balance = plugins.balance.plugin
    args = balance.args if isinstance(balance, Defragmentation) else None
    return replace(
        settings,
        plugins=plugins,
        resource_type=args.resource_type if args else CPU,
        evictable_namespaces=args.evictable_namespaces if args else EvictableNamespaces(),
        protection=args.protection if args else Thresholds(()),
        cool_down=args.cool_down if args else timedelta(0),
        named_resources=args.named_resources if args else {"resourceType": CPU},
        node_prices=args.node_prices if args else NodePrices(),
        min_savings_per_move=args.min_savings_per_move if args else 0,
        lent_nodes=plugins.balance.name == LENT_NODES,
        evicts_for_room=evicts_for_room(plugins),
    )


def evicts_for_room(plugins: PluginSet) -> bool:
    """Return whether preemptable pods are evicted without a target where no moves make room for others."""
    balance = plugins.balance
    return balance.name == LENT_NODES and balance.plugin.objective.args.get("evictions") == "LastResort"
