import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from berth_core import Pod
from berth_kube import Bookmark, Changed, KubeClient, Listed, Removed
from berth_kube import watching as watching_module
from berth_kube.errors import Call, Failure, ForbiddenError, UnexpectedObjectError, UnreachableError
from berth_kube.listing import Listing
from berth_kube.resources import PODS
from berth_kube.retries import Backoff
from berth_kube.watching import PROMPT_WATCH, WatchPace, WatchSettings, follow
from scripted_server import Reset, ScriptedServer, Silence, Stream, answer, event, page, refusal
from waiting import eventually, soon

pytestmark = pytest.mark.timeout(300)

PATH = "/api/v1/pods"
GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def added(name: str, version: int) -> bytes:
    return event("ADDED", pod(name, version))


def said(item: object) -> str:
    match item:
        case Listed(items=items):
            return "listed " + " ".join(one.metadata.name for one in items)
        case Changed(item=Pod() as one, added=is_new):
            return f"{'added' if is_new else 'changed'} {one.metadata.name}"
        case Removed(item=Pod() as one):
            return f"removed {one.metadata.name}"
        case Bookmark(resource_version=version):
            return f"bookmark {version}"
    raise AssertionError(item)


def first_items(client: KubeClient, count: int) -> list[str]:
    stop = threading.Event()
    items = client.watch(PODS, type=Pod, stop=stop)
    try:
        return [said(item) for item in itertools.islice(items, count)]
    finally:
        stop.set()
        assert list(items) == []


def watch_versions(server: ScriptedServer) -> list[str]:
    return [seen.query["resourceVersion"] for seen in server.requests("WATCH", PATH)]


# --- what is seen ---------------------------------------------------------------------------------------------------


def test_a_watch_lists_first_and_then_tells_every_change(client: KubeClient, server: ScriptedServer) -> None:
    lines = [added("b", 11), event("MODIFIED", pod("b", 12)), event("DELETED", pod("a", 13))]
    server.on("GET", PATH, page(pod("a", 3))).on("WATCH", PATH, Stream(lines))
    assert first_items(client, 4) == ["listed a", "added b", "changed b", "removed a"]
    query = server.requests("WATCH", PATH)[0].query
    assert (query["resourceVersion"], query["allowWatchBookmarks"]) == ("10", "true")
    assert 300 <= int(query["timeoutSeconds"]) <= 600


def test_watches_that_began_together_return_apart(client: KubeClient, server: ScriptedServer) -> None:
    """Both services have a dozen watches; if all returned in one minute, they would be most of its requests."""
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([added("a", 11)]))
    for _ in range(60):
        first_items(client, 2)
    lengths = {int(seen.query["timeoutSeconds"]) for seen in server.requests("WATCH", PATH)}
    assert max(lengths) - min(lengths) > 120


def test_selectors_and_namespace_stand_in_list_and_watch(client: KubeClient, server: ScriptedServer) -> None:
    path = "/api/v1/namespaces/default/pods"
    server.on("GET", path, page()).on("WATCH", path, Stream([added("a", 11)]))
    stop = threading.Event()
    items = client.watch(PODS, stop=stop, namespace="default", label_selector="a=b", field_selector="x=y")
    assert [type(item) for item in itertools.islice(items, 2)] == [Listed, Changed]
    stop.set()
    assert list(items) == []
    assert {(seen.query["labelSelector"], seen.query["fieldSelector"]) for seen in server.seen} == {("a=b", "x=y")}


def test_events_that_arrive_together_or_in_pieces_are_the_same(client: KubeClient, server: ScriptedServer) -> None:
    text = added("a", 11) + added("b", 12)
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([text, text[:30], text[30:100], text[100:]]))
    assert first_items(client, 5) == ["listed ", "added a", "added b", "added a", "added b"]


def test_an_event_larger_than_any_buffer_is_read(client: KubeClient, server: ScriptedServer) -> None:
    large = pod("a", 11)
    large["metadata"]["annotations"] = {"x": "y" * 1_000_000}
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([event("ADDED", large)]))
    assert first_items(client, 2) == ["listed ", "added a"]


# --- going on -------------------------------------------------------------------------------------------------------


def test_a_watch_that_ended_well_goes_on_where_it_was(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Stream([added("a", 11)], "well"), Stream([added("b", 12)]))
    assert first_items(client, 3) == ["listed ", "added a", "added b"]
    assert watch_versions(server) == ["10", "11"]


