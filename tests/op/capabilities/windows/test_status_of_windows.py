"""What a window says: what it holds, gave and expects, what it did before, and how often."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest

from api_server_in_memory import error
from berth_core import Reservation, ReservationPhase, WindowCondition, WindowReason
from berth_kube import PODS, RESERVATIONS
from berth_kube.errors import ServerError
from berth_operator.capabilities.windows.store import WINDOW
from berth_operator.metrics import REGISTRY
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.workqueue import Key
from window_simulation import NAMESPACE, WindowSimulation, big_node, window_body


def at(hour: int, minute: int = 0, *, day: int = 1) -> datetime:
    return datetime(2026, 1, day, hour, minute, tzinfo=UTC)


def simulated(**spec: Any) -> WindowSimulation:  # noqa: ANN401 - a field of the spec
    found = WindowSimulation()
    found.apply(window_body(**spec))
    return found


def see_slots(one: WindowSimulation, phase: ReservationPhase, *slots: dict[str, Any]) -> None:
    """Let the operator hear what became of the slots of the only Reservation."""
    (held,) = one.reservations()
    key = NAMESPACE, held.metadata.name
    status = {"state": {"phase": phase.value, "reason": "AwaitingCapacity"}, "slots": list(slots)}
    one.api.put(RESERVATIONS, {**one.api.objects[RESERVATIONS.plural][key], "status": status})
    one.cache.put_reservation(Reservation.read(one.api.objects[RESERVATIONS.plural][key]))
    one.controller.reconcile(Key(WINDOW, "uid-nightly"))


HELD: Final = {"task": "window", "index": 0, "state": "Held"}
TAKEN: Final = {"task": "window", "index": 1, "state": "Taken"}
WAITS: Final = {"task": "window", "index": 2, "state": "Pending", "expectedAt": "2026-01-01T02:30:00Z"}
LATE: Final = {**WAITS, "expectedAt": "2026-01-01T03:30:00Z"}
UNKNOWN: Final = {**WAITS, "expectedAt": None}
SEEN: Final[dict[str, tuple[ReservationPhase, tuple[dict[str, Any], ...], tuple[int, int, str | None], str, str]]] = {
    "a slot is expected before the start": (
        ReservationPhase.WAITING,
        (HELD, TAKEN, WAITS),
        (1, 1, "2026-01-01T02:30:00Z"),
        "True",
        WindowReason.IDLE_SUFFICES,
    ),
    "one of two is expected after the start": (
        ReservationPhase.WAITING,
        (HELD, WAITS, LATE),
        (1, 0, "2026-01-01T03:30:00Z"),
        "False",
        WindowReason.LATE,
    ),
    "nobody knows when one comes": (
        ReservationPhase.WAITING,
        (HELD, WAITS, UNKNOWN),
        (1, 0, None),
        "True",
        WindowReason.IDLE_SUFFICES,
    ),
    "all are there": (ReservationPhase.AVAILABLE, (HELD, HELD, TAKEN), (2, 1, None), "True", WindowReason.HELD),
}


@pytest.mark.parametrize(("phase", "slots", "want", "want_status", "want_reason"), SEEN.values(), ids=SEEN)
def test_a_window_says_what_it_holds_gave_and_expects(
    phase: ReservationPhase,
    slots: tuple[dict[str, Any], ...],
    want: tuple[int, int, str | None],
    want_status: str,
    want_reason: str,
) -> None:
    one = simulated(podNumToReserve=3)
    one.advance(at(1))
    see_slots(one, phase, *slots)
    (active,) = one.window().status.active
    assert (active.desired, active.nodes) == (3, ("node-a",))
    assert (active.held, active.taken, active.expected_at) == want
    sufficient = one.window().condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason) == (want_status, want_reason)


@pytest.mark.parametrize(("limit", "want"), [(2, ["2026-01-04", "2026-01-03"]), (0, [])])
def test_as_many_past_occurrences_are_kept_as_wanted_the_latest_first(limit: int, want: list[str]) -> None:
    one = simulated(historyLimit=limit)
    one.advance(at(12, day=4))
    assert len(one.lives) == 4
    assert [past.start.partition("T")[0] for past in one.window().status.history] == want


def count_occurrences() -> list[float]:
    """Return how many windows were opened, how late in all, and how many were missed and left out."""
    late = [REGISTRY.get_sample_value(f"berth_window_late_seconds_{part}") for part in ("count", "sum")]
    results = ({"result": result} for result in ("opened", "missed", "left out"))
    return [
        one or 0.0
        for one in (*late, *(REGISTRY.get_sample_value("berth_window_occurrences_total", r) for r in results))
    ]


def test_what_opened_and_what_was_missed_is_counted() -> None:
    before = count_occurrences()
    one = simulated(missed="Skip")
    one.advance(at(2))
    one.advance(at(0, 30, day=2))
    one.is_up = False
    one.advance(at(3, 30, day=2))
    one.restart()
    one.settle()
    one.advance(at(2, day=3))
    assert [now - then for now, then in zip(count_occurrences(), before, strict=True)] == [2, 0, 2, 1, 0]
    one.controller.refresh()
    states = {state: REGISTRY.get_sample_value("berth_windows", {"state": state}) for state in ("Reserving", "Closed")}
    assert states == {"Reserving": 1, "Closed": 0}


def sufficient(one: WindowSimulation, name: str = "nightly") -> tuple[str, str, str]:
    condition = one.window(name).condition(WindowCondition.SUFFICIENT)
    assert condition is not None
    return condition.status, condition.reason, condition.message


def sweep(one: WindowSimulation, time: datetime) -> None:
    """Let time pass until a sweep in which it is no window's turn."""
    one.advance(time)
    one.controller.resync(lambda _uid: False)
    one.settle()


