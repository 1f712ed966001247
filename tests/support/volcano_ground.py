"""A control plane with Volcano beside the stock scheduler, and a namespace of a test's own on it."""
# ruff: noqa: ANN401 - options of a pod are passed on

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest
import yaml

from berth_core import Pod
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.pod_groups import VOLCANO_SCHEDULER
from berth_core.reservations import ConditionType, Reservation, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.errors import ForbiddenError
from berth_kube.resources import DEPLOYMENTS, NODES, PODS, RESERVATIONS, Resource
from berth_sandbox.components import Component
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.ports import free_port
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import (
    build_deployment,
    build_reservation,
    is_gone,
    label_owner,
    make_namespace,
    pod_template,
    pods,
    reservations,
)
from control_planes import control_plane
from reservation_stage import delete_all
from service_processes import OperatorProcess, running_operator
from waiting import eventually

GROUP: Final = "scheduling.k8s.io/group-name"
WHOLE_NODE: Final = "4"
SOON: Final = 180.0


@pytest.fixture(scope="module")
def volcano_sandbox() -> Iterator[Sandbox]:
    """Yield a control plane without nodes, with Volcano."""
    with control_plane(SandboxSettings(volcano=True)) as started:
        yield started


@pytest.fixture(scope="module")
def admin(volcano_sandbox: Sandbox) -> Iterator[KubeClient]:
    with volcano_sandbox.connect() as client:
        yield client


