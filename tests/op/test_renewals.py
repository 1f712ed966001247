"""A placeholder lasts as long as its Reservation says: it is succeeded in time, or its end is brought forward."""
# ruff: noqa: ANN401 - a builder passes on what the case says

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import Pod
from berth_core.labels import HANDOVER_GATE, HANDOVER_LABEL, HANDOVER_TAINT, SLOT_ANNOTATION, SUCCESSOR_LABEL
from berth_core.reservations import Reservation, ReservationPhase, SlotState
from berth_operator.reservation.actions import AssignSlot, RenewPlaceholder, ShortenPlaceholder
from berth_operator.reservation.assignment import Assignment
from berth_operator.reservation.manifests import build_placeholder, build_successor
from berth_operator.reservation.observation import Guard, Observation
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.settings import PlaceholderSettings
from builders import NOON, NOON_TEXT, meta, task
from handover_builders import (
    PLACE_UID,
    PROVEN,
    at_version,
    decide_now,
    guard,
    note,
    observe,
    owner_pod,
    place,
    placeholder,
    slot,
    told,
)

LATE = 31.0
"""Past the deadline of a note."""


def lasting(seconds: int | None, **rest: Any) -> Pod:
    """A placeholder that runs since noon and that the kubelet ends after so many seconds."""
    made = placeholder(**rest)
    spec = msgspec.structs.replace(made.spec, active_deadline_seconds=seconds)
    return msgspec.structs.replace(made, spec=spec, status=msgspec.structs.replace(made.status, start_time=NOON_TEXT))


def held(ttl: str | None = "600s", **rest: Any) -> Reservation:
    return place(slot(SlotState.HELD), ttl=ttl, **rest)


def successor(*, gated: bool = True, given: Assignment | None = None, **rest: Any) -> Pod:
    """The placeholder that is to take the place of the first."""
    made = placeholder(uid="uid-successor", node=rest.pop("node", ""), **rest)
    notes = made.metadata.annotations | {SLOT_ANNOTATION: (given or note()).to_annotation()}
    labels = made.metadata.labels | {HANDOVER_LABEL: "true"}
    metadata = msgspec.structs.replace(made.metadata, name="place-web-0-next", annotations=notes, labels=labels)
    gates = owner_pod().spec.scheduling_gates if gated else ()
    return msgspec.structs.replace(
        made, metadata=metadata, spec=msgspec.structs.replace(made.spec, scheduling_gates=gates)
    )


def renewing(*pods: Pod, of: Reservation | None = None, next_one: Pod, **rest: Any) -> Observation:
    return observe(of or held(), *pods, probe=PROVEN, searched=True, successors={("web", 0): next_one}, **rest)


# --- when


@dataclass(frozen=True, kw_only=True)
class Lasting:
    ttl: str | None = "600s"
    lasts: int | None
    seconds: float = 0.0
    want: list[tuple[str, str]] = field(default_factory=list)
    want_wake: float | None


LASTINGS = {
    "as made: it ends a minute after its Reservation": Lasting(lasts=660, want_wake=600),
    "a second of rounding does not matter": Lasting(lasts=659, want_wake=600),
    "extended, with time left": Lasting(ttl="1h", lasts=660, want_wake=540),
    "extended, two minutes before its end": Lasting(
        ttl="1h", lasts=660, seconds=540, want=[("RenewPlaceholder", "place-web-0")], want_wake=0.01
    ),
    "extended for ever": Lasting(
        ttl="0s", lasts=660, seconds=541, want=[("RenewPlaceholder", "place-web-0")], want_wake=0.01
    ),
    "held for ever from the beginning": Lasting(ttl="0s", lasts=None, want_wake=None),
    "shortened": Lasting(lasts=3660, want=[("ShortenPlaceholder", "place-web-0")], want_wake=600),
    "given an end after all": Lasting(lasts=None, want=[("ShortenPlaceholder", "place-web-0")], want_wake=600),
}


