"""An operator's queues around an API server in memory, driven by a clock that only the test moves."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from api_server_in_memory import ApiServerInMemory, error
from berth_core import (
    QUEUE_API_VERSION,
    QUEUE_GATE,
    QUEUE_KIND,
    GatedQueue,
    Namespace,
    Pod,
    QueueCondition,
    ResourceAmounts,
)
from berth_kube import KUEUE_LOCAL_QUEUES, MUTATING_WEBHOOKS, NAMESPACES, PODS, QUEUES, Listed, NotFoundError, Resource
from berth_operator.capabilities.queues.act import QUEUES_KEY, Queues
from berth_operator.reservation.store.nodes import GuardableNode
from berth_operator.runtime.capability import Kernel
from berth_operator.runtime.workqueue import Key
from builders import NOON_TEXT, as_api, pod
from stepper import CapabilitySimulation, Turn

MILLION: Final = 1_000_000
_STEP_SECONDS: Final = 3.0
_STEPS_TO_REST: Final = 5
GUARANTEE: Final = {"guarantee": {"resource": {"memory": "200M"}}}


@dataclass(eq=False)
class QueueApi(ApiServerInMemory):
    """An API server without Kueue, unless a test installs it."""

    has_kueue: bool = False

    def list(self, resource: Resource, **rest: Any) -> Any:  # noqa: ANN401 - as the client
        if resource in KUEUE_LOCAL_QUEUES and not (self.has_kueue and resource == KUEUE_LOCAL_QUEUES[-1]):
            raise error(NotFoundError)
        return super().list(resource, **rest)


def memory_node(name: str, memory: str = "500M", **changes: Any) -> GuardableNode:  # noqa: ANN401 - fields of a node
    body: dict[str, Any] = {
        "metadata": {"name": name, "uid": f"uid-{name}"},
        "status": {"allocatable": {"cpu": "64", "memory": memory, "pods": "110"}},
        **changes,
    }
    return msgspec.convert(body, GuardableNode)


@dataclass(eq=False)
class QueueSimulation(CapabilitySimulation[Queues]):
    api: QueueApi = field(default_factory=QueueApi)
    nodes: tuple[GuardableNode, ...] = (memory_node("node-a"), memory_node("node-b"))
    leads: bool = True
    is_stale: bool = False
    """Whether the watch of pods is behind: nothing comes from it."""

    def __post_init__(self) -> None:
        self.restart()

    def build(self, kernel: Kernel) -> Queues:
        return Queues(kernel)

    def is_own(self, key: Key) -> bool:
        return key == QUEUES_KEY

    def may_act(self) -> bool:
        return self.leads

    def restart(self) -> None:
        super().restart()
        self.controller.watches = self
        self.is_watching = False

    def start(self) -> None:
        self.is_watching = True
        self.hear()

    def stop(self) -> None:
        self.is_watching = False

    def hear(self) -> None:
        """Have the watches report what there is."""
        if not self.is_watching or self.is_stale:
            return
        pods = self.api.list(PODS, field_selector="status.phase!=Succeeded,status.phase!=Failed", type=Pod)
        self.controller.store.take_pod(Listed(pods.items, pods.resource_version))
        namespaces = self.api.list(NAMESPACES, type=Namespace)
        self.controller.store.take_namespace(Listed(namespaces.items, namespaces.resource_version))

    def turns(self, seconds: float) -> Iterator[Turn]:
        self.clock.advance(seconds)
        yield self.controller.listen
        yield self.hear
        yield self._make_a_pass

    def _make_a_pass(self) -> None:
        # What is queued for later is made now: the steps are longer than any delay.
        if self.due:
            self.due.clear()
            self.controller.reconcile()

    def settle(self) -> None:
        """List queues, report pods, and make passes, until no more is due."""
        for _ in range(_STEPS_TO_REST):
            self.step(_STEP_SECONDS)

    # --- what users do

    def namespace(self, name: str, **labels: str) -> None:
        self.api.put(
            NAMESPACES, {"metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name, **labels}}}
        )

    def write(self, name: str, *, namespaces: str = "", created: str = NOON_TEXT, **spec: Any) -> None:  # noqa: ANN401 - a field of the spec
        """Create a queue or replace its spec; its namespaces have the label `team`."""
        known = self.api.objects[QUEUES.plural].get(("", name), {"metadata": {"generation": 0}})
        meta = {"name": name, "uid": f"uid-{name}", "creationTimestamp": created}
        meta["generation"] = known["metadata"]["generation"] + 1
        selector = {"matchLabels": {"team": namespaces or name}}
        body = {"apiVersion": QUEUE_API_VERSION, "kind": QUEUE_KIND, "metadata": meta}
        status = {"status": known["status"]} if "status" in known else {}
        self.api.put(QUEUES, {**body, "spec": {"namespaceSelector": selector, **spec}, **status})

    def delete_queue(self, name: str) -> None:
        del self.api.objects[QUEUES.plural]["", name]

    def submit(self, name: str, namespace: str, *, memory: str = "100M", created: str = NOON_TEXT, **rest: Any) -> None:  # noqa: ANN401 - fields of a pod
        """Create a pod, which gets the gate if the webhook is registered for its namespace."""
        made = pod(name, namespace=namespace, memory=memory, cpu="100m", **rest)
        body = as_api(made)
        body["metadata"] |= {"uid": f"uid-{namespace}-{name}", "creationTimestamp": created}
        if namespace in self.gated_namespaces() and not rest.get("node"):
            gates = [*body["spec"].get("schedulingGates", []), {"name": QUEUE_GATE}]
            body["spec"] = {**body["spec"], "schedulingGates": gates}
        self.api.put(PODS, body)

    def end(self, name: str, namespace: str) -> None:
        del self.api.objects[PODS.plural][namespace, name]

    # --- what is there

    def gated_namespaces(self) -> list[str]:
        configuration = self.api.objects[MUTATING_WEBHOOKS.plural].get(("", "berth-queues"))
        if configuration is None:
            return []
        names: list[str] = configuration["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"]
        return names

    def free(self, namespace: str) -> list[str]:
        """Return the names of the pods without the gate."""
        return sorted(
            name
            for (within, name), body in self.api.objects[PODS.plural].items()
            if within == namespace and {"name": QUEUE_GATE} not in body["spec"].get("schedulingGates", [])
        )

    def queue(self, name: str) -> GatedQueue:
        return GatedQueue.read(self.api.objects[QUEUES.plural]["", name])

    def says(self, name: str, type_: QueueCondition) -> tuple[str, str]:
        found = self.queue(name).condition(type_)
        return (found.status, found.reason) if found else ("", "")

    def message(self, name: str, type_: QueueCondition) -> str:
        found = self.queue(name).condition(type_)
        return found.message if found else ""


def simulated(**second: object) -> QueueSimulation:
    """Return the proposal's two queues, of which the second is guaranteed 200M of 1000M, with a namespace each."""
    one = QueueSimulation()
    one.namespace("a", team="q1")
    one.namespace("b", team="q2")
    one.write("q1")
    one.write("q2", **(second or GUARANTEE))
    one.settle()
    return one


def megabytes(quantities: dict[str, str]) -> int:
    return ResourceAmounts.from_quantities(quantities)["memory"] // MILLION
