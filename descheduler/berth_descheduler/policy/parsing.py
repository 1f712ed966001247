"""What a DeschedulerPolicy means for a run: the settings of planner and cycle, or what is wrong with the policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
import msgspec.inspect

from berth_core import (
    DeschedulerPolicy,
    DurationError,
    FreedTaint,
    InputError,
    LabelSelector,
    Limits,
    Profile,
    RunMode,
    parse_duration,
    parse_selector,
)
from berth_descheduler.framework.enabled_plugins import PluginSet
from berth_descheduler.planner import PlanLimits, PlannerSettings, WaveLimits
from berth_descheduler.planner.cool_downs import NodeCoolDown
from berth_descheduler.plugins import PluginRegistry, default_settings, settings_with
from berth_descheduler.policy.profiles import PolicyError, ProfilePlugins, errors_in, read_profile
from berth_descheduler.policy.schedule import IntervalSchedule, Schedule, read_schedule
from berth_descheduler.registry import capability_named
from berth_descheduler.settings import Approval, CycleSettings, FreedNodes

T = TypeVar("T")

_LONGEST_DURATION: Final = timedelta(hours=100_000)
_COUNTS: Final = {
    "maxMoves": (1, 1000),
    "maxMovesPerNode": (1, None),
    "maxMovesPerNamespace": (1, None),
    "maxMovesPerWave": (1, 1000),
    "maxMovesPerController": (1, 1000),
    "minFreedNodes": (0, None),
    "maxReplans": (0, 100),
}
"""The limits that are whole numbers, with the least and the greatest value, as in the CRD."""
_SCHEDULED_PERIOD: Final = timedelta(minutes=1)
"""The assumed period of a policy that empties lent nodes but has no interval."""
_LEAST_WAIT_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True)
class RunDefaults:
    """Defaults for what a policy does not set: Berth's namespace, step times and planning limits."""

    cycle: CycleSettings = field(default_factory=CycleSettings)
    planner: PlannerSettings = field(default_factory=default_settings)


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
    """The plugins' warnings about arguments that mean something else here."""

    def settings(self, mode: RunMode, trigger: str) -> CycleSettings:
        """Return the settings of a cycle; a request may name another mode than the policy."""
        approval = Approval.AUTO if mode is RunMode.AUTO else Approval.APPROVE
        return replace(self.cycle, mode=mode, approval=approval, trigger=trigger)

    def planner_at(self, now: datetime) -> PlannerSettings:
        """Return how to plan at a time."""
        return self.planner.at(now)


