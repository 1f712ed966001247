"""kopf writes nothing, outlasts any outage of the API server, and is begun anew where it ends by itself."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from itertools import islice, repeat
from types import SimpleNamespace
from typing import Any, cast

import kopf
import pytest
from yarl import URL

from berth_core.errors import InputError
from berth_kube.resources import PODS, RESERVATIONS
from berth_operator.runtime import kopf_runtime
from berth_operator.runtime.app import App
from berth_operator.runtime.kopf_runtime import (
    NoProgress,
    ReservationStream,
    StatusAsMemory,
    configure,
    run_kopf,
)
from berth_operator.runtime.silence import Silence


def test_kopf_never_gives_up_on_an_api_server_that_is_away() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    waits = settings.networking.error_backoffs
    assert not isinstance(waits, float)
    for _ in range(2):
        assert list(islice(waits, 1000))[-1] == 5


def test_kopf_does_not_kill_the_process_some_time_after_its_watch_has_failed() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.process.ultimate_exiting_timeout is None


def test_kopf_writes_nothing() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.posting.enabled is False
    assert settings.scanning.disabled is True
    body, patch = reservation(2, observed=1), kopf.Patch()
    memory, progress = settings.persistence.diffbase_storage, settings.persistence.progress_storage
    memory.store(body=body, patch=patch, essence=memory.build(body=body))
    progress.store(key=cast("Any", "create"), record=cast("Any", {}), body=body, patch=patch)
    progress.touch(body=body, patch=patch, value="now")
    progress.purge(key=cast("Any", "create"), body=body, patch=patch)
    progress.flush()
    assert not patch


def reservation(generation: int, *, observed: int | None) -> kopf.Body:
    status = {} if observed is None else {"observedGeneration": observed}
    return kopf.Body({"metadata": {"uid": "uid-place", "generation": generation}, "spec": {}, "status": status})


def test_what_was_handled_last_is_read_from_the_status() -> None:
    memory = StatusAsMemory()
    now = memory.build(body=reservation(2, observed=1))
    assert NoProgress().clear(essence=now) == now
    assert memory.fetch(body=reservation(2, observed=None)) is None
    assert memory.fetch(body=reservation(2, observed=1)) != now
    assert memory.fetch(body=reservation(2, observed=2)) == now


# --- the stream of Reservations

LIST = RESERVATIONS.path()
WATCH = f"{LIST}?watch=true&resourceVersion=7"
LISTED = {
    "a list and the watch that follows it": ([(LIST, 200), (WATCH, 200)], 1),
    "through a server with a path of its own": ([(f"/clusters/one{LIST}", 200), (f"/clusters/one{WATCH}", 200)], 1),
    "a list alone": ([(LIST, 200)], 0),
    "a watch that was refused": ([(LIST, 200), (WATCH, 503)], 0),
    "a watch that was refused first": ([(LIST, 200), (WATCH, 503), (WATCH, 200)], 1),
    "a list that was refused": ([(LIST, 503), (WATCH, 200)], 0),
    "a watch that goes on where the last one ended": ([(LIST, 200), (WATCH, 200), (WATCH, 200)], 1),
    "a second list": ([(LIST, 200), (WATCH, 200), (LIST, 200), (WATCH, 200)], 2),
    "a list of something else": ([(PODS.path(), 200), (f"{PODS.path()}?watch=true", 200)], 0),
}


@pytest.mark.parametrize(("answers", "want"), LISTED.values(), ids=LISTED.keys())
def test_how_often_kopf_has_passed_on_a_list(answers: list[tuple[str, int]], want: int) -> None:
    times: list[int] = []
    stream = ReservationStream(lambda: times.append(1))
    asyncio.run(ask(stream, answers))
    assert len(times) == want


async def ask(stream: ReservationStream, answers: list[tuple[str, int]]) -> None:
    trace = stream.build_trace()
    for path, status in answers:
        await send(trace.on_request_start)
        params = SimpleNamespace(
            url=URL(f"https://server{path}"), response=SimpleNamespace(status=status, content=None)
        )
        await send(trace.on_request_end, params)


async def send(signal: Any, params: object = None) -> None:  # noqa: ANN401 - aiohttp's signals
    for receive in signal:
        await receive(None, None, params)


def test_kopf_is_idle_while_it_neither_watches_nor_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(kopf_runtime, "time", SimpleNamespace(monotonic=lambda: now))
    stream = ReservationStream(lambda: None)
    now += 500
    assert stream.idle_seconds() == 0, "the program starts first"
    stream.expect_requests()
    now += 10
    assert stream.idle_seconds() == 10
    trace = stream.build_trace()
    asyncio.run(send(trace.on_request_start))
    now += 60
    assert stream.idle_seconds() == 0, "an answer is waited for"
    asyncio.run(send(trace.on_request_exception))
    now += 5
    assert stream.idle_seconds() == 5
    asyncio.run(ask(stream, [(LIST, 200), (WATCH, 200)]))
    now += 500
    assert stream.idle_seconds() == 0, "it watches"


# --- a new start


class Started:
    """A program as kopf's runs see it."""

    def __init__(self, *, has_started: bool = True, failure: InputError | None = None) -> None:
        self.has_started, self.failure, self.stops = has_started, failure, 0

    async def stop(self) -> None:
        self.stops += 1


