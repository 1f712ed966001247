"""What a window opens and closes: on time, once, whatever was down, edited, switched off or set meanwhile."""

from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import msgspec
import pytest
import yaml

from api_server_in_memory import error
from berth_core import (
    MAY_MOVE_ANNOTATION,
    POLICY_API_VERSION,
    POLICY_KIND,
    Reservation,
    ReservationPhase,
    WindowCondition,
    WindowReason,
    WindowState,
    template_matches,
)
from berth_core.labels import MAXIMUM_RUNTIME_ANNOTATION
from berth_core.window_schedules import WindowSchedule
from berth_kube import DESCHEDULER_POLICIES, JOBS, PODS, RESERVATION_WINDOWS, RESERVATIONS, VOLCANO_POD_GROUPS
from berth_kube.errors import ServerError
from berth_operator.capabilities.windows.manifests import pod_spec_of
from berth_operator.capabilities.windows.node_chooser import WindowNodeChooser
from berth_operator.capabilities.windows.store import WINDOW
from berth_operator.quota.limits import LimitSettings, NamespaceLimit, parse_limit
from berth_operator.reservation.act.context import Context
from berth_operator.runtime.workqueue import Key
from berth_operator.settings import OperatorSettings
from builders import as_api, owner, pod
from conventions.pages import blocks
from conventions.tracked import ROOT
from window_simulation import EARLY, NAMESPACE, WindowSimulation, big_node, window_body

HOUR: Final = timedelta(hours=1)
MINUTE: Final = timedelta(minutes=1)
SECOND: Final = timedelta(seconds=1)


def at(clock_time: str, day: int = 1) -> datetime:
    hours, _, minutes = clock_time.partition(":")
    return datetime(2026, 1, day, int(hours), int(minutes), tzinfo=UTC)


def simulated(**spec: Any) -> WindowSimulation:  # noqa: ANN401 - a field of the spec
    found = WindowSimulation()
    found.apply(window_body(**spec))
    return found


def test_the_proposals_own_window_reserves_two_hours_ahead_and_ends_at_four() -> None:
    one = simulated()
    assert one.window().status.state == WindowState.CLOSED
    one.advance(at("0:59"))
    assert not one.reservations()

    one.advance(at("1:00"))
    (held,) = one.reservations()
    assert one.window().status.state == WindowState.RESERVING
    (active,) = one.window().status.active
    assert (active.reservation, active.start, active.end) == (
        held.metadata.name,
        "2026-01-01T03:00:00Z",
        "2026-01-01T04:00:00Z",
    )
    assert held.spec.expires == "2026-01-01T04:00:00Z"
    (task,) = held.spec.tasks
    assert task.replicas == 10
    assert task.template.spec.containers[0].resources.requests == {"cpu": "3200m", "memory": "6553Mi"}
    assert [owner.annotations for owner in held.spec.owners] == [{"volcano.sh/reserveable": "true"}]
    assert (held.spec.capacity.value, held.spec.fence.value) == ("WhenFree", "Node")

    one.advance(at("3:00"))
    assert one.window().status.state == WindowState.OPEN
    one.advance(at("4:00"))
    status = one.window().status
    assert not one.reservations()
    assert (status.state, status.active) == (WindowState.CLOSED, ())
    assert [(past.reservation, past.outcome) for past in status.history] == [(held.metadata.name, "Ended")]
    assert status.next is not None
    assert status.next.start == "2026-01-02T03:00:00Z"


@pytest.mark.parametrize(
    ("node_selector", "want"), [({}, True), ({"business_type": "ebook"}, True), ({"business_type": "film"}, False)]
)
def test_a_pod_may_have_the_node_selector_of_the_window(node_selector: dict[str, str], want: bool) -> None:  # noqa: FBT001 - a case
    one = WindowSimulation(nodes=(big_node("node-a", business_type="ebook"),))
    one.apply(window_body(nodeSelector={"business_type": "ebook"}))
    one.advance(at("1:00"))
    (held,) = one.reservations()
    coming = pod("book", cpu="3", memory="6Gi", node_selector=node_selector)
    assert template_matches(held.spec.tasks[0].template, coming, scheduler_name="") is want