def test_a_watch_that_was_cut_goes_on_where_it_was(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Stream([added("a", 11), added("b", 12)[:20]], "cut"), Reset(), Stream([added("b", 12)]))
    assert first_items(client, 3) == ["listed ", "added a", "added b"]
    assert watch_versions(server) == ["10", "11", "11"]
    assert len(server.requests("GET", PATH)) == 1


def test_a_bookmark_moves_the_place_to_go_on_from(client: KubeClient, server: ScriptedServer) -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "99"}})
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([bookmark], "cut"), Stream([added("a", 100)]))
    assert first_items(client, 3) == ["listed ", "bookmark 99", "added a"]
    assert watch_versions(server) == ["10", "99"]


def test_a_line_that_is_no_json_makes_the_connection_anew(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Stream([added("a", 11), b"{oops\n"]), Stream([added("b", 12)]))
    assert first_items(client, 3) == ["listed ", "added a", "added b"]
    assert watch_versions(server) == ["10", "11"]


def test_failures_of_the_server_are_waited_out(client: KubeClient, server: ScriptedServer) -> None:
    busy = refusal(429, "TooManyRequests", "slow", Retry_After="1")
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, refusal(503, "ServiceUnavailable", "down"), busy, Stream([added("a", 11)]))
    assert first_items(client, 2) == ["listed ", "added a"]
    times = [seen.at for seen in server.requests("WATCH", PATH)]
    assert times[2] - times[1] >= 1


def test_a_server_that_is_down_at_first_is_waited_for(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, *[Reset()] * 9, page(pod("a", 1))).on("WATCH", PATH, Stream())
    assert first_items(client, 1) == ["listed a"]


# --- starting over --------------------------------------------------------------------------------------------------


def test_a_place_that_the_server_forgot_means_a_new_list(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(pod("a", 1)), page(pod("b", 20), resource_version="20"))
    server.on("WATCH", PATH, refusal(410, "Expired", "too old"), Stream([added("c", 21)]))
    assert first_items(client, 3) == ["listed a", "listed b", "added c"]
    assert watch_versions(server) == ["10", "20"]


@pytest.mark.parametrize("status", [GONE, {"kind": "Status", "code": 500, "message": "etcd event is incomplete"}])
def test_an_error_in_the_stream_means_a_new_list(
    client: KubeClient, server: ScriptedServer, status: dict[str, Any]
) -> None:
    server.on("GET", PATH, page(pod("a", 1)), page(pod("b", 20), resource_version="20"))
    server.on("WATCH", PATH, Stream([event("ERROR", status)]), Stream([added("c", 21)]))
    assert first_items(client, 3) == ["listed a", "listed b", "added c"]
    assert watch_versions(server) == ["10", "20"]


def test_a_right_that_is_missing_from_the_start_is_said(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, refusal(403, "Forbidden", "you may not list"))
    with pytest.raises(ForbiddenError, match=r"cannot list pods: .*you may not list"):
        first_items(client, 1)


def test_a_right_that_is_taken_away_later_is_waited_for(client: KubeClient, server: ScriptedServer) -> None:
    forbidden = refusal(403, "Forbidden", "not now")
    server.on("GET", PATH, page(), forbidden, page(pod("a", 20), resource_version="20"))
    server.on("WATCH", PATH, forbidden, Stream([added("b", 21)]))
    assert first_items(client, 3) == ["listed ", "listed a", "added b"]


def test_objects_of_another_shape_are_said_at_the_first_list(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, answer({"metadata": {"resourceVersion": "5"}, "items": [7]}))
    with pytest.raises(UnexpectedObjectError):
        first_items(client, 1)


# --- another history, silence ----------------------------------------------------------------------------------------

BRIEF = WatchSettings(server_seconds=0.4, silence_seconds=0.4, backoff=Backoff(0.01, longest_seconds=0.02))


def brief_items(client: KubeClient, count: int) -> list[object]:
    stop = threading.Event()
    items = client.watch(PODS, type=Pod, stop=stop, settings=BRIEF)
    try:
        return list(itertools.islice(items, count))
    finally:
        stop.set()
        assert list(items) == []


