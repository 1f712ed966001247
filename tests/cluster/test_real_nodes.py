"""Moves on three real nodes: slow, crashing and missing containers, long hooks, and programs that are killed meanwhile.

What is carried out is carried out once, by a fixture, for all tests that look at it.
"""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from berth_core import Node, Pod
from berth_core.labels import RESERVATION_LABEL
from berth_core.migration_plans import MigrationPlan, MoveReason, MoveState, MoveStatus
from berth_kube.client import KubeClient
from berth_kube.errors import NotFoundError
from berth_kube.resources import (
    DEPLOYMENTS,
    JOBS,
    MIGRATION_PLANS,
    NAMESPACES,
    NODES,
    PDBS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Resource,
)
from berth_sandbox.binaries import find_binaries
from berth_sandbox.components import Component
from berth_sandbox.errors import ComponentError
from berth_sandbox.folders import SandboxFolder
from berth_sandbox.processes import read_command_line
from berth_sandbox.real_nodes.callers import CallerReport, ServiceCaller
from berth_sandbox.real_nodes.cgroups import CGROUP_ROOT, SandboxCgroups
from berth_sandbox.real_nodes.images import APP_IMAGE, build_archive, build_images
from berth_sandbox.real_nodes.nodes import NodeProgram
from berth_sandbox.sandbox import Sandbox
from berth_sandbox.settings import SandboxSettings
from cluster_objects import is_gone, make_namespace, pods, require_rest
from control_planes import control_plane
from descheduling_stage import Run
from service_processes import OperatorProcess, script
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep, pytest.mark.real_nodes]

SOURCE, *OTHERS = "real-1", "real-2", "real-3"
PORT: Final = 8080
BOUND_SECONDS: Final = 600.0
"""Of what takes a minute on an idle machine."""
GRACE_SECONDS: Final = 10
SHORT_GRACE_SECONDS: Final = 3
SLOW: Final = "60s"
ONLY_ON_SOURCE: Final = "berth.invalid/only-here:1"
SERVED: Final = "shop"


@dataclass
class Stage:
    """Three real nodes, an operator, and what the scenes do with them."""

    sandbox: Sandbox
    client: KubeClient
    folder: Path
    operator: OperatorProcess
    runs: list[Run] = field(default_factory=list)

    # --- what is there ------------------------------------------------------------------------------------------------

    def pods(self, namespace: str, **labels: str) -> tuple[Pod, ...]:
        return pods(self.client, namespace, **labels)

    def ready(self, namespace: str, node: str = "") -> list[Pod]:
        """Return the pods that are ready, on a node or anywhere."""
        return [
            pod
            for pod in self.pods(namespace)
            if pod.is_ready and not pod.is_terminating and node in {"", pod.spec.node_name}
        ]

    def plan(self) -> MigrationPlan | None:
        """Return the first plan of the scene."""
        plans = self.client.list(MIGRATION_PLANS, type=MigrationPlan).items
        return min(plans, key=lambda plan: plan.metadata.creation_timestamp or "", default=None)

    def statuses(self) -> dict[str, MoveStatus]:
        """Return the status of each move of that plan by the app of its pod."""
        plan = self.plan()
        assert plan is not None
        return {move.pod.split("-")[0]: status for move, status in zip(plan.spec.moves, plan.status.moves, strict=True)}

    # --- what happens -------------------------------------------------------------------------------------------------

    def open_only(self, *open_nodes: str) -> None:
        for node in (SOURCE, *OTHERS):
            self.client.merge_patch(NODES, node, {"spec": {"unschedulable": node not in open_nodes}})

    def deploy_on_source(self, namespace: str, bodies: Sequence[tuple[Resource, dict[str, Any]]]) -> None:
        """Create what makes one pod each, wait until all are ready on the source, and open the other nodes."""
        self.open_only(SOURCE)
        for resource, body in bodies:
            self.client.create(resource, body, namespace=namespace)
        self.wait(f"{len(bodies)} pods are ready", lambda: len(self.ready(namespace, SOURCE)) == len(bodies))
        self.open_only(SOURCE, *OTHERS)

    def start(self, command: str, *options: str) -> Run:
        run = Run(self.sandbox.kubeconfig, self.folder, options, name=command)
        self.runs.append(run)
        run.start()
        return run

    def wait(self, claim: str, reached: Any) -> None:  # noqa: ANN401 - any check
        eventually(claim, reached, seconds=BOUND_SECONDS)

    def wait_for_plan(self, run: Run) -> MigrationPlan:
        """Return the first plan once it is over; its run may go on."""

        def is_over() -> bool:
            plan = self.plan()
            return (plan is not None and plan.phase.terminal) or run.exit_code is not None

        self.wait("the plan is over", is_over)
        plan = self.plan()
        assert plan is not None, run.tail(100)
        assert plan.phase.terminal, run.tail(100)
        return plan

    def clear(self, namespace: str) -> None:
        """Take away what a scene has made, so that the next one finds three empty nodes."""
        for run in self.runs:
            run.stop()
        self.runs.clear()
        self.client.delete(NAMESPACES, namespace)
        for plan in self.client.list(MIGRATION_PLANS, type=MigrationPlan).items:
            self.client.delete(MIGRATION_PLANS, plan.metadata.name)

        def is_empty() -> bool:
            for pod in self.pods(namespace):
                with suppress(NotFoundError):
                    self.client.delete(PODS, pod.metadata.name, namespace=namespace, grace_seconds=0)
            return not self.client.list(PODS).items and is_gone(self.client, NAMESPACES, namespace)

        self.wait("no pod is left", is_empty)
        self.open_only(SOURCE, *OTHERS)
        require_rest(self.client)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    folder = tmp_path_factory.mktemp("real-nodes")
    settings = SandboxSettings(real_nodes=1 + len(OTHERS), timeout_seconds=BOUND_SECONDS)
    with (
        control_plane(settings) as sandbox,
        sandbox.connect() as client,
        OperatorProcess(sandbox, folder) as operator,
    ):
        yield Stage(sandbox, client, folder, operator)


