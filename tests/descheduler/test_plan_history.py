"""What earlier plans say about a new one: which pods rest, which gains did not last, which moves undo others."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec import structs

from berth_core import ObjectMeta
from berth_core.clock import format_timestamp
from berth_core.migration_plans import (
    Achieved,
    MigrationPlan,
    MigrationPlanSpec,
    MigrationPlanStatus,
    MoveState,
    MoveStatus,
    PlannedMove,
    PlanPhase,
)
from berth_core.reservations import ObjectReference
from berth_descheduler.framework.interfaces import PastMove
from berth_descheduler.migration.plans.history import (
    count_ping_pong,
    find_failed_moves,
    find_last_moves,
    find_moves_of_others,
    find_pods_in_cooldown,
    find_refilled,
)
from builders import NOON

HOUR = timedelta(hours=1)


def move(pod: str, source: str, target: str) -> PlannedMove:
    return PlannedMove(namespace="shop", pod=pod, source=source, target=target)


def went(pod: str, replacement: str = "", state: MoveState = MoveState.LANDED, node: str = "") -> MoveStatus:
    return MoveStatus(namespace="shop", pod=pod, state=state, replacement=replacement, node=node)


def plan(name: str, minutes_ago: float, *moves: tuple[PlannedMove, MoveStatus], freed: tuple[str, ...] = ()) -> Any:  # noqa: ANN401
    ended = format_timestamp(NOON - timedelta(minutes=minutes_ago))
    return MigrationPlan(
        metadata=ObjectMeta(name=name, uid=name),
        spec=MigrationPlanSpec(moves=tuple(one for one, _ in moves)),
        status=MigrationPlanStatus(
            phase=PlanPhase.SUCCEEDED,
            completion_time=ended,
            moves=tuple(status for _, status in moves),
            achieved=Achieved(freed_nodes=freed),
        ),
    )


def tried(name: str, minutes_ago: float, state: MoveState, reason: str = "", policy: str = "") -> Any:  # noqa: ANN401
    """A plan that tried to move one pod."""
    moved = msgspec.structs.replace(move("web-1", "a", "b"), pod_uid="uid-web-1")
    status = msgspec.structs.replace(went("web-1", state=state), reason=reason)
    made = plan(name, minutes_ago, (moved, status))
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, policy=policy))


FAILURES = {
    "one that failed": ([tried("a", 5, MoveState.FAILED, "ReservationTimeout")], (1, 5)),
    "two in a row": (
        [tried("a", 9, MoveState.FAILED, "EvictionBlocked"), tried("b", 5, MoveState.SKIPPED, "ReplacementRefused")],
        (2, 5),
    ),
    "one before a move that was not begun as the plan stopped": (
        [tried("a", 9, MoveState.FAILED), tried("b", 5, MoveState.SKIPPED, "PlanStopped")],
        (1, 9),
    ),
    "one before a move that landed": ([tried("a", 9, MoveState.FAILED), tried("b", 5, MoveState.LANDED)], None),
    "one after a move that landed": (
        [tried("a", 9, MoveState.FAILED), tried("b", 7, MoveState.LANDED), tried("c", 5, MoveState.FAILED)],
        (1, 5),
    ),
    "one of another policy": ([tried("a", 5, MoveState.FAILED, policy="other")], None),
}


@pytest.mark.parametrize(("plans", "want"), FAILURES.values(), ids=FAILURES)
def test_failures_in_a_row_are_counted_by_pod(plans: list[MigrationPlan], want: tuple[int, int] | None) -> None:
    failed = find_failed_moves(plans, "")
    known = {uid: (failure.times, NOON - failure.at) for uid, failure in failed.items()}
    assert known == ({} if want is None else {"uid-web-1": (want[0], timedelta(minutes=want[1]))})


AWAY = {
    "landed": (MoveState.LANDED, "", 1),
    "was evicted without a place": (MoveState.REMOVED, "", 1),
    "is on its way": (MoveState.EVICTED, "", 1),
    "failed once its pod was evicted": (MoveState.FAILED, "web-2", 1),
    "failed before": (MoveState.FAILED, "", 0),
    "was skipped": (MoveState.SKIPPED, "", 0),
    "waits for its place": (MoveState.RESERVING, "", 0),
}


@pytest.mark.parametrize(("state", "replacement", "want"), AWAY.values(), ids=AWAY)
def test_what_other_policies_took_off_their_nodes_is_known_by_controller(
    state: MoveState, replacement: str, want: int
) -> None:
    moved = msgspec.structs.replace(move("web-1", "a", "b"), owner=ObjectReference(kind="Job", name="web", uid="web"))
    made = plan("a", 5, (moved, went("web-1", replacement, state=state)))
    begun = msgspec.structs.replace(made.status, start_time=format_timestamp(NOON - timedelta(minutes=9)))
    made = msgspec.structs.replace(made, status=begun)
    assert find_moves_of_others([made], "p") == (PastMove("web", "a", NOON - timedelta(minutes=9)),) * want
    assert find_moves_of_others([made], "") == (), "its own"


A_TO_B = (move("web-1", "a", "b"), went("web-1", "web-2"))
B_TO_C = (move("web-2", "b", "c"), went("web-2", "web-3"))


def test_the_replacement_of_a_moved_pod_rests_for_the_cool_down() -> None:
    plans = [plan("one", 59, A_TO_B)]
    assert find_pods_in_cooldown(plans, NOON, HOUR) == {("shop", "web-2"): NOON - timedelta(minutes=59)}
    assert find_pods_in_cooldown([plan("one", 61, A_TO_B)], NOON, HOUR) == {}


@pytest.mark.parametrize("ended", ["", "yesterday", "2026-06-15T12:00:00+99:00"])
def test_a_plan_whose_end_is_no_time_hides_no_other(ended: str) -> None:
    odd = plan("odd", 20, B_TO_C)
    odd = structs.replace(odd, status=structs.replace(odd.status, completion_time=ended, start_time="0000-01-01"))
    assert list(find_pods_in_cooldown([odd, plan("one", 50, A_TO_B)], NOON, HOUR)) == [("shop", "web-2")]


def test_a_replacement_that_was_moved_on_is_known_by_its_last_name() -> None:
    plans = [plan("two", 10, B_TO_C), plan("one", 50, A_TO_B)]
    assert list(find_pods_in_cooldown(plans, NOON, HOUR)) == [("shop", "web-3")]


@pytest.mark.parametrize(
    ("claim", "status"),
    [
        ("a move that was not begun", went("web-1", state=MoveState.SKIPPED)),
        ("a move that failed before its pod was evicted", went("web-1", state=MoveState.FAILED)),
    ],
)
def test_no_pod_rests_after(claim: str, status: MoveStatus) -> None:
    assert find_pods_in_cooldown([plan("one", 5, (move("web-1", "a", "b"), status))], NOON, HOUR) == {}, claim


def test_the_last_moves_of_a_policy_are_those_of_its_youngest_plan_with_any() -> None:
    def created(name: str, minute: int, policy: str, *moves: PlannedMove) -> MigrationPlan:
        stamp = format_timestamp(NOON + timedelta(minutes=minute))
        spec = MigrationPlanSpec(policy=policy, moves=moves)
        return MigrationPlan(metadata=ObjectMeta(name=name, creation_timestamp=stamp), spec=spec)

    first, second = move("web-1", "a", "b"), move("web-1", "a", "c")
    plans = [
        created("z", 1, "nightly", first),
        created("y", 2, "nightly", second),
        created("x", 3, "nightly"),
        created("w", 4, "weekly", first),
    ]

    assert find_last_moves(plans, "nightly") == (second,)
    assert find_last_moves(plans, "weekly") == (first,)
    assert find_last_moves(plans, "") == ()


def test_a_node_that_was_freed_and_is_to_be_freed_again_has_been_filled_again() -> None:
    plans = [plan("old", 120, A_TO_B, freed=("a",)), plan("new", 20, A_TO_B, freed=("a", "idle"))]
    assert find_refilled(plans, ["a", "b"], NOON, HOUR) == {"a": "new"}
    assert find_refilled(plans[:1], ["a"], NOON, HOUR) == {}
    assert find_refilled(plans, ["idle"], NOON, HOUR) == {}, "no move took anything off it"


@dataclass(frozen=True)
class Case:
    earlier: tuple[MigrationPlan, ...]
    now: tuple[PlannedMove, MoveStatus]
    want: int
    rest: timedelta = timedelta(0)


CASES = {
    "a pod that goes back to where it was": Case(
        (plan("one", 90, A_TO_B),), (move("web-2", "b", "a"), went("web-2", "web-3", node="a")), 1
    ),
    "a pod that goes back over a third node": Case(
        (plan("one", 90, A_TO_B), plan("two", 60, B_TO_C)),
        (move("web-3", "c", "a"), went("web-3", "web-4", node="a")),
        1,
    ),
    "a pod that lands where it was although it was to go elsewhere": Case(
        (plan("one", 90, A_TO_B),),
        (move("web-2", "b", "c"), went("web-2", "web-3", MoveState.ELSEWHERE, node="a")),
        1,
    ),
    "a pod that goes on": Case(
        (plan("one", 90, A_TO_B),), (move("web-2", "b", "c"), went("web-2", "web-3", node="c")), 0
    ),
    "a pod that goes on while it was to rest": Case(
        (plan("one", 30, A_TO_B),), (move("web-2", "b", "c"), went("web-2", "web-3", node="c")), 1, rest=HOUR
    ),
    "a move back that was not made": Case(
        (plan("one", 90, A_TO_B),), (move("web-2", "b", "a"), went("web-2", state=MoveState.SKIPPED)), 0
    ),
    "a move back after more than a day": Case(
        (plan("one", 25 * 60, A_TO_B),), (move("web-2", "b", "a"), went("web-2", "web-3", node="a")), 0
    ),
    "another pod that goes there": Case(
        (plan("one", 90, A_TO_B),), (move("api-1", "b", "a"), went("api-1", "api-2", node="a")), 0
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_what_counts_as_ping_pong(case: Case) -> None:
    assert count_ping_pong(case.earlier, [case.now], NOON, case.rest) == case.want