def test_an_occurrence_is_opened_once_even_if_all_its_places_were_taken_and_it_was_collected() -> None:
    one = simulated(schedule="0 3 * * *", duration="5h")
    one.advance(at("3:10"))
    one.finish(one.reservations()[0], ReservationPhase.SUCCEEDED, "OwnersRunning")
    one.advance(at("7:59"))
    assert not one.reservations(live=False)
    assert one.window().status.history[0].outcome == "Taken"
    one.restart()
    one.settle()
    assert len(one.lives) == 1


def test_a_reservation_that_a_user_deletes_stays_deleted() -> None:
    one = simulated()
    one.advance(at("2:00"))
    (held,) = one.reservations()
    del one.api.objects[RESERVATIONS.plural][NAMESPACE, held.metadata.name]
    one.cache.remove_reservation(held.metadata.uid)
    one.settle()
    one.advance(at("3:30"))
    assert not one.reservations()
    assert one.window().status.history[0].outcome == "Ended"


DOWN: Final = {
    "before the start": ("0:30", "2:00", {}, 1, []),
    "over the start, for the rest": ("0:30", "3:30", {}, 1, []),
    "over the start, to be skipped": ("0:30", "3:30", {"missed": "Skip"}, 0, ["WindowMissed"]),
    "a moment at the start, to be skipped only later": (
        "2:59",
        "3:00",
        {"missed": "Skip", "startReserveAgo": "0s"},
        1,
        [],
    ),
    "over all of it": ("0:30", "5:00", {}, 0, ["WindowMissed"]),
}


@pytest.mark.parametrize(("down", "up", "spec", "want_open", "want_events"), DOWN.values(), ids=DOWN)
def test_an_operator_that_was_down(
    down: str, up: str, spec: dict[str, Any], want_open: int, want_events: list[str]
) -> None:
    one = simulated(**spec)
    one.advance(at(down))
    one.is_up = False
    one.advance(at(up) + SECOND)
    one.restart()
    one.settle()

    assert len(one.reservations()) == want_open
    assert [event for event in one.events() if event == "WindowMissed"] == want_events
    one.advance(at("5:01"))
    assert "WindowMissed" not in one.events(), "a missed window is reported once"
    one.advance(at("3:30", day=2))
    assert len(one.reservations()) == 1, "the next one opens as ever"


def test_a_window_that_is_switched_off_gives_back_what_it_holds_and_opens_again_for_the_rest() -> None:
    one = simulated()
    one.advance(at("3:10"))
    one.apply(window_body(suspend=True))
    assert not one.reservations()
    assert one.window().status.state == WindowState.SUSPENDED
    scheduled = one.window().condition(WindowCondition.SCHEDULED)
    assert scheduled is not None
    assert (scheduled.status, scheduled.reason) == ("False", WindowReason.SUSPENDED)

    one.apply(window_body(suspend=False))
    assert len(one.reservations()) == 1
    one.advance(at("4:00"))
    assert not one.reservations()


def test_a_window_that_ends_earlier_or_later_by_an_edit_ends_then() -> None:
    one = simulated(schedule="0 3 * * *", duration="1h")
    one.advance(at("3:10"))
    (name,) = [held.metadata.name for held in one.reservations()]
    one.apply(window_body(schedule="0 3 * * *", duration="2h"))
    assert [(held.metadata.name, held.spec.expires) for held in one.reservations()] == [(name, "2026-01-01T05:00:00Z")]
    one.apply(window_body(schedule="0 3 * * *", duration="30m"))
    one.advance(at("3:30"))
    assert not one.reservations()


