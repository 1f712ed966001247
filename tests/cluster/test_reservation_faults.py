"""While the operator is down nothing is harmed, and when it is back nothing is left; a forged note is worth nothing."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from berth_core.clock import SystemClock, format_timestamp
from berth_core.labels import HANDOVER_GATE, HANDOVER_TAINT, RESERVATION_LABEL, SLOT_ANNOTATION
from berth_core.reservations import ReservationPhase
from berth_kube.resources import NAMESPACES, PODS, RESERVATIONS
from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.sandbox import Sandbox
from cluster_objects import build_reservation, is_gone, label_owner, make_namespace, read_reservation
from fault_proxy import FaultProxy
from faults import BalancerFaultAt, FaultKind, FaultPlan, NoFaults
from handover_calls import patches
from proxied_operator import operator, proxy, undisturbed
from reservation_stage import Stage, is_gated
from service_processes import OperatorProcess
from waiting import eventually

NOW_TEXT = format_timestamp(SystemClock().now())

__all__ = ["operator", "proxy", "undisturbed"]

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.usefixtures("operator")]


def is_labelled(stage: Stage) -> bool:
    return RESERVATION_LABEL in stage.pod("owner").metadata.labels


def is_guarded(stage: Stage) -> bool:
    return any(taint.key == HANDOVER_TAINT for taint in stage.node(stage.nodes[0]).spec.taints)


def balancer_fault_at_a_release() -> BalancerFaultAt:
    return BalancerFaultAt(lambda call: patches(call, "/pods/owner"), seconds=1.5)


@pytest.mark.parametrize("faults", [NoFaults, balancer_fault_at_a_release])
def test_what_became_an_orphan_while_the_operator_was_down_is_released_when_it_is_back(
    operator: OperatorProcess, proxy: FaultProxy, stage: Stage, faults: Callable[[], FaultPlan]
) -> None:
    stage.reserve(replicas=2)
    stage.wait_until_proven()
    for name in ("owner", "unlabelled"):
        stage.create_pod(name, schedulingGates=[{"name": "example.com/not-yet"}])
        assert is_gated(stage.pod(name))

    operator.kill()
    no_label = {"metadata": {"labels": {RESERVATION_LABEL: None}}}
    stage.client.merge_patch(PODS, "unlabelled", no_label, namespace=stage.namespace)
    stage.client.delete(RESERVATIONS, "place", namespace=stage.namespace)
    proxy.plan = faults()
    operator.start()

    stage.wait_until_empty()
    eventually("the gate of the owner is off", lambda: not is_gated(stage.pod("owner")), seconds=60)
    eventually("the gate without a label is off", lambda: not is_gated(stage.pod("unlabelled")), seconds=60)
    assert not is_labelled(stage)
    assert FaultKind.NO_BACKEND in {fault.kind for _, fault in proxy.journal} or faults is NoFaults


def test_pods_are_created_as_ever_while_the_operator_is_down(
    operator: OperatorProcess, sandbox: Sandbox, stage: Stage
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    operator.kill()

    log = SandboxFolder(sandbox.folder).log(Component.API_SERVER)
    before = log.stat().st_size
    stage.create_pod("owner")

    told = lambda: log.read_bytes()[before:]  # noqa: E731 - a name for a claim
    eventually("its webhook is found to be away", lambda: b"connection refused" in told())
    late = [line for line in told().splitlines() if b"webhook" in line and b"deadline exceeded" in line]
    assert late == [], "it is not waited for"
    eventually("the pod runs", lambda: stage.pod("owner").status.phase == "Running", seconds=60)
    operator.start()
    assert stage.pod("owner").spec.node_name == stage.nodes[1]


CLAIMS: dict[str, dict[str, Any]] = {
    "that a slot was taken": {
        "slots": [{"task": "main", "index": 0, "state": "Taken", "node": "elsewhere", "owner": {"name": "nobody"}}],
        "state": {"phase": "Succeeded", "reason": "OwnersRunning", "message": "forged"},
    },
    "that all is over": {
        "slots": [{"task": "main", "index": 0, "state": "Released"}],
        "state": {"phase": "Failed", "reason": "NodeLost", "message": "forged", "lastTransitionTime": NOW_TEXT},
    },
    "that less is held": {"slots": [], "available": 0, "state": {"phase": "Pending", "reason": "AwaitingNode"}},
}


@pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS.keys())
def test_what_was_forged_while_no_operator_ran_is_true_again_when_one_does(
    operator: OperatorProcess, stage: Stage, claim: dict[str, Any]
) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    stage.wait_until_proven()
    (placeholder,) = stage.placeholders()
    operator.kill()
    stage.client.merge_patch(RESERVATIONS, "place", {"status": claim}, namespace=stage.namespace, subresource="status")
    operator.start()

    eventually("the status is true", lambda: stage.leftovers() == [], seconds=60)
    assert stage.wait_until_proven().status.slots[0].node == stage.nodes[0]
    assert [pod.metadata.uid for pod in stage.placeholders()] == [placeholder.metadata.uid]
    stage.create_pod("owner")
    stage.wait_for(ReservationPhase.SUCCEEDED)


def test_a_forged_note_takes_no_slot_and_guards_no_node(stage: Stage) -> None:
    stage.reserve(nodes=[stage.nodes[0]])
    uid = stage.wait_until_proven().metadata.uid
    deadline = int(time.time()) + 50
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        **stage.template(
            {"app": "stranger", RESERVATION_LABEL: uid}, cpu="1", schedulingGates=[{"name": HANDOVER_GATE}]
        ),
    }
    body["metadata"] |= {
        "name": "stranger",
        "annotations": {SLOT_ANNOTATION: f"main/0/{stage.nodes[0]}/{deadline}"},
    }

    stage.client.create(PODS, body, namespace=stage.namespace)

    eventually(
        "the forged label is off", lambda: RESERVATION_LABEL not in stage.pod("stranger").metadata.labels, seconds=60
    )
    assert not is_guarded(stage)
    assert [pod.status.phase for pod in stage.placeholders()] == ["Running"]
    assert stage.read().phase is ReservationPhase.AVAILABLE


def test_a_namespace_whose_deletion_waits_for_a_pod_holds_no_places(stage: Stage) -> None:
    client, namespace = stage.client, make_namespace(stage.client, f"{stage.namespace}-ending")
    pod = {"apiVersion": "v1", "kind": "Pod", **stage.template({"app": "other"}, cpu="1")}
    pod["metadata"] |= {"name": "stays", "finalizers": ["example.com/stay"]}
    client.create(PODS, pod, namespace=namespace)
    body = build_reservation("place", cpu="1", owners=label_owner(app="owner"), template=stage.template(cpu="1"))
    client.create(RESERVATIONS, body, namespace=namespace)
    eventually("it is held", lambda: read_reservation(client, namespace, "place").phase is ReservationPhase.AVAILABLE)

    client.delete(NAMESPACES, namespace)
    eventually("it is deleted", lambda: is_gone(client, RESERVATIONS, "place", namespace), seconds=120)
    stays = client.get(PODS, "stays", namespace=namespace)
    client.merge_patch(PODS, "stays", {"metadata": {"finalizers": None}}, namespace=namespace)
    eventually("the namespace is gone", lambda: is_gone(client, NAMESPACES, namespace), seconds=60)
    assert stays["metadata"]["deletionTimestamp"]
