"""A list that takes longer than the API server keeps its events: the watch is opened before it."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core import Pod
from berth_kube import Bookmark, Changed, KubeClient, Listed, Removed, WatchedLists, WatchItem, watched_lists
from berth_kube.decoding import ObjectKey, ObjectVersion
from berth_kube.list_beside_watch import ListBesideWatch
from berth_kube.listing import Listing, LooseListing
from berth_kube.resources import PODS
from scripted_server import Answer, Reset, ScriptedServer, Stream, answer, event, page, refusal
from waiting import eventually

pytestmark = pytest.mark.timeout(300)

PATH = "/api/v1/pods"
TOO_OLD = refusal(410, "Expired", "too old resource version")
SECONDS = 120


def pod(name: str, version: int) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata}


def expired(continue_token: str) -> Answer:
    """Return the refusal of a token, with one for the rest as it is now."""
    status = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    return answer({**status, "metadata": {"continue": continue_token}}, 410)


@dataclass(frozen=True, slots=True)
class Once:
    """A reply that waits for a moment of the test."""

    moment: threading.Event
    then: Any

    def send(self, handler: Any) -> bool:  # noqa: ANN401 - the server's own handler
        self.moment.wait(SECONDS)
        return bool(self.then.send(handler))


@dataclass(frozen=True, slots=True)
class Then:
    """A stream in two parts, the second at a moment of the test."""

    first: tuple[bytes, ...]
    moment: threading.Event
    second: tuple[bytes, ...]
    sent: threading.Event = field(default_factory=threading.Event)

    def send(self, handler: Any) -> bool:  # noqa: ANN401 - the server's own handler
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for lines in (self.first, self.second):
            for line in lines:
                handler.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.sent.set()
            self.moment.wait(SECONDS)
        handler.script.stopping.wait(SECONDS)
        return False


class Picture:
    """What is there, by the events of a watch."""

    def __init__(self) -> None:
        self.lists: list[Listed[Pod]] = []
        self.pods: dict[str, str] = {}
        self.steps: list[str] = []

    def apply(self, item: object) -> None:
        match item:
            case Listed(items=items):
                self.lists.append(item)
                self.pods = {listed.metadata.name: listed.metadata.resource_version for listed in items}
                self.steps.append("listed " + " ".join(self.pods))
            case Changed(item=Pod(metadata=metadata)):
                self.pods[metadata.name] = metadata.resource_version
                self.steps.append(f"{metadata.name} {metadata.resource_version}")
            case Removed(item=Pod(metadata=metadata)):
                self.pods.pop(metadata.name, None)
                self.steps.append(f"without {metadata.name}")


@contextmanager
def watched(client: KubeClient) -> Iterator[Picture]:
    picture, stop = Picture(), threading.Event()

    def read() -> None:
        for item in client.watch(PODS, type=Pod, stop=stop):
            picture.apply(item)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield picture
    finally:
        stop.set()
        reader.join(SECONDS)
        assert not reader.is_alive()


def watch_versions(server: ScriptedServer) -> list[str]:
    return [seen.query["resourceVersion"] for seen in server.requests("WATCH", PATH)]


def test_changes_while_a_slow_list_is_read_are_neither_lost_nor_undone(
    client: KubeClient, server: ScriptedServer
) -> None:
    read, later = threading.Event(), threading.Event()
    changes = Then(
        (
            event("ADDED", pod("older", 22)),  # older than the list, which has it in a later version
            event("DELETED", pod("gone", 23)),  # older than the list, which is without it
            event("MODIFIED", pod("a", 31)),
            event("ADDED", pod("new", 32)),
            event("MODIFIED", pod("a", 33)),
            event("DELETED", pod("b", 34)),
        ),
        later,
        (event("MODIFIED", pod("new", 40)),),
    )
    slow = Once(read, page(pod("a", 5), pod("b", 6), pod("older", 24), resource_version="30"))
    server.on("GET", PATH, page(pod("a", 5), resource_version="10"), page(pod("a", 5), resource_version="20"), slow)
    server.on("WATCH", PATH, TOO_OLD, changes)
    with watched(client) as picture:
        assert changes.sent.wait(SECONDS)
        eventually("the list is requested", lambda: len(server.requests("GET", PATH)) == 3, seconds=SECONDS)
        assert picture.steps == ["listed a"], "nothing is said of the changes before the list is there"
        read.set()
        eventually("the change after it is there", lambda: picture.pods.get("new") == "32", seconds=SECONDS)
        later.set()
        eventually("the later change is there", lambda: picture.pods.get("new") == "40", seconds=SECONDS)
        assert picture.pods == {"a": "33", "older": "24", "new": "40"}
        assert not picture.lists[-1].restored
    assert watch_versions(server) == ["10", "20"], "the watch was open before the list"
    assert [seen.query.get("limit") for seen in server.requests("GET", PATH)] == ["500", "1", "500"]


def test_a_list_whose_pages_expire_goes_on_with_the_rest_as_it_is_by_then(
    client: KubeClient, server: ScriptedServer
) -> None:
    """One piece would be cut off after the API server's `--request-timeout`."""
    later = threading.Event()
    changes = Then(
        (),
        later,
        (
            event("MODIFIED", pod("b", 35)),  # older than its page
            event("MODIFIED", pod("a", 36)),
            event("DELETED", pod("c", 37)),
            event("MODIFIED", pod("b", 45)),
        ),
    )
    server.on(
        "GET",
        PATH,
        page(resource_version="10"),
        page(resource_version="20"),
        page(pod("a", 5), resource_version="30", continue_token="next"),
        expired("the rest"),
        page(pod("b", 38), pod("d", 7), resource_version="40"),
    )
    server.on("WATCH", PATH, TOO_OLD, changes)
    with watched(client) as picture:
        eventually("the list is there", lambda: picture.pods, seconds=SECONDS)
        assert picture.pods == {"a": "5", "b": "38", "d": "7"}
        later.set()
        eventually("the last change is there", lambda: picture.pods.get("b") == "45", seconds=SECONDS)
        assert picture.pods == {"a": "36", "b": "45", "d": "7"}
        assert "b 35" not in picture.steps, "it never went back"
    assert server.requests("GET", PATH)[-1].query["continue"] == "the rest"


