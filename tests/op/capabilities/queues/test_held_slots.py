"""A queue with `enforcement: Held` keeps its guarantee in slots, once each, whatever comes, goes or is killed."""

from datetime import timedelta
from itertools import count
from random import Random
from typing import Any, Final

import pytest

from api_server_in_memory import error
from berth_core import (
    QUEUE_API_VERSION,
    QUEUE_KIND,
    RESERVATION_LABEL,
    QueueCondition,
    RetryableError,
    format_timestamp,
)
from berth_core.names import queue_slot_name, queue_slot_number
from berth_kube import PODS, RESERVATIONS
from berth_kube.errors import ForbiddenError, KubeError, ServerError
from berth_operator.metrics import REGISTRY
from builders import NOON_TEXT
from held_slot_simulation import HELD, HOME, SHAPE, HeldSimulation, simulated_slots
from queue_simulation import megabytes

SLOTS: Final = QueueCondition.HELD


def changes(one: HeldSimulation) -> list[str]:
    """Return which Reservations were created, deleted or renewed since the last call."""
    found = [call for call in one.api.calls if call.startswith(("create res", "delete res", "merge res"))]
    one.api.calls.clear()
    return found


def failing_creation(number: int, failure: type[KubeError]) -> HeldSimulation:
    """Return a simulation in which the creation of one slot's Reservation fails."""
    one = HeldSimulation()
    one.namespace("b", team="q2")
    one.api.faults[f"create reservations {queue_slot_name('q2', 'uid-q2', number)}"] = error(failure)
    one.write("q2", **HELD)
    return one


def test_the_guarantee_is_held_in_slots_before_any_pod_comes_and_costs_others_no_more() -> None:
    one = simulated_slots()
    status = one.queue("q2").status
    assert (one.live(), status.held_slots, status.waiting_slots) == (["held-0", "held-1"], 2, 0)
    assert (megabytes(status.held), status.allocated) == (200, {}), "what is held counts once"
    assert one.says("q2", SLOTS) == ("True", "SlotsHeld")
    assert one.says("q2", QueueCondition.COVERED) == ("True", "Free")
    for number in range(10):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len(one.free("a")) == 8
    assert megabytes(one.queue("q1").status.real_capability) == 800


def test_the_metrics_count_held_and_waiting_slots() -> None:
    one = simulated_slots()
    count = lambda state: REGISTRY.get_sample_value("berth_queue_slots", {"queue": "q2", "state": state})  # noqa: E731
    assert (count("held"), count("waiting")) == (2, 0)
    one.is_frozen = True
    one.write("q2", **(HELD | {"guarantee": {"resource": {"memory": "300M"}}}))
    one.settle()
    assert (count("held"), count("waiting")) == (2, 1)


def test_a_slot_is_a_reservation_of_one_place_for_any_pod_of_the_namespace_until_the_queue_ends_it() -> None:
    one = simulated_slots()
    body = one.reservation("q2-held-0")
    assert body["metadata"]["labels"]["berth.volcano.sh/queue-slot"] == "q2"
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Queue", "uid-q2", True)
    assert body["spec"]["capacity"] == "Free"
    assert "ttl" not in body["spec"]
    assert "expires" in body["spec"]
    (task,) = body["spec"]["tasks"]
    assert task["template"]["spec"]["containers"][0]["resources"] == {"requests": SHAPE}


def test_a_pod_uses_up_the_slot_that_it_takes_and_no_other_is_made_or_ended() -> None:
    one = simulated_slots()
    changes(one)
    one.come_for("first", "q2-held-0")
    one.settle()
    assert not one.waits("first")
    assert (one.allocated(), one.held()) == (100, 1)
    one.hand_over("first", "q2-held-0")
    assert (one.allocated(), one.live()) == (100, ["held-1"])
    assert changes(one) == [f"delete reservations {queue_slot_name('q2', 'uid-q2', 0)}"], "only what is over"
    one.end("first", "b")
    one.settle()
    assert (one.allocated(), one.live(), one.held()) == (0, ["held-0", "held-1"], 2)


