"""`LentNodes` as a balance plugin: preemptable pods make room for others by moving to open lent nodes first."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from berth_core import LENT_NODES, InputError, Node, Pod, PodCondition, PodGroup, PodStatus, Snapshot
from berth_descheduler.capabilities.lent_nodes.jobs import why_not_evicted
from berth_descheduler.capabilities.lent_nodes.plugin import LentNodes
from berth_descheduler.framework import RefusalReason
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, PlannerSettings, plan, pods_losing_room
from berth_descheduler.plugins import default_plugins, goal_of, settings_with
from berth_descheduler.plugins.registry import installed_plugins
from berth_descheduler.policy.profiles import read_profile
from builders import NOON, bare_pod, node, owner, pod, volcano_pod_group
from planner.clusters import apart as anti_affinity
from planner.clusters import selector, term
from planner_settings import with_settings

SAYS_SO: Final = {"volcano.sh/preemptable": "true"}
AT_ONCE: Final = {**SAYS_SO, "volcano.sh/jdb-max-unavailable": "100%"}
GROUPED: Final = {"scheduling.k8s.io/group-name": "group"}
UNPLACED: Final = (PodCondition(type="PodScheduled", status="False", reason="Unschedulable"),)


def lent(name: str = "lent", cpu: str = "4") -> Node:
    return node(name, cpu=cpu, labels={"volcano.sh/revocable-zone": "rz1"})


def usual(name: str = "usual", cpu: str = "4") -> Node:
    return node(name, cpu=cpu)


def fence(on: str = "lent", kind: str = "lent-open") -> Pod:
    labels = {"berth.volcano.sh/fence": "true", "berth.volcano.sh/standing-fence": kind}
    return bare_pod(f"fence-{on}-{kind}", namespace="berth-system", node=on, labels=labels, cpu=None, memory=None)


def batch(number: int = 0, on: str = "usual", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on
    said = {"annotations": SAYS_SO, "cpu": "2", **rest}
    return pod(f"batch-{number}", node=on, controller=owner("ReplicaSet", "batch"), memory=None, **said)


def service(number: int = 0, on: str = "usual", cpu: str = "2") -> Pod:
    return pod(f"service-{number}", node=on, controller=owner("ReplicaSet", "service"), cpu=cpu, memory=None)


def waiting(name: str = "web", cpu: str = "2", **rest: Any) -> Pod:  # noqa: ANN401 - a builder passes on
    made = bare_pod(name, cpu=cpu, memory=None, **rest)
    return msgspec.structs.replace(made, status=PodStatus(phase="Pending", conditions=UNPLACED))


def settings(**args: Any) -> PlannerSettings:  # noqa: ANN401 - arguments of the plugin
    plugins = replace(default_plugins(), balance=Enabled(LENT_NODES, LentNodes.parse(args)))
    return settings_with(PlannerSettings(plugins=plugins), plugins)


def planned(pods: Sequence[Pod], *nodes: Node, groups: tuple[PodGroup, ...] = (), **args: Any) -> Plan:  # noqa: ANN401
    return plan(snapshot(pods, *nodes, groups=groups), settings(**args))


def snapshot(pods: Sequence[Pod], *nodes: Node, groups: tuple[PodGroup, ...] = ()) -> Snapshot:
    return Snapshot(nodes=nodes or (usual(), lent()), pods=tuple(pods), pod_groups=groups)


def moves(found: Plan) -> list[tuple[str, str]]:
    return [(move.pod, move.target) for move in found.moves]


def test_a_preemptable_pod_moves_to_the_open_lent_node_for_one_that_waits() -> None:
    found = planned([fence(), batch(0), service(), waiting()])
    assert moves(found) == [("batch-0", "lent")]
    (room,) = found.rooms
    assert (room.name, room.nodes) == ("default/web", ("usual",))
    assert goal_of(found.objective) is LentNodes.goal


def test_lent_nodes_come_before_others_that_have_room() -> None:
    full, half = usual("full"), usual("half", "6")
    pods = [fence(), batch(0, "full"), batch(1, "full"), service(0, "half"), service(1, "half", "1500m")]
    found = planned([*pods, waiting(cpu="4")], full, half, lent())
    assert moves(found) == [("batch-0", "lent"), ("batch-1", "lent")]


def test_pods_that_no_lent_node_takes_move_to_others() -> None:
    full, half = usual("full"), usual("half")
    pods = [batch(0, "full"), service(0, "full", "1"), service(1, "half", "1500m"), waiting(cpu="3")]
    assert moves(planned([fence(kind="lent-closed"), *pods], full, half, lent())) == [("batch-0", "half")]
    assert moves(planned([fence(), *pods], full, half, lent(cpu="1"))) == [("batch-0", "half")]


def test_only_preemptable_pods_move() -> None:
    found = planned([fence(), service(0), service(1), waiting()])
    assert not found.moves
    assert any("not preemptable" in one.message for one in found.refused)


def test_no_pod_leaves_a_lent_node_for_others() -> None:
    pods = [fence(), batch(0, "lent"), batch(1, "lent"), batch(2, "usual"), service(), waiting()]
    assert not planned(pods).moves


@pytest.mark.parametrize("kinds", [("lent-closed",), ("lent-open", "lent-closed"), ()], ids=str)
def test_nothing_moves_to_a_lent_node_that_is_closed_or_about_to_be(kinds: tuple[str, ...]) -> None:
    fences = [fence(kind=kind) for kind in kinds]
    found = planned([*fences, batch(0), service(), waiting()])
    assert not found.moves


ENDS: Final = {"2026-11-21T12:09:00Z": False, "2026-11-21T12:11:00Z": True, "soon": True}


@pytest.mark.parametrize(("end", "want"), ENDS.items(), ids=ENDS)
def test_nothing_moves_to_a_lent_node_for_a_few_minutes_only(end: str, *, want: bool) -> None:
    made = fence()
    noted = {"berth.volcano.sh/empty-by": end}
    made = msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=noted))
    pods = [made, batch(0), service(), waiting()]
    assert bool(plan(snapshot(pods), with_settings(settings(), now=NOON)).moves) is want
    assert plan(snapshot(pods), settings()).moves, "the time is not known"


def test_a_pod_may_be_preemptable_by_its_label_or_by_its_group() -> None:
    assert moves(planned([fence(), batch(0, annotations={}, labels=SAYS_SO), service(), waiting()]))
    group = volcano_pod_group("group")
    said = msgspec.structs.replace(group, metadata=msgspec.structs.replace(group.metadata, annotations=SAYS_SO))
    pods = [fence(), batch(0, annotations=GROUPED), service(), waiting()]
    assert moves(planned(pods, groups=(said,))) == [("batch-0", "lent")]
    assert not planned(pods, groups=(group,)).moves


NOBODY: Final = {
    "that is preemptable itself": waiting(annotations=SAYS_SO),
    "that no scheduler has refused": msgspec.structs.replace(waiting(), status=PodStatus(phase="Pending")),
    "that is gated": waiting(gates=("example.com/later",)),
    "of a namespace that is left out": waiting(namespace="left-out"),
}


@pytest.mark.parametrize("one", NOBODY.values(), ids=NOBODY)
def test_nothing_moves_for_a_pod(one: Pod) -> None:
    found = planned([fence(), batch(0), service(), one], namespaces={"exclude": ["left-out"]})
    assert not found.moves


def test_other_plans_move_no_pod_to_an_open_lent_node() -> None:
    default = default_plugins()
    others = settings_with(PlannerSettings(plugins=default), default)
    pods = [fence(), batch(0, "low", cpu="100m"), service()]
    assert not plan(snapshot(pods, usual("low"), lent()), others).moves


def test_a_move_to_a_lent_node_falls_when_that_closes() -> None:
    pods = [batch(0), service(), waiting()]
    found = planned([fence(), *pods])
    open_, closed = snapshot([fence(), *pods]), snapshot([fence(kind="lent-closed"), *pods])
    assert not revalidate(open_, found.moves, settings(), emptied=())
    (why,) = revalidate(closed, found.moves, settings(), emptied=()).values()
    assert "revocable zone rz1" in why.message


def test_a_preemptable_pod_that_waits_has_the_room_of_an_open_lent_node_first() -> None:
    pods = [fence(), batch(0), service(), waiting()]
    found = planned(pods, usual(), lent(cpu="2"))
    hungry = waiting("hungry", annotations=SAYS_SO)
    assert [
        pod.metadata.name for pod in pods_losing_room(snapshot([*pods, hungry], usual(), lent(cpu="2")), found.moves)
    ]
    plain = waiting("plain")
    assert not pods_losing_room(snapshot([*pods, plain], usual(), lent(cpu="2")), found.moves)


def test_both_kinds_of_moves_go_into_one_plan() -> None:
    made = settings()
    plugins = replace(made.plugins, deschedule=(Enabled(LENT_NODES, LentNodes()),))
    made = settings_with(made, plugins)
    pods = [fence(), fence("shut", "lent-closed"), batch(0), service(), waiting(), service(1, "shut")]
    nodes = (usual(), lent(), lent("shut"), usual("spare", "2"))
    found = plan(Snapshot(nodes=nodes, pods=tuple(pods)), made)
    assert moves(found) == [("service-1", "spare"), ("batch-0", "lent")]
    assert [move.stands_alone for move in found.moves] == [True, False]


def test_the_example_of_the_page_makes_room() -> None:
    path = Path(__file__).parents[4] / "descheduler" / "docs" / "room-by-lent-nodes.yaml"
    body: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    (profile,) = body["spec"]["profiles"]
    read = read_profile(profile, installed_plugins())
    assert read.plugins.balance.name == LENT_NODES
    assert not read.warnings


def test_its_argument_is_checked() -> None:
    with pytest.raises(InputError, match="zone"):
        LentNodes.parse({"zone": "rz1"})
    with pytest.raises(InputError, match="namespaces"):
        LentNodes.parse({"namespaces": ["web"]})


def test_why_a_pod_gets_no_room_names_the_lent_node() -> None:
    found = planned([fence(), service(0), service(1), waiting()])
    reasons = {one.node: one.reason for one in found.refused if one.node}
    assert reasons["lent"] is RefusalReason.LENT_NODE


# --- evictions -------------------------------------------------------------------------------------------------------

LAST_RESORT: Final = {"evictions": "LastResort"}
SHUT: Final = fence(kind="lent-closed")


def test_a_preemptable_pod_is_evicted_for_others_only_where_the_policy_says_so() -> None:
    pods = [SHUT, batch(0), service(), waiting()]
    assert not planned(pods).moves
    found = planned(pods, **LAST_RESORT)
    assert moves(found) == [("batch-0", "")]
    assert found.moves[0].reason == "default/web waits for usual; no other node takes it"
    assert [(room.name, room.nodes) for room in found.rooms] == [("default/web", ("usual",))]
    assert not any(one.name == "web" for one in found.refused)


def test_no_pod_is_evicted_where_moves_make_room() -> None:
    pods = [fence(), batch(0), service(), waiting()]
    assert moves(planned(pods, **LAST_RESORT)) == [("batch-0", "lent")]


def test_of_the_pods_that_go_those_move_that_another_node_takes() -> None:
    pods = [fence(), *(batch(number, annotations=AT_ONCE) for number in range(2)), waiting(cpu="4")]
    assert not planned(pods, usual(), lent(cpu="2")).moves
    assert moves(planned(pods, usual(), lent(cpu="2"), **LAST_RESORT)) == [("batch-0", "lent"), ("batch-1", "")]


def test_moves_and_evictions_serve_different_pods_of_one_plan() -> None:
    first, second = usual("first"), usual("second")
    pods = [fence(), batch(0, "first"), service(0, "first"), batch(1, "second"), service(1, "second")]
    found = planned([*pods, waiting("one"), waiting("two")], first, second, lent(cpu="2"), **LAST_RESORT)
    assert sorted(target for _, target in moves(found)) == ["", "lent"]
    assert sorted(room.name for room in found.rooms) == ["default/one", "default/two"]
    assert {name for room in found.rooms for name in room.nodes} == {"first", "second"}


STAYING: Final = {
    "of higher priority": batch(0, priority=7),
    "that nothing makes again": bare_pod("batch-0", node="usual", annotations=SAYS_SO, cpu="2", memory=None),
    "of a job that spares none": batch(0, annotations={**SAYS_SO, "volcano.sh/jdb-min-available": "100%"}),
    "that is not preemptable": batch(0, annotations={}),
}


@pytest.mark.parametrize("one", STAYING.values(), ids=STAYING)
def test_a_pod_is_not_evicted_for_others(one: Pod) -> None:
    assert not planned([SHUT, one, service(), waiting()], **LAST_RESORT).moves


def test_no_more_pods_of_a_job_are_evicted_than_it_spares() -> None:
    said = {**SAYS_SO, "volcano.sh/jdb-max-unavailable": "1"}
    pods = [SHUT, batch(0, annotations=said), batch(1, annotations=said)]
    assert not planned([*pods, waiting(cpu="4")], **LAST_RESORT).moves
    assert moves(planned([*pods, waiting(cpu="2")], **LAST_RESORT)) == [("batch-0", "")]


def test_of_a_job_that_says_nothing_one_pod_is_evicted_in_a_minute() -> None:
    pods = [SHUT, batch(0), batch(1), waiting("one"), waiting("two")]
    assert moves(planned(pods, **LAST_RESORT)) == [("batch-0", "")]
    assert not planned([SHUT, batch(0), batch(1), waiting(cpu="4")], **LAST_RESORT).moves
    again = batch(7, on="")
    for seconds, want in ((30, 0), (60, 1)):
        later = with_settings(settings(**LAST_RESORT), now=NOON + timedelta(seconds=seconds))
        found = plan(snapshot([SHUT, batch(1), service(), waiting(), again]), later)
        assert len(found.moves) == want, seconds
        why = why_not_evicted(
            batch(1), Snapshot(pods=(batch(1), again)), Snapshot(), "", later.run.now or NOON, for_room=True
        )
        assert bool(why) == (not want)


def test_a_pod_that_is_never_ready_keeps_the_others_of_its_job_for_some_minutes_only() -> None:
    broken = batch(7, "far", ready=False)
    for minutes, want in ((9, 0), (10, 1)):
        later = with_settings(settings(**LAST_RESORT), now=NOON + timedelta(minutes=minutes))
        found = plan(
            snapshot([SHUT, batch(0), service(), waiting(), broken], usual(), usual("far", "2"), lent()), later
        )
        assert len(found.moves) == want, minutes


def test_a_gang_gets_room_as_a_whole_or_none() -> None:
    gang = [waiting(f"gang-{number}", annotations={"scheduling.k8s.io/group-name": "gang"}) for number in range(2)]
    assert not planned([SHUT, batch(0), service(), *gang], **LAST_RESORT).moves
    batches = [batch(number, annotations=AT_ONCE) for number in range(2)]
    found = planned([SHUT, *batches, *gang], **LAST_RESORT)
    assert sorted(moves(found)) == [("batch-0", ""), ("batch-1", "")]
    (room,) = found.rooms
    assert (room.gang, len(room.slots)) == ("gang", 2)


def test_the_limit_on_moves_counts_evictions() -> None:
    pods = [SHUT, *(batch(n, annotations=AT_ONCE) for n in range(2)), waiting("one"), waiting("two")]
    limited = with_settings(settings(**LAST_RESORT), max_moves=1)
    assert len(plan(snapshot(pods), limited).moves) == 1


def test_an_eviction_falls_once_the_policy_says_so_no_more_or_the_pod_is_not_preemptable() -> None:
    pods = [SHUT, batch(0), service(), waiting()]
    found = planned(pods, **LAST_RESORT)
    assert not revalidate(snapshot(pods), found.moves, settings(**LAST_RESORT), emptied=())
    assert revalidate(snapshot(pods), found.moves, settings(), emptied=())
    changed = snapshot([SHUT, batch(0, annotations={}), service(), waiting()])
    assert revalidate(changed, found.moves, settings(**LAST_RESORT), emptied=())


EVICTIONS: Final = {
    "for room": (batch(0), (), True, ""),
    "not for room": (batch(0), (), False, "not closed"),
    "of a pod that is not preemptable": (batch(0, annotations={}), (), True, "does not say that it is preemptable"),
    "off a lent node that is open": (batch(0, "lent"), (fence(),), True, "not closed"),
    "of a job that spares none": (
        batch(0, annotations={**SAYS_SO, "volcano.sh/jdb-max-unavailable": "0"}),
        (),
        True,
        "spares no pod",
    ),
}


@pytest.mark.parametrize(("one", "fences", "for_room", "why"), EVICTIONS.values(), ids=EVICTIONS)
def test_right_before_an_eviction_the_pod_is_looked_at_again(
    one: Pod, fences: tuple[Pod, ...], why: str, *, for_room: bool
) -> None:
    own, neighbours = Snapshot(pods=fences), Snapshot(pods=(one,))
    found = why_not_evicted(one, neighbours, own, "berth-system", NOON, for_room=for_room)
    assert (why in found) if why else not found


def test_a_pod_that_the_list_of_its_neighbours_lacks_counts_as_its_whole_job() -> None:
    one = batch(0, annotations={**SAYS_SO, "volcano.sh/jdb-min-available": "1"})
    assert "spares no pod" in why_not_evicted(one, Snapshot(), Snapshot(), "berth-system", NOON, for_room=True)


def test_what_is_no_word_of_the_argument_is_refused() -> None:
    with pytest.raises(InputError, match="LastResort"):
        LentNodes.parse({"evictions": "Always"})


def test_preemptable_pods_that_keep_apart_make_room_too() -> None:
    """A term closes the nodes that have such a pod, and no others."""
    apart = {"labels": {"app": "batch"}, "affinity": anti_affinity(term(select=selector(app="batch")))}
    pods = [fence(), batch(0, **apart), service(), batch(1, "half", **apart), service(1, "half"), waiting()]
    assert [target for _, target in moves(planned(pods, usual(), usual("half"), lent()))] == ["lent"]
