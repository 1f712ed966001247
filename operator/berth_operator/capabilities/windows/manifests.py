"""The Reservation of a window's occurrence: its nodes and its manifest.

Nodes are taken by what is idle at the start, the most first: what is unused now and what pods leave that say they end
before. That favours few large pieces over many small ones.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from berth_core import (
    IDLE_SLOTS_ANNOTATION,
    MANAGED_BY_OPERATOR,
    MANAGED_LABEL,
    MAY_MOVE_ANNOTATION,
    ONE_POD,
    PLACEHOLDER_IMAGE,
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    RESERVEABLE_ANNOTATION,
    WINDOW_API_VERSION,
    WINDOW_KIND,
    WINDOW_LABEL,
    WINDOW_START_ANNOTATION,
    Capacity,
    Fence,
    MayMove,
    Occurrence,
    PodSpec,
    ReservationWindow,
    ResourceAmounts,
    format_timestamp,
    requests_of_slot,
)
from berth_core.decoding import convert

Body = dict[str, Any]

TASK: Final = "window"
_MOST_NODES: Final = 1000
"""As many as a task may name."""


@dataclass(slots=True)
class NodeUse:
    """What a node offers, and what its pods take until when."""

    name: str
    allocatable: ResourceAmounts
    taken: list[tuple[ResourceAmounts, datetime | None]] = field(default_factory=list)
    """Requests, and the end that a pod says it has; None for one that stays."""

    def idle_at(self, moment: datetime) -> ResourceAmounts:
        """Return what no pod takes at a moment."""
        staying_amounts = [amount for amount, end in self.taken if end is None or end > moment]
        return self.allocatable.minus(ResourceAmounts.total(staying_amounts))


@dataclass(frozen=True, slots=True)
class WindowNodes:
    """The nodes of an occurrence, by idle capacity, the most first."""

    nodes: tuple[str, ...]
    idle_slots: int
    """How many slots what is idle at the start holds."""


def choose_window_nodes(nodes: Iterable[NodeUse], slot: ResourceAmounts, slots: int, start: datetime) -> WindowNodes:
    """Return the nodes whose idle capacity holds all slots at the start.

    If all nodes together cannot, the most idle ones whose allocatable amounts can. Nodes on which no slot fits are left
    out.
    """
    slot_with_pod = slot.plus(ONE_POD)
    ranked_nodes = sorted(
        (
            (slot_with_pod.times_within(node.idle_at(start)), slot_with_pod.times_within(node.allocatable), node.name)
            for node in nodes
        ),
        key=lambda candidate: (-candidate[0], -candidate[1], candidate[2]),
    )
    usable_nodes = [candidate for candidate in ranked_nodes if candidate[1] > 0][:_MOST_NODES]
    idle_slots = sum(free for free, _, _ in usable_nodes)
    chosen_nodes: list[str] = []
    slots_free = 0
    for free_at_start, free_when_empty, node_name in usable_nodes:
        if slots_free >= slots and (idle_slots >= slots or not free_at_start):
            break
        chosen_nodes.append(node_name)
        slots_free += free_at_start if idle_slots >= slots else free_when_empty
    return WindowNodes(tuple(chosen_nodes), min(idle_slots, slots))


def take_slots(
    nodes: Mapping[str, NodeUse], choice: WindowNodes, slot: ResourceAmounts, slots: int, times: Occurrence
) -> None:
    """Count the slots of an occurrence as taken, so that the next one is not given the same capacity."""
    slots_left = slots
    slot_with_pod = slot.plus(ONE_POD)
    for of_whole in (False, True):
        for node_name in choice.nodes:
            node_use = nodes[node_name]
            slots_taken = min(
                slots_left,
                slot_with_pod.times_within(node_use.allocatable if of_whole else node_use.idle_at(times.start)),
            )
            if slots_taken:
                node_use.taken.append((slot_with_pod.times(slots_taken), times.end))
                slots_left -= slots_taken


def build_window_reservation(
    window: ReservationWindow, raw_template: Mapping[str, Any] | None, times: Occurrence, choice: WindowNodes
) -> Body:
    """Return the Reservation of an occurrence; `raw_template` is the template as written, None for `resources`."""
    spec, meta = window.spec, window.metadata
    start = format_timestamp(times.start)
    owner = {"apiVersion": WINDOW_API_VERSION, "kind": WINDOW_KIND, "name": meta.name, "uid": meta.uid}
    task = {
        "name": TASK,
        "replicas": spec.pod_num_to_reserve,
        "reservationNodeNames": list(choice.nodes),
        "template": raw_template if raw_template is not None else {"spec": _raw_pod_spec(window)},
    }
    return {
        "apiVersion": RESERVATION_API_VERSION,
        "kind": RESERVATION_KIND,
        "metadata": {
            "name": window.reservation_name(start),
            "namespace": meta.namespace,
            "labels": {WINDOW_LABEL: meta.name, MANAGED_LABEL: MANAGED_BY_OPERATOR},
            "annotations": {
                WINDOW_START_ANNOTATION: start,
                IDLE_SLOTS_ANNOTATION: str(choice.idle_slots),
                **({} if spec.may_move is MayMove.NEVER else {MAY_MOVE_ANNOTATION: spec.may_move.value}),
            },
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": False}],
        },
        "spec": {
            **({"schedulerName": spec.scheduler_name} if spec.scheduler_name else {}),
            "owners": [{"annotations": {RESERVEABLE_ANNOTATION: "true"}}],
            "expires": format_timestamp(times.end),
            "capacity": Capacity.WHEN_FREE.value,
            "fence": Fence.NODE.value,
            "tasks": [task],
        },
    }


def pod_spec_of(window: ReservationWindow) -> PodSpec:
    """Return the pod that a window holds places for; raises `InputError` for resources that cannot be divided."""
    template = window.spec.template
    return convert(_raw_pod_spec(window), PodSpec) if template is None else template.spec


def _raw_pod_spec(window: ReservationWindow) -> Body:
    requests = requests_of_slot(window.spec).to_quantities()
    containers = [{"name": "slot", "image": PLACEHOLDER_IMAGE, "resources": {"requests": requests}}]
    return {"containers": containers, "nodeSelector": window.spec.node_selector}
