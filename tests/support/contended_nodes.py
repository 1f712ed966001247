"""Nodes that pods contend for, and what keeps others off them: all without Berth, to see what schedulers do."""

# ruff: noqa: ANN401 - fields of API objects may be anything

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

from berth_core import Pod
from berth_core.errors import BerthError
from berth_core.labels import AWAITS_CAPACITY_LABEL, FENCE_LABEL, PLACEHOLDER_LABEL, RESERVATION_LABEL
from berth_core.names import fence_name, standing_fence_name
from berth_kube.client import KubeClient
from berth_kube.errors import AlreadyExistsError, ForbiddenError, InvalidObjectError, NotFoundError
from berth_kube.resources import ADMISSION_POLICY_BINDINGS, DAEMON_SETS, PODS, PRIORITY_CLASSES
from berth_kube.watch_items import Changed, Removed
from berth_operator.reservation.manifests import (
    FENCE_PRIORITY,
    FenceKind,
    build_fence,
    build_priority_class,
    build_standing_fence,
)
from berth_operator.settings import PlaceholderSettings
from berth_sandbox.bootstrap import build_admission_policies
from cluster_objects import pod_template, pods
from waiting import eventually

Body = dict[str, Any]

EVERYTHING: Final = [{"operator": "Exists"}]
"""The toleration of every taint."""
WHOLE, HALF = "4", "2"
"""The cpu of a node, and a half of it."""
AWAITING: Final = {RESERVATION_LABEL: "uid", PLACEHOLDER_LABEL: "true", AWAITS_CAPACITY_LABEL: "true"}
"""The labels of an awaited placeholder."""
_LABEL_POLICY: Final = "berth-pods-of-others"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def build_pod(app: str, cpu: str, labels: Body, **spec: Any) -> Body:
    return {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": app, **labels}, cpu=cpu, **spec)}


def tied_to(node: str) -> Body:
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}


def build_fences(
    node: str, namespace: str, *, number: int = 0, priority_class: str = "", in_one: bool = False
) -> tuple[Body, ...]:
    """Return the pods of the product's standing fence, or that of a hand-over, which has both terms `in_one`.

    A scheduler does not wake the pods that the latter kept off when it is gone: it looks for pods that all terms
    select.
    """
    settings = PlaceholderSettings(namespace=namespace)
    if in_one:
        return (build_fence(node, fence_name(node, number), seconds=3600, settings=settings),)
    bodies = tuple(
        build_standing_fence(node, standing_fence_name(node, kind, number), kind, seconds=3600, settings=settings)
        for kind in FenceKind
    )
    for body in bodies if priority_class else ():
        body["spec"]["priorityClassName"] = priority_class
    return bodies


@contextmanager
def priority_classes(client: KubeClient, **values: int) -> Iterator[None]:
    """Have the fences' class, and these until the end; pods of a class `never` preempt nothing."""
    bodies = [build_priority_class(FENCE_PRIORITY)]
    for name, value in values.items():
        policy = "Never" if name == "never" else "PreemptLowerPriority"
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
        bodies.append(body | {"value": value, "preemptionPolicy": policy})
    for body in bodies:
        with suppress(AlreadyExistsError):
            client.create(PRIORITY_CLASSES, body)
    for body in bodies:
        name = body["metadata"]["name"]
        eventually(f"admission knows {name}", lambda name=name: _is_known(client, name), seconds=60)
    try:
        yield
    finally:
        for name in values:
            with suppress(NotFoundError):
                client.delete(PRIORITY_CLASSES, name)


@contextmanager
def labels_for_all(client: KubeClient) -> Iterator[None]:
    """Let every account give pods the labels that fences let in, until the end."""
    (binding,) = (one for policy, one in build_admission_policies() if policy["metadata"]["name"] == _LABEL_POLICY)
    eventually("the policy is in force", lambda: not _may_label(client), seconds=60)  # else it might come in later
    client.delete(ADMISSION_POLICY_BINDINGS, _LABEL_POLICY)
    eventually("labels are free", lambda: _may_label(client), seconds=60)
    try:
        yield
    finally:
        client.create(ADMISSION_POLICY_BINDINGS, binding)
        eventually("labels are Berth's again", lambda: not _may_label(client), seconds=60)


def _may_label(client: KubeClient) -> bool:
    return _admits(client, AWAITING, refusal=InvalidObjectError)


def _is_known(client: KubeClient, priority_class: str) -> bool:
    """Return whether admission, which hears of a class through a watch, lets a pod have it."""
    return _admits(client, {}, refusal=ForbiddenError, priorityClassName=priority_class)


