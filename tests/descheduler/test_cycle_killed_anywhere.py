"""Killed before any one of its calls, a run is brought to its end by the next: no pod lost, nothing left behind."""
# ruff: noqa: ANN401 - it passes on whatever the client is called with

import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest

from berth_core.clock import SystemClock, format_timestamp
from berth_core.labels import DRAINING_TAINT, FREED_ANNOTATION, FREED_TAINT, PLAN_LABEL
from berth_core.migration_plans import MigrationPlan, MoveMethod, MoveState, PlanPhase
from berth_descheduler.cycle import Cycle, CycleContext
from berth_descheduler.migration.plans.abort import release_reservations
from berth_descheduler.migration.plans.recovery import RecoveryAction, choose_recovery
from berth_descheduler.observers import CycleObserver
from berth_descheduler.planner import WaveLimits
from berth_descheduler.report.documents import describe_run
from berth_descheduler.settings import CycleSettings, ExecutionSettings, FreedNodes, MoveTimeouts
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube.resources import MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from builders import NOON
from descheduler.cycle_settings import BriskClock
from descheduler.fake_cluster import FakeCluster, fragmented_cluster
from planner_settings import planner_settings
from waiting import soon

REMOVE = "example.com/remove"
WAITS = MoveTimeouts(
    reserve_seconds=30,
    evict_seconds=30,
    land_seconds=30,
    ready_seconds=30,
    gap_seconds=5,
    heeds_progress_deadlines=False,
)
SETTINGS = CycleSettings(
    execution=ExecutionSettings(timeouts=WAITS, tick_seconds=0.01, status_interval_seconds=0),
    identity="test",
    lease_wait_seconds=1,
    freed=FreedNodes(taint=True, annotations={REMOVE: "soon"}),
    moves=MoveMethod.EVICT,
)
PLANNER = planner_settings(waves=WaveLimits(per_controller=1))


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class MortalProcess:
    """A client and a clock that end the process at one of its calls; from then on nothing gets through."""

    def __init__(self, cluster: FakeCluster, calls_to_live: int) -> None:
        self._cluster = cluster
        self._left = calls_to_live
        self._lock = threading.Lock()
        self._clock = BriskClock()
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._cluster, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self._spend()
            return method(*args, **kwargs)

        return call

    def within(self, _seconds: float) -> "MortalProcess":
        return self

    def watch(self, *args: Any, **kwargs: Any) -> Any:
        return self._cluster.watch(*args, **kwargs)

    def now(self) -> datetime:
        return self._clock.now()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def sleep(self, seconds: float) -> None:
        if self.dead:
            raise Killed
        self._clock.sleep(seconds)

    def _spend(self) -> None:
        with self._lock:
            self._left -= 1
            self.dead = self.dead or self._left < 0
            if self.dead:
                raise Killed


def run(client: Any, clock: Any) -> Any:
    return Cycle(CycleContext(client, clock, CycleObserver(), threading.Event()), SETTINGS, PLANNER).run()


def is_killed(process: MortalProcess, run_it: Callable[[], object]) -> bool:
    """Return whether a process is killed in a run; of two runs one may need a call more."""
    try:
        run_it()
    except Killed:
        return True
    return process.dead


def count_calls() -> int:
    process = MortalProcess(fragmented_cluster(), 10_000)
    run(process, process)
    return 10_000 - process._left


def landing_late(cluster: FakeCluster) -> None:
    """Let an evicted pod take its time, and its replacement as well."""
    at_once = cluster.land_at_once

    def land(pod: dict[str, Any]) -> None:
        cluster.terminate(pod)  # as the API server answers an eviction: a pod on its way out is not evicted again
        threading.Timer(0.03, at_once, [pod]).start()

    cluster.land = land


BOTH_FREED = {"low-1": [FREED_TAINT], "low-2": [FREED_TAINT]}


def marked_nodes(cluster: FakeCluster) -> list[str]:
    """Return the nodes with all that is put on freed ones beside the taint; a node with a part of it is a failure."""
    found = {name: node["metadata"].get("annotations") or {} for (_, name), node in cluster.objects["nodes"].items()}
    marked = [name for name, notes in found.items() if FREED_ANNOTATION in notes]
    assert marked == [name for name, notes in found.items() if REMOVE in notes]
    return sorted(marked)


def all_run(cluster: FakeCluster) -> bool:
    return len([pod for pod in cluster.raw(PODS) if pod["spec"].get("nodeName")]) == 5


