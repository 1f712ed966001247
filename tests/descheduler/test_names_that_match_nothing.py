"""Every list of names of a policy: excluding what is not there is harmless, including only that moves nothing.

It is never an error, and it is said with a typed reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from berth_core import (
    DeschedulerPolicy,
    Namespace,
    NoDeadline,
    ObjectMeta,
    PriorityClass,
    RestrictionReason,
    StorageClass,
)
from berth_core.policies import DeschedulerPolicySpec, PluginConfig, Plugins, PluginSet, Profile
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.planner import Plan, plan
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import PlanInput, RunDefaults, find_restrictions, read_policy
from builders import NOON
from planner_settings import with_settings
from small_cluster import small_cluster

NOTHING, UNKNOWN = RestrictionReason.SELECTS_NOTHING, RestrictionReason.UNKNOWN_NAME
CONSOLIDATE = {"strategy": "Consolidate"}


@dataclass(frozen=True)
class Case:
    """A policy that names what is not there, and what comes of it."""

    args: Mapping[str, Any]
    field: str
    reason: RestrictionReason
    """Nothing is moved only where nothing is left that the field allows."""

    plugin: str = "Defragmentation"
    node_selector: str = ""


def evictor(field: str, value: object, reason: RestrictionReason, *, of: str = "") -> Case:
    return Case({field: value}, f"DefaultEvictor.{of or field}", reason, "DefaultEvictor")


CASES = {
    "a namespace that is left out": Case(
        {"evictableNamespaces": {"exclude": ["nowhere"]}}, "evictableNamespaces.exclude", UNKNOWN
    ),
    "a namespace beside one that exists": Case(
        {"evictableNamespaces": {"include": ["nowhere", "shop"]}}, "evictableNamespaces.include", UNKNOWN
    ),
    "the only namespace": Case(
        {"evictableNamespaces": {"include": ["nowhere"]}}, "evictableNamespaces.include", NOTHING
    ),
    "nodes that no node is": Case({}, "nodeSelector", NOTHING, node_selector="pool=none"),
    "a resource": Case({"strategy": "Threshold", "resourceType": "example.com/none"}, "resourceType", NOTHING),
    "a resource that Consolidate orders nodes by": Case({"resourceType": "example.com/none"}, "resourceType", UNKNOWN),
    "pods to make room for": Case({"strategy": "MakeRoom", "room": {"pods": ["shop/gone"]}}, "room.pods", NOTHING),
    "a queue to make room for": Case({"strategy": "MakeRoom", "room": {"queue": "none"}}, "room.queue", NOTHING),
    "an instance type with a price": Case({"nodePrice": {"instanceTypes": {"none": "1"}, "default": "1"}}, "", UNKNOWN),
    "the evictor, a namespace that is left out": evictor(
        "namespaces", {"exclude": ["nowhere"]}, UNKNOWN, of="namespaces.exclude"
    ),
    "the evictor, the only namespace": evictor(
        "namespaces", {"include": ["nowhere"]}, NOTHING, of="namespaces.include"
    ),
    "the evictor, nodes": evictor("nodeSelector", "pool=none", NOTHING),
    "the evictor, pods": evictor("labelSelector", {"matchLabels": {"app": "none"}}, NOTHING),
    "the evictor, namespaces by labels": evictor("namespaceLabelSelector", {"matchLabels": {"team": "none"}}, NOTHING),
    "the evictor, a PriorityClass": evictor("priorityThreshold", {"name": "none"}, NOTHING),
    "the evictor, a StorageClass": evictor(
        "podProtections",
        {
            "extraEnabled": ["PodsWithPVC"],
            "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "none"}]}},
        },
        UNKNOWN,
        of="protectedStorageClasses",
    ),
}


def policy_of(case: Case) -> DeschedulerPolicy:
    args: dict[str, dict[str, Any]] = {"Defragmentation": CONSOLIDATE}
    args[case.plugin] = {**args.get(case.plugin, {}), **case.args}
    config = tuple(PluginConfig(name=name, args=given) for name, given in args.items())
    plugins = Plugins(balance=PluginSet(enabled=("Defragmentation",)))
    profile = Profile(name="default", plugin_config=config, plugins=plugins)
    spec = DeschedulerPolicySpec(profiles=(profile,), node_selector=case.node_selector)
    return DeschedulerPolicy(metadata=ObjectMeta(name="first"), spec=spec)


def planned(policy: DeschedulerPolicy, *unreadable: PriorityClass | StorageClass | Namespace) -> Plan:
    run = read_policy(policy, RunDefaults(), installed_plugins())
    cluster = replace(small_cluster(), unreadable=unreadable)
    given = PlanInput(cluster, with_settings(run.planner_at(NOON), exact=False))

    def make(again: PlanInput) -> Plan:
        return plan(again.snapshot, again.settings)

    found = make(given)
    return replace(found, restrictions=find_restrictions(given, found, make, NoDeadline()))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_name_that_the_cluster_does_not_have_is_no_error_of_a_policy(case: Case) -> None:
    found = planned(policy_of(case))
    assert bool(found.moves) is (case.reason is UNKNOWN)
    named = {(one.fields, one.reason) for one in found.restrictions if one.reason in {NOTHING, UNKNOWN}}
    assert ((case.field,), case.reason) in named or (not case.field and not named)


@pytest.mark.parametrize("plugin", ["StarvingJobs", "LentNodes", "ReservationWindows"])
def test_plugins_for_jobs_and_windows_take_namespaces_that_are_not_there(plugin: str) -> None:
    config = (PluginConfig(name=plugin, args={"namespaces": {"include": ["nowhere"]}}),)
    profile = Profile(name="default", plugin_config=config, plugins=Plugins(balance=PluginSet(enabled=(plugin,))))
    spec = DeschedulerPolicySpec(profiles=(profile,))
    found = planned(DeschedulerPolicy(metadata=ObjectMeta(name="first"), spec=spec))
    assert found.moves == ()
    assert ((f"{plugin}.namespaces.include",), NOTHING) in {(one.fields, one.reason) for one in found.restrictions}


# --- names of what cannot be read -------------------------------------------------------------------------------------

WHY = "Expected `int`, got `str` - at `$.value`"


@pytest.mark.parametrize("name", ["none", ""], ids=["the class", "one without a readable name"])
def test_a_threshold_whose_class_cannot_be_read_keeps_the_pods_of_its_policy_and_says_why(name: str) -> None:
    unreadable = PriorityClass(metadata=ObjectMeta(name=name, unreadable=WHY))
    found = planned(policy_of(CASES["the evictor, a PriorityClass"]), unreadable)
    title = name or "without a readable name"
    text = f"priorityThreshold is not known, as PriorityClass {title} cannot be read: {WHY}"
    assert found.moves == ()
    assert (RefusalReason.UNREADABLE_OBJECT, text) in {(one.reason, one.message) for one in found.refused}
    restrictions = {one.reason: one.message for one in found.restrictions}
    assert restrictions[NOTHING].startswith(
        "DefaultEvictor.priorityThreshold names none, and this PriorityClass cannot be read; no pod is known"
    )
    assert restrictions[RestrictionReason.UNREADABLE_OBJECT].startswith(f"PriorityClass {title} cannot be read: {WHY}.")


def test_a_threshold_is_read_beside_another_class_that_cannot_be() -> None:
    case = evictor("priorityThreshold", {"value": 1000}, UNKNOWN)
    found = planned(policy_of(case), PriorityClass(metadata=ObjectMeta(name="other", unreadable=WHY)))
    assert found.moves


@pytest.mark.parametrize(
    ("case", "unreadable"),
    [
        ("a namespace that is left out", Namespace(metadata=ObjectMeta(name="nowhere", unreadable=WHY))),
        ("the evictor, a StorageClass", StorageClass(metadata=ObjectMeta(name="none", unreadable=WHY), provisioner="")),
    ],
)
def test_what_cannot_be_read_is_not_said_to_be_missing(case: str, unreadable: Namespace | StorageClass) -> None:
    found = planned(policy_of(CASES[case]), unreadable)
    assert [one.reason for one in found.restrictions if one.reason in {NOTHING, UNKNOWN}] == []
    assert found.moves
