"""When the operator lists kinds that do not come through kopf."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from api_server_in_memory import ApiCall, ApiServerInMemory, error
from berth_kube import RESERVATION_WINDOWS, NotFoundError, Resource
from berth_kube.errors import ServerError
from berth_operator.runtime.capability import PolledKind
from builders import FakeClock
from waiting import soon

NIGHTLY = {"metadata": {"name": "nightly", "namespace": "shop", "uid": "w1"}}


@dataclass(eq=False)
class SlowToWatch(ApiServerInMemory):
    """Lets no watch begin before it may."""

    may_watch: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.may_watch.set()

    def watch(self, resource: Resource, **how: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        self.may_watch.wait()
        yield from super().watch(resource, **how)


class ListedKind:
    """A listing of windows, and how often it has asked for them."""

    def __init__(self, api: SlowToWatch | None = None) -> None:
        self.api = api or SlowToWatch()
        self.clock = FakeClock()
        self.listing = PolledKind(self.api.as_client(), self.clock, RESERVATION_WINDOWS, self._refresh)
        self.lists = 0

    def _refresh(self) -> bool:
        self.lists += 1
        return bool(self.api.as_client().list(RESERVATION_WINDOWS).items)

    def listen_for(self, seconds: int) -> int:
        """Listen once a second, and return how often the kind was listed."""
        before = self.lists
        for _ in range(seconds):
            self.listing.listen()
            self.clock.advance(1)
        return self.lists - before

    def await_watch(self) -> None:
        soon("the kind is watched", lambda: self.api.watchers)


@pytest.fixture
def kind() -> Iterator[ListedKind]:
    listed_kind = ListedKind()
    yield listed_kind
    listed_kind.listing.stop()


def test_a_kind_without_objects_is_listed_once_in_five_minutes(kind: ListedKind) -> None:
    assert kind.listen_for(300) == 1
    assert kind.listen_for(300) == 1


def test_the_first_object_has_its_kind_listed_at_once(kind: ListedKind) -> None:
    kind.listen_for(10)
    kind.await_watch()
    kind.api.put(RESERVATION_WINDOWS, NIGHTLY)
    soon("it is listed", kind.listing.listen)
    assert kind.lists == 2
    assert kind.listen_for(30) == 9


def test_an_object_that_was_created_between_the_list_and_the_watch_is_not_missed(kind: ListedKind) -> None:
    kind.api.may_watch.clear()
    assert kind.listen_for(5) == 1
    kind.api.put(RESERVATION_WINDOWS, NIGHTLY)
    kind.api.may_watch.set()
    soon("it is listed", kind.listing.listen)


def test_a_list_that_fails_is_repeated_soon(kind: ListedKind) -> None:
    kind.listen_for(5)
    kind.await_watch()
    kind.api.faults["list reservationwindows "] = error(ServerError)
    kind.api.put(RESERVATION_WINDOWS, NIGHTLY)
    soon("it was tried", lambda: kind.listing.listen() or kind.lists == 2)
    kind.api.faults.clear()
    assert kind.listen_for(4) == 1


def test_who_stops_and_leads_again_lists_at_once(kind: ListedKind) -> None:
    kind.listen_for(5)
    kind.listing.stop()
    assert kind.listen_for(5) == 1


class NotInstalled(SlowToWatch):
    """Has no windows."""

    def watch(self, resource: Resource, **_: Any) -> Iterator[Any]:  # noqa: ANN401 - the options as they are
        self.calls.append(ApiCall(f"watch {resource.plural} "))
        raise error(NotFoundError)


def test_a_kind_that_is_not_installed_is_listed_once_in_five_minutes() -> None:
    kind = ListedKind(NotInstalled())
    assert kind.listen_for(300) == 1
    soon("it was tried", lambda: any(call.verb == "watch" for call in kind.api.calls))
    assert kind.listen_for(300) == 1
    kind.listing.stop()