LANDINGS = {"at once": lambda _: None, "late": landing_late}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize(
    ("landing", "step"),
    [("at once", 9), *(pytest.param(landing, 1, marks=pytest.mark.deep) for landing in LANDINGS)],
)
def test_the_next_run_ends_what_a_killed_one_began(landing: str, step: int) -> None:
    calls_to_live = 0
    for calls_to_live in itertools.count(step=step):
        cluster = fragmented_cluster()
        LANDINGS[landing](cluster)
        process = MortalProcess(cluster, calls_to_live)
        if not is_killed(process, partial(run, process, process)):
            break

        run(cluster, BriskClock())

        assert cluster.taints() == BOTH_FREED, f"killed before call {calls_to_live}"
        assert marked_nodes(cluster) == list(BOTH_FREED), f"killed before call {calls_to_live}"
        assert cluster.pods_on("low-1") == cluster.pods_on("low-2") == [], f"killed before call {calls_to_live}"
        assert len(cluster.objects["pods"]) == 5, f"killed before call {calls_to_live}"
        phases = {r["status"]["state"]["phase"] for r in cluster.reservations()}
        assert phases <= {"Succeeded"}, f"killed before call {calls_to_live}"
        plans = [plan["status"]["phase"] for plan in cluster.objects["migrationplans"].values()]
        assert set(plans) <= {"Succeeded", "Aborted"}, f"killed before call {calls_to_live}"
        evicted = [call.name for call in cluster.calls if call.verb == "evict"]
        assert sorted(evicted) == ["api-1", "web-1", "web-2"], f"killed before call {calls_to_live}"
    assert calls_to_live > 40


@pytest.mark.deep
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_next_run_ends_what_a_killed_one_began_and_somebody_aborted_then() -> None:
    calls_to_live = 0
    for calls_to_live in itertools.count(step=2):
        cluster = fragmented_cluster()
        landing_late(cluster)
        process = MortalProcess(cluster, calls_to_live)
        if not is_killed(process, partial(run, process, process)):
            break
        evicted = [call.name for call in cluster.calls if call.verb == "evict"]
        for (_, name), found in list(cluster.objects["migrationplans"].items()):
            if found.get("status", {}).get("phase") not in {"Succeeded", "Partial", "Failed"}:
                cluster.merge_patch(MIGRATION_PLANS, name, {"spec": {"aborted": True}})

        outcome = run(cluster, BriskClock())

        when = f"killed before call {calls_to_live}"
        assert cluster.taints() == {name: BOTH_FREED.get(name) for name in cluster.taints()}, when
        soon(f"every pod runs, {when}", partial(all_run, cluster))
        phases = {r["status"]["state"]["phase"] for r in cluster.reservations()}
        assert phases <= {"Succeeded"}, when
        for adopted in outcome.adopted:
            assert adopted.phase is PlanPhase.ABORTED, when
            reasons = {status.reason for status in adopted.statuses if status.state is MoveState.SKIPPED}
            assert reasons <= {"Aborted"}, when
            landed = {status.pod for status in adopted.statuses if status.state is MoveState.LANDED}
            assert landed.issuperset(evicted[:1]), when
    assert calls_to_live > 40


def test_the_time_of_a_plan_that_another_run_ends_counts_from_its_first_run() -> None:
    cluster = killed_while_it_moves()
    ((_, name),) = cluster.objects["migrationplans"]
    begun = format_timestamp(SystemClock().now() - timedelta(minutes=10))
    cluster.merge_patch(MIGRATION_PLANS, name, {"status": {"startTime": begun}}, subresource="status")

    (ended,) = run(cluster, BriskClock()).adopted

    assert 600 <= ended.achieved.seconds < 1800


def test_a_plan_whose_deletion_waits_for_a_finalizer_is_ended_as_an_aborted_one() -> None:
    cluster = killed_while_it_moves()
    ((_, name),) = cluster.objects["migrationplans"]
    deleted = {"deletionTimestamp": format_timestamp(SystemClock().now()), "finalizers": ["foregroundDeletion"]}
    cluster.merge_patch(MIGRATION_PLANS, name, {"metadata": deleted})

    (ended,) = run(cluster, BriskClock()).adopted

    assert ended.phase is PlanPhase.ABORTED
    skipped = {status.reason for status in ended.statuses if status.state is MoveState.SKIPPED}
    assert skipped == {"Aborted"}


def killed_while_it_moves() -> FakeCluster:
    """Return a cluster whose plan was begun by a run that was killed then."""
    for calls_to_live in itertools.count(40, step=5):
        cluster = fragmented_cluster()
        landing_late(cluster)
        process = MortalProcess(cluster, calls_to_live)
        assert is_killed(process, partial(run, process, process))
        (plan_left,) = cluster.objects["migrationplans"].values()
        if plan_left["status"]["phase"] == "Running":
            return cluster
    raise AssertionError("unreachable")


def plan(
    phase: str | None, *, approved: bool = True, aborted: bool = False, begun: str = "2026-11-21T11:50:00Z"
) -> MigrationPlan:
    body: dict[str, Any] = {
        "metadata": {"name": "plan-1", "creationTimestamp": begun},
        "spec": {"approved": approved, "aborted": aborted},
        "status": {"phase": phase, "startTime": begun} if phase else {},
    }
    return MigrationPlan.from_api(body)