def test_a_watch_that_brings_nothing_not_even_a_bookmark_begins_with_a_new_list(
    client: KubeClient, server: ScriptedServer
) -> None:
    server.on("GET", PATH, page(pod("a", 9)), page(pod("a", 3), resource_version="4"))
    server.on("WATCH", PATH, Stream(), Stream([added("b", 5)]))
    first, second, third = brief_items(client, 3)
    assert [said(first), said(second), said(third)] == ["listed a", "listed a", "added b"]
    assert watch_versions(server) == ["10", "4"]
    assert isinstance(first, Listed)
    assert isinstance(second, Listed)
    assert (first.restored, second.restored) == (False, True), "versions went back"
    assert first.began < second.began


def test_a_watch_of_a_quiet_cluster_goes_on_where_it_was(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(pod("a", 9)), page(pod("a", 9), resource_version="12"))
    server.on("WATCH", PATH, Stream(), Stream([added("b", 13)]))
    assert list(map(said, brief_items(client, 2))) == ["listed a", "added b"]
    assert watch_versions(server) == ["10", "10"]
    assert [seen.query["limit"] for seen in server.requests("GET", PATH)] == ["500", "1"]


def test_a_silent_watch_that_has_brought_something_goes_on_where_it_was(
    client: KubeClient, server: ScriptedServer
) -> None:
    bookmark = event("BOOKMARK", {"metadata": {"resourceVersion": "12"}})
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([bookmark]), Stream([added("b", 13)]))
    assert list(map(said, brief_items(client, 3))) == ["listed ", "bookmark 12", "added b"]
    assert watch_versions(server) == ["10", "12"]


def test_a_list_after_a_410_is_of_the_same_history(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(), page(resource_version="20"))
    server.on("WATCH", PATH, Stream([added("a", 15), event("ERROR", GONE)]), Stream())
    (_, _, listed) = brief_items(client, 3)
    assert isinstance(listed, Listed)
    assert not listed.restored


def test_a_watch_that_has_to_hear_of_a_loss_soon_is_opened_anew_where_it_was(
    client: KubeClient, server: ScriptedServer
) -> None:
    """It is opened at once, although its connection could stay open for minutes."""
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Stream([added("a", 11)]), Stream([added("b", 12)]))
    pace, stop = WatchPace(WatchSettings()), threading.Event()
    items = client.watch(PODS, type=Pod, stop=stop, settings=pace)
    assert [said(next(items)) for _ in range(2)] == ["listed ", "added a"]
    pace.change(PROMPT_WATCH)
    assert said(next(items)) == "added b"
    pace.change(WatchSettings())
    stop.set()
    assert list(items) == []
    assert watch_versions(server) == ["10", "11"]
    assert [int(seen.query["timeoutSeconds"]) > 30 for seen in server.requests("WATCH", PATH)] == [True, False]


class CutStream:
    """Brings one event, and something else once it is cut off, as a TLS socket does that another thread shuts down."""

    def __init__(self, line: bytes, after_cut: Callable[[], bytes]) -> None:
        self._chunks = [line + b"\n"]
        self._after_cut = after_cut
        self._is_shut, self._is_read = threading.Event(), threading.Event()

    def read1(self, _: int) -> bytes:
        if self._chunks:
            return self._chunks.pop()
        assert self._is_shut.wait(60)
        self._is_read.set()
        return self._after_cut()

    def shutdown(self) -> None:
        self._is_shut.set()
        assert self._is_read.wait(60)  # it may be read before this returns

    def close(self) -> None:
        pass


def fail_as_unwrapped() -> bytes:
    raise ValueError("Read on closed or unwrapped SSL socket.")


@pytest.mark.parametrize("after_cut", [fail_as_unwrapped, lambda: b"\x17\x03\x03\n", lambda: b""])
def test_what_a_connection_brings_after_it_was_cut_ends_no_watch(after_cut: Callable[[], bytes]) -> None:
    """`SSLSocket.shutdown` takes the encryption away from under a read: what comes then is an error or no text."""
    source = CutSource([CutStream(added("a", 11), after_cut), CutStream(added("b", 12), after_cut)])
    pace, stop = WatchPace(WatchSettings()), threading.Event()
    items = follow(source, stop=stop, settings=pace)
    assert [said(next(items)) for _ in range(2)] == ["listed ", "added a"]
    pace.change(PROMPT_WATCH)
    assert said(next(items)) == "added b"
    assert (source.versions, source.errors) == (["10", "11"], [])
    stop.set()
    assert list(items) == []


