"""What a DeschedulerPolicy means for a run: the settings of planner and cycle, or what is wrong with the policy."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
import msgspec.inspect
import yaml

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    DeschedulerPolicy,
    DeschedulerPolicySpec,
    DurationError,
    FreedTaint,
    InputError,
    LabelSelector,
    Limits,
    MigrationPlan,
    MoveMethod,
    Profile,
    RunMode,
    field_steps,
    parse_duration,
    parse_selector,
    refuse_unreadable,
)
from berth_core.decoding import convert
from berth_core.policies import MOVES_PER_CONTROLLER
from berth_descheduler.capability import OnDemand
from berth_descheduler.framework.interfaces import PluginSet
from berth_descheduler.planner import PlanLimits, PlannerSettings, PlanScope, RunSoFar, Thresholds, WaveLimits
from berth_descheduler.planner.cool_downs import NodeCoolDown
from berth_descheduler.plugins import (
    DefragmentationArgs,
    PluginRegistry,
    default_settings,
    installed_plugins,
    on_demand_settings,
    settings_with,
    with_defragmentation,
)
from berth_descheduler.policy.profiles import PolicyError, ProfilePlugins, errors_in, read_profile
from berth_descheduler.policy.schedule import IntervalSchedule, Schedule, read_schedule
from berth_descheduler.policy.upstream import is_upstream, not_installed, read_upstream
from berth_descheduler.registry import capability_named, on_demand
from berth_descheduler.settings import MOST_IN_A_WAVE, Approval, CycleSettings, FreedNodes
from berth_kube import DESCHEDULER_POLICIES, KubeClient, LocatedDocument, NotFoundError, locate_documents, read_bounded

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


# --- decoding --------------------------------------------------------------------------------------------------------
# The reading of a DeschedulerPolicy from a file: fields that there are not, and values of the wrong kind.

_PLACE: Final = re.compile(r"^(?P<expectation>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING: Final = re.compile(r"^Object missing required field `(?P<field>[^`]+)`$")
_ENUM: Final = re.compile(r"^Invalid enum value '(?P<value>.*)'$")
_KIND: Final = re.compile(r"^Expected `(?P<wanted>[^`]+)`, got `(?P<found>[^`]+)`$")


def decode_policy(raw: object) -> DeschedulerPolicy:
    """Return the policy of a document; raises `InputError` that names the field."""
    if not isinstance(raw, Mapping):
        raise InputError("the document", raw, "a DeschedulerPolicy")
    for key, wanted_value in (("apiVersion", POLICY_API_VERSION), ("kind", POLICY_KIND)):
        if raw.get(key) != wanted_value:
            raise InputError(key, raw.get(key), wanted_value)
    metadata = raw.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise InputError("metadata.name", None, "a name", said="missing")
    if not isinstance(raw.get("spec"), Mapping):
        raise InputError("spec", raw.get("spec"), "what the policy says, an object")
    for path, known_fields in unknown_fields(msgspec.inspect.type_info(DeschedulerPolicySpec), raw["spec"], "spec"):
        raise InputError(path, None, f"one of {', '.join(known_fields)}", said="no field of a policy")
    try:
        return convert({"metadata": {"name": metadata["name"]}, "spec": raw["spec"]}, DeschedulerPolicy)
    except msgspec.ValidationError as error:
        raise _as_input_error(raw, str(error)) from error


def unknown_fields(kind: msgspec.inspect.Type, raw: object, path: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the path of every field that a type does not have, with the fields that it has there."""
    match kind:
        case msgspec.inspect.UnionType(types=types):
            for member in types:
                yield from unknown_fields(member, raw, path)
        case msgspec.inspect.StructType(fields=fields) if isinstance(raw, Mapping):
            known_fields = {field.encode_name: field.type for field in fields}
            for field_name, value in raw.items():
                if field_name in known_fields:
                    yield from unknown_fields(known_fields[field_name], value, f"{path}.{field_name}")
                else:
                    yield f"{path}.{field_name}", tuple(sorted(known_fields))
        case msgspec.inspect.VarTupleType(item_type=item) if isinstance(raw, list | tuple):
            for index, value in enumerate(raw):
                yield from unknown_fields(item, value, f"{path}[{index}]")
        case _:
            return


