"""What a disruption budget lets go: the answers that the API server's eviction would give."""

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from berth_core import Pod, PodDisruptionBudget
from berth_core.objects.disruption_budgets import PodDisruptionBudgetStatus
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import plan
from berth_descheduler.planner.disruption_budgets import DisruptionBudgets, disruptions_allowed, with_surges
from builders import as_api, disruption_budget, node, owner, pod
from planner.clusters import consolidating

WEB = {"app": "web"}
READY = pod(node="a", labels=WEB)
UNREADY = pod(node="a", labels=WEB, ready=False)


def budget(
    name: str = "web",
    *,
    policy: str = "",
    generation: int | None = None,
    selects: dict[str, str] | None = None,
    **status: Any,  # noqa: ANN401 - a builder passes on what the case says
) -> PodDisruptionBudget:
    made = disruption_budget(name, match_labels=WEB if selects is None else selects)
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, generation=generation),
        spec=msgspec.structs.replace(made.spec, unhealthy_pod_eviction_policy=policy),
        status=PodDisruptionBudgetStatus(**status),
    )


@dataclass(frozen=True)
class Case:
    """A pod, the budgets of its namespace, and why it would not be evicted."""

    want: Reason | None
    budgets: tuple[PodDisruptionBudget, ...]
    pod: Pod = READY


HEALTHY: dict[str, Any] = {"disruptions_allowed": 0, "current_healthy": 3, "desired_healthy": 3}
SHORT: dict[str, Any] = {"disruptions_allowed": 0, "current_healthy": 2, "desired_healthy": 3}

