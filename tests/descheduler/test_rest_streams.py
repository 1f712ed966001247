"""The stream of a plan: every change once, to permitted callers, until the plan is over."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import requests

from berth_kube.errors import ForbiddenError
from berth_kube.resources import MIGRATION_PLANS
from descheduler.fake_cluster import Raw, call, failure
from descheduler.rest_server import (
    ADMIN,
    READER,
    ReviewingCluster,
    add_plan,
    ask,
    hurried,
    move_states,
    populated,
    quick,
    serving,
)
from waiting import soon

PLAN = "plan-waiting"


@dataclass(frozen=True)
class Told:
    """One event as a reader sees it."""

    kind: str
    id: str
    data: Any


class Reader:
    """Reads a stream as a browser does."""

    def __init__(self, answer: requests.Response) -> None:
        self.answer = answer
        self.remarks: list[str] = []
        self._lines: Iterator[str] = (str(line) for line in answer.iter_lines(decode_unicode=True))

    def next(self) -> Told | None:
        """Return the next event, None at the end."""
        fields: dict[str, str] = {}
        for line in self._lines:
            if line.startswith(":"):
                self.remarks.append(line)
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            elif "data" in fields:
                return Told(fields["event"], fields.get("id", ""), json.loads(fields["data"]))
        return None

    def rest(self) -> list[Told]:
        """Return all events to the end."""
        return list(iter(self.next, None))


@contextmanager
def following(url: str, *, last_id: str = "", token: str = ADMIN, plan: str = PLAN) -> Iterator[Reader]:
    headers = {"Last-Event-ID": last_id} if last_id else {}
    with ask("GET", f"{url}/v1/plans/{plan}/events", token=token, headers=headers, stream=True) as answer:
        assert answer.status_code == 200, answer.text
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        yield Reader(answer)


@pytest.fixture
def cluster() -> ReviewingCluster:
    return populated()


@pytest.fixture
def url(cluster: ReviewingCluster) -> Iterator[str]:
    with serving(cluster) as address:
        yield address


def change(cluster: ReviewingCluster, *states: str, phase: str = "Running", plan: str = PLAN) -> Raw:
    """Write a plan's status as the service does."""
    status = {"phase": phase, "moves": move_states(states)} if states else {"phase": phase}
    changed: Raw = cluster.merge_patch(MIGRATION_PLANS, plan, {"status": status}, subresource="status")
    return changed


def version(raw: Raw) -> str:
    return str(raw["metadata"]["resourceVersion"])


def test_the_plan_comes_first_and_then_every_change_to_the_end(url: str, cluster: ReviewingCluster) -> None:
    with following(url) as reader:
        first = reader.next()
        assert first is not None
        assert (first.kind, first.data["phase"]) == ("plan", "Proposed")
        assert [move["state"] for move in first.data["moves"]] == ["Pending", "Pending"]
        change(cluster, "Reserving", "Pending")
        change(cluster, "Landed", "Reserving")
        last = change(cluster, "Landed", "Failed", phase="Partial")
        told = reader.rest()
    assert [(one.kind, one.data.get("pod"), one.data.get("state") or one.data["phase"]) for one in told] == [
        ("move", "web-0", "Reserving"),
        ("phase", None, "Running"),
        ("move", "web-0", "Landed"),
        ("move", "web-1", "Reserving"),
        ("move", "web-1", "Failed"),
        ("phase", None, "Partial"),
    ]
    assert told[-1].id == version(last)
    assert len({one.id for one in told}) == len(told)


def test_a_plan_that_is_over_is_told_whole_and_the_stream_ends(url: str) -> None:
    with following(url, plan="plan-done") as reader:
        assert [(one.kind, one.data["phase"]) for one in reader.rest()] == [("plan", "Succeeded")]


def test_what_is_told_of_a_plan_is_what_is_shown_of_it(url: str) -> None:
    with following(url) as reader:
        first = reader.next()
    assert first is not None
    assert first.data == ask("GET", f"{url}/v1/plans/{PLAN}").json()
    assert first.id == first.data["version"]


def test_moves_that_are_filled_in_later_are_told_with_the_whole_plan(url: str, cluster: ReviewingCluster) -> None:
    asked = ask("POST", f"{url}/v1/runs", json={"policy": "nightly"}).json()["plan"]
    with following(url, plan=asked) as reader:
        first = reader.next()
        spec = add_plan(cluster, "plan-like", states=("Pending",))["spec"]
        filled = {"moves": spec["moves"], "predicted": spec["predicted"]}
        cluster.merge_patch(MIGRATION_PLANS, asked, {"spec": filled})
        second = reader.next()
    assert first is not None
    assert second is not None
    assert (first.kind, first.data["phase"], len(first.data["moves"])) == ("plan", "Requested", 0)
    assert (second.kind, second.data["phase"], len(second.data["moves"])) == ("plan", "Proposed", 1)


