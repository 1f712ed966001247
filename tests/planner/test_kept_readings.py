"""What was read of an earlier snapshot changes nothing of a later cluster, whatever has changed in between."""

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from berth_core import Node, Pod, Snapshot
from berth_core.migration_plans import PlannedMove
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.framework.rules import Budget
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner.simulation import Cluster, KeptReadings
from berth_descheduler.planner.simulation.kept_values import KeptValues
from builders import node, pod
from planner.clusters import selector
from planner.random_clusters import clusters
from planner_settings import planner_settings
from properties import holds_for

CHANGING = (
    "nodes",
    "pods",
    "workloads",
    "disruption_budgets",
    "namespaces",
    "persistent_volume_claims",
    "persistent_volumes",
    "reservations",
)
BUDGET = Budget("chairs", Refusal(RefusalReason.REFUSED_BY_PLUGIN, "no chair is left"), {"n0": 2}, lambda _: 1)


def mixed(draw: Callable[[Any], Any], first: Snapshot, second: Snapshot) -> Snapshot:
    """A snapshot whose objects are each the very one of the first or the second, or left out."""
    fields = {}
    for name in CHANGING:
        by_name = [
            {(obj.metadata.namespace, obj.metadata.name): obj for obj in getattr(snapshot, name)}
            for snapshot in (first, second)
        ]
        kept = []
        for key in sorted(by_name[0].keys() | by_name[1].keys()):
            choice = draw(st.sampled_from((0, 0, 0, 1, 1, None)))
            if choice is not None and key in by_name[choice]:
                kept.append(by_name[choice][key])
        fields[name] = tuple(kept)
    return Snapshot(**fields)


@st.composite
def histories(draw: Callable[[Any], Any]) -> tuple[Snapshot, ...]:
    first, second = draw(clusters()), draw(clusters())
    return (first, mixed(draw, first, second), second, mixed(draw, first, second), first)


@holds_for(histories(), st.frozensets(st.sampled_from(("waiting", "selectors", "budgets"))), quick=20)
def test_a_cluster_is_the_same_with_what_was_read_of_earlier_ones(
    history: tuple[Snapshot, ...], asked: frozenset[str]
) -> None:
    kept = KeptReadings()
    for snapshot in history:
        waiting = tuple(waiting_pod for waiting_pod in snapshot.pods if not waiting_pod.spec.node_name)
        options: tuple[Any, ...] = (
            waiting if "waiting" in asked else (),
            (selector(zone="a"),) if "selectors" in asked else (),
            (BUDGET,) if "budgets" in asked else (),
        )
        later, anew = Cluster.from_snapshot(snapshot, *options, kept), Cluster.from_snapshot(snapshot, *options)
        assert later == anew
        assert [pod_class.example for pod_class in later.classes] == [pod_class.example for pod_class in anew.classes]


@holds_for(histories(), quick=20)
def test_moves_hold_or_fall_as_they_do_without_what_was_read_before(history: tuple[Snapshot, ...]) -> None:
    kept, settings = KeptReadings(), planner_settings()
    first = history[0]
    targets = [target.metadata.name for target in first.nodes]
    moves = tuple(
        PlannedMove(
            namespace=moved.metadata.namespace,
            pod=moved.metadata.name,
            pod_uid=moved.metadata.uid,
            source=moved.spec.node_name,
            target=targets[number % len(targets)],
        )
        for number, moved in enumerate(first.pods)
        if moved.spec.node_name
    )
    for snapshot in history:
        assert revalidate(snapshot, moves, settings, kept=kept) == revalidate(snapshot, moves, settings)


def test_pods_keep_their_amounts_when_keys_of_pods_that_are_gone_are_forgotten() -> None:
    kept = KeptReadings()
    target = node("n0")
    gone = [pod(f"gone-{number}", node="n0", labels={"run": f"{number}"}, cpu="1") for number in range(1_100)]
    Cluster.from_snapshot(Snapshot(nodes=(target,), pods=tuple(gone)), kept=kept)
    left = tuple(
        pod(f"left-{number}", node="n0", labels={"app": f"{number}"}, cpu=f"{number + 2}") for number in range(3)
    )
    waiting = pod("waiting", labels={"run": "0"}, cpu="9")
    snapshot = Snapshot(nodes=(target,), pods=(*left, waiting))
    assert Cluster.from_snapshot(snapshot, (waiting,), kept=kept) == Cluster.from_snapshot(snapshot, (waiting,))


def read_names(objects: tuple[Node | Pod, ...], values: KeptValues[Node | Pod, str], read: list[str]) -> list[str]:
    read.clear()
    values.of(objects)
    return sorted(read)


def test_only_what_has_changed_is_read_again() -> None:
    read: list[str] = []

    def read_name(obj: Node | Pod) -> str:
        read.append(obj.metadata.name)
        return obj.metadata.name

    values: KeptValues[Node | Pod, str] = KeptValues(read_name)
    first, second, changed, new = pod("a"), pod("b"), pod("b"), node("c")
    assert read_names((first, second), values, read) == ["a", "b"]
    assert read_names((second, first), values, read) == []
    assert read_names((first, changed, new), values, read) == ["b", "c"]
    assert values.of((new, first)) == ["c", "a"]
