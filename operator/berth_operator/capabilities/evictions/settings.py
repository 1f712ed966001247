"""The settings of evictions by others, and the options that make them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import click

from berth_core import InputError
from berth_operator.runtime.capability import CommandSettings

_LONGEST_SECONDS: Final = 1800


@dataclass(frozen=True, slots=True)
class EvictionSettings:
    """How evictions by others are answered."""

    enabled: bool = False
    """Whether they are answered at all."""

    deadline_seconds: float = 120.0
    """How long an eviction waits for a replacement; then it passes without a replacement."""

    exempt: tuple[str, ...] = ()
    """Users whose evictions are not asked about, such as the descheduler's account."""

    def __post_init__(self) -> None:
        """Reject a deadline at which nothing could wait, or which leaves a pod without its ReplicaSet for too long."""
        if not 1 <= self.deadline_seconds <= _LONGEST_SECONDS:
            expected = f"1 to {_LONGEST_SECONDS} seconds"
            raise InputError("deadline_seconds", str(self.deadline_seconds), expected)


def read_settings(options: Mapping[str, Any]) -> EvictionSettings:
    """Return the settings for the options; raises `InputError`."""
    return EvictionSettings(options["evictions"], options["evictions_deadline"], tuple(options["evictions_exempt"]))


COMMAND: Final = CommandSettings(
    after="guarded_priority_classes",
    options=(
        click.Option(
            ["--evictions"],
            is_flag=True,
            help="Answer evictions by others of pods that ask for a replacement first.",
        ),
        click.Option(
            ["--evictions-deadline"],
            default=120.0,
            help="Seconds that such an eviction waits at most; then it passes without a replacement.",
        ),
        click.Option(
            ["--evictions-exempt"],
            multiple=True,
            metavar="USER",
            help="User whose evictions are left alone, such as the descheduler's account; may be given several times.",
        ),
    ),
    read=read_settings,
)
