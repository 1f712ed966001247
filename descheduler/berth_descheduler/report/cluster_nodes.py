"""Nodes and what is held on them, as documents of the HTTP interface."""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from berth_core import ObjectReference, Reservation, ReservationPhase, Snapshot, format_timestamp
from berth_descheduler.report.top import NodeDocument, describe_view, view_cluster


class NodeList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The nodes of the cluster by name, with their use and state."""

    measured_at: str
    empty_nodes: int
    pods: int
    pending_pods: int
    held_places: int
    items: tuple[NodeDocument, ...]


class HeldCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A live Reservation: what it holds, for whom and until when."""

    namespace: str
    name: str
    phase: ReservationPhase
    plan: str
    """The plan that made it; "" where another did."""
    owners: tuple[ObjectReference, ...]
    """Objects whose pods may take the places; [] where labels or annotations choose them."""
    places: int
    held_places: int
    resources: dict[str, str]
    """What is held now."""
    nodes: tuple[str, ...]
    expires_at: str | None


class HeldCapacityList(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The live Reservations; those that expire first come first."""

    items: tuple[HeldCapacity, ...]


def describe_nodes(snapshot: Snapshot, at: datetime) -> NodeList:
    view = describe_view(view_cluster(snapshot, ()))
    return NodeList(
        measured_at=format_timestamp(at),
        empty_nodes=view.empty_nodes,
        pods=view.pods,
        pending_pods=view.pending_pods,
        held_places=view.held_places,
        items=tuple(sorted(view.node_list, key=lambda node: node.name)),
    )


def describe_held_capacity(reservations: Iterable[Reservation]) -> HeldCapacityList:
    live = (reservation for reservation in reservations if reservation.is_live)
    by_end = sorted(live, key=lambda reservation: (reservation.status.expires_at or "~", reservation.key))
    return HeldCapacityList(items=tuple(map(_describe_reservation, by_end)))


def _describe_reservation(reservation: Reservation) -> HeldCapacity:
    status = reservation.status
    return HeldCapacity(
        namespace=reservation.metadata.namespace,
        name=reservation.metadata.name,
        phase=reservation.phase,
        plan=reservation.plan,
        owners=tuple(owner.object for owner in reservation.spec.owners if owner.object is not None),
        places=reservation.spec.replicas,
        held_places=sum(slot.state.is_occupied for slot in status.slots),
        resources=status.held,
        nodes=tuple(sorted({slot.node for slot in status.slots if slot.node})),
        expires_at=status.expires_at,
    )
