"""Queues together with Reservations: what placeholders and the pods that take their places count."""

import pytest

from berth_core import QueueCondition
from berth_core.labels import (
    HANDOVER_GATE,
    INDEX_ANNOTATION,
    PLACEHOLDER_LABEL,
    RESERVATION_LABEL,
    RESERVATION_NAME_ANNOTATION,
    SLOT_ANNOTATION,
    TASK_ANNOTATION,
)
from queue_simulation import QueueSimulation, megabytes, simulated


def hold(one: QueueSimulation, name: str, *, index: int = 0, memory: str = "100M") -> None:
    """Add a placeholder of a Reservation of the first queue."""
    labels = {RESERVATION_LABEL: "held", PLACEHOLDER_LABEL: "true"}
    notes = {RESERVATION_NAME_ANNOTATION: "a/place", TASK_ANNOTATION: "main", INDEX_ANNOTATION: str(index)}
    one.submit(name, "berth-system", memory=memory, node="node-a", labels=labels, annotations=notes)


def test_a_placeholder_counts_for_its_namespaces_queue_until_the_pod_takes_its_place() -> None:
    one = simulated()
    for number in range(8):
        hold(one, f"place-{number}")
    one.submit("free", "a")
    one.submit("taker", "a", labels={RESERVATION_LABEL: "held"}, gates=[HANDOVER_GATE])
    one.settle()
    assert one.free("a") == ["taker"], "its place is counted already"
    assert megabytes(one.queue("q1").status.allocated) == 800
    assert one.says("q2", QueueCondition.COVERED) == ("True", "Free")


def test_more_pods_than_places_are_admitted_only_within_the_bounds() -> None:
    one = simulated()
    hold(one, "place")
    for number in range(10):
        one.submit(f"taker-{number}", "a", labels={RESERVATION_LABEL: "held"}, gates=[HANDOVER_GATE])
    one.settle()
    assert len(one.free("a")) == 8


def test_a_pod_whose_placeholder_is_gone_counts_beside_the_places_of_others() -> None:
    one = simulated()
    for number in range(2):
        hold(one, f"place-{number}", index=number)
    slot = {SLOT_ANNOTATION: "main/2/node-a/1800000000"}
    taker = {"labels": {RESERVATION_LABEL: "held"}, "gates": [HANDOVER_GATE]}
    one.submit("taker", "a", annotations=slot, **taker)
    for number in range(9):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len(one.free("a")) == 6, "two places, the pod on its way to a third, and five more"


SEVERAL = {
    "all held": ("0+1", 7),
    "the last one gone": ("0+2", 5),
    "the first one gone": ("2+0", 5),
    "one in the middle gone": ("1+2+0", 5),
    "all gone": ("2+3", 5),
}


@pytest.mark.parametrize(("indices", "want"), SEVERAL.values(), ids=SEVERAL)
def test_a_pod_of_several_places_counts_beside_those_of_others_once_one_of_its_own_is_gone(
    indices: str, want: int
) -> None:
    one = simulated()
    for number in range(2):
        hold(one, f"place-{number}", index=number)
    note = {SLOT_ANNOTATION: f"main/{indices}/node-a/1800000000"}
    one.submit("taker", "a", memory="200M", annotations=note, labels={RESERVATION_LABEL: "held"}, gates=[HANDOVER_GATE])
    one.settle()
    assert one.free("a") == ["taker"]
    for number in range(9):
        one.submit(f"job-{number}", "a")
    one.settle()
    assert len(one.free("a")) == want


def test_all_pods_of_a_plan_in_a_full_queue_take_their_places_before_those_that_wait() -> None:
    one = simulated()
    for number in range(8):
        one.submit(f"old-{number}", "a", node="node-a")
    one.submit("waits", "a", priority=100, created="2026-11-01T10:00:00Z")
    one.settle()
    for number in range(8):
        hold(one, f"place-{number}", index=number)
        one.settle()
        one.submit(f"new-{number}", "a", labels={RESERVATION_LABEL: "held"}, gates=[HANDOVER_GATE])
        one.settle()
        assert f"new-{number}" in one.free("a"), "while its predecessor still ends"
    assert "waits" not in one.free("a")
    for number in range(8):
        one.end(f"old-{number}", "a")
        one.end(f"place-{number}", "berth-system")
    one.end("new-0", "a")
    one.settle()
    assert "waits" in one.free("a")


def test_pods_with_the_label_of_anothers_reservation_count_against_their_own_queue() -> None:
    one = simulated()
    one.namespace("c", team="q3")
    one.write("q3")
    hold(one, "place", memory="10M")
    forged = {"labels": {RESERVATION_LABEL: "held"}, "gates": [HANDOVER_GATE]}
    one.submit("forged", "c", memory="600M", **forged)
    one.settle()
    assert (megabytes(one.queue("q1").status.allocated), megabytes(one.queue("q3").status.allocated)) == (10, 600)
