"""The RevocableZone contract (`berth.volcano.sh/v1alpha1`): nodes that are lent to Kubernetes by the clock.

The names and the meaning come from Volcano's proposal for time division and its plugin `tdm`
(pkg/scheduler/plugins/tdm/tdm.go). A node belongs to the zone that its label `volcano.sh/revocable-zone` names.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import msgspec

from berth_core.labels import STANDING_FENCE_LABEL
from berth_core.objects.metadata import ObjectMeta
from berth_core.objects.pods import Pod
from berth_core.reservations import Condition
from berth_core.unreadable import read_or_stand_in


class ZoneState(StrEnum):
    """What a zone's nodes are open to now."""

    CLOSED = "Closed"
    """No window: pods of DaemonSets only."""
    OPEN = "Open"
    """Preemptable pods may come."""
    EMPTYING = "Emptying"
    """The window ends soon: no pod comes any more, and those that are there leave."""
    SUSPENDED = "Suspended"
    """Switched off: closed at all times."""
    INVALID = "Invalid"
    """A field is wrong: closed at all times."""


class ZoneCondition(StrEnum):
    """Conditions of a RevocableZone."""

    SCHEDULED = "Scheduled"
    """True while the windows open by themselves; else the reason says why they do not."""
    FENCED = "Fenced"
    """Whether every node of the zone has the fence that it should have."""
    EMPTY_IN_TIME = "EmptyInTime"
    """Whether the nodes will be empty at the hour; Unknown for a zone that does not close."""


class ZoneReason(StrEnum):
    """Why a condition of a zone is as it is."""

    ON_SCHEDULE = "OnSchedule"
    """Scheduled: the message says when the zone opens or closes next."""
    SUSPENDED = "Suspended"
    """Not scheduled: the zone is switched off."""
    INVALID = "Invalid"
    """Not scheduled: a field is wrong; the message names it and what would be right."""
    FENCED = "Fenced"
    """Every node has its fence."""
    NO_NODES = "NoNodes"
    """No node carries the zone's label."""
    WITHOUT_FENCE = "WithoutFence"
    """Some nodes have no fence; the message names them."""
    EMPTY = "Empty"
    """No pod is left that has to leave."""
    IN_TIME = "InTime"
    """What is left leaves before the hour."""
    TOO_LATE = "TooLate"
    """By the budgets of their jobs the pods leave after the hour; the message has the numbers."""
    LEFT_OVER = "LeftOver"
    """The zone is closed, and pods are left; the message has their number."""


class Weekday(StrEnum):
    """A day of the week."""

    MONDAY = "Mon"
    TUESDAY = "Tue"
    WEDNESDAY = "Wed"
    THURSDAY = "Thu"
    FRIDAY = "Fri"
    SATURDAY = "Sat"
    SUNDAY = "Sun"


class RevocableZoneSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """When the nodes of a zone are lent, and how they are emptied."""

    windows: tuple[str, ...]
    """From when to when on the wall clock, such as `1:00-4:00`; over midnight if the end is not after the start."""
    days: tuple[Weekday, ...] = ()
    """The days on which windows begin; none for every day."""
    time_zone: str = ""
    evict_period: str = "1m"
    evict_before: str = ""
    """How long before its end a window stops to take pods; "" for as long as the pods need."""
    suspend: bool = False


class RevocableZoneStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a zone is open to, until when, and what is left on its nodes."""

    observed_generation: int | None = None
    state: str = ""
    opens_at: str | None = None
    """When the next window begins."""
    closes_at: str | None = None
    """When the window that is open ends."""
    evict_from: str | None = None
    """When that window stops to take pods, so that those that are there leave in time."""
    nodes: int = 0
    pods: int = 0
    """Pods on the nodes that leave when the zone closes."""
    conditions: tuple[Condition, ...] = ()


class RevocableZone(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A RevocableZone as the API server holds it; its name is the value of its nodes' label."""

    metadata: ObjectMeta
    spec: RevocableZoneSpec
    status: RevocableZoneStatus = RevocableZoneStatus()

    @property
    def key(self) -> str:
        return self.metadata.name

    def condition(self, type_: ZoneCondition) -> Condition | None:
        """Return the condition of a type, None if it is not set."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "RevocableZone":
        """Decode an API object; an unreadable one notes why in `metadata.unreadable`."""
        return read_or_stand_in(body, cls, spec={})


class LentFence(StrEnum):
    """What the fence of a lent node lets in besides pods of DaemonSets, as `STANDING_FENCE_LABEL` says."""

    OPEN = "lent-open"
    """Preemptable pods, which prefer the node."""
    CLOSED = "lent-closed"
    """Nothing."""
    WITHOUT_ZONE = "lent-without-zone"
    """Nothing either: the label names no zone. There are no times by which pods would leave."""


def is_lent_fence(pod: Pod) -> bool:
    """Return whether a pod is the fence of a lent node."""
    return pod.metadata.labels.get(STANDING_FENCE_LABEL) in set(LentFence)
