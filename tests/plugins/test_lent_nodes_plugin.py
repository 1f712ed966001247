"""The plugin `LentNodes` names what has to leave closed lent nodes, by the budgets of the jobs."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import yaml

from berth_core import InputError, Node, Pod, Snapshot
from berth_descheduler.framework import ClusterView, RefusalReason
from berth_descheduler.framework.interfaces import Enabled
from berth_descheduler.planner import plan
from berth_descheduler.plugins.lent_nodes import LentNodes
from berth_descheduler.plugins.registry import default_settings
from builders import node, pod, volcano_pod_group

GROUP: Final = {"scheduling.k8s.io/group-name": "train"}


def lent(name: str = "lent") -> Node:
    return node(name, labels={"volcano.sh/revocable-zone": "rz1"})


def fence(kind: str = "lent-closed", on: str = "lent") -> Pod:
    labels = {"berth.volcano.sh/fence": "true", "berth.volcano.sh/standing-fence": kind}
    return pod(f"fence-{on}", namespace="berth-system", node=on, labels=labels)


def members(count: int, *, on: str = "lent", first: int = 0, **notes: str) -> list[Pod]:
    said = GROUP | {f"volcano.sh/{key.replace('_', '-')}": value for key, value in notes.items()}
    return [pod(f"train-{number}", node=on, annotations=said) for number in range(first, first + count)]


def named(*pods: Pod, nodes: tuple[Node, ...] = (), group: dict[str, str] | None = None) -> list[str]:
    train = volcano_pod_group("train")
    train = msgspec.structs.replace(train, metadata=msgspec.structs.replace(train.metadata, annotations=group or {}))
    snapshot = Snapshot(nodes=nodes or (lent(), node("usual")), pods=pods, pod_groups=(train,))
    return [one.name for one in LentNodes.parse({}).deschedule(ClusterView.of(snapshot))]


def test_one_pod_of_each_job_leaves_a_closed_node() -> None:
    other = pod("other", node="lent")
    assert sorted(named(fence(), *members(3), other)) == ["other", "train-0"]


def test_none_leaves_an_open_node_or_one_that_is_not_lent() -> None:
    assert named(fence("lent-open"), *members(3)) == []
    assert named(*members(3)) == []
    assert named(fence(), *members(3), nodes=(node("lent"),)) == []


def test_none_leaves_while_another_of_its_job_is_missing() -> None:
    leaving = pod("train-9", node="usual", annotations=GROUP, ready=False)
    assert named(fence(), *members(3), leaving) == []


BUDGETS: Final[dict[str, tuple[dict[str, str], int]]] = {
    "nothing said": ({}, 1),
    "two may be missing": ({"jdb_max_unavailable": "2"}, 2),
    "half may be missing": ({"jdb_max_unavailable": "50%"}, 3),
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


def test_the_example_of_the_page_enables_it() -> None:
    path = Path(__file__).parents[2] / "descheduler" / "docs" / "lent-nodes.yaml"
    body: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    (profile,) = body["spec"]["profiles"]
    assert profile["plugins"]["deschedule"]["enabled"] == ["LentNodes"]
