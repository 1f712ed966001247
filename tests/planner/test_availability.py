"""Of each controller no more pods are gone at once than may be, those among them that are gone anyway."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from berth_core import ObjectMeta, OwnerReference, Pod
from berth_core.labels import RELEASED_HASH
from berth_core.snapshot import Snapshot
from berth_core.workloads import RollingUpdate, UpdateStrategy, Workload, WorkloadSpec, WorkloadStatus
from berth_descheduler.framework.refusals import RefusalReason as Reason
from berth_descheduler.planner import explain_kept_pods, plan
from berth_descheduler.planner.availability import Availability
from berth_descheduler.planner.disruption_budgets import pods_needing_surge, with_surges
from builders import bare_pod, node, owner, pod, workload
from planner.clusters import consolidating

SET = owner("StatefulSet", "db")
REPLICAS = owner("ReplicaSet", "web-1")
OLDER_REPLICAS = owner("ReplicaSet", "web-0")
DEPLOYMENT = owner("Deployment", "web")
JOB = owner("Job", "batch")
RC = OwnerReference(api_version="v1", kind="ReplicationController", name="rc", uid="uid-rc", controller=True)


def of(controller: OwnerReference, ready: str, **rest: Any) -> tuple[Pod, ...]:  # noqa: ANN401 - as the case says
    """Pods of a controller on node `b`, `+` for each that is Ready and `-` for each that is not."""
    return tuple(
        pod(f"{controller.name}-{number}", node="b", ready=mark == "+", controller=controller, cpu="10m", **rest)
        for number, mark in enumerate(ready, 1)
    )


def makes(kind: str, name: str, *, replicas: int | None = None, **spec: Any) -> Workload:  # noqa: ANN401 - the same
    made = workload(kind, name)
    if kind == "ReplicationController":
        metadata = ObjectMeta(name=name, namespace="default", uid="uid-rc")
        made = msgspec.structs.replace(made, api_version="v1", metadata=metadata)
    return msgspec.structs.replace(made, spec=WorkloadSpec(replicas=replicas, **spec))


def deployed(replicas: int, **spec: Any) -> tuple[Workload, ...]:  # noqa: ANN401 - the same
    """A Deployment with two ReplicaSets, in the middle of a rollout."""
    return (
        makes("Deployment", "web", replicas=replicas, **spec),
        *(workload("ReplicaSet", name, replicas=None, controller=DEPLOYMENT) for name in ("web-0", "web-1")),
    )


def rolling(amount: int | str | None, kind: str = "RollingUpdate") -> UpdateStrategy:
    return UpdateStrategy(type=kind, rolling_update=RollingUpdate(max_unavailable=amount))


@dataclass(frozen=True)
class Case:
    """A pod on node `a`, its siblings, what controls it, and whether it stays as too few are Ready."""

    stays: bool
    siblings: tuple[Pod, ...]
    workloads: tuple[Workload, ...]
    controller: OwnerReference = SET
    pod: dict[str, Any] = field(default_factory=dict)
    at_once: int = 1


DB = makes("StatefulSet", "db", replicas=3)
TABLE = {
    "the only Ready one of three": Case(stays=True, siblings=of(SET, "--"), workloads=(DB,)),
    "another one of three is not Ready": Case(stays=True, siblings=of(SET, "+-"), workloads=(DB,)),
    "all three are Ready": Case(stays=False, siblings=of(SET, "++"), workloads=(DB,)),
    "the pod itself is not Ready": Case(stays=False, siblings=of(SET, "+-"), workloads=(DB,), pod={"ready": False}),
    "a sibling was not made yet": Case(stays=True, siblings=of(SET, "+"), workloads=(DB,)),
    "a sibling is being deleted": Case(
        stays=True, siblings=(*of(SET, "+"), *of(SET, "+", deleted="2026-11-28T12:00:00Z", uid="x")), workloads=(DB,)
    ),
    "a sibling waits for a node": Case(
        stays=True,
        siblings=(*of(SET, "+"), pod("db-9", controller=SET, phase="Pending")),
        workloads=(DB,),
    ),
    "a sibling has failed": Case(
        stays=True, siblings=(*of(SET, "+"), pod("db-9", node="b", controller=SET, phase="Failed")), workloads=(DB,)
    ),
    "the only one that is wanted": Case(stays=False, siblings=(), workloads=(makes("StatefulSet", "db", replicas=1),)),
    "more are Ready than wanted": Case(
        stays=False, siblings=of(SET, "+-"), workloads=(makes("StatefulSet", "db", replicas=2),)
    ),
    "a StatefulSet that does not say how many it wants": Case(
        stays=True, siblings=of(SET, "+-"), workloads=(makes("StatefulSet", "db"),)
    ),
    "a StatefulSet that is not in the snapshot": Case(stays=True, siblings=of(SET, "-"), workloads=()),
    "two of a StatefulSet may be gone": Case(
        stays=False,
        siblings=of(SET, "+-"),
        workloads=(makes("StatefulSet", "db", replicas=3, update_strategy=rolling(2)),),
    ),
    "two of a StatefulSet may be gone and are": Case(
        stays=True,
        siblings=of(SET, "--"),
        workloads=(makes("StatefulSet", "db", replicas=3, update_strategy=rolling("70%")),),
    ),
    "OnDelete allows no two": Case(
        stays=True,
        siblings=of(SET, "+-"),
        workloads=(makes("StatefulSet", "db", replicas=3, update_strategy=rolling(2, "OnDelete")),),
    ),
    "the policy allows two": Case(stays=False, siblings=of(SET, "+-"), workloads=(DB,), at_once=2),
    "the policy allows two, and two are gone": Case(stays=True, siblings=of(SET, "--"), workloads=(DB,), at_once=2),
    "a ReplicaSet without a Deployment": Case(
        stays=True,
        siblings=of(REPLICAS, "-+"),
        workloads=(workload("ReplicaSet", "web-1", replicas=3),),
        controller=REPLICAS,
    ),
    "a Deployment's default of a quarter, rounded down to none, is one": Case(
        stays=False, siblings=of(REPLICAS, "++"), workloads=deployed(3), controller=REPLICAS
    ),
    "a Deployment's default of a quarter, rounded down to none": Case(
        stays=True, siblings=of(REPLICAS, "+-"), workloads=deployed(3), controller=REPLICAS
    ),
    "a quarter of nine is two": Case(
        stays=False, siblings=of(REPLICAS, "+++++++-"), workloads=deployed(9), controller=REPLICAS
    ),
    "a quarter of nine is gone": Case(
        stays=True, siblings=of(REPLICAS, "++++++--"), workloads=deployed(9), controller=REPLICAS
    ),
    "a Deployment allows half, rounded down": Case(
        stays=True,
        siblings=of(REPLICAS, "++--"),
        workloads=deployed(5, strategy=rolling("50%")),
        controller=REPLICAS,
    ),
    "a Deployment allows three": Case(
        stays=False,
        siblings=of(REPLICAS, "++--"),
        workloads=deployed(5, strategy=rolling(3, "")),
        controller=REPLICAS,
    ),
    "a Deployment that allows nothing allows one": Case(
        stays=False, siblings=of(REPLICAS, "+"), workloads=deployed(2, strategy=rolling(0)), controller=REPLICAS
    ),
    "Recreate says nothing of two": Case(
        stays=True,
        siblings=of(REPLICAS, "++-"),
        workloads=deployed(4, strategy=rolling(3, "Recreate")),
        controller=REPLICAS,
    ),
    "what is no percentage allows one": Case(
        stays=True,
        siblings=of(REPLICAS, "++-"),
        workloads=deployed(4, strategy=rolling("many")),
        controller=REPLICAS,
    ),
    "pods of an older ReplicaSet count for the Deployment": Case(
        stays=False, siblings=of(OLDER_REPLICAS, "++"), workloads=deployed(3), controller=REPLICAS
    ),
    "pods of an older ReplicaSet that are not Ready are no loss": Case(
        stays=False,
        siblings=(*of(OLDER_REPLICAS, "-"), *of(REPLICAS, "+")),
        workloads=deployed(2),
        controller=REPLICAS,
    ),
    "a Job with a pod too few": Case(
        stays=True, siblings=of(JOB, "+"), workloads=(makes("Job", "batch", parallelism=3),), controller=JOB
    ),
    "a Job whose completions bound its pods": Case(
        stays=False,
        siblings=of(JOB, "+"),
        workloads=(makes("Job", "batch", parallelism=3, completions=2),),
        controller=JOB,
    ),
    "a Job of which one has succeeded": Case(
        stays=False,
        siblings=(*of(JOB, "+"), pod("batch-9", node="b", controller=JOB, phase="Succeeded")),
        workloads=(makes("Job", "batch", parallelism=3, completions=3),),
        controller=JOB,
    ),
    "a Job whose status says that one has succeeded": Case(
        stays=False,
        siblings=of(JOB, "+"),
        workloads=(
            msgspec.structs.replace(
                makes("Job", "batch", parallelism=3, completions=3), status=WorkloadStatus(succeeded=1)
            ),
        ),
        controller=JOB,
    ),
    "a ReplicationController": Case(
        stays=True,
        siblings=of(RC, "-+"),
        workloads=(makes("ReplicationController", "rc", replicas=3),),
        controller=RC,
    ),
    "pods of another namespace are no siblings": Case(
        stays=True, siblings=of(SET, "++", namespace="other"), workloads=(DB,)
    ),
}


def snapshot_of(case: Case) -> Snapshot:
    candidate = pod("p", **{"node": "a", "controller": case.controller, "cpu": "10m", **case.pod})
    return Snapshot(nodes=(node("a"), node("b")), pods=(candidate, *case.siblings), workloads=case.workloads)


@pytest.mark.parametrize("case", TABLE.values(), ids=TABLE.keys())
def test_a_pod_stays_where_too_few_of_its_siblings_are_ready(case: Case) -> None:
    snapshot = snapshot_of(case)
    candidate = next(one for one in snapshot.pods if one.metadata.name == "p")

    refusal = Availability(snapshot.pods, snapshot.workloads, case.at_once).refusal(candidate)

    assert (refusal is not None) is case.stays
    assert refusal is None or refusal.reason is Reason.TOO_FEW_READY


def test_a_refusal_names_the_controller_and_its_numbers() -> None:
    snapshot = snapshot_of(TABLE["another one of three is not Ready"])

    kept = explain_kept_pods(snapshot, plan(snapshot, consolidating(per_controller=1)))

    (reasons,) = [one.sentences for one in kept if one.name == "p"]
    assert reasons.endswith("its StatefulSet db wants 3 pods and has 2 Ready, and no more than 1 may be gone at once")


def test_a_wave_holds_fewer_of_a_controller_that_lacks_some() -> None:
    pods = tuple(pod(f"db-{number}", node="a", cpu="10m", controller=SET) for number in range(4))
    sizes = {}
    for wanted in (4, 5, 6):
        lacking = Snapshot(
            nodes=(node("a"), node("b")),
            pods=(*pods, bare_pod("fill", node="b", cpu="2")),
            workloads=(makes("StatefulSet", "db", replicas=wanted),),
        )
        sizes[wanted] = sorted(move.wave for move in plan(lacking, consolidating(per_controller=3)).moves)

    assert sizes == {4: [1, 1, 1, 2], 5: [1, 1, 2, 2], 6: [1, 2, 3, 4]}


def test_a_pod_that_surges_takes_nothing_away() -> None:
    of_template = {"labels": {"pod-template-hash": "1"}}
    case = Case(
        stays=True,
        siblings=of(REPLICAS, "+-", **of_template),
        workloads=deployed(3),
        controller=REPLICAS,
        pod=of_template,
    )
    snapshot = snapshot_of(case)
    surging = with_surges(snapshot)

    made = plan(surging, consolidating(per_controller=1))

    assert [move.pod for move in made.moves] == ["p"]
    assert [one.metadata.name for one in pods_needing_surge(snapshot, made.moves)] == ["p"]
    assert with_surges(snapshot, ["default/p"]).leaving_freely == {"default/web-1-1"}
    of_a_set = snapshot_of(TABLE["another one of three is not Ready"])
    assert with_surges(of_a_set) == of_a_set


def test_a_pod_that_was_let_go_for_a_surge_still_counts() -> None:
    case = TABLE["a Deployment's default of a quarter, rounded down to none"]
    released = pod("out", node="b", labels={"pod-template-hash": RELEASED_HASH}, controller=DEPLOYMENT)
    deployment = msgspec.structs.replace(released.metadata.owner_references[0], controller=False)
    metadata = msgspec.structs.replace(released.metadata, owner_references=(deployment,))
    snapshot = snapshot_of(case)
    pods = (*snapshot.pods, msgspec.structs.replace(released, metadata=metadata))
    candidate = next(one for one in pods if one.metadata.name == "p")

    assert Availability(pods, snapshot.workloads).refusal(candidate) is None
