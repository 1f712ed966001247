"""The Queue contract (`berth.volcano.sh/v1alpha1`): guarantees for namespaces, held by a gate at their pods' creation.

The fields have the names of Volcano's Queue, and the amounts may be percentages of what nodes offer.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from berth_core.errors import InputError
from berth_core.objects.metadata import ApiStruct, LabelSelector, ObjectMeta, Quantities, api_group
from berth_core.objects.nodes import NodeSpec, is_control_plane_node
from berth_core.objects.pods import PodTemplate
from berth_core.quantities import read_percentage
from berth_core.queues import QUEUE_KIND, Queue, QueueGuarantee, QueueSource, QueueState
from berth_core.reservations import Condition, Fence, Reservation
from berth_core.resources import ResourceAmounts
from berth_core.selectors import matches_labels
from berth_core.unreadable import read_or_stand_in

QUEUE_API_VERSION: Final = "berth.volcano.sh/v1alpha1"

NOT_OF_TENANTS: Final = frozenset({"kube-system", "kube-public", "kube-node-lease"})
"""Namespaces that no queue takes, beside Berth's own."""


class QueueCondition(StrEnum):
    """Conditions of a Queue."""

    ACCEPTED = "Accepted"
    """Whether the guarantee counts; else the reason says why not."""
    ENFORCED = "Enforced"
    """Whether the pods of every chosen namespace wait for room in the queue."""
    COVERED = "Covered"
    """Whether what the queue is guaranteed and does not use is free; Unknown without a guarantee that counts."""
    HELD = "Held"
    """Whether slots hold what the queue is guaranteed and does not use; set only with `enforcement: Held`."""


class QueueReason(StrEnum):
    """Why a condition of a Queue is as it is."""

    FITS = "Fits"
    """Accepted: the guarantee fits beside those of the others."""
    INVALID = "Invalid"
    """Not accepted: a field is wrong; the message names it."""
    ABOVE_TOTAL = "GuaranteeAboveTotal"
    """Not accepted: with the guarantees of the others it is more than the nodes offer."""
    ABOVE_CAPABILITY = "GuaranteeAboveCapability"
    """Not accepted: it is more than the queue's own capability."""
    GATED = "Gated"
    """Enforced: pods in the chosen namespaces are created with Berth's gate."""
    SUSPENDED = "Suspended"
    """Not enforced: the queue is switched off."""
    NO_NAMESPACES = "NoNamespaces"
    """Not enforced: the selector chooses no namespace."""
    OF_KUEUE = "ManagedByKueue"
    """Not enforced everywhere: Kueue has a LocalQueue in a chosen namespace, which Berth leaves alone."""
    OF_ANOTHER = "OfAnotherQueue"
    """Not enforced everywhere: an older queue chooses a namespace, too, and has it."""
    NO_GUARANTEE = "NoGuarantee"
    """Coverage is unknown: no guarantee counts."""
    FREE = "Free"
    """Covered: what is guaranteed is used by the queue or free."""
    USED_BY_OTHERS = "UsedByOthers"
    """Not covered: pods of no queue, or more pods of another queue than it may have, use a part."""
    NODES_LACK = "NodesLack"
    """Not covered: the nodes offer less than all queues are guaranteed."""
    SLOTS_HELD = "SlotsHeld"
    """Held: slots hold what is guaranteed and not used."""
    IN_USE = "InUse"
    """Held: the queue's pods use what is guaranteed, or leave less than a slot."""
    REMAINDER = "Remainder"
    """Held, but for a part of the guarantee that no whole slot covers."""
    NOT_HELD_YET = "NotHeldYet"
    """Unknown whether held: slots wait, and have done so for less than a minute."""
    WAITING = "Waiting"
    """Not held: slots wait for room; the message has the number and what the oldest says."""
    SLOTS_REFUSED = "SlotsRefused"
    """Not held: a limit, a quota or the namespace's admission refuses slots; they are tried again."""
    NOT_FENCED = "NotFenced"
    """Held, but with `held.fence: Node` a node of the queue is not fenced; the message says why."""
    NO_SHAPE = "NoShape"
    """Not held: `held` does not say what a slot requests, or what it says cannot be read."""
    SHAPE_TOO_LARGE = "ShapeTooLarge"
    """Not held: a slot is larger than the guarantee, or than each node."""
    SHAPE_LACKS = "ShapeLacks"
    """Not held: a slot requests nothing of a resource that is guaranteed."""
    TOO_MANY_SLOTS = "TooManySlots"
    """Not held: more slots would be needed than a queue may have."""
    NO_NAMESPACE = "NoNamespace"
    """Not held: the queue does not have the namespace for the slots, or has several and `held` names none."""


class GatedQueueState(StrEnum):
    """What a Queue does now."""

    OPEN = "Open"
    """It admits pods."""
    SUSPENDED = "Suspended"
    """It is switched off."""
    REFUSED = "Refused"
    """Its guarantee does not count; its pods are admitted within what the others leave."""