TABLE = {
    "a ready pod goes while disruptions are allowed": Case(None, (budget(disruptions_allowed=1),)),
    "a ready pod stays where none is, however many are healthy": Case(Reason.BUDGET_EXHAUSTED, (budget(**HEALTHY),)),
    "a ready pod stays whatever is said of pods that are not": Case(
        Reason.BUDGET_EXHAUSTED, (budget(policy="AlwaysAllow", **HEALTHY),)
    ),
    "a budget without a status allows nothing": Case(Reason.BUDGET_EXHAUSTED, (budget(),)),
    "a status below zero allows nothing": Case(Reason.BUDGET_EXHAUSTED, (budget(disruptions_allowed=-1),)),
    "a status older than the spec allows nothing": Case(
        Reason.BUDGET_EXHAUSTED, (budget(generation=2, observed_generation=1, disruptions_allowed=4),)
    ),
    "a status as new as the spec counts": Case(
        None, (budget(generation=2, observed_generation=2, disruptions_allowed=4),)
    ),
    "a pod that is not ready goes while enough others are healthy": Case(None, (budget(**HEALTHY),), UNREADY),
    "and under IfHealthyBudget, which is the default": Case(
        None, (budget(policy="IfHealthyBudget", **HEALTHY),), UNREADY
    ),
    "it stays while too few are healthy": Case(Reason.BUDGET_EXHAUSTED, (budget(**SHORT),), UNREADY),
    "it stays while nobody has counted the healthy ones": Case(Reason.BUDGET_EXHAUSTED, (budget(),), UNREADY),
    "it stays while they were counted for an older spec": Case(
        Reason.BUDGET_EXHAUSTED, (budget(generation=2, observed_generation=1, **HEALTHY),), UNREADY
    ),
    "under AlwaysAllow it goes whatever the others are": Case(None, (budget(policy="AlwaysAllow", **SHORT),), UNREADY),
    "two budgets over one pod are one too many, whatever they allow": Case(
        Reason.SEVERAL_BUDGETS, (budget("a", disruptions_allowed=5), budget("b", disruptions_allowed=5))
    ),
    "also over a pod that is not ready": Case(
        Reason.SEVERAL_BUDGETS, (budget("a", policy="AlwaysAllow"), budget("b", policy="AlwaysAllow")), UNREADY
    ),
    "a second budget over others does not count": Case(
        None, (budget("a", disruptions_allowed=1), budget("b", selects={"app": "db"}))
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_pod_may_go_just_where_the_api_server_would_evict_it(case: Case) -> None:
    refusal = DisruptionBudgets(case.budgets).refusal(case.pod)

    assert (refusal.reason if refusal else None) is case.want


def test_the_budgets_over_a_pod_are_named() -> None:
    refusal = DisruptionBudgets((budget("b"), budget("a"))).refusal(READY)

    assert refusal is not None
    assert refusal.message == "the API server evicts no pod under several disruption budgets: default/a, default/b"


@pytest.mark.parametrize("spec", [{"minAvailable": "50%"}, {"maxUnavailable": "30%"}, {"maxUnavailable": 2}])
def test_percentages_are_the_controllers_to_count_and_its_count_holds(spec: dict[str, Any]) -> None:
    raw = as_api(disruption_budget(match_labels=WEB, allowed=2), api_version="policy/v1", kind="PodDisruptionBudget")
    snapshot = Snapshot.from_api([{**raw, "spec": {**raw["spec"], **spec}}])

    (read,) = snapshot.disruption_budgets

    assert disruptions_allowed(read) == 2
    assert DisruptionBudgets(snapshot.disruption_budgets).refusal(READY) is None


def test_several_budgets_over_a_pod_keep_its_node_and_both_are_named() -> None:
    pods = (
        pod("p", node="a", cpu="1", labels=WEB, controller=owner(name="p")),
        pod("fill", node="b", cpu="8", controller=owner(name="fill")),
    )
    budgets = tuple(disruption_budget(name, match_labels=WEB, allowed=9) for name in ("one", "two"))
    snapshot = Snapshot(nodes=(node("a"), node("b")), pods=pods, disruption_budgets=budgets)

    made = plan(snapshot, consolidating())

    assert [move.pod for move in made.moves] == ["fill"]
    why = {(one.kind.value, one.name): one.reason for one in made.refused}
    assert why["Pod", "p"] is Reason.SEVERAL_BUDGETS
    assert why["Node", "a"] is Reason.HOLDS_IMMOVABLE_PODS


def test_pods_that_are_not_ready_take_turns_with_the_ready_ones_of_their_budget() -> None:
    pods = tuple(
        pod(f"p{i}", node="a", cpu="1", labels=WEB, ready=i % 2 == 0, controller=owner(name=f"p{i}")) for i in range(4)
    )
    fill = pod("fill", node="b", cpu="8", controller=owner(name="fill"), labels={"app": "x"})
    budgets = (budget(disruptions_allowed=2, current_healthy=4, desired_healthy=2),)
    lonely = pod("lonely", node="b", cpu="1", controller=owner("DaemonSet"))
    stuck = pod("stuck", node="b", cpu="1", priority=2_000_000_000)
    snapshot = Snapshot(nodes=(node("a"), node("b")), pods=(*pods, fill, lonely, stuck), disruption_budgets=budgets)

    made = plan(snapshot, consolidating(per_controller=9))

    waves = [move.wave for move in made.moves if move.source == "a"]
    assert sorted(waves) == [1, 1, 2, 2]


def test_a_budget_that_allows_nothing_lets_pods_that_surge_go_one_at_a_time() -> None:
    of_deployment = owner("ReplicaSet", "web-5d4f")
    pods = tuple(
        pod(f"web-{i}", node="a", cpu="1", labels=WEB | {"pod-template-hash": "5d4f"}, controller=of_deployment)
        for i in range(2)
    )
    stuck = pod("stuck", node="b", cpu="2", priority=2_000_000_000)
    snapshot = Snapshot(nodes=(node("a"), node("b")), pods=(*pods, stuck), disruption_budgets=(budget(),))

    assert not plan(snapshot, consolidating()).moves
    made = plan(with_surges(snapshot), consolidating(per_controller=9))
    assert [(move.source, move.wave) for move in made.moves] == [("a", 1), ("a", 2)]


def test_a_budget_counts_as_before_if_it_selects_any_pod_that_cannot_surge() -> None:
    labels = WEB | {"pod-template-hash": "5d4f"}
    surging = pod("web-1", labels=labels, controller=owner("ReplicaSet", "web-5d4f"))
    others = {
        "of a StatefulSet": pod("web-0", labels=WEB, controller=owner("StatefulSet", "web")),
        "of a bare ReplicaSet": pod("bare-1", labels=WEB, controller=owner("ReplicaSet", "bare")),
        "of nothing": pod("alone", labels=WEB, controller=None),
    }
    for claim, other in others.items():
        (kept,) = with_surges(Snapshot(pods=(surging, other), disruption_budgets=(budget(),))).disruption_budgets
        assert disruptions_allowed(kept) == 0, claim
    (counted,) = with_surges(Snapshot(pods=(surging,), disruption_budgets=(budget(generation=3),))).disruption_budgets
    assert disruptions_allowed(counted) == 1
    (more,) = with_surges(
        Snapshot(pods=(surging,), disruption_budgets=(budget(disruptions_allowed=4),))
    ).disruption_budgets
    assert disruptions_allowed(more) == 4
