"""What a capability has to say on Reservations is asked of its rule, whatever the capability is."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

import msgspec
import pytest

from berth_core import ObjectMeta
from berth_core.errors import RetryableError
from berth_core.reservations import Capacity, Reservation, ReservationReason, ReservationTask
from berth_kube.resources import NODES
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.actions import AssignSlot, ChooseNodes, CreatePlaceholder, Validate
from berth_operator.reservation.observation import Verdict
from berth_operator.reservation.rules import JoinedRules, Postponement, ReservationRule
from berth_operator.reservation.store.nodes import GuardableNode
from builders import NOON, task
from handover_builders import PLACE_UID, note, owner_pod, place, placeholder
from operator_harness import OperatorHarness, build_harness


@dataclass
class Hostages(ReservationRule):
    """A toy: the places of hostages are marked, and held only on nodes that a castle is on."""

    verdict: Verdict | Postponement | None = None

    def judge(self, reservation: Reservation, now: datetime) -> Verdict | Postponement | None:  # noqa: ARG002 - the rule's
        return self.verdict

    def slot_labels(self, reservation: Reservation, task: ReservationTask) -> Mapping[str, str]:
        return {"hostage": f"{reservation.metadata.name}-{task.name}"}

    def placeholder_annotations(self, reservation: Reservation) -> Mapping[str, str]:
        return {"ransom": str(reservation.spec.replicas)}

    def may_hold(self, node: ObjectMeta) -> bool:
        return node.labels.get("castle") == "yes"


@dataclass
class RuledHarness(OperatorHarness):
    """The operator's parts with one rule, whatever capabilities there are."""

    rule: ReservationRule = field(default_factory=Hostages)

    @property
    def context(self) -> Context:
        return replace(super().context, rules=JoinedRules([self.rule]))


@pytest.fixture
def harness() -> RuledHarness:
    return build_harness(RuledHarness)


def ruled_by(rule: ReservationRule) -> RuledHarness:
    made = build_harness(RuledHarness)
    made.rule = rule
    made.executor = made.executor_that(lambda: True)
    return made


def test_a_rule_refuses_a_new_reservation() -> None:
    refusal = Verdict(ReservationReason.INVALID, "no castle is named Elsewhere")
    harness = ruled_by(Hostages(refusal))
    harness.know(of=place())
    harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict == refusal


def test_a_rule_that_cannot_say_yet_leaves_the_reservation_pending_with_its_words() -> None:
    harness = ruled_by(Hostages(Postponement(ReservationReason.UNKNOWN_QUEUE, "no castle yet", "Invalid at dusk")))
    harness.know(of=place())
    with pytest.raises(RetryableError, match="no castle yet"):
        harness.perform(Validate())
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.choice is not None
    assert (seen.validated, seen.choice.message) == (False, "no castle yet; Invalid at dusk")


def test_a_rule_marks_placeholders_and_the_pods_that_take_their_places(harness: RuledHarness) -> None:
    harness.know(owner_pod(), of=place())
    harness.perform(CreatePlaceholder(task(), 0), AssignSlot(owner_pod(), note()))
    body = harness.stored(msgspec.structs.replace(placeholder(), metadata=only_placeholder(harness)))
    assert body.metadata.labels["hostage"] == "place-web"
    assert body.metadata.annotations["ransom"] == "1"
    owner = harness.stored(owner_pod())
    assert owner.metadata.labels["hostage"] == "place-web"
    assert "ransom" not in owner.metadata.annotations


def only_placeholder(harness: RuledHarness) -> ObjectMeta:
    ((pod,), _) = harness.cache.pods_of(PLACE_UID)
    return pod.metadata


def test_a_rule_keeps_chosen_places_off_nodes(harness: RuledHarness) -> None:
    for name, labels in (("node-a", {}), ("node-b", {"castle": "yes"})):
        status = {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}, "conditions": [READY]}
        harness.api.put(
            NODES, {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {}, "status": status}
        )
        harness.cache.put_node(harness.api.get(NODES, name, type=GuardableNode))
    waiting = place(capacity=Capacity.WHEN_FREE)
    harness.know(of=waiting)
    harness.perform(ChooseNodes((("web", 0),)), of=waiting)
    seen = harness.cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.choice is not None
    assert seen.choice.nodes == {("web", 0): "node-b"}


READY = {"type": "Ready", "status": "True"}


def test_rules_are_asked_together() -> None:
    first, second = Hostages(), Hostages(Verdict(ReservationReason.INVALID, "no"))
    rules = JoinedRules([first, ReservationRule(), second])
    assert rules.judge(place(), NOON) == second.verdict
    assert not rules.is_patient(place())
    assert rules.may_hold(ObjectMeta(name="node-a", labels={"castle": "yes"}))
    assert not rules.may_hold(ObjectMeta(name="node-a"))
