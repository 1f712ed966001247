"""What a tenant multiplies costs its own pods their moves, and nobody else time: calls are counted, not seconds."""

import random
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from berth_core import Affinity, LabelSelector, LabelSelectorRequirement, Pod, PodDisruptionBudget
from berth_core.selectors import matches_labels
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import Plan, disruption_budgets, plan
from berth_descheduler.planner.disruption_budgets import MAX_COMPARISONS, DisruptionBudgets, with_surges
from berth_descheduler.planner.simulation.cluster import Cluster
from berth_descheduler.planner.simulation.node_fit import NodeFit
from berth_descheduler.planner.simulation.pod_affinity import InterPodAffinity
from berth_descheduler.planner.simulation.topology import PodTopologySpread
from builders import disruption_budget, namespace, node, pod, workload
from planner.clusters import ZONE, apart, company, consolidating, expression, refusal_of, selector, spread, term

NODES, OF_OTHERS, OF_TENANT = 8, 24, 40
"""Few pods, which more terms each make up for."""


def cluster(*tenants: Pod, **fields: Any) -> Snapshot:  # noqa: ANN401 - a builder passes on what the case says
    """Nodes with pods of `others`, which a plan moves together, and the tenant's pods."""
    others = [
        pod(f"o-{i}", namespace="others", labels={"app": f"w{i % 4}"}, node=f"n{i % NODES}", cpu="1") for i in range(24)
    ]
    return Snapshot(
        nodes=tuple(node(f"n{i}", labels={ZONE: f"z{i % 4}"}) for i in range(NODES)),
        pods=(*others, *tenants),
        namespaces=(namespace("others"), namespace("tenant", labels={"team": "t"})),
        workloads=(workload(namespace="others", replicas=24), workload(namespace="tenant", replicas=len(tenants))),
        **fields,
    )


def tenants(number: int = OF_TENANT, **spec: Any) -> tuple[Pod, ...]:  # noqa: ANN401 - a builder passes on what the case says
    return tuple(
        pod(f"t-{i}", namespace="tenant", labels={"app": "t", "number": str(i)}, node=f"n{i % 4}", cpu="100m", **spec)
        for i in range(number)
    )


def moved(made: Plan, namespace: str) -> list[tuple[str, str]]:
    return [(move.pod, move.target) for move in made.moves if move.namespace == namespace]


def budget(name: str, *expressions: LabelSelectorRequirement, **labels: str) -> PodDisruptionBudget:
    made = disruption_budget(name, namespace="tenant", allowed=5)
    selecting = LabelSelector(match_labels=labels, match_expressions=expressions)
    return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, selector=selecting))


def shunning(number: int) -> tuple[PodDisruptionBudget, ...]:
    """Budgets whose selectors name no label that a pod must have."""
    return tuple(
        budget(f"b{i}", *(expression(f"k{i}-{j}", "DoesNotExist") for j in range(20)), expression("app", "Exists"))
        if i % 2
        else budget(f"b{i}", *(expression(f"k{i}-{j}", "NotIn", "x") for j in range(20)))
        for i in range(number)
    )


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The selectors of budgets that are compared with labels, one entry for each comparison."""
    selectors: list[object] = []

    def note(selecting: LabelSelector | None, labels: dict[str, str]) -> bool:
        selectors.append(selecting)
        return matches_labels(selecting, labels)

    monkeypatch.setattr(disruption_budgets, "matches_labels", note)
    return selectors


def test_a_selector_is_compared_once_with_a_label_set_however_many_budgets_and_pods_have_it(
    compared: list[object],
) -> None:
    pods = tuple(pod(f"p-{i}", namespace="tenant", labels={"app": "t"}) for i in range(50))
    budgets = DisruptionBudgets([budget(f"b{i}", expression("app", "NotIn", "x")) for i in range(30)], pods)

    assert all(len(budgets.covering(asked)) == 30 for asked in pods)

    assert len(compared) == 1


def test_selectors_are_compared_only_with_pods_that_have_a_label_they_ask_for(compared: list[object]) -> None:
    pods = tenants()
    asking = [
        budget(f"b{i}", expression("number", "In", str(i), f"{i}-b"), expression("app", "Exists")) for i in range(30)
    ]
    budgets = DisruptionBudgets(asking, pods)

    assert [len(budgets.covering(asked)) for asked in pods] == [1] * 30 + [0] * 10

    assert len(compared) == 30


def test_a_namespace_with_too_many_budgets_keeps_its_pods_and_is_not_compared(compared: list[object]) -> None:
    made = plan(cluster(*tenants(), disruption_budgets=shunning(200)), consolidating())

    assert compared == []
    assert moved(made, "tenant") == []
    assert moved(made, "others")
    assert {refused.reason for refused in made.refused if refused.namespace == "tenant"} == {
        RefusalReason.TOO_MANY_RULES
    }


def test_the_bound_of_budgets_is_named_in_the_refusal() -> None:
    refusal = DisruptionBudgets(shunning(200), tenants()).refusal(tenants()[0])

    assert refusal is not None
    assert str(MAX_COMPARISONS) in refusal.message
    assert "namespace tenant" in refusal.message


def test_budgets_of_a_crowded_namespace_stay_as_they_are_where_pods_surge() -> None:
    closed = tuple(
        msgspec.structs.replace(of_tenant, status=msgspec.structs.replace(of_tenant.status, disruptions_allowed=0))
        for of_tenant in shunning(200)
    )
    snapshot = cluster(*tenants(), disruption_budgets=closed)

    assert with_surges(snapshot).disruption_budgets == snapshot.disruption_budgets


def test_budgets_cover_what_their_selectors_select_whatever_they_are_listed_under() -> None:
    """Compared with a look at every budget, for random selectors and labels."""
    dice = random.Random(31)  # noqa: S311 - the same cases each time
    values = ("a", "b", "c")

    def some_expression() -> LabelSelectorRequirement:
        operator = dice.choice(("In", "NotIn", "Exists", "DoesNotExist", "Gt"))
        count = dice.choice((0, 1, 2)) if operator in {"In", "NotIn"} else 0
        return expression(dice.choice(("x", "y", "z")), operator, *dice.choices(values, k=count))

    budgets = tuple(
        budget(
            f"b{i}",
            *(some_expression() for _ in range(dice.randrange(3))),
            **{key: dice.choice(values) for key in dice.sample(("x", "y"), dice.randrange(3))},
        )
        for i in range(200)
    )
    pods = [
        pod(f"p-{i}", namespace="tenant", labels={key: dice.choice(values) for key in dice.sample("xyz", i % 4)})
        for i in range(60)
    ]
    answers = DisruptionBudgets(budgets, pods)

    for asked in pods:
        selecting = [made for made in budgets if matches_labels(made.spec.selector, asked.metadata.labels)]
        assert answers.covering(asked) == tuple(selecting)


@dataclass(frozen=True)
class Crowd:
    """What each of the tenant's pods asks for."""

    affinity: Affinity | None = None
    spread: tuple[Any, ...] = ()