def test_pods_that_waited_without_our_gate_use_up_one_slot_each_on_their_way() -> None:
    one = simulated_slots()
    one.submit("late", "b", node="")
    one.total = 200
    owner = {"kind": "Pod", "namespace": "b", "name": "late", "uid": "uid-b-late"}
    one.report(one.reservation("q2-held-0"), "Available", "HandingOver", owner=owner)
    one.settle()
    assert (one.allocated(), one.live()) == (100, ["held-0", "held-1"])


def test_the_placeholder_that_takes_over_when_an_end_is_put_off_counts_no_second_time() -> None:
    one = simulated_slots()
    one.come_for("first", "q2-held-0")
    one.settle()
    uid = one.reservation("q2-held-0")["metadata"]["uid"]
    before = one.api.objects[PODS.plural][HOME, f"holds-{one.reservation('q2-held-0')['metadata']['name']}"]
    meta = {**before["metadata"], "name": "holds-next", "uid": "uid-next", "labels": before["metadata"]["labels"]}
    one.api.put(PODS, {**before, "metadata": meta})
    one.settle()
    assert meta["labels"][RESERVATION_LABEL] == uid
    assert (one.allocated(), one.live()) == (100, ["held-0", "held-1"])


def test_a_slot_is_kept_for_a_pod_that_waits_and_may_take_it_and_not_for_another() -> None:
    one = simulated_slots()
    one.total = 200
    one.submit("alike", "b")
    one.settle()
    assert (one.allocated(), len(one.live())) == (100, 2), "it would lose its room to others"
    one.end("alike", "b")
    one.submit("larger", "b", memory="150M")
    one.settle()
    assert (one.allocated(), one.live()) == (150, []), "nothing else would give it room"


def test_what_a_terminating_pod_leaves_is_asked_for_before_it_has_ended() -> None:
    one = simulated_slots()
    one.total = 200
    one.come_for("first", "q2-held-0")
    one.settle()
    one.hand_over("first", "q2-held-0")
    one.submit("next", "b")
    one.settle()
    assert (one.allocated(), len(one.live())) == (200, 1), "kept for the next, and for no more"
    pod = one.api.objects[PODS.plural]["b", "first"]
    pod["metadata"] = {**pod["metadata"], "deletionTimestamp": NOON_TEXT}
    one.api.put(PODS, pod)
    one.settle()
    assert (one.allocated(), len(one.live())) == (200, 1)
    one.end("next", "b")
    one.settle()
    assert (one.allocated(), len(one.live()), one.held()) == (100, 2, 1)


def test_pods_beyond_the_guarantee_are_admitted_like_those_of_any_queue() -> None:
    one = simulated_slots()
    for number in range(4):
        one.submit(f"job-{number}", "b")
    one.settle()
    assert len(one.free("b")) == 4
    for number in range(4):
        one.end(f"job-{number}", "b")
    one.settle()
    assert (one.live(), one.held()) == (["held-0", "held-1"], 2)


def test_tiny_pods_on_their_way_into_slots_do_not_make_more_of_them() -> None:
    one = simulated_slots()
    one.come_for("tiny-0", "q2-held-0", memory="1M", gates=("example.com/never",))
    one.settle()
    one.come_for("tiny-1", "q2-held-1", memory="1M", gates=("example.com/never",))
    one.settle()
    assert (one.allocated(), one.live()) == (200, ["held-0", "held-1"])


# --- changes ---------------------------------------------------------------------------------------------------------


def test_a_smaller_guarantee_ends_slots_that_wait_before_those_that_are_held() -> None:
    one = simulated_slots(guarantee={"resource": {"memory": "300M"}})
    one.total = 100
    one.end(f"holds-{one.reservation('q2-held-0')['metadata']['name']}", "berth-system")
    one.end(f"holds-{one.reservation('q2-held-1')['metadata']['name']}", "berth-system")
    for name in ("q2-held-0", "q2-held-1"):
        one.report(one.reservation(name), "Pending")
    one.settle()
    one.write("q2", **(HELD | {"guarantee": {"resource": {"memory": "100M"}}}))
    one.settle()
    assert one.live() == ["held-2"]


