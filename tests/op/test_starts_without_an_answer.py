"""An operator that starts while the API server does not answer waits for it; what no waiting changes ends the start."""

import asyncio
import threading
from collections.abc import Iterator
from datetime import datetime

import pytest
import structlog

from api_server_in_memory import ApiServerInMemory, error
from berth_core.errors import BerthError, InputError
from berth_kube.errors import (
    Call,
    Failure,
    ForbiddenError,
    NotFoundError,
    ServerError,
    UnreachableError,
    UntrustedServerError,
)
from berth_kube.retries import Backoff
from berth_operator import telemetry
from berth_operator.runtime import app
from berth_operator.runtime.app import App
from berth_operator.settings import OperatorSettings
from builders import FakeClock

CALL = Call("get", "secrets berth-system/berth-webhook-tls")


def unreachable(kind: type[UnreachableError], message: str) -> UnreachableError:
    return kind(CALL, Failure(message=message), url="https://localhost", acted=False)


CLOSED = unreachable(UnreachableError, "TLS/SSL connection has been closed (EOF)")
RESET = unreachable(UnreachableError, "Connection reset by peer")
ANOTHER = unreachable(UntrustedServerError, "certificate verify failed")


class Starting:
    """A program whose certificate and first lists are answered as they are told, then not at all."""

    def __init__(self, certificate: list[Exception], lists: list[Exception], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(app, "_START_AGAIN", Backoff(first_seconds=0.001, longest_seconds=0.001))
        api = ApiServerInMemory()
        api.close = lambda: None  # type: ignore[attr-defined]
        if certificate:
            api.faults["get secrets"] = certificate
        self.program = App(api.as_client(), OperatorSettings(health_port=0), FakeClock())
        self.lists: Iterator[Exception] = iter(lists)
        self.lists_read = 0
        monkeypatch.setattr(self.program._engine, "start", self._read_lists)

    def _read_lists(self) -> None:
        self.lists_read += 1
        for failure in self.lists:
            raise failure

    def run(self) -> list[str]:
        """Return what the log says about what is waited for."""

        async def start_and_stop() -> None:
            try:
                await self.program.start()
            finally:
                await self.program.stop()

        with structlog.testing.capture_logs() as lines:
            asyncio.run(start_and_stop())
        return [line["error"] for line in lines if line["event"] == telemetry.START_WAITS]


@pytest.mark.parametrize(
    ("certificate", "lists"),
    [
        ([CLOSED, RESET, CLOSED], []),
        ([], [CLOSED, RESET]),
        ([error(ServerError, "etcd is away")], [RESET]),
    ],
    ids=["while it reads the certificate", "while it lists", "in both"],
)
def test_a_start_goes_on_once_the_api_server_answers(
    certificate: list[Exception], lists: list[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    waited_for = [str(failure) for failure in (*certificate, *lists)]
    starting = Starting(certificate, lists, monkeypatch)

    assert starting.run() == waited_for
    assert starting.program.has_started
    assert starting.program.failure is None
    assert starting.lists_read == len(lists) + 1


@pytest.mark.parametrize(
    "failure",
    [ANOTHER, error(ForbiddenError), error(NotFoundError), InputError("a", "b", "c")],
    ids=lambda failure: type(failure).__name__,
)
def test_what_no_waiting_changes_ends_the_start(failure: BerthError, monkeypatch: pytest.MonkeyPatch) -> None:
    starting = Starting([], [RESET, failure], monkeypatch)

    with pytest.raises(type(failure)):
        starting.run()
    assert starting.lists_read == 2
    assert starting.program.failure is failure


def test_a_renewal_of_the_certificate_that_is_not_answered_is_one_line_of_the_log() -> None:
    program = App(ApiServerInMemory().as_client(), OperatorSettings(health_port=0), FakeClock())
    program._keeper = Unanswered(program._stopping)  # type: ignore[assignment] # its part that is called
    with structlog.testing.capture_logs() as lines:
        program._renew_certificates()
    assert [(line["log_level"], line.get("exc_info")) for line in lines] == [("warning", None)]


class Unanswered:
    """A keeper of the certificate that the API server does not answer, once."""

    check_seconds = 0.0

    def __init__(self, stopping: threading.Event) -> None:
        self._stopping = stopping

    def refresh(self, _now: datetime) -> bool:
        self._stopping.set()
        raise CLOSED
