"""How queues share a cluster: what each deserves, may use at most, and has room for.

Pure arithmetic over `Queue`, whatever object it was read from. Shares by weight are those of Volcano's plugin
`proportion` (pkg/scheduler/plugins/proportion/proportion.go): weighted max-min fairness, in which all queues rise to
the highest level at which they fit together. `spec.deserved` is that of its plugin `capacity`. There are no
floating-point numbers: a share that is rounded up somewhere would be a place that does not exist.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from berth_core.queues import Queue
from berth_core.resources import ResourceAmounts

_NOTHING: Final = ResourceAmounts.empty()


@dataclass(frozen=True, slots=True)
class QueueUse:
    """What a queue's pods use and ask for."""

    allocated: ResourceAmounts = _NOTHING
    """Of the pods that were admitted, bound or not; those on nodes outside the total are left out."""
    elsewhere: ResourceAmounts = _NOTHING
    """Of the pods on nodes that the total does not count: they use up the capability alone."""
    request: ResourceAmounts = _NOTHING
    """Of all pods, also of those that wait."""


def guaranteed(queues: Iterable[Queue]) -> ResourceAmounts:
    return ResourceAmounts.total(queue.guarantee for queue in queues)


def shared_resources(queues: Sequence[Queue], total: ResourceAmounts) -> frozenset[str]:
    """Return the resources of which all queues together may use no more than the total.

    They are those that a guarantee or `spec.deserved` names and, where weights differ, all of the total.
    """
    named = frozenset(name for queue in queues for name in (*queue.guarantee, *queue.deserved))
    # Equal weights are the default, and say nothing about sharing: queues without guarantees are then groups of
    # namespaces, limited by their capability alone.
    return named | frozenset(total) if len({queue.weight for queue in queues}) > 1 else named


def real_capabilities(queues: Sequence[Queue], total: ResourceAmounts) -> dict[str, ResourceAmounts]:
    """Return for each queue, by name, `min(capability, total - guarantees of the others)` of its limited resources.

    A resource that queues do not share and that the queue does not cap is not limited, and left out.
    """
    guaranteed_to_all, shared = guaranteed(queues), shared_resources(queues, total)
    reals = {}
    for queue in queues:
        of_others = guaranteed_to_all.minus(queue.guarantee)
        limits = {name: max(0, total[name] - of_others[name]) for name in shared}
        for resource in queue.capped:
            limits[resource] = min(queue.capability[resource], limits.get(resource, queue.capability[resource]))
        reals[queue.name] = ResourceAmounts(limits)
    return reals


def deserved_shares(
    queues: Sequence[Queue], requests: Mapping[str, ResourceAmounts], total: ResourceAmounts
) -> dict[str, ResourceAmounts]:
    """Return `max(min(request, real capability, share), guarantee)` of each queue, by name.

    The share of a resource that `spec.deserved` names is that amount; where these are more than there is, they are cut
    in proportion. The other queues share the rest by weight: what one leaves goes to the others, so their shares are
    the highest equal level at which all fit.
    """
    shares: dict[str, dict[str, int]] = {queue.name: {} for queue in queues}
    shared, reals = shared_resources(queues, total), real_capabilities(queues, total)
    for resource in shared.union(*requests.values()):
        by_amount, by_weight = [], []
        for queue in queues:
            wanted_amount = requests.get(queue.name, _NOTHING)[resource]
            if resource in shared or resource in queue.capped:
                wanted_amount = min(wanted_amount, reals[queue.name][resource])
            minimum = queue.guarantee[resource]
            if resource in queue.deserved:
                amount = queue.deserved[resource]
                by_amount.append(_Claim(queue.name, max(1, amount), minimum, max(minimum, min(wanted_amount, amount))))
            else:
                by_weight.append(_Claim(queue.name, max(1, queue.weight), minimum, max(minimum, wanted_amount)))
        amount_left = total[resource] - sum(claim.minimum for claim in by_weight)
        level = _highest_level(by_amount, amount_left)
        shares_by_amount = {claim.queue: claim.at(level) for claim in by_amount}
        level = _highest_level(by_weight, total[resource] - sum(shares_by_amount.values()))
        for queue_name, amount in {**shares_by_amount, **{claim.queue: claim.at(level) for claim in by_weight}}.items():
            shares[queue_name][resource] = amount
    return {queue: ResourceAmounts(amounts) for queue, amounts in shares.items()}