@pytest.mark.parametrize("change", [{"enforcement": "Gated"}, {"suspend": True}, {"guarantee": {"resource": {}}}])
def test_switched_off_every_slot_is_ended_and_on_again_held_anew(change: dict[str, Any]) -> None:
    one = simulated_slots()
    one.write("q2", **(HELD | change))
    one.settle()
    assert (one.reservations(), one.held()) == ([], 0)
    assert (one.queue("q2").condition(SLOTS) is None) == ("enforcement" in change)
    one.write("q2", **HELD)
    one.settle()
    assert one.held() == 2


def test_another_shape_or_namespace_is_held_in_the_place_of_the_old_one() -> None:
    one = simulated_slots()
    one.write("q2", **(HELD | {"held": {"shape": SHAPE | {"memory": "50M"}}}))
    one.settle()
    assert (one.held(), megabytes(one.queue("q2").status.held)) == (4, 200)
    one.namespace("c", team="q2")
    one.settle()
    assert one.says("q2", SLOTS) == ("False", "NoNamespace")
    assert one.reservations() == []
    one.write("q2", **(HELD | {"held": {"shape": SHAPE, "namespace": "c"}}))
    one.settle()
    assert (len(one.reservations("c")), one.reservations()) == (2, [])


def test_a_fence_is_for_slots_that_wait_and_one_that_is_held_stays() -> None:
    one = simulated_slots()
    before = {body["metadata"]["uid"] for body in one.reservations()}
    one.write(
        "q2", **(HELD | {"guarantee": {"resource": {"memory": "300M"}}, "held": {"shape": SHAPE, "fence": "Node"}})
    )
    one.settle()
    assert before < {body["metadata"]["uid"] for body in one.reservations()}
    assert (
        one.reservation("q2-held-2")["spec"] | {"capacity": "WhenFree", "fence": "Node"}
        == one.reservation("q2-held-2")["spec"]
    )


def test_a_template_says_which_pods_may_take_a_slot() -> None:
    template = {
        "metadata": {"labels": {"app": "train"}},
        "spec": {
            "tolerations": [{"key": "gpu", "operator": "Exists"}],
            "unknownField": 1,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "100m", "memory": "100M"}}}],
        },
    }
    one = simulated_slots(held={"template": template})
    assert one.held() == 2
    assert one.reservation("q2-held-0")["spec"]["tasks"][0]["template"] == template, "as written"
    changes(one)
    one.settle()
    assert changes(one) == []


def test_slots_are_renewed_for_as_long_as_the_queue_asks_for_them() -> None:
    one = simulated_slots()
    before = one.reservation("q2-held-0")["spec"]["expires"]
    changes(one)
    one.clock.advance(timedelta(hours=11).total_seconds())
    one.settle()
    assert changes(one) == []
    one.clock.advance(timedelta(hours=2).total_seconds())
    one.settle()
    assert changes(one) == [f"merge reservations {queue_slot_name('q2', 'uid-q2', n)}" for n in (0, 1)]
    assert one.reservation("q2-held-0")["spec"]["expires"] > before


# --- failures --------------------------------------------------------------------------------------------------------


def test_nothing_is_written_while_nothing_changes() -> None:
    one = simulated_slots()
    changes(one)
    for _ in range(3):
        one.settle()
    assert changes(one) == []


def test_a_slot_that_is_deleted_by_hand_is_made_again() -> None:
    one = simulated_slots()
    one.api.delete(RESERVATIONS, one.reservation("q2-held-1")["metadata"]["name"], namespace="b")
    one.settle()
    assert (one.live(), one.held()) == (["held-0", "held-1"], 2)


@pytest.mark.parametrize("broken", [0, 1])
def test_an_operator_killed_in_the_middle_doubles_no_slot(broken: int) -> None:
    one = failing_creation(broken, ServerError)
    with pytest.raises(ServerError):
        one.settle()
    assert len(one.reservations()) == broken
    one.api.faults.clear()
    one.restart()
    one.settle()
    assert one.live() == ["held-0", "held-1"]


def test_an_operator_whose_cache_is_behind_finds_the_slots_by_their_names() -> None:
    one = simulated_slots()
    for body in one.reservations():
        one.cache.remove_reservation(body["metadata"]["uid"])
    one.controller._enqueue = lambda *_: None  # type: ignore[method-assign]
    one.controller.reconcile()
    assert len(one.reservations()) == 2


