"""A slot whose node would not let in its owner is not promised to anybody, and is again when the node is open."""

from dataclasses import replace

import msgspec
import pytest

from berth_core import NodeSpec, ObjectMeta, Taint, Toleration
from berth_core.labels import HANDOVER_TAINT
from berth_core.reservations import ConditionType, ReservationPhase, SlotState
from berth_operator.reservation.actions import AssignSlot, Probe, Release
from berth_operator.reservation.node_access import ConditionStatus, NodeAccess
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import NodeCapacity
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.slot_matching import SlotFinder
from berth_operator.runtime.workqueue import Key, KeyKind
from handover_builders import PLACE_UID, PROVEN, decide_now, note, observe, owner_pod, place, placeholder, slot

CORDONED = NodeAccess(is_cordoned=True)

WORN = Taint(key="example.com/worn", value="yes", effect="NoSchedule")
NODES = {
    "is ready": (NodeSpec(), [ConditionStatus("Ready", "True")], (), ""),
    "says nothing of itself yet": (NodeSpec(), [], (), ""),
    "is not ready": (NodeSpec(), [ConditionStatus("Ready", "False")], (), "is not ready"),
    "is out of reach": (NodeSpec(), [ConditionStatus("Ready", "Unknown")], (), "is not ready"),
    "is short of memory": (
        NodeSpec(), [ConditionStatus("Ready", "True"), ConditionStatus("MemoryPressure", "True")], (), ""
    ),
    "is cordoned": (NodeSpec(unschedulable=True), [], (), "is cordoned"),
    "is cordoned, which the pod tolerates": (
        NodeSpec(unschedulable=True), [], (Toleration(key="node.kubernetes.io/unschedulable", operator="Exists"),), ""
    ),
    "is tainted": (NodeSpec(taints=(WORN,)), [], (), "has the taint example.com/worn=yes:NoSchedule"),
    "is tainted so that its pods go": (
        NodeSpec(taints=(Taint(key="gone", effect="NoExecute"),)), [], (), "has the taint gone:NoExecute"
    ),
    "is tainted, which the pod tolerates": (
        NodeSpec(taints=(WORN,)), [], (Toleration(key=WORN.key, operator="Equal", value="yes"),), ""
    ),
    "is only rather not to be used": (NodeSpec(taints=(Taint(key="soft", effect="PreferNoSchedule"),)), [], (), ""),
    "carries our guard": (NodeSpec(taints=(Taint(key=HANDOVER_TAINT, value="1", effect="NoSchedule"),)), [], (), ""),
}  # fmt: skip


@pytest.mark.parametrize(("spec", "signs", "tolerations", "want"), NODES.values(), ids=NODES.keys())
def test_what_keeps_a_pod_off_a_node_that(
    spec: NodeSpec, signs: list[ConditionStatus], tolerations: tuple[Toleration, ...], want: str
) -> None:
    assert NodeAccess.of(spec, signs).why_closed(tolerations) == want


def closed(seen: Observation, *nodes: str) -> Observation:
    return replace(seen, accesses=dict.fromkeys(nodes or ("node-a",), CORDONED))


def test_a_slot_on_a_closed_node_says_so_and_its_reservation_is_neither_available_nor_ready() -> None:
    held = observe(place(slot(SlotState.HELD)), placeholder(), probe=PROVEN)
    status = decide_now(closed(held)).status
    assert status.state is not None
    assert (status.state.phase, status.state.reason) == (ReservationPhase.PENDING, "NodeClosed")
    assert status.state.message == ("0 of 1 slot is held; node node-a is cordoned, so no pod could take its slot there")
    (only,) = status.slots
    assert (only.state, only.reason, only.node) == (SlotState.PENDING, "NodeClosed", "node-a")
    assert only.placeholder
    conditions = {c.type: (c.status, c.reason) for c in status.conditions}
    assert conditions[ConditionType.AVAILABLE] == ("False", "NodeClosed")
    assert conditions[ConditionType.HANDOVER_READY] == ("False", "NodeClosed")
    assert (status.available, status.pending, status.held) == (0, 1, {})


