"""The health port says whether pods may be sent here, and where not, why; also while kopf's event loop is stuck."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from api_server_in_memory import ApiServerInMemory, error
from berth_core.errors import InputError
from berth_kube.errors import InvalidObjectError
from berth_operator.runtime import app
from berth_operator.runtime.app import App
from berth_operator.runtime.loop_threads import LoopThread
from berth_operator.settings import OperatorSettings
from builders import FakeClock
from health_port import PATIENCE_SECONDS, ask, ask_state
from waiting import eventually

CERTIFICATE_IS_REFUSED = {"get secrets berth-webhook-tls": error(InvalidObjectError, "so far")}
INCOMPLETE = (
    "the cache is not complete: "
    "Reservations, placeholders, fences, owners, nodes, priority-classes, quotas, limit-ranges"
)
NO_WEBHOOK = "the webhook does not listen"


class Operator:
    """A program whose health port is open and whose start has come no further, in an event loop that can be stuck."""

    def __init__(self, port: int = 0) -> None:
        api = ApiServerInMemory()
        api.faults = CERTIFICATE_IS_REFUSED
        api.close = lambda: None  # type: ignore[attr-defined]
        self.clock = FakeClock()
        self.program = App(api.as_client(), OperatorSettings(health_port=port), self.clock)
        self.loop = LoopThread("kopf")
        self.is_stuck, self.goes_on = threading.Event(), threading.Event()

    def start(self) -> None:
        self.loop.start()
        with pytest.raises(InvalidObjectError, match="so far"):
            asyncio.run(self.loop.run(self.program.start()))

    @property
    def address(self) -> str:
        return self.program._health.address

    def get_stuck(self) -> None:
        self.loop.call_soon(self._block)
        assert self.is_stuck.wait(PATIENCE_SECONDS)

    def _block(self) -> None:
        self.is_stuck.set()
        assert self.goes_on.wait(600)

    def stop(self) -> None:
        self.goes_on.set()
        asyncio.run(self.loop.run(self.program.stop()))
        self.loop.stop()


@pytest.fixture
def operator() -> Iterator[Operator]:
    made = Operator()
    try:
        made.start()
        yield made
    finally:
        made.stop()


def test_an_operator_that_is_not_ready_says_what_it_waits_for_and_is_healthy(operator: Operator) -> None:
    state = {"healthy": True, "ready": False, "leading": False, "waitsFor": [INCOMPLETE, NO_WEBHOOK]}
    assert ask_state(operator.address, "/readyz") == (503, state)
    assert ask_state(operator.address, "/healthz") == (200, state)


def test_an_operator_that_waits_for_nothing_is_ready(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator.program._engine, "why_not_serving", lambda: "")
    monkeypatch.setattr(operator.program._webhook, "why_not_serving", lambda _now: "")
    state = {"healthy": True, "ready": True, "leading": False, "waitsFor": []}
    assert ask_state(operator.address, "/readyz") == ask_state(operator.address, "/healthz") == (200, state)


def test_an_operator_whose_threads_have_ended_is_not_healthy(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operator.program._engine, "_ended_threads", lambda: ("leader",))
    status, state = ask_state(operator.address, "/healthz")
    assert (status, state["healthy"]) == (503, False)
    assert "a thread has ended: leader" in state["waitsFor"]


def test_an_operator_whose_event_loop_is_stuck_is_neither_healthy_nor_ready_and_can_be_scraped(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.get_stuck()
    with monkeypatch.context() as impatient:
        impatient.setattr(app, "_LOOP_SECONDS", 0.05)
        for path in ("/healthz", "/readyz"):
            status, state = ask_state(operator.address, path)
            assert (status, state["healthy"], state["ready"]) == (503, False, False)
            assert state["waitsFor"][0] == "the event loop of kopf does not answer"
    assert "berth_operator_leading" in ask(operator.address, "/metrics")[2]
    operator.goes_on.set()
    monkeypatch.setattr(app, "_LOOP_SECONDS", PATIENCE_SECONDS)
    assert ask_state(operator.address, "/healthz")[0] == 200


def test_an_operator_whose_event_loop_is_stuck_for_good_does_not_renew_its_lease(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app, "_BEAT_SECONDS", 0.01)
    operator.get_stuck()
    operator.clock.advance(59)
    assert operator.program._engine.heartbeats.silent() == ()
    operator.clock.advance(2)
    assert operator.program._engine.heartbeats.silent() == ("kopf",)
    operator.goes_on.set()
    eventually("it works again", lambda: operator.program._engine.heartbeats.silent() == (), seconds=60)


def test_a_probe_waits_for_an_event_loop_that_is_busy_for_a_while(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.get_stuck()
    monkeypatch.setattr(app, "_LOOP_SECONDS", PATIENCE_SECONDS)
    timer = threading.Timer(0.3, operator.goes_on.set)
    timer.start()
    assert ask_state(operator.address, "/healthz")[0] == 200
    timer.join()


def test_an_event_loop_that_is_closed_does_not_answer() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    assert not app.loop_answers(loop, PATIENCE_SECONDS)


def test_an_operator_that_drains_answers_that_it_is_healthy_and_takes_nothing_new(operator: Operator) -> None:
    asyncio.run(operator.loop.run(operator.program.drain()))
    assert ask_state(operator.address, "/healthz")[0] == 200
    status, state = ask_state(operator.address, "/readyz")
    assert (status, state["ready"]) == (503, False)
    assert state["waitsFor"] == ["the operator is about to stop", "the webhook is about to stop"]


def test_a_health_address_that_is_taken_ends_the_start() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as other:
        port = other.getsockname()[1]
        operator = Operator(port)
        operator.loop.start()
        with pytest.raises(InputError, match=f"--health-address is '127.0.0.1:{port}'; expected a free local address"):
            asyncio.run(operator.loop.run(operator.program.start()))
        operator.stop()
    assert isinstance(operator.program.failure, InputError)
