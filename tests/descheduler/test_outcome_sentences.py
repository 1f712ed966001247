"""What a cycle did, said in a sentence and in numbers that agree with it."""

from dataclasses import dataclass, replace

import msgspec
import pytest

from berth_core.migration_plans import MoveReason, MoveState, MoveStatus, PlanPhase, Predicted
from berth_descheduler.outcome import Forecast, Outcome, PlanOutcome, RoomForecast, Verdict, Whereabouts, conclude
from berth_descheduler.report.documents import describe_run


def moves(*states: tuple[MoveState, MoveReason] | MoveState) -> tuple[MoveStatus, ...]:
    pairs = [(one, MoveReason.NONE) if isinstance(one, MoveState) else one for one in states]
    return tuple(
        MoveStatus(namespace="shop", pod=f"web-{index}", state=state, reason=reason.value)
        for index, (state, reason) in enumerate(pairs)
    )


LANDED, ELSEWHERE = MoveState.LANDED, MoveState.ELSEWHERE
BLOCKED = (MoveState.FAILED, MoveReason.EVICTION_BLOCKED)
TIMED_OUT = (MoveState.FAILED, MoveReason.RESERVATION_TIMEOUT)
REPLACED_LATE = (MoveState.FAILED, MoveReason.REPLACEMENT_TIMEOUT)
REMOVED = (MoveState.FAILED, MoveReason.REPLACEMENT_GONE)
LEFT = (MoveState.SKIPPED, MoveReason.POD_GONE)
PENDING, GONE = Whereabouts.PENDING, Whereabouts.GONE
DEPENDANT = (MoveState.SKIPPED, MoveReason.SOURCE_NOT_EMPTIABLE)


@dataclass(frozen=True)
class Case:
    plan: PlanOutcome
    want: str
    want_clean: bool = False


def plan(*states: tuple[MoveState, MoveReason] | MoveState, **rest: object) -> PlanOutcome:
    return PlanOutcome(plan="plan-1", phase=PlanPhase.PARTIAL, statuses=moves(*states), seconds=12.34, **rest)  # type: ignore[arg-type]