def test_without_the_lease_no_slot_is_made() -> None:
    one = simulated_slots()
    for body in one.reservations():
        one.api.delete(RESERVATIONS, body["metadata"]["name"], namespace="b")
    one.clock.advance(1)
    one.leads = False
    one.hear()
    with pytest.raises(RetryableError):
        one.controller.reconcile()
    assert one.reservations() == []


def test_a_slot_that_was_preempted_is_made_again_after_a_pause() -> None:
    one = simulated_slots()
    one.is_frozen = True
    one.fail("q2-held-0", "Preempted")
    one.hear()
    changes(one)
    one.controller.reconcile()
    assert changes(one) == [], "not at once: it may be preempted again"
    one.is_frozen = False
    one.clock.advance(10)
    one.settle()
    assert (len(one.live()), one.held()) == (2, 2)


def test_a_clock_that_is_set_back_by_hours_makes_no_slot_rest_for_them() -> None:
    one = simulated_slots()
    one.fail("q2-held-0", "Preempted")
    one.fail("q2-held-1", "Forbidden")
    one.clock._now -= timedelta(hours=3)
    one.settle()
    assert (len(one.live()), one.held()) == (2, 2)


def test_slots_that_wait_since_before_the_clock_was_set_back_are_a_trouble() -> None:
    one = HeldSimulation(is_frozen=True)
    one.namespace("b", team="q2")
    one.write("q2", **HELD)
    one.settle()
    one.clock._now -= timedelta(hours=3)
    one.settle()
    assert one.says("q2", SLOTS) == ("False", "Waiting")


def test_a_limit_that_refuses_a_slot_is_said_and_asked_again_after_a_minute() -> None:
    one = simulated_slots()
    one.events()
    one.fail("q2-held-1", "Forbidden")
    one.settle()
    assert one.says("q2", SLOTS) == ("False", "SlotsRefused")
    assert "1 of 2 slots not held: b/q2-held-1" in one.message("q2", SLOTS)
    assert one.live() == ["held-0"]
    one.clock.advance(60)
    one.settle()
    assert one.held() == 2
    assert [reason for reason in one.events() if "Held" in reason] == ["QueueNotHeld", "QueueHeld"]


def test_slots_that_wait_are_a_trouble_only_after_a_minute() -> None:
    one = HeldSimulation(is_frozen=True)
    one.namespace("b", team="q2")
    one.write("q2", **HELD)
    one.settle()
    assert one.says("q2", SLOTS) == ("Unknown", "NotHeldYet")
    assert one.queue("q2").status.waiting_slots == 2
    one.clock.advance(60)
    one.settle()
    assert one.says("q2", SLOTS) == ("False", "Waiting")
    assert "2 of 2 slots not held" in one.message("q2", SLOTS)
    assert one.live() == ["held-0", "held-1"], "they wait for as long as it takes"


def test_a_quota_that_refuses_reservations_is_said_and_asked_again_after_a_minute() -> None:
    one = failing_creation(1, ForbiddenError)
    with pytest.raises(ForbiddenError):
        one.settle()
    one.settle()
    assert one.says("q2", SLOTS) == ("False", "SlotsRefused")
    assert "1 of 2 slots not held" in one.message("q2", SLOTS)
    assert one.live() == ["held-0"]
    one.api.faults.clear()
    one.settle()
    assert one.live() == ["held-0"], "not in each pass"
    one.clock.advance(60)
    one.settle()
    assert (one.held(), one.says("q2", SLOTS)) == (2, ("True", "SlotsHeld"))


def test_a_slot_that_may_not_be_renewed_keeps_no_other_from_it() -> None:
    one = simulated_slots()
    first = one.reservation("q2-held-0")["metadata"]["name"]
    one.api.faults[f"merge reservations {first}"] = error(ForbiddenError)
    one.clock.advance(timedelta(hours=13).total_seconds())
    changes(one)
    with pytest.raises(ForbiddenError):
        one.settle()
    assert f"merge reservations {queue_slot_name('q2', 'uid-q2', 1)}" in changes(one)


