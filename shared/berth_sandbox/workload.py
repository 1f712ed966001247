"""A workload that fragments a cluster: mixed Deployments, a third of which are later scaled down."""

import random
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final

from berth_core import Node, Pod, ResourceAmounts
from berth_kube import DEPLOYMENTS, NAMESPACES, NODES, PDBS, PODS, AlreadyExistsError, KubeClient, Resource
from berth_sandbox.errors import SandboxError

Progress = Callable[[str], None]

NAMESPACE_NAMES: Final = ("checkout", "catalog", "media", "analytics")

_MEBI: Final = 1 << 20
_CPU_MILLIS: Final = (250, 250, 500, 500, 1000, 1000, 2000, 4000)
_MEBIBYTES_PER_CPU: Final = (1024, 2048, 4096)
_LEAST_MEBIBYTES: Final = 512
_MOST_MEBIBYTES: Final = 8192
_REPLICAS: Final = (2, 24)
_SHRUNK_SHARE: Final = 3
"""One in this many Deployments is scaled down."""
_SHRINK_DIVISOR: Final = 5
_BUDGET_EVERY: Final = 6
"""One in this many Deployments has a disruption budget."""
_AT_ONCE: Final = 8
_POLL_SECONDS: Final = 0.25
_PAUSE_BY_LOOK: Final = 5
"""A pause lasts this many times as long as the list before it, to spare busy clusters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentPlan:
    """One Deployment before and after the scaling down."""

    namespace: str
    name: str
    cpu_millis: int
    memory_bytes: int
    replicas: int
    replicas_after: int
    budget: bool = False

    @property
    def requests(self) -> ResourceAmounts:
        """What all replicas request at first."""
        return ResourceAmounts({"cpu": self.cpu_millis, "memory": self.memory_bytes}).times(self.replicas)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilledCluster:
    """The pods of a filled cluster, before and after the scaling down."""

    deployments: tuple[DeploymentPlan, ...]
    pods_before: int
    pods: int


def fill_cluster(
    client: KubeClient,
    *,
    seed: int,
    requested_share: float = 0.75,
    scales_down: bool = True,
    progress: Progress = lambda _line: None,
    timeout_seconds: float = 120.0,
) -> FilledCluster:
    """Fill nodes to a share of their cpu, then scale a third of the Deployments down; wait after each step.

    Without `scales_down` those pods are not made at all, which is quicker where only their number matters.
    The seed decides what is made and scaled; where it goes is the scheduler's choice. Raises `SandboxError` when a step
    does not settle within the timeout.
    """
    nodes = client.list(NODES, type=Node).items
    room = ResourceAmounts.total(ResourceAmounts.from_quantities(node.status.allocatable) for node in nodes)
    plans = plan_deployments(room, seed=seed, requested_share=requested_share)
    plans = plans if scales_down else already_scaled_down(plans)
    pods_before, pods_after = (
        sum(counts) for counts in zip(*((plan.replicas, plan.replicas_after) for plan in plans), strict=True)
    )
    progress(f"creating {len(plans)} Deployments with {pods_before} pods")
    _create_all(client, plans)
    _wait_until_settled(client, pods_before, timeout_seconds, progress)
    if shrunk := [plan for plan in plans if plan.replicas_after != plan.replicas]:
        progress(f"scaling {len(shrunk)} Deployments down, {pods_before - pods_after} pods fewer")
        _each(lambda plan: _scale(client, plan), shrunk)
        _wait_until_settled(client, pods_after, timeout_seconds, progress)
    return FilledCluster(deployments=plans, pods_before=pods_before, pods=pods_after)


def plan_deployments(room: ResourceAmounts, *, seed: int, requested_share: float) -> tuple[DeploymentPlan, ...]:
    """Return Deployments that request this share of the cpu, and no more than this share of the memory."""
    draw = random.Random(seed)  # noqa: S311 - chooses sizes, guards nothing
    limit = ResourceAmounts({name: int(room.get(name) * requested_share) for name in ("cpu", "memory")})
    plans: list[DeploymentPlan] = []
    requested = ResourceAmounts.empty()
    while True:
        plan = _draw_deployment(draw, len(plans))
        if not requested.plus(plan.requests).fits_within(limit):
            break
        plans.append(plan)
        requested = requested.plus(plan.requests)
    return _choose_shrunk(draw, plans)


def already_scaled_down(plans: Iterable[DeploymentPlan]) -> tuple[DeploymentPlan, ...]:
    """Return the Deployments with the replicas that they end with from the start."""
    return tuple(replace(plan, replicas=plan.replicas_after) for plan in plans)


def _draw_deployment(draw: random.Random, index: int) -> DeploymentPlan:
    """Return one Deployment of random size."""
    cpu_millis = draw.choice(_CPU_MILLIS)
    mebibytes = cpu_millis * draw.choice(_MEBIBYTES_PER_CPU) // 1000
    replicas = draw.randint(*_REPLICAS)
    namespace = draw.choice(NAMESPACE_NAMES)
    return DeploymentPlan(
        namespace=namespace,
        name=f"{namespace}-{index:03d}",
        cpu_millis=cpu_millis,
        memory_bytes=min(max(mebibytes, _LEAST_MEBIBYTES), _MOST_MEBIBYTES) * _MEBI,
        replicas=replicas,
        replicas_after=replicas,
        budget=index % _BUDGET_EVERY == 0,
    )


def _choose_shrunk(draw: random.Random, plans: Sequence[DeploymentPlan]) -> tuple[DeploymentPlan, ...]:
    """Return the Deployments with a random third scaled down to a fifth of their replicas."""
    chosen_indexes = set(draw.sample(range(len(plans)), len(plans) // _SHRUNK_SHARE))
    return tuple(
        replace(plan, replicas_after=max(1, plan.replicas // _SHRINK_DIVISOR)) if index in chosen_indexes else plan
        for index, plan in enumerate(plans)
    )


def build_deployment(plan: DeploymentPlan) -> dict[str, Any]:
    """Return a Deployment whose pods end at once."""
    labels = {"app": plan.name}
    requests = ResourceAmounts({"cpu": plan.cpu_millis, "memory": plan.memory_bytes}).to_quantities()
    return {
        "apiVersion": DEPLOYMENTS.api_version,
        "kind": DEPLOYMENTS.kind,
        "metadata": {"namespace": plan.namespace, "name": plan.name, "labels": labels},
        "spec": {
            "replicas": plan.replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "main", "image": "pause", "resources": {"requests": requests}}],
                },
            },
        },
    }


def build_budget(plan: DeploymentPlan) -> dict[str, Any]:
    """Return a disruption budget that allows one pod at a time."""
    return {
        "apiVersion": PDBS.api_version,
        "kind": PDBS.kind,
        "metadata": {"namespace": plan.namespace, "name": plan.name},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": plan.name}}},
    }


def _create_all(client: KubeClient, plans: Sequence[DeploymentPlan]) -> None:
    """Create the namespaces, then the Deployments and budgets; what exists already stays."""
    for name in NAMESPACE_NAMES:
        head = {"apiVersion": NAMESPACES.api_version, "kind": NAMESPACES.kind, "metadata": {"name": name}}
        _create(client, NAMESPACES, head)
    _each(lambda plan: _create(client, DEPLOYMENTS, build_deployment(plan)), plans)
    _each(lambda plan: _create(client, PDBS, build_budget(plan)), [plan for plan in plans if plan.budget])


def _create(client: KubeClient, resource: Resource, body: dict[str, Any]) -> None:
    """Create an object unless it exists."""
    try:
        client.create(resource, body)
    except AlreadyExistsError:
        return


def _scale(client: KubeClient, plan: DeploymentPlan) -> None:
    body = {"spec": {"replicas": plan.replicas_after}}
    client.merge_patch(DEPLOYMENTS, plan.name, body, namespace=plan.namespace)


def _each(action: Callable[[DeploymentPlan], None], plans: Sequence[DeploymentPlan]) -> None:
    """Apply an action to every Deployment, several at a time."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(action, plans))


def _wait_until_settled(client: KubeClient, wanted: int, timeout_seconds: float, progress: Progress) -> None:
    """Wait until exactly the wanted pods exist and all are ready."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        looked_at = time.monotonic()
        pods = [pod for pod in client.list(PODS, type=Pod).items if pod.metadata.namespace in NAMESPACE_NAMES]
        ready = sum(pod.is_ready and not pod.is_terminating for pod in pods)
        if ready == len(pods) == wanted:
            progress(f"{ready} pods are running")
            return
        if time.monotonic() > deadline:
            raise SandboxError(f"the workload did not settle: {len(pods)} pods, {ready} ready, {wanted} wanted")
        time.sleep(max(_POLL_SECONDS, _PAUSE_BY_LOOK * (time.monotonic() - looked_at)))