def test_two_windows_do_not_count_the_same_room() -> None:
    one = WindowSimulation(nodes=(big_node("node-a"),))
    for name in ("first", "second", "third"):
        one.apply(window_body(name))
    for time in (at(1), at(1, 2), at(2, 50)):
        sweep(one, time)
        assert [sufficient(one, name)[:2] for name in ("first", "second", "third")] == [
            ("True", WindowReason.IDLE_SUFFICES),
            ("True", WindowReason.IDLE_SUFFICES),
            ("False", WindowReason.IDLE_INSUFFICIENT),
        ]
    assert sufficient(one, "third")[2] == "what is idle at the start on node-a holds 0 of 10 slots"


def test_a_window_may_have_what_another_has_given_back_by_its_start() -> None:
    one = WindowSimulation(nodes=(big_node("node-a", cpu="32"),))
    one.apply(window_body("early", schedule="0 1 - 3 * * *", startReserveAgo="1h"))
    one.apply(window_body("late", schedule="0 3 - 4 * * *", startReserveAgo="2h"))
    sweep(one, at(1, 30))
    assert [sufficient(one, name)[0] for name in ("early", "late")] == ["True", "True"]


def test_pods_that_came_and_took_the_room_count_and_those_that_left() -> None:
    one = simulated()
    one.advance(at(1))
    assert sufficient(one)[0] == "True"
    one.put_running("low", node="node-a", cpu="48")
    sweep(one, at(1, 1))
    assert sufficient(one) == (
        "False",
        WindowReason.IDLE_INSUFFICIENT,
        "what is idle at the start on node-a holds 5 of 10 slots",
    )
    one.api.delete(PODS, "low", namespace="default")
    sweep(one, at(1, 2))
    assert sufficient(one)[0] == "True"


def test_a_window_closes_in_time_though_pods_cannot_be_listed() -> None:
    one = simulated()
    sweep(one, at(1))
    one.put_running("low", node="node-a", cpu="48")
    one.api.faults["list pods"] = error(ServerError)
    sweep(one, at(1, 2))
    assert sufficient(one)[:2] == ("True", WindowReason.IDLE_SUFFICES), "as it was counted last"
    one.apply(window_body(suspend=True))
    assert not one.reservations()


def cordon(one: WindowSimulation, node: GuardableNode) -> None:
    metadata = msgspec.structs.replace(node.metadata, resource_version="1000")
    spec = msgspec.structs.replace(node.spec, unschedulable=True)
    one.cache.put_node(msgspec.structs.replace(node, metadata=metadata, spec=spec))


def remove(one: WindowSimulation, node: GuardableNode) -> None:
    one.cache.remove_node(node)


@pytest.mark.parametrize("disturb", [cordon, remove])
def test_a_node_that_is_cordoned_or_gone_holds_nothing_at_the_start(
    disturb: Callable[[WindowSimulation, GuardableNode], None],
) -> None:
    one = simulated()
    one.advance(at(1))
    assert sufficient(one)[0] == "True"
    disturb(one, one.nodes[0])
    sweep(one, at(1, 1))
    assert sufficient(one)[:2] == ("False", WindowReason.IDLE_INSUFFICIENT)


def test_a_place_on_a_node_that_is_closed_meanwhile_is_said() -> None:
    one = simulated(podNumToReserve=2)
    one.advance(at(1))
    closed = {**WAITS, "index": 1, "reason": "NodeClosed", "node": "node-z", "message": "node node-z is cordoned"}
    see_slots(one, ReservationPhase.PENDING, HELD, {key: value for key, value in closed.items() if key != "expectedAt"})
    status, reason, message = sufficient(one)
    assert (status, reason) == ("False", WindowReason.IDLE_INSUFFICIENT)
    assert message == (
        "besides 1 that are held or taken, what is idle at the start on node-a holds 0 of 1 slot; node node-z is "
        "cordoned"
    )


def test_overlapping_occurrences_say_what_they_hold_together_and_which_lacks_its_capacity() -> None:
    one = WindowSimulation(nodes=(big_node("node-a", cpu="40"),))
    one.apply(window_body(schedule="0 3 * * *", duration="30h"))
    sweep(one, at(4, day=2))
    assert len(one.window().status.active) == 2
    assert sufficient(one)[:2] == ("False", WindowReason.IDLE_INSUFFICIENT)
    assert sufficient(one)[2] == (
        "2 occurrences overlap, with 20 places together; that of 2026-01-02T03:00:00Z: what is idle at the start on "
        "node-a holds 2 of 10 slots"
    )
