"""A pod that takes three slots of a node gets all of them, whoever is away or killed in between, and no other any."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from berth_core.labels import HANDOVER_TAINT, PLACEHOLDER_LABEL, SLOTS_ADD_UP_ANNOTATION
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, ReservationPhase, SlotState
from berth_kube.resources import NODES, PODS, RESERVATIONS
from builders import as_api, task
from handover_builders import GATED, owner_pod, place, placeholder, slot, with_condition
from handover_simulation import NODE, Actor, HandoverSimulation, KilledError, play_interrupted

SLOTS: Final = 3


class SeveralSlots(HandoverSimulation):
    """A node whose three slots one pod takes; a hungry pod would fit into each of them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        slots = (slot(SlotState.HELD, index, node=NODE) for index in range(SLOTS))
        held = place(*slots, ttl="2h", tasks=[task(replicas=SLOTS, cpu="1", memory="1Gi")])
        body = as_api(held, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
        body["metadata"]["annotations"] = {SLOTS_ADD_UP_ANNOTATION: "true"}
        self.api.put(RESERVATIONS, body)
        for index in range(1, SLOTS):
            self.api.put(PODS, as_api(placeholder(index, node=NODE)))
        self.api.put(PODS, as_api(with_condition(owner_pod("web-0", cpu=str(SLOTS), memory="1Gi"), GATED)))
        self._see()

    def _schedule(self) -> None:
        """Bind what seems to fit, the oldest first: the hungry pod into any slot that is free."""
        seen = {NODES: self._list(NODES), PODS: self._list(PODS)} | {self.late_view: self._seen[self.late_view]}
        (node,) = seen[NODES]
        is_guarded = any(taint["key"] == HANDOVER_TAINT for taint in node["spec"].get("taints") or ())
        used = sum(_size(raw) for raw in seen[PODS] if raw["spec"].get("nodeName"))
        for seen_pod in sorted(seen[PODS], key=lambda raw: raw["metadata"]["creationTimestamp"]):
            raw = self.api.objects["pods"].get((seen_pod["metadata"]["namespace"], seen_pod["metadata"]["name"]))
            is_pending = not seen_pod["spec"].get("nodeName") and not seen_pod["spec"].get("schedulingGates")
            if raw is None or raw["spec"].get("nodeName") or not is_pending:
                continue
            tolerates = any(
                toleration.get("key") == HANDOVER_TAINT for toleration in seen_pod["spec"].get("tolerations") or ()
            )
            fits = used + _size(raw) <= SLOTS and (tolerates or not is_guarded)
            used += _size(raw) if fits else 0
            self.api.put(PODS, _tried(raw, bound=fits))
        self._see()

    def violations(self) -> Iterator[str]:
        on_node = [raw for raw in self.api.raw(PODS) if raw["spec"].get("nodeName")]
        if sum(map(_size, on_node)) > SLOTS:
            yield f"over-booked: {[raw['metadata']['name'] for raw in on_node]}"
        if any(raw["metadata"]["name"] == "hungry" for raw in on_node):
            yield "stolen"
        yield from (f"lost: {slot.message}" for slot in self.reservation().status.slots if slot.state is SlotState.LOST)


def _size(raw: dict[str, Any]) -> int:
    """Return how many slots a pod takes; a fence takes none."""
    meta = raw["metadata"]
    if meta["name"] == "web-0":
        return SLOTS
    return int(meta["name"] == "hungry" or PLACEHOLDER_LABEL in (meta.get("labels") or {}))


def _tried(raw: dict[str, Any], *, bound: bool) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "True" if bound else "False"}
    status = {**raw["status"], "conditions": [condition if bound else {**condition, "reason": "Unschedulable"}]}
    spec = {**raw["spec"], "nodeName": NODE} if bound else raw["spec"]
    return {**raw, "spec": spec, "status": status if bound else {**status, "nominatedNodeName": ""}}


def require_all_taken(simulation: SeveralSlots, case: str) -> None:
    assert simulation.faults == [], case
    reservation = simulation.reservation()
    assert reservation.phase is ReservationPhase.SUCCEEDED, case
    assert [slot.state for slot in reservation.status.slots] == [SlotState.TAKEN] * SLOTS, case
    assert simulation.pod("web-0").spec.node_name == NODE, case


def kill(_: HandoverSimulation) -> None:
    raise KilledError


def stop(simulation: HandoverSimulation) -> None:
    simulation.interrupt(frozenset({Actor.OPERATOR}), 70.0)


def cut(simulation: HandoverSimulation) -> None:
    simulation.interrupt(frozenset({Actor.API_SERVER}), 70.0)


@pytest.mark.parametrize(
    "interrupt", [kill, *(pytest.param(interrupt, marks=pytest.mark.deep) for interrupt in (stop, cut))]
)
def test_all_slots_go_to_the_pod_though_it_is_interrupted_after_any_write(
    interrupt: Callable[[HandoverSimulation], None],
) -> None:
    made: list[str] = []
    undisturbed = SeveralSlots()
    undisturbed.on_write = made.append
    undisturbed.play()
    require_all_taken(undisturbed, "nobody was away")
    assert made.count("delete pods") >= SLOTS
    for at in range(1, len(made) + 1):
        for view in (NODES, PODS):
            simulation = SeveralSlots(late_view=view)
            play_interrupted(simulation, at, interrupt)
            require_all_taken(simulation, f"after write {at}, {view.plural} seen late")
