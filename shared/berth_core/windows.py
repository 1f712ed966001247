"""The ReservationWindow contract (`berth.volcano.sh/v1alpha1`): capacity that is held by the clock.

Each occurrence of a window is one Reservation. The fields have the names of Volcano's proposal for reserved nodes.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from berth_core.divided_amounts import ROUNDED, DividedAmounts
from berth_core.errors import InputError
from berth_core.names import window_reservation_name
from berth_core.objects.metadata import ObjectMeta
from berth_core.objects.pods import PodTemplate
from berth_core.reservations import Condition, Reservation
from berth_core.resources import ResourceAmounts
from berth_core.unreadable import read_or_stand_in

WINDOW_API_VERSION: Final = "berth.volcano.sh/v1alpha1"
WINDOW_KIND: Final = "ReservationWindow"


class WindowCondition(StrEnum):
    """Conditions of a ReservationWindow."""

    SCHEDULED = "Scheduled"
    """True while the window opens by itself; else the reason says why it does not."""
    SUFFICIENT = "Sufficient"
    """Whether the capacity of the current occurrence is there at its start; Unknown while nothing is reserved."""


class WindowReason(StrEnum):
    """Why a condition of a window is as it is."""

    ON_SCHEDULE = "OnSchedule"
    """Scheduled: the message says when the window opens next."""
    SUSPENDED = "Suspended"
    """Not scheduled: the window is switched off."""
    INVALID = "Invalid"
    """Not scheduled: a field is wrong; the message names it and what would be right."""
    OVERLAPPING = "Overlapping"
    """Not scheduled at times: too many occurrences would be open at once, and the latest are left out."""
    TOO_MANY_WINDOWS = "TooManyWindows"
    """Not scheduled: older windows of the namespace are as many as its limit allows; the message names it."""
    NOT_RESERVING = "NotReserving"
    """Sufficient is unknown: no occurrence reserves now."""
    NO_NODES = "NoNodes"
    """Not sufficient: no node that the window may use is ready."""
    TOO_MANY_BEGUN = "TooManyBegun"
    """Not sufficient for now: the namespace's windows have begun as many Reservations as they may in a minute; the
    message names the limit."""
    BACK_OFF = "BackOff"
    """Not sufficient for now: limits or quotas have refused the last Reservations of the window; the message says when
    it begins the next one."""
    HELD = "Held"
    """Sufficient: every slot is held or taken."""
    IDLE_SUFFICES = "IdleSuffices"
    """Sufficient: what is idle at the start holds every slot."""
    IDLE_INSUFFICIENT = "IdleInsufficient"
    """Not sufficient: what is idle at the start does not hold every slot; the message has the numbers."""
    FENCE_LIMIT = "FenceLimit"
    """Not sufficient: as many nodes are fenced as may be; the message names the limit."""
    NO_MOVES = "NoMoves"
    """Not sufficient: pods may be moved off the chosen nodes, and no policy does so."""
    AWAITING_APPROVAL = "PlansAwaitApproval"
    """Not sufficient: pods may be moved off the chosen nodes once plans of a policy are approved."""
    LATE = "Late"
    """Not sufficient: pods on the chosen nodes are expected to end after the start."""


class WindowState(StrEnum):
    """What a window does now."""

    CLOSED = "Closed"
    """No occurrence reserves."""
    RESERVING = "Reserving"
    """Capacity is reserved ahead of a start."""
    OPEN = "Open"
    """An occurrence has begun and is not over."""
    SUSPENDED = "Suspended"
    """The window is switched off."""
    INVALID = "Invalid"
    """The window cannot open."""


class MayMove(StrEnum):
    """Whether pods are moved to make room for a window."""

    NEVER = "Never"
    """Pods stay; capacity is awaited."""
    CONSOLIDATE = "Consolidate"
    """The descheduler moves pods off the chosen nodes."""


class Missed(StrEnum):
    """What becomes of an occurrence whose start was missed."""

    REST = "Rest"
    """It opens for the rest of its time."""
    SKIP = "Skip"
    """It does not open."""


class ReservationWindowSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When to hold capacity, how much, and on which nodes."""

    schedule: str = ""
    """Five cron fields, or the form `0 3 - 4 * * *`, from 3 to 4 o'clock."""
    cron: str = ""
    """The proposal's name of `schedule`; one of the two is given."""
    time_zone: str = ""
    duration: str = ""
    start_reserve_ago: str = "0s"
    pod_num_to_reserve: int
    resources: dict[str, int | str] = {}
    """What all pods request together; each slot is an equal part."""
    template: PodTemplate | None = None
    node_selector: dict[str, str] = {}
    scheduler_name: str = ""
    may_move: MayMove = MayMove.NEVER
    missed: Missed = Missed.REST
    suspend: bool = False
    history_limit: int = 5