def test_a_slot_that_lost_its_label_is_made_anew_before_it_would_have_to_be_renewed() -> None:
    one = simulated_slots()
    body = one.reservation("q2-held-0")
    one.api.put(RESERVATIONS, {**body, "metadata": {**body["metadata"], "labels": {}}})
    one.settle()
    assert (one.live(), one.held()) == (["held-0", "held-1"], 2)
    assert "berth.volcano.sh/queue-slot" in one.reservation("q2-held-0")["metadata"]["labels"]


def test_a_pod_that_takes_a_year_to_terminate_is_not_held_a_second_time() -> None:
    one = simulated_slots()
    one.come_for("first", "q2-held-0")
    one.settle()
    one.hand_over("first", "q2-held-0")
    pod = one.api.objects[PODS.plural]["b", "first"]
    in_a_year = format_timestamp(one.clock.now() + timedelta(days=365))
    pod["metadata"] = {**pod["metadata"], "deletionTimestamp": in_a_year}
    one.api.put(PODS, pod)
    one.settle()
    assert (one.allocated(), len(one.live())) == (100, 1)


# --- what cannot be held ---------------------------------------------------------------------------------------------

CANNOT: Final = {
    "no shape": ({"held": {}}, "NoShape"),
    "nothing of a resource": ({"held": {"shape": {"memory": "0"}}}, "NoShape"),
    "a text": ({"held": {"shape": {"memory": "much"}}}, "NoShape"),
    "a template that asks for nothing": ({"held": {"template": {"spec": {"containers": [{"name": "c"}]}}}}, "NoShape"),
    "more than the guarantee": ({"held": {"shape": {"memory": "201M"}}}, "ShapeTooLarge"),
    "nothing that is guaranteed": ({"held": {"shape": {"cpu": "1"}}}, "ShapeLacks"),
    "a namespace of another queue": ({"held": {"shape": SHAPE, "namespace": "a"}}, "NoNamespace"),
    "a guarantee that is refused": ({"guarantee": {"resource": {"memory": "2G"}}}, "NoGuarantee"),
}


@pytest.mark.parametrize(("changed", "reason"), CANNOT.values(), ids=CANNOT)
def test_what_cannot_be_held_is_said_and_no_slot_is_made(changed: dict[str, Any], reason: str) -> None:
    one = simulated_slots(**changed)
    found = one.queue("q2").condition(SLOTS)
    assert found is not None
    assert found.reason == reason
    assert found.status != "True"
    assert one.reservations() == []


HELD_IN_PART: Final = {
    "larger than each node": (
        {"guarantee": {"resource": {"memory": "600M"}}, "held": {"shape": {"memory": "600M"}}},
        ("False", "ShapeTooLarge"),
    ),
    "without what is guaranteed, too": (
        {"guarantee": {"resource": {"memory": "200M", "cpu": "1"}}, "held": {"shape": {"memory": "100M"}}},
        ("False", "ShapeLacks"),
    ),
    "not a whole number of slots": (
        {"guarantee": {"resource": {"memory": "250M"}}},
        ("True", "Remainder"),
    ),
    "more slots than may be": (
        {"held": {"shape": {"memory": "100k"}}, "guarantee": {"resource": {"memory": "60M"}}},
        ("False", "TooManySlots"),
    ),
}


@pytest.mark.parametrize(("changed", "said"), HELD_IN_PART.values(), ids=HELD_IN_PART)
def test_what_slots_do_not_cover_is_said(changed: dict[str, Any], said: tuple[str, str]) -> None:
    one = HeldSimulation(is_frozen=said[1] in {"ShapeTooLarge", "TooManySlots"})
    one.total = 500 if said[1] == "ShapeTooLarge" else 1000
    one.namespace("b", team="q2")
    one.write("q2", **(HELD | changed))
    for _ in range(4):
        one.settle()
    assert one.says("q2", SLOTS) == said
    assert one.reservations()
    assert len(one.reservations()) <= 500


# --- forged slots ----------------------------------------------------------------------------------------------------