Run = Callable[[asyncio.Event], Awaitable[None]]


def run(monkeypatch: pytest.MonkeyPatch, program: Started, *runs: Run, idle: float = 0.0) -> int:
    """Run kopf, whose runs are given, and return how many there were."""
    left, flags = list(runs), []

    async def operator(*, stop_flag: asyncio.Event, identity: str, **_: object) -> None:
        assert identity == "replica-1", "without one kopf asks for the user's name, and an image's user has none"
        await left.pop(0)(stop_flag)

    monkeypatch.setattr(kopf, "operator", operator)
    monkeypatch.setattr(kopf_runtime, "EndlessWaits", lambda: repeat(0.0))
    stream = ReservationStream(lambda: None)
    monkeypatch.setattr(stream, "why_begin_anew", lambda: "there is no watch" if idle else "")

    def declare(_registry: kopf.OperatorRegistry, stop_flag: asyncio.Event) -> None:
        flags.append(stop_flag)
        if len(flags) == len(runs) and not idle:
            stop_flag.set()

    asyncio.run(run_kopf(cast("App", program), stream, declare, "replica-1"))
    assert len({id(flag) for flag in flags}) == 1
    return len(runs) - len(left)


async def fails(_: asyncio.Event) -> None:
    raise RuntimeError("409 on a watch")


async def is_stopped(stop_flag: asyncio.Event) -> None:
    await stop_flag.wait()


async def ends(_: asyncio.Event) -> None:
    """End as after SIGINT."""


def test_kopf_is_begun_anew_until_it_is_asked_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Started()
    assert run(monkeypatch, program, fails, fails, is_stopped) == 3
    assert program.stops == 1


def test_kopf_is_begun_anew_where_it_has_nothing_to_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Started()
    assert run(monkeypatch, program, is_stopped, ends, fails, idle=31.0) == 2
    assert program.stops == 1


def test_a_failure_while_stopping_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Started()
    assert run(monkeypatch, program, fails, fails) == 2
    assert program.stops == 1


@pytest.mark.parametrize(
    "program",
    [Started(has_started=False), Started(failure=InputError("--health-address", ":::1", "a free local address"))],
    ids=["that crashed", "that says why"],
)
def test_a_program_that_could_not_start_is_not_started_again(monkeypatch: pytest.MonkeyPatch, program: Started) -> None:
    with pytest.raises(RuntimeError, match="409"):
        run(monkeypatch, program, fails, ends)
    assert program.stops == 1


# --- what a run of kopf will never hear


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(kopf_runtime, "time", SimpleNamespace(monotonic=lambda: self.now))


async def fail(stream: ReservationStream, times: int) -> None:
    trace = stream.build_trace()
    for _ in range(times):
        await send(trace.on_request_start)
        await send(trace.on_request_exception)


def test_failed_connections_in_a_row_end_a_run_which_has_one_login() -> None:
    stream = ReservationStream(lambda: None)
    asyncio.run(fail(stream, 2))
    assert stream.why_begin_anew() == ""
    asyncio.run(ask(stream, [(LIST, 503)]))
    asyncio.run(fail(stream, 2))
    assert stream.why_begin_anew() == "", "an answer of whatever kind is no failed connection"
    asyncio.run(fail(stream, 1))
    assert stream.why_begin_anew() == "3 connections in a row have failed"
    stream.reset()
    assert stream.why_begin_anew() == ""


class Content:
    """What a watch brings, each part some time after the last."""

    def __init__(self, clock: Clock, *parts: tuple[float, bytes]) -> None:
        self._clock, self._parts = clock, parts

    async def iter_chunked(self, _size: int) -> AsyncIterator[bytes]:
        for seconds, part in self._parts:
            self._clock.now += seconds
            if part:
                yield part


async def watch(stream: ReservationStream, clock: Clock, *parts: tuple[float, bytes]) -> None:
    content = kopf_runtime._ReadableLines(cast("Any", Content(clock, *parts)))
    trace = stream.build_trace()
    await send(trace.on_request_start)
    response = SimpleNamespace(status=200, content=content)
    await send(trace.on_request_end, SimpleNamespace(url=URL(f"https://server{WATCH}"), response=response))
    async for _ in content.iter_chunked(1):
        pass


BOOKMARK = b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"7"}}}\n'


