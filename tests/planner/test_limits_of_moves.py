"""A plan written by hand keeps the policy's current limits; each move beyond them says why."""

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import strategies as st

from berth_core import LabelSelector, Node, Pod
from berth_core.labels import CRITICAL_NODE_LABEL, LAST_DEFRAGMENTED_ANNOTATION
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_core.snapshot import Snapshot
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, WaveLimits, plan
from berth_descheduler.planner.cool_downs import PodCoolDown
from berth_descheduler.planner.settings import EvictableNamespaces, Thresholds
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from builders import NOON, node, owner, pod
from planner.clusters import consolidating, making_room, settings
from planner.random_clusters import clusters, tight_clusters
from planner_settings import planner_settings, with_args, with_settings
from properties import holds_for

LOOSE = planner_settings(
    args=DefragmentationArgs(protection=Thresholds.of(cpu=100), cool_down=timedelta(hours=1)),
    waves=WaveLimits(per_controller=100, per_wave=100),
    now=NOON,
)
HALF_AN_HOUR_AGO = {LAST_DEFRAGMENTED_ANNOTATION: "2026-11-21T11:30:00Z"}


def web(name: str, on: str = "low", *, namespace: str = "default", of: str = "") -> Pod:
    controller = owner(name=of or name)
    return pod(name, node=on, cpu="1", memory=None, namespace=namespace, controller=controller)


def move(name: str, source: str = "low", *, namespace: str = "default", wave: int = 0, reason: str = "") -> PlannedMove:
    uid = f"uid-{namespace}-{name}"
    return PlannedMove(
        namespace=namespace, pod=name, pod_uid=uid, source=source, target="high", wave=wave, reason=reason
    )


