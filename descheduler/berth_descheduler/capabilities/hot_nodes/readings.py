"""Readings of the metrics API, `metrics.k8s.io/v1beta1`: the exact use of nodes and pods, and why one does not count.

metrics-server stamps a reading with the time of the kubelet's last measurement, and gives as its `window` the time
since the one before, usually 15 s or a minute (`resourceUsage` in its `pkg/storage/types.go`). It has no reading of a
node that it could not scrape, or of a container that it has scraped only once. Adapters of other stores may keep
answering with old values.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from berth_core import CPU, MEMORY, InputError, format_duration, parse_duration, parse_quantity, read_timestamp
from berth_core.object_lists import ObjectKind, RawObject

NODE_METRICS: Final = ObjectKind("metrics.k8s.io", "v1beta1", "nodes", "NodeMetrics")
POD_METRICS: Final = ObjectKind("metrics.k8s.io", "v1beta1", "pods", "PodMetrics", is_namespaced=True)

MEASURED: Final = (CPU, MEMORY)
"""The resources that the API knows of both nodes and pods."""

_STALE_WINDOWS: Final = 5
_LEAST_STALE: Final = timedelta(minutes=2)
"""A reading is stale when it is older than so many of its windows, and than this: scrapes are late now and then."""

Use: TypeAlias = Mapping[str, int]
"""Use by resource: of cpu billionths of a core, of memory bytes."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What a node or a pod uses, on average over the window that ends at a time."""

    use: Use
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a reading does not count, as in "the metrics of X are ..."."""

    why: str


def exact_amount(resource: str, written: object) -> int:
    """Return a quantity in the unit of `Use`; raises `InputError` that names the resource for what is no amount."""
    is_number = isinstance(written, str | int | float) and not isinstance(written, bool)
    try:
        quantity = parse_quantity(str(written) if is_number else "")
    except InputError as error:
        raise InputError(resource, written, "a quantity such as 250m or 512Mi") from error
    if quantity.nanos < 0:
        raise InputError(resource, written, "a quantity that is not negative")
    # metrics-server reports cpu in billionths (`1234567n`): rounding to thousandths would make every idle pod use 1m.
    return quantity.nano() if resource == CPU else quantity.value()


def read_node(raw: RawObject, resources: Sequence[str], read_at: datetime | None) -> Reading | Unusable:
    """Return the use in a NodeMetrics of some resources, as of the time at which the cluster was read."""
    return _read(raw, (raw.get("usage"),), resources, read_at)


def read_pod(raw: RawObject, resources: Sequence[str], read_at: datetime | None) -> Reading | Unusable:
    """Return the use in a PodMetrics: that of its containers together."""
    # There is no sum for a pod in the API; its sandbox is not among its containers, and not counted.
    containers = raw.get("containers")
    if not isinstance(containers, list | tuple) or not containers:
        return Unusable("without containers")
    usages = [container.get("usage") if isinstance(container, Mapping) else None for container in containers]
    return _read(raw, usages, resources, read_at)


def _read(
    raw: RawObject, usages: Sequence[object], resources: Sequence[str], read_at: datetime | None
) -> Reading | Unusable:
    at = read_timestamp(_text(raw, "timestamp"))
    if at is None:
        return Unusable(f"of an unreadable time, {raw.get('timestamp')!r:.60}")
    if stale := _why_stale(at, _window(raw), read_at):
        return Unusable(stale)
    use = dict.fromkeys(resources, 0)
    try:
        for usage in usages:
            for resource in resources:
                use[resource] += exact_amount(resource, usage.get(resource) if isinstance(usage, Mapping) else None)
    except InputError as error:
        return Unusable(f"unreadable: usage.{error}")
    return Reading(use, at)


def _why_stale(at: datetime, window: timedelta, read_at: datetime | None) -> str:
    """Return how old a reading is, or how far ahead of the time, if that is too much; else ""."""
    # Also for times in the future: the clock is the node's, and a node whose clock is minutes off says nothing of now.
    longest = max(_LEAST_STALE, _STALE_WINDOWS * window)
    age = read_at - at if read_at is not None else timedelta(0)
    if abs(age) <= longest:
        return ""
    whole = timedelta(seconds=abs(age) // timedelta(seconds=1))
    return f"{format_duration(whole)} old" if age > timedelta(0) else f"{format_duration(whole)} ahead of the time"


def _window(raw: RawObject) -> timedelta:
    try:
        return max(timedelta(0), parse_duration(_text(raw, "window")))
    except InputError:
        return timedelta(0)


def _text(raw: RawObject, field: str) -> str:
    text = raw.get(field)
    return text if isinstance(text, str) else ""


def name_of(raw: RawObject) -> tuple[str, str]:
    """Return namespace and name, each "" if it is missing."""
    metadata = raw.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    return _text(known, "namespace"), _text(known, "name")
