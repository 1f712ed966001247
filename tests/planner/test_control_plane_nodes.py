"""Control-plane nodes give pods and take none, unless the operator holds places there and the planner is told so."""

from dataclasses import replace

import pytest
from hypothesis import strategies as st
from msgspec.structs import replace as changed

from berth_core import Node, Taint, Toleration, is_control_plane_node
from berth_core.labels import CONTROL_PLANE_KEYS
from berth_core.migration_plans import MoveReason
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import Candidate, ClusterView
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, plan
from berth_descheduler.report.summary import summarise_plan
from builders import bare_pod, node, owner, pod
from planner.clusters import consolidating, making_room, settings
from planner.random_clusters import clusters
from planner_settings import planner_settings, plugin_set, with_settings
from properties import holds_for

LABEL = {CONTROL_PLANE_KEYS[0]: ""}
OLDER_LABEL = {CONTROL_PLANE_KEYS[1]: "true"}
SAYS_SO = "All nodes are control-plane nodes"


class WantsAway:
    """Names the one small pod."""

    def deschedule(self, view: ClusterView) -> list[Candidate]:
        del view
        return [Candidate("default", "small", "it should be elsewhere")]


WAYS = {
    "threshold": settings(low=60, defragment=60, protection=100, wholeNodes=True),
    "single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(exact=False),
    "consolidate by the solver": consolidating(exact=True),
    "make room": making_room(shapes=("cpu=8",)),
    "a plugin": planner_settings(plugins=plugin_set(deschedule=(Enabled("WantsAway", WantsAway()),))),
}
every_way = pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)


def cluster(*, low: dict[str, str] | None = None, high: dict[str, str] | None = None) -> Snapshot:
    """One small pod on `low`, and room for it on `high`, which is well used; each with labels."""
    nodes = (node("low", cpu="8", labels=low or {}), node("high", cpu="8", labels=high or {}))
    small = pod("small", node="low", cpu="1", memory=None, controller=owner(name="small"))
    return Snapshot(nodes=nodes, pods=(small, bare_pod("base", node="high", cpu="6", memory=None)))


@pytest.mark.parametrize("key", CONTROL_PLANE_KEYS)
def test_a_label_or_a_taint_shows_a_control_plane_node(key: str) -> None:
    labelled = node("a", labels={key: ""})
    tainted = node("b", taints=[Taint(key=key, effect="NoSchedule")])
    other = node("c", labels={f"{key}-backup": ""}, taints=[Taint(key="dedicated", effect="NoSchedule")])
    assert [is_control_plane_node(one.metadata, one.spec) for one in (labelled, tainted, other)] == [True, True, False]


@pytest.mark.parametrize("labels", [LABEL, OLDER_LABEL], ids=["control-plane", "master"])
@every_way
def test_no_pod_is_moved_to_a_control_plane_node(how: PlannerSettings, labels: dict[str, str]) -> None:
    made = plan(cluster(high=labels), how)

    assert made.moves == ()
    assert made.rooms == ()


@every_way
def test_it_may_be_if_the_planner_is_told_so(how: PlannerSettings) -> None:
    made = plan(cluster(high=LABEL), with_settings(how, control_plane_nodes=True))
    assert [move.target for move in made.moves] == ["high"]


def test_a_tainted_one_that_the_pod_tolerates_takes_none_either() -> None:
    taint = Taint(key=CONTROL_PLANE_KEYS[0], effect="NoSchedule")
    everywhere = pod("p", node="low", cpu="1", memory=None, tolerations=[Toleration(operator="Exists")])
    nodes = (node("low", cpu="8"), node("high", cpu="8", taints=[taint]))
    snapshot = Snapshot(nodes=nodes, pods=(everywhere, bare_pod("base", node="high", cpu="6", memory=None)))

    assert plan(snapshot, consolidating()).moves == ()
    assert len(plan(snapshot, with_settings(consolidating(), control_plane_nodes=True)).moves) == 1


@pytest.mark.parametrize("name", [name for name in WAYS if name != "make room"])
def test_it_gives_pods_as_before(name: str) -> None:
    assert [(move.source, move.target) for move in plan(cluster(low=LABEL), WAYS[name]).moves] == [("low", "high")]


def test_no_room_is_made_on_it() -> None:
    how = making_room(shapes=("cpu=8",))
    kept = plan(cluster(low=LABEL), how)
    allowed = plan(cluster(low=LABEL), with_settings(how, control_plane_nodes=True))

    assert [made.nodes for made in kept.room] == [()]
    assert [made.nodes for made in allowed.room] == [("low",)]


