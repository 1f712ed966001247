"""What the author of a plugin needs.

Import from here, and from nowhere else of Berth. A plugin is a class with a class method `parse(args)` and the methods
of one or several of the protocols below. An entry point of the group `berth.plugins` names it.
"""

from berth_core import (
    CSINode,
    Deadline,
    InputError,
    Namespace,
    Node,
    Objective,
    PersistentVolume,
    PersistentVolumeClaim,
    Pod,
    PodDisruptionBudget,
    PodGroup,
    PodGroupWorkload,
    PriorityClass,
    Reservation,
    RetryableError,
    Snapshot,
    StorageClass,
    VolcanoJob,
    VolumeAttachment,
    Workload,
)
from berth_descheduler.framework.interfaces import (
    BalancePlugin,
    Candidate,
    ClusterView,
    DeschedulePlugin,
    FilterPlugin,
    Objection,
    PluginType,
    PodFilter,
    PreEvictionFilterPlugin,
)
from berth_descheduler.framework.refusals import Refusal, RefusalReason

__all__ = [
    "BalancePlugin",
    "CSINode",
    "Candidate",
    "ClusterView",
    "Deadline",
    "DeschedulePlugin",
    "FilterPlugin",
    "InputError",
    "Namespace",
    "Node",
    "Objection",
    "Objective",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PluginType",
    "Pod",
    "PodDisruptionBudget",
    "PodFilter",
    "PodGroup",
    "PodGroupWorkload",
    "PreEvictionFilterPlugin",
    "PriorityClass",
    "Refusal",
    "RefusalReason",
    "Reservation",
    "RetryableError",
    "Snapshot",
    "StorageClass",
    "VolcanoJob",
    "VolumeAttachment",
    "Workload",
]