def test_a_window_whose_time_is_edited_away_closes() -> None:
    one = simulated()
    one.advance(at("2:00"))
    one.apply(window_body(schedule="0 7 - 8 * * *"))
    assert not one.reservations()
    one.advance(at("5:00"))
    assert [held.metadata.annotations["berth.volcano.sh/window-start"] for held in one.reservations()] == [
        "2026-01-01T07:00:00Z"
    ]


EDITS: Final = {
    "it ends earlier": ("3:40", {"schedule": "0 3 * * *", "duration": "30m"}, WindowState.CLOSED),
    "it ends later": ("3:50", {"schedule": "0 3 * * *", "duration": "2h"}, WindowState.OPEN),
    "it still lasts": ("3:20", {"schedule": "0 3 * * *", "duration": "30m"}, WindowState.OPEN),
    "it was edited away": ("3:10", {"schedule": "0 7 - 8 * * *"}, WindowState.CLOSED),
    "it was edited away before it began": ("1:30", {"schedule": "0 7 - 8 * * *"}, WindowState.CLOSED),
}


@pytest.mark.parametrize(("time", "spec", "want"), EDITS.values(), ids=EDITS)
def test_changed_times_count_at_once_for_an_occurrence_all_of_whose_places_are_taken(
    time: str, spec: dict[str, Any], want: WindowState
) -> None:
    one = simulated(schedule="0 3 * * *", duration="1h")
    one.advance(at(time))
    one.finish(one.reservations()[0], ReservationPhase.SUCCEEDED, "OwnersRunning")
    one.advance(at(time) + SECOND)
    one.apply(window_body(**spec))
    assert one.window().status.state == want
    assert [past.outcome for past in one.window().status.history] == ["Taken"] * (want is WindowState.CLOSED)
    assert not one.reservations(), "what is over does not open once more"


def test_what_is_reserved_changes_with_the_next_occurrence() -> None:
    one = simulated()
    one.advance(at("2:00"))
    one.apply(window_body(podNumToReserve=4))
    assert [held.spec.replicas for held in one.reservations()] == [10]
    one.advance(at("2:00", day=2))
    assert [held.spec.replicas for held in one.reservations()] == [4]


def test_a_deleted_window_opens_nothing() -> None:
    one = simulated()
    (key,) = one.api.objects[RESERVATION_WINDOWS.plural]
    del one.api.objects[RESERVATION_WINDOWS.plural][key]
    one.controller.store.remove("uid-nightly")
    one.advance(at("3:30"))
    assert not one.lives


def test_a_window_that_is_deleted_right_before_it_opens_opens_nothing() -> None:
    one = simulated()
    (key,) = one.api.objects[RESERVATION_WINDOWS.plural]
    del one.api.objects[RESERVATION_WINDOWS.plural][key]  # the watch has not said so yet
    one.advance(at("3:30"))
    assert not one.lives


def test_a_clock_that_is_put_back_closes_what_is_not_due_and_opens_it_again() -> None:
    one = simulated()
    one.advance(at("2:00", day=3))
    assert len(one.reservations()) == 1
    one.clock.advance(-2 * 86_400 - 5 * 3_600)
    one.restart()
    one.settle()
    assert not one.reservations()
    one.advance(at("1:00", day=3))
    assert len(one.reservations()) == 1


def test_a_clock_that_went_a_year_ahead_keeps_no_window_from_opening() -> None:
    one = simulated()
    one.advance(at("2:00"))
    one.clock.advance(365 * 86_400)
    one.restart()
    one._expire()
    one.settle()
    one.clock.advance(-365 * 86_400)
    one.restart()
    one.advance(at("2:00", day=2))
    assert [held.metadata.annotations["berth.volcano.sh/window-start"] for held in one.reservations()] == [
        "2026-01-02T03:00:00Z"
    ]