def test_the_solver_takes_pods_off_a_control_plane_node_that_takes_none() -> None:
    """Two nodes of three can be emptied only if the pods of the control-plane node leave it."""
    nodes = (node("cp", cpu="8", labels=LABEL), node("empty", cpu="8", labels=LABEL), node("a"), node("b"))
    pods = tuple(
        pod(f"p{number}", node=where, cpu="1", memory=None, controller=owner(name=f"p{number}"))
        for number, where in enumerate(("cp", "cp", "a", "b"))
    )
    made = plan(Snapshot(nodes=nodes, pods=pods), consolidating(exact=True))

    assert made.quality is not None
    assert (made.quality.reached, made.quality.upper_bound, made.quality.fewest_moves) == (2, 2, 3)
    assert "cp" in made.freed_nodes
    assert {move.target for move in made.moves} <= {"a", "b"}


def test_the_bound_knows_that_what_leaves_needs_room_on_others() -> None:
    """Each of both nodes would hold all, but one of them takes nothing: that one is freed, or none."""
    pods = tuple(
        pod(f"p{number}", node=where, cpu="2", memory=None, controller=owner(name=f"p{number}"))
        for number, where in enumerate(("cp", "worker"))
    )
    nodes = (node("cp", cpu="64", labels=LABEL), node("worker", cpu="3"))
    made = plan(Snapshot(nodes=nodes, pods=pods), consolidating(exact=False))

    assert made.moves == ()
    assert made.quality is not None
    assert made.quality.upper_bound == 0


@pytest.mark.parametrize("name", ["threshold", "single pods", "consolidate", "make room", "a plugin"])
def test_the_reason_is_among_those_why_not_more(name: str) -> None:
    made = plan(cluster(high=LABEL), WAYS[name])

    reasons = {reason for one in made.refused for reason in (one.reason, one.constraint)}
    assert RefusalReason.CONTROL_PLANE_NODE in reasons
    assert any(
        "control-plane node, where no place is held (--control-plane-nodes)" in one.sentences for one in made.refused
    )


def test_the_text_says_that_there_are_control_plane_nodes_only() -> None:
    alone = Snapshot(nodes=(node("one", labels=LABEL),), pods=(pod("web", node="one"),))
    for how in WAYS.values():
        if how.plugins.deschedule:
            continue  # it names a pod of another cluster
        made = plan(alone, how)
        assert made.moves == ()
        assert SAYS_SO in summarise_plan(made)
        assert "--control-plane-nodes" in summarise_plan(made)
        assert SAYS_SO not in summarise_plan(plan(alone, with_settings(how, control_plane_nodes=True)))


@every_way
def test_the_text_says_nothing_of_it_while_there_is_another_node(how: PlannerSettings) -> None:
    assert SAYS_SO not in summarise_plan(plan(cluster(high=LABEL), how))
    assert SAYS_SO in summarise_plan(plan(cluster(low=LABEL, high=LABEL), how))


def test_a_cluster_without_nodes_is_not_said_to_have_control_plane_nodes() -> None:
    assert SAYS_SO not in summarise_plan(plan(Snapshot.empty(), consolidating()))


def test_a_move_that_was_planned_before_is_judged_by_it() -> None:
    how = settings(low=60, defragment=60, protection=100)
    moves = plan(cluster(), how).moves
    now = cluster(high=LABEL)

    (found,) = revalidate(now, moves, how).values()
    assert found.reason is MoveReason.TARGET_UNFIT
    assert "control-plane node" in found.message
    assert revalidate(now, moves, with_settings(how, control_plane_nodes=True)) == {}
    assert revalidate(cluster(low=LABEL), moves, how) == {}


@st.composite
def with_control_plane(draw: st.DrawFn) -> Snapshot:
    """A random cluster, some nodes of which are of the control plane."""
    snapshot: Snapshot = draw(clusters())

    def labelled(one: Node) -> Node:
        if not draw(st.booleans()):
            return one
        return changed(one, metadata=changed(one.metadata, labels={**one.metadata.labels, **LABEL}))

    return replace(snapshot, nodes=tuple(labelled(one) for one in snapshot.nodes))


@holds_for(with_control_plane(), st.sampled_from((None, None, 3)), st.booleans())
def test_no_plan_fills_one_and_what_it_says_of_itself_is_true(
    snapshot: Snapshot,
    budget: int | None,
    whole: bool,  # noqa: FBT001 - drawn
) -> None:
    barred = {one.metadata.name for one in snapshot.nodes if is_control_plane_node(one.metadata, one.spec)}
    without = plan(snapshot, consolidating(max_moves=budget, exact=False))
    solved = plan(snapshot, consolidating(max_moves=budget, exact=True))
    low = plan(snapshot, with_settings(settings(low=40, defragment=40, wholeNodes=whole), max_moves=budget))

    room = plan(snapshot, with_settings(making_room(shapes=("cpu=2",)), max_moves=budget, exact=whole))

    assert barred.isdisjoint(name for made in room.room for name in made.nodes)
    for made in (without, solved, low, room):
        assert barred.isdisjoint(move.target for move in made.moves)
    assert without.quality is not None
    assert solved.quality is not None
    assert (solved.quality.reached, -solved.quality.moves) >= (without.quality.reached, -without.quality.moves)
    assert solved.quality.reached <= solved.quality.upper_bound <= without.quality.upper_bound
