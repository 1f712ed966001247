import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Self

import pytest

from api_server_in_memory import ApiServerInMemory
from berth_core import Pod
from berth_kube import watched_lists
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import PODS, RESERVATIONS
from berth_kube.watch_items import Changed, Listed, Removed
from berth_kube.watched_lists import WatchedLists
from scripted_server import Answer, ScriptedServer, page, refusal
from waiting import eventually

pytestmark = pytest.mark.timeout(300)

PATH = "/api/v1/pods"
LAGS_BY_SECONDS = 0.3
NEVER_SECONDS = 3600.0


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as long for a watch, and for its threads, as a busy machine needs."""
    for name in ("_BEHIND_SECONDS", "_JOIN_SECONDS"):
        monkeypatch.setattr(watched_lists, name, 120.0)


def pod(name: str, **labels: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}


@pytest.fixture
def cluster() -> ApiServerInMemory:
    cluster = ApiServerInMemory()
    cluster.put(PODS, pod("a"))
    cluster.put(PODS, pod("b"))
    return cluster


@pytest.fixture
def lists(cluster: ApiServerInMemory) -> WatchedLists:
    return WatchedLists(cluster.as_client())


def names(lists: WatchedLists) -> list[str]:
    return sorted(listed.metadata.name for listed in lists.list(PODS, type=Pod).items)


def times_listed(cluster: ApiServerInMemory) -> int:
    return sum(call.startswith("list pods") for call in cluster.calls)


def test_a_kind_is_listed_once_and_then_watched(cluster: ApiServerInMemory, lists: WatchedLists) -> None:
    assert names(lists) == ["a", "b"]
    cluster.put(PODS, pod("c"))
    cluster.remove(PODS, cluster.get(PODS, "a", namespace="default"))
    eventually("the changes are there", lambda: names(lists) == ["b", "c"], seconds=60)
    assert times_listed(cluster) == 1
    lists.close()


def create(cluster: ApiServerInMemory) -> None:
    cluster.create(PODS, pod("c"), namespace="default")


def merge_patch(cluster: ApiServerInMemory) -> None:
    cluster.merge_patch(PODS, "b", {"metadata": {"labels": {"app": "web"}}}, namespace="default")


def json_patch(cluster: ApiServerInMemory) -> None:
    operations = [{"op": "add", "path": "/metadata/labels/app", "value": "web"}]
    cluster.json_patch(PODS, "b", operations, namespace="default")


def delete(cluster: ApiServerInMemory) -> None:
    cluster.delete(PODS, "a", namespace="default")


def evict(cluster: ApiServerInMemory) -> None:
    cluster.evict("default", "a", uid="uid-a")


def get_what_another_changed(cluster: ApiServerInMemory) -> None:
    cluster.put(PODS, pod("b", app="web"))
    cluster.get(PODS, "b", namespace="default")


def find_gone_what_another_deleted(cluster: ApiServerInMemory) -> None:
    cluster.remove(PODS, cluster.get(PODS, "a", namespace="default"))
    with pytest.raises(NotFoundError):
        cluster.get(PODS, "a", namespace="default")


@pytest.mark.parametrize(
    "act", [create, merge_patch, json_patch, delete, evict, get_what_another_changed, find_gone_what_another_deleted]
)
def test_an_answer_is_not_older_than_what_calls_have_shown(
    cluster: ApiServerInMemory, lists: WatchedLists, act: Callable[[ApiServerInMemory], None]
) -> None:
    names(lists)
    cluster.watch_delays["pods"] = LAGS_BY_SECONDS
    act(cluster)
    items = sorted(lists.list(PODS, type=Pod).items, key=lambda listed: listed.metadata.name)
    assert tuple(items) == cluster.list(PODS, type=Pod).items
    lists.close()


def test_a_watch_that_stays_behind_is_replaced_by_a_list(
    cluster: ApiServerInMemory, lists: WatchedLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_lists, "_BEHIND_SECONDS", 0.0)
    names(lists)
    cluster.watch_delays["pods"] = NEVER_SECONDS
    cluster.create(PODS, pod("c"), namespace="default")
    assert (names(lists), times_listed(cluster)) == (["a", "b", "c"], 2)
    lists.close()


def test_a_watch_may_be_behind_as_long_as_its_list_has_taken(
    cluster: ApiServerInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, seconds_passed = cluster.as_client(), [0.0]
    list_pages = client.list_pages

    def list_slowly(*args: Any, **options: Any) -> Any:  # noqa: ANN401 - passes on what it is given
        seconds_passed[0] += 40.0
        return list_pages(*args, **options)

    monkeypatch.setattr(client, "list_pages", list_slowly)
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + seconds_passed[0])
    monkeypatch.setattr(watched_lists, "time", clock)
    monkeypatch.setattr(watched_lists, "_BEHIND_SECONDS", 0.0)
    lists = WatchedLists(client)
    names(lists)
    cluster.watch_delays["pods"] = LAGS_BY_SECONDS
    cluster.create(PODS, pod("c"), namespace="default")
    assert (names(lists), times_listed(cluster)) == (["a", "b", "c"], 1)
    lists.close()


def test_a_silent_watch_is_replaced_by_a_list(
    cluster: ApiServerInMemory, lists: WatchedLists, monkeypatch: pytest.MonkeyPatch
) -> None:
    names(lists)
    monkeypatch.setattr(watched_lists, "_RETURN_SECONDS", -NEVER_SECONDS)
    names(lists)
    assert times_listed(cluster) == 2
    lists.close()


def test_what_a_selector_matches_is_read_from_the_server(cluster: ApiServerInMemory, lists: WatchedLists) -> None:
    cluster.put(PODS, pod("c", app="web"))
    selected = lists.list(PODS, label_selector="app=web", type=Pod).items
    assert [listed.metadata.name for listed in selected] == ["c"]
    assert cluster.watchers == []


def test_objects_without_a_type_are_kept_too(cluster: ApiServerInMemory, lists: WatchedLists) -> None:
    assert lists.list(RESERVATIONS).items == ()
    made = cluster.create(RESERVATIONS, {"metadata": {"name": "r", "namespace": "default"}}, namespace="default")
    assert lists.list(RESERVATIONS).items == (made,)
    lists.close()


def test_at_the_end_no_watch_is_left_and_nothing_is_kept(cluster: ApiServerInMemory, lists: WatchedLists) -> None:
    before = set(threading.enumerate())
    names(lists)
    lists.close()
    eventually("its threads have ended", lambda: set(threading.enumerate()) <= before, seconds=60)
    assert not cluster.sightings.are_awaited
    names(lists)
    eventually("no thread has been begun", lambda: set(threading.enumerate()) <= before, seconds=60)
    assert times_listed(cluster) == 2


@pytest.mark.parametrize(
    "refused",
    [
        pytest.param(refusal(403, "Forbidden", 'User "berth" cannot watch pods'), id="may not be watched"),
        pytest.param(refusal(410, "Expired", "too old resource version"), id="is too old to be watched"),
    ],
)
def test_a_kind_whose_watch_is_refused_is_listed_anew(
    client: KubeClient, server: ScriptedServer, refused: Answer
) -> None:
    a, b = ({"metadata": {"name": name, "namespace": "default"}} for name in "ab")
    server.on("GET", PATH, page(a), page(a, b)).on("WATCH", PATH, refused)
    lists = WatchedLists(client)
    assert names(lists) == ["a"]
    eventually("it is listed again", lambda: names(lists) == ["a", "b"], seconds=60)
    lists.close()


def test_a_kind_that_is_not_served_is_asked_for_again(client: KubeClient, server: ScriptedServer) -> None:
    server.on("GET", PATH, refusal(404, "NotFound", "no such kind"), page({"metadata": {"name": "a"}}))
    lists = WatchedLists(client)
    with pytest.raises(NotFoundError):
        names(lists)
    assert names(lists) == ["a"]
    lists.close()


# --- what others follow -----------------------------------------------------------------------------------------------


class Follower:
    """The pods that are there by what a watch of the kept lists brings."""

    def __init__(self, lists: WatchedLists) -> None:
        self.pods: set[str] = set()
        self.lists = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, args=(lists,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(120)
        assert not self._thread.is_alive()

    def _follow(self, lists: WatchedLists) -> None:
        for item in lists.watch(PODS, stop=self._stop, type=Pod):
            match item:
                case Listed(items):
                    self.lists += 1
                    self.pods = {listed.metadata.name for listed in items}
                case Changed(changed):
                    self.pods |= {changed.metadata.name}
                case Removed(removed):
                    self.pods -= {removed.metadata.name}


def test_who_follows_what_is_kept_costs_no_list_and_no_watch(cluster: ApiServerInMemory, lists: WatchedLists) -> None:
    names(lists)
    eventually("it is watched", lambda: len(cluster.watchers) == 1, seconds=60)
    with Follower(lists) as follower:
        eventually("all are there", lambda: follower.pods == {"a", "b"}, seconds=60)
        cluster.put(PODS, pod("c"))
        cluster.remove(PODS, cluster.get(PODS, "a", namespace="default"))
        eventually("the changes are there", lambda: follower.pods == {"b", "c"}, seconds=60)
    assert (times_listed(cluster), len(cluster.watchers), follower.lists) == (1, 1, 1)
    lists.close()


@pytest.mark.parametrize("is_kept", [True, False])
def test_who_follows_goes_on_with_a_watch_of_its_own_where_nothing_is_kept(
    cluster: ApiServerInMemory, lists: WatchedLists, *, is_kept: bool
) -> None:
    if is_kept:
        names(lists)
    with Follower(lists) as follower:
        eventually("all are there", lambda: follower.pods == {"a", "b"}, seconds=60)
        lists.close()
        cluster.put(PODS, pod("c"))
        eventually("the change is there", lambda: follower.pods == {"a", "b", "c"}, seconds=60)


def test_a_watch_can_go_on_from_what_was_kept(cluster: ApiServerInMemory, lists: WatchedLists) -> None:
    assert lists.kept(PODS, Pod) is None
    names(lists)
    cluster.put(PODS, pod("c"))
    eventually("the change is there", lambda: names(lists) == ["a", "b", "c"], seconds=60)
    kept = lists.kept(PODS, Pod)
    lists.close()
    assert kept is not None
    assert sorted(item.metadata.name for item in kept.items) == ["a", "b", "c"]
    assert kept.resource_version == str(cluster.version)
    assert lists.kept(PODS, Pod) is None
