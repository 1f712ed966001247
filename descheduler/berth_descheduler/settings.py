"""The settings of a run: meaning, unit and default of each.

They are validated when made, and passed in.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final

from berth_core import (
    DEFAULT_NAMESPACE,
    LONGEST_GRACE,
    InputError,
    MoveMethod,
    RunMode,
    format_duration,
    require_positive,
)
from berth_service.process import unique_identity


class Approval(StrEnum):
    """Who starts a published plan."""

    AUTO = "Auto"
    APPROVE = "Approve"


WAITS: Final = ("reserve_seconds", "evict_seconds", "land_seconds", "ready_seconds", "end_seconds")
"""The fields of `MoveTimeouts` that say how long a move waits for a pod or a place."""

MOST_IN_A_WAVE: Final = 2000
"""No plan has more moves."""


@dataclass(frozen=True, slots=True)
class MoveTimeouts:
    """How long each step of a move may take, in seconds; a move that takes longer fails."""

    reserve_seconds: float = 60.0
    """From creating the Reservation until its place is held and its hand-over proven."""

    evict_seconds: float = 120.0
    """From the first refused eviction (429, by a disruption budget or a webhook) until no more attempt is made."""

    land_seconds: float = 120.0
    """From the evicted pod's end until its replacement has its place; the pod's own grace period is added before."""

    ready_seconds: float = 120.0
    """From the replacement's binding until its containers run, and again from then until it is Ready, if the pod
    before it was Ready. What its probes ask for comes on top, and `minReadySeconds` where it is waited for."""

    heeds_progress_deadlines: bool = True
    """Whether a pod of a Deployment has the `progressDeadlineSeconds` of that where they are more than `ready_seconds`
    and its probes give it."""

    end_seconds: float = 60.0
    """From the end of an evicted pod's grace period until it counts as one that does not end; and how long a run whose
    moves are over waits for pods that are on their way out."""

    gap_seconds: float = 10.0
    """How long the watches may be behind: so long a Reservation that was just created may be unseen before it counts
    as deleted, and a replacement may run before it counts as one that was handed no place."""

    shutdown_seconds: float = 15.0
    """After the request to stop: how long pods already evicted are waited for."""

    def __post_init__(self) -> None:
        """Refuse negative times."""
        for wait in (*WAITS, "gap_seconds"):
            require_positive(wait, getattr(self, wait))
        if self.shutdown_seconds < 0:
            raise InputError(field="shutdown_seconds", value=str(self.shutdown_seconds), expected="0 or more seconds")


@dataclass(frozen=True, slots=True)
class ExecutionSettings:
    """How a plan is executed."""

    timeouts: MoveTimeouts = field(default_factory=MoveTimeouts)

    max_failed_share: float = 0.2
    """Share of the plan's moves that may fail or land elsewhere; one more, and the plan stops. One failure never stops
    a plan. 1 means never."""

    max_open_moves: int = 64
    """Moves that are under way at once; a source node's moves of one wave begin together even if that is more."""

    holds_all: bool = False
    """No pod leaves before the places of all moves that begin with its own are held, or given up."""

    pending_wait_seconds: float = 60.0
    """How long a run, or its next wave, waits for pending pods whose room it would take; 0: not at all."""

    max_grace: timedelta = LONGEST_GRACE
    """The most that counts of a pod's grace period; a pod with a longer one is not moved in the first place."""

    max_seconds: float | None = 3600.0
    """How long a plan may be carried out before nothing new is begun; None: no limit. Its taints stand for so long, and
    while what is under way ends: they break the roll-out of DaemonSets on those nodes."""

    wave_seconds: float | None = None
    """The longest that one wave may take; None: as long as its moves may by their own deadlines."""

    reservation_ttl: timedelta = timedelta(minutes=10)
    """The least TTL of a Reservation; it is longer where the timeouts need more."""

    workers: int = 8
    """Threads that call the API."""

    tick_seconds: float = 0.2
    """The longest time between two looks at the moves; what the watches report wakes the loop at once."""

    status_interval_seconds: float = 1.0
    """The shortest time between two writes of the plan's status."""

    watchdog_seconds: float = 20.0
    """Between two looks at the operator's Lease: two of them exceed its duration, 6 s, and `stale_operator_seconds`."""

    stale_operator_seconds: float = 30.0
    """How long an operator's Lease must be expired before the gates and guards that it left are taken off."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, naming the field."""
        for setting in ("max_open_moves", "workers", "tick_seconds", "watchdog_seconds", "stale_operator_seconds"):
            require_positive(setting, getattr(self, setting))
        if not 0 <= self.max_failed_share <= 1:
            raise InputError(field="max_failed_share", value=str(self.max_failed_share), expected="a share from 0 to 1")
        for setting in ("status_interval_seconds", "pending_wait_seconds"):
            if getattr(self, setting) < 0:
                raise InputError(field=setting, value=str(getattr(self, setting)), expected="0 or more seconds")
        for setting in ("max_seconds", "wave_seconds"):
            if getattr(self, setting) is not None:
                require_positive(setting, getattr(self, setting))

    def hurried(self, seconds: float) -> "ExecutionSettings":
        """Return the same with no wait for a pod or a place that is longer than that."""
        shorter = {wait: min(seconds, getattr(self.timeouts, wait)) for wait in WAITS}
        pending_seconds = min(seconds, self.pending_wait_seconds)
        timeouts = replace(self.timeouts, **shorter, heeds_progress_deadlines=False)
        return replace(self, timeouts=timeouts, pending_wait_seconds=pending_seconds)

    @property
    def ttl(self) -> timedelta:
        """Return the TTL of a Reservation, never shorter than all that its move may wait for."""
        waits = self.timeouts
        # A move may also wait for the other moves of its source, which wait no longer than it does itself.
        seconds_to_leave = max(waits.land_seconds, waits.end_seconds)
        needed_seconds = 2 * waits.reserve_seconds + waits.evict_seconds + seconds_to_leave + waits.ready_seconds
        return max(self.reservation_ttl, timedelta(seconds=needed_seconds))

    def wave_limit(
        self, moves: int, longest_grace_seconds: float, longest_start_seconds: float = 0.0, *, in_turn: int = 1
    ) -> float:
        """Return how many seconds a wave of so many moves may take, with so many of them one after another.

        They include the grace period of their pods, and the time that their probes and `minReadySeconds` ask for.
        """
        if self.wave_seconds is not None:
            return self.wave_seconds
        turn_count = max(in_turn, math.ceil(moves / self.max_open_moves))
        waits = self.timeouts
        return turn_count * (
            self.ttl.total_seconds() + waits.ready_seconds + longest_grace_seconds + 2 * longest_start_seconds
        )


