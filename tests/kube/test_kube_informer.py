"""Which event of a watch changes what in a store."""

import sys
import threading
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import Pod
from berth_core.errors import BerthError, PermanentError
from berth_kube.client import KubeClient
from berth_kube.informer import Informer, Store
from berth_kube.resources import PODS
from berth_kube.watch_items import Bookmark, Changed, Listed, Removed, WatchItem
from builders import pod
from scripted_server import ScriptedServer, Stream, page
from waiting import eventually, soon

PATH = "/api/v1/pods"
BOUND_SECONDS = 60


def one(name: str, **labels: str) -> Pod:
    return pod(name, uid=f"uid-{name}", labels=labels)


def listed(*pods: Pod) -> Listed[Pod]:
    return Listed(pods, "1")


def changed(of: Pod) -> Changed[Pod]:
    return Changed(of, added=False)


def is_kept(seen: Pod) -> bool:
    return seen.metadata.labels.get("kept", "yes") == "yes"


@dataclass(frozen=True)
class Case:
    before: tuple[Pod, ...]
    event: WatchItem[Pod]
    want_news: bool
    want: set[tuple[str, str]] = field(default_factory=set)
    """The names with their label `size`."""


CASES = {
    "a list is all there is": Case(
        (one("a"), one("b")), listed(one("b"), one("c")), want_news=True, want={("b", ""), ("c", "")}
    ),
    "a list that says the same is news too": Case((one("a"),), listed(one("a")), want_news=True, want={("a", "")}),
    "a list of nothing leaves nothing": Case((one("a"),), listed(), want_news=True),
    "of a list only what is kept counts": Case(
        (), listed(one("a"), one("b", kept="no")), want_news=True, want={("a", "")}
    ),
    "one that is new is added": Case((one("a"),), changed(one("b")), want_news=True, want={("a", ""), ("b", "")}),
    "one that changed takes its own place": Case(
        (one("a"),), changed(one("a", size="2")), want_news=True, want={("a", "2")}
    ),
    "one that is not kept is no news": Case(
        (one("a"),), changed(one("b", kept="no")), want_news=False, want={("a", "")}
    ),
    "one that is kept no longer stays as it was": Case(
        (one("a", size="1"),), changed(one("a", kept="no", size="2")), want_news=False, want={("a", "1")}
    ),
    "one of the same name is another": Case(
        (one("a"),),
        changed(pod("a", uid="another", labels={"size": "2"})),
        want_news=True,
        want={("a", ""), ("a", "2")},
    ),
    "one that is gone is forgotten": Case((one("a"), one("b")), Removed(one("a")), want_news=True, want={("b", "")}),
    "one that is gone is forgotten, kept no longer or not": Case(
        (one("a"),), Removed(one("a", kept="no")), want_news=True
    ),
    "one that was never kept is no news when it goes": Case(
        (one("a"),), Removed(one("b")), want_news=False, want={("a", "")}
    ),
    "a bookmark is no news": Case((one("a"),), Bookmark("2"), want_news=False, want={("a", "")}),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_an_event_changes_what_is_seen(case: Case) -> None:
    seen = Store(is_kept)
    seen.apply(listed(*case.before))

    assert seen.apply(case.event) is case.want_news
    assert {(found.metadata.name, found.metadata.labels.get("size", "")) for found in seen.objects()} == case.want


def test_without_a_choice_all_are_kept() -> None:
    seen: Store[Pod] = Store()
    seen.apply(listed(one("a", kept="no")))
    assert seen.apply(changed(one("b", kept="no")))
    assert len(seen.objects()) == 2


def test_all_is_seen_once_it_was_listed_and_not_before() -> None:
    seen: Store[Pod] = Store()
    seen.apply(changed(one("a")))
    assert not seen.listed.is_set()
    seen.apply(listed())
    assert seen.listed.is_set()


def test_what_was_returned_stays_as_it_was() -> None:
    seen: Store[Pod] = Store()
    seen.apply(listed(one("a")))
    before = seen.objects()
    seen.apply(changed(one("b")))
    seen.apply(Removed(one("a")))
    assert before == (one("a"),)


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    """Let threads take turns as often as can be."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hasty_threads")
def test_no_change_is_lost_where_several_threads_write_and_one_reads() -> None:
    seen: Store[Pod] = Store()
    pods = [one(f"pod-{number}") for number in range(300)]
    seen.apply(listed(*pods))
    writers = [threading.Thread(target=write, args=(seen, pods[first::2])) for first in (0, 1)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert len(seen.objects()) <= len(pods)
    assert len(seen.objects()) == len(pods)


def write(seen: Store[Pod], pods: list[Pod]) -> None:
    for _ in range(10):
        for way in (Removed, changed):
            for each in pods:
                seen.apply(way(each))


class Scripted:
    """A watch that yields what each of its calls was given, then waits to be stopped; an error ends the call."""

    def __init__(self, *calls: Iterable[WatchItem[Pod] | BerthError]) -> None:
        self._calls = iter(calls)

    def __call__(self, stop: threading.Event) -> Iterator[WatchItem[Pod]]:
        for item in next(self._calls):
            if isinstance(item, BerthError):
                raise item
            yield item
        stop.wait()


REFUSED = PermanentError("no right to it")


def test_an_informer_ends_with_the_watch_that_the_api_server_refuses() -> None:
    failures: list[BerthError] = []
    with Informer("of-this-test", Scripted([listed(one("a")), REFUSED], []), print, failures.append) as informer:
        informer.join(BOUND_SECONDS)
        assert failures == [REFUSED]
        assert not informer.is_alive
        assert "watch-of-this-test" not in {thread.name for thread in threading.enumerate()}


def test_an_informer_that_retries_watches_again_and_goes_on() -> None:
    failures: list[BerthError] = []
    store: Store[Pod] = Store()
    watch = Scripted([listed(one("a")), REFUSED], [REFUSED], [listed(one("b"))])
    with Informer("of-this-test", watch, store.apply, failures.append, retry_seconds=0):
        eventually("b is seen", lambda: store.objects() == (one("b"),), seconds=BOUND_SECONDS)
    assert failures == [REFUSED, REFUSED]


def test_leaving_an_informer_ends_its_thread() -> None:
    with Informer("of-this-test", Scripted([]), print, print) as informer:
        assert informer.is_alive
        assert "watch-of-this-test" in {thread.name for thread in threading.enumerate()}
    assert "watch-of-this-test" not in {thread.name for thread in threading.enumerate()}


class Head(msgspec.Struct, weakref=True):
    """An object that shows whether anything still refers to it."""

    metadata: dict[str, Any]


def test_a_handled_list_is_not_kept_while_nothing_changes(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, page({"metadata": {"name": "a"}})).on("WATCH", PATH, Stream())
    handled: list[weakref.ref[Head]] = []

    def handle(event: WatchItem[Head]) -> None:
        if isinstance(event, Listed):
            handled.extend(map(weakref.ref, event.items))

    with Informer("pods", lambda stop: client.watch(PODS, type=Head, stop=stop), handle, lambda _error: None):
        soon("it is listed and watched", lambda: handled and server.requests("WATCH", PATH))
        soon("the list is gone, though nothing has come since", lambda: handled[0]() is None)
