"""`Threshold` moves what the original proposal asks for, pod by pod, on a thousand random clusters."""

import random
from dataclasses import dataclass, replace
from typing import Any

import pytest

from berth_core import Node, Pod, Taint, Toleration
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.refusals import RefusedKind
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from berth_descheduler.plugins.default_evictor_args import DefaultEvictorArgs
from berth_descheduler.plugins.defragmentation import DefragmentationArgs
from builders import NOON, bare_pod, container, disruption_budget, node, owner, pod
from planner.clusters import ZONE, apart, selector, term
from planner.proposed_moves import ProposedNode, ProposedPod, Rules, Triplet, proposed_moves
from planner_settings import planner_settings, plugin_set
from properties import MANY

GPU = "example.com/gpu"
TAINT = Taint(key="dedicated", value="batch", effect="NoSchedule")
APPS = ("web", "db", "cache")


@dataclass(frozen=True)
class Scene:
    """A random cluster and what is asked for, as plain numbers."""

    nodes: tuple[ProposedNode, ...]
    rules: Rules
    chosen_apps: tuple[str, ...] = APPS
    """Pods of other apps are kept by the label selector."""

    excluded: str = ""
    """Pods of this namespace are kept."""

    bare: frozenset[str] = frozenset()
    daemons: frozenset[str] = frozenset()


def random_scene(chance: random.Random) -> Scene:
    resource = chance.choice(("cpu", "cpu", "memory", GPU))
    rules = random_rules(chance, resource)
    scene = Scene((), rules, chance.choice((APPS, APPS, ("web", "db"))), chance.choice(("", "", "shop")))
    nodes = []
    bare, daemons = set(), set()
    for number in range(chance.randint(2, 9)):
        made = random_node(chance, f"n{number}", scene)
        for one in made.pods:
            if one.removable and chance.random() < 0.05:
                bare.add(one.name)
            elif one.removable and chance.random() < 0.05:
                daemons.add(one.name)
        stays = bare | daemons
        pods = tuple(replace(one, removable=False) if one.name in stays else one for one in made.pods)
        nodes.append(replace(made, pods=pods))
    return replace(scene, nodes=tuple(nodes), bare=frozenset(bare), daemons=frozenset(daemons))


def random_rules(chance: random.Random, resource: str) -> Rules:
    names = (resource, "memory") if resource == "cpu" and chance.random() < 0.2 else (resource,)
    low, defragment = chance.choice(((40, 50), (30, 70), (45, 45), (60, 60), (20, 40)))
    protection = chance.choice((80, 90, 95, 100))
    maps = (dict.fromkeys(names, limit) for limit in (low, defragment, protection))
    return Rules(resource, *maps, number_of_nodes=chance.choice((0, 0, 0, 1, 2)))


def random_node(chance: random.Random, name: str, scene: Scene) -> ProposedNode:
    """A node that is nearly empty or well used: one between the two is neither source nor target."""
    made = ProposedNode(
        name,
        allocatable={"cpu": chance.choice((8_000, 10_000)), "memory": 16_384, GPU: chance.choice((0, 4, 8, 8))},
        slots=chance.choice((6, 110, 110, 110)),
        pods=(),
        critical=chance.random() < 0.05,
        cooling=chance.random() < 0.05,
        disk=chance.choice(("", "ssd")),
        tainted=chance.random() < 0.1,
    )
    most = chance.choice((1, 2, 4, 8))
    pods: list[ProposedPod] = []
    while len(pods) < most and (one := random_pod(chance, f"{name}-{len(pods)}", scene)) and fits(made, pods, one):
        pods.append(one)
    return replace(made, pods=tuple(pods))


def fits(one: ProposedNode, pods: list[ProposedPod], another: ProposedPod) -> bool:
    requests = [each.requests for each in (*pods, another)]
    return len(requests) <= one.slots and all(
        sum(amounts.get(name, 0) for amounts in requests) <= amount for name, amount in one.allocatable.items()
    )


