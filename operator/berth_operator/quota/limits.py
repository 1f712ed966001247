"""Limits on what Reservations may hold and may ask for, and the options that set them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_core import (
    FENCE_LIMITS_ANNOTATION,
    FenceLimit,
    InputError,
    ResourceAmounts,
    Toleration,
    read_percentage,
    why_not_whole,
)

SLOTS: Final = "slots"
SHARE: Final = "share"
MAX_FENCED_NODES: Final = "maxFencedNodes"
WINDOWS: Final = "windows"
BEGUN_PER_MINUTE: Final = "begunPerMinute"
_EVERY_NAMESPACE: Final = "*"
_EVERY_KEY: Final = "*"
_TOLERATED_BY_ALL: Final = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""Every pod tolerates these taints, as the admission plugin DefaultTolerationSeconds adds them."""
_FORM: Final = (
    "parts like slots=200, share=50%, maxFencedNodes=10 (or 10%), windows=20, begunPerMinute=30 or cpu=64, with commas "
    "between; none lifts the limit of all but amounts"
)
_FENCED_OF_NAMESPACE: Final = FenceLimit.default(10)
_FENCED_OF_ALL: Final = FenceLimit.default(25)


@dataclass(frozen=True, slots=True)
class NamespaceLimit:
    """What live Reservations may hold together; slots that an owner has taken do not count."""

    slots: int | None = 1000
    """Maximum number of open slots; None for no limit."""

    share_percent: float | None = 50.0
    """Percentage of the cluster's allocatable amount of each resource, and of pods; None for no limit."""

    amounts: Mapping[str, int] = field(default_factory=dict)
    """Maximum amount by resource: cpu in thousandths of a core, all others in their unit."""

    fenced_nodes: FenceLimit = _FENCED_OF_NAMESPACE
    """Maximum number, or percentage, of nodes that are fenced at a time."""

    windows: int | None = 20
    """Maximum number of a namespace's ReservationWindows that open, the oldest first; None for no limit."""

    begun_per_minute: int | None = 30
    """Maximum number of Reservations that a namespace's windows begin in any minute; None for no limit."""


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """The limits of every namespace and of all together."""

    default: NamespaceLimit = field(default_factory=NamespaceLimit)
    """For namespaces without their own limit."""

    by_namespace: Mapping[str, NamespaceLimit] = field(default_factory=dict)
    """Namespace to its own limit, which replaces the default one."""

    cluster: NamespaceLimit = field(
        default_factory=lambda: NamespaceLimit(slots=None, share_percent=80.0, fenced_nodes=_FENCED_OF_ALL)
    )
    """For the Reservations of all namespaces, so that several cannot hold the whole cluster."""

    control_plane_nodes: bool = False
    """Whether placeholders may run on control-plane nodes."""

    dry_runs: bool = True
    """Whether a dry run asks the admission of a Reservation's namespace about its pods. Without dry runs a template may
    only tolerate what its namespace is allowed to."""

    tolerations: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Without dry runs: namespace, or `*` for all, to the taint keys that templates may tolerate there, or `*` for
    any."""

    highest_priority: int = 1_000_000_000
    """PriorityClasses above this value are guarded like the ones named below. The default is the highest value that
    users may give a class, so that only the system's classes are above it."""

    guarded_classes: frozenset[str] = frozenset({"system-cluster-critical", "system-node-critical"})
    """PriorityClasses that a namespace other than kube-system may use only with a ResourceQuota scoped to them. Some
    clusters require that of pods as well, by `limitedResources` in the configuration of the plugin ResourceQuota."""

    def of(self, namespace: str) -> NamespaceLimit:
        return self.by_namespace.get(namespace, self.default)

    def notes(self) -> dict[str, str]:
        """Return the annotations of the operator's Lease with the limits that the descheduler plans with."""
        return {FENCE_LIMITS_ANNOTATION: f"{self.default.fenced_nodes},{self.cluster.fenced_nodes}"}

    def tolerable(self, namespace: str) -> frozenset[str]:
        """Return the taint keys that a namespace may tolerate without a dry run."""
        empty: frozenset[str] = frozenset()
        tolerated = self.tolerations.get(_EVERY_NAMESPACE, empty) | self.tolerations.get(namespace, empty)
        return tolerated | _TOLERATED_BY_ALL


