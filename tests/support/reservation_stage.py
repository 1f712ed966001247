"""The stage of a Reservation's cluster test: a namespace and nodes of its own, cleared away at the end."""
# ruff: noqa: ANN401 - a builder passes on what the case says

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from berth_core import Node, Pod
from berth_core.clock import SystemClock
from berth_core.labels import HANDOVER_GATE, RESERVATION_NAME_ANNOTATION, STANDING_FENCE_LABEL
from berth_core.names import DEFAULT_NAMESPACE
from berth_core.reservations import ConditionType, Reservation, ReservationPhase
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import DEPLOYMENTS, JOBS, NODES, PODS, RESERVATIONS, Resource
from berth_sandbox.invariants import ClusterState, Invariant, Violation, find_violations, monitor_invariants, read_state
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import PATIENCE, build_reservation, label_owner, make_namespace, pod_template, read_reservation
from service_processes import OperatorProcess, running_operator
from waiting import eventually

WHOLE_NODE = "4"


@dataclass(frozen=True)
class Stage:
    """Two nodes of 4 cpu that only pods of this test select."""

    client: KubeClient
    namespace: str
    nodes: tuple[str, ...]

    @property
    def selector(self) -> dict[str, str]:
        return {"stage": self.namespace}

    def template(self, labels: dict[str, str] | None = None, *, cpu: str = WHOLE_NODE, **spec: Any) -> dict[str, Any]:
        return pod_template(labels or {}, cpu=cpu, nodeSelector=self.selector, **spec)

    def reserve(self, name: str = "place", *, app: str = "owner", **spec: Any) -> None:
        """Create a Reservation, of one whole node unless the test says otherwise."""
        template = spec.pop("template", self.template())
        body = build_reservation(name, cpu=WHOLE_NODE, owners=label_owner(app=app), template=template, **spec)
        self.client.create(RESERVATIONS, body, namespace=self.namespace)

    def create_pod(self, name: str, *, app: str = "owner", cpu: str = WHOLE_NODE, **spec: Any) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", **self.template({"app": app}, cpu=cpu, **spec)}
        body["metadata"]["name"] = name
        self.client.create(PODS, body, namespace=self.namespace)

    def read(self, name: str = "place") -> Reservation:
        return read_reservation(self.client, self.namespace, name)

    def pod(self, name: str) -> Pod:
        return self.client.get(PODS, name, namespace=self.namespace, type=Pod)

    def node(self, name: str) -> Node:
        return self.client.get(NODES, name, type=Node)

    def placeholders(self, name: str = "place") -> tuple[Pod, ...]:
        """Return the placeholders of a Reservation of this stage."""
        pods = self.client.list(PODS, namespace=DEFAULT_NAMESPACE, type=Pod).items
        note = f"{self.namespace}/{name}"
        return tuple(pod for pod in pods if pod.metadata.annotations.get(RESERVATION_NAME_ANNOTATION) == note)

    def is_fenced(self, node: str) -> bool:
        """Return whether a node is kept for Reservations that wait."""
        fences = self.client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod)
        return any(pod.spec.node_name == node for pod in fences.items)

    def wait_for(self, phase: ReservationPhase, name: str = "place", *, seconds: float = 60) -> Reservation:
        """Wait until the Reservation is in a phase, and return it as it was seen then."""
        return self._wait(f"{name} is {phase}", name, lambda found: found.phase is phase, seconds)

    def wait_until_proven(self, name: str = "place", *, seconds: float = 60) -> Reservation:
        """Wait until the Reservation is Available and its hand-over was proven, and return it as it was seen then."""

        def is_proven(found: Reservation) -> bool:
            return found.phase is ReservationPhase.AVAILABLE and found.condition(ConditionType.HANDOVER_READY)

        return self._wait(f"{name} is held and proven", name, is_proven, seconds)

    def _wait(self, claim: str, name: str, reached: Callable[[Reservation], bool], seconds: float) -> Reservation:
        seen: list[Reservation] = []

        def look() -> bool:
            seen[:] = [self.read(name)]
            return reached(seen[0])

        try:
            eventually(claim, look, seconds=seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen[0].status}") from error
        return seen[0]

    def wait_until_empty(self, name: str = "place", *, seconds: float = 60) -> None:
        eventually(f"{name} holds nothing", lambda: not self.placeholders(name), seconds=seconds)

    def leftovers(self) -> list[str]:
        """Return what is not as it must be on this stage."""
        return [str(found) for found in self._violations()]

    def require_rest(self) -> None:
        """Fail if anything on this stage is not as it must be for longer than it may; that pods wait is theirs."""
        waiting = {Invariant.POD_PENDING, Invariant.WORKLOAD_SHORT}
        clock = SystemClock()
        breaches = monitor_invariants(
            lambda: [v for v in self._violations() if v.invariant not in waiting], clock, bounds=PATIENCE
        )
        assert not breaches, "\n".join(map(str, breaches))

    def _violations(self) -> tuple[Violation, ...]:
        return find_violations(self._own(read_state(self.client)), now=SystemClock().now())

    def _own(self, state: ClusterState) -> ClusterState:
        """Return the part of a cluster's state that is this stage's: what is of the whole cluster is left out."""
        pods = (pod for pod in state.pods if self._is_own(pod))
        return replace(
            state,
            pods=tuple(pods),
            nodes=tuple(node for node in state.nodes if node.metadata.name in self.nodes),
            reservations=tuple(r for r in state.reservations if r.metadata.namespace == self.namespace),
            workloads=tuple(w for w in state.workloads if w.metadata.namespace == self.namespace),
            priority_classes=(),
            webhooks=(),
        )

    def _is_own(self, pod: Pod) -> bool:
        holds_for = pod.metadata.annotations.get(RESERVATION_NAME_ANNOTATION, "").partition("/")[0]
        return self.namespace in {pod.metadata.namespace, holds_for} or pod.spec.node_name in self.nodes

    def clear(self) -> None:
        """Take away everything that the test made."""
        for resource in (RESERVATIONS, DEPLOYMENTS, JOBS, PODS):
            delete_all(self.client, resource, self.namespace)
        eventually("the stage is empty", self._is_empty, seconds=90)
        for name in self.nodes:
            delete_if_there(self.client, NODES, name)

    def _is_empty(self) -> bool:
        running = self.client.list(PODS, type=Pod).items
        return not any(pod.metadata.namespace == self.namespace or pod.spec.node_name in self.nodes for pod in running)