class CutSource:
    """Pods on the streams that are given."""

    call = Call("watch", "pods")
    item_type = Pod

    def __init__(self, streams: list[CutStream]) -> None:
        self._streams = streams
        self.versions: list[str] = []
        self.errors: list[Exception] = []

    def read_all(self) -> Listing[Pod]:
        return Listing((), "10")

    def read_loosely(self, _: Callable[[], bool]) -> None:
        return None

    def read_version(self) -> str:
        return "10"

    def open_stream(self, resource_version: str, _: WatchSettings) -> Any:  # noqa: ANN401 - stands for a response
        self.versions.append(resource_version)
        return self._streams.pop(0)

    def broken(self, error: Exception) -> UnreachableError:
        self.errors.append(error)
        return UnreachableError(self.call, Failure(message=str(error)))


def test_a_connection_that_is_prompt_already_stays(client: KubeClient, server: ScriptedServer) -> None:
    """Such as a connection that was opened for the last Reservation, when the next one comes."""
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Stream([added("a", 11)]), Stream([added("b", 12)]))
    pace, stop = WatchPace(PROMPT_WATCH), threading.Event()
    items = client.watch(PODS, type=Pod, stop=stop, settings=pace)
    assert [said(next(items)) for _ in range(2)] == ["listed ", "added a"]
    pace.change(WatchSettings())
    pace.change(PROMPT_WATCH)
    stop.set()
    assert list(items) == []
    assert watch_versions(server) == ["10"]


def test_a_watch_that_may_hear_of_a_loss_later_goes_on(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page())
    server.on("WATCH", PATH, Stream([added("a", 11)], end="well"), Stream([added("b", 12)]))
    pace, stop = WatchPace(PROMPT_WATCH), threading.Event()
    items = client.watch(PODS, type=Pod, stop=stop, settings=pace)
    assert said(next(items)) == "listed "
    pace.change(WatchSettings())
    assert [said(next(items)) for _ in range(2)] == ["added a", "added b"]
    stop.set()
    assert list(items) == []


def test_the_silence_of_what_holds_places_is_noticed_in_time() -> None:
    """A Reservation is held 45 s after its connection was forgotten, at most."""
    assert PROMPT_WATCH.silence_seconds <= 35
    # The bookmark before the end of a watch comes two seconds before it.
    assert PROMPT_WATCH.server_seconds < PROMPT_WATCH.silence_seconds
    assert PROMPT_WATCH.spread <= 0.1, "each connection costs a request"
    # The API server sends a bookmark about once a minute.
    assert WatchSettings().silence_seconds > 65
    assert WatchSettings().in_vain_seconds < 0.9 * WatchSettings().server_seconds


# --- not too often --------------------------------------------------------------------------------------------------


def test_waits_grow_while_failures_go_on(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page()).on("WATCH", PATH, *[Reset()] * 6, Stream([added("a", 11)]))
    assert first_items(client, 2) == ["listed ", "added a"]
    times = [seen.at for seen in server.requests("WATCH", PATH)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    # The first waits are 10 to 20 ms, the later ones 100 to 200 ms.
    assert min(gaps[4:]) >= 0.1


def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop(
    client: KubeClient, server: ScriptedServer
) -> None:
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream((), "well"))
    with watching(client):
        soon("it is asked for the eighth time", lambda: len(watch_versions(server)) >= 8)
    times = [seen.at for seen in server.requests("WATCH", PATH)]
    # From the fifth failure on the waits are 100 to 200 ms.
    assert min(after - before for before, after in itertools.pairwise(times[5:])) >= 0.1


# --- stopping -------------------------------------------------------------------------------------------------------


@contextmanager
def watching(client: KubeClient) -> Iterator[None]:
    stop = threading.Event()
    consumer = threading.Thread(target=lambda: list(client.watch(PODS, type=Pod, stop=stop)))
    consumer.start()
    try:
        yield
    finally:
        stop.set()
        consumer.join(_AT_ONCE_SECONDS)
        assert not consumer.is_alive()


_AT_ONCE_SECONDS = 60
"""On a busy machine; far from the time for which the servers below say nothing."""
_SILENT_SECONDS = 120

