"""Of plans that free as much with as many moves, the one that disturbs least is chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import pytest

from berth_core import ContainerStatus, Node, Pod, PodDisruptionBudget
from berth_core.matching import TEMPLATE_HASH_LABEL
from berth_core.snapshot import Snapshot
from berth_descheduler.planner import DISRUPTION_WEIGHTS, NO_EVICTION_ANNOTATION, plan
from berth_descheduler.planner.disruption_cost import DisruptionCost
from berth_descheduler.planner.problem import Problem
from builders import disruption_budget, node, owner, pod
from planner.clusters import claimed, consolidating, making_room, settings

FIXED = 2_000_000_000


def one(name: str, on: str, *, cpu: str = "2", **rest: object) -> Pod:
    return pod(name, **{"node": on, "cpu": cpu, "memory": None, "controller": owner(name=name), **rest})  # type: ignore[arg-type]


def restarted(times: int, made: Pod) -> Pod:
    statuses = (ContainerStatus(name="app", ready=True, restart_count=times),)
    return msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, container_statuses=statuses))


def of_many(name: str, on: str) -> Pod:
    return one(name, on, controller=owner(name="many"))


def of_deployment(name: str, on: str, *, labels: Mapping[str, str] | None = None, **rest: object) -> Pod:
    hashed = {TEMPLATE_HASH_LABEL: "7d9", **(labels or {})}
    return one(name, on, controller=owner(name=f"{name}-7d9"), labels=hashed, **rest)


@dataclass(frozen=True)
class Case:
    """Two pods that are equal but for what matters; the worse one is made for a node, like the other."""

    worse: Callable[[str], Pod]
    better: Callable[[str], Pod]
    more: tuple[Pod, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()


CROWD = tuple(of_many(f"many-{i}", "full") for i in range(3))

TABLE = {
    "a higher priority is worse": Case(
        lambda on: one("worse", on, priority=1000), lambda on: one("better", on, priority=0)
    ),
    "a higher priority weighs more than restarts": Case(
        lambda on: one("worse", on, priority=1000), lambda on: restarted(9, one("better", on))
    ),
    "a pod that restarted often is worse": Case(
        lambda on: restarted(5, one("worse", on)), lambda on: restarted(1, one("better", on))
    ),
    "a pod that asks to be left in peace is worse than one of any priority": Case(
        lambda on: one("worse", on, annotations={NO_EVICTION_ANNOTATION: "no"}),
        lambda on: restarted(99, one("better", on, priority=1_000_000_000)),
    ),
    "the only pod of a controller is worse than one of many": Case(
        lambda on: one("worse", on), lambda on: of_many("better", on), CROWD
    ),
    "a pod with a volume is worse": Case(
        lambda on: one("worse", on, volumes=(claimed("seen"),)), lambda on: one("better", on)
    ),
    "a pod that takes long to end is worse": Case(
        lambda on: one("worse", on, termination_grace_period_seconds=3600),
        lambda on: one("better", on, termination_grace_period_seconds=30),
    ),
    "a pod that has to be evicted is worse than one that can surge": Case(
        lambda on: one("worse", on), lambda on: of_deployment("better", on)
    ),
    "surging weighs more than age and a budget": Case(
        lambda on: one("worse", on, created="2026-11-01T11:59:00Z"),
        lambda on: of_deployment("better", on, created="2020-11-01T12:00:00Z", labels={"covered": "yes"}),
        budgets=(disruption_budget(match_labels={"covered": "yes"}),),
    ),
    "an old pod is worse than a young one": Case(
        lambda on: one("worse", on, created="2026-10-01T12:00:00Z"),
        lambda on: one("better", on, created="2026-11-01T12:00:00Z"),
    ),
    "a pod under a disruption budget is worse than one without": Case(
        lambda on: one("worse", on, labels={"covered": "yes"}),
        lambda on: one("better", on),
        budgets=(disruption_budget(match_labels={"covered": "yes"}),),
    ),
}


def known_claim(snapshot: Snapshot) -> Snapshot:
    from builders import claim, volume  # noqa: PLC0415 - only where a case has one

    return Snapshot(
        nodes=snapshot.nodes,
        pods=snapshot.pods,
        disruption_budgets=snapshot.disruption_budgets,
        persistent_volume_claims=(claim("seen", volume="pv-seen"),),
        persistent_volumes=(volume("pv-seen"),),
    )


def two_nodes(case: Case, first: str, second: str) -> Snapshot:
    """Two nodes with a pod each, and room for one of them elsewhere."""
    nodes: tuple[Node, ...] = tuple(node(name, cpu="10") for name in ("a", "b", "full"))
    stays = one("stays", "full", cpu="2" if case.more else "8", priority=FIXED)
    pods = (case.worse(first), case.better(second), stays, *case.more)
    return known_claim(Snapshot(nodes=nodes, pods=pods, disruption_budgets=case.budgets))


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")], ids=["named first", "named last"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_the_worse_pod_weighs_more(case: Case, first: str, second: str) -> None:
    problem = Problem.from_snapshot(two_nodes(case, first, second), consolidating())
    disruption = DisruptionCost(problem)

    worse, better = (problem.cluster.pod_numbers["default", name] for name in ("worse", "better"))

    assert disruption.weight(worse) > disruption.weight(better)
    assert disruption.cheapest_first([worse, better])[0] == better


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")], ids=["named first", "named last"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_consolidate_empties_the_node_that_is_disturbed_less(case: Case, first: str, second: str) -> None:
    made = plan(two_nodes(case, first, second), consolidating(max_moves=1))

    assert [move.pod for move in made.moves] == ["better"]


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")], ids=["named first", "named last"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_of_equal_pods_on_a_node_the_one_that_is_disturbed_less_makes_room(case: Case, first: str, second: str) -> None:
    del first, second
    nodes = (node("a", cpu="10"), node("full", cpu="10"))
    pods = (
        case.worse("a"),
        case.better("a"),
        *(one(f"fixed-{i}", "a", cpu="3", priority=FIXED) for i in range(2)),
        one("stays", "full", cpu="2" if case.more else "8", priority=FIXED),
        *case.more,
    )
    snapshot = known_claim(Snapshot(nodes=nodes, pods=pods, disruption_budgets=case.budgets))
    made = plan(snapshot, making_room(shapes=["cpu=2,count=1"]))

    moved = [move.pod for move in made.moves]
    assert moved in (["better"], [])
    assert made.room[0].fitted == 1


def test_fewer_moves_come_before_less_disruption() -> None:
    nodes = tuple(node(name, cpu="10") for name in ("a", "b", "full"))
    pods = (
        one("precious", "a", priority=1_000_000),
        *(one(f"cheap-{i}", "b", cpu="1") for i in range(2)),
        one("stays", "full", cpu="8", priority=FIXED),
    )

    made = plan(Snapshot(nodes=nodes, pods=pods), consolidating())

    assert [move.pod for move in made.moves if move.target == "full"] == ["precious"]
    assert len(made.freed_nodes) >= 1


def test_more_nodes_come_before_fewer_moves() -> None:
    nodes = tuple(node(name, cpu="10") for name in ("a", "b", "c", "full"))
    pods = (
        one("large", "a", cpu="4"),
        *(one(f"b{i}", "b", cpu="1") for i in range(2)),
        *(one(f"c{i}", "c", cpu="1") for i in range(2)),
        one("stays", "full", cpu="6", priority=FIXED),
    )

    made = plan(Snapshot(nodes=nodes, pods=pods), consolidating(max_moves=4))

    assert len(made.freed_nodes) == 2


def test_a_move_never_needs_preemption() -> None:
    """A pod of high priority could push others out; the target still has to have room for all."""
    nodes = (node("a", cpu="10"), node("b", cpu="10"))
    pods = (one("high", "a", cpu="5", priority=1_000_000), one("weak", "b", cpu="8", priority=-10))
    snapshot = Snapshot(nodes=nodes, pods=pods)

    for how in (settings(low=60, defragment=70, protection=100), consolidating()):
        assert plan(snapshot, how).moves == ()


def test_the_cost_names_pods_controllers_and_priorities() -> None:
    nodes = (node("a", cpu="10"), node("full", cpu="10"))
    pods = (
        one("p", "a", cpu="1", priority=5),
        one("q0", "a", cpu="1", controller=owner(name="q")),
        one("q1", "a", cpu="1", controller=owner(name="q")),
        one("stays", "full", cpu="5", priority=FIXED),
    )

    cost = plan(Snapshot(nodes=nodes, pods=pods), consolidating()).cost

    assert (cost.pods, cost.controllers, cost.priorities) == (3, 2, ((5, 1), (0, 2)))
    weights = DISRUPTION_WEIGHTS
    of_p = 3 * weights["perBitOfPriority"] + weights["cannotSurge"] + weights["onlyPodOfController"]
    assert cost.disruption == of_p + 2 * (weights["cannotSurge"] + weights["onlyPodOfController"] // 2)
