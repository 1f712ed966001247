"""The capabilities of the descheduler: a line for each, in the order in which pages list them.

Nothing else of the kernel imports one.
"""

from typing import Any, Final

from berth_core import Objective, Snapshot
from berth_descheduler.capabilities.demo.capability import DemoCapability
from berth_descheduler.capabilities.drain.capability import DrainCapability
from berth_descheduler.capabilities.hot_nodes.capability import HotNodesCapability
from berth_descheduler.capabilities.lent_nodes.capability import LentNodesCapability
from berth_descheduler.capabilities.prices.capability import PricesCapability
from berth_descheduler.capabilities.queues.capability import QueuesCapability
from berth_descheduler.capabilities.rehearsal.capability import RehearsalCapability
from berth_descheduler.capabilities.sandbox.capability import SandboxCapability
from berth_descheduler.capabilities.starving_jobs.capability import StarvingJobsCapability
from berth_descheduler.capabilities.windows.capability import WindowsCapability
from berth_descheduler.capability import Capability, EvictedPod, OnDemand
from berth_descheduler.planner.goal import ArgumentGroup, Goal
from berth_descheduler.planner.rooms import GuaranteedRoom, RoomOwners

CAPABILITIES: Final[tuple[type[Capability], ...]] = (
    StarvingJobsCapability,
    WindowsCapability,
    LentNodesCapability,
    HotNodesCapability,
    DrainCapability,
    DemoCapability,
    RehearsalCapability,
    SandboxCapability,
    QueuesCapability,
    PricesCapability,
)

EVERY_CAPABILITY: Final = tuple(capability() for capability in CAPABILITIES)


def capability_named(name: str) -> Capability | None:
    """Return the capability whose plugin has a name, None if there is none."""
    return next((capability for capability in EVERY_CAPABILITY if name and capability.name == name), None)


def capability_goal(objective: Objective) -> Goal[Any, Any] | None:
    """Return what a plan is for that the plugin of a capability made, None for any other plan."""
    return next((capability.goal for capability in EVERY_CAPABILITY if capability.has_planned(objective)), None)


def groups_of(goal: Goal[Any, Any]) -> tuple[ArgumentGroup[Any], ...]:
    """Return the groups of arguments that only plans for a goal have: those of capabilities, then the goal's own."""
    groups = (capability.goal_arguments.get(goal.name) for capability in EVERY_CAPABILITY)
    return (*(group for group in groups if group is not None), goal)


def on_demand(objective: Objective) -> OnDemand | None:
    """Return what people asked for where a plan of this objective belongs to no policy, None where nothing is known.

    Raises `InputError` for invalid arguments.
    """
    capability = capability_named(objective.plugin)
    return None if capability is None else capability.on_demand(objective)


def why_not_evicted(evicted: EvictedPod) -> str:
    """Return why a pod may not be evicted without a place, "" if a capability lets it go."""
    answers = [reason for capability in EVERY_CAPABILITY if (reason := capability.why_not_evicted(evicted)) is not None]
    return "" if "" in answers else next(iter(answers), "nothing lets it go without a place")


def room_of_guarantee(snapshot: Snapshot, name: str, owners: RoomOwners | None) -> GuaranteedRoom | None:
    """Return what is left of the guarantee of a name, None where no capability knows guarantees.

    Raises `InputError` for a name that is not known, or has no guarantee.
    """
    answers = (capability.room_of_guarantee(snapshot, name, owners) for capability in EVERY_CAPABILITY)
    return next((room for room in answers if room is not None), None)
