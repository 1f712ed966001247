"""The balance plugin `StarvingJobs`: its arguments, and the strategy that they make."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from fractions import Fraction
from typing import Any, ClassVar, Final

from berth_core import (
    STARVING_JOBS,
    Deadline,
    InputError,
    Objective,
    count,
    first_few,
    format_duration,
    parse_duration,
    refuse_unknown,
    share_of_nodes,
)
from berth_descheduler.capabilities.starving_jobs.strategy import StarvationRules, StarvingJobsStrategy
from berth_descheduler.goals.make_room.goal import MakeRoomGoal
from berth_descheduler.planner import EvictableNamespaces, Plan, Strategy, parse_percentage, plain_percentage

ARGUMENTS: Final[Mapping[str, str]] = {
    "starvingJobTimeThreshold": "Jobs that wait longer starve: seconds, or a duration; 172800 by default.",
    "reservedNodePercent": "The most nodes fenced at once, as a percentage of all; 10 by default.",
    "namespaceNodePercent": "The same for the jobs of one namespace; half of `reservedNodePercent` by default.",
    "moves": "`Fewest` (default) first moves what stands in the way, and waits for the rest; `Never` only waits.",
    "giveUpAfter": "How long nodes are kept for a job: seconds, or a duration; `24h` by default.",
    "namespaces": "Namespaces whose jobs are helped: a list `include` or a list `exclude`; all by default.",
}
"""Each argument with its meaning, as the reference page shows it."""

_DURATION: Final = "seconds, or a duration such as 30m"
_SHORTEST: Final = timedelta(seconds=1)
_LONGEST: Final = timedelta(days=36500)


class Moves(StrEnum):
    """Whether pods are moved for a starving job."""

    NEVER = "Never"
    FEWEST = "Fewest"


@dataclass(frozen=True, slots=True)
class StarvingJobsArgs:
    """The arguments, checked."""

    threshold: timedelta = timedelta(seconds=172800)
    node_percent: Fraction = Fraction(10)
    namespace_percent: Fraction = Fraction(5)
    moves: Moves = Moves.FEWEST
    give_up_after: timedelta = timedelta(hours=24)
    namespaces: EvictableNamespaces = field(default_factory=EvictableNamespaces)

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> "StarvingJobsArgs":
        """Return the arguments of a policy; raises `InputError` that names the field."""
        refuse_unknown("args", raw, ARGUMENTS)
        default = cls()
        percent = _percentage(raw, "reservedNodePercent", default.node_percent)
        return cls(
            threshold=_duration(raw, "starvingJobTimeThreshold", default.threshold, timedelta(0)),
            node_percent=percent,
            # Half, so that jobs of one namespace cannot use up all that may be fenced while others starve.
            namespace_percent=_percentage(raw, "namespaceNodePercent", percent / 2),
            moves=_moves(raw.get("moves", default.moves.value)),
            give_up_after=_duration(raw, "giveUpAfter", default.give_up_after, _SHORTEST),
            namespaces=EvictableNamespaces.of_argument(raw.get("namespaces")),
        )

    def most_fenced(self, nodes: int) -> int:
        """Return how many nodes may be fenced in a cluster of `nodes` nodes."""
        return share_of_nodes(self.node_percent, nodes)

    def to_mapping(self) -> dict[str, Any]:
        """Return the arguments in the form that `parse` reads, with every field set."""
        return {
            "starvingJobTimeThreshold": format_duration(self.threshold),
            "reservedNodePercent": plain_percentage(self.node_percent),
            "namespaceNodePercent": plain_percentage(self.namespace_percent),
            "moves": self.moves.value,
            "giveUpAfter": format_duration(self.give_up_after),
            "namespaces": self.namespaces.to_mapping(),
        }


def _percentage(raw: Mapping[str, Any], name: str, default: Fraction) -> Fraction:
    if name not in raw:
        return default
    expected = "a percentage above 0, at most 100"
    try:
        percentage = parse_percentage(name, raw[name])
    except InputError as error:
        raise InputError(name, raw[name], expected) from error
    if not percentage:
        raise InputError(name, raw[name], expected)
    return percentage


def _duration(raw: Mapping[str, Any], name: str, default: timedelta, least: timedelta) -> timedelta:
    raw_duration = raw.get(name)
    if raw_duration is None:
        return default
    expected = f"{_DURATION}, at least {format_duration(least)} and at most {_LONGEST.days} days"
    if isinstance(raw_duration, bool) or not isinstance(raw_duration, int | str):
        raise InputError(name, raw_duration, expected)
    try:
        duration = timedelta(seconds=raw_duration) if isinstance(raw_duration, int) else parse_duration(raw_duration)
    except (InputError, OverflowError) as error:
        raise InputError(name, raw_duration, expected) from error
    if not least <= duration <= _LONGEST:
        raise InputError(name, raw_duration, expected)
    return duration


def _moves(raw: object) -> Moves:
    try:
        return Moves(str(raw))
    except ValueError as error:
        raise InputError("moves", raw, f"one of {', '.join(choice.value for choice in Moves)}") from error


_LISTED_ROOMS: Final = 3
_LISTED_NODES: Final = 3


class StarvingJobsGoal(MakeRoomGoal):
    """Makes room for jobs that starve, by moves or by waiting."""

    name: ClassVar[str] = STARVING_JOBS
    is_offered: ClassVar[bool] = False

    def sentence(self, plan: Plan) -> str:
        kept = [f"{room.name} on {first_few(room.nodes, _LISTED_NODES)}" for room in plan.waits]
        parts = [super().sentence(plan)] if plan.room else []
        if kept:
            parts.append(f"Nodes are kept for {first_few(kept, _LISTED_ROOMS)} until pods there have ended.")
        reasons = Counter(refused.reason.value for refused in plan.refused)
        if reasons:
            reasons_counted = ", ".join(f"{reason} {number}" for reason, number in sorted(reasons.items()))
            total = reasons.total()
            starve = "starves" if total == 1 else "starve"
            parts.append(f"Nothing is reserved for {count(total, 'job')} that {starve} ({reasons_counted}).")
        return " ".join(parts) or "No job starves."


@dataclass(frozen=True, slots=True)
class StarvingJobs:
    """Keeps nodes for jobs that starve."""

    goal: ClassVar[StarvingJobsGoal] = StarvingJobsGoal()

    args: StarvingJobsArgs = StarvingJobsArgs()

    @property
    def namespaces(self) -> EvictableNamespaces:
        """The namespaces whose jobs get nodes."""
        return self.args.namespaces

    @classmethod
    def parse(cls, args: Mapping[str, Any]) -> "StarvingJobs":
        """Return the plugin with a policy's `args`; raises `InputError` that names the field."""
        return cls(StarvingJobsArgs.parse(args))

    def strategy(self, deadline: Deadline) -> Strategy:
        args = self.args
        rules = StarvationRules(
            args.threshold, args.node_percent, args.give_up_after, args.namespaces, args.namespace_percent
        )
        if args.moves is Moves.NEVER:
            return StarvingJobsStrategy(rules)
        from berth_descheduler.goals.make_room.strategy import MakeRoom  # noqa: PLC0415 - numpy takes a while to import

        return StarvingJobsStrategy(rules, lambda gangs: MakeRoom(deadline=deadline, gangs=gangs))

    @property
    def objective(self) -> Objective:
        """The objective that a MigrationPlan records."""
        return Objective(plugin=STARVING_JOBS, strategy=STARVING_JOBS, args=self.args.to_mapping())