def _admits(client: KubeClient, labels: Body, *, refusal: type[BerthError], **spec: Any) -> bool:
    pod = build_pod("asked", "0", labels, **spec)
    pod["metadata"]["name"] = "asked"
    try:
        client.create(PODS, pod, namespace="default", dry_run=True)
    except refusal:
        return False
    return True


@dataclass(frozen=True)
class ContendedNodes:
    """Nodes, and a namespace with the pods that want them."""

    client: KubeClient
    namespace: str
    nodes: tuple[str, ...]

    def create(self, name: str, body: Body) -> Pod:
        named = body | {"metadata": body["metadata"] | {"name": name}}
        return self.client.create(PODS, named, namespace=self.namespace, type=Pod)

    def create_many(self, name: str, count: int, body: Body) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: self.create(f"{name}-{number}", body), range(count)))

    def delete(self, name: str, *, grace_seconds: int | None = 0) -> None:
        self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=grace_seconds)

    def everywhere(self, act: Callable[[str], object]) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(act, self.nodes))

    def fence(self, node: str, **how: Any) -> int:
        """Fence a node off; return the resourceVersion since when ordinary pods are kept off."""
        bodies = build_fences(node, self.namespace, **how)
        made = [self.create(body["metadata"]["name"], body) for body in bodies]
        return int(made[0].metadata.resource_version)

    def unfence(self) -> None:
        for pod in self.fences():
            self.delete(pod.metadata.name)

    def fences(self) -> tuple[Pod, ...]:
        return pods(self.client, self.namespace, **{FENCE_LABEL: "true"})

    def pods(self, app: str) -> tuple[Pod, ...]:
        return pods(self.client, self.namespace, app=app)

    def placed(self, app: str) -> int:
        return sum(bool(pod.spec.node_name) for pod in self.pods(app))

    def running(self, app: str) -> int:
        return sum(pod.status.phase == "Running" for pod in self.pods(app))

    def create_daemons(self, max_unavailable: int = 1, **spec: Any) -> None:
        """Create the DaemonSet `agent`."""
        labels = {"app": "agent"}
        body = {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent"},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": pod_template(labels, cpu="100m", **spec),
                "updateStrategy": {"rollingUpdate": {"maxUnavailable": max_unavailable}},
            },
        }
        self.client.create(DAEMON_SETS, body, namespace=self.namespace)

    def roll_daemons_out(self) -> None:
        """Change the template of the DaemonSet."""
        new = {"spec": {"template": {"metadata": {"annotations": {"example.com/version": "2"}}}}}
        self.client.merge_patch(DAEMON_SETS, "agent", new, namespace=self.namespace)

    def wait_until_tried(self, app: str, *, seconds: float = 240) -> None:
        """Wait until a scheduler has placed or refused each of the pods."""
        eventually(
            f"all {app} pods were tried",
            lambda: all(pod.spec.node_name or pod.condition("PodScheduled") == "False" for pod in self.pods(app)),
            seconds=seconds,
        )

    def clear(self) -> None:
        """Delete all pods, those that wait first."""
        while left := self.client.list(PODS, namespace=self.namespace, type=Pod).items:
            waiting = [pod.metadata.name for pod in left if not pod.spec.node_name]
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(self._delete_if_there, waiting or [pod.metadata.name for pod in left]))

    def _delete_if_there(self, name: str) -> None:
        with suppress(NotFoundError):
            self.delete(name)


class Sightings:
    """When pods of a namespace were first bound, first ran and ended, by name, in seconds of a monotonic clock."""

    def __init__(self, ground: ContendedNodes) -> None:
        self._ground = ground
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow)
        self.bound: dict[str, tuple[float, str, int]] = {}
        """Time, node and resourceVersion."""
        self.ran: dict[str, float] = {}
        self.gone: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _follow(self) -> None:
        client, namespace = self._ground.client, self._ground.namespace
        for item in client.watch(PODS, stop=self._stop, namespace=namespace, type=Pod):
            now = time.monotonic()
            match item:
                case Changed(pod):
                    name = pod.metadata.name
                    if pod.spec.node_name:
                        self.bound.setdefault(name, (now, pod.spec.node_name, int(pod.metadata.resource_version)))
                    if pod.status.phase == "Running":
                        self.ran.setdefault(name, now)
                case Removed(pod):
                    self.gone.setdefault(pod.metadata.name, now)


def wait_at_most(done: Callable[[], bool], seconds: float, *, pause_seconds: float = 0.1) -> None:
    """Wait until something is so, or for so long."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not done():
        time.sleep(pause_seconds)


def quantiles(seconds: list[float]) -> str:
    if not seconds:
        return "never"
    ordered = sorted(seconds)
    return f"p50 {ordered[len(ordered) // 2]:.2f} p90 {ordered[len(ordered) * 9 // 10]:.2f} max {ordered[-1]:.2f} s"
