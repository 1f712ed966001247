"""A node whose last pods take their time is marked as freed once they have ended, by whoever looks then."""

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from berth_core.clock import SystemClock, format_timestamp
from berth_core.labels import FREED_ANNOTATION, FREED_TAINT
from berth_core.migration_plans import Achieved, MigrationPlan
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.nodes.freed import settle_freed_nodes
from berth_descheduler.migration.nodes.freed_marks import FreedMark
from berth_descheduler.observers import CycleObserver
from berth_descheduler.outcome import Outcome, Phase, Verdict
from berth_descheduler.settings import CycleSettings, FreedNodes
from berth_kube.errors import ServerError
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS
from builders import FakeClock
from descheduler.cycle_settings import PLANNER, SETTINGS, BriskClock, impatient, states
from descheduler.fake_cluster import Raw, call, failure, fragmented_cluster, pod

REMOVE: Final = "cluster-autoscaler.kubernetes.io/scale-down"
MARKING: Final = replace(SETTINGS, freed=FreedNodes(taint=True, annotations={REMOVE: "soon"}))
END_SECONDS: Final = MARKING.execution.timeouts.end_seconds
GRACE: Final = timedelta(minutes=10)


class Lingering:
    """A fragmented cluster whose evicted pods stay for their grace period, beside their replacements."""

    def __init__(self, grace: timedelta = GRACE, **metadata: Any) -> None:  # noqa: ANN401 - of the pods that stay
        self.cluster = fragmented_cluster()
        self.grace, self.metadata = grace, metadata
        self.cluster.land = self._linger

    def _linger(self, raw: Raw) -> None:
        with self.cluster.lock:
            due = format_timestamp(SystemClock().now() + self.grace)
            metadata = {**raw["metadata"], **self.metadata, "deletionTimestamp": due}
            self.cluster._store("pods", {**raw, "metadata": metadata})
            place = self.cluster.held_place(raw)
            new = self.cluster.new_pod(raw, node=place["status"]["slots"][0]["node"] if place else "")
            if place:
                self.cluster.take(place, new)

    def run(self, settings: CycleSettings = MARKING, observer: CycleObserver | None = None) -> Outcome:
        context = CycleContext(self.cluster, BriskClock(), observer or CycleObserver(), threading.Event())  # type: ignore[arg-type]
        return Cycle(context, settings, PLANNER).run()

    def end_pods(self) -> None:
        for raw in self.lingering():
            self.cluster.remove(PODS, raw)

    def lingering(self) -> list[Raw]:
        return [one for one in self.cluster.raw(PODS) if one["metadata"].get("deletionTimestamp")]

    def first_plan(self) -> Raw:
        plans = self.cluster.raw(MIGRATION_PLANS)
        found: Raw = min(plans, key=lambda one: one["metadata"]["creationTimestamp"])
        return found

    def achieved(self) -> Achieved:
        achieved = MigrationPlan.from_api(self.first_plan()).status.achieved
        assert achieved is not None
        return achieved

    def settle(self, *, wanted: Callable[[FreedMark], FreedNodes] | None = None, hours: float = 0) -> tuple[str, ...]:
        plans = tuple(MigrationPlan.from_api(raw) for raw in self.cluster.raw(MIGRATION_PLANS))
        clock = FakeClock(SystemClock().now() + timedelta(hours=hours))
        return settle_freed_nodes(self.cluster, clock, plans, end_seconds=END_SECONDS, wanted=wanted)  # type: ignore[arg-type]

    def marks(self) -> dict[str, tuple[list[str], list[str]]]:
        """Return what nodes carry of a freed one: taints and annotations."""
        nodes = {one["metadata"]["name"]: one for one in self.cluster.raw(NODES)}
        found = {
            name: (
                [taint["key"] for taint in one["spec"].get("taints") or () if taint["key"] == FREED_TAINT],
                sorted({FREED_ANNOTATION, REMOVE} & set(one["metadata"].get("annotations") or {})),
            )
            for name, one in nodes.items()
        }
        return {name: carried for name, carried in found.items() if any(carried)}


