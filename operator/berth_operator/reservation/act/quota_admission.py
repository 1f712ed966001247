"""Admission of each new Reservation by the limits and quotas of `berth_operator.quota`, counting all others."""

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from berth_core import PodSpec, Reservation, SlotState
from berth_operator.quota.holdings import Holding, holding_of, open_slots, why_over_limit
from berth_operator.quota.limit_range import why_out_of_range
from berth_operator.quota.limits import LimitSettings
from berth_operator.quota.resource_quota import (
    PodTraits,
    ResourceQuota,
    counts,
    names_class,
    traits_of,
    usage_of,
    why_refused,
)
from berth_operator.reservation.store.cluster_rules import ClusterRules

_SYSTEM_NAMESPACE: Final = "kube-system"

Specs = tuple[tuple[PodSpec, int], ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    """What an admitted Reservation holds."""

    namespace: str
    counts: tuple[int, ...]
    """Open slots of each task; the rest follows from the immutable spec."""
    holding: Holding
    usage: Mapping[PodTraits, Mapping[str, int]]


@dataclass(slots=True)
class _Sums:
    """What all admitted Reservations of one namespace hold."""

    holding: Holding = field(default_factory=Holding)
    usage: dict[PodTraits, dict[str, int]] = field(default_factory=dict)


class QuotaAdmission:
    """Amounts that admitted Reservations hold, by namespace; thread-safe.

    A Reservation that was admitted stays so: as with a quota, a limit that is lowered later takes nothing away. After a
    restart the statuses show which Reservations hold anything.
    """

    def __init__(self, settings: LimitSettings, rules: ClusterRules) -> None:
        self._settings = settings
        self._rules = rules
        self._lock = threading.Lock()
        self._entries: dict[str, _Entry] = {}
        self._sums: dict[str, _Sums] = {}
        self._total = Holding()
        """What all admitted Reservations hold."""

    def note(self, reservation: Reservation) -> None:
        """Count a version of a Reservation, which may hold less by now."""
        uid = reservation.metadata.uid
        with self._lock:
            known_entry = self._entries.get(uid)
            if not reservation.is_live:
                self._put(uid, None)
            elif known_entry is None:
                self._put(uid, self._measure(reservation) if _holds_anything(reservation) else None)
            elif known_entry.counts != _counts(_open_specs(reservation)):
                self._put(uid, self._measure(reservation))

    def forget(self, uid: str) -> None:
        with self._lock:
            self._put(uid, None)

    def admit(self, reservation: Reservation) -> str:
        """Count a Reservation and return "", or return the limit that forbids it."""
        entry = self._measure(reservation)
        with self._lock:
            # Asked again with each reconcile; what was admitted is not measured against a limit twice.
            if reservation.metadata.uid in self._entries:
                return ""
            refusal = self._refusal(reservation, entry)
            if not refusal:
                self._put(reservation.metadata.uid, entry)
            return refusal

    def _refusal(self, reservation: Reservation, asked: _Entry) -> str:
        namespace = asked.namespace
        quotas = self._rules.quotas.all_in(namespace)
        sums = self._sums.get(namespace, _Sums())
        specs = _open_specs(reservation)
        return (
            # An unreadable quota refuses, as in the API server one does whose usage is not known yet (`CheckRequest` of
            # the plugin ResourceQuota).
            self._rules.why_unknown(namespace)
            or self._why_class_is_unknown(asked.usage)
            or self._why_class_is_guarded(namespace, asked.usage, quotas)
            or self._why_out_of_range(namespace, specs)
            or self._why_over_limits(namespace, sums, asked)
            or next(filter(None, (self._why_quota_refuses(quota, specs, asked, sums) for quota in quotas)), "")
        )

    def _why_over_limits(self, namespace: str, sums: _Sums, asked: _Entry) -> str:
        offered = self._rules.nodes.total()
        whose = f"the Reservations of namespace {namespace}"
        return why_over_limit(
            whose, self._settings.of(namespace), sums.holding, asked.holding, offered
        ) or why_over_limit(
            "the Reservations of all namespaces", self._settings.cluster, self._total, asked.holding, offered
        )

    def _why_class_is_unknown(self, usage: Iterable[PodTraits]) -> str:
        """Return which PriorityClass cannot be read, "" if all can: its value is what places are held with."""
        classes = ((traits.priority_class, self._rules.classes.get(traits.priority_class)) for traits in usage)
        reasons = (
            f"PriorityClass {class_name} cannot be read: {priority_class.metadata.unreadable}"
            for class_name, priority_class in classes
            if priority_class is not None and priority_class.metadata.unreadable
        )
        return next(reasons, "")

    def _why_class_is_guarded(
        self, namespace: str, usage: Iterable[PodTraits], quotas: tuple[ResourceQuota, ...]
    ) -> str:
        """Return why a namespace may not use a guarded PriorityClass."""
        for traits in usage:
            # The rule that API servers apply to system-critical classes with `limitedResources` of the plugin
            # ResourceQuota: a namespace needs a quota that is scoped to the class.
            why = self._why_guarded(traits.priority_class) if namespace != _SYSTEM_NAMESPACE else None
            if why is not None and not any(names_class(quota, traits) for quota in quotas):
                return (
                    f"namespace {namespace} may not reserve with PriorityClass {traits.priority_class}{why}: "
                    "it has no ResourceQuota that is scoped to it"
                )
        return ""

    def _why_guarded(self, name: str) -> str | None:
        """Return why a class is guarded, None if it is not."""
        priority_class, highest = self._rules.classes.get(name), self._settings.highest_priority
        if priority_class is not None and priority_class.value > highest:
            return f", whose value {priority_class.value} is above {highest}"
        return "" if name in self._settings.guarded_classes else None

    def _why_out_of_range(self, namespace: str, specs: Specs) -> str:
        ranges = self._rules.limit_ranges.all_in(namespace)
        return next(filter(None, (why_out_of_range(ranges, spec) for spec, _ in specs)), "") if ranges else ""

    def _why_quota_refuses(self, quota: ResourceQuota, specs: Specs, asked: _Entry, sums: _Sums) -> str:
        wanted_usage = _total(usage for traits, usage in asked.usage.items() if counts(quota, traits))
        held_usage = _total(usage for traits, usage in sums.usage.items() if counts(quota, traits))
        counted_specs = [spec for spec, _ in specs if counts(quota, self._traits(spec))]
        return next(filter(None, (why_refused(quota, spec, wanted_usage, held_usage) for spec in counted_specs)), "")

    def _traits(self, spec: PodSpec) -> PodTraits:
        # The plugin Priority gives a pod without a class the one that is globalDefault; a template has not gone through
        # admission.
        default = None if spec.priority_class_name else self._rules.default_class()
        return traits_of(spec, default.metadata.name if default else "")

    def _measure(self, reservation: Reservation) -> _Entry:
        """Return what a Reservation holds or will hold; raises `InputError` for bad quantities."""
        specs = _open_specs(reservation)
        usage: dict[PodTraits, dict[str, int]] = {}
        for spec, count in specs:
            group = usage.setdefault(self._traits(spec), {})
            for quantity, amount in usage_of(spec).items():
                group[quantity] = group.get(quantity, 0) + amount * count
        return _Entry(reservation.metadata.namespace, _counts(specs), holding_of(specs), usage)

    def _put(self, uid: str, entry: _Entry | None) -> None:
        """Replace an entry and update the sums."""
        known_entry = self._entries.pop(uid, None)
        if known_entry is not None:
            self._add(known_entry, sign=-1)
        if entry is not None:
            self._entries[uid] = entry
            self._add(entry, sign=1)

    def _add(self, entry: _Entry, *, sign: int) -> None:
        sums = self._sums.setdefault(entry.namespace, _Sums())
        sums.holding = sums.holding.plus(entry.holding) if sign > 0 else sums.holding.minus(entry.holding)
        self._total = self._total.plus(entry.holding) if sign > 0 else self._total.minus(entry.holding)
        for traits, usage in entry.usage.items():
            group = sums.usage.setdefault(traits, {})
            for resource, amount in usage.items():
                group[resource] = group.get(resource, 0) + sign * amount
            # Without this the sums would keep a group for each combination of class and scopes that was ever used.
            if not any(group.values()):
                del sums.usage[traits]
        if not sums.usage and not sums.holding.slots:
            del self._sums[entry.namespace]


def _open_specs(reservation: Reservation) -> Specs:
    """Return the tasks' pod specs with their numbers of open slots."""
    counted = open_slots(reservation)
    return tuple((task.template.spec, counted[task.name]) for task in reservation.spec.tasks)


def _counts(specs: Specs) -> tuple[int, ...]:
    return tuple(count for _, count in specs)


def _holds_anything(reservation: Reservation) -> bool:
    """Return whether a status shows that places are held already."""
    return any(slot.placeholder or slot.state is not SlotState.PENDING for slot in reservation.status.slots)


def _total(several: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for usage in several:
        for resource, amount in usage.items():
            total[resource] = total.get(resource, 0) + amount
    return total
