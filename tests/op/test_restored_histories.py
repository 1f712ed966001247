"""etcd was restored from a backup: versions went back, and what the cache had heard of later never happened."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from api_server_in_memory import ApiServerInMemory
from berth_core import ObjectMeta, Pod, Reservation
from berth_kube import RESERVATIONS, Listed
from berth_operator.capabilities.queues.store import QueueStore
from berth_operator.reservation.act.resync import list_reservations
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.listed_objects import FenceStore, ListedObjects
from berth_operator.reservation.store.nodes import GuardableNode
from handover_builders import PLACE_UID, owner_pod, place, placeholder


@dataclass(frozen=True, slots=True)
class Kind:
    """A store of one kind: what is put, listed and removed, and the versions that it has then."""

    at: Callable[[int], Any]
    """Returns the object in a version."""
    put: Callable[[Any], None]
    replace: Callable[[Listed[Any]], None]
    remove: Callable[[Any], None]
    known: Callable[[], list[Any]]

    def versions(self) -> list[int]:
        return [int(obj.metadata.resource_version) for obj in self.known()]

    def listed(self, *versions: int, at: int, began: float = -1.0, restored: bool = False) -> Listed[Any]:
        return Listed(tuple(map(self.at, versions)), str(at), began, restored)


def versioned(obj: Any, version: int, **changes: Any) -> Any:  # noqa: ANN401 - any object of the API server
    metadata = msgspec.structs.replace(obj.metadata, resource_version=str(version), **changes)
    return msgspec.structs.replace(obj, metadata=metadata)


def node() -> GuardableNode:
    return GuardableNode(metadata=ObjectMeta(uid="uid-node-a", name="node-a"))


def of_cache(kind: str) -> Kind:
    cache = Cache(lambda _: None)
    match kind:
        case "Reservations":
            return Kind(
                lambda version: versioned(place(), version),
                cache.put_reservation,
                cache.replace_reservations,
                lambda reservation: cache.remove_reservation(reservation.metadata.uid),
                lambda: list(cache.reservations()),
            )
        case "placeholders":
            return Kind(
                lambda version: versioned(placeholder(), version),
                cache.put_placeholder,
                cache.replace_placeholders,
                cache.remove_placeholder,
                lambda: list(cache.placeholders()),
            )
        case "owners":
            return Kind(
                lambda version: versioned(owner_pod(), version),
                cache.put_owner,
                cache.replace_owners,
                cache.remove_owner,
                lambda: list(cache.owners()),
            )
        case "nodes":
            return Kind(
                lambda version: versioned(node(), version),
                cache.put_node,
                cache.replace_nodes,
                cache.remove_node,
                lambda: list(cache.nodes()),
            )
        case "fences":
            fences = FenceStore(lambda _: None)
            return Kind(
                lambda version: versioned(placeholder(), version),
                fences.put,
                fences.replace,
                fences.remove,
                lambda: list(fences.all()),
            )
        case "windows and zones":
            store: ListedObjects[GuardableNode] = ListedObjects("node", lambda _: None)
            return Kind(
                lambda version: versioned(node(), version),
                store.put,
                store.replace,
                lambda obj: store.remove(obj.metadata.uid),
                lambda: list(store.all()),
            )
    raise AssertionError(kind)


@pytest.fixture(params=["Reservations", "placeholders", "owners", "nodes", "fences", "windows and zones"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return of_cache(request.param)


def test_a_list_of_another_history_takes_the_place_of_later_versions(kind: Kind) -> None:
    kind.put(kind.at(50))
    kind.replace(kind.listed(5, at=10, restored=True))
    assert kind.versions() == [5]
    kind.put(kind.at(11))
    assert kind.versions() == [11], "what happens from now on is heard"


def test_a_list_of_another_history_has_the_same_number_for_another_content(kind: Kind) -> None:
    kind.put(kind.at(50))
    before = kind.known()[0]
    kind.replace(kind.listed(50, at=50, restored=True))
    assert kind.known()[0] is not before


def test_what_a_list_of_another_history_lacks_is_gone(kind: Kind) -> None:
    kind.put(kind.at(50))
    kind.replace(kind.listed(at=10, restored=True))
    assert kind.versions() == []


def test_a_deleted_object_that_the_backup_has_is_back(kind: Kind) -> None:
    kind.put(kind.at(5))
    kind.remove(kind.at(5))
    kind.replace(kind.listed(5, at=10, restored=True))
    assert kind.versions() == [5]


def test_a_list_far_above_all_known_versions_counts_also_where_it_has_a_lower_one(kind: Kind) -> None:
    """A restore may raise the revisions, so that no version is used twice; those of the objects stay as they were."""
    kind.put(kind.at(50))
    kind.replace(kind.listed(5, at=1_000_000))
    assert kind.versions() == [5]


def test_a_list_that_began_after_a_deletion_and_has_the_object_refutes_it(kind: Kind) -> None:
    kind.put(kind.at(5))
    kind.remove(kind.at(5))
    kind.replace(kind.listed(5, at=1_000_000, began=time.monotonic() + 1))
    assert kind.versions() == [5]


def test_a_list_that_began_before_a_deletion_brings_nothing_back(kind: Kind) -> None:
    kind.put(kind.at(5))
    began = time.monotonic() - 1
    kind.remove(kind.at(5))
    kind.replace(kind.listed(5, at=9, began=began))
    assert kind.versions() == []


def test_a_list_does_not_take_back_what_was_heard_after_it(kind: Kind) -> None:
    kind.put(kind.at(12))
    kind.replace(kind.listed(5, at=10))
    assert kind.versions() == [12]


def test_an_object_that_is_ending_is_not_back_because_a_list_still_has_it() -> None:
    cache = Cache(lambda _: None)
    cache.put_placeholder(placeholder())
    cache.remove_placeholder(placeholder())
    ending: Pod = versioned(placeholder(), 7, deletion_timestamp="2026-05-01T00:00:00Z")
    cache.replace_placeholders(Listed((ending,), "9", time.monotonic() + 1))
    assert cache.placeholders() == ()


# --- kinds that are listed again and again, without a watch that could say what it had brought


def test_windows_are_of_another_history_where_a_list_is_below_the_one_before() -> None:
    store: ListedObjects[GuardableNode] = ListedObjects("node", lambda _: None)
    store.replace(Listed((versioned(node(), 40),), "50"))
    store.replace(Listed((versioned(node(), 30),), "45"))
    assert [obj.metadata.resource_version for obj in store.all()] == ["30"]


def test_reservations_are_listed_in_full_where_the_api_server_is_behind_the_cache() -> None:
    api = ApiServerInMemory()
    cache = Cache(lambda _: None)
    body = as_stored(api, place())
    version = int(body["metadata"]["resourceVersion"])
    ahead: Reservation = versioned(place(), version + 1_000)
    cache.put_reservation(ahead)
    never: Reservation = versioned(place(), version + 2_000, uid="of-another-history")
    cache.put_reservation(never)
    list_reservations(api.as_client(), cache)
    assert {
        reservation.metadata.uid: reservation.metadata.resource_version for reservation in cache.reservations()
    } == {PLACE_UID: str(version)}


def test_a_start_lists_reservations_once_in_full_and_later_passes_only_their_heads() -> None:
    api = ApiServerInMemory()
    cache = Cache(lambda _: None)
    bodies = [as_stored(api, place(uid=f"place-{number}", name=f"place-{number}")) for number in range(30)]
    api.calls.clear()
    list_reservations(api.as_client(), cache)
    assert [call.verb for call in api.calls] == ["list"]
    assert {reservation.metadata.uid for reservation in cache.reservations()} == {
        body["metadata"]["uid"] for body in bodies
    }
    api.calls.clear()
    list_reservations(api.as_client(), cache)
    assert len(api.calls) == 1


def as_stored(api: ApiServerInMemory, reservation: Reservation) -> dict[str, Any]:
    body = msgspec.to_builtins(reservation)
    api.put(RESERVATIONS, body)
    return api.as_client().get(RESERVATIONS, reservation.metadata.name, namespace=reservation.metadata.namespace)


def test_pods_of_queues_are_as_a_list_of_another_history_has_them() -> None:
    store = QueueStore("berth-system")
    store.take_pod(Listed((), "1"))
    store.put_pod(versioned(owner_pod(), 50))
    store.take_pod(Listed((versioned(owner_pod(), 5),), "10", restored=True))
    (pod,) = store.view({}).pods
    assert pod.version == 5
