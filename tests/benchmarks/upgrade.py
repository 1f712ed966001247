"""Goes from one release of Berth to this one and back while hand-overs are under way, and counts what is lost.

    python tests/benchmarks/upgrade.py --before REVISION [--logs FOLDER]

The chart of an older revision of this repository is installed on a sandbox, and its operator runs as the Deployment
says. A hundred whole nodes are held, five hungry pods of two schedulers wait for each, and the owners are made. In the
middle of their hand-overs the operator is stopped, the chart and its CRDs are upgraded as its page says, and the new
operator goes on. With a second hundred it goes the other way. The exit code is 1 if a place or a pod was lost.
"""

# ruff: noqa: T201 - it prints

import argparse
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import ReservationPhase, SlotState
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, NAMESPACES
from berth_sandbox.binaries import find_helm
from berth_sandbox.ports import free_port
from berth_sandbox.services import ServiceProcess
from berth_sandbox.settings import SandboxSettings
from chart.charted import Helm
from chart.conftest import remove_berth
from chart.released import Release, command_of, wait_for_probes
from cluster_objects import build_deployment, is_gone, make_namespace, overbooked_nodes, pods, reservations
from contention import SLOTS, STEP_SECONDS, WHOLE_NODE, add_hungry_pods, hold_every_node
from control_planes import control_plane
from waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
MIDDLE: Final = (0.1 * SLOTS, 0.9 * SLOTS)
"""Between so many owners that run the release changes."""


@dataclass(frozen=True)
class Side:
    """One of the two releases."""

    name: str
    root: Path

    @property
    def chart(self) -> Path:
        return self.root / "helm" / "berth"

    @property
    def path(self) -> str:
        return ":".join(str(self.root / one) for one in ("descheduler", "operator", "shared"))


@dataclass(frozen=True)
class Upgrade:
    """What changes the release, and where its operators log."""

    release: Release
    client: KubeClient
    values: dict[str, Any]
    logs: Path

    def start(self, side: Side) -> ServiceProcess:
        """Start a side's operator as the Deployment that is installed says."""
        deployment = self.client.get(DEPLOYMENTS, "berth-operator", namespace=DEFAULT_NAMESPACE)
        account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
        kubeconfig = self.release.sandbox.service_account_kubeconfig(account)
        _, *command = command_of(deployment, kubeconfig, {})
        process = ServiceProcess(["env", f"PYTHONPATH={side.path}", *command], self.logs / f"{side.name}.log")
        process.start()
        wait_for_probes(deployment, process)
        return process

    def change(self, side: Side) -> None:
        """Upgrade the chart and its CRDs, or go back."""
        self.release.apply_kinds(self.client, side.chart)
        self.release.upgrade(self.values, side.chart)

    def go(self, before: Side, after: Side) -> bool:
        """Change sides in the middle of the hand-overs; return whether nothing was lost."""
        client, namespace = self.client, make_namespace(self.client, f"to-{after.name}")
        process = self.start(before)
        try:
            hold_every_node(client, namespace)
            add_hungry_pods(client, namespace)
            owners = build_deployment("owner", replicas=SLOTS, cpu=WHOLE_NODE)
            client.create(DEPLOYMENTS, owners, namespace=namespace)
            low, high = MIDDLE
            eventually("some owners run", lambda: taken(client, namespace) > low, seconds=STEP_SECONDS)
            process.stop()
            moving = states(client, namespace).count(SlotState.HANDING_OVER)
            done = taken(client, namespace)
            print(f"from {before.name} to {after.name}: {done} of {SLOTS} taken, {moving} change hands")
            self.change(after)
            process = self.start(after)
            eventually("all are over", lambda: all_over(client, namespace), seconds=STEP_SECONDS)
        finally:
            process.stop()
        return judge(client, namespace) and done < high


def states(client: KubeClient, namespace: str) -> list[SlotState]:
    return [slot.state for one in reservations(client, namespace) for slot in one.status.slots]


def taken(client: KubeClient, namespace: str) -> int:
    return states(client, namespace).count(SlotState.TAKEN)


def all_over(client: KubeClient, namespace: str) -> bool:
    return all(one.phase.terminal for one in reservations(client, namespace))


def judge(client: KubeClient, namespace: str) -> bool:
    """Print what became of the places; return whether all went to their owners. Then clear them away."""
    succeeded = [one.phase for one in reservations(client, namespace)].count(ReservationPhase.SUCCEEDED)
    owners = [pod for pod in pods(client, namespace, app="owner") if pod.status.phase == "Running"]
    nodes = {pod.spec.node_name for pod in owners}
    hungry = sum(bool(pod.spec.node_name) for pod in pods(client, namespace, hungry="yes"))
    overbooked = len(list(overbooked_nodes(client)))
    lost = f"{hungry} hungry pods, {overbooked} overbooked"
    print(f"  {succeeded} of {SLOTS} succeeded, owners on {len(nodes)} nodes, {lost}")
    client.delete(NAMESPACES, namespace)
    eventually("the namespace is gone", lambda: is_gone(client, NAMESPACES, namespace), seconds=STEP_SECONDS)
    return succeeded == len(owners) == len(nodes) == SLOTS and not hungry and not overbooked


def unpack(revision: str, folder: Path) -> Side:
    """Return a revision of this repository, written to a folder."""
    packed = subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return Side("before", folder)


@contextmanager
def installed(side: Side, folder: Path, logs: Path) -> Iterator[Upgrade]:
    """Yield a sandbox on which helm has installed a side's chart."""
    settings = SandboxSettings(nodes=SLOTS, node_cpu=WHOLE_NODE, node_memory="16Gi", second_scheduler=True)
    port = free_port()
    options = {"webhookPort": port, "webhookUrl": f"https://127.0.0.1:{port}", "limit": "slots=none,share=none"}
    kept_away = {"nodeSelector": {"pool": "none"}}  # its pod would take a part of a node
    limits = {"drainSeconds": 0.2, "leaseSeconds": 3, "clusterLimit": "share=none"}
    values = {
        "operator": {"healthPort": free_port(), "options": options | limits, "replicas": 1, **kept_away},
        "descheduler": {"enabled": False},
    }
    with control_plane(settings) as sandbox, sandbox.connect() as client:
        remove_berth(client)
        release = Release(Helm(find_helm(print), folder), sandbox)
        release.install(values, side.chart)
        yield Upgrade(release, client, values, logs)


def main() -> int:
    parser = argparse.ArgumentParser(description="Upgrade Berth and go back while places change hands.")
    parser.add_argument("--before", required=True, metavar="REVISION", help="the older release")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep the logs of the operators there")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        before, now = unpack(options.before, folder / "before"), Side("now", ROOT)
        with installed(before, folder / "helm", options.logs or folder) as upgrade:
            kept = [upgrade.go(before, now), upgrade.go(now, before)]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    raise SystemExit(main())
