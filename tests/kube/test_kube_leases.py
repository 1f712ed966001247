import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core.clock import SystemClock
from berth_kube import KubeClient
from berth_kube.errors import ForbiddenError, ServerError
from berth_kube.leases import Heartbeats, LeaseHolder
from builders import FakeClock
from scripted_server import ScriptedServer, Silence, answer, refusal
from waiting import eventually, soon

pytestmark = pytest.mark.timeout(300)

LEASES = "/apis/coordination.k8s.io/v1/namespaces/berth-system/leases"
LEASE = f"{LEASES}/berth-operator"
CONFLICT = refusal(409, "Conflict", "the object has been modified")


class LeaseStore:
    """A reply that keeps one Lease as the API server does, with its resourceVersion as a precondition."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.fault: Any = None
        self.is_renewed = False
        """Its holder renews it before each look at it."""
        self.version = 0
        self._lock = threading.RLock()

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        spec: dict[str, Any] = self.lease["spec"]
        return spec

    def write(self, *, annotations: dict[str, Any] | None = None, **spec: Any) -> None:  # noqa: ANN401 - any fields
        """Write as another process would."""
        notes = {key: value for key, value in (annotations or {}).items() if value is not None}
        with self._lock:
            self.version += 1
            merged = {**(self.lease or {"spec": {}})["spec"], **spec}
            found = {key: value for key, value in merged.items() if value is not None}
            metadata = {"name": "berth-operator", "resourceVersion": str(self.version), "annotations": notes}
            self.lease = {"metadata": metadata, "spec": found}

    def delete(self) -> None:
        with self._lock:
            self.lease = None

    def send(self, handler: Any) -> bool:  # noqa: ANN401 - the server's handler
        with self._lock:
            reply = self.fault or self._reply(handler.command, handler.seen.body)
        sent: bool = reply.send(handler)
        return sent

    def _reply(self, method: str, raw_body: bytes) -> Any:  # noqa: ANN401 - a reply
        if method == "GET":
            if self.is_renewed:
                self.write(renewTime=str(self.version))
            return answer(self.lease) if self.lease else refusal(404, "NotFound", "no lease")
        body = json.loads(raw_body)
        if method == "POST" and self.lease:
            return refusal(409, "AlreadyExists", "exists")
        if method == "PATCH" and not self.lease:
            return refusal(404, "NotFound", "no lease")
        expected = body["metadata"].get("resourceVersion")
        if method == "PATCH" and self.lease and expected != self.lease["metadata"]["resourceVersion"]:
            return CONFLICT
        self.write(annotations=body["metadata"].get("annotations"), **body["spec"])
        return answer(self.lease)


@pytest.fixture
def store(server: ScriptedServer) -> LeaseStore:
    kept = LeaseStore()
    server.on("GET", LEASE, kept).on("POST", LEASES, kept).on("PATCH", LEASE, kept)
    return kept


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


class Holders:
    """Makes holders and lets go of them at the end."""

    def __init__(self, client: KubeClient, clock: FakeClock) -> None:
        self._client = client
        self._clock = clock
        self._made: list[LeaseHolder] = []

    def make(self, identity: str, *, duration_seconds: int = 15, real_time: bool = False) -> LeaseHolder:
        clock = None if real_time else self._clock
        holder = LeaseHolder(
            self._client, "berth-system", "berth-operator", identity, duration_seconds=duration_seconds, clock=clock
        )
        self._made.append(holder)
        return holder

    def release(self) -> None:
        for holder in self._made:
            holder.release()


@pytest.fixture
def holders(client: KubeClient, clock: FakeClock, store: LeaseStore) -> Iterator[Holders]:
    assert store.lease is None
    made = Holders(client, clock)
    yield made
    made.release()


def test_a_lease_that_does_not_exist_is_made(holders: Holders, store: LeaseStore) -> None:
    one = holders.make("one")
    assert not one.held()
    assert one.acquire(0)
    assert one.held()
    assert store.spec == {
        "holderIdentity": "one",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-11-21T12:00:00.000000Z",
        "renewTime": "2026-11-21T12:00:00.000000Z",
        "leaseTransitions": 0,
    }


def test_a_lease_that_another_holds_is_not_taken(holders: Holders) -> None:
    assert holders.make("one").acquire(0)
    two = holders.make("two")
    assert not two.acquire(0)
    assert not two.held()


def test_a_lease_that_did_not_change_for_its_duration_is_taken(
    holders: Holders, store: LeaseStore, clock: FakeClock
) -> None:
    store.write(holderIdentity="dead", leaseDurationSeconds=20, renewTime="2026-11-21T11:00:00.000000Z")
    two = holders.make("two")
    assert not two.acquire(0)
    clock.advance(19.9)
    assert not two.acquire(0)
    clock.advance(0.1)
    assert two.acquire(0)
    assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("two", 0)


def test_a_look_at_a_lease_begins_the_wait_for_its_end(holders: Holders, store: LeaseStore, clock: FakeClock) -> None:
    store.write(holderIdentity="dead", leaseDurationSeconds=20)
    two = holders.make("two")
    two.look()
    clock.advance(20)
    assert not two.held()
    assert two.acquire(0)


def test_a_look_that_fails_is_none(holders: Holders, store: LeaseStore) -> None:
    store.fault = refusal(500, "InternalError", "down")
    holders.make("two").look()


def test_the_wait_starts_anew_with_every_renewal_that_is_seen(
    holders: Holders, store: LeaseStore, clock: FakeClock
) -> None:
    store.write(holderIdentity="alive", leaseDurationSeconds=15, renewTime="1")
    two = holders.make("two")
    assert not two.acquire(0)
    clock.advance(10)
    store.write(renewTime="2")
    assert not two.acquire(0)
    clock.advance(10)
    assert not two.acquire(0)
    clock.advance(5)
    assert two.acquire(0)


def test_a_wait_of_a_duration_outlasts_a_dead_holder_that_had_a_longer_one(
    holders: Holders, store: LeaseStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(holderIdentity="dead", leaseDurationSeconds=600)
    two = holders.make("two", duration_seconds=60)
    monkeypatch.setattr(two._stopped, "wait", clock.advance)
    before = clock.monotonic()
    assert two.acquire(60)
    assert clock.monotonic() - before == pytest.approx(600)


def test_a_wait_ends_in_time_where_the_holder_renews_its_lease(
    holders: Holders, store: LeaseStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write(holderIdentity="alive", leaseDurationSeconds=3600)
    store.is_renewed = True
    two = holders.make("two", duration_seconds=60)
    monkeypatch.setattr(two._stopped, "wait", clock.advance)
    before = clock.monotonic()
    assert not two.acquire(60)
    assert clock.monotonic() - before == pytest.approx(60)


def test_the_times_that_another_machine_wrote_do_not_count(holders: Holders, store: LeaseStore) -> None:
    store.write(holderIdentity="alive", leaseDurationSeconds=15, renewTime="1970-01-01T00:00:00.000000Z")
    assert not holders.make("two").acquire(0)


def test_a_process_that_comes_back_with_its_name_need_not_wait(holders: Holders, store: LeaseStore) -> None:
    store.write(holderIdentity="one", leaseDurationSeconds=15, renewTime="1", leaseTransitions=4)
    assert holders.make("one").acquire(0)
    assert store.spec["leaseTransitions"] == 4


def test_a_lease_that_was_given_back_is_free_at_once(holders: Holders, store: LeaseStore) -> None:
    one, two = holders.make("one"), holders.make("two")
    assert one.acquire(0)
    one.release()
    assert not one.held()
    assert "holderIdentity" not in store.spec
    assert two.acquire(0)
    assert (store.spec["holderIdentity"], store.spec["leaseTransitions"]) == ("two", 1)


def test_giving_back_leaves_a_lease_alone_that_another_has_by_now(holders: Holders, store: LeaseStore) -> None:
    one = holders.make("one")
    assert one.acquire(0)
    store.write(holderIdentity="two")
    one.release()
    assert store.spec["holderIdentity"] == "two"


def test_a_holder_stops_believing_before_anyone_else_may_take_the_lease(holders: Holders, clock: FakeClock) -> None:
    one, two = holders.make("one"), holders.make("two")
    assert one.acquire(0)
    assert not two.acquire(0)
    clock.advance(9.9)
    assert one.held()
    clock.advance(0.2)
    assert not one.held()
    assert not two.acquire(0)


def test_only_one_of_two_that_write_at_once_wins(holders: Holders, server: ScriptedServer, store: LeaseStore) -> None:
    store.write(holderIdentity="")
    server.on("PATCH", LEASE, CONFLICT)
    assert not holders.make("two").acquire(0)


def test_only_one_of_two_that_make_it_at_once_wins(holders: Holders, server: ScriptedServer) -> None:
    server.on("POST", LEASES, refusal(409, "AlreadyExists", "exists"))
    assert not holders.make("two").acquire(0)


def test_a_missing_right_is_said(holders: Holders, store: LeaseStore) -> None:
    store.fault = refusal(403, "Forbidden", "you may not get leases")
    with pytest.raises(ForbiddenError, match="you may not get leases"):
        holders.make("one").acquire(5)


def test_a_server_that_is_down_is_waited_for(holders: Holders, store: LeaseStore) -> None:
    store.fault = refusal(503, "ServiceUnavailable", "down")
    one = holders.make("one", duration_seconds=3, real_time=True)
    threading.Timer(0.5, lambda: setattr(store, "fault", None)).start()
    assert one.acquire(60)


def test_a_server_that_stays_down_is_not_taken_for_another_holder(holders: Holders, store: LeaseStore) -> None:
    store.fault = refusal(503, "ServiceUnavailable", "down")
    one = holders.make("one", real_time=True)
    with pytest.raises(ServerError, match="down"):
        one.acquire(0.2)
    assert not one.held()


def test_release_ends_a_wait(holders: Holders, server: ScriptedServer, store: LeaseStore) -> None:
    """The next look at the lease is minutes away."""
    store.write(holderIdentity="other", leaseDurationSeconds=3600)
    two = holders.make("two", duration_seconds=3600, real_time=True)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(two.acquire()), daemon=True)
    waiting.start()
    soon("the lease was looked at", lambda: server.requests("GET", LEASE))
    two.release()
    waiting.join(30)
    assert answers == [False]


def test_a_lease_is_renewed_while_it_is_held(holders: Holders, store: LeaseStore) -> None:
    one, two = (holders.make(name, duration_seconds=6, real_time=True) for name in ("one", "two"))
    one.publish(dict, renewals=lambda: 6)
    assert one.acquire(0)
    assert not two.acquire(7)
    assert one.held()
    assert not one.lost.is_set()
    assert store.spec["renewTime"] > store.spec["acquireTime"]


def test_a_renewal_is_one_call(holders: Holders, server: ScriptedServer, store: LeaseStore) -> None:
    one = holders.make("one", duration_seconds=600, real_time=True)
    one.publish(dict, renewals=lambda: 6000)
    assert one.acquire(0)
    eventually("it is renewed", lambda: len(server.requests("PATCH", LEASE)) > 5, seconds=60)
    assert len(server.requests("GET", LEASE)) == 1, "before it was taken"
    assert one.held()
    assert store.spec["holderIdentity"] == "one"


def test_a_lease_that_changed_under_its_holder_is_read_and_renewed(holders: Holders, store: LeaseStore) -> None:
    one = holders.make("one", duration_seconds=600, real_time=True)
    one.publish(dict, renewals=lambda: 6000)
    assert one.acquire(0)
    store.write(annotations={"note": "somebody's"})
    changed = store.version
    eventually("it is renewed", lambda: store.version > changed + 2, seconds=60)
    assert one.held()


def test_a_lease_that_was_deleted_under_its_holder_is_made_again(holders: Holders, store: LeaseStore) -> None:
    one = holders.make("one", duration_seconds=600, real_time=True)
    one.publish(dict, renewals=lambda: 6000)
    assert one.acquire(0)
    store.delete()
    eventually("it is made again", lambda: store.lease, seconds=60)
    assert one.held()


def test_a_loop_that_is_blocked_for_longer_than_a_few_renewals_keeps_the_lease(
    holders: Holders, server: ScriptedServer
) -> None:
    """The loop is blocked until the lease was renewed twenty times meanwhile."""
    heartbeats = Heartbeats(SystemClock(), seconds=600)
    one = holders.make("one", duration_seconds=30, real_time=True)
    one.publish(dict, renewals=lambda: 600, heartbeats=heartbeats)
    assert one.acquire(0)

    async def block() -> None:
        heartbeats.beat("the loop")
        before = len(server.requests("PATCH", LEASE))
        eventually("it is renewed", lambda: len(server.requests("PATCH", LEASE)) >= before + 20, seconds=120)

    asyncio.run(block())
    assert one.held()
    assert not one.lost.is_set()


def test_a_program_that_is_stuck_for_good_loses_its_lease_until_it_works_again(
    holders: Holders, store: LeaseStore, clock: FakeClock
) -> None:
    heartbeats = Heartbeats(clock, seconds=60)
    one, two = holders.make("one", duration_seconds=1, real_time=True), holders.make("two", real_time=True)
    one.publish(dict, renewals=lambda: 3, heartbeats=heartbeats)
    heartbeats.beat("the loop")
    assert one.acquire(60)
    clock.advance(61)
    assert one.lost.wait(60)
    assert not one.held()
    assert not one.acquire(0), "it is stuck"
    assert two.acquire(60)
    two.release()
    heartbeats.beat("the loop")
    assert one.acquire(60)
    assert store.spec["holderIdentity"] == "one"


def test_a_part_is_silent_that_has_not_worked_for_too_long(clock: FakeClock) -> None:
    heartbeats = Heartbeats(clock, seconds=60)
    assert heartbeats.silent() == ()
    heartbeats.beat("kopf")
    clock.advance(40)
    heartbeats.beat("the leader")
    clock.advance(20)
    assert heartbeats.silent() == ()
    clock.advance(1)
    assert heartbeats.silent() == ("kopf",)
    heartbeats.beat("kopf")
    assert heartbeats.silent() == ()


def test_a_holder_that_cannot_renew_says_that_it_lost_the_lease(holders: Holders, store: LeaseStore) -> None:
    one = holders.make("one", duration_seconds=2, real_time=True)
    assert one.acquire(0)
    store.fault = refusal(503, "ServiceUnavailable", "down")
    assert one.lost.wait(60)
    assert not one.held()
    store.fault = None
    assert one.acquire(60)
    assert not one.lost.is_set()


def test_no_renewal_begins_once_the_holder_believes_in_it_no_more(
    holders: Holders, server: ScriptedServer, clock: FakeClock
) -> None:
    """With what its calls may take, it would end after others may have taken the lease."""
    one = holders.make("one")
    assert one.acquire(0)
    calls = len(server.seen)
    clock.advance(11)
    one.renew_soon()
    soon("it says that it is lost", one.lost.is_set)
    assert len(server.seen) == calls


@dataclass
class SlowRead:
    """Refuses the first write, and lets time pass with each read."""

    store: LeaseStore
    clock: FakeClock
    commands: list[str] = field(default_factory=list)

    def send(self, handler: Any) -> bool:  # noqa: ANN401 - the server's handler
        self.commands.append(handler.command)
        if handler.command == "GET":
            self.clock.advance(4)
        reply = CONFLICT if len(self.commands) == 1 else self.store._reply(handler.command, handler.seen.body)
        sent: bool = reply.send(handler)
        return sent


def test_a_renewal_whose_time_is_over_after_its_read_is_not_written(
    holders: Holders, store: LeaseStore, clock: FakeClock
) -> None:
    one = holders.make("one")
    assert one.acquire(0)
    clock.advance(7)
    slow = store.fault = SlowRead(store, clock)
    one.renew_soon()
    soon("it says that it is lost", one.lost.is_set)
    assert slow.commands == ["PATCH", "GET"]


def test_a_server_that_hangs_costs_the_lease_in_time(holders: Holders, store: LeaseStore) -> None:
    one = holders.make("one", duration_seconds=1, real_time=True)
    assert one.acquire(0)
    store.fault = Silence(120, refusal(503, "ServiceUnavailable", "too late"))
    assert one.lost.wait(60)
    assert not one.held()


def test_a_holder_whose_lease_was_taken_loses_it_at_the_next_renewal(holders: Holders, store: LeaseStore) -> None:
    """Long before it would stop believing in itself."""
    one = holders.make("one", duration_seconds=600, real_time=True)
    one.publish(dict, renewals=lambda: 600)
    assert one.acquire(0)
    store.write(holderIdentity="two")
    assert one.lost.wait(60)
    assert not one.held()


def test_taking_twice_is_the_same_as_once(holders: Holders) -> None:
    others = set(threading.enumerate())
    one = holders.make("one")
    assert one.acquire(0)
    assert one.acquire(0)
    assert [thread.name for thread in set(threading.enumerate()) - others if "lease" in thread.name] == [
        "lease berth-operator"
    ]


def test_notes_are_written_with_each_claim_and_taken_off_by_a_holder_that_has_none(
    holders: Holders, store: LeaseStore
) -> None:
    one, two = holders.make("one"), holders.make("two")
    one.publish(lambda: {"state": "good"}, renewals=lambda: 3)
    two.publish(lambda: {"state": None}, renewals=lambda: 3)
    assert one.acquire(0)
    assert store.lease is not None
    assert store.lease["metadata"]["annotations"] == {"state": "good"}
    one.release()
    assert two.acquire(0)
    assert store.lease["metadata"]["annotations"] == {}


def test_a_hurried_lease_is_renewed_at_once(holders: Holders, store: LeaseStore) -> None:
    holder = holders.make("one", duration_seconds=3000, real_time=True)
    notes: dict[str, str | None] = {}
    holder.publish(lambda: dict(notes), renewals=lambda: 3)
    assert holder.acquire(0)
    notes["state"] = "good"
    holder.renew_soon()
    eventually("it is renewed", lambda: (store.lease or {})["metadata"]["annotations"], seconds=60)
    assert holder.held()
