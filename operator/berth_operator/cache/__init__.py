"""The operator's view of the cluster, kept up to date by watches."""

from berth_operator.cache.cache import Cache
from berth_operator.cache.cluster_rules import ClusterRules
from berth_operator.cache.informers import Informers, apply_event
from berth_operator.cache.listed_objects import ListedObjects
from berth_operator.cache.nodes import GuardableNode
from berth_operator.cache.pods import reservation_uid
from berth_operator.cache.reservations import OwnerIndex, read_reservation, templates_as_written, version_of
from berth_operator.cache.slot_matching import SlotFinder, has_name_of

__all__ = [
    "Cache",
    "ClusterRules",
    "GuardableNode",
    "Informers",
    "ListedObjects",
    "OwnerIndex",
    "SlotFinder",
    "apply_event",
    "has_name_of",
    "read_reservation",
    "reservation_uid",
    "templates_as_written",
    "version_of",
]