def test_an_approval_and_an_abort_are_told(url: str) -> None:
    with following(url) as reader:
        first = reader.next()
        assert first is not None
        ask("POST", f"{url}/v1/plans/{PLAN}/approve", headers={"If-Match": first.id})
        ask("POST", f"{url}/v1/plans/{PLAN}/abort")
        told = [reader.next(), reader.next()]
    assert [(one.kind, one.data["approved"], one.data["aborted"]) for one in told if one] == [
        ("phase", True, False),
        ("phase", True, True),
    ]


def test_what_becomes_of_a_room_is_told(url: str, cluster: ReviewingCluster) -> None:
    room = {"name": "ml/trainer", "namespace": "ml", "slots": [{"node": "n2", "pod": "trainer", "podUID": "u"}]}
    cluster.merge_patch(MIGRATION_PLANS, PLAN, {"spec": {"rooms": [room]}})
    with following(url) as reader:
        first = reader.next()
        held = {"name": "ml/trainer", "state": "Held", "reservation": "room-1"}
        cluster.merge_patch(MIGRATION_PLANS, PLAN, {"status": {"rooms": [held]}}, subresource="status")
        second = reader.next()
    assert first is not None
    assert second is not None
    assert [(one["name"], one["state"], one["slots"]) for one in first.data["rooms"]] == [
        ("ml/trainer", "Pending", room["slots"])
    ]
    assert (second.kind, second.data["rooms"][0]["state"], second.data["rooms"][0]["reservation"]) == (
        "phase",
        "Held",
        "room-1",
    )


def test_who_comes_again_is_told_what_was_missed_and_nothing_twice(url: str, cluster: ReviewingCluster) -> None:
    with following(url) as keeper:
        keeper.next()
        with following(url) as reader:
            first = reader.next()
        change(cluster, "Reserving", "Reserving")
        keeper.next()
        seen = keeper.next()
        last = keeper.next()
        assert first is not None
        assert seen is not None
        assert last is not None
        change(cluster, "Reserved", "Reserved", phase="Succeeded")
        missed = keeper.rest()
        for last_id, want in ((first.id, 6), (seen.id, 4), (last.id, 3)):
            with following(url, last_id=last_id) as reader:
                told = reader.rest()
            assert len(told) == want
            assert told[-3:] == missed[-3:]


def test_who_comes_to_another_replica_misses_no_state(cluster: ReviewingCluster) -> None:
    with serving(cluster) as one, serving(cluster) as other:
        with following(one) as reader:
            first = reader.next()
        assert first is not None
        with following(other, last_id=first.id) as reader:
            change(cluster, "Reserving", "Pending")
            told = reader.next()
            assert told is not None
            assert (told.kind, told.data["state"]) == ("move", "Reserving")
    with serving(cluster) as third, following(third, last_id=first.id) as reader:
        told = reader.next()
        assert told is not None
        assert (told.kind, told.data["moves"][0]["state"]) == ("plan", "Reserving")


def test_an_id_that_nobody_knows_brings_the_whole_plan(url: str) -> None:
    with following(url, last_id="never-told") as reader:
        told = reader.next()
    assert told is not None
    assert told.kind == "plan"


def test_who_has_read_all_is_told_not_to_come_again(url: str) -> None:
    with following(url, plan="plan-done") as reader:
        (last,) = reader.rest()
    answer = ask("GET", f"{url}/v1/plans/plan-done/events", headers={"Last-Event-ID": last.id})
    assert (answer.status_code, answer.content) == (204, b"")


def test_a_plan_that_is_deleted_ends_its_streams(url: str, cluster: ReviewingCluster) -> None:
    with following(url) as reader:
        reader.next()
        cluster.delete(MIGRATION_PLANS, PLAN)
        assert [(one.kind, one.data) for one in reader.rest()] == [("deleted", {"name": PLAN})]
    assert ask("GET", f"{url}/v1/plans/{PLAN}/events").status_code == 404


def test_a_plan_that_is_made_again_is_another(url: str, cluster: ReviewingCluster) -> None:
    with following(url) as reader:
        reader.next()
        raw = cluster.objects[MIGRATION_PLANS.plural]["", PLAN]
        metadata = {**raw["metadata"], "uid": "another"}
        cluster.add(MIGRATION_PLANS, {**raw, "metadata": metadata})
        assert [one.kind for one in reader.rest()] == ["deleted"]
    with following(url) as reader:
        told = reader.next()
    assert told is not None
    assert told.kind == "plan"


def test_a_quiet_stream_is_kept_alive(url: str) -> None:
    with following(url) as reader:
        reader.next()
        lines = (line for line in reader.answer.iter_lines(decode_unicode=True) if line)
        assert [next(lines) for _ in range(2)] == [": the plan goes on"] * 2


@pytest.mark.parametrize("taken", ["token", "right"])
def test_a_stream_ends_when_its_reader_may_not_read_on(cluster: ReviewingCluster, taken: str) -> None:
    with serving(cluster, hurried(quick(), identity_seconds=0.1)) as url, following(url, token=READER) as reader:
        reader.next()
        if taken == "token":
            del cluster.users[READER]
        else:
            cluster.rights["reader"].discard(("watch", MIGRATION_PLANS.plural))
        (told,) = reader.rest()
    assert (told.kind, told.data["status"]) == ("problem", 401 if taken == "token" else 403)


