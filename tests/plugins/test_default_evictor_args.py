"""What the arguments of `DefaultEvictor` may say, and what is said of those that may not."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from berth_core.errors import InputError
from berth_core.selector_texts import format_selector
from berth_descheduler.plugins.default_evictor_args import (
    DefaultEvictorArgs,
    NoEvictionPolicy,
    PriorityThreshold,
    Protection,
)

PROTECTIONS = frozenset(Protection)
DEFAULT = frozenset(
    {Protection.LOCAL_STORAGE, Protection.DAEMON_SET, Protection.SYSTEM_CRITICAL, Protection.FAILED_BARE}
)


@dataclass(frozen=True)
class Bad:
    """Arguments, and what is said of them."""

    raw: dict[str, Any]
    want_field: str
    want_said: str


BAD = {
    "an argument that there is not": Bad({"minReplica": 2}, "args", "only evictDaemonSetPods"),
    "pods of a DaemonSet would not come back elsewhere": Bad(
        {"evictDaemonSetPods": True}, "evictDaemonSetPods", "false, as a DaemonSet makes its pod again on the same node"
    ),
    "no place can be held for the system's own pods": Bad(
        {"evictSystemCriticalPods": True}, "evictSystemCriticalPods", "false, as Kubernetes allows no place"
    ),
    "a bare pod would be lost": Bad(
        {"evictFailedBarePods": True}, "evictFailedBarePods", "false, as no controller would make such a pod again"
    ),
    "the same in the newer spelling": Bad(
        {"podProtections": {"defaultDisabled": ["PodsWithLocalStorage", "FailedBarePods"]}},
        "podProtections.defaultDisabled[1]",
        "only PodsWithLocalStorage, as no controller",
    ),
    "a protection that there is not": Bad(
        {"podProtections": {"extraEnabled": ["PodsWithGPU"]}},
        "podProtections.extraEnabled[0]",
        "one of PodsWithPVC, PodsWithResourceClaims, PodsWithoutPDB",
    ),
    "a protection in the list of the others": Bad(
        {"podProtections": {"defaultDisabled": ["PodsWithPVC"]}},
        "podProtections.defaultDisabled[0]",
        "one of DaemonSetPods",
    ),
    "protections that are no list": Bad(
        {"podProtections": {"extraEnabled": "PodsWithPVC"}}, "podProtections.extraEnabled", "a list"
    ),
    "protections that are no mapping": Bad({"podProtections": ["PodsWithPVC"]}, "podProtections", "a mapping with"),
    "both spellings at once": Bad(
        {"evictLocalStoragePods": True, "podProtections": {"extraEnabled": ["PodsWithPVC"]}},
        "evictLocalStoragePods",
        "nothing beside podProtections",
    ),
    "storage classes of a protection that is off": Bad(
        {"podProtections": {"config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}}}},
        "podProtections.config.PodsWithPVC",
        "PodsWithPVC in podProtections.extraEnabled",
    ),
    "a storage class without a name": Bad(
        {
            "podProtections": {
                "extraEnabled": ["PodsWithPVC"],
                "config": {"PodsWithPVC": {"protectedStorageClasses": [{"class": "fast"}]}},
            }
        },
        "podProtections.config.PodsWithPVC.protectedStorageClasses",
        "a list of mappings with the name",
    ),
    "a protection's settings that there are not": Bad(
        {"podProtections": {"extraEnabled": ["PodsWithPVC"], "config": {"PodsWithPVC": {"classes": []}}}},
        "podProtections.config.PodsWithPVC",
        "only protectedStorageClasses",
    ),
    "a name and a value of the priority": Bad(
        {"priorityThreshold": {"name": "high", "value": 1}}, "priorityThreshold", "a value or a name, not both"
    ),
    "a priority that is no number": Bad(
        {"priorityThreshold": {"value": "high"}}, "priorityThreshold.value", "a whole number"
    ),
    "a priority that is a truth": Bad({"priorityThreshold": {"value": True}}, "priorityThreshold.value", "a whole"),
    "a priority by another word": Bad({"priorityThreshold": {"class": "a"}}, "priorityThreshold", "a mapping with"),
    "fewer than no replicas": Bad({"minReplicas": -1}, "minReplicas", "a whole number from 0 on"),
    "replicas as text": Bad({"minReplicas": "2"}, "minReplicas", "a whole number from 0 on"),
    "an age without a unit": Bad({"minPodAge": 5}, "minPodAge", "a duration from 0 on such as 5m"),
    "an age that is none": Bad({"minPodAge": "soon"}, "minPodAge", "a duration"),
    "an age below zero": Bad({"minPodAge": "-5m"}, "minPodAge", "a duration from 0 on"),
    "a selector of nodes that is none": Bad({"nodeSelector": "pool batch"}, "nodeSelector", "a label selector"),
    "a selector of nodes as a mapping": Bad({"nodeSelector": {"pool": "batch"}}, "nodeSelector", "a label selector"),
    "a selector of pods as text": Bad({"labelSelector": "app=web"}, "labelSelector", "a mapping with matchLabels"),
    "an operator that there is not": Bad(
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["web"]}]}},
        "labelSelector.matchExpressions[0].operator",
        "In, NotIn, Exists or DoesNotExist",
    ),
    "an operator without its values": Bad(
        {"namespaceLabelSelector": {"matchExpressions": [{"key": "team", "operator": "In"}]}},
        "namespaceLabelSelector.matchExpressions[0].values",
        "a list of texts",
    ),
    "an operator with values that it has not": Bad(
        {"labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]}},
        "labelSelector.matchExpressions[0].values",
        "nothing with Exists",
    ),
    "labels that are no texts": Bad(
        {"labelSelector": {"matchLabels": {"app": 1}}}, "labelSelector.matchLabels", "texts"
    ),
    "namespaces both in and out": Bad(
        {"namespaces": {"include": ["a"], "exclude": ["b"]}}, "namespaces", "include or exclude, not both"
    ),
    "a policy about annotations that there is not": Bad(
        {"noEvictionPolicy": "Always"}, "noEvictionPolicy", "Preferred or Mandatory"
    ),
    "a flag that is no truth": Bad({"nodeFit": "yes"}, "nodeFit", "true or false"),
}


@pytest.mark.parametrize("case", BAD.values(), ids=BAD.keys())
def test_an_argument_that_is_wrong_is_named_with_what_would_be_right(case: Bad) -> None:
    with pytest.raises(InputError) as raised:
        DefaultEvictorArgs.parse(case.raw)

    assert raised.value.field == case.want_field
    assert case.want_said in raised.value.expected


def test_nothing_said_is_what_upstream_does_by_default() -> None:
    found = DefaultEvictorArgs.parse({})

    assert found == DefaultEvictorArgs()
    assert found.protections == DEFAULT


def test_every_argument_is_read() -> None:
    found = DefaultEvictorArgs.parse(
        {
            "nodeSelector": "pool=batch,!spot",
            "labelSelector": {"matchLabels": {"app": "web"}},
            "namespaceLabelSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]},
            "namespaces": {"exclude": ["kube-system"]},
            "priorityThreshold": {"name": "high"},
            "nodeFit": True,
            "minReplicas": 2,
            "minPodAge": "1h30m",
            "noEvictionPolicy": "Mandatory",
            "podProtections": {
                "defaultDisabled": ["PodsWithLocalStorage"],
                "extraEnabled": ["PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims"],
                "config": {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}, {"name": "slow"}]}},
            },
        }
    )

    selectors = (found.node_selector, found.label_selector, found.namespace_label_selector)
    assert [format_selector(one) for one in selectors if one] == ["pool in (batch),!spot", "app=web", "team in (a,b)"]
    assert not found.namespaces.allows("kube-system")
    assert found.priority_threshold == PriorityThreshold(name="high")
    assert (found.min_replicas, found.min_pod_age) == (2, timedelta(hours=1, minutes=30))
    assert found.no_eviction_policy is NoEvictionPolicy.MANDATORY
    assert found.protections == PROTECTIONS - {Protection.LOCAL_STORAGE}
    assert found.protected_storage_classes == {"fast", "slow"}


SPELLINGS = {
    "local storage": (
        {"evictLocalStoragePods": True},
        {"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}},
        DEFAULT - {Protection.LOCAL_STORAGE},
    ),
    "claims": (
        {"ignorePvcPods": True},
        {"podProtections": {"extraEnabled": ["PodsWithPVC"]}},
        DEFAULT | {Protection.CLAIM},
    ),
    "budgets": (
        {"ignorePodsWithoutPDB": True},
        {"podProtections": {"extraEnabled": ["PodsWithoutPDB"]}},
        DEFAULT | {Protection.WITHOUT_BUDGET},
    ),
}


@pytest.mark.parametrize(("older", "newer", "want"), SPELLINGS.values(), ids=SPELLINGS.keys())
def test_the_older_and_the_newer_spelling_mean_the_same(
    older: dict[str, Any], newer: dict[str, Any], want: frozenset[Protection]
) -> None:
    assert DefaultEvictorArgs.parse(older).protections == DefaultEvictorArgs.parse(newer).protections == want


@pytest.mark.parametrize("name", ["evictDaemonSetPods", "evictSystemCriticalPods", "evictFailedBarePods", "nodeFit"])
def test_what_is_switched_off_by_its_default_may_be_said_to_be_off(name: str) -> None:
    assert DefaultEvictorArgs.parse({name: False}) == DefaultEvictorArgs()


@pytest.mark.parametrize(
    "name", ["labelSelector", "minReplicas", "minPodAge", "podProtections", "nodeFit", "namespaces"]
)
def test_null_is_as_good_as_nothing(name: str) -> None:
    assert DefaultEvictorArgs.parse({name: None}) == DefaultEvictorArgs()
