"""Nodes."""

import msgspec

from berth_core.labels import CONTROL_PLANE_KEYS, FREED_ANNOTATION, FREED_TAINT
from berth_core.objects.metadata import ApiStruct, ObjectMeta, Quantities


class Taint(ApiStruct, frozen=True, kw_only=True):
    """A taint; `effect` is NoSchedule, PreferNoSchedule or NoExecute."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str | None = None


class NodeSpec(ApiStruct, frozen=True, kw_only=True):
    """Taints and cordon of a node."""

    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = msgspec.field(name="providerID", default="")


def has_control_plane_label(metadata: ObjectMeta) -> bool:
    return any(key in metadata.labels for key in CONTROL_PLANE_KEYS)


def has_control_plane_taint(spec: NodeSpec) -> bool:
    return any(taint.key in CONTROL_PLANE_KEYS for taint in spec.taints)


def is_control_plane_node(metadata: ObjectMeta, spec: NodeSpec) -> bool:
    """Return whether a label or a taint marks a control-plane node."""
    return has_control_plane_label(metadata) or has_control_plane_taint(spec)


class NodeCondition(ApiStruct, frozen=True, kw_only=True):
    """A condition of a node; `status` is True, False or Unknown."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeAddress(ApiStruct, frozen=True, kw_only=True):
    """An address of a node, such as of the type InternalIP."""

    type: str = ""
    address: str = ""


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """Capacity and conditions of a node."""

    allocatable: Quantities = {}
    capacity: Quantities = {}
    conditions: tuple[NodeCondition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()


class Node(ApiStruct, frozen=True, kw_only=True):
    """A node as the API server holds it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        """Return whether the node is Ready; unknown is not."""
        return self.condition("Ready") == "True"

    @property
    def taints(self) -> tuple[Taint, ...]:
        return self.spec.taints

    @property
    def is_marked_as_freed(self) -> bool:
        """Return whether the node has the annotation or the taint of freed nodes."""
        return FREED_ANNOTATION in self.metadata.annotations or any(taint.key == FREED_TAINT for taint in self.taints)

    def condition(self, type_: str) -> str:
        """Return the status of a condition, "" if it is not set."""
        return next((condition.status for condition in self.status.conditions if condition.type == type_), "")
