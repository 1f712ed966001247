"""The cache believes the newest of what it hears, forgets what is gone for good, and queues what a change concerns."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from berth_core import NodeSpec, ObjectMeta, Pod, Taint
from berth_core.labels import HANDOVER_TAINT, RESERVATION_LABEL
from berth_core.reservations import Reservation, ReservationPhase, ReservationReason, SlotState
from berth_kube import Listed
from berth_operator.reservation.observation import ProbeResult, Verdict
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.reservation.store.pod_counts import CountedPod
from berth_operator.runtime.workqueue import SCOPE_KEY, Key, KeyKind
from handover_builders import DEADLINE, PLACE_UID, note, owner_pod, place, placeholder, slot

PLACE_KEY = Key(KeyKind.RESERVATION, PLACE_UID)


@dataclass
class Queued:
    keys: list[Key] = field(default_factory=list)

    def __call__(self, key: Key) -> None:
        self.keys.append(key)

    def taken(self) -> list[Key]:
        found, self.keys = self.keys, []
        return found


@pytest.fixture
def queued() -> Queued:
    return Queued()


@pytest.fixture
def cache(queued: Queued) -> Cache:
    return Cache(queued)


def at(version: int, of: Reservation) -> Reservation:
    metadata = msgspec.structs.replace(of.metadata, resource_version=str(version))
    return msgspec.structs.replace(of, metadata=metadata)


def bound(uid: str, to: str = "node-a") -> CountedPod:
    return msgspec.convert({"metadata": {"uid": uid}, "spec": {"nodeName": to}}, CountedPod)


def test_pods_are_counted_once_each_from_the_first_list_until_they_end(cache: Cache) -> None:
    counts = cache.pod_counts
    counts.put(bound("early"))
    counts.remove(bound("early"))
    assert counts.on("node-a") is None, "nothing was listed yet"
    counts.replace(Listed((bound("a"), bound("b"), bound("c", "node-b")), "1"))
    counts.put(bound("a"))
    counts.put(bound("d"))
    assert (counts.on("node-a"), counts.on("node-b"), counts.on("node-c")) == (3, 1, 0)
    for gone in ("a", "a", "c", "unknown"):
        counts.remove(bound(gone))
    assert (counts.on("node-a"), counts.on("node-b")) == (2, 0)
    counts.replace(Listed((bound("e", "node-b"),), "2"))
    assert (counts.on("node-a"), counts.on("node-b")) == (0, 1)


def test_pods_are_not_counted_while_their_watch_is_silent(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.monotonic()
    counts = cache.pod_counts
    counts.replace(Listed((bound("a"),), "1"))
    monkeypatch.setattr(time, "monotonic", lambda: now + 300)
    assert counts.on("node-a") is None
    counts.note_heard()
    assert counts.on("node-a") == 1


def node(name: str = "node-a", *, guarded: str | None = None, version: int = 1, uid: str = "") -> GuardableNode:
    taints = () if guarded is None else (Taint(key=HANDOVER_TAINT, value=guarded, effect="NoSchedule"),)
    metadata = ObjectMeta(name=name, uid=uid or f"uid-{name}", resource_version=str(version))
    return GuardableNode(metadata=metadata, spec=NodeSpec(taints=taints))


def node_key(name: str = "node-a") -> Key:
    return Key(KeyKind.NODE, name)


def phase_of(cache: Cache) -> ReservationPhase | None:
    known = cache.reservation(PLACE_UID)
    return known.phase if known else None


# --- Reservations

AVAILABLE, DONE = ReservationPhase.AVAILABLE, ReservationPhase.SUCCEEDED


def test_an_older_version_changes_nothing(cache: Cache, queued: Queued) -> None:
    cache.put_reservation(at(5, place(phase=DONE)))
    queued.taken()
    cache.put_reservation(at(4, place(phase=AVAILABLE)))
    cache.put_reservation(at(5, place(phase=AVAILABLE)))
    assert phase_of(cache) is DONE
    assert queued.taken() == []


def test_versions_are_numbers_not_words(cache: Cache) -> None:
    cache.put_reservation(at(9, place(phase=AVAILABLE)))
    cache.put_reservation(at(10, place(phase=DONE)))
    assert phase_of(cache) is DONE


def test_the_scope_of_the_webhook_is_queued_when_a_reservation_begins_and_ends(cache: Cache, queued: Queued) -> None:
    steps = [place(), place(phase=AVAILABLE), place(phase=DONE), place(phase=DONE)]
    for version, step in enumerate(steps, 1):
        cache.put_reservation(at(version, step))
    assert queued.taken() == [PLACE_KEY, SCOPE_KEY, PLACE_KEY, PLACE_KEY, SCOPE_KEY, PLACE_KEY]
    assert cache.live_namespaces() == frozenset()


ENDS: dict[str, Callable[[Cache], None]] = {
    "over": lambda cache: cache.put_reservation(at(2, place(phase=DONE))),
    "being deleted": lambda cache: cache.put_reservation(at(2, place(deleted="2026-11-21T12:00:00Z"))),
    "gone": lambda cache: cache.remove_reservation(PLACE_UID),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
def test_a_pod_is_compared_only_with_live_reservations_that_may_mean_it_until_they_are(
    cache: Cache, end: Callable[[Cache], None]
) -> None:
    stranger = msgspec.structs.replace(owner_pod(), metadata=ObjectMeta(name="x", namespace="default", uid="x"))
    cache.put_reservation(at(1, place()))
    assert [one.metadata.uid for one in cache.candidates(owner_pod())] == [PLACE_UID]
    assert cache.candidates(stranger) == []
    end(cache)
    assert cache.candidates(owner_pod()) == []


def test_a_reservation_that_is_being_deleted_is_not_live(cache: Cache, queued: Queued) -> None:
    cache.put_reservation(at(1, place()))
    assert cache.live_namespaces() == {"default"}
    queued.taken()
    cache.put_reservation(at(2, place(deleted="2026-11-21T12:00:00Z")))
    assert cache.live_namespaces() == frozenset()
    assert SCOPE_KEY in queued.taken()


def test_a_deleted_reservation_is_not_brought_back_by_a_late_answer(cache: Cache) -> None:
    cache.put_reservation(at(5, place()))
    cache.remove_reservation(PLACE_UID)
    cache.put_reservation(at(6, place()))
    assert cache.reservation(PLACE_UID) is None
    assert cache.live_namespaces() == frozenset()


def test_what_is_found_out_about_a_deleted_reservation_is_not_kept(cache: Cache) -> None:
    cache.put_reservation(at(5, place()))
    cache.remove_reservation(PLACE_UID)
    cache.put_probe(PLACE_UID, ProbeResult(gated=True, message=""))
    cache.put_verdict(PLACE_UID, Verdict(ReservationReason.INVALID, "no"))
    again = msgspec.structs.replace(place(), metadata=ObjectMeta(uid="another", name="place", namespace="default"))
    cache.put_reservation(again)
    assert cache.observe(PLACE_UID) is None


LISTS = {
    "an old one that is not in the list is gone": (3, "7", False),
    "one of the version of the list that is not in it is gone": (7, "7", False),
    "one that was heard of after the list was made stays": (8, "7", True),
}


@pytest.mark.parametrize(("version", "listed", "stays"), LISTS.values(), ids=LISTS.keys())
def test_a_list_of_reservations(cache: Cache, version: int, listed: str, stays: bool) -> None:  # noqa: FBT001 - what the case wants
    cache.put_reservation(at(version, place()))
    cache.replace_reservations(Listed((), listed))
    assert (cache.reservation(PLACE_UID) is not None) is stays
    cache.put_reservation(at(version + 1, place()))
    assert (cache.reservation(PLACE_UID) is not None) is stays


@pytest.mark.parametrize(("version", "listed", "stays"), LISTS.values(), ids=LISTS.keys())
def test_a_list_of_placeholders(cache: Cache, version: int, listed: str, stays: bool) -> None:  # noqa: FBT001 - what the case wants
    cache.put_placeholder(placeholder(version=str(version)))
    cache.replace_placeholders(Listed((), listed))
    assert bool(cache.placeholders()) is stays


@pytest.mark.parametrize(("version", "listed", "stays"), LISTS.values(), ids=LISTS.keys())
def test_a_list_of_owners(cache: Cache, version: int, listed: str, stays: bool) -> None:  # noqa: FBT001 - what the case wants
    cache.put_owner(owner_pod(version=str(version)))
    cache.replace_owners(Listed((), listed))
    assert bool(cache.owners()) is stays


@pytest.mark.parametrize(("version", "listed", "stays"), LISTS.values(), ids=LISTS.keys())
def test_a_list_of_nodes(cache: Cache, version: int, listed: str, stays: bool) -> None:  # noqa: FBT001 - what the case wants
    cache.put_node(node(guarded="5", version=version))
    cache.replace_nodes(Listed((), listed))
    assert (cache.guards.deadline("node-a") is not None) is stays


def test_a_list_is_taken_in(cache: Cache) -> None:
    cache.replace_reservations(Listed((at(3, place()),), "7"))
    cache.replace_placeholders(Listed((placeholder(),), "7"))
    cache.replace_owners(Listed((owner_pod(),), "7"))
    cache.replace_nodes(Listed((node(),), "7"))
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert list(seen.placeholders) == [("web", 0)]
    assert [pod.metadata.name for pod in seen.owners] == ["web-0"]
    assert seen.missing_nodes == frozenset()


# --- pods


def test_a_placeholder_made_anew_under_its_name_takes_the_place_of_the_old_one(cache: Cache) -> None:
    cache.put_placeholder(placeholder(uid="old", version="3"))
    cache.put_placeholder(placeholder(uid="new", version="5"))
    cache.remove_placeholder(placeholder(uid="old", version="4"))
    assert [pod.metadata.uid for pod in cache.placeholders()] == ["new"]
    cache.put_placeholder(placeholder(uid="old", version="6"))
    assert [pod.metadata.uid for pod in cache.placeholders()] == ["new"]


def test_a_pod_that_lost_its_label_is_forgotten_until_a_newer_version_has_it(cache: Cache) -> None:
    cache.put_owner(owner_pod(version="3"))
    cache.put_owner(owner_pod(labels={"app": "web"}, version="5"))
    assert cache.owners() == ()
    cache.put_owner(owner_pod(version="4"))
    assert cache.owners() == ()
    cache.put_owner(owner_pod(version="6"))
    assert len(cache.owners()) == 1


def test_a_late_word_of_a_lost_label_does_not_take_the_newer_one_away(cache: Cache) -> None:
    cache.put_owner(owner_pod(version="6"))
    cache.remove_owner(owner_pod(version="5"), for_good=False)
    assert len(cache.owners()) == 1


def test_a_deleted_owner_is_gone_for_good(cache: Cache) -> None:
    cache.put_owner(owner_pod(version="3"))
    cache.remove_owner(owner_pod(version="3"))
    cache.put_owner(owner_pod(version="9"))
    assert cache.owners() == ()


def test_a_pod_that_changes_its_reservation_concerns_both(cache: Cache, queued: Queued) -> None:
    cache.put_owner(owner_pod(version="1"))
    queued.taken()
    cache.put_owner(owner_pod(labels={RESERVATION_LABEL: "another"}, version="2"))
    assert set(queued.taken()) == {PLACE_KEY, Key(KeyKind.RESERVATION, "another")}
    assert cache.pods_of(PLACE_UID) == ((), ())
    assert len(cache.pods_of("another")[1]) == 1


def test_a_note_concerns_its_node_when_it_comes_and_when_it_goes(cache: Cache, queued: Queued) -> None:
    cache.put_owner(owner_pod(given=note(), version="1"))
    assert node_key() in queued.taken()
    cache.put_owner(owner_pod(version="2"))
    assert node_key() in queued.taken()
    assert cache.nodes_of_interest() == set()


def test_listeners_hear_of_a_new_owner_once_and_before_it_is_known(cache: Cache) -> None:
    heard: list[tuple[str, int]] = []
    cache.on_new_owner(lambda pod: heard.append((pod.metadata.name, len(cache.owners()))))
    cache.put_owner(owner_pod(version="1"))
    cache.put_owner(owner_pod(version="2"))
    assert heard == [("web-0", 0)]


def test_pods_of_unknown_reservations_are_told_of(cache: Cache) -> None:
    cache.put_placeholder(placeholder())
    cache.put_owner(owner_pod(labels={RESERVATION_LABEL: "another"}))
    assert cache.named_uids() == {PLACE_UID, "another"}
    assert cache.observe(PLACE_UID) is None


# --- nodes and guards


def test_a_guard_is_observed_with_its_deadline_for_the_nodes_of_the_hand_overs_only(cache: Cache) -> None:
    cache.put_reservation(place(slot(SlotState.HELD)))
    cache.put_owner(owner_pod(given=note()))
    cache.put_node(node(guarded=str(DEADLINE)))
    cache.put_node(node("node-b", guarded="7"))
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert {name: guard.deadline for name, guard in seen.guards.items()} == {"node-a": DEADLINE}


def test_the_age_of_a_guard_begins_anew_when_it_was_off(cache: Cache) -> None:
    now = 100.0
    cache.count_time_by(lambda: now)
    cache.put_reservation(place(slot(SlotState.HELD)))
    cache.put_owner(owner_pod(given=note()))
    ages = []
    for version, guarded in enumerate(["5", "6", None, "7"], 1):
        cache.put_node(node(guarded=guarded, version=version))
        now += 1
        seen = cache.observe(PLACE_UID)
        assert seen is not None
        ages.append(seen.guards["node-a"].age_seconds if seen.guards else None)
    assert ages == [1.0, 2.0, None, 1.0]


def test_a_slot_that_several_pods_claim_counts_once_until_its_last_deadline(cache: Cache) -> None:
    cache.put_reservation(place(slot(SlotState.HELD)))
    for number, later in enumerate((5, 9, 0)):
        cache.put_owner(owner_pod(f"web-{number}", given=note(deadline=DEADLINE + later)))
    assert cache.guards.users("node-a") == (note(deadline=DEADLINE + 9),)


USERS: dict[str, tuple[Pod, bool]] = {
    "a pod on its way": (owner_pod(given=note()), True),
    "a pod that is bound there": (owner_pod(given=note(), gates=(), node="node-a"), False),
    "a pod that is bound elsewhere": (owner_pod(given=note(), gates=(), node="node-b"), False),
    "a pod that is being deleted": (owner_pod(given=note(), deleted="2026-11-21T12:00:00Z"), False),
    "a stranger": (owner_pod(given=note(), labels={RESERVATION_LABEL: PLACE_UID}), False),
    "a pod of an unknown Reservation": (owner_pod(given=note(), labels={RESERVATION_LABEL: "another"}), False),
    "a pod with a note of another node than its slot's": (owner_pod(given=note(node="node-z")), False),
}


@pytest.mark.parametrize(("pod", "counts"), USERS.values(), ids=USERS.keys())
def test_who_needs_a_guard(cache: Cache, pod: Pod, counts: bool) -> None:  # noqa: FBT001 - what the case wants
    cache.put_reservation(place(slot(SlotState.HELD)))
    cache.put_owner(pod)
    assert bool(cache.guards.users("node-a") or cache.guards.users("node-z")) is counts


def test_a_node_that_needs_a_guard_is_of_interest_though_it_has_none(cache: Cache) -> None:
    """A restarted operator must find it again: nothing else remembers."""
    cache.put_owner(owner_pod(given=note()))
    cache.put_node(node("node-b", guarded="5"))
    assert cache.nodes_of_interest() == {"node-a", "node-b"}


def test_a_node_that_goes_concerns_what_is_held_and_handed_over_there(cache: Cache, queued: Queued) -> None:
    other = owner_pod("db-0", given=note(), labels={RESERVATION_LABEL: "another"})
    cache.put_reservation(place(slot(SlotState.HELD)))
    cache.put_placeholder(placeholder())
    cache.put_owner(other)
    cache.put_node(node())
    queued.taken()
    cache.remove_node(node(version=2))
    assert {PLACE_KEY, Key(KeyKind.RESERVATION, "another")} <= set(queued.taken())
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.missing_nodes == {"node-a"}


def test_a_node_made_anew_under_its_name_is_not_taken_away_with_the_old_one(cache: Cache) -> None:
    cache.put_node(node(guarded="5", version=3, uid="new"))
    cache.remove_node(node(version=2, uid="old"))
    assert cache.guards.deadline("node-a") == "5"


# --- observing


def test_an_unreadable_reservation_comes_with_the_verdict(cache: Cache) -> None:
    one = place()
    metadata = msgspec.structs.replace(one.metadata, unreadable="tolerations is a word")
    cache.put_reservation(msgspec.structs.replace(one, metadata=metadata))
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.verdict == Verdict(ReservationReason.INVALID, "tolerations is a word")


def test_a_placeholder_without_an_index_holds_no_slot(cache: Cache) -> None:
    odd = placeholder()
    odd = msgspec.structs.replace(odd, metadata=msgspec.structs.replace(odd.metadata, annotations={}))
    cache.put_reservation(place())
    cache.put_placeholder(odd)
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert seen.placeholders == {}


def test_owners_are_seen_oldest_first(cache: Cache) -> None:
    cache.put_reservation(place())
    cache.put_owner(owner_pod("young", created="2026-11-21T12:00:05Z"))
    cache.put_owner(owner_pod("old", created="2026-11-21T12:00:01Z"))
    seen = cache.observe(PLACE_UID)
    assert seen is not None
    assert [pod.metadata.name for pod in seen.owners] == ["old", "young"]


@given(
    st.lists(
        st.tuples(st.sampled_from(["put", "unlabel", "remove"]), st.integers(0, 2), st.integers(1, 30)), max_size=40
    )
)
@settings(deadline=None)
def test_the_indexes_agree_with_a_plain_search(steps: list[tuple[str, int, int]]) -> None:
    cache = Cache(lambda _key: None)
    for action, number, version in steps:
        labels = {"app": "web", RESERVATION_LABEL: f"place-{version % 3}"}
        pod = owner_pod(
            f"web-{number}",
            labels=labels,
            given=note(node=f"node-{version % 2}") if version % 4 else None,
            version=str(version),
        )
        match action:
            case "put":
                cache.put_owner(pod)
            case "unlabel":
                cache.put_owner(owner_pod(f"web-{number}", labels={"app": "web"}, version=str(version)))
            case _:
                cache.remove_owner(pod, for_good=version % 7 == 0)
    owners = cache.owners()
    for uid in ("place-0", "place-1", "place-2"):
        mine = {pod.metadata.name for pod in owners if pod.metadata.labels[RESERVATION_LABEL] == uid}
        assert {pod.metadata.name for pod in cache.pods_of(uid)[1]} == mine
    named = {pod.metadata.annotations[key].split("/")[2] for pod in owners for key in pod.metadata.annotations}
    assert cache.nodes_of_interest() == named