@pytest.mark.parametrize("case", LASTINGS.values(), ids=LASTINGS.keys())
def test_when_a_placeholder_is_changed(case: Lasting) -> None:
    seen = observe(held(case.ttl), lasting(case.lasts), probe=PROVEN, searched=True)
    decision = decide_now(seen, seconds=case.seconds)
    assert [told(action) for action in decision.actions] == case.want
    assert decision.wake_seconds == (None if case.want_wake is None else pytest.approx(case.want_wake))


def test_the_end_is_brought_forward_to_a_minute_after_that_of_the_reservation() -> None:
    (action,) = decide_now(observe(held(), lasting(3660), probe=PROVEN)).actions
    assert action == ShortenPlaceholder(lasting(3660), 660)


def test_a_successor_is_given_the_place_until_a_deadline() -> None:
    (action,) = decide_now(observe(held("1h"), lasting(30), probe=PROVEN)).actions
    assert action == RenewPlaceholder(task(), lasting(30), note(deadline=int(NOON.timestamp()) + 60))


def test_a_placeholder_that_does_not_run_is_not_changed() -> None:
    new = place(phase=ReservationPhase.PENDING)
    assert decide_now(observe(new, placeholder(node=""), probe=PROVEN)).actions == ()


# --- the steps


@dataclass(frozen=True, kw_only=True)
class Step:
    pods: tuple[Pod, ...] = ()
    next_one: Pod = field(default_factory=successor)
    guard: Guard | None = None
    seconds: float = 0.0
    stage_age: float = 0.0
    missing: frozenset[str] = frozenset()
    want_state: SlotState = SlotState.HELD
    want: list[tuple[str, str]] = field(default_factory=list)


OLD = lasting(660)
FREED = successor(gated=False)
BOUND = successor(gated=False, node="node-a", phase="Pending")
RUNS = successor(gated=False, node="node-a")
STEPS = {
    "the guard is waited for": Step(pods=(OLD,)),
    "and without a fence its settling": Step(pods=(OLD,), guard=guard(2.99, is_fenced=False)),
    "then the old one goes": Step(
        pods=(OLD,), guard=guard(3.0, is_fenced=False), want=[("DeletePlaceholder", "place-web-0")]
    ),
    "while it goes the place is held by the guard": Step(pods=(lasting(660, deleted=NOON_TEXT),), guard=guard()),
    "also if the kubelet has ended it": Step(
        pods=(lasting(660, phase="Failed"),), guard=guard(), want=[("DeletePlaceholder", "place-web-0")]
    ),
    "then the new one is let through": Step(
        guard=guard(), want=[("Nominate", "place-web-0-next"), ("Ungate", "place-web-0-next")]
    ),
    "a nomination that was taken off is made again": Step(
        next_one=FREED, guard=guard(), want=[("Nominate", "place-web-0-next")]
    ),
    "a bound one is waited for": Step(next_one=BOUND, guard=guard()),
    "also after the deadline": Step(next_one=BOUND, seconds=LATE, stage_age=86400),
    "once it runs the note comes off, and it is a placeholder like any other": Step(
        next_one=RUNS, guard=guard(), want=[("CompleteHandover", "place-web-0-next")]
    ),
    "so does one that runs after the deadline": Step(
        next_one=RUNS, seconds=LATE, want=[("CompleteHandover", "place-web-0-next")]
    ),
    "one that is not bound in time goes, and the old one stays": Step(
        pods=(OLD,), stage_age=900, want=[("DeletePlaceholder", "place-web-0-next")]
    ),
    "one that no operator attended to gets more time": Step(
        guard=guard(), seconds=LATE, want=[("ExtendHandover", "place-web-0-next")]
    ),
    "without the old one the slot is held anew": Step(
        stage_age=900,
        want_state=SlotState.PENDING,
        want=[("DeletePlaceholder", "place-web-0-next"), ("CreatePlaceholder", "0")],
    ),
    "one that has ended goes": Step(
        pods=(OLD,), next_one=successor(phase="Failed"), want=[("DeletePlaceholder", "place-web-0-next")]
    ),
    "on a node that is gone nothing is held": Step(
        missing=frozenset({"node-a"}),
        want_state=SlotState.PENDING,
        want=[("DeletePlaceholder", "place-web-0-next"), ("CreatePlaceholder", "0")],
    ),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS.keys())
