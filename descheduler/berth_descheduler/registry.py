"""The capabilities of the descheduler: a line for each, in the order in which pages list them.

Nothing else of the kernel imports one.
"""

from typing import Final

from berth_descheduler.capabilities.hot_nodes.capability import HotNodesCapability
from berth_descheduler.capabilities.lent_nodes.capability import LentNodesCapability
from berth_descheduler.capabilities.starving_jobs.capability import StarvingJobsCapability
from berth_descheduler.capabilities.windows.capability import WindowsCapability
from berth_descheduler.capability import Capability, EvictedPod

CAPABILITIES: Final[tuple[type[Capability], ...]] = (
    StarvingJobsCapability,
    WindowsCapability,
    LentNodesCapability,
    HotNodesCapability,
)

EVERY_CAPABILITY: Final = tuple(capability() for capability in CAPABILITIES)


def capability_named(name: str) -> Capability | None:
    """Return the capability whose plugin has a name, None if there is none."""
    return next((capability for capability in EVERY_CAPABILITY if capability.name == name), None)


def why_not_evicted(evicted: EvictedPod) -> str:
    """Return why a pod may not be evicted without a place, "" if a capability lets it go."""
    answers = [reason for capability in EVERY_CAPABILITY if (reason := capability.why_not_evicted(evicted)) is not None]
    return "" if "" in answers else next(iter(answers), "nothing lets it go without a place")