@dataclass(frozen=True, slots=True, order=True)
class Occurrence:
    """One occurrence of a window."""

    start: datetime
    end: datetime
    reserve_at: datetime
    """When its capacity is reserved; at the start or before."""


class WindowTimes(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When an occurrence reserves, begins and ends."""

    reserve_at: str
    start: str
    end: str


class ActiveOccurrence(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An occurrence that reserves or is open."""

    reservation: str
    start: str
    end: str
    phase: str = ""
    nodes: tuple[str, ...] = ()
    desired: int = 0
    held: int = 0
    taken: int = 0
    expected_at: str | None = None
    """When every waiting slot is expected to be held; None while that is not known."""


class PastOccurrence(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An occurrence that is over."""

    reservation: str
    start: str
    end: str
    outcome: str = ""
    """The phase and the reason of its Reservation when it was last seen."""
    desired: int = 0
    taken: int = 0


class ReservationWindowStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a window does now, did last, and does next."""

    observed_generation: int | None = None
    state: str = ""
    next: WindowTimes | None = None
    active: tuple[ActiveOccurrence, ...] = ()
    history: tuple[PastOccurrence, ...] = ()
    last_start: str | None = None
    """The start of the last occurrence that was opened or left out; no earlier one opens any more."""
    conditions: tuple[Condition, ...] = ()


class ReservationWindow(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A ReservationWindow as the API server holds it."""

    metadata: ObjectMeta
    spec: ReservationWindowSpec
    status: ReservationWindowStatus = ReservationWindowStatus()

    @property
    def key(self) -> str:
        """Return `namespace/name`, for people."""
        return f"{self.metadata.namespace}/{self.metadata.name}"

    def condition(self, type_: WindowCondition) -> Condition | None:
        """Return the condition of a type, None if it is not set."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)

    def reservation_name(self, start: str) -> str:
        """Return the name of the Reservation for the occurrence that starts at a time."""
        return window_reservation_name(self.metadata.name, self.metadata.uid, start)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "ReservationWindow":
        """Decode an API object; an unreadable one notes why in `metadata.unreadable`."""
        return read_or_stand_in(body, cls, spec={})


def window_of(reservation: Reservation) -> str:
    """Return the uid of the window that controls a Reservation, "" without one."""
    owners = reservation.metadata.owner_references
    return next((owner.uid for owner in owners if owner.controller and _is_window(owner.api_version, owner.kind)), "")


def _is_window(api_version: str, kind: str) -> bool:
    return kind == WINDOW_KIND and api_version.partition("/")[0] == WINDOW_API_VERSION.partition("/")[0]


def requests_of_slot(spec: ReservationWindowSpec) -> ResourceAmounts:
    """Return what one slot requests of `resources`; raises `InputError` as `divided_resources` does."""
    return divided_resources(spec).of_slot


def divided_resources(spec: ReservationWindowSpec) -> DividedAmounts:
    """Return `resources` with the number of slots of which each requests an equal part.

    Cpu, memory and storage are rounded down, large amounts of bytes to whole Mi, so that all slots together request no
    more. Raises `InputError` for other resources that cannot be divided evenly.
    """
    slots = max(1, spec.pod_num_to_reserve)
    window_amounts = ResourceAmounts.from_quantities(spec.resources)
    for name, amount in window_amounts.items():
        if amount % slots and name not in ROUNDED:
            expected = f"a multiple of podNumToReserve ({slots}), or a template that says what each pod requests"
            raise InputError(f"resources.{name}", amount, expected)
    return DividedAmounts(window_amounts, slots)
