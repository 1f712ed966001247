"""Pods that ask for a replacement serve through evictions by others, and nobody waits for a Berth that is dead."""

import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from berth_core import Pod
from berth_core.labels import EVICTIONS_LABEL, EVICTIONS_SURGE
from berth_core.names import EVICTION_WEBHOOK_CONFIGURATION
from berth_kube.client import KubeClient
from berth_kube.errors import EvictionBlockedError, EvictionInterceptedError, NotFoundError
from berth_kube.resources import DEPLOYMENTS, NAMESPACES, NODES, PDBS, PODS, SERVICES, VALIDATING_WEBHOOKS
from berth_sandbox.binaries import find_kubectl
from berth_sandbox.ports import LOOPBACK
from berth_sandbox.pretended_nodes import NodeShape
from berth_sandbox.sandbox import Sandbox
from cluster.test_two_replicas import trusting
from cluster_objects import build_deployment, let_the_scheduler_hear, make_namespace, pod_template, told_reasons
from eviction_calls import answered_evictions
from ready_endpoints import ready_endpoints, watched_endpoints
from replicas import Replica, running_replicas
from service_processes import OperatorProcess, running_operator
from waiting import eventually

pytestmark = [pytest.mark.cluster, pytest.mark.deep]

NAMESPACE: Final = "evicted"
APPS: Final = {"api": 7, "mail": 1, "web": 12}
"""Pods of each Deployment; their budgets let no pod go."""
PROBE: Final = "probe"


