"""Pods that wait for a place and were not gated find the Reservation that holds one for them; gated ones another."""
# ruff: noqa: ANN401 - a builder passes on what the case says

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api_server_in_memory import ApiServerInMemory, error
from berth_core import LabelSelector, LabelSelectorRequirement, OwnerReference, Pod, PodCondition
from berth_core.labels import MOVE_ANNOTATION, RESERVATION_LABEL
from berth_core.matching import owner_matches
from berth_core.migration_plans import PLAN_API_VERSION, PLAN_KIND
from berth_core.reservations import ObjectReference, Reservation, ReservationOwner, ReservationPhase, SlotState
from berth_kube.errors import ServerError
from berth_kube.resources import PODS
from berth_operator.reservation.act.context import Context
from berth_operator.reservation.act.pending_owners import PendingOwners, distribute
from berth_operator.reservation.actions import Release
from berth_operator.reservation.observation import Observation
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.owner_index import OwnerIndex
from berth_operator.reservation.store.slot_matching import SlotFinder
from berth_operator.runtime.workqueue import WAITING_KEY, Key, KeyKind
from berth_operator.settings import OperatorSettings
from builders import FakeClock, as_api, label_owner, object_owner, owner, pod
from handover_builders import (
    PROVEN,
    UNSCHEDULABLE,
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

LABELS = {"app": "web"}


def with_conditions(made: Pod, *conditions: PodCondition) -> Pod:
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions))


def hungry(name: str, *, second: int = 0, **rest: Any) -> Pod:
    """A pod for which the scheduler found no place."""
    created = f"2026-11-21T12:00:{second:02}Z"
    rest = {"gates": (), "labels": LABELS, "created": created} | rest
    return with_conditions(owner_pod(name, **rest), UNSCHEDULABLE)


def holding(count: int, name: str = "place", **rest: Any) -> Reservation:
    """A Reservation whose slots are all held."""
    slots = [slot(SlotState.HELD, number) for number in range(count)]
    return place(*slots, replicas=count, name=name, **rest)


FIRST, SECOND = holding(1, "first", created="2026-11-21T11:00:00Z"), holding(1, "second")


def of_plan(name: str, move: int, created: str) -> Reservation:
    made = holding(1, name, created=created, annotations={MOVE_ANNOTATION: str(move)})
    plan = OwnerReference(api_version=PLAN_API_VERSION, kind=PLAN_KIND, name="plan", uid="uid-plan", controller=True)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, owner_references=(plan,)))


BEFORE, AFTER = of_plan("before", 9, "2026-11-21T11:45:00Z"), of_plan("after", 10, "2026-11-21T11:30:00Z")
OVER = holding(1, "over", phase=ReservationPhase.FAILED)


# --- sharing out


@dataclass(frozen=True, kw_only=True)
class Sharing:
    reservations: Sequence[Reservation] = (FIRST,)
    pods: Sequence[Pod]
    want: dict[str, list[str]] = field(default_factory=dict)
    want_again: set[str] = field(default_factory=set)


SHARINGS = {
    "the oldest pods get the slots": Sharing(
        pods=[hungry("young", second=2), hungry("old", second=1)], want={"first": ["old"]}
    ),
    "the oldest Reservation is used first": Sharing(
        reservations=[SECOND, FIRST],
        pods=[hungry("a"), hungry("b"), hungry("c")],
        want={"first": ["a"], "second": ["b"]},
    ),
    "those of a plan are used in the order of its moves, when the first of them is the oldest": Sharing(
        reservations=[SECOND, AFTER, BEFORE, FIRST],
        pods=[hungry(name) for name in "abcd"],
        want={"first": ["a"], "before": ["b"], "after": ["c"], "second": ["d"]},
    ),
    "a pod that the scheduler has not looked at may still find a place": Sharing(
        pods=[owner_pod("new", gates=(), labels=LABELS)], want_again={"first"}
    ),
    "a pod that anybody's gate keeps back does not wait for a place": Sharing(
        pods=[hungry("gated", gates=("example.com/not-yet",))]
    ),
    "a pod that is going does not wait": Sharing(pods=[hungry("going", deleted="2026-11-21T12:00:00Z")]),
    "a pod of another Reservation is left to that": Sharing(
        pods=[hungry("sent", labels={**LABELS, RESERVATION_LABEL: "x"})]
    ),
    "a pod of somebody else": Sharing(pods=[hungry("stranger", labels={"app": "db"})]),
    "a pod that is too large": Sharing(pods=[hungry("large", cpu="64")]),
    "a pod of another namespace": Sharing(pods=[hungry("far", namespace="other")]),
}