def test_the_end_of_an_object_is_not_lost_where_its_name_is_given_again(
    client: KubeClient, server: ScriptedServer
) -> None:
    """As of a StatefulSet's pod: the list has the first, and its end comes before the second does."""
    read = threading.Event()
    second = pod("a", 33)
    second["metadata"]["uid"] = "uid-second"
    changes = Then((event("DELETED", pod("a", 32)), event("ADDED", second)), threading.Event(), ())
    slow = Once(read, page(pod("a", 5), resource_version="30"))
    server.on("GET", PATH, page(resource_version="10"), page(resource_version="20"), slow)
    server.on("WATCH", PATH, TOO_OLD, changes)
    with watched(client) as picture:
        assert changes.sent.wait(SECONDS)
        read.set()
        eventually("the second is there", lambda: picture.pods == {"a": "33"}, seconds=SECONDS)
        assert picture.steps[1:] == ["listed a", "without a", "a 33"]


def test_a_name_that_is_given_again_before_its_page_is_read_keeps_its_object(
    client: KubeClient, server: ScriptedServer
) -> None:
    later = threading.Event()
    second = pod("b", 33)
    second["metadata"]["uid"] = "uid-second"
    late = (event("DELETED", pod("b", 32)), event("ADDED", second), event("MODIFIED", pod("a", 41)))
    server.on(
        "GET",
        PATH,
        page(resource_version="10"),
        page(resource_version="20"),
        page(pod("a", 5), resource_version="30", continue_token="next"),
        expired("the rest"),
        page(second, resource_version="40"),
    )
    server.on("WATCH", PATH, TOO_OLD, Then((), later, late))
    with watched(client) as picture:
        eventually("the list is there", lambda: picture.pods == {"a": "5", "b": "33"}, seconds=SECONDS)
        later.set()
        eventually("the last change is there", lambda: picture.pods["a"] == "41", seconds=SECONDS)
        assert picture.steps[1:] == ["listed a b", "a 41"]