def random_pod(chance: random.Random, name: str, scene: Scene) -> ProposedPod:
    requests = {
        "cpu": chance.choice((0, 250, 500, 1_000, 1_000, 2_000)),
        "memory": chance.choice((0, 512, 1_024, 4_096)),
        GPU: chance.choice((0, 0, 1, 2)),
    }
    namespace, app = chance.choice(("default", "shop")), chance.choice(APPS)
    return ProposedPod(
        namespace,
        name,
        requests,
        removable=app in scene.chosen_apps and namespace != scene.excluded,
        app=app,
        shuns=chance.choice(APPS) if chance.random() < 0.15 else "",
        needs_disk="ssd" if chance.random() < 0.1 else "",
        tolerates=chance.random() < 0.2,
    )


# --- the same for the planner -----------------------------------------------------------------------------------------


def snapshot_of(scene: Scene) -> Snapshot:
    pods = [as_pod(scene, one.name, each) for one in scene.nodes for each in one.pods]
    return Snapshot(nodes=tuple(map(as_node, scene.nodes)), pods=tuple(pods))


def as_node(one: ProposedNode) -> Node:
    return node(
        one.name,
        cpu=f"{one.allocatable['cpu']}m",
        memory=f"{one.allocatable['memory']}Mi",
        pods=str(one.slots),
        allocatable={GPU: str(one.allocatable[GPU])},
        labels={"disk": one.disk, **({"critical": "true"} if one.critical else {})},
        annotations={"berth.volcano.sh/last-defragmented": "2026-11-21T11:59:00Z"} if one.cooling else {},
        taints=(TAINT,) if one.tainted else (),
    )


def as_pod(scene: Scene, on: str, one: ProposedPod) -> Pod:
    """A pod of two containers, as all of them count."""
    cpu = one.requests["cpu"] // 2
    containers = (
        container("a", cpu=f"{cpu}m", memory=f"{one.requests['memory']}Mi"),
        container("b", cpu=f"{one.requests['cpu'] - cpu}m", requests={GPU: str(one.requests[GPU])}),
    )
    spec: dict[str, Any] = {
        "node": on,
        "namespace": one.namespace,
        "labels": {"app": one.app},
        "containers": containers,
        "affinity": apart(term(select=selector(app=one.shuns))) if one.shuns else None,
        "node_selector": {"disk": one.needs_disk} if one.needs_disk else {},
        "tolerations": (Toleration(key="dedicated", operator="Exists"),) if one.tolerates else (),
    }
    if one.name in scene.bare:
        return bare_pod(one.name, **spec)
    maker = owner("DaemonSet", "agent") if one.name in scene.daemons else owner(name=one.name)
    return pod(one.name, controller=maker, **spec)


def settings_of(scene: Scene) -> PlannerSettings:
    rules = scene.rules
    args = {
        "strategy": "Threshold",
        "resourceType": rules.resource,
        "lowThresholds": dict(rules.low),
        "defragmentThresholds": dict(rules.defragment),
        "protectionThresholds": dict(rules.protection),
        "numberOfNodes": rules.number_of_nodes,
        "coolDownTime": "1h",
        "evictableNamespaces": {"exclude": [scene.excluded]} if scene.excluded else {},
    }
    chosen = {"matchExpressions": [{"key": "app", "operator": "In", "values": list(scene.chosen_apps)}]}
    evictor = Enabled("DefaultEvictor", DefaultEvictor(DefaultEvictorArgs.parse({"labelSelector": chosen})))
    plugins = plugin_set(filters=(evictor,), pre_eviction_filters=(evictor,))
    return planner_settings(args=DefragmentationArgs.parse(args), plugins=plugins, now=NOON)


def moves_of(snapshot: Snapshot, settings: PlannerSettings) -> list[Triplet]:
    made = plan(snapshot, settings)
    return [Triplet(one.source, one.target, f"{one.namespace}/{one.pod}") for one in made.moves]


def known_namespaces(scene: Scene) -> Scene:
    """A namespace that is named has to exist."""
    there = {each.namespace for one in scene.nodes for each in one.pods}
    return scene if scene.excluded in there else replace(scene, excluded="")