def delete_all(client: KubeClient, resource: Resource, namespace: str) -> None:
    for item in client.list(resource, namespace=namespace).items:
        delete_if_there(client, resource, item["metadata"]["name"], namespace)


def delete_if_there(client: KubeClient, resource: Resource, name: str, namespace: str | None = None) -> None:
    grace = 0 if resource is PODS else None
    try:
        client.delete(resource, name, namespace=namespace, grace_seconds=grace, propagation="Background")
    except NotFoundError:
        return


def is_gated(pod: Pod) -> bool:
    return any(gate.name == HANDOVER_GATE for gate in pod.spec.scheduling_gates)


@pytest.fixture(scope="module")
def operator(
    sandbox: Sandbox, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Yield one operator for all tests of a module; started again after a kill, it has its lease at once.

    A module whose claims have nothing to do with how often it lists what it does not watch may set `LIST_SECONDS`.
    """
    folder, often = tmp_path_factory.mktemp("operator"), getattr(request.module, "LIST_SECONDS", None)
    with running_operator(sandbox, folder, "--identity", "the-operator", list_seconds=often) as process:
        yield process


@pytest.fixture
def stage(sandbox: Sandbox, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """Yield a namespace and two nodes named after the test's number; look that all is well, and clear them away."""
    with sandbox.connect() as client:
        made = make_stage(sandbox, client, f"stage-{zlib.crc32(request.node.nodeid.encode()):08x}")
        try:
            yield made
            made.require_rest()  # the invariants hold at the end of every test, whatever it was about
        finally:
            made.clear()


def make_stage(sandbox: Sandbox, client: KubeClient, name: str) -> Stage:
    """Make a namespace and two nodes that only its pods select."""
    namespace = make_namespace(client, name)
    shape = NodeShape(cpu=WHOLE_NODE, memory="16Gi", labels={"stage": namespace})
    return Stage(client, namespace, sandbox.add_nodes(2, shape, prefix=f"{namespace}-node-"))
