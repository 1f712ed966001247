"""The demo on real nodes: containers behind a Service are moved while a client sends them requests all the time."""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from berth_core import MoveState, Pod
from berth_descheduler.capabilities.demo.cli.scenario import PLANNER_SETTINGS, Narrator, run_services
from berth_descheduler.planner import measure_cluster, plan
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import (
    DEPLOYMENTS,
    NAMESPACES,
    PDBS,
    PODS,
    SERVICE_ACCOUNTS,
    SERVICES,
    KubeClient,
    NotFoundError,
    connect,
)
from berth_sandbox.errors import SandboxError
from berth_sandbox.real_nodes.callers import ServiceCaller
from berth_sandbox.real_nodes.images import APP_IMAGE
from berth_sandbox.sandbox import Sandbox

_NAMESPACE: Final = "shop"
_SERVICE: Final = "shop"
_APPLICATIONS: Final = {"cart": 3, "search": 3}
"""Deployments, each with its pods; all are behind the one Service."""
_REQUESTS: Final = {"cpu": "250m", "memory": "256Mi"}
_PORT: Final = 8080
_DRAIN_SECONDS: Final = 3
"""How long a pod that is going serves on, until every balancer has heard of it."""
_GRACE_SECONDS: Final = 15
_READY_SECONDS: Final = 120.0
_POLL_SECONDS: Final = 0.2
_SHOWN_FAILURES: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RealDemoResult:
    """What the demo on real nodes achieved."""

    nodes: int
    freed_nodes: int
    moves: int
    landed_on_target: int
    pods: int
    requests: int
    failed: int
    failures: tuple[str, ...]
    """The first failed requests, a sentence each."""
    fewest_endpoints: int
    seconds: float
    plan: str
    outcome: str

    @property
    def succeeded(self) -> bool:
        """Return whether nodes were freed, and every request was answered meanwhile."""
        return self.freed_nodes > 0 and self.requests > 0 and self.failed == 0


def run_real_demo(sandbox: Sandbox, narrator: Narrator) -> RealDemoResult:
    """Run applications on the real nodes of a sandbox, consolidate them, and return what their client has seen."""
    with connect(kubeconfig=str(sandbox.kubeconfig), user_agent="berth-demo") as client:
        wanted_pods = sum(_APPLICATIONS.values())
        _create_applications(client)
        _wait(f"{wanted_pods} pods are ready", lambda: len(_ready_pods(client)) == wanted_pods)
        fragmentation_before = measure_cluster(read_live_snapshot(client), PLANNER_SETTINGS)
        applications = " and ".join(_APPLICATIONS)
        narrator.say(f"{wanted_pods} pods of {applications} run in containers on {_spread(client)}, behind one Service")
        with ServiceCaller(client, sandbox.real_nodes, namespace=_NAMESPACE, service=_SERVICE) as caller:
            _wait("the client asks every pod", lambda: caller.report().requests > wanted_pods)
            narrator.say("a client asks every ready endpoint, all the time")
            started = time.monotonic()
            proposed_plan = plan(read_live_snapshot(client), PLANNER_SETTINGS)
            freed_nodes, move_count = len(proposed_plan.freed_nodes), len(proposed_plan.moves)
            narrator.say(f"{move_count} moves free {freed_nodes} of {len(fragmentation_before.nodes)} nodes")
            carried_out_plan = run_services(sandbox, client, narrator)
            seconds = time.monotonic() - started
            _wait(f"{wanted_pods} pods are ready, and none is ending", lambda: len(_pods(client)) == wanted_pods)
            after = measure_cluster(read_live_snapshot(client), PLANNER_SETTINGS)
            narrator.say(f"now they run on {_spread(client)}")
        report = caller.report()
    states = [move.state for move in carried_out_plan.status.moves] if carried_out_plan else []
    return RealDemoResult(
        nodes=len(after.nodes),
        freed_nodes=len(set(after.empty_nodes) - set(fragmentation_before.empty_nodes)),
        moves=len(states),
        landed_on_target=sum(state is MoveState.LANDED for state in states),
        pods=wanted_pods,
        requests=report.requests,
        failed=len(report.failures),
        failures=report.failures[:_SHOWN_FAILURES],
        fewest_endpoints=report.fewest_endpoints,
        seconds=round(seconds, 1),
        plan=carried_out_plan.metadata.name if carried_out_plan else "",
        outcome=carried_out_plan.status.message if carried_out_plan else "nothing to move",
    )