def test_a_busy_stream_ends_as_well_when_its_reader_may_not_read_on(cluster: ReviewingCluster) -> None:
    ended = threading.Event()

    def keep_changing() -> None:
        for index in range(500):
            change(cluster, "Reserving" if index % 2 else "Pending", "Pending")
            if ended.wait(0.02):
                return

    with serving(cluster, hurried(quick(), identity_seconds=0.1)) as url, following(url, token=READER) as reader:
        reader.next()
        changing = threading.Thread(target=keep_changing)
        changing.start()
        del cluster.users[READER]
        told = reader.rest()
        ended.set()
        changing.join()
    assert (told[-1].kind, told[-1].data["status"]) == ("problem", 401)


def test_a_stream_that_lasts_too_long_ends_and_can_be_resumed(cluster: ReviewingCluster) -> None:
    with serving(cluster, hurried(quick(), stream_seconds=2)) as url:
        with following(url) as reader:
            (first,) = reader.rest()
        with following(url, last_id=first.id) as reader:
            assert reader.rest() == []


def test_the_services_end_ends_streams_well_and_soon(cluster: ReviewingCluster) -> None:
    told: list[Told] = []
    with ExitStack() as service:
        url = service.enter_context(serving(cluster, hurried(quick(), heartbeat_seconds=300, stop_seconds=300)))
        with following(url) as reader:
            reader.next()
            rest = threading.Thread(target=lambda: told.extend(reader.rest()))
            rest.start()
            begun_at = time.monotonic()
            service.close()
            rest.join(120)
            assert time.monotonic() - begun_at < 120
    assert told == []
    assert reader.remarks == [": the service ends, ask again"]


def test_a_reader_that_leaves_is_let_go(cluster: ReviewingCluster) -> None:
    settings = hurried(quick(streams=1), heartbeat_seconds=0.1, linger_seconds=0.1)
    with serving(cluster, settings) as url:
        for _ in range(3):
            with following(url) as reader:
                reader.next()
                refused = ask("GET", f"{url}/v1/plans/{PLAN}/events")
                assert (refused.status_code, refused.json()["type"]) == (503, "urn:berth:problem:overloaded")
                assert int(refused.headers["Retry-After"]) >= 1
            soon("it is let go", lambda: ask("GET", f"{url}/v1/plans/plan-done/events").status_code == 200)
        soon("no watch is left", lambda: not _watches())


def test_one_caller_does_not_take_all_streams(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick(streams_per_caller=1)) as url, following(url, token=READER) as reader:
        reader.next()
        refused = ask("GET", f"{url}/v1/plans/{PLAN}/events", token=READER)
        assert (refused.status_code, refused.json()["type"]) == (429, "urn:berth:problem:too-many-requests")
        with following(url, token=ADMIN) as other:
            assert other.next() is not None
        assert ask("GET", f"{url}/v1/plans", token=READER).ok


def test_streams_take_no_place_of_requests(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick(requests=1, requests_per_caller=1)) as url, following(url) as reader:
        reader.next()
        for _ in range(3):
            assert ask("GET", f"{url}/v1/plans").ok


def test_many_readers_of_a_plan_share_one_watch(cluster: ReviewingCluster) -> None:
    with serving(cluster) as url, following(url) as one, following(url) as other, following(url) as third:
        for reader in (one, other, third):
            reader.next()
        change(cluster, "Landed", "Landed", phase="Succeeded")
        assert [len(reader.rest()) for reader in (one, other, third)] == [3, 3, 3]
        assert len(cluster.watchers) == 1


def test_who_is_too_slow_for_what_is_kept_gets_the_whole_plan(cluster: ReviewingCluster) -> None:
    with serving(cluster, quick(events_kept=4)) as url, following(url) as keeper:
        first = keeper.next()
        assert first is not None
        for states in (("Reserving", "Reserving"), ("Reserved", "Reserved"), ("Evicted", "Evicted")):
            change(cluster, *states)
            keeper.next()
            keeper.next()
        with following(url, last_id=first.id) as reader:
            told = reader.next()
    assert told is not None
    assert (told.kind, told.data["moves"][0]["state"]) == ("plan", "Evicted")


def test_a_watch_that_the_cluster_refuses_is_told_as_a_problem(cluster: ReviewingCluster) -> None:
    def refuse(*_: object, **__: object) -> Iterator[Any]:
        yield from ()
        raise ForbiddenError(call("watch", MIGRATION_PLANS, ""), failure(403))

    cluster.watch = refuse  # type: ignore[method-assign]
    with serving(cluster) as url:
        assert ask("GET", f"{url}/v1/plans/{PLAN}/events").status_code == 502


def _watches() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("rest plan")]
