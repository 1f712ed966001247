"""The part of the operator that changes objects in the cluster."""

from berth_operator.executor.context import Context, EventRecorder, find_pod
from berth_operator.executor.executor import ActionExecutor
from berth_operator.executor.garbage_collector import OrphanCollector, Resync, list_reservations
from berth_operator.executor.guards import BestEffortPods, FenceManager, NodeGuard, StandingFences
from berth_operator.executor.handover_path import HandoverProbe, WebhookRegistration, put_webhooks
from berth_operator.executor.node_chooser import NodeChooser
from berth_operator.executor.pending_owners import PendingOwners, ReserveableGroups, TemplateRefusals
from berth_operator.executor.quota_admission import QuotaAdmission, Validator
from berth_operator.executor.scheduling_objects import PodGroups, PriorityClasses

__all__ = [
    "ActionExecutor",
    "BestEffortPods",
    "Context",
    "EventRecorder",
    "FenceManager",
    "HandoverProbe",
    "NodeChooser",
    "NodeGuard",
    "OrphanCollector",
    "PendingOwners",
    "PodGroups",
    "PriorityClasses",
    "QuotaAdmission",
    "ReserveableGroups",
    "Resync",
    "StandingFences",
    "TemplateRefusals",
    "Validator",
    "WebhookRegistration",
    "find_pod",
    "list_reservations",
    "put_webhooks",
]
