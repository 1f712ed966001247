"""Slots go to their owners although hungry pods of the same priority wait at every node."""

from pathlib import Path

import pytest

from berth_core.reservations import ConditionType, ReservationPhase
from berth_kube.client import KubeClient, connect
from berth_kube.resources import DEPLOYMENTS, RESERVATIONS
from berth_sandbox.invariants import Invariant
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_fixtures import refuse_other_contexts
from cluster_objects import (
    build_deployment,
    build_reservation,
    label_owner,
    make_namespace,
    overbooked_nodes,
    pods,
    require_rest,
    reservations,
)
from service_processes import running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.timeout(1200)]

SLOTS = 100
HUNGRY = {"default-scheduler": 3 * SLOTS, "second-scheduler": 2 * SLOTS}
"""How many pods of each scheduler wait for a node: five for each slot."""

WHOLE_NODE = "4"


def test_every_slot_goes_to_its_owner_under_contention(tmp_path: Path) -> None:
    settings = SandboxSettings(nodes=SLOTS, node_cpu=WHOLE_NODE, node_memory="16Gi", second_scheduler=True)
    with Sandbox.start(settings, progress=print) as sandbox:
        refuse_other_contexts(sandbox.context)
        with connect(kubeconfig=str(sandbox.kubeconfig)) as client, running_operator(sandbox, tmp_path):
            namespace = make_namespace(client, "contention")
            hold_every_node(client, namespace)
            for scheduler, replicas in HUNGRY.items():
                body = build_deployment(f"of-{scheduler}", replicas=replicas, cpu=WHOLE_NODE, schedulerName=scheduler)
                body["spec"]["template"]["metadata"]["labels"]["hungry"] = "yes"
                client.create(DEPLOYMENTS, body, namespace=namespace)
            eventually(
                "all hungry pods were found unschedulable",
                lambda: (
                    sum(p.condition("PodScheduled") == "False" for p in pods(client, namespace, hungry="yes"))
                    == sum(HUNGRY.values())
                ),
                seconds=240,
            )

            owner = build_deployment("owner", replicas=SLOTS, cpu=WHOLE_NODE)
            client.create(DEPLOYMENTS, owner, namespace=namespace)
            eventually(
                "all Reservations are over",
                lambda: all(r.phase.terminal for r in reservations(client, namespace)),
                seconds=300,
            )

            assert [r.phase for r in reservations(client, namespace)] == [ReservationPhase.SUCCEEDED] * SLOTS
            owners = pods(client, namespace, app="owner")
            assert len({pod.spec.node_name for pod in owners if pod.status.phase == "Running"}) == SLOTS
            assert [p.key for p in pods(client, namespace, hungry="yes") if p.spec.node_name] == []
            assert overbooked_nodes(client) == []
            require_rest(client, Invariant.POD_PENDING, Invariant.WORKLOAD_SHORT)  # the hungry ones wait


def hold_every_node(client: KubeClient, namespace: str) -> None:
    """Make one Reservation per node, each of the whole node, and wait until all are proven."""
    for number in range(SLOTS):
        body = build_reservation(
            f"slot-{number}", cpu=WHOLE_NODE, owners=label_owner(app="owner"), nodes=[f"node-{number:03d}"]
        )
        client.create(RESERVATIONS, body, namespace=namespace)
    eventually(
        "all slots are held and proven",
        lambda: all(r.condition(ConditionType.HANDOVER_READY) for r in reservations(client, namespace)),
        seconds=240,
    )
