"""What the author of a plugin needs: import from here, and from nowhere else of Berth.

A plugin is a class with a class method `parse(args)` and the methods of one or several of the protocols below. An entry
point of the group `berth.plugins` names it.
"""

from berth_core.clock import Deadline
from berth_core.errors import InputError, RetryableError
from berth_core.migration_plans import Objective
from berth_core.objects import Namespace, Node, Pod, PodDisruptionBudget, PriorityClass
from berth_core.pod_groups import PodGroup, PodGroupWorkload, VolcanoJob
from berth_core.reservations import Reservation
from berth_core.snapshot import Snapshot
from berth_core.storage import (
    CSINode,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
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
