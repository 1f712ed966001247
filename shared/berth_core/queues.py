"""Queues: what a group of users is guaranteed, deserves and may use at most.

A queue is a cluster-wide object, of Volcano or of another source. Code beyond the objects themselves works on `Queue`,
which is the same for every source.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from berth_core.errors import InputError
from berth_core.objects.metadata import ApiStruct, ObjectMeta, Quantities, api_group
from berth_core.resources import ResourceAmounts
from berth_core.unreadable import read_or_stand_in

QUEUE_KIND: Final = "Queue"
VOLCANO_QUEUE_API_VERSION: Final = "scheduling.volcano.sh/v1beta1"

DEFAULT_QUEUE: Final = "default"
"""The queue of Volcano's pods that name none."""


_NOTHING: Final = ResourceAmounts.empty()
_NO_QUANTITIES: Final[Quantities] = {}


class QueueState(StrEnum):
    """Whether a queue takes pods."""

    OPEN = "Open"
    CLOSED = "Closed"
    CLOSING = "Closing"
    """It takes no more pods; those that it has go on."""
    UNKNOWN = "Unknown"


class QueueSource(StrEnum):
    """Whose object a queue was read from, and who enforces it."""

    VOLCANO = "Volcano"
    BERTH = "Berth"

    @property
    def resource(self) -> str:
        """Return the kind's name for `kubectl get`."""
        return f"queues.{_GROUPS[self]}"


_GROUPS: Final = {QueueSource.VOLCANO: "scheduling.volcano.sh", QueueSource.BERTH: "berth.volcano.sh"}


class QueueGuarantee(ApiStruct, frozen=True, kw_only=True):
    """What is reserved for a queue."""

    resource: Quantities = _NO_QUANTITIES


class QueueSpec(ApiStruct, frozen=True, kw_only=True):
    """Share, limits and guarantee of a queue."""

    weight: int | None = None
    capability: Quantities = _NO_QUANTITIES
    guarantee: QueueGuarantee = QueueGuarantee()
    deserved: Quantities = _NO_QUANTITIES
    reclaimable: bool | None = None
    parent: str = ""


class QueueStatus(ApiStruct, frozen=True, kw_only=True):
    """What the queue's controller says."""

    state: str = ""


class QueueObject(ApiStruct, frozen=True, kw_only=True):
    """A queue as the API server has it; its `api_version` says whose."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: QueueSpec = QueueSpec()
    status: QueueStatus = QueueStatus()

    @property
    def api_group(self) -> str:
        return api_group(self.api_version)

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "QueueObject":
        """Decode an API object; an unreadable one notes why in `metadata.unreadable`."""
        return read_or_stand_in(body, cls)


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue in exact amounts."""

    name: str
    weight: int = 1
    capability: ResourceAmounts = _NOTHING
    """What its pods may request at most, of the resources in `capped`."""
    capped: frozenset[str] = frozenset()
    """Resources that the capability names, even with 0; others are not limited."""
    guarantee: ResourceAmounts = _NOTHING
    deserved: ResourceAmounts = _NOTHING
    reclaimable: bool = True
    """Whether others may get back what it uses beyond its share."""
    parent: str = ""
    """The queue whose part it is; "" for one that stands by itself."""
    state: QueueState = QueueState.OPEN
    source: QueueSource = QueueSource.VOLCANO
    unreadable: str = ""
    """Why its amounts are not known; "" if they are."""
    refused: str = ""
    """Why its guarantee does not count, and is left out; "" if it does or there is none."""

    @property
    def key(self) -> tuple[QueueSource, str]:
        """Return the source and the name; two sources may use the same name."""
        return self.source, self.name

    @property
    def full_name(self) -> str:
        """Return the name with its kind, as kubectl reads it."""
        return f"{self.source.resource}/{self.name}"

    @classmethod
    def of(cls, queue_object: QueueObject) -> "Queue":
        """Return the queue of an API object; `unreadable` says why if its amounts are invalid."""
        name, spec = queue_object.metadata.name, queue_object.spec
        if queue_object.metadata.unreadable:
            return cls(name=name, unreadable=queue_object.metadata.unreadable)
        try:
            return cls(
                name=name,
                # Volcano's webhook writes 1 for a missing weight (`createQueuePatch` in
                # pkg/webhooks/admission/queues/mutate); where it is not installed, the field stays 0.
                weight=spec.weight or 1,
                capability=_amounts("capability", spec.capability),
                # `capability: {nvidia.com/gpu: "0"}` forbids a resource, while amounts leave zeros out: so the names
                # are kept apart.
                capped=frozenset(spec.capability),
                guarantee=_amounts("guarantee.resource", spec.guarantee.resource),
                deserved=_amounts("deserved", spec.deserved),
                # The same webhook makes a missing value true.
                reclaimable=spec.reclaimable is not False,
                parent=spec.parent,
                state=_state(queue_object.status.state),
            )
        except InputError as error:
            return cls(name=name, unreadable=str(error.within("spec")))


def _amounts(field: str, quantities: Quantities) -> ResourceAmounts:
    """Return the amounts of a field; raises `InputError` for invalid ones and for more than any cluster has."""
    try:
        amounts = ResourceAmounts.from_quantities(quantities)
    except InputError as error:
        raise error.within(field) from error
    if excess := amounts.why_too_large():
        raise InputError(field, None, "amounts that a cluster can have", said=f"too large ({excess})")
    return amounts


def _state(raw: str) -> QueueState:
    """Return a state; a queue that no controller has seen yet is open."""
    if not raw:
        return QueueState.OPEN
    return QueueState(raw) if raw in set(QueueState) else QueueState.UNKNOWN
