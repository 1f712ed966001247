"""What the cluster tests of policies share: pools of half-empty nodes, policies for them, services."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from berth_core import Node, Pod, policies
from berth_core.labels import FREED_TAINT as SOFT_TAINT
from berth_core.labels import HANDOVER_GATE, PLACEHOLDER_LABEL, PREFIX
from berth_core.migration_plans import MigrationPlan
from berth_core.policies import DeschedulerPolicy
from berth_core.reservations import Reservation
from berth_kube.client import KubeClient
from berth_kube.resources import DEPLOYMENTS, DESCHEDULER_POLICIES, MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from berth_sandbox.ports import free_port
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from cluster_objects import build_deployment, make_namespace
from service_processes import script
from waiting import eventually

POOL_LABEL: Final = "pool"
HIGH: Final = 3
LOW: Final = 2
MOVERS: Final = ("cart", "web")
PODS_OF_A_MOVER: Final = 3
ARGS: Final[dict[str, Any]] = {
    "wholeNodes": True,
    "lowThresholds": {"cpu": 40},
    "defragmentThresholds": {"cpu": 45},
    "protectionThresholds": {"cpu": 95},
}


class DeschedulerReplica(ServiceProcess):
    """A service that serves policies, as the chart starts it: told nothing of what to do."""

    def __init__(self, sandbox: Sandbox, folder: Path, *options: str) -> None:
        self.health_port = free_port()
        command = [
            script("berth-descheduler"),
            f"--kubeconfig={sandbox.service_account_kubeconfig('berth-descheduler')}",
            f"--health-address=127.0.0.1:{self.health_port}",
            "--rest-address=127.0.0.1:0",
            "--fragmentation-interval=none",
            *options,
        ]
        super().__init__(command, folder / f"berth-descheduler-{self.health_port}.log")


class Pool:
    """Some nodes with half-full ones and nearly empty ones among them, and a namespace whose pods are on them."""

    def __init__(self, client: KubeClient, name: str) -> None:
        self.client = client
        self.name = name

    def label(self, nodes: tuple[Node, ...]) -> None:
        for index, node in enumerate(nodes):
            labels = {POOL_LABEL: self.name, "tier": f"{self.name}-{'high' if index < HIGH else 'low'}"}
            self.client.merge_patch(NODES, node.metadata.name, {"metadata": {"labels": labels}})

    def fill(self) -> None:
        """Make the workloads; the movers find room on the low nodes only."""
        make_namespace(self.client, self.name)
        high = {"tier": f"{self.name}-high"}
        for name, cpu in (("base", "8"), ("filler", "7500m")):
            self._deploy(build_deployment(name, replicas=HIGH, cpu=cpu, nodeSelector=high))
        eventually(f"{self.name}: the high nodes are full", lambda: self._ready() == 2 * HIGH, seconds=60)
        for name in MOVERS:
            pool = {POOL_LABEL: self.name}
            self._deploy(build_deployment(name, replicas=PODS_OF_A_MOVER, cpu="1", nodeSelector=pool))

    def settle(self) -> None:
        """Make room on the high nodes, once the movers are on the low ones."""
        wanted = 2 * HIGH + len(MOVERS) * PODS_OF_A_MOVER
        eventually(f"{self.name}: the movers run", lambda: self._ready() == wanted, seconds=60)
        self.client.delete(DEPLOYMENTS, "filler", namespace=self.name, propagation="Foreground")
        wanted -= HIGH
        eventually(f"{self.name}: the filler is gone", lambda: self._are_all_ready(wanted), seconds=60)

    def clear(self) -> None:
        """Take the workloads away."""
        for body in self.client.list(DEPLOYMENTS, namespace=self.name).items:
            self.client.delete(DEPLOYMENTS, body["metadata"]["name"], namespace=self.name, propagation="Background")

    def pods(self) -> tuple[Pod, ...]:
        return self.client.list(PODS, namespace=self.name, type=Pod).items

    def movers(self) -> tuple[Pod, ...]:
        return tuple(pod for pod in self.pods() if pod.metadata.labels.get("app") in MOVERS)

    def low_nodes(self) -> frozenset[str]:
        selector = f"tier={self.name}-low"
        return frozenset(one.metadata.name for one in self.client.list(NODES, label_selector=selector, type=Node).items)

    def is_whole(self) -> bool:
        """Return whether every expected pod runs."""
        return self._are_all_ready(HIGH + len(MOVERS) * PODS_OF_A_MOVER)

    def is_emptied(self) -> bool:
        """Return whether no mover is on a low node any more."""
        return not {pod.spec.node_name for pod in self.movers()} & self.low_nodes()

    def traces(self) -> list[str]:
        """Return what a run that is over must not leave behind."""
        nodes = self.client.list(NODES, label_selector=f"{POOL_LABEL}={self.name}", type=Node).items
        taints = (t.key for n in nodes for t in n.spec.taints if t.key.startswith(PREFIX) and t.key != SOFT_TAINT)
        gates = (gate.name for pod in self.pods() for gate in pod.spec.scheduling_gates if gate.name == HANDOVER_GATE)
        live = (r.key for r in self._reservations() if not r.phase.terminal)
        held = (p.metadata.name for p in self.client.list(PODS, label_selector=PLACEHOLDER_LABEL, type=Pod).items)
        return [*taints, *gates, *live, *held]

    def require_rest(self) -> None:
        """Wait until every pod runs and no run has left a trace."""
        eventually(f"{self.name}: all pods run", self.is_whole, seconds=60)
        eventually(f"{self.name}: nothing is left", lambda: not self.traces(), seconds=60)

    def _reservations(self) -> tuple[Reservation, ...]:
        listed = self.client.list(RESERVATIONS, namespace=self.name).items
        return tuple(map(Reservation.read, listed))

    def _deploy(self, body: dict[str, Any]) -> None:
        self.client.create(DEPLOYMENTS, body, namespace=self.name)

    def _ready(self) -> int:
        return sum(_is_up(pod) for pod in self.pods())

    def _are_all_ready(self, wanted: int) -> bool:
        """Return whether there are so many pods and all of them are up."""
        found = self.pods()
        return len(found) == wanted and all(map(_is_up, found))


def _is_up(pod: Pod) -> bool:
    return pod.is_ready and not pod.is_terminating


def build_policy(name: str, pool: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of an API object
    profile = {
        "name": "default",
        "pluginConfig": [{"name": "Defragmentation", "args": ARGS}],
        "plugins": {"balance": {"enabled": ["Defragmentation"]}},
    }
    return {
        "apiVersion": policies.POLICY_API_VERSION,
        "kind": policies.POLICY_KIND,
        "metadata": {"name": name},
        "spec": {"nodeSelector": f"{POOL_LABEL}={pool}", "profiles": [profile], **spec},
    }


def read_policy(client: KubeClient, name: str) -> DeschedulerPolicy:
    return client.get(DESCHEDULER_POLICIES, name, type=DeschedulerPolicy)


def read_plan(client: KubeClient, name: str) -> MigrationPlan:
    return client.get(MIGRATION_PLANS, name, type=MigrationPlan)


def plans_of(client: KubeClient, policy: str) -> tuple[MigrationPlan, ...]:
    found = client.list(MIGRATION_PLANS, type=MigrationPlan).items
    return tuple(plan for plan in found if plan.spec.policy == policy)


def condition_of(policy: DeschedulerPolicy, type_: str) -> Mapping[str, str]:
    found = policy.condition(type_)
    return {} if found is None else {"status": found.status, "reason": found.reason, "message": found.message}
