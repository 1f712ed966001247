"""A small fragmented cluster on which the descheduler runs as a program, again for every test of a module."""
# ruff: noqa: ANN401 - options of a pod are passed on

import json
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest

from berth_core import Node, Pod
from berth_core.labels import PREFIX
from berth_core.migration_plans import MigrationPlan, MoveState
from berth_core.reservations import Reservation
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import DEPLOYMENTS, MIGRATION_PLANS, NAMESPACES, NODES, PODS, RESERVATIONS
from berth_sandbox.invariants import Invariant
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.services import ServiceProcess
from berth_sandbox.settings import SandboxSettings
from cluster_objects import build_deployment, make_namespace, pod_template, require_rest
from control_planes import control_plane
from service_processes import OperatorProcess, running_operator, script
from waiting import eventually

PLANNER: Final = (
    *("--whole-nodes", "--low-threshold=40", "--defragment-threshold=45", "--protection-threshold=100"),
    *("--no-taint-freed", "--moves=Evict"),
)
"""Moves are made by eviction, unless a test says otherwise."""
LEASE_SECONDS: Final = 12
"""Of a run that may be killed: the next one waits for as long. A busy machine must not lose it meanwhile."""
MOVERS: Final = ("api", "web")
PODS_OF_A_MOVER: Final = 2
NODE_CPU: Final = 8
BASE_CPU: Final = "4"
AT_ONCE: Final = {"starts-after-seconds": "0", "ready-after-seconds": "0", "ends-after-seconds": "0"}
"""Of pods whose pace says nothing."""
SLOWLY: Final = {"starts-after-seconds": "2", "ready-after-seconds": "1", "ends-after-seconds": "2"}
GRACE_SECONDS: Final = 30


class Run(ServiceProcess):
    """One `berth run`, or another command that makes cycles, whose outcome goes to a file."""

    def __init__(self, kubeconfig: Path, folder: Path, options: Sequence[str], name: str = "run") -> None:
        self._stamp = f"{name}-{time.monotonic_ns()}"
        log = folder / f"{self._stamp}.log"
        command = [
            *(script("berth"), name, f"--kubeconfig={kubeconfig}", "--output=json", "--verbose"),
            *(("--yes",) if name == "run" else ()),
            *(f"--lease-seconds={LEASE_SECONDS}", *options),
        ]
        super().__init__(["/bin/sh", "-c", f'exec "$0" "$@" >{folder}/{self._stamp}.json', *command], log)
        self._outcome = folder / f"{self._stamp}.json"

    def wait(self, seconds: float = 300) -> int:
        """Wait for its end and return its exit code; its log is shown where it does not come."""
        try:
            eventually("the run is over", lambda: self.exit_code is not None, seconds=seconds)
        except AssertionError:
            print(self.tail(100))  # noqa: T201 - pytest shows it with the failure
            raise
        code = self.exit_code
        assert code is not None
        return code

    @property
    def outcome(self) -> dict[str, Any]:
        """Return what it printed."""
        found: dict[str, Any] = json.loads(self._outcome.read_text())
        return found