def test_a_slow_list_is_read_again_after_a_fault_while_its_watch_goes_on(
    client: KubeClient, server: ScriptedServer
) -> None:
    lists = [Reset()] * 12  # more than a call repeats by itself
    server.on("GET", PATH, page(), page(resource_version="20"), *lists, page(pod("a", 25), resource_version="30"))
    server.on("WATCH", PATH, TOO_OLD, Stream([event("MODIFIED", pod("a", 31))], "well"), Stream())
    with watched(client) as picture:
        eventually("all is there", lambda: picture.pods == {"a": "31"}, seconds=SECONDS)
    assert watch_versions(server)[:3] == ["10", "20", "31"]


def test_a_watch_that_expires_beside_its_list_begins_anew(client: KubeClient, server: ScriptedServer) -> None:
    never = threading.Event()
    late = Once(never, page(pod("of-the-first", 25), resource_version="28", continue_token="next"))
    server.on(
        "GET",
        PATH,
        page(),
        page(resource_version="20"),
        late,
        page(resource_version="40"),
        page(pod("a", 41), resource_version="42"),
    )
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    listed = threading.Event()
    server.on("WATCH", PATH, TOO_OLD, Once(listed, Stream([event("ERROR", gone)])), Stream())
    with watched(client) as picture:
        eventually("the first list is requested", lambda: len(server.requests("GET", PATH)) == 3, seconds=SECONDS)
        listed.set()
        eventually("the second list is there", lambda: picture.pods == {"a": "41"}, seconds=SECONDS)
        never.set()
        eventually("its thread has ended", lambda: not _readers(), seconds=SECONDS)
        assert picture.pods == {"a": "41"}, "the first list is dropped"
        assert len(server.requests("GET", PATH)) == 5, "and no further page of it is read"


def test_that_versions_went_back_is_said_though_the_first_list_since_is_dropped(
    client: KubeClient, server: ScriptedServer
) -> None:
    never, begun = threading.Event(), threading.Event()
    server.on(
        "GET",
        PATH,
        page(resource_version="100"),
        page(resource_version="20"),
        Once(never, page(resource_version="28")),
        page(resource_version="40"),
        page(pod("a", 41), resource_version="42"),
    )
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    server.on("WATCH", PATH, TOO_OLD, Once(begun, Stream([event("ERROR", gone)])), Stream())
    with watched(client) as picture:
        eventually("the first list since is requested", lambda: len(server.requests("GET", PATH)) == 3, seconds=SECONDS)
        begun.set()
        eventually("the second is there", lambda: picture.pods == {"a": "41"}, seconds=SECONDS)
        assert picture.lists[-1].restored
        never.set()
        eventually("the threads have ended", lambda: not _readers(), seconds=SECONDS)


def test_a_bookmark_comes_after_the_changes_that_waited_for_the_list() -> None:
    seen: list[WatchItem[str]] = []
    has_come = threading.Event()

    def emit(item: WatchItem[str]) -> None:
        if isinstance(item, Changed) and not seen[1:]:
            watch.start()
            has_come.wait(0.2)  # as a caller that is behind: only a bookmark that overtakes is there by then
        seen.append(item)
        if isinstance(item, Bookmark):
            has_come.set()

    beside = ListBesideWatch(emit)
    watch = threading.Thread(target=lambda: beside.put_bookmark(Bookmark("33")))
    beside.put_bookmark(Bookmark("30"))
    changes = [Changed("a", added=False), Changed("b", added=False)]
    for number, change in enumerate(changes):
        beside.put_change(ObjectVersion(ObjectKey("", change.item), "", 31 + number), change)

    beside.put_list(LooseListing(Listing((), "20"), {}, "20"))
    watch.join(SECONDS)

    assert seen[1:] == [*changes, Bookmark("33")]


def _readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("list pods")]


def test_a_quick_list_that_expires_later_is_not_read_beside_a_watch(client: KubeClient, server: ScriptedServer) -> None:
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    server.on("GET", PATH, page(), page(pod("a", 20), resource_version="20"))
    server.on("WATCH", PATH, Stream([event("ADDED", pod("b", 11)), event("ERROR", gone)]), Stream())
    with watched(client) as picture:
        eventually("it is listed again", lambda: picture.pods == {"a": "20"}, seconds=SECONDS)
    assert [seen.query["limit"] for seen in server.requests("GET", PATH)] == ["500", "500"]


# --- what is kept for a plan ------------------------------------------------------------------------------------------


