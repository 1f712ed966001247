"""The parts of the HTTP interface that decide by themselves: memory, places, pace, shapes, problems, events."""

import asyncio
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from berth_core.errors import BerthError, InputError, PermanentError, RetryableError
from berth_core.migration_plans import MigrationPlan
from berth_descheduler.api.parameters import SHAPE_PATTERN, read_shapes
from berth_descheduler.api.plan_events import events_between
from berth_descheduler.api.problems import ProblemError, from_error
from berth_descheduler.api.request_limits import RequestAdmission
from berth_descheduler.api.request_validation import from_validation
from berth_descheduler.api.schemas import NAME_PATTERN
from berth_descheduler.api.settings import RestLimits, RestTimes
from berth_descheduler.api.ttl_cache import TtlCache
from berth_descheduler.migration.plans.conflicts import PlanStateError
from berth_descheduler.planner.capacity_shapes import read_shape
from berth_kube.errors import (
    AlreadyExistsError,
    ConflictError,
    ForbiddenError,
    InvalidObjectError,
    MalformedAnswerError,
    NotFoundError,
    RefusedError,
    ServerError,
    TooManyRequestsError,
    UnauthorizedError,
    UnexpectedObjectError,
)
from berth_kube.resources import MIGRATION_PLANS
from builders import FakeClock
from descheduler.fake_cluster import call, failure
from properties import holds_for

# --- memory -----------------------------------------------------------------------------------------------------------


