"""Owns the vocabulary of what the operator can do to the cluster, as values.

It does not do any of it: `acting.performer` does.
"""

from dataclasses import dataclass
from typing import TypeAlias

from berth_core.objects import Pod
from berth_core.reservations import ReservationTask
from berth_operator.reconcile.observation import Assignment


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask the API server whether it would take a pod of each task's template."""


@dataclass(frozen=True, slots=True)
class CreatePlaceholder:
    """Hold one slot."""

    task: ReservationTask
    index: int


@dataclass(frozen=True, slots=True)
class SucceedPlaceholder:
    """Make another placeholder for a slot, gated until it is handed the place of the one before."""

    task: ReservationTask
    placeholder: Pod
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ShortenPlaceholder:
    """Have the kubelet end a placeholder so many seconds after its start."""

    placeholder: Pod
    seconds: int


@dataclass(frozen=True, slots=True)
class DeletePlaceholder:
    """Free what a placeholder holds; `at_once` where its node is gone and no kubelet will say that it has ended."""

    placeholder: Pod
    at_once: bool = False
    for_owner: bool = False
    """Whether a pod is waiting to go where it was, so that it did not hold the place in vain."""


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Give a gated pod a slot: the note, and the toleration of the guard."""

    pod: Pod
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ExtendHandover:
    """Give a pod more time to be tried by its scheduler: a note with a later deadline."""

    pod: Pod
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Nominate:
    """Tell the scheduler which node to try first."""

    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class Ungate:
    """Take our gate off a pod whose slot is free for it now."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Finish:
    """Take our label and note off a pod that runs in its slot."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Release:
    """Let a pod go its own way: gate, label, note and nomination off.

    `elsewhere`: it goes to another Reservation instead, if one has a slot for it.
    """

    pod: Pod
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class LookAtNode:
    """Ask the API server which pods are on a node."""

    node: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Prove the hand-over path with a dry-run pod."""


@dataclass(frozen=True, slots=True)
class Collect:
    """Delete a finished Reservation after its retention time."""


Action: TypeAlias = (
    Validate
    | CreatePlaceholder
    | SucceedPlaceholder
    | ShortenPlaceholder
    | DeletePlaceholder
    | AssignSlot
    | ExtendHandover
    | Nominate
    | Ungate
    | Finish
    | Release
    | LookAtNode
    | Probe
    | Collect
)
