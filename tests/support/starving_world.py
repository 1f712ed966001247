"""A cluster on which jobs starve, and what a watch saw of the nodes that are kept for them."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from berth_core import (
    POLICY_API_VERSION,
    POLICY_KIND,
    STANDING_FENCE_LABEL,
    STARVING_JOB_LABEL,
    BerthError,
    Node,
    Pod,
    Reservation,
)
from berth_core.names import DEFAULT_NAMESPACE
from berth_kube import Changed, Informer, Listed, Store, WatchItem
from berth_kube.client import KubeClient
from berth_kube.resources import DESCHEDULER_POLICIES, EVENTS, MIGRATION_PLANS, NODES, PODS, RESERVATIONS
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import make_namespace, pod_template
from policy_scenes import DeschedulerReplica
from reservation_stage import delete_all, delete_if_there
from waiting import eventually

POLICY = "starving-jobs"


class World:
    """Nodes of 3 cpu and 3Gi, and a service for whose policies jobs starve."""

    def __init__(self, client: KubeClient, namespace: str, nodes: Sequence[str], scheduler: str = "") -> None:
        self.client = client
        self._scheduler = {"schedulerName": scheduler} if scheduler else {}
        self.namespace = namespace
        self.nodes = tuple(nodes)
        self.kept: dict[str, Reservation] = {}
        """Every Reservation for a job that a watch ever saw, as it was last, by uid."""
        self.most_fenced = 0
        self._fences: Store[Pod] = Store()
        self._failures: list[BerthError] = []

    @property
    def node(self) -> str:
        """Return the only node."""
        (node,) = self.nodes
        return node

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note Reservations and fences as they come and go."""
        fences = {"resource": PODS, "namespace": DEFAULT_NAMESPACE, "label_selector": STANDING_FENCE_LABEL, "type": Pod}
        kept = {"resource": RESERVATIONS, "namespace": self.namespace, "label_selector": STARVING_JOB_LABEL}
        with self._watch(self._note_fence, **fences), self._watch(self._note, **kept):
            yield
        assert not self._failures, self._failures

    def _watch(self, note: Callable[[WatchItem[Any]], None], **what: Any) -> Informer[Any]:  # noqa: ANN401 - of `watch`
        return Informer("kept", lambda stop: self.client.watch(stop=stop, **what), note, self._failures.append)

    def _note(self, item: WatchItem[Any]) -> None:
        match item:
            case Listed(items):
                self.kept |= {one["metadata"]["uid"]: Reservation.read(one) for one in items}
            case Changed(raw):
                self.kept[raw["metadata"]["uid"]] = Reservation.read(raw)
            case _:
                pass

    def _note_fence(self, item: WatchItem[Pod]) -> None:
        self._fences.apply(item)
        self.most_fenced = max(self.most_fenced, len({pod.spec.node_name for pod in self._fences.objects()}))

    def create(
        self,
        name: str,
        cpu: str = "1",
        memory: str = "1Gi",
        *,
        node: str = "",
        **metadata: Any,  # noqa: ANN401 - of a pod
    ) -> None:
        body = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": name}, cpu=cpu)}
        requests = {"cpu": cpu, "memory": memory} if cpu != "0" else {}
        for one in body["spec"]["containers"]:
            one["resources"] = {"requests": requests}
        body["spec"] |= {"restartPolicy": "Never", **self._scheduler, **({"nodeName": node} if node else {})}
        body["metadata"] |= {"name": name, **metadata}
        self.client.create(PODS, body, namespace=self.namespace)

    def end(self, *names: str) -> None:
        for name in names:
            self.client.delete(PODS, name, namespace=self.namespace, grace_seconds=0)

    def on_the_node(self) -> set[str]:
        found = self.client.list(PODS, namespace=self.namespace, type=Pod).items
        return {pod.metadata.name for pod in found if pod.spec.node_name and pod.status.phase == "Running"}

    def await_running(self, *names: str) -> None:
        eventually(f"{names} run, and no others", lambda: self.on_the_node() == set(names), seconds=90)

    def await_refused(self, *names: str) -> None:
        pods = lambda: [self.client.get(PODS, name, namespace=self.namespace, type=Pod) for name in names]  # noqa: E731
        refused = lambda: all(pod.condition("PodScheduled") == "False" for pod in pods())  # noqa: E731
        eventually(f"the scheduler finds no place for {names}", refused, seconds=90)

    def reservations(self) -> list[Reservation]:
        found = self.client.list(RESERVATIONS, namespace=self.namespace, label_selector=STARVING_JOB_LABEL).items
        return [Reservation.read(one) for one in found]

    def fenced(self) -> set[str]:
        found = self.client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=STANDING_FENCE_LABEL, type=Pod).items
        return {pod.spec.node_name for pod in found if not pod.is_terminating}

    def events(self, pod: str) -> dict[str, str]:
        found = self.client.list(EVENTS, namespace=self.namespace).items
        return {one["reason"]: one["message"] for one in found if one["involvedObject"]["name"] == pod}

    def switch_on(self, policy: str = POLICY, **args: Any) -> None:  # noqa: ANN401 - arguments of the plugin
        of_namespace = {"namespaceNodePercent": args.get("reservedNodePercent", 50)}
        asked = {"starvingJobTimeThreshold": 0, "reservedNodePercent": 50, "moves": "Never", **of_namespace, **args}
        profile = {
            "name": "default",
            "pluginConfig": [{"name": "StarvingJobs", "args": asked}],
            "plugins": {"balance": {"enabled": ["StarvingJobs"]}},
        }
        spec = {"trigger": {"interval": "10s"}, "mode": "Auto", "profiles": [profile]}
        body = {"apiVersion": POLICY_API_VERSION, "kind": POLICY_KIND, "metadata": {"name": policy}, "spec": spec}
        self.client.create(DESCHEDULER_POLICIES, body)

    def starve_pod_4(self) -> None:
        """Play the proposal's picture until its node is kept for pod-4."""
        for number in (1, 2, 3):
            self.create(f"pod-{number}")
        self.await_running("pod-1", "pod-2", "pod-3")
        self.create("pod-4", "3", "3Gi")
        self.await_refused("pod-4")
        self.end("pod-1")
        self.create("pod-5")
        self.await_running("pod-2", "pod-3", "pod-5")
        self.switch_on()
        eventually("the node is kept for pod-4", lambda: self.fenced() == {self.node}, seconds=90)

    def end_pod_5(self, *beside: str) -> None:
        """Let the last pod before pod-4 end: pod-4 comes next, then the two that came later."""
        self.end("pod-5")
        self.await_running("pod-4", *beside)
        self.end("pod-4")
        self.await_running("pod-6", "pod-7", *beside)
        eventually("no fence is left", lambda: not self.fenced(), seconds=90)

    def switch_off(self, policy: str = POLICY) -> None:
        self.client.delete(DESCHEDULER_POLICIES, policy)


