"""What the descheduler asks of the demo: its command."""

from typing import ClassVar

from berth_descheduler.capability import Capability, CapabilityCommand


class DemoCapability(Capability):
    """Shows on a cluster of its own what Berth does."""

    commands: ClassVar[tuple[CapabilityCommand, ...]] = (
        CapabilityCommand(
            "demo", "Try it on this machine", "berth_descheduler.capabilities.demo.cli.command:demo_command"
        ),
    )