# --- objects ---------------------------------------------------------------------------------------------------------


def build_pod(app: str, *arguments: str, image: str = APP_IMAGE, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - of a pod
    """Return a template of a pod that serves, by default at once and until it is told to end."""
    container = {
        "name": "app",
        "image": image,
        "args": list(arguments or ("serve",)),
        "env": [{"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        **spec.pop("container", {}),
    }
    if container["args"][0] == "serve":
        container["readinessProbe"] = {"httpGet": {"path": "/ready", "port": PORT}, "periodSeconds": 1}
    body = {"containers": [container], "terminationGracePeriodSeconds": GRACE_SECONDS, **spec}
    return {"metadata": {"labels": {"app": app}}, "spec": body}


def deployment(app: str, *arguments: str, replicas: int = 1, **spec: Any) -> tuple[Resource, dict[str, Any]]:  # noqa: ANN401
    body = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": app},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": app}},
            "template": build_pod(app, *arguments, **spec),
        },
    }
    return DEPLOYMENTS, body


def stateful_set(app: str) -> tuple[Resource, dict[str, Any]]:
    _, body = deployment(app)
    return STATEFUL_SETS, {**body, "kind": "StatefulSet", "spec": {**body["spec"], "serviceName": app}}


def job(app: str) -> tuple[Resource, dict[str, Any]]:
    """Return a Job to which an eviction is no failure."""
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    spec = {
        "podFailurePolicy": {"rules": [ignored]},
        "backoffLimit": 0,
        "template": build_pod(app, "work", "-for=1h", restartPolicy="Never"),
    }
    return JOBS, {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": app}, "spec": spec}


def build_closed_budget(app: str) -> dict[str, Any]:
    """Return a budget that lets no pod go."""
    spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": app}, "spec": spec}


# --- a drain of pods that are not alike ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drained:
    """What became of the pods of the source."""

    statuses: dict[str, MoveStatus]
    before: dict[str, Pod]
    after: dict[str, Pod]
    job: dict[str, Any]


PLAIN: Final = tuple(f"plain{number}" for number in range(1, 5))
"""Pods of which there is nothing to say: a plan stops where a larger share than 20 % of its moves fails."""


@pytest.fixture(scope="module")
def drained(stage: Stage) -> Drained:
    """Drain a node of pods whose replacements are slow, crash, or lack their image, and of some that go well."""
    namespace = make_namespace(stage.client, "drained")
    program = build_images(print).program.read_bytes()
    archive = stage.folder / "only-here.tar"
    archive.write_bytes(build_archive(program, [ONLY_ON_SOURCE], "amd64"))
    stage.sandbox.real_nodes.import_images(SOURCE, archive)
    long_hook = {"lifecycle": {"preStop": {"exec": {"command": ["/app", "sleep", "10m"]}}}}
    stage.deploy_on_source(
        namespace,
        [
            deployment("slow", "serve", f"-ready={SLOW}", f"-home={SOURCE}"),
            deployment("crash", "serve", "-crash=100ms", f"-home={SOURCE}"),
            deployment("image", image=ONLY_ON_SOURCE),
            deployment("hook", container=long_hook, terminationGracePeriodSeconds=SHORT_GRACE_SECONDS),
            stateful_set("stateful"),
            job("job"),
            *(deployment(app) for app in PLAIN),
        ],
    )
    before = by_app(stage.pods(namespace))
    stage.wait_for_plan(stage.start("drain", SOURCE))
    statuses = stage.statuses()
    stage.runs[0].stop()
    after = by_app(stage.ready(namespace))
    result = Drained(statuses, before, after, stage.client.get(JOBS, "job", namespace=namespace))
    stage.clear(namespace)
    return result


def by_app(found: Sequence[Pod]) -> dict[str, Pod]:
    return {pod.metadata.labels["app"]: pod for pod in found}


@pytest.mark.parametrize("app", ["hook", "job", "slow", "stateful", *PLAIN])
def test_a_pod_lands_on_its_target_whatever_it_takes(drained: Drained, app: str) -> None:
    assert (drained.statuses[app].state, drained.statuses[app].reason) == (MoveState.LANDED, MoveReason.NONE)
    assert drained.after[app].spec.node_name in OTHERS
    assert drained.after[app].metadata.uid != drained.before[app].metadata.uid


@pytest.mark.parametrize(
    ("app", "want_reason"), [("crash", MoveReason.CRASH_LOOP_BACK_OFF), ("image", MoveReason.IMAGE_PULL_BACK_OFF)]
)
def test_a_replacement_that_cannot_run_is_given_up_by_its_own_name_and_the_old_pod_stays(
    drained: Drained, app: str, want_reason: MoveReason
) -> None:
    assert (drained.statuses[app].state, drained.statuses[app].reason) == (MoveState.FAILED, want_reason)
    assert drained.after[app].metadata.uid == drained.before[app].metadata.uid
    assert drained.after[app].spec.node_name == SOURCE


def test_the_message_of_a_missing_image_names_it(drained: Drained) -> None:
    assert ONLY_ON_SOURCE in drained.statuses["image"].message


def test_an_eviction_is_no_failure_of_a_job(drained: Drained) -> None:
    assert drained.job["status"].get("failed", 0) == 0
    assert drained.job["status"]["active"] == 1


# --- a consolidation in which everything is killed -------------------------------------------------------------------


@dataclass(frozen=True)
class Consolidated:
    """What became of pods behind a Service, and what its client has seen."""

    failed: dict[str, str]
    """What the moves say that failed for want of their operator, by pod: the next run makes them again."""
    freed: int
    ready: int
    report: CallerReport


APPS: Final = {"cart": 3, "search": 3}


@pytest.fixture(scope="module")
def consolidated(stage: Stage) -> Consolidated:
    """Consolidate pods whose budgets let none go, and kill operator, kubelet and containerd in a hand-over."""
    namespace = make_namespace(stage.client, SERVED)
    wanted = sum(APPS.values())
    service = {"selector": {"part-of": SERVED}, "ports": [{"port": PORT}]}
    head = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": SERVED}}
    stage.client.create(SERVICES, {**head, "spec": service}, namespace=namespace)
    for app, replicas in APPS.items():
        served = {"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}}
        resource, body = deployment(app, "serve", "-drain=1s", replicas=replicas, container=served)
        body["spec"]["template"]["metadata"]["labels"]["part-of"] = SERVED
        stage.client.create(PDBS, build_closed_budget(app), namespace=namespace)
        stage.client.create(resource, body, namespace=namespace)
    stage.wait("all pods are ready", lambda: len(stage.ready(namespace)) == wanted)
    used_before = {pod.spec.node_name for pod in stage.ready(namespace)}
    nodes = stage.sandbox.real_nodes
    with ServiceCaller(stage.client, nodes, namespace=namespace, service=SERVED) as caller:
        stage.wait("every pod is asked", lambda: caller.report().requests > wanted)
        run = stage.start("run", "--per-controller=2")
        stage.wait("a hand-over has begun", lambda: in_handover(stage, namespace))
        (target, *_) = {move.target for plan in [stage.plan()] if plan for move in plan.spec.moves}
        stage.operator.kill()
        for program in NodeProgram:
            nodes.kill(target, program)
        for program in (NodeProgram.CONTAINERD, NodeProgram.KUBELET):
            nodes.start_program(target, program)
        stage.operator.start()
        plan = stage.wait_for_plan(run)
        run.wait(BOUND_SECONDS)
        stage.wait("all are ready", lambda: len(stage.ready(namespace)) == len(stage.pods(namespace)) == wanted)
        ready_after_kills = len(stage.ready(namespace))
        failed = {status.pod: status.message for status in plan.status.moves if status.state is MoveState.FAILED}
        stage.start("run", "--per-controller=2").wait(BOUND_SECONDS)
        stage.wait("all are ready", lambda: len(stage.ready(namespace)) == len(stage.pods(namespace)) == wanted)
        until_then = caller.report().requests
        stage.wait("requests go on", lambda: caller.report().requests > until_then + wanted)
    result = Consolidated(
        failed=failed,
        freed=len(used_before - {pod.spec.node_name for pod in stage.ready(namespace)}),
        ready=ready_after_kills,
        report=caller.report(),
    )
    stage.clear(namespace)
    return result


def in_handover(stage: Stage, namespace: str) -> bool:
    """Return whether a replacement has a slot and does not run yet."""
    held = stage.client.list(PODS, namespace=namespace, label_selector=RESERVATION_LABEL, type=Pod).items
    return any(pod.status.phase == "Pending" for pod in held)


def test_no_request_fails_while_pods_move_whose_budgets_let_none_go(consolidated: Consolidated) -> None:
    assert consolidated.report.requests > 0
    assert consolidated.report.failures == ()


def test_operator_kubelet_and_containerd_killed_in_a_hand_over_lose_no_pod(consolidated: Consolidated) -> None:
    assert consolidated.ready == sum(APPS.values())


def test_the_nodes_are_free_after_the_next_run_at_the_latest(consolidated: Consolidated) -> None:
    assert consolidated.freed == len(OTHERS), consolidated.failed


# --- a source whose kubelet is away ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Abandoned:
    """What became of a pod whose kubelet was away."""

    status: MoveStatus
    exit_code: int
    freed: tuple[str, ...]
    ready: list[Pod]
    stayed: list[Pod]


@pytest.fixture(scope="module")
def abandoned(stage: Stage) -> Abandoned:
    """Drain a node whose kubelet has just died."""
    namespace = make_namespace(stage.client, "abandoned")
    stage.deploy_on_source(namespace, [deployment("web", terminationGracePeriodSeconds=SHORT_GRACE_SECONDS)])
    nodes = stage.sandbox.real_nodes
    nodes.kill(SOURCE, NodeProgram.KUBELET)
    try:
        run = stage.start("drain", SOURCE, "--end-timeout=5s")
        plan = stage.wait_for_plan(run)
        exit_code = run.wait(BOUND_SECONDS)
        found = stage.pods(namespace)
        result = Abandoned(
            status=stage.statuses()["web"],
            exit_code=exit_code,
            freed=plan.status.achieved.freed_nodes if plan.status.achieved else (),
            ready=stage.ready(namespace),
            stayed=[pod for pod in found if pod.is_terminating and pod.spec.node_name == SOURCE],
        )
    finally:
        nodes.start_program(SOURCE, NodeProgram.KUBELET)
    stage.wait("the kubelet is back", lambda: not taints(stage, SOURCE))
    stage.clear(namespace)
    return result


def taints(stage: Stage, node: str) -> list[str]:
    """Return what the node controllers say of a node; a drain has cordoned it."""
    return [
        taint.key
        for taint in stage.client.get(NODES, node, type=Node).spec.taints
        if taint.key in {"node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"}
    ]


def test_the_move_of_a_pod_that_never_ends_says_so(abandoned: Abandoned) -> None:
    assert (abandoned.status.state, abandoned.status.reason) == (MoveState.LANDED, MoveReason.POD_STAYS)
    assert len(abandoned.stayed) == 1
    assert abandoned.exit_code == 1


def test_its_node_is_not_called_freed(abandoned: Abandoned) -> None:
    assert SOURCE not in abandoned.freed


def test_its_replacement_serves_elsewhere(abandoned: Abandoned) -> None:
    assert [pod.spec.node_name in OTHERS for pod in abandoned.ready] == [True]


# --- what is left ----------------------------------------------------------------------------------------------------


PATHS_OF_NODES: Final = (
    *(Path("/run") / name for name in ("containerd", "netns")),
    *(Path("/var/lib") / name for name in ("cni", "containerd", "kubelet")),
    *(Path("/var/log") / name for name in ("containers", "pods")),
    Path("/usr/libexec/kubernetes"),
    Path("/sys/class/net/pods-1"),
)
"""What a kubelet, a containerd and network plugins make on a machine that is theirs."""


def leftovers(root: Path) -> list[str]:
    """Return what is there of a sandbox: its folder, its processes, mounts of this machine, and cgroups."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    commands = {path.name: read_command_line(int(path.name)) for path in Path("/proc").glob("[0-9]*")}
    cgroups = SandboxCgroups(root)
    return [
        *(str(path) for path in [root] if path.exists()),
        *(f"{pid}: {command}" for pid, command in commands.items() if str(root) in command),
        *(line for line in mounts if str(root) in line),
        *(str(path) for path in CGROUP_ROOT.glob(f"**/{cgroups.name}")),
    ]


def test_nothing_is_left_of_real_nodes_whose_starter_is_gone(stage: Stage, tmp_path: Path) -> None:
    assert stage.sandbox.real_nodes.live(), "other real nodes are there at the same time"
    before = [path for path in PATHS_OF_NODES if path.exists()]
    environ = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    command = (script("berth"), "sandbox")
    named = ("--name", "left")
    subprocess.run((*command, "up", *named, "--real-nodes", "1"), env=environ, check=True, timeout=BOUND_SECONDS)
    root = tmp_path / "berth" / "sandboxes" / "left"
    assert leftovers(root)
    for name in (Component.API_SERVER, "node-relay", "real-1"):
        os.kill(int(SandboxFolder(root).pid_file(name).read_text()), signal.SIGKILL)
    subprocess.run((*command, "down", *named), env=environ, check=True, timeout=BOUND_SECONDS)
    assert leftovers(root) == []
    assert [path for path in PATHS_OF_NODES if path.exists()] == before
    assert len(stage.sandbox.real_nodes.live()) == len(stage.sandbox.real_nodes.programs)


def test_nothing_is_left_of_a_start_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    settings = SandboxSettings(name="fails", real_nodes=1, timeout_seconds=BOUND_SECONDS)
    binaries = {**find_binaries(print), "kubelet": Path("/bin/false")}
    with pytest.raises(ComponentError, match="real-1-kubelet ended at its start"):
        Sandbox.start(settings, binaries=binaries)
    assert leftovers(tmp_path / "berth" / "sandboxes" / "fails") == []