MARKED: Final = ([FREED_TAINT], sorted([FREED_ANNOTATION, REMOVE]))
BOTH: Final = ("low-1", "low-2")


def test_until_its_pods_have_ended_a_node_is_not_freed_and_carries_nothing() -> None:
    world = Lingering()
    outcome = world.run()

    assert states(outcome) == {"web-1": ("Landed", ""), "web-2": ("Landed", ""), "api-1": ("Landed", "")}
    status = world.first_plan()["status"]
    assert "; 0 nodes freed in " in status["message"]
    assert status["message"].endswith("; 2 will be freed once 3 pods have ended.")
    assert outcome.sentence == status["message"]
    achieved = world.achieved()
    assert (achieved.freed_nodes, achieved.freed_node_count) == ((), 0)
    assert (achieved.freeing_nodes, achieved.ending_pods, achieved.stuck_pods) == (BOTH, 3, 0)
    assert world.marks() == {}
    assert outcome.clean
    assert world.settle() == ()
    assert world.marks() == {}


def test_a_node_is_marked_and_recorded_once_its_pods_have_ended() -> None:
    world = Lingering()
    world.run()
    web = [one for one in world.lingering() if one["spec"]["nodeName"] == "low-2"]
    for one in web:
        world.cluster.remove(PODS, one)
    assert world.settle() == ("low-2",)
    status = world.first_plan()["status"]
    assert "; 1 node freed in " in status["message"]
    assert status["message"].endswith("; 1 more will be freed once 2 pods have ended.")
    assert world.marks() == {"low-2": MARKED}

    world.end_pods()
    assert world.settle() == ("low-1",)
    status = world.first_plan()["status"]
    achieved = world.achieved()
    assert (achieved.freed_nodes, achieved.freed_node_count, achieved.freeing_nodes) == (BOTH, 2, ())
    assert "; 2 nodes freed in " in status["message"]
    assert "will be" not in status["message"]
    assert "freedMarks" not in status
    assert {one["message"] for one in status["conditions"]} == {status["message"]}
    assert world.marks() == dict.fromkeys(BOTH, MARKED)
    assert json.loads(world.cluster.objects["nodes"]["", "low-1"]["metadata"]["annotations"][FREED_ANNOTATION])["plan"]
    assert world.settle() == ()


class Counting(CycleObserver):
    def __init__(self) -> None:
        self.freed: list[str] = []

    def nodes_freed(self, nodes: Sequence[str]) -> None:
        self.freed += nodes


def test_the_next_run_goes_on_where_the_last_one_left_off() -> None:
    world, counting = Lingering(), Counting()
    world.run(observer=counting)
    assert counting.freed == []
    world.end_pods()
    world.run(observer=counting)
    assert counting.freed == list(BOTH)
    assert world.marks() == dict.fromkeys(BOTH, MARKED)


class Ending(CycleObserver):
    """Ends the pods a moment after the run has begun to look at what its moves have brought."""

    def __init__(self, world: Lingering) -> None:
        self._world = world

    def phase_begun(self, phase: Phase) -> None:
        if phase is Phase.VERIFY:
            threading.Timer(0.5, self._world.end_pods).start()


def test_a_run_that_waits_long_enough_sees_its_pods_end() -> None:
    world = Lingering()
    outcome = world.run(impatient("end_seconds", settings=MARKING, seconds=300), Ending(world))
    assert outcome.plan is not None
    assert (outcome.plan.freed_nodes, outcome.plan.freeing_nodes) == (BOTH, ())
    assert world.marks() == dict.fromkeys(BOTH, MARKED)


def used_again(world: Lingering) -> None:
    world.end_pods()
    for node in BOTH:
        world.cluster.add(PODS, pod(f"new-{node}", "new", node, cpu="1"))


def test_a_node_that_others_use_by_then_was_not_freed() -> None:
    world = Lingering()
    world.run()
    used_again(world)
    assert world.settle() == ()
    achieved = world.achieved()
    assert (achieved.freed_nodes, achieved.freeing_nodes, achieved.ending_pods) == ((), (), 0)
    assert "will be" not in world.first_plan()["status"]["message"]
    assert world.marks() == {}


