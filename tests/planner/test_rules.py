"""Rules that plugins hand over keep pods and nodes out of plans, and are asked whenever a plan is looked at again."""

from dataclasses import replace
from typing import Any, NoReturn

import pytest

from berth_core import Node, Pod
from berth_core.migration_plans import MoveReason
from berth_core.snapshot import Snapshot
from berth_descheduler.framework.enabled_plugins import Enabled
from berth_descheduler.framework.refusals import Refusal
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.framework.rules import GuardedRule, NodeRole, Rule
from berth_descheduler.migration.validation.revalidation import revalidate
from berth_descheduler.planner import PlannerSettings, plan
from builders import bare_pod, node, owner, pod
from planner.clusters import consolidating, making_room, settings
from planner_settings import Toy, ruled, with_plugins

KEPT = Refusal(Reason.REFUSED_BY_PLUGIN, "Toy: it stays")


class NoUse(Rule):
    """Refuses every node with a label for some uses."""

    def __init__(self, *uses: NodeRole) -> None:
        self._uses = uses

    def node_refusal(self, node: Node, use: NodeRole) -> Refusal | None:
        return KEPT if use in self._uses and node.metadata.labels.get("toy") == "keep" else None


class KeepsPod(Rule):
    def pod_refusal(self, pod: Pod) -> Refusal | None:
        return KEPT if pod.metadata.name == "small" else None


class WeighsNodes(Rule):
    @property
    def weighs_nodes(self) -> bool:
        return True

    def node_weight(self, node: Node) -> int | None:
        return 2_000_000 if node.metadata.labels.get("toy") == "dear" else 1_000_000


WAYS = {
    "threshold": settings(low=60, defragment=60, protection=100, wholeNodes=True),
    "single pods": settings(low=60, defragment=60, protection=100, wholeNodes=False),
    "consolidate": consolidating(),
    "make room": making_room(shapes=("cpu=8",)),
}


def cluster(labelled: str = "") -> Snapshot:
    """One small pod on `low`, and room for it on `high`, which is well used."""
    labels = {"toy": "keep"}
    nodes = tuple(node(name, cpu="8", labels=labels if name == labelled else {}) for name in ("low", "high"))
    small = pod("small", node="low", cpu="1", memory=None, controller=owner(name="small"))
    return Snapshot(nodes=nodes, pods=(small, bare_pod("base", node="high", cpu="6", memory=None)))


@pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)
def test_a_rule_of_a_plugin_keeps_pods_and_nodes_out_of_every_strategys_plans(how: PlannerSettings) -> None:
    source, target = NoUse(NodeRole.SOURCE), NoUse(NodeRole.TARGET)

    assert [move.target for move in plan(cluster(), ruled(how, source, KeepsPod())).moves] == []
    assert [move.target for move in plan(cluster("low"), ruled(how, source)).moves] == []
    assert [move.target for move in plan(cluster("high"), ruled(how, target)).moves] == []
    assert [move.target for move in plan(cluster("high"), ruled(how, source)).moves] == ["high"]


class NoGain(Rule):
    def gain_refusal(self, node: Node) -> Refusal | None:
        return KEPT if node.metadata.labels.get("toy") == "keep" else None


@pytest.mark.parametrize("name", WAYS)
def test_a_node_that_a_rule_calls_no_gain_is_left_only_for_room(name: str) -> None:
    made = plan(cluster("low"), ruled(WAYS[name], NoGain()))

    assert [move.target for move in made.moves] == (["high"] if name == "make room" else [])
    assert made.freed_nodes == ()
    assert [move.target for move in plan(cluster("high"), ruled(WAYS[name], NoGain())).moves] == ["high"]


def test_a_rule_against_targets_lets_pods_leave() -> None:
    how = ruled(consolidating(), NoUse(NodeRole.TARGET))

    assert [move.target for move in plan(cluster("low"), how).moves] == ["high"]


@pytest.mark.parametrize(
    ("rule", "labelled", "want"),
    [
        (KeepsPod(), "", MoveReason.FILTERED),
        (NoUse(NodeRole.SOURCE), "low", MoveReason.FILTERED),
        (NoUse(NodeRole.SOURCE, NodeRole.TARGET), "low", MoveReason.FILTERED),
        (NoUse(NodeRole.TARGET), "high", MoveReason.TARGET_UNFIT),
    ],
)
def test_a_rule_is_asked_again_when_a_plan_is_looked_at_again(rule: Rule, labelled: str, want: MoveReason) -> None:
    moves = plan(cluster(), consolidating()).moves

    invalid = revalidate(cluster(labelled), moves, ruled(consolidating(), rule))

    assert [(why.reason, KEPT.message in why.message) for why in invalid.values()] == [(want, True)]


def test_a_rule_that_weighs_nodes_decides_which_are_freed() -> None:
    pods = tuple(pod(name, node=name, cpu="3", memory=None, controller=owner(name=name)) for name in ("a", "b", "full"))
    nodes = (node("a", cpu="4"), node("b", cpu="4", labels={"toy": "dear"}), node("full", cpu="6"))
    snapshot = Snapshot(nodes=nodes, pods=pods)

    made = plan(snapshot, ruled(consolidating(max_moves=1), WeighsNodes()))

    assert made.freed_nodes == ("b",)
    assert made.predicted.freed_price_per_hour == "2"


def test_a_plugin_that_is_enabled_twice_hands_its_rules_over_once() -> None:
    toy = Enabled("Toy", Toy((KeepsPod(),)))
    how = with_plugins(consolidating(), filters=(toy, toy))

    assert [type(rule) for rule in how.rules].count(GuardedRule) == 1


def test_a_rule_takes_the_place_of_the_one_of_its_type() -> None:
    first, second = KeepsPod(), KeepsPod()

    ruled_twice = replace(consolidating(), rules=()).with_rule(first).with_rule(second)

    assert ruled_twice.rules == (second,)
    assert ruled_twice.without_rule(second).rules == ()


class Fails(Rule):
    """Fails at one question."""

    def __init__(self, question: str) -> None:
        def fail(*_: object) -> NoReturn:
            raise KeyError(question)

        setattr(self, question, fail)


@pytest.mark.parametrize("question", ["on", "pod_refusal", "node_refusal"])
def test_a_rule_of_a_plugin_that_fails_keeps_every_pod(question: str) -> None:
    made = plan(cluster(), ruled(consolidating(), Fails(question)))

    assert made.moves == ()
    assert any(f"the plugin Toy failed: KeyError: '{question}'" in refused.message for refused in made.refused)


@pytest.mark.parametrize("question", ["node_weight", "may_evict", "limits"])
def test_a_rule_of_a_plugin_that_fails_allows_nothing(question: str) -> None:
    how = ruled(consolidating(), Fails(question))
    (rule,) = (one for one in how.rules if isinstance(one, GuardedRule))

    assert plan(cluster(), how).moves == plan(cluster(), consolidating()).moves
    assert rule.node_weight(node("a")) is None
    assert rule.may_evict(pod("small", node="low")) is False
    assert list(rule.limits(cluster())) == []


def test_what_is_no_refusal_keeps_the_pod() -> None:
    class Talks(Rule):
        def pod_refusal(self, pod: Pod) -> Any:  # noqa: ANN401 - as code of others may
            return f"{pod.metadata.name} stays"

    made = plan(cluster(), ruled(consolidating(), Talks()))

    assert any("a rule refuses with a Refusal, not str" in refused.message for refused in made.refused)