def read_policy(policy: DeschedulerPolicy, defaults: RunDefaults, registry: PluginRegistry) -> PolicyRun:
    """Return what a policy asks for; raises `PolicyError` with everything that is wrong, each with its full path."""
    spec = policy.spec
    errors: list[InputError] = []

    def attempt(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except InputError as error:
            errors.extend(errors_in(error))
            return None

    schedule = attempt(lambda: _within("spec.trigger", lambda: read_schedule(spec.trigger)))
    selector = attempt(lambda: _read_selector(spec.node_selector))
    plugins = attempt(lambda: _read_profiles(spec.profiles, registry))
    limits = attempt(lambda: _checked_limits(spec.limits)) or Limits()
    cycle = attempt(lambda: _read_cycle(policy, limits, defaults.cycle))
    if cycle is not None and plugins is not None and _may_not_wait(plugins.plugins):
        cycle = replace(cycle, execution=cycle.execution.hurried(_longest_wait(schedule)))
    if errors or cycle is None or plugins is None:
        raise PolicyError(errors)
    planner = settings_with(_read_limits(limits, cycle.execution.max_grace, defaults.planner), plugins.plugins)
    planner = planner.with_rule(NodeCoolDown(cycle.node_cool_down))
    return PolicyRun(
        name=policy.metadata.name,
        mode=spec.mode,
        schedule=schedule,
        cycle=cycle,
        planner=replace(planner, scope=replace(planner.scope, node_selector=selector)),
        plans_kept=spec.plans_kept,
        warnings=plugins.warnings,
    )


def _may_not_wait(plugins: PluginSet) -> bool:
    capabilities = (capability_named(enabled.name) for enabled in plugins.deschedule)
    return any(capability is not None and capability.may_not_wait for capability in capabilities)


def _read_cycle(policy: DeschedulerPolicy, limits: Limits, defaults: CycleSettings) -> CycleSettings:
    """Return a policy's cycle settings except mode and trigger; raises `InputError`."""
    spec = policy.spec
    max_duration = _read_duration("spec.limits.maxDuration", limits.max_duration) if limits.max_duration else None
    max_grace = _read_duration("spec.limits.maxGracePeriod", limits.max_grace_period)
    execution = replace(
        defaults.execution,
        max_failed_share=limits.max_failed_share,
        max_grace=max_grace,
        reservation_ttl=_read_duration("spec.reservation.ttl", spec.reservation.ttl),
        max_seconds=defaults.execution.max_seconds if max_duration is None else max_duration.total_seconds(),
    )
    return replace(
        defaults,
        execution=execution,
        policy=policy.metadata.name,
        approval_seconds=_read_duration("spec.approval.timeout", spec.approval.timeout).total_seconds(),
        pod_cool_down=_read_duration("spec.limits.podCoolDown", limits.pod_cool_down, least=timedelta(0)),
        node_cool_down=_read_duration("spec.limits.nodeCoolDown", limits.node_cool_down, least=timedelta(0)),
        min_freed_nodes=limits.min_freed_nodes,
        max_replans=limits.max_replans,
        moves=spec.moves,
        freed=FreedNodes(
            taint=spec.freed_nodes.taint is FreedTaint.PREFER_NO_SCHEDULE, annotations=spec.freed_nodes.annotations
        ),
    )


def _longest_wait(schedule: Schedule | None) -> float:
    """Return how many seconds a plan that empties lent nodes may wait for one pod: half of the policy's period."""
    period = schedule.interval if isinstance(schedule, IntervalSchedule) else _SCHEDULED_PERIOD
    return max(_LEAST_WAIT_SECONDS, period.total_seconds() / 2)


def _read_limits(limits: Limits, max_grace: timedelta, defaults: PlannerSettings) -> PlannerSettings:
    read = PlanLimits(
        max_moves=limits.max_moves,
        max_moves_per_node=limits.max_moves_per_node,
        max_moves_per_namespace=limits.max_moves_per_namespace,
        max_grace=max_grace,
        waves=WaveLimits(per_controller=limits.max_moves_per_controller, per_wave=limits.max_moves_per_wave),
    )
    return replace(defaults, limits=read)


def _checked_limits(limits: Limits) -> Limits:
    """Return limits that allow something and not too much; raises `InputError`."""
    limit_values: dict[str, Any] = msgspec.to_builtins(limits)
    for limit_name, (least, greatest) in _COUNTS.items():
        value = limit_values.get(limit_name)
        if value is not None and not least <= value <= (value if greatest is None else greatest):
            upto = "on" if greatest is None else f"to {greatest}"
            raise InputError(f"spec.limits.{limit_name}", value, f"a whole number from {least} {upto}")
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
        text = f"a list of {len(profiles)} profiles"
        raise InputError("spec.profiles", None, "exactly one profile: a policy for each further one", said=text)
    raw_profile: dict[str, Any] = msgspec.to_builtins(profiles[0])
    return _within("spec.profiles[0]", lambda: read_profile(raw_profile, registry))


def _read_duration(path: str, text: str, *, least: timedelta | None = None) -> timedelta:
    """Return a duration, above zero where no least is given; raises `InputError`."""
    expected = f"a duration {'above zero' if least is None else 'from 0s on'} such as 90s or 1h30m"
    try:
        duration = parse_duration(text)
    except DurationError as error:
        raise InputError(path, text, expected) from error
    if (
        (least is None and duration <= timedelta(0))
        or (least is not None and duration < least)
        or duration > _LONGEST_DURATION
    ):
        raise InputError(path, text, expected)
    return duration


def _within(place: str, read: Callable[[], T]) -> T:
    """Return what `read` returns; its errors name their fields from further outside."""
    try:
        return read()
    except InputError as error:
        raise error.within(place) from error