@dataclass(frozen=True, slots=True)
class _Claim:
    queue: str
    weight: int
    minimum: int
    maximum: int

    def at(self, level: Fraction) -> int:
        """Return the queue's share at a level, which is an amount per unit of weight."""
        # Rounded down per queue, so that the shares together never exceed the total, as sums of rounded floats may.
        return max(self.minimum, min(self.maximum, int(level * self.weight)))

    def exactly_at(self, level: Fraction) -> Fraction:
        return max(Fraction(self.minimum), min(Fraction(self.maximum), level * self.weight))


def _highest_level(claims: Sequence[_Claim], amount: int) -> Fraction:
    """Return the highest level at which all claims together are no more than an amount.

    The sum of the claims is linear between the levels at which a claim begins to grow or is satisfied, so the level is
    found by interpolation between two of them. If even the minima do not fit, it is 0.
    """
    level_below, taken_below = Fraction(0), sum((claim.exactly_at(Fraction(0)) for claim in claims), Fraction(0))
    if taken_below >= amount:
        return level_below
    for level in sorted(
        {Fraction(bound, claim.weight) for claim in claims for bound in (claim.minimum, claim.maximum)}
    ):
        needed = sum((claim.exactly_at(level) for claim in claims), Fraction(0))
        if needed > amount:
            return level_below + (amount - taken_below) * (level - level_below) / (needed - taken_below)
        level_below, taken_below = level, needed
    return level_below