@pytest.mark.parametrize("case", SHARINGS.values(), ids=SHARINGS.keys())
def test_who_gets_a_slot_of_those_that_wait(case: Sharing) -> None:
    found, again = distribute(list(case.reservations), tuple(case.pods))
    told = {uid.removeprefix("uid-default-"): [one.metadata.name for one in pods] for uid, pods in found.items()}
    assert told == case.want
    assert {uid.removeprefix("uid-default-") for uid in again} == case.want_again


# --- the index

SELECTORS = st.one_of(
    st.builds(label_owner, app=st.sampled_from(["web", "db"])),
    st.builds(label_owner, app=st.sampled_from(["web", "db"]), tier=st.sampled_from(["a", "b"])),
    st.builds(
        lambda values: ReservationOwner(
            label_selector=LabelSelector(
                match_expressions=(LabelSelectorRequirement(key="app", operator="In", values=tuple(values)),)
            )
        ),
        st.lists(st.sampled_from(["web", "db"]), min_size=1),
    ),
    st.builds(
        object_owner,
        st.sampled_from(["Pod", "ReplicaSet", "Deployment", "Job"]),
        st.sampled_from(["web", "web-7d4f", "web-0"]),
        uid=st.sampled_from(["", "", "uid-replicaset-web-7d4f", "uid-web-0"]),
    ),
)
PODS_OF_ALL_KINDS = st.builds(
    lambda name, app, tier, kind, of: pod(
        name,
        uid=f"uid-{name}",
        labels={"app": app, "tier": tier, "pod-template-hash": "7d4f"},
        controller=owner(kind, of),
    ),
    st.sampled_from(["web-0", "web-1"]),
    st.sampled_from(["web", "db"]),
    st.sampled_from(["a", "b"]),
    st.sampled_from(["ReplicaSet", "Job"]),
    st.sampled_from(["web-7d4f", "web"]),
)


EITHER = st.builds(
    lambda one, other: ReservationOwner(
        object=one.object or other.object, label_selector=one.label_selector or other.label_selector
    ),
    SELECTORS,
    SELECTORS,
)


@given(owners=st.lists(st.lists(SELECTORS | EITHER, min_size=1, max_size=3), max_size=6), one=PODS_OF_ALL_KINDS)
def test_the_index_misses_no_reservation_that_a_pod_belongs_to(owners: list[list[ReservationOwner]], one: Pod) -> None:
    all_of_them = [place(name=f"r-{number}", owners=several) for number, several in enumerate(owners)]
    found = {r.metadata.name for r in OwnerIndex(all_of_them).candidates(one)}
    want = {r.metadata.name for r in all_of_them if any(owner_matches(of, one) for of in r.spec.owners)}
    assert want <= found


def test_the_index_does_not_ask_every_reservation() -> None:
    many = [place(name=f"r-{number}", owners=[label_owner(app=f"app-{number}")]) for number in range(100)]
    (only,) = OwnerIndex(many).candidates(pod(labels={"app": "app-7"}))
    assert only.metadata.name == "r-7"


def test_reservations_of_another_namespace_are_never_asked() -> None:
    index = OwnerIndex(place(name=f"r-{n}", namespace="hostile", owners=[label_owner(app="web")]) for n in range(9))
    assert index.candidates(pod(labels={"app": "web"})) == []
    assert len(index.candidates(pod(labels={"app": "web"}, namespace="hostile"))) == 9


def selecting(operator: str, key: str, *values: str) -> ReservationOwner:
    expression = LabelSelectorRequirement(key=key, operator=operator, values=values)
    return ReservationOwner(label_selector=LabelSelector(match_expressions=(expression,)))