def test_a_duration_longer_than_the_interval_is_open_several_times_at_once() -> None:
    one = simulated(schedule="0 * * * *", duration="2h30m", startReserveAgo="0s", podNumToReserve=1)
    one.advance(at("5:10"))
    starts = [active.start for active in one.window().status.active]
    assert starts == ["2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z", "2026-01-01T05:00:00Z"]


def test_no_more_than_eight_occurrences_of_a_window_are_open_at_once() -> None:
    one = simulated(schedule="* * * * *", duration="2h", startReserveAgo="0s", podNumToReserve=1)
    one.advance(at("1:30"))
    assert len(one.reservations()) == 8
    scheduled = one.window().condition(WindowCondition.SCHEDULED)
    assert scheduled is not None
    assert (scheduled.status, scheduled.reason) == ("False", WindowReason.OVERLAPPING)
    assert "WindowLeftOut" in one.events()


@pytest.mark.parametrize(
    "spec",
    [
        {"timeZone": "Europe/Nowhere"},
        {"schedule": "0 3 30 2 *", "duration": "1h"},
        {"resources": {"example.com/gpu": 3}},
    ],
    ids=["a zone that is none", "a day that never comes", "devices that cannot be divided"],
)
def test_a_window_that_cannot_open_says_why(spec: dict[str, Any]) -> None:
    one = simulated(**spec)
    scheduled = one.window().condition(WindowCondition.SCHEDULED)
    assert scheduled is not None
    assert (scheduled.status, scheduled.reason) == ("False", WindowReason.INVALID)
    assert next(iter(spec)).removesuffix("s") in scheduled.message
    one.advance(at("3:30"))
    assert not one.lives


@pytest.mark.parametrize(
    "odd",
    [window_body("odd", template={"spec": {"containers": "none"}}, resources=None), {**window_body("odd"), "spec": 7}],
    ids=["its template", "its spec"],
)
def test_an_unreadable_window_harms_no_other(odd: dict[str, Any]) -> None:
    one = simulated()
    one.apply(odd)
    scheduled = one.window("odd").condition(WindowCondition.SCHEDULED)
    assert scheduled is not None
    assert (scheduled.status, scheduled.reason) == ("False", WindowReason.INVALID)
    one.advance(at("3:30"))
    assert [held.metadata.labels["berth.volcano.sh/window"] for held in one.reservations()] == ["nightly"]


def test_a_refused_creation_is_tried_again_and_said_once() -> None:
    one = simulated()
    name = one.window().reservation_name("2026-01-01T03:00:00Z")
    one.api.faults[f"create reservations {name}"] = error(ServerError)
    with pytest.raises(ServerError):
        one.advance(at("1:00"))
    one.api.faults.clear()
    one.controller.reconcile(Key(WINDOW, "uid-nightly"))
    one.settle()
    assert [held.metadata.name for held in one.reservations()] == [name]
    assert one.events() == ["WindowReserves"]


def test_without_a_node_nothing_is_reserved_until_there_is_one() -> None:
    one = WindowSimulation(nodes=(big_node("node-a", pool="other"),))
    one.apply(window_body(nodeSelector={"business_type": "ebook"}))
    one.advance(at("1:00"))
    sufficient = one.window().condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason) == ("False", WindowReason.NO_NODES)
    one.cache.put_node(big_node("node-b", business_type="ebook"))
    one.advance(at("1:01"))
    assert [held.spec.tasks[0].node_names for held in one.reservations()] == [("node-b",)]


def policy_body(
    *,
    due: str = "2026-01-01T01:00:30Z",
    plugin: str = "ReservationWindows",
    **spec: Any,  # noqa: ANN401 - a field of the spec
) -> dict[str, Any]:
    """A policy that a service says it runs next at a time."""
    profile = {"name": "default", "plugins": {"balance": {"enabled": [plugin]}}}
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": POLICY_KIND,
        "metadata": {"name": "nightly-moves"},
        "spec": {"mode": "Auto", "profiles": [profile], **spec},
        "status": {"nextRunTime": due},
    }


