"""The planner's settings: scope, limits and time."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, Final, TypeAlias, TypeVar

from berth_core import (
    CPU,
    DEFAULT_NAMESPACE,
    LONGEST_GRACE,
    InputError,
    LabelSelector,
    PlannedMove,
    format_duration,
    read_percentage,
)
from berth_core.policies import MOVES_PER_CONTROLLER, MOVES_PER_WAVE
from berth_descheduler.framework.enabled_plugins import PluginSet
from berth_descheduler.framework.interfaces import NO_FAILURES, FailedMoves, PastMove
from berth_descheduler.framework.rules import Rule

R = TypeVar("R", bound=Rule)

_POSITIVE = "a whole number from 1 on"

WHOLE: Final = 100
_EXPECTED: Final = "a percentage from 0 to 100"


@dataclass(frozen=True, slots=True)
class Thresholds:
    """A percentage per resource, compared without rounding; sorted by resource."""

    percentages: tuple[tuple[str, Fraction], ...]

    @classmethod
    def parse(cls, field: str, raw: object) -> "Thresholds":
        """Return the thresholds of a mapping from resource to percentage, a number or its text; raises `InputError`."""
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

    def written(self) -> str:
        """Return the percentages as a policy has them."""
        return f"{{{', '.join(f'{name}: {percentage}' for name, percentage in self.to_mapping().items())}}}"


def parse_percentage(field: str, raw: object) -> Fraction:
    """Return a percentage from 0 to 100 exactly as written; raises `InputError` for anything else."""
    if isinstance(raw, bool) or not isinstance(raw, int | float | str):
        raise InputError(field, raw, _EXPECTED)
    # The shortest text of a float is the number that was written; its binary value is not.
    percentage = read_percentage(str(raw).strip())
    if percentage is None:
        raise InputError(field, raw, _EXPECTED)
    return percentage


def plain_percentage(percentage: Fraction) -> int | str:
    """Return a percentage as it is written: a whole number as such, others as text with decimals."""
    if percentage.denominator == 1:
        return percentage.numerator
    return str(Decimal(percentage.numerator) / Decimal(percentage.denominator))


PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class EvictableNamespaces:
    """The namespaces from which pods may be moved: those included, or all but those excluded."""

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

    @classmethod
    def of_argument(cls, raw: object) -> "EvictableNamespaces":
        """Return the namespaces of an argument `namespaces`; raises `InputError` with that name."""
        try:
            return cls.parse(raw)
        except InputError as error:
            field_name = error.field.replace("evictableNamespaces", "namespaces", 1)
            raise InputError(field_name, error.value, error.expected) from error

    @property
    def named(self) -> frozenset[str]:
        """Return every namespace that is named."""
        return self.include | self.exclude

    def allows(self, namespace: str) -> bool:
        """Return whether pods of a namespace may be moved."""
        return namespace in self.include if self.include else namespace not in self.exclude

    def to_mapping(self) -> dict[str, list[str]]:
        """Return what `parse` reads."""
        lists = {"include": sorted(self.include), "exclude": sorted(self.exclude)}
        return {name: namespaces for name, namespaces in lists.items() if namespaces}


def _names(raw: Mapping[str, Any], key: str) -> frozenset[str]:
    names = raw.get(key) or []
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise InputError(f"evictableNamespaces.{key}", names, "a list of names of namespaces")
    return frozenset(names)


@dataclass(frozen=True, slots=True)
class WaveLimits:
    """How many moves may run together."""

    per_controller: int = MOVES_PER_CONTROLLER
    """Pods of one controller in flight at once."""

    per_wave: int = MOVES_PER_WAVE
    """Moves in one wave."""

    gone_at_once: int | None = None
    """Pods of one controller that may be gone at once, those among them that are not Ready anyway, where its own
    `maxUnavailable` does not allow more. None: as many as may be in flight."""

    @property
    def gone_of_controller(self) -> int:
        """Return how many pods of one controller may be gone at once."""
        return self.per_controller if self.gone_at_once is None else self.gone_at_once

    def __post_init__(self) -> None:
        """Refuse limits that allow nothing."""
        for name in ("per_controller", "per_wave"):
            if getattr(self, name) < 1:
                raise InputError(f"waves.{name}", getattr(self, name), _POSITIVE)


@dataclass(frozen=True, slots=True)
class PlanLimits:
    """How many moves a plan may have, and how slow pods may be."""

    max_moves: int | None = None
    """The most moves of the plan; None: no limit."""

    max_moves_per_node: int | None = None
    """The most moves off one node; a node that would need more is left alone. None: no limit."""

    max_moves_per_namespace: int | None = None
    """The most moves of pods of one namespace; None: no limit."""

    max_grace: timedelta = LONGEST_GRACE
    """Pods with a longer grace period are not moved: the source would have to wait for it."""

    waves: WaveLimits = field(default_factory=WaveLimits)

    def __post_init__(self) -> None:
        """Refuse impossible limits."""
        if self.max_moves is not None and self.max_moves < 0:
            raise InputError("maxMoves", self.max_moves, "a whole number from 0 on")
        for name, limit in (
            ("maxMovesPerNode", self.max_moves_per_node),
            ("maxMovesPerNamespace", self.max_moves_per_namespace),
        ):
            if limit is not None and limit < 1:
                raise InputError(name, limit, _POSITIVE)
        if self.max_grace <= timedelta(0):
            raise InputError("maxGracePeriod", format_duration(self.max_grace), "a length of time above 0")


@dataclass(frozen=True, slots=True)
class PlanScope:
    """Which pods and nodes a plan is about."""

    evictable_namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)
    """Whose pods the balance plugin may move; the others only take up room."""

    node_selector: LabelSelector | None = None
    """Only these nodes give and take pods; None: all."""

    control_plane_nodes: bool = False
    """Whether pods are moved to control-plane nodes; the operator has to hold places there, too."""

    own_namespace: str = DEFAULT_NAMESPACE
    """Berth's namespace, whose pods are never moved."""