def _as_input_error(raw: Mapping[str, Any], message: str) -> InputError:
    """Return msgspec's error in our words: the field, its value, and what would be right."""
    match = _PLACE.match(message)
    expectation, path = (match["expectation"], match["path"] or "") if match else (message, "")
    if missing := _MISSING.match(expectation):
        field = f"{path}.{missing['field']}".lstrip(".")
        return InputError(field, None, "a value", said="missing")
    value = _value_at(raw, path)
    if _ENUM.match(expectation):
        return InputError(path, value, f"one of {', '.join(_values_of(path))}")
    kinds = _KIND.match(expectation)
    return InputError(path, value, f"a value of the type {kinds['wanted']}" if kinds else expectation)


def _values_of(path: str) -> Iterator[str]:
    """Yield the values of the enumeration at a path such as `spec.freedNodes.taint`."""
    kind: msgspec.inspect.Type = msgspec.inspect.type_info(DeschedulerPolicy)
    for step in path.split("."):
        if isinstance(kind, msgspec.inspect.StructType):
            kind = next(field.type for field in kind.fields if field.encode_name == step)
    if isinstance(kind, msgspec.inspect.EnumType):
        yield from (str(member.value) for member in kind.cls)


def _value_at(raw: object, path: str) -> object:
    """Return the value at a path such as `spec.profiles[0].name`, None where there is none."""
    for step in field_steps(path):
        if isinstance(raw, Mapping):
            raw = raw.get(step)
        elif isinstance(raw, list) and step.isdigit() and int(step) < len(raw):
            raw = raw[int(step)]
        else:
            return None
    return raw


# --- files -----------------------------------------------------------------------------------------------------------
# How a policy comes out of a file: one YAML or JSON document, from a path or standard input.

STANDARD_INPUT: Final = "-"


def read_policy_file(name: str) -> DeschedulerPolicy:
    """Return the policy in a file, or on standard input for `-`.

    A file of the upstream descheduler may have one profile, which is converted. Raises `InputError` that names file or
    field.
    """
    raw_policy = read_document(name)
    if not isinstance(raw_policy, Mapping) or not is_upstream(raw_policy):
        return decode_policy(raw_policy)
    plugins = installed_plugins().names
    profiles = read_upstream(raw_policy, plugins)
    if len(profiles) != 1:
        raise InputError("profiles", None, "one profile: a file for each", said=f"a list of {len(profiles)} profiles")
    if profiles[0].missing:
        raise not_installed("profiles[0]", profiles[0].missing, plugins)
    return decode_policy(profiles[0].raw)


def read_document(name: str) -> object:
    """Return the one document of a file in builtins; raises `InputError` that names the file."""
    documents = read_documents(name, "--policy")
    if len(documents) != 1:
        raise InputError("--policy", name, "a file with one policy", said=f"a file with {len(documents)} documents")
    return documents[0].content


def read_documents(name: str, field: str) -> tuple[LocatedDocument, ...]:
    """Return the documents of a file that are not empty; raises `InputError` for `field`, which names the file."""
    try:
        text = read_bounded(sys.stdin.buffer if name == STANDARD_INPUT else Path(name))
        return tuple(document for document in locate_documents(text) if document.content is not None)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(field, name, f"a file that can be read: {error}") from error
    except yaml.YAMLError as error:
        raise InputError(field, name, f"a file in YAML: {' '.join(str(error).split())}") from error


# --- settings of a plan ----------------------------------------------------------------------------------------------
# The settings for a plan in the cluster, from its current policy.


@dataclass(frozen=True, slots=True)
class PlanSettings:
    """The settings by which one plan is executed."""

    settings: CycleSettings
    planner: PlannerSettings

    blocked_reason: str = ""
    """Why no further move begins; moves under way are brought to their end."""


PlanSettingsReader: TypeAlias = Callable[[MigrationPlan], PlanSettings | None]
"""Returns the settings for a plan that another run left; None: this run leaves it alone."""


