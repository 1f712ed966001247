"""How soon a lost connection is noticed, by whether a Reservation lives."""

from collections.abc import Iterator
from typing import Any

from api_server_in_memory import ApiServerInMemory
from berth_kube import PROMPT_WATCH, WatchPace
from berth_kube.resources import Resource
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.cluster_rules import ClusterRules
from berth_operator.reservation.store.informers import Informers
from handover_builders import place


class Noting(ApiServerInMemory):
    """Keeps the pace of each watch that has one."""

    def __init__(self) -> None:
        super().__init__()
        self.paces: list[WatchPace] = []

    def watch(self, resource: Resource, **options: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        if isinstance(pace := options.get("settings"), WatchPace):
            self.paces.append(pace)
        return super().watch(resource, **options)


def are_prompt(api: Noting) -> set[bool]:
    """Return whether the watches with a pace are prompt; one value where they agree."""
    return {pace.settings == PROMPT_WATCH for pace in api.paces}


def test_watches_of_what_holds_places_are_prompt_only_while_a_reservation_lives() -> None:
    api, cache = Noting(), Cache(lambda *_: None)
    failures: list[Exception] = []
    informers = Informers(api.as_client(), cache, ClusterRules(), "berth-system", failures.append)
    informers.start()
    try:
        informers.wait_for_lists(60)
        assert (informers.missing(), failures) == ((), [])
        assert (len(api.paces), are_prompt(api)) == (3, {False})
        cache.put_reservation(place(uid="one"))
        informers.attend()
        assert are_prompt(api) == {True}
        cache.remove_reservation("one")
        informers.attend()
        assert are_prompt(api) == {False}
    finally:
        informers.stop(30)


def test_a_replica_that_starts_beside_a_live_reservation_watches_promptly() -> None:
    api, cache = Noting(), Cache(lambda *_: None)
    cache.put_reservation(place(uid="one"))
    informers = Informers(api.as_client(), cache, ClusterRules(), "berth-system", lambda _: None)
    informers.start()
    try:
        informers.wait_for_lists(60)
        assert are_prompt(api) == {True}
    finally:
        informers.stop(30)
