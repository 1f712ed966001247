"""A pod is gated where a slot is held for it that nobody else was promised; otherwise it is let be, never refused."""

import base64
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.errors import InputError
from berth_core.labels import HANDOVER_GATE, PROBE_LABEL, RESERVATION_LABEL, VERSION_ANNOTATION
from berth_core.matching import shape_of
from berth_core.reservations import (
    RESERVATION_API_VERSION,
    RESERVATION_KIND,
    Reservation,
    ReservationPhase,
    Slot,
    SlotState,
)
from berth_operator.admission.request_limits import SearchBudget
from berth_operator.admission.reviews import Admission, Answer, read_review
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.reservation.store.slot_matching import SlotFinder
from builders import as_api, pod, task
from handover_builders import PLACE_UID, note, owner_pod, place, reference, slot
from json_patches import apply

WEB = {"app": "web"}
HELD = place(slot(SlotState.HELD))
DONE = ReservationPhase.SUCCEEDED


@pytest.fixture(autouse=True)
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Stop the clock by which promises lapse, and return what sets it: a slow machine makes none of them old."""

    def set_to(seconds: float) -> None:
        monkeypatch.setattr("berth_operator.admission.reviews.time", SimpleNamespace(monotonic=lambda: seconds))

    set_to(100.0)
    return set_to


def review(body: Any, *, operation: str = "CREATE", dry_run: bool = False, namespace: str = "default") -> bytes:  # noqa: ANN401 - any body
    request = {"uid": "review-1", "namespace": namespace, "operation": operation, "dryRun": dry_run, "object": body}
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


def admission_that_knows(*reservations: Reservation, owners: tuple[Pod, ...] = ()) -> tuple[Admission, Cache]:
    cache = Cache(lambda _key: None)
    for reservation in reservations:
        cache.put_reservation(reservation)
    for one in owners:
        cache.put_owner(one)
    return Admission(cache), cache


def ask(asked: Admission, one: Pod, **rest: Any) -> Answer:  # noqa: ANN401 - options of the review
    return asked.answer(read_review(review(as_api(one), **rest)))


def patched(answer: Answer, one: Pod) -> Pod:
    """The pod as the API server would store it."""
    response = answer.body["response"]
    operations = msgspec.json.decode(base64.b64decode(response["patch"])) if "patch" in response else []
    return msgspec.convert(apply(operations, as_api(one)), Pod)


def test_what_finds_no_place_is_passed_on_and_nothing_else() -> None:
    cache = Cache(lambda _key: None)
    cache.put_reservation(HELD)
    not_gated: list[Pod] = []
    asked = Admission(cache, on_not_gated=not_gated.append)
    ask(asked, pod("fits", labels=WEB))
    ask(asked, pod("dry", labels=WEB, cpu="64"), dry_run=True)
    ask(asked, pod("large", labels=WEB, cpu="64"))
    ask(asked, pod("bound", labels=WEB, cpu="64", node="node-a"))
    assert [one.metadata.name for one in not_gated] == ["large"]


# --- one pod


@dataclass(frozen=True, kw_only=True)
class Case:
    pod: Pod = field(default_factory=lambda: pod(labels=WEB))
    reservation: Reservation = HELD
    owners: tuple[Pod, ...] = ()
    review: dict[str, Any] = field(default_factory=dict)
    want_gated: bool = False


CASES = {
    "an owner for which a slot is held": Case(want_gated=True),
    "an owner without a namespace in its object": Case(pod=pod(labels=WEB, namespace=""), want_gated=True),
    "an owner in a dry run": Case(review={"dry_run": True}, want_gated=True),
    "an owner with a gate of another": Case(pod=pod(labels=WEB, gates=["example.com/wait"]), want_gated=True),
    "an owner while other slots wait still": Case(
        reservation=place(
            slot(SlotState.HELD, 0), slot(SlotState.PENDING, 1), replicas=2, phase=ReservationPhase.PENDING
        ),
        want_gated=True,
    ),
    "a stranger": Case(pod=pod(labels={"app": "db"}, controller=None)),
    "a pod that asks for more": Case(pod=pod(labels=WEB, cpu="64")),
    "a pod of another namespace": Case(pod=pod(labels=WEB, namespace="elsewhere"), review={"namespace": "elsewhere"}),
    "an update": Case(review={"operation": "UPDATE"}),
    "a pod that names its node": Case(pod=pod(labels=WEB, node="node-a")),
    "a pod that carries our gate already": Case(pod=pod(labels=WEB, gates=[HANDOVER_GATE])),
    "a pod that carries our label already": Case(pod=pod(labels=WEB | {RESERVATION_LABEL: PLACE_UID})),
    "no slot is held yet": Case(reservation=place(slot(SlotState.PENDING), phase=ReservationPhase.PENDING)),
    "nobody has looked at the Reservation yet": Case(reservation=place()),
    "the slot is on its way to another": Case(reservation=place(slot(SlotState.HANDING_OVER))),
    "the Reservation is over": Case(reservation=place(slot(SlotState.HELD), phase=DONE)),
    "the Reservation is being deleted": Case(reservation=place(slot(SlotState.HELD), deleted="2026-11-21T12:00:00Z")),
    "the slot is kept for a pod that is gated already": Case(owners=(owner_pod("web-1"),)),
    "the pod that was gated before is being deleted": Case(
        owners=(owner_pod("web-1", deleted="2026-11-21T12:00:00Z"),), want_gated=True
    ),
    "the pod that was gated before cannot take this slot": Case(
        owners=(owner_pod("web-1", cpu="64"),), want_gated=True
    ),
    "the pod that was gated before has its own slot": Case(
        reservation=place(
            slot(SlotState.HANDING_OVER, 0, owner=reference(owner_pod("web-1"))), slot(SlotState.HELD, 1), replicas=2
        ),
        owners=(owner_pod("web-1", given=note(0)),),
        want_gated=True,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_gating(case: Case) -> None:
    asked, _ = admission_that_knows(case.reservation, owners=case.owners)

    answer = ask(asked, case.pod, **case.review)

    assert answer.body["response"]["allowed"] is True
    assert answer.body["response"]["uid"] == "review-1"
    assert answer.reservation == (PLACE_UID if case.want_gated else "")
    assert ("patch" in answer.body["response"]) is case.want_gated


PATCHED = {
    "with labels": pod(labels=WEB, annotations={"team": "shop"}),
    "with gates of others": pod(labels=WEB, gates=["example.com/wait", "example.com/more"]),
}


@pytest.mark.parametrize("before", PATCHED.values(), ids=PATCHED.keys())
def test_gate_and_label_are_all_that_is_added(before: Pod) -> None:
    asked, _ = admission_that_knows(HELD)
    after = patched(ask(asked, before), before)

    gates = [gate.name for gate in after.spec.scheduling_gates]
    assert gates == [*(gate.name for gate in before.spec.scheduling_gates), HANDOVER_GATE]
    assert after.metadata.labels == WEB | {RESERVATION_LABEL: PLACE_UID}
    bare = msgspec.structs.replace(after.metadata, labels=before.metadata.labels)
    assert bare == before.metadata
    assert msgspec.structs.replace(after.spec, scheduling_gates=before.spec.scheduling_gates) == before.spec


def test_a_pod_without_labels_can_be_gated_for_its_controller() -> None:
    by_controller = place(slot(SlotState.HELD), owners=None)
    asked, _ = admission_that_knows(by_controller)
    before = pod(labels={})
    after = patched(ask(asked, before), before)
    assert after.metadata.labels == {RESERVATION_LABEL: PLACE_UID}


# --- what another replica may hold by now

PENDING = place(slot(SlotState.PENDING), phase=ReservationPhase.PENDING)
OWNER = pod(labels=WEB)
UNSURE = {
    "no slot is held yet": (PENDING, OWNER, True),
    "nobody has looked at the Reservation yet": (place(), OWNER, True),
    "the slot is on its way to another": (place(slot(SlotState.HANDING_OVER)), OWNER, True),
    "a slot is held": (HELD, OWNER, False),
    "the slots are taken and lost": (
        place(slot(SlotState.TAKEN, 0), slot(SlotState.LOST, 1), replicas=2),
        OWNER,
        False,
    ),
    "the Reservation is over": (place(slot(SlotState.RELEASED), phase=DONE), OWNER, False),
    "the slot is too small": (PENDING, pod(labels=WEB, cpu="64"), False),
    "the pod is a stranger": (PENDING, pod(labels={"app": "db"}, controller=None), False),
}


@pytest.mark.parametrize(("reservation", "one", "want"), UNSURE.values(), ids=UNSURE.keys())
def test_a_replica_that_does_not_write_the_status_is_unsure_where(
    reservation: Reservation,
    one: Pod,
    want: bool,  # noqa: FBT001 - what the case wants
) -> None:
    cache = Cache(lambda _key: None)
    cache.put_reservation(reservation)
    reader = Admission(cache, refetch=cache.put_reservation)
    assert bool(ask(reader, one).unsure) is want
    cache.put_written(PLACE_UID, reservation.status, cache.epoch)
    assert ask(reader, one).unsure == (), "who wrote the status knows it"


def newer(state: Reservation) -> Reservation:
    return msgspec.structs.replace(state, metadata=msgspec.structs.replace(state.metadata, resource_version="2"))


def test_a_replica_that_hears_of_a_held_slot_just_after_its_search_is_unsure(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(lambda _key: None)
    cache.put_reservation(PENDING)
    search = SlotFinder.find

    def search_and_hear(*args: Any, **rest: Any) -> Reservation | None:  # noqa: ANN401 - passes on what it takes
        found = search(*args, **rest)
        cache.put_reservation(newer(HELD))
        return found

    monkeypatch.setattr(SlotFinder, "find", search_and_hear)
    reader = Admission(cache, refetch=cache.put_reservation)
    assert ask(reader, OWNER).unsure
    assert reader.answer(read_review(review(as_api(OWNER))), is_last=True).reservation == PLACE_UID


def test_a_pod_is_gated_for_a_slot_that_was_read_to_be_held_and_let_go_only_at_last() -> None:
    cache = Cache(lambda _key: None)
    cache.put_reservation(PENDING)
    stored: list[Reservation] = []
    not_gated: list[Pod] = []
    reader = Admission(cache, on_not_gated=not_gated.append, refetch=lambda _: cache.put_reservation(stored[-1]))
    asked = read_review(review(as_api(OWNER)))
    answers: list[str] = []
    for state in (PENDING, newer(HELD)):
        stored.append(state)
        reader.refetch_unsure(reader.answer(asked))
        answers.append(reader.answer(asked, is_last=True).reservation)
    assert answers == ["", PLACE_UID]
    assert len(not_gated) == 1


# --- several pods


def named(number: int) -> Pod:
    return pod(f"web-{number}", uid="", labels=WEB)


def test_no_more_pods_are_gated_than_slots_are_held() -> None:
    asked, _ = admission_that_knows(place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2))
    assert [bool(ask(asked, named(number)).reservation) for number in range(4)] == [True, True, False, False]


def test_the_oldest_reservation_is_filled_first() -> None:
    older = place(slot(SlotState.HELD), name="older", uid="older", created="2026-11-21T11:00:00Z")
    younger = place(slot(SlotState.HELD), name="younger", uid="younger")
    asked, _ = admission_that_knows(younger, older)
    assert [ask(asked, named(number)).reservation for number in range(3)] == ["older", "younger", ""]


def test_a_dry_run_uses_no_slot_up() -> None:
    asked, _ = admission_that_knows(HELD)
    assert ask(asked, named(0), dry_run=True).reservation == PLACE_UID
    assert ask(asked, named(1)).reservation == PLACE_UID


def of_stateful_set(number: int) -> Pod:
    """Return a pod as the StatefulSet controller creates it, with a name and what a ReplicaSet's is made of."""
    made = named(number)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, generate_name="web-"))