def parse_limit(option: str, text: str, default: NamespaceLimit | None = None) -> NamespaceLimit:
    """Return the limit that a text like `slots=200,share=50%,cpu=64` means; raises InputError.

    Parts that are left out keep the value of `default`.
    """
    default = default or NamespaceLimit()
    parts: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, value = (piece.strip() for piece in part.partition("="))
        if not name or not value or name in parts:
            raise InputError(option, text, _FORM)
        parts[name] = value
    slots, share, fenced = (parts.pop(name, None) for name in (SLOTS, SHARE, MAX_FENCED_NODES))
    windows, begun = (parts.pop(name, None) for name in (WINDOWS, BEGUN_PER_MINUTE))
    try:
        return NamespaceLimit(
            fenced_nodes=default.fenced_nodes if fenced is None else _parse_fenced(fenced),
            slots=default.slots if slots is None else _parse_count(slots),
            windows=default.windows if windows is None else _parse_count(windows),
            begun_per_minute=default.begun_per_minute if begun is None else _parse_count(begun),
            share_percent=default.share_percent if share is None else _parse_percent(share),
            amounts=_whole_amounts(parts),
        )
    except (InputError, ValueError) as error:
        raise InputError(option, text, _FORM) from error


def _whole_amounts(parts: Mapping[str, str]) -> dict[str, int]:
    """Return amounts by resource; raises `InputError`, also for a fraction of a device."""
    # Extended resources are whole numbers in the API: half a GPU can be neither requested nor held.
    if fraction := why_not_whole(parts):
        raise InputError("limit", fraction, "a whole number of each device")
    return {resource: ResourceAmounts.from_quantities({resource: raw}).get(resource) for resource, raw in parts.items()}


def parse_namespace_limits(option: str, texts: Iterable[str]) -> dict[str, NamespaceLimit]:
    """Return the limits of texts like `team-a:slots=200,cpu=64` by namespace; raises InputError."""
    limits: dict[str, NamespaceLimit] = {}
    for text in texts:
        namespace, colon, limit = text.partition(":")
        if not colon or not namespace.strip() or namespace.strip() in limits:
            raise InputError(option, text, "each namespace once, as in team-a:slots=200,share=10%")
        limits[namespace.strip()] = parse_limit(option, limit)
    return limits


def parse_namespace_tolerations(option: str, texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the taint keys of texts like `team-a:gpu,spot` by namespace; raises InputError."""
    keys_by_namespace: dict[str, frozenset[str]] = {}
    for text in texts:
        namespace, colon, keys = text.partition(":")
        tolerated_keys = frozenset(filter(None, (key.strip() for key in keys.split(","))))
        if not colon or not namespace.strip() or not tolerated_keys or namespace.strip() in keys_by_namespace:
            raise InputError(option, text, "each namespace (or *) once with keys of taints, as in team-a:gpu,spot")
        keys_by_namespace[namespace.strip()] = tolerated_keys
    return keys_by_namespace


def why_not_tolerable(tolerations: Iterable[Toleration], keys: frozenset[str]) -> str:
    """Return which toleration these taint keys do not allow, "" if they allow all."""
    for toleration in tolerations:
        # Without a key a toleration matches every taint.
        if (toleration.key or _EVERY_KEY) not in keys and _EVERY_KEY not in keys:
            taints = f"the taint {toleration.key}" if toleration.key else "every taint"
            return f"it tolerates {taints}, which its namespace is not allowed to (--namespace-tolerations)"
    return ""


def _parse_count(text: str) -> int | None:
    if text == "none":
        return None
    count = int(text)
    if count < 0:
        raise ValueError(text)
    return count


def _parse_fenced(text: str) -> FenceLimit:
    limit = FenceLimit.parse(text)
    if limit is None:
        raise ValueError(text)
    return limit


def _parse_percent(text: str) -> float | None:
    if text == "none":
        return None
    percentage = read_percentage(text) if text.endswith("%") else None
    if percentage is None:
        raise ValueError(text)
    return float(percentage)
