"""No plan moves pods to nodes that use much, nor makes one hot; what is not known keeps nothing and is noted."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from berth_core import Pod
from berth_core.labels import PLACEHOLDER_LABEL
from berth_core.migration_plans import MoveReason
from berth_core.object_lists import RawObject
from berth_core.quantities import parse_quantity
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, PlannerSettings, plan
from berth_descheduler.report.documents import describe_plan
from builders import NOON, node, pod
from descheduler.capabilities.hot_nodes.metrics_objects import heeding, measured, node_reading, placed, pod_reading, ten
from planner.clusters import consolidating, making_room, minimizing, settings
from planner.random_clusters import clusters, tight_clusters
from planner_settings import with_settings
from properties import holds_for

WAYS = {
    "threshold": settings(low=60, defragment=60, protection=100, wholeNodes=True),
    "single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(),
    "consolidate, exact": consolidating(exact=True),
}
BASE = placed("base", "full", cpu="7", priority=2_000_000_000)


def small_on_low(full: RawObject | None, *of_pods: RawObject, pods: int = 1) -> Snapshot:
    """So many pods of a core on `low`, and `full` with room for three and the reading, if any."""
    of_nodes = (node_reading("low", "1"), *([full] if full is not None else []))
    small = tuple(placed(f"small-{number}", "low") for number in range(pods))
    return measured(ten("low", "full"), (*small, BASE), of_nodes, of_pods)


def moved(made: Plan) -> list[str]:
    return sorted(move.pod for move in made.moves)


# --- hot nodes are no targets ---


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("cpu", "memory", "is_taken"), [("6999m", "79Gi", False), ("5", "60Gi", True)])
def test_a_target_takes_a_pod_that_leaves_it_below(
    how: PlannerSettings, cpu: str, memory: str, *, is_taken: bool
) -> None:
    assert moved(plan(small_on_low(node_reading("full", cpu, memory)), heeding(how))) == ["small-0"] * is_taken


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize(("cpu", "memory"), [("7", "1Gi"), ("10100m", "1Gi"), ("1", "80Gi"), ("7000000001n", "99Gi")])
def test_a_node_at_a_threshold_is_no_target_even_for_a_pod_that_uses_nothing(
    how: PlannerSettings, cpu: str, memory: str
) -> None:
    made = plan(small_on_low(node_reading("full", cpu, memory), pod_reading("small-0", "0")), heeding(how))

    assert moved(made) == []


def test_the_refusal_names_use_and_threshold() -> None:
    made = plan(small_on_low(node_reading("full", "8219m")), heeding(consolidating(), cpu="62.5"))

    (refused,) = [refused for refused in made.refused if refused.kind == "Pod" and refused.name == "small-0"]
    assert refused.reason is RefusalReason.NO_TARGET
    assert refused.constraint is RefusalReason.REFUSED_BY_PLUGIN
    assert "HotNodes: 82.1 % of its cpu is in use, not below cpu: 62.5 of targetUsage" in refused.message
    assert made.notes[0] == "HotNodes: 1 of 2 nodes takes no pods, not being below targetUsage: full (cpu 82.1 %)"


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_pods_leave_a_hot_node(how: PlannerSettings) -> None:
    hot = measured(
        ten("low", "full"), (placed("small-0", "low"), BASE), (node_reading("low", "9"), node_reading("full", "5"))
    )

    assert moved(plan(hot, heeding(how))) == ["small-0"]


def test_only_the_resources_that_are_named_count() -> None:
    cluster = small_on_low(node_reading("full", "9", "1Gi"))

    assert moved(plan(cluster, heeding(consolidating(), memory=50))) == ["small-0"]
    assert moved(plan(cluster, heeding(consolidating(), cpu=50))) == []


# --- no target becomes hot ---


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_pod_counts_with_its_use_and_not_with_its_requests(how: PlannerSettings) -> None:
    full = node_reading("full", "5")

    assert moved(plan(small_on_low(full, pod_reading("small-0", "2")), heeding(how))) == ["small-0"]
    assert moved(plan(small_on_low(full, pod_reading("small-0", "1500m", "501m")), heeding(how))) == []
    assert moved(plan(small_on_low(node_reading("full", "6"), pod_reading("other", "9")), heeding(how))) == ["small-0"]
    assert moved(plan(small_on_low(node_reading("full", "6001m")), heeding(how))) == []


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_the_pods_of_a_plan_count_together(how: PlannerSettings) -> None:
    of_pods = [pod_reading(f"small-{number}", "500m") for number in range(3)]
    fits, one_too_many = (small_on_low(node_reading("full", cpu), *of_pods, pods=3) for cpu in ("5500m", "5600m"))
    moves_single_pods = how is WAYS["single pods"]

    assert len(moved(plan(fits, heeding(how)))) == 3
    assert len(moved(plan(one_too_many, heeding(how)))) == 2 * moves_single_pods


def test_pods_that_a_reading_does_not_have_yet_count_on_top_of_it() -> None:
    def arrived(**status: Any) -> Pod:  # noqa: ANN401 - fields of the status
        young = placed("young", "full", priority=2_000_000_000)
        return msgspec.structs.replace(young, status=msgspec.structs.replace(young.status, **status))

    cluster = small_on_low(node_reading("full", "5500m"))
    old, young, coming = (
        replace(cluster, pods=(*cluster.pods, more))
        for more in (
            arrived(start_time="2026-11-21T11:59:59Z"),
            arrived(start_time="2026-11-21T12:00:00Z"),
            arrived(phase="Pending"),
        )
    )

    assert moved(plan(old, heeding(consolidating()))) == ["small-0"]
    assert moved(plan(young, heeding(consolidating()))) == []
    assert moved(plan(coming, heeding(consolidating()))) == []


def test_a_held_place_counts_with_what_it_is_held_for() -> None:
    holder = pod("holder", namespace="berth-system", node="full", cpu="1", labels={PLACEHOLDER_LABEL: "true"})
    of_holder = pod_reading("holder", "0", metadata={"namespace": "berth-system", "name": "holder"})
    cluster = small_on_low(node_reading("full", "5500m"), of_holder)

    assert moved(plan(cluster, heeding(consolidating()))) == ["small-0"]
    assert moved(plan(replace(cluster, pods=(*cluster.pods, holder)), heeding(consolidating()))) == []


def test_a_reading_of_an_earlier_pod_of_the_name_does_not_count() -> None:
    cluster = small_on_low(node_reading("full", "6"), pod_reading("small-0", "5"))
    (small,) = (pod for pod in cluster.pods if pod.metadata.name == "small-0")
    begun = msgspec.structs.replace(small.status, start_time="2026-11-21T12:00:30Z")
    started = replace(cluster, pods=(msgspec.structs.replace(small, status=begun), BASE))

    assert moved(plan(cluster, heeding(consolidating()))) == []
    assert moved(plan(started, heeding(consolidating()))) == ["small-0"]


def test_room_is_made_where_it_stays_cool() -> None:
    waits = pod("waits", node="", phase="Pending", cpu="3", memory=None)
    leaves = placed("leaves", "a", cpu="2")
    nodes = (node("a", cpu="8"), node("b", cpu="8"))
    others = (
        placed("of-a", "a", cpu="5", priority=2_000_000_000),
        placed("of-b", "b", cpu="6", priority=2_000_000_000),
    )
    how = heeding(making_room(pods=("default/waits",)))

    def made(a: str, b: str) -> Plan:
        return plan(measured(nodes, (waits, leaves, *others), (node_reading("a", a), node_reading("b", b))), how)

    assert [(move.pod, move.target) for move in made("2", "2").moves] == [("leaves", "b")]
    assert made("2", "2").room[0].nodes == ("a",)
    assert made("2", "5").moves == ()
    assert made("6", "2").room[0].nodes == ()


# --- cool nodes first ---


def test_of_two_targets_that_would_do_the_cooler_is_filled() -> None:
    def target_of(cpu: str, other: str) -> str:
        pods = (
            placed("small-0", "low"),
            *(placed(f"base-{name}", name, cpu="5", priority=2_000_000_000) for name in ("one", "other")),
        )
        of_nodes = (node_reading("low", "1"), node_reading("one", cpu), node_reading("other", other))
        (move,) = plan(measured(ten("low", "one", "other"), pods, of_nodes), heeding(consolidating())).moves
        return move.target

    assert target_of("1", "5") == "one"
    assert target_of("5", "1") == "other"


# --- what is not known ---


def notes_of(snapshot: Snapshot, how: PlannerSettings = WAYS["consolidate"]) -> tuple[str, ...]:
    made = plan(snapshot, heeding(how))

    assert moved(made) == ["small-0"], "what is not known keeps nothing"
    return made.notes


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_without_the_api_a_plan_is_as_without_the_plugin(how: PlannerSettings) -> None:
    unserved = replace(small_on_low(None), beside={})
    plain, made = plan(unserved, how), plan(unserved, heeding(how))

    assert (made.moves, made.refused) == (plain.moves, plain.refused)
    assert made.notes == (
        "HotNodes: metrics.k8s.io is not served, does not answer or may not be listed, so no node is looked at",
    )


def test_an_api_that_has_no_metrics_is_noted() -> None:
    nothing = measured(ten("low", "full"), (placed("small-0", "low"), BASE), ())

    assert notes_of(nothing) == ("HotNodes: no node is looked at, because metrics.k8s.io has no metrics of any",)


def test_nodes_without_a_reading_that_counts_are_named() -> None:
    of_pods = (pod_reading("small-0", "1"),)
    pods = (placed("small-0", "low"), BASE)

    def noted(*of_nodes: RawObject) -> tuple[str, ...]:
        return notes_of(measured(ten("low", "full"), pods, of_nodes, of_pods))

    low = node_reading("low", "1")
    assert noted(low) == ("HotNodes: no metrics of node full, which is not looked at",)
    assert noted(low, node_reading("full", "9", timestamp="2026-11-21T11:50:00Z")) == (
        "HotNodes: the metrics of node full are 10m0s old: it is not looked at",
    )
    assert noted(low, node_reading("full", "-9")) == (
        (
            "HotNodes: the metrics of node full are unreadable: usage.cpu is '-9'; expected a quantity that is not "
            "negative: it is not looked at"
        ),
    )
    assert noted(low, node_reading("full", "21")) == (
        (
            "HotNodes: the metrics of node full are implausible: more cpu than 2 times what the node has: it is not "
            "looked at"
        ),
    )
    assert noted(node_reading("full", "nonsense")) == (
        (
            "HotNodes: no node is looked at, because metrics.k8s.io has none that count: those of full, for example, "
            "are unreadable: usage.cpu is 'nonsense'; expected a quantity such as 250m or 512Mi"
        ),
    )


def test_readings_in_a_file_are_as_old_as_they_were_when_it_was_written() -> None:
    cluster = small_on_low(node_reading("full", "8"))
    later = with_settings(heeding(consolidating()), now=NOON + timedelta(days=3))

    assert moved(plan(cluster, later)) == ["small-0"]
    assert moved(plan(replace(cluster, read_at=NOON), later)) == []


def test_readings_of_unknown_shape_are_passed_over() -> None:
    odd: tuple[Mapping[str, Any], ...] = ({}, {"metadata": None}, {"metadata": {"name": 7}}, {"metadata": []})
    cluster = measured(ten("low", "full"), (placed("small-0", "low"), BASE), odd, odd)

    assert notes_of(cluster) == ("HotNodes: no node is looked at, because metrics.k8s.io has no metrics of any",)


def test_pods_whose_metrics_do_not_count_are_named() -> None:
    full = node_reading("full", "5")

    assert notes_of(small_on_low(full)) == (
        "HotNodes: metrics.k8s.io has no metrics of pods: they count with their requests",
    )
    assert notes_of(small_on_low(full, pod_reading("small-0", "30"))) == (
        (
            "HotNodes: the metrics of pod default/small-0 (implausible: more cpu than 2 times what the node has) do "
            "not count: requests count there"
        ),
    )


def test_notes_are_in_the_document_of_a_plan() -> None:
    made = plan(small_on_low(node_reading("full", "8")), heeding(consolidating()))

    assert msgspec.to_builtins(describe_plan(made), str_keys=True)["predicted"]["notes"] == made.notes != ()


# --- later looks ---


def test_a_later_look_asks_again_with_the_readings_of_then() -> None:
    how = heeding(consolidating())
    moves = plan(small_on_low(node_reading("full", "5")), how).moves

    assert revalidate(small_on_low(node_reading("full", "5")), moves, how) == {}
    (hot,) = revalidate(small_on_low(node_reading("full", "7")), moves, how).values()
    assert hot.reason is MoveReason.TARGET_UNFIT
    assert hot.message == "HotNodes: 70 % of its cpu is in use, not below cpu: 70 of targetUsage"
    (above,) = revalidate(small_on_low(node_reading("full", "6500m")), moves, how).values()
    assert above.message == "HotNodes: with the pod's own cpu the node would use more than cpu: 70 of targetUsage"


# --- every strategy, over clusters in which every constraint may occur ---


@holds_for(
    st.one_of(clusters(), tight_clusters()),
    st.sampled_from((*WAYS.values(), minimizing(), making_room(shapes=("cpu=5",)))),
    st.integers(0, 100),
)
def test_no_strategy_moves_to_a_hot_node_or_makes_one_hot(snapshot: Snapshot, how: PlannerSettings, seed: int) -> None:
    millis = {
        node.metadata.name: parse_quantity(str(node.status.allocatable.get("cpu", 0))).milli()
        for node in snapshot.nodes
    }
    used = {
        name: of_node * ((seed + 37 * number) % 110) // 100 for number, (name, of_node) in enumerate(millis.items())
    }
    beside = measured(
        (),
        (),
        tuple(node_reading(name, f"{use}m", "0") for name, use in used.items()),
        tuple(pod_reading(each.metadata.name, "100m", metadata=identity(each)) for each in snapshot.pods),
    ).beside

    moves = plan(replace(snapshot, beside=beside), heeding(how, cpu=60)).moves

    assert all(used[move.target] * 100 < millis[move.target] * 60 for move in moves)
    arrived, left = Counter(move.target for move in moves), Counter(move.source for move in moves)
    above = [name for name, pods in arrived.items() if used[name] + 100 * (pods - left[name]) > millis[name] * 60 / 100]
    assert above == []


def identity(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.metadata.namespace, "name": pod.metadata.name}
