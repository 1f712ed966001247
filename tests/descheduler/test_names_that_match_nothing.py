"""Every list of names of a policy: excluding what is not there is harmless, including only that moves nothing.

It is never an error, and it is said with a typed reason.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest

from berth_core import DeschedulerPolicy, NoDeadline, ObjectMeta, RestrictionReason
from berth_core.policies import DeschedulerPolicySpec, PluginConfig, Plugins, PluginSet, Profile
from berth_descheduler.planner import Plan, plan
from berth_descheduler.plugins import installed_plugins
from berth_descheduler.policy import PlanInput, RunDefaults, find_restrictions, read_policy
from builders import NOON
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


def planned(policy: DeschedulerPolicy) -> Plan:
    run = read_policy(policy, RunDefaults(), installed_plugins())
    given = PlanInput(small_cluster(), replace(run.planner_at(NOON), exact=False))

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