@dataclass(frozen=True, slots=True)
class FreedNodes:
    """What freed nodes carry until they are needed."""

    taint: bool = False
    """Whether they are tainted `PreferNoSchedule`, so that small pods go elsewhere while they can."""

    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that hand them to an autoscaler or the like; removed with the taint."""

    @property
    def nothing(self) -> bool:
        """Return whether nothing is put on them."""
        return not self.taint and not self.annotations


@dataclass(frozen=True, slots=True)
class CycleSettings:
    """How one cycle runs."""

    execution: ExecutionSettings = field(default_factory=ExecutionSettings)

    namespace: str = DEFAULT_NAMESPACE
    """Berth's own namespace, where the Leases are."""

    identity: str = field(default_factory=unique_identity)
    """Name under which this process holds the Lease."""

    lease_seconds: int = 15
    """How long the Lease holds without renewal."""

    lease_wait_seconds: float = 20.0
    """How long to wait for the Lease: a little more than a killed run keeps it."""

    mode: RunMode | None = None
    """How far a run for a policy goes; None: a run by hand, which waits for its approval itself."""

    moves: MoveMethod = MoveMethod.SURGE
    """How the pods of a new plan are moved."""

    policy: str = ""
    """Name of the policy that the cycle runs for; "" where a person asked for it."""

    freed: FreedNodes = field(default_factory=FreedNodes)

    pod_cool_down: timedelta = timedelta(0)
    """How long a pod that a plan moved is not moved again, and a node that it freed is not freed again; 0: at once."""

    node_cool_down: timedelta = timedelta(0)
    """How long nodes that pods were moved off or onto are labelled as cooling; 0: not at all."""

    min_freed_nodes: int = 0
    """A plan that lastingly frees fewer nodes than this does not begin."""

    max_replans: int = 0
    """How often the run plans again what a plan could not do any more."""

    approval: Approval = Approval.AUTO
    """Whether the plan starts by itself or waits for `spec.approved`."""

    approval_seconds: float = 600.0
    """How long to wait for the approval."""

    adoption_seconds: float = 1800.0
    """A plan that an interrupted run left is continued up to this age; an older one is aborted."""

    plan_name: str = ""
    """Name of the plan that is made; "" for one that nothing else has."""

    dry_run: bool = False
    """Plan only: nothing is written to the cluster."""

    trigger: str = "Manual"
    """What started the cycle, for the plan's spec."""

    @property
    def begins_by_itself(self) -> bool:
        """Return whether a plan begins as soon as it is published."""
        return self.approval is Approval.AUTO and self.mode in {None, RunMode.AUTO}

    def __post_init__(self) -> None:
        """Refuse settings that cannot work, naming the field."""
        for setting in ("lease_seconds", "lease_wait_seconds", "approval_seconds", "adoption_seconds"):
            require_positive(setting, getattr(self, setting))
        for setting in ("pod_cool_down", "node_cool_down"):
            if getattr(self, setting) < timedelta(0):
                value = format_duration(getattr(self, setting))
                raise InputError(field=setting, value=value, expected="a length of time from 0 on")
        for setting in ("min_freed_nodes", "max_replans"):
            if getattr(self, setting) < 0:
                raise InputError(field=setting, value=getattr(self, setting), expected="a whole number from 0 on")


class Service(StrEnum):
    """What the long-running program does."""

    POLICIES = "Policies"
    INTERVAL = "Interval"
    ONCE = "Once"


PLAN_RETENTION: Final = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How the long-running service behaves."""

    service: Service = Service.POLICIES
    """Whether it serves the cluster's policies, runs cycles of its own at an interval, or one and ends."""

    interval: timedelta | None = None
    """Between the starts of two cycles; None with the others."""

    plan_retention: timedelta | None = PLAN_RETENTION
    """How long plans of no policy are kept when they are over, by the service of policies; None: for ever."""

    health_host: str = "127.0.0.1"
    """Address of `/healthz` and `/metrics`; in a cluster `::`, for all addresses, IPv4 and IPv6."""

    health_port: int = 8081
    """Port of `/healthz` and `/metrics`; 0 takes a free one."""
