"""Pods whose controller belongs to something that may answer an eviction in a way of its own."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from berth_core import OwnerReference
from berth_core.errors import InputError
from berth_core.snapshot import Snapshot
from berth_core.workloads import Workload
from berth_descheduler.framework.interfaces import ClusterView
from berth_descheduler.framework.refusals import Refusal, RefusalReason
from berth_descheduler.plugins.default_evictor import DefaultEvictor
from planner.owners.workloads import controller, pod_of, reference

EVICT = "descheduler.alpha.kubernetes.io/evict"


def above(kind: str, api_version: str) -> OwnerReference:
    return reference(kind, "shop", api_version=api_version)


OPERATED = controller("StatefulSet", "db", above=above("PostgresCluster", "example.com/v1"), replicas=1)


def refusals(
    maker: Workload, args: Mapping[str, Any] | None = None, annotations: Mapping[str, str] | None = None
) -> Sequence[Any]:
    asked = pod_of(maker, f"{maker.metadata.name}-0", annotations=annotations)
    view = ClusterView.of(Snapshot(pods=(asked,), workloads=(maker,)), None)
    return list(DefaultEvictor.parse(args or {}).filter(view)(asked))


@pytest.mark.parametrize(
    ("maker", "owner"),
    [
        ("ReplicaSet", above("Deployment", "apps/v1")),
        ("ReplicaSet", above("Rollout", "argoproj.io/v1alpha1")),
        ("ReplicationController", above("DeploymentConfig", "apps.openshift.io/v1")),
        ("Job", above("CronJob", "batch/v1")),
        ("Job", above("JobSet", "jobset.x-k8s.io/v1alpha2")),
        ("Job", above("ScaledJob", "keda.sh/v1alpha1")),
        ("StatefulSet", above("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")),
        ("StatefulSet", reference("Pod", "vllm-0")),
        ("StatefulSet", None),
    ],
    ids=lambda value: value if isinstance(value, str) else value.kind if value else "none",
)
def test_owners_that_let_pods_go_keep_none(maker: str, owner: OwnerReference | None) -> None:
    assert not refusals(controller(maker, "db", above=owner))


@pytest.mark.parametrize(
    "owner",
    [above("PostgresCluster", "example.com/v1"), above("Deployment", "example.com/v1"), above("ConfigMap", "v1")],
    ids=["of an operator", "of another group", "of the core"],
)
def test_an_owner_of_an_unknown_kind_keeps_the_pods_of_its_controllers(owner: OwnerReference) -> None:
    (refusal,) = refusals(controller("StatefulSet", "db", above=owner))

    assert refusal == Refusal(
        RefusalReason.UNKNOWN_OWNER,
        f"its StatefulSet db belongs to the {owner.kind} shop of {owner.api_version}, and it is not known what that "
        "does when a pod is evicted",
    )


def test_an_owner_that_only_collects_is_none_that_controls() -> None:
    owner = OwnerReference(api_version="example.com/v1", kind="Robot", name="shop", uid="uid-robot")

    assert not refusals(controller("StatefulSet", "db", above=owner))


@pytest.mark.parametrize("kinds", [["PostgresCluster.example.com"], ["*"]])
def test_a_policy_names_owners_that_do_no_harm(kinds: list[str]) -> None:
    assert not refusals(OPERATED, {"harmlessOwners": kinds})
    assert refusals(OPERATED, {"harmlessOwners": ["MySQLCluster.example.com"]})


def test_an_annotation_lets_a_single_pod_go() -> None:
    assert not refusals(OPERATED, annotations={EVICT: ""})


@pytest.mark.parametrize(
    ("raw", "field"),
    [
        ("Prometheus.monitoring.coreos.com", "harmlessOwners"),
        (["Prometheus"], "harmlessOwners[0]"),
        (["*", "prometheuses.monitoring.coreos.com"], "harmlessOwners[1]"),
        ([1], "harmlessOwners[0]"),
    ],
)
def test_a_kind_that_could_match_nothing_is_refused(raw: object, field: str) -> None:
    with pytest.raises(InputError) as refused:
        DefaultEvictor.parse({"harmlessOwners": raw})

    assert refused.value.field == field