def test_it_is_held_and_proven_again_once_the_node_is_open() -> None:
    before = decide_now(closed(observe(place(slot(SlotState.HELD)), placeholder(), probe=PROVEN))).status
    again = msgspec.structs.replace(place(), status=before)
    decision = decide_now(observe(again, placeholder(), probe=PROVEN))
    assert decision.status.slots[0].state is SlotState.HELD
    assert not decision.status.slots[0].reason
    ready = {c.type: c.status for c in decision.status.conditions}
    assert (ready[ConditionType.AVAILABLE], ready[ConditionType.HANDOVER_READY]) == ("True", "True")


def test_a_restarted_operator_does_not_go_on_saying_so_when_the_node_is_open() -> None:
    before = decide_now(closed(observe(place(slot(SlotState.HELD)), placeholder(), probe=PROVEN))).status
    decision = decide_now(observe(msgspec.structs.replace(place(), status=before), placeholder()))
    told = {c.type: (c.status, c.reason) for c in decision.status.conditions}
    assert told[ConditionType.HANDOVER_READY] == ("False", "NotProbed")
    assert [type(action) for action in decision.actions] == [Probe]


def test_the_place_stays_held_meanwhile_and_pods_are_let_go() -> None:
    gated = owner_pod()
    decision = decide_now(closed(observe(place(slot(SlotState.HELD)), placeholder(), gated)))
    assert [type(action) for action in decision.actions] == [Release]


def test_other_slots_are_handed_over_as_ever() -> None:
    reservation = place(slot(SlotState.HELD), slot(SlotState.HELD, 1, node="node-b"), replicas=2, min_available=1)
    seen = closed(observe(reservation, placeholder(), placeholder(1, node="node-b"), owner_pod(), probe=PROVEN))
    decision = decide_now(seen)
    assert decision.status.state is not None
    assert decision.status.state.phase is ReservationPhase.AVAILABLE
    (given,) = [action for action in decision.actions if isinstance(action, AssignSlot)]
    assert given.assignment.node == "node-b"


def test_a_hand_over_that_has_begun_goes_on_for_its_pod_finds_another_node_by_itself() -> None:
    seen = observe(place(slot(SlotState.HANDING_OVER)), owner_pod(given=note(), gates=()))
    assert decide_now(closed(seen)).status.slots == decide_now(seen).status.slots


def version(number: int, spec: NodeSpec | None = None, ready: str = "True") -> GuardableNode:
    return GuardableNode(
        metadata=ObjectMeta(name="node-a", uid="uid-node-a", resource_version=str(number)),
        spec=spec or NodeSpec(),
        status=NodeCapacity(conditions=(ConditionStatus("Ready", ready),)),
    )


def test_what_is_held_on_a_node_is_looked_at_when_it_closes_or_opens_and_only_then() -> None:
    keys: list[Key] = []
    cache = Cache(keys.append)
    cache.put_reservation(place(slot(SlotState.HELD)))
    cache.put_placeholder(placeholder())
    place_key = Key(KeyKind.RESERVATION, PLACE_UID)
    for number, node, want in (
        (1, version(1), []),
        (2, version(2, NodeSpec(unschedulable=True)), [place_key]),
        (3, version(3, NodeSpec(unschedulable=True)), []),
        (4, version(4), [place_key]),
        (5, version(5, ready="Unknown"), [place_key]),
    ):
        keys.clear()
        cache.put_node(node)
        assert keys == want, f"version {number}"


def test_no_pod_is_gated_for_a_slot_on_a_closed_node() -> None:
    cache = Cache(lambda _key: None)
    held = place(slot(SlotState.HELD))
    cache.put_reservation(held)
    pod = owner_pod(gates=(), labels={"app": "web"})
    assert SlotFinder(cache).find(pod) is not None
    after = decide_now(closed(observe(held, placeholder()))).status
    newer = msgspec.structs.replace(held.metadata, resource_version="9")
    cache.put_reservation(msgspec.structs.replace(held, metadata=newer, status=after))
    assert SlotFinder(cache).find(pod) is None