def names(lists: WatchedLists) -> Mapping[str, str]:
    return {listed.metadata.name: listed.metadata.resource_version for listed in lists.list(PODS, type=Pod).items}


def test_a_kind_whose_list_is_slow_is_watched_before_it_is_listed_again(
    client: KubeClient, server: ScriptedServer
) -> None:
    read = threading.Event()
    changes = Then((event("MODIFIED", pod("a", 25)), event("MODIFIED", pod("b", 31))), threading.Event(), ())
    slow = Once(read, page(pod("a", 26), pod("b", 2), resource_version="30"))
    server.on("GET", PATH, page(pod("a", 1), resource_version="10"), page(resource_version="20"), slow)
    server.on("WATCH", PATH, TOO_OLD, changes)
    lists = WatchedLists(client)
    assert names(lists) == {"a": "1"}
    releaser = threading.Thread(target=lambda: changes.sent.wait(SECONDS) and read.set())
    releaser.start()
    eventually("the change is there", lambda: names(lists) == {"a": "26", "b": "31"}, seconds=SECONDS)
    assert len(server.requests("GET", PATH)) == 3, "from then on it is watched"
    releaser.join(SECONDS)
    lists.close()


def test_changes_after_etcd_was_restored_reach_a_kind_that_was_watched_before_its_list(
    client: KubeClient, server: ScriptedServer
) -> None:
    restored = threading.Event()
    gone = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    before = Then((event("ADDED", pod("b", 2001)),), restored, (event("ERROR", gone),))
    server.on(
        "GET",
        PATH,
        page(pod("a", 1), resource_version="10"),
        page(resource_version="2000"),
        page(pod("a", 1000), resource_version="2000"),
        page(pod("a", 5), resource_version="30"),
    )
    server.on("WATCH", PATH, TOO_OLD, before, Stream([event("MODIFIED", pod("a", 31)), event("ADDED", pod("c", 32))]))
    lists = WatchedLists(client)
    assert names(lists) == {"a": "1"}
    eventually("the first change is there", lambda: names(lists) == {"a": "1000", "b": "2001"}, seconds=SECONDS)
    restored.set()
    eventually("the changes since are there", lambda: names(lists) == {"a": "31", "c": "32"}, seconds=SECONDS)
    lists.close()


def test_what_is_kept_for_a_plan_is_read_in_pages_though_these_expire(
    client: KubeClient, server: ScriptedServer
) -> None:
    """It is handed out once the watch has brought all that came before its last page."""
    late = (
        event("MODIFIED", pod("a", 36)),
        event("DELETED", pod("c", 37)),
        event("BOOKMARK", {"metadata": {"resourceVersion": "40"}}),
    )
    changes = Then((event("ADDED", pod("b", 38)),), threading.Event(), late)
    server.on(
        "GET",
        PATH,
        page(pod("a", 5), pod("c", 6), resource_version="10", continue_token="next"),
        expired("a rest that is not whole"),
        page(resource_version="20"),
        page(pod("a", 5), pod("c", 6), resource_version="30", continue_token="next"),
        expired("the rest"),
        page(pod("b", 38), pod("d", 7), resource_version="40"),
    )
    server.on("WATCH", PATH, changes)
    lists = WatchedLists(client)
    read: list[Mapping[str, str]] = []
    reader = threading.Thread(target=lambda: read.append(names(lists)))
    reader.start()
    eventually("the last page is read", lambda: len(server.requests("GET", PATH)) == 6, seconds=SECONDS)
    changes.moment.set()
    reader.join(SECONDS)
    assert read == [{"a": "36", "b": "38", "d": "7"}]
    assert all(seen.query.get("limit") for seen in server.requests("GET", PATH)), "never in one piece"
    lists.close()


def test_what_expires_and_is_not_caught_up_with_is_read_in_one_piece(
    client: KubeClient, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_lists, "_RETURN_SECONDS", -3600.0)
    whole = page(pod("a", 36), resource_version="50")
    pages = page(pod("a", 5), resource_version="30", continue_token="next"), expired("the rest")
    server.on("GET", PATH, *pages, page(resource_version="20"), *pages, page(resource_version="40"), whole)
    server.on("WATCH", PATH, Stream())
    lists = WatchedLists(client)
    assert names(lists) == {"a": "36"}
    lists.close()
