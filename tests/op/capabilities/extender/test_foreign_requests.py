"""Whatever is sent to the extender is answered or refused as no request, and nothing else is raised."""
# ruff: noqa: ANN401 - any JSON

import asyncio
import json
from typing import Any, Final

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.errors import InputError
from berth_operator.capabilities.extender.server import ENQUEUEABLE, OVERUSED, VERBS, VolcanoExtender
from berth_operator.capabilities.extender.verbs import Held, choose_victims, judge_queue, vote_on_job

OURS: Final = "berth-system"
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=10**30, max_value=10**400)
    | st.floats(allow_nan=True)
    | st.text(max_size=12)
    | st.sampled_from(["1e400", "9" * 400, "-1", "0x10", "1Ki", "\u0661", "\x00", "\ud800"])
)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
)
PODS = JSON | st.fixed_dictionaries({}, optional={"metadata": JSON, "spec": JSON})
TASKS = JSON | st.fixed_dictionaries({}, optional={"Pod": PODS})
AMOUNTS = JSON | st.dictionaries(st.sampled_from(["cpu", "memory", "pods"]) | st.text(max_size=8), SCALARS, max_size=3)
REQUESTS = (
    JSON
    | st.fixed_dictionaries({"evictees": JSON | st.lists(TASKS, max_size=4)})
    | st.fixed_dictionaries(
        {"job": JSON | st.fixed_dictionaries({"MinAvailable": SCALARS, "Tasks": st.dictionaries(st.text(), TASKS)})}
    )
    | st.fixed_dictionaries(
        {
            "queue": st.fixed_dictionaries(
                {"name": SCALARS},
                optional={
                    "queue": st.fixed_dictionaries(
                        {"spec": st.fixed_dictionaries({"capability": AMOUNTS})},
                        optional={"status": st.fixed_dictionaries({"allocated": AMOUNTS})},
                    )
                },
            )
        }
    )
)


def outcomes(body: bytes) -> list[str]:
    """Ask every verb; what is no request is an `InputError`, and any other error fails the test."""
    asked = (
        lambda: choose_victims(body, OURS),
        lambda: vote_on_job(body, lambda *_: True, lambda _: True, OURS),
        lambda: judge_queue(body, lambda _: Held()),
    )
    answers = []
    for verb in asked:
        try:
            answers.append(type(verb()).__name__)
        except InputError:
            answers.append("refused")
    return answers


@given(REQUESTS)
def test_whatever_json_is_sent_is_answered_or_refused(request: Any) -> None:
    assert len(outcomes(json.dumps(request).encode())) == 3


@given(st.binary(max_size=200) | st.text(max_size=50).map(lambda text: text.encode("utf-16", "surrogatepass")))
def test_whatever_bytes_are_sent_are_answered_or_refused(body: bytes) -> None:
    wrapped = (
        body,
        b'{"evictees":[' + body + b"]}",
        b'{"queue":{"queue":{"spec":{"capability":{"cpu":' + body + b"}}}}}",
    )
    assert [len(outcomes(sent)) for sent in wrapped] == [3, 3, 3]


ODD: Final = {
    "depth of lists": b"[" * 100_000,
    "depth of candidates": b'{"evictees":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "depth in a candidate": b'{"evictees":[' + b'{"Pod":' * 20_000 + b"1" + b"}" * 20_000 + b"]}",
    "depth where a label is read": b'{"evictees":[{"Pod":{"metadata":{"labels":{"a":'
    + b"[" * 9_000
    + b"]" * 9_000
    + b"}}}}]}",
    "a number of many digits": b'{"job":{"MinAvailable":' + b"9" * 50_000 + b"}}",
    "another encoding": '{"evictees":[]}'.encode("utf-16"),
    "a byte order mark": b'\xef\xbb\xbf{"evictees":[]}',
    "half a character": b'{"evictees":[{"Pod":{"metadata":{"namespace":"\xe2\x82"}}}]}',
    "many candidates": b'{"evictees":[' + b",".join([b'{"Pod":{}}'] * 50_000) + b"]}",
}


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_odd_requests_get_an_answer_of_the_server_and_the_next_one_is_served(body: bytes) -> None:
    async def ask() -> list[int]:
        extender = VolcanoExtender(
            ("127.0.0.1", 0), OURS, has_slot=lambda *_: False, awaits=lambda _: False, held_in=lambda _: Held()
        )
        await extender.start()
        statuses = []
        try:
            async with aiohttp.ClientSession() as session:
                for verb in (*VERBS, ENQUEUEABLE, OVERUSED):
                    for sent in (body, b'{"evictees":[]}'):
                        async with session.post(f"http://{extender.address}/{verb}", data=sent) as answer:
                            statuses.append(answer.status)
        finally:
            await extender.stop()
        return statuses

    statuses = asyncio.run(ask())
    assert set(statuses[::2]) <= {200, 400}
    assert set(statuses[1::2]) == {200}
