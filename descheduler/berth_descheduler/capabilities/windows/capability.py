"""What the descheduler asks of its part in ReservationWindows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from berth_core import WINDOW_MOVES, DeschedulerPolicy
from berth_descheduler.capabilities.windows.plugin import ARGUMENTS, ReservationWindows
from berth_descheduler.capability import Advice, Capability, CapabilityCommand
from berth_descheduler.framework.interfaces import PluginType
from berth_descheduler.goals.move_pods.goal import MovePodsGoal

if TYPE_CHECKING:
    from berth_kube import KubeClient
    from berth_sandbox.invariants import ClusterState, Invariant, Violation


class WindowsCapability(Capability):
    """When ReservationWindows open and close, and moves for those with `mayMove: Consolidate`."""

    name: ClassVar[str] = WINDOW_MOVES
    plugin: ClassVar[PluginType] = ReservationWindows
    goal: ClassVar[MovePodsGoal] = ReservationWindows.goal
    arguments: ClassVar[Mapping[str, str]] = ARGUMENTS
    commands: ClassVar[tuple[CapabilityCommand, ...]] = (
        CapabilityCommand("calendar", "Look", "berth_descheduler.capabilities.windows.cli.command:calendar_command"),
    )
    paths: ClassVar[str] = "berth_descheduler.capabilities.windows.api.paths:PATHS"

    def findings(
        self, client: KubeClient, state: ClusterState, policies: Sequence[DeschedulerPolicy]
    ) -> Iterator[Violation]:
        from berth_descheduler.capabilities.windows.findings import find_window_troubles  # noqa: PLC0415 - for doctor only

        del state, policies
        return find_window_troubles(client)

    def advice(self) -> Mapping[Invariant, Advice]:
        from berth_descheduler.capabilities.windows.findings import ADVICE  # noqa: PLC0415 - for doctor only

        return ADVICE
