"""The steps of a move."""

from dataclasses import dataclass
from typing import TypeAlias

from berth_core import MoveReason, MoveState


@dataclass(frozen=True, slots=True)
class Reserve:
    """Create the Reservation."""


@dataclass(frozen=True, slots=True)
class Postpone:
    """Delete the Reservation, and ask for the place again in the move's turn."""

    message: str


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for the pod's eviction."""


@dataclass(frozen=True, slots=True)
class ReleaseFromOwner:
    """Have the ReplicaSet let the pod go."""


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Read the pod: was an earlier request without an answer carried out?"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing; reports the move's state and what it waits for."""

    state: MoveState
    message: str = ""


@dataclass(frozen=True, slots=True)
class Finish:
    """The move is over; with `release` its Reservation is deleted."""

    state: MoveState
    reason: MoveReason = MoveReason.NONE
    message: str = ""
    release: bool = False


@dataclass(frozen=True, slots=True)
class TakeBack:
    """Give a released pod back to its ReplicaSet; the move then ends so."""

    end: Finish


Step: TypeAlias = Reserve | Postpone | ReleaseFromOwner | Evict | LookAgain | TakeBack | Wait | Finish
