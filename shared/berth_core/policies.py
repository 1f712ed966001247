"""The DeschedulerPolicy contract (`berth.volcano.sh/v1alpha1`): triggers, mode, rules, limits."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import msgspec

from berth_core.clock import read_timestamp
from berth_core.decoding import convert
from berth_core.migration_plans import MoveMethod, Restriction, RunMode
from berth_core.objects.metadata import ObjectMeta
from berth_core.reservations import Condition

POLICY_API_VERSION: Final = "berth.volcano.sh/v1alpha1"
POLICY_KIND: Final = "DeschedulerPolicy"

VALID: Final = "Valid"
"""Condition type: whether the policy can be run."""

SCHEDULED: Final = "Scheduled"
"""Condition type: whether the policy runs by itself."""

EFFECTIVE: Final = "Effective"
"""Condition type: whether the policy can move anything as it is; absent before its first run."""


class ValidReason(StrEnum):
    """Why a policy can be run or cannot."""

    ACCEPTED = "Accepted"
    """The policy can be run."""
    INVALID_FIELD = "InvalidField"
    """The policy cannot be run; the message names every wrong field and what would be right."""


class ScheduledReason(StrEnum):
    """Why a policy will run by itself or will not."""

    CRON = "Cron"
    """The policy's cron line starts its runs; the message says when."""
    INTERVAL = "Interval"
    """The policy's interval starts its runs; the message says when."""
    ON_REQUEST = "OnRequest"
    """The policy has no trigger and runs on request only."""
    SUSPENDED = "Suspended"
    """The policy's trigger is switched off."""
    NOT_VALID = "NotValid"
    """The policy cannot be run."""


class EffectiveReason(StrEnum):
    """Why a policy's last run could move pods, or could not."""

    UNHINDERED = "Unhindered"
    """No limit and no name of the policy kept its last run from moving pods."""
    LIMIT_BINDS = "LimitBinds"
    """The last run moved nothing, and would have without a limit; the message says which and how much."""
    SELECTS_NOTHING = "SelectsNothing"
    """The last run moved nothing, as the cluster has nothing of what the policy names."""
    RUN_FAILED = "RunFailed"
    """The last run failed, so it is not known."""


class FreedTaint(StrEnum):
    """What keeps small pods off a node that was freed."""

    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NONE = "None"