@dataclass(frozen=True)
class Case:
    plan: MigrationPlan
    want: RecoveryAction


CASES = {
    "a running plan is continued": Case(plan("Running"), RecoveryAction.CONTINUE),
    "an approved plan whose run is gone is not begun": Case(plan("Approved"), RecoveryAction.ABORT_AS_NOT_BEGUN),
    "an approved plan that anybody may have written is not begun": Case(plan(None), RecoveryAction.ABORT_AS_NOT_BEGUN),
    "a proposed plan that was approved when its run was gone is not begun": Case(
        plan("Proposed"), RecoveryAction.ABORT_AS_NOT_BEGUN
    ),
    "a running plan with a time that is none is aborted": Case(
        plan("Running", begun="noon"), RecoveryAction.ABORT_AS_OLD
    ),
    "a proposed plan that nobody approved is superseded": Case(
        plan("Proposed", approved=False), RecoveryAction.ABORT_AS_SUPERSEDED
    ),
    "a plan that somebody aborted before it began is ended": Case(
        plan("Approved", aborted=True), RecoveryAction.ABORT_AS_ASKED
    ),
    "a plan that somebody aborted in its middle is continued, to bring its pods home": Case(
        plan("Running", aborted=True), RecoveryAction.CONTINUE
    ),
    "an old running plan is aborted": Case(plan("Running", begun="2026-11-21T11:00:00Z"), RecoveryAction.ABORT_AS_OLD),
    **{
        f"a plan that is {phase} stays": Case(plan(phase), RecoveryAction.LEAVE)
        for phase in PlanPhase
        if phase.terminal
    },
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_becomes_of_a_plan_that_is_found(case: Case) -> None:
    assert choose_recovery(case.plan, NOON, adoption_seconds=1800) is case.want


def test_an_old_plan_is_aborted_and_its_taints_and_places_are_taken_off() -> None:
    cluster = fragmented_cluster()
    process = MortalProcess(cluster, count_calls() * 2 // 3)
    with pytest.raises(Killed):
        run(process, process)
    first = cluster.plan()["metadata"]["name"]
    cluster.merge_patch(MIGRATION_PLANS, first, {"status": {"startTime": "2020-01-01T00:00:00Z"}}, subresource="status")

    run(cluster, BriskClock())

    status = cluster.objects["migrationplans"]["", first]["status"]
    assert status["phase"] == "Aborted"
    assert "interrupted" in status["message"]
    assert all(MoveState(move["state"]).terminal for move in status["moves"])
    assert DRAINING_TAINT not in str(cluster.taints())


def test_a_place_that_cannot_be_read_is_released_with_the_others() -> None:
    cluster = fragmented_cluster()
    odd = {"tasks": [{"name": "main", "template": {"spec": {"containers": [], "tolerations": "none"}}}]}
    for name, spec in (("odd", odd), ("plain", {"tasks": []})):
        meta = {"name": name, "namespace": "default", "labels": {PLAN_LABEL: "plan-a"}}
        cluster.add(RESERVATIONS, {"metadata": meta, "spec": spec})

    release_reservations(cluster, "plan-a")  # type: ignore[arg-type]

    assert cluster.reservations() == []


def test_one_reservation_that_cannot_be_read_does_not_hide_the_cluster() -> None:
    cluster = fragmented_cluster()
    odd = {"tasks": [{"name": "main", "template": {"spec": {"containers": [], "tolerations": "none"}}}]}
    cluster.add(RESERVATIONS, {"metadata": {"name": "odd", "namespace": "default"}, "spec": odd})

    seen = read_live_snapshot(cluster)  # type: ignore[arg-type]

    assert [(one.key, one.spec.tasks) for one in seen.reservations] == [("default/odd", ())]


def test_a_draining_taint_of_a_plan_that_is_gone_is_taken_off() -> None:
    cluster = fragmented_cluster()
    stale = {"key": "berth.volcano.sh/draining", "value": "plan-gone", "effect": "NoSchedule"}
    cluster.merge_patch(NODES, "high-1", {"spec": {"taints": [stale]}})
    outcome = run(cluster, BriskClock())
    assert DRAINING_TAINT not in str(cluster.taints())
    assert outcome.clean


def test_what_was_continued_is_told_beside_the_new_plan() -> None:
    cluster = fragmented_cluster()
    process = MortalProcess(cluster, count_calls() // 2)
    with pytest.raises(Killed):
        run(process, process)
    outcome = run(cluster, BriskClock())
    assert outcome.sentence.startswith("Continued plan-")
    assert [one.phase for one in describe_run(outcome).resumed] == ["Succeeded"]
    assert replace(outcome, adopted=()).clean