CASES = {
    "all landed": Case(
        plan(LANDED, LANDED, freed_nodes=("a",)),
        "2 of 2 pods landed on their targets; 1 node freed in 12.3 s.",
        want_clean=True,
    ),
    "one pod": Case(
        plan(LANDED, freed_nodes=("a", "b")),
        "1 of 1 pod landed on its target; 2 nodes freed in 12.3 s.",
        want_clean=True,
    ),
    "reasons are counted, the most frequent first": Case(
        plan(LANDED, BLOCKED, TIMED_OUT, TIMED_OUT, DEPENDANT),
        "1 of 5 pods landed on their targets, 1 skipped (SourceNotEmptiable 1), "
        "3 failed (ReservationTimeout 2, EvictionBlocked 1); 0 nodes freed in 12.3 s.",
    ),
    "elsewhere": Case(
        plan(LANDED, ELSEWHERE), "1 of 2 pods landed on their targets, 1 elsewhere; 0 nodes freed in 12.3 s."
    ),
    "pods without a node": Case(
        plan(LANDED, pending=2),
        "1 of 1 pod landed on its target, 2 without a node; 0 nodes freed in 12.3 s.",
    ),
    "each pod counts once, wherever it is": Case(
        plan(
            *(LANDED, LANDED, ELSEWHERE, REPLACED_LATE, REPLACED_LATE, REMOVED, LEFT, BLOCKED),
            unplaced={1: GONE, 3: PENDING, 4: PENDING, 5: GONE, 6: GONE},
            pending=3,
        ),
        "1 of 8 pods landed on their targets, 1 elsewhere, 1 failed (EvictionBlocked 1), "
        "2 pending (ReplacementTimeout 2), 3 no longer there (PodGone 1, ReplacementGone 1), 1 more without a node; "
        "0 nodes freed in 12.3 s.",
    ),
    "a pod that is gone for what others did is no fault of the plan": Case(
        plan(LANDED, LEFT, unplaced={1: GONE}),
        "1 of 2 pods landed on their targets, 1 no longer there (PodGone 1); 0 nodes freed in 12.3 s.",
        want_clean=True,
    ),
    "a node is freed once its pods have ended": Case(
        plan(LANDED, freeing_nodes=("a",), ending=2),
        "1 of 1 pod landed on its target; 0 nodes freed in 12.3 s; 1 will be freed once 2 pods have ended.",
        want_clean=True,
    ),
    "so are others beside those that are free": Case(
        plan(LANDED, freed_nodes=("a",), freeing_nodes=("b", "c"), ending=1),
        "1 of 1 pod landed on its target; 1 node freed in 12.3 s; 2 more will be freed once 1 pod has ended.",
        want_clean=True,
    ),
    "a pod that does not end": Case(
        plan((LANDED, MoveReason.POD_STAYS), stuck=1),
        "1 of 1 pod landed on its target; 0 nodes freed in 12.3 s; 1 pod has not ended in time.",
    ),
    "skipped alone is no fault of the plan": Case(
        plan(LANDED, (MoveState.SKIPPED, MoveReason.POD_GONE), freed_nodes=("a",)),
        "1 of 2 pods landed on their targets, 1 skipped (PodGone 1); 1 node freed in 12.3 s.",
        want_clean=True,
    ),
    "why it was stopped": Case(
        plan(TIMED_OUT, note="2 of 3 moves failed"),
        "0 of 1 pod landed on its target, 1 failed (ReservationTimeout 1); 0 nodes freed in 12.3 s. "
        "Stopped: 2 of 3 moves failed.",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_plan_is_told_in_one_sentence(case: Case) -> None:
    outcome = Outcome(Verdict.CARRIED_OUT, plan=case.plan)
    assert outcome.sentence == case.want
    assert outcome.clean is case.want_clean


@pytest.mark.parametrize(
    ("verdict", "want", "clean"),
    [
        (Verdict.NOTHING_TO_MOVE, "Nothing to move by these rules.", True),
        (Verdict.LEASE_HELD, "Another run holds the lease; nothing was done.", False),
        (Verdict.NOT_APPROVED, "The plan was not approved in time; nothing was moved.", False),
        (Verdict.PLAN_DELETED, "The plan was deleted before it began; nothing was moved.", False),
        (Verdict.STOPPED, "Asked to stop before anything was moved.", False),
        (Verdict.DRY_RUN, "Planned only: 3 moves free 2 nodes.", True),
    ],
)
def test_every_other_end_is_told_as_well(verdict: Verdict, want: str, *, clean: bool) -> None:
    forecast = Forecast(summary="3 moves free 2 nodes.") if verdict is Verdict.DRY_RUN else Forecast()
    outcome = Outcome(verdict, forecast=forecast)
    assert (outcome.sentence, outcome.clean) == (want, clean)


def test_where_nothing_is_to_move_it_is_said_what_that_means_for_what_was_asked() -> None:
    summary = "Nothing to move: 2 of 2 fit as it is (cpu=4)."
    assert Outcome(Verdict.NOTHING_TO_MOVE, forecast=Forecast(summary=summary)).sentence == summary


ROOM = (RoomForecast("shop/big", wanted=1, fitted=1), RoomForecast("cpu=4", wanted=None, fitted=3))


def test_room_that_was_made_is_told_in_place_of_freed_nodes() -> None:
    outcome = Outcome(Verdict.CARRIED_OUT, plan=replace(plan(LANDED), frees_nodes=False), forecast=Forecast(room=ROOM))
    assert outcome.sentence == (
        "1 of 1 pod landed on its target in 12.3 s. Now there is room for 1 of 1 x shop/big, 3 x cpu=4."
    )
    assert [(room.name, room.wanted, room.fitted) for room in describe_run(outcome).planned_rooms] == [
        ("shop/big", 1, 1),
        ("cpu=4", None, 3),
    ]


def test_no_room_is_promised_where_a_pod_did_not_land() -> None:
    done = replace(plan(LANDED, TIMED_OUT), frees_nodes=False)
    sentence = Outcome(Verdict.CARRIED_OUT, plan=done, forecast=Forecast(room=ROOM)).sentence
    assert "Now there is room" not in sentence
    assert "so there may be less room than planned: 1 of 1 x shop/big" in sentence


def test_a_plan_that_was_aborted_is_not_clean_although_nothing_failed() -> None:
    aborted = PlanOutcome(plan="plan-1", phase=PlanPhase.ABORTED)
    assert not Outcome(Verdict.CARRIED_OUT, plan=aborted).clean


def test_a_continued_plan_comes_first_and_its_failures_count() -> None:
    outcome = Outcome(Verdict.NOTHING_TO_MOVE, adopted=(plan(TIMED_OUT),))
    assert outcome.sentence.startswith("Continued plan-1: 0 of 1 pod landed")
    assert outcome.sentence.endswith("Nothing to move by these rules.")
    assert not outcome.clean


def test_the_json_says_the_same_in_numbers() -> None:
    done = plan(LANDED, BLOCKED, DEPENDANT, freed_nodes=("a",), pending=1)
    predicted = Predicted(nodes=9, moves=3, waves=2, freed_nodes=("a", "b"), freed_node_count=2)
    forecast = Forecast(predicted=predicted, refused=4)
    outcome = Outcome(Verdict.CARRIED_OUT, plan=done, forecast=forecast, seconds=13.5678, phases={"move": 12.34567})
    said = msgspec.json.decode(msgspec.json.encode(describe_run(outcome)))
    assert (said["plan"], said["phase"], said["verdict"]) == ("plan-1", "Partial", "CarriedOut")
    assert said["achieved"] == {
        "moves": 3,
        "landedOnTarget": 1,
        "evictions": 0,
        "elsewhere": 0,
        "skipped": 1,
        "failed": 1,
        "freedNodes": ["a"],
        "freedNodeCount": 1,
        "freeingNodes": [],
        "endingPods": 0,
        "stuckPods": 0,
        "pendingPods": 1,
        "gonePods": 0,
        "seconds": 12.34,
    }
    assert msgspec.convert(said["predicted"], Predicted) == predicted
    assert said["refusedCount"] == 4
    assert (said["seconds"], said["secondsByStep"]) == (13.568, {"move": 12.346})
    assert [one["reason"] for one in said["notLanded"]] == ["EvictionBlocked", "SourceNotEmptiable"]
    assert said["message"] == outcome.sentence


def test_the_json_of_a_cycle_without_a_plan_has_the_same_keys() -> None:
    without, having = Outcome(Verdict.NOTHING_TO_MOVE), Outcome(Verdict.CARRIED_OUT, plan=plan(LANDED))
    nothing, something = (msgspec.to_builtins(describe_run(outcome)) for outcome in (without, having))
    assert list(nothing) == list(something)
    assert (nothing["plan"], nothing["phase"], nothing["predicted"], nothing["achieved"]) == ("", None, None, None)


@pytest.mark.parametrize(
    ("claim", "states", "interrupted", "want"),
    [
        ("all landed", [LANDED, LANDED], False, PlanPhase.SUCCEEDED),
        ("some landed", [LANDED, BLOCKED], False, PlanPhase.PARTIAL),
        ("none landed", [BLOCKED, DEPENDANT], False, PlanPhase.FAILED),
        ("interrupted", [LANDED, DEPENDANT], True, PlanPhase.ABORTED),
    ],
)
def test_a_plans_end_follows_from_its_moves(
    claim: str, states: list[MoveState], *, interrupted: bool, want: PlanPhase
) -> None:
    assert conclude(moves(*states), interrupted=interrupted) is want, claim