def choose_plan_settings(
    plan: MigrationPlan, policy: PolicyRun | PolicyError | None, defaults: RunDefaults, now: datetime
) -> PlanSettings:
    """Return the settings for a plan: its policy's, or the program's where it names none.

    Without its policy the limits of a plan are unknown, so none of its moves begins. A plan without a mode comes from
    `berth run`, which may name a policy of a file.
    """
    if isinstance(policy, PolicyRun):
        mode = plan.spec.mode or policy.mode
        return PlanSettings(policy.settings(mode, plan.spec.trigger), policy.planner_at(now))
    policy_name = plan.spec.policy
    blocked_reason = ""
    if policy_name and plan.spec.mode is not None:
        blocked_reason = (
            f"there is no policy {policy_name}"
            if policy is None
            else f"the policy {policy_name} cannot be run: {policy}"
        )
    planner = without_policy_limits(plan, defaults.planner).at(now)
    cycle = replace(defaults.cycle, policy=policy_name)
    if (asked := asked_by_people(plan)) is not None:
        cycle = asked.carried_out(cycle)
        blocked_reason = asked.why_blocked(plan.spec.moves) or blocked_reason
    return PlanSettings(cycle, planner, blocked_reason)


def asked_by_people(plan: MigrationPlan) -> OnDemand | None:
    """Return what people asked for by a plan without a policy, None for any other plan; raises `InputError`."""
    if plan.spec.policy:
        return None
    try:
        return on_demand(plan.spec.objective)
    except InputError as error:
        raise error.within("spec.objective.args") from error


def requested_settings(plan: MigrationPlan, asked: OnDemand, defaults: RunDefaults, now: datetime) -> PlanSettings:
    """Return how the service plans what people asked for: by no policy's limits, as a command does."""
    approval = Approval.AUTO if plan.spec.mode is RunMode.AUTO else Approval.APPROVE
    cycle = replace(
        asked.carried_out(defaults.cycle),
        policy="",
        mode=plan.spec.mode,
        approval=approval,
        trigger=plan.spec.trigger,
        moves=MoveMethod.SURGE,
        min_freed_nodes=0,
        max_replans=0,
    )
    default_planner = defaults.planner
    planner = replace(
        default_settings(),
        scope=PlanScope(
            control_plane_nodes=default_planner.scope.control_plane_nodes,
            own_namespace=default_planner.scope.own_namespace,
        ),
        limits=PlanLimits(max_grace=default_planner.limits.max_grace, waves=WaveLimits(per_wave=asked.moves_at_once)),
        run=RunSoFar(now=now),
    )
    return PlanSettings(cycle, on_demand_settings(planner, asked))


def without_policy_limits(plan: MigrationPlan, planner: PlannerSettings) -> PlannerSettings:
    """Return settings for a plan without a policy: the plan's own arguments, and no limits of this run.

    Only `berth run` begins such a plan, and it has kept the limits of its own options.
    """
    waves = WaveLimits(per_controller=MOST_IN_A_WAVE, per_wave=MOST_IN_A_WAVE, gone_at_once=MOVES_PER_CONTROLLER)
    unlimited = replace(planner, limits=PlanLimits(max_grace=planner.limits.max_grace, waves=waves))
    objective = plan.spec.objective
    args = DefragmentationArgs(protection=Thresholds.of(cpu=100))
    with suppress(InputError):
        if (asked := on_demand(objective)) is not None:
            return on_demand_settings(unlimited, asked)
        args = DefragmentationArgs.parse(objective.args) if objective.args else args
    return settings_with(unlimited, with_defragmentation(planner.plugins, args))


def read_plan_settings(
    client: KubeClient, plan: MigrationPlan, defaults: RunDefaults, registry: PluginRegistry, now: datetime
) -> PlanSettings:
    """Return the settings for a plan, with its policy read now; raises `BerthError` where that fails."""
    policy: PolicyRun | PolicyError | None = None
    try:
        if plan.spec.policy:
            stored_policy = client.get(DESCHEDULER_POLICIES, plan.spec.policy, type=DeschedulerPolicy)
            refuse_unreadable("DeschedulerPolicy", stored_policy.metadata)
            policy = read_policy(stored_policy, defaults, registry)
    except NotFoundError:
        policy = None
    except PolicyError as error:
        policy = error
    except InputError as error:
        policy = PolicyError([error])
    return choose_plan_settings(plan, policy, defaults, now)