class Trigger(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What starts runs: a cron line in a time zone, an interval, or only requests."""

    cron: str = ""
    time_zone: str = ""
    interval: str = ""


class PluginConfig(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The arguments of one plugin, as written."""

    name: str
    args: dict[str, Any] = {}


class PluginSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The plugins of one extension point."""

    enabled: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()


class Plugins(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The plugins in use, by extension point."""

    balance: PluginSet = PluginSet()
    deschedule: PluginSet = PluginSet()
    filter: PluginSet = PluginSet()
    pre_eviction_filter: PluginSet = PluginSet()


class Profile(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Plugins and their arguments, in the shape of the upstream descheduler."""

    name: str
    plugin_config: tuple[PluginConfig, ...] = ()
    plugins: Plugins = Plugins()


MOVES_PER_WAVE: Final = 25
MOVES_PER_CONTROLLER: Final = 1

LONGEST_GRACE: Final = timedelta(minutes=10)
"""Default: pods with a longer grace period are not moved."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Limits of a run; None and "" mean no limit."""

    max_moves: int | None = None
    max_moves_per_node: int | None = None
    max_moves_per_namespace: int | None = None
    max_moves_per_wave: int = MOVES_PER_WAVE
    max_moves_per_controller: int = MOVES_PER_CONTROLLER
    """Pods of one controller in flight at once."""
    max_failed_share: float = 0.2
    pod_cool_down: str = "1h"
    node_cool_down: str = "0s"
    """How long nodes that pods moved off or onto are neither source nor target."""
    min_freed_nodes: int = 1
    """A plan that frees fewer nodes is not begun."""
    max_replans: int = 3
    """How often a run plans again what a plan could not do any more."""
    max_duration: str = ""
    max_grace_period: str = "10m"
    """Pods whose `terminationGracePeriodSeconds` is longer stay where they are."""


class ApprovalRules(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How long a plan waits for its approval."""

    timeout: str = "1h"


class ReservationRules(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Minimum time for which a place is held."""

    ttl: str = "10m"


class FreedNodes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Marks on nodes that a run freed."""

    taint: FreedTaint = FreedTaint.PREFER_NO_SCHEDULE
    annotations: dict[str, str] = {}


class DeschedulerPolicySpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When and how to run: trigger, mode, profiles and limits."""

    trigger: Trigger = Trigger()
    suspend: bool = False
    starting_deadline_seconds: int | None = None
    """How late a run may start; None for any time."""
    mode: RunMode = RunMode.PLAN
    moves: MoveMethod = MoveMethod.SURGE
    node_selector: str = ""
    profiles: tuple[Profile, ...]
    limits: Limits = Limits()
    approval: ApprovalRules = ApprovalRules()
    reservation: ReservationRules = ReservationRules()
    freed_nodes: FreedNodes = FreedNodes()
    plans_kept: int = 10


class ResourceUse(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How one resource is used: the requested share and the largest free piece."""

    resource: str
    requested_ratio: str = ""
    """A decimal number such as 0.4321."""
    largest_free: str = ""
    free: str = ""


class ShapeRoom(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How many pods of a shape such as `cpu=16,memory=64Gi` fit, each on one node."""

    shape: str
    room: int = 0


class FragmentationStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """How the pods were spread when the policy last planned."""

    measured_at: str | None = None
    nodes: int = 0
    empty_nodes: int = 0
    resources: tuple[ResourceUse, ...] = ()
    shapes: tuple[ShapeRoom, ...] = ()


class DeschedulerPolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The policy's last run and the time of the next."""

    observed_generation: int | None = None
    last_run_time: str | None = None
    """When the last run began, whatever started it."""
    last_scheduled_time: str | None = None
    """The trigger's last time; missed runs count from here."""
    next_run_time: str | None = None
    last_verdict: str = ""
    last_outcome: str = ""
    last_plan: str = ""
    fragmentation: FragmentationStatus | None = None
    restrictions: tuple[Restriction, ...] = ()
    """What held the last run's plan back."""
    warnings: tuple[str, ...] = ()
    conditions: tuple[Condition, ...] = ()


class DeschedulerPolicy(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A DeschedulerPolicy as the API server holds it."""

    metadata: ObjectMeta
    spec: DeschedulerPolicySpec
    status: DeschedulerPolicyStatus = DeschedulerPolicyStatus()

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, None if it is not set."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)

    def enables(self, plugin: str) -> bool:
        """Return whether a profile enables a balance plugin."""
        return any(plugin in profile.plugins.balance.enabled for profile in self.spec.profiles)

    @classmethod
    def from_api(cls, body: Mapping[str, Any]) -> "DeschedulerPolicy":
        """Decode an API object; raises `msgspec.ValidationError` with the field."""
        return convert(body, cls)


_OVERDUE: Final = timedelta(minutes=15)
"""A policy whose next run is overdue by more than this is served by no descheduler; the run before may take as long."""


@dataclass(frozen=True, slots=True)
class Movers:
    """Names of the policies by which a descheduler moves pods for a balance plugin."""

    alone: tuple[str, ...] = ()
    """Policies whose plans are carried out without approval."""
    on_approval: tuple[str, ...] = ()


def policies_that_move(bodies: Iterable[Mapping[str, Any]], plugin: str, now: datetime) -> Movers:
    """Return the policies by which a running descheduler moves pods for a balance plugin.

    A policy counts if its status has a next run that is not long overdue. Unreadable policies and those that only plan
    are left out.
    """
    names_by_mode: dict[RunMode, list[str]] = {mode: [] for mode in RunMode}
    for body in bodies:
        try:
            policy = DeschedulerPolicy.from_api(body)
        except msgspec.ValidationError:
            continue
        next_run = read_timestamp(policy.status.next_run_time)
        runs = next_run is not None and next_run > now - _OVERDUE and not policy.spec.suspend
        if runs and policy.enables(plugin):
            names_by_mode[policy.spec.mode].append(policy.metadata.name)
    return Movers(tuple(sorted(names_by_mode[RunMode.AUTO])), tuple(sorted(names_by_mode[RunMode.APPROVE])))