def test_no_more_pods_of_a_stateful_set_are_gated_than_slots_are_held() -> None:
    asked, cache = admission_that_knows(place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2))
    gated = [bool(ask(asked, of_stateful_set(number)).reservation) for number in (0, 1, 2, 0, 1)]
    assert gated == [True, True, False, True, True]
    cache.put_owner(owner_pod("web-0"))
    assert not ask(asked, of_stateful_set(3)).reservation


def test_a_pod_whose_first_creation_failed_is_gated_by_the_next_one() -> None:
    asked, _ = admission_that_knows(HELD)
    assert [ask(asked, named(0)).reservation for _ in range(2)] == [PLACE_UID, PLACE_UID]
    assert not ask(asked, named(1)).reservation


def test_a_pod_that_is_created_again_and_again_counts_once() -> None:
    asked, _ = admission_that_knows(place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2))
    numbers = (0, 0, 0, 1, 2)
    assert [bool(ask(asked, named(number)).reservation) for number in numbers] == [True, True, True, True, False]


def test_a_pod_takes_the_slot_that_a_gone_pod_of_its_name_waited_for() -> None:
    asked, cache = admission_that_knows(HELD)
    cache.put_owner(owner_pod("web-0"))
    assert ask(asked, named(0)).reservation == PLACE_UID