@pytest.fixture(scope="module")
def extender_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def operator_beside(
    volcano_sandbox: Sandbox, extender_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Yield an operator that answers Volcano's extender plugin."""
    extender = f"--volcano-extender-address=127.0.0.1:{extender_port}"
    fences = (
        "--limit=slots=none,share=none,maxFencedNodes=50%",
        "--cluster-limit=slots=none,share=none,maxFencedNodes=50%",
    )
    options = (extender, "--volcano-enqueue-after=5s", "--sweep-seconds=2", *fences)
    with running_operator(volcano_sandbox, tmp_path_factory.mktemp("operator"), *options) as process:
        yield process


@dataclass(frozen=True)
class Ground:
    """A namespace whose nodes of 4 cpu are the only ones there are."""

    sandbox: Sandbox
    client: KubeClient
    namespace: str

    def add_nodes(self, count: int) -> tuple[str, ...]:
        return self.sandbox.add_nodes(count, NodeShape(cpu=WHOLE_NODE, memory="16Gi"), prefix=f"{self.namespace}-")

    def reserve(self, name: str, *, scheduler: str, cpu: str = WHOLE_NODE, app: str = "owner", **spec: Any) -> None:
        template = pod_template({}, cpu=cpu, schedulerName=scheduler)
        body = build_reservation(name, cpu=cpu, owners=label_owner(app=app), template=template, **spec)
        self.client.create(RESERVATIONS, body, namespace=self.namespace)

    def deploy(self, name: str, *, replicas: int, scheduler: str, labels: dict[str, str] | None = None) -> None:
        body = build_deployment(name, replicas=replicas, cpu=WHOLE_NODE, schedulerName=scheduler)
        body["spec"]["template"]["metadata"]["labels"] |= labels or {}
        self.client.create(DEPLOYMENTS, body, namespace=self.namespace)

    def create_pod(
        self,
        name: str,
        *,
        cpu: str = WHOLE_NODE,
        annotations: dict[str, str] | None = None,
        labels: dict[str, str] | None = None,
        **spec: Any,
    ) -> None:
        template = pod_template({}, cpu=cpu, schedulerName=VOLCANO_SCHEDULER, **spec)
        metadata = {"name": name, "annotations": annotations or {}, "labels": labels or {}}
        body = {"apiVersion": "v1", "kind": "Pod", **template, "metadata": metadata}

        def is_admitted() -> bool:
            try:
                self.client.create(PODS, body, namespace=self.namespace)
            except ForbiddenError:
                return False
            return True

        # The API server's admission hears of a new PriorityClass a moment after it is stored.
        eventually(f"{name} is admitted", is_admitted, seconds=SOON)

    def pod(self, name: str) -> Pod:
        return self.client.get(PODS, name, namespace=self.namespace, type=Pod)

    def reservation(self, name: str) -> Reservation:
        return Reservation.read(self.client.get(RESERVATIONS, name, namespace=self.namespace))

    def placeholders(self) -> tuple[Pod, ...]:
        return pods(self.client, DEFAULT_NAMESPACE, **{"berth.volcano.sh/placeholder": "true"})

    def wait_until_proven(self) -> None:
        def is_proven(found: Reservation) -> bool:
            return found.phase is ReservationPhase.AVAILABLE and found.condition(ConditionType.HANDOVER_READY)

        claim = "all slots are held and proven"
        eventually(claim, lambda: all(map(is_proven, reservations(self.client, self.namespace))), seconds=SOON)

    def wait_for(self, name: str, phase: ReservationPhase) -> None:
        eventually(f"{name} is {phase}", lambda: self.reservation(name).phase is phase, seconds=SOON)

    def clear(self) -> None:
        """Take away everything, so that the next test has a cluster of its own."""
        for resource in (RESERVATIONS, DEPLOYMENTS, PODS):
            delete_all(self.client, resource, self.namespace)
        eventually("it is empty", self._is_empty, seconds=SOON)
        for node in self.client.list(NODES).items:
            self.client.delete(NODES, node["metadata"]["name"])

    def _is_empty(self) -> bool:
        delete_all(self.client, PODS, self.namespace)
        return not self.client.list(PODS).items


@pytest.fixture
def ground(
    volcano_sandbox: Sandbox, operator_beside: OperatorProcess, admin: KubeClient, request: pytest.FixtureRequest
) -> Iterator[Ground]:
    """Yield a namespace of the test's own; what is in it goes with the test."""
    assert operator_beside.exit_code is None
    name = request.node.name.partition("[")[0].removeprefix("test_").replace("_", "-")[:40].strip("-")
    if is_gone(admin, Resource("", "v1", "namespaces", "Namespace", namespaced=False), name):
        make_namespace(admin, name)
    made = Ground(volcano_sandbox, admin, name)
    yield made
    made.clear()


def nodes_of(ground: Ground, prefix: str) -> dict[str, str]:
    """Return the nodes of the pods that run and whose names begin so."""
    found = ground.client.list(PODS, namespace=ground.namespace, type=Pod).items
    running = (pod for pod in found if pod.status.phase == "Running" and not pod.is_terminating)
    return {pod.metadata.name: pod.spec.node_name for pod in running if pod.metadata.name.startswith(prefix)}


def configure(
    sandbox: Sandbox, port: int | None, actions: str = "allocate, preempt, reclaim, backfill", *scorers: str
) -> None:
    """Give Volcano its actions, by default also to preempt and reclaim, and an extender at the port or none.

    `scorers` are plugins beside those that every configuration here has.
    """
    arguments = {
        "extender.urlPrefix": f"http://127.0.0.1:{port}",
        "extender.httpTimeout": "5s",
        "extender.preemptableVerb": "preemptable",
        "extender.reclaimableVerb": "reclaimable",
        "extender.jobEnqueueableVerb": "jobEnqueueable",
        "extender.queueOverusedVerb": "queueOverused",
        "extender.ignorable": True,
    }
    extender = [] if port is None else [{"name": "extender", "arguments": arguments}]
    tiers = (
        [{"name": "priority"}, {"name": "gang", "enablePreemptable": False}, {"name": "conformance"}],
        [
            {"name": "overcommit"},
            {"name": "drf", "enablePreemptable": False},
            {"name": "predicates"},
            {"name": "proportion"},
            *({"name": name} for name in scorers),
        ],
    )
    config = {
        "actions": actions,
        "tiers": [{"plugins": [*plugins, *extender]} for plugins in tiers],
    }
    path = SandboxFolder(sandbox.folder).scheduler_config(Component.VOLCANO_SCHEDULER)
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    sandbox.restart(Component.VOLCANO_SCHEDULER)


@pytest.fixture
def own_configuration(volcano_sandbox: Sandbox) -> Iterator[None]:
    """Put the configuration of Volcano's scheduler back at the end."""
    path = SandboxFolder(volcano_sandbox.folder).scheduler_config(Component.VOLCANO_SCHEDULER)
    before = path.read_text()
    yield
    path.write_text(before)
    volcano_sandbox.restart(Component.VOLCANO_SCHEDULER)