@dataclass(frozen=True, slots=True)
class RunSoFar:
    """When a plan is made, and what earlier plans of the same run did."""

    now: datetime | None = None
    """The time from which a cool-down counts back; None: no node is cooling down."""

    began: datetime | None = None
    """When the first plan of the same run began: what it moves gives no node a cool-down. None: there is none."""

    begun: tuple[PlannedMove, ...] = ()
    """Moves of earlier plans of the same run: they count for the limits by node and namespace."""

    earlier: tuple[PlannedMove, ...] = ()
    """Moves of the plan before: of plans that free as many nodes, one that keeps to them is made."""

    moved: Mapping[PodName, datetime] = field(default_factory=dict)
    """Pods that plans of the last day brought to their nodes, and when: they move again only for a named gain."""

    failed: Mapping[str, FailedMoves] = field(default_factory=lambda: NO_FAILURES)
    """How the last moves of pods failed that the same policy planned, by the pods' uids."""

    of_others: tuple[PastMove, ...] = ()
    """What plans of other policies, and of runs by hand, have moved."""


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """How long a strategy searches, and where its chance begins."""

    exact: bool = True
    """Whether the integer program goes on where the search ends, if it is installed and the problem small enough."""

    time_limit_seconds: float | None = 60.0
    """Time limit of search and solver, which the plan then reports; None: no limit. The caller keeps the time.

    It is there for safety: limits on rounds and on the solver's tree end both much sooner, so that the same input gives
    the same plan on any machine.
    """

    seed: int = 0
    """Seed of the search; the same seed gives the same plan."""

    def __post_init__(self) -> None:
        """Refuse a limit that allows nothing."""
        if self.time_limit_seconds is not None and self.time_limit_seconds <= 0:
            raise InputError("timeLimit", self.time_limit_seconds, "seconds above 0")


@dataclass(frozen=True, slots=True)
class PlannerSettings:
    """What a plan is made for and what limits it."""

    resource_type: str = CPU
    """The resource that orders nodes by utilization."""

    protection: Thresholds = field(default_factory=lambda: Thresholds(()))
    """No move takes a node above one of these; a pod that a deschedule plugin names may."""

    named_resources: Mapping[str, str] = field(default_factory=lambda: {"resourceType": CPU})
    """Fields in which a policy names a resource."""

    names_must_exist: bool = False
    """Whether namespaces and resources that the cluster does not have are errors, as where a person has typed them.

    A policy outlives what it names: to exclude a namespace that is not there yet is harmless, and to include only such
    moves nothing.
    """

    plugins: PluginSet = field(kw_only=True)
    """The plugins that name single pods, choose moves for the cluster, and keep pods in place."""

    scope: PlanScope = field(default_factory=PlanScope)

    limits: PlanLimits = field(default_factory=PlanLimits)

    rules: tuple[Rule, ...] = ()
    """What keeps pods and nodes out of plans besides, and what nodes cost."""

    run: RunSoFar = field(default_factory=RunSoFar)

    search: SearchSettings = field(default_factory=SearchSettings)

    def at(self, now: datetime | None) -> "PlannerSettings":
        """Return the settings for a plan that is made at a time."""
        return replace(self, run=replace(self.run, now=now))

    def within(self, max_moves: int | None) -> "PlannerSettings":
        """Return the settings for a plan of so many moves at most; None: as many as the other limits allow."""
        return replace(self, limits=replace(self.limits, max_moves=max_moves))

    def in_namespace(self, own: str) -> "PlannerSettings":
        """Return the settings with another namespace of Berth's own."""
        return replace(self, scope=replace(self.scope, own_namespace=own))

    def rule(self, kind: type[R]) -> R | None:
        """Return the rule of a type, None if there is none."""
        return next((rule for rule in self.rules if isinstance(rule, kind)), None)

    @property
    def weighs_nodes(self) -> bool:
        """Return whether a rule says what nodes cost; without one, all nodes are worth the same."""
        return any(rule.weighs_nodes for rule in self.rules)

    def with_rule(self, rule: Rule) -> "PlannerSettings":
        """Return the settings with a rule in the place of the one of its type, or as the last."""
        if any(type(other_rule) is type(rule) for other_rule in self.rules):
            return replace(
                self, rules=tuple(rule if type(other_rule) is type(rule) else other_rule for other_rule in self.rules)
            )
        return replace(self, rules=(*self.rules, rule))

    def without_rule(self, rule: Rule) -> "PlannerSettings":
        return replace(self, rules=tuple(other_rule for other_rule in self.rules if other_rule is not rule))

    @property
    def node_selectors(self) -> tuple[LabelSelector, ...]:
        """Return the selectors that all have to select a node for it to give and take pods."""
        return tuple(
            selector for selector in (self.scope.node_selector, self.plugins.node_selector) if selector is not None
        )
