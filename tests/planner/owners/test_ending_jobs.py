"""Pods that their Job does not make again."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from berth_core import Pod, PodCondition
from berth_core.workloads import SuccessPolicy, SuccessPolicyRule
from berth_descheduler.framework.refusals import RefusalReason as Reason
from builders import NOON
from planner.owners.workloads import controller, pod_of, refusals_of

ANY = controller("Job", "work")
STARTED = {"start_time": "2026-11-21T11:00:00Z"}


def worker(name: str, **rest: Any) -> Pod:  # noqa: ANN401 - as for `pod`
    return pod_of(ANY, name, **rest)


def ended(type_: str, status: str = "True") -> dict[str, Any]:
    return {"conditions": (PodCondition(type=type_, status=status),)}


def until(*rules: SuccessPolicyRule, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a Job's spec
    policy = SuccessPolicy(rules=rules)
    return {"parallelism": 4, "completions": 9, "completion_mode": "Indexed", "success_policy": policy, **spec}


ONE_OF_ALL = SuccessPolicyRule(succeeded_count=1)
THE_FIRST = SuccessPolicyRule(succeeded_indexes="0")
ALL_OF_FOUR = SuccessPolicyRule(succeeded_indexes="0,2-4")
TWO_OF_FOUR = SuccessPolicyRule(succeeded_indexes="0,2-4", succeeded_count=2)
ENDLESS = SuccessPolicyRule(succeeded_indexes="0-999999999999999999")


@dataclass(frozen=True)
class Case:
    """The Job's spec and status, its other pods, and why a pod of it stays (None: it may move)."""

    want: Reason | None
    spec: dict[str, Any]
    status: dict[str, Any] = field(default_factory=dict)
    others: tuple[Pod, ...] = ()
    message: str = ""


