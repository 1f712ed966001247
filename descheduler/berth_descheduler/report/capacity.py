"""Fragmentation as a document for programs."""

from datetime import datetime
from fractions import Fraction

import msgspec

from berth_core import format_amount, format_timestamp
from berth_core.text import rounded
from berth_descheduler.planner import CapacityReport, ResourceState, ShapeFit, StrandedPart, WorkloadFit
from berth_descheduler.report.schemas import ClusterCapacity, ResourceCapacity


class ShapeResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of a resource is free, and how much of that a shape cannot use."""

    resource: str
    free: str
    stranded: str
    stranded_ratio: float


class Stranded(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is free on some nodes and of no use to a shape, all for one reason."""

    reason: str
    resource: str
    nodes: int
    amounts: dict[str, str]
    example: str
    message: str


class ShapeCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many pods of a shape still fit, each on one node."""

    shape: str
    asked_by: str
    fits: int
    nodes_with_room: int
    absent_resources: tuple[str, ...]
    resources: tuple[ShapeResource, ...]
    stranded_by: tuple[Stranded, ...]


class FragmentedNode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node where some of a resource is free and fragmented."""

    node: str
    free: str
    fragmented: str


class WorkloadResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of a resource is free, and what of that a pod of the workload could not use, on average."""

    resource: str
    free: str
    fragmented: str
    fragmented_ratio: float
    nodes: tuple[FragmentedNode, ...]
    """The ten nodes on which most of it is fragmented."""


class WorkloadCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fragmented the free capacity is for the pods of the cluster, each of which counts once."""

    pods: int
    """Pods of the most frequent shapes, which alone are counted."""
    all_pods: int
    shapes: int
    resources: tuple[WorkloadResource, ...]


class Capacity(ClusterCapacity, frozen=True, kw_only=True, rename="camel"):
    """How fragmented the cluster is."""

    measured_at: str | None
    """null: a snapshot does not say when it was taken."""
    shapes: tuple[ShapeCapacity, ...]
    workload: WorkloadCapacity


class PointResource(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much of a resource was requested, and how much of the rest the pods of the cluster could not use."""

    resource: str
    requested_ratio: float
    fragmented_ratio: float


class CapacityPoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fragmented the cluster was at one time."""

    measured_at: str
    nodes: int
    empty_nodes: int
    resources: tuple[PointResource, ...]
    """Resources that the pods of the cluster request."""


class CapacityPoints(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How fragmented the cluster was since this replica of the service began, the oldest first."""

    items: tuple[CapacityPoint, ...]
    prometheus: str
    """URL of the Prometheus that has a longer history; "" where none is set."""


def describe_capacity(report: CapacityReport, measured_at: datetime | None = None) -> Capacity:
    """Return the document of a report, measured at a time if known."""
    return Capacity(
        nodes=report.nodes,
        empty_nodes=report.empty_nodes,
        pods=report.pods,
        resources=tuple(map(_describe_resource, report.resources)),
        measured_at=None if measured_at is None else format_timestamp(measured_at),
        shapes=tuple(map(_describe_shape, report.shapes)),
        workload=_describe_workload(report.workload),
    )


def describe_point(report: CapacityReport, measured_at: datetime) -> CapacityPoint:
    """Return the part of a report that the history of the service keeps."""
    capacity = describe_capacity(report, measured_at)
    requested = {state.resource: state.requested_ratio for state in capacity.resources}
    return CapacityPoint(
        measured_at=format_timestamp(measured_at),
        nodes=capacity.nodes,
        empty_nodes=capacity.empty_nodes,
        resources=tuple(
            PointResource(
                resource=used.resource,
                requested_ratio=requested.get(used.resource, 0.0),
                fragmented_ratio=used.fragmented_ratio,
            )
            for used in capacity.workload.resources
        ),
    )


def _describe_resource(state: ResourceState) -> ResourceCapacity:
    return ResourceCapacity(
        resource=state.name,
        allocatable=format_amount(state.name, state.allocatable),
        requested=format_amount(state.name, state.requested),
        requested_ratio=rounded(state.utilisation),
        free=format_amount(state.name, state.free),
        largest_free=format_amount(state.name, state.largest_free),
    )


def _describe_shape(room: ShapeFit) -> ShapeCapacity:
    return ShapeCapacity(
        shape=room.shape.name,
        asked_by=room.shape.asked_by,
        fits=room.fits,
        nodes_with_room=room.nodes,
        absent_resources=tuple(room.absent),
        resources=tuple(
            ShapeResource(
                resource=resource,
                free=format_amount(resource, room.free.get(resource)),
                stranded=format_amount(resource, room.stranded.get(resource)),
                stranded_ratio=rounded(room.share(resource)),
            )
            for resource in room.shape.amounts
        ),
        stranded_by=tuple(map(_describe_part, room.parts)),
    )


def _describe_workload(workload: WorkloadFit) -> WorkloadCapacity:
    return WorkloadCapacity(
        pods=workload.pods,
        all_pods=workload.all_pods,
        shapes=workload.shapes,
        resources=tuple(
            WorkloadResource(
                resource=resource,
                free=format_amount(resource, workload.free.get(resource)),
                fragmented=format_amount(resource, round(amount)),
                fragmented_ratio=rounded(workload.share(resource) or Fraction(0)),
                nodes=tuple(
                    FragmentedNode(
                        node=fragmented_node.name,
                        free=format_amount(resource, fragmented_node.free),
                        fragmented=format_amount(resource, round(fragmented_node.fragmented)),
                    )
                    for fragmented_node in workload.nodes[resource]
                ),
            )
            for resource, amount in workload.fragmented.items()
        ),
    )


def _describe_part(part: StrandedPart) -> Stranded:
    return Stranded(
        reason=part.reason.value,
        resource=part.resource,
        nodes=part.nodes,
        amounts=part.amounts.to_quantities(),
        example=part.example,
        message=part.message,
    )
