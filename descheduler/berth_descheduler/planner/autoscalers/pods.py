"""What the marks of autoscalers on a pod say about moving it."""

from datetime import datetime, timedelta
from typing import TypeAlias

from berth_core import InputError, Pod, Volume, parse_duration, read_timestamp
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.planner.autoscalers.marks import (
    DO_NOT_DISRUPT,
    DO_NOT_EVICT,
    NO,
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
    YES,
)

Refusals: TypeAlias = tuple[Refusal, ...]


def wish_refusals(pod: Pod, now: datetime | None) -> Refusals:
    """Return refusals by annotations that autoscalers honour as well.

    `now` is the time by which protection for a while is over; None: it is not known, and the protection lasts.
    """
    annotations = pod.metadata.annotations
    if not annotations:
        return ()
    refusals: Refusals = ()
    if annotations.get(SAFE_TO_EVICT) == NO:
        refusals = (Refusal(RefusalReason.NOT_SAFE_TO_EVICT, f"its annotation {SAFE_TO_EVICT} is {NO}"),)
    protection = describe_protection(pod, now)
    return (*refusals, Refusal(RefusalReason.DO_NOT_DISRUPT, f"its {protection}")) if protection else refusals


def describe_protection(pod: Pod, now: datetime | None) -> str:
    """Return by which annotation Karpenter disrupts neither a pod nor its node now, "" if it may."""
    annotations = pod.metadata.annotations
    if annotations.get(DO_NOT_EVICT) == YES:
        return f"annotation {DO_NOT_EVICT} is {YES}"
    wish = annotations.get(DO_NOT_DISRUPT)
    if wish is None or wish == YES:
        return f"annotation {DO_NOT_DISRUPT} is {YES}" if wish else ""
    span = _positive_duration(wish)
    started = read_timestamp(pod.status.start_time)
    if span is None or (started is not None and now is not None and now - started >= span):
        return ""
    since = "it is not known when the pod was started" if started is None else f"it counts from {pod.status.start_time}"
    return f"annotation {DO_NOT_DISRUPT} is {wish}, and {since}"


def _positive_duration(text: str) -> timedelta | None:
    """Return a duration as Karpenter reads it; None for what it passes over: no duration, 0 and less."""
    try:
        span = parse_duration(text)
    except InputError:
        return None
    return span if span > timedelta(0) else None


def is_declared_safe(pod: Pod, volume: Volume) -> bool:
    """Return whether a pod's annotations declare that it may lose what is in a local volume.

    As the cluster autoscaler has it: the names stand between commas and nothing else, and a volume in memory is not
    local.
    """
    annotations = pod.metadata.annotations
    if annotations.get(SAFE_TO_EVICT) == YES:
        return True
    names = annotations.get(SAFE_LOCAL_VOLUMES)
    if not names:
        return False
    is_in_memory = volume.empty_dir is not None and volume.empty_dir.get("medium") == "Memory"
    return is_in_memory or volume.name in names.split(",")
