"""What Reservations hold, and whether one more stays within a limit."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from berth_core import PODS, PodSpec, Reservation, ResourceAmounts, Slot, SlotState, amount_in_words, effective_requests
from berth_operator.quota.limits import SHARE, NamespaceLimit

_WHOLE_PERCENT: Final = 100
_OPEN: Final = frozenset({SlotState.PENDING, SlotState.HELD})


@dataclass(frozen=True, slots=True)
class Holding:
    """Slots that Reservations hold or are about to hold, and their requests."""

    slots: int = 0
    requests: ResourceAmounts = field(default_factory=ResourceAmounts.empty)

    def plus(self, other: "Holding") -> "Holding":
        return Holding(self.slots + other.slots, self.requests.plus(other.requests))

    def minus(self, other: "Holding") -> "Holding":
        return Holding(self.slots - other.slots, self.requests.minus(other.requests))


def open_slots(reservation: Reservation) -> dict[str, int]:
    """Return the number of held and pending slots by task; those that an owner takes or has taken do not count."""
    closed_by_task: dict[str, int] = {}
    for slot in reservation.status.slots:
        closed_by_task[slot.task] = closed_by_task.get(slot.task, 0) + _is_closed(slot)
    return {task.name: max(0, task.replicas - closed_by_task.get(task.name, 0)) for task in reservation.spec.tasks}


def _is_closed(slot: Slot) -> bool:
    return slot.state not in _OPEN


def holding_of(specs: Iterable[tuple[PodSpec, int]]) -> Holding:
    """Return what open slots hold together, from each spec with its number of slots."""
    total = Holding()
    for spec, count in specs:
        pods = ResourceAmounts({PODS: count})
        total = total.plus(Holding(count, effective_requests(spec).times(count).plus(pods)))
    return total


def why_over_limit(holders: str, limit: NamespaceLimit, held: Holding, asked: Holding, cluster: ResourceAmounts) -> str:
    """Return which limit would be exceeded, with its value and what is left of it; "" if none would be.

    `holders` names the Reservations that the limit covers, `held` is what they hold without the one that is asked for,
    and `cluster` what all nodes offer.
    """
    subject = f"{holders} may hold"
    if limit.slots is not None and held.slots + asked.slots > limit.slots:
        spare = max(0, limit.slots - held.slots)
        return f"{subject} {limit.slots} slots together, {spare} are left and {asked.slots} are asked for (limit slots)"
    amounts_together = held.requests.plus(asked.requests)
    for name, amount_asked in asked.requests.items():
        for allowed, of_share in _bounds(name, limit, cluster):
            if amounts_together.get(name) > allowed:
                spare = max(0, allowed - held.requests.get(name))
                may_hold, is_left, is_asked = (
                    amount_in_words(name, amount) for amount in (allowed, spare, amount_asked)
                )
                return (
                    f"{subject} {may_hold} of {name} together{of_share}, {is_left} is left and {is_asked} is asked for "
                    f"(limit {SHARE if of_share else name})"
                )
    return ""


def _bounds(name: str, limit: NamespaceLimit, cluster: ResourceAmounts) -> list[tuple[int, str]]:
    """Return the limits of a resource, each with the words for the share that it is, "" for a plain amount."""
    bounds = [(limit.amounts[name], "")] if name in limit.amounts else []
    if limit.share_percent is not None and cluster.get(name):
        share = int(cluster.get(name) * limit.share_percent / _WHOLE_PERCENT)
        bounds.append(
            (share, f", {limit.share_percent:g} % of the cluster's {amount_in_words(name, cluster.get(name))}")
        )
    return bounds
