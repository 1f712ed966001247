"""The engine believes in a loss only after asking, tries again later each time, and says what it cannot go on with."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core import ObjectMeta
from berth_core.labels import SLOTS_ADD_UP_ANNOTATION
from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, ReservationPhase, SlotState
from berth_kube.errors import ForbiddenError, InvalidObjectError, ServerError
from berth_kube.resources import NODES, PODS, RESERVATIONS
from berth_operator.reservation.act.webhook_registration import WebhookRegistration
from berth_operator.reservation.actions import AssignSlot, Release
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.app import App
from berth_operator.runtime.controller import Controller
from berth_operator.runtime.workqueue import Key, KeyKind, WorkQueue
from berth_operator.settings import HandoverSettings, OperatorSettings
from builders import FakeClock, as_api, task
from handover_builders import PLACE_UID, note, owner_pod, place, placeholder, slot
from waiting import soon

PLACE_KEY = Key(KeyKind.RESERVATION, PLACE_UID)


class Watched(ApiServerInMemory):
    """An API server that forbids to watch."""

    def watch(self, *_: Any, **__: Any) -> Iterator[Any]:  # noqa: ANN401 - takes what the client takes
        raise error(ForbiddenError, "no right to watch")


class Closable(ApiServerInMemory):
    """An API server whose connections can be closed."""

    def close(self) -> None:
        """There are none."""


def build_engine(
    api: ApiServerInMemory, settings: OperatorSettings | None = None
) -> tuple[Controller, Cache, WorkQueue]:
    queue = WorkQueue()
    cache = Cache(queue.add)
    scope = WebhookRegistration(
        api.as_client(),
        client_config=dict,
        live_namespaces=cache.live_namespaces,
        own_namespace="berth-system",
        timeout_seconds=2,
    )
    settings = settings or OperatorSettings(workers=1)
    return Controller(api.as_client(), cache, queue, scope, settings, FakeClock()), cache, queue


def test_a_node_that_was_only_unheard_of_is_not_lost() -> None:
    api = ApiServerInMemory()
    engine, cache, _ = build_engine(api)
    cache.put_reservation(place())
    cache.put_placeholder(placeholder())
    api.put(NODES, {"metadata": {"name": "node-a", "uid": "uid-node-a"}, "spec": {}})
    seen = engine._reservations._observe(PLACE_UID)
    assert seen is not None
    assert seen.missing_nodes == frozenset()


def test_a_node_that_the_api_server_does_not_know_is_lost() -> None:
    engine, cache, _ = build_engine(ApiServerInMemory())
    cache.put_reservation(place())
    cache.put_placeholder(placeholder())
    seen = engine._reservations._observe(PLACE_UID)
    assert seen is not None
    assert seen.missing_nodes == {"node-a"}


QUIET = {
    "a finished Reservation": place(slot(SlotState.HELD), phase=ReservationPhase.FAILED, reason="NodeLost"),
    "a Reservation whose node is known": place(slot(SlotState.HELD)),
}


@pytest.mark.parametrize("reservation", QUIET.values(), ids=QUIET.keys())
def test_the_api_server_is_not_asked_about_the_nodes_of(reservation: Any) -> None:  # noqa: ANN401 - the case
    api = ApiServerInMemory()
    engine, cache, _ = build_engine(api)
    cache.put_reservation(reservation)
    if not reservation.phase.terminal:
        cache.put_node(GuardableNode(metadata=ObjectMeta(name="node-a", resource_version="1")))
    engine._reservations._observe(PLACE_UID)
    assert api.calls == []


def test_what_fails_is_tried_again_later_each_time_and_at_once_after_a_success(monkeypatch: pytest.MonkeyPatch) -> None:
    engine, _, queue = build_engine(ApiServerInMemory())
    delays: list[float] = []
    monkeypatch.setattr(queue, "add", lambda _key, delay=0.0: delays.append(delay))
    for _ in range(8):
        engine.workers._retry(PLACE_KEY, error(ServerError))
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
    engine.workers._failures[PLACE_KEY] = 5_000  # as after hours
    engine.workers._retry(PLACE_KEY, error(ServerError))
    assert delays[-1] == 10.0
    engine.workers.reconcile(PLACE_KEY)
    engine.workers._retry(PLACE_KEY, error(ServerError))
    assert delays[-1] == 0.2


def test_a_key_that_comes_without_the_lease_makes_its_next_holder_sweep() -> None:
    api = ApiServerInMemory()
    engine, _, queue = build_engine(api)
    engine._spawn("worker", engine.workers.work)
    queue.add(PLACE_KEY)
    assert engine.workers.dropped.wait(30)
    assert api.calls == []
    engine.stop()


def test_a_watch_that_is_forbidden_ends_the_start_with_that_word() -> None:
    api = Watched()
    api.put(RESERVATIONS, as_api(place(), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    engine, _, _ = build_engine(api)
    with pytest.raises(ForbiddenError, match="no right to watch"):
        engine.start()
    soon(
        "every watch has ended",
        lambda: "a thread has ended: placeholders, fences, owners, nodes" in engine.why_not_serving(),
    )
    assert not engine.healthy
    assert "no right to watch" in engine.why_not_serving()
    engine.stop()
    assert engine.why_not_serving() == "the operator is about to stop"


def test_a_replica_that_acts_no_more_believes_what_the_next_leader_writes() -> None:
    """It answers reviews for a while: a place that another one holds by now has to count."""
    engine, cache, _ = build_engine(ApiServerInMemory())
    pending, held = place(slot(SlotState.PENDING), phase=ReservationPhase.PENDING), place(slot(SlotState.HELD))
    cache.put_reservation(pending)
    cache.put_written(PLACE_UID, pending.status, cache.epoch)
    engine.stop_acting()
    metadata = msgspec.structs.replace(held.metadata, resource_version="2")
    cache.put_reservation(msgspec.structs.replace(held, metadata=metadata))
    believed = cache.reservation(PLACE_UID)
    assert believed is not None
    assert believed.status == held.status
    engine.stop()


@pytest.mark.parametrize("passes_by_itself", [True, False])
def test_the_first_list_of_reservations_is_tried_again_only_if_its_error_passes(*, passes_by_itself: bool) -> None:
    api = ApiServerInMemory()
    kind = ServerError if passes_by_itself else ForbiddenError
    api.faults = {"list reservations ": error(kind, "not now")}
    engine, _, _ = build_engine(api)
    engine._stop.wait = lambda _seconds: api.faults.clear() or False  # type: ignore[method-assign,assignment,func-returns-value]
    if passes_by_itself:
        engine._list_reservations()
        assert api.calls.count("list reservations ") == 2
    else:
        with pytest.raises(ForbiddenError, match="not now"):
            engine._list_reservations()


def test_a_replica_compares_what_it_knows_whenever_kopf_has_listed_whether_it_leads_or_not() -> None:
    api = ApiServerInMemory()
    engine, cache, _ = build_engine(api)
    engine._lease.acquire = lambda **_: False  # type: ignore[method-assign]
    engine._spawn("leader", engine._lead)
    cache.put_reservation(place())
    assert "Reservations" in engine.why_not_serving()
    engine.note_listed()
    soon("the one that is gone is forgotten", lambda: cache.reservation(PLACE_UID) is None)
    assert "Reservations" not in engine.why_not_serving()
    engine.stop()


def test_a_beginning_or_a_changed_spec_is_tried_without_the_waits_of_earlier_failures() -> None:
    engine, _, _ = build_engine(ApiServerInMemory())
    engine.workers._failures = {PLACE_KEY: 7, Key(KeyKind.RESERVATION, "another"): 3}
    engine.workers.forget_failures(PLACE_KEY)
    assert engine.workers._failures == {Key(KeyKind.RESERVATION, "another"): 3}


def test_the_start_waits_for_the_rights_that_an_api_server_has_not_read_yet() -> None:
    api, clock = Closable(), FakeClock()
    missing = error(ForbiddenError, 'leases "berth-operator" is forbidden: User "berth-operator" cannot get resource')
    api.faults = {
        "get leases berth-operator": missing,
        "get secrets berth-webhook-tls": error(InvalidObjectError, "so far"),
    }
    program = App(api.as_client(), OperatorSettings(health_port=0), clock)

    async def start() -> None:
        try:
            with pytest.raises(InvalidObjectError, match="so far"):
                await program.start()
        finally:
            await program.stop()

    asyncio.run(start())
    assert sum(clock.slept) == 30
    assert api.calls.index("list priorityclasses ") > api.calls.index("get leases berth-operator")


def test_the_steps_of_starting_placeholders_are_looked_at_together_and_the_last_one_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("berth_operator.reservation.throttle.time", SimpleNamespace(monotonic=lambda: 100.0))
    api = ApiServerInMemory()
    engine, cache, queue = build_engine(api)
    engine._lease.held = lambda: True  # type: ignore[method-assign]
    reservation = place(slot(SlotState.PENDING, 0), slot(SlotState.PENDING, 1), replicas=2)
    api.put(RESERVATIONS, as_api(reservation, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    cache.put_node(GuardableNode(metadata=ObjectMeta(name="node-a", resource_version="1")))
    cache.put_reservation(reservation)
    for index in range(2):
        cache.put_placeholder(placeholder(index, node="", version="1"))
    engine.workers.reconcile(PLACE_KEY)
    looked: list[str] = []
    engine._reservations._observe = looked.append  # type: ignore[assignment,method-assign]
    cache.put_placeholder(placeholder(0, version="2"))
    engine.workers.reconcile(PLACE_KEY)
    assert looked == []
    assert PLACE_KEY in queue._due
    cache.put_placeholder(placeholder(1, version="2"))
    engine.workers.reconcile(PLACE_KEY)
    assert looked == [PLACE_UID]


def test_what_was_not_listed_yet_is_named() -> None:
    engine, _, _ = build_engine(ApiServerInMemory())
    names = "Reservations, placeholders, fences, owners, nodes, priority-classes, quotas, limit-ranges"
    assert engine.why_not_serving() == f"the cache is not complete: {names}"


@pytest.mark.parametrize(("late", "first"), [(0.0, ["patch", "reservations"]), (1.0, ["delete", "pods"])])
def test_places_of_the_expired_are_released_before_any_status_is_written_while_the_workers_are_behind(
    late: float, first: list[str]
) -> None:
    api = ApiServerInMemory()
    engine, cache, queue = build_engine(api)
    queue._late_seconds = late
    engine._lease.held = lambda: True  # type: ignore[method-assign]
    doomed = place(slot(SlotState.HELD), created="2026-11-21T11:00:00Z", ttl="1s")
    api.put(RESERVATIONS, as_api(doomed, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    api.put(PODS, as_api(placeholder(), api_version="v1", kind="Pod"))
    cache.put_node(GuardableNode(metadata=ObjectMeta(name="node-a", resource_version="1")))
    cache.put_reservation(doomed)
    cache.put_placeholder(placeholder())
    engine.workers.reconcile(PLACE_KEY)
    assert api.calls[0].split()[:2] == first
    assert PLACE_KEY in queue._due

    cache.remove_placeholder(placeholder())
    engine.workers.reconcile(PLACE_KEY)
    stored = api.get(RESERVATIONS, "place", namespace="default")
    assert stored["status"]["state"]["reason"] == "Expired"


def test_no_more_slots_of_a_namespace_change_hands_at_once_than_are_left_for_others() -> None:
    engine, cache, queue = build_engine(ApiServerInMemory(), OperatorSettings(handover=HandoverSettings(at_once=6)))
    for name, node, started in (("a", "node-a", False), ("b", "node-b", False), ("c", "node-c", True)):
        cache.put_owner(owner_pod(name, given=note(node=node), started=started, node=node if started else ""))
    waiting = tuple(AssignSlot(owner_pod(f"next-{index}"), note(index)) for index in range(3))
    before = len(queue)
    assert engine._reservations._due_actions(Key(KeyKind.RESERVATION, "another"), place(), waiting) == waiting[:1]
    assert len(queue) == before + 1  # the others are looked at again
    elsewhere = place(namespace="elsewhere")
    assert engine._reservations._due_actions(Key(KeyKind.RESERVATION, "its"), elsewhere, waiting) == waiting[:2]


SEVERAL_UNDER_WAY = {
    "one slot": ((), "1", 3),
    "four slots of one pod": ((1, 2, 3), "4", 2),
    "nine slots of one pod": (tuple(range(1, 9)), "9", 0),
    "slots that a pod may not have": (tuple(range(1, 9)), "2", 3),
    "slots that do not exist": (tuple(range(1, 60)), "60", 3),
}


@pytest.mark.parametrize(("further", "cpu", "want"), SEVERAL_UNDER_WAY.values(), ids=SEVERAL_UNDER_WAY)
def test_each_slot_of_a_pod_that_takes_several_counts(further: tuple[int, ...], cpu: str, want: int) -> None:
    engine, cache, _ = build_engine(ApiServerInMemory(), OperatorSettings(handover=HandoverSettings(at_once=8)))
    slots = (slot(SlotState.HANDING_OVER, index) for index in range(10))
    window = place(*slots, tasks=[task(replicas=10, cpu="1", memory="1Gi")])
    meta = msgspec.structs.replace(window.metadata, annotations={SLOTS_ADD_UP_ANNOTATION: "true"})
    cache.put_reservation(msgspec.structs.replace(window, metadata=meta))
    cache.put_owner(owner_pod("large", given=replace(note(), further=further), cpu=cpu, memory="1Gi"))
    waiting = tuple(AssignSlot(owner_pod(f"next-{index}"), note(index)) for index in range(3))
    elsewhere = place(namespace="elsewhere")
    key = Key(KeyKind.RESERVATION, "its")
    assert engine._reservations._due_actions(key, elsewhere, waiting) == waiting[:want]


def test_a_pod_that_takes_several_slots_begins_while_any_are_left_and_leaves_fewer() -> None:
    engine, _, _ = build_engine(ApiServerInMemory(), OperatorSettings(handover=HandoverSettings(at_once=6)))
    large = AssignSlot(owner_pod("large"), replace(note(), further=tuple(range(1, 5))))
    huge = AssignSlot(owner_pod("huge"), replace(note(20), further=tuple(range(21, 60))))
    small = AssignSlot(owner_pod("small"), note(10))
    key = Key(KeyKind.RESERVATION, "its")
    assert engine._reservations._due_actions(key, place(), (large, small)) == (large,)
    assert engine._reservations._due_actions(key, place(), (small, large, small)) == (small, large)
    assert engine._reservations._due_actions(key, place(), (huge, large)) == (huge,), "it would never have its turn"


def test_an_owner_that_has_to_wait_for_long_is_not_kept_back_meanwhile() -> None:
    engine, _, _ = build_engine(ApiServerInMemory())
    gated, waiting = AssignSlot(owner_pod("gated"), note()), AssignSlot(owner_pod("waiting", gates=()), note())
    key = Key(KeyKind.RESERVATION, PLACE_UID)
    engine._reservations._fair_sharing.delay = lambda *_: 59.0  # type: ignore[method-assign]
    assert engine._reservations._due_actions(key, place(), (gated, waiting)) == ()
    engine._reservations._fair_sharing.delay = lambda *_: 61.0  # type: ignore[method-assign]
    assert engine._reservations._due_actions(key, place(), (gated, waiting)) == (Release(gated.pod),)


def test_what_a_status_claims_is_held_against_the_placeholders_until_it_is_known_to_be_ours() -> None:
    api = ApiServerInMemory()
    engine, cache, _ = build_engine(api)
    engine._lease.held = lambda: True  # type: ignore[method-assign]
    forged = place(slot(SlotState.RELEASED, node=""), phase=ReservationPhase.FAILED, reason="Forged")
    api.put(RESERVATIONS, as_api(forged, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    api.put(PODS, as_api(placeholder()))
    cache.put_node(GuardableNode(metadata=ObjectMeta(name="node-a", resource_version="1")))
    cache.put_placeholder(placeholder())
    cache.put_reservation(forged)
    engine.workers.reconcile(PLACE_KEY)
    known = cache.reservation(PLACE_UID)
    assert known is not None
    assert known.phase is ReservationPhase.AVAILABLE
    asked = f"get pods {placeholder().metadata.name}"
    assert api.calls.count(asked) == 1
    engine.workers.reconcile(PLACE_KEY)
    assert api.calls.count(asked) == 1


def test_a_status_counts_as_told_from_the_moment_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    api = ApiServerInMemory()
    engine, cache, _ = build_engine(api)
    engine._lease.held = lambda: True  # type: ignore[method-assign]
    pending = place(slot(SlotState.PENDING, node=""), phase=ReservationPhase.PENDING)
    api.put(RESERVATIONS, as_api(pending, api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND))
    cache.put_node(GuardableNode(metadata=ObjectMeta(name="node-a", resource_version="1")))
    cache.put_reservation(pending)
    cache.put_placeholder(placeholder())
    send, told = api.json_patch, []

    def listen(*call: Any, **rest: Any) -> Any:  # noqa: ANN401 - takes what the client takes
        told.append([one.state for one in cache.published_status(pending).slots])
        return send(*call, **rest)

    monkeypatch.setattr(api, "json_patch", listen)
    engine.workers.reconcile(PLACE_KEY)
    assert told == [[SlotState.HELD]]
