"""What the watch of Reservations tells is taken in, and a version that is known already is not read again."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from berth_core.reservations import API_VERSION, KIND, Reservation
from berth_kube.client import KubeClient
from berth_kube.watching import Bookmark, Changed, Listed, Removed, WatchItem
from berth_operator.cache.cache import Cache
from berth_operator.cache.cluster_rules import ClusterRules
from berth_operator.cache.informers import Watches
from berth_operator.cache.reservations import read_reservation
from builders import as_api
from fake_api import FakeApi
from handover_builders import PLACE_UID, place


class Told(FakeApi):
    """An API server that tells what it is given, then nothing."""

    def watch(self, *_: Any, **__: Any) -> Iterator[WatchItem[Any]]:  # noqa: ANN401 - takes what the client takes
        yield from self.told

    told: tuple[WatchItem[Any], ...] = ()


def version(number: str, **rest: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a Reservation
    body = as_api(place(**rest), api_version=API_VERSION, kind=KIND)
    return body | {"metadata": body["metadata"] | {"resourceVersion": number}}


def follow(*told: WatchItem[Any]) -> tuple[Cache, Watches]:
    api = Told()
    api.told = told
    client: KubeClient = api.as_client()
    cache = Cache(lambda _key: None)
    followed = Watches(client, cache, ClusterRules(), "berth-system", threading.Event())
    followed.by_name()["Reservations"]()
    return cache, followed


def known(cache: Cache) -> Reservation:
    found = cache.reservation(PLACE_UID)
    assert found is not None
    return found


def test_a_list_is_taken_in_and_counts_as_complete() -> None:
    cache, followed = follow(Listed((version("5"),), "7"), Bookmark("8"))
    assert known(cache).metadata.resource_version == "5"
    assert "Reservations" not in followed.missing()


def test_changes_are_taken_in_and_the_end_too() -> None:
    changed = Changed(version("9", ttl="5m"), added=False)
    assert known(follow(Listed((version("5"),), "7"), changed)[0]).spec.ttl == "5m"
    cache, _ = follow(Listed((version("5"),), "7"), changed, Removed(version("10")))
    assert cache.reservation(PLACE_UID) is None


def test_a_template_that_cannot_be_read_does_not_end_the_watch() -> None:
    odd = version("9")
    odd["spec"]["tasks"][0]["template"]["spec"]["containers"] = "many"
    cache, _ = follow(Listed((), "7"), Changed(odd, added=True))
    assert known(cache).spec.tasks == ()


def test_what_is_known_already_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def read_and_note(body: dict[str, Any]) -> Reservation:
        read.append(body["metadata"]["resourceVersion"])
        return read_reservation(body)

    monkeypatch.setattr("berth_operator.cache.informers.read_reservation", read_and_note)
    follow(Listed((version("5"),), "7"), Changed(version("5"), added=False), Changed(version("8"), added=False))
    assert read == ["5", "8"]
