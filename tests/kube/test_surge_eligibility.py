"""Which pods can surge, and why the others cannot."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from berth_core.errors import InputError
from berth_core.labels import RELEASED_ANNOTATION, RELEASED_HASH, TEMPLATE_HASH_LABEL
from berth_kube.resources import REPLICA_SETS
from berth_kube.surge import Note, build_release, build_return
from berth_kube.surge_eligibility import Around, ReadOnce, look_around, why_not_surge

Raw = dict[str, Any]

HASH: Final = "5d4f8c7b9"
LABELS: Final = {"app": "web", TEMPLATE_HASH_LABEL: HASH}


def owner(kind: str, name: str, api_version: str = "apps/v1") -> list[Raw]:
    return [{"apiVersion": api_version, "kind": kind, "name": name, "uid": f"uid-{name}", "controller": True}]


POD: Final[Raw] = {
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "uid-web-1",
        "resourceVersion": "7",
        "labels": LABELS,
        "ownerReferences": owner("ReplicaSet", "web-a"),
    },
    "spec": {"nodeName": "a", "containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]},
    "status": {"conditions": [{"type": "Ready", "status": "True"}]},
}
REPLICA_SET: Final[Raw] = {
    "metadata": {"name": "web-a", "ownerReferences": owner("Deployment", "web")},
    "spec": {"replicas": 1, "selector": {"matchLabels": LABELS}, "minReadySeconds": 3},
}
DEPLOYMENT: Final[Raw] = {
    "metadata": {"name": "web", "generation": 2},
    "spec": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}},
    "status": {"observedGeneration": 2, "updatedReplicas": 1},
}
AROUND: Final = Around(replica_set=REPLICA_SET, deployment=DEPLOYMENT, controllers=(("ReplicaSet", REPLICA_SET),))


def named(name: str, **spec: object) -> Raw:
    return {"metadata": {"name": name}, "spec": spec}


def pod(change: Callable[[Raw], object]) -> Raw:
    raw = copy.deepcopy(POD)
    change(raw)
    return raw


def deployment(change: Callable[[Raw], object]) -> Around:
    raw = copy.deepcopy(DEPLOYMENT)
    change(raw)
    return replace(AROUND, deployment=raw)


def quota(hard: str, used: str, *, of: str = "requests.cpu") -> Around:
    status = {"status": {"hard": {of: hard}, "used": {of: used}}}
    return replace(AROUND, quotas=({**named("small"), **status},))


def owned_by(kind: str, api_version: str = "apps/v1") -> Raw:
    return pod(lambda raw: raw["metadata"].update(ownerReferences=owner(kind, "x", api_version)))


def replica_set_of(*owners: Raw, **spec: object) -> Around:
    body = {**REPLICA_SET, "metadata": {"name": "web-a", "ownerReferences": list(owners)}}
    body["spec"] = REPLICA_SET["spec"] | spec
    return replace(AROUND, replica_set=body)


PLAIN: Final = {"matchLabels": {"app": "web"}}
BY_HASH: Final = {"matchLabels": LABELS}
SCALED: Final = {"scaleTargetRef": {"kind": "Deployment", "name": "web"}}
OTHER_SCALED: Final = {"scaleTargetRef": {"kind": "Deployment", "name": "api"}}
TWO: Final = {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}

CAN: Final[dict[str, tuple[Raw, Around]]] = {
    "a Ready pod of a Deployment": (POD, AROUND),
    "one whose Service selects by its own labels": (
        POD,
        replace(AROUND, selecting=(("Service", named("web", selector={"app": "web"})),)),
    ),
    "one under a budget": (
        POD,
        replace(AROUND, selecting=(("PodDisruptionBudget", named("web", selector=PLAIN)),)),
    ),
    "one beside a StatefulSet of other pods": (
        POD,
        replace(AROUND, controllers=(("StatefulSet", named("db", selector={"matchLabels": {"app": "db"}})),)),
    ),
    "one whose namespace scales another Deployment": (
        POD,
        replace(AROUND, autoscalers=(named("api", **OTHER_SCALED),)),
    ),
    "one whose quota has room": (POD, quota("3", "2")),
    "one whose quota is full of what it does not need": (POD, quota("10", "11", of="services")),
    "one with a volume for many nodes": (POD, replace(AROUND, claims=(named("all", accessModes=["ReadWriteMany"]),))),
    "one whose Service selects nothing": (POD, replace(AROUND, selecting=(("Service", named("none")),))),
}

CANNOT: Final[dict[str, tuple[Raw, Around, str]]] = {
    "a StatefulSet": (owned_by("StatefulSet"), Around(), "belongs to a StatefulSet"),
    "a Job": (owned_by("Job", "batch/v1"), Around(), "belongs to a Job"),
    "a DaemonSet": (owned_by("DaemonSet"), Around(), "belongs to a DaemonSet"),
    "a pod alone": (pod(lambda raw: raw["metadata"].pop("ownerReferences")), Around(), "no controller"),
    "a ReplicaSet that is gone": (POD, Around(), "ReplicaSet is gone"),
    "a bare ReplicaSet": (POD, replica_set_of(), "belongs to no Deployment"),
    "an Argo Rollout": (
        POD,
        replica_set_of(*owner("Rollout", "web", "argoproj.io/v1alpha1")),
        "belongs to a Rollout",
    ),
    "a ReplicaSet without the hash": (
        POD,
        replica_set_of(*owner("Deployment", "web"), selector=PLAIN),
        "does not select it by pod-template-hash",
    ),
    "Recreate": (POD, deployment(lambda raw: raw["spec"].update(strategy={"type": "Recreate"})), "Recreate"),
    "maxSurge 0": (POD, deployment(lambda raw: raw["spec"].update(strategy=TWO)), "maxSurge is 0"),
    "a change that is not observed": (
        POD,
        deployment(lambda raw: raw["metadata"].update(generation=3)),
        "rolled out or scaled",
    ),
    "a scale-down": (POD, deployment(lambda raw: raw["spec"].update(replicas=0)), "rolled out or scaled"),
    "a roll-out": (POD, deployment(lambda raw: raw["status"].update(updatedReplicas=0)), "rolled out or scaled"),
    "a Service by the hash": (
        POD,
        replace(AROUND, selecting=(("Service", named("blue", selector=LABELS)),)),
        "the Service blue selects pods by",
    ),
    "a budget by the hash": (
        POD,
        replace(AROUND, selecting=(("PodDisruptionBudget", named("blue", selector=BY_HASH)),)),
        "the PodDisruptionBudget blue selects pods by",
    ),
    "a ReplicaSet that would take it": (
        POD,
        replace(AROUND, controllers=(("ReplicaSet", named("all", selector=PLAIN)),)),
        "the ReplicaSet all would take it",
    ),
    "a ReplicationController that would take it": (
        POD,
        replace(AROUND, controllers=(("ReplicationController", named("all", selector={"app": "web"})),)),
        "the ReplicationController all would take it",
    ),
    "a HorizontalPodAutoscaler": (
        POD,
        replace(AROUND, autoscalers=(named("web", **SCALED),)),
        "would count one pod more",
    ),
    "a quota of CPU": (POD, quota("2500m", "2"), "the ResourceQuota small"),
    "a quota of pods": (POD, quota("2", "2", of="pods"), "the ResourceQuota small"),
    "a volume for one node": (
        POD,
        replace(AROUND, claims=(named("data", accessModes=["ReadWriteOnce"]),)),
        "its volume data is for one node",
    ),
    "a host port": (
        pod(lambda raw: raw["spec"]["containers"][0].update(ports=[{"hostPort": 80}])),
        AROUND,
        "a port of its node",
    ),
    "a pod that is not Ready": (pod(lambda raw: raw.update(status={})), AROUND, "not Ready"),
    "a gang": (
        pod(lambda raw: raw["metadata"].update(annotations={"scheduling.k8s.io/group-name": "g"})),
        AROUND,
        "belongs to a gang",
    ),
    "a selector that cannot be read": (
        POD,
        replace(AROUND, selecting=(("PodDisruptionBudget", named("odd", selector={"matchExpressions": 1})),)),
        "it cannot be determined",
    ),
    "a Deployment whose spec cannot be read": (
        POD,
        deployment(lambda raw: raw.update(spec=7)),
        "it cannot be determined",
    ),
    "a Deployment whose number cannot be read": (
        POD,
        deployment(lambda raw: raw["spec"].update(replicas="one")),
        "it cannot be determined",
    ),
    "a Deployment whose status cannot be read": (
        POD,
        deployment(lambda raw: raw["status"].update(observedGeneration="first")),
        "it cannot be determined",
    ),
    "a quota that cannot be read": (
        POD,
        replace(AROUND, quotas=({**named("odd"), "status": 7},)),
        "it cannot be determined",
    ),
}


@pytest.mark.parametrize("claim", CAN)
def test_it_can_surge(claim: str) -> None:
    raw, around = CAN[claim]
    assert why_not_surge(raw, around) == ""


@pytest.mark.parametrize("claim", CANNOT)
def test_it_cannot_surge(claim: str) -> None:
    raw, around, words = CANNOT[claim]
    assert words in why_not_surge(raw, around)


def test_a_release_is_one_patch_of_the_pod_as_it_was_seen() -> None:
    body = build_release(POD, AROUND, Note(plan="p", source="a"))["metadata"]

    assert body["resourceVersion"] == "7"
    assert body["labels"] == {TEMPLATE_HASH_LABEL: RELEASED_HASH}
    note = Note.read(body["annotations"])
    assert note == Note(plan="p", source="a", replica_set="web-a", hash=HASH, min_ready_seconds=3)
    first, also = body["ownerReferences"]
    assert first == POD["metadata"]["ownerReferences"][0]
    assert (also["kind"], also["uid"], also["controller"], also["blockOwnerDeletion"]) == (
        "Deployment",
        "uid-web",
        False,
        False,
    )


def test_taking_back_undoes_the_release() -> None:
    released = build_release(POD, AROUND, Note(plan="p", source="a"))["metadata"]
    raw = {"metadata": POD["metadata"] | released | {"ownerReferences": released["ownerReferences"][1:]}}

    body = build_return(raw, HASH)["metadata"]

    assert body["labels"] == {TEMPLATE_HASH_LABEL: HASH}
    assert body["annotations"] == {RELEASED_ANNOTATION: None}
    assert body["ownerReferences"] == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"plan": 1}'])
def test_a_note_that_cannot_be_read_says_nothing(text: str) -> None:
    assert Note.read({RELEASED_ANNOTATION: text}) == Note()


def test_a_replica_set_whose_owners_cannot_be_read_is_named() -> None:
    odd = {**REPLICA_SET, "metadata": {**REPLICA_SET["metadata"], "ownerReferences": 7}}
    objects = ReadOnce(lambda kind, _: [odd] if kind == REPLICA_SETS else [])
    with pytest.raises(InputError, match=r"^ReplicaSet shop/web-a: metadata.ownerReferences is unreadable"):
        look_around(objects, POD)