TABLE = {
    "a work queue without a success": Case(None, {"parallelism": 2}),
    "a work queue with a success": Case(
        Reason.NO_REPLACEMENT,
        {"parallelism": 2},
        {"succeeded": 1},
        message="its Job work has no completions and a pod that has succeeded (1), so it would not make the pod again",
    ),
    "a success that the status does not count yet": Case(
        Reason.NO_REPLACEMENT, {"parallelism": 2}, others=(worker("work-b", phase="Succeeded"),)
    ),
    "a success policy that is met": Case(
        Reason.NO_REPLACEMENT,
        until(ONE_OF_ALL),
        {"completed_indexes": "5"},
        message="its Job work has succeeded by its successPolicy and makes no pods any more",
    ),
    "a success policy that is not met": Case(None, until(ONE_OF_ALL)),
    "a success policy that another index meets": Case(None, until(THE_FIRST), {"completed_indexes": "1-3"}),
    "one of two rules that is met": Case(
        Reason.NO_REPLACEMENT, until(ALL_OF_FOUR, THE_FIRST), {"completed_indexes": "0"}
    ),
    "some of all indexes of a rule": Case(None, until(ALL_OF_FOUR), {"completed_indexes": "0-3"}),
    "all indexes of a rule": Case(Reason.NO_REPLACEMENT, until(ALL_OF_FOUR), {"completed_indexes": "0-4"}),
    "as many indexes of a rule as it counts": Case(
        Reason.NO_REPLACEMENT, until(TWO_OF_FOUR), {"completed_indexes": "1,3-4"}
    ),
    "fewer indexes of a rule than it counts": Case(None, until(TWO_OF_FOUR), {"completed_indexes": "1,4-6"}),
    "a rule of more indexes than can be listed": Case(None, until(ENDLESS), {"completed_indexes": "0"}),
    "a success that a policy does not count yet": Case(
        Reason.NO_REPLACEMENT,
        until(THE_FIRST),
        others=(worker("work-b", phase="Succeeded", annotations={"batch.kubernetes.io/job-completion-index": "0"}),),
    ),
    "a success among others that are counted already": Case(
        Reason.NO_REPLACEMENT,
        until(ALL_OF_FOUR),
        {"completed_indexes": "0,2-4"},
        others=(worker("work-b", phase="Succeeded", annotations={"batch.kubernetes.io/job-completion-index": "2"}),),
    ),
    "an index of more digits than a number has": Case(
        None,
        until(THE_FIRST),
        others=(
            worker("work-b", phase="Succeeded", annotations={"batch.kubernetes.io/job-completion-index": "9" * 5_000}),
        ),
    ),
    "indexes of more digits than a number has": Case(None, until(THE_FIRST), {"completed_indexes": "1-" + "9" * 5_000}),
    "a success policy of a Job that is not Indexed": Case(
        None, until(ONE_OF_ALL, completion_mode="NonIndexed"), {"completed_indexes": "5"}
    ),
    "completions that are missing": Case(None, {"parallelism": 1, "completions": 3}, {"succeeded": 2}),
    "as many completions missing as pods run": Case(
        None, {"parallelism": 2, "completions": 4}, {"succeeded": 2}, (worker("work-b"),)
    ),
    "fewer completions missing than pods run": Case(
        Reason.NO_REPLACEMENT,
        {"parallelism": 2, "completions": 3},
        {"succeeded": 2},
        (worker("work-b"),),
        "its Job work lacks 1 of 3 completions and has 2 pods, so it would not make the pod again",
    ),
    "every completion reached": Case(Reason.NO_REPLACEMENT, {"parallelism": 1, "completions": 2}, {"succeeded": 2}),
    "fewer pods wanted at a time than there are": Case(
        Reason.NO_REPLACEMENT,
        {"parallelism": 1, "completions": 9},
        others=(worker("work-b"),),
        message="its Job work wants 1 pod at a time and has 2, so it would not make the pod again",
    ),
    "pods that end do not count as there": Case(
        None, {"parallelism": 1, "completions": 9}, others=(worker("work-b", phase="Failed"),)
    ),
    **{
        f"the condition {type_}": Case(
            Reason.NO_REPLACEMENT,
            {},
            ended(type_),
            message=f"its Job work has the condition {type_} and makes no pods any more",
        )
        for type_ in ("SuccessCriteriaMet", "FailureTarget", "Complete", "Failed")
    },
    "a condition that is not true": Case(None, {}, ended("FailureTarget", "False")),
    "a condition that ends nothing": Case(None, {}, ended("Suspended")),
    "managed by its own controller": Case(None, {"managed_by": "kubernetes.io/job-controller"}),
    "managed by another controller": Case(
        Reason.UNKNOWN_CONTROLLER,
        {"managed_by": "kueue.x-k8s.io/multikueue"},
        message="its Job work is managed by kueue.x-k8s.io/multikueue, which is not known to make its pods again",
    ),
    "time enough": Case(None, {"active_deadline_seconds": 3600 + 91}, STARTED),
    "hardly any time": Case(
        Reason.NO_REPLACEMENT,
        {"active_deadline_seconds": 3600 + 89},
        STARTED,
        message="its Job work reaches its activeDeadlineSeconds in 89 s",
    ),
    "no time at all": Case(Reason.NO_REPLACEMENT, {"active_deadline_seconds": 10}, STARTED),
    "a deadline that does not run yet": Case(None, {"active_deadline_seconds": 10}),
    "a Job that is suspended": Case(Reason.CONTROLLER_SCALING_DOWN, {"suspend": True}),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_pod_moves_only_if_its_job_makes_it_again(case: Case) -> None:
    job = controller("Job", "work", status=case.status, backoff_limit=99, **case.spec)

    refusals = refusals_of(worker("work-a"), job, others=case.others)

    assert [refusal.reason for refusal in refusals] == ([] if case.want is None else [case.want])
    assert all(refusal.message.startswith(case.message) for refusal in refusals)


def test_a_deadline_counts_from_the_time_of_the_plan() -> None:
    job = controller("Job", "work", status=STARTED, backoff_limit=99, active_deadline_seconds=3700)

    assert refusals_of(worker("work-a"), job, now=NOON.replace(minute=1))
    assert not refusals_of(worker("work-a"), job, now=NOON.replace(hour=11, minute=30))
    assert not refusals_of(worker("work-a"), job, now=None)