WANTS: Final[dict[str, tuple[FreedNodes, dict[str, tuple[list[str], list[str]]]]]] = {
    "its policy is gone": (FreedNodes(), {}),
    "its policy wants no taint any more": (
        FreedNodes(annotations={REMOVE: "soon"}),
        dict.fromkeys(BOTH, ([], sorted([FREED_ANNOTATION, REMOVE]))),
    ),
    "its policy wants what it wanted": (MARKING.freed, dict.fromkeys(BOTH, MARKED)),
}


@pytest.mark.parametrize(("now", "want"), WANTS.values(), ids=WANTS)
def test_what_a_node_gets_that_is_freed_later_when(
    now: FreedNodes, want: dict[str, tuple[list[str], list[str]]]
) -> None:
    world = Lingering()
    world.run()
    world.end_pods()
    assert world.settle(wanted=lambda _: now) == BOTH
    assert world.marks() == want


def test_what_cannot_be_recorded_is_settled_by_the_next_sweep() -> None:
    world = Lingering()
    world.run()
    world.end_pods()
    error = ServerError(call("patch", MIGRATION_PLANS, "plan"), failure(500))
    world.cluster.faults["patch migrationplans"] = [error]
    assert world.settle() == ()
    assert world.settle() == BOTH
    assert world.marks() == dict.fromkeys(BOTH, MARKED)


# --- pods that do not end --------------------------------------------------------------------------------------------

HELD: Final = {"finalizers": ["example.com/hold"]}


def assert_says_what_stays(world: Lingering) -> None:
    status = world.first_plan()["status"]
    moves = {one["pod"]: one for one in status["moves"]}
    assert {(one["state"], one["reason"]) for one in moves.values()} == {("Landed", "PodStays")}
    assert moves["api-1"]["message"] == (
        "the pod was evicted and has not ended on low-1: the finalizer example.com/hold holds it"
    )
    achieved = world.achieved()
    assert (achieved.freed_nodes, achieved.freeing_nodes, achieved.ending_pods) == ((), (), 0)
    assert achieved.stuck_pods == 3
    assert status["message"].endswith("; 3 pods have not ended in time.")
    assert world.marks() == {}


def test_pods_that_should_have_ended_before_the_run_is_over_are_named() -> None:
    world = Lingering(timedelta(hours=-1), **HELD)
    outcome = world.run()
    assert not outcome.clean
    assert_says_what_stays(world)


def test_pods_that_have_not_ended_long_after_their_grace_period_are_named_and_not_waited_for() -> None:
    world = Lingering(**HELD)
    world.run()
    assert world.settle(hours=1) == ()
    assert_says_what_stays(world)
    world.end_pods()
    assert world.settle(hours=1) == ()
    assert world.marks() == {}


def test_a_pod_that_stays_because_its_node_is_not_ready_says_so() -> None:
    world = Lingering(timedelta(hours=-1))
    condition = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "no word of it"}
    node = world.cluster.objects["nodes"]["", "low-1"]
    take_place = world.cluster.land

    def lose_node(raw: Raw) -> None:
        world.cluster._store("nodes", {**node, "status": {**node["status"], "conditions": [condition]}})
        take_place(raw)

    world.cluster.land = lose_node
    world.run()
    messages = {one["pod"]: one["message"] for one in world.first_plan()["status"]["moves"]}
    assert messages["api-1"].endswith(": node low-1 is not Ready: NodeStatusUnknown: no word of it")
    assert messages["web-2"].endswith(": the kubelet of node low-2 has not ended it")


def test_pods_that_do_not_end_hold_no_later_run() -> None:
    world = Lingering(timedelta(hours=-24), **HELD)
    world.run()
    outcome = world.run(impatient("end_seconds", settings=MARKING, seconds=10_000))
    assert outcome.verdict is Verdict.NOTHING_TO_MOVE
    assert len(world.lingering()) == 3