MOVERS: Final = {
    "one that moves": (policy_body(), WindowReason.IDLE_INSUFFICIENT),
    "one whose plans are approved by somebody": (policy_body(mode="Approve"), WindowReason.AWAITING_APPROVAL),
    "one that only plans": (policy_body(mode="Plan"), WindowReason.NO_MOVES),
    "one that is switched off": (policy_body(suspend=True), WindowReason.NO_MOVES),
    "one of another plugin": (policy_body(plugin="Defragmentation"), WindowReason.NO_MOVES),
    "one that no descheduler has run for long": (policy_body(due="2026-01-01T00:30:00Z"), WindowReason.NO_MOVES),
    "one that cannot be read": ({**policy_body(), "spec": {"profiles": 7}}, WindowReason.NO_MOVES),
    "none": (None, WindowReason.NO_MOVES),
}


@pytest.mark.parametrize(("policy", "want_reason"), MOVERS.values(), ids=MOVERS)
def test_a_window_that_waits_for_moves_says_who_makes_them(policy: dict[str, Any] | None, want_reason: str) -> None:
    one = WindowSimulation()
    for number in (1, 2):
        one.put_running(f"low-{number}", node=f"node-{'ab'[number - 1]}", cpu="60")
    one.apply(window_body(mayMove="Consolidate"))
    if policy is not None:
        one.api.put(DESCHEDULER_POLICIES, policy)
    one.advance(at("1:00"))
    (held,) = one.reservations()
    assert held.metadata.annotations[MAY_MOVE_ANNOTATION] == "Consolidate"
    sufficient = one.window().condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason) == ("False", want_reason)
    assert ("the policy nightly-moves" in sufficient.message) == (want_reason != WindowReason.NO_MOVES)
    assert ("is approved" in sufficient.message) == (want_reason == WindowReason.AWAITING_APPROVAL)


@pytest.mark.parametrize("may_move", ["Never", "Consolidate"])
def test_a_window_whose_nodes_may_not_be_fenced_names_the_limit(may_move: str) -> None:
    one = simulated(mayMove=may_move)
    one.advance(at("1:00"))
    (held,) = one.reservations()
    limit = "9 slots of task window have no node: its namespace may fence 1 node (limit maxFencedNodes)"
    status = {"state": {"phase": "Pending", "reason": "FenceLimit", "message": limit}}
    reservations = one.api.objects[RESERVATIONS.plural]
    one.api.put(RESERVATIONS, {**reservations[NAMESPACE, held.metadata.name], "status": status})
    one.cache.put_reservation(Reservation.read(reservations[NAMESPACE, held.metadata.name]))
    one.controller.reconcile(Key(WINDOW, one.window().metadata.uid))
    sufficient = one.window().condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason, sufficient.message) == ("False", "FenceLimit", limit)


def test_a_policy_that_comes_later_is_noticed_and_other_windows_ask_for_none() -> None:
    one = WindowSimulation()
    for name in ("node-a", "node-b"):
        one.put_running(f"low-{name}", node=name, cpu="60")
    one.apply(window_body())
    one.advance(at("1:00"))
    assert not [call for call in one.api.calls if "deschedulerpolicies" in call]

    one.apply(window_body("moving", mayMove="Consolidate"))
    one.advance(at("1:02"))
    one.api.put(DESCHEDULER_POLICIES, policy_body(due="2026-01-01T01:05:00Z"))
    one.advance(at("1:03"))
    sufficient = one.window("moving").condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert "pods are moved by the policy nightly-moves" in sufficient.message


