"""Events are written one after the other beside the work, and never keep it waiting."""

import threading

from api_server_in_memory import ApiServerInMemory, error
from berth_core.reservations import ObjectReference
from berth_kube.errors import ServerError
from berth_kube.events import build_event
from berth_kube.resources import EVENTS
from berth_operator.reservation.act.events import EventRecorder, RecordedEvent
from waiting import soon


def saying(reason: str) -> RecordedEvent:
    about = ObjectReference(api_version="v1", kind="Reservation", namespace="default", name="place", uid="uid")
    return RecordedEvent(about, "Normal", reason, f"it is {reason}")


def reasons(api: ApiServerInMemory) -> list[str]:
    return [body["reason"] for body in api.raw(EVENTS)]


def test_events_are_written_in_order_until_stopped() -> None:
    api, stop = ApiServerInMemory(), threading.Event()
    recorder = EventRecorder(api.as_client())
    thread = threading.Thread(target=recorder.run, args=(stop,), daemon=True)
    thread.start()
    for reason in ("Pending", "Available", "Succeeded"):
        recorder.record(saying(reason))
    soon("all are written", lambda: len(reasons(api)) == 3)
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    assert reasons(api) == ["Pending", "Available", "Succeeded"]


def test_few_events_are_written_while_much_is_to_be_done() -> None:
    api, stop = ApiServerInMemory(), threading.Event()
    recorder = EventRecorder(api.as_client(), lambda: True)
    for reason in ("Pending", "Available", "Succeeded"):
        recorder.record(saying(reason))
    pauses: list[float | None] = []

    def wait(timeout: float | None = None) -> bool:
        pauses.append(timeout)
        if len(pauses) == 2:
            stop.set()
        return stop.is_set()

    stop.wait = wait  # type: ignore[method-assign]
    recorder.run(stop)
    assert pauses == [0.2, 0.2]
    assert len(reasons(api)) == 3  # the last one is written on leaving


def test_an_event_that_cannot_be_written_keeps_no_other_back() -> None:
    api = ApiServerInMemory()
    recorder = EventRecorder(api.as_client())
    recorder.record(saying("Pending"))
    recorder.record(saying("Available"))
    name = build_event(saying("Pending").regarding, "Pending", "it is Pending", "Normal", "berth-operator")["metadata"][
        "name"
    ]
    api.faults[f"create events {name}"] = error(ServerError)
    assert [recorder.write_next(), recorder.write_next(), recorder.write_next()] == [True, True, False]
    assert reasons(api) == ["Available"]


def test_what_is_told_while_thousands_wait_is_left_out() -> None:
    recorder = EventRecorder(ApiServerInMemory().as_client())
    for _ in range(10_001):
        recorder.record(saying("Pending"))
    written = 0
    while recorder.write_next():
        written += 1
    assert written == 10_000
