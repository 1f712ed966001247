"""A hundred slots change hands while hungry pods of the same priority wait at every node; played once, in a sandbox."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from background_runs import BackgroundRun
from berth_core.reservations import ConditionType, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, RESERVATIONS
from berth_sandbox.invariants import Invariant
from berth_sandbox.settings import SandboxSettings
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
from control_planes import control_plane
from service_processes import running_operator
from waiting import eventually

SLOTS: Final = 100
HUNGRY: Final = {"default-scheduler": 3 * SLOTS, "second-scheduler": 2 * SLOTS}
"""How many pods of each scheduler wait for a node: five for each slot."""

WHOLE_NODE: Final = "4"
STEP_SECONDS: Final = 600.0
"""For each step, beside other tests."""


@dataclass(frozen=True)
class Contention:
    """What was true once all Reservations were over, and nothing but the hungry pods waited."""

    phases: tuple[ReservationPhase, ...]
    nodes_of_owners: frozenset[str]
    placed_hungry: tuple[str, ...]
    overbooked: tuple[str, ...]


def play_contention(folder: Path) -> Contention:
    settings = SandboxSettings(nodes=SLOTS, node_cpu=WHOLE_NODE, node_memory="16Gi", second_scheduler=True)
    with (
        control_plane(settings) as sandbox,
        sandbox.connect() as client,
        running_operator(sandbox, folder),
    ):
        namespace = make_namespace(client, "contention")
        hold_every_node(client, namespace)
        add_hungry_pods(client, namespace)
        client.create(DEPLOYMENTS, build_deployment("owner", replicas=SLOTS, cpu=WHOLE_NODE), namespace=namespace)
        eventually(
            "all Reservations are over",
            lambda: all(r.phase.terminal for r in reservations(client, namespace)),
            seconds=STEP_SECONDS,
        )
        owners = pods(client, namespace, app="owner")
        found = Contention(
            phases=tuple(r.phase for r in reservations(client, namespace)),
            nodes_of_owners=frozenset(pod.spec.node_name for pod in owners if pod.status.phase == "Running"),
            placed_hungry=tuple(pod.key for pod in pods(client, namespace, hungry="yes") if pod.spec.node_name),
            overbooked=tuple(overbooked_nodes(client)),
        )
        require_rest(client, Invariant.POD_PENDING, Invariant.WORKLOAD_SHORT)  # the hungry ones wait
        return found


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
        seconds=STEP_SECONDS,
    )


def add_hungry_pods(client: KubeClient, namespace: str) -> None:
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
        seconds=STEP_SECONDS,
    )


@pytest.fixture(scope="session")
def contention(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BackgroundRun[Contention]]:
    folder = tmp_path_factory.mktemp("contention")
    with BackgroundRun("contention", lambda: play_contention(folder), yields=True) as run:
        yield run
