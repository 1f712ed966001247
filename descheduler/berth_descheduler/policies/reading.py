"""Owns what a DeschedulerPolicy means for a run: the settings of planner and cycle, and what is wrong with it.

It does not own the arguments of the plugins (`plugins.profiles`), nor when the runs are.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec

from berth_core.durations import DurationError, parse_duration
from berth_core.errors import InputError
from berth_core.migration_plans import RunMode
from berth_core.objects import LabelSelector
from berth_core.policies import DeschedulerPolicy, FreedTaint, Limits, Profile
from berth_core.selector_texts import parse_selector
from berth_descheduler.planner import PlannerSettings, WaveLimits
from berth_descheduler.plugins.profiles import ProfilePlugins, read_profile
from berth_descheduler.plugins.registry import PluginRegistry
from berth_descheduler.policies.schedule import Schedule, read_schedule
from berth_descheduler.settings import Approval, CycleSettings, FreedNodes

T = TypeVar("T")

_LONGEST_CENTURY: Final = timedelta(hours=100_000)
_COUNTS: Final = {
    "maxMoves": (1, 1000),
    "maxMovesPerNode": (1, None),
    "maxMovesPerNamespace": (1, None),
    "maxMovesPerWave": (1, 1000),
    "maxMovesPerController": (1, 1000),
    "minFreedNodes": (0, None),
}
"""The limits that are whole numbers, with the least and the most; as the CRD has them."""


class PolicyError(InputError):
    """A policy cannot be run; it reads as its first error, and `errors` are all."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        first = errors[0]
        super().__init__(first.field, first.value, first.expected, said=first.said)
        self.errors = tuple(errors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how to make it again: the base class's arguments are not its own."""
        return (PolicyError, (self.errors,))


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """What a policy says nothing about: where Berth is, how long steps may take, how planning is limited."""

    cycle: CycleSettings = field(default_factory=CycleSettings)
    planner: PlannerSettings = field(default_factory=PlannerSettings)


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """What a policy asks for, ready to be run."""

    name: str
    mode: RunMode
    schedule: Schedule | None
    cycle: CycleSettings
    planner: PlannerSettings
    plans_kept: int
    warnings: tuple[str, ...] = ()
    """What the plugins say of arguments that mean something else here."""

    def settings(self, mode: RunMode, trigger: str) -> CycleSettings:
        """Return how a cycle runs in a mode, which may be another than the policy's where somebody asked for it."""
        approval = Approval.AUTO if mode is RunMode.AUTO else Approval.APPROVE
        return replace(self.cycle, mode=mode, approval=approval, trigger=trigger)

    def planner_at(self, now: datetime) -> PlannerSettings:
        """Return how to plan at a time."""
        return replace(self.planner, now=now)


def read_policy(policy: DeschedulerPolicy, defaults: RunDefaults, registry: PluginRegistry) -> PolicyRun:
    """Return what a policy asks for; raises `PolicyError` with everything that is wrong, each with the full path."""
    spec = policy.spec
    errors: list[InputError] = []

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except InputError as error:
            errors.append(error)
            return None

    schedule = attempt(lambda: _within("spec.trigger", lambda: read_schedule(spec.trigger)))
    selector = attempt(lambda: _read_selector(spec.node_selector))
    plugins = attempt(lambda: _read_profiles(spec.profiles, registry))
    limits = attempt(lambda: _checked_limits(spec.limits)) or Limits()
    cycle = attempt(lambda: _read_cycle(policy, limits, defaults.cycle))
    if errors or cycle is None or plugins is None:
        raise PolicyError(errors)
    return PolicyRun(
        name=policy.metadata.name,
        mode=spec.mode,
        schedule=schedule,
        cycle=cycle,
        planner=replace(
            _read_limits(limits, defaults.planner),
            args=plugins.args,
            node_cool_down=cycle.node_cool_down,
            plugins=plugins.plugins,
            node_selector=selector,
            max_grace=cycle.execution.max_grace,
        ),
        plans_kept=spec.plans_kept,
        warnings=plugins.warnings,
    )


def _read_cycle(policy: DeschedulerPolicy, limits: Limits, defaults: CycleSettings) -> CycleSettings:
    """Return how a cycle of a policy runs, but for mode and trigger; raises `InputError`."""
    spec = policy.spec
    most = _read_duration("spec.limits.maxDuration", limits.max_duration) if limits.max_duration else None
    max_grace = _read_duration("spec.limits.maxGracePeriod", limits.max_grace_period)
    execution = replace(
        defaults.execution,
        max_failed_share=limits.max_failed_share,
        max_grace=max_grace,
        reservation_ttl=_read_duration("spec.reservation.ttl", spec.reservation.ttl),
        max_seconds=defaults.execution.max_seconds if most is None else most.total_seconds(),
    )
    return replace(
        defaults,
        execution=execution,
        policy=policy.metadata.name,
        approval_seconds=_read_duration("spec.approval.timeout", spec.approval.timeout).total_seconds(),
        pod_cool_down=_read_duration("spec.limits.podCoolDown", limits.pod_cool_down, least=timedelta(0)),
        node_cool_down=_read_duration("spec.limits.nodeCoolDown", limits.node_cool_down, least=timedelta(0)),
        min_freed_nodes=limits.min_freed_nodes,
        freed=FreedNodes(
            taint=spec.freed_nodes.taint is FreedTaint.PREFER_NO_SCHEDULE, annotations=spec.freed_nodes.annotations
        ),
    )


def _read_limits(limits: Limits, defaults: PlannerSettings) -> PlannerSettings:
    return replace(
        defaults,
        max_moves=limits.max_moves,
        max_moves_per_node=limits.max_moves_per_node,
        max_moves_per_namespace=limits.max_moves_per_namespace,
        waves=WaveLimits(per_controller=limits.max_moves_per_controller, per_wave=limits.max_moves_per_wave),
    )


def _checked_limits(limits: Limits) -> Limits:
    """Return limits that allow something and not too much; raises `InputError`."""
    given: dict[str, Any] = msgspec.to_builtins(limits)
    for name, (least, most) in _COUNTS.items():
        value = given.get(name)
        if value is not None and not least <= value <= (value if most is None else most):
            upto = "on" if most is None else f"to {most}"
            raise InputError(f"spec.limits.{name}", value, f"a whole number from {least} {upto}")
    if not 0 <= limits.max_failed_share <= 1:
        raise InputError("spec.limits.maxFailedShare", limits.max_failed_share, "a share from 0 to 1")
    return limits


def _read_selector(text: str) -> LabelSelector | None:
    """Return the selector of the policy's nodes, None for all; raises `InputError`."""
    if not text.strip():
        return None
    try:
        return parse_selector(text)
    except InputError as error:
        raise InputError("spec.nodeSelector", text, error.expected) from error


def _read_profiles(profiles: Sequence[Profile], registry: PluginRegistry) -> ProfilePlugins:
    """Return the plugins of the one profile; raises `InputError`."""
    if len(profiles) != 1:
        said = f"a list of {len(profiles)} profiles"
        raise InputError("spec.profiles", None, "exactly one profile: a policy for each further one", said=said)
    raw: dict[str, Any] = msgspec.to_builtins(profiles[0])
    return _within("spec.profiles[0]", lambda: read_profile(raw, registry))


def _read_duration(path: str, text: str, *, least: timedelta | None = None) -> timedelta:
    """Return a duration, above zero where no least is given; raises `InputError`."""
    expected = f"a duration {'above zero' if least is None else 'from 0s on'} such as 90s or 1h30m"
    try:
        found = parse_duration(text)
    except DurationError as error:
        raise InputError(path, text, expected) from error
    if (least is None and found <= timedelta(0)) or (least is not None and found < least) or found > _LONGEST_CENTURY:
        raise InputError(path, text, expected)
    return found


def _within(place: str, read: Callable[[], T]) -> T:
    """Return what is read; an error names the field from the outside."""
    try:
        return read()
    except InputError as error:
        raise error.within(place) from error
