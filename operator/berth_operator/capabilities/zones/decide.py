"""Decide what the nodes of a RevocableZone are open to, and derive the zone's status.

Everything follows from the schedule, the clock, and `status.evictFrom`, from when the present opening takes no more
pods. Once that time has come it is not put off: fewer pods need less time, and the nodes would fill again.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

from berth_core import (
    EMPTY_BY_ANNOTATION,
    EVICT_PERIOD_ANNOTATION,
    JDB_MAX_UNAVAILABLE_ANNOTATION,
    JDB_MIN_AVAILABLE_ANNOTATION,
    Condition,
    InputError,
    LentFence,
    ObjectMeta,
    Opening,
    Pod,
    RevocableZone,
    RevocableZoneStatus,
    ZoneCondition,
    ZoneReason,
    ZoneSchedule,
    ZoneState,
    count,
    first_few,
    format_duration,
    format_timestamp,
    group_key,
    read_evict_before,
    read_evict_period,
    read_timestamp,
    time_to_leave,
)

_NODES_NAMED: Final = 5
_PODS_NAMED: Final = 3
_BUDGETS: Final = {JDB_MAX_UNAVAILABLE_ANNOTATION, JDB_MIN_AVAILABLE_ANNOTATION}


@dataclass(frozen=True, slots=True)
class ZoneDecision:
    """The status to write, and when to look again."""

    status: RevocableZoneStatus
    wake_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _Times:
    """What a zone's schedule says about one instant."""

    state: ZoneState
    problem: str = ""
    """Why the zone does not open by itself, or ""."""
    opening: Opening | None = None
    """The present opening; also while the zone is emptying."""
    closes: bool = True
    """Whether the opening has an end."""
    following: Opening | None = None


def lent_fence(zone: RevocableZone, now: datetime) -> LentFence:
    """Return the fence that the nodes of a zone should have; an invalid zone keeps them closed."""
    return LentFence.OPEN if _times(zone, now).state is ZoneState.OPEN else LentFence.CLOSED


def lent_fence_notes(zone: RevocableZone) -> dict[str, str]:
    """Return the fence's annotations, which the descheduler reads to empty a node, and to move pods there or not."""
    closes_at = zone.status.closes_at
    return {EVICT_PERIOD_ANNOTATION: zone.spec.evict_period} | ({EMPTY_BY_ANNOTATION: closes_at} if closes_at else {})


@dataclass(frozen=True, slots=True)
class PodsLeft:
    """The pods on a zone's nodes that leave when it closes."""

    pods: tuple[Pod, ...] = ()
    groups: Mapping[tuple[str, str], ObjectMeta] = field(default_factory=dict)
    """The Volcano PodGroups that may have the budgets of their jobs, by namespace and name."""

    @property
    def with_budget(self) -> int:
        """Return how many of them are of jobs with a disruption budget of Volcano's."""
        metas_by_pod = ((pod.metadata, self.groups.get(group_key(pod))) for pod in self.pods)
        return sum(
            any(meta is not None and _BUDGETS & meta.annotations.keys() for meta in metas) for metas in metas_by_pod
        )

    def time_needed(self, zone: RevocableZone) -> timedelta:
        """Return how long they need to leave within the budgets of their jobs."""
        return time_to_leave(self.pods, read_evict_period(zone.spec), self.groups)


def decide_zone(
    zone: RevocableZone, fenced: Mapping[str, bool], left: PodsLeft, now: datetime, *, refused: Collection[str] = ()
) -> ZoneDecision:
    """Return the status of a zone, and when it changes by time alone.

    `fenced` says of each of its nodes whether it has the right fence; `refused` are the nodes whose fence got requests
    from admission.
    """
    times = _times(zone, now)
    evict_from = None if times.problem else _evict_from(zone, times, left)
    if times.state is ZoneState.OPEN and evict_from is not None and evict_from <= now:
        times = replace(times, state=ZoneState.EMPTYING)
    closes_at = times.opening.end if times.opening is not None and times.closes else None
    conditions = (
        (ZoneCondition.SCHEDULED, _scheduled(times)),
        (ZoneCondition.FENCED, _fenced(fenced, refused)),
        (ZoneCondition.EMPTY_IN_TIME, _empty_in_time(zone, times, left, now)),
    )
    status = RevocableZoneStatus(
        observed_generation=zone.metadata.generation,
        state=times.state.value,
        opens_at=None if times.following is None else format_timestamp(times.following.start),
        closes_at=None if closes_at is None else format_timestamp(closes_at),
        evict_from=None if evict_from is None else format_timestamp(evict_from),
        nodes=len(fenced),
        pods=len(left.pods),
        conditions=tuple(
            condition.dated(type_, zone.metadata, zone.status.conditions, now) for type_, condition in conditions
        ),
    )
    coming_moments = [
        moment
        for moment in (evict_from, closes_at, times.following and times.following.start)
        if moment and moment > now
    ]
    wake = min(((moment - now).total_seconds() for moment in coming_moments), default=None)
    return ZoneDecision(status, wake)


