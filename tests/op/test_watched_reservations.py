"""What kopf hears of Reservations is taken in, and a version that is known already is not read again."""

import asyncio
import json
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from yarl import URL

from berth_core.reservations import RESERVATION_API_VERSION, RESERVATION_KIND, Reservation
from berth_kube.errors import MalformedAnswerError
from berth_kube.resources import RESERVATIONS
from berth_operator.reservation.store.cache import Cache
from berth_operator.reservation.store.informers import apply_event, apply_handled
from berth_operator.reservation.store.reservation_reading import read_reservation
from berth_operator.runtime.kopf_runtime import ReadableAnswer, ReservationStream
from berth_operator.runtime.workqueue import Key, KeyKind
from builders import as_api
from handover_builders import PLACE_UID, place


def version(number: str, **rest: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a Reservation
    body = as_api(place(**rest), api_version=RESERVATION_API_VERSION, kind=RESERVATION_KIND)
    return body | {"metadata": body["metadata"] | {"resourceVersion": number}}


def hear(*events: tuple[str | None, dict[str, Any]]) -> Cache:
    cache = Cache(lambda _key: None)
    for event_type, body in events:
        apply_event(cache, event_type, body)
    return cache


def known(cache: Cache) -> Reservation:
    found = cache.reservation(PLACE_UID)
    assert found is not None
    return found


def test_what_is_listed_added_and_modified_is_taken_in_and_the_end_too() -> None:
    assert known(hear((None, version("5")))).metadata.resource_version == "5"
    assert known(hear(("ADDED", version("5")))).metadata.resource_version == "5"
    changed = ("MODIFIED", version("9", ttl="5m"))
    assert known(hear((None, version("5")), changed)).spec.ttl == "5m"
    assert hear((None, version("5")), changed, ("DELETED", version("10"))).reservation(PLACE_UID) is None


@pytest.mark.parametrize("late", [None, "ADDED", "MODIFIED"])
def test_a_version_that_comes_late_is_not_believed(late: str | None) -> None:
    assert known(hear(("MODIFIED", version("9", ttl="5m")), (late, version("5")))).spec.ttl == "5m"
    gone = hear((None, version("9")), ("DELETED", version("10")), (late, version("5")))
    assert gone.reservation(PLACE_UID) is None


def test_a_template_that_cannot_be_read_does_not_end_the_hearing() -> None:
    odd = version("9")
    odd["spec"]["tasks"][0]["template"]["spec"]["containers"] = "many"
    assert known(hear(("ADDED", odd))).spec.tasks == ()


def test_what_is_known_already_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def read_and_note(body: dict[str, Any]) -> Reservation:
        read.append(body["metadata"]["resourceVersion"])
        return read_reservation(body)

    monkeypatch.setattr("berth_operator.reservation.store.informers.read_reservation", read_and_note)
    hear((None, version("5")), ("MODIFIED", version("5")), ("MODIFIED", version("8")))
    assert read == ["5", "8"]


# --- without kopf


def line(number: str, *, observed: int | None = 1, event_type: str = "MODIFIED", **rest: Any) -> bytes:  # noqa: ANN401 - fields of a Reservation
    """Return a line of a watch of a Reservation of generation 1."""
    body = version(number, **rest)
    body["metadata"]["generation"] = 1
    body["status"] = {} if observed is None else {"observedGeneration": observed}
    return json.dumps({"type": event_type, "object": body}).encode()


def test_a_version_whose_spec_is_handled_is_taken_in_without_kopf() -> None:
    cache = hear((None, version("5")))
    assert apply_handled(cache, line("9", ttl="5m")) == "9"
    assert (known(cache).spec.ttl, known(cache).metadata.resource_version) == ("5m", "9")
    assert apply_handled(cache, line("7", ttl="1m")) == "7", "a late version is no news for kopf either"
    assert known(cache).spec.ttl == "5m"


def test_a_new_one_is_taken_in_without_kopf() -> None:
    queued: list[Key] = []
    cache = Cache(queued.append)
    assert apply_handled(cache, line("9", observed=None, event_type="ADDED")) == "9"
    assert known(cache).metadata.resource_version == "9"
    assert Key(KeyKind.RESERVATION, PLACE_UID) in queued

    queued.clear()
    assert apply_handled(cache, line("9", observed=None, event_type="ADDED")) == "9"
    assert queued == [], "a watch that begins anew repeats it"


def test_a_new_one_whose_template_cannot_be_read_does_not_end_the_hearing() -> None:
    cache = Cache(lambda _key: None)
    odd = json.loads(line("9", observed=None, event_type="ADDED"))
    odd["object"]["spec"]["tasks"][0]["template"]["spec"]["containers"] = "many"
    assert apply_handled(cache, json.dumps(odd).encode()) == "9"
    assert known(cache).spec.tasks == ()


def test_one_that_was_made_again_under_its_name_is_taken_in_beside_the_one_before() -> None:
    cache = hear((None, version("5")))
    again = line("9", observed=None, event_type="ADDED").replace(PLACE_UID.encode(), b"uid-again")
    assert apply_handled(cache, again) == "9"
    assert cache.reservation("uid-again") is not None


DEEP = b'{"type":"MODIFIED","object":' + b'{"a":' * 5_000 + b"1" + b"}" * 5_000 + b"}"
TOO_DEEP_TEMPLATE = line("9", ttl='"NESTED"').replace(b'"\\"NESTED\\""', b'{"a":' * 400 + b"1" + b"}" * 400)
FOR_KOPF = {
    "a new one that is too deep": TOO_DEEP_TEMPLATE.replace(b"MODIFIED", b"ADDED"),
    "one that was deleted": line("9", event_type="DELETED"),
    "without a status": line("9", observed=None),
    "with a changed spec": line("9", observed=0),
    "an error": b'{"type":"ERROR","object":{"code":410}}',
    "a bookmark": b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9"}}}',
    "too deep": DEEP,
    "too deep in its template": TOO_DEEP_TEMPLATE,
    "no text": b'{"type":"MODIFIED","object":{"a":"\xff"}}',
    "no JSON": b"{",
}


@pytest.mark.parametrize("raw", FOR_KOPF.values(), ids=FOR_KOPF.keys())
def test_all_else_is_left_to_kopf(raw: bytes) -> None:
    cache = hear((None, version("5")))
    assert apply_handled(cache, raw) == ""
    assert known(cache).metadata.resource_version == "5"


# --- lists


def page(*lines: bytes) -> bytes:
    """Return a list of the objects of a watch's lines."""
    items = b",".join(raw.partition(b'"object": ')[2].removesuffix(b"}") for raw in lines)
    return b'{"metadata":{"resourceVersion":"20","continue":"next"},"items":[' + items + b"]}"


def uids(listed: dict[str, Any]) -> list[str]:
    return [item["metadata"]["uid"] for item in listed["items"]]


class Answer(ReadableAnswer):
    """The API server's answer to kopf's list, without a connection."""

    def __init__(self, body: bytes) -> None:
        self._body, self.status = body, 200

    def __del__(self) -> None: ...

    @property
    def url(self) -> URL:
        return URL(f"https://server{RESERVATIONS.path()}")

    async def read(self) -> bytes:
        return self._body


def list_by_kopf(cache: Cache, *lines: bytes) -> dict[str, Any]:
    """Return what kopf sees of a list."""
    answer = Answer(page(*lines))

    async def receive() -> Any:  # noqa: ANN401 - as kopf gets it
        stream = ReservationStream(lambda: None, partial(apply_handled, cache))
        for note_answer in stream.build_trace().on_request_end:
            await note_answer(None, None, SimpleNamespace(url=answer.url, response=answer))
        return await answer.json()

    listed: dict[str, Any] = asyncio.run(receive())
    return listed


def test_kopf_sees_of_a_list_only_what_is_not_handled_yet() -> None:
    cache = Cache(lambda _key: None)
    done, changed, new = (
        line("9", observed=observed).replace(PLACE_UID.encode(), name)
        for name, observed in ((b"uid-done", 1), (b"uid-changed", 0), (b"uid-new", None))
    )
    listed = list_by_kopf(cache, done, changed, new)
    assert uids(listed) == ["uid-changed", "uid-new"]
    assert listed["metadata"] == {"resourceVersion": "20", "continue": "next"}
    assert [reservation.metadata.uid for reservation in cache.reservations()] == ["uid-done"]


def test_kopf_sees_a_stand_in_for_what_is_nested_too_deeply_and_the_rest_is_taken_in() -> None:
    cache = Cache(lambda _key: None)
    deep = TOO_DEEP_TEMPLATE.replace(PLACE_UID.encode(), b"uid-deep")
    deeper = deep.replace(b"uid-deep", b"uid-deeper").replace(b'{"a":', b'{"a":' * 20).replace(b"}}}}", b"}" * 80)
    for odd in (deep, deeper):
        listed = list_by_kopf(cache, line("9"), odd)
        assert len(uids(listed)) == 1
        assert "unreadable" in listed["items"][0]["metadata"]
    assert known(cache).metadata.resource_version == "9"


def test_all_handled_leaves_kopf_an_empty_list() -> None:
    cache = hear((None, version("5")))
    assert uids(list_by_kopf(cache, line("9"))) == []
    assert known(cache).metadata.resource_version == "9"


def test_a_list_that_is_no_json_is_named_as_before() -> None:
    cache = Cache(lambda _key: None)
    with pytest.raises(MalformedAnswerError, match="reservations"):
        list_by_kopf(cache, b'{"object": {"a"}}')