def clear(client: KubeClient, namespace: str, nodes: Iterable[str]) -> None:
    for resource in (DESCHEDULER_POLICIES, MIGRATION_PLANS, RESERVATIONS):
        for item in client.list(resource).items:
            delete_if_there(client, resource, item["metadata"]["name"], item["metadata"].get("namespace"))
    delete_all(client, PODS, namespace)
    delete_all(client, PODS, DEFAULT_NAMESPACE)
    eventually("all pods are gone", lambda: not client.list(PODS, type=Pod).items, seconds=180)
    for node in nodes:
        delete_if_there(client, NODES, node)


@contextmanager
def starving_world(
    cluster: Sandbox, folder: Path, nodes: int, tiny: int = 0, scheduler: str = ""
) -> Iterator[tuple[World, DeschedulerReplica]]:
    """Yield nodes that are ready, and a service; clear them away at the end.

    There are `tiny` more on which no pod fits: so many nodes of all may be fenced.
    """
    name = f"starve-{time.monotonic_ns():x}"
    made = cluster.add_nodes(nodes, NodeShape(cpu="3", memory="3Gi"), prefix=f"{name}-")
    cluster.add_nodes(tiny, NodeShape(cpu="10m", memory="16Mi"), prefix=f"{name}-tiny-")
    with cluster.connect() as client, DeschedulerReplica(cluster, folder) as service:
        world = World(client, make_namespace(client, name), made, scheduler)
        ready = lambda: all(client.get(NODES, node, type=Node).ready for node in made)  # noqa: E731
        eventually("the nodes are ready", ready, seconds=60)
        try:
            yield world, service
        finally:
            named = [node["metadata"]["name"] for node in client.list(NODES).items]
            clear(client, world.namespace, [node for node in named if node.startswith(name)])
