"""Measures hand-overs under contention with Volcano's scheduler and the stock one side by side.

    python tests/benchmarks/volcano_contention.py [--slots 100] [--hungry 5]

Every node is one slot, every other one held and taken by way of Volcano, and beside each wait hungry pods of the same
priority and size, of both schedulers in turn. Then the owners come. Prints how many slots went to their owners, how
many hungry pods came in, how many nodes are overbooked, and the seconds until half and all of the owners ran.
"""

# ruff: noqa: T201 - it prints

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core.pod_groups import VOLCANO_SCHEDULER
from berth_core.reservations import ConditionType, Reservation, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, RESERVATIONS
from berth_sandbox.settings import SandboxSettings
from cluster_objects import (
    build_deployment,
    build_reservation,
    label_owner,
    make_namespace,
    overbooked_nodes,
    pod_template,
    pods,
    reservations,
)
from control_planes import control_plane
from service_processes import running_operator
from waiting import eventually

SCHEDULERS: Final = (VOLCANO_SCHEDULER, "default-scheduler")
WHOLE_NODE: Final = "4"
SPACE: Final = "contention"
WITHIN_SECONDS: Final = 600.0


def hold(client: KubeClient, slots: int) -> None:
    """Make a Reservation of each whole node, and wait until all are held and proven."""
    for number in range(slots):
        scheduler = SCHEDULERS[number % 2]
        template = pod_template({}, cpu=WHOLE_NODE, schedulerName=scheduler)
        owners = label_owner(app=f"owner-{scheduler}")
        node = f"node-{number:03d}"
        body = build_reservation(f"slot-{number}", cpu=WHOLE_NODE, owners=owners, nodes=[node], template=template)
        client.create(RESERVATIONS, body, namespace=SPACE)

    def is_proven(one: Reservation) -> bool:
        return one.phase is ReservationPhase.AVAILABLE and one.condition(ConditionType.HANDOVER_READY)

    eventually("all are held", lambda: all(map(is_proven, reservations(client, SPACE))), seconds=WITHIN_SECONDS)


def make_hungry(client: KubeClient, count: int) -> None:
    """Make hungry pods of both schedulers, and wait until the stock one has tried all of its own."""
    for scheduler in SCHEDULERS:
        body = build_deployment(f"hungry-{scheduler}", replicas=count, cpu=WHOLE_NODE, schedulerName=scheduler)
        body["spec"]["template"]["metadata"]["labels"]["hungry"] = "yes"
        client.create(DEPLOYMENTS, body, namespace=SPACE)

    def tried() -> bool:
        found = pods(client, SPACE, app=f"hungry-{SCHEDULERS[1]}")
        return sum(pod.condition("PodScheduled") == "False" for pod in found) == count

    eventually("the hungry pods found no place", tried, seconds=WITHIN_SECONDS)


def main() -> None:
    """Hold, make hungry pods, let the owners come, and print what became of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--slots", type=int, default=100)
    parser.add_argument("--hungry", type=int, default=5, help="hungry pods for each slot")
    chosen = parser.parse_args()
    settings = SandboxSettings(nodes=chosen.slots, node_cpu=WHOLE_NODE, node_memory="16Gi", volcano=True)
    folder = Path(tempfile.mkdtemp())
    with control_plane(settings) as sandbox, running_operator(sandbox, folder):
        client = sandbox.connect()
        make_namespace(client, SPACE)
        hold(client, chosen.slots)
        make_hungry(client, chosen.hungry * chosen.slots // 2)
        began = time.monotonic()
        for number, scheduler in enumerate(SCHEDULERS):
            replicas = (chosen.slots + 1 - number) // 2
            body = build_deployment(f"owner-{scheduler}", replicas=replicas, cpu=WHOLE_NODE, schedulerName=scheduler)
            client.create(DEPLOYMENTS, body, namespace=SPACE)
        times: list[float] = []

        def are_over() -> bool:
            found = [one.phase for one in reservations(client, SPACE)]
            times.extend([time.monotonic() - began] * (found.count(ReservationPhase.SUCCEEDED) - len(times)))
            return all(phase.terminal for phase in found)

        eventually("all Reservations are over", are_over, seconds=WITHIN_SECONDS)
        intruders = [pod.key for pod in pods(client, SPACE, hungry="yes") if pod.spec.node_name]
        print(f"{len(times)} of {chosen.slots} slots went to their owners, {len(intruders)} hungry pods came in,")
        half = times[len(times) // 2]
        print(f"{len(overbooked_nodes(client))} nodes are overbooked; half of the owners ran after {half:.1f} s,")
        print(f"all after {times[-1]:.1f} s")


if __name__ == "__main__":
    main()