SILENT: dict[str, tuple[str, Callable[[ScriptedServer], ScriptedServer]]] = {
    "in a stream": ("WATCH", lambda s: s.on("GET", PATH, page()).on("WATCH", PATH, Stream())),
    "before the stream's headers": (
        "WATCH",
        lambda s: s.on("GET", PATH, page()).on("WATCH", PATH, Silence(_SILENT_SECONDS, Stream())),
    ),
    "in the list": ("GET", lambda s: s.on("GET", PATH, Silence(_SILENT_SECONDS, page()))),
    "between tries": (
        "WATCH",
        lambda s: s.on("GET", PATH, page()).on(
            "WATCH", PATH, refusal(429, "TooManyRequests", "slow", Retry_After=str(_SILENT_SECONDS))
        ),
    ),
}


@pytest.mark.parametrize(("asked", "script"), SILENT.values(), ids=SILENT)
def test_stop_ends_a_watch_at_once_while_the_server_is_silent(
    asked: str, script: Callable[[ScriptedServer], ScriptedServer], client: KubeClient, server: ScriptedServer
) -> None:
    script(server)
    with watching(client):
        soon("the server has been asked", lambda: server.requests(asked, PATH))
        time.sleep(0.3)  # and the client waits for the answer, or for its next try


def own_threads(others: set[threading.Thread]) -> list[str]:
    return [one.name for one in set(threading.enumerate()) - others if one.name == "watch pods"]


def test_a_stopped_watch_leaves_no_thread_behind(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([added("a", 11)]))
    others = set(threading.enumerate())
    first_items(client, 2)
    soon("its thread has ended", lambda: not own_threads(others))


def test_a_watch_that_nobody_reads_on_ends_with_its_iterator(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([added(str(n), 11 + n) for n in range(3_000)]))
    others = set(threading.enumerate())
    items = client.watch(PODS, stop=threading.Event())
    next(items)
    items.close()  # type: ignore[attr-defined]
    soon("its thread has ended", lambda: not own_threads(others))


def test_nothing_is_lost_when_the_reader_is_slow(client: KubeClient, server: ScriptedServer) -> None:
    names = [f"p{n}" for n in range(2_500)]
    server.on("GET", PATH, page()).on("WATCH", PATH, Stream([added(name, 11 + n) for n, name in enumerate(names)]))
    assert first_items(client, 2_501)[1:] == [f"added {name}" for name in names]


def test_after_a_long_outage_a_watch_is_tried_again_every_few_seconds() -> None:
    assert WatchSettings().backoff.wait_seconds(1000, draw=lambda: 0.0) == 5


# --- since a list ---------------------------------------------------------------------------------------------------


def test_a_watch_since_a_list_begins_with_the_changes(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page(pod("a", 3))).on("WATCH", PATH, Stream([added("b", 11)]))
    listing, stop, answers = client.list(PODS, type=Pod), threading.Event(), []
    items = client.watch(PODS, type=Pod, stop=stop, since=listing, on_answer=lambda: answers.append(1))
    assert said(next(items)) == "added b"
    stop.set()
    assert list(items) == []
    assert (watch_versions(server), len(server.requests("GET", PATH)), len(answers)) == (["10"], 1, 2)


def test_a_watch_since_a_list_that_is_refused_at_first_ends(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page()).on("WATCH", PATH, refusal(403, "Forbidden", "may not watch"))
    listing = client.list(PODS, type=Pod)
    with pytest.raises(ForbiddenError):
        next(client.watch(PODS, type=Pod, stop=threading.Event(), since=listing))


def test_a_watch_that_is_ended_at_once_each_time_is_no_sign_that_it_is_alive(
    client: KubeClient, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a proxy that passes on the head of an answer alone: no change would ever come."""
    monkeypatch.setattr(watching_module, "_TOO_SHORT_SECONDS", 3600.0)  # however busy the machine is
    server.on("WATCH", PATH, Stream(end="well"))
    since: Listing[Pod] = Listing((), "10")
    stop = threading.Event()
    answers: list[int] = []

    def watch() -> None:
        for _ in client.watch(PODS, type=Pod, stop=stop, since=since, on_answer=lambda: answers.append(1)):
            pass

    thread = threading.Thread(target=watch)
    thread.start()
    eventually("it is watched again and again", lambda: len(server.requests("WATCH", PATH)) > 3, seconds=120)
    stop.set()
    thread.join(120)
    assert not thread.is_alive()
    assert answers == [1]
