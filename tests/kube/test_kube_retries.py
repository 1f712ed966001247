from collections.abc import Callable
from dataclasses import dataclass

import pytest

from berth_kube.errors import (
    Call,
    EvictionBlockedError,
    EvictionInterceptedError,
    Failure,
    ForbiddenError,
    KubeError,
    MalformedAnswerError,
    ServerError,
    TooManyRequestsError,
    UnreachableError,
    UntrustedServerError,
)
from berth_kube.retries import NO_RETRIES, Backoff, Repeatable, RetryPolicy, may_repeat
from builders import FakeClock

CALL = Call("create", "pods default/a")


def too_many(seconds: float | None = None) -> KubeError:
    return TooManyRequestsError(CALL, Failure(429, retry_after_seconds=seconds))


def failed(seconds: float | None = None) -> KubeError:
    return ServerError(CALL, Failure(503, retry_after_seconds=seconds))


def unreachable(*, acted: bool) -> KubeError:
    return UnreachableError(CALL, Failure(), url="http://x", acted=acted)


@dataclass(frozen=True)
class Case:
    error: KubeError
    want_if_always: bool
    want_unless_acted: bool


CASES = {
    "too many requests": Case(too_many(), want_if_always=True, want_unless_acted=True),
    "an eviction against a budget": Case(
        EvictionBlockedError(CALL, Failure(429)), want_if_always=False, want_unless_acted=False
    ),
    "an eviction that a webhook answers": Case(
        EvictionInterceptedError(CALL, Failure(429)), want_if_always=False, want_unless_acted=False
    ),
    "a failure of the server": Case(failed(), want_if_always=True, want_unless_acted=False),
    "a failure that names a time": Case(failed(1), want_if_always=True, want_unless_acted=True),
    "a connection that was refused": Case(unreachable(acted=False), want_if_always=True, want_unless_acted=True),
    "a connection that broke": Case(unreachable(acted=True), want_if_always=True, want_unless_acted=False),
    "an answer that is no JSON": Case(
        MalformedAnswerError(CALL, Failure()), want_if_always=True, want_unless_acted=False
    ),
    "a server that is not trusted": Case(
        UntrustedServerError(CALL, Failure(), url="https://x", acted=False),
        want_if_always=False,
        want_unless_acted=False,
    ),
    "a call without the right": Case(ForbiddenError(CALL, Failure(403)), want_if_always=False, want_unless_acted=False),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_call_is_repeated_where_that_is_safe(case: Case) -> None:
    assert may_repeat(case.error, Repeatable.ALWAYS) is case.want_if_always
    assert may_repeat(case.error, Repeatable.UNLESS_ACTED) is case.want_unless_acted


def failing(errors: list[KubeError]) -> Callable[[], str]:
    def action() -> str:
        if errors:
            raise errors.pop(0)
        return "done"

    return action


STEADY = Backoff(first_seconds=1, factor=2, longest_seconds=5, jitter=0)


def test_waits_grow_and_are_capped() -> None:
    clock = FakeClock()
    policy = RetryPolicy(attempts=6, deadline_seconds=100, backoff=STEADY)
    errors = [failed() for _ in range(5)]
    assert policy.call(failing(errors), repeatable=Repeatable.ALWAYS, clock=clock) == "done"
    assert clock.slept == [1, 2, 4, 5, 5]


def test_a_long_outage_does_not_overflow_the_wait() -> None:
    assert STEADY.wait_seconds(100_000) == 5


def test_jitter_keeps_a_wait_between_half_and_all_of_it() -> None:
    backoff = Backoff(first_seconds=2, jitter=0.5)
    assert backoff.wait_seconds(1, draw=lambda: 0.0) == 2
    assert backoff.wait_seconds(1, draw=lambda: 1.0) == 1


def test_the_server_may_ask_for_a_longer_wait() -> None:
    clock = FakeClock()
    policy = RetryPolicy(backoff=STEADY)
    policy.call(failing([too_many(7)]), repeatable=Repeatable.UNLESS_ACTED, clock=clock)
    assert clock.slept == [7]


def test_no_call_begins_after_the_deadline() -> None:
    clock = FakeClock()
    policy = RetryPolicy(attempts=100, deadline_seconds=6, backoff=STEADY)
    with pytest.raises(ServerError):
        policy.call(failing([failed() for _ in range(100)]), repeatable=Repeatable.ALWAYS, clock=clock)
    assert clock.slept == [1, 2]


def test_a_wait_longer_than_the_deadline_is_not_begun() -> None:
    clock = FakeClock()
    policy = RetryPolicy(deadline_seconds=30, backoff=STEADY)
    with pytest.raises(TooManyRequestsError) as caught:
        policy.call(failing([too_many(3600)]), repeatable=Repeatable.ALWAYS, clock=clock)
    assert clock.slept == []
    assert caught.value.retry_after_seconds == 3600


def test_the_last_error_is_raised_when_all_attempts_failed() -> None:
    clock = FakeClock()
    errors = [failed(), failed(), too_many()]
    with pytest.raises(TooManyRequestsError):
        RetryPolicy(attempts=3, backoff=STEADY).call(failing(errors), repeatable=Repeatable.ALWAYS, clock=clock)


def test_a_policy_of_one_attempt_never_waits() -> None:
    clock = FakeClock()
    with pytest.raises(ServerError):
        NO_RETRIES.call(failing([failed()]), repeatable=Repeatable.ALWAYS, clock=clock)
    assert clock.slept == []


def test_a_policy_without_attempts_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        RetryPolicy(attempts=0)
