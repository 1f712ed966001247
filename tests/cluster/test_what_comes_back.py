"""What real controllers make in the stead of a pod that goes, and what the descheduler says before it lets one go."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from berth_core import Pod
from berth_core.clock import SystemClock
from berth_core.migration_plans import MoveReason, PlannedMove
from berth_descheduler.framework.refusals import RefusalReason
from berth_descheduler.migration.moves.eviction_request import EvictAnswer, evict
from berth_descheduler.migration.moves.memory import Eviction
from berth_descheduler.migration.validation.pre_eviction import PreEvictionCheck
from berth_descheduler.planner.evictability import Evictability
from berth_descheduler.snapshots import read_live_snapshot
from berth_kube import connect
from berth_kube.client import KubeClient
from berth_kube.resources import JOBS, NAMESPACES, NODES, PODS, STATEFUL_SETS, Resource
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster_objects import is_gone, make_namespace, pod_template, pods
from planner_settings import plugin_set
from waiting import eventually

pytestmark = pytest.mark.cluster

CLOCK: Final = SystemClock()
NUMBERS: Final = itertools.count(1)


class LivingOperator:
    """An operator that is alive whenever it is asked."""

    def problem(self) -> str:
        return ""


@dataclass(frozen=True)
class Place:
    """A namespace with a node for its pods, seen by an administrator and by the descheduler."""

    client: KubeClient
    descheduler: KubeClient
    namespace: str
    node: str

    def create(self, resource: Resource, name: str, spec: dict[str, Any]) -> None:
        selector = {} if resource is JOBS else {"selector": {"matchLabels": {"app": name}}}
        body = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}}
        self.client.create(resource, {**body, "spec": {**selector, **spec}}, namespace=self.namespace)

    def template(self, name: str, cpu: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a pod
        here = {"kubernetes.io/hostname": self.node}
        return pod_template({"app": name}, cpu=cpu, nodeSelector=here, **spec)

    def pods(self, name: str) -> tuple[Pod, ...]:
        return pods(self.client, self.namespace, app=name)

    def pod(self, name: str) -> Pod:
        return self.client.get(PODS, name, namespace=self.namespace, type=Pod)

    def await_ready(self, name: str, count: int) -> None:
        eventually(f"{name} runs", lambda: [pod.is_ready for pod in self.pods(name)] == [True] * count, seconds=60)

    def set_status(self, name: str, **status: Any) -> None:  # noqa: ANN401 - fields of a status
        self.client.merge_patch(PODS, name, {"status": status}, namespace=self.namespace, subresource="status")

    def set_ready(self, name: str, *, ready: bool) -> None:
        conditions = [
            {"type": condition.type, "status": str(ready) if condition.type == "Ready" else condition.status}
            for condition in self.pod(name).status.conditions
        ]
        self.set_status(name, conditions=conditions)

    def planned_refusals(self, name: str) -> list[tuple[RefusalReason, str]]:
        """What a plan of the descheduler says of a pod."""
        snapshot = read_live_snapshot(self.descheduler, "berth-system")
        (pod,) = [pod for pod in snapshot.pods if pod.key == f"{self.namespace}/{name}"]
        refusals = Evictability(snapshot, now=CLOCK.now()).refusals(pod)
        return [(refusal.reason, refusal.message) for refusal in refusals]

    def evict(self, name: str) -> EvictAnswer:
        """Evict a pod as a move does once its place is held; only the look at its owner can refuse that."""
        check = PreEvictionCheck(
            plugin_set(),
            lambda: read_live_snapshot(self.descheduler, "berth-system"),
            self.descheduler,
            CLOCK,
        )
        uid = self.pod(name).metadata.uid
        move = PlannedMove(namespace=self.namespace, pod=name, pod_uid=uid, source=self.node, target=self.node)
        operator: Any = LivingOperator()
        return evict(self.descheduler, move, operator, check, lambda _pod, _reads: None)


@pytest.fixture
def place(sandbox: Sandbox) -> Iterator[Place]:
    """Yield a namespace and a node of its own; both are taken away afterwards."""
    name = f"comes-back-{next(NUMBERS)}"
    account = str(sandbox.service_account_kubeconfig("berth-descheduler"))
    with sandbox.connect() as client, connect(kubeconfig=account, user_agent="berth-descheduler") as descheduler:
        make_namespace(client, name)
        (node,) = sandbox.add_nodes(1, NodeShape(cpu="8", memory="64Gi"), prefix=f"{name}-")
        try:
            yield Place(client, descheduler, name, node)
        finally:
            for resource in (STATEFUL_SETS, JOBS):
                for made in client.list(resource, namespace=name).items:
                    client.delete(resource, made["metadata"]["name"], namespace=name, propagation="Background")
            eventually("its pods are gone", lambda: not client.list(PODS, namespace=name).items, seconds=60)
            client.delete(NODES, node)
            client.delete(NAMESPACES, name)
            eventually("the namespace is gone", lambda: is_gone(client, NAMESPACES, name), seconds=120)


def test_a_stateful_set_makes_a_larger_pod_and_the_plan_says_so(place: Place) -> None:
    spec = {"serviceName": "db", "replicas": 1, "updateStrategy": {"type": "OnDelete"}}
    place.create(STATEFUL_SETS, "db", {**spec, "template": place.template("db", "200m")})
    place.await_ready("db", 1)
    assert place.planned_refusals("db-0") == []
    first = place.client.get(STATEFUL_SETS, "db", namespace=place.namespace)["status"]["updateRevision"]

    larger = {"spec": {"template": place.template("db", "2")}}
    place.client.merge_patch(STATEFUL_SETS, "db", larger, namespace=place.namespace)
    revision = lambda: place.client.get(STATEFUL_SETS, "db", namespace=place.namespace)["status"]["updateRevision"]  # noqa: E731
    eventually("the StatefulSet has a new revision", lambda: revision() != first, seconds=60)

    message = (
        f"its StatefulSet db makes the replacement from revision {revision()}, which asks for cpu 2 instead of 200m"
    )
    assert place.planned_refusals("db-0") == [(RefusalReason.TEMPLATE_DIFFERS, message)]
    answer = place.evict("db-0")
    assert (answer.eviction, answer.refusal, answer.detail) == (Eviction.NOT_SENT, MoveReason.FILTERED, message)

    before = place.pod("db-0")
    place.client.delete(PODS, "db-0", namespace=place.namespace)
    eventually("another one runs", lambda: _another_is_ready(place, "db", before), seconds=60)
    assert place.pod("db-0").spec.containers[0].resources.requests["cpu"] == "2"


def test_a_lower_ordinal_that_is_not_ready_holds_the_eviction_up_until_it_is(place: Place) -> None:
    spec = {"serviceName": "db", "replicas": 2, "template": place.template("db", "200m")}
    place.create(STATEFUL_SETS, "db", spec)
    place.await_ready("db", 2)
    assert place.planned_refusals("db-1") == []
    before = place.pod("db-1")

    place.set_ready("db-0", ready=False)
    blocked = place.evict("db-1")
    untouched = place.pod("db-1")
    place.set_ready("db-0", ready=True)
    sent = place.evict("db-1")

    assert (blocked.eviction, blocked.refusal) == (Eviction.BLOCKED, MoveReason.NONE)
    assert blocked.detail == "db-0 is not Ready, and its StatefulSet db makes no pod of a higher ordinal meanwhile"
    assert (untouched.metadata.uid, untouched.is_terminating) == (before.metadata.uid, False)
    assert sent.eviction is Eviction.SENT
    eventually("another one runs", lambda: _another_is_ready(place, "db", before, count=2), seconds=60)


def test_a_work_queue_makes_no_pod_once_one_has_succeeded(place: Place) -> None:
    template = place.template("work", "200m", restartPolicy="Never")
    place.create(JOBS, "work", {"parallelism": 2, "backoffLimit": 6, "template": template})
    place.await_ready("work", 2)
    done, other = (pod.metadata.name for pod in place.pods("work"))
    assert place.planned_refusals(other) == []

    place.set_status(done, phase="Succeeded")
    job = lambda: place.client.get(JOBS, "work", namespace=place.namespace)  # noqa: E731
    eventually("the Job counts the success", lambda: job()["status"].get("succeeded") == 1, seconds=60)

    message = "its Job work has no completions and a pod that has succeeded (1), so it would not make the pod again"
    assert place.planned_refusals(other) == [(RefusalReason.NO_REPLACEMENT, message)]
    answer = place.evict(other)
    assert (answer.eviction, answer.refusal, answer.detail) == (Eviction.NOT_SENT, MoveReason.FILTERED, message)

    place.client.delete(PODS, other, namespace=place.namespace)
    eventually("the Job is complete", lambda: "completionTime" in job()["status"], seconds=60)
    assert [pod.metadata.name for pod in place.pods("work")] == [done]


def _another_is_ready(place: Place, name: str, before: Pod, *, count: int = 1) -> bool:
    there = place.pods(name)
    is_gone_now = before.metadata.uid not in {pod.metadata.uid for pod in there}
    return is_gone_now and len(there) == count and all(pod.is_ready for pod in there)
