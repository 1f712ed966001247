"""How a plan is executed: by its policy, by what people asked for, or by the program's own settings."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TypeAlias

from berth_core import DeschedulerPolicy, InputError, MigrationPlan, MoveMethod, RunMode, refuse_unreadable
from berth_core.policies import MOVES_PER_CONTROLLER
from berth_descheduler.capability import OnDemand
from berth_descheduler.planner import PlanLimits, PlannerSettings, PlanScope, RunSoFar, Thresholds, WaveLimits
from berth_descheduler.plugins import (
    DefragmentationArgs,
    PluginRegistry,
    default_settings,
    on_demand_settings,
    settings_with,
    with_defragmentation,
)
from berth_descheduler.policy.parsing import PolicyRun, RunDefaults, read_policy
from berth_descheduler.policy.profiles import PolicyError
from berth_descheduler.registry import on_demand
from berth_descheduler.settings import MOST_IN_A_WAVE, Approval, CycleSettings
from berth_kube import DESCHEDULER_POLICIES, KubeClient, NotFoundError


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
