"""What the page of a plan in the cluster says: before it runs, while it does, and when it is over."""

from typing import Any
from xml.etree.ElementTree import Element

import html5lib
import msgspec
import pytest

from berth_core.migration_plans import MigrationPlan
from berth_core.snapshot import Snapshot
from berth_descheduler.planner.stranded_capacity import measure_nodes
from berth_descheduler.report.html import render_page
from berth_descheduler.report.page import Occasion, ReportPage, Tone
from berth_descheduler.report.stored_plan_page import forecast, stored_plan_page
from builders import NOON, node, owner, pod
from descheduler.stored_bodies import how, move, plan

SNAPSHOT = Snapshot(
    nodes=(node("low-1"), node("high-1")),
    pods=(
        pod("web-1", uid="uid-web-1", namespace="shop", node="low-1", cpu="1", memory="1Gi"),
        pod("base", node="high-1", cpu="8", memory="1Gi", controller=owner(name="base")),
    ),
)
DONE = {"moves": 1, "landedOnTarget": 1, "freedNodes": ["low-1"], "seconds": 3.5}


def stored(body: dict[str, Any]) -> MigrationPlan:
    return msgspec.convert(body, MigrationPlan)


def page(body: dict[str, Any], snapshot: Snapshot = SNAPSHOT) -> ReportPage:
    return stored_plan_page(stored(body), snapshot, Occasion(NOON, "Live cluster"))


def read(made: ReportPage) -> Element:
    root: Element = html5lib.HTMLParser(strict=True, namespaceHTMLElements=False).parse(render_page(made))
    return root


def test_a_plan_that_waits_is_shown_with_the_nodes_now_and_as_they_will_be() -> None:
    made = page(plan("plan-1", "Proposed", approveBefore="2026-11-21T13:00:00Z"))

    assert made.tone is Tone.PLANNED
    assert made.headline == "1 move frees 1 of 4 nodes."
    assert made.notes[:2] == (
        "Gain: 1 node.",
        "It waits for approval (until 2026-11-21T13:00:00Z): berth approve plan-1",
    )
    assert made.maps is not None
    now, then = made.maps.maps
    assert (now.title, then.title) == ("now", "after, as planned")
    assert "1 without pods" in then.summary
    assert made.promises == ()
    assert made.freed_nodes == ("low-1",)
    text = " ".join(read(made).itertext())
    assert "Made 2026-11-21T12:00:00Z by a Cron run of policy nightly in the mode Approve." in text


BEFORE = {
    "resource": "cpu",
    "nodes": [
        {"name": "high-1", "allocatable": "16", "requested": "8", "pods": 1},
        {"name": "low-1", "allocatable": "16", "requested": "1", "pods": 1},
    ],
}
"""The nodes of `SNAPSHOT`, as a plan notes them."""

LANDED = Snapshot(
    nodes=SNAPSHOT.nodes,
    pods=(
        pod("web-1~1", namespace="shop", node="high-1", cpu="1", memory="1Gi"),
        pod("base", node="high-1", cpu="8", memory="1Gi", controller=owner(name="base")),
    ),
)
DRAWN = {
    "a plan that notes nothing": (LANDED, "Succeeded", None, ["now"]),
    "a plan that is over": (LANDED, "Succeeded", BEFORE, ["when planned", "now"]),
    "a plan that runs": (
        Snapshot(nodes=SNAPSHOT.nodes, pods=tuple(one for one in SNAPSHOT.pods if one.metadata.name == "web-1")),
        "Running",
        BEFORE,
        ["when planned", "now", "after, as planned"],
    ),
    "nothing has changed yet": (SNAPSHOT, "Proposed", BEFORE, ["now", "after, as planned"]),
    "nothing has changed and all is over": (SNAPSHOT, "Failed", BEFORE, ["now"]),
}


@pytest.mark.parametrize(("now", "phase", "before", "want"), DRAWN.values(), ids=DRAWN.keys())
def test_the_nodes_are_drawn_as_they_were_where_that_is_known_and_differs(
    now: Snapshot, phase: str, before: dict[str, Any] | None, want: list[str]
) -> None:
    noted: dict[str, Any] = {} if before is None else {"nodesBefore": before}

    made = page(plan("plan-1", phase, **noted), now)

    assert made.maps is not None
    assert [one.title for one in made.maps.maps] == want


def test_a_node_that_was_freed_beside_what_was_planned_is_no_promise_broken() -> None:
    predicted = {"nodes": 4, "moves": 1, "waves": 1}

    made = page(plan("plan-1", "Succeeded", statuses=[how()], achieved=DONE, predicted=predicted), LANDED)

    (freed,) = [one for one in made.promises if one.label == "nodes freed"]
    assert (freed.planned, freed.achieved, freed.kept) == ("0 of 4", "1", True)


def test_what_went_wrong_is_a_promise_broken() -> None:
    made = page(
        plan("plan-1", "Failed", statuses=[how(state="Failed")], achieved={"moves": 1, "pendingPods": 1}), LANDED
    )

    assert {one.label: one.kept for one in made.promises} == {
        "pods landed on their target": False,
        "nodes freed": False,
        "failed": False,
        "pods without a node": False,
    }


