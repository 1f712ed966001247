"""What the descheduler asks of the sandbox: its commands."""

from typing import ClassVar

from berth_descheduler.capability import Capability, CapabilityCommand


class SandboxCapability(Capability):
    """Starts and stops control planes on this machine."""

    commands: ClassVar[tuple[CapabilityCommand, ...]] = (
        CapabilityCommand(
            "sandbox", "Try it on this machine", "berth_descheduler.capabilities.sandbox.cli.command:sandbox"
        ),
    )