def _selecting(number: int) -> LabelSelector:
    return LabelSelector(match_labels={"app": "t"}, match_expressions=(expression("other", "NotIn", f"v{number}"),))


CROWDS = {
    "spread constraints": Crowd(spread=tuple(spread(ZONE, max_skew=9, select=_selecting(i)) for i in range(200))),
    "affinity terms": Crowd(company(*(term(ZONE, select=_selecting(i)) for i in range(200)))),
    "anti-affinity terms": Crowd(apart(*(term(ZONE, select=_selecting(i)) for i in range(200)))),
    "anti-affinity terms that select no pod": Crowd(
        apart(*(term(ZONE, select=selector(app=f"no-{i}")) for i in range(200)))
    ),
    "terms about all namespaces": Crowd(
        company(*(term(ZONE, select=_selecting(i), namespace_selector=LabelSelector()) for i in range(200)))
    ),
    "topologies that no node has": Crowd(apart(*(term(f"example.com/{i}", select=_selecting(i)) for i in range(200)))),
}


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_a_namespace_with_too_many_terms_keeps_its_pods_and_no_others(crowd: Crowd) -> None:
    crowded = cluster(*tenants(affinity=crowd.affinity, spread=crowd.spread))
    staying = plan(crowded, consolidating())
    want = plan(cluster(*tenants(annotations={"karpenter.sh/do-not-disrupt": "true"})), consolidating())

    assert moved(staying, "tenant") == []
    assert moved(staying, "others") == moved(want, "others") != []
    assert {refused.reason for refused in staying.refused if refused.namespace == "tenant"} == {
        RefusalReason.TOO_MANY_RULES
    }


@pytest.mark.parametrize("crowd", CROWDS.values(), ids=CROWDS)
def test_nothing_is_counted_for_the_terms_of_a_crowded_namespace(crowd: Crowd) -> None:
    crowded = Cluster.from_snapshot(cluster(*tenants(affinity=crowd.affinity, spread=crowd.spread)))
    affinity, spreads = InterPodAffinity(crowded), PodTopologySpread(crowded, NodeFit(crowded), ())

    assert not any(affinity.is_counted(pods.index) or spreads.is_counted(pods.index) for pods in crowded.classes)


def test_pods_that_a_crowded_namespace_may_shun_do_not_go_where_its_pods_are() -> None:
    """Its terms about other namespaces are not compared, so they count as being about every pod there."""
    beyond = [term(ZONE, select=selector(app=f"no-{i}"), namespaces=("others",)) for i in range(400)]
    crowded = cluster(*tenants(affinity=apart(*beyond)), pod("elsewhere", namespace="third", node="n7"))
    few = cluster(*tenants(affinity=apart(*beyond[:2])), pod("elsewhere", namespace="third", node="n7"))

    assert Cluster.from_snapshot(crowded).crowded.keys() == {"tenant"}
    assert refusal_of(few, "others/o-7", "n0") is None
    assert refusal_of(crowded, "others/o-7", "n0") is RefusalReason.OTHERS_ANTI_AFFINITY
    assert refusal_of(crowded, "third/elsewhere", "n0") is None


def test_what_people_write_is_far_below_the_bound() -> None:
    """A StatefulSet of a thousand pods, each a class of its own, that spread over zones and shun each other."""
    pods = [
        pod(
            f"db-{i}",
            namespace="tenant",
            labels={"app": "db", "statefulset.kubernetes.io/pod-name": f"db-{i}"},
            node=f"n{i % NODES}",
            affinity=apart(term(select=selector(app="db"))),
            spread=tuple(spread(key, select=selector(app="db")) for key in (ZONE, "kubernetes.io/hostname")),
        )
        for i in range(1_000)
    ]

    assert Cluster.from_snapshot(cluster(*pods)).crowded == {}


def test_ports_are_compared_with_those_of_the_same_number_only() -> None:
    """A port that a pod holds on one address keeps off those on the same address, and those on every address."""
    held = pod("held", namespace="tenant", node="n0", host_ports=range(9_000, 9_100))
    snapshot = cluster(
        held,
        pod("same", namespace="tenant", node="n1", host_ports=[9_050]),
        pod("other", namespace="tenant", node="n1", host_ports=[9_100]),
    )

    assert refusal_of(snapshot, "tenant/same", "n0") is RefusalReason.HOST_PORT
    assert refusal_of(snapshot, "tenant/other", "n0") is None