NODES: Final[dict[str, tuple[dict[str, list[tuple[str, str]]], tuple[str, ...], str, str]]] = {
    "the most idle one if it holds everything": (
        {"node-a": [("40", "")], "node-b": [("30", "")]},
        ("node-b",),
        "True",
        WindowReason.IDLE_SUFFICES,
    ),
    "what a pod leaves that ends before the start is idle": (
        {"node-a": [("64", "7200s")], "node-b": [("30", "")]},
        ("node-a",),
        "True",
        WindowReason.IDLE_SUFFICES,
    ),
    "what a pod leaves that ends after the start is not": (
        {"node-a": [("64", "14400s")], "node-b": [("30", "")]},
        ("node-b",),
        "True",
        WindowReason.IDLE_SUFFICES,
    ),
    "several if one does not hold everything": (
        {"node-a": [("50", "")], "node-b": [("40", "")]},
        ("node-b", "node-a"),
        "True",
        WindowReason.IDLE_SUFFICES,
    ),
    "those whose allocatable amounts suffice if nothing is idle": (
        {"node-a": [("64", "")], "node-b": [("64", "")]},
        ("node-a",),
        "False",
        WindowReason.IDLE_INSUFFICIENT,
    ),
    "all that have something idle if that does not suffice": (
        {"node-a": [("60", "")], "node-b": [("55", "")]},
        ("node-b", "node-a"),
        "False",
        WindowReason.IDLE_INSUFFICIENT,
    ),
}


def test_what_ends_by_its_group_or_its_job_before_the_start_is_idle_then() -> None:
    one = WindowSimulation()
    group = {"metadata": {"name": "train", "namespace": "default", "annotations": {MAXIMUM_RUNTIME_ANNOTATION: "1h"}}}
    job = {"metadata": {"name": "once", "namespace": "default"}, "spec": {"activeDeadlineSeconds": 3600}}
    one.api.put(VOLCANO_POD_GROUPS, group)
    one.api.put(JOBS, {**job, "status": {"startTime": "2026-01-01T00:30:00Z"}})
    of_group = pod("grouped", node="node-a", cpu="60", annotations={"scheduling.volcano.sh/group-name": "train"})
    started = msgspec.structs.replace(of_group.status, start_time="2026-01-01T00:30:00Z")
    one.api.put(PODS, as_api(msgspec.structs.replace(of_group, status=started)))
    of_job = owner("Job", "once")
    of_job = msgspec.structs.replace(of_job, api_version="batch/v1")
    one.api.put(PODS, as_api(pod("batch", node="node-b", cpu="60", controller=of_job)))
    one.apply(window_body(podNumToReserve=20, resources={"cpu": "120", "memory": "20Gi"}))
    one.advance(at("1:00"))
    sufficient = one.window().condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason) == ("True", WindowReason.IDLE_SUFFICES), sufficient.message


@pytest.mark.parametrize(("pods", "want_nodes", "want_status", "want_reason"), NODES.values(), ids=NODES)
def test_the_nodes_are(
    pods: dict[str, list[tuple[str, str]]], want_nodes: tuple[str, ...], want_status: str, want_reason: str
) -> None:
    one = simulated()
    for node, there in pods.items():
        for number, (cpu, runtime) in enumerate(there):
            one.put_running(f"{node}-{number}", node=node, cpu=cpu, runtime=runtime)
    one.advance(at("1:00"))
    (held,) = one.reservations()
    assert held.spec.tasks[0].node_names == want_nodes
    sufficient = one.window().condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason) == (want_status, want_reason)


def test_windows_that_open_together_are_not_given_the_same_capacity() -> None:
    one = WindowSimulation(nodes=(big_node("node-a", cpu="32"), big_node("node-b", cpu="32")))
    for name in ("first", "second"):
        one.apply(window_body(name))
    one.advance(at("1:00"))
    assert sorted(node for held in one.reservations() for node in held.spec.tasks[0].node_names) == ["node-a", "node-b"]
    assert one.api.calls.count("list pods status.phase!=Succeeded,status.phase!=Failed") == 1