def test_a_node_that_was_freed_is_marked_beside_how_it_was() -> None:
    made = page(plan("plan-1", "Succeeded", statuses=[how()], achieved=DONE, nodesBefore=BEFORE), LANDED)

    assert made.maps is not None
    then, now = made.maps.maps
    assert [cell.title for cell in then.cells] == ["high-1: 50 % cpu, 1 pod", "low-1: 6 % cpu, 1 pod"]
    assert [cell.title for cell in now.cells] == ["high-1: 56 % cpu, 2 pods", "low-1: 0 % cpu, 0 pods, freed"]
    assert "in no picture" not in " ".join(read(made).itertext())


def test_of_a_large_cluster_only_the_noted_nodes_are_drawn_and_the_page_says_so() -> None:
    before = {**BEFORE, "nodes": BEFORE["nodes"][1:], "leftOut": 1}

    made = page(plan("plan-1", "Succeeded", nodesBefore=before), LANDED)

    assert made.maps is not None
    assert [len(one.cells) for one in made.maps.maps] == [1, 1]
    assert "1 more node of then is drawn in no picture" in " ".join(read(made).itertext())


def test_the_picture_goes_by_the_resource_that_was_noted() -> None:
    before = {"resource": "memory", "nodes": [{"name": "low-1", "allocatable": "8Gi", "requested": "4Gi", "pods": 2}]}

    made = page(plan("plan-1", "Succeeded", nodesBefore=before), LANDED)

    assert made.maps is not None
    assert made.maps.maps[0].cells[0].title == "low-1: 50 % memory, 2 pods"
    assert [cell.title for cell in made.maps.maps[0].cells[1:]] == ["high-1: not there"]


def test_what_has_landed_already_is_not_moved_again_in_the_forecast() -> None:
    landed = Snapshot(
        nodes=SNAPSHOT.nodes,
        pods=(pod("web-1~1", namespace="shop", node="high-1", cpu="1", memory="1Gi"),),
    )

    made = page(plan("plan-1", "Running", statuses=[how()]), landed)

    assert made.maps is not None
    assert [one.title for one in made.maps.maps] == ["now"]


def test_a_plan_that_went_well_is_shown_with_what_was_promised_and_kept() -> None:
    made = page(plan("plan-1", "Succeeded", statuses=[how()], achieved=DONE, message="all landed"))

    assert (made.tone, made.headline) == (Tone.WELL, "all landed")
    assert [(one.label, one.planned, one.achieved, one.kept) for one in made.promises] == [
        ("pods landed on their target", "1", "1", True),
        ("nodes freed", "1 of 4", "1", True),
        ("pods without a node", "0", "0", True),
    ]
    assert (made.not_freed, made.troubles) == ((), ())
    assert {figure.label: figure.value for figure in made.figures}["took"] == "3.5 s"


def test_a_plan_that_went_badly_names_what_is_not_as_it_was_to_be() -> None:
    failed = how("web-1", "Failed", reason="ReservationTimeout", message="not held in 60 s")
    achieved = {**DONE, "landedOnTarget": 0, "failed": 1, "freedNodes": []}

    made = page(plan("plan-1", "Failed", statuses=[failed], achieved=achieved))

    assert made.tone is Tone.BADLY
    assert made.not_freed == ("low-1",)
    assert [(row.pod, row.reason) for row in made.troubles] == [("shop/web-1", "ReservationTimeout")]
    assert [one.label for one in made.promises if not one.kept] == [
        "pods landed on their target",
        "nodes freed",
        "failed",
    ]


def test_the_rooms_of_a_plan_are_on_its_page() -> None:
    room = {"name": "ml/trainer", "namespace": "ml", "slots": [{"node": "low-1"}]}

    made = page(plan("plan-1", "Running", rooms=[room]))

    assert made.room is not None
    assert made.room.rows == (("ml/trainer", "low-1", "Pending", "", ""),)


def test_what_names_say_is_no_markup() -> None:
    text = render_page(page(plan("plan-1", "Running", message="<script>alert(1)</script>")))

    assert "<script>alert" not in text


@pytest.mark.parametrize("phase", ["Requested", "Proposed", "Approved", "Running", "Succeeded", "Partial", "Aborted"])
def test_a_plan_in_every_phase_has_a_page_that_a_browser_reads(phase: str) -> None:
    made = page(plan("plan-1", phase, freed=None if phase == "Requested" else ("low-1",)))

    assert f"Plan plan-1, {phase}" in " ".join(read(made).itertext())


def test_a_cluster_without_nodes_has_a_page_without_a_picture() -> None:
    made = page(plan(), Snapshot.empty())

    assert made.maps is None
    read(made)


def test_a_forecast_moves_amounts_slots_and_pods() -> None:
    found = forecast(measure_nodes(SNAPSHOT), stored(plan(moves=[move()])).spec.moves)

    high, low = sorted(found.nodes, key=lambda one: one.name)
    assert (high.pods, high.requested.get("cpu"), high.requested.get("pods")) == (2, 9_000, 2)
    assert (low.pods, low.requested.get("cpu"), low.requested.get("pods")) == (0, 0, 0)