class QueueRoom:
    """What queues have room for, as pods are admitted one after the other.

    A queue may use its guarantee whatever others use. Beyond that it uses what no queue is guaranteed, which all share:
    for each shared resource the sum of `max(allocated, guarantee)` over all queues stays within the total. For one
    queue that is `allocated + request <= total - guarantees of the others`; with several it keeps two of them from
    using up the guarantee of a third together.
    """

    def __init__(self, queues: Sequence[Queue], uses: Mapping[str, QueueUse], total: ResourceAmounts) -> None:
        self.shares: Final = deserved_shares(
            queues, {queue_name: use.request for queue_name, use in uses.items()}, total
        )
        """What each queue deserves for all that its pods use and ask for."""
        self.reals: Final = real_capabilities(queues, total)
        self._queues = {queue.name: queue for queue in queues}
        self._shared = shared_resources(queues, total)
        self._allocated = {
            queue_name: dict(uses[queue_name].allocated.amounts) if queue_name in uses else {}
            for queue_name in self._queues
        }
        self._elsewhere = {
            queue_name: uses[queue_name].elsewhere if queue_name in uses else _NOTHING for queue_name in self._queues
        }
        self._free = {
            resource: total[resource]
            - sum(max(self._allocated[queue.name].get(resource, 0), queue.guarantee[resource]) for queue in queues)
            for resource in self._shared
        }

    def limited(self, queue: str, request: ResourceAmounts) -> bool:
        """Return whether a request names a resource that is limited for its queue."""
        return any(amount > 0 and self._is_limited(queue, resource) for resource, amount in request.items())

    def never_fits(self, queue: str, request: ResourceAmounts) -> tuple[str, ...]:
        """Return the resources of which a request alone is more than its queue may ever use."""
        real, guarantee = self.reals[queue], self._queues[queue].guarantee
        return tuple(
            resource
            for resource, amount in request.items()
            if self._is_limited(queue, resource)
            and amount > max(real[resource], self._uncapped(queue, guarantee, resource))
        )

    def lacking(self, queue: str, request: ResourceAmounts) -> tuple[str, ...]:
        """Return the resources of which a queue has no room for a request; () if it may be admitted."""
        return tuple(
            resource for resource, amount in request.items() if amount > 0 and self._lacks(queue, resource, amount)
        )

    def is_capped(self, queue: str, request: ResourceAmounts) -> bool:
        """Return whether its own capability keeps a queue from a request, whatever others use."""
        return any(
            amount > 0 and self._is_above_capability(queue, resource, amount) for resource, amount in request.items()
        )

    def beyond_share(self, queue: str, request: ResourceAmounts) -> frozenset[str]:
        """Return the shared resources of which a queue would have more than it deserves."""
        return frozenset(
            resource
            for resource, amount in request.items()
            if amount > 0
            and resource in self._shared
            and self._allocated[queue].get(resource, 0) + amount > self.shares[queue][resource]
        )

    def share_used(self, queue: str, request: ResourceAmounts) -> Fraction:
        """Return what the queue would use as a part of what it deserves: the largest part over the shared resources."""
        return max(
            (
                Fraction(self._allocated[queue].get(resource, 0) + amount, max(1, self.shares[queue][resource]))
                for resource, amount in request.items()
                if amount > 0 and resource in self._shared
            ),
            default=Fraction(0),
        )

    def take(self, queue: str, request: ResourceAmounts) -> None:
        """Count a request as admitted."""
        for resource, amount in request.items():
            if resource in self._free:
                self._free[resource] -= self._cost(queue, resource, amount)
            self._allocated[queue][resource] = self._allocated[queue].get(resource, 0) + amount

    def _uncapped(self, queue: str, own: ResourceAmounts, name: str) -> int:
        """Return the guarantee of a resource, which the capability bounds."""
        queue_object = self._queues[queue]
        return min(own[name], queue_object.capability[name]) if name in queue_object.capped else own[name]

    def _is_limited(self, queue: str, resource: str) -> bool:
        return resource in self._shared or resource in self._queues[queue].capped

    def _is_above_capability(self, queue: str, resource: str, amount: int) -> bool:
        queue_object = self._queues[queue]
        amount_used = self._allocated[queue].get(resource, 0) + self._elsewhere[queue][resource]
        return resource in queue_object.capped and amount_used + amount > queue_object.capability[resource]

    def _lacks(self, queue: str, name: str, amount: int) -> bool:
        if self._is_above_capability(queue, name, amount):
            return True
        if name not in self._shared:
            return False
        cost = self._cost(queue, name, amount)
        # What costs nothing of the common part is within the guarantee, and admitted even while others have over-used
        # what is free.
        return cost > 0 and cost > self._free[name]

    def _cost(self, queue: str, name: str, amount: int) -> int:
        """Return how much of what no queue is guaranteed a request takes."""
        guarantee, amount_used = self._queues[queue].guarantee[name], self._allocated[queue].get(name, 0)
        return max(amount_used + amount, guarantee) - max(amount_used, guarantee)


def uncovered(
    queues: Sequence[Queue], uses: Mapping[str, QueueUse], free: ResourceAmounts
) -> dict[str, ResourceAmounts]:
    """Return by queue how much of its guarantee is neither used by it nor free.

    `free` is what neither queues nor others use of the total; it may be negative. If several guarantees lack room, each
    queue reports the whole lack, as if the others came first.
    """
    missing_by_queue = {
        queue.name: ResourceAmounts(
            {
                resource: max(0, amount - uses[queue.name].allocated[resource] if queue.name in uses else amount)
                for resource, amount in queue.guarantee.items()
            }
        )
        for queue in queues
    }
    wanted_amounts = ResourceAmounts.total(missing_by_queue.values())
    short = {resource: wanted_amounts[resource] - free[resource] for resource in wanted_amounts}
    return {
        queue_name: ResourceAmounts(
            {resource: min(amount, short[resource]) for resource, amount in lacks.items() if short[resource] > 0}
        )
        for queue_name, lacks in missing_by_queue.items()
    }