class Oracle:
    """Answers with how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.released = asyncio.Event()
        self.released.set()

    async def __call__(self) -> int:
        self.asked += 1
        answer = self.asked
        await self.released.wait()
        if answer < 0:
            raise LookupError
        return answer


@pytest.mark.asyncio
async def test_an_answer_is_good_for_its_time() -> None:
    clock, oracle = FakeClock(), Oracle()
    memory: TtlCache[str, int] = TtlCache(clock, 10)
    for wait, want in ((0, 1), (9.9, 1), (0.1, 2), (10, 3)):
        clock.advance(wait)
        assert await memory.answer("key", oracle, lambda _: 10) == want


@pytest.mark.asyncio
async def test_only_so_many_answers_are_remembered_those_asked_for_last() -> None:
    memory: TtlCache[int, int] = TtlCache(FakeClock(), 3)
    oracle = Oracle()
    for key in (1, 2, 3, 1, 4):
        await memory.answer(key, oracle, lambda _: 10)
    assert len(memory) == 3
    assert [await memory.answer(key, oracle, lambda _: 10) for key in (1, 4)] == [1, 4]
    assert await memory.answer(2, oracle, lambda _: 10) == 5


@pytest.mark.asyncio
async def test_who_asks_the_same_meanwhile_waits_for_the_same_answer() -> None:
    memory: TtlCache[str, int] = TtlCache(FakeClock(), 10)
    oracle = Oracle()
    oracle.released.clear()
    waiting = [asyncio.ensure_future(memory.answer("key", oracle, lambda _: 10)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    oracle.released.set()
    assert await asyncio.gather(*waiting[1:]) == [1] * 4
    assert oracle.asked == 1


@pytest.mark.asyncio
async def test_a_failure_is_not_remembered() -> None:
    memory: TtlCache[str, int] = TtlCache(FakeClock(), 10)
    oracle = Oracle()
    oracle.asked = -2
    with pytest.raises(LookupError):
        await memory.answer("key", oracle, lambda _: 10)
    oracle.asked = 6
    assert await memory.answer("key", oracle, lambda _: 10) == 7


# --- places and pace --------------------------------------------------------------------------------------------------


def refused(status: int, enter: object) -> ProblemError:
    assert callable(enter)
    with pytest.raises(ProblemError) as caught:
        enter()
    assert caught.value.status == status
    assert int(caught.value.headers["Retry-After"]) >= 1
    return caught.value


def test_places_are_given_back_whatever_happens() -> None:
    admission = RequestAdmission(
        FakeClock(), RestLimits(requests=1, requests_per_caller=1, streams=1, streams_per_caller=1), RestTimes()
    )
    for _ in range(3):
        with admission.request() as visit:
            visit.count_for("ann")
            refused(503, admission.request().__enter__)
            visit.become_stream()
            assert (admission.open_requests, admission.open_streams) == (0, 1)
            with admission.request() as other:
                other.count_for("ann")
                refused(503, other.become_stream)
                assert (admission.open_requests, admission.open_streams) == (1, 1)
        assert (admission.open_requests, admission.open_streams) == (0, 0)


def test_one_callers_places_are_not_anothers() -> None:
    admission = RequestAdmission(FakeClock(), RestLimits(requests_per_caller=1, streams_per_caller=1), RestTimes())
    with admission.request() as first, admission.request() as second, admission.request() as third:
        first.count_for("ann")
        refused(429, lambda: second.count_for("ann"))
        third.count_for("ben")
        first.become_stream()
        with admission.request() as fourth:
            fourth.count_for("ann")
            refused(429, fourth.become_stream)
    assert (admission.open_requests, admission.open_streams) == (0, 0)


def test_a_caller_has_a_burst_and_then_a_pace() -> None:
    clock = FakeClock()
    admission = RequestAdmission(clock, RestLimits(rate_per_second=2, burst=3), RestTimes())

    def ask(caller: str = "ann") -> None:
        with admission.request() as visit:
            visit.count_for(caller)

    for _ in range(3):
        ask()
    refused(429, ask)
    ask("ben")
    for _ in range(4):
        clock.advance(0.5)
        ask()
        refused(429, ask)
    clock.advance(1000)
    for _ in range(3):
        ask()
    refused(429, ask)


# --- parameters -------------------------------------------------------------------------------------------------------


@holds_for(st.from_regex(SHAPE_PATTERN, fullmatch=True), quick=20)
def test_every_shape_that_the_description_allows_is_read(text: str) -> None:
    (shape,) = read_shapes([text])
    assert shape.amounts == read_shape(text).amounts
    assert all(amount > 0 for _, amount in shape.amounts.items())


@pytest.mark.parametrize(
    "text", ["cpu=4,memory=8Gi", "cpu=500m", "cpu=0.5", "nvidia.com/gpu=1", "hugepages-2Mi=1Gi,cpu=1.25", "memory=1e3"]
)
def test_shapes_as_people_write_them_are_allowed(text: str) -> None:
    assert bool(re.fullmatch(SHAPE_PATTERN, text)) == (text != "memory=1e3")


@pytest.mark.parametrize("text", ["nvidia.com/gpu=0.5", "nvidia.com/gpu=1500m", "cpu=4,example.com/fpga=1.5"])
def test_parts_of_a_device_are_refused(text: str) -> None:
    with pytest.raises(ProblemError, match="shape"):
        read_shapes([text])


@pytest.mark.parametrize("text", ["a", "a-b.c9", "0.0", "x" * 63])
def test_names_of_objects_are_allowed(text: str) -> None:
    assert re.fullmatch(NAME_PATTERN, text)


# --- problems ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (NotFoundError, 404),
        (ConflictError, 409),
        (AlreadyExistsError, 409),
        (InvalidObjectError, 409),
        (ForbiddenError, 502),
        (UnauthorizedError, 502),
        (UnexpectedObjectError, 502),
        (RefusedError, 502),
        (TooManyRequestsError, 503),
        (ServerError, 503),
        (MalformedAnswerError, 503),
    ],
)
def test_what_the_api_server_says_becomes_a_status(kind: type[BerthError], status: int) -> None:
    problem = from_error(kind(call("get", MIGRATION_PLANS, "x"), failure(400, "so it is")))
    assert problem.status == status
    assert ("Retry-After" in problem.headers) == (status == 503 or kind is ConflictError)
    assert msgspec.json.decode(problem.body("id"))["instance"] == "urn:uuid:id"


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (PlanStateError("it is over"), 409),
        (InputError("shape", "x", "another"), 422),
        (RetryableError("later", retry_after_seconds=7), 503),
        (PermanentError("never"), 500),
    ],
)
def test_what_berth_says_becomes_a_status(error: BerthError, status: int) -> None:
    assert from_error(error).status == status
    if status == 503:
        assert from_error(error).headers["Retry-After"] == "7"


@given(st.text() | st.none() | st.integers() | st.lists(st.text()))
def test_any_value_can_be_told_in_a_problem(value: object) -> None:
    error = {"type": "string_type", "loc": ("body", "policy"), "msg": "Input should be", "input": value}
    (told,) = msgspec.json.decode(from_validation([error]).body())["errors"]
    assert told["field"] == "body.policy"
    assert told["value"].isprintable()
    assert len(told["value"]) <= 80


# --- events -----------------------------------------------------------------------------------------------------------


def plan(version: str, *states: str, phase: str = "Running", **spec: bool) -> MigrationPlan:
    moves = [{"namespace": "shop", "pod": f"web-{index}", "source": "a", "target": "b"} for index in range(len(states))]
    statuses = [{"namespace": "shop", "pod": f"web-{index}", "state": state} for index, state in enumerate(states)]
    return MigrationPlan.from_api(
        {
            "metadata": {"name": "plan-1", "uid": "u", "resourceVersion": version},
            "spec": {"moves": moves, **spec},
            "status": {"phase": phase, "moves": statuses},
        }
    )


@pytest.mark.parametrize(
    ("after", "ids"),
    [
        (plan("8", "Pending", "Pending"), []),
        (plan("8", "Reserving", "Pending"), ["move 8"]),
        (plan("8", "Reserving", "Reserving"), ["move 8.1", "move 8"]),
        (plan("8", "Landed", "Pending", phase="Partial"), ["move 8.1", "phase 8"]),
        (plan("8", "Pending", "Pending", aborted=True), ["phase 8"]),
        (plan("8", "Pending", "Pending", "Pending"), ["plan 8"]),
    ],
    ids=str,
)
def test_the_last_event_of_a_change_has_the_plans_version(after: MigrationPlan, ids: list[str]) -> None:
    told = events_between(plan("7", "Pending", "Pending"), after)
    assert [f"{event.kind} {event.id}" for event in told] == ids
    assert all(event.encode().count(b"\n") == 4 for event in told)
