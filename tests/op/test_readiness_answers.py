"""The health port says whether pods may be sent here, and where not, why."""

import asyncio
import json
import urllib.error
import urllib.request
from typing import Any, Final

import pytest

from berth_operator.health import HealthServer

LOOPBACK: Final = "127.0.0.1"


def read(port: int, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}{path}", timeout=30) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as refusal:
        return refusal.code, json.load(refusal)


CASES: Final = {
    "all is there": ((), 200, {"ready": True, "waitsFor": []}),
    "something is missing": (
        ("the nodes were not listed",),
        503,
        {"ready": False, "waitsFor": ["the nodes were not listed"]},
    ),
}


@pytest.mark.asyncio
@pytest.mark.parametrize(("reasons", "want_status", "want_body"), CASES.values(), ids=CASES.keys())
async def test_readiness_says_what_it_waits_for_where(
    reasons: tuple[str, ...], want_status: int, want_body: dict[str, Any]
) -> None:
    server = HealthServer(LOOPBACK, 0, healthy=lambda: True, why_not_ready=lambda: reasons, leading=lambda: False)
    await server.start()
    try:
        ready = await asyncio.to_thread(read, server.port, "/readyz")
        healthy = await asyncio.to_thread(read, server.port, "/healthz")
    finally:
        await server.stop()
    assert ready == (want_status, {"healthy": True, "leading": False, **want_body})
    assert healthy == (200, ready[1])
