"""Says what DeschedulerPolicies mean: when they run, with which settings, and what is wrong with them."""

from berth_descheduler.policy.conversion import CONVERTED_PLUGIN, ConvertedProfile, convert_upstream
from berth_descheduler.policy.files import read_documents, read_policy_file
from berth_descheduler.policy.liftable_limits import PlanInput
from berth_descheduler.policy.lint import Linted, Severity, find_warnings, lint_located
from berth_descheduler.policy.parsing import PolicyRun, RunDefaults, read_policy
from berth_descheduler.policy.plan_settings import (
    PlanSettings,
    PlanSettingsReader,
    asked_by_people,
    choose_plan_settings,
    read_plan_settings,
    requested_settings,
    without_policy_limits,
)
from berth_descheduler.policy.profiles import PolicyError
from berth_descheduler.policy.restrictions import find_restrictions
from berth_descheduler.policy.schedule import IntervalSchedule, Schedule, Timing, read_timing

__all__ = [
    "CONVERTED_PLUGIN",
    "ConvertedProfile",
    "IntervalSchedule",
    "Linted",
    "PlanInput",
    "PlanSettings",
    "PlanSettingsReader",
    "PolicyError",
    "PolicyRun",
    "RunDefaults",
    "Schedule",
    "Severity",
    "Timing",
    "asked_by_people",
    "choose_plan_settings",
    "convert_upstream",
    "find_restrictions",
    "find_warnings",
    "lint_located",
    "read_documents",
    "read_plan_settings",
    "read_policy",
    "read_policy_file",
    "read_timing",
    "requested_settings",
    "without_policy_limits",
]