def test_a_promise_is_kept_once_the_pod_was_heard_of_and_not_counted_twice() -> None:
    asked, cache = admission_that_knows(place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2))
    assert ask(asked, named(0)).reservation
    cache.put_owner(owner_pod("web-0"))
    assert ask(asked, named(1)).reservation
    assert not ask(asked, named(2)).reservation


def test_pods_without_a_name_are_recognised_by_what_their_names_begin_with() -> None:
    asked, cache = admission_that_knows(place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2))
    nameless = msgspec.structs.replace(named(0), metadata=msgspec.structs.replace(named(0).metadata, name=""))
    prefixed = msgspec.structs.replace(
        nameless, metadata=msgspec.structs.replace(nameless.metadata, generate_name="web-")
    )
    made = owner_pod("web-x1")
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, generate_name="web-"))

    assert ask(asked, prefixed).reservation
    cache.put_owner(made)
    assert ask(asked, prefixed).reservation
    assert not ask(asked, prefixed).reservation


def test_a_slot_may_be_taken_while_its_status_is_still_being_written_and_no_longer_where_that_failed() -> None:
    asked, cache = admission_that_knows(place())

    def write_in_vain() -> None:
        with cache.writing(PLACE_UID, HELD.status):
            assert ask(asked, named(0), dry_run=True).reservation == PLACE_UID
            raise ConnectionError

    with pytest.raises(ConnectionError):
        write_in_vain()
    assert not ask(asked, named(0), dry_run=True).reservation


