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
        staying = [amount for amount, end in self.taken if end is None or end > moment]
        return self.allocatable.minus(ResourceAmounts.total(staying))


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
    asked = slot.plus(ONE_POD)
    ranked = sorted(
        ((asked.times_within(one.idle_at(start)), asked.times_within(one.allocatable), one.name) for one in nodes),
        key=lambda one: (-one[0], -one[1], one[2]),
    )
    usable = [one for one in ranked if one[1] > 0][:_MOST_NODES]
    idle = sum(free for free, _, _ in usable)
    chosen: list[str] = []
    found = 0
    for free, whole, name in usable:
        if found >= slots and (idle >= slots or not free):
            break
        chosen.append(name)
        found += free if idle >= slots else whole
    return WindowNodes(tuple(chosen), min(idle, slots))


def take_slots(
    nodes: Mapping[str, NodeUse], choice: WindowNodes, slot: ResourceAmounts, slots: int, times: Occurrence
) -> None:
    """Count the slots of an occurrence as taken, so that the next one is not given the same capacity."""
    left = slots
    asked = slot.plus(ONE_POD)
    for of_whole in (False, True):
        for name in choice.nodes:
            use = nodes[name]
            given = min(left, asked.times_within(use.allocatable if of_whole else use.idle_at(times.start)))
            if given:
                use.taken.append((asked.times(given), times.end))
                left -= given


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
    return {"containers": [{"name": "slot", "image": PLACEHOLDER_IMAGE, "resources": {"requests": requests}}]}