def test_one_placeholder_hands_its_place_to_the_next(step: Step) -> None:
    seen = renewing(
        *step.pods,
        next_one=step.next_one,
        guards={"node-a": step.guard} if step.guard else {},
        stage_ages={step.next_one.metadata.uid: step.stage_age},
        missing_nodes=step.missing,
    )
    decision = decide_now(seen, seconds=step.seconds)
    assert decision.status.slots[0].state is step.want_state
    assert [told(action) for action in decision.actions] == step.want


def test_a_place_that_is_handed_on_is_looked_at_when_the_guard_has_settled() -> None:
    assert decide_now(
        renewing(OLD, next_one=successor(), guards={"node-a": guard(0.1, is_fenced=False)})
    ).wake_seconds == (pytest.approx(2.9))


def test_an_owner_waits_for_the_placeholder_that_is_just_taking_over() -> None:
    seen = renewing(OLD, owner_pod(), next_one=successor(), guards={"node-a": guard(0.1, is_fenced=False)})
    assert decide_now(seen).actions == ()
    after = observe(held(), lasting(3600), owner_pod(), probe=PROVEN)
    assert any(isinstance(action, AssignSlot) for action in decide_now(after).actions)


def test_with_the_reservation_the_successor_goes_too() -> None:
    seen = renewing(lasting(660), next_one=successor(), of=held("10s"), guards={"node-a": guard()})
    actions = decide_now(seen, seconds=11).actions
    assert [told(action) for action in actions] == [
        ("DeletePlaceholder", "place-web-0-next"),
        ("DeletePlaceholder", "place-web-0"),
    ]


# --- what is made, heard and guarded


def test_a_successor_is_gated_noted_and_let_through_by_the_guard() -> None:
    body = build_placeholder(held(), task(), 0, priority=0, deadline_seconds=60, settings=PlaceholderSettings())
    made = msgspec.convert(build_successor(body, held(), note(), "uid-of-the-first"), Pod)
    first = msgspec.convert(body, Pod)
    assert made.metadata.name != first.metadata.name
    assert made.metadata.labels == first.metadata.labels | {SUCCESSOR_LABEL: "true", HANDOVER_LABEL: "true"}
    assert made.metadata.annotations == first.metadata.annotations | {SLOT_ANNOTATION: note().to_annotation()}
    assert [gate.name for gate in made.spec.scheduling_gates] == [HANDOVER_GATE]
    assert [toleration.key for toleration in made.spec.tolerations] == [HANDOVER_TAINT]
    assert made.spec.containers == first.spec.containers
    again = build_successor(body, held(), note(), "uid-of-the-second")
    assert again["metadata"]["name"] != made.metadata.name


def test_the_guard_is_kept_for_a_successor_until_its_note_is_off() -> None:
    cache = Cache(lambda _key: None)
    cache.put_node(GuardableNode(metadata=meta("node-a")))
    cache.put_reservation(held())
    cache.put_placeholder(OLD)
    cache.put_placeholder(at_version(successor(), "5"))
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert [pod.metadata.name for pod in seen.placeholders.values()] == ["place-web-0"]
    assert [pod.metadata.name for pod in seen.successors.values()] == ["place-web-0-next"]
    assert cache.guards.users("node-a") == (note(),)

    settled = at_version(RUNS, "6")
    notes = {key: text for key, text in settled.metadata.annotations.items() if key != SLOT_ANNOTATION}
    cache.put_pod(
        msgspec.structs.replace(settled, metadata=msgspec.structs.replace(settled.metadata, annotations=notes))
    )
    assert cache.guards.users("node-a") == ()
    cache.remove_pod(OLD)
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert [pod.metadata.name for pod in seen.placeholders.values()] == ["place-web-0-next"]
    assert seen.successors == {}