def test_a_slot_that_is_being_given_away_is_promised_to_nobody_else() -> None:
    asked, cache = admission_that_knows(HELD)
    with cache.writing(PLACE_UID, place(slot(SlotState.HANDING_OVER)).status):
        assert not ask(asked, named(0)).reservation
    assert ask(asked, named(0)).reservation == PLACE_UID


def test_a_promise_to_a_pod_that_never_came_lapses(set_clock: Callable[[float], None]) -> None:
    asked, _ = admission_that_knows(HELD)
    assert ask(asked, named(0)).reservation
    set_clock(102.9)
    assert not ask(asked, named(1)).reservation
    set_clock(103.1)
    assert ask(asked, named(2)).reservation


@given(held=st.integers(0, 5), asking=st.integers(0, 12))
def test_at_most_as_many_are_gated_at_once_as_are_held(held: int, asking: int) -> None:
    slots: tuple[Slot, ...] = tuple(slot(SlotState.HELD, number) for number in range(held))
    asked, _ = admission_that_knows(place(*slots, replicas=max(held, 1)))
    gated: list[str] = []

    def create(number: int) -> Callable[[], None]:
        return lambda: gated.append(ask(asked, named(number)).reservation)

    threads = [threading.Thread(target=create(number)) for number in range(asking)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(uid == PLACE_UID for uid in gated) == min(held, asking)


# --- probes


def probe(uid: str, version: str = "") -> Pod:
    notes = {VERSION_ANNOTATION: version}
    return pod("probe", namespace="berth-system", labels={PROBE_LABEL: uid}, annotations=notes)


PROBES = {
    "of a live Reservation": (HELD, probe(PLACE_UID), True),
    "of one that nobody knows": (HELD, probe("unknown"), False),
    "of a version that was heard of": (place(), probe(PLACE_UID, version="1"), True),
    "of a version that was not heard of yet": (place(), probe(PLACE_UID, version="2"), False),
    "of a finished one": (place(slot(SlotState.TAKEN), phase=DONE), probe(PLACE_UID), False),
}


@pytest.mark.parametrize(("reservation", "one", "want"), PROBES.values(), ids=PROBES.keys())
def test_a_probe_comes_back_gated(reservation: Reservation, one: Pod, want: bool) -> None:  # noqa: FBT001 - what the case wants
    asked, _ = admission_that_knows(reservation)
    answer = ask(asked, one, namespace="berth-system", dry_run=True)
    assert bool(answer.reservation) is want
    assert [gate.name for gate in patched(answer, one).spec.scheduling_gates] == [HANDOVER_GATE] * want


def test_a_probe_uses_no_slot_up() -> None:
    asked, _ = admission_that_knows(HELD)
    ask(asked, probe(PLACE_UID))
    assert ask(asked, named(0)).reservation == PLACE_UID


# --- bodies

BAD = {
    "nothing": b"",
    "no JSON": b"hello",
    "no UTF-8": b"\xff\xfe",
    "a list": b"[]",
    "no request": b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}',
    "a request without a uid": b'{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}}',
    "a uid that is a number": review(None).replace(b'"review-1"', b"1"),
    "a review of another version": review(as_api(pod())).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v2"),
    "another kind": review(as_api(pod())).replace(b'"AdmissionReview"', b'"TokenReview"'),
    "deeper than can be read": b'{"request": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD.keys())
def test_what_is_no_review_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        read_review(body)


@given(st.binary())
def test_no_bytes_break_the_reading(body: bytes) -> None:
    with pytest.raises(InputError):
        read_review(body)


ODD = {
    "nothing": None,
    "a word": "pod",
    "a pod whose containers are a word": {"spec": {"containers": "none"}},
    "a pod whose labels are numbers": {"metadata": {"labels": {"app": 1}}},
    "a pod without anything": {},
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD.keys())
def test_what_is_no_pod_is_let_be(body: Any) -> None:  # noqa: ANN401 - any body
    asked, _ = admission_that_knows(HELD)
    assert asked.answer(read_review(review(body))).body["response"] == {"uid": "review-1", "allowed": True}


def test_promises_are_forgotten_with_their_time(set_clock: Callable[[float], None]) -> None:
    asked, cache = admission_that_knows()
    for number in range(50):
        set_clock(100.0 + 4 * number)
        cache.put_reservation(place(slot(SlotState.HELD), uid=f"uid-{number}", name=f"place-{number}"))
        assert ask(asked, named(number)).reservation == f"uid-{number}"
        cache.remove_reservation(f"uid-{number}")
    assert len(asked._promises) == 1


# --- time


class BusyClock:
    """Seconds that a thread has computed: so many more with each look."""

    def __init__(self, step: float) -> None:
        self.seconds, self.step = 0.0, step

    def __call__(self) -> float:
        self.seconds += self.step
        return self.seconds


def in_namespace(reservation: Reservation, namespace: str, name: str) -> Reservation:
    metadata = msgspec.structs.replace(reservation.metadata, namespace=namespace, name=name, uid=f"{namespace}-{name}")
    return msgspec.structs.replace(reservation, metadata=metadata)


def test_a_namespace_that_takes_too_long_is_let_be_and_keeps_no_other_waiting() -> None:
    cache, step = Cache(lambda _key: None), 0.02
    slow = msgspec.structs.replace(HELD, spec=msgspec.structs.replace(HELD.spec, tasks=(task(cpu="1m"),)))
    for number in range(157):
        cache.put_reservation(in_namespace(slow, "hostile", f"r-{number}"))
    cache.put_reservation(HELD)
    asked = Admission(cache, SearchBudget(busy=BusyClock(step), now=lambda: 0.0))
    for _ in range(20):
        answer = ask(asked, pod(labels=WEB, namespace="hostile"), namespace="hostile")
        assert answer.verdict == "out of time"
        assert answer.body["response"] == {"uid": "review-1", "allowed": True}
    other = ask(asked, pod(labels=WEB))
    assert (other.reservation, other.verdict) == (PLACE_UID, "gated")
    assert ask(asked, pod()).verdict == "let be"


def test_a_search_holds_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, cache = admission_that_knows(HELD)
    find, tried = SlotFinder.find, []

    def watched(openings: SlotFinder, *arguments: Any, **options: Any) -> Reservation | None:  # noqa: ANN401 - as given
        others = threading.Thread(target=lambda: tried.append((cache.owners(), asked._promised_pods(PLACE_UID))))
        others.start()
        others.join(30)
        return find(openings, *arguments, **options)

    monkeypatch.setattr(SlotFinder, "find", watched)
    assert ask(asked, pod(labels=WEB)).reservation == PLACE_UID
    assert tried == [((), [])]


def test_a_slot_that_was_promised_during_a_search_is_not_promised_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, _ = admission_that_knows(HELD)
    find, searches = SlotFinder.find, []

    def overtaken(openings: SlotFinder, *arguments: Any, **options: Any) -> Reservation | None:  # noqa: ANN401 - as given
        found = find(openings, *arguments, **options)
        searches.append(found)
        if len(searches) == 1:
            assert ask(asked, pod("first", labels=WEB)).reservation == PLACE_UID
        return found

    monkeypatch.setattr(SlotFinder, "find", overtaken)
    assert ask(asked, pod("second", labels=WEB)).reservation == ""
    assert [found is not None for found in searches] == [True, True, False]


def test_a_template_is_compared_in_a_form_that_outlives_its_version() -> None:
    body = as_api(HELD, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    cache, now = Cache(lambda _key: None), {}
    for version in ("1", "2"):
        one = read_reservation(body | {"metadata": {**body["metadata"], "resourceVersion": version}})
        cache.put_reservation(one)
        now[version] = shape_of(one.spec.tasks[0].template.spec)
    assert now["1"] is now["2"]


def test_time_for_searches_comes_back_and_is_each_namespaces_own() -> None:
    busy, now = [0.0], [0.0]
    times = SearchBudget(busy=lambda: busy[0], now=lambda: now[0])

    def seconds_left(namespace: str) -> float:
        is_over, begun, steps = times.begin(namespace), busy[0], 0
        while not is_over():
            steps += 1
            busy[0] = begun + steps / 1000
        busy[0] = begun
        return steps / 1000

    assert seconds_left("a") == pytest.approx(0.05, abs=0.002)
    times.spend("a", 0.18)
    assert seconds_left("a") == pytest.approx(0.02, abs=0.002)
    times.spend("a", 5.0)
    assert seconds_left("a") == 0.0
    assert seconds_left("b") == pytest.approx(0.05, abs=0.002)
    now[0] = 40.0
    assert seconds_left("a") == 0.0
    now[0] = 50.0
    assert seconds_left("a") == pytest.approx(0.02, abs=0.002)
    now[0] = 600.0
    assert seconds_left("a") == pytest.approx(0.05, abs=0.002)
