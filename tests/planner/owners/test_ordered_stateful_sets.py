"""Pods that their StatefulSet makes again only after others, or not at all."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core import Pod
from berth_core.workloads import Ordinals
from berth_descheduler.framework.refusals import RefusalReason as Reason
from planner.owners.workloads import controller, pod_of, refusals_of, with_condition

ANY = controller("StatefulSet", "db")
LONG_AGO, JUST_NOW, LATER = "2026-11-21T11:00:00Z", "2026-11-21T11:59:55Z", "2026-11-21T12:01:00Z"


def member(ordinal: int, **rest: Any) -> Pod:  # noqa: ANN401 - as for `pod`
    return pod_of(ANY, f"db-{ordinal}", **rest)


@dataclass(frozen=True)
class Case:
    """The StatefulSet, its pods beside db-1, and why db-1 stays (None: it may move)."""

    want: Reason | None
    others: tuple[Pod, ...] = (member(0),)
    spec: dict[str, Any] = field(default_factory=dict)
    message: str = ""


TABLE = {
    "every lower ordinal is Ready": Case(None),
    "a lower ordinal is not Ready": Case(
        Reason.LOWER_ORDINAL_NOT_READY,
        (member(0, ready=False),),
        message="db-0 is not Ready, and its StatefulSet db makes no pod of a higher ordinal meanwhile",
    ),
    "a lower ordinal is missing": Case(Reason.LOWER_ORDINAL_NOT_READY, (), message="db-0 is not there"),
    "a lower ordinal is being deleted": Case(
        Reason.LOWER_ORDINAL_NOT_READY, (member(0, deleted=LATER),), message="db-0 is being deleted"
    ),
    "a lower ordinal is pending": Case(
        Reason.LOWER_ORDINAL_NOT_READY, (member(0, phase="Pending"),), message="db-0 is Pending"
    ),
    "a lower ordinal has failed": Case(
        Reason.LOWER_ORDINAL_NOT_READY, (member(0, phase="Failed"),), message="db-0 is Failed"
    ),
    "OrderedReady is said": Case(
        Reason.LOWER_ORDINAL_NOT_READY, (member(0, ready=False),), {"pod_management_policy": "OrderedReady"}
    ),
    "a Parallel one asks no other": Case(None, (), {"pod_management_policy": "Parallel"}),
    "a higher ordinal does no harm": Case(None, (member(0), member(2, ready=False)), {"replicas": 3}),
    "a lower ordinal is Ready for too short": Case(
        Reason.LOWER_ORDINAL_NOT_READY,
        (with_condition(member(0), "Ready", since=JUST_NOW),),
        {"min_ready_seconds": 30},
        message="db-0 has not been Ready for 30 s",
    ),
    "a lower ordinal is available": Case(
        None, (with_condition(member(0), "Ready", since=LONG_AGO),), {"min_ready_seconds": 30}
    ),
    "ordinals begin at this one": Case(None, (), {"ordinals": Ordinals(start=1), "replicas": 1}),
    "ordinals begin after this one": Case(
        Reason.CONTROLLER_SCALING_DOWN,
        (member(2),),
        {"ordinals": Ordinals(start=2), "replicas": 2},
        message="its StatefulSet db wants 2 pods from the ordinal 2 on, so it would not make db-1 again",
    ),
    "the ordinal is above the replicas": Case(
        Reason.CONTROLLER_SCALING_DOWN,
        (),
        {"replicas": 1},
        message="its StatefulSet db wants 1 pod from the ordinal 0 on, so it would not make db-1 again",
    ),
    "the last ordinal is within the replicas": Case(None, spec={"replicas": 2}),
    "a pod above the replicas is still there": Case(None, (member(0), member(7)), {"replicas": 2}),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_pod_moves_only_if_its_stateful_set_makes_it_again_now(case: Case) -> None:
    refusals = refusals_of(member(1), controller("StatefulSet", "db", **case.spec), others=case.others)

    assert [refusal.reason for refusal in refusals] == ([] if case.want is None else [case.want])
    assert all(refusal.message.startswith(case.message) for refusal in refusals)


def test_a_name_that_is_none_of_the_stateful_set_is_not_made_again() -> None:
    adopted = pod_of(ANY, "other-0")

    (refusal,) = refusals_of(adopted, controller("StatefulSet", "db", replicas=3))

    assert (refusal.reason, refusal.message) == (
        Reason.NO_REPLACEMENT,
        "its StatefulSet db makes no pod of the name other-0",
    )


def test_a_pod_that_is_not_ready_may_move_itself() -> None:
    assert not refusals_of(member(1, ready=False), controller("StatefulSet", "db", replicas=2), others=(member(0),))


def test_what_is_not_known_of_the_stateful_set_keeps_nothing() -> None:
    assert not refusals_of(member(1))
