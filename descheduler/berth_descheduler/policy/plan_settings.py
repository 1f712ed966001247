"""The settings for a plan in the cluster, from its current policy."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

from berth_core import DeschedulerPolicy, InputError, MigrationPlan, refuse_unreadable
from berth_descheduler.planner import PlannerSettings, Thresholds, WaveLimits
from berth_descheduler.plugins import DefragmentationArgs, PluginRegistry, settings_with, with_defragmentation
from berth_descheduler.policy.parsing import PolicyError, PolicyRun, RunDefaults, read_policy
from berth_descheduler.settings import CycleSettings
from berth_kube import DESCHEDULER_POLICIES, KubeClient, NotFoundError

MOST_IN_A_WAVE: Final = 2000
"""No plan has more moves."""


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
    """Return the settings for a plan.

    They are its policy's, or the program's where it names none. Without its policy the limits of a plan are unknown, so
    none of its moves begins. A plan without a mode comes from `berth run`, which may name a policy of a file.
    """
    if isinstance(policy, PolicyRun):
        mode = plan.spec.mode or policy.mode
        return PlanSettings(policy.settings(mode, plan.spec.trigger), policy.planner_at(now))
    name = plan.spec.policy
    blocked_reason = ""
    if name and plan.spec.mode is not None:
        blocked_reason = (
            f"there is no policy {name}" if policy is None else f"the policy {name} cannot be run: {policy}"
        )
    planner = replace(without_policy_limits(plan, defaults.planner), now=now)
    return PlanSettings(replace(defaults.cycle, policy=name), planner, blocked_reason)


def without_policy_limits(plan: MigrationPlan, planner: PlannerSettings) -> PlannerSettings:
    """Return settings for a plan without a policy.

    They have the plan's own arguments and no limits of this run. Only `berth run` begins such a plan; it has kept the
    limits of its own options.
    """
    args = DefragmentationArgs(protection=Thresholds.of(cpu=100))
    with suppress(InputError):
        args = DefragmentationArgs.parse(plan.spec.objective.args) if plan.spec.objective.args else args
    return replace(
        settings_with(planner, with_defragmentation(planner.plugins, args)),
        max_moves=None,
        max_moves_per_node=None,
        max_moves_per_namespace=None,
        waves=WaveLimits(per_controller=MOST_IN_A_WAVE, per_wave=MOST_IN_A_WAVE),
    )


def read_plan_settings(
    client: KubeClient, plan: MigrationPlan, defaults: RunDefaults, registry: PluginRegistry, now: datetime
) -> PlanSettings:
    """Return the settings for a plan, with its policy read now.

    Raises `BerthError` where that fails.
    """
    policy: PolicyRun | PolicyError | None = None
    try:
        if plan.spec.policy:
            found = client.get(DESCHEDULER_POLICIES, plan.spec.policy, type=DeschedulerPolicy)
            refuse_unreadable("DeschedulerPolicy", found.metadata)
            policy = read_policy(found, defaults, registry)
    except NotFoundError:
        policy = None
    except PolicyError as error:
        policy = error
    except InputError as error:
        policy = PolicyError([error])
    return choose_plan_settings(plan, policy, defaults, now)