@pytest.mark.parametrize(
    "owner_of",
    [
        lambda n: selecting("In", "app", f"app-{n}", f"app-{n}-canary"),
        lambda n: selecting("Exists", f"app-{n}"),
        lambda n: object_owner("Deployment", f"shop-{n}"),
        lambda n: selecting("In", f"app-{n}", *map(str, range(200))),
    ],
    ids=["one of several values", "a label of any value", "a Deployment", "a long list of values"],
)
def test_the_index_asks_only_reservations_that_may_mean_the_pod(owner_of: Callable[[int], ReservationOwner]) -> None:
    many = OwnerIndex(place(name=f"r-{number}", owners=[owner_of(number)]) for number in range(100))
    labels = {"app": "app-7-canary", "app-7": "7", "pod-template-hash": "7d4f"}
    (only,) = many.candidates(pod(labels=labels, controller=owner("ReplicaSet", "shop-7-7d4f")))
    assert only.metadata.name == "r-7"


# --- looking


@dataclass
class Search:
    api: ApiServerInMemory = field(default_factory=ApiServerInMemory)
    queued: list[tuple[Key, float]] = field(default_factory=list)
    cache: Cache = field(default_factory=lambda: Cache(lambda _key: None))

    def __post_init__(self) -> None:
        self.pending = PendingOwners(
            Context(self.api.as_client(), self.cache, OperatorSettings(), FakeClock()),
            lambda key, delay: self.queued.append((key, delay)),
        )

    def know(self, *things: Reservation | Pod) -> None:
        for one in things:
            if isinstance(one, Reservation):
                self.cache.put_reservation(one)
            else:
                self.api.put(PODS, as_api(one))

    def waiting(self, name: str) -> list[str]:
        seen = self.cache.observe(f"uid-default-{name}")
        assert seen is not None
        return [one.metadata.name for one in seen.waiting]


@pytest.fixture
def search() -> Search:
    return Search()


@pytest.mark.parametrize(("count", "lists"), [(2, 2), (6, 1)])
def test_only_the_namespaces_of_those_that_asked_are_looked_through_if_they_are_few(
    search: Search, count: int, lists: int
) -> None:
    for number in range(count):
        search.know(holding(1, f"place-{number}", namespace=f"team-{number}"))
        search.pending.request(f"uid-team-{number}-place-{number}")
    search.know(hungry("a", namespace="team-1"))
    search.pending.search()
    assert len([call for call in search.api.calls if call.startswith("list pods")]) == lists
    seen = search.cache.observe("uid-team-1-place-1")
    assert seen is not None
    assert [one.metadata.name for one in seen.waiting] == ["a"]


def test_one_look_serves_all_reservations_that_asked(search: Search) -> None:
    search.know(FIRST, SECOND, hungry("a"), hungry("b"))
    for name in ("first", "second"):
        search.pending.request(f"uid-default-{name}")
    search.pending.search()
    search.pending.search()
    assert (search.waiting("first"), search.waiting("second")) == (["a"], ["b"])
    assert search.api.calls == ["list pods status.phase=Pending,spec.nodeName="]
    assert search.queued[0] == (WAITING_KEY, 0.0)


def test_now_and_then_pods_are_looked_for_for_every_reservation_with_a_slot_to_give(search: Search) -> None:
    search.know(FIRST, OVER, place(slot(SlotState.TAKEN), name="taken"), hungry("a"))
    search.pending.request_all()
    search.pending.search()
    assert search.waiting("first") == ["a"]