def test_a_namespace_opens_as_many_windows_as_its_limit_allows_the_oldest_first() -> None:
    two = OperatorSettings(limits=LimitSettings(default=parse_limit("--limit", "windows=2")))
    simulation = WindowSimulation(nodes=(big_node("node-a", cpu="64"),), settings=two)
    for minute, name in enumerate(("first", "second", "third")):
        body = window_body(name)
        body["metadata"]["creationTimestamp"] = f"2026-11-01T00:0{minute}:00Z"
        simulation.apply(body)
    simulation.advance(at("1:00"))

    def openings() -> set[str]:
        controllers = (held.metadata.owner_references[0].name for held in simulation.reservations())
        return set(controllers)

    assert openings() == {"first", "second"}
    surplus = simulation.window("third").condition(WindowCondition.SCHEDULED)
    assert surplus is not None
    assert (surplus.status, surplus.reason) == ("False", "TooManyWindows")
    assert "2 windows" in surplus.message
    assert "limit windows" in surplus.message
    assert simulation.window("third").status.next is None

    simulation.apply({**window_body("first"), "spec": {**window_body("first")["spec"], "suspend": True}})
    simulation.controller.resync(lambda _: True)
    simulation.settle()
    scheduled = simulation.window("third").condition(WindowCondition.SCHEDULED)
    assert scheduled is not None
    assert scheduled.status == "True"


def test_the_windows_of_a_namespace_begin_as_many_reservations_in_a_minute_as_its_limit_allows() -> None:
    two = OperatorSettings(limits=LimitSettings(default=parse_limit("--limit", "begunPerMinute=2")))
    simulation = WindowSimulation(nodes=(big_node("node-a", cpu="64"),), settings=two)
    names = ("first", "second", "third")
    for name in names:
        simulation.apply(window_body(name))
    simulation.advance(at("1:00"))
    (waiting,) = set(names) - {held.metadata.owner_references[0].name for held in simulation.reservations()}
    sufficient = simulation.window(waiting).condition(WindowCondition.SUFFICIENT)
    assert sufficient is not None
    assert (sufficient.status, sufficient.reason) == ("False", "TooManyBegun")
    assert "2 Reservations a minute" in sufficient.message
    assert "limit begunPerMinute" in sufficient.message

    simulation.advance(at("1:00") + 59 * SECOND)
    assert len(simulation.reservations()) == 2
    simulation.advance(at("1:01") + SECOND)
    assert len(simulation.reservations()) == 3


def test_a_window_whose_reservations_are_refused_begins_them_at_growing_intervals() -> None:
    simulation = simulated(schedule="* * * * *", duration="1m", startReserveAgo="0s")
    begun = []
    for minute in range(60):
        simulation.advance(at("0:00") + minute * MINUTE)
        for refused in simulation.reservations():
            begun.append(minute)
            simulation.finish(refused, ReservationPhase.FAILED, "Forbidden")
        simulation.settle()
        if minute == 2:
            sufficient = simulation.window().condition(WindowCondition.SUFFICIENT)
            assert sufficient is not None
            assert (sufficient.status, sufficient.reason) == ("False", "BackOff")
            assert "begins at 2026-01-01T00:03:00Z" in sufficient.message
    assert begun == [0, 1, 3, 7, 15, 25, 35, 45, 55]
    assert simulation.events().count("WindowMissed") == 60 - len(begun) - 1, "all but the one that is not over"

    simulation.advance(at("1:05"))
    assert len(simulation.reservations()) == 1
    simulation.advance(at("1:06"))
    assert len(simulation.reservations()) == 1


ZONES: Final = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago")
AROUND_CHANGES: Final = (datetime(2026, 3, 27, tzinfo=UTC), datetime(2026, 10, 23, tzinfo=UTC))


def random_window(random: Random, number: int) -> dict[str, Any]:
    first, last = random.sample(range(24), 2)
    minute = random.randrange(60)
    times: dict[str, Any] = {"schedule": f"{minute} {first} - {last} * * *"}
    if random.random() < 0.5:
        times = {"schedule": f"{minute} {first} * * *", "duration": f"{random.randrange(5, 1_500)}m"}
    ago = random.choice(("0s", "10m", "2h", "26h"))
    zone = random.choice(ZONES)
    return window_body(f"window-{number}", **times, startReserveAgo=ago, timeZone=zone, podNumToReserve=1)


