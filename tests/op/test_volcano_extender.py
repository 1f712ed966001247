"""Volcano's scheduler is told to evict no placeholder, and keeps its say over all other pods."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest

from berth_core.errors import InputError
from berth_core.labels import PLACEHOLDER_LABEL
from berth_operator.metrics import REGISTRY
from berth_operator.webhook.extender import VERBS, VolcanoExtender, choose_victims

OURS = "berth-system"


def candidate(name: str, *, namespace: str = "default", placeholder: bool = False) -> dict[str, Any]:
    """A task as Volcano writes it: Go's field names, with the whole pod."""
    labels = {PLACEHOLDER_LABEL: "true"} if placeholder else {"app": "web"}
    pod = {"metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": {"nodeName": "node-a"}}
    return {"UID": f"uid-{name}", "Job": f"{namespace}/{name}", "Resreq": {"MilliCPU": 1000.5}, "Pod": pod}


def request(*evictees: dict[str, Any] | None) -> bytes:
    return msgspec.json.encode({"evictor": candidate("hungry"), "evictees": evictees})


HELD = candidate("held", namespace=OURS, placeholder=True)
OTHER = candidate("other")

ANSWERS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "a placeholder is left out": (request(HELD, OTHER), {"status": 1, "victims": [OTHER]}),
    "placeholders alone: nothing may be evicted": (request(HELD, HELD), {"status": 1, "victims": []}),
    "no placeholder: it has no part in the decision": (request(OTHER), {"status": 0, "victims": []}),
    "no candidate at all": (request(), {"status": 0, "victims": []}),
    "null, as Go writes an empty list": (b'{"evictor": null, "evictees": null}', {"status": 0, "victims": []}),
    "a label of ours in another namespace makes no placeholder": (
        request(candidate("sly", placeholder=True)),
        {"status": 0, "victims": []},
    ),
    "another pod of our namespace": (request(candidate("operator", namespace=OURS)), {"status": 0, "victims": []}),
    "a candidate without a pod": (request({"UID": "x", "Pod": None}), {"status": 0, "victims": []}),
}


@pytest.mark.parametrize(("body", "want"), ANSWERS.values(), ids=ANSWERS.keys())
def test_victims_are_the_candidates_that_hold_no_place(body: bytes, want: dict[str, Any]) -> None:
    answer = choose_victims(body, OURS)
    assert msgspec.json.decode(msgspec.json.encode(answer)) == want


NO_REQUESTS = {
    "no JSON": b"hello",
    "nothing": b"",
    "a list": b"[]",
    "candidates that are no tasks": b'{"evictees": [1]}',
    "bytes that are no text": b'{"evictees": [{"Pod": {"metadata": {"namespace": "\xff"}}}]}',
}


@pytest.mark.parametrize("body", NO_REQUESTS.values(), ids=NO_REQUESTS.keys())
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(InputError):
        choose_victims(body, OURS)


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    """Yield the address of an extender that listens."""
    extender = VolcanoExtender("127.0.0.1", 0, OURS)
    await extender.start()
    try:
        yield f"http://{extender.address}"
    finally:
        await extender.stop()


def counted(verb: str, verdict: str) -> float:
    return REGISTRY.get_sample_value("berth_volcano_extender_answers_total", {"verb": verb, "verdict": verdict}) or 0.0


@pytest.mark.asyncio
@pytest.mark.parametrize("verb", VERBS)
async def test_each_verb_is_answered_over_http_and_counted(verb: str) -> None:
    before = {verdict: counted(verb, verdict) for verdict in ("spared", "abstained", "refused")}
    async with serving() as base, aiohttp.ClientSession() as session:
        for body, status in ((request(HELD, OTHER), 200), (request(OTHER), 200), (b"hello", 400)):
            async with session.post(f"{base}/{verb}", data=body) as response:
                assert response.status == status
                if body == request(HELD, OTHER):
                    assert await response.json() == {"status": 1, "victims": [OTHER]}
    assert {verdict: counted(verb, verdict) - count for verdict, count in before.items()} == dict.fromkeys(before, 1.0)


@pytest.mark.asyncio
async def test_other_paths_and_methods_are_refused() -> None:
    async with serving() as base, aiohttp.ClientSession() as session:
        for path, want in (("jobEnqueueable", 404), ("", 404)):
            async with session.post(f"{base}/{path}", data=request()) as response:
                assert response.status == want
        async with session.get(f"{base}/preemptable") as response:
            assert response.status == 405


@pytest.mark.asyncio
async def test_an_address_that_is_taken_is_said_so() -> None:
    async with serving() as base:
        port = int(base.rpartition(":")[2])
        with pytest.raises(InputError, match="--volcano-extender-address"):
            await VolcanoExtender("127.0.0.1", port, OURS).start()