def _pods(client: KubeClient) -> list[Pod]:
    return list(client.list(PODS, namespace=_NAMESPACE, type=Pod).items)


def _ready_pods(client: KubeClient) -> list[Pod]:
    return [pod for pod in _pods(client) if pod.is_ready and not pod.is_terminating]


def _spread(client: KubeClient) -> str:
    """Return how many pods run on which node, as in `real-1 (2) and real-2 (4)`."""
    counts = Counter(pod.spec.node_name for pod in _ready_pods(client))
    parts = [f"{node} ({count})" for node, count in sorted(counts.items())]
    return " and ".join((*([", ".join(parts[:-1])] if len(parts) > 1 else []), *parts[-1:]))


def _wait(claim: str, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _READY_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            raise SandboxError(f"not within {_READY_SECONDS:g} s: {claim}")
        time.sleep(_POLL_SECONDS)


def _create_applications(client: KubeClient) -> None:
    """Create the Service, and each application with a budget that lets one of its pods be missing."""
    client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE}})
    # The admission plugin ServiceAccount refuses pods until a controller has made the namespace's account
    # (`plugin/pkg/admission/serviceaccount`).
    _wait(f"pods can be made in {_NAMESPACE}", lambda: _has_account(client))
    client.create(SERVICES, build_service(), namespace=_NAMESPACE)
    for application, replicas in _APPLICATIONS.items():
        client.create(PDBS, build_budget(application), namespace=_NAMESPACE)
        client.create(DEPLOYMENTS, build_deployment(application, replicas), namespace=_NAMESPACE)


def _has_account(client: KubeClient) -> bool:
    try:
        client.get(SERVICE_ACCOUNTS, "default", namespace=_NAMESPACE)
    except NotFoundError:
        return False
    return True


def build_service() -> dict[str, Any]:
    """Return the Service of all applications."""
    spec = {"selector": {"part-of": _SERVICE}, "ports": [{"port": _PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": _SERVICE}, "spec": spec}


def build_budget(name: str) -> dict[str, Any]:
    """Return a budget that lets one pod of an application be missing."""
    # Not minAvailable with the number of replicas, a frequent mistake: that allows no eviction at all.
    spec = {"maxUnavailable": 1, "selector": _selector(name)}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def _selector(name: str) -> Mapping[str, Any]:
    return {"matchLabels": {"app": name}}


def build_deployment(name: str, replicas: int) -> dict[str, Any]:
    """Return a Deployment whose pods have a readiness probe and go on serving for a while when they are deleted."""
    container = {
        "name": "app",
        "image": APP_IMAGE,
        "args": ["serve", f"-port={_PORT}", "-drain=1s"],
        "env": [_from_field("POD", "metadata.name"), _from_field("NODE", "spec.nodeName")],
        "resources": {"requests": _REQUESTS},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": _PORT}, "periodSeconds": 1},
        # Endpoints and the end of a pod are two chains of events that do not wait for each other: a pod that stopped at
        # once would still be sent requests. The sleep needs no program in the image (KEP-3960).
        "lifecycle": {"preStop": {"sleep": {"seconds": _DRAIN_SECONDS}}},
    }
    pod_spec = {"containers": [container], "terminationGracePeriodSeconds": _GRACE_SECONDS}
    template = {"metadata": {"labels": {"app": name, "part-of": _SERVICE}}, "spec": pod_spec}
    spec = {"replicas": replicas, "selector": _selector(name), "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def _from_field(variable: str, path: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"fieldPath": path}}}
