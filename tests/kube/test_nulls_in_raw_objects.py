"""What reads undecoded objects takes a null for a field that is not there, in every field that need not be there."""
# ruff: noqa: ANN401 - any JSON value

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from berth_core import ObjectReference, Reservation
from berth_core.migration_plans import PlannedMove
from berth_descheduler.migration.manifests.move_reservations import build_reservation
from berth_descheduler.migration.manifests.plans import PlanIdentity
from berth_descheduler.migration.moves.reservation_request import why_not_movable
from berth_descheduler.migration.operator.cleanup import build_ungate_operations
from berth_kube.surge import is_out
from berth_kube.surge_eligibility import (
    Around,
    controller_reference,
    is_ready,
    is_rolled_out,
    wanted_replicas,
    why_not_surge,
)
from berth_operator.capabilities.evictions.replacements import may_go

LABELS: Final = {"app": "web", "pod-template-hash": "abc"}
META: Final = {"namespace": "shop", "name": "web-abc-1", "uid": "u-1", "resourceVersion": "7"}
POD: Final[dict[str, Any]] = {
    "metadata": {
        **META,
        "labels": LABELS,
        "annotations": {"berth.volcano.sh/released": '{"replicaSet": "web-abc"}'},
        "generateName": "web-abc-",
        "deletionTimestamp": "2026-11-28T12:00:00Z",
        "finalizers": ["example.org/wait"],
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "u-rs", "controller": True}
        ],
    },
    "spec": {
        "nodeName": "n1",
        "schedulerName": "custom",
        "priority": 7,
        "priorityClassName": "high",
        "nodeSelector": {"zone": "a"},
        "terminationGracePeriodSeconds": 5,
        "schedulingGates": [{"name": "berth.volcano.sh/handover"}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": None}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "labelSelector": {"matchLabels": {"app": "web"}, "matchExpressions": []},
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]},
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                ]
            },
        },
        "containers": [
            {
                "name": "web",
                "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}},
                "ports": [{"containerPort": 80, "hostPort": None}],
            }
        ],
        "initContainers": [{"name": "init", "resources": {"requests": {"cpu": "1"}}, "restartPolicy": "Always"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}, "emptyDir": {}}],
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Fine", "lastTransitionTime": "2026-11-28T11:00:00Z"}
        ],
    },
}
REPLICA_SET: Final[dict[str, Any]] = {
    "metadata": {
        "namespace": "shop",
        "name": "web-abc",
        "uid": "u-rs",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-d", "controller": True}
        ],
    },
    "spec": {"replicas": 1, "minReadySeconds": 5, "selector": {"matchLabels": LABELS}},
}
DEPLOYMENT: Final[dict[str, Any]] = {
    "metadata": {"namespace": "shop", "name": "web", "uid": "u-d", "generation": 2},
    "spec": {"replicas": 1, "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
    "status": {"observedGeneration": 2, "updatedReplicas": 1, "replicas": 1},
}
QUOTA: Final[dict[str, Any]] = {
    "metadata": {"name": "few"},
    "spec": {},
    "status": {"hard": {"pods": "9"}, "used": {"pods": "1"}},
}
CLAIM: Final[dict[str, Any]] = {"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteMany"]}}
SERVICE: Final[dict[str, Any]] = {"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}}}
BUDGET: Final[dict[str, Any]] = {"metadata": {"name": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
SCALER: Final[dict[str, Any]] = {
    "metadata": {"name": "web"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "other"}},
}
STAYING: Final = {**POD, "metadata": {key: value for key, value in POD["metadata"].items() if "deletion" not in key}}
OWNER: Final = ObjectReference(api_version="apps/v1", kind="ReplicaSet", namespace="shop", name="web-abc", uid="u-rs")
MOVE: Final = PlannedMove(
    namespace="shop", pod="web-abc-1", pod_uid="u-1", source="n1", target="n2", owner=OWNER, wave=1
)
HOUR: Final = timedelta(hours=1)
NOW: Final = datetime(2026, 11, 28, 12, tzinfo=UTC)
AROUND: Final = {
    "replica_set": REPLICA_SET,
    "deployment": DEPLOYMENT,
    "quota": QUOTA,
    "claim": CLAIM,
    "service": SERVICE,
    "budget": BUDGET,
    "scaler": SCALER,
}


def surge(raw: dict[str, Any], **changed: dict[str, Any]) -> str:
    parts = AROUND | changed
    around = Around(
        replica_set=parts["replica_set"],
        deployment=parts["deployment"],
        selecting=(("Service", parts["service"]), ("PodDisruptionBudget", parts["budget"])),
        controllers=(("ReplicaSet", parts["replica_set"]),),
        autoscalers=(parts["scaler"],),
        quotas=(parts["quota"],),
        claims=(parts["claim"],),
    )
    answer = why_not_surge(raw, around)
    return "it cannot be determined" if answer.startswith("it cannot be determined") else answer


READERS: Final[dict[str, tuple[Callable[[Any], object], dict[str, Any]]]] = {
    "is_ready": (is_ready, POD),
    "is_out": (is_out, POD),
    "controller_reference": (controller_reference, POD),
    "why_not_movable": (lambda raw: why_not_movable(raw, MOVE), POD),
    "build_ungate_operations": (build_ungate_operations, POD),
    "build_reservation": (
        lambda raw: Reservation.from_api(build_reservation(PlanIdentity("plan", "u-plan"), 0, MOVE, raw, HOUR)),
        POD,
    ),
    "a pod that may surge": (surge, STAYING),
    "a pod that may go": (lambda raw: may_go(STAYING, REPLICA_SET, [raw], NOW), STAYING),
    "is_rolled_out": (is_rolled_out, DEPLOYMENT),
    "wanted_replicas": (wanted_replicas, REPLICA_SET),
    **{
        f"a surge beside its {name}": ((lambda raw, name=name: surge(STAYING, **{name: raw})), body)
        for name, body in AROUND.items()
    },
}


FAILURES: Final = (("fails", False), "it cannot be determined")
MAPS: Final = {"labels", "annotations", "matchLabels", "nodeSelector", "hard", "requests", "limits"}
"""Whose values the API server never writes as null."""


def field_paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    match value:
        case dict():
            for key, inner in value.items():
                if not path or path[-1] not in MAPS:
                    yield (*path, key)
                yield from field_paths(inner, (*path, key))
        case list():
            for index, inner in enumerate(value):
                yield from field_paths(inner, (*path, index))


def changed(value: Any, path: tuple[str | int, ...], *, to_null: bool) -> Any:
    first, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[first] = changed(copy[first], tuple(rest), to_null=to_null)
    elif to_null:
        copy[first] = None
    else:
        del copy[first]
    return copy


def answer_of(reader: Callable[[Any], object], raw: Any) -> object:
    try:
        return reader(raw)
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        return "fails", isinstance(error, ValueError)


@pytest.mark.parametrize("name", READERS)
def test_null_is_absent_in_every_field(name: str) -> None:
    reader, body = READERS[name]
    assert answer_of(reader, body) != ("fails", False)
    for path in field_paths(body):
        absent = answer_of(reader, changed(body, path, to_null=False))
        if absent not in FAILURES:
            assert answer_of(reader, changed(body, path, to_null=True)) == absent, path