@pytest.mark.parametrize("clusters", [250, pytest.param(1_000, marks=MANY)])
def test_threshold_moves_exactly_what_the_proposal_moves_in_its_order(clusters: int) -> None:
    moved, several = 0, 0
    for seed in range(clusters):
        scene = known_namespaces(random_scene(random.Random(seed)))  # noqa: S311 - makes clusters
        if not any(one.allocatable[scene.rules.resource] for one in scene.nodes):
            continue
        want = proposed_moves(scene.nodes, scene.rules)

        assert moves_of(snapshot_of(scene), settings_of(scene)) == want, f"seed {seed}"
        moved += bool(want)
        several += partly_emptied(scene, want)
    assert moved > clusters // 4, "too few of the clusters have anything to move"
    assert several > clusters // 10, "too few of the clusters have a node that keeps some of its pods"


def partly_emptied(scene: Scene, moves: list[Triplet]) -> bool:
    """Whether a node gives some of its pods and keeps others."""
    given = {name: sum(move.source == name for move in moves) for name in {move.source for move in moves}}
    return any(0 < given.get(one.name, 0) < len(one.pods) for one in scene.nodes)


# --- where we are stricter than the proposal --------------------------------------------------------------------------


def one_of_two(**fields: Any) -> Scene:  # noqa: ANN401 - fields of a node
    """A low node with two pods and a target that has room for both."""
    small = {"cpu": 500, "memory": 0, GPU: 0}
    pods = (ProposedPod("default", "kept", small, app="web"), ProposedPod("default", "moved", small, app="db"))
    full = ProposedPod("default", "there", {"cpu": 7_500, "memory": 0, GPU: 0}, app="cache")
    amounts = {"cpu": 10_000, "memory": 16_384, GPU: 0}
    nodes = (ProposedNode("low", amounts, 110, pods), ProposedNode("high", amounts, 110, (full,)))
    rules = Rules("cpu", {"cpu": 40}, {"cpu": 70}, {"cpu": 95}, **fields)
    return Scene(nodes, rules)


def test_a_pod_under_an_exhausted_budget_stays_and_the_others_of_its_node_move() -> None:
    scene = one_of_two()
    budget = disruption_budget(match_labels={"app": "web"}, allowed=0)
    snapshot = replace(snapshot_of(scene), disruption_budgets=(budget,))

    made = plan(snapshot, settings_of(scene))

    assert [move.pod for move in made.moves] == ["moved"]
    assert {one.pod for one in proposed_moves(scene.nodes, scene.rules)} == {"default/kept", "default/moved"}
    assert {one.name: one.reason for one in made.refused if one.node == "low"} == {
        "low": Reason.HOLDS_IMMOVABLE_PODS,
        "kept": Reason.BUDGET_EXHAUSTED,
    }


def test_a_pod_that_shuns_its_own_kind_in_its_zone_stays_as_the_new_one_comes_before_the_old_one_goes() -> None:
    scene = one_of_two()
    shy = apart(term(ZONE, select=selector(app="web")))
    snapshot = snapshot_of(scene)
    zoned = tuple(node(one.name, cpu="10", memory="16Gi", labels={ZONE: "east"}) for one in scene.nodes)
    pods = (pod("kept", node="low", cpu="500m", labels={"app": "web"}, affinity=shy, controller=owner(name="kept")),)
    others = tuple(one for one in snapshot.pods if one.metadata.name != "kept")

    made = plan(Snapshot(nodes=zoned, pods=(*pods, *others)), settings_of(scene))

    assert [move.pod for move in made.moves] == ["moved"]
    reasons = {one.name: (one.reason, one.constraint) for one in made.refused if one.kind is RefusedKind.POD}
    assert reasons == {"kept": (Reason.NO_TARGET, Reason.POD_ANTI_AFFINITY)}


@pytest.mark.parametrize("odd", [{"unschedulable": True}, {"ready": False}], ids=["cordoned", "not ready"])
def test_a_node_that_is_cordoned_or_not_ready_is_left_alone(odd: dict[str, bool]) -> None:
    scene = one_of_two()
    snapshot = snapshot_of(scene)
    low = node("low", cpu="10", memory="16Gi", **odd)  # type: ignore[arg-type]
    high = tuple(one for one in snapshot.nodes if one.metadata.name == "high")

    assert moves_of(replace(snapshot, nodes=(low, *high)), settings_of(scene)) == []
    assert proposed_moves(scene.nodes, scene.rules)
