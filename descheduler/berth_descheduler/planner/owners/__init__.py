"""Whether the controller of a pod makes it again, now, and from which template."""

from berth_descheduler.planner.owners.makers import GroupKind
from berth_descheduler.planner.owners.owners import Owners
from berth_descheduler.planner.owners.owners_of_owners import EVERY_OWNER, OwnersOfOwners

__all__ = ["EVERY_OWNER", "GroupKind", "Owners", "OwnersOfOwners"]