def test_looks_are_a_second_apart(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berth_operator.reservation.act.pending_owners.time", SimpleNamespace(monotonic=lambda: 100.0))
    search.know(FIRST)
    search.pending.request("uid-default-first")
    search.pending.search()
    search.pending.request("uid-default-first")
    assert search.queued[-1][1] == pytest.approx(1.0)


def test_for_a_reservation_that_is_over_nobody_looks(search: Search) -> None:
    search.know(OVER)
    search.pending.request("uid-default-over")
    search.pending.request("uid-default-gone")
    search.pending.search()
    assert search.api.calls == []


def test_a_look_that_failed_is_made_again(search: Search) -> None:
    search.know(FIRST, hungry("a"))
    search.api.faults["list pods status.phase=Pending,spec.nodeName="] = error(ServerError)
    search.pending.request("uid-default-first")
    with pytest.raises(ServerError):
        search.pending.search()
    search.api.faults.clear()
    search.pending.search()
    assert search.waiting("first") == ["a"]


def test_a_pod_that_was_given_its_slot_waits_no_more(search: Search) -> None:
    search.know(FIRST, hungry("a"))
    search.pending.request("uid-default-first")
    search.pending.search()
    served = hungry("a", labels={**LABELS, RESERVATION_LABEL: "uid-default-first"})
    search.cache.put_owner(at_version(served, "900"))
    assert search.waiting("first") == []


def test_more_held_slots_are_searched_for_again() -> None:
    queued: list[Key] = []
    cache = Cache(queued.append)
    cache.put_reservation(dated(holding(1), "10"))
    cache.put_waiting("uid-default-place", ())
    assert was_searched(cache)
    cache.put_reservation(dated(holding(2), "11"))
    assert not was_searched(cache)
    assert set(queued) >= {Key(KeyKind.RESERVATION, "uid-default-place")}


def was_searched(cache: Cache) -> bool:
    seen = cache.observe("uid-default-place")
    assert seen is not None
    return seen.searched


def dated(of: Reservation, version: str) -> Reservation:
    return msgspec.structs.replace(of, metadata=msgspec.structs.replace(of.metadata, resource_version=version))


# --- another Reservation for a gated pod


def sent_to(name: str, pod_name: str = "earlier") -> Pod:
    return owner_pod(pod_name, labels={**LABELS, RESERVATION_LABEL: f"uid-default-{name}"})


def handing_over_to(name: str, uid: str) -> Reservation:
    earlier = ObjectReference(api_version="v1", kind="Pod", namespace="default", name=name, uid=uid)
    slots = (slot(SlotState.HANDING_OVER, owner=earlier),)
    return msgspec.structs.replace(FIRST, status=msgspec.structs.replace(FIRST.status, slots=slots))


@dataclass(frozen=True, kw_only=True)
class Opening:
    known: Sequence[Reservation] = ()
    waiting: Sequence[Pod] = ()
    besides: str = "uid-default-full"
    pod: Pod = field(default_factory=lambda: owner_pod("late"))
    want: str | None = None


OPENINGS = {
    "the oldest with a held slot": Opening(known=[SECOND, FIRST], want="first"),
    "not the one that it comes from": Opening(known=[FIRST, SECOND], besides="uid-default-first", want="second"),
    "not one whose slot a gated pod waits for": Opening(
        known=[FIRST, SECOND], waiting=[sent_to("first")], want="second"
    ),
    "one whose slot is on its way to an earlier pod of the same name, which must be gone": Opening(
        known=[handing_over_to("late", "uid-of-the-earlier")], want="first"
    ),
    "not one whose slot is on its way to a pod of another name": Opening(
        known=[handing_over_to("another", "uid-of-another")]
    ),
    "not one whose slot is on its way to the pod itself": Opening(known=[handing_over_to("late", "uid-late")]),
    "not one that is over": Opening(known=[OVER]),
    "not one in another namespace": Opening(known=[holding(1, namespace="other")]),
    "not one of other owners": Opening(known=[holding(1, owners=[label_owner(app="db")])]),
    "not one that is too small": Opening(known=[FIRST], pod=owner_pod("late", cpu="64")),
    "none is there": Opening(),
}


@pytest.mark.parametrize("case", OPENINGS.values(), ids=OPENINGS.keys())
def test_where_a_pod_without_a_slot_may_go(case: Opening) -> None:
    cache = Cache(lambda _key: None)
    for reservation in case.known:
        cache.put_reservation(reservation)
    for one in case.waiting:
        cache.put_owner(one)
    found = SlotFinder(cache).find(case.pod, besides=case.besides)
    assert (found.metadata.name if found else None) == case.want


# --- the decision

HELD = place(slot(SlotState.HELD))
UNSERVED = owner_pod("waiting", gates=(), labels={"app": "web"})


def test_a_pod_that_waited_already_gets_a_slot_that_no_gated_pod_needs() -> None:
    both = place(slot(SlotState.HELD, 0), slot(SlotState.HELD, 1), replicas=2)
    seen = observe(
        both,
        placeholder(0),
        placeholder(1),
        owner_pod("gated"),
        probe=PROVEN,
        waiting=(UNSERVED, owner_pod("later", gates=(), labels={"app": "web"})),
    )
    assert [told(action) for action in decide_now(seen).actions] == [("AssignSlot", "gated"), ("AssignSlot", "waiting")]


SEARCHES = {
    "a slot is held": (observe(HELD, placeholder(), probe=PROVEN), True),
    "it was searched a moment ago": (observe(HELD, placeholder(), probe=PROVEN, searched=True), False),
    "the slot was just given": (observe(HELD, placeholder(), owner_pod(), probe=PROVEN), False),
    "nothing is held": (observe(place(), placeholder(node="")), False),
    "all is over": (observe(place(slot(SlotState.HELD), phase=ReservationPhase.FAILED), placeholder()), False),
}


# --- pods that waited, bound in each other's place

SWAPPED = place(
    slot(SlotState.HANDING_OVER, 0), slot(SlotState.HANDING_OVER, 1, node="node-b"), replicas=2, name="place"
)
"""Its first owner is sent to node-a, whose placeholder is gone; its second was bound there first."""
ROBBED = owner_pod("web-0", given=note(), gates=(), nominated_node="node-a")
ROBBER = owner_pod("web-1", given=note(1, node="node-b"), gates=(), node="node-a")
GUARDED = {"node-a": guard(), "node-b": guard()}


def test_a_pod_that_was_bound_in_another_ones_place_has_its_slot_and_leaves_its_own_to_it() -> None:
    seen = observe(SWAPPED, placeholder(1, node="node-b"), ROBBED, ROBBER, guards=GUARDED, probe=PROVEN)
    found = decide_now(seen)
    first, second = found.status.slots
    assert (first.state, first.owner and first.owner.name) == (SlotState.HANDING_OVER, "web-1")
    assert (second.state, second.owner) == (SlotState.HELD, None)
    assert [told(action) for action in found.actions] == [("ExtendHandover", "web-1"), ("Release", "web-0")]

    noted = owner_pod("web-1", given=note(), gates=(), node="node-a", started=True)
    waits = with_conditions(owner_pod("web-0", gates=(), labels=LABELS), UNSCHEDULABLE)
    later = observe(
        msgspec.structs.replace(SWAPPED, status=found.status),
        placeholder(1, node="node-b"),
        noted,
        guards=GUARDED,
        probe=PROVEN,
        waiting=(waits,),
    )
    after = decide_now(later)
    assert [one.state for one in after.status.slots] == [SlotState.TAKEN, SlotState.HELD]
    assert [told(action) for action in after.actions] == [("CompleteHandover", "web-1"), ("AssignSlot", "web-0")]


NOT_SWAPPED = {
    "its own placeholder is gone: each may be bound in the place of the other": (ROBBED, ROBBER),
    "the first owner was bound there as well": (
        placeholder(1, node="node-b"),
        owner_pod("web-0", given=note(), gates=(), node="node-a"),
        ROBBER,
    ),
    "the first place is held still": (placeholder(), placeholder(1, node="node-b"), ROBBED, ROBBER),
}


@pytest.mark.parametrize("pods", NOT_SWAPPED.values(), ids=NOT_SWAPPED)
def test_no_slot_changes_its_owner_where(pods: tuple[Pod, ...]) -> None:
    first = decide_now(observe(SWAPPED, *pods, guards=GUARDED, probe=PROVEN)).status.slots[0]
    assert first.owner is not None
    assert first.owner.name == "web-0"


@pytest.mark.parametrize(("seen", "want"), SEARCHES.values(), ids=SEARCHES.keys())
def test_pods_that_wait_are_searched_for_when_there_is_a_slot_for_them(seen: Observation, *, want: bool) -> None:
    assert decide_now(seen).seeks_owners is want


SENT_ON = {
    "all slots are taken": (
        observe(
            place(slot(SlotState.HANDING_OVER)), owner_pod(given=note()), owner_pod("late"), guards={"node-a": guard()}
        ),
        True,
    ),
    "a pod without the gate cannot be sent on": (observe(HELD, placeholder(), owner_pod("late", gates=())), False),
    "the Reservation is over": (
        observe(place(slot(SlotState.HELD), phase=ReservationPhase.FAILED), placeholder(), owner_pod("late")),
        True,
    ),
}


@pytest.mark.parametrize(("seen", "want"), SENT_ON.values(), ids=SENT_ON.keys())
def test_a_gated_pod_without_a_slot_is_sent_to_another_reservation_if_it_can_be(
    seen: Observation, *, want: bool
) -> None:
    released = [action for action in decide_now(seen).actions if isinstance(action, Release)]
    assert [(one.pod.metadata.name, one.elsewhere) for one in released] == [("late", want)]
