"""The plugin's arguments, as a policy gives them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from berth_core.errors import InputError
from berth_core.migration_plans import Objective
from berth_core.snapshot import Snapshot
from berth_descheduler.capability import Capability
from berth_descheduler.framework.interfaces import BalancePlugin
from berth_descheduler.goals import GOALS, OFFERED_GOALS, goal_named, read_goal
from berth_descheduler.planner import WaveLimits, plan
from berth_descheduler.plugins import goal_of
from berth_descheduler.plugins.defragmentation import DefragmentationArgs, NoBalance
from berth_descheduler.registry import EVERY_CAPABILITY
from builders import namespace, node, pod
from planner.clusters import settings
from planner_settings import planner_settings

UNKNOWN_FIELD = (
    "args is 'lowTresholds'; expected only coolDownTime, defragmentThresholds, evictableNamespaces, "
    "lowThresholds, minSavingsPerMove, nodePrice, numberOfNodes, protectionThresholds, resourceType, room, strategy, "
    "wholeNodes"
)
AN_AMOUNT = "an amount from 0 to a million with at most six decimals, such as 0.192"
WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a field that is not known": (
        {"lowTresholds": {"cpu": 40}},
        UNKNOWN_FIELD,
    ),
    "a percentage above 100": (
        {"protectionThresholds": {"cpu": 101}},
        "protectionThresholds.cpu is 101; expected a percentage from 0 to 100",
    ),
    "a percentage below 0": (
        {"lowThresholds": {"cpu": -1}},
        "lowThresholds.cpu is -1; expected a percentage from 0 to 100",
    ),
    "a percentage that is no number": (
        {"lowThresholds": {"cpu": "half"}},
        "lowThresholds.cpu is 'half'; expected a percentage from 0 to 100",
    ),
    "a percentage that is a truth": (
        {"lowThresholds": {"cpu": True}},
        "lowThresholds.cpu is True; expected a percentage from 0 to 100",
    ),
    "a percentage that is not finite": (
        {"lowThresholds": {"cpu": float("nan")}},
        "lowThresholds.cpu is nan; expected a percentage from 0 to 100",
    ),
    "a percentage that is a fraction": (
        {"lowThresholds": {"cpu": "1/3"}},
        "lowThresholds.cpu is '1/3'; expected a percentage from 0 to 100",
    ),
    "a percentage with an endless exponent": (
        {"lowThresholds": {"cpu": "1e-999999999"}},
        "lowThresholds.cpu is '1e-999999999'; expected a percentage from 0 to 100",
    ),
    "a price that is no amount": (
        {"strategy": "Consolidate", "nodePrice": {"default": "cheap"}},
        f"nodePrice.default is 'cheap'; expected {AN_AMOUNT}",
    ),
    "a price below 0": (
        {"strategy": "Consolidate", "nodePrice": {"instanceTypes": {"m5.large": -1}}},
        f"nodePrice.instanceTypes.m5.large is -1; expected {AN_AMOUNT}",
    ),
    "a price of which seven decimals would be cut": (
        {"strategy": "Consolidate", "nodePrice": {"default": "0.0000001"}},
        f"nodePrice.default is '0.0000001'; expected {AN_AMOUNT}",
    ),
    "a price that is not finite": (
        {"strategy": "Consolidate", "nodePrice": {"default": float("nan")}},
        f"nodePrice.default is nan; expected {AN_AMOUNT}",
    ),
    "prices that are no mapping": (
        {"strategy": "Consolidate", "nodePrice": 0.2},
        "nodePrice is 0.2; expected a mapping with one or more of annotation, label, instanceTypes, configMap, default",
    ),
    "prices from a source that is not known": (
        {"strategy": "Consolidate", "nodePrice": {"cloud": "aws"}},
        "nodePrice is 'cloud'; expected only annotation, configMap, default, instanceTypes, label",
    ),
    "prices by a label without a key": (
        {"strategy": "Consolidate", "nodePrice": {"label": ""}},
        "nodePrice.label is ''; expected the key of a node's label, such as example.com/price-per-hour",
    ),
    "prices of instance types that are no mapping": (
        {"strategy": "Consolidate", "nodePrice": {"instanceTypes": ["m5.large"]}},
        "nodePrice.instanceTypes is ['m5.large']; expected a mapping from instance type to price per hour",
    ),
    "prices with a strategy that does not go by them": (
        {"nodePrice": {"default": 0.2}},
        "nodePrice is {'default': '0.2'}; expected nothing with a strategy other than Consolidate",
    ),
    "savings without a price": (
        {"strategy": "Consolidate", "minSavingsPerMove": 0.01},
        "minSavingsPerMove is '0.01'; expected nothing without nodePrice, by which a node's moves save something",
    ),
    "savings that are no amount": (
        {"strategy": "Consolidate", "nodePrice": {"default": 1}, "minSavingsPerMove": True},
        f"minSavingsPerMove is True; expected {AN_AMOUNT}",
    ),
    "thresholds that are no mapping": (
        {"lowThresholds": 40},
        "lowThresholds is 40; expected a mapping from resource to percentage, such as {cpu: 40}",
    ),
    "thresholds without the resource type": (
        {"lowThresholds": {"memory": 40}},
        "lowThresholds is {'memory': 40}; expected a percentage for the resourceType cpu",
    ),
    "low above defragment": (
        {"lowThresholds": {"cpu": 75}},
        "lowThresholds.cpu is 75; expected at most defragmentThresholds.cpu, which is 70",
    ),
    "defragment as high as protection": (
        {"defragmentThresholds": {"cpu": 95}},
        "defragmentThresholds.cpu is 95; expected less than protectionThresholds.cpu, which is 95",
    ),
    "a resource type that is no text": (
        {"resourceType": 7},
        "resourceType is 7; expected a resource such as cpu, memory or nvidia.com/gpu",
    ),
    "a number of nodes below 0": ({"numberOfNodes": -1}, "numberOfNodes is -1; expected a whole number from 0 on"),
    "half a node": ({"numberOfNodes": 1.5}, "numberOfNodes is 1.5; expected a whole number from 0 on"),
    "a cool-down that is no time": (
        {"coolDownTime": "soon"},
        "coolDownTime is 'soon'; expected seconds, or a duration such as 30m",
    ),
    "a cool-down below 0": ({"coolDownTime": -5}, "coolDownTime is '-5s'; expected a length of time from 0 on"),
    "namespaces that are a list": (
        {"evictableNamespaces": ["a"]},
        "evictableNamespaces is ['a']; expected a mapping with a list include or a list exclude",
    ),
    "namespaces both included and excluded": (
        {"evictableNamespaces": {"include": ["a"], "exclude": ["b"]}},
        "evictableNamespaces is {'include': ['a'], 'exclude': ['b']}; expected include or exclude, not both",
    ),
    "namespaces that are no names": (
        {"evictableNamespaces": {"include": "a"}},
        "evictableNamespaces.include is 'a'; expected a list of names of namespaces",
    ),
    "a strategy that is not known": (
        {"strategy": "Luck"},
        "strategy is 'Luck'; expected one of Threshold, Consolidate, MakeRoom, MinimizeFragmentation",
    ),
    "whole nodes that are no truth": ({"wholeNodes": "yes"}, "wholeNodes is 'yes'; expected true or false"),
    "single pods with Consolidate": (
        {"strategy": "Consolidate", "wholeNodes": False},
        "wholeNodes is False; expected true or nothing with the strategy Consolidate",
    ),
    "single pods with MakeRoom": (
        {"strategy": "MakeRoom", "wholeNodes": False},
        "wholeNodes is False; expected true or nothing with the strategy MakeRoom",
    ),
    "whole nodes with MinimizeFragmentation": (
        {"strategy": "MinimizeFragmentation", "wholeNodes": True},
        "wholeNodes is True; expected false or nothing with the strategy MinimizeFragmentation",
    ),
}


@pytest.mark.parametrize(("raw", "want"), WRONG.values(), ids=WRONG.keys())
def test_what_is_wrong_is_said_in_one_sentence(raw: dict[str, Any], want: str) -> None:
    with pytest.raises(InputError) as caught:
        DefragmentationArgs.parse(raw)

    assert str(caught.value) == want


def test_without_arguments_the_recommended_values_hold() -> None:
    assert DefragmentationArgs.parse({}) == DefragmentationArgs()
    assert DefragmentationArgs().to_mapping() == {
        "resourceType": "cpu",
        "lowThresholds": {"cpu": 40},
        "defragmentThresholds": {"cpu": 70},
        "protectionThresholds": {"cpu": 95},
        "numberOfNodes": 0,
        "evictableNamespaces": {},
        "coolDownTime": "0s",
        "strategy": "Threshold",
        "wholeNodes": False,
    }


OURS: dict[str, Any] = {
    "resourceType": "memory",
    "protectionThresholds": {"memory": 90},
    "defragmentThresholds": {"memory": 75},
    "lowThresholds": {"memory": 30},
    "numberOfNodes": 2,
    "evictableNamespaces": {"exclude": ["kube-system"]},
    "coolDownTime": 600,
}


@pytest.mark.parametrize("fragment", ["fragmentThresholds", "FragmentThresholds", "DefragmentThresholds"])
def test_the_names_of_the_original_proposal_are_read(fragment: str) -> None:
    theirs = {f"{name[0].upper()}{name[1:]}": value for name, value in OURS.items() if name != "defragmentThresholds"}
    assert DefragmentationArgs.parse({**theirs, fragment: {"memory": 75}}) == DefragmentationArgs.parse(OURS)


def test_an_error_names_the_argument_as_it_was_given() -> None:
    with pytest.raises(InputError, match=r"^fragmentThresholds\.cpu is 101; expected a percentage from 0 to 100"):
        DefragmentationArgs.parse({"fragmentThresholds": {"cpu": 101}})


@pytest.mark.parametrize("turned", [False, True])
def test_two_names_of_one_argument_have_to_say_the_same(*, turned: bool) -> None:
    both: dict[str, Any] = {"defragmentThresholds": {"cpu": 60}, "fragmentThresholds": {"cpu": 70}}
    ordered = dict(reversed(both.items())) if turned else both
    want = (
        r"^fragmentThresholds is \{'cpu': 70\}; expected what defragmentThresholds says, of which it is another name: "
        r"give defragmentThresholds alone$"
    )
    with pytest.raises(InputError, match=want):
        DefragmentationArgs.parse(ordered)
    same = DefragmentationArgs.parse({name: {"cpu": 60} for name in ordered})
    assert same == DefragmentationArgs.parse({"defragmentThresholds": {"cpu": 60}})


def test_the_defaults_are_those_of_the_resource_type() -> None:
    args = DefragmentationArgs.parse({"resourceType": "nvidia.com/gpu"})

    assert args.low.to_mapping() == {"nvidia.com/gpu": 40}


def test_arguments_read_back_as_they_were() -> None:
    args = DefragmentationArgs.parse(
        {
            "resourceType": "memory",
            "lowThresholds": {"memory": "33.3%", "cpu": 20},
            "defragmentThresholds": {"memory": 60.5},
            "protectionThresholds": {"memory": 90},
            "numberOfNodes": 2,
            "evictableNamespaces": {"exclude": ["kube-system", "a"]},
            "coolDownTime": "1h30m",
        }
    )

    assert DefragmentationArgs.parse(args.to_mapping()) == args
    assert args.cool_down == timedelta(minutes=90)


@pytest.mark.parametrize("written", ["threshold", "Threshold", "THRESHOLD"])
def test_a_strategy_is_known_however_it_is_written(written: str) -> None:
    assert read_goal(written) is goal_named("Threshold")


def test_limits_that_allow_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="per_controller is 0; expected a whole number from 1 on"):
        WaveLimits(per_controller=0)
    with pytest.raises(InputError, match="maxMoves is -1; expected a whole number from 0 on"):
        planner_settings(max_moves=-1)


def test_a_namespace_that_does_not_exist_is_refused_where_a_person_has_typed_it_and_harmless_in_a_policy() -> None:
    snapshot = Snapshot(nodes=(node("a"),), pods=(pod(node="a"),), namespaces=(namespace("empty"),))

    plan(snapshot, settings(evictableNamespaces={"include": ["default"]}))
    plan(snapshot, settings(evictableNamespaces={"exclude": ["empty"]}))
    mistyped = settings(evictableNamespaces={"exclude": ["defualt"]})
    assert plan(snapshot, mistyped).moves == plan(snapshot, settings()).moves
    with pytest.raises(InputError) as caught:
        plan(snapshot, replace(mistyped, names_must_exist=True))
    assert (
        str(caught.value)
        == "evictableNamespaces is 'defualt'; expected a namespace of the cluster, such as default, empty"
    )


def objective_of(capability: Capability) -> Objective:
    """What plans of the capability's plugin record where a policy gives it no arguments."""
    assert capability.plugin is not None
    plugin = capability.plugin.parse({})
    assert isinstance(plugin, BalancePlugin)
    return plugin.objective