class Scene:
    """Half-full nodes and nearly empty ones, whose pods fit on the half-full ones."""

    def __init__(
        self, sandbox: Sandbox, client: KubeClient, folder: Path, name: str, planner: Sequence[str] = PLANNER
    ) -> None:
        self.planner = planner
        self.sandbox = sandbox
        self.client = client
        self.folder = folder
        self.namespace = name
        self._runs: list[Run] = []
        self.pace: Mapping[str, str] = {}
        """How the pods of Deployments start and end, where pods take their time; see `sandbox.md`."""
        self.high: tuple[str, ...] = ()
        self.low: tuple[str, ...] = ()

    def set_up(self, *, high: int = 2, low: int = 2) -> None:
        """Fill half of the high nodes, then let the movers go to the low ones."""
        make_namespace(self.client, self.namespace)
        shape = NodeShape(cpu=str(NODE_CPU), memory="64Gi", labels={"tier": "high"})
        self.high = self.sandbox.add_nodes(high, shape, prefix=f"{self.namespace}-high-")
        base = {"nodeSelector": {"tier": "high"}, **_apart("base")}
        self.deploy("base", replicas=high, cpu=BASE_CPU, pace=AT_ONCE, **base)
        self.cordon(*self.high)
        self.low = self.sandbox.add_nodes(low, NodeShape(cpu=str(NODE_CPU)), prefix=f"{self.namespace}-low-")
        self._let_the_scheduler_hear()
        for name in MOVERS:
            self.deploy(name, replicas=PODS_OF_A_MOVER, cpu="1")
        self.cordon(*self.high, closed=False)

    def _let_the_scheduler_hear(self) -> None:
        """Wait until it places pods on the low nodes: then it knows also what was done to the high ones before."""
        probes = {f"probe-{node}": node for node in self.low}
        for name, node in probes.items():
            self.create_pod(name, cpu="1m", nodeSelector={"kubernetes.io/hostname": node})
        placed = lambda: all(self.pods_on(node) == [name] for name, node in probes.items())  # noqa: E731
        eventually("the scheduler knows the low nodes", placed, seconds=60)
        for name in probes:
            self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)
        eventually("the probes are gone", lambda: not any(map(self.pods_on, self.low)), seconds=30)

    def clear(self) -> None:
        """Take everything away, so that the next scene has a cluster of its own."""
        for run in self._runs:
            run.stop()
        for found in self.plans():
            with suppress(NotFoundError):
                self.client.delete(MIGRATION_PLANS, found.metadata.name)
        for one in self.client.list(DEPLOYMENTS, namespace=self.namespace).items:
            self.client.delete(DEPLOYMENTS, one["metadata"]["name"], namespace=self.namespace, propagation="Background")
        eventually("its pods are gone", self._delete_pods, seconds=120)
        for node in self.nodes():
            self.client.delete(NODES, node.metadata.name)
        self.client.delete(NAMESPACES, self.namespace)

    def _delete_pods(self) -> bool:
        found = self.client.list(PODS).items
        for pod in found:
            with suppress(NotFoundError):
                meta = pod["metadata"]
                self.client.delete(PODS, meta["name"], namespace=meta["namespace"], grace_seconds=0)
        return not found

    # --- what is there ------------------------------------------------------------------------------------------------

    def nodes(self) -> tuple[Node, ...]:
        return self.client.list(NODES, type=Node).items

    def pods(self, *, label_selector: str = "", field_selector: str = "") -> tuple[Pod, ...]:
        return self.client.list(
            PODS, namespace=self.namespace, type=Pod, label_selector=label_selector, field_selector=field_selector
        ).items

    def pods_on(self, node: str) -> list[str]:
        return sorted(pod.metadata.name for pod in self.pods(field_selector=f"spec.nodeName={node}"))

    def plans(self) -> tuple[MigrationPlan, ...]:
        found = self.client.list(MIGRATION_PLANS, type=MigrationPlan).items
        return tuple(sorted(found, key=lambda plan: plan.metadata.name))

    def states(self) -> list[MoveState]:
        return [move.state for plan in self.plans() for move in plan.status.moves]

    def has_begun(self) -> bool:
        """Return whether a run has reserved a place; there may be Reservations of earlier ones."""
        return any(plan.spec.moves for plan in self.plans()) and bool(self.client.list(RESERVATIONS).items)

    def has_evicted(self) -> bool:
        """Return whether a run has evicted a pod."""
        return bool({MoveState.EVICTED, MoveState.LANDED}.intersection(self.states()))

    def our_taints(self) -> dict[str, list[str]]:
        """Return Berth's taints by node, of the nodes that have any."""
        found = {n.metadata.name: [t.key for t in n.spec.taints if t.key.startswith(PREFIX)] for n in self.nodes()}
        return {name: keys for name, keys in found.items() if keys}

    # --- what happens -------------------------------------------------------------------------------------------------

    def deploy(
        self,
        name: str,
        *,
        replicas: int,
        cpu: str,
        wait: bool = True,
        pace: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        body = build_deployment(name, replicas=replicas, cpu=cpu, **spec)
        self.client.create(DEPLOYMENTS, self.paced(body, pace), namespace=self.namespace)
        ready = lambda: sum(pod.is_ready for pod in self.pods(label_selector=f"app={name}")) == replicas  # noqa: E731
        if wait:
            eventually(f"{name} runs", ready, seconds=90)

    def paced(self, body: dict[str, Any], pace: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the body of a controller whose pods start and end at this pace, by default at that of the scene."""
        template = body["spec"]["template"]
        set_pace(template, self.pace if pace is None else pace)
        if self.pace:
            template["spec"]["terminationGracePeriodSeconds"] = GRACE_SECONDS
        return body

    def remove(self, name: str) -> None:
        self.client.delete(DEPLOYMENTS, name, namespace=self.namespace, propagation="Background")
        eventually(f"{name} is gone", lambda: not self.pods(label_selector=f"app={name}"), seconds=90)

    def create_pod(self, name: str, *, cpu: str, **spec: Any) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": name}, cpu=cpu, **spec)}
        body["metadata"]["name"] = name
        set_pace(body, AT_ONCE)
        self.client.create(PODS, body, namespace=self.namespace)

    def cordon(self, *nodes: str, closed: bool = True) -> None:
        for node in nodes:
            self.client.merge_patch(NODES, node, {"spec": {"unschedulable": closed or None}})

    def start(self, *options: str, kubeconfig: Path | None = None) -> Run:
        """Begin a run under the descheduler's account."""
        account = kubeconfig or self.sandbox.service_account_kubeconfig("berth-descheduler")
        return self._begin(Run(account, self.folder, (*self.planner, *options)))

    def start_drain(self, *arguments: str) -> Run:
        """Begin a drain, under the account of a person."""
        return self._begin(Run(self.sandbox.kubeconfig, self.folder, arguments, "drain"))

    def _begin(self, run: Run) -> Run:
        self._runs.append(run)
        run.start()
        return run

    def run(self, *options: str) -> dict[str, Any]:
        """Make a run and return its outcome."""
        run = self.start(*options)
        run.wait()
        try:
            return run.outcome
        except json.JSONDecodeError:
            print(run.tail(100))  # noqa: T201 - pytest shows it with the failure
            raise

    def wait_for(self, claim: str, reached: Callable[[], object], seconds: float = 120) -> None:
        eventually(claim, reached, seconds=seconds, pause_seconds=0.02)

    def wait_until_emptied(self) -> None:
        """Wait until nothing is on the low nodes: a plan is over when the last evicted pod is only ending."""
        self.wait_for("the moved pods have ended", lambda: not any(map(self.pods_on, self.low)))

    # --- what must be so ----------------------------------------------------------------------------------------------

    def require_peace(self, *allowed: Invariant, pods: int | None = None, within_seconds: float = 120) -> None:
        """Fail unless every pod of the workload runs, no plan is under way, and nothing of a run is left anywhere."""
        wanted = len(self.high) + len(MOVERS) * PODS_OF_A_MOVER if pods is None else pods
        try:
            eventually("all pods run", lambda: self._running() == wanted, seconds=within_seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}, {wanted} of them: {self._describe_pods()}") from error
        assert all(plan.phase.terminal for plan in self.plans())
        eventually("nothing is reserved", lambda: not self._live_reservations(), seconds=60)
        require_rest(self.client, Invariant.PRIORITY_CLASS_LEFT, *allowed)

    def _describe_pods(self) -> list[str]:
        return [
            f"{pod.metadata.name} {pod.status.phase} on {pod.spec.node_name or 'no node'}, "
            f"deleted {pod.metadata.deletion_timestamp}: {[one.message for one in pod.status.conditions]}"
            for pod in self.pods()
        ]

    def _running(self) -> int:
        ours = [pod for pod in self.pods() if pod.controller is not None]
        return len(ours) if all(pod.status.phase == "Running" and not pod.is_terminating for pod in ours) else -1

    def _live_reservations(self) -> list[str]:
        found = map(Reservation.read, self.client.list(RESERVATIONS).items)
        return [one.key for one in found if not one.phase.terminal]


StagedScene = TypeVar("StagedScene", bound=Scene)


def _apart(name: str) -> dict[str, Any]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": name}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def set_pace(pod: dict[str, Any], pace: Mapping[str, str]) -> None:
    """Say by annotations how a pod starts and ends."""
    annotations = {f"sandbox.berth.volcano.sh/{key}": value for key, value in pace.items()}
    pod["metadata"]["annotations"] = {**pod["metadata"].get("annotations", {}), **annotations}


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """Yield a control plane with both schedulers on which one test after the other has nodes and pods of its own."""
    with control_plane(SandboxSettings(second_scheduler=True)) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def serving_operator(cluster: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Yield an operator that runs beside the tests of that control plane."""
    with running_operator(cluster, tmp_path_factory.mktemp("operator")) as process:
        yield process


@pytest.fixture
def scene(
    cluster: Sandbox, serving_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """Yield a fragmented cluster; it is taken away afterwards."""
    assert serving_operator.exit_code is None
    with cluster.connect() as client, set_up(Scene(cluster, client, tmp_path, scene_name(request))) as made:
        yield made


@pytest.fixture(scope="module")
def paced_operator(paced_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Yield an operator that runs beside the tests of the control plane where pods take their time."""
    with running_operator(paced_sandbox, tmp_path_factory.mktemp("operator")) as process:
        yield process


@pytest.fixture
def paced_scene(
    paced_sandbox: Sandbox, paced_operator: OperatorProcess, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Scene]:
    """Yield a fragmented cluster whose pods take seconds to start on the high nodes, and to end."""
    assert paced_operator.exit_code is None
    with paced_sandbox.connect() as client:
        scene = Scene(paced_sandbox, client, tmp_path, scene_name(request))
        scene.pace = {**SLOWLY, "only-on": f"{scene.namespace}-high-"}
        with set_up(scene) as made:
            yield made


def scene_name(request: pytest.FixtureRequest) -> str:
    return f"shop-{zlib.crc32(request.node.nodeid.encode()):08x}"


@contextmanager
def set_up(scene: StagedScene) -> Iterator[StagedScene]:
    """Set a scene up, and take it away afterwards."""
    try:
        scene.set_up()
        yield scene
    finally:
        scene.clear()