@pytest.mark.parametrize("windows", [30, pytest.param(100, marks=pytest.mark.deep)])
@pytest.mark.parametrize("begins", AROUND_CHANGES, ids=["spring", "autumn"])
def test_many_windows_on_one_node_open_and_close_on_time_over_changes_of_the_clock(
    begins: datetime, windows: int
) -> None:
    random = Random(7)  # noqa: S311 - windows, no secrets
    any_number = OperatorSettings(limits=LimitSettings(default=NamespaceLimit(windows=None, begun_per_minute=None)))
    one = WindowSimulation(now=begins, nodes=(big_node("node-a", cpu="6400", memory="64Ti"),), settings=any_number)
    bodies = {body["metadata"]["name"]: body for body in (random_window(random, number) for number in range(windows))}
    for body in bodies.values():
        one.apply(body)
    down, up, ends = begins + 30 * HOUR, begins + 33 * HOUR, begins + 72 * HOUR
    one.advance(down)
    one.is_up = False
    one.advance(up)
    one.restart()
    one.settle()
    one.advance(ends)

    late = []
    for name in bodies:
        window = one.window(name)
        schedule = WindowSchedule.parse(window.spec)
        occurrence = schedule.next_after(begins + 26 * HOUR)
        while occurrence.end < ends:
            opened = occurrence.reserve_at if not down < occurrence.reserve_at < up else up
            if opened >= occurrence.end:  # it came and went while nothing was up
                occurrence = schedule.next_after(occurrence.reserve_at)
                continue
            closed = occurrence.end if not down < occurrence.end < up else up
            start = occurrence.start.strftime("%Y-%m-%dT%H:%M:%SZ")
            lived = one.lives.get(window.reservation_name(start), [])
            if len(lived) != 2 or abs(lived[0] - opened) > 5 * SECOND or abs(lived[1] - closed) > 5 * SECOND:
                late.append((window.spec.schedule, window.spec.time_zone, start, lived))
            occurrence = schedule.next_after(occurrence.reserve_at)
    assert not late
    assert len(one.lives) > 2 * windows


def test_the_example_of_the_page_is_the_file_beside_it_and_opens() -> None:
    docs = ROOT / "operator" / "docs"
    body = yaml.safe_load((docs / "nightly-window.yaml").read_text(encoding="utf-8"))
    (shown,) = [block for block in blocks("yaml") if "kind: ReservationWindow" in block]
    assert yaml.safe_load(shown) == body
    one = WindowSimulation(nodes=(big_node("node-a", business_type="ebook"),))
    one.apply({**body, "metadata": {**window_body()["metadata"]}})
    one.advance(at("1:30"))
    assert [held.spec.tasks[0].node_names for held in one.reservations()] == [("node-a",)]


def test_nodes_that_were_chosen_for_a_reservation_that_never_came_are_chosen_again_after_a_while() -> None:
    simulation = WindowSimulation(nodes=(big_node("node-a"), big_node("node-b")))
    for name in ("first", "second"):
        simulation.apply(window_body(name, podNumToReserve=1, resources={"cpu": "64", "memory": "64Gi"}))
    context = Context(simulation.api.as_client(), simulation.cache, simulation.settings, simulation.clock)
    chooser = WindowNodeChooser(context)

    def choose(name: str) -> tuple[str, ...]:
        window = simulation.window(name)
        return chooser.choose(window, pod_spec_of(window), WindowSchedule.parse(window.spec).next_after(EARLY))

    assert choose("first") == ("node-a",)
    assert choose("second") == ("node-b",)
    simulation.clock.advance(6)
    assert choose("second") == ("node-a",)