def forged(one: HeldSimulation, number: int, *, memory: str, owned: bool) -> str:
    """Have a tenant of the queue make a Reservation that looks like a slot."""
    body = one.reservations()[0]
    template = {"spec": {"containers": [{"name": "x", "resources": {"requests": {"memory": memory}}}]}}
    name = queue_slot_name("q2", "uid-q2", number)
    meta = {"name": name, "namespace": "b", "labels": body["metadata"]["labels"], "uid": f"uid-{name}"}
    if owned:
        meta["ownerReferences"] = [
            {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "name": "q2", "uid": "uid-q2", "controller": True}
        ]
    spec = {**body["spec"], "tasks": [{"name": "slot", "replicas": 1, "template": template}]}
    one.api.put(RESERVATIONS, {**{key: body[key] for key in ("apiVersion", "kind")}, "metadata": meta, "spec": spec})
    return name


def test_a_forged_slot_of_another_size_counts_against_the_queue_and_is_ended() -> None:
    one = simulated_slots()
    name = forged(one, 7, memory="700M", owned=True)
    one.play()
    one.settle()
    assert not [body for body in one.reservations() if body["metadata"]["name"] == name]
    one.settle()
    assert one.live() == ["held-0", "held-1"]


def test_a_reservation_that_only_has_a_slots_name_counts_as_any_and_stays() -> None:
    one = simulated_slots(guarantee={"resource": {"memory": "350M"}})
    one.api.delete(RESERVATIONS, queue_slot_name("q2", "uid-q2", 2), namespace="b")
    forged(one, 2, memory="100M", owned=False)
    one.settle()
    assert one.allocated() == 100, "as any placeholder of the namespace"
    assert one.live() == ["held-0", "held-1", "held-2"]
    one.api.delete(RESERVATIONS, queue_slot_name("q2", "uid-q2", 0), namespace="b")
    forged(one, 0, memory="1M", owned=False)
    one.settle()
    assert one.live() == ["held-0", "held-1", "held-2", "held-3"], "the next free number is taken"


def test_a_forged_equal_slot_is_worth_no_more_than_our_own() -> None:
    one = simulated_slots()
    body = one.reservation("q2-held-0")
    for number in range(2, 6):
        name = queue_slot_name("q2", "uid-q2", number)
        meta = {**body["metadata"], "name": name, "uid": f"uid-{name}"}
        one.api.put(RESERVATIONS, {**body, "metadata": meta, "status": {}})
    one.settle()
    assert len(one.live()) == 2


def test_the_number_of_a_slot_is_read_from_its_own_name_alone() -> None:
    name = queue_slot_name("a" * 250, "uid", 12)
    assert len(name) <= 63
    assert queue_slot_number(name, "a" * 250, "uid") == 12
    for other in ("x-held-1", "x-held-one-0123456789", name.replace("-12-", "-012-"), f"{name}x"):
        assert queue_slot_number(other, "a" * 250, "uid") is None
    assert queue_slot_number(name, "a" * 250, "another uid") is None


# --- anything in any order -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fence", ["None", "Node"])
@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_and_goes_what_is_left_of_the_guarantee_is_held_once(seed: int, fence: str) -> None:
    one = simulated_slots(guarantee={"resource": {"memory": "500M"}}, held={"shape": SHAPE, "fence": fence})
    names, numbers = list[str](), count()

    def submit(random: Random) -> None:
        names.append(f"pod-{next(numbers)}")
        one.submit(names[-1], "b", memory=f"{random.choice((50, 100, 150))}M")

    def end(random: Random) -> None:
        if names:
            one.end(names.pop(random.randrange(len(names))), "b")
        else:
            one.restart()

    def hand_over(_: Random) -> None:
        if not (one.live() and one.held()):
            one.restart()
            return
        phases = {body["metadata"]["name"]: one.phase(body) for body in one.reservations()}
        held = next(name for name, phase in phases.items() if phase == "Available")
        names.append(f"pod-{next(numbers)}")
        one.come_for(names[-1], held)
        one.settle()
        one.hand_over(names[-1], held)

    def delete(_: Random) -> None:
        if reservations := one.reservations():
            one.api.delete(RESERVATIONS, reservations[0]["metadata"]["name"], namespace="b")
        else:
            one.restart()

    events = (submit, end, hand_over, delete, lambda _: one.restart())
    for step in one.happen(events, seed=seed, steps=15, rests=2):
        left = 500 - one.allocated()
        assert len(one.live()) == max(0, left // 100), f"after step {step}"
