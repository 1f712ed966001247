"""Which marked nodes are in use and whether pods wait, by a watch that runs while there are marks."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from api_server_in_memory import ApiCall
from berth_core import Pod
from berth_descheduler.controller import pod_whereabouts
from berth_descheduler.controller.pod_whereabouts import WatchedWhereabouts
from berth_descheduler.migration.nodes.pods import PodHead
from berth_kube.decoding import decode_page
from berth_kube.errors import Call, ForbiddenError, GoneError
from berth_kube.listing import Listing
from berth_kube.resources import PODS, Resource
from builders import NOON_TEXT
from descheduler.fake_cluster import FakeCluster, call, failure, pod, waiting_pod
from waiting import soon

MARKED = frozenset({"idle", "free"})


class Listed(FakeCluster):
    """Keeps the types as which objects were listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed_types: list[type[Any]] = []

    def list(self, resource: Resource, *, type: type[Any] = dict, **rest: Any) -> Listing[Any]:  # noqa: A002, ANN401 - the options as they are
        self.listed_types.append(type)
        return super().list(resource, type=type, **rest)


class Watching(Listed):
    """Keeps from which resourceVersions pods were watched, "" for one that began with a list."""

    def __init__(self) -> None:
        super().__init__()
        self.since: list[str] = []

    def watch(self, resource: Resource, *, since: Listing[Any] | None = None, **rest: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        self.since.append("" if since is None else since.resource_version)
        return super().watch(resource, since=since, **rest)


class Expired(Watching):
    """Has forgotten every version."""

    def watch(self, resource: Resource, *, since: Listing[Any] | None = None, **rest: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        changes = super().watch(resource, since=since, **rest)
        if since is not None:
            raise GoneError(call("watch", resource, ""), failure(410))
        return changes


@pytest.fixture
def cluster() -> Watching:
    made = Watching()
    made.add(PODS, pod("web-0", "web", "busy", cpu="1"))
    return made


@pytest.fixture
def whereabouts(cluster: FakeCluster) -> Iterator[WatchedWhereabouts]:
    watched = WatchedWhereabouts(cluster.as_client())
    yield watched
    watched.stop()


def await_list(cluster: FakeCluster, whereabouts: WatchedWhereabouts) -> None:
    """Wait until no more pods are read for an answer."""

    def is_watched() -> bool:
        calls = len(cluster.calls)
        whereabouts.nodes_in_use(MARKED)
        return len(cluster.calls) == calls

    soon("the watch answers", is_watched)


def test_after_the_first_list_an_answer_costs_no_call(cluster: FakeCluster, whereabouts: WatchedWhereabouts) -> None:
    await_list(cluster, whereabouts)
    calls = len(cluster.calls)
    assert whereabouts.nodes_in_use(MARKED) == frozenset()
    assert not whereabouts.may_pods_wait()
    assert len(cluster.calls) == calls


@pytest.mark.parametrize("marked", [MARKED, frozenset({"idle", *(f"node-{number}" for number in range(40))})])
def test_one_list_of_heads_answers_first_and_begins_the_watch(
    cluster: Watching, whereabouts: WatchedWhereabouts, marked: frozenset[str]
) -> None:
    """At 1,000 nodes all pods as a whole would take 50 MB, however many nodes are marked."""
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    assert whereabouts.nodes_in_use(marked) == {"idle"}
    soon("it is watched", lambda: cluster.since)
    cluster.add(PODS, waiting_pod("web-2", "web", cpu="1"))
    soon("it waits", whereabouts.may_pods_wait)
    assert cluster.listed_types == [PodHead]
    assert cluster.since == [str(cluster.version - 1)]


@pytest.mark.parametrize("count", [2, 40])
def test_without_a_watch_no_pod_is_read_whole_from_a_list_of_all(count: int) -> None:
    cluster = Unwatched()
    cluster.add(PODS, pod("web-1", "web", "node-1", cpu="1"))
    marked = frozenset(f"node-{number}" for number in range(count))
    whereabouts = WatchedWhereabouts(cluster.as_client())
    assert whereabouts.nodes_in_use(marked) == {"node-1"}
    soon("what was listed is forgotten", whereabouts.may_pods_wait)
    cluster.listed_types.clear()
    assert whereabouts.nodes_in_use(marked) == {"node-1"}
    assert cluster.listed_types == ([PodHead] if count > 20 else [Pod] * count)
    whereabouts.stop()


def test_a_pod_that_comes_to_a_marked_node_is_seen_until_it_leaves(
    cluster: FakeCluster, whereabouts: WatchedWhereabouts
) -> None:
    await_list(cluster, whereabouts)
    raw_pod = cluster.add(PODS, waiting_pod("web-1", "web", cpu="1"))
    soon("it waits", whereabouts.may_pods_wait)
    cluster.merge_patch(PODS, "web-1", {"spec": {"nodeName": "idle"}}, namespace="shop")
    soon("it is on its node", lambda: whereabouts.nodes_in_use(MARKED) == {"idle"})
    assert not whereabouts.may_pods_wait()
    cluster.remove(PODS, raw_pod)
    soon("it has left", lambda: not whereabouts.nodes_in_use(MARKED))


@pytest.mark.parametrize("leaving", ["ended", "being deleted", "daemon"])
def test_a_pod_that_occupies_no_node_does_not_count(
    cluster: FakeCluster, whereabouts: WatchedWhereabouts, leaving: str
) -> None:
    body = pod("web-1", "web", "idle", cpu="1")
    match leaving:
        case "ended":
            body["status"] = {"phase": "Succeeded"}
        case "being deleted":
            body["metadata"]["deletionTimestamp"] = NOON_TEXT
        case _:
            body["metadata"]["ownerReferences"][0]["kind"] = "DaemonSet"
    await_list(cluster, whereabouts)
    cluster.add(PODS, body)
    cluster.add(PODS, pod("web-2", "web", "free", cpu="1"))  # seen after it
    soon("the later one is seen", lambda: "free" in whereabouts.nodes_in_use(MARKED))
    assert whereabouts.nodes_in_use(MARKED) == {"free"}


def test_without_marked_nodes_nothing_is_watched(cluster: FakeCluster, whereabouts: WatchedWhereabouts) -> None:
    await_list(cluster, whereabouts)
    calls = len(cluster.calls)
    assert whereabouts.nodes_in_use(frozenset()) == frozenset()
    assert len(cluster.calls) == calls
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    assert whereabouts.nodes_in_use(MARKED) == {"idle"}
    assert len(cluster.calls) > calls


class Unwatched(Listed):
    """Forbids watches."""

    def watch(self, resource: Resource, **_: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        self.calls.append(ApiCall(f"watch {resource.plural} "))
        raise ForbiddenError(call("watch", resource, ""), failure(403))


def test_without_the_right_to_watch_pods_are_read_each_time() -> None:
    cluster = Unwatched()
    whereabouts = WatchedWhereabouts(cluster.as_client())
    assert whereabouts.nodes_in_use(MARKED) == frozenset()
    soon("what was listed is forgotten", whereabouts.may_pods_wait)
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    assert whereabouts.nodes_in_use(MARKED) == {"idle"}
    assert "watch" in {call.verb for call in cluster.calls}
    whereabouts.stop()


def test_a_watch_goes_on_from_the_pods_that_a_run_has_left(cluster: Watching, whereabouts: WatchedWhereabouts) -> None:
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    whereabouts.take_over(cluster.list(PODS, type=Pod))
    cluster.calls.clear()
    assert whereabouts.nodes_in_use(MARKED) == {"idle"}
    assert not whereabouts.may_pods_wait()
    soon("it is watched", lambda: cluster.since)
    cluster.add(PODS, waiting_pod("web-2", "web", cpu="1"))
    soon("it waits", whereabouts.may_pods_wait)
    assert (cluster.calls, cluster.since) == ([], [str(cluster.version - 1)])


def test_what_a_run_has_left_is_forgotten_without_marked_nodes(
    cluster: Watching, whereabouts: WatchedWhereabouts
) -> None:
    whereabouts.take_over(cluster.list(PODS, type=Pod))
    assert whereabouts.nodes_in_use(frozenset()) == frozenset()
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    assert whereabouts.nodes_in_use(MARKED) == {"idle"}


def test_a_watch_that_is_on_takes_nothing_over(cluster: Watching, whereabouts: WatchedWhereabouts) -> None:
    left = cluster.list(PODS, type=Pod)
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    await_list(cluster, whereabouts)
    whereabouts.take_over(left)
    assert whereabouts.nodes_in_use(MARKED) == {"idle"}


def test_a_watch_that_begins_while_pods_are_taken_over_is_not_overwritten(
    cluster: Watching, whereabouts: WatchedWhereabouts
) -> None:
    """Who watches beside the runs may be the last one to end, in a thread of its own."""
    left = cluster.list(PODS, type=Pod)
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))

    def meanwhile() -> Iterator[Pod]:
        yield from left.items
        await_list(cluster, whereabouts)

    whereabouts.take_over(Listing(meanwhile(), left.resource_version))  # type: ignore[arg-type]
    assert whereabouts.nodes_in_use(MARKED) == {"idle"}


def test_pods_that_were_left_too_long_ago_are_read_until_they_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_whereabouts, "_WATCH_AGAIN_SECONDS", 0.01)
    cluster = Expired()
    whereabouts = WatchedWhereabouts(cluster.as_client())
    whereabouts.take_over(cluster.list(PODS, type=Pod))
    cluster.add(PODS, pod("web-1", "web", "idle", cpu="1"))
    whereabouts.nodes_in_use(MARKED)
    soon("the pod is seen", lambda: whereabouts.nodes_in_use(MARKED) == {"idle"})
    await_list(cluster, whereabouts)
    assert cluster.since[:2] == ["100", ""]
    whereabouts.stop()


def test_what_a_run_leaves_keeps_none_of_its_pods_texts(cluster: FakeCluster, whereabouts: WatchedWhereabouts) -> None:
    """A text keeps the page of the pod that it was read from; even a copy may keep the page in which it was made."""
    listed = msgspec.json.encode({"items": [*cluster.objects["pods"].values()]})
    pods = Listing(decode_page(Call("list", "pods"), listed, Pod).items, "100")
    whereabouts.take_over(pods)
    assert whereabouts._node_by_uid is None
    assert isinstance(whereabouts._left_behind, str)
    whereabouts.nodes_in_use(MARKED)
    known = whereabouts._node_by_uid
    assert known is not None
    assert known == {read.metadata.uid: read.spec.node_name for read in pods.items}
    texts = {id(text) for read in pods.items for text in (read.metadata.uid, read.spec.node_name)}
    assert texts.isdisjoint({id(text) for pair in known.items() for text in pair})
