"""What decisions about queues are made from: one consistent view of queues, namespaces, pods, nodes and slots."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from berth_core import GatedQueue, Reservation, ResourceAmounts
from berth_operator.capabilities.queues.places import QueuePod


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """What decisions about queues are made from; nodes count that are ready, schedulable and no control-plane nodes."""

    queues: Sequence[GatedQueue]
    namespaces: Mapping[str, Mapping[str, str]]
    """Labels by name of the namespace."""
    of_kueue: Mapping[str, str]
    """Namespaces that Kueue manages, each with the name of a LocalQueue there."""
    pods: Sequence[QueuePod]
    nodes: Mapping[str, ResourceAmounts]
    """What each node that counts offers, by name."""
    own_namespace: str
    reservations: Sequence[Reservation] = ()
    """Those whose names are like those of slots, whoever made them."""
    labelled: frozenset[str] = frozenset()
    """Uids of Reservations for which a pod waits, or a slot of which it takes."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why the API server has refused to create a slot, by uid of its queue."""
    admitting: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """For each queue that keeps others off its nodes, by uid: the nodes on which a slot of it may run."""
    fenced: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The nodes that have a fence, each with the namespaces whose pods it lets in."""
    unfenced: Mapping[str, str] = field(default_factory=dict)
    """The nodes that should have a fence and have none, each with the reason."""
    away: frozenset[str] = frozenset()
    """Names of the nodes that do not count."""

    @property
    def total(self) -> ResourceAmounts:
        return ResourceAmounts.total(self.nodes.values())
