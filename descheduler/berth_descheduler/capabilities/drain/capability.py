"""The registration of drains: their command, their path and their goal."""

from typing import ClassVar

from berth_core import Objective
from berth_descheduler.capabilities.drain.plugin import NODE_DRAIN, NodeDrain
from berth_descheduler.capability import Capability, CapabilityCommand
from berth_descheduler.goals.move_pods.goal import MovePodsGoal


class DrainCapability(Capability):
    """Moves all pods off nodes on request; no policy can ask for it."""

    name: ClassVar[str] = NODE_DRAIN
    goal: ClassVar[MovePodsGoal] = NodeDrain.goal
    commands: ClassVar[tuple[CapabilityCommand, ...]] = (
        CapabilityCommand("drain", "Move pods now", "berth_descheduler.capabilities.drain.cli.command:drain_command"),
    )
    paths: ClassVar[str] = "berth_descheduler.capabilities.drain.api.paths:PATHS"

    def has_planned(self, objective: Objective) -> bool:
        """Return whether a recorded plan drains nodes; its strategy is the one that moves only named pods."""
        return objective.plugin == NODE_DRAIN

    def on_demand(self, objective: Objective) -> NodeDrain | None:
        return NodeDrain.parse(objective.args) if objective.plugin == NODE_DRAIN else None