def _times(zone: RevocableZone, now: datetime) -> _Times:
    """Return what the schedule says about `now`; whether an opening is emptying is in the status."""
    if zone.metadata.unreadable:
        return _Times(ZoneState.INVALID, f"spec is unreadable ({zone.metadata.unreadable})")
    try:
        schedule = ZoneSchedule.parse(zone.spec)
        read_evict_period(zone.spec)
        read_evict_before(zone.spec)
    except InputError as error:
        return _Times(ZoneState.INVALID, str(error))
    if zone.spec.suspend:
        return _Times(ZoneState.SUSPENDED, "spec.suspend keeps the nodes closed")
    opening, following = schedule.current(now), schedule.following(now)
    if opening is None:
        return _Times(ZoneState.CLOSED, following=following)
    if not schedule.ends(opening, now):
        return _Times(ZoneState.OPEN, opening=opening, closes=False)
    state = ZoneState.EMPTYING if _is_emptying(zone, opening, now) else ZoneState.OPEN
    return _Times(state, opening=opening, following=following)


def _is_emptying(zone: RevocableZone, opening: Opening, now: datetime) -> bool:
    """Return whether the status says that an opening takes no more pods."""
    evict_from = read_timestamp(zone.status.evict_from)
    is_same = read_timestamp(zone.status.closes_at) == opening.end
    return is_same and evict_from is not None and evict_from <= now


def _evict_from(zone: RevocableZone, times: _Times, left: PodsLeft) -> datetime | None:
    """Return from when the present opening takes no more pods, None for one without an end."""
    if times.opening is None or not times.closes:
        return None
    # What was announced stays: with fewer pods left the time would move later, the zone open again, and take pods that
    # have to leave at once.
    if times.state is ZoneState.EMPTYING:
        return read_timestamp(zone.status.evict_from)
    evict_before = read_evict_before(zone.spec)
    time_before_close = evict_before if evict_before is not None else left.time_needed(zone)
    return min(max(times.opening.end - time_before_close, times.opening.start), times.opening.end)


def _scheduled(times: _Times) -> Condition:
    if times.problem:
        reason = ZoneReason.SUSPENDED if times.state is ZoneState.SUSPENDED else ZoneReason.INVALID
        return Condition(type="", status="False", reason=reason, message=times.problem)
    if times.opening is None:
        opens = "never" if times.following is None else f"at {format_timestamp(times.following.start)}"
        text = f"closed; opens {opens}"
    else:
        text = f"open until {format_timestamp(times.opening.end)}" if times.closes else "open at all times"
    return Condition(type="", status="True", reason=ZoneReason.ON_SCHEDULE, message=text)


def _fenced(fenced: Mapping[str, bool], refused: Collection[str]) -> Condition:
    unfenced = sorted(node_name for node_name, stands in fenced.items() if not stands)
    if not fenced:
        return Condition(
            type="", status="Unknown", reason=ZoneReason.NO_NODES, message="no node has the label of this zone"
        )
    if unfenced:
        changed_nodes = sorted(set(unfenced).intersection(refused))
        why = (
            f"; admission gives the fence of {first_few(changed_nodes, _NODES_NAMED)} requests" if changed_nodes else ""
        )
        text = f"{len(unfenced)} of {count(len(fenced), 'node')} lack their fence: {first_few(unfenced, _NODES_NAMED)}"
        text += why
        return Condition(type="", status="False", reason=ZoneReason.WITHOUT_FENCE, message=text)
    text = f"{count(len(fenced), 'node')} {'has its fence' if len(fenced) == 1 else 'have their fences'}"
    return Condition(type="", status="True", reason=ZoneReason.FENCED, message=text)


def _empty_in_time(zone: RevocableZone, times: _Times, left: PodsLeft, now: datetime) -> Condition:
    pods = count(len(left.pods), "pod")
    if not left.pods:
        verdict = ("True", ZoneReason.EMPTY, "no pod has to leave")
    elif times.opening is None:
        nodes = {pod.spec.node_name for pod in left.pods}
        text = f"{pods} left on {count(len(nodes), 'closed node')}: "
        text += first_few(sorted(pod.key for pod in left.pods), _PODS_NAMED)
        text += f"; {left.with_budget} of jobs with a budget of their own" if left.with_budget else ""
        verdict = ("False", ZoneReason.LEFT_OVER, text)
    elif not times.closes:
        verdict = ("Unknown", ZoneReason.IN_TIME, "the zone does not close")
    else:
        period = read_evict_period(zone.spec)
        time_needed = left.time_needed(zone)
        begins = max(now, _evict_from(zone, times, left) or now)
        # One period more: the pods of the present period may just be leaving.
        is_late = begins + time_needed > times.opening.end + period
        text = f"{pods} need {format_duration(time_needed)} before {format_timestamp(times.opening.end)}"
        verdict = ("False", ZoneReason.TOO_LATE, text) if is_late else ("True", ZoneReason.IN_TIME, text)
    return Condition(type="", status=verdict[0], reason=verdict[1], message=verdict[2])
