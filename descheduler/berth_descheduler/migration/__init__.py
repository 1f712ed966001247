"""Executes plans: publishes and begins them, holds places and evicts pods.

Also continues or aborts the plans that ended runs left.
"""

from berth_descheduler.migration.context import PlanContext
from berth_descheduler.migration.controller import PlanDeletedError, execute_plan
from berth_descheduler.migration.endings import is_overdue
from berth_descheduler.migration.freeing import settle_freed_nodes, why_they_stay
from berth_descheduler.migration.manifests import MOST_MOVES
from berth_descheduler.migration.move_calls import (
    find_unsurgeable,
)
from berth_descheduler.migration.nodes import (
    FreedMark,
    cordon_nodes,
    left_over_nodes,
    read_pods_to_drain,
    sweep_cooling_nodes,
    sweep_freed_nodes,
    uncordon_nodes,
)
from berth_descheduler.migration.operator_liveness import OperatorLiveness, clean_up_after_operator
from berth_descheduler.migration.plans import (
    REPLAN_TRIGGER,
    PlanStateError,
    PodName,
    abort,
    announce,
    announce_starving,
    approve,
    conclude_request,
    end_plan,
    find_pods_in_cooldown,
    leader_lease,
    note_replanned,
    publish_plan,
    request_drain,
    request_run,
    run_lease,
)
from berth_descheduler.migration.presence import OPERATOR, SERVICE, why_absent
from berth_descheduler.migration.recovery import abort_plan, recover_plans, release_reservations
from berth_descheduler.migration.validation import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    NotBegun,
    PlanValidator,
    PreEvictionCheck,
    drain_not_begun_reason,
    pods_waiting_reason,
    too_little_gain_reason,
)

__all__ = [
    "FIRST_PAUSE_SECONDS",
    "LONGEST_PAUSE_SECONDS",
    "MOST_MOVES",
    "OPERATOR",
    "REPLAN_TRIGGER",
    "SERVICE",
    "FreedMark",
    "NotBegun",
    "OperatorLiveness",
    "PlanContext",
    "PlanDeletedError",
    "PlanStateError",
    "PlanValidator",
    "PodName",
    "PreEvictionCheck",
    "abort",
    "abort_plan",
    "announce",
    "announce_starving",
    "approve",
    "clean_up_after_operator",
    "conclude_request",
    "cordon_nodes",
    "drain_not_begun_reason",
    "end_plan",
    "execute_plan",
    "find_pods_in_cooldown",
    "find_unsurgeable",
    "is_overdue",
    "leader_lease",
    "left_over_nodes",
    "note_replanned",
    "pods_waiting_reason",
    "publish_plan",
    "read_pods_to_drain",
    "recover_plans",
    "release_reservations",
    "request_drain",
    "request_run",
    "run_lease",
    "settle_freed_nodes",
    "sweep_cooling_nodes",
    "sweep_freed_nodes",
    "too_little_gain_reason",
    "uncordon_nodes",
    "why_absent",
    "why_they_stay",
]
