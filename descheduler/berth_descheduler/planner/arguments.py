"""Owns the arguments of the `Defragmentation` plugin: their names, defaults and what is wrong with them.

It does not own what the strategies do with them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from typing import Any, Final

from berth_core.clock import format_duration, parse_duration
from berth_core.errors import InputError
from berth_core.resources import CPU
from berth_descheduler.planner.room_request import RoomRequest

# --- thresholds ------------------------------------------------------------------------------------------------------
# Thresholds: percentages per resource as exact numbers, and how a node's amounts compare with them.

WHOLE: Final = 100
_EXPECTED: Final = "a percentage from 0 to 100"
_DECIMAL: Final = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A percentage per resource, compared without rounding; sorted by resource."""

    percentages: tuple[tuple[str, Fraction], ...]

    @classmethod
    def parse(cls, field: str, raw: object) -> "Thresholds":
        """Return the thresholds of a mapping from resource to a number or its text; raises `InputError`."""
        if not isinstance(raw, Mapping) or not raw:
            raise InputError(field, raw, "a mapping from resource to percentage, such as {cpu: 40}")
        return cls(tuple(sorted((str(name), parse_percentage(f"{field}.{name}", raw[name])) for name in raw)))

    @classmethod
    def of(cls, **percentages: int) -> "Thresholds":
        """Return thresholds given by name."""
        return cls.parse("thresholds", percentages)

    def get(self, resource: str) -> Fraction | None:
        """Return the percentage of a resource, None if there is none."""
        return dict(self.percentages).get(resource)

    def to_mapping(self) -> dict[str, int | str]:
        """Return what `parse` reads: whole numbers as such, others as exact text."""
        return {name: plain_percentage(percentage) for name, percentage in self.percentages}