@pytest.mark.parametrize(
    ("recorded", "want_goal"),
    [
        *((Objective(strategy=goal.name), goal.name) for goal in OFFERED_GOALS),
        (Objective(strategy="Tidy"), "Consolidate"),
        (NoBalance(("Naming",)).objective, "SinglePods"),
        (NoBalance(("LentNodes",)).objective, "SinglePods"),
        *((objective_of(part), part.goal.name) for part in EVERY_CAPABILITY if part.goal and part.plugin),
    ],
)
def test_a_recorded_plan_says_what_it_is_for(recorded: Objective, want_goal: str) -> None:
    assert goal_of(recorded).name == want_goal


def test_a_goal_says_what_a_plan_for_it_has_to_keep_to() -> None:
    goals = {goal.name: goal for goal in GOALS}

    assert {name for name, goal in goals.items() if goal.frees_nodes} == {"Threshold", "Consolidate"}
    assert {name for name, goal in goals.items() if not goal.empties_nodes} == {"MakeRoom", "MinimizeFragmentation"}
    assert {name for name, goal in goals.items() if not goal.heeds_min_freed_nodes} == {"MakeRoom"}


@pytest.mark.parametrize(
    ("raw", "want"),
    [
        (
            {"room": {"shapes": ["cpu=1"]}},
            "room is {'shapes': ['cpu=1']}; expected nothing with a strategy other than MakeRoom",
        ),
        (
            {"strategy": "MakeRoom", "nodePrice": {"default": 1}},
            "nodePrice is {'default': '1'}; expected nothing with a strategy other than Consolidate",
        ),
    ],
)
def test_an_argument_of_another_goal_is_refused(raw: dict[str, Any], want: str) -> None:
    with pytest.raises(InputError) as caught:
        DefragmentationArgs.parse(raw)
    assert str(caught.value) == want
