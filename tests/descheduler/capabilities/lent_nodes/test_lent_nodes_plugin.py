"""The plugin `LentNodes` names what has to leave closed lent nodes, by the budgets of the jobs."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from berth_core import InputError, Node, Pod, Snapshot, format_timestamp
from berth_descheduler.capabilities.lent_nodes.jobs import why_not_evicted
from berth_descheduler.capabilities.lent_nodes.plugin import LentNodes
from berth_descheduler.framework import Candidate, ClusterView, RefusalReason
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.interfaces import FailedMoves, PastMove
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import Plan, plan
from berth_descheduler.plugins.registry import default_settings
from berth_descheduler.report.summary import summarise_plan
from builders import NOON, bare_pod, node, owner, pod, volcano_pod_group
from planner_settings import with_settings

LONG: Final = timedelta(minutes=30)
GROUP: Final = {"scheduling.k8s.io/group-name": "train"}


def lent(name: str = "lent") -> Node:
    return node(name, labels={"volcano.sh/revocable-zone": "rz1"})


def fence(kind: str = "lent-closed", on: str = "lent") -> Pod:
    labels = {"berth.volcano.sh/fence": "true", "berth.volcano.sh/standing-fence": kind}
    return pod(f"fence-{on}", namespace="berth-system", node=on, labels=labels)


def members(count: int, *, on: str = "lent", first: int = 0, **notes: str) -> list[Pod]:
    said = GROUP | {f"volcano.sh/{key.replace('_', '-')}": value for key, value in notes.items()}
    return [pod(f"train-{number}", node=on, annotations=said) for number in range(first, first + count)]


def dated_fence(hour: datetime, period: str = "1m", on: str = "lent") -> Pod:
    notes = {"berth.volcano.sh/evict-period": period, "berth.volcano.sh/empty-by": format_timestamp(hour)}
    made = fence(on=on)
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, annotations=notes))


def preemptable(one: Pod) -> Pod:
    labels = {"volcano.sh/preemptable": "true"}
    return msgspec.structs.replace(one, metadata=msgspec.structs.replace(one.metadata, labels=labels))


def around(*pods: Pod) -> tuple[Snapshot, Snapshot, str]:
    return Snapshot(nodes=(), pods=pods), Snapshot(nodes=(), pods=(fence(),)), "berth-system"


def named(*pods: Pod, **rest: Any) -> list[str]:  # noqa: ANN401 - as for `candidates`
    return [one.name for one in candidates(*pods, **rest)]


def candidates(
    *pods: Pod, nodes: tuple[Node, ...] = (), group: dict[str, str] | None = None, now: datetime | None = None
) -> list[Candidate]:
    train = volcano_pod_group("train")
    train = msgspec.structs.replace(train, metadata=msgspec.structs.replace(train.metadata, annotations=group or {}))
    snapshot = Snapshot(nodes=nodes or (lent(), node("usual")), pods=pods, pod_groups=(train,))
    return list(LentNodes.parse({}).deschedule(ClusterView.of(snapshot, now)))


def test_one_pod_of_each_job_leaves_a_closed_node() -> None:
    other = pod("other", node="lent")
    assert sorted(named(fence(), *members(3), other)) == ["other", "train-0"]


def test_none_leaves_an_open_node_or_one_that_is_not_lent() -> None:
    assert named(fence("lent-open"), *members(3)) == []
    assert named(*members(3)) == []
    assert named(fence(), *members(3), nodes=(node("lent"),)) == []


def test_a_fence_of_a_tenant_closes_no_node() -> None:
    forged = msgspec.structs.replace(fence(), metadata=msgspec.structs.replace(fence().metadata, namespace="tenant"))
    assert named(forged, *members(3)) == []


MISSING: Final[dict[str, tuple[Pod, float, int]]] = {
    "one that is about to run is waited for": (pod("train-9", annotations=GROUP), 30, 0),
    "one that has waited for a node for a period is not": (pod("train-9", annotations=GROUP), 60, 1),
    "nor if the run begins a little early": (pod("train-9", annotations=GROUP), 55, 1),
    "one on a node that is not Ready is waited for": (
        pod("train-9", node="usual", annotations=GROUP, ready=False),
        600,
        0,
    ),
    "until the hour": (pod("train-9", node="usual", annotations=GROUP, ready=False), 3600, 1),
}


@pytest.mark.parametrize(("missing", "seconds", "want"), MISSING.values(), ids=MISSING)
def test_the_next_of_a_job_waits_for_the_one_before(missing: Pod, seconds: float, want: int) -> None:
    now = NOON + timedelta(seconds=seconds)
    assert len(named(dated_fence(hour=NOON + timedelta(hours=1)), *members(3), missing, now=now)) == want


def test_pods_that_are_not_ready_on_closed_nodes_leave_first_and_keep_no_others() -> None:
    broken = [pod(f"train-{number}", node="lent", annotations=GROUP, ready=False) for number in (7, 8)]
    assert named(fence(), *members(3), *broken, now=NOON + timedelta(days=1)) == ["train-7"]
    assert why_not_evicted(preemptable(broken[0]), *around(*members(3), *broken), NOON + timedelta(days=1)) == ""
    ending = msgspec.structs.replace(broken[0].metadata, deletion_timestamp=format_timestamp(NOON))
    broken[0] = msgspec.structs.replace(broken[0], metadata=ending)
    assert named(fence(), *members(3), *broken) == []


def test_a_node_that_was_closed_outside_of_a_window_is_emptied_too() -> None:
    broken = pod("train-9", node="usual", annotations=GROUP, ready=False)
    for minutes, want in ((9, 0), (10, 1)):
        assert len(named(fence(), *members(3), broken, now=NOON + timedelta(minutes=minutes))) == want


def test_a_pod_that_has_to_stay_keeps_the_others_of_its_job_for_a_period_only() -> None:
    turns = [named(fence(), *members(3), now=NOON + timedelta(minutes=minute)) for minute in range(3)]
    assert sorted(turns) == [["train-0"], ["train-1"], ["train-2"]]


def of_failed(*pods: Pod, times: int, minutes: float, hour: datetime | None = None) -> list[str]:
    """Return what leaves so many minutes after the last of so many failed moves of `train-0`."""
    snapshot = Snapshot(nodes=(lent(), node("usual")), pods=(dated_fence(hour or NOON + timedelta(days=1)), *pods))
    failed = {members(1)[0].metadata.uid: FailedMoves(times, NOON)}
    view = ClusterView.of(snapshot, NOON + timedelta(minutes=minutes), failed=failed)
    return [one.name for one in LentNodes.parse({}).deschedule(view)]


def test_a_pod_whose_moves_fail_rests_twice_as_long_after_each_and_others_go_meanwhile() -> None:
    for times, rest in ((1, 2), (2, 4), (3, 8), (20, 30)):
        assert of_failed(*members(1), times=times, minutes=rest - 0.1) == []
        assert of_failed(*members(1), times=times, minutes=rest) == ["train-0"]
    others = {name for minutes in range(3, 6) for name in of_failed(*members(3), times=9, minutes=minutes)}
    assert others == {"train-1", "train-2"}


def test_a_pod_whose_moves_fail_is_evicted_once_its_node_is_due() -> None:
    soon = NOON + timedelta(minutes=2)
    assert of_failed(preemptable(members(1)[0]), times=9, minutes=1, hour=soon) == ["train-0"]
    assert of_failed(*members(1), times=9, minutes=1, hour=soon) == [], "it would need a place"


def test_only_pods_of_the_zones_that_are_named_leave() -> None:
    nodes = (lent(), node("other", labels={"volcano.sh/revocable-zone": "rz2"}))
    pods = (*members(1), pod("web", node="other"))
    snapshot = Snapshot(nodes=nodes, pods=(fence(), fence(on="other"), *pods))
    for zones, want in ((["rz1"], ["train-0"]), (["rz2"], ["web"]), (["rz3"], []), ([], ["train-0", "web"])):
        named_pods = LentNodes.parse({"zones": zones}).deschedule(ClusterView.of(snapshot))
        assert sorted(one.name for one in named_pods) == want


LATER: Final = NOON + timedelta(days=1)
BY_OTHERS: Final[dict[str, tuple[PastMove, datetime, datetime, int]]] = {
    "the run of another zone took one in the period": (PastMove("web", "other", NOON), LATER, LATER, 0),
    "it did so before the period": (PastMove("web", "other", NOON - timedelta(minutes=30)), LATER, LATER, 1),
    "it took one of another job": (PastMove("mail", "other", NOON), LATER, LATER, 1),
    "a plan took one off a node that is not lent": (PastMove("web", "usual", NOON), LATER, LATER, 1),
    "it took one whose node has to be empty later": (PastMove("web", "other", NOON), LATER, LATER + LONG, 0),
    "it did so though the time is short here": (PastMove("web", "other", NOON), NOON + LONG, LATER, 1),
    "it did so where the time is as short": (PastMove("web", "other", NOON), NOON + LONG, NOON + LONG, 0),
}


@pytest.mark.parametrize(("move", "hour", "other_hour", "want"), BY_OTHERS.values(), ids=BY_OTHERS)
def test_a_job_on_nodes_of_several_zones_loses_one_pod_in_a_period_of_theirs(
    move: PastMove, hour: datetime, other_hour: datetime, want: int
) -> None:
    nodes = (lent(), node("other", labels={"volcano.sh/revocable-zone": "rz2"}), node("usual"))
    web = owner(name="web", uid="web")
    pods = [pod(f"web-{index}", node=on, controller=web) for index, on in enumerate(("lent", "lent", "other", "other"))]
    fences = (dated_fence(hour, "30m"), dated_fence(other_hour, "30m", on="other"))
    snapshot = Snapshot(nodes=nodes, pods=(*fences, *pods))
    view = ClusterView.of(snapshot, NOON + timedelta(seconds=20), of_others=(move,))
    assert len(list(LentNodes.parse({"zones": ["rz1"]}).deschedule(view))) == want


@pytest.mark.parametrize("zones", ["rz1", [1], [""], {"rz1": True}])
def test_zones_are_a_list_of_names(zones: object) -> None:
    with pytest.raises(InputError, match="zones"):
        LentNodes.parse({"zones": zones})


def test_a_pod_of_another_namespace_joins_no_job_by_naming_its_controller() -> None:
    theirs = owner(name="web")
    pods = [pod(f"web-{number}", node="lent", controller=theirs) for number in range(4)]
    notes = {"volcano.sh/jdb-max-unavailable": "100%"}
    generous = pod("aaa", namespace="a", node="usual", controller=theirs, annotations=notes)
    assert len(named(fence(), generous, *pods)) == 1
    missing = pod("aaa", namespace="a", controller=theirs)
    assert len(named(fence(), missing, *pods)) == 1


def test_without_a_time_a_missing_pod_is_waited_for() -> None:
    assert named(fence(), *members(3), pod("train-9", annotations=GROUP)) == []


def test_only_preemptable_pods_with_a_controller_lose_their_place() -> None:
    said = {"volcano.sh/preemptable": "true"}
    by_label = pod("a", node="lent", labels=said, controller=owner(name="a"))
    by_note = pod("b", node="lent", annotations=said, controller=owner(name="b"))
    bare = bare_pod("d", node="lent", labels=said)
    found = candidates(fence(), by_label, by_note, pod("c", node="lent"), bare)
    assert {one.name: one.or_evict for one in found} == {"a": True, "b": True, "c": False, "d": False}
    of_group = candidates(fence(), *members(1), group=said)
    assert [one.or_evict for one in of_group] == [True]


def test_with_no_time_left_they_are_evicted_at_once_and_others_are_still_moved() -> None:
    pods = (preemptable(pod("a", node="lent", controller=owner(name="a"))), pod("c", node="lent"))
    for seconds, want in ((-91, None), (-90, frozenset[str]()), (0, frozenset[str]())):
        fenced = dated_fence(hour=NOON + timedelta(hours=1))
        found = candidates(fenced, *pods, now=NOON + timedelta(hours=1, seconds=seconds))
        assert {one.name: one.nodes for one in found} == {"a": want, "c": None}, seconds


def lasting(count: int, *, now: float, on: str = "lent", **notes: str) -> bool:
    """Return whether the pods of a job are moved only, so many seconds before the hour."""
    hour = NOON + timedelta(hours=1)
    pods = [preemptable(one) for one in members(count, on=on, **notes)]
    fences = (dated_fence(hour=hour), dated_fence(hour=hour + timedelta(minutes=30), on="later"))
    found = candidates(*fences, *pods, nodes=(lent(), lent("later")), now=hour - timedelta(seconds=now))
    return [one.nodes for one in found][:1] == [None]


def test_a_job_of_several_pods_has_no_time_left_so_much_earlier() -> None:
    assert [lasting(3, now=seconds) for seconds in (211, 210)] == [True, False]
    assert [lasting(4, now=seconds, jdb_max_unavailable="2") for seconds in (151, 150)] == [True, False]


def test_pods_on_the_node_that_is_due_first_leave_first_and_only_these_are_late() -> None:
    hour = NOON + timedelta(hours=1)
    fences = (dated_fence(hour + timedelta(minutes=30), on="lent"), dated_fence(hour, on="sooner"))
    pods = [preemptable(one) for one in (*members(2), *members(1, on="sooner", first=7))]
    nodes = (lent(), lent("sooner"))
    early = candidates(*fences, *pods, nodes=nodes, now=hour - timedelta(minutes=20))
    assert [(one.name, one.nodes) for one in early] == [("train-7", None)]
    late = candidates(*fences, *pods, nodes=nodes, now=hour - timedelta(seconds=80))
    assert [(one.name, one.nodes) for one in late] == [("train-7", frozenset())]
    gone = candidates(*fences, *pods[:2], nodes=nodes, now=hour)
    assert [one.nodes for one in gone] == [None]


def test_with_no_time_left_a_job_waits_no_longer_for_its_pods_elsewhere() -> None:
    hour = NOON + timedelta(hours=1)
    broken = pod("train-9", node="usual", annotations=GROUP, ready=False)
    found = [named(dated_fence(hour), *members(3), broken, now=hour - timedelta(seconds=s)) for s in (241, 240)]
    assert [len(one) for one in found] == [0, 1]
    train = [preemptable(one) for one in (*members(3), broken)]
    own = Snapshot(pods=(dated_fence(hour),))
    for seconds, want in ((241, "spares no pod"), (240, "")):
        why = why_not_evicted(train[0], Snapshot(pods=train), own, "berth-system", hour - timedelta(seconds=seconds))
        assert want in why
        assert bool(want) == bool(why)


def leave_beside_a_pod_that_others_delete(count: int, runs: Iterable[float]) -> list[float]:
    """Return how many seconds before the hour each pod of a job leaves; another is made again before every run."""
    hour, on_lent, left_at = NOON + timedelta(hours=1), members(count), []
    for seconds in runs:
        now = hour - timedelta(seconds=seconds)
        made = pod("train-9", annotations=GROUP, created=format_timestamp(now - timedelta(seconds=1)))
        gone = set(named(dated_fence(hour), *on_lent, made, now=now))
        on_lent = [one for one in on_lent if one.metadata.name not in gone]
        left_at += [seconds] * len(gone)
    return left_at


@pytest.mark.parametrize("delays", [(0, 0), (0, 29), (29, 0)])
@pytest.mark.parametrize("begun", range(0, 60, 5))
def test_pods_that_others_delete_keep_no_pod_past_the_hour(begun: int, delays: tuple[int, int]) -> None:
    evict_from = 60 * (3 + 1) + 30
    runs = [evict_from - begun - 60 * number - delays[number % 2] for number in range(5)]
    found = leave_beside_a_pod_that_others_delete(3, runs)
    assert len(found) == 3
    assert min(found) > 30, "its grace period ends before the hour"


def test_no_more_than_one_leaves_in_each_period_however_often_it_runs() -> None:
    assert leave_beside_a_pod_that_others_delete(3, range(270, 0, -10)) == [240, 180, 120]


def test_one_leaves_in_each_run_that_is_too_late_so_that_who_deletes_pods_keeps_none_for_ever() -> None:
    assert leave_beside_a_pod_that_others_delete(3, range(60, -600, -60)) == [60, 0, -60]


BUDGETS: Final[dict[str, tuple[dict[str, str], int]]] = {
    "nothing said": ({}, 1),
    "two may be missing": ({"jdb_max_unavailable": "2"}, 2),
    "half may be missing": ({"jdb_max_unavailable": "50%"}, 3),
    "a part of a pod counts as one": ({"jdb_max_unavailable": "1%"}, 1),
    "also of those that must be there": ({"jdb_min_available": "51%"}, 2),
    "four must be there": ({"jdb_min_available": "4"}, 2),
    "all must be there": ({"jdb_min_available": "100%"}, 0),
    "none may be missing": ({"jdb_max_unavailable": "0"}, 0),
    "what cannot be read": ({"jdb_max_unavailable": "many"}, 1),
}


@pytest.mark.parametrize(("notes", "want"), BUDGETS.values(), ids=BUDGETS)
def test_as_many_leave_as_the_budget_allows(notes: dict[str, str], want: int) -> None:
    pods = [*members(4, **notes), *members(2, on="usual", first=4, **notes)]
    assert len(named(fence(), *pods)) == want
    group = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in notes.items()}
    bare = [*members(4), *members(2, on="usual", first=4)]
    assert len(named(fence(), *bare, group=group)) == want


def test_pods_of_daemon_sets_and_static_pods_stay() -> None:
    agent = pod("agent", node="lent", labels={"pod-template-generation": "1"})
    static = pod("static", node="lent", annotations={"kubernetes.io/config.mirror": "x"})
    assert named(fence(), agent, static) == []


def test_it_takes_no_arguments() -> None:
    with pytest.raises(InputError):
        LentNodes.parse({"zone": "rz1"})


def test_a_plan_brings_them_to_other_nodes_and_to_no_lent_one() -> None:
    settings = default_settings()
    plugins = replace(settings.plugins, deschedule=(Enabled("LentNodes", LentNodes()),))
    settings = replace(settings, plugins=plugins)
    pods = (fence(), pod("web-0", node="lent"))
    found = plan(Snapshot(nodes=(lent(), lent("lent-2"), node("usual")), pods=pods), settings)
    assert [(move.pod, move.target) for move in found.moves] == [("web-0", "usual")]
    assert found.moves[0].reason == "LentNodes: the lent node lent is closed"
    nowhere = plan(Snapshot(nodes=(lent(), lent("lent-2")), pods=pods), settings)
    assert not nowhere.moves
    (stays,) = (one for one in nowhere.refused if one.name == "web-0")
    assert "revocable zone" in stays.message or stays.reason is RefusalReason.LENT_NODE


PREEMPTABLE: Final = {"volcano.sh/preemptable": "true"}


def planned(*pods: Pod, nodes: tuple[Node, ...] = (), **fields: Any) -> Plan:  # noqa: ANN401 - fields of the settings
    settings = with_settings(default_settings(), **fields)
    plugins = replace(settings.plugins, deschedule=(Enabled("LentNodes", LentNodes()),))
    snapshot = Snapshot(nodes=nodes or (lent(), lent("lent-2")), pods=(fence(), fence(on="lent-2"), *pods))
    return plan(snapshot, replace(settings, plugins=plugins))


def test_a_plan_evicts_what_no_node_takes_if_it_is_preemptable() -> None:
    jobs = [pod(name, node="lent", labels=PREEMPTABLE, controller=owner(name=name)) for name in ("a", "b")]
    usual = pod("usual", node="lent", controller=owner(name="c"))
    found = planned(*jobs, usual)
    moves = {move.pod: (move.target, move.reason) for move in found.moves}
    said = "LentNodes: the lent node lent is closed; no other node takes it"
    assert moves == dict.fromkeys(("a", "b"), ("", said))
    assert (found.predicted.moves, found.predicted.evictions) == (0, 2)
    assert summarise_plan(found).startswith("2 evictions")
    (stays,) = (one for one in found.refused if one.name == "usual")
    assert stays.reason is RefusalReason.LENT_NODE or "no other node takes it" in stays.message


def test_a_plan_says_that_it_has_tried_no_other_node_where_there_was_no_time() -> None:
    due = dated_fence(NOON)
    one = pod("a", node="lent", labels=PREEMPTABLE, controller=owner(name="a"))
    settings = with_settings(default_settings(), now=NOON)
    plugins = replace(settings.plugins, deschedule=(Enabled("LentNodes", LentNodes()),))
    found = plan(Snapshot(nodes=(lent(), node("usual")), pods=(due, one)), replace(settings, plugins=plugins))
    said = [(move.target, move.reason) for move in found.moves]
    assert said == [("", "LentNodes: the lent node lent is due to be empty; no other node is tried")]


def test_a_target_comes_before_an_eviction_and_siblings_wait_for_the_one_that_moves() -> None:
    notes = {"volcano.sh/jdb-max-unavailable": "2"}
    pods = [pod(f"web-{n}", node="lent", labels=PREEMPTABLE, annotations=notes, cpu="2") for n in range(2)]
    found = planned(*pods, nodes=(lent(), node("usual", cpu="3")))
    assert [(move.pod, move.target) for move in found.moves] == [("web-0", "usual")]


def test_evictions_count_for_the_limits_of_a_plan() -> None:
    jobs = [pod(name, node="lent", labels=PREEMPTABLE, controller=owner(name=name)) for name in "abc"]
    assert len(planned(*jobs, max_moves=2).moves) == 2
    assert len(planned(*jobs, max_moves_per_node=1).moves) == 1
    assert len(planned(*jobs, max_moves_per_namespace=1).moves) == 1


def test_a_plan_made_by_hand_evicts_nothing_from_nodes_that_are_open_or_not_lent() -> None:
    job = pod("a", node="lent", labels=PREEMPTABLE)
    found = planned(job)
    settings = found.settings

    def invalid(*pods: Pod, nodes: tuple[Node, ...] = (lent(),)) -> list[str]:
        later = Snapshot(nodes=nodes, pods=pods)
        return [one.reason.value for one in revalidate(later, found.moves, settings).values()]

    assert invalid(job, fence()) == []
    assert invalid(job, fence("lent-open")) == ["NodeNotClosed"]
    assert invalid(job) == ["NodeNotClosed"]
    assert invalid(job, fence(), nodes=(node("lent"),)) == ["NodeNotClosed"]
    assert invalid(pod("a", node="lent"), fence()) == ["NodeNotClosed"]


def test_the_example_of_the_page_enables_it() -> None:
    path = Path(__file__).parents[4] / "descheduler" / "docs" / "lent-nodes.yaml"
    body: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    (profile,) = body["spec"]["profiles"]
    assert profile["plugins"]["deschedule"]["enabled"] == ["LentNodes"]
