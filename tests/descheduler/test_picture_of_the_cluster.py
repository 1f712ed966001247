"""The picture of the cluster while it is watched, beside one that lists the cluster for each question."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
import yaml

from berth_core import Pod
from berth_descheduler.controller.pod_whereabouts import WatchedWhereabouts
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Verdict
from berth_descheduler.picture import Picture
from berth_descheduler.settings import CycleSettings
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import watched_lists
from berth_kube.listing import Listing
from berth_kube.resources import NODES, PDBS, PODS, Resource
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock
from descheduler.fake_cluster import FakeCluster, fragmented_cluster, pod
from descheduler.test_surge_of_a_cycle import SURGE, Surging

OWN = "berth-system"
RULES = Path(__file__).parents[2] / "helm/berth/files/descheduler-rules.yaml"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait as long for a watch as a busy machine needs: one that stays behind is replaced by a list."""
    monkeypatch.setattr(watched_lists, "_BEHIND_SECONDS", 120.0)


class Counting(FakeCluster):
    """Keeps which kinds were read as a whole, also by watches that begin with a list."""

    def __init__(self) -> None:
        super().__init__()
        self.watched: list[str] = []

    def watch(self, resource: Resource, *, since: Listing[Any] | None = None, **rest: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        is_part = rest.get("label_selector") or rest.get("field_selector")
        self.watched += [] if since is not None or is_part else [resource.plural]
        return super().watch(resource, since=since, **rest)

    def whole_reads(self, *plurals: str) -> Counter[str]:
        """Return how often kinds were read without a selector, in all namespaces or in one."""
        listed = (call.plural for call in self.calls if call.verb == "list" and not call.name)
        return Counter(plural for plural in (*listed, *self.watched) if plural in plurals)


@pytest.fixture
def cluster() -> Counting:
    return fragmented_cluster(Counting())


@pytest.fixture
def picture(cluster: FakeCluster) -> Picture:
    return Picture(cluster.as_client(), OWN)


def times_listed(cluster: FakeCluster) -> int:
    """Return how often all pods were listed."""
    return cluster.calls.count("list pods ")


def test_a_watched_picture_is_the_listed_one_and_is_read_once(cluster: FakeCluster, picture: Picture) -> None:
    with picture.watched():
        assert picture.snapshot() == read_live_snapshot(cluster.as_client(), OWN)
        cluster.merge_patch(NODES, cluster.raw(NODES)[0]["metadata"]["name"], {"spec": {"unschedulable": True}})
        cluster.create(PODS, pod("late", "late", "", cpu="1"))
        cluster.delete(PODS, "web-1", namespace="shop")
        budget = {"metadata": {"name": "web", "namespace": "default"}, "spec": {"minAvailable": 1}}
        cluster.create(PDBS, budget, namespace="default")
        listed_before = times_listed(cluster)
        snapshot, capacity = picture.snapshot(), picture.capacity()
        assert times_listed(cluster) == listed_before
        assert snapshot == read_live_snapshot(cluster.as_client(), OWN)
    assert capacity == picture.capacity()


@pytest.mark.parametrize("watches", [True, False])
def test_what_nobody_watches_is_listed_for_each_question(
    cluster: FakeCluster, picture: Picture, *, watches: bool
) -> None:
    with picture.watched() if watches else nullcontext():
        picture.snapshot()
    before = times_listed(cluster)
    picture.snapshot()
    assert times_listed(cluster) == before + 1
    assert not cluster.sightings.are_awaited


def test_the_picture_is_watched_until_the_last_one_has_ended(cluster: FakeCluster, picture: Picture) -> None:
    with picture.watched():
        with picture.watched():
            picture.snapshot()
        picture.snapshot()
    assert times_listed(cluster) == 1


def run(cluster: FakeCluster, picture: Picture | None, settings: CycleSettings = SETTINGS) -> Verdict:
    context = CycleContext(cluster.as_client(), BriskClock(), CycleObserver(), threading.Event(), picture=picture)
    return Cycle(context, settings, PLANNER).run().verdict


def test_a_run_reads_the_cluster_once(cluster: Counting, picture: Picture) -> None:
    assert run(cluster, picture) is Verdict.CARRIED_OUT
    assert cluster.whole_reads("pods", "nodes") == {"pods": 1, "nodes": 1}


def test_a_run_leaves_its_pods_to_who_watches_on(cluster: Counting, picture: Picture) -> None:
    whereabouts = WatchedWhereabouts(cluster.as_client())
    picture.pass_on_pods = whereabouts.take_over
    assert run(cluster, picture) is Verdict.CARRIED_OUT
    assert whereabouts.nodes_in_use({"high-1", "low-1"}) == {"high-1"}
    whereabouts.stop()
    assert cluster.whole_reads("pods") == {"pods": 1}


def test_watches_end_although_what_they_leave_is_not_taken(picture: Picture) -> None:
    def fail(_: object) -> None:
        raise LookupError

    picture.pass_on_pods = fail
    watched = ExitStack()
    watched.enter_context(picture.watched())
    picture.snapshot()
    lists = picture._watched
    assert lists is not None
    assert lists.keeps(PODS, Pod)
    with pytest.raises(LookupError):
        watched.close()
    assert not lists.keeps(PODS, Pod)


AROUND = ("services", "horizontalpodautoscalers", "resourcequotas", "replicasets", "daemonsets", "poddisruptionbudgets")


def test_moves_by_surge_read_once_what_selects_their_pods() -> None:
    cluster = Counting()
    world = Surging(cluster)
    assert run(cluster, Picture(cluster.as_client(), OWN), SURGE) is Verdict.CARRIED_OUT
    assert [move["method"] for move in world.moves()] == ["Surge"] * 3
    assert set(AROUND) <= {plural for _, plural in watchable()}
    assert cluster.whole_reads(*AROUND) == dict.fromkeys(AROUND, 1)


def test_a_run_that_watches_leaves_what_one_that_lists_does(cluster: FakeCluster, picture: Picture) -> None:
    run(cluster, picture)
    listed = fragmented_cluster()
    run(listed, None)
    assert places(cluster) == places(listed)


def places(cluster: FakeCluster) -> set[tuple[str, str]]:
    """Return pods, by the names that they had at first, with their nodes."""
    return {(raw["metadata"]["name"].partition(".")[0], raw["spec"]["nodeName"]) for raw in cluster.raw(PODS)}


class NamesKinds:
    """A cluster without anything, which keeps what was listed."""

    def __init__(self) -> None:
        self.listed: set[Resource] = set()

    def list(self, resource: Resource, **_: object) -> Listing[object]:
        self.listed.add(resource)
        return Listing((), "")


def watchable() -> set[tuple[str, str]]:
    """Return the groups and plurals that the descheduler may list and watch in the whole cluster."""
    return {
        (group, plural)
        for rule in yaml.safe_load(RULES.read_text(encoding="utf-8"))["clusterRules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }


def test_the_descheduler_may_watch_what_it_plans_on() -> None:
    source = NamesKinds()
    read_live_snapshot(source)  # type: ignore[arg-type]
    assert {(resource.group, resource.plural) for resource in source.listed} - watchable() == set()