def parse_percentage(field: str, raw: object) -> Fraction:
    """Return a percentage from 0 to 100 as the exact number that is written; raises `InputError`."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise InputError(field, raw, _EXPECTED)
    # The shortest text of a float is the number that was written; its binary value is not.
    written = str(raw).strip().removesuffix("%")
    percentage = Fraction(written) if _DECIMAL.fullmatch(written) else Fraction(-1)
    if not 0 <= percentage <= WHOLE:
        raise InputError(field, raw, _EXPECTED)
    return percentage


def plain_percentage(percentage: Fraction) -> int | str:
    """Return a percentage as it is written: a whole number, or text with decimals."""
    if percentage.denominator == 1:
        return percentage.numerator
    return str(Decimal(percentage.numerator) / Decimal(percentage.denominator))


PLUGIN_NAME: Final = "Defragmentation"

LOW_DEFAULT: Final = 40
DEFRAGMENT_DEFAULT: Final = 70
PROTECTION_DEFAULT: Final = 95
"""With the strategy `Threshold`; the others fill nodes up where nothing else is said."""

PROTECTION_DEFAULT_OF_OTHERS: Final = 100

_WORD_START: Final = re.compile("(?<!^)(?=[A-Z])")

ARGUMENTS: Final[Mapping[str, str]] = {
    "strategy": "How moves are chosen: `Threshold` (default), `Consolidate` or `MakeRoom`.",
    "wholeNodes": "Empty a node whole or leave it alone; by default false with `Threshold`, else always true.",
    "resourceType": "The resource that orders nodes by utilization; `cpu` by default. At least one node must have it.",
    "lowThresholds": "`Threshold`: percentages below which a node is a source; `{cpu: 40}` by default.",
    "defragmentThresholds": "`Threshold`: percentages above which a node is a target; `{cpu: 70}` by default.",
    "protectionThresholds": "Percentages above which no move fills a node; 95 with `Threshold`, 100 with the others.",
    "numberOfNodes": "`Threshold`: act only if more nodes than this are low; 0 by default.",
    "evictableNamespaces": "Namespaces whose pods may move: a list `include` or a list `exclude`; all by default.",
    "coolDownTime": "How long a node that pods were moved off is no source again; none by default.",
    "room": "`MakeRoom`: lists `shapes` and `pods`, `owners` of the shapes; all pending pods by default.",
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
    """Return the arguments that are given under another name as well, each with the name that is preferred."""
    given = [(name, _ALIASES.get(name, name)) for name in raw]
    names = [preferred for _, preferred in given]
    return tuple((name, preferred) for name, preferred in given if name != preferred and names.count(preferred) > 1)


class StrategyName(StrEnum):
    """How the moves are chosen."""

    THRESHOLD = "Threshold"
    CONSOLIDATE = "Consolidate"
    MAKE_ROOM = "MakeRoom"

    @property
    def option(self) -> str:
        """Return the name as the command line has it."""
        return _WORD_START.sub("-", self.value).lower()

    @classmethod
    def parse(cls, raw: object) -> "StrategyName":
        """Return the strategy of a name, in any case and with or without hyphens; raises `InputError`."""
        names = {name.value.lower(): name for name in cls}
        found = names.get(raw.lower().replace("-", "")) if isinstance(raw, str) else None
        if found is None:
            raise InputError("strategy", raw, f"one of {', '.join(name.value for name in cls)}")
        return found


@dataclass(frozen=True, slots=True)
class EvictableNamespaces:
    """From which namespaces pods may be moved: those included, or all but those excluded."""

    include: frozenset[str] = frozenset()
    exclude: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Refuse both lists at once."""
        if self.include and self.exclude:
            raise InputError("evictableNamespaces", self.to_mapping(), "include or exclude, not both")

    @classmethod
    def parse(cls, raw: object) -> "EvictableNamespaces":
        """Return the namespaces of a mapping with `include` or `exclude`; raises `InputError`."""
        if raw is None:
            return cls()
        if not isinstance(raw, Mapping) or not set(raw) <= {"include", "exclude"}:
            raise InputError("evictableNamespaces", raw, "a mapping with a list include or a list exclude")
        return cls(_names(raw, "include"), _names(raw, "exclude"))

    @property
    def named(self) -> frozenset[str]:
        """Return every namespace that is named."""
        return self.include | self.exclude

    def allows(self, namespace: str) -> bool:
        """Tell whether pods of a namespace may be moved."""
        return namespace in self.include if self.include else namespace not in self.exclude

    def to_mapping(self) -> dict[str, list[str]]:
        """Return what `parse` reads."""
        lists = {"include": sorted(self.include), "exclude": sorted(self.exclude)}
        return {name: namespaces for name, namespaces in lists.items() if namespaces}


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
    """Whether a node is emptied whole or left alone; None becomes what is usual: false with `Threshold` alone."""

    room: RoomRequest = field(default_factory=RoomRequest)
    """What `MakeRoom` makes room for."""

    def __post_init__(self) -> None:
        """Refuse arguments that contradict one another, naming the field."""
        if self.whole_nodes is None:
            object.__setattr__(self, "whole_nodes", self.strategy is not StrategyName.THRESHOLD)
        for name, thresholds in self._maps():
            if thresholds.get(self.resource_type) is None:
                raise InputError(
                    name, thresholds.to_mapping(), f"a percentage for the resourceType {self.resource_type}"
                )
        if self.number_of_nodes < 0:
            raise InputError("numberOfNodes", self.number_of_nodes, "a whole number from 0 on")
        if self.strategy is not StrategyName.MAKE_ROOM and not self.room.names_nothing:
            raise InputError("room", self.room.to_mapping(), "nothing with a strategy other than MakeRoom")
        if self.cool_down < timedelta(0):
            raise InputError("coolDownTime", format_duration(self.cool_down), "a length of time from 0 on")
        if not self.empties_whole_nodes and self.strategy is not StrategyName.THRESHOLD:
            raise InputError("wholeNodes", self.whole_nodes, "true or nothing with a strategy other than Threshold")
        if self.strategy is StrategyName.THRESHOLD:
            self._check_order()

    @property
    def empties_whole_nodes(self) -> bool:
        """Return whether a node is emptied whole or left alone."""
        return bool(self.whole_nodes)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "DefragmentationArgs":
        """Return the arguments of a policy's `args`; raises `InputError` that names the field.

        The names of the original proposal are read as well; two names of one argument have to say the same.
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
        unknown = sorted(set(raw) - set(ARGUMENTS))
        if unknown:
            raise InputError("args", unknown[0], f"only {', '.join(sorted(ARGUMENTS))}")
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
        }

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


def _names(raw: Mapping[str, Any], key: str) -> frozenset[str]:
    names = raw.get(key) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"evictableNamespaces.{key}", names, "a list of names of namespaces")
    return frozenset(names)
