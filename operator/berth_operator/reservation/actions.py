"""The actions that the operator can take for one Reservation, as values."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from berth_core import Pod, ReservationTask
from berth_operator.reservation.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Validate:
    """Ask the API server whether it accepts pods of each template."""


@dataclass(frozen=True, slots=True)
class CreatePlaceholder:
    """Create the placeholder of one slot."""

    task: ReservationTask
    index: int
    node: str = ""
    """The chosen node whose capacity it awaits, "" for what is free now."""


@dataclass(frozen=True, slots=True)
class ChooseNodes:
    """Choose nodes for these slots, by task and index."""

    slots: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RenewPlaceholder:
    """Create a slot's next placeholder, gated until the present one is deleted."""

    task: ReservationTask
    placeholder: Pod
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ShortenPlaceholder:
    """Make the kubelet end a placeholder this many seconds after its start."""

    placeholder: Pod
    seconds: int


@dataclass(frozen=True, slots=True)
class DeletePlaceholder:
    """Free what a placeholder holds."""

    placeholder: Pod
    at_once: bool = False
    """Whether it is gone without waiting for a kubelet to report its end."""
    for_owner: bool = False
    """Whether a pod takes its place, so that it did not hold the place in vain."""


@dataclass(frozen=True, slots=True)
class AssignSlot:
    """Give a pod a slot: write the note and guard toleration."""

    pod: Pod
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class ExtendHandover:
    """Give a pod more time: write a note with a later deadline."""

    pod: Pod
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Nominate:
    """Set the node that the scheduler tries first."""

    pod: Pod
    node: str


@dataclass(frozen=True, slots=True)
class Ungate:
    """Remove our gate from a pod whose place is free now."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class CompleteHandover:
    """Remove our label and note from a pod running in its slot."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Release:
    """Remove gate, label, note and nomination from a pod."""

    pod: Pod
    elsewhere: bool = False
    """Whether to send the pod to another Reservation with a slot for it."""


@dataclass(frozen=True, slots=True)
class SurveyNode:
    """List the pods on a node."""

    node: str


@dataclass(frozen=True, slots=True)
class Probe:
    """Test the hand-over path with a dry-run pod."""


@dataclass(frozen=True, slots=True)
class DeleteReservation:
    """Delete a finished Reservation after its retention time."""


Action: TypeAlias = (
    Validate
    | ChooseNodes
    | CreatePlaceholder
    | RenewPlaceholder
    | ShortenPlaceholder
    | DeletePlaceholder
    | AssignSlot
    | ExtendHandover
    | Nominate
    | Ungate
    | CompleteHandover
    | Release
    | SurveyNode
    | Probe
    | DeleteReservation
)

_LABELS: Final[Mapping[type[Action], str]] = {
    RenewPlaceholder: "SucceedPlaceholder",
    CompleteHandover: "Finish",
    SurveyNode: "LookAtNode",
    DeleteReservation: "Collect",
}
"""Names for the metric's label and the log that differ from the class: dashboards use them."""


def label_of(action: type[Action]) -> str:
    return _LABELS.get(action, action.__name__)