class Shop:
    """A namespace whose pods ask for replacements, on two nodes."""

    def __init__(self, sandbox: Sandbox, client: KubeClient) -> None:
        self.sandbox = sandbox
        self.client = client
        self.nodes: tuple[str, ...] = ()

    def set_up(self) -> None:
        self.nodes = self.sandbox.add_nodes(2, NodeShape(cpu="32"), prefix="evicted-")
        make_namespace(self.client, NAMESPACE)
        self.client.merge_patch(NAMESPACES, NAMESPACE, {"metadata": {"labels": {EVICTIONS_LABEL: EVICTIONS_SURGE}}})
        self.deploy(PROBE, replicas=1)

    def deploy(self, name: str, *, replicas: int) -> None:
        self.client.create(DEPLOYMENTS, build_deployment(name, replicas=replicas, cpu="1"), namespace=NAMESPACE)
        eventually(f"{name} runs", lambda: self.count_ready(name) == replicas, seconds=120)

    def serve(self, name: str) -> None:
        """Give a Deployment a Service, and a budget that lets no pod of its own go."""
        chosen, head = {"app": name}, {"metadata": {"name": name}}
        service = {"apiVersion": "v1", "kind": "Service", **head, "spec": {"selector": chosen, "ports": [{"port": 80}]}}
        budget = {"minAvailable": "100%", "selector": {"matchLabels": chosen}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", **head, "spec": budget}
        self.client.create(SERVICES, service, namespace=NAMESPACE)
        self.client.create(PDBS, body, namespace=NAMESPACE)

    def clear(self) -> None:
        for one in self.client.list(DEPLOYMENTS, namespace=NAMESPACE).items:
            self.client.delete(DEPLOYMENTS, one["metadata"]["name"], namespace=NAMESPACE, propagation="Background")
        eventually("all pods are gone", self._delete_pods, seconds=120)
        for node in self.nodes:
            self.client.delete(NODES, node)
        self.client.delete(NAMESPACES, NAMESPACE)

    def _delete_pods(self) -> bool:
        found = self.pods()
        for pod in found:
            with suppress(NotFoundError):
                self.client.delete(PODS, pod.metadata.name, namespace=NAMESPACE, grace_seconds=0)
        return not found

    def pods(self, app: str = "", node: str = "") -> tuple[Pod, ...]:
        return self.client.list(
            PODS,
            namespace=NAMESPACE,
            label_selector=f"app={app}" if app else "",
            field_selector=f"spec.nodeName={node}" if node else "",
            type=Pod,
        ).items

    def count_ready(self, app: str) -> int:
        return sum(pod.is_ready and not pod.is_terminating for pod in self.pods(app))

    def evict(self, pod: Pod) -> bool:
        """Evict a pod once; return whether the operator answered instead of the API server."""
        try:
            self.client.evict(NAMESPACE, pod.metadata.name, uid=pod.metadata.uid)
        except EvictionInterceptedError:
            return True
        except (EvictionBlockedError, NotFoundError):
            return False
        return False

    def first_moved(self) -> Pod:
        """Return the pod of the probe that the operator moves: those before went as ever, for it was not asked yet."""
        moved: list[Pod] = []

        def is_asked() -> bool:
            found = [pod for pod in self.pods(PROBE) if pod.is_ready and not pod.is_terminating]
            moved[:] = [pod for pod in found if self.evict(pod)]
            return bool(moved)

        eventually("the API server asks the operator", is_asked, seconds=120)
        return moved[0]

    def kubectl(self, *arguments: str) -> str:
        command = [str(find_kubectl(print)), "--kubeconfig", str(self.sandbox.kubeconfig), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def answering(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Yield an operator that answers evictions."""
    with running_operator(sandbox, tmp_path_factory.mktemp("operator"), "--evictions") as process:
        yield process


@pytest.fixture(scope="module")
def shop(sandbox: Sandbox, answering: OperatorProcess) -> Iterator[Shop]:
    assert answering.exit_code is None
    with sandbox.connect() as client, answered_evictions(client):
        made = Shop(sandbox, client)
        try:
            made.set_up()
            yield made
        finally:
            made.clear()


def test_a_pod_serves_until_another_does_and_who_cannot_surge_goes_at_once(
    shop: Shop, answering: OperatorProcess
) -> None:
    moved = shop.first_moved()
    asked_once = lambda: moved.metadata.uid not in {pod.metadata.uid for pod in shop.pods(PROBE)}  # noqa: E731
    eventually("Berth evicts it itself, as nobody asks again", asked_once, seconds=120)
    assert shop.count_ready(PROBE) == 1
    told = lambda: set(told_reasons(shop.client, moved.metadata.name, namespace=NAMESPACE))  # noqa: E731
    eventually("both are told", lambda: {"LetGoForEviction", "EvictedForRequester"} <= told())

    alone = {"apiVersion": "v1", "kind": "Pod", **pod_template({"app": "alone"}, cpu="1")}
    alone["metadata"]["name"] = "alone"
    shop.client.create(PODS, alone, namespace=NAMESPACE)
    eventually("it runs", lambda: shop.count_ready("alone") == 1, seconds=60)
    (pod,) = shop.pods("alone")
    said = shop.kubectl("drain", pod.spec.node_name, "--force", "--pod-selector=app=alone")
    assert "without a replacement: it has no controller" in said, said
    shop.kubectl("uncordon", pod.spec.node_name)

    source, target = shop.nodes
    shop.kubectl("cordon", target)
    let_the_scheduler_hear(shop.client, NAMESPACE, target)
    for name, replicas in APPS.items():
        shop.deploy(name, replicas=replicas)
        shop.serve(name)
    shop.kubectl("uncordon", target)
    eventually("all endpoints are ready", lambda: ready_endpoints(shop.client, NAMESPACE) == APPS, seconds=120)

    with watched_endpoints(shop.client, NAMESPACE) as endpoints:
        said = shop.kubectl("drain", source, "--timeout=280s")

    assert said.count(" evicted") >= sum(APPS.values()), said
    assert endpoints.fewest == APPS
    assert not [pod for pod in shop.pods(node=source) if not pod.is_terminating]
    assert {name: shop.count_ready(name) for name in APPS} == APPS

    answering.kill()
    (pod,) = shop.pods(PROBE)
    assert not shop.evict(pod), "nobody waits for an operator that is dead"
    (webhook, _) = shop.client.get(VALIDATING_WEBHOOKS, EVICTION_WEBHOOK_CONFIGURATION)["webhooks"]
    assert (webhook["failurePolicy"], webhook["timeoutSeconds"]) == ("Ignore", 3)


def answer_of(replica: Replica, config: dict[str, Any], pod: Pod) -> str:
    """Ask one replica about an eviction as the API server would; return its message, "" where the eviction passes."""
    asked = {"uid": "1", "namespace": NAMESPACE, "name": pod.metadata.name, "operation": "CREATE"}
    body = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}
    url = f"https://{LOOPBACK}:{replica.webhook_port}{urlsplit(config['url']).path}"
    call = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(call, timeout=60, context=trusting(config)) as answer:  # noqa: S310 - our own
        response = json.load(answer)["response"]
    return "" if response["allowed"] else str(response["status"]["message"])


def test_both_replicas_of_the_operator_answer_and_one_goes_on_without_the_other(shop: Shop, tmp_path: Path) -> None:
    with running_replicas(shop.sandbox, tmp_path, 2, "--evictions") as replicas:
        leader, follower = replicas.leader, replicas.follower
        first = shop.first_moved()
        eventually("the first goes", lambda: not shop.evict(first) and is_settled(shop), seconds=120)
        (pod,) = shop.pods(PROBE)
        shop.serve(PROBE)  # its budget keeps the pod should an eviction pass while the API server finds no replica
        for node in shop.nodes:
            shop.kubectl("cordon", node)
        let_the_scheduler_hear(shop.client, NAMESPACE, shop.nodes[-1])
        config = shop.client.get(VALIDATING_WEBHOOKS, EVICTION_WEBHOOK_CONFIGURATION)["webhooks"][0]["clientConfig"]

        eventually("one lets the pod go", lambda: "not available yet" in answer_of(leader, config, pod), seconds=60)
        goes_by_it = lambda: "not available yet" in answer_of(follower, config, pod)  # noqa: E731
        eventually("the other goes by what that has done", goes_by_it)
        leader.kill()
        replicas.wait_until_left_out(leader)
        eventually("the API server asks the other", lambda: shop.evict(pod), seconds=60)
        eventually("the other goes on", goes_by_it)

        for node in shop.nodes:
            shop.kubectl("uncordon", node)
        eventually("the pod goes", lambda: not shop.evict(pod) and is_settled(shop), seconds=120)
        assert pod.metadata.uid != shop.pods(PROBE)[0].metadata.uid


def is_settled(shop: Shop) -> bool:
    """Return whether the probe has one pod, which serves and which its ReplicaSet has."""
    found = shop.pods(PROBE)
    return len(found) == 1 and found[0].is_ready and not found[0].is_terminating and found[0].controller is not None
