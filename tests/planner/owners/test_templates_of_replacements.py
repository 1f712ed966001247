"""Pods whose replacement would be another one than the pod."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import (
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    ObjectMeta,
    Pod,
    PodTemplate,
    ResourceRequirements,
    SchedulingGate,
    Toleration,
    TopologySpreadConstraint,
    Volume,
)
from berth_core.labels import QUEUE_GATE
from berth_core.objects.pods import PersistentVolumeClaimSource, PodSystem
from berth_core.workloads import ClaimTemplate, ControllerRevision, RollingUpdate, UpdateStrategy
from berth_descheduler.framework.refusals import RefusalReason as Reason
from builders import volcano_job, volcano_pod, volcano_task
from planner.clusters import expression
from planner.owners.workloads import container, controller, pod_of, refusals_of, revision_of, template, with_spec

WEB = controller("ReplicaSet", "web", replicas=1)
APP = container(cpu="1", memory="1Gi")
FROM_WEB = "its ReplicaSet web makes the replacement from its template, which "
DEFAULT_TOLERATION = Toleration(
    key="node.kubernetes.io/not-ready", operator="Exists", effect="NoExecute", toleration_seconds=300
)
SPREAD = TopologySpreadConstraint(max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule")


def placed(*containers: Container, **spec: Any) -> Pod:  # noqa: ANN401 - fields of the spec
    return with_spec(pod_of(WEB, "web-a", **spec.pop("pod", {})), containers=containers or (APP,), **spec)


def near(*terms: NodeSelectorTerm) -> Affinity:
    required = NodeSelector(node_selector_terms=terms)
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))


def in_pool(*pools: str) -> Affinity:
    return near(NodeSelectorTerm(match_expressions=(expression("pool", "In", *pools),)))


@dataclass(frozen=True)
class Case:
    """The template, the pod, and what the sentence says after its beginning ("": the pod may move)."""

    want: str
    template: PodTemplate
    pod: Pod = field(default_factory=placed)


LINUX, WINDOWS = PodSystem(name="linux"), PodSystem(name="windows")
SIDECAR = container("proxy", cpu="500m")
STARTING = container("setup", cpu="3")
DATA = Volume(name="data", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data"))
TABLE = {
    "the same": Case("", template(APP)),
    "the same in other words": Case("", template(container(cpu="1000m", memory="1024Mi"))),
    "another operating system": Case("is for the operating system windows", template(APP, os=WINDOWS)),
    "the same operating system": Case("", template(APP, os=LINUX), placed(os=LINUX)),
    "more of a resource": Case("asks for cpu 2 instead of 1", template(container(cpu="2", memory="1Gi"))),
    "more of several resources": Case(
        "asks for cpu 2 instead of 1, asks for memory 2Gi instead of 1Gi", template(container(cpu="2", memory="2Gi"))
    ),
    "less of a resource": Case("", template(container(cpu="500m", memory="1Gi"))),
    "a resource that the pod has not": Case(
        "asks for nvidia.com/gpu 1", template(container(cpu="1", memory="1Gi", **{"nvidia.com/gpu": "1"}))
    ),
    "a limit that becomes a request": Case(
        "asks for cpu 4 instead of 1",
        template(Container(name="app", resources=ResourceRequirements(limits={"cpu": "4"}))),
    ),
    "requests that admission has set": Case("", template(container())),
    "a container that admission has added": Case("", template(APP), placed(APP, SIDECAR)),
    "more, which the container that admission adds comes on top of": Case(
        "asks for cpu 2500m instead of 1500m", template(container(cpu="2", memory="1Gi")), placed(APP, SIDECAR)
    ),
    "a container that the pod has not": Case("asks for cpu 1500m instead of 1", template(APP, SIDECAR)),
    "an init container that asks for more": Case(
        "asks for cpu 3 instead of 1",
        PodTemplate(spec=msgspec.structs.replace(template(APP).spec, init_containers=(STARTING,))),
    ),
    "a pod as a whole that asks for more": Case(
        "asks for cpu 6 instead of 1", template(APP, resources=ResourceRequirements(requests={"cpu": "6"}))
    ),
    "a pod as a whole that asks for less than its containers do by the template": Case(
        "asks for cpu 1 instead of 500m",
        template(APP),
        placed(APP, resources=ResourceRequirements(requests={"cpu": "500m"})),
    ),
    "an overhead that the pod has not": Case("asks for cpu 3 instead of 1", template(APP, overhead={"cpu": "2"})),
    "the overhead that the pod has": Case("", template(APP, overhead={"cpu": "2"}), placed(overhead={"cpu": "2"})),
    "an overhead by the runtime class": Case("", template(APP), placed(overhead={"cpu": "2"})),
    "requests that cannot be read": Case("has requests that cannot be read", template(container(cpu="many"))),
    "a node by name": Case("names the node node-a", template(APP, node_name="node-a")),
    "a gate of others": Case(
        "waits until another program takes off the scheduling gate example.com/quota",
        template(APP, scheduling_gates=(SchedulingGate(name="example.com/quota"),)),
    ),
    "the gate of a queue of Berth": Case("", template(APP, scheduling_gates=(SchedulingGate(name=QUEUE_GATE),))),
    "other nodes": Case("selects nodes by pool=b", template(APP, node_selector={"pool": "b"})),
    "other nodes than now": Case(
        "selects nodes by pool=b", template(APP, node_selector={"pool": "b"}), placed(node_selector={"pool": "a"})
    ),
    "nodes that admission selects": Case("", template(APP), placed(node_selector={"pool": "a"})),
    "another affinity": Case("has another affinity", template(APP, affinity=in_pool("b"))),
    "the same affinity in another order": Case(
        "", template(APP, affinity=in_pool("a", "b")), placed(affinity=in_pool("b", "a"))
    ),
    "an affinity that admission has added": Case("", template(APP), placed(affinity=in_pool("a"))),
    "an affinity without terms": Case("", template(APP, affinity=Affinity()), placed(affinity=in_pool("a"))),
    "another toleration": Case(
        "tolerates dedicated", template(APP, tolerations=(Toleration(key="dedicated", operator="Exists"),))
    ),
    "tolerations that admission has added": Case("", template(APP), placed(tolerations=(DEFAULT_TOLERATION,))),
    "another spread": Case(
        "has another topologySpreadConstraint", template(APP, topology_spread_constraints=(SPREAD,))
    ),
    "a priority class": Case("has the priorityClassName high", template(APP, priority_class_name="high")),
    "a priority class by default": Case("", template(APP), placed(priority_class_name="default")),
    "a runtime class": Case("has the runtimeClassName gvisor", template(APP, runtime_class_name="gvisor")),
    "another scheduler": Case("has the schedulerName volcano", template(APP, scheduler_name="volcano")),
    "a scheduler that admission has chosen": Case(
        "", template(APP, scheduler_name="default-scheduler"), placed(scheduler_name="volcano")
    ),
    "a port of the node": Case(
        "needs the host port 80/TCP",
        template(msgspec.structs.replace(APP, ports=(ContainerPort(container_port=80, host_port=80),))),
    ),
    "the network of the node": Case(
        "needs the host port 80/TCP",
        template(msgspec.structs.replace(APP, ports=(ContainerPort(container_port=80),)), host_network=True),
    ),
    "a port of its own": Case("", template(msgspec.structs.replace(APP, ports=(ContainerPort(container_port=80),)))),
    "a claim": Case(
        "mounts the claim data",
        template(
            APP, volumes=(Volume(name="d", persistent_volume_claim=PersistentVolumeClaimSource(claim_name="data")),)
        ),
    ),
    "a volume that is made anew anywhere": Case("", template(APP, volumes=(Volume(name="tmp", empty_dir={}),))),
    "a disk in a pod's own spec": Case(
        "mounts the disk of volume d", template(APP, volumes=(Volume(name="d", cinder={"volumeID": "v"}),))
    ),
    "a device": Case("claims the device gpu", template(APP, resource_claims=({"name": "gpu"},))),
    "an autoscaler that has lowered the requests": Case(
        "",
        template(container(cpu="2", memory="4Gi")),
        placed(pod={"annotations": {"vpaUpdates": "Pod resources updated by web: container 0: cpu request"}}),
    ),
    "an autoscaler that has lowered them in place": Case(
        "", template(container(cpu="2", memory="4Gi")), placed(pod={"annotations": {"vpaInPlaceUpdated": "true"}})
    ),
    "what no autoscaler sets": Case(
        "asks for nvidia.com/gpu 1",
        template(container(cpu="2", **{"nvidia.com/gpu": "1"})),
        placed(pod={"annotations": {"vpaUpdates": "Pod resources updated by web: container 0: cpu request"}}),
    ),
}


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "Job"])
@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_pod_moves_only_if_its_replacement_asks_for_no_more(case: Case, kind: str) -> None:
    spec: dict[str, Any] = {"backoff_limit": 9} if kind == "Job" else {"replicas": 1}
    maker = controller(kind, "web", template=case.template, **spec)
    asked = msgspec.structs.replace(
        case.pod,
        metadata=msgspec.structs.replace(
            case.pod.metadata, owner_references=pod_of(maker, "x").metadata.owner_references
        ),
    )

    refusals = refusals_of(asked, maker)

    assert [refusal.reason for refusal in refusals] == ([Reason.TEMPLATE_DIFFERS] if case.want else [])
    begins = FROM_WEB.replace("ReplicaSet", kind) + case.want
    assert all(refusal.message.startswith(begins) for refusal in refusals)


@dataclass(frozen=True)
class Claims:
    """Claim templates, the claims in the pod template, those of db-1, and the end of the sentence ("": it may move)."""

    want: str
    templates: Sequence[str] = ()
    in_template: Mapping[str, str] = field(default_factory=dict)
    mounted: Mapping[str, str] = field(default_factory=lambda: {"data": "data-db-1"})


CLAIMS = {
    "the same": Claims("", ("data",)),
    "a further one": Claims("mounts the claim logs-db-1", ("data", "logs")),
    "one of another name": Claims("mounts the claim disk-db-1 and does not mount the claim data-db-1", ("disk",)),
    "none any more": Claims("does not mount the claim data-db-1"),
    "none, and the template names the claim": Claims("", in_template={"data": "data-db-1"}),
    "none, and the claim is another program's": Claims("", mounted={"models": "models"}),
}


@pytest.mark.parametrize("case", CLAIMS.values(), ids=CLAIMS.keys())
def test_a_pod_of_a_stateful_set_mounts_the_claims_that_its_claim_templates_name(case: Claims) -> None:
    maker = controller(
        "StatefulSet",
        "db",
        template=template(SMALL, volumes=volumes_of(case.in_template)),
        volume_claim_templates=tuple(ClaimTemplate(metadata=ObjectMeta(name=name)) for name in case.templates),
        pod_management_policy="Parallel",
        replicas=3,
    )
    asked = with_spec(pod_of(maker, "db-1"), containers=(SMALL,), volumes=volumes_of(case.mounted))

    refusals = refusals_of(asked, maker)

    beginning = "the replacement that its StatefulSet db makes "
    assert [refusal.message for refusal in refusals] == ([beginning + case.want] if case.want else [])
    assert all(refusal.reason is Reason.TEMPLATE_DIFFERS for refusal in refusals)


def volumes_of(claims: Mapping[str, str]) -> tuple[Volume, ...]:
    """Return volumes by name, each of a claim."""
    return tuple(
        Volume(name=name, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=claim))
        for name, claim in claims.items()
    )


SMALL, LARGE = container(cpu="1"), container(cpu="6")
REVISIONS = {"current_revision": "db-1", "update_revision": "db-2"}
FROM_DB = "its StatefulSet db makes the replacement from revision "
ON_DELETE = UpdateStrategy(type="OnDelete")


def rolling(partition: int | None) -> UpdateStrategy:
    return UpdateStrategy(type="RollingUpdate", rolling_update=RollingUpdate(partition=partition))


@dataclass(frozen=True)
class Revised:
    """How the StatefulSet updates, the revision of its pod db-1, and the sentence ("": the pod may move)."""

    want: str
    strategy: UpdateStrategy | None
    revision: str = "db-1"
    status: dict[str, Any] = field(default_factory=lambda: REVISIONS)
    held: Container = SMALL
    asked: Sequence[Container] = (LARGE,)


UPDATES = {
    "OnDelete takes the update revision": Revised(f"{FROM_DB}db-2, which asks for cpu 6 instead of 1", ON_DELETE),
    "a rolling update does so without a partition": Revised(
        f"{FROM_DB}db-2, which asks for cpu 6 instead of 1", rolling(None)
    ),
    "a rolling update does so from its partition on": Revised(
        f"{FROM_DB}db-2, which asks for cpu 6 instead of 1", rolling(1)
    ),
    "a StatefulSet without a strategy does so": Revised(f"{FROM_DB}db-2, which asks for cpu 6 instead of 1", None),
    "below the partition the pod's own revision is taken": Revised("", rolling(2)),
    "below the partition a revision is taken that is not known": Revised(
        f"{FROM_DB}db-1, which is not known", rolling(2), "db-2", held=LARGE
    ),
    "with one revision the template is taken": Revised(
        f"{FROM_DB}db-2, which asks for cpu 6 instead of 1",
        rolling(2),
        "db-2",
        {"current_revision": "db-2", "update_revision": "db-2"},
    ),
    "a pod that was resized in place is made from the template": Revised(
        f"{FROM_DB}db-2, which asks for cpu 6 instead of 1", rolling(0), "db-2"
    ),
    "a pod that was resized upwards holds more": Revised("", rolling(0), "db-2", held=LARGE, asked=(SMALL,)),
    "a status without revisions": Revised(
        "its StatefulSet db makes the replacement from its template, which asks for cpu 6 instead of 1",
        ON_DELETE,
        status={},
    ),
}


@pytest.mark.parametrize("case", UPDATES.values(), ids=UPDATES.keys())
def test_a_pod_of_a_stateful_set_is_made_from_the_revision_that_its_strategy_says(case: Revised) -> None:
    maker = controller(
        "StatefulSet",
        "db",
        template=template(*case.asked),
        status=case.status,
        pod_management_policy="Parallel",
        update_strategy=case.strategy,
        replicas=3,
    )
    asked = with_spec(
        pod_of(maker, "db-1", labels={"controller-revision-hash": case.revision}), containers=(case.held,)
    )

    refusals = refusals_of(asked, maker)

    assert [refusal.message for refusal in refusals] == ([case.want] if case.want else [])
    assert all(refusal.reason is Reason.TEMPLATE_DIFFERS for refusal in refusals)


KEPT = {
    "as the pod is": ("", (SMALL,), SMALL, "db-1", None),
    "what the pod of a later revision has not": (
        f"{FROM_DB}db-1, which asks for cpu 6 instead of 1",
        (LARGE,),
        SMALL,
        "db-2",
        None,
    ),
    "less than the pod of a later revision has": ("", (SMALL,), LARGE, "db-2", None),
    "that of an earlier StatefulSet of the name": (
        f"{FROM_DB}db-1, which is not known",
        (SMALL,),
        LARGE,
        "db-2",
        "uid-before",
    ),
}


@pytest.mark.parametrize(("want", "kept", "held", "revision", "uid"), KEPT.values(), ids=KEPT)
def test_below_the_partition_a_pod_is_made_from_what_the_current_revision_keeps(
    want: str, kept: Sequence[Container], held: Container, revision: str, uid: str | None
) -> None:
    maker = controller(
        "StatefulSet",
        "db",
        template=template(LARGE),
        status=REVISIONS,
        pod_management_policy="Parallel",
        update_strategy=rolling(2),
        replicas=3,
    )
    asked = with_spec(pod_of(maker, "db-1", labels={"controller-revision-hash": revision}), containers=(held,))
    revisions = (revision_of(maker, "db-1", template(*kept), uid=uid),)

    refusals = refusals_of(asked, maker, controller_revisions=revisions)

    assert [refusal.message for refusal in refusals] == ([want] if want else [])


@pytest.mark.parametrize("data", [{}, {"spec": None}, {"spec": {"template": 1}}, {"spec": {"template": {"spec": 1}}}])
def test_a_revision_of_another_form_says_nothing(data: dict[str, Any]) -> None:
    assert ControllerRevision(data=data).template is None


def test_a_later_revision_may_have_dropped_what_the_pod_selects() -> None:
    maker = controller(
        "StatefulSet", "db", template=template(SMALL), status=REVISIONS, update_strategy=ON_DELETE, replicas=1
    )
    made_before = pod_of(maker, "db-0", labels={"controller-revision-hash": "db-1"})
    made_since = pod_of(maker, "db-0", labels={"controller-revision-hash": "db-2"})
    spec: dict[str, Any] = {"containers": (SMALL,), "node_selector": {"pool": "a"}, "affinity": in_pool("a")}

    (refusal,) = refusals_of(with_spec(made_before, **spec), maker)

    assert refusal.message == f"{FROM_DB}db-2, which does not select nodes by pool=a, has another affinity"
    assert not refusals_of(with_spec(made_since, **spec), maker)


def test_a_task_of_a_volcano_job_has_a_template_of_its_own() -> None:
    task = msgspec.structs.replace(volcano_task(), template=template(container("c", cpu="32")))
    asked = volcano_pod()

    (refusal,) = refusals_of(asked, volcano_jobs=(volcano_job(task),))

    assert refusal.reason is Reason.TEMPLATE_DIFFERS
    assert "asks for cpu 32" in refusal.message
    assert not refusals_of(asked, volcano_jobs=(volcano_job(),))