def test_watches_that_bring_nothing_end_a_run_which_goes_on_from_one_version(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stream = ReservationStream(lambda: None)
    asyncio.run(watch(stream, clock, (28.0, BOOKMARK), (2.0, b"")))
    asyncio.run(watch(stream, clock, (14.0, b"")))
    assert stream.why_begin_anew() == "", "one that is cut has not had the time for a bookmark"
    asyncio.run(watch(stream, clock, (14.0, b"")))
    assert stream.why_begin_anew().startswith("a watch has brought nothing")
    asyncio.run(watch(stream, clock, (28.0, BOOKMARK)))
    assert stream.why_begin_anew() == ""


def test_kopf_sees_one_bookmark_for_all_that_it_has_nothing_to_do_about() -> None:
    stream = ReservationStream(lambda: None, lambda line: line[4:].decode() if line.startswith(b"done") else "")

    async def seen(*parts: bytes) -> list[dict[str, Any]]:
        content = kopf_runtime._ReadableLines(
            cast("Any", Content(SimpleNamespace(now=0.0), *((0.0, part) for part in parts)))
        )
        response = SimpleNamespace(status=200, content=content)
        params = SimpleNamespace(url=URL(f"https://server{WATCH}"), response=response)
        await send(stream.build_trace().on_request_end, params)
        return [json.loads(line) async for chunk in content.iter_chunked(1) for line in chunk.splitlines()]

    def bookmark(version: str) -> dict[str, Any]:
        return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": version}}}

    first, second = {"type": "ADDED", "object": {"a": 1}}, {"type": "DELETED", "object": {}}
    lines = [b"done3", b"done4", json.dumps(first).encode(), b"done6", json.dumps(second).encode(), b"done8", b""]
    text = b"\n".join(lines)
    assert asyncio.run(seen(text)) == [bookmark("4"), first, bookmark("6"), second, bookmark("8")]
    assert asyncio.run(seen(text[:8], text[8:])) == [
        bookmark("3"),
        bookmark("4"),
        first,
        bookmark("6"),
        second,
        bookmark("8"),
    ]


def test_kopf_is_silent_from_its_last_answer_on(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    stream = ReservationStream(lambda: None)
    clock.now += 300
    assert stream.silent_seconds() == 0, "it was not started yet"
    stream.expect_requests()
    clock.now += 61
    asyncio.run(fail(stream, 3))
    stream.reset()
    stream.expect_requests()
    assert stream.silent_seconds() == 61, "a new run is no answer"
    asyncio.run(watch(stream, clock, (1.0, b""), (28.0, BOOKMARK), (2.0, b"")))
    assert stream.silent_seconds() == 2


SILENCES = {
    "all are answered": (1, 1, "", ""),
    "kopf alone hears nothing": (1, 70, "kopf has heard nothing for 70 s", "kopf has heard nothing for 70 s"),
    "the API server is away": (70, 70, "", "the API server has not answered for 70 s"),
    "so short a silence is none": (60, 60, "", ""),
}


@pytest.mark.parametrize(("own", "of_kopf", "unhealthy", "not_ready"), SILENCES.values(), ids=SILENCES.keys())
def test_what_gets_no_answer_for_a_minute_is_not_healthy(
    own: int, of_kopf: int, unhealthy: str, not_ready: str
) -> None:
    silence = Silence(lambda: own, lambda: of_kopf)
    assert (silence.why_unhealthy(), silence.why_not_ready()) == (unhealthy, not_ready)


class Behind(Started):
    """A program that says whether the API server's versions have gone back."""

    def __init__(self, *, behind: bool) -> None:
        super().__init__()
        self._behind = behind
        self.asked: list[str] = []

    def is_behind(self, version: str) -> bool:
        self.asked.append(version)
        return self._behind


@pytest.mark.parametrize("behind", [False, True], ids=["a quiet cluster", "another history"])
def test_a_silent_watch_is_given_up_only_where_versions_have_gone_back(
    monkeypatch: pytest.MonkeyPatch,
    behind: bool,  # noqa: FBT001 - what the case wants
) -> None:
    stream, program = ReservationStream(lambda: None), Behind(behind=behind)

    async def look() -> bool:
        await watch(stream, Clock(monkeypatch), (28.0, b""))
        excused, ends = asyncio.Event(), asyncio.Event()
        monkeypatch.setattr(stream, "excuse_silence", excused.set)
        monkeypatch.setattr(stream, "why_begin_anew", lambda: "another history" if behind else "")
        task = asyncio.create_task(kopf_runtime._end_deaf(cast("App", program), stream, ends))
        await asyncio.wait_for((ends if behind else excused).wait(), 300)
        was_ended = ends.is_set()
        ends.set()
        await task
        return was_ended

    assert asyncio.run(look()) is behind
    assert set(program.asked) == {"7"}