class Enforcement(StrEnum):
    """How a queue's guarantee is kept."""

    GATED = "Gated"
    """By arithmetic: pods of queues wait behind a gate."""
    HELD = "Held"
    """By slots, too: Reservations hold what is guaranteed and not used."""


class HeldGuarantee(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The slots that hold what is left of a guarantee."""

    shape: Quantities = {}
    """What one slot requests, for pods that ask for nothing else."""
    template: PodTemplate | None = None
    """The pods that may take a slot, in the place of a shape."""
    namespace: str = ""
    """Where the slots are; may be left out by a queue of one namespace."""
    fence: Fence = Fence.NONE


class GatedQueueSpec(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """Share, limits and guarantee of a queue, and the namespaces whose pods are its own."""

    weight: int = 1
    capability: Quantities = {}
    guarantee: QueueGuarantee = QueueGuarantee()
    deserved: Quantities = {}
    reclaimable: bool = True
    """As in Volcano's Queue; nothing is preempted, so it changes nothing here."""
    namespace_selector: LabelSelector | None = None
    enforcement: Enforcement = Enforcement.GATED
    held: HeldGuarantee = HeldGuarantee()
    suspend: bool = False


class GatedQueueStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a queue has, uses and waits for."""

    observed_generation: int | None = None
    state: str = ""
    namespaces: int = 0
    """How many namespaces have their pods admitted by the queue."""
    admitted: int = 0
    waiting: int = 0
    too_large: int = 0
    """How many of the waiting pods are larger than the queue may ever use."""
    guarantee: dict[str, str] = {}
    """What counts as guaranteed, in amounts."""
    real_capability: dict[str, str] = {}
    deserved: dict[str, str] = {}
    allocated: dict[str, str] = {}
    request: dict[str, str] = {}
    held: dict[str, str] = {}
    """What slots hold of the guarantee beside what is allocated."""
    held_slots: int = 0
    waiting_slots: int = 0
    """How many slots are wanted and not held."""
    fenced_nodes: tuple[str, ...] = ()
    """Nodes that `held.fence: Node` keeps for the queue's pods and slots."""
    conditions: tuple[Condition, ...] = ()


class GatedQueue(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A Queue of Berth as the API server holds it."""

    metadata: ObjectMeta
    spec: GatedQueueSpec
    status: GatedQueueStatus = GatedQueueStatus()

    @property
    def age_order(self) -> tuple[str, str]:
        """Return the sort key by age: if two queues want the same, the older one gets it."""
        return self.metadata.creation_timestamp or "", self.metadata.name

    def condition(self, type_: QueueCondition) -> Condition | None:
        """Return the condition of a type, None if it is not set."""
        return next((condition for condition in self.status.conditions if condition.type == type_), None)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "GatedQueue":
        """Decode an API object; an unreadable one notes why in `metadata.unreadable`."""
        return read_or_stand_in(body, cls)

    def in_amounts(self, total: ResourceAmounts) -> Queue:
        """Return the queue with percentages of a total as amounts; `unreadable` says why if they are invalid."""
        name, spec = self.metadata.name, self.spec
        state = QueueState.CLOSED if spec.suspend else QueueState.OPEN
        if self.metadata.unreadable:
            return Queue(name=name, state=state, source=QueueSource.BERTH, unreadable=self.metadata.unreadable)
        try:
            return Queue(
                name=name,
                weight=max(1, spec.weight),
                capability=_amounts_of("capability", spec.capability, total),
                capped=frozenset(spec.capability),
                guarantee=_amounts_of("guarantee.resource", spec.guarantee.resource, total),
                deserved=_amounts_of("deserved", spec.deserved, total),
                reclaimable=spec.reclaimable,
                state=state,
                source=QueueSource.BERTH,
            )
        except InputError as error:
            return Queue(name=name, state=state, source=QueueSource.BERTH, unreadable=str(error.within("spec")))

    def counted(self, total: ResourceAmounts) -> Queue:
        """Return the queue in amounts, without a guarantee that is switched off or that the operator refused."""
        queue = self.in_amounts(total)
        accepted = self.condition(QueueCondition.ACCEPTED)
        why = "spec.suspend switches the queue off" if self.spec.suspend else ""
        if (
            accepted is not None
            and accepted.status == "False"
            # A refusal of an older spec says nothing about this one; status is written after spec, by another request.
            and accepted.observed_generation == self.metadata.generation
        ):
            why = why or accepted.message
        if not why or not queue.guarantee:
            return queue
        return replace(queue, guarantee=ResourceAmounts.empty(), refused=why)


class LocalQueue(ApiStruct, frozen=True, kw_only=True):
    """A LocalQueue of Kueue, which manages the pods of its namespace."""

    metadata: ObjectMeta = ObjectMeta()


class _Condition(Protocol):
    """A condition of a node."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...


class _NodeStatus(Protocol):
    """What a node offers, and how it is."""

    @property
    def allocatable(self) -> Quantities: ...

    @property
    def conditions(self) -> Sequence[_Condition]: ...


class _Node(Protocol):
    """The part of a node that is looked at."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> NodeSpec: ...

    @property
    def status(self) -> _NodeStatus: ...


def offered_to_queues(nodes: Iterable[_Node], *, control_plane: bool = False) -> dict[str, ResourceAmounts]:
    """Return by name what the nodes that count offer: they are ready, not cordoned, not of the control plane.

    A node without conditions counts as ready, a node with invalid amounts does not count. With `control_plane`, nodes
    of the control plane count, too.
    """
    offered = {}
    for node in nodes:
        is_ready = all(condition.status == "True" for condition in node.status.conditions if condition.type == "Ready")
        is_others = is_control_plane_node(node.metadata, node.spec) and not control_plane
        if is_ready and not node.spec.unschedulable and not is_others and not node.metadata.unreadable:
            with suppress(InputError):
                offered[node.metadata.name] = ResourceAmounts.from_quantities(node.status.allocatable)
    return offered


@dataclass(frozen=True, slots=True)
class NamespaceChoice:
    """Which queue has which namespace, and which namespaces their queues do not get."""

    queue_of: dict[str, str] = field(default_factory=dict)
    """Name of the queue by namespace."""
    of_kueue: dict[str, list[str]] = field(default_factory=dict)
    """Namespaces that Kueue manages, by queue."""
    of_another: dict[str, list[str]] = field(default_factory=dict)
    """By queue the namespaces that an older queue has, each with that queue."""


def choose_namespaces(
    queues: Iterable[GatedQueue],
    namespaces: Mapping[str, Mapping[str, str]],
    of_kueue: Mapping[str, str],
    own_namespace: str,
) -> NamespaceChoice:
    """Return which queue has which namespace: the oldest of those that choose it and are not switched off.

    `namespaces` are labels by name; `of_kueue` are the namespaces that Kueue manages, each with a LocalQueue there.
    """
    choice = NamespaceChoice()
    active = sorted((queue for queue in queues if not queue.spec.suspend), key=lambda queue: queue.age_order)
    for namespace in sorted(namespaces.keys() - NOT_OF_TENANTS - {own_namespace}):
        labels = namespaces[namespace]
        choosing = [
            candidate.metadata.name for candidate in active if matches_labels(candidate.spec.namespace_selector, labels)
        ]
        # Kueue gates or suspends the pods itself (gate kueue.x-k8s.io/admission). Two gates by two controllers could
        # each wait for the other's quota.
        if namespace in of_kueue:
            for queue in choosing:
                choice.of_kueue.setdefault(queue, []).append(f"{namespace} ({of_kueue[namespace]})")
            continue
        if choosing:
            choice.queue_of[namespace] = choosing[0]
        for queue in choosing[1:]:
            choice.of_another.setdefault(queue, []).append(f"{namespace} ({choosing[0]})")
    return choice


def queue_of_slot(reservation: Reservation) -> str:
    """Return the uid of the queue that controls a Reservation, "" without one."""
    owners = reservation.metadata.owner_references
    group = QUEUE_API_VERSION.partition("/")[0]
    # By the group and not the whole apiVersion: an owner reference keeps the version that its writer used, also after
    # the CRD has a newer one.
    of_queues = (owner for owner in owners if owner.kind == QUEUE_KIND and api_group(owner.api_version) == group)
    return next((owner.uid for owner in of_queues if owner.controller), "")


def _amounts_of(field: str, quantities: Quantities, total: ResourceAmounts) -> ResourceAmounts:
    """Return the amounts of a field, percentages of the total rounded down; raises `InputError`."""
    plain = {name: raw for name, raw in quantities.items() if not str(raw).endswith("%")}
    try:
        amounts_by_resource = dict(ResourceAmounts.from_quantities(plain).amounts)
    except InputError as error:
        raise error.within(field) from error
    for resource, raw in quantities.items():
        if resource not in plain:
            amounts_by_resource[resource] = _part(f"{field}.{resource}", str(raw), total[resource])
    amounts = ResourceAmounts(amounts_by_resource)
    if excess := amounts.why_too_large():
        raise InputError(field, None, "amounts that a cluster can have", said=f"too large ({excess})")
    return amounts


def _part(field: str, text: str, whole: int) -> int:
    """Return a percentage of a whole, rounded down; raises `InputError`."""
    percentage = read_percentage(text)
    if percentage is None:
        raise InputError(field, text, "a quantity, or a percentage up to 100% such as 20% or 12.5%")
    return int(whole * percentage / 100)