def limited(**limits: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the settings
    return with_settings(LOOSE, **limits)


def argued(**args: Any) -> PlannerSettings:  # noqa: ANN401 - fields of the arguments
    return with_args(LOOSE, **args)


SEVEN = tuple(f"p{number}" for number in range(7))


@dataclass(frozen=True)
class Case:
    """Seven single moves off `low` and what the policy says of them."""

    how: PlannerSettings
    want: dict[int, MoveReason]
    pods: tuple[Pod, ...] = tuple(web(name) for name in SEVEN)
    moves: tuple[PlannedMove, ...] = tuple(move(name) for name in SEVEN)
    nodes: tuple[Node, ...] = (node("low"), node("high", cpu="8"))
    begun: tuple[PlannedMove, ...] = ()
    emptied: tuple[str, ...] = ()
    more: dict[str, Any] = field(default_factory=dict)


TABLE = {
    "no limit": Case(LOOSE, {}),
    "five moves at most": Case(limited(max_moves=5), dict.fromkeys((5, 6), MoveReason.MOVE_LIMIT)),
    "those begun count": Case(
        limited(max_moves=5), dict.fromkeys((3, 4, 5, 6), MoveReason.MOVE_LIMIT), begun=(move("a"), move("b"))
    ),
    "those that do not hold do not count": Case(
        limited(max_moves=5),
        {0: MoveReason.POD_GONE, 6: MoveReason.MOVE_LIMIT},
        pods=tuple(web(name) for name in SEVEN[1:]),
    ),
    "a node that is emptied whole counts as one": Case(
        limited(max_moves=5), dict.fromkeys(range(7), MoveReason.MOVE_LIMIT), emptied=("low",)
    ),
    "two off a node": Case(limited(max_moves_per_node=2), dict.fromkeys(range(2, 7), MoveReason.NODE_LIMIT)),
    "six of a namespace": Case(limited(max_moves_per_namespace=6), {6: MoveReason.NAMESPACE_LIMIT}),
    "three in a wave": Case(
        limited(waves=WaveLimits(per_controller=9, per_wave=3)), dict.fromkeys(range(3, 7), MoveReason.WAVE_LIMIT)
    ),
    "three in each wave": Case(
        limited(waves=WaveLimits(per_controller=9, per_wave=3)),
        {6: MoveReason.WAVE_LIMIT},
        moves=tuple(move(name, wave=min(number // 3, 1)) for number, name in enumerate(SEVEN)),
    ),
    "one of a controller in a wave": Case(
        limited(waves=WaveLimits(per_controller=1, per_wave=9)),
        dict.fromkeys(range(1, 7), MoveReason.CONTROLLER_LIMIT),
        pods=tuple(web(name, of="web") for name in SEVEN),
    ),
    "one of a controller in each wave": Case(
        limited(waves=WaveLimits(per_controller=1, per_wave=9)),
        {},
        pods=tuple(web(name, of="web") for name in SEVEN),
        moves=tuple(move(name, wave=number) for number, name in enumerate(SEVEN)),
    ),
    "another namespace is evictable": Case(
        argued(evictable_namespaces=EvictableNamespaces(include=frozenset({"other", "gone"}))),
        dict.fromkeys(range(7), MoveReason.NAMESPACE_NOT_EVICTABLE),
    ),
    "the namespace is excluded": Case(
        argued(evictable_namespaces=EvictableNamespaces(exclude=frozenset({"default"}))),
        dict.fromkeys(range(7), MoveReason.NAMESPACE_NOT_EVICTABLE),
    ),
    "the source is not selected": Case(
        limited(node_selector=LabelSelector(match_labels={"pool": "batch"})),
        dict.fromkeys(range(7), MoveReason.NODE_NOT_SELECTED),
        nodes=(node("low"), node("high", labels={"pool": "batch"})),
    ),
    "the target is not selected": Case(
        limited(node_selector=LabelSelector(match_labels={"pool": "batch"})),
        dict.fromkeys(range(7), MoveReason.NODE_NOT_SELECTED),
        nodes=(node("low", labels={"pool": "batch"}), node("high")),
    ),
    "the source is critical": Case(
        LOOSE,
        dict.fromkeys(range(7), MoveReason.CRITICAL_NODE),
        nodes=(node("low", labels={CRITICAL_NODE_LABEL: "true"}), node("high")),
    ),
    "the source is cooling down": Case(
        LOOSE,
        dict.fromkeys(range(7), MoveReason.NODE_COOLING_DOWN),
        nodes=(node("low", annotations=HALF_AN_HOUR_AGO), node("high")),
    ),
    "the target is protected": Case(argued(protection=Thresholds.of(cpu=75)), {6: MoveReason.ABOVE_PROTECTION}),
    "a reason of the plan's own protects no target": Case(
        argued(protection=Thresholds.of(cpu=75)),
        {6: MoveReason.ABOVE_PROTECTION},
        moves=tuple(move(name, reason="because") for name in SEVEN),
    ),
    "a pod rests": Case(
        LOOSE.with_rule(PodCoolDown({("default", "p3"): NOON - timedelta(minutes=5)})), {3: MoveReason.POD_COOLING_DOWN}
    ),
    "a name that leads elsewhere": Case(
        LOOSE,
        {0: MoveReason.INVALID_NAME},
        moves=(move("../p0"), *(move(name) for name in SEVEN[1:])),
    ),
}


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE)
def test_each_move_beyond_what_the_policy_allows_says_why(case: Case) -> None:
    snapshot = Snapshot(nodes=case.nodes, pods=case.pods, **case.more)
    found = revalidate(snapshot, case.moves, case.how, emptied=case.emptied, begun=case.begun)
    assert {index: why.reason for index, why in found.items()} == case.want
    assert all(why.message for why in found.values())


def test_a_limit_is_told_in_words() -> None:
    pods = tuple(web(name, of="web") for name in SEVEN)
    snapshot = Snapshot(nodes=(node("low"), node("high")), pods=pods)
    how = limited(waves=WaveLimits(per_controller=1, per_wave=9))
    found = revalidate(snapshot, [move(name) for name in SEVEN], how, emptied=())
    assert found[1].message == "the policy allows 1 move in wave 0 of one controller, and others come first"


ways = st.one_of(
    st.builds(
        settings,
        low=st.sampled_from((30, 60)),
        defragment=st.just(60),
        protection=st.sampled_from((80, 100)),
        max_moves=st.sampled_from((None, 3)),
        per_controller=st.integers(1, 3),
        now=st.just(NOON),
        coolDownTime=st.just("1h"),
        wholeNodes=st.booleans(),
    ),
    st.builds(
        consolidating,
        protection=st.sampled_from((80, 100)),
        max_moves=st.sampled_from((None, 3, 8)),
        per_controller=st.integers(1, 3),
        per_wave=st.integers(1, 5),
        now=st.just(NOON),
        coolDownTime=st.just("1h"),
    ),
    st.builds(
        making_room,
        shapes=st.sampled_from((("cpu=6",), ("cpu=5,count=3",))),
        max_moves=st.sampled_from((None, 2)),
        per_controller=st.integers(1, 3),
    ),
)


@holds_for(st.one_of(clusters(), tight_clusters()), ways, st.sampled_from((None, 1, 3)), st.sampled_from((None, 1, 4)))
def test_a_plan_keeps_the_limits_that_it_was_made_by(
    snapshot: Snapshot, how: PlannerSettings, per_node: int | None, per_namespace: int | None
) -> None:
    how = with_settings(how, max_moves_per_node=per_node, max_moves_per_namespace=per_namespace)
    made = plan(snapshot, how)

    found = revalidate(snapshot, made.moves, how, emptied=made.freed_nodes)

    assert not found
